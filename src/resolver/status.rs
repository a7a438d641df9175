//! What is going on, for people and health checks: as of the resolver's last pass.

use super::View;
use crate::bridge::Shared;
use crate::id::{ParticipantName, TransactionId};
use crate::protocol::Outcome;
use crate::protocol::recovery::{Action, Plan};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What a bridge has to say about itself, from [`Bridge::status`](crate::Bridge::status).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// Transactions at work.
    pub running: usize,
    /// Transactions whose outcome, or whose application on some participant, is not settled yet.
    pub in_doubt: usize,
    /// How long the oldest of them has been known to be.
    pub oldest_in_doubt: Option<Duration>,
    /// Transactions that a person has to look at.
    pub damaged: usize,
    /// Why the journal takes no more decisions, if it does not.
    pub journal_failed: Option<String>,
    /// The participants, by name.
    pub participants: Vec<ParticipantStatus>,
}

/// A participant in a [`Status`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ParticipantStatus {
    /// Its configured name.
    pub name: ParticipantName,
    /// Its kind: `postgres`, `mysql`, `mariadb`.
    pub kind: &'static str,
    /// Whether it may be used and answered the resolver's last pass.
    pub reachable: bool,
    /// Why not.
    pub cause: Option<String>,
}

/// What the resolver's passes have found.
#[derive(Debug, Default)]
pub(crate) struct Found(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    in_doubt: BTreeMap<TransactionId, Instant>,
    damaged: BTreeSet<TransactionId>,
    unscanned: BTreeMap<ParticipantName, String>,
}

impl Found {
    /// Takes over what a pass found.
    pub fn update(&self, plan: &Plan, view: &View) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let damaged = plan.transactions.iter().filter(|t| t.outcome == Outcome::Damaged);
        state.damaged = damaged.map(|t| t.id).collect();
        let open = plan.transactions.iter().filter(|t| t.outcome != Outcome::Damaged && is_open(t.action));
        let since = open.map(|t| (t.id, state.in_doubt.get(&t.id).copied().unwrap_or_else(Instant::now))).collect();
        state.in_doubt = since;
        state.unscanned =
            view.participants.iter().filter_map(|seen| Some((seen.name, seen.trouble.as_ref()?.chain()))).collect();
    }
}

/// Whether something is still to be done about it.
pub(super) fn is_open(action: Action) -> bool {
    matches!(action, Action::RollBack | Action::Commit | Action::Ask | Action::Wait)
}

impl Status {
    pub(crate) fn of(shared: &Shared) -> Self {
        let state = shared.found.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut in_doubt = state.in_doubt.clone();
        // What ended since the last pass.
        for (sequence, since) in shared.live.in_doubt() {
            in_doubt.entry(shared.id(sequence)).or_insert(since);
        }
        let mut damaged = state.damaged.clone();
        damaged.extend(shared.live.damaged().into_iter().map(|sequence| shared.id(sequence)));
        let participants = shared.members.iter().map(|member| {
            let unready = member.trouble().map(|(_, cause)| cause.to_string());
            let cause = unready.or_else(|| state.unscanned.get(&member.name).cloned());
            ParticipantStatus { name: member.name, kind: member.participant.kind(), reachable: cause.is_none(), cause }
        });
        Self {
            running: shared.live.running().len(),
            in_doubt: in_doubt.len(),
            oldest_in_doubt: in_doubt.values().min().map(Instant::elapsed),
            damaged: damaged.len(),
            journal_failed: shared.journal.is_poisoned(),
            participants: participants.collect(),
        }
    }
}
