//! The durable memory of decisions.

mod chain;
mod committer;
pub mod format;
mod lockfile;
mod offline;
mod opening;
mod outcomes;
mod reader;
mod storage;
mod writer;

#[cfg(test)]
mod tests;

pub use chain::{Damage, Verdict};
pub use offline::{Offline, OfflineEntry, read, read_from};
pub use outcomes::{Image, Impossible};
pub use storage::{FileStorage, LOCK_NAME, Locked, Storage, StorageFile};

use crate::config::JournalConfig;
use crate::error::Result;
use crate::id::{Incarnation, JournalId, NodeName, ParticipantName};
use crate::protocol::{IncarnationRecord, Record};
use committer::Shared;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Who opens a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opening {
    /// The node name in its branch ids.
    pub node: NodeName,
    /// 64 new random bits.
    pub incarnation: Incarnation,
    /// When, in milliseconds since 1970: for people.
    pub opened_at_ms: u64,
    /// Its participants; a branch id's participant number is the index here.
    pub participants: Vec<ParticipantName>,
}

impl Opening {
    fn record(self) -> IncarnationRecord {
        let Self { node, incarnation, opened_at_ms, participants } = self;
        IncarnationRecord { node, incarnation, opened_at_ms, participants }
    }
}

/// An open journal: the lock, the image of what is durable, and the thread that writes.
pub struct Journal {
    id: JournalId,
    shared: Arc<Shared>,
    /// The thread that writes, and the lock, which is released when the thread has ended.
    running: Mutex<Option<(JoinHandle<()>, Box<dyn StorageFile>)>>,
}

impl Journal {
    /// Opens the journal of a directory, and initialises it if the directory never held one. When this returns, all
    /// that was read is durable, and so is the opening itself. Blocks while it reads and syncs.
    ///
    /// # Errors
    /// Each names the thing and the cure, and nothing was changed:
    /// * [`Config`](crate::ErrorKind::Config): the directory is missing, no directory, or cannot be written;
    /// * [`Refused`](crate::ErrorKind::Refused): another process has it, or a later version wrote it;
    /// * [`Corrupt`](crate::ErrorKind::Corrupt): bytes or segments are missing or damaged;
    /// * [`Journal`](crate::ErrorKind::Journal): reading or writing failed, for want of space perhaps.
    pub fn open(config: &JournalConfig, opening: Opening) -> Result<Self> {
        Self::open_on(FileStorage::new(&config.directory)?, config.segment_bytes, opening)
    }

    /// As [`open`](Self::open), on any storage.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_on(storage: impl Storage, segment_bytes: u64, opening: Opening) -> Result<Self> {
        let opened = opening::open(Arc::new(storage), segment_bytes, opening.record())?;
        let id = opened.image.journal();
        let shared = Arc::new(Shared::new(opened.name, opened.image));
        let thread = committer::spawn(Arc::clone(&shared), opened.writer)?;
        Ok(Self { id, shared, running: Mutex::new(Some((thread, opened.lock))) })
    }

    /// Creates the directory and an empty journal in it, for `handfast init`; leaves one that is there alone.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn create_if_absent(config: &JournalConfig) -> Result<JournalId> {
        opening::create_directory(&config.directory)?;
        opening::create_if_absent(Arc::new(FileStorage::new(&config.directory)?), config.segment_bytes)
    }

    /// The journal's identity.
    pub fn id(&self) -> JournalId {
        self.id
    }

    /// Makes a record durable: `Ok` means that it is, whatever happens now.
    ///
    /// # Errors
    /// [`ErrorKind::Journal`](crate::ErrorKind::Journal): the record may be durable or not, which is known when the
    /// journal is opened again; nothing more can be written until then. [`Refused`](crate::ErrorKind::Refused): the
    /// record does not fit the format and was not written.
    ///
    /// # Panics
    /// On a record that contradicts those before it.
    ///
    /// # Cancel safety
    /// The record is queued at the first poll. Dropping the future afterwards does not take it back.
    pub async fn append(&self, record: Record) -> Result<()> {
        let answer = self.shared.append(record)?;
        self.shared.answer(answer).await
    }

    /// Writes a record when convenient: with the next batch, within a fraction of a second, or at close. It counts
    /// in [`image`](Self::image) at once; a crash may lose it.
    ///
    /// # Panics
    /// On a record that contradicts those before it, or does not fit the format.
    pub fn note(&self, record: Record) {
        self.shared.note(record);
    }

    /// Asks about what is durable so far, and what was noted. No record is added while `f` runs: it should be short.
    pub fn image<T>(&self, f: impl FnOnce(&Image) -> T) -> T {
        self.shared.image(f)
    }

    /// Whether a decision that is begun now will find space on the disk.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) if not, with the cure; the next call finds out whether it
    /// helped. [`ErrorKind::Journal`](crate::ErrorKind::Journal) if nothing can be written any more.
    pub fn check_space(&self) -> Result<()> {
        self.shared.check_space()
    }

    /// Why nothing can be written any more, if so.
    pub fn is_poisoned(&self) -> Option<String> {
        self.shared.failure()
    }

    /// Writes what is queued, marks the journal as complete, and releases the lock. Dropping does the same but tells
    /// nobody. Blocks for a sync. Closing it again does nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Journal`](crate::ErrorKind::Journal) if something could not be written.
    pub fn close(&self) -> Result<()> {
        self.stop();
        self.shared.outcome()
    }

    fn stop(&self) {
        self.shared.close();
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((thread, lock)) = running.take() {
            // A panic there has been told to all who waited.
            let _ = thread.join();
            drop(lock);
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.stop();
    }
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("id", &self.id).finish_non_exhaustive()
    }
}
