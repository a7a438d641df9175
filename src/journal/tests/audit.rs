//! What persons have a hand in: kept for ever, never contradicting the rest, in whatever order things meet.

use super::disk::{Dice, Disk};
use super::samples::{commit, done, id, incomplete, name, opening, remark, wait};
use crate::ErrorKind;
use crate::id::{Incarnation, ParticipantName, TransactionId};
use crate::journal::{Audit, Image, Journal, Verdict, read_from};
use crate::protocol::{Absence, DamageRecord, DamagedBranch, IncarnationRecord, Record, Remark, Resolution};
use std::panic::{AssertUnwindSafe, catch_unwind};

fn damaged(id: TransactionId, why: &str) -> Record {
    let branch = |number, participant| DamagedBranch {
        id: id.branch(number, 3),
        participant: name(participant),
        why: why.into(),
    };
    let branches = vec![branch(0, "ledger"), branch(1, "orders")];
    Record::Damaged(DamageRecord {
        transaction: id,
        branches,
        found_at_ms: 1_700_000_000_000,
        found_by: Incarnation(9),
    })
}

fn resolved(id: TransactionId, resolution: Resolution) -> Record {
    Record::Resolved(id, resolution, remark("it was paid"))
}

fn forgotten(id: TransactionId) -> Record {
    Record::Forgotten(id, remark("booked by hand"))
}

fn given_up(incarnation: Incarnation, participant: ParticipantName) -> Record {
    Record::GivenUp(incarnation, participant, remark("its disks are gone"))
}

/// An incarnation that this journal never opened.
fn stranger(number: u64, participants: &[&str]) -> IncarnationRecord {
    let participants: Vec<ParticipantName> = participants.iter().map(|text| name(text)).collect();
    IncarnationRecord { participants, ..opening(number).record() }
}

fn open(disk: &Disk, incarnation: u64) -> Journal {
    Journal::open_on(disk.clone(), 1 << 12, opening(incarnation)).unwrap()
}

fn append(journal: &Journal, records: &[Record]) {
    records.iter().for_each(|record| wait(journal.append(record.clone())).unwrap());
}

/// Everything that an audit can hold, of a journal whose second opening writes it.
fn write_all(journal: &Journal) {
    append(journal, &[incomplete(1), Record::Witnessed(id(1, 50))]);
    append(journal, &[resolved(id(1, 51), Resolution::Commit), resolved(id(1, 52), Resolution::RollBack)]);
    append(journal, &[damaged(id(1, 1), "rolled back by somebody"), damaged(id(1, 2), "gone")]);
    append(journal, &[forgotten(id(1, 2)), given_up(Incarnation(1), name("orders"))]);
    let opened = stranger(77, &["ledger", "orders", "stock"]);
    wait(journal.take_over(opened, remark("its journal is lost"))).unwrap();
    append(journal, &[resolved(id(77, 9), Resolution::Commit), Record::Settled(Incarnation(77), Absence::RolledBack)]);
}

/// A record of each kind, behind an opening of number 1.
pub fn write_some(journal: &Journal) {
    append(journal, &[incomplete(1), Record::Witnessed(id(1, 1)), resolved(id(1, 900), Resolution::Commit)]);
    append(journal, &[damaged(id(1, 901), "odd"), forgotten(id(1, 901))]);
    append(journal, &[given_up(Incarnation(1), name("orders")), incomplete(77)]);
    append(journal, &[Record::Incarnation(stranger(77, &["ledger"]))]);
}

fn check_all(image: &Image, context: &str) {
    let audit = image.audit();
    assert_eq!(audit.incomplete(Incarnation(1)), Some(&remark("records were lost")), "{context}");
    assert!(image.is_committed(id(1, 50)) && image.open_decision(id(1, 50)).is_none(), "{context}");
    assert_eq!(audit.resolved(id(1, 51)), Some((Resolution::Commit, &remark("it was paid"))), "{context}");
    assert_eq!(audit.resolved(id(1, 52)).unwrap().0, Resolution::RollBack, "{context}");
    assert_eq!(audit.resolutions().count(), 3, "{context}");
    let open: Vec<_> = audit.damaged().map(|damage| damage.transaction).collect();
    assert_eq!(open, [id(1, 1)], "{context}: what is forgotten is not told");
    assert_eq!(audit.damage(id(1, 2)).unwrap().branches[1].why, "gone", "{context}: and yet it is known");
    assert_eq!(audit.forgotten(id(1, 2)), Some(&remark("booked by hand")), "{context}");
    assert!(image.open_decision(id(1, 1)).is_some(), "{context}: damage alone closes nothing");
    assert!(image.open_decision(id(1, 2)).is_none() && image.is_committed(id(1, 2)), "{context}");
    assert!(audit.is_given_up(Incarnation(1), name("orders")) && !audit.is_given_up(Incarnation(1), name("ledger")));
    assert_eq!(image.incarnation(Incarnation(77)).unwrap().participants.len(), 3, "{context}");
    assert_eq!(image.settled(Incarnation(77)), Some(Absence::Unproven), "{context}: its records were lost");
    assert_eq!(audit.incompletes().count(), 2, "{context}");
}

