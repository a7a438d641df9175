//! Whether these tests notice when what keeps the journal's promises is missing.
//!
//! A switch counts for the whole process, so each scenario is played by this very program as a child of itself.

use super::disk::{Dice, Disk, Faults, Operation};
use super::samples::{commit, decision, id, opening, wait};
use crate::journal::Journal;
use crate::protocol::Record;
use crate::torture::{Safeguard, switch_off};
use std::process::Command;

/// Small enough for a rotation every few records.
const SEGMENT: u64 = 1024;

type Violation = String;

fn open(disk: &Disk, incarnation: u64) -> Result<Journal, Violation> {
    Journal::open_on(disk.clone(), SEGMENT, opening(incarnation)).map_err(|error| error.chain())
}

/// What was called durable is there after a power failure.
fn is_kept(disk: &Disk, sequences: &[u64], dice: &mut Dice) -> Result<(), Violation> {
    let journal = open(&disk.lose_power(dice), 9)?;
    let lost = sequences.iter().find(|sequence| !journal.image(|image| image.is_committed(id(1, **sequence))));
    lost.map_or(Ok(()), |sequence| Err(format!("commit {sequence} was durable and is lost")))
}

/// D07: a sync fails once, and later ones succeed. The record takes more than one sector: what follows it would write
/// its last one once more.
fn poison(dice: &mut Dice) -> Result<(), Violation> {
    let disk = Disk::default();
    let journal = Journal::open_on(disk.clone(), 1 << 16, opening(1)).map_err(|error| error.chain())?;
    disk.set_faults(Faults { fail: Some((Operation::Sync, 1, false)), ..Faults::default() });
    let record = |sequence| Record::Commit(decision(id(1, sequence), Some((b"key", &[0xa5; 4096]))));
    let told = (1..=3).filter(|sequence| wait(journal.append(record(*sequence))).is_ok()).collect::<Vec<_>>();
    drop(journal);
    is_kept(&disk, &told, dice)
}

/// D09: the journal goes on in a new file, and the power fails.
fn directory_sync(dice: &mut Dice) -> Result<(), Violation> {
    let disk = Disk::default();
    let journal = open(&disk, 1)?;
    let told = (1..=12).filter(|sequence| wait(journal.append(commit(1, *sequence))).is_ok()).collect::<Vec<_>>();
    let copy = disk.copy();
    drop(journal);
    is_kept(&copy, &told, dice)
}

/// A process is killed before its sync, the next one finds the record and acts on it, and the power fails.
fn durable_before_acting(dice: &mut Dice) -> Result<(), Violation> {
    let disk = Disk::default();
    let journal = open(&disk, 1)?;
    disk.set_faults(Faults { fail: Some((Operation::Sync, 1, true)), ..Faults::default() });
    wait(journal.append(commit(1, 1))).expect_err("its sync fails");
    let disk = disk.kill();
    drop(journal);
    let journal = open(&disk, 2)?;
    let found = journal.image(|image| image.is_committed(id(1, 1)));
    let disk = disk.kill();
    drop(journal);
    is_kept(&disk, if found { &[1] } else { &[] }, dice)
}

type Scenario = fn(&mut Dice) -> Result<(), Violation>;

const SCENARIOS: [(Safeguard, Scenario); 3] = [
    (Safeguard::Poison, poison),
    (Safeguard::DirectorySync, directory_sync),
    (Safeguard::DurableBeforeActing, durable_before_acting),
];

/// Plays a scenario with as many ends of the power as it may take to meet the worst one.
fn play(scenario: Scenario) -> Result<(), Violation> {
    (1..=40).try_for_each(|seed| scenario(&mut Dice(seed)))
}

/// What a child is told by.
const OFF: &str = "HANDFAST_OFF";

/// Not a test of its own: what a child does.
#[test]
fn child() {
    let Ok(name) = std::env::var(OFF) else { return };
    let off = name.parse().unwrap();
    let (_, scenario) = SCENARIOS.into_iter().find(|(safeguard, _)| *safeguard == off).unwrap();
    switch_off(off);
    match play(scenario) {
        Ok(()) => println!("held"),
        Err(violation) => println!("violated: {violation}"),
    }
}

#[test]
fn each_safeguard_of_the_journal_is_missed() {
    for (safeguard, scenario) in SCENARIOS {
        assert_eq!(play(scenario), Ok(()), "{} is on", safeguard.name());
        let child = format!("{}::child", module_path!().split_once("::").unwrap().1);
        let mut off = Command::new(std::env::current_exe().unwrap());
        let output = off.args([&child, "--exact", "--nocapture"]).env(OFF, safeguard.name()).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let violation = said.lines().find_map(|line| line.split_once("violated: ")).map(|(_, what)| what);
        let violation = violation.unwrap_or_else(|| panic!("nobody misses {}: {said}", safeguard.name()));
        println!("without {}: {violation}", safeguard.name());
    }
}
