//! Figures as they arise. Without the feature `metrics` nothing is measured, and all of this is nothing.

use super::Phase;
use crate::id::ParticipantName;
use crate::protocol::Outcome;

/// Runs from its start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timer {
    #[cfg(feature = "metrics")]
    since: std::time::Instant,
}

impl Timer {
    pub fn start() -> Self {
        Self {
            #[cfg(feature = "metrics")]
            since: std::time::Instant::now(),
        }
    }

    #[cfg(feature = "metrics")]
    fn seconds(self) -> f64 {
        self.since.elapsed().as_secs_f64()
    }
}

/// A phase of a transaction is over.
pub(crate) fn phase(phase: Phase, timer: Timer) {
    #[cfg(feature = "metrics")]
    metrics::histogram!(super::names::PHASE, "phase" => phase.as_str()).record(timer.seconds());
    let _ = (phase, timer);
}

/// A transaction has ended.
pub(crate) fn ended(outcome: Outcome) {
    #[cfg(feature = "metrics")]
    metrics::counter!(super::names::TRANSACTIONS, "outcome" => outcome.as_str()).increment(1);
    let _ = outcome;
}

/// A transaction is run again.
pub(crate) fn retried() {
    #[cfg(feature = "metrics")]
    metrics::counter!(super::names::RETRIES).increment(1);
}

/// The journal has made so many records durable at once.
pub(crate) fn synced(records: usize, timer: Timer) {
    #[cfg(feature = "metrics")]
    {
        metrics::histogram!(super::names::JOURNAL_SYNC).record(timer.seconds());
        metrics::histogram!(super::names::JOURNAL_BATCH).record(f64::from(u32::try_from(records).unwrap_or(u32::MAX)));
    }
    let _ = (records, timer);
}

/// A session was taken from a participant's pool, or could not be.
pub(crate) fn pool_wait(participant: ParticipantName, timer: Timer) {
    #[cfg(feature = "metrics")]
    metrics::histogram!(super::names::POOL_WAIT, "participant" => participant.to_string()).record(timer.seconds());
    let _ = (participant, timer);
}

/// How things stand with one bridge.
#[cfg(feature = "metrics")]
pub(crate) struct Gauges {
    node: String,
}

#[cfg(feature = "metrics")]
impl Gauges {
    pub fn of(node: crate::id::NodeName) -> Self {
        Self { node: node.to_string() }
    }

    /// One figure about the bridge.
    pub fn set(&self, name: &'static str, value: f64) {
        metrics::gauge!(name, "node" => self.node.clone()).set(value);
    }

    /// One figure about a participant.
    pub fn set_at(&self, name: &'static str, participant: ParticipantName, value: f64) {
        metrics::gauge!(name, "node" => self.node.clone(), "participant" => participant.to_string()).set(value);
    }
}
