//! Looking: what every participant holds, and what its witnesses say. Changes nothing.

use super::store::Store;
use super::{Resolver, Seen, View};
use crate::engine::{Engine, Member, unknown_opening};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{BranchId, Lineage, ParticipantName, TransactionId};
use crate::participant::{BoxFuture, Evidence as Found, Participant, Question, Registered, Sighted};
use crate::protocol::recovery::{Action, Evidence, Memory, Observation, Plan, Scan, TransactionPlan};
use crate::torture::{self, Request, Safeguard};
use futures_util::future::join_all;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a look at one participant showed.
pub(super) struct Look {
    pub seen: Seen,
    pub scan: Scan,
    /// The incarnations in its own table.
    pub registered: Vec<Registered>,
}

impl Resolver {
    /// Asks every participant for its prepared branches, all at once. Changes nothing.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn observe(&self) -> View {
        let remembered = self.store.refresh().await;
        // Before the first scan: of what is decided later, the scans say nothing.
        let mut observation = Observation::new(&self.store);
        let looks = join_all(self.participants.iter().map(|one| self.look(&**one))).await;
        let foreigners = self.foreigners(&looks).await;
        let (mut participants, mut registries) = (Vec::new(), Vec::new());
        for Look { seen, scan, registered } in looks {
            observation.scanned(seen.name, scan);
            registries.push((seen.name, registered));
            participants.push(seen);
        }
        let look = || registries.iter().find_map(|(name, rows)| self.unknown_opening(*name, rows));
        let mut stale = look();
        // Others may have opened since the anchor was read.
        if stale.is_some() && self.store.anchored().is_some() {
            stale = match self.store.refresh().await {
                Ok(()) => look(),
                Err(_) => None,
            };
        }
        if let Err(error) = remembered {
            tracing::warn!(error = %error.chain(), "the anchor cannot be read");
        }
        View { observation, participants, foreigners, registries, stale }
    }

    /// An opening of this journal, in a participant's table, that it does not know. Of a journal that another process has
    /// and writes, what was read of it may be older than what is found.
    fn unknown_opening(&self, name: ParticipantName, rows: &[Registered]) -> Option<String> {
        if matches!(&self.store, Store::Offline(offline) if offline.in_use) {
            return None;
        }
        unknown_opening(&self.store, self.store.id()?, rows).map(|stale| stale.at(name).chain())
    }

    pub(super) async fn look(&self, participant: &dyn Participant) -> Look {
        let mut seen = Seen {
            name: participant.name(),
            kind: participant.kind(),
            server: None,
            sightings: Vec::new(),
            trouble: None,
        };
        let (scan, registered) = match self.scan(participant, &mut seen).await {
            Ok(whole) => whole,
            Err(error) => {
                let error = error.at(seen.name);
                let cause = error.chain();
                seen.trouble = Some(error);
                (Scan::Failed { cause }, Vec::new())
            }
        };
        // MySQL and MariaDB are told apart on connection.
        seen.kind = participant.kind();
        Look { seen, scan, registered }
    }

    async fn scan(&self, participant: &dyn Participant, seen: &mut Seen) -> Result<(Scan, Vec<Registered>)> {
        let lineage = self.identified(participant, &mut seen.server).await?;
        // Before the list: an incarnation is registered before its first branch is prepared.
        let found = if lineage == NO_TABLES { Vec::new() } else { participant.registry().await? };
        seen.sightings = torture::request(Request::List, seen.name, participant.list()).await?;
        let (mut branches, mut foreign) = (BTreeSet::new(), BTreeSet::new());
        for sighting in &seen.sightings {
            match &sighting.branch {
                Sighted::Ours(id) => branches.insert(*id),
                Sighted::Foreign(text) => foreign.insert(text.clone()),
            };
        }
        Ok((Scan::Whole { lineage, branches, foreign }, found))
    }

    /// The lineage of the data behind a participant's name, which has to be the one that the journal knows.
    pub(super) async fn identified(
        &self,
        participant: &dyn Participant,
        server: &mut Option<String>,
    ) -> Result<Lineage> {
        if let Some((engine, member)) = self.member(participant.name()) {
            // Also registers this incarnation with a participant that could not be reached before.
            engine.ready(member).await?;
        }
        let found = participant.identify().await?;
        *server = Some(found.description.clone());
        match (self.store.lineage(participant.name()), found.lineage) {
            (Some(expected), _) if !torture::is_on(Safeguard::Lineage) => Ok(expected),
            (Some(expected), found) if found != Some(expected) => {
                let found =
                    found.map_or_else(|| "no tables of Handfast".to_owned(), |other| format!("lineage {other}"));
                let message = format!(
                    "this is another server than the journal knows: it has {found}, the journal expects lineage \
                     {expected}; correct participants.{}.url, or bring the right server back",
                    participant.name()
                );
                Err(Error::new(ErrorKind::Refused, message))
            }
            // Without a lineage nothing of ours was ever decided there.
            (_, found) => Ok(found.unwrap_or(NO_TABLES)),
        }
    }

    fn member(&self, name: ParticipantName) -> Option<(&Arc<Engine>, &Member)> {
        let Store::Live(engine) = &self.store else { return None };
        engine.members.iter().find(|member| member.name == name).map(|member| (engine, member))
    }

    /// Reads the witnesses of branches that recovery would ask about, and plans with what they say. Inserts no fence
    /// and changes nothing: where no witness is visible, recovery still has to ask.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn examine(&self, view: &mut View) -> Plan {
        let plan = self.plan(&view.observation);
        let asked: Vec<_> = plan
            .branches()
            .filter(|branch| branch.action == Action::Ask)
            .map(|branch| (branch.participant, branch.id))
            .collect();
        self.read_into(view, asked).await;
        self.plan(&view.observation)
    }

    /// Reads the witnesses of one transaction on every participant of its incarnation, and plans with what they say;
    /// `None` when this journal knows nothing of its incarnation. Changes nothing, as [`examine`](Self::examine).
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn look_into(&self, view: &mut View, id: TransactionId) -> Option<TransactionPlan> {
        let opened = self.store.incarnation(id.incarnation).filter(|opened| opened.node == id.node)?;
        let known = self.plan(&view.observation).transactions.into_iter().find(|one| one.id == id);
        let mut asked: Vec<_> = known
            .iter()
            .flat_map(|one| &one.branches)
            .filter(|branch| branch.evidence == Evidence::NotAsked || branch.evidence == Evidence::Wanted)
            .map(|branch| (branch.participant, branch.id))
            .collect();
        // Of a participant that shows nothing the slot is not known: a witness is found without it.
        let planned: Vec<_> = known.iter().flat_map(|one| &one.branches).map(|branch| branch.participant).collect();
        let others = opened.participants.into_iter().zip(0..).filter(|(name, _)| !planned.contains(name));
        asked.extend(others.map(|(name, number)| (name, id.branch(number, 0))));
        for (_, branch) in self.read_into(view, asked).await {
            view.observation.want(branch);
        }
        self.plan(&view.observation).transactions.into_iter().find(|one| one.id == id)
    }

    /// Puts the question whose answer is final.
    pub(super) async fn fence(participant: &dyn Participant, branch: &BranchId) -> Result<Found> {
        if torture::is_on(Safeguard::Fence) {
            return participant.ask(branch, Question::Fence).await;
        }
        let found = participant.ask(branch, Question::Look).await?;
        Ok(if found == Found::Nothing { Found::Never } else { found })
    }

    /// What a witness says, without a fence; `None` when it cannot be asked.
    pub(super) async fn read_witness(&self, name: ParticipantName, branch: BranchId) -> Option<Evidence> {
        self.participant(name)?.ask(&branch, Question::Look).await.ok().map(Evidence::from)
    }

    /// Reads the witnesses of these branches into the observation; those that could not be read.
    async fn read_into(
        &self,
        view: &mut View,
        asked: Vec<(ParticipantName, BranchId)>,
    ) -> Vec<(ParticipantName, BranchId)> {
        let answers = join_all(asked.into_iter().map(|(name, branch)| -> BoxFuture<'_, _> {
            Box::pin(async move { (name, branch, self.read_witness(name, branch).await) })
        }));
        let mut unread = Vec::new();
        for (name, branch, found) in answers.await {
            match found {
                Some(found) => view.observation.heard(branch, found),
                None => unread.push((name, branch)),
            }
        }
        unread
    }
}

/// Stands for the lineage where there are no tables to hold one.
const NO_TABLES: Lineage = Lineage(0);
