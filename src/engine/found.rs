//! What the resolver's passes have found, for whoever asks for the status.

use crate::id::{ParticipantName, TransactionId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// As of the last pass.
#[derive(Debug, Default)]
pub(crate) struct Found(Mutex<Findings>);

/// What a pass found.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Not settled yet, and since when that is known.
    pub in_doubt: BTreeMap<TransactionId, Instant>,
    /// In need of a person.
    pub damaged: BTreeSet<TransactionId>,
    /// Participants without a complete scan, and why.
    pub unscanned: BTreeMap<ParticipantName, String>,
}

impl Found {
    /// What the last pass found.
    pub fn last(&self) -> MutexGuard<'_, Findings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over what a pass found. What was in doubt before keeps its time. `answered` are those whose damage was told with
    /// their commit's answer.
    pub fn update(
        &self,
        in_doubt: impl Iterator<Item = TransactionId>,
        damaged: BTreeSet<TransactionId>,
        answered: &BTreeSet<TransactionId>,
        unscanned: BTreeMap<ParticipantName, String>,
    ) {
        let mut last = self.last();
        tell(&last, &damaged - answered, &unscanned);
        let since = |id: TransactionId| (id, last.in_doubt.get(&id).copied().unwrap_or_else(Instant::now));
        let in_doubt = in_doubt.map(since).collect();
        *last = Findings { in_doubt, damaged, unscanned };
    }
}

/// What is new since the last pass, for whoever is on duty.
fn tell(last: &Findings, damaged: BTreeSet<TransactionId>, unscanned: &BTreeMap<ParticipantName, String>) {
    for id in damaged.difference(&last.damaged) {
        tracing::error!(%id, "damaged: a person is needed, `handfast explain` tells what happened");
    }
    for (participant, cause) in unscanned.iter().filter(|(name, _)| !last.unscanned.contains_key(*name)) {
        tracing::warn!(%participant, cause, "what is prepared there cannot be seen: it is tried again");
    }
    for participant in last.unscanned.keys().filter(|name| !unscanned.contains_key(*name)) {
        tracing::info!(%participant, "what is prepared there can be seen again");
    }
}
