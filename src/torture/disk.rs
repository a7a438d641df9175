//! What is asked of the disk under a journal: counted, and made to fail or to hang where that was armed.

use std::io;
use std::path::Path;

/// What is asked of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DiskOperation {
    /// A file is made, with all its zeros.
    Create,
    /// A file is opened for reading.
    Read,
    /// Bytes are written. Where it fails, half of them are.
    Write,
    /// What was written to a file is made durable.
    Sync,
    /// A file gets another name.
    Rename,
    /// A file is removed.
    Remove,
    /// The names in the directory are made durable.
    SyncDirectory,
}

/// Fails, or hangs, where that was armed for this directory.
#[inline]
pub(crate) fn disk(operation: DiskOperation, directory: &Path) -> io::Result<()> {
    #[cfg(feature = "torture")]
    return faulty::disk(operation, directory);
    #[cfg(not(feature = "torture"))]
    {
        let _ = (operation, directory);
        Ok(())
    }
}

#[cfg(feature = "torture")]
pub use faulty::{Failing, Fault, FaultyDisk, watch_disk};

#[cfg(feature = "torture")]
mod faulty {
    use super::DiskOperation;
    use std::io;
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

    /// What happens to an operation.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Fault {
        /// It fails with this error of the operating system: `EIO` is 5.
        Error(i32),
        /// It does not come to its end before the disk is healed.
        Hang,
    }

    /// Which operations fail.
    #[derive(Debug, Clone, Copy)]
    pub struct Failing {
        /// Only these; any without it.
        pub operation: Option<DiskOperation>,
        /// The first of them from now on is 1.
        pub nth: usize,
        /// Whether all later ones fail as well.
        pub lasting: bool,
        /// How.
        pub fault: Fault,
    }

    /// The disk under one directory.
    #[derive(Debug)]
    pub struct FaultyDisk {
        directory: PathBuf,
        state: Mutex<State>,
        healed: Condvar,
    }

    #[derive(Debug, Default)]
    struct State {
        operations: Vec<DiskOperation>,
        armed: Option<(Failing, usize)>,
        hit: bool,
        /// What comes of an operation that hung.
        end: Option<i32>,
    }

    static ANY: AtomicBool = AtomicBool::new(false);
    static DISKS: Mutex<Vec<Arc<FaultyDisk>>> = Mutex::new(Vec::new());

    fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on what is asked of the disk under this directory is counted, and fails when told to.
    ///
    /// # Panics
    /// When there is no such directory.
    pub fn watch_disk(directory: &Path) -> Arc<FaultyDisk> {
        let directory = std::fs::canonicalize(directory).expect("an existing directory");
        let disk = Arc::new(FaultyDisk { directory, state: Mutex::default(), healed: Condvar::new() });
        let mut disks = lock(&DISKS);
        disks.retain(|other| other.directory != disk.directory);
        disks.push(Arc::clone(&disk));
        drop(disks);
        ANY.store(true, Ordering::SeqCst);
        disk
    }

    pub fn disk(operation: DiskOperation, directory: &Path) -> io::Result<()> {
        if !ANY.load(Ordering::Relaxed) {
            return Ok(());
        }
        let watched = lock(&DISKS).iter().find(|disk| disk.directory == directory).cloned();
        watched.map_or(Ok(()), |disk| disk.step(operation))
    }

    impl FaultyDisk {
        /// Arms a failure.
        pub fn fail(&self, failing: Failing) {
            let mut state = lock(&self.state);
            *state = State {
                armed: Some((failing, 0)),
                operations: std::mem::take(&mut state.operations),
                ..State::default()
            };
        }

        /// From now on all goes well, and what hangs goes on.
        pub fn heal(&self) {
            lock(&self.state).armed = None;
            self.healed.notify_all();
        }

        /// From now on all goes well, but what hangs fails.
        pub fn fail_what_hangs(&self, errno: i32) {
            lock(&self.state).end = Some(errno);
            self.heal();
        }

        /// Whether anything has failed or hung since it was armed.
        pub fn is_hit(&self) -> bool {
            lock(&self.state).hit
        }

        /// What was asked of it since the last call.
        pub fn take_operations(&self) -> Vec<DiskOperation> {
            std::mem::take(&mut lock(&self.state).operations)
        }

        fn step(&self, operation: DiskOperation) -> io::Result<()> {
            let mut state = lock(&self.state);
            state.operations.push(operation);
            let Some((failing, passed)) = &mut state.armed else { return Ok(()) };
            if failing.operation.is_some_and(|only| only != operation) {
                return Ok(());
            }
            *passed += 1;
            if *passed < failing.nth || (*passed > failing.nth && !failing.lasting) {
                return Ok(());
            }
            let fault = failing.fault;
            state.hit = true;
            match fault {
                Fault::Error(errno) => Err(io::Error::from_raw_os_error(errno)),
                Fault::Hang => {
                    let healed = self.healed.wait_while(state, |state| state.armed.is_some());
                    let mut state = healed.unwrap_or_else(PoisonError::into_inner);
                    state.end.take().map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
                }
            }
        }
    }
}
