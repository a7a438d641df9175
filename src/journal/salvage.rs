//! What can still be read of a damaged journal: for a person to see, and for a repair to keep.
//!
//! A frame with a good checksum is a record that was written; damage makes none. What damage does is to leave gaps, and
//! behind a gap a record that *is* there says as much as before, while one that is missing says nothing any more. So
//! what is found comes in two parts: [`Salvage::whole`], before which nothing is missing, and [`Salvage::loose`].

use super::chain::{Damage, Listing, segment_name, too_new, unreadable};
use super::format::{BadBeginning, Entry, FormatVersion, Frame, HEADER_AT, HEADER_END, Header, Undecodable};
use super::reader::{End, Placed, Segment, Step};
use super::storage::Storage;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Incarnation, JournalId};
use std::io::Read;

/// How far from the beginning the opening is looked for.
const WINDOW: usize = 16 << 10;
/// How many likely frames are asked.
const WITNESSES: usize = 8;

/// An entry, and the file that holds it.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The segment's file.
    pub file: String,
    /// The entry and its place in it.
    pub placed: Placed,
}

/// All that can be read of a journal.
#[derive(Debug)]
pub struct Salvage {
    /// Which; `None` if neither the lock file nor a segment tells.
    pub journal: Option<JournalId>,
    /// From the last snapshot that is whole, as far as nothing is missing.
    pub whole: Vec<Found>,
    /// What lies behind.
    pub loose: Vec<Found>,
    /// Where something is missing or cannot be read.
    pub gaps: Vec<Damage>,
}

/// A segment's file as it is found.
struct File {
    sequence: u64,
    name: String,
    bytes: Vec<u8>,
    segment: std::result::Result<Segment, BadBeginning>,
}

/// Reads all segments.
///
/// # Errors
/// [`ErrorKind::Refused`] when a later version wrote something of it, or when the segments are of several journals;
/// [`ErrorKind::Journal`] if a file cannot be read.
pub fn collect(storage: &dyn Storage, listing: &Listing) -> Result<Salvage> {
    let files = listing.segments.iter().map(|sequence| read_file(storage, *sequence)).collect::<Result<Vec<_>>>()?;
    let journal = journal_of(storage, listing, &files)?;
    let mut found = Salvage { journal, whole: Vec::new(), loose: Vec::new(), gaps: Vec::new() };
    // A whole snapshot stands for all before it.
    let start = files.iter().rposition(|file| file.header(journal).is_some_and(|_| file.begins_whole()));
    let mut before = None;
    for (index, file) in files.iter().enumerate().skip(start.unwrap_or(0)) {
        let header = file.header(journal);
        let follows = |header: Header| !header.is_base() && Some((header.sequence, header.previous_end)) == before;
        let is_whole = start == Some(index) || (header.is_some_and(follows) && found.gaps.is_empty());
        before = match header {
            Some(header) if is_whole => {
                let next = files.get(index + 1).and_then(|next| next.header(journal));
                let sealed_at = next.filter(|next| next.sequence == header.sequence + 1 && !next.is_base());
                found.read_whole(storage, file, sealed_at.map(|next| next.previous_end))?
            }
            _ => {
                found.read_loose(storage, file, start.is_some() || index > 0)?;
                None
            }
        };
    }
    if let Some((sequence, _)) = before.filter(|(sequence, _)| listing.segments.last() < Some(sequence)) {
        found.gaps.push(Damage::new(&segment_name(sequence), 0, "the segment is missing"));
    }
    Ok(found)
}

fn read_file(storage: &dyn Storage, sequence: u64) -> Result<File> {
    let name = segment_name(sequence);
    let mut bytes = Vec::new();
    let read = storage.open(&name).and_then(|mut file| file.read_to_end(&mut bytes));
    read.map_err(|error| unreadable(storage, &name, error))?;
    let segment = Segment::parse(bytes.clone());
    match segment {
        Err(error @ BadBeginning::Version(_)) => Err(too_new(storage, &name, &error.to_string())),
        segment => Ok(File { sequence, name, bytes, segment }),
    }
}

/// The lock file's word, unless no segment agrees with it and all of them agree among each other.
fn journal_of(storage: &dyn Storage, listing: &Listing, files: &[File]) -> Result<Option<JournalId>> {
    let headers = files.iter().filter_map(|file| file.segment.as_ref().ok());
    let mut told: Vec<_> = headers.map(|segment| segment.header().journal).collect();
    told.sort_unstable();
    told.dedup();
    match (listing.lock.initialised, told.as_slice()) {
        (Some(promised), told) if told.is_empty() || told.contains(&promised) => Ok(Some(promised)),
        (_, []) => Ok(None),
        (_, [one]) => Ok(Some(*one)),
        (_, _) => {
            let text = format!(
                "journal {}: its segments are of different journals: keep those of one in a directory",
                storage.name()
            );
            Err(Error::new(ErrorKind::Refused, text))
        }
    }
}

impl File {
    /// The header, if it is this file's and this journal's.
    fn header(&self, journal: Option<JournalId>) -> Option<Header> {
        let header = *self.segment.as_ref().ok()?.header();
        (header.sequence == self.sequence && Some(header.journal) == journal).then_some(header)
    }