/// Reopening is a compaction: what an image cannot bring back is lost there.
#[test]
fn the_audit_outlives_openings_rotations_and_compactions() {
    let disk = Disk::default();
    let journal = open(&disk, 1);
    append(&journal, &[commit(1, 1), commit(1, 2), commit(1, 3)]);
    drop(journal);
    let journal = open(&disk, 2);
    write_all(&journal);
    journal.image(|image| check_all(image, "at once"));
    let before = journal.image(Image::clone).audit().clone();
    for sequence in 1..400 {
        append(&journal, &[commit(2, sequence)]);
        journal.note(done(2, sequence));
    }
    assert!(!disk.segments().contains(&"segment-00000002".to_owned()), "it was compacted: {:?}", disk.segments());
    let audits = |audit: &Audit, context: &str| assert_eq!(audit, &before, "{context}");
    journal.image(|image| audits(image.audit(), "behind a compaction"));
    drop(journal);
    let disk = disk.lose_power(&mut Dice(3));
    audits(read_from(&disk).unwrap().image.audit(), "read from outside");
    for next in 3..6 {
        let journal = open(&disk, next);
        journal.image(|image| check_all(image, &format!("opening {next}")));
        journal.image(|image| audits(image.audit(), &format!("opening {next}")));
    }
}

/// J9: each of these would make an outcome that was told before a lie.
#[test]
fn what_contradicts_the_records_is_refused() {
    let disk = Disk::default();
    let journal = open(&disk, 1);
    append(&journal, &[commit(1, 1), damaged(id(1, 2), "two wrote alone"), damaged(id(1, 3), "odd")]);
    drop(journal);
    let journal = open(&disk, 2);
    append(&journal, &[Record::Settled(Incarnation(1), Absence::RolledBack)]);
    append(&journal, &[resolved(id(1, 2), Resolution::Commit), forgotten(id(1, 3))]);
    let taken = stranger(9, &["ledger", "orders"]);
    wait(journal.take_over(taken, remark("lost"))).unwrap();
    append(&journal, &[resolved(id(9, 1), Resolution::RollBack), damaged(id(9, 3), "odd"), forgotten(id(9, 3))]);
    let contradictions = [
        ("a decision of the journal", resolved(id(1, 1), Resolution::RollBack)),
        ("a person's other decision", resolved(id(1, 2), Resolution::RollBack)),
        ("what was dealt with", resolved(id(1, 3), Resolution::Commit)),
        ("no damage to forget", forgotten(id(1, 9))),
        ("another's damage", damaged(id(55, 1), "x")),
        ("records of a settled incarnation are all there", incomplete(1)),
        ("the opening at work has its records", incomplete(2)),
        ("a witness where no record was lost", Record::Witnessed(id(2, 9))),
        ("a decision behind a person's", commit(9, 1)),
        ("a decision behind the end", commit(9, 3)),
        ("what was never there", given_up(Incarnation(1), name("stock"))),
        ("given up of another's", given_up(Incarnation(55), name("ledger"))),
        ("taken over without a mark", Record::Incarnation(stranger(56, &["ledger"]))),
        ("taken over though known", Record::Incarnation(stranger(1, &["ledger", "orders"]))),
        ("other numbers", Record::Incarnation(stranger(9, &["orders", "ledger"]))),
    ];
    for (what, record) in contradictions {
        let attempt = catch_unwind(AssertUnwindSafe(|| wait(journal.append(record.clone()))));
        assert!(attempt.is_err(), "{what}: {record:?}");
    }
    assert!(wait(journal.append(commit(2, 1))).is_ok(), "the journal itself is as before");
    drop(journal);
    assert_eq!(read_from(&disk).unwrap().verdict, Verdict::Clean);
}

