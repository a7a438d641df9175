//! The durable memory of decisions.
//!
//! A transaction commits at one instant: when its decision is durable here. Everything else in this crate can be
//! lost and found again; this cannot. So this page says what must be durable before what, and why that is enough.
//!
//! # What there is
//!
//! A directory with segments and a lock. A segment is a preallocated file of frames; a frame is one entry under a
//! checksum. What the entries add up to is the [`Image`]: the openings of the journal, the participants, the
//! decisions that are not known to be carried out everywhere, the outcome of every transaction ever (a bit each), the
//! latest payload of each key, and the [`Audit`]: what was found damaged, what persons decided, what is known to be
//! missing. A segment may begin with a snapshot of the image, which stands for all before it.
//!
//! ```text
//! segment-00000007   header | snapshot | incarnation, commit, done, commit, mark .. | next: 8 | 0 0 0
//! segment-00000008   header (7 ended at ..) | commit, commit, mark | 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
//! segment-00000009.new   0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | [`mod@format`] | pure: bytes to entries and back; `docs/journal-format.md` gives each byte |
//! | `reader` | one segment: entries, then a clean end, a torn tail, or corruption |
//! | `chain` | the segments of a directory: which count, whether they are all there |
//! | `outcomes`, `audit` | what the records add up to |
//! | `writer` | append, sync, rotate, compact |
//! | `committer` | the queue and the thread behind it: appends that wait together share one sync |
//! | `opening` | from a directory to a writer |
//! | `in_flight` | what is queued, and what may follow it |
//! | `offline` | reading without lock, beside a running application |
//! | `salvage`, `rebuild`, `repair` | after damage: what can be read, what it adds up to, the way out |
//! | `storage`, `lockfile` | the only door to the disk, and the lock |
//! | `table` | the same knowledge in the rows of an anchor, with no disk at all |
//!
//! # What is durable before what
//!
//! *Appending.* A batch of frames is written behind the last one and synced; then it counts in the image. When no other
//! batch waits, a *mark* is written (not synced) that says how far the segment is durable; else the next batch says so,
//! since every frame carries its *synced-through*. Then the waiters are answered. Length and blocks of the file were
//! durable before, so that the sync writes data and nothing else, and cannot meet a full disk.
//!
//! *Rotation.* The next segment is made under a temporary name, zeros and all, while half of the current one is still
//! free, and on a thread of its own: no decision waits for its zeros. When it is needed: its header is written and synced; it is renamed; the directory is synced; the current
//! segment is closed with a *next* entry and synced; then the first batch goes into the new one.
//!
//! *Compaction* is a rotation whose new segment begins with a snapshot. The old ones are unlinked last. With
//! segments of the usual size it comes at every rotation, until there are more outcomes to keep than fit one segment: what
//! an opening replays is bounded by that.
//!
//! *Opening* is a compaction of what was read. A record that was found may be in the operating system's cache only,
//! left by a process that died before its sync. Acting on it and losing it in a power failure would change a decision.
//!
//! *The first opening* makes a segment in the same way, and then writes into the lock file that the directory is
//! initialised. From there on a directory without segments has lost them.
//!
//! *A repair* is an opening too: of what can be read of a corrupt journal, which was copied before. Behind a gap a record
//! still says what it says, and its absence nothing.
//!
//! # Invariants
//!
//! * **J1** An append is answered `Ok` only when its frame and all frames before it are durable, in a segment whose
//!   name is durable.
//! * **J2** A directory that was initialised is never taken for a new one.
//! * **J3** Nothing is written after a failed write or sync. What was being written is in doubt until the journal is
//!   opened again; whoever waited is told so, and nobody is told that it failed.
//! * **J4** No damage yields another image: bytes that were known durable and are not what was written are refused.
//! * **J5** A segment has its name only when all that it claims to begin with is durable; one is removed only when the
//!   snapshot that replaces it is durable, name and all.
//! * **J6** Nothing is appended behind a torn tail: an opening begins a new segment.
//! * **J7** What an opening has read is durable before anybody hears of it.
//! * **J8** A frame counts only at the place for which it was written: journal, opening, segment and offset are under
//!   its checksum.
//! * **J9** The records of a journal never contradict each other: see [`Image::check`]. In a live journal a
//!   contradiction is a bug and panics; in one that is read it is corruption.
//! * **J10** Every byte that a decision needs was allocated before its transaction was allowed to begin, unless it has
//!   a payload larger than what is left; then it may be in doubt (J3), never lost after it was acknowledged.
//! * **J11** Reading never writes, and one process writes at a time.
//! * **J12** The directory's size is bounded by what the image holds: see the writer's rule for compaction.
//! * **J13** Only earlier openings are settled, and nothing of one is found to have committed afterwards, neither by a
//!   record nor by a witness. (What was decided before may still be carried out, and be noted as done.)
//! * **J14** An opening is called incomplete before anybody can rely on the absence of its records: when it is taken over
//!   from another journal before it is known, in a repair together with it. It stays so, and is never settled with a
//!   proof: of its transactions no record means nothing, for ever.
//! * **J15** What a person decided is the last word on a transaction: nothing is decided behind it, no other person says
//!   otherwise, and it is never said of one that is known to have committed. A witness may contradict it; that is kept,
//!   and is damage.
//! * **J16** The first finding of damage is kept for ever. Forgetting it closes the decision, and hides nothing from
//!   whoever asks for that transaction.
//! * **J17** What two have found at once is no contradiction: damage, witnesses, marks and givings-up may be said twice.
//!
//! # Caveats
//!
//! * A disk that reports a sync and has not done it loses acknowledged records. If later ones survive, that is found
//!   out; if the tail is lost, nothing here can tell. The witness rows in the participants can.
//! * After a power failure the mark behind the last batch may be lost. Should that batch be *damaged* as well, by
//!   something other than the power failure, it is taken for torn. With the mark it is found to be corrupt.
//! * A disk sector of 512 bytes is taken to be written whole or not at all, as by every journal that appends to a
//!   sector that it has synced before.
//! * CRC-32C finds accidents, not intent: who can write the directory can forge decisions.
//! * The lock keeps other processes of this machine out, and those of others where the file system's locks reach. It
//!   does not know of a *copy* of the directory: see the lease and the stale journal in the design, §5.
//! * Removing the directory with all its contents cannot be told from a first start. The participants' registry can.
//! * Segments are read whole into memory, one at a time; by a repair all at once.
//! * A repair cannot know of an opening of which nothing is left. The participants' registries do.

