//! How many decisions a second become durable, against what the disk can do with the same bytes.

use super::records::{Contents, SEGMENT, Source};
use crate::spread::Spread;
use serde_json::{Value, json};
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many wait at once.
const WAITERS: [usize; 3] = [1, 32, 1024];
/// The file of the bare syncs: there already, as a segment is.
const FILE: u64 = SEGMENT;

/// By round: bare syncs a second, and decisions a second with so many waiters.
pub struct Appends {
    bytes: u64,
    bare: Vec<f64>,
    journal: [Vec<f64>; WAITERS.len()],
}

pub async fn measure(directory: &Path, rounds: usize, slice: Duration) -> Appends {
    let home = directory.join("appends");
    std::fs::create_dir(&home).expect("a directory");
    let bytes = bytes_of_a_transaction(&home).await;
    let source = Arc::new(Source::open(&home, SEGMENT, 2));
    let mut bare = Bare::create(&directory.join("bare"), bytes);
    let mut appends = Appends { bytes, bare: Vec::new(), journal: Default::default() };
    for _ in 0..rounds {
        appends.bare.push(bare.rate(slice));
        for (waiters, figures) in WAITERS.iter().zip(&mut appends.journal) {
            figures.push(rate(&source, *waiters, slice).await);
        }
    }
    source.journal.close().expect("it is written");
    appends
}

async fn bytes_of_a_transaction(home: &Path) -> u64 {
    let source = Source::open(home, SEGMENT, 1);
    source.decide(source.begin()).await;
    source.journal.close().expect("it is written");
    Contents::of(home).transaction.expect("one is in it")
}

/// Decisions a second.
async fn rate(source: &Arc<Source>, waiters: usize, slice: Duration) -> f64 {
    let began = Instant::now();
    let until = began + slice;
    let tasks = (0..waiters).map(|_| {
        let source = source.clone();
        tokio::spawn(async move {
            let mut decided = 0_u64;
            while Instant::now() < until {
                source.decide(source.begin()).await;
                decided += 1;
            }
            decided
        })
    });
    let mut decided = 0;
    for task in tasks.collect::<Vec<_>>() {
        decided += task.await.expect("it is decided");
    }
    decided as f64 / began.elapsed().as_secs_f64()
}

/// A file that is written to and synced, one record after the other, by the thread that does nothing else.
struct Bare {
    file: File,
    record: Vec<u8>,
    offset: u64,
}

impl Bare {
    fn create(path: &Path, bytes: u64) -> Self {
        let file = File::create(path).expect("a file");
        file.write_all_at(&vec![0; FILE as usize], 0).expect("room");
        file.sync_all().expect("a sync");
        Self { file, record: vec![b'd'; usize::try_from(bytes).expect("a record is short")], offset: 0 }
    }

    /// Syncs a second.
    fn rate(&mut self, slice: Duration) -> f64 {
        let began = Instant::now();
        let mut syncs = 0_u64;
        while began.elapsed() < slice {
            if self.offset + self.record.len() as u64 > FILE {
                self.offset = 0;
            }
            self.file.write_all_at(&self.record, self.offset).expect("a write");
            self.file.sync_data().expect("a sync");
            self.offset += self.record.len() as u64;
            syncs += 1;
        }
        syncs as f64 / began.elapsed().as_secs_f64()
    }
}

impl Appends {
    /// Of a decision and what notes that it is done.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Decisions a second with so many waiters, in the bare syncs of the same round.
    pub fn to_bare(&self, waiters: usize) -> Option<Spread> {
        let place = WAITERS.iter().position(|each| *each == waiters)?;
        Some(Spread::of_ratios(&self.journal[place], &self.bare))
    }

    pub fn json(&self) -> Value {
        let line = |(waiters, figures): (&usize, &Vec<f64>)| {
            json!({
                "waiters": waiters,
                "per_second": Spread::of(figures.clone()).json(),
                "of_bare": Spread::of_ratios(figures, &self.bare).json(),
            })
        };
        json!({
            "bytes": self.bytes,
            "bare_per_second": Spread::of(self.bare.clone()).json(),
            "appends": WAITERS.iter().zip(&self.journal).map(line).collect::<Vec<_>>(),
        })
    }
}

impl fmt::Display for Appends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "fdatasync of the {} bytes of a decision and its end: {:.0} a second",
            self.bytes,
            Spread::of(self.bare.clone())
        )?;
        for (waiters, figures) in WAITERS.iter().zip(&self.journal) {
            let rate = Spread::of(figures.clone());
            writeln!(f, "{waiters:>4} waiters {rate:.0} a second: {:.2} x", Spread::of_ratios(figures, &self.bare))?;
        }
        Ok(())
    }
}
