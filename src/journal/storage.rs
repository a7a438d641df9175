//! The only door to the disk, and the lock.
//!
//! [`Storage`] is a directory of flat names. It promises what a careful file system does and no more: what was
//! written may be lost until the file was synced, a name may be lost until the directory was. [`FileStorage`] is the
//! real one; the tests have one in memory that takes every such liberty.
//!
//! The lock is the kernel's, on an open file, for the life of the process: nothing is left behind by `kill -9`, and
//! a symbolic link or a bind mount leads to the same lock. The text in the lock file is for people, except for its
//! first line, see [`LockFile`](super::lockfile).

use crate::error::{Error, ErrorKind, Result};
use crate::torture::{self, DiskOperation};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The name of the lock file.
pub const LOCK_NAME: &str = "lock";
/// How often a lock that is taken is tried.
const KNOCKS: u32 = 5;
const BETWEEN_KNOCKS: std::time::Duration = std::time::Duration::from_millis(5);

/// A file that is open for writing.
pub trait StorageFile: Send + Sync {
    /// Writes all bytes at the offset.
    ///
    /// # Errors
    /// The operating system's; any part of the bytes may have been written.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes durable what was written.
    ///
    /// # Errors
    /// The operating system's. What was written since the last success may or may not be durable, and a second
    /// attempt proves nothing: the kernel may have dropped the pages.
    fn sync(&mut self) -> io::Result<()>;
}

/// The answer to an attempt to lock.
pub enum Locked {
    /// It is ours until the file is dropped.
    Held(Box<dyn StorageFile>),
    /// Another process, or another journal of this one, has it.
    Busy,
}

/// A directory of flat names.
pub trait Storage: Send + Sync + 'static {
    /// What to call it in messages: the path.
    fn name(&self) -> String;

    /// The names of the files in it.
    ///
    /// # Errors
    /// The operating system's.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Opens a file for reading, from its beginning.
    ///
    /// # Errors
    /// The operating system's; `NotFound` if there is none.
    fn open(&self, name: &str) -> io::Result<Box<dyn Read>>;

    /// Creates a file of `length` zero bytes whose blocks are allocated, in place of one that has the name.
    ///
    /// # Errors
    /// The operating system's, `StorageFull` first of all. Part of the file may be left.
    fn create(&self, name: &str, length: u64) -> io::Result<Box<dyn StorageFile>>;

    /// Whether that takes so long that it is better done while others write.
    fn is_slow_to_create(&self) -> bool {
        false
    }

    /// Gives a file another name. No file has that one.
    ///
    /// # Errors
    /// The operating system's.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// The operating system's.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes durable which names there are.
    ///
    /// # Errors
    /// The operating system's.
    fn sync_directory(&self) -> io::Result<()>;

    /// Creates a directory below this one; its name lasts when this one is synced.
    ///
    /// # Errors
    /// The operating system's; `AlreadyExists` if there is something of that name.
    fn create_directory(&self, name: &str) -> io::Result<Box<dyn Storage>>;

    /// Takes the lock without waiting, creating its file if there is none.
    ///
    /// # Errors
    /// The operating system's.
    fn lock(&self) -> io::Result<Locked>;

    /// Whether somebody has the lock, without taking it.
    ///
    /// # Errors
    /// The operating system's.
    fn is_locked(&self) -> io::Result<bool>;
}

/// Tries for the lock, more than once: a reader that looks whether it is taken holds it for a moment.
fn knock(file: &File) -> io::Result<bool> {
    for _ in 0..KNOCKS {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) => std::thread::sleep(BETWEEN_KNOCKS),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Ok(false)
}

/// A directory of the file system.
#[derive(Debug, Clone)]
pub struct FileStorage {
    directory: Arc<Path>,
    /// Which directory it was when it was opened.
    identity: Option<Identity>,
}

