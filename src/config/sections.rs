//! The sections, at their defaults.

use super::decision::Decision;
use super::texts::{acknowledge, acknowledge_text, text};
use super::units;
use crate::protocol::Acknowledge;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// `[journal]`
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct JournalConfig {
    /// An existing directory of this program's own, on a disk that keeps what it synced. Empty where there is none, which
    /// is right with an anchor alone.
    #[serde(default)]
    pub directory: PathBuf,
    /// The size of a segment in bytes, preallocated. The file may say it with a unit: `"16 MiB"`.
    #[serde(default = "segment_bytes", with = "units")]
    pub segment_bytes: u64,
}

/// `[transaction]`
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TransactionConfig {
    /// The deadline: a transaction that has not been decided by then is rolled back, locks included.
    #[serde(with = "humantime_serde")]
    pub timeout: Duration,
    /// Where the decision over a transaction of several writers is kept.
    #[serde(serialize_with = "text")]
    pub decision: Decision,
    /// When `commit` answers.
    #[serde(deserialize_with = "acknowledge", serialize_with = "acknowledge_text")]
    pub acknowledge: Acknowledge,
    /// How long `commit` waits for phase two before it answers with the participants still pending.
    #[serde(with = "humantime_serde")]
    pub apply_wait: Duration,
    /// How long a statement waits for a lock; by default half the timeout.
    #[serde(with = "humantime_serde")]
    pub lock_timeout: Option<Duration>,
    /// How often `Bridge::transaction` runs its closure again after a deadlock or a serialization failure.
    pub retries: u32,
}

/// `[recovery]`
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct RecoveryConfig {
    /// How often the resolver looks when nothing is known to be pending.
    #[serde(with = "humantime_serde")]
    pub interval: Duration,
    /// The first wait after a failed attempt; it doubles, with jitter.
    #[serde(with = "humantime_serde")]
    pub backoff_min: Duration,
    /// The longest wait between two attempts.
    #[serde(with = "humantime_serde")]
    pub backoff_max: Duration,
    /// How long one statement of the resolver may take.
    #[serde(with = "humantime_serde")]
    pub statement_timeout: Duration,
    /// How often a bridge makes sure that it still has the lease of each participant.
    #[serde(with = "humantime_serde")]
    pub lease_interval: Duration,
    /// How long opening waits for participants that cannot be reached before it goes on without them.
    #[serde(with = "humantime_serde")]
    pub open_wait: Duration,
}

/// `[pool]`
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct PoolConfig {
    /// Sessions for each participant.
    pub size: usize,
    /// How long connecting may take.
    #[serde(with = "humantime_serde")]
    pub connect_timeout: Duration,
}

impl Default for TransactionConfig {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            decision: Decision::Journal,
            acknowledge: Acknowledge::Applied,
            apply_wait: Duration::from_secs(5),
            lock_timeout: None,
            retries: 5,
        }
    }
}

impl TransactionConfig {
    /// The lock timeout in force: below the deadline, so that a deadlock between two databases breaks.
    pub fn effective_lock_timeout(&self) -> Duration {
        self.lock_timeout.unwrap_or(self.timeout / 2)
    }
}

impl Default for JournalConfig {
    fn default() -> Self {
        Self { directory: PathBuf::new(), segment_bytes: segment_bytes() }
    }
}

impl JournalConfig {
    /// Whether there is a directory at all.
    pub fn is_set(&self) -> bool {
        !self.directory.as_os_str().is_empty()
    }
}

impl Default for RecoveryConfig {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(60),
            backoff_min: Duration::from_millis(100),
            backoff_max: Duration::from_secs(30),
            statement_timeout: Duration::from_secs(10),
            lease_interval: Duration::from_secs(5),
            open_wait: Duration::from_secs(10),
        }
    }
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self { size: 16, connect_timeout: Duration::from_secs(5) }
    }
}

fn segment_bytes() -> u64 {
    16 * 1024 * 1024
}
