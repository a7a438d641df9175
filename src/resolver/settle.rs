//! Settling earlier incarnations: asks what [`Settling`] wants to know, in its order, and writes the verdicts down.
//!
//! However many incarnations there are, each participant gets one question of each kind about all of them; only witnesses
//! take more, a page each. A settled incarnation is never asked about again.

use super::{Resolver, Seen, View};
use crate::id::{BranchId, Incarnation, ParticipantName};
use crate::journal::Journal;
use crate::participant::Participant;
use crate::participant::witness::{Kind, PAGE};
use crate::protocol::recovery::{Action, Plan, Scan, Settling, Verdict, Why};
use crate::protocol::{IncarnationRecord, Record};
use crate::torture::{self, Point, Request, Safeguard, Step};
use futures_util::future::join_all;
use std::collections::{BTreeMap, BTreeSet};

/// So many incarnations are asked about in one pass: a question about more would grow too long.
const AT_ONCE: usize = 1000;

/// An earlier incarnation that is not settled yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsettled {
    /// Which.
    pub incarnation: Incarnation,
    /// When it was opened, in milliseconds since 1970, by the clock of its machine.
    pub opened_at_ms: u64,
    /// What is in the way.
    pub hindrance: Hindrance,
    /// Why, for people.
    pub cause: String,
}

/// What keeps an incarnation from being settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hindrance {
    /// A participant could not be asked.
    OutOfReach,
    /// Something is still to be done; a later pass will find it settled.
    Pending,
    /// The facts contradict each other: no pass will change that.
    Contradiction,
}

/// What a participant showed, after the sessions of the incarnations asked about were gone.
enum Shown {
    Unused,
    OutOfReach(String),
    Listed(BTreeSet<BranchId>),
}

/// The incarnations that have a participant under one number.
type Numbers = BTreeMap<u16, Vec<Incarnation>>;

impl Resolver {
    /// Settles what can be settled; what is left, and why. `plan` is what the pass has found.
    pub(super) async fn settle_earlier(&self, view: &mut View, plan: &Plan) -> Vec<Unsettled> {
        let Some(journal) = self.store.journal() else { return Vec::new() };
        let mut earlier = self.store.unsettled();
        let later = earlier.split_off(earlier.len().min(AT_ONCE));
        let mut left: Vec<_> =
            later.iter().map(|one| unsettled(one, Hindrance::Pending, "its turn comes later")).collect();
        if let Some(cause) = journal.is_poisoned() {
            left.extend(earlier.iter().map(|one| unsettled(one, Hindrance::Pending, &cause)));
            return left;
        }
        let mut all: Vec<_> = earlier.iter().map(|opened| Settling::new(&self.store, opened)).collect();
        self.quiet(&mut all, view).await;
        // What arrived before the last session was gone is a decision like any other.
        if let Err(error) = self.store.refresh().await {
            left.extend(earlier.iter().map(|one| unsettled(one, Hindrance::OutOfReach, &error.chain())));
            return left;
        }
        // Whose lease is held again is at work after all, and no business of ours.
        if self.store.anchored().is_some() {
            let free: BTreeSet<_> = self.store.unsettled().into_iter().map(|opened| opened.incarnation).collect();
            earlier.retain(|opened| free.contains(&opened.incarnation));
            all.retain(|one| free.contains(&one.incarnation()));
        }
        self.read_witnesses(&mut all, journal).await;
        left.extend(self.conclude(&earlier, &all, view, plan, journal).await);
        left
    }

    /// Ends the sessions, then asks for the lists: all participants at once.
    async fn quiet(&self, all: &mut [Settling], view: &View) {
        let names: BTreeSet<_> = all.iter().flat_map(|one| one.participants().map(|(_, name)| name)).collect();
        let asked = names.into_iter().map(|name| {
            let (numbers, seen) =
                (numbers(all, name, |_| true), view.participants.iter().find(|seen| seen.name == name));
            async move { (name, self.quiet_one(name, &numbers, seen).await) }
        });
        for (name, shown) in join_all(asked).await {
            for one in all.iter_mut().filter(|one| one.participants().any(|(_, other)| other == name)) {
                match &shown {
                    Shown::Unused => one.unused(name),
                    Shown::OutOfReach(cause) => one.out_of_reach(name, cause.clone()),
                    Shown::Listed(branches) => {
                        one.silent(name);
                        one.listed(name, branches);
                    }
                }
            }
        }
    }

    async fn quiet_one(&self, name: ParticipantName, numbers: &Numbers, seen: Option<&Seen>) -> Shown {
        if self.store.lineage(name).is_none() {
            return Shown::Unused;
        }
        let (Some(participant), Some(seen)) = (self.participant(name), seen) else {
            return Shown::OutOfReach(format!("{name} is not configured any more"));
        };
        if let Some(trouble) = &seen.trouble {
            return Shown::OutOfReach(trouble.chain());
        }
        for (number, incarnations) in numbers.iter().filter(|_| torture::is_on(Safeguard::SessionsEnd)) {
            match torture::request(Request::EndSessions, name, participant.end_sessions(*number, incarnations)).await {
                Ok(0) => {}
                Ok(count) => tracing::info!(participant = %name, count, "sessions of earlier incarnations were ended"),
                Err(error) => return Shown::OutOfReach(error.at(name).chain()),
            }
        }
        // Compares the lineage once more: what was asked above was asked of the right server.
        match self.look(&**participant).await.scan {
            Scan::Whole { branches, .. } => Shown::Listed(branches),
            Scan::Failed { cause } => Shown::OutOfReach(cause),
        }
    }

