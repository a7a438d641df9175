//! A disk in memory that takes every liberty a real one has.
//!
//! What is written is in the *live* bytes, as in a page cache; a sync copies it to the *durable* ones. [`Disk::kill`]
//! ends the process: the live bytes stay. [`Disk::lose_power`] leaves the durable bytes, an arbitrary subset of the
//! sectors that were written since, and an arbitrary beginning of the unsynced changes of names. Handles of a process
//! that has ended can do nothing more.

use crate::journal::{LOCK_NAME, Locked, Storage, StorageFile};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Cursor, Read};
use std::sync::{Arc, Mutex, MutexGuard};

const SECTOR: usize = 512;

/// What fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Write,
    Sync,
    Any,
}

/// How a disk misbehaves.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// The first operation of the kind to fail, counted from 1, and whether all later ones fail too.
    pub fail: Option<(Operation, usize, bool)>,
    /// Syncs of files report success without effect, from that one on.
    pub lying_sync_from: Option<usize>,
    /// Syncs of the directory report success without effect.
    pub lying_directory_sync: bool,
    /// How many bytes all files together may have.
    pub capacity: Option<usize>,
}

#[derive(Debug, Clone, Default)]
struct Inode {
    live: Vec<u8>,
    durable: Vec<u8>,
    dirty: BTreeSet<usize>,
}

#[derive(Debug, Clone)]
enum NameChange {
    Add(String, usize),
    Rename(String, String),
    Remove(String),
}

#[derive(Debug, Clone, Default)]
struct Inner {
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    unsynced: Vec<NameChange>,
    directories: BTreeSet<String>,
    locked: bool,
    /// Counts the processes.
    generation: usize,
    faults: Faults,
    writes: usize,
    syncs: usize,
    operations: usize,
    failures: usize,
    read: usize,
    log: Vec<String>,
}

/// The disk; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Disk {
    inner: Arc<Mutex<Inner>>,
    generation: usize,
    /// The path of a directory below, with its slash.
    below: String,
}

/// A small generator of choices.
#[derive(Debug, Clone)]
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: usize) -> usize {
        // xorshift64*, Vigna 2016.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        usize::try_from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33).unwrap() % sides
    }
}

impl Disk {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    pub fn set_faults(&self, faults: Faults) {
        let mut inner = self.inner();
        inner.faults = faults;
        (inner.writes, inner.syncs, inner.operations, inner.failures) = (0, 0, 0, 0);
    }

    /// How many operations were made to fail since the faults were set.
    pub fn failures(&self) -> usize {
        self.inner().failures
    }

    /// How many operations there were since the faults were set.
    pub fn operations(&self) -> usize {
        self.inner().operations
    }

    /// How many bytes were read since the last call.
    pub fn take_read(&self) -> usize {
        std::mem::take(&mut self.inner().read)
    }

