//! A damaged journal is made usable again: nothing that can be read is lost, nothing that may be missing is denied, and
//! the files are kept as they were. D47.

use super::disk::{Dice, Disk, Faults, Operation};
use super::files::overwrite;
use super::samples::{commit, decision, done, id, name, opening, participant, remark, wait};
use crate::ErrorKind;
use crate::config::JournalConfig;
use crate::id::{Incarnation, JournalId};
use crate::journal::format::Entry;
use crate::journal::{Image, Journal, Repaired, Storage, Verdict, plan_repair, read_from, repair, repair_on};
use crate::protocol::{Absence, DamageRecord, Record, Resolution};
use std::collections::BTreeMap;
use std::sync::Arc;

const SEGMENT: u64 = 1024;

fn open(disk: &Disk, incarnation: u64) -> crate::Result<Journal> {
    Journal::open_on(disk.clone(), SEGMENT, opening(incarnation))
}

fn mend(disk: &Disk) -> crate::Result<Repaired> {
    repair_on(Arc::new(disk.clone()), SEGMENT, &remark("the disk lost a block"))
}

fn append(journal: &Journal, record: Record) {
    wait(journal.append(record)).unwrap();
}

/// Three openings: one settled with what it committed, one with an open decision and a person's hand in it, one that
/// fills some segments. Then it is killed.
fn written() -> (Disk, Image) {
    let disk = Disk::default();
    let journal = open(&disk, 1).unwrap();
    append(&journal, participant("ledger", 7));
    append(&journal, Record::Commit(decision(id(1, 1), Some((b"offsets", b"41")))));
    journal.note(done(1, 1));
    drop(journal);
    let journal = open(&disk, 2).unwrap();
    append(&journal, Record::Settled(Incarnation(1), Absence::RolledBack));
    append(&journal, commit(2, 1));
    append(&journal, commit(2, 2));
    journal.note(done(2, 2));
    append(
        &journal,
        Record::Damaged(DamageRecord {
            transaction: id(2, 3),
            branches: Vec::new(),
            found_at_ms: 1,
            found_by: Incarnation(9),
        }),
    );
    append(&journal, Record::Resolved(id(2, 3), Resolution::Commit, remark("it was paid")));
    drop(journal);
    let journal = open(&disk, 3).unwrap();
    // A rotation, and no compaction yet.
    let mut sequence = 0;
    while disk.segments().len() < 3 {
        sequence += 1;
        append(&journal, commit(3, sequence));
    }
    append(&journal, commit(3, 100));
    let image = journal.image(Clone::clone);
    (disk.copy(), image)
}

fn files(disk: &Disk) -> BTreeMap<String, Vec<u8>> {
    disk.names().into_iter().map(|name| (name.clone(), disk.contents(&name))).collect()
}

/// What holds of every repair: the same journal, opens, the copy is what was there, and no transaction changes sides.
fn check(disk: &Disk, before: &BTreeMap<String, Vec<u8>>, image: &Image, repaired: &Repaired, context: &str) -> Image {
    let copies = disk.directories();
    let copy = repaired.copy.as_ref().unwrap_or_else(|| panic!("{context}: it tells where the copy is"));
    let (_, copy) = copies.iter().find(|(name, _)| name == copy).unwrap_or_else(|| panic!("{context}: {copies:?}"));
    for (name, bytes) in before {
        let copied = copy.contents(&name.clone());
        assert!(&copied == bytes, "{context}: {name} is kept as it was");
    }
    assert!(!repaired.damage.is_empty(), "{context}: it says what was wrong");
    let journal = open(disk, 50).unwrap_or_else(|error| panic!("{context}: {}", error.chain()));
    let now = journal.image(Clone::clone);
    assert_eq!(now.journal(), repaired.journal, "{context}");
    for opened in now.incarnations().filter(|opened| opened.incarnation != Incarnation(50)) {
        let incarnation = opened.incarnation;
        let incomplete = now.audit().incomplete(incarnation).is_some();
        assert!(incomplete || now.settled(incarnation) == image.settled(incarnation), "{context}: {incarnation}");
        assert!(incomplete || image.is_settled(incarnation), "{context}: no record of {incarnation} means nothing");
        let known = &image.incarnation(incarnation).unwrap_or_else(|| panic!("{context}: {incarnation}")).participants;
        assert!(known.starts_with(&opened.participants), "{context}: {:?}", opened.participants);
        for sequence in 1..=100 {
            let id = id(incarnation.0, sequence);
            assert!(image.is_committed(id) || !now.is_committed(id), "{context}: {id} was made up");
            let open = now.open_decision(id).is_none() || image.is_committed(id);
            assert!(open, "{context}: {id} is open, and never was");
            // A transaction that has lost its record is none that is said to be rolled back.
            let denied = image.is_committed(id) && !now.is_committed(id);
            assert!(!denied || incomplete, "{context}: {id} would be taken for rolled back");
        }
    }
    drop(journal);
    now
}

