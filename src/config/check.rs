//! What serde cannot see: values that make no sense together.

use super::{Config, RecoveryConfig, settings};
use crate::error::{Error, ErrorKind, Result};

const NO_DIRECTORY: &str = "missing field `directory` in journal: decisions are kept there, unless transaction.decision \
     names the participant that keeps them";

impl Config {
    /// Whether all of it makes sense together: also of what code has put in it.
    pub(crate) fn check(&self) -> Result<()> {
        let wrong = |message: String| Err(Error::new(ErrorKind::Config, message));
        if self.participants.len() > usize::from(u16::MAX) {
            return wrong("more than 65535 participants".into());
        }
        if self.transaction.timeout.is_zero() {
            return wrong("transaction.timeout is zero: nothing could commit".into());
        }
        if self.transaction.lock_timeout.is_some_and(|lock| lock >= self.transaction.timeout) {
            return wrong("transaction.lock_timeout is not below transaction.timeout: a deadlock between two databases would not break before the deadline".into());
        }
        let RecoveryConfig { interval, backoff_min, backoff_max, statement_timeout, lease_interval, .. } =
            self.recovery;
        let never_zero = [
            ("recovery.interval", interval),
            ("recovery.backoff_min", backoff_min),
            ("recovery.statement_timeout", statement_timeout),
            ("recovery.lease_interval", lease_interval),
            ("pool.connect_timeout", self.pool.connect_timeout),
        ];
        if let Some((key, _)) = never_zero.iter().find(|(_, time)| time.is_zero()) {
            return wrong(format!(
                "{key} is zero: no participant answers within no time, and none is asked without rest"
            ));
        }
        if backoff_min > backoff_max {
            return wrong("recovery.backoff_min is above recovery.backoff_max".into());
        }
        if self.pool.size == 0 || self.participants.values().any(|p| p.pool_size == Some(0)) {
            return wrong("a pool of size 0 can serve no transaction".into());
        }
        let settings = |(name, one)| settings::wrong(one).map(|what| format!("participants.{name}: {what}"));
        if let Some(what) = self.participants.iter().find_map(settings) {
            return wrong(what);
        }
        if self.journal.segment_bytes < 64 * 1024 {
            return wrong("journal.segment_bytes is below 65536".into());
        }
        let Some(anchor) = self.transaction.decision.anchor() else {
            return if self.journal.is_set() { Ok(()) } else { wrong(NO_DIRECTORY.into()) };
        };
        if self.participants.get(&anchor).is_some_and(|anchor| !anchor.witness) {
            return wrong(format!(
                "transaction.decision is {anchor}, and participants.{anchor}.witness is off: its witness is the decision"
            ));
        }
        Ok(())
    }
}
