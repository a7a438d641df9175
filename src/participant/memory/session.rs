//! A session in memory.

use super::MemoryServer;
use super::state::failed;
use crate::error::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::time::Duration;

/// What the application works through.
pub struct MemorySession {
    pub(super) server: Arc<MemoryServer>,
    pub(super) number: u64,
    pub(super) lock_timeout: Duration,
}

impl MemorySession {
    /// Writes a row, waiting for its lock.
    ///
    /// # Errors
    /// [`ErrorKind::Retry`] for a deadlock or a lock that was not given in time, [`ErrorKind::Statement`] in a failed
    /// or read-only transaction; all of them doom the transaction.
    ///
    /// # Cancel safety
    /// Dropped while it waits, it has written nothing.
    pub async fn write(&self, row: i64, value: i64) -> Result<()> {
        let attempts = async {
            loop {
                let changed = self.server.changed.notified();
                let mut changed = std::pin::pin!(changed);
                changed.as_mut().enable();
                if let Some(result) = self.server.state().write(self.number, row, value) {
                    return result;
                }
                changed.await;
            }
        };
        let late = |_| self.server.state().fail(self.number, Error::new(ErrorKind::Retry, "lock timeout"));
        let result = tokio::time::timeout(self.lock_timeout, attempts).await.unwrap_or_else(late);
        self.server.changed.notify_waiters();
        result
    }

    /// Reads a row as its transaction sees it.
    ///
    /// # Errors
    /// [`ErrorKind::Statement`] in a failed transaction or outside any.
    pub fn read(&self, row: i64) -> Result<Option<i64>> {
        let mut state = self.server.state();
        let work = state.work(self.number)?;
        if work.failed {
            return Err(failed());
        }
        let own = work.writes.get(&row).copied();
        Ok(own.or_else(|| state.rows.get(&row).copied()))
    }

    /// A statement that fails and dooms its transaction.
    ///
    /// # Errors
    /// Always.
    pub fn fail(&self) -> Result<()> {
        self.server.state().fail(self.number, failed())
    }

    /// Ends the transaction behind the bridge's back.
    ///
    /// # Errors
    /// When no transaction is open.
    pub fn end(&self, commit: bool) -> Result<()> {
        self.server.change(|state| {
            state.work(self.number)?;
            match state.take_work(self.number) {
                Some(work) if commit && !work.failed => state.apply(work),
                Some(work) => state.discard(&work),
                None => {}
            }
            Ok(())
        })
    }

    /// Begins another transaction behind the bridge's back.
    ///
    /// # Errors
    /// When the session is lost.
    pub fn begin(&self) -> Result<()> {
        self.server.state().begin(self.number, None, true)
    }
}
