//! The segment that is being written: append, sync, rotate, compact.
//!
//! Entries are gathered in a buffer by [`Writer::put`] and made durable together by [`Writer::flush`]. The first
//! failure of a write or sync of the journal proper poisons the writer: nothing is written after it. A second sync
//! would prove nothing, since the kernel drops what it could not write and then reports success, and a half-written
//! entry must not be followed by good ones. What the failed batch came to is known when the journal is opened anew.
//!
//! A failure to prepare the *next* segment is not one of the journal: nothing relies on that file yet. It is thrown
//! away, and begins are refused until another attempt succeeds.

use super::chain::{segment_name, temporary_name};
use super::format::{Binding, Content, FormatVersion, HEADER_END, Header, MARK_LENGTH, NEXT_LENGTH};
use super::format::{encode, encode_beginning};
use super::outcomes::Image;
use super::storage::{Storage, StorageFile};
use crate::id::{Incarnation, JournalId};
use crate::torture::{self, Point, Safeguard, Step};
use std::io;
use std::sync::Arc;

/// Compaction begins when so many segments followed the last snapshot, and as many bytes as that one took,
const COMPACT_AT: u64 = 3;
/// or when as many bytes did, and so many: an opening reads them before anybody notices.
const REPLAYED: u64 = 8 << 20;

/// A file that is ready to become the next segment.
pub struct Spare {
    name: String,
    file: Box<dyn StorageFile>,
    length: u64,
}

/// What is to be made of it, on any thread.
pub struct Making {
    storage: Arc<dyn Storage>,
    name: String,
    length: u64,
}

impl Making {
    /// Makes the file.
    ///
    /// # Errors
    /// The storage's, `StorageFull` first of all.
    pub fn make(self) -> io::Result<Spare> {
        make_spare(&*self.storage, self.name, self.length)
    }

    /// Whether it is better done while the writer goes on.
    pub fn is_slow(&self) -> bool {
        self.storage.is_slow_to_create()
    }
}

/// A state of the journal, as the first bytes of the segment that begins with it.
pub struct Snapshot {
    header: Header,
    bytes: Vec<u8>,
}

/// The writer of a journal's segments.
pub struct Writer {
    storage: Arc<dyn Storage>,
    segment_bytes: u64,
    header: Header,
    binding: Binding,
    file: Box<dyn StorageFile>,
    /// How long the file is.
    length: u64,
    /// Where the buffer's first byte goes.
    offset: u64,
    /// Through where the file is known durable.
    synced: u64,
    buffer: Vec<u8>,
    spare: Option<Spare>,
    /// Segments that count, the current one included, with their lengths.
    live: Vec<(u64, u64)>,
    /// Where the snapshot ends that begins the first of them.
    base: u64,
    /// Segments that do not count any more and could not be removed yet.
    stale: Vec<u64>,
    failure: Option<String>,
}

/// Encodes a state as the beginning of a segment.
pub fn snapshot(image: &Image, incarnation: Incarnation, sequence: u64) -> Snapshot {
    let format = FormatVersion::DecisionsAndOutcomes;
    let journal: JournalId = image.journal();
    let snapshot_end = HEADER_END as u64;
    let mut header = Header { format, journal, incarnation, sequence, previous_end: 0, snapshot_end };
    let binding = header.binding();
    let mut bytes = vec![0; HEADER_END];
    image.snapshot(|content| {
        let offset = bytes.len() as u64;
        encode(&mut bytes, binding, offset, 0, content);
    });
    header.snapshot_end = bytes.len() as u64;
    let beginning = beginning(&header);
    bytes[..HEADER_END].copy_from_slice(&beginning);
    assert!(header.is_base() && header.binding() == binding, "the snapshot is bound to its segment");
    Snapshot { header, bytes }
}

fn beginning(header: &Header) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_END);
    encode_beginning(&mut bytes, header);
    bytes
}

