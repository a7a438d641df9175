//! What changes while a server lives, behind one lock, and the blocking calls to its guardian.

use super::guardian::Guardian;
use super::{Options, process};
use crate::error::{Error, ErrorKind, Result};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub(super) struct State {
    pub(super) guardian: Guardian,
    /// The server's process, until it was reaped.
    pub(super) pid: Option<u32>,
    pub(super) options: Options,
    /// What [`Server::suspend`] stopped.
    pub(super) suspended: Vec<u32>,
    /// Where in the log the latest start began.
    pub(super) log_start: u64,
}

impl State {
    pub(super) fn kill(&mut self) -> Result<()> {
        let Some(pid) = self.pid else { return Ok(()) };
        let mut end = || -> io::Result<()> {
            // Stopped first: it can start no further process while we look for those it has.
            self.guardian.signal("STOP", &[pid])?;
            let mut all = vec![pid];
            all.extend(process::children(pid));
            self.guardian.signal("KILL", &all)?;
            self.guardian.wait().map(drop)
        };
        end().map_err(guardian_gone)?;
        self.pid = None;
        self.suspended.clear();
        Ok(())
    }

    pub(super) fn suspend(&mut self) -> Result<()> {
        let Some(pid) = self.pid else { return Ok(()) };
        self.guardian.signal("STOP", &[pid]).map_err(guardian_gone)?;
        self.suspended = vec![pid];
        self.suspended.extend(process::children(pid));
        self.guardian.signal("STOP", &self.suspended).map_err(guardian_gone)
    }

    pub(super) fn resume(&mut self) -> Result<()> {
        let suspended = std::mem::take(&mut self.suspended);
        if suspended.is_empty() {
            return Ok(());
        }
        self.guardian.signal("CONT", &suspended).map_err(guardian_gone)
    }
}

pub(super) fn guardian_gone(error: io::Error) -> Error {
    Error::new(ErrorKind::Setup, "the throwaway server's guardian does not answer").because(error)
}

/// A panic elsewhere does not make the guardian's pipe unusable.
pub(super) fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs what blocks where it disturbs nobody.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Error::new(ErrorKind::Setup, "a task about a throwaway server was lost").because(error)),
    }
}

/// The last 4 KiB of the log from `start` on.
pub(super) fn log_since(directory: &Path, start: u64) -> io::Result<String> {
    let path = directory.join("log");
    if !path.exists() {
        return Ok(String::new());
    }
    let mut log = File::open(path)?;
    let length = log.metadata()?.len();
    log.seek(SeekFrom::Start(start.max(length.saturating_sub(4096))))?;
    let mut bytes = Vec::new();
    log.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
