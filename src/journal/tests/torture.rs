//! Every failure at every operation, every cut, every bit; then the journal is opened again.

use super::disk::{Dice, Disk, Faults, Operation};
use super::samples::{commit, decision, id, opening, wait};
use crate::ErrorKind;
use crate::id::TransactionId;
use crate::journal::format::Entry;
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
        match open(&disk, 2) {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Journal, "{}", error.chain()),
            Ok(journal) => work(&journal, 2, 60, &mut told),
        }
        let reached = disk.failures() > 0;
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
        if !reached {
            assert!(nth > 60, "the work takes more than {nth} operations");
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

#[test]
fn a_failure_at_every_write_or_sync_loses_nothing_acknowledged() {
    for operation in [Operation::Write, Operation::Sync] {
        fail_everywhere(operation, false);
    }
}

/// D09, J2: the very first opening fails at every operation; the next one neither refuses nor forgets.
#[test]
fn d09_a_first_opening_that_dies_at_every_step_leaves_nothing_half_made() {
    let mut dice = Dice(7);
    for nth in 1..40 {
        for lasting in [false, true] {
            let disk = Disk::default();
            disk.set_faults(Faults { fail: Some((Operation::Any, nth, lasting)), ..Faults::default() });
            let mut told = Told::default();
            if let Ok(journal) = open(&disk, 1) {
                work(&journal, 1, 5, &mut told);
            }
            let after = disk.lose_power(&mut dice);
            drop(reopen_and_check(&after, 2, &told, &format!("operation {nth}, lasting {lasting}")));
        }
    }
}

/// A journal in the state that `kill -9` leaves, after some rotations; and what was told of it.
fn killed(count: u64) -> (Disk, Told) {
    let disk = Disk::default();
    let mut told = Told::default();
    let journal = open(&disk, 1).unwrap();
    work(&journal, 1, count, &mut told);
    // The last batch is followed by its mark: wait for it as a reader would.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    for attempt in 1.. {
        if read_from(&disk).unwrap().in_doubt.is_empty() {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "the mark is written when there is nothing else to do");
        if attempt % 200 == 0 {
            // It is left out where the segment has no room for it. One more entry begins the next segment.
            journal.note(Record::Done(id(1, 1)));
        }
        std::thread::yield_now();
    }
    let copy = disk.copy();
    drop(journal);
    (copy, told)
}

/// Where the entries of the last segment begin and end.
fn last_entries(disk: &Disk) -> (String, Vec<(u64, u64)>) {
    let offline = read_from(disk).unwrap();
    let file = disk.segments().pop().unwrap();
    let entries = offline.entries.iter().filter(|entry| entry.file == file);
    (file.clone(), entries.map(|entry| (entry.offset, entry.offset + entry.length)).collect())
}

/// D08: the journal is cut at every byte behind its snapshot. It opens each time with a beginning of what it held.
#[test]
fn d08_a_journal_cut_at_every_byte_opens_with_all_complete_records() {
    let (disk, _) = killed(5);
    let (file, entries) = last_entries(&disk);
    let whole = disk.contents(&file);
    let first = entries[0].1;
    let all = read_from(&disk).unwrap();
    for cut in usize::try_from(first).unwrap()..=usize::try_from(entries.last().unwrap().1).unwrap() {
        for zeroed in [false, true] {
            let disk = disk.copy();
            let mut bytes = whole[..cut].to_vec();
            if zeroed {
                bytes.resize(whole.len(), 0);
            }
            // An entry that ends in a zero survives the loss of it.
            let place = |(start, end): &(u64, u64)| usize::try_from(*start).unwrap()..usize::try_from(*end).unwrap();
            let complete =
                entries.iter().take_while(|entry| bytes.get(place(entry)) == whole.get(place(entry))).count();
            disk.replace(&file, bytes);
            let found = read_from(&disk).unwrap();
            assert!(!matches!(found.verdict, Verdict::Corrupt(_)), "cut at {cut}: {:?}", found.verdict);
            assert_eq!(found.entries.len(), all.entries.len() - entries.len() + complete, "cut at {cut}");
            let journal = open(&disk, 9).unwrap();
            let commits = found.entries.iter().filter_map(|entry| match &entry.entry {
                Entry::Record(Record::Commit(commit)) => Some(commit.transaction),
                _ => None,
            });
            let commits: BTreeSet<_> = commits.collect();
            journal.image(|image| {
                assert_eq!(image.committed_count(), commits.len() as u64, "cut at {cut}");
                assert!(commits.iter().all(|id| image.is_committed(*id)), "cut at {cut}");
            });
        }
    }
}

