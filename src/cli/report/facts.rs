//! What is known of branches besides what recovery plans from: how old they are, who waits for them.

use crate::id::{BranchId, Incarnation, ParticipantName};
use crate::participant::{Participant, Sighted, Sighting};
use crate::resolver::{Resolver, View};
use futures_util::future::join_all;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// By participant, and by what its server calls the branch.
type Key = (ParticipantName, String);

/// What was found out about branches, for people.
#[derive(Debug, Default)]
pub struct Facts {
    ages: HashMap<Key, u64>,
    waiting: HashMap<Key, Vec<String>>,
    /// Which participants said who waits; and why the others did not.
    asked: BTreeMap<ParticipantName, Option<String>>,
    /// How long ago the journal was opened, by opening.
    opened: HashMap<Incarnation, u64>,
}

impl Facts {
    /// All that is known of what was seen: ages, and who waits.
    pub async fn of(resolver: &Resolver, view: &View) -> Self {
        let mut facts = Self::default();
        facts.add_all(view);
        resolver.image(|image| {
            image.incarnations().for_each(|opened| facts.opened(opened.incarnation, opened.opened_at_ms));
        });
        facts.ask_who_waits(resolver.participants(), view).await;
        facts
    }

    /// Takes over a participant's list; what was known before stays.
    pub fn add(&mut self, participant: ParticipantName, sightings: &[Sighting]) {
        for Sighting { branch, age } in sightings {
            if let Some(age) = age {
                self.ages.entry((participant, gid(branch))).or_insert(age.as_secs());
            }
        }
    }

    /// Takes over all participants' lists.
    pub fn add_all(&mut self, view: &View) {
        for seen in &view.participants {
            self.add(seen.name, &seen.sightings);
        }
    }

    /// Notes when an opening of the journal was, by this machine's clock.
    pub fn opened(&mut self, incarnation: Incarnation, at_ms: u64) {
        self.opened.insert(incarnation, seconds_since(at_ms));
    }

    /// Asks the participants on which something is prepared who waits for it. One that does not say so is no failure:
    /// not every account may see who waits.
    pub async fn ask_who_waits(&mut self, participants: &[Arc<dyn Participant>], view: &View) {
        let holds_something =
            |name| view.participants.iter().any(|seen| seen.name == name && !seen.sightings.is_empty());
        let asked = participants.iter().filter(|one| holds_something(one.name()));
        let answers = join_all(asked.map(|one| async move { (one.name(), one.waiting().await) })).await;
        for (name, answer) in answers {
            match answer {
                Ok(all) => {
                    self.asked.insert(name, None);
                    let prepared = view.participants.iter().filter(|seen| seen.name == name);
                    let prepared: Vec<_> =
                        prepared.flat_map(|seen| &seen.sightings).map(|one| gid(&one.branch)).collect();
                    for one in all {
                        // Where the server does not tell which, it may be any of them, and the words say so.
                        let of = one.branch.as_ref().map_or_else(|| prepared.clone(), |branch| vec![gid(branch)]);
                        for gid in of {
                            self.waiting.entry((name, gid)).or_default().push(one.who.clone());
                        }
                    }
                }
                Err(error) => drop(self.asked.insert(name, Some(error.at(name).chain()))),
            }
        }
    }

    /// How long a branch has been prepared by its server's clock, in seconds, if that tells.
    pub fn age(&self, participant: ParticipantName, gid: &str) -> Option<u64> {
        self.ages.get(&(participant, gid.to_owned())).copied()
    }

    /// How long a branch of this journal can have been prepared at most.
    pub fn age_at_most(&self, id: &BranchId) -> Option<u64> {
        self.opened.get(&id.transaction.incarnation).copied()
    }

    /// Who waits for a branch, if its participant said so.
    pub fn waiting(&self, participant: ParticipantName, gid: &str) -> Option<Vec<String>> {
        let said = self.asked.get(&participant).is_some_and(Option::is_none);
        said.then(|| self.waiting.get(&(participant, gid.to_owned())).cloned().unwrap_or_default())
    }

    /// Why participants did not say who waits.
    pub fn silent(&self) -> impl Iterator<Item = &str> {
        self.asked.values().filter_map(Option::as_deref)
    }
}

/// What a server calls a branch, as this tool prints it.
pub fn gid(branch: &Sighted) -> String {
    match branch {
        Sighted::Ours(id) => id.to_string(),
        Sighted::Foreign(text) => text.clone(),
    }
}

/// The seconds since a moment, by this machine's clock; none before it.
fn seconds_since(at_ms: u64) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    now.saturating_sub(at_ms / 1000)
}
