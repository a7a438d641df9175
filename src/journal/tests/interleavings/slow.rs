//! A disk that others overtake: each of its operations is a place where another thread may go on.

use crate::journal::tests::disk::Disk;
use crate::journal::{Locked, Storage, StorageFile};
use shuttle::sync::atomic::{AtomicBool, Ordering};
use std::io::{self, Read};
use std::sync::Arc;

pub struct Slow {
    disk: Disk,
    /// A write, a sync or a rename has failed: there must be no other.
    failed: Arc<AtomicBool>,
}

struct SlowFile {
    file: Box<dyn StorageFile>,
    failed: Arc<AtomicBool>,
}

impl Slow {
    pub fn new(disk: Disk) -> Self {
        Self { disk, failed: Arc::default() }
    }

    fn slowed(&self, file: Box<dyn StorageFile>) -> Box<dyn StorageFile> {
        Box::new(SlowFile { file, failed: Arc::clone(&self.failed) })
    }
}

/// Others may go on before and after; nothing is done after a failure.
fn step(failed: &AtomicBool, operation: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    assert!(!failed.load(Ordering::SeqCst), "the disk is used after a failure");
    let done = operation();
    failed.fetch_or(done.is_err(), Ordering::SeqCst);
    done
}

impl StorageFile for SlowFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        step(&self.failed, || self.file.write_at(offset, bytes))
    }

    fn sync(&mut self) -> io::Result<()> {
        step(&self.failed, || self.file.sync())
    }
}

impl Storage for Slow {
    fn name(&self) -> String {
        self.disk.name()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read>> {
        self.disk.open(name)
    }

    /// That the next segment cannot be made is no failure of the journal. One that fails meanwhile does not stop it.
    fn create(&self, name: &str, length: u64) -> io::Result<Box<dyn StorageFile>> {
        shuttle::thread::yield_now();
        Ok(self.slowed(self.disk.create(name, length)?))
    }

    fn is_slow_to_create(&self) -> bool {
        true
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        step(&self.failed, || self.disk.rename(from, to))
    }

    /// Nor that an old one cannot be removed yet.
    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn sync_directory(&self) -> io::Result<()> {
        assert!(!self.failed.load(Ordering::SeqCst), "the disk is used after a failure");
        self.disk.sync_directory()
    }

    fn create_directory(&self, name: &str) -> io::Result<Box<dyn Storage>> {
        self.disk.create_directory(name)
    }

    fn lock(&self) -> io::Result<Locked> {
        Ok(match self.disk.lock()? {
            Locked::Held(file) => Locked::Held(self.slowed(file)),
            Locked::Busy => Locked::Busy,
        })
    }

    fn is_locked(&self) -> io::Result<bool> {
        self.disk.is_locked()
    }
}