/// J4: each bit of every file is flipped. The journal is the same, or is refused; it is never another one.
#[test]
fn every_flipped_bit_changes_nothing_or_is_refused() {
    let (disk, told) = killed(12);
    flip_every_bit(&disk, &told);
    // Everything that persons have a hand in.
    let audited = disk.copy();
    let journal = open(&audited, 4).unwrap();
    super::audit::write_some(&journal);
    let audited = audited.copy();
    drop(journal);
    flip_every_bit(&audited, &told);
    // Straight after an opening there is a snapshot and nothing else: no mark vouches for it but the header's.
    let second = disk.copy();
    let journal = open(&second, 2).unwrap();
    let second = second.copy();
    drop(journal);
    flip_every_bit(&second, &told);
}

fn flip_every_bit(disk: &Disk, told: &Told) {
    let image = read_from(disk).unwrap().image;
    let (mut harmless, mut refused) = (0, 0);
    for file in disk.names() {
        let whole = disk.contents(&file);
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            disk.replace(&file, bytes);
            let context = format!("{file}, bit {} of byte {}", bit % 8, bit / 8);
            match read_from(disk) {
                Ok(found) if !matches!(found.verdict, Verdict::Corrupt(_)) => {
                    // Without the last mark the last batch is in doubt, but it is there.
                    let mut seen = found.image;
                    found.in_doubt.iter().for_each(|record| seen.apply(record).unwrap());
                    assert_eq!(seen, image, "{context}");
                    harmless += 1;
                }
                Ok(found) => {
                    // What was refused can still be shown, except for the entry that was hit.
                    assert!(found.entries.len() >= 2, "{context}: {:?}", found.verdict);
                    refused += 1;
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Refused, "{context}: {}", error.chain());
                    refused += 1;
                }
            }
            if bit % 61 == 0 {
                match open(&disk.copy(), 5) {
                    Ok(journal) => journal.image(|image| told.check(image, &context)),
                    Err(error) => assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Refused), "{context}"),
                }
            }
        }
        disk.replace(&file, whole);
    }
    assert!(harmless > 1000 && refused > 1000, "{harmless} harmless, {refused} refused");
}

/// D07: one sync fails, all later ones would succeed. Nobody is told that the batch is durable, nothing is written
/// after it, and what was acknowledged before is there after a power failure.
#[test]
fn d07_a_failed_sync_poisons_the_journal() {
    for seed in 1..20 {
        let disk = Disk::default();
        let mut told = Told::default();
        let journal = open(&disk, 1).unwrap();
        work(&journal, 1, 3, &mut told);
        disk.set_faults(Faults { fail: Some((Operation::Sync, 1, false)), ..Faults::default() });
        told.append(&journal, id(1, 100));
        assert_eq!(told.in_doubt, BTreeSet::from([id(1, 100)]));
        let after_failure = disk.operations();
        told.append(&journal, id(1, 101));
        assert_eq!(journal.check_space().unwrap_err().kind(), ErrorKind::Journal);
        assert_eq!(journal.close().unwrap_err().kind(), ErrorKind::Journal);
        assert_eq!(disk.operations(), after_failure, "nothing is tried after the failure");
        let after = disk.lose_power(&mut Dice(seed));
        let journal = reopen_and_check(&after, 2, &told, "after the failed sync");
        journal.image(|image| assert!(!image.is_committed(id(1, 101)), "it was never written"));
        work(&journal, 2, 3, &mut told);
        drop(journal);
        reopen_and_check(&after.lose_power(&mut Dice(seed)), 3, &told, "after two failures");
    }
}

/// D06: the disk is full when the next segment is needed. Begins are refused in time; a decision that meets the full
/// disk after all is in doubt, is not there later, and what follows is.
#[test]
fn d06_a_full_disk_refuses_begins_before_it_fails_decisions() {
    let disk = Disk::default();
    let mut told = Told::default();
    let journal = open(&disk, 1).unwrap();
    disk.set_faults(Faults { capacity: Some(1600), ..Faults::default() });
    let mut sequence = 0;
    let mut next = || {
        sequence += 1;
        id(1, sequence)
    };
    while journal.check_space().is_ok() {
        told.append(&journal, next());
        assert!(told.in_doubt.is_empty(), "begins are refused before a decision fails");
    }
    let error = journal.check_space().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.to_string().contains("free space"), "{error}");
    told.append(&journal, next());
    assert!(told.in_doubt.is_empty(), "what had begun can still be decided");

    // Space comes back: so do begins, without reopening.
    disk.set_faults(Faults::default());
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while journal.check_space().is_err() {
        assert!(std::time::Instant::now() < deadline, "the next attempt finds the space");
        std::thread::yield_now();
    }
    told.append(&journal, next());

    // It goes again, and nobody heeds the refusal.
    disk.set_faults(Faults { capacity: Some(1600), ..Faults::default() });
    while told.in_doubt.is_empty() {
        told.append(&journal, next());
    }
    drop(journal);
    let (lost, after) = (*told.in_doubt.first().unwrap(), disk.kill());
    let journal = reopen_and_check(&after, 2, &told, "after the full disk");
    journal.image(|image| assert!(!image.is_committed(lost), "nothing of it was written"));
    work(&journal, 2, 5, &mut told);
    drop(journal);
    reopen_and_check(&after.lose_power(&mut Dice(3)), 3, &told, "after the full disk");
}

