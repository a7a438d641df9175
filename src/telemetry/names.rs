//! What is measured, and its names. `docs/metrics.md` has the same table, and a test holds the two equal.

/// How a figure behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MetricKind {
    /// It only grows.
    Counter,
    /// As of now.
    Gauge,
    /// Many values, of which their distribution counts.
    Histogram,
}

/// One figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// How it behaves.
    pub kind: MetricKind,
    /// Its labels, separated by commas.
    pub labels: &'static str,
    /// What it says.
    pub help: &'static str,
}

/// `handfast_transactions_total`
pub const TRANSACTIONS: &str = "handfast_transactions_total";
/// `handfast_retries_total`
pub const RETRIES: &str = "handfast_retries_total";
/// `handfast_phase_seconds`
pub const PHASE: &str = "handfast_phase_seconds";
/// `handfast_journal_sync_seconds`
pub const JOURNAL_SYNC: &str = "handfast_journal_sync_seconds";
/// `handfast_journal_batch_records`
pub const JOURNAL_BATCH: &str = "handfast_journal_batch_records";
/// `handfast_pool_wait_seconds`
pub const POOL_WAIT: &str = "handfast_pool_wait_seconds";
/// `handfast_running`
pub const RUNNING: &str = "handfast_running";
/// `handfast_in_doubt`
pub const IN_DOUBT: &str = "handfast_in_doubt";
/// `handfast_in_doubt_oldest_seconds`
pub const OLDEST_IN_DOUBT: &str = "handfast_in_doubt_oldest_seconds";
/// `handfast_damaged`
pub const DAMAGED: &str = "handfast_damaged";
/// `handfast_unsettled_openings`
pub const UNSETTLED: &str = "handfast_unsettled_openings";
/// `handfast_journal_failed`
pub const JOURNAL_FAILED: &str = "handfast_journal_failed";
/// `handfast_participant_reachable`
pub const REACHABLE: &str = "handfast_participant_reachable";
/// `handfast_prepared_slots_free`
pub const PREPARED_ROOM: &str = "handfast_prepared_slots_free";

/// Every figure that there is.
pub const METRICS: &[Metric] = &[
    counter(TRANSACTIONS, "outcome", "transactions that ended: committed, rolled_back, in_doubt, damaged"),
    counter(RETRIES, "", "how often `Bridge::transaction` ran its closure again"),
    histogram(
        PHASE,
        "phase",
        "how long a phase took: begin (of one branch), prepare, decide, apply, one_phase, roll_back",
    ),
    histogram(JOURNAL_SYNC, "", "how long the journal took to make a batch durable"),
    histogram(JOURNAL_BATCH, "", "records that shared one sync"),
    histogram(POOL_WAIT, "participant", "how long a branch waited for a session, a new connection included"),
    gauge(RUNNING, "node", "transactions at work"),
    gauge(IN_DOUBT, "node", "transactions whose outcome, or its application somewhere, is not settled yet"),
    gauge(OLDEST_IN_DOUBT, "node", "for how long the oldest of them has been known; 0 when there is none"),
    gauge(DAMAGED, "node", "transactions that a person has to look at"),
    gauge(UNSETTLED, "node", "earlier openings of the journal of which something may still move"),
    gauge(JOURNAL_FAILED, "node", "1 when the journal takes no more decisions"),
    gauge(REACHABLE, "node, participant", "1 when the participant may be used and answered the last pass, else 0"),
    gauge(
        PREPARED_ROOM,
        "node, participant",
        "PostgreSQL: max_prepared_transactions minus what is prepared on the server",
    ),
];

const fn counter(name: &'static str, labels: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: MetricKind::Counter, labels, help }
}

const fn gauge(name: &'static str, labels: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: MetricKind::Gauge, labels, help }
}

const fn histogram(name: &'static str, labels: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: MetricKind::Histogram, labels, help }
}

/// Tells the recorder what the figures are. Opening a bridge does so: needed only by those who install their recorder
/// later, or record figures of these names themselves.
#[cfg(feature = "metrics")]
pub fn describe() {
    for Metric { name, kind, help, .. } in METRICS.iter().copied() {
        match kind {
            MetricKind::Counter => metrics::describe_counter!(name, help),
            MetricKind::Gauge => metrics::describe_gauge!(name, help),
            MetricKind::Histogram => metrics::describe_histogram!(name, help),
        }
    }
}
