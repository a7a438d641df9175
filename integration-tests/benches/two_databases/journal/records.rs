//! What a transaction over two databases leaves in a journal, without the databases.

use handfast::config::JournalConfig;
use handfast::id::{Incarnation, Lineage, NodeName, ParticipantName, TransactionId};
use handfast::journal::{Journal, Opening};
use handfast::protocol::{CommitRecord, DecidedBranch, Record};
use integration_tests::world::{LEDGER, ORDERS};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The segments of a default configuration.
pub const SEGMENT: u64 = 16 * 1024 * 1024;

/// An open journal and the transactions that are decided in it.
pub struct Source {
    pub journal: Journal,
    node: NodeName,
    incarnation: Incarnation,
    participants: [ParticipantName; 2],
    next: AtomicU64,
}

impl Source {
    /// Opens a journal, new or not. Each opening needs a number that none before it had.
    pub fn open(directory: &Path, segment_bytes: u64, number: u64) -> Self {
        let node = "bench".parse().expect("a node's name");
        let participants = [LEDGER, ORDERS].map(|name| name.parse().expect("a participant's name"));
        let incarnation = Incarnation(number);
        let config = JournalConfig { directory: directory.to_owned(), segment_bytes };
        let opening = Opening { node, incarnation, opened_at_ms: 0, participants: participants.to_vec() };
        let journal = Journal::open(&config, opening).unwrap_or_else(|error| panic!("{}", error.chain()));
        Self { journal, node, incarnation, participants, next: AtomicU64::new(1) }
    }

    /// Begins a transaction: its id.
    pub fn begin(&self) -> TransactionId {
        let sequence = self.next.fetch_add(1, Ordering::Relaxed);
        TransactionId { node: self.node, incarnation: self.incarnation, sequence }
    }

    /// Decides it and, as when phase two is over, notes that it is done.
    pub async fn decide(&self, id: TransactionId) {
        self.journal.append(self.decision(id)).await.expect("it is durable");
        self.journal.note(Record::Done(id));
    }

    fn decision(&self, transaction: TransactionId) -> Record {
        let branch = |number: u16| DecidedBranch {
            id: transaction.branch(number, 1),
            participant: self.participants[usize::from(number)],
            lineage: Lineage(u64::from(number) + 1),
        };
        Record::Commit(CommitRecord { transaction, branches: vec![branch(0), branch(1)], payload: None })
    }
}

/// What is in a journal's directory.
pub struct Contents {
    /// Of all frames.
    pub bytes: u64,
    /// Of a decision and what notes that it is done.
    pub transaction: Option<u64>,
    /// Of all files, those parts that wait to be written to included.
    pub files: u64,
}

impl Contents {
    pub fn of(directory: &Path) -> Self {
        let found = handfast::journal::read(directory).unwrap_or_else(|error| panic!("{}", error.chain()));
        let length = |is: fn(&Record) -> bool| {
            let entry = found
                .entries
                .iter()
                .find(|entry| matches!(&entry.entry, handfast::journal::format::Entry::Record(record) if is(record)));
            entry.map(|entry| entry.length)
        };
        let decision = length(|record| matches!(record, Record::Commit(_)));
        let done = length(|record| matches!(record, Record::Done(_)));
        Self {
            bytes: found.entries.iter().map(|entry| entry.length).sum(),
            transaction: decision.zip(done).map(|(decision, done)| decision + done),
            files: files(directory).iter().map(|file| file.metadata().expect("a file").len()).sum(),
        }
    }
}

/// A copy of a journal that nobody has open: what is timed changes it.
pub fn copy(from: &Path, to: PathBuf) -> PathBuf {
    std::fs::create_dir(&to).expect("a directory");
    for file in files(from) {
        let target = to.join(file.file_name().expect("a file has a name"));
        std::fs::copy(&file, &target).expect("a copy");
        std::fs::File::open(&target).and_then(|copy| copy.sync_all()).expect("a sync");
    }
    to
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    entries.map(|entry| entry.expect("an entry").path()).collect()
}
