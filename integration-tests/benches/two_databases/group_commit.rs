//! The least that a decision on disk costs: a record in a file that is there already, one `fdatasync` for all that
//! wait together. No checksum, no rotation, nothing is ever read.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc;
use tokio::sync::oneshot;

/// As long as a decision of Handfast on two branches, about.
const RECORD: [u8; 192] = [b'd'; 192];
const FILE: u64 = 16 * 1024 * 1024;

/// A log; its thread ends with the last sender.
pub struct GroupCommit(mpsc::Sender<oneshot::Sender<()>>);

impl GroupCommit {
    pub fn create(path: &Path) -> Self {
        let mut file = File::create(path).expect("a file");
        file.write_all(&vec![0; FILE as usize]).expect("16 MiB");
        file.sync_all().expect("a sync");
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || run(&file, &receiver));
        Self(sender)
    }

    /// Returns when the decision is durable.
    pub async fn decide(&self) {
        let (waiter, durable) = oneshot::channel();
        self.0.send(waiter).expect("the thread lives as long as this");
        durable.await.expect("the thread answers");
    }
}

fn run(file: &File, receiver: &mpsc::Receiver<oneshot::Sender<()>>) {
    let mut offset = 0;
    while let Ok(first) = receiver.recv() {
        let batch: Vec<_> = std::iter::once(first).chain(receiver.try_iter()).collect();
        let bytes = RECORD.repeat(batch.len());
        if offset + bytes.len() as u64 > FILE {
            offset = 0;
        }
        file.write_all_at(&bytes, offset).expect("a write");
        file.sync_data().expect("a sync");
        offset += bytes.len() as u64;
        for waiter in batch {
            waiter.send(()).expect("nobody stops waiting");
        }
    }
}