mod audit;
mod chain;
mod committer;
pub mod format;
mod in_flight;
mod lockfile;
mod offline;
mod opening;
mod outcomes;
mod reader;
mod rebuild;
mod repair;
mod salvage;
mod storage;
mod table;
mod writer;

#[cfg(test)]
mod tests;

/// What the committer runs on. Its tests run it on another, whose every interleaving they choose.
mod sync {
    pub use std::sync::{Condvar, Mutex, MutexGuard};
    pub use std::thread::{Builder, JoinHandle};
    pub use std::time::Instant;
}

pub(crate) use committer::PATIENCE;
pub(crate) use lockfile::{host, remark};

pub use audit::Audit;
pub use chain::{Damage, Verdict};
pub use offline::{Offline, OfflineEntry, read, read_from};
pub use outcomes::{Image, Impossible};
pub use rebuild::LeftOut;
pub use repair::{Repaired, plan_repair, repair, repair_on};
pub use storage::{FileStorage, LOCK_NAME, Locked, Storage, StorageFile};
pub use table::{Answering, Row, Rows};

use crate::config::JournalConfig;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Incarnation, JournalId, NodeName, ParticipantName};
use crate::protocol::{CommitRecord, IncarnationRecord, Record, Remark};
use crate::torture::{self, Point, Step};
use committer::Shared;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use table::Table;

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
    incarnation: Incarnation,
    keeper: Keeper,
}

/// Where what is appended is made durable.
enum Keeper {
    /// On this machine's disk.
    Disk {
        shared: Arc<Shared>,
        /// The thread that writes, and the lock, which is released when the thread has ended.
        running: Mutex<Option<Running>>,
    },
    /// On an anchor.
    Anchor(Box<Table>),
}