fn commits(image: &Image) -> usize {
    (1..=100).filter(|sequence| image.is_committed(id(3, *sequence))).count()
}

#[test]
fn what_is_sound_in_use_or_absent_is_not_repaired() {
    let disk = Disk::default();
    assert_eq!(mend(&disk).unwrap_err().kind(), ErrorKind::Config, "there is no journal");
    assert_eq!(disk.names().len(), 0, "and none is made");
    let (disk, _) = written();
    let before = files(&disk);
    let error = mend(&disk).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.to_string().contains("nothing to repair"), "{error}");
    assert!(files(&disk) == before && disk.directories().is_empty(), "nothing was touched");
    let journal = open(&disk, 9).unwrap();
    damage_the_first(&disk);
    let error = mend(&disk).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.to_string().contains("is in use by process"), "{error}");
    drop(journal);
}

fn damage_the_first(disk: &Disk) {
    let first = disk.segments().remove(0);
    let mut bytes = disk.contents(&first);
    bytes[100..200].fill(0x5a);
    disk.replace(&first, bytes);
}

type Harm = fn(&Disk, &str);

/// D47: a hundred bytes anywhere, a file that is missing, empty, headerless or cut: each segment in turn.
#[test]
fn d47_every_harm_to_every_segment_can_be_repaired() {
    let (disk, image) = written();
    let harms: [(&str, Harm, usize); 7] = [
        ("missing", |disk, name| disk.lose(name), 12),
        ("empty", |disk, name| disk.replace(name, Vec::new()), 12),
        ("no header", |disk, name| disk.replace(name, b"#!/bin/sh\n".to_vec()), 12),
        ("a cut header", |disk, name| disk.replace(name, disk.contents(name)[..40].to_vec()), 12),
        ("a damaged header", |disk, name| hurt(disk, name, 20), 3),
        ("a damaged beginning", |disk, name| hurt(disk, name, 72), 5),
        ("a hole in the middle", |disk, name| hurt(disk, name, 400), 3),
    ];
    for file in disk.segments() {
        for (what, harm, lost) in harms {
            let disk = disk.copy();
            harm(&disk, &file);
            let context = format!("{file}, {what}");
            if what == "a hole in the middle" && disk.segments().last() == Some(&file) {
                // Nothing was ever written there.
                assert!(open(&disk, 9).is_ok(), "{context}");
                continue;
            }
            assert_eq!(open(&disk, 9).unwrap_err().kind(), ErrorKind::Corrupt, "{context}");
            let before = files(&disk);
            let repaired = mend(&disk).unwrap();
            assert_eq!(repaired.journal, image.journal(), "{context}");
            let now = check(&disk, &before, &image, &repaired, &context);
            assert!(commits(&now) + lost >= commits(&image), "{context}: {} are left", commits(&now));
            assert!(repaired.damage.iter().any(|damage| damage.file == file), "{context}: {:?}", repaired.damage);
            // What stood in the snapshot alone is not known any more: the registries of the participants tell.
            let nothing_of_it = file == "segment-00000003" && lost == 12;
            let expected: &[u64] = if nothing_of_it { &[3] } else { &[2, 3] };
            let named = repaired.incomplete.iter().map(|incarnation| incarnation.0).filter(|one| *one != 1);
            assert_eq!(named.collect::<Vec<_>>(), expected, "{context}: {repaired:?}");
            assert_eq!(mend(&disk).unwrap_err().kind(), ErrorKind::Refused, "{context}: there is nothing left to do");
        }
    }
}

/// A hundred bytes.
fn hurt(disk: &Disk, name: &str, offset: usize) {
    let mut bytes = disk.contents(name);
    bytes[offset..offset + 100].fill(0x5a);
    disk.replace(name, bytes);
}

