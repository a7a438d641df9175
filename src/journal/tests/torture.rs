//! Every failure at every operation, every cut, every bit; then the journal is opened again.

use super::disk::{Dice, Disk, Faults, Operation};
use super::samples::{commit, decision, id, opening, participant, wait};
use crate::ErrorKind;
use crate::id::TransactionId;
use crate::journal::format::{Binding, HEADER_END};
use crate::journal::{Image, Journal, Verdict, read_from};
use crate::protocol::Record;
use std::collections::BTreeSet;

/// Small enough for many rotations and compactions.
const SEGMENT: u64 = 1024;

/// What the application was told.
#[derive(Debug, Default, Clone)]
pub struct Told {
    /// Commits that were acknowledged.
    acknowledged: BTreeSet<TransactionId>,
    /// Commits whose append failed: in doubt.
    in_doubt: BTreeSet<TransactionId>,
    /// Commits whose `Done` or one-phase outcome was noted.
    noted: BTreeSet<TransactionId>,
}

impl Told {
    fn append(&mut self, journal: &Journal, transaction: TransactionId) {
        match wait(journal.append(Record::Commit(decision(transaction, None)))) {
            Ok(()) => self.acknowledged.insert(transaction),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Journal, "{error}");
                assert!(error.to_string().contains("when the journal is opened again"), "{error}");
                assert!(journal.is_poisoned().is_some());
                self.in_doubt.insert(transaction)
            }
        };
    }

    fn done(&mut self, journal: &Journal, transaction: TransactionId) {
        if self.acknowledged.contains(&transaction) {
            journal.note(Record::Done(transaction));
            self.noted.insert(transaction);
        }
    }

    /// Compares a reopened journal with what was told.
    fn check(&self, image: &Image, context: &str) {
        for id in &self.acknowledged {
            assert!(image.is_committed(*id), "{context}: the acknowledged {id} is lost");
            let open = image.open_decision(*id).is_some();
            assert!(open || self.noted.contains(id), "{context}: {id} is done, which nobody said");
        }
        for decision in image.open_decisions() {
            let id = decision.transaction;
            assert!(
                self.acknowledged.contains(&id) || self.in_doubt.contains(&id),
                "{context}: {id} came from nowhere"
            );
            assert_eq!(decision.branches.len(), 2, "{context}: {id} names its branches");
        }
        let possible = self.acknowledged.len() + self.in_doubt.len();
        assert!(image.committed_count() <= possible as u64, "{context}: commits that nobody asked for");
    }
}

/// Many small transactions, of which every seventh stays open.
fn work(journal: &Journal, incarnation: u64, count: u64, told: &mut Told) {
    for sequence in 1..=count {
        let id = id(incarnation, sequence);
        told.append(journal, id);
        if sequence % 7 != 0 {
            told.done(journal, id);
        }
    }
}

fn open(disk: &Disk, incarnation: u64) -> crate::Result<Journal> {
    Journal::open_on(disk.clone(), SEGMENT, opening(incarnation))
}

/// Reads from outside, opens again, and compares both with what was told.
fn reopen_and_check(disk: &Disk, incarnation: u64, told: &Told, context: &str) -> Journal {
    let offline = read_from(disk);
    let journal = open(disk, incarnation).unwrap_or_else(|error| panic!("{context}: {}", error.chain()));
    journal.image(|image| {
        told.check(image, context);
        let Ok(offline) = offline else { return };
        assert!(!matches!(offline.verdict, Verdict::Corrupt(_)), "{context}: {:?}", offline.verdict);
        let in_doubt = |id: TransactionId| {
            offline.in_doubt.iter().any(|record| matches!(record, Record::Commit(commit) if commit.transaction == id))
        };
        for id in told.acknowledged.iter().chain(&told.in_doubt) {
            let certain = offline.image.is_committed(*id);
            assert!(!certain || image.is_committed(*id), "{context}: {id} was called certain and is gone");
            assert_eq!(image.is_committed(*id), certain || in_doubt(*id), "{context}: {id}");
        }
    });
    journal
}

/// For every n: the n-th operation fails, once or for ever; then the process dies or the power fails; then all that
/// was acknowledged is there. With a lasting failure this is also a crash at every step of opening, appending,
/// rotation and compaction (J1, J5, D09).
fn fail_everywhere(operation: Operation, lasting: bool) {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for nth in 1.. {
        let disk = Disk::default();
        let mut told = Told::default();
        // A first life, so that there is something to lose.
        let journal = open(&disk, 1).unwrap();
        work(&journal, 1, 10, &mut told);
        drop(journal);
        disk.set_faults(Faults { fail: Some((operation, nth, lasting)), ..Faults::default() });
        let reached = match open(&disk, 2) {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Journal, "{}", error.chain());
                true
            }
            Ok(journal) => {
                work(&journal, 2, 60, &mut told);
                let poisoned = journal.is_poisoned().is_some();
                drop(journal);
                poisoned
            }
        };
        let context = format!("{operation:?} {nth}, lasting {lasting}");
        let after = match nth % 3 {
            0 => disk.kill(),
            _ => disk.lose_power(&mut dice),
        };
        let mut later = reopen_and_check(&after, 3, &told, &context);
        // D06, D08: what is written after the failure is not lost behind what it left.
        work(&later, 3, 3, &mut told);
        drop(later);
        later = reopen_and_check(&after.lose_power(&mut dice), 4, &told, &context);
        drop(later);
        if !reached && nth > 10 && disk.operations() == 0 {
            break;
        }
        if nth > 400 {
            break;
        }
    }
}

#[test]
fn a_failure_at_every_operation_loses_nothing_acknowledged() {
    fail_everywhere(Operation::Any, false);
}

#[test]
fn a_crash_at_every_operation_loses_nothing_acknowledged() {
    fail_everywhere(Operation::Any, true);
}
