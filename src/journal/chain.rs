//! The segments of a directory, in order: which count, whether they are complete, how they end.
//!
//! The segment with the highest number that begins with a snapshot stands for all earlier ones: those are remains
//! of a compaction that had no time to remove them. From it on the numbers have no gaps. Each later segment states
//! where the one before it ended, and each segment that was left behind says with its last entry that another
//! follows: so neither a first, a middle nor a last one can go missing unnoticed.

use super::format::{BadBeginning, Entry, HEADER_END, Header};
use super::lockfile::LockText;
use super::outcomes::Impossible;
use super::reader::{End, Placed, Segment, Step};
use super::storage::{LOCK_NAME, Storage};
use crate::error::{Error, ErrorKind, Result};
use crate::id::JournalId;
use std::cell::OnceCell;
use std::fmt;
use std::io::{self, Read};

/// The name of the segment with that number.
pub fn segment_name(sequence: u64) -> String {
    format!("segment-{sequence:08}")
}

/// The name it has while it is being made.
pub fn temporary_name(sequence: u64) -> String {
    segment_name(sequence) + TEMPORARY
}

const TEMPORARY: &str = ".new";

fn sequence_of(name: &str) -> Option<u64> {
    let sequence = name.strip_prefix("segment-")?.parse().ok()?;
    // A number that leaves none for what comes behind it was not given by counting.
    (segment_name(sequence) == name && sequence <= u64::MAX / 2).then_some(sequence)
}

fn is_temporary(name: &str) -> bool {
    name.strip_suffix(TEMPORARY).is_some_and(|name| sequence_of(name).is_some())
}

/// Bytes that cannot have been written, or are missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The file's name in the journal's directory.
    pub file: String,
    /// Where in it.
    pub offset: u64,
    /// What is wrong.
    pub why: String,
}

impl Damage {
    pub(super) fn new(file: &str, offset: u64, why: impl Into<String>) -> Self {
        Self { file: file.into(), offset, why: why.into() }
    }

    /// The error for whoever needed the journal whole.
    pub(crate) fn error(&self, journal: &str) -> Error {
        let text = format!(
            "journal {journal} is corrupt in {self}; no branch was touched: see what `handfast journal dump` can still \
             read, and docs/recovery.md for the way out"
        );
        Error::new(ErrorKind::Corrupt, text)
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at offset {}: {}", self.file, self.offset, self.why)
    }
}

/// One segment of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its file's name.
    pub name: String,
    /// What it says of itself.
    pub header: Header,
}

/// What a directory holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// No journal, and there never was one.
    Nothing,
    /// A journal.
    Chain(Vec<Link>),
    /// A journal whose segments are not all there.
    Damaged(Damage),
}

/// The names in a directory that are a journal's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Numbers of segments, ascending.
    pub segments: Vec<u64>,
    /// Files that were being made.
    pub temporary: Vec<String>,
    /// The lock file's text.
    pub lock: LockText,
}

impl Listing {
    /// Lists the directory. Names that are not a journal's are nobody's business.
    ///
    /// # Errors
    /// [`ErrorKind::Journal`] if it cannot be read.
    pub fn read(storage: &dyn Storage) -> Result<Self> {
        let names = storage.list().map_err(|error| unreadable(storage, "the directory", error))?;
        let mut segments: Vec<u64> = names.iter().filter_map(|name| sequence_of(name)).collect();
        segments.sort_unstable();
        assert!(segments.is_sorted_by(|a, b| a < b), "a number has one name");
        let temporary = names.into_iter().filter(|name| is_temporary(name)).collect();
        Ok(Self { segments, temporary, lock: read_lock(storage)? })
    }
}