impl Writer {
    /// Begins a segment with a snapshot, durably, in place of the segments `old`.
    ///
    /// # Errors
    /// The storage's. What was there before still counts, or what is there now says the same.
    pub fn begin(
        storage: Arc<dyn Storage>,
        segment_bytes: u64,
        snapshot: &Snapshot,
        old: Vec<u64>,
    ) -> io::Result<Self> {
        let header = snapshot.header;
        let length = Self::length_for(segment_bytes, header.snapshot_end, 0);
        let spare = make_spare(&*storage, temporary_name(header.sequence), length)?;
        torture::pass_blocking(Point::Step(Step::SegmentMade));
        let durably = old.is_empty() || torture::is_on(Safeguard::DurableBeforeActing);
        let file = publish(&*storage, spare, header.sequence, &snapshot.bytes, durably)?;
        torture::pass_blocking(Point::Step(Step::SegmentPublished));
        Ok(Self {
            storage,
            segment_bytes,
            header,
            binding: header.binding(),
            file,
            length,
            offset: header.snapshot_end,
            synced: header.snapshot_end,
            buffer: Vec::new(),
            spare: None,
            live: vec![(header.sequence, length)],
            base: header.snapshot_end,
            stale: old,
            failure: None,
        })
    }

    /// How long a segment is made that begins with so many bytes and must take so many more.
    fn length_for(segment_bytes: u64, beginning: u64, room: u64) -> u64 {
        let needed = beginning + room + (NEXT_LENGTH + MARK_LENGTH) as u64;
        if needed <= segment_bytes / 2 || (beginning == HEADER_END as u64 && needed <= segment_bytes) {
            segment_bytes
        } else {
            needed + segment_bytes
        }
    }

    /// Why nothing can be written any more.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// The number of the segment that would come next.
    pub fn next_sequence(&self) -> u64 {
        self.header.sequence + 1
    }

    /// The incarnation that writes.
    pub fn incarnation(&self) -> Incarnation {
        self.header.incarnation
    }

    /// Adds an entry to the batch.
    ///
    /// # Errors
    /// The length of its frame, if it does not fit the segment: rotate first.
    pub fn put(&mut self, content: Content<'_>) -> Result<(), usize> {
        assert!(self.failure.is_none(), "nothing is written after a failure");
        let start = self.buffer.len();
        let offset = self.offset + start as u64;
        let length = encode(&mut self.buffer, self.binding, offset, self.synced, content);
        // A mark finds room behind every other entry: a journal that was closed leaves nothing in doubt.
        let kept = if matches!(content, Content::Mark) { NEXT_LENGTH } else { MARK_LENGTH + NEXT_LENGTH };
        if offset + (length + kept) as u64 > self.length {
            self.buffer.truncate(start);
            return Err(length);
        }
        Ok(())
    }

    /// Writes the batch and waits until it is durable.
    ///
    /// # Errors
    /// The storage's: the writer is poisoned.
    pub fn flush(&mut self) -> io::Result<()> {
        self.write()?;
        torture::pass_blocking(Point::Step(Step::Written));
        let synced = match self.file.sync() {
            Err(_) if !torture::is_on(Safeguard::Poison) => self.file.sync(),
            synced => synced,
        };
        self.guard(synced)?;
        self.synced = self.offset;
        torture::pass_blocking(Point::Step(Step::Synced));
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        assert!(self.failure.is_none(), "nothing is written after a failure");
        if self.buffer.is_empty() {
            return Ok(());
        }
        let end = self.offset + self.buffer.len() as u64;
        assert!(end <= self.length, "the file does not grow");
        let written = self.file.write_at(self.offset, &self.buffer);
        self.guard(written)?;
        self.offset = end;
        self.buffer.clear();
        Ok(())
    }

    /// Writes how far the segment is durable, if that is not written yet, without waiting: readers beside us then
    /// know, and so do later ones, should the last batch be damaged. Done when there is nothing else to do.
    ///
    /// # Errors
    /// The storage's: the writer is poisoned.
    pub fn mark(&mut self) -> io::Result<()> {
        assert!(self.buffer.is_empty() && self.synced <= self.offset, "a mark is written between batches");
        if self.synced < self.offset || self.synced == self.header.snapshot_end {
            return Ok(());
        }
        self.put(Content::Mark).expect("room was kept for it");
        self.write()
    }