impl FileStorage {
    /// An existing directory.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if it is missing, no directory, or out of reach.
    pub fn new(directory: &Path) -> Result<Self> {
        let wrong =
            |what: String| Error::new(ErrorKind::Config, format!("journal directory {}", directory.display()) + &what);
        match fs::metadata(directory) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => return Err(wrong(" is not a directory: name one that is".into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(wrong(" does not exist: create it, or run `handfast init`".into()));
            }
            Err(error) => return Err(wrong(format!(" cannot be read: {error}")).because(error)),
        }
        // The program may change its working directory later.
        let directory = fs::canonicalize(directory).map_err(|error| wrong(format!(" cannot be found: {error}")))?;
        assert!(directory.is_absolute(), "a canonical path is absolute");
        let identity = identity(&directory).map_err(|error| wrong(format!(" cannot be found: {error}")))?;
        Ok(Self { directory: directory.into(), identity })
    }

    /// The directory may have been moved, and another put in its place: nothing more is put into that one.
    fn check(&self, operation: DiskOperation) -> io::Result<()> {
        torture::disk(operation, &self.directory)?;
        if identity(&self.directory)? == self.identity {
            return Ok(());
        }
        Err(io::Error::other("another directory is in the place of the one that was opened"))
    }

    fn file(&self, file: File, length: Option<u64>) -> Box<dyn StorageFile> {
        Box::new(RealFile { file, directory: Arc::clone(&self.directory), length, also_locked: None })
    }

    fn path(&self, name: &str) -> PathBuf {
        assert!(!name.is_empty() && !name.contains(['/', '\\']), "{name:?} is not a flat name");
        self.directory.join(name)
    }

    /// Locks the directory itself as well, so that deleting the lock file under a live journal lets nobody in. Not
    /// every file system can: then the lock file alone counts.
    fn lock_directory(&self) -> Option<Locked> {
        let directory = File::open(&self.directory).ok()?;
        match directory.try_lock() {
            Ok(()) => Some(Locked::Held(self.file(directory, None))),
            Err(TryLockError::WouldBlock) => Some(Locked::Busy),
            Err(TryLockError::Error(_)) => None,
        }
    }
}

/// What tells a directory from another of its name.
type Identity = (u64, u64);

#[cfg(unix)]
fn identity(directory: &Path) -> io::Result<Option<Identity>> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(directory).map(|found| Some((found.dev(), found.ino())))
}

#[cfg(not(unix))]
fn identity(_directory: &Path) -> io::Result<Option<Identity>> {
    Ok(None)
}

/// How many names a file has, and its length.
///
/// Not its times: Linux, once somebody has seen them, changes them with the very next write, and the sync behind that writes
/// the inode, too. <https://docs.kernel.org/filesystems/multigrain-ts.html>
#[cfg(target_os = "linux")]
fn names_and_length(file: &File) -> io::Result<(u64, u64)> {
    use rustix::fs::{AtFlags, StatxFlags, statx};
    let wanted = StatxFlags::NLINK | StatxFlags::SIZE;
    match statx(file, "", AtFlags::EMPTY_PATH, wanted) {
        Ok(found) if found.stx_mask & wanted.bits() == wanted.bits() => {
            Ok((u64::from(found.stx_nlink), found.stx_size))
        }
        // An old kernel, a sandbox, or a file system that knows less.
        _ => names_and_length_by_all(file),
    }
}

#[cfg(not(target_os = "linux"))]
use names_and_length_by_all as names_and_length;

#[cfg(unix)]
fn names_and_length_by_all(file: &File) -> io::Result<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    file.metadata().map(|found| (found.nlink(), found.len()))
}

#[cfg(not(unix))]
fn names_and_length_by_all(file: &File) -> io::Result<(u64, u64)> {
    file.metadata().map(|found| (1, found.len()))
}

struct RealFile {
    file: File,
    directory: Arc<Path>,
    /// How long it was made, and stays.
    length: Option<u64>,
    /// Another lock that lives as long.
    also_locked: Option<Box<dyn StorageFile>>,
}

impl StorageFile for RealFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        assert!(!bytes.is_empty(), "a write writes something");
        let failing = torture::disk(DiskOperation::Write, &self.directory);
        let part = if failing.is_ok() { bytes } else { &bytes[..bytes.len() / 2] };
        write_all_at(&mut self.file, offset, part)?;
        failing
    }

    fn sync(&mut self) -> io::Result<()> {
        torture::disk(DiskOperation::Sync, &self.directory)?;
        // The length and the blocks were synced at creation: data is all that can have changed.
        self.file.sync_data()?;
        self.is_as_it_was_made()
    }
}