/// The lock file's text; empty if there is none.
///
/// # Errors
/// [`ErrorKind::Journal`] if it cannot be read.
pub fn read_lock(storage: &dyn Storage) -> Result<LockText> {
    let mut bytes = Vec::new();
    match storage.open(LOCK_NAME).and_then(|file| file.take(4096).read_to_end(&mut bytes)) {
        Ok(_) => Ok(LockText::parse(&bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(LockText::default()),
        Err(error) => Err(unreadable(storage, LOCK_NAME, error)),
    }
}

pub(super) fn unreadable(storage: &dyn Storage, what: &str, error: io::Error) -> Error {
    Error::new(ErrorKind::Journal, format!("journal {}: {what} cannot be read", storage.name())).because(error)
}

/// Finds the segments that count.
///
/// # Errors
/// [`ErrorKind::Refused`] for a later version's journal, [`ErrorKind::Journal`] if a file cannot be read.
pub fn find(storage: &dyn Storage, listing: &Listing) -> Result<Found> {
    let Some(last) = listing.segments.last() else {
        return Ok(match listing.lock.initialised {
            Some(journal) => Found::Damaged(Damage::new(
                &segment_name(1),
                0,
                format!("the directory was initialised for journal {journal} and holds no segment any more"),
            )),
            None => Found::Nothing,
        });
    };
    let mut links = Vec::new();
    for sequence in (1..=*last).rev() {
        let link = match read_link(storage, listing, sequence)? {
            Ok(link) => link,
            Err(damage) => return Ok(Found::Damaged(damage)),
        };
        let base = link.header.is_base();
        links.push(link);
        if base {
            links.reverse();
            return Ok(Found::Chain(links));
        }
    }
    Ok(Found::Damaged(Damage::new(&segment_name(1), 0, "the first segment relies on an earlier one")))
}

/// Reads the header of a segment that must be there.
fn read_link(storage: &dyn Storage, listing: &Listing, sequence: u64) -> Result<Result<Link, Damage>> {
    let name = segment_name(sequence);
    if listing.segments.binary_search(&sequence).is_err() {
        return Ok(Err(Damage::new(&name, 0, "the segment is missing")));
    }
    let mut bytes = Vec::with_capacity(HEADER_END);
    let read = storage.open(&name).and_then(|file| file.take(HEADER_END as u64).read_to_end(&mut bytes));
    read.map_err(|error| unreadable(storage, &name, error))?;
    let header = match Segment::parse(bytes) {
        Ok(segment) => *segment.header(),
        Err(error @ BadBeginning::Version(_)) => return Err(too_new(storage, &name, &error.to_string())),
        Err(error) => return Ok(Err(Damage::new(&name, 0, error.to_string()))),
    };
    let expected = listing.lock.initialised.unwrap_or(header.journal);
    Ok(match header {
        _ if header.sequence != sequence => {
            Err(Damage::new(&name, 0, format!("the file holds segment {}", header.sequence)))
        }
        _ if header.journal != expected => {
            let why = format!("the segment is of journal {}, the directory is of {expected}", header.journal);
            Err(Damage::new(&name, 0, why))
        }
        header => Ok(Link { name, header }),
    })
}

pub(super) fn too_new(storage: &dyn Storage, file: &str, what: &str) -> Error {
    let text = format!("journal {}, {file}: {what}: use the version that wrote it, or a later one", storage.name());
    Error::new(ErrorKind::Refused, text)
}

/// How a journal ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// With its last entry.
    Clean,
    /// With a write that was never acknowledged: harmless.
    TornTail {
        /// The last segment's file.
        file: String,
        /// Where the write began.
        offset: u64,
    },
    /// Before its time.
    Corrupt(Damage),
}

/// An entry on its way from a segment to whoever asked.
#[derive(Debug, Clone)]
pub struct Visited<'a> {
    /// The segment's file.
    pub file: &'a str,
    /// The entry and its place.
    pub placed: Placed,
    marks: &'a Marks<'a>,
}

impl Visited<'_> {
    /// Whether it lies below the last known synced mark.
    pub fn is_durable(&self) -> bool {
        self.placed.end <= self.marks.synced()
    }
}