/// Two passes of a resolver, or a pass and a coordinator, come to the same end at once; and what comes late.
#[test]
fn what_two_have_found_at_once_is_no_contradiction() {
    let disk = Disk::default();
    let journal = open(&disk, 1);
    append(&journal, &[commit(1, 1)]);
    drop(journal);
    let journal = open(&disk, 2);
    append(&journal, &[incomplete(1)]);
    let twice = |record: Record| {
        let both = [journal.append(record.clone()), journal.append(record)];
        wait(futures_util::future::try_join_all(both)).unwrap();
    };
    twice(damaged(id(1, 1), "gone"));
    append(&journal, &[damaged(id(1, 1), "seen otherwise by the next pass")]);
    journal.image(|image| assert_eq!(image.audit().damage(id(1, 1)).unwrap().branches[0].why, "gone"));
    twice(incomplete(7));
    twice(Record::Incarnation(stranger(7, &["ledger"])));
    twice(Record::Witnessed(id(1, 5)));
    twice(Record::OnePhase(id(1, 6)));
    twice(resolved(id(1, 7), Resolution::Commit));
    twice(forgotten(id(1, 1)));
    twice(given_up(Incarnation(1), name("orders")));
    twice(Record::Settled(Incarnation(1), Absence::Unproven));
    // A pass that began before it was forgotten or settled.
    append(&journal, &[damaged(id(1, 1), "late"), incomplete(1)]);
    journal.note(done(1, 1));
    journal.note(Record::Witnessed(id(1, 5)));
    journal.image(|image| assert_eq!(image.audit().damaged().count(), 0, "what is forgotten stays so"));
    drop(journal);
    let journal = open(&disk, 3);
    journal.image(|image| assert_eq!(image.audit().resolved(id(1, 7)).unwrap().0, Resolution::Commit));
}

/// A witness may prove what a person decided otherwise: that is damage, for others to say. The fact is kept.
#[test]
fn a_fact_is_kept_even_against_a_persons_word() {
    let disk = Disk::default();
    drop(open(&disk, 1));
    let journal = open(&disk, 2);
    append(&journal, &[incomplete(1), resolved(id(1, 1), Resolution::RollBack), Record::Witnessed(id(1, 1))]);
    append(&journal, &[damaged(id(1, 1), "a witness says that it committed")]);
    drop(journal);
    open(&disk, 3).image(|image| {
        assert!(image.is_committed(id(1, 1)));
        assert_eq!(image.audit().resolved(id(1, 1)).unwrap().0, Resolution::RollBack);
    });
}

/// What is queued counts for what is handed in next, as it will on the disk.
#[test]
fn what_is_on_its_way_is_not_contradicted() {
    let pairs: [(Record, Record); 7] = [
        (resolved(id(1, 1), Resolution::Commit), resolved(id(1, 1), Resolution::RollBack)),
        (Record::Witnessed(id(1, 2)), resolved(id(1, 2), Resolution::Commit)),
        (Record::Settled(Incarnation(1), Absence::Unproven), Record::OnePhase(id(1, 3))),
        (Record::Settled(Incarnation(1), Absence::Unproven), Record::Witnessed(id(1, 3))),
        (Record::Settled(Incarnation(3), Absence::RolledBack), incomplete(3)),
        (commit(2, 1), Record::OnePhase(id(2, 1))),
        (Record::OnePhase(id(2, 1)), commit(2, 1)),
    ];
    for (first, second) in pairs {
        for noted in [false, true] {
            if noted && !matches!(second, Record::OnePhase(_) | Record::Witnessed(_)) {
                continue;
            }
            let disk = Disk::default();
            drop(open(&disk, 1));
            drop(open(&disk, 3));
            let journal = open(&disk, 2);
            append(&journal, &[incomplete(1)]);
            let mut queued = Box::pin(journal.append(first.clone()));
            let early = queued.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
            let second = || match noted {
                true => journal.note(second.clone()),
                false => drop(wait(journal.append(second.clone()))),
            };
            let result = catch_unwind(AssertUnwindSafe(second));
            assert!(result.is_err(), "{first:?} is followed");
            // On a quick disk it is durable already: then it contradicts what counts.
            if early.is_pending() {
                wait(queued.as_mut()).unwrap();
            }
            drop(queued);
            drop(journal);
            assert_eq!(read_from(&disk).unwrap().verdict, Verdict::Clean, "{first:?}");
            drop(open(&disk, 4));
        }
    }
}

