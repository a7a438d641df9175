//! The resolver of a running bridge: passes for ever.

use super::Resolver;
use super::store::Store;
use crate::engine::jittered;
use futures_util::FutureExt;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

impl Resolver {
    /// Passes for ever: at once when something was left, with growing pauses while something is pending, else at
    /// the configured interval.
    pub(crate) async fn run(self) {
        let Store::Live(engine) = &self.store else { panic!("only a bridge's resolver runs in the background") };
        let mut pause = self.settings.backoff_min;
        let mut pending = true;
        // Opening has looked at the branches just now, and left the rest to this.
        let mut at_once = !self.store.unsettled().is_empty();
        loop {
            let wait = match (std::mem::take(&mut at_once), pending) {
                (true, _) => Duration::ZERO,
                (false, true) => jittered(pause),
                (false, false) => self.settings.interval,
            };
            tokio::select! {
                () = engine.work.notified() => pause = self.settings.backoff_min,
                () = tokio::time::sleep(wait) => pause = next_pause(pause, self.settings.backoff_max),
            }
            // A bug that one pass meets must not end recovery for good: passes remember nothing of each other.
            pending = match AssertUnwindSafe(self.sweep(&|_| {})).catch_unwind().await {
                Ok(pass) => !pass.is_complete(),
                Err(_) => {
                    tracing::error!("a pass of the resolver has met a bug; the next one begins anew");
                    true
                }
            };
        }
    }
}

fn next_pause(pause: Duration, max: Duration) -> Duration {
    (pause * 2).min(max)
}