    /// The operations since the last call, as text.
    pub fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut self.inner().log)
    }

    /// A disk of its own with the same contents, seen by a new process.
    pub fn copy(&self) -> Self {
        let inner = self.inner().clone();
        let copy = Self { inner: Arc::new(Mutex::new(inner)), generation: 0, below: String::new() };
        copy.kill()
    }

    /// Ends the process; the kernel keeps what was written.
    pub fn kill(&self) -> Self {
        let mut inner = self.inner();
        inner.generation += 1;
        inner.locked = false;
        inner.faults = Faults::default();
        Self { inner: Arc::clone(&self.inner), generation: inner.generation, below: String::new() }
    }

    /// Ends process and kernel.
    pub fn lose_power(&self, dice: &mut Dice) -> Self {
        let after = self.kill();
        let mut inner = self.inner();
        for inode in &mut inner.inodes {
            for sector in std::mem::take(&mut inode.dirty) {
                if dice.roll(2) == 0 {
                    inode.write_back(sector);
                }
            }
            inode.live = inode.durable.clone();
        }
        let unsynced = std::mem::take(&mut inner.unsynced);
        let surviving = dice.roll(unsynced.len() + 1);
        for change in unsynced.into_iter().take(surviving) {
            change.apply(&mut inner.durable_names);
        }
        // What is in a directory goes with its name.
        let names = inner.durable_names.clone();
        inner.durable_names.retain(|path, _| path.split_once('/').is_none_or(|(above, _)| names.contains_key(above)));
        inner.names = inner.durable_names.clone();
        drop(inner);
        after
    }

    pub fn names(&self) -> Vec<String> {
        let inner = self.inner();
        let own = inner.names.keys().filter_map(|path| path.strip_prefix(&self.below));
        own.filter(|name| !name.contains('/') && !inner.directories.contains(*name)).map(str::to_owned).collect()
    }

    /// The directories that were made, with the files in them.
    pub fn directories(&self) -> Vec<(String, Self)> {
        let inner = self.inner();
        let found = inner.directories.iter().filter(|name| inner.names.contains_key(*name));
        found.map(|name| (name.clone(), Self { below: format!("{name}/"), ..self.clone() })).collect()
    }

    pub fn segments(&self) -> Vec<String> {
        self.names().into_iter().filter(|name| name.starts_with("segment-") && !name.ends_with(".new")).collect()
    }

    pub fn contents(&self, name: &str) -> Vec<u8> {
        let inner = self.inner();
        inner.inodes[inner.names[&self.path(name)]].live.clone()
    }

    /// Replaces a file behind everybody's back, durably.
    pub fn replace(&self, name: &str, contents: Vec<u8>) {
        let mut inner = self.inner();
        let inode = inner.names[name];
        inner.inodes[inode] = Inode { live: contents.clone(), durable: contents, dirty: BTreeSet::new() };
    }

    /// Removes a file behind everybody's back, durably.
    pub fn lose(&self, name: &str) {
        let mut inner = self.inner();
        inner.names.remove(name);
        inner.durable_names.remove(name);
    }

    fn path(&self, name: &str) -> String {
        format!("{}{name}", self.below)
    }

    fn step(&self, operation: Operation, what: String) -> io::Result<MutexGuard<'_, Inner>> {
        let mut inner = self.inner();
        if inner.generation != self.generation {
            return Err(io::Error::other("the process has ended"));
        }
        inner.operations += 1;
        let count = match operation {
            Operation::Write => {
                inner.writes += 1;
                inner.writes
            }
            Operation::Sync => {
                inner.syncs += 1;
                inner.syncs
            }
            Operation::Any => 0,
        };
        let fails = inner.faults.fail.is_some_and(|(kind, nth, lasting)| {
            let count = if kind == Operation::Any { inner.operations } else { count };
            (kind == Operation::Any || kind == operation) && (count == nth || (lasting && count > nth))
        });
        inner.log.push(what);
        if fails {
            inner.failures += 1;
            return Err(io::Error::other("injected failure"));
        }
        Ok(inner)
    }
}

impl Inner {
    fn used(&self) -> usize {
        self.names.values().map(|inode| self.inodes[*inode].live.len()).sum()
    }

    fn change(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.unsynced.push(change);
    }
}

impl NameChange {
    /// Whether it is one of the directory at that path.
    fn is_below(&self, below: &str) -> bool {
        let (Self::Add(path, _) | Self::Rename(path, _) | Self::Remove(path)) = self;
        path.strip_prefix(below).is_some_and(|name| !name.contains('/'))
    }

    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Self::Add(name, inode) => {
                names.insert(name.clone(), *inode);
            }
            Self::Rename(from, to) => {
                if let Some(inode) = names.remove(from) {
                    names.insert(to.clone(), inode);
                }
            }
            Self::Remove(name) => {
                names.remove(name);
            }
        }
    }
}

struct MemoryFile {
    disk: Disk,
    inode: usize,
    name: String,
    is_lock: bool,
}

impl Inode {
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        if self.live.len() < end {
            self.live.resize(end, 0);
        }
        self.live[offset..end].copy_from_slice(bytes);
        self.dirty.extend(offset / SECTOR..=(end - 1) / SECTOR);
    }

    /// Makes a sector durable as it is.
    fn write_back(&mut self, sector: usize) {
        let (start, end) = (sector * SECTOR, self.live.len().min((sector + 1) * SECTOR));
        if self.durable.len() < end {
            self.durable.resize(end, 0);
        }
        self.durable[start..end].copy_from_slice(&self.live[start..end]);
    }
}

/// Counts what is read.
struct Reading {
    disk: Disk,
    bytes: Cursor<Vec<u8>>,
}

impl Read for Reading {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.bytes.read(buffer)?;
        self.disk.inner().read += read;
        Ok(read)
    }
}