    /// Reads the witnesses of all that miss nothing else, and notes the commits that nobody knew of.
    async fn read_witnesses(&self, all: &mut [Settling], journal: &Journal) {
        for participant in &self.participants {
            let name = participant.name();
            for (number, incarnations) in numbers(all, name, |one| one.is_read_next(name)) {
                self.read_pages(&**participant, number, incarnations, all, journal).await;
            }
        }
    }

    /// Page after page. Incarnations that fill a page together are halved, one that does so alone is read on.
    async fn read_pages(
        &self,
        participant: &dyn Participant,
        number: u16,
        incarnations: Vec<Incarnation>,
        all: &mut [Settling],
        journal: &Journal,
    ) {
        let name = participant.name();
        let mut without = BTreeSet::new();
        let mut to_read = vec![(incarnations, 0)];
        while let Some((mut of, from)) = to_read.pop() {
            let page =
                match torture::request(Request::ReadWitnesses, name, participant.witnessed(number, &of, from)).await {
                    Ok(page) => page,
                    Err(error) => {
                        let cause = error.at(name).chain();
                        of_them(all, &of).for_each(|one| one.out_of_reach(name, cause.clone()));
                        continue;
                    }
                };
            assert!(page.len() <= PAGE, "{name} answers with more than a page");
            let (is_whole, last) = (page.len() < PAGE, page.last().map_or(from, |row| row.sequence));
            let mut rows: BTreeMap<Incarnation, Vec<(u64, Kind)>> = BTreeMap::new();
            page.into_iter().for_each(|row| rows.entry(row.incarnation).or_default().push((row.sequence, row.kind)));
            for one in of_them(all, &of) {
                for (sequence, kind) in rows.remove(&one.incarnation()).unwrap_or_default() {
                    if kind == Kind::Off {
                        without.insert(one.incarnation());
                    }
                    one.witness(&self.store, number, sequence, kind.evidence().into());
                }
                one.take_lost().for_each(|record| journal.note(record));
                if is_whole && one.is_read_next(name) {
                    one.read(name, !without.contains(&one.incarnation()));
                }
            }
            if is_whole {
                continue;
            }
            let half = of.split_off(of.len() / 2);
            match of.as_slice() {
                // One alone: there is nothing to halve.
                [] if of_them(all, &half).any(|one| one.is_read_next(name)) => to_read.push((half, last + 1)),
                [] => {}
                _ => to_read.extend([(half, 0), (of, 0)]),
            }
        }
    }

    /// Writes down what is settled, and tells of the rest.
    async fn conclude(
        &self,
        earlier: &[IncarnationRecord],
        all: &[Settling],
        view: &mut View,
        plan: &Plan,
        journal: &Journal,
    ) -> Vec<Unsettled> {
        let (mut left, mut settled) = (Vec::new(), Vec::new());
        for (opened, one) in earlier.iter().zip(all) {
            match one.verdict() {
                Verdict::Settled(absence) => settled.push((opened, Record::Settled(opened.incarnation, absence))),
                Verdict::Waits(name, why) => left.push(waits(opened, name, why, plan)),
                Verdict::Contradicted(branches) => {
                    let first = branches.first().expect("there is no contradiction without a branch");
                    let cause =
                        format!("the journal is an older copy: it has no decision that {first} was committed by");
                    left.push(unsettled(opened, Hindrance::Contradiction, &cause));
                    branches.into_iter().for_each(|branch| view.observation.contradicted(branch));
                }
                Verdict::Refuted(branches) => {
                    let first = branches.first().expect("nothing is refuted without a branch");
                    let cause = format!("{first} has committed, though a person decided to roll it back");
                    left.push(unsettled(opened, Hindrance::Contradiction, &cause));
                    branches.into_iter().for_each(|branch| view.observation.contradicted(branch));
                }
            }
        }
        torture::pass(Point::Step(Step::Settling), None).await;
        // Behind the notes of what was found: none of these is durable without them.
        let written = join_all(settled.into_iter().map(|(opened, record)| async move {
            journal.append(record).await.err().map(|error| unsettled(opened, Hindrance::Pending, &error.chain()))
        }));
        left.extend(written.await.into_iter().flatten());
        left
    }
}

fn unsettled(opened: &IncarnationRecord, hindrance: Hindrance, cause: &str) -> Unsettled {
    let IncarnationRecord { incarnation, opened_at_ms, .. } = *opened;
    Unsettled { incarnation, opened_at_ms, hindrance, cause: cause.to_owned() }
}

fn waits(opened: &IncarnationRecord, name: ParticipantName, why: Why, plan: &Plan) -> Unsettled {
    match why {
        Why::OutOfReach(cause) => unsettled(opened, Hindrance::OutOfReach, &cause),
        Why::Holds(held) => {
            let first = held.first().expect("it holds something");
            let damaged =
                |id: &BranchId| plan.branches().any(|branch| branch.id == *id && branch.action == Action::Damage);
            let hindrance = if held.iter().all(damaged) { Hindrance::Contradiction } else { Hindrance::Pending };
            unsettled(opened, hindrance, &format!("{first} is prepared on {name}"))
        }
    }
}

/// The incarnations of those asked for that have a participant, by the number that it has there.
fn numbers(all: &[Settling], name: ParticipantName, wanted: impl Fn(&Settling) -> bool) -> Numbers {
    let mut numbers = Numbers::new();
    for one in all.iter().filter(|one| wanted(one)) {
        for (number, _) in one.participants().filter(|(_, other)| *other == name) {
            numbers.entry(number).or_default().push(one.incarnation());
        }
    }
    numbers
}

fn of_them<'a>(all: &'a mut [Settling], of: &'a [Incarnation]) -> impl Iterator<Item = &'a mut Settling> {
    let of: BTreeSet<_> = of.iter().copied().collect();
    all.iter_mut().filter(move |one| of.contains(&one.incarnation()))
}