/// The hundred bytes are moved over every byte of every segment. Where the journal is refused it can be repaired, and
/// what a person decided, or what was decided and is still readable, is there.
#[test]
fn d47_a_hundred_bytes_anywhere() {
    let (disk, image) = written();
    let mut refused = 0;
    for file in disk.segments() {
        for offset in (8..disk.contents(&file).len() - 100).step_by(3) {
            let disk = disk.copy();
            hurt(&disk, &file, offset);
            if !matches!(read_from(&disk).unwrap().verdict, Verdict::Corrupt(_)) {
                continue;
            }
            refused += 1;
            let before = files(&disk);
            let repaired = mend(&disk).unwrap();
            let context = format!("{file} at {offset}");
            let now = check(&disk, &before, &image, &repaired, &context);
            assert!(commits(&now) + 5 >= commits(&image), "{context}: {} are left", commits(&now));
        }
    }
    assert!(refused > 200, "{refused}");
}

/// With nothing at all left of the records it is still the same journal, and opens.
#[test]
fn a_journal_of_which_nothing_is_left_keeps_its_identity() {
    let (disk, image) = written();
    disk.segments().iter().for_each(|name| disk.lose(name));
    let repaired = mend(&disk).unwrap();
    assert_eq!((repaired.journal, repaired.kept, repaired.incomplete.len()), (image.journal(), 0, 0));
    assert_eq!(open(&disk, 50).unwrap().id(), image.journal());

    // The lock file is gone too, but a segment tells.
    let (disk, image) = written();
    disk.lose("lock");
    damage_the_first(&disk);
    assert_eq!(mend(&disk).unwrap().journal, image.journal());

    // Or nothing tells: another one.
    let (disk, image) = written();
    disk.lose("lock");
    disk.segments().iter().for_each(|name| disk.replace(name, Vec::new()));
    let repaired = mend(&disk).unwrap();
    assert_ne!(repaired.journal, image.journal());
    assert_eq!(open(&disk, 50).unwrap().id(), repaired.journal);
}

/// Segments under another journal's lock file, as after a restore into a directory that `init` had made.
#[test]
fn segments_in_another_journals_directory_are_taken_in() {
    let (disk, image) = written();
    let promise = format!("{:<63}\n", format!("handfast journal {} initialised", JournalId(5)));
    let lock = [promise.as_bytes(), &disk.contents("lock")[64..]].concat();
    disk.replace("lock", lock);
    assert_eq!(open(&disk, 9).unwrap_err().kind(), ErrorKind::Corrupt);
    let repaired = mend(&disk).unwrap();
    assert_eq!(repaired.journal, image.journal());
    let journal = open(&disk, 50).unwrap();
    journal.image(|now| assert_eq!(commits(now), commits(&image), "nothing was damaged"));
}

/// What proves by itself is followed without the record that it refers to.
#[test]
fn what_was_done_has_committed_though_its_decision_is_lost() {
    let disk = Disk::default();
    let journal = Journal::open_on(disk.clone(), 1 << 14, opening(1)).unwrap();
    append(&journal, Record::Commit(decision(id(1, 1), Some((b"offsets", b"41")))));
    let place = last_offset(&disk);
    append(&journal, commit(1, 2));
    journal.note(done(1, 1));
    append(&journal, commit(1, 3));
    append(&journal, Record::OnePhase(id(1, 4)));
    let disk = disk.copy();
    drop(journal);
    hurt(&disk, "segment-00000001", place + 4);
    let repaired = mend(&disk).unwrap();
    assert_eq!(repaired.left_out, []);
    let journal = Journal::open_on(disk.clone(), 1 << 14, opening(50)).unwrap();
    journal.image(|image| {
        assert!([1, 2, 3, 4].iter().all(|sequence| image.is_committed(id(1, *sequence))));
        let open: Vec<_> = image.open_decisions().map(|decision| decision.transaction).collect();
        assert_eq!(open, [id(1, 2), id(1, 3)], "what was done stays done");
        assert_eq!(image.payload(b"offsets"), None, "it was in the lost record");
    });
}

/// Where the last record begins.
fn last_offset(disk: &Disk) -> usize {
    let entries = read_from(disk).unwrap().entries;
    let last = entries.iter().rfind(|entry| matches!(entry.entry, Entry::Record(_))).unwrap();
    usize::try_from(last.offset).unwrap()
}

