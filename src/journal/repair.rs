//! The way out for a journal that is refused as corrupt: what can be read begins a new segment, and what may be
//! missing is said of every incarnation that it may be missing of.
//!
//! In this order: the journal's files are copied into a directory of their own, durably; then the new segment is made
//! as at every opening, under a number that no lost segment can have had; then the old ones are removed. Until the new
//! one has its name the journal is refused as before, and from then on nothing else of the directory counts: so a
//! repair that was cut short is there or not there, and may be repeated.

use super::chain::{Damage, Listing, Verdict, segment_name, unreadable};
use super::lockfile::write_promise;
use super::offline::read_from;
use super::opening::{begin, busy, lock, new_id, unwritable};
use super::rebuild::{LeftOut, Rebuilt, rebuild};
use super::salvage::collect;
use super::storage::{FileStorage, LOCK_NAME, Storage};
use crate::config::JournalConfig;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Incarnation, JournalId};
use crate::protocol::Remark;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// Segments that were lost may turn up again. Their numbers are lower than that of the repair by so much at most.
const BEYOND: u64 = 1000;
/// How many repairs can have been begun within a second.
const SAME_SECOND: u32 = 100;

/// What a repair came to, or would come to.
#[derive(Debug)]
pub struct Repaired {
    /// The journal's identity, which it keeps where anything tells it.
    pub journal: JournalId,
    /// The directory, within the journal's own, with a copy of every file as it was; `None` if nothing was done.
    pub copy: Option<String>,
    /// Where something is missing or cannot be read.
    pub damage: Vec<Damage>,
    /// How many records count, the parts of snapshots included.
    pub kept: usize,
    /// Records that can be read and do not count.
    pub left_out: Vec<LeftOut>,
    /// The incarnations of which records may be missing, those that were marked before included: of their
    /// transactions, no record means nothing from now on.
    pub incomplete: Vec<Incarnation>,
    /// Those of them whose own record is lost: what others say of their participants is all that is known.
    pub guessed: Vec<Incarnation>,
}

/// Repairs a corrupt journal. Takes its lock meanwhile.
///
/// # Errors
/// * [`Refused`](crate::ErrorKind::Refused): it is in use, or sound, or a later version wrote something of it;
/// * [`Config`](crate::ErrorKind::Config): there is no directory, or no journal in it;
/// * [`Journal`](crate::ErrorKind::Journal): reading or writing failed; the journal is refused as before, or repaired.
pub fn repair(config: &JournalConfig, remark: Remark) -> Result<Repaired> {
    repair_on(Arc::new(FileStorage::new(&config.directory)?), config.segment_bytes, &remark)
}

/// What [`repair`] would come to. Changes nothing.
///
/// # Errors
/// As [`repair`].
pub fn plan_repair(config: &JournalConfig, remark: Remark) -> Result<Repaired> {
    let storage = FileStorage::new(&config.directory)?;
    if let Ok(true) = storage.is_locked() {
        return Err(busy(&storage)?);
    }
    let (_, rebuilt, gaps) = examine(&storage, &remark)?;
    Ok(told(rebuilt, gaps, None))
}

/// As [`repair`], on any storage.
///
/// # Errors
/// As [`repair`].
pub fn repair_on(storage: Arc<dyn Storage>, segment_bytes: u64, remark: &Remark) -> Result<Repaired> {
    // Before anything is written to it: who had the lock last belongs into the copy.
    let lock_text = read_whole(&*storage, LOCK_NAME)?;
    if storage.is_locked().is_ok_and(|locked| !locked) {
        // Where there is nothing to repair there is no reason to take the lock, whose file may not even exist.
        examine(&*storage, remark)?;
    }
    let mut lock = lock(&*storage)?;
    let (listing, rebuilt, gaps) = examine(&*storage, remark)?;
    let name = storage.name();
    let failed = |error| unwritable(&name, error);
    let copy = copy(&*storage, &listing, &lock_text, remark)?;
    let sequence = listing.segments.last().map_or(0, |last| *last) + BEYOND;
    let (journal, promised) = (rebuilt.image.journal(), listing.lock.initialised);
    let mut listing = listing;
    if promised.is_some_and(|promised| promised != journal) {
        // All segments are of another one.
        write_promise(&mut *lock, journal).map_err(failed)?;
        listing.lock.initialised = Some(journal);
    }
    let image = rebuilt.image.clone();
    let mut opened = begin(Arc::clone(&storage), segment_bytes, Incarnation(0), sequence, image, &listing, lock)?;
    opened.writer.finish().map_err(failed)?;
    tracing::warn!(journal = name, copy, reason = remark.reason, "the journal was repaired: records may be lost");
    Ok(told(rebuilt, gaps, Some(copy)))
}

