//! From a directory to a journal that can be written.
//!
//! What is read may be in the operating system's cache only, left by a process that died before its sync. To act on
//! it and then lose it to a power failure would be to change a decision. So opening never continues a segment: what
//! survived is written anew as the snapshot that begins the next one, which is durable before anybody hears of it.
//! A torn tail ends with its segment, and nothing is ever appended behind one.

use super::chain::{Damage, Found, Link, Listing, Verdict, find, journal_of, read_lock, walk};
use super::format;
use super::lockfile::{write_holder, write_promise};
use super::offline::read_from;
use super::outcomes::Image;
use super::storage::{Locked, Storage, StorageFile};
use super::writer::{Writer, snapshot};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Incarnation, JournalId};
use crate::protocol::{IncarnationRecord, Record};
use crate::torture::{self, Point, Safeguard, Step};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A journal that is ready to be written.
pub struct Opened {
    pub name: String,
    pub image: Image,
    pub writer: Writer,
    pub lock: Box<dyn StorageFile>,
}

/// Locks, reads, makes durable what was read, and registers the incarnation.
pub fn open(storage: Arc<dyn Storage>, segment_bytes: u64, record: IncarnationRecord) -> Result<Opened> {
    let incarnation = record.incarnation;
    let record = Record::Incarnation(record);
    format::check(&record).map_err(|why| Error::new(ErrorKind::Config, why))?;
    let lock = lock(&*storage)?;
    let (listing, links) = examine(&*storage)?;
    let mut image = replay(&*storage, &links)?;
    if image.knows(incarnation) || image.audit().incomplete(incarnation).is_some() {
        let text = format!("journal {}: incarnation {incarnation} is opened a second time", storage.name());
        return Err(Error::new(ErrorKind::Refused, text));
    }
    image.apply(&record).expect("nothing is known of it");
    begin(storage, segment_bytes, incarnation, next_sequence(&listing), image, &listing, lock)
}

/// Makes an empty journal if there is none.
pub fn create_if_absent(storage: Arc<dyn Storage>, segment_bytes: u64) -> Result<JournalId> {
    // An existing journal may be in use: that is no reason to complain.
    if let Some(journal) = existing(&*storage)? {
        return Ok(journal);
    }
    let lock = lock(&*storage)?;
    if let Some(journal) = existing(&*storage)? {
        return Ok(journal);
    }
    let listing = Listing::read(&*storage)?;
    let image = Image::new(new_id()?);
    let mut opened = begin(storage, segment_bytes, Incarnation(0), next_sequence(&listing), image, &listing, lock)?;
    opened.writer.finish().map_err(|error| unwritable(&opened.name, error))?;
    Ok(opened.image.journal())
}

/// The sound journal that is there, in use or not.
fn existing(storage: &dyn Storage) -> Result<Option<JournalId>> {
    if find(storage, &Listing::read(storage)?)? == Found::Nothing {
        return Ok(None);
    }
    let found = read_from(storage)?;
    match &found.verdict {
        Verdict::Corrupt(damage) => Err(corrupt(storage, damage)),
        Verdict::Clean | Verdict::TornTail { .. } => Ok(found.journal),
    }
}

/// Creates a directory and those above it, durably.
pub fn create_directory(directory: &Path) -> Result<()> {
    let failed = |error: io::Error| {
        let text = format!("journal directory {} cannot be created", directory.display());
        Error::new(ErrorKind::Config, text).because(error)
    };
    if directory.is_dir() {
        return Ok(());
    }
    std::fs::create_dir_all(directory).map_err(failed)?;
    let whole = std::fs::canonicalize(directory).map_err(failed)?;
    for above in whole.ancestors().skip(1).take_while(|_| cfg!(unix)) {
        // A directory that we may not read is not one that was just created.
        let _ = std::fs::File::open(above).and_then(|above| above.sync_all());
    }
    Ok(())
}

