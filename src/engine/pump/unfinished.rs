//! What becomes of a transaction whose pump is gone before its end.

use super::Job;
use crate::engine::Engine;
use crate::protocol::Outcome;
use std::sync::Arc;

/// A transaction whose pump has not come to its end. Dropped so, by a panic in it or in a participant, its outcome is
/// not known: it is in doubt, and the resolver finds out, like what became of it after a crash.
pub(super) struct Unfinished {
    engine: Arc<Engine>,
    sequence: u64,
    /// The journal has its decision, or will have it.
    pub handed_out: bool,
    pub is_over: bool,
}

impl Unfinished {
    pub fn new(job: &Job) -> Self {
        Self { engine: job.engine.clone(), sequence: job.id.sequence, handed_out: false, is_over: false }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let (engine, sequence, handed_out) = (self.engine.clone(), self.sequence, self.handed_out);
        tracing::error!(id = %engine.id(sequence), "the task that ends it is gone, by a bug or with its runtime: the transaction is in doubt");
        self.engine.runtime.spawn(async move {
            if handed_out {
                // While its decision is on its way nothing may be rolled back. Afterwards it is in the journal, or the
                // journal has failed and says so.
                let _ = engine.journal.flush().await;
            }
            engine.live.end(sequence, Outcome::InDoubt, Vec::new());
            engine.kick_resolver();
        });
    }
}