impl StorageFile for MemoryFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let offset = usize::try_from(offset).unwrap();
        let what = format!("write {} at {offset}, {} bytes", self.name, bytes.len());
        match self.disk.step(Operation::Write, what) {
            Ok(mut inner) => {
                inner.inodes[self.inode].write(offset, bytes);
                Ok(())
            }
            Err(error) => {
                // A write that fails may have written any part; but a process that has ended writes nothing.
                let mut inner = self.disk.inner();
                if inner.generation == self.disk.generation {
                    inner.inodes[self.inode].write(offset, &bytes[..bytes.len().div_ceil(2)]);
                }
                Err(error)
            }
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        match self.disk.step(Operation::Sync, format!("sync {}", self.name)) {
            Ok(mut inner) => {
                let lies = inner.faults.lying_sync_from.is_some_and(|from| inner.syncs >= from);
                let inode = &mut inner.inodes[self.inode];
                if !lies {
                    // What a failed sync made it forget is not written by the next one.
                    let dirty = std::mem::take(&mut inode.dirty);
                    dirty.into_iter().for_each(|sector| inode.write_back(sector));
                }
                Ok(())
            }
            Err(error) => {
                // D07: the kernel forgets that the pages were dirty. They are read from its cache until the crash.
                let mut inner = self.disk.inner();
                if inner.generation == self.disk.generation {
                    inner.inodes[self.inode].dirty.clear();
                }
                Err(error)
            }
        }
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        let mut inner = self.disk.inner();
        if self.is_lock && inner.generation == self.disk.generation {
            inner.locked = false;
        }
    }
}

impl Storage for Disk {
    fn name(&self) -> String {
        "(memory)".into()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.names())
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read>> {
        let inner = self.inner();
        let inode = inner.names.get(&self.path(name)).ok_or(io::ErrorKind::NotFound)?;
        let bytes = Cursor::new(inner.inodes[*inode].live.clone());
        Ok(Box::new(Reading { disk: self.clone(), bytes }))
    }

    fn create(&self, name: &str, length: u64) -> io::Result<Box<dyn StorageFile>> {
        let (length, name) = (usize::try_from(length).unwrap(), &self.path(name));
        let mut inner = self.step(Operation::Write, format!("create {name}, {length} bytes"))?;
        let zeros = Inode { live: vec![0; length], durable: vec![0; length], dirty: BTreeSet::new() };
        inner.inodes.push(zeros);
        let inode = inner.inodes.len() - 1;
        inner.change(NameChange::Add(name.clone(), inode));
        if inner.faults.capacity.is_some_and(|capacity| inner.used() > capacity) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        drop(inner);
        Ok(Box::new(MemoryFile { disk: self.clone(), inode, name: name.clone(), is_lock: false }))
    }

    fn create_directory(&self, name: &str) -> io::Result<Box<dyn Storage>> {
        let mut inner = self.step(Operation::Any, format!("create directory {name}"))?;
        if inner.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        inner.inodes.push(Inode::default());
        let inode = inner.inodes.len() - 1;
        inner.change(NameChange::Add(name.into(), inode));
        inner.directories.insert(name.into());
        drop(inner);
        Ok(Box::new(Self { below: format!("{name}/"), ..self.clone() }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let change = NameChange::Rename(from.into(), to.into());
        match self.step(Operation::Any, format!("rename {from} to {to}")) {
            Ok(mut inner) => {
                assert!(inner.names.contains_key(from) && !inner.names.contains_key(to));
                inner.change(change);
                Ok(())
            }
            Err(error) => {
                // A rename that fails may have happened.
                let mut inner = self.inner();
                if inner.generation == self.generation && inner.operations.is_multiple_of(2) {
                    inner.change(change);
                }
                Err(error)
            }
        }
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut inner = self.step(Operation::Any, format!("remove {name}"))?;
        if !inner.names.contains_key(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        inner.change(NameChange::Remove(name.into()));
        Ok(())
    }

    fn is_locked(&self) -> io::Result<bool> {
        Ok(self.inner().locked)
    }

    fn sync_directory(&self) -> io::Result<()> {
        let mut inner = self.step(Operation::Sync, "sync directory".into())?;
        if !inner.faults.lying_directory_sync {
            let (own, others) =
                std::mem::take(&mut inner.unsynced).into_iter().partition(|change| change.is_below(&self.below));
            inner.unsynced = others;
            let own: Vec<_> = own;
            own.iter().for_each(|change| change.apply(&mut inner.durable_names));
        }
        Ok(())
    }

    fn lock(&self) -> io::Result<Locked> {
        let mut inner = self.step(Operation::Any, "lock".into())?;
        if inner.locked {
            return Ok(Locked::Busy);
        }
        if !inner.names.contains_key(LOCK_NAME) {
            inner.inodes.push(Inode::default());
            let inode = inner.inodes.len() - 1;
            inner.change(NameChange::Add(LOCK_NAME.into(), inode));
        }
        inner.locked = true;
        let inode = inner.names[LOCK_NAME];
        drop(inner);
        Ok(Locked::Held(Box::new(MemoryFile { disk: self.clone(), inode, name: LOCK_NAME.into(), is_lock: true })))
    }
}