/// What ends with the journal's use, in this order.
struct Running {
    thread: JoinHandle<()>,
    lock: Box<dyn StorageFile>,
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
        let incarnation = opening.incarnation;
        let opened = opening::open(Arc::new(storage), segment_bytes, opening.record())?;
        let id = opened.image.journal();
        let shared = Arc::new(Shared::new(opened.name, opened.image));
        let thread = committer::spawn(Arc::clone(&shared), opened.writer)?;
        let running = Mutex::new(Some(Running { thread, lock: opened.lock }));
        Ok(Self { id, incarnation, keeper: Keeper::Disk { shared, running } })
    }

    /// What an anchor has in place of a journal, of which nothing is read before the first [`refresh`](Self::refresh). An
    /// opening that is to be known writes itself down by [`register`](Self::register).
    pub fn on_anchor(rows: Box<dyn Rows>, anchor: ParticipantName, id: JournalId, incarnation: Incarnation) -> Self {
        Self { id, incarnation, keeper: Keeper::Anchor(Box::new(Table::new(rows, anchor, id, incarnation))) }
    }

    /// Writes this very opening down on its anchor.
    ///
    /// # Errors
    /// Those of the anchor; [`Refused`](crate::ErrorKind::Refused) when it is known already.
    ///
    /// # Panics
    /// Where there is no anchor: there an opening is known as soon as it is one.
    ///
    /// # Cancel safety
    /// Dropped, it may be written down or not.
    pub async fn register(&self, opening: Opening) -> Result<()> {
        let Keeper::Anchor(table) = &self.keeper else { panic!("a journal on disk knows its opening") };
        table.append(Record::Incarnation(opening.record())).await
    }

    /// Reads again what an anchor has: what others have decided, and who is at work. Of this opening's own decisions those
    /// in doubt. A journal on disk is nobody else's.
    ///
    /// # Errors
    /// Those of the anchor.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn refresh(&self, in_doubt: &BTreeSet<u64>) -> Result<()> {
        match &self.keeper {
            Keeper::Disk { .. } => Ok(()),
            Keeper::Anchor(table) => table.refresh(in_doubt).await,
        }
    }

    /// A decision of this opening is durable on its anchor, and counts.
    pub fn decided(&self, record: &CommitRecord) {
        match &self.keeper {
            Keeper::Disk { .. } => unreachable!("a journal on disk has what is appended to it"),
            Keeper::Anchor(table) => table.decided(record),
        }
    }

    /// Whether decisions are rows of an anchor.
    pub fn is_on_anchor(&self) -> bool {
        matches!(self.keeper, Keeper::Anchor(_))
    }

    /// The number of the anchor in an opening's branch ids, where its decisions are rows there.
    pub fn anchor_of(&self, incarnation: Incarnation) -> Option<u16> {
        let Keeper::Anchor(table) = &self.keeper else { return None };
        let opened = self.image(|image| image.incarnation(incarnation).cloned())?;
        table.number(&opened)
    }

    /// Whether an opening that shares the anchor may be at work. A journal on disk has one at a time.
    pub fn is_held(&self, incarnation: Incarnation) -> bool {
        match &self.keeper {
            Keeper::Disk { .. } => false,
            Keeper::Anchor(table) => table.is_held(incarnation),
        }
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

    /// This opening.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Makes a record durable: `Ok` means that it is, whatever happens now.
    ///
    /// # Errors
    /// [`ErrorKind::Journal`]: the record may be durable or not, which is known when the
    /// journal is opened again; nothing more can be written until then. [`Refused`](crate::ErrorKind::Refused): the
    /// record does not fit the format and was not written. [`Closed`](crate::ErrorKind::Closed): nor was it written
    /// after [`close`](Self::close).
    ///
    /// # Panics
    /// On a record that contradicts those before it, that settles this very opening or calls it incomplete, or that
    /// takes an incarnation over by itself: see [`take_over`](Self::take_over).
    ///
    /// # Cancel safety
    /// The record is queued at the first poll. Dropping the future afterwards does not take it back.
    pub async fn append(&self, record: Record) -> Result<()> {
        let own = match &record {
            Record::Settled(incarnation, _) | Record::Incomplete(incarnation, _) => *incarnation == self.incarnation,
            _ => false,
        };
        assert!(!own, "an incarnation that is at work is neither settled nor without its records");
        if let Record::Incarnation(opened) = &record {
            let marked = self.image(|image| image.audit().incomplete(opened.incarnation).is_some());
            assert!(marked, "what another opening left is taken over only when it is marked as incomplete, durably");
        }
        match &self.keeper {
            Keeper::Disk { shared, .. } => {
                let answer = shared.append(record)?;
                shared.answer(answer).await
            }
            // Each decision on disk would have room for it.
            Keeper::Anchor(table) => Box::pin(table.append(record)).await,
        }
    }

    /// Takes over an incarnation that this journal does not know: of a lost journal, or in the lost part of this one.
    /// Its branches are ours from then on, and of its transactions no record means nothing. Where it is incomplete
    /// already, and more of its participants are known now, they are added.
    ///
    /// # Errors
    /// As [`append`](Self::append). [`Refused`](crate::ErrorKind::Refused) also when the incarnation is known and its
    /// records are all here, or its participants are known by other numbers.
    ///
    /// # Cancel safety
    /// As [`append`](Self::append); dropped in the middle it may leave the mark alone, which does no harm.
    pub async fn take_over(&self, opened: IncarnationRecord, remark: Remark) -> Result<()> {
        let (incarnation, record) = (opened.incarnation, Record::Incarnation(opened));
        self.image(|image| image.check(&record)).map_err(|why| Error::new(ErrorKind::Refused, why.to_string()))?;
        // Never the other way round: a crash in between would leave an incarnation whose records seem to be all here,
        // and recovery would roll back what its own journal may have decided.
        self.append(Record::Incomplete(incarnation, remark)).await?;
        self.append(record).await
    }

    /// Waits until everything that was appended or noted before this call is durable. Writes nothing of its own: where
    /// nothing waits to be written, nothing is synced.
    ///
    /// # Errors
    /// [`ErrorKind::Journal`] when something of it may not be durable;
    /// [`Closed`](crate::ErrorKind::Closed) after [`close`](Self::close), which has made it durable itself.
    ///
    /// # Cancel safety
    /// May be dropped at any point: what was on its way stays so.
    pub async fn flush(&self) -> Result<()> {
        match &self.keeper {
            Keeper::Disk { shared, .. } => {
                let answer = shared.flush()?;
                shared.answer(answer).await
            }
            Keeper::Anchor(table) => table.fold().await,
        }
    }

    /// Writes a record when convenient: with the next batch, within a fraction of a second, or at close. It counts
    /// in [`image`](Self::image) at once; a crash may lose it.
    ///
    /// # Panics
    /// On a record that contradicts those before it, or does not fit the format.
    pub fn note(&self, record: Record) {
        torture::pass_blocking(Point::Step(Step::Note));
        match &self.keeper {
            Keeper::Disk { shared, .. } => shared.note(record),
            Keeper::Anchor(table) => table.note(&record),
        }
    }

    /// Asks about what is durable so far, and what was noted. No record is added while `f` runs: it should be short.
    pub fn image<T>(&self, f: impl FnOnce(&Image) -> T) -> T {
        match &self.keeper {
            Keeper::Disk { shared, .. } => shared.image(f),
            Keeper::Anchor(table) => table.image(f),
        }
    }

    /// The earlier openings of which something may still move. One that is at work beside this one is none of them.
    pub fn unsettled(&self) -> Vec<IncarnationRecord> {
        if let Keeper::Anchor(table) = &self.keeper {
            return table.unsettled();
        }
        let earlier = |opened: &&IncarnationRecord| opened.incarnation != self.incarnation;
        self.image(|image| image.unsettled().filter(earlier).cloned().collect())
    }

    /// Whether a decision that is begun now will find space on the disk.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] if not, with the cure; the next call finds out whether it
    /// helped. [`ErrorKind::Journal`] if nothing can be written any more.
    pub fn check_space(&self) -> Result<()> {
        match &self.keeper {
            Keeper::Disk { shared, .. } => shared.check_space(),
            Keeper::Anchor(_) => Ok(()),
        }
    }

    /// Why nothing can be written any more, if so.
    pub fn is_poisoned(&self) -> Option<String> {
        match &self.keeper {
            Keeper::Disk { shared, .. } => shared.failure(),
            Keeper::Anchor(_) => None,
        }
    }

    /// Writes what is queued, marks the journal as complete, and releases the lock. Dropping does the same but tells
    /// nobody. Blocks for a sync. Closing it again does nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Journal`] if something could not be written.
    pub fn close(&self) -> Result<()> {
        self.stop();
        match &self.keeper {
            Keeper::Disk { shared, .. } => shared.outcome(),
            Keeper::Anchor(_) => Ok(()),
        }
    }

    fn stop(&self) {
        let Keeper::Disk { shared, running } = &self.keeper else { return };
        shared.close();
        let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Running { thread, lock }) = running.take() {
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
