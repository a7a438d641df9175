//! The transactions of the running incarnation: which are still at work, and which ended without a certain outcome.

use super::told;
use crate::id::BranchId;
use crate::protocol::Outcome;
use crate::telemetry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::Notify;

/// What the process remembers of its own transactions. A sequence that is in neither set, is below the next one
/// and has no commit in the journal was rolled back: nothing but this process could have decided otherwise.
#[derive(Debug, Default)]
pub(crate) struct Live {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the last transaction begun.
    last: u64,
    running: BTreeSet<u64>,
    /// No transaction begins any more.
    closing: bool,
    /// Ended, but [`Outcome::InDoubt`] or [`Outcome::Damaged`].
    unsettled: BTreeMap<u64, (Outcome, Instant)>,
    /// Branches of aborted transactions that may be prepared yet, by a request that is still on its way.
    left: BTreeSet<BranchId>,
}

/// What is known of one of this incarnation's transactions, the journal aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Not begun yet.
    Future,
    /// Its coordinator is at work.
    Running,
    /// It ended without a certain outcome.
    Unsettled(Outcome),
    /// It ended; what the journal does not call committed was rolled back.
    Ended,
}

impl Live {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every update below is complete before the guard drops, so a panic elsewhere leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the next transaction: its sequence. `None` once new ones are refused.
    pub fn begin(&self) -> Option<u64> {
        let mut state = self.state();
        if state.closing {
            return None;
        }
        state.last += 1;
        let sequence = state.last;
        let new = state.running.insert(sequence);
        assert!(new, "a sequence is given out once");
        Some(sequence)
    }

    /// From now on none begins: once [`idle`](Self::idle) has returned, that stays so.
    pub fn refuse_new(&self) {
        self.state().closing = true;
    }

    /// The coordinator is done, and has left these branches. To be called after the journal has what it is to know.
    pub fn end(&self, sequence: u64, outcome: Outcome, left: Vec<BranchId>) {
        let mut state = self.state();
        // Of a decision the journal remembers the branches, of a transaction in doubt all of them are asked about.
        if matches!(outcome, Outcome::RolledBack | Outcome::Damaged) {
            state.left.extend(left);
        }
        let was_running = state.running.remove(&sequence);
        assert!(was_running, "a transaction ends once");
        if matches!(outcome, Outcome::InDoubt | Outcome::Damaged) {
            state.unsettled.insert(sequence, (outcome, Instant::now()));
        }
        drop(state);
        telemetry::ended(outcome);
        self.changed.notify_waiters();
    }

    /// Told whenever a transaction has ended, or one was found out about.
    pub fn changed(&self) -> &Notify {
        &self.changed
    }

    /// The outcome of a transaction in doubt has been found. Damage stays: what the application ended by itself is in
    /// nobody's memory but this.
    pub fn settle(&self, sequence: u64) {
        let mut state = self.state();
        if matches!(state.unsettled.get(&sequence), Some((Outcome::InDoubt, _))) {
            state.unsettled.remove(&sequence);
        }
    }

    /// The branches that were left, until they are [`found`](Self::found).
    pub fn left(&self) -> BTreeSet<BranchId> {
        self.state().left.clone()
    }

    /// What became of a branch that was left is certain now.
    pub fn found(&self, branch: &BranchId) {
        self.state().left.remove(branch);
    }

    pub fn standing(&self, sequence: u64) -> Standing {
        let state = self.state();
        if state.running.contains(&sequence) {
            Standing::Running
        } else if let Some((outcome, _)) = state.unsettled.get(&sequence) {
            Standing::Unsettled(*outcome)
        } else if sequence == 0 || sequence > state.last {
            Standing::Future
        } else {
            Standing::Ended
        }
    }

    /// Those whose outcome is to be found, with the moment they ended.
    pub fn in_doubt(&self) -> Vec<(u64, Instant)> {
        let state = self.state();
        let in_doubt = state.unsettled.iter().filter(|(_, (outcome, _))| *outcome == Outcome::InDoubt);
        in_doubt.map(|(sequence, (_, since))| (*sequence, *since)).collect()
    }

    pub fn damaged(&self) -> Vec<u64> {
        let state = self.state();
        let damaged = state.unsettled.iter().filter(|(_, (outcome, _))| *outcome == Outcome::Damaged);
        damaged.map(|(sequence, _)| *sequence).collect()
    }

    /// The lowest sequence whose end is not certain, or that of the next transaction.
    pub fn lowest_open(&self) -> u64 {
        let state = self.state();
        let left = state.left.iter().map(|branch| branch.transaction.sequence).min();
        let known = [state.running.first().copied(), state.unsettled.keys().next().copied(), left];
        known.into_iter().flatten().fold(state.last + 1, u64::min)
    }

    pub fn running(&self) -> BTreeSet<u64> {
        self.state().running.clone()
    }

    /// Waits until nothing is at work. Cancel safe.
    pub async fn idle(&self) {
        loop {
            let changed = told(&self.changed);
            if self.state().running.is_empty() {
                return;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_is_running_then_ended_or_unsettled() {
        let live = Live::default();
        assert_eq!(live.standing(1), Standing::Future);
        let (first, second) = (live.begin().unwrap(), live.begin().unwrap());
        assert_eq!((first, second), (1, 2));
        assert_eq!(live.standing(first), Standing::Running);
        live.end(first, Outcome::RolledBack, Vec::new());
        live.end(second, Outcome::InDoubt, Vec::new());
        assert_eq!(live.standing(first), Standing::Ended);
        assert_eq!(live.standing(second), Standing::Unsettled(Outcome::InDoubt));
        live.settle(second);
        assert_eq!(live.standing(second), Standing::Ended);
        assert_eq!(live.standing(0), Standing::Future);
    }

    #[tokio::test]
    async fn idle_waits_for_the_last_one() {
        let live = std::sync::Arc::new(Live::default());
        live.idle().await;
        let sequence = live.begin().unwrap();
        let waiting = tokio::spawn({
            let live = live.clone();
            async move { live.idle().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        live.refuse_new();
        live.end(sequence, Outcome::Committed, Vec::new());
        waiting.await.unwrap();
        assert_eq!(live.begin(), None, "what is idle and refuses stays idle");
    }
}