/// Takes the lock, and tells in its file who has it.
pub fn lock(storage: &dyn Storage) -> Result<Box<dyn StorageFile>> {
    let name = storage.name();
    match storage.lock() {
        Ok(Locked::Held(mut lock)) => {
            // At once, so that whoever is refused from now on is told of us and not of the last holder.
            write_holder(&mut *lock).map_err(|error| unwritable(&name, error))?;
            Ok(lock)
        }
        Ok(Locked::Busy) => Err(busy(storage)?),
        Err(error) => Err(unwritable(&name, error)),
    }
}

/// The error for a journal that somebody else has, with the holder's name.
pub fn busy(storage: &dyn Storage) -> Result<Error> {
    let holder = read_lock(storage)?;
    let text =
        format!("journal {} is in use by {}: stop it, or give each its own directory", storage.name(), holder.holder());
    Ok(Error::new(ErrorKind::Refused, text))
}

/// The segments that count; none if there never was a journal.
fn examine(storage: &dyn Storage) -> Result<(Listing, Vec<Link>)> {
    let listing = Listing::read(storage)?;
    match find(storage, &listing)? {
        Found::Nothing => Ok((listing, Vec::new())),
        Found::Chain(links) => Ok((listing, links)),
        Found::Damaged(damage) => Err(corrupt(storage, &damage)),
    }
}

fn replay(storage: &dyn Storage, links: &[Link]) -> Result<Image> {
    if links.is_empty() {
        return Ok(Image::new(new_id()?));
    }
    let mut image = Image::new(journal_of(links));
    match walk(storage, links, &mut |visited| image.apply_entry(&visited.placed.entry))? {
        Verdict::Clean => {}
        Verdict::TornTail { file, offset } => {
            tracing::info!(file, offset, "the journal ends in a write that was never acknowledged: it is left behind");
        }
        Verdict::Corrupt(damage) => return Err(corrupt(storage, &damage)),
    }
    Ok(image)
}

fn next_sequence(listing: &Listing) -> u64 {
    listing.segments.last().map_or(1, |last| last + 1)
}

/// Writes the image as the beginning of a segment behind all others; then, and only then, removes what it was read
/// from.
pub fn begin(
    storage: Arc<dyn Storage>,
    segment_bytes: u64,
    incarnation: Incarnation,
    sequence: u64,
    image: Image,
    listing: &Listing,
    mut lock: Box<dyn StorageFile>,
) -> Result<Opened> {
    let name = storage.name();
    let failed = |error| unwritable(&name, error);
    for file in &listing.temporary {
        storage.remove(file).map_err(failed)?;
    }
    let snapshot = snapshot(&image, incarnation, sequence);
    let old = listing.segments.clone();
    let mut writer = Writer::begin(Arc::clone(&storage), segment_bytes, &snapshot, old).map_err(failed)?;
    match listing.lock.initialised {
        Some(journal) => assert_eq!(journal, image.journal(), "segments of another journal were refused"),
        None => write_promise(&mut *lock, image.journal()).map_err(failed)?,
    }
    torture::pass_blocking(Point::Step(Step::Compacted));
    if torture::is_on(Safeguard::DurableBeforeActing) {
        writer.remove_stale();
    }
    Ok(Opened { name, image, writer, lock })
}

/// A new journal's identity.
pub fn new_id() -> Result<JournalId> {
    let mut bits = [0; 8];
    getrandom::fill(&mut bits).map_err(|error| {
        Error::new(ErrorKind::Journal, "no random number for a new journal's identity").because(error.to_string())
    })?;
    Ok(JournalId(u64::from_le_bytes(bits)))
}

fn corrupt(storage: &dyn Storage, damage: &Damage) -> Error {
    damage.error(&storage.name())
}

/// The error for a directory that cannot be written.
pub fn unwritable(name: &str, error: io::Error) -> Error {
    let (kind, cure) = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => (ErrorKind::Journal, "free space on its disk"),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            (ErrorKind::Config, "let this user write there, or name another directory")
        }
        _ => (ErrorKind::Journal, "see to its disk, then open it again"),
    };
    Error::new(kind, format!("journal {name} cannot be written: {error}: {cure}")).because(error)
}
