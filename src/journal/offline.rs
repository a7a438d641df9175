//! A journal, read from outside: without the lock, without writing, beside a running application or after it.
//!
//! The writer does not wait for readers. A file may vanish between listing and reading (compaction), an entry may
//! be read before, and the mark that vouches for it after, it was written. So a finding that speaks of damage
//! counts only when a second reading has the same; and what lies beyond the last synced mark is in doubt.

use super::chain::{Damage, Found, Link, Listing, Verdict, Visited};
use super::chain::{find, journal_of, load, segment_name, unreadable, walk};
use super::format::Entry;
use super::lockfile::LockText;
use super::outcomes::Image;
use super::reader::Segment;
use super::salvage::without_header;
use super::storage::{FileStorage, Storage};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Incarnation, JournalId, TransactionId};
use crate::protocol::Record;
use std::io::Read;
use std::path::Path;

/// How often a directory that changes while it is read is read again.
const ATTEMPTS: usize = 20;

/// An entry of a journal with its place.
#[derive(Debug, Clone, PartialEq)]
pub struct OfflineEntry {
    /// The segment's file.
    pub file: String,
    /// Where the entry's frame begins.
    pub offset: u64,
    /// How many bytes the frame has.
    pub length: u64,
    /// Through where the segment was known durable when it was written.
    pub synced: u64,
    /// Whether it is certainly durable.
    pub durable: bool,
    /// Whether it lies behind damage, so that it counts for nothing but may help a person.
    pub salvaged: bool,
    /// What it holds.
    pub entry: Entry,
}

/// A journal as it is found.
#[derive(Debug, Clone)]
pub struct Offline {
    /// Its identity, if any of its segments or its lock file could be read.
    pub journal: Option<JournalId>,
    /// What is certainly durable, up to the damage if there is any.
    pub image: Image,
    /// What lies beyond the last synced mark: it may be durable or not.
    pub in_doubt: Vec<Record>,
    /// Every entry that can be read, in order.
    pub entries: Vec<OfflineEntry>,
    /// How the journal ends.
    pub verdict: Verdict,
    /// Whether somebody had the lock when it was read.
    pub in_use: bool,
    /// Who took the lock last, and may or may not still have it.
    pub holder: Option<String>,
    /// The incarnation that opened the journal last, as the last segment's header says.
    pub latest_incarnation: Option<Incarnation>,
}

/// Reads the journal in a directory.
///
/// # Errors
/// [`ErrorKind::Config`] if there is no directory or no journal in it, [`ErrorKind::Refused`] if a later version
/// wrote it, [`ErrorKind::Journal`] if it cannot be read. Damage is no error but a [`Verdict`].
pub fn read(directory: impl AsRef<Path>) -> Result<Offline> {
    read_from(&FileStorage::new(directory.as_ref())?)
}

/// As [`read`], from any storage.
///
/// # Errors
/// As [`read`].
pub fn read_from(storage: &dyn Storage) -> Result<Offline> {
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let found = read_once(storage);
        let complaint = match &found {
            Ok(Offline { verdict: Verdict::Corrupt(damage), .. }) => format!("{damage:?}"),
            Ok(_) => return found,
            Err(error) => error.chain(),
        };
        if last.as_ref() == Some(&complaint) {
            return found;
        }
        last = Some(complaint);
    }
    let text = format!("journal {} changes too fast to be read ({})", storage.name(), last.unwrap_or_default());
    Err(Error::new(ErrorKind::Journal, text))
}

fn read_once(storage: &dyn Storage) -> Result<Offline> {
    // Before anything is read: whoever takes the lock later finds at least what is read here.
    let in_use = storage.is_locked().map_err(|error| {
        Error::new(ErrorKind::Journal, format!("the lock of journal {} cannot be looked at", storage.name()))
            .because(error)
    })?;
    let found = read_chains(storage)?;
    Ok(Offline { in_use, ..found })
}