/// Reads what there is, if it is in need of repair.
fn examine(storage: &dyn Storage, remark: &Remark) -> Result<(Listing, Rebuilt, Vec<Damage>)> {
    let found = read_from(storage)?;
    let Verdict::Corrupt(damage) = found.verdict else {
        let text = format!("journal {} is sound: there is nothing to repair", storage.name());
        return Err(Error::new(ErrorKind::Refused, text));
    };
    let listing = Listing::read(storage)?;
    let salvage = collect(storage, &listing)?;
    let journal = salvage.journal.map_or_else(new_id, Ok)?;
    let (rebuilt, mut gaps) = rebuild(journal, &salvage, remark);
    // A reader says where, and the salvage what of the file could not be trusted: the former is the more exact.
    gaps.retain(|gap| gap.file != damage.file || gap.offset > damage.offset);
    gaps.insert(0, damage);
    Ok((listing, rebuilt, gaps))
}

fn told(rebuilt: Rebuilt, damage: Vec<Damage>, copy: Option<String>) -> Repaired {
    let Rebuilt { image, kept, left_out, guessed } = rebuilt;
    let incomplete = image.audit().incompletes().map(|(incarnation, _)| incarnation).collect();
    Repaired {
        journal: image.journal(),
        copy,
        damage,
        kept,
        left_out,
        incomplete,
        guessed: guessed.into_iter().collect(),
    }
}

/// Copies the journal's files into a directory below, durably: its name. Other files are nobody's business.
fn copy(storage: &dyn Storage, listing: &Listing, lock_text: &[u8], remark: &Remark) -> Result<String> {
    let (name, below) = new_directory(storage, remark)?;
    let failed = |error: io::Error| {
        let text = format!(
            "journal {}: its copy {name} cannot be made: the journal is as it was; remove that directory and free \
             space on its disk",
            storage.name()
        );
        Error::new(ErrorKind::Journal, text).because(error)
    };
    let segments = listing.segments.iter().map(|sequence| segment_name(*sequence));
    for file in segments.chain(listing.temporary.iter().cloned()) {
        let bytes = read_whole(storage, &file)?;
        copy_file(&*below, &file, &bytes).map_err(failed)?;
    }
    copy_file(&*below, LOCK_NAME, lock_text).map_err(failed)?;
    below.sync_directory().and_then(|()| storage.sync_directory()).map_err(failed)?;
    Ok(name)
}

fn copy_file(below: &dyn Storage, name: &str, bytes: &[u8]) -> io::Result<()> {
    let mut file = below.create(name, bytes.len() as u64)?;
    if !bytes.is_empty() {
        file.write_at(0, bytes)?;
    }
    file.sync()
}

/// A file's bytes; none if there is no such file.
fn read_whole(storage: &dyn Storage, name: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match storage.open(name).and_then(|mut file| file.read_to_end(&mut bytes)) {
        Ok(_) => Ok(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(unreadable(storage, name, error)),
    }
}

/// `repair-20260131T120000Z`, by the time of the remark.
fn new_directory(storage: &dyn Storage, remark: &Remark) -> Result<(String, Box<dyn Storage>)> {
    // A clock beyond the year 9999 names nothing.
    let at = UNIX_EPOCH + Duration::from_millis(remark.at_ms.min(253_402_300_799_000));
    let at = humantime_serde::re::humantime::format_rfc3339_seconds(at).to_string().replace(['-', ':'], "");
    let names =
        (1..=SAME_SECOND).map(|n| format!("repair-{at}{}", if n > 1 { format!("-{n}") } else { String::new() }));
    for name in names {
        match storage.create_directory(&name) {
            Ok(below) => return Ok((name, below)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(unwritable(&storage.name(), error)),
        }
    }
    let text = format!("journal {}: there are {SAME_SECOND} copies of {at} already", storage.name());
    Err(Error::new(ErrorKind::Journal, text))
}
