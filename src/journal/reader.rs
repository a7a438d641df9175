//! One segment, read. Never writes, and needs no more than a `Read`.
//!
//! A reader that meets bytes that are no frame has three explanations, and must not confuse them:
//!
//! * **clean end**: from here on there are only the zeros of the preallocation.
//! * **torn tail**: a write that was never synced, so never acknowledged. Of unsynced pages *any* subset may survive
//!   a power loss, in any order, so good frames may follow a hole.
//! * **corruption**: bytes that were known durable are not what was written.
//!
//! What decides is the highest *synced-through* known: of the frames read so far, of the header's snapshot, of the
//! next segment's header, which states where this one ended, and of every good frame *behind* the bad bytes. A bad
//! frame at or beyond that mark is torn; one below it is corruption.

use super::format::{BadBeginning, Entry, Frame, HEADER_END, Header, Undecodable, decode_beginning};
use std::io::{self, Read};

/// The bytes of a segment whose header is good.
#[derive(Debug, Clone)]
pub struct Segment {
    header: Header,
    bytes: Vec<u8>,
}

/// An entry with its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    /// Where its frame begins.
    pub offset: u64,
    /// Where its frame ends.
    pub end: u64,
    /// Through where the segment was known durable when it was written.
    pub synced: u64,
    /// What it holds.
    pub entry: Entry,
}

/// How a segment ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Where the zeros begin, or where the next segment says that this one ended.
    Clean(u64),
    /// Where writes begin that were never acknowledged.
    Torn(u64),
    /// Where bytes begin that cannot have been written.
    Corrupt(u64, String),
    /// Where an entry begins that a later version wrote.
    Unknown(u64, Undecodable),
}

/// One step through a segment.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// The next entry.
    Entry(Placed),
    /// There is no further one.
    End(End),
}

impl Segment {
    /// Reads a segment whole.
    ///
    /// # Errors
    /// The outer one is the source's, the inner one says why this is no segment.
    pub fn read(mut source: impl Read) -> io::Result<Result<Self, BadBeginning>> {
        let mut bytes = Vec::new();
        source.read_to_end(&mut bytes)?;
        Ok(Self::parse(bytes))
    }

    /// Takes a segment's bytes.
    ///
    /// # Errors
    /// Why this is no segment.
    pub fn parse(bytes: Vec<u8>) -> Result<Self, BadBeginning> {
        let header = decode_beginning(&bytes)?;
        assert!(bytes.len() >= HEADER_END, "a good header is complete");
        Ok(Self { header, bytes })
    }

    /// A segment whose header was found by other means.
    pub(super) fn guessed(header: Header, bytes: Vec<u8>) -> Self {
        Self { header, bytes }
    }