/// D09: what the model is good for. A file system that does not keep names would lose the journal, and is found out.
#[test]
fn d09_names_that_are_not_kept_are_found_out() {
    let disk = Disk::default();
    let mut told = Told::default();
    let journal = open(&disk, 1).unwrap();
    disk.set_faults(Faults { lying_directory_sync: true, ..Faults::default() });
    work(&journal, 1, 30, &mut told);
    drop(journal);
    let mut refused = 0;
    for seed in 1..30 {
        let copy = disk.copy();
        let after = copy.lose_power(&mut Dice(seed));
        match open(&after, 2) {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt);
                refused += 1;
            }
            Ok(journal) => journal.image(|image| told.check(image, "all names happened to survive")),
        }
    }
    assert!(refused > 0);
}

/// A disk that reports syncs without doing them loses data, as it must; but either it is a tail that is lost, or the
/// journal is refused: later commits never count without the earlier ones.
#[test]
fn a_lying_disk_loses_a_tail_or_is_found_out() {
    let (mut whole, mut tail, mut refused) = (0, 0, 0);
    for seed in 1..300 {
        let disk = Disk::default();
        let mut told = Told::default();
        let journal = Journal::open_on(disk.clone(), 1 << 16, opening(1)).unwrap();
        disk.set_faults(Faults { lying_sync_from: Some(3), ..Faults::default() });
        for sequence in 1..=12 {
            told.append(&journal, id(1, sequence));
        }
        drop(journal);
        match Journal::open_on(disk.lose_power(&mut Dice(seed)), 1 << 16, opening(2)) {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{}", error.chain());
                refused += 1;
            }
            Ok(journal) => {
                let there: Vec<_> = (1..=12).map(|n| journal.image(|image| image.is_committed(id(1, n)))).collect();
                assert!(there.is_sorted_by(|earlier, later| earlier >= later), "{there:?}");
                if there[11] { whole += 1 } else { tail += 1 }
            }
        }
    }
    assert!(whole > 0 && tail > 0 && refused > 0, "{whole} whole, {tail} without a tail, {refused} refused");
}

/// D33: a transaction stays open while thousands pass. The directory stays small, and the open one is not lost.
#[test]
fn d33_the_journal_stays_small_and_keeps_what_is_open() {
    let disk = Disk::default();
    let journal = open(&disk, 1).unwrap();
    wait(journal.append(commit(1, 1))).unwrap();
    for sequence in 2..3000 {
        wait(journal.append(commit(1, sequence))).unwrap();
        journal.note(Record::Done(id(1, sequence)));
        let size: usize = disk.names().iter().map(|name| disk.contents(name).len()).sum();
        assert!(size <= 12 * usize::try_from(SEGMENT).unwrap(), "{size} bytes after {sequence} transactions");
    }
    drop(journal);
    let journal = open(&disk.lose_power(&mut Dice(5)), 2).unwrap();
    journal.image(|image| {
        assert_eq!(image.committed_count(), 2999);
        assert!(image.open_decision(id(1, 1)).is_some());
        assert!(image.open_decisions().len() <= 2, "at most the last Done is lost");
    });
}

/// The payload of a key outlives its transaction, rotations, compactions and restarts; the latest one wins.
#[test]
fn the_latest_payload_of_each_key_is_kept() {
    let disk = Disk::default();
    let large = vec![0xa5; 5 << 20];
    let journal = open(&disk, 1).unwrap();
    let append = |sequence, key: &[u8], bytes: &[u8]| {
        let record = Record::Commit(decision(id(1, sequence), Some((key, bytes))));
        wait(journal.append(record)).unwrap();
        journal.note(Record::Done(id(1, sequence)));
    };
    append(1, b"a", &large);
    for sequence in 2..60 {
        append(sequence, b"b", &sequence.to_le_bytes());
    }
    drop(journal);
    let check = |image: &Image| {
        assert_eq!(image.payload(b"a"), Some((id(1, 1), large.as_slice())));
        assert_eq!(image.payload(b"b"), Some((id(1, 59), 59_u64.to_le_bytes().as_slice())));
    };
    check(&read_from(&disk).unwrap().image);
    open(&disk, 2).unwrap().image(check);
    open(&disk, 3).unwrap().image(check);
}
