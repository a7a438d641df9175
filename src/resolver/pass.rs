//! What a pass saw, what it found to be done, and what it left.

use super::settle::{Hindrance, Unsettled};
use crate::engine::Engine;
use crate::error::Error;
use crate::id::ParticipantName;
use crate::participant::Sighting;
use crate::protocol::Outcome;
use crate::protocol::recovery::{Action, Observation, Plan};

/// What one look at every participant showed.
#[derive(Debug)]
pub struct View {
    /// What recovery plans from.
    pub observation: Observation,
    /// The same for people.
    pub participants: Vec<Seen>,
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
}

impl Pass {
    /// Whether nothing is left to be done or waited for: every participant was scanned, and every earlier incarnation is
    /// settled, unless only a person can change that.
    pub fn is_complete(&self) -> bool {
        let open = self.left.transactions.iter().any(|transaction| is_open(transaction.action));
        let waits = self.unsettled.iter().any(|one| one.hindrance != Hindrance::Contradiction);
        // A participant that gave no answer to its work is out of sight, and so may be what it holds.
        !open && !waits && self.left.unscanned.is_empty()
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
    engine.found.update(in_doubt.map(|one| one.id), in_need.map(|one| one.id).collect(), unscanned.collect());
}