    /// What it says of itself.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Walks through the entries behind the header. `sealed_at` is where the next segment says that this one
    /// ended: everything below it was durable.
    pub fn steps(&self, sealed_at: Option<u64>) -> Steps<'_> {
        Steps { segment: self, offset: HEADER_END, sealed_at, over: false }
    }

    /// Through where the segment is known durable: by its header, its entries, and the next segment.
    pub fn synced_through(&self, sealed_at: Option<u64>) -> u64 {
        let mut synced = sealed_at.unwrap_or(0).max(self.header.snapshot_end);
        let mut offset = HEADER_END;
        while let Some(frame) = self.frame(offset) {
            synced = synced.max(frame.synced);
            offset = index(frame.end);
        }
        synced
    }

    /// The entries that can still be read at or behind `offset`, whatever lies between them.
    pub fn salvage(&self, offset: u64) -> Vec<Placed> {
        self.remains(offset).into_iter().filter_map(Result::ok).collect()
    }

    /// The good frames at or behind `offset`, whatever lies between them: an entry each, or where and why not.
    pub fn remains(&self, offset: u64) -> Vec<Result<Placed, (u64, Undecodable)>> {
        let mut found = Vec::new();
        let mut at = usize::try_from(offset).map_or(self.bytes.len(), |offset| offset.max(HEADER_END));
        while let Some(frame) = self.next_frame(at) {
            at = index(frame.end);
            found.push(frame.decode().map(|entry| placed(&frame, entry)).map_err(|error| (frame.offset, error)));
        }
        found
    }

    fn frame(&self, offset: usize) -> Option<Frame<'_>> {
        Frame::at(&self.bytes, offset, self.header.binding())
    }

    /// The first good frame at or behind `offset`, wherever it begins.
    fn next_frame(&self, mut offset: usize) -> Option<Frame<'_>> {
        while offset < self.bytes.len() {
            // Every frame begins with a length, which is not zero within its first three bytes.
            match skip_zeros(&self.bytes, offset) {
                start if start > offset + 3 => offset = start - 3,
                _ => match self.frame(offset) {
                    Some(frame) => return Some(frame),
                    None => offset += 1,
                },
            }
        }
        None
    }

    /// The highest synced-through that a good frame behind `offset` tells.
    fn mark_behind(&self, offset: usize) -> u64 {
        let mut mark = 0;
        let mut at = offset + 1;
        while let Some(frame) = self.next_frame(at) {
            mark = mark.max(frame.synced);
            at = index(frame.end);
        }
        mark
    }

    /// What bytes at `offset` mean that are no frame.
    fn explain(&self, offset: usize, sealed_at: Option<u64>) -> End {
        let place = offset as u64;
        if let Some(sealed_at) = sealed_at {
            assert!(place < sealed_at, "reading stops where the segment was sealed");
            return End::Corrupt(place, format!("no valid entry, though the segment was durable up to {sealed_at}"));
        }
        let mark = self.header.snapshot_end.max(self.mark_behind(offset));
        if mark > place {
            End::Corrupt(place, format!("no valid entry, though the segment was known durable up to {mark}"))
        } else if skip_zeros(&self.bytes, offset) == self.bytes.len() {
            End::Clean(place)
        } else {
            End::Torn(place)
        }
    }
}

/// A frame's end as an index.
fn index(end: u64) -> usize {
    usize::try_from(end).expect("it lies within the bytes in memory")
}

fn placed(frame: &Frame<'_>, entry: Entry) -> Placed {
    assert!(frame.synced <= frame.offset && frame.offset < frame.end, "checked when the frame was recognised");
    Placed { offset: frame.offset, end: frame.end, synced: frame.synced, entry }
}

/// Where the zeros that begin at `offset` end.
fn skip_zeros(bytes: &[u8], mut offset: usize) -> usize {
    const ZEROS: [u8; 4096] = [0; 4096];
    while bytes.get(offset..).is_some_and(|rest| rest.starts_with(&ZEROS)) {
        offset += ZEROS.len();
    }
    let rest = bytes.get(offset..).unwrap_or_default();
    offset + rest.iter().position(|byte| *byte != 0).unwrap_or(rest.len())
}

/// The walk through a segment: entries, then exactly one end.
#[derive(Debug, Clone)]
pub struct Steps<'a> {
    segment: &'a Segment,
    offset: usize,
    sealed_at: Option<u64>,
    over: bool,
}

impl Steps<'_> {
    fn step(&self) -> Step {
        let place = self.offset as u64;
        if self.sealed_at == Some(place) {
            return Step::End(End::Clean(place));
        }
        let Some(frame) = self.segment.frame(self.offset) else {
            return Step::End(self.segment.explain(self.offset, self.sealed_at));
        };
        if let Some(sealed_at) = self.sealed_at.filter(|sealed_at| frame.end > *sealed_at) {
            return Step::End(End::Corrupt(place, format!("an entry across the segment's end at {sealed_at}")));
        }
        match frame.decode() {
            Ok(entry) => Step::Entry(placed(&frame, entry)),
            Err(error @ Undecodable::Unknown { .. }) => Step::End(End::Unknown(place, error)),
            Err(Undecodable::Malformed(error)) => Step::End(End::Corrupt(place, error.to_string())),
        }
    }
}

impl Iterator for Steps<'_> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if self.over {
            return None;
        }
        let step = self.step();
        match &step {
            Step::Entry(placed) => {
                self.offset = index(placed.end);
            }
            Step::End(_) => self.over = true,
        }
        Some(step)
    }
}