/// The record of the opening itself is lost: decisions tell its participants, and what cannot be told is asked for.
#[test]
fn an_opening_without_its_record_is_known_from_its_decisions() {
    let disk = Disk::default();
    let journal = Journal::open_on(disk.clone(), 1 << 14, opening(1)).unwrap();
    append(&journal, commit(1, 1));
    let disk = disk.copy();
    drop(journal);
    hurt(&disk, "segment-00000001", 80);
    // The hundred bytes may reach into the decision: write the opening's frame anew, shorter.
    let (whole, repaired) = (read_from(&disk).unwrap(), mend(&disk).unwrap());
    let readable = whole.entries.iter().any(|entry| matches!(entry.entry, Entry::Record(Record::Commit(_))));
    let journal = Journal::open_on(disk.clone(), 1 << 14, opening(50)).unwrap();
    assert!(journal.image(|image| image.audit().incomplete(Incarnation(1)).is_some()) || !readable);
    assert_eq!(repaired.guessed, if readable { vec![Incarnation(1)] } else { vec![] });
    if readable {
        journal.image(|image| {
            assert_eq!(image.incarnation(Incarnation(1)).unwrap().participants, ["ledger", "orders"].map(name));
            assert!(image.open_decision(id(1, 1)).is_some());
        });
    }
}

/// A settled incarnation whose commits may be lost is not settled any more; one before the gap stays so.
#[test]
fn nothing_is_settled_behind_a_gap() {
    let disk = Disk::default();
    let journal = Journal::open_on(disk.clone(), 1 << 14, opening(1)).unwrap();
    append(&journal, commit(1, 1));
    drop(journal);
    drop(Journal::open_on(disk.clone(), 1 << 14, opening(2)).unwrap());
    let journal = Journal::open_on(disk.clone(), 1 << 14, opening(3)).unwrap();
    append(&journal, Record::Settled(Incarnation(2), Absence::RolledBack));
    append(&journal, Record::OnePhase(id(1, 2)));
    let place = last_offset(&disk);
    append(&journal, Record::OnePhase(id(1, 3)));
    append(&journal, Record::Settled(Incarnation(1), Absence::RolledBack));
    append(&journal, commit(3, 1));
    let disk = disk.copy();
    drop(journal);
    let file = disk.segments().pop().unwrap();
    let mut bytes = disk.contents(&file);
    bytes[place + 25] ^= 1;
    disk.replace(&file, bytes);
    let repaired = mend(&disk).unwrap();
    let [left] = repaired.left_out.as_slice() else { panic!("{:?}", repaired.left_out) };
    assert_eq!(left.entry, Entry::Record(Record::Settled(Incarnation(1), Absence::RolledBack)));
    assert!(left.why.contains("may have been lost"), "{}", left.why);
    assert_eq!(repaired.incomplete, [Incarnation(1), Incarnation(3)]);
    let journal = Journal::open_on(disk.clone(), 1 << 14, opening(50)).unwrap();
    journal.image(|image| {
        assert_eq!(image.settled(Incarnation(2)), Some(Absence::RolledBack));
        assert!(!image.is_settled(Incarnation(1)) && image.is_committed(id(1, 3)) && !image.is_committed(id(1, 2)));
        assert!(image.open_decision(id(3, 1)).is_some());
    });
    // It can be settled again, and then no record of it still proves nothing.
    append(&journal, Record::Witnessed(id(1, 2)));
    append(&journal, Record::Settled(Incarnation(1), Absence::RolledBack));
    journal.image(|image| assert_eq!(image.settled(Incarnation(1)), Some(Absence::Unproven)));
}

/// A segment that was lost turns up again after the repair: it does not take its place.
#[test]
fn a_lost_segment_that_turns_up_again_counts_for_nothing() {
    let (disk, _) = written();
    let last = disk.segments().pop().unwrap();
    let lost = disk.contents(&last);
    disk.lose(&last);
    mend(&disk).unwrap();
    append(&open(&disk, 50).unwrap(), commit(50, 1));
    drop(Storage::create(&disk, &last, lost.len() as u64).unwrap());
    disk.replace(&last, lost);
    open(&disk, 51).unwrap().image(|image| assert!(image.is_committed(id(50, 1))));
}

