//! How long a journal takes to open: with many bytes to replay, and with many finished transactions behind it.

use super::records::{Contents, SEGMENT, Source, copy};
use crate::spread::{Spread, rounded};
use serde_json::{Value, json};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of the segment that is replayed.
const REPLAYED: u64 = 64 * 1024 * 1024;
/// How much of it is filled, so that what marks a batch as durable fits too.
const FILLED: f64 = 0.8;
/// Who decides at once while a journal is made.
const WORKERS: usize = 8192;
/// The longest that finished transactions are made: what there is by then is what is measured.
const PATIENCE: Duration = Duration::from_secs(600);

/// What was measured.
pub struct Start {
    empty_ms: Vec<f64>,
    replayed_ms: Vec<f64>,
    replayed: Contents,
    finished: u64,
    finished_ms: Vec<f64>,
    /// The same journal opened once more: there is nothing left to replay.
    again_ms: Vec<f64>,
    /// Before and after an opening.
    left: Contents,
    opened: Contents,
}

pub async fn measure(directory: &Path, rounds: usize, finished: usize, bytes: u64) -> Start {
    let [empty, long, old] = ["empty", "long", "old"].map(|name| {
        let home = directory.join(name);
        std::fs::create_dir(&home).expect("a directory");
        home
    });
    fill(&empty, SEGMENT, 0, false).await;
    let transactions = (REPLAYED as f64 * FILLED / bytes as f64) as u64;
    fill(&long, REPLAYED, transactions, false).await;
    let finished = fill(&old, SEGMENT, finished as u64, true).await;
    let mut start = Start {
        empty_ms: Vec::new(),
        replayed_ms: Vec::new(),
        replayed: Contents::of(&long),
        finished,
        finished_ms: Vec::new(),
        again_ms: Vec::new(),
        left: Contents::of(&old),
        opened: Contents { bytes: 0, transaction: None, files: 0 },
    };
    for round in 0..rounds {
        let copy_of = |home: &PathBuf| copy(home, home.with_extension(round.to_string()));
        let copies = [copy_of(&empty), copy_of(&long), copy_of(&old)];
        start.empty_ms.push(open(&copies[0], 2));
        start.replayed_ms.push(open(&copies[1], 2));
        start.finished_ms.push(open(&copies[2], 2));
        start.again_ms.push(open(&copies[2], 3));
        start.opened = Contents::of(&copies[2]);
        for copy in copies {
            std::fs::remove_dir_all(copy).expect("nobody has it open");
        }
    }
    start
}

/// Makes a journal of so many decided and finished transactions, and more that were begun and left no record: how
/// many are finished.
async fn fill(home: &Path, segment: u64, transactions: u64, with_gaps: bool) -> u64 {
    let source = Arc::new(Source::open(home, segment, 1));
    let until = Instant::now() + PATIENCE;
    let workers = (0..WORKERS as u64).map(|worker| {
        let source = source.clone();
        // The remainder goes to the first ones.
        let share = transactions / WORKERS as u64 + u64::from(worker < transactions % WORKERS as u64);
        tokio::spawn(async move {
            let mut decided = 0;
            while decided < share && Instant::now() < until {
                let id = source.begin();
                if !(with_gaps && is_gap(id.sequence)) {
                    source.decide(id).await;
                    decided += 1;
                }
            }
            decided
        })
    });
    let mut decided = 0;
    for worker in workers.collect::<Vec<_>>() {
        decided += worker.await.expect("it is decided");
    }
    source.journal.close().expect("it is written");
    decided
}

/// One in eight was rolled back, without any order: what committed does not shrink to a few intervals.
fn is_gap(sequence: u64) -> bool {
    // Fibonacci hashing: the upper bits of the product look like chance.
    sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61 == 0
}

/// Milliseconds until the journal is open.
fn open(home: &Path, number: u64) -> f64 {
    let began = Instant::now();
    let source = Source::open(home, SEGMENT, number);
    let elapsed = began.elapsed().as_secs_f64() * 1000.0;
    source.journal.close().expect("it is written");
    elapsed
}

impl Start {
    /// Milliseconds that an opening with all the finished transactions takes longer than one of an empty journal.
    pub fn over_empty_ms(&self) -> Spread {
        Self::over(&self.finished_ms, &self.empty_ms)
    }

    /// MiB of what the journal of all the finished transactions holds once it is open.
    pub fn opened_mib(&self) -> f64 {
        self.opened.bytes as f64 / f64::from(1 << 20)
    }

    pub fn finished(&self) -> u64 {
        self.finished
    }

    fn over(these: &[f64], those: &[f64]) -> Spread {
        Spread::of(these.iter().zip(those).map(|(this, that)| this - that).collect())
    }

    fn gigabytes_per_second(&self) -> f64 {
        let millis = Self::over(&self.replayed_ms, &self.empty_ms).median;
        self.replayed.bytes as f64 / 1e6 / millis
    }

    pub fn json(&self) -> Value {
        json!({
            "empty_ms": Spread::of(self.empty_ms.clone()).json(),
            "replayed_bytes": self.replayed.bytes,
            "replayed_ms": Spread::of(self.replayed_ms.clone()).json(),
            "replay_gigabytes_per_second": rounded(self.gigabytes_per_second()),
            "finished": self.finished,
            "finished_ms": Spread::of(self.finished_ms.clone()).json(),
            "again_ms": Spread::of(self.again_ms.clone()).json(),
            "left_bytes": self.left.bytes,
            "left_files": self.left.files,
            "opened_bytes": self.opened.bytes,
            "opened_files": self.opened.files,
        })
    }
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        writeln!(f, "open an empty journal: {:.1} ms", Spread::of(self.empty_ms.clone()))?;
        writeln!(
            f,
            "replay {:.0} MiB: {:.1} ms more than that, {:.2} GB/s",
            mib(self.replayed.bytes),
            Self::over(&self.replayed_ms, &self.empty_ms),
            self.gigabytes_per_second(),
        )?;
        writeln!(
            f,
            "open after {} finished transactions: {:.1} ms more, once more {:.1} ms more",
            self.finished,
            self.over_empty_ms(),
            Self::over(&self.again_ms, &self.empty_ms),
        )?;
        writeln!(
            f,
            "size after them: {:.2} MiB of records in {:.0} MiB of files, once opened {:.2} in {:.0}",
            mib(self.left.bytes),
            mib(self.left.files),
            mib(self.opened.bytes),
            mib(self.opened.files),
        )
    }
}
