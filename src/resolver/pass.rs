//! What a pass saw, what it found to be done, and what it left.

use super::foreign::Foreigner;
use super::settle::{Hindrance, Unsettled};
use crate::engine::{Engine, now_ms};
use crate::error::{Error, ErrorKind};
use crate::id::{Incarnation, NodeName, ParticipantName};
use crate::participant::{Registered, Sighting};
use crate::protocol::recovery::{Action, BranchPlan, Observation, Plan};
use crate::protocol::{IncarnationRecord, Outcome};
use std::collections::{BTreeMap, BTreeSet};

/// What one look at every participant showed.
#[derive(Debug)]
pub struct View {
    /// What recovery plans from.
    pub observation: Observation,
    /// The same for people.
    pub participants: Vec<Seen>,
    pub(super) foreigners: Vec<Foreigner>,
    /// The incarnations in each participant's own table.
    pub(super) registries: Vec<(ParticipantName, Vec<Registered>)>,
    /// Why the journal is an older copy, if a participant's table says so.
    pub(super) stale: Option<String>,
}

/// How a pass gets on.
#[derive(Debug, Clone, Copy)]
pub enum Progress<'a> {
    /// So many branches are dealt with next. Said again when answers have led to more.
    Planned(usize),
    /// This one has been dealt with, well or not.
    Done(&'a BranchPlan),
}

impl View {
    /// The prepared branches that are not this journal's, with what is known of them.
    pub fn foreigners(&self) -> &[Foreigner] {
        &self.foreigners
    }

    /// Why the journal is an older copy of itself and settles nothing, if a participant's table shows an opening of it
    /// that it does not know.
    pub fn stale(&self) -> Option<Error> {
        self.stale.as_ref().map(|cause| Error::new(ErrorKind::Refused, cause.clone()))
    }

    /// An incarnation as the participants' own tables have it, with its participants by number. Participants that share
    /// a database are numbered in the order of their names, as everywhere; a number that no table knows gets a name that
    /// no participant has.
    pub(super) fn incarnation(&self, node: NodeName, incarnation: Incarnation) -> Option<IncarnationRecord> {
        let mut numbers: BTreeMap<u16, BTreeSet<ParticipantName>> = BTreeMap::new();
        let mut age = None;
        for (name, rows) in &self.registries {
            for row in rows.iter().filter(|row| row.node == node && row.incarnation == incarnation) {
                numbers.entry(row.participant).or_default().insert(*name);
                age = age.max(Some(row.age));
            }
        }
        let opened_at_ms = now_ms().saturating_sub(u64::try_from(age?.as_millis()).unwrap_or(u64::MAX));
        let last = *numbers.keys().next_back()?;
        let mut taken = BTreeSet::new();
        let mut participants = Vec::new();
        for number in 0..=last {
            let names = numbers.get(&number).into_iter().flatten();
            let name = names.copied().find(|name| !taken.contains(name));
            let name = name.unwrap_or_else(|| format!("lost_{number}").parse().expect("it is short and well formed"));
            taken.insert(name);
            participants.push(name);
        }
        Some(IncarnationRecord { node, incarnation, opened_at_ms, participants })
    }
}

/// One pass.
#[derive(Debug)]
pub struct Pass {
    /// What every participant showed, brought up to date by what was heard.
    pub view: View,
    /// What was to be done.
    pub found: Plan,
    /// What remains: waiting, damage, and what is at rest.
    pub left: Plan,
    /// The earlier incarnations that are not settled.
    pub unsettled: Vec<Unsettled>,
    /// Why nothing was done at all, if so: the journal is an older copy, or somebody else holds a lease.
    pub refused: Option<Error>,
}

impl Pass {
    /// Whether nothing is left to be done or waited for: every participant was scanned, and every earlier incarnation is
    /// settled, unless only a person can change that.
    pub fn is_complete(&self) -> bool {
        let open = self.left.transactions.iter().any(|transaction| is_open(transaction.action));
        let waits = self.unsettled.iter().any(|one| one.hindrance != Hindrance::Contradiction);
        // A participant that gave no answer to its work is out of sight, and so may be what it holds.
        self.refused.is_none() && !open && !waits && self.left.unscanned.is_empty()
    }
}

/// A participant as one look found it.
#[derive(Debug)]
pub struct Seen {
    /// Its configured name.
    pub name: ParticipantName,
    /// Its kind: `postgres`, `mysql`, `mariadb`.
    pub kind: &'static str,
    /// Product, version and address, when it answered.
    pub server: Option<String>,
    /// Its prepared branches, when it answered with the whole list.
    pub sightings: Vec<Sighting>,
    /// Why it could not be scanned.
    pub trouble: Option<Error>,
}

/// Whether something is still to be done about it.
fn is_open(action: Action) -> bool {
    matches!(action, Action::RollBack | Action::Commit | Action::Ask | Action::Wait)
}

/// Keeps for the status what a pass found.
pub(super) fn remember(engine: &Engine, plan: &Plan, view: &View) {
    let damaged = |outcome| outcome == Outcome::Damaged;
    let in_doubt = plan.transactions.iter().filter(|one| !damaged(one.outcome) && is_open(one.action));
    let in_need = plan.transactions.iter().filter(|one| damaged(one.outcome));
    let unscanned = view.participants.iter().filter_map(|seen| Some((seen.name, seen.trouble.as_ref()?.chain())));
    let answered = engine.live.damaged().into_iter().map(|sequence| engine.id(sequence)).collect();
    let in_need = in_need.map(|one| one.id).collect();
    engine.found.update(in_doubt.map(|one| one.id), in_need, &answered, unscanned.collect());
}