/// Each operation of a repair fails in turn, once or for ever; then the process dies or the power fails. The journal is
/// refused as before, with all its files, or is repaired; and the next attempt brings the same.
#[test]
fn a_repair_that_dies_at_every_step_may_be_repeated() {
    let (disk, image) = written();
    let middle = disk.segments()[1].clone();
    hurt(&disk, &middle, 300);
    // All of it durable: what is lost is the repair's.
    files(&disk).into_iter().for_each(|(name, bytes)| disk.replace(&name, bytes));
    let whole = disk.copy();
    let expected = mend(&whole).unwrap();
    let mut dice = Dice(11);
    let (mut old, mut new) = (0, 0);
    for nth in 1..200 {
        for lasting in [false, true] {
            for power in [false, true] {
                let disk = disk.copy();
                let before = files(&disk);
                disk.set_faults(Faults { fail: Some((Operation::Any, nth, lasting)), ..Faults::default() });
                let first = mend(&disk);
                if disk.failures() == 0 {
                    assert!(nth > 20 && old > 0 && new > 0, "{nth} operations: {old} old, {new} new");
                    return;
                }
                let after = if power { disk.lose_power(&mut dice) } else { disk.kill() };
                let context = format!("operation {nth}, lasting {lasting}, power {power}");
                match open(&after.copy(), 50) {
                    Ok(journal) => {
                        new += 1;
                        journal.image(|now| assert_eq!(commits(now), commits_of(&whole), "{context}"));
                        assert_eq!(after.directories().len(), 1, "{context}: the copy is durable before");
                    }
                    Err(error) => {
                        old += 1;
                        assert_eq!(error.kind(), ErrorKind::Corrupt, "{context}: {}", error.chain());
                        assert!(first.is_err(), "{context}: what was told to be done is done");
                        for (name, bytes) in before.iter().filter(|(name, _)| name.starts_with("segment")) {
                            assert!(&after.contents(name) == bytes, "{context}: {name} is as it was");
                        }
                        let again = mend(&after).unwrap();
                        assert_eq!(again.incomplete, expected.incomplete, "{context}");
                        assert_eq!(again.kept, expected.kept, "{context}");
                        let segments = before.into_iter().filter(|(name, _)| name.starts_with("segment")).collect();
                        check(&after, &segments, &image, &again, &context);
                    }
                }
            }
        }
    }
    panic!("a repair takes fewer operations");
}

fn commits_of(disk: &Disk) -> usize {
    commits(&read_from(disk).unwrap().image)
}

/// On real files; the plan says the same and changes nothing.
#[test]
fn a_repair_is_planned_before_it_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let config = JournalConfig { directory: directory.path().to_path_buf(), segment_bytes: 64 * 1024 };
    let journal = Journal::open(&config, opening(1)).unwrap();
    (1..=20).for_each(|sequence| append(&journal, commit(1, sequence)));
    assert_eq!(plan_repair(&config, remark("x")).unwrap_err().kind(), ErrorKind::Refused, "it is in use");
    journal.close().unwrap();
    assert_eq!(plan_repair(&config, remark("x")).unwrap_err().kind(), ErrorKind::Refused, "it is sound");
    let path = directory.path().join("segment-00000001");
    overwrite(&path, 1500);
    std::fs::write(directory.path().join("notes.txt"), "somebody's").unwrap();
    let damaged = std::fs::read(&path).unwrap();
    let names = || {
        let mut names: Vec<_> =
            std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    let planned = plan_repair(&config, remark("x")).unwrap();
    assert!(planned.copy.is_none() && names() == before && std::fs::read(&path).unwrap() == damaged);
    let repaired = repair(&config, remark("x")).unwrap();
    assert_eq!((repaired.kept, &repaired.incomplete), (planned.kept, &planned.incomplete));
    let copy = repaired.copy.unwrap();
    assert_eq!(copy, "repair-20231114T221320Z");
    assert_eq!(std::fs::read(directory.path().join(&copy).join("segment-00000001")).unwrap(), damaged);
    assert!(!path.exists() && directory.path().join("notes.txt").exists());
    let journal = Journal::open(&config, opening(2)).unwrap();
    journal.image(|image| {
        assert!(image.committed_count() >= 17, "{}", image.committed_count());
        assert_eq!(image.audit().incomplete(Incarnation(1)), Some(&remark("x")));
    });
    journal.close().unwrap();
    // A second one within the same second has its own copy.
    let last = names().into_iter().rfind(|name| name.to_string_lossy().starts_with("segment-")).unwrap();
    std::fs::write(directory.path().join(last), "").unwrap();
    assert_eq!(repair(&config, remark("x")).unwrap().copy.unwrap(), "repair-20231114T221320Z-2");
}