    /// Whether less than half of the segment is left and the next is not prepared.
    pub fn wants_spare(&self) -> bool {
        self.failure.is_none() && self.spare.is_none() && self.offset > self.length / 2
    }

    /// What is to be made of the next segment ahead of time. Should it fail, the writer goes on, and it may be tried again.
    pub fn next_segment(&self) -> Making {
        assert!(self.wants_spare(), "one spare is enough");
        let (storage, name) = (Arc::clone(&self.storage), temporary_name(self.next_sequence()));
        Making { storage, name, length: self.segment_bytes }
    }

    /// Takes what was made of the next segment.
    pub fn take_spare(&mut self, spare: Spare) {
        assert!(self.spare.is_none() && spare.name == temporary_name(self.next_sequence()), "it was asked for");
        self.spare = Some(spare);
    }

    /// Prepares a next segment that is long enough for a snapshot and an entry of `room` bytes.
    ///
    /// # Errors
    /// The storage's, `StorageFull` first of all; a shorter spare is still there.
    pub fn prepare_compaction(&mut self, snapshot: &Snapshot, room: usize) -> io::Result<()> {
        self.ensure_spare(Self::length_for(self.segment_bytes, snapshot.header.snapshot_end, room as u64))
    }

    fn ensure_spare(&mut self, length: u64) -> io::Result<()> {
        let short = match &self.spare {
            Some(spare) if spare.length >= length => return Ok(()),
            Some(spare) => spare.name.clone(),
            None => {
                self.spare = Some(make_spare(&*self.storage, temporary_name(self.next_sequence()), length)?);
                return Ok(());
            }
        };
        self.spare = Some(make_spare(&*self.storage, temporary_name(self.next_sequence() + 1), length)?);
        if let Err(error) = self.storage.remove(&short) {
            tracing::warn!(%error, file = short, "a temporary file of the journal cannot be removed");
        }
        Ok(())
    }

    /// Whether the segments have outgrown what they say. With segments of many megabytes that is at each rotation, until the
    /// snapshot has as many. What is written because of compactions is never more than what is written anyway.
    pub fn wants_compaction(&self) -> bool {
        let [(_, first), later @ ..] = self.live.as_slice() else { return false };
        let grown: u64 = later.iter().map(|(_, length)| length).sum();
        let behind = first + grown - self.base;
        grown >= *first.max(&(COMPACT_AT * self.segment_bytes)) || behind >= self.base.max(REPLAYED)
    }

    /// Goes on in a new segment that has room for an entry of `room` bytes.
    ///
    /// # Errors
    /// The storage's: the writer is poisoned.
    pub fn rotate(&mut self, room: usize) -> io::Result<()> {
        let sequence = self.next_sequence();
        let snapshot_end = HEADER_END as u64;
        // Not the offset: a mark that was written since is not known durable, and nothing else was written since.
        let header = Header { sequence, previous_end: self.synced, snapshot_end, ..self.header };
        self.go_on(header, &beginning(&header), room)
    }

    /// Goes on in a new segment that begins with a snapshot, and removes all others.
    ///
    /// # Errors
    /// The storage's: the writer is poisoned.
    pub fn compact(&mut self, snapshot: &Snapshot, room: usize) -> io::Result<()> {
        assert_eq!(snapshot.header.sequence, self.next_sequence(), "the snapshot is for the next segment");
        self.go_on(snapshot.header, &snapshot.bytes, room)?;
        let current = self.live.pop().expect("the segment that was just begun");
        self.stale.extend(self.live.drain(..).map(|(sequence, _)| sequence));
        self.live.push(current);
        self.base = snapshot.header.snapshot_end;
        torture::pass_blocking(Point::Step(Step::Compacted));
        self.remove_stale();
        Ok(())
    }