    /// Whether it begins with a snapshot of which nothing is missing.
    fn begins_whole(&self) -> bool {
        let Ok(segment) = &self.segment else { return false };
        let snapshot_end = segment.header().snapshot_end;
        let mut reached = HEADER_END as u64;
        for step in segment.steps(None).take_while(|step| matches!(step, Step::Entry(_))) {
            let Step::Entry(placed) = step else { break };
            reached = placed.end;
            if reached >= snapshot_end {
                break;
            }
        }
        segment.header().is_base() && reached >= snapshot_end
    }
}

impl Salvage {
    /// Reads on in a file before which nothing is missing: which number has to follow, and what it says of this one's
    /// end, if this one is whole.
    fn read_whole(&mut self, storage: &dyn Storage, file: &File, sealed_at: Option<u64>) -> Result<Option<(u64, u64)>> {
        let segment = file.segment.as_ref().expect("its header was read");
        let mut next = None;
        for step in segment.steps(sealed_at) {
            match step {
                Step::Entry(placed) => {
                    if let Entry::Next(sequence) = placed.entry {
                        next = Some((sequence, 0));
                    }
                    self.whole.push(Found { file: file.name.clone(), placed });
                }
                // A segment whose end the next one states may have lost its last entry, which says that it follows.
                Step::End(End::Clean(_)) if sealed_at.is_some() => {
                    return Ok(sealed_at.map(|end| (segment.header().sequence + 1, end)));
                }
                Step::End(End::Clean(_) | End::Torn(_)) => {}
                Step::End(End::Unknown(_, error)) => return Err(too_new(storage, &file.name, &error.to_string())),
                Step::End(End::Corrupt(offset, why)) => {
                    self.gaps.push(Damage::new(&file.name, offset, why));
                    self.read_remains(storage, &file.name, segment, offset)?;
                    return Ok(None);
                }
            }
        }
        Ok(next)
    }

    /// Reads what can be read of a file whose place is not certain.
    fn read_loose(&mut self, storage: &dyn Storage, file: &File, is_later: bool) -> Result<()> {
        match (&file.segment, self.journal) {
            (Ok(segment), Some(journal)) if segment.header().journal != journal => {
                let why = format!("the segment is of journal {}, not of {journal}", segment.header().journal);
                self.gaps.push(Damage::new(&file.name, 0, why));
                Ok(())
            }
            (Ok(segment), _) => {
                let why = match segment.header().sequence {
                    sequence if sequence != file.sequence => format!("the file holds segment {sequence}"),
                    _ if is_later => "what comes before it is not all there".into(),
                    _ => "it does not begin with a snapshot that is whole".into(),
                };
                self.gaps.push(Damage::new(&file.name, 0, why));
                self.read_remains(storage, &file.name, segment, 0)
            }
            (Err(error), journal) => {
                self.gaps.push(Damage::new(&file.name, 0, error.to_string()));
                let guessed = journal.and_then(|journal| without_header(file.bytes.clone(), journal, file.sequence));
                guessed.map_or(Ok(()), |segment| self.read_remains(storage, &file.name, &segment, 0))
            }
        }
    }

    fn read_remains(&mut self, storage: &dyn Storage, file: &str, segment: &Segment, offset: u64) -> Result<()> {
        for found in segment.remains(offset) {
            match found {
                Ok(placed) => self.loose.push(Found { file: file.into(), placed }),
                Err((offset, error @ Undecodable::Unknown { .. })) => {
                    return Err(too_new(storage, &format!("{file} at offset {offset}"), &error.to_string()));
                }
                Err((offset, error)) => self.gaps.push(Damage::new(file, offset, error.to_string())),
            }
        }
        Ok(())
    }
}

/// The segment behind a damaged header.
///
/// Frames are bound to journal, segment and opening by their checksums, and the header says which. The journal is
/// named by the lock file, the segment by its file. The opening is named by the entry that registers it, which is
/// near the beginning: so every eight bytes there are tried, until some frame says that they are right.
pub fn without_header(bytes: Vec<u8>, journal: JournalId, sequence: u64) -> Option<Segment> {
    let start = &bytes[..bytes.len().min(WINDOW)];
    let likely: Vec<_> = (HEADER_AT + 1..start.len()).filter(|offset| Frame::is_likely(&bytes, *offset)).collect();
    let witnesses = &likely[..likely.len().min(WITNESSES)];
    let named = start.windows(8).map(|eight| Incarnation(u64::from_le_bytes(eight.try_into().expect("eight bytes"))));
    // What no opening made is `init`'s, or a repair's.
    let incarnation = named.chain([Incarnation(0)]);
    let headers = incarnation.map(|incarnation| Header {
        format: FormatVersion::DecisionsAndOutcomes,
        journal,
        incarnation,
        sequence,
        previous_end: 0,
        snapshot_end: HEADER_END as u64,
    });
    let is_right = |header: &Header| {
        let binding = header.binding();
        witnesses.iter().any(|offset| Frame::at(&bytes, *offset, binding).is_some())
    };
    let header = headers.into_iter().find(is_right)?;
    Some(Segment::guessed(header, bytes))
}