fn read_chains(storage: &dyn Storage) -> Result<Offline> {
    let listing = Listing::read(storage)?;
    match find(storage, &listing)? {
        Found::Nothing => {
            let text = format!("there is no journal in {}: run `handfast init`, or open a bridge", storage.name());
            Err(Error::new(ErrorKind::Config, text))
        }
        Found::Chain(links) => read_chain(storage, &links, listing.lock),
        Found::Damaged(damage) => salvage_all(storage, &listing, damage),
    }
}

fn read_chain(storage: &dyn Storage, links: &[Link], lock: LockText) -> Result<Offline> {
    let journal = journal_of(links);
    let mut found = Offline::empty(Some(journal), Verdict::Clean, lock);
    found.latest_incarnation = links.last().map(|link| link.header.incarnation);
    let mut live = Image::new(journal);
    let verdict = walk(storage, links, &mut |visited| {
        live.apply_entry(&visited.placed.entry)?;
        found.add(visited);
        Ok(())
    })?;
    if let Verdict::Corrupt(damage) = &verdict {
        for link in links.iter().filter(|link| link.name >= damage.file) {
            if let Ok(segment) = load(storage, link)? {
                found.add_salvaged(&link.name, &segment, if link.name == damage.file { damage.offset } else { 0 });
            }
        }
    }
    found.verdict = verdict;
    Ok(found)
}

/// What can be read of a journal whose segments are not all there: nothing that counts, all that may help.
fn salvage_all(storage: &dyn Storage, listing: &Listing, damage: Damage) -> Result<Offline> {
    let mut found = Offline::empty(listing.lock.initialised, Verdict::Corrupt(damage), listing.lock.clone());
    for sequence in &listing.segments {
        let name = segment_name(*sequence);
        let mut bytes = Vec::new();
        let read = storage.open(&name).and_then(|mut file| file.read_to_end(&mut bytes));
        read.map_err(|error| unreadable(storage, &name, error))?;
        let segment = match (Segment::parse(bytes.clone()), found.journal) {
            (Ok(segment), _) => Some(segment),
            (Err(_), Some(journal)) => without_header(bytes, journal, *sequence),
            (Err(_), None) => None,
        };
        if let Some(segment) = segment {
            found.journal.get_or_insert(segment.header().journal);
            found.add_salvaged(&name, &segment, 0);
        }
    }
    Ok(found)
}

impl Offline {
    fn empty(journal: Option<JournalId>, verdict: Verdict, lock: LockText) -> Self {
        Self {
            journal,
            image: Image::new(journal.unwrap_or(JournalId(0))),
            in_doubt: Vec::new(),
            entries: Vec::new(),
            verdict,
            in_use: false,
            holder: lock.holder,
            latest_incarnation: None,
        }
    }

    /// Whether the journal may hold a decision of this transaction that is not known to be durable.
    pub fn is_in_doubt(&self, id: TransactionId) -> bool {
        self.in_doubt.iter().any(|record| match record {
            Record::Commit(decision) => decision.transaction == id,
            Record::OnePhase(one) | Record::Witnessed(one) | Record::Resolved(one, ..) => *one == id,
            _ => false,
        })
    }

    fn add(&mut self, visited: Visited<'_>) {
        let durable = visited.is_durable();
        let Visited { file, placed, .. } = visited;
        let (offset, length, synced) = (placed.offset, placed.end - placed.offset, placed.synced);
        if durable {
            self.image.apply_entry(&placed.entry).expect("a beginning of what was just applied");
        } else if let Entry::Record(record) = &placed.entry {
            self.in_doubt.push(record.clone());
        }
        let entry = placed.entry;
        self.entries.push(OfflineEntry { file: file.into(), offset, length, synced, durable, salvaged: false, entry });
    }

    fn add_salvaged(&mut self, file: &str, segment: &Segment, offset: u64) {
        let entries = segment.salvage(offset).into_iter().map(|placed| OfflineEntry {
            file: file.into(),
            offset: placed.offset,
            length: placed.end - placed.offset,
            synced: placed.synced,
            durable: false,
            salvaged: true,
            entry: placed.entry,
        });
        self.entries.extend(entries);
    }
}