impl RealFile {
    /// What is durable in a file that nobody can find any more, or that was cut, is lost all the same.
    fn is_as_it_was_made(&self) -> io::Result<()> {
        let Some(length) = self.length else { return Ok(()) };
        let (names, found) = names_and_length(&self.file)?;
        if names == 0 {
            return Err(io::Error::other("its file was deleted or replaced while it was in use"));
        }
        if found != length {
            let text = format!("its file has {found} bytes, not the {length} that it was made with");
            return Err(io::Error::other(text));
        }
        Ok(())
    }
}

impl Drop for RealFile {
    fn drop(&mut self) {
        // The directory's lock goes before the file's: nobody can see the one free and the other taken by us.
        drop(self.also_locked.take());
    }
}

#[cfg(unix)]
fn write_all_at(file: &mut File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

#[cfg(not(unix))]
fn write_all_at(file: &mut File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    use std::io::{Seek, SeekFrom};
    file.seek(SeekFrom::Start(offset))?;
    file.write_all(bytes)
}

impl Storage for FileStorage {
    fn name(&self) -> String {
        self.directory.display().to_string()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let name = |entry: io::Result<fs::DirEntry>| {
            let entry = entry?;
            // A name that is not UTF-8 is not one of ours.
            Ok(if entry.file_type()?.is_dir() { None } else { entry.file_name().into_string().ok() })
        };
        fs::read_dir(&self.directory)?.map(name).filter_map(io::Result::transpose).collect()
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read>> {
        torture::disk(DiskOperation::Read, &self.directory)?;
        Ok(Box::new(File::open(self.path(name))?))
    }

    fn create(&self, name: &str, length: u64) -> io::Result<Box<dyn StorageFile>> {
        static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
        self.check(DiskOperation::Create)?;
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(self.path(name))?;
        // Real zeros, not fallocate: writing to blocks that are merely reserved changes metadata, which every sync
        // of a decision would have to wait for.
        let mut left = length;
        while left > 0 {
            let part = left.min(ZEROS.len() as u64);
            file.write_all(&ZEROS[..usize::try_from(part).expect("at most the size of ZEROS")])?;
            left -= part;
        }
        file.sync_all()?;
        Ok(self.file(file, Some(length)))
    }

    fn is_slow_to_create(&self) -> bool {
        true
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        assert_ne!(from, to, "a rename changes the name");
        self.check(DiskOperation::Rename)?;
        fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        assert_ne!(name, LOCK_NAME, "the lock file is never removed: its lock would live on without it");
        self.check(DiskOperation::Remove)?;
        fs::remove_file(self.path(name))
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.check(DiskOperation::SyncDirectory)?;
        if cfg!(unix) { File::open(&self.directory)?.sync_all() } else { Ok(()) }
    }

    fn create_directory(&self, name: &str) -> io::Result<Box<dyn Storage>> {
        let directory = self.path(name);
        fs::create_dir(&directory)?;
        Ok(Box::new(Self { identity: identity(&directory)?, directory: directory.into() }))
    }

    fn is_locked(&self) -> io::Result<bool> {
        let file = match File::open(self.path(LOCK_NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            opened => opened?,
        };
        // Shared and for a moment: readers do not disturb each other, and a writer knocks more than once.
        match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn lock(&self) -> io::Result<Locked> {
        // Opened for writing without truncation: a refused attempt must leave the holder's text alone.
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).clone();
        let file = options.open(self.path(LOCK_NAME))?;
        if !knock(&file)? {
            return Ok(Locked::Busy);
        }
        match self.lock_directory() {
            Some(Locked::Busy) => Ok(Locked::Busy),
            Some(Locked::Held(above)) => {
                let directory = Arc::clone(&self.directory);
                Ok(Locked::Held(Box::new(RealFile { file, directory, length: None, also_locked: Some(above) })))
            }
            None => Ok(Locked::Held(self.file(file, None))),
        }
    }
}