/// The registries of more participants are read later: the incarnation grows, its numbers stay.
#[test]
fn more_participants_of_a_lost_incarnation_may_come_to_be_known() {
    let disk = Disk::default();
    let journal = open(&disk, 1);
    let lost = || remark("its journal is lost");
    for names in [&["ledger"][..], &["ledger", "orders", "stock"], &["ledger", "orders"]] {
        wait(journal.take_over(stranger(7, names), lost())).unwrap();
    }
    assert!(journal.unsettled().iter().any(|one| one.incarnation == Incarnation(7)), "it is to be settled");
    append(&journal, &[resolved(id(7, 1), Resolution::Commit)]);
    append(&journal, &[given_up(Incarnation(7), name("stock"))]);
    append(&journal, &[Record::Settled(Incarnation(7), Absence::Unproven)]);
    drop(journal);
    let journal = open(&disk, 2);
    journal.image(|image| {
        let known: Vec<_> = image.incarnation(Incarnation(7)).unwrap().participants.clone();
        assert_eq!(known, ["ledger", "orders", "stock"].map(name));
        assert!(image.is_settled(Incarnation(7)));
    });
}

/// A mark alone, as a crash leaves it in the middle of a takeover, makes nothing ours.
#[test]
fn a_takeover_that_was_cut_short_makes_nothing_ours() {
    let disk = Disk::default();
    let journal = open(&disk, 1);
    append(&journal, &[incomplete(7)]);
    drop(journal);
    let journal = open(&disk, 2);
    assert!(!journal.image(|image| image.knows(Incarnation(7))));
    wait(journal.take_over(stranger(7, &["ledger"]), remark("again"))).unwrap();
    assert!(journal.image(|image| image.knows(Incarnation(7)) && image.audit().incomplete(Incarnation(7)).is_some()));
    drop(journal);
    // Nobody opens under the name of one that was.
    for taken in [1, 7] {
        let error = Journal::open_on(disk.clone(), 1 << 12, opening(taken)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    }
}

#[test]
fn what_does_not_fit_the_format_is_refused() {
    let long = "x".repeat(1 << 16);
    let journal = open(&Disk::default(), 1);
    let wordy = |count: u16| {
        let one = |number| DamagedBranch {
            id: id(1, 1).branch(number, 0),
            participant: name("ledger"),
            why: "y".repeat((1 << 16) - 1),
        };
        let branches = (0..count).map(one).collect();
        Record::Damaged(DamageRecord { transaction: id(1, 1), branches, found_at_ms: 0, found_by: Incarnation(9) })
    };
    let misfits = [
        Record::Incomplete(Incarnation(9), Remark { reason: long.clone(), ..remark("") }),
        Record::Incomplete(Incarnation(9), Remark { host: long.clone(), ..remark("") }),
        damaged(id(1, 1), &long),
        wordy(200),
        damaged(id(1, 0), "x"),
        forgotten(id(1, 0)),
        resolved(id(1, 0), Resolution::Commit),
    ];
    for record in misfits {
        assert_eq!(wait(journal.append(record)).unwrap_err().kind(), ErrorKind::Refused);
    }
    append(&journal, &[wordy(80)]);
}

/// What is noted is not durable; what is flushed is, and only that syncs.
#[test]
fn a_flush_makes_durable_what_was_noted_before_it() {
    for seed in 1..30 {
        let disk = Disk::default();
        let journal = open(&disk, 1);
        append(&journal, &[commit(1, 1)]);
        let _ = disk.take_log();
        journal.note(done(1, 1));
        journal.note(Record::OnePhase(id(1, 2)));
        wait(journal.flush()).unwrap();
        let syncs = |log: Vec<String>| log.iter().filter(|line| line.starts_with("sync")).count();
        assert!((1..=2).contains(&syncs(disk.take_log())), "one batch, or two");
        for _ in 0..5 {
            wait(journal.flush()).unwrap();
        }
        assert_eq!(syncs(disk.take_log()), 0, "nothing waits to be written");
        let copy = disk.copy().lose_power(&mut Dice(seed));
        open(&copy, 2).image(|image| assert!(image.is_committed(id(1, 2)) && image.open_decision(id(1, 1)).is_none()));
        journal.close().unwrap();
        assert_eq!(wait(journal.flush()).unwrap_err().kind(), ErrorKind::Closed);
    }
}

/// A flush behind a failed sync says so, and one that somebody gave up takes nothing back.
#[test]
fn a_flush_tells_a_failure_and_may_be_dropped() {
    use super::disk::{Faults, Operation};
    let disk = Disk::default();
    let journal = open(&disk, 1);
    journal.note(Record::OnePhase(id(1, 1)));
    let mut dropped = Box::pin(journal.flush());
    let _ = dropped.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
    drop(dropped);
    wait(journal.flush()).unwrap();
    disk.set_faults(Faults { fail: Some((Operation::Sync, 1, false)), ..Faults::default() });
    journal.note(Record::OnePhase(id(1, 2)));
    assert_eq!(wait(journal.flush()).unwrap_err().kind(), ErrorKind::Journal);
    assert_eq!(wait(journal.flush()).unwrap_err().kind(), ErrorKind::Journal, "nothing is tried again");
    let after = disk.lose_power(&mut Dice(1));
    open(&after, 2).image(|image| assert!(image.is_committed(id(1, 1))));
}

/// Notes that a compaction takes along are durable by it, and those that come behind its snapshot are not forgotten.
/// Where it finds no space they are written all the same.
#[test]
fn a_flush_holds_through_compactions_and_a_full_disk() {
    use super::disk::Faults;
    for capacity in [None, Some(9000)] {
        let disk = Disk::default();
        let journal = Journal::open_on(disk.clone(), 1024, opening(1)).unwrap();
        for sequence in 1..150 {
            append(&journal, &[commit(1, sequence)]);
            (0..8).for_each(|n| journal.note(Record::OnePhase(id(1, 1000 * sequence + n))));
            if sequence == 20 {
                disk.set_faults(Faults { capacity, ..Faults::default() });
            }
            if let Err(error) = wait(journal.flush()) {
                assert!(capacity.is_some(), "{error}");
                break;
            }
            let copy = disk.copy().lose_power(&mut Dice(sequence));
            let noted = (0..8).all(|n| read_all(&copy).is_committed(id(1, 1000 * sequence + n)));
            assert!(noted, "{sequence} of {capacity:?}");
        }
    }
}

/// D33: more than a hundred thousand commits behind one decision that stays open, among everything that an audit holds.
/// What is on the disk, and what an opening reads of it, is bounded by what is open and not by what has passed.
#[test]
fn d33_neither_size_nor_start_grows_with_what_has_passed() {
    const SMALL: u64 = 1 << 16;
    const BATCH: u64 = 600;
    let disk = Disk::default();
    let journal = Journal::open_on(disk.clone(), SMALL, opening(1)).unwrap();
    append(&journal, &[commit(1, 1), commit(1, 2), commit(1, 3)]);
    drop(journal);
    let journal = Journal::open_on(disk.clone(), SMALL, opening(2)).unwrap();
    write_all(&journal);
    append(&journal, &[commit(2, 1)]);
    let audit = journal.image(|image| image.audit().clone());
    let segment = usize::try_from(SMALL).unwrap();
    for batch in 0..180 {
        // A pass finds the same damage again.
        append(&journal, &[damaged(id(1, 1), "as before")]);
        let sequences: Vec<_> = (batch * BATCH + 2..(batch + 1) * BATCH + 2).collect();
        let appends = sequences.iter().map(|sequence| journal.append(commit(2, *sequence)));
        wait(futures_util::future::try_join_all(appends)).unwrap();
        sequences.iter().for_each(|sequence| journal.note(done(2, *sequence)));
        let size: usize = disk.names().iter().map(|name| disk.contents(name).len()).sum();
        assert!(size <= 9 * segment, "{size} bytes after {} commits", (batch + 1) * BATCH);
    }
    assert!(journal.image(Image::committed_count) > 100_000);
    drop(journal);
    let disk = disk.lose_power(&mut Dice(9));
    for (next, bound) in [(3, 9 * segment), (4, 3 * segment), (5, 3 * segment)] {
        let entries = read_from(&disk).unwrap().entries.len();
        assert!(next == 3 || entries < 40, "{entries} entries are read by opening {next}");
        disk.take_read();
        let journal = Journal::open_on(disk.clone(), SMALL, opening(next)).unwrap();
        let read = disk.take_read();
        assert!((1..=bound).contains(&read), "opening {next} has read {read} bytes");
        journal.image(|image| {
            assert_eq!(image.audit(), &audit);
            assert!(image.committed_count() > 100_000 && image.open_decision(id(2, 1)).is_some());
            check_all(image, &format!("opening {next}"));
        });
    }
}

fn read_all(disk: &Disk) -> Image {
    let found = read_from(disk).unwrap();
    assert!(!matches!(found.verdict, Verdict::Corrupt(_)), "{:?}", found.verdict);
    let mut image = found.image;
    found.in_doubt.iter().for_each(|record| image.apply(record).unwrap());
    image
}