    /// Writes the beginning of the next segment, gives it its name, and closes the current one.
    fn go_on(&mut self, header: Header, beginning: &[u8], room: usize) -> io::Result<()> {
        assert!(self.buffer.is_empty() && self.synced <= self.offset, "rotation happens between batches");
        let length = Self::length_for(self.segment_bytes, header.snapshot_end, room as u64);
        let ready = self.ensure_spare(length);
        self.guard(ready)?;
        torture::pass_blocking(Point::Step(Step::SegmentMade));
        let spare = self.spare.take().expect("it was just prepared");
        let length = spare.length;
        let published = publish(&*self.storage, spare, header.sequence, beginning, true);
        let file = self.guard(published)?;
        torture::pass_blocking(Point::Step(Step::SegmentPublished));
        // Only now is the next one certain to be there: the current one may say so.
        let closed = self.close_segment();
        self.guard(closed)?;
        torture::pass_blocking(Point::Step(Step::SegmentClosed));
        self.header = header;
        self.binding = header.binding();
        self.file = file;
        self.length = length;
        self.offset = header.snapshot_end;
        self.synced = header.snapshot_end;
        self.live.push((header.sequence, length));
        Ok(())
    }

    fn close_segment(&mut self) -> io::Result<()> {
        let next = Content::Next(self.next_sequence());
        let mut bytes = Vec::with_capacity(NEXT_LENGTH);
        let length = encode(&mut bytes, self.binding, self.offset, self.synced, next);
        assert!(length == NEXT_LENGTH && self.offset + length as u64 <= self.length, "room was kept for it");
        self.file.write_at(self.offset, &bytes)?;
        self.file.sync()
    }

    /// Removes segments that do not count any more. What cannot be removed now is removed later: it harms nobody.
    pub fn remove_stale(&mut self) {
        let storage = &self.storage;
        self.stale.retain(|sequence| match storage.remove(&segment_name(*sequence)) {
            Ok(()) => false,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => {
                tracing::warn!(%error, segment = segment_name(*sequence), "an old journal segment cannot be removed");
                true
            }
        });
        if let Err(error) = self.storage.sync_directory() {
            tracing::warn!(%error, "the removal of old journal segments is not durable yet");
        }
    }

    /// The last mark, durable: the journal is complete as it is.
    ///
    /// # Errors
    /// The storage's: the writer is poisoned.
    pub fn finish(&mut self) -> io::Result<()> {
        self.mark()?;
        self.flush()
    }

    fn guard<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result {
            assert!(self.failure.is_none(), "nothing is tried after a failure");
            self.failure = Some(error.to_string());
        }
        result
    }
}

/// Makes the file of a later segment: allocated and zero, under a name that no reader takes for a segment.
fn make_spare(storage: &dyn Storage, name: String, length: u64) -> io::Result<Spare> {
    assert!(length >= (HEADER_END + NEXT_LENGTH) as u64, "a segment holds its header and its end");
    match storage.create(&name, length) {
        Ok(file) => Ok(Spare { name, file, length }),
        Err(error) => {
            // What it occupies is needed by others. The next attempt replaces it in any case.
            let _ = storage.remove(&name);
            Err(error)
        }
    }
}

/// Makes a file a segment: its beginning is durable before it has the name, the name before anybody relies on it.
fn publish(
    storage: &dyn Storage,
    spare: Spare,
    sequence: u64,
    beginning: &[u8],
    durably: bool,
) -> io::Result<Box<dyn StorageFile>> {
    let Spare { name, mut file, length } = spare;
    assert!(beginning.len() as u64 <= length, "the spare was made long enough");
    file.write_at(0, beginning)?;
    if durably {
        file.sync()?;
    }
    storage.rename(&name, &segment_name(sequence))?;
    if durably && torture::is_on(Safeguard::DirectorySync) {
        storage.sync_directory()?;
    }
    Ok(file)
}
