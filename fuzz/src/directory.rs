//! A journal's directory in memory, and as one input of a fuzzer.

use handfast::journal::{LOCK_NAME, Locked, Storage, StorageFile};
use std::collections::BTreeMap;
use std::io::{self, Cursor, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Bytes = Arc<Mutex<Vec<u8>>>;

/// The files of a directory, by name; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Directory(Arc<Mutex<BTreeMap<String, Bytes>>>);

/// The names that an input can give: the lock file, the first segments, one that is being made, the last of all numbers.
const NAMES: [&str; 8] = [
    LOCK_NAME,
    "segment-00000001",
    "segment-00000002",
    "segment-00000003",
    "segment-00000004",
    "segment-00000005",
    "segment-00000006.new",
    "segment-18446744073709551615",
];

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FromIterator<(String, Vec<u8>)> for Directory {
    fn from_iter<I: IntoIterator<Item = (String, Vec<u8>)>>(files: I) -> Self {
        let files = files.into_iter().map(|(name, bytes)| (name, Arc::new(Mutex::new(bytes))));
        Self(Arc::new(Mutex::new(files.collect())))
    }
}

impl Directory {
    /// The directory that an input stands for: files, each the number of its name, the length of its bytes (two bytes,
    /// little-endian), its bytes. Whatever is cut short is taken as far as it is there.
    pub fn unpack(mut input: &[u8]) -> Self {
        let mut files = Vec::new();
        while let [name, low, high, rest @ ..] = input {
            let length = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
            let (bytes, rest) = rest.split_at(length);
            // Zeros, as behind the last entry of a real segment.
            files.push((NAMES[usize::from(*name) % NAMES.len()].to_owned(), [bytes, &[0; 64]].concat()));
            input = rest;
        }
        files.into_iter().collect()
    }

    /// The input that stands for this directory, without the zeros at the ends of its files.
    ///
    /// # Panics
    /// When it has a file that no input can name, or one that is too long.
    pub fn pack(&self) -> Vec<u8> {
        let mut packed = Vec::new();
        for (name, bytes) in self.files() {
            let number = NAMES.iter().position(|known| *known == name).expect("a name that an input can give");
            let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            packed.push(u8::try_from(number).expect("few names"));
            packed.extend_from_slice(&u16::try_from(end).expect("a short file").to_le_bytes());
            packed.extend_from_slice(&bytes[..end]);
        }
        packed
    }

    /// What the files hold now.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        lock(&self.0).iter().map(|(name, bytes)| (name.clone(), lock(bytes).clone())).collect()
    }

    /// A directory of its own with the same files.
    pub fn copy(&self) -> Self {
        self.files().into_iter().collect()
    }

    fn file(&self, name: &str) -> io::Result<Bytes> {
        lock(&self.0).get(name).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

struct MemoryFile(Bytes);

impl StorageFile for MemoryFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        let mut file = lock(&self.0);
        let length = file.len().max(offset + bytes.len());
        file.resize(length, 0);
        file[offset..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Storage for Directory {
    fn name(&self) -> String {
        "(memory)".into()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(lock(&self.0).keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read>> {
        let bytes = lock(&*self.file(name)?).clone();
        Ok(Box::new(Cursor::new(bytes)))
    }

    fn create(&self, name: &str, length: u64) -> io::Result<Box<dyn StorageFile>> {
        let length = usize::try_from(length).map_err(io::Error::other)?;
        let bytes = Bytes::new(Mutex::new(vec![0; length]));
        lock(&self.0).insert(name.into(), bytes.clone());
        Ok(Box::new(MemoryFile(bytes)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let bytes = self.file(from)?;
        let mut files = lock(&self.0);
        files.remove(from);
        files.insert(to.into(), bytes);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        lock(&self.0).remove(name).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }

    fn create_directory(&self, _name: &str) -> io::Result<Box<dyn Storage>> {
        Ok(Box::new(Self::default()))
    }

    fn lock(&self) -> io::Result<Locked> {
        let bytes = lock(&self.0).entry(LOCK_NAME.into()).or_default().clone();
        Ok(Locked::Held(Box::new(MemoryFile(bytes))))
    }

    fn is_locked(&self) -> io::Result<bool> {
        Ok(false)
    }
}