/// Through where a segment is known durable: found by a walk of its own, for those who ask.
#[derive(Debug)]
struct Marks<'a> {
    segment: &'a Segment,
    sealed_at: Option<u64>,
    synced: OnceCell<u64>,
}

impl Marks<'_> {
    fn synced(&self) -> u64 {
        *self.synced.get_or_init(|| self.segment.synced_through(self.sealed_at))
    }
}

/// Reads the entries of a chain in order and hands them to `visit`, whose refusal is corruption at that entry.
///
/// # Errors
/// [`ErrorKind::Refused`] for a later version's entry, [`ErrorKind::Journal`] if a file cannot be read.
pub fn walk(
    storage: &dyn Storage,
    links: &[Link],
    visit: &mut dyn FnMut(Visited<'_>) -> std::result::Result<(), Impossible>,
) -> Result<Verdict> {
    assert!(links.first().is_some_and(|first| first.header.is_base()), "a chain begins with a snapshot");
    for (index, link) in links.iter().enumerate() {
        let segment = match load(storage, link)? {
            Ok(segment) => segment,
            Err(damage) => return Ok(Verdict::Corrupt(damage)),
        };
        let next = links.get(index + 1).map(|next| next.header);
        assert!(next.is_none_or(|next| next.sequence == link.header.sequence + 1), "a chain has no gaps");
        match walk_segment(storage, &link.name, &segment, next.map(|next| next.previous_end), visit)? {
            Verdict::Clean => {}
            other => return Ok(other),
        }
    }
    Ok(Verdict::Clean)
}

/// Reads a segment whose header was read before.
pub(super) fn load(storage: &dyn Storage, link: &Link) -> Result<Result<Segment, Damage>> {
    let read = storage.open(&link.name).and_then(Segment::read);
    let segment = read.map_err(|error| unreadable(storage, &link.name, error))?;
    Ok(match segment {
        Ok(segment) if *segment.header() == link.header => Ok(segment),
        Ok(_) => Err(Damage::new(&link.name, 0, "the header changed while it was read")),
        Err(error) => Err(Damage::new(&link.name, 0, error.to_string())),
    })
}

fn walk_segment(
    storage: &dyn Storage,
    name: &str,
    segment: &Segment,
    sealed_at: Option<u64>,
    visit: &mut dyn FnMut(Visited<'_>) -> std::result::Result<(), Impossible>,
) -> Result<Verdict> {
    let marks = Marks { segment, sealed_at, synced: OnceCell::new() };
    let mut follows = None;
    for step in segment.steps(sealed_at) {
        let placed = match step {
            Step::Entry(placed) => placed,
            Step::End(end) => return conclude(storage, name, end, follows),
        };
        let offset = placed.offset;
        if let Entry::Next(sequence) = placed.entry {
            follows = Some(sequence);
        }
        if let Err(impossible) = visit(Visited { file: name, placed, marks: &marks }) {
            return Ok(Verdict::Corrupt(Damage::new(name, offset, impossible.to_string())));
        }
    }
    unreachable!("a walk through a segment ends with its end")
}

fn conclude(storage: &dyn Storage, name: &str, end: End, follows: Option<u64>) -> Result<Verdict> {
    Ok(match (end, follows) {
        (End::Unknown(_, error), _) => return Err(too_new(storage, name, &error.to_string())),
        (End::Corrupt(offset, why), _) => Verdict::Corrupt(Damage::new(name, offset, why)),
        (End::Clean(_) | End::Torn(_), Some(sequence)) => {
            let file = segment_name(sequence);
            Verdict::Corrupt(Damage::new(&file, 0, format!("the segment is missing: {name} says that it follows")))
        }
        (End::Torn(offset), None) => Verdict::TornTail { file: name.into(), offset },
        (End::Clean(_), None) => Verdict::Clean,
    })
}

/// The journal that a chain is.
pub fn journal_of(links: &[Link]) -> JournalId {
    links.last().expect("a chain has a segment").header.journal
}
