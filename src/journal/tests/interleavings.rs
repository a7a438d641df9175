//! The queue of the group commit under chosen interleavings: the committer's own source, compiled a second time on
//! shuttle's threads, locks and conditions, against a disk in memory whose every operation is a place to be overtaken.
//!
//! Looked for: an answer that is missing, or that comes before a sync which covers its record; a record, a note or an
//! answer that is lost by a close; anything written after a failure; a wake-up that is lost. Failing schedules are
//! printed and can be replayed (`shuttle::replay`).

#[allow(dead_code)]
#[expect(clippy::duplicate_mod, reason = "the same source on other threads is the point")]
#[path = "../committer.rs"]
mod committer;
mod slow;
mod sync;

use super::super::opening;
use super::super::{format, in_flight, outcomes, writer};
use super::disk::{Dice, Disk, Faults, Operation};
use super::samples::{commit, id, opening as sample};
use crate::error::ErrorKind;
use crate::journal::{StorageFile, read_from};
use crate::protocol::Record;
use committer::Shared;
use shuttle::future::block_on;
use shuttle::thread;
use slow::Slow;
use std::panic::{UnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Room for a few records, so that there are rotations and compactions.
const SMALL: u64 = 700;
const LARGE: u64 = 1 << 14;

/// A journal as the committer sees it.
struct World {
    shared: Arc<Shared>,
    disk: Disk,
    /// Notes that were handed over before the close began.
    noted: Mutex<Vec<u64>>,
    next: AtomicU64,
}

struct Running {
    world: Arc<World>,
    thread: sync::JoinHandle<()>,
    _lock: Box<dyn StorageFile>,
}

fn start(segment_bytes: u64) -> Running {
    let disk = Disk::default();
    let storage = Arc::new(Slow::new(disk.clone()));
    let opened = opening::open(storage, segment_bytes, sample(1).record()).unwrap();
    let shared = Arc::new(Shared::new(opened.name, opened.image));
    let thread = committer::spawn(Arc::clone(&shared), opened.writer).unwrap();
    let world = World { shared, disk, noted: Mutex::default(), next: AtomicU64::new(1) };
    Running { world: Arc::new(world), thread, _lock: opened.lock }
}

impl World {
    /// Whether a record is there after the power has failed now.
    fn survives(&self, found: impl Fn(&Record) -> bool, committed: u64) -> bool {
        let after = self.disk.copy().lose_power(&mut Dice(7));
        let read = read_from(&after).unwrap();
        read.image.is_committed(id(1, committed)) || read.in_doubt.iter().any(found)
    }

    /// Appends decisions. Whoever is told of one finds it on the disk and in the image.
    fn append(&self, many: u64) {
        for _ in 0..many {
            let sequence = self.next.fetch_add(1, Ordering::SeqCst);
            let queued = match self.shared.append(commit(1, sequence)) {
                Ok(queued) => queued,
                Err(error) => return self.refused(error.kind()),
            };
            match block_on(self.shared.answer(queued)) {
                Ok(()) => {
                    let survives = self.survives(|record| *record == commit(1, sequence), sequence);
                    assert!(survives, "{sequence} was acknowledged and is not durable");
                    assert!(self.shared.image(|image| image.is_committed(id(1, sequence))));
                }
                Err(error) => self.refused(error.kind()),
            }
        }
    }

    fn refused(&self, kind: ErrorKind) {
        match kind {
            ErrorKind::Journal => assert!(self.shared.failure().is_some(), "a failure is told before its answers"),
            ErrorKind::Closed => {}
            other => panic!("{other:?}"),
        }
    }

    /// Notes a commit.
    fn note(&self) -> u64 {
        let sequence = self.next.fetch_add(1, Ordering::SeqCst);
        self.shared.note(Record::OnePhase(id(1, sequence)));
        self.noted.lock().unwrap().push(sequence);
        sequence
    }

    /// Notes a commit and waits until it is durable.
    fn note_and_flush(&self) {
        let sequence = self.note();
        match self.shared.flush().map(|queued| block_on(self.shared.answer(queued))) {
            Ok(Ok(())) => {
                let survives = self.survives(|record| *record == Record::OnePhase(id(1, sequence)), sequence);
                assert!(survives, "{sequence} was flushed and is not durable");
            }
            Ok(Err(error)) | Err(error) => self.refused(error.kind()),
        }
    }
}

impl Running {
    fn spawn(&self, work: impl Fn(&World) + Send + Sync + 'static) -> thread::JoinHandle<()> {
        let world = Arc::clone(&self.world);
        thread::spawn(move || work(&world))
    }

    /// Closes while others are at work, waits for all, and compares the disk with what was promised.
    fn close(self, others: Vec<thread::JoinHandle<()>>) {
        let noted = self.world.noted.lock().unwrap().clone();
        self.world.shared.close();
        self.thread.join().unwrap();
        // Nobody waits for an answer that does not come.
        others.into_iter().for_each(|other| other.join().unwrap());
        let read = read_from(&self.world.disk.kill()).unwrap();
        if self.world.shared.failure().is_some() {
            return;
        }
        for sequence in noted {
            assert!(read.image.is_committed(id(1, sequence)), "the note of {sequence} was lost by the close");
        }
        assert!(read.in_doubt.is_empty(), "a close leaves nothing in doubt");
    }
}

/// Appends, notes and flushes while the journal is closed.
fn at_once(segment_bytes: u64, each: u64) {
    let running = start(segment_bytes);
    let mut others: Vec<_> = (0..2).map(|_| running.spawn(move |world| world.append(each))).collect();
    others.push(running.spawn(World::note_and_flush));
    running.world.note();
    running.close(others);
}

#[test]
fn whoever_waits_is_answered_when_his_record_is_durable() {
    shuttle::check_random(|| at_once(LARGE, 2), 1500);
    shuttle::check_pct(|| at_once(LARGE, 2), 500, 3);
}

/// Two or three in a segment: the next one is made, and compactions drop notes that their snapshot holds.
#[test]
fn rotation_and_compaction_lose_nothing() {
    let busy = || {
        let running = start(SMALL);
        let working = Arc::new(AtomicU64::new(2));
        let appending = |working: Arc<AtomicU64>| {
            move |world: &World| {
                world.append(12);
                working.fetch_sub(1, Ordering::SeqCst);
            }
        };
        let mut others: Vec<_> = (0..2).map(|_| running.spawn(appending(Arc::clone(&working)))).collect();
        // Up to the last compaction: what is noted during that one is in no later snapshot.
        others.push(running.spawn(move |world| {
            while working.load(Ordering::SeqCst) > 0 {
                world.note();
                (0..4).for_each(|_| thread::yield_now());
            }
        }));
        others.drain(..).for_each(|other| other.join().unwrap());
        let log = running.world.disk.take_log();
        assert!(log.iter().any(|step| step.starts_with("remove segment")), "no compaction: {log:#?}");
        running.close(others);
    };
    shuttle::check_random(busy, 200);
}

/// Every interleaving of the smallest world, as far as the bound reaches.
#[test]
fn the_smallest_world_is_searched_in_order() {
    let smallest = || {
        let running = start(LARGE);
        let others = vec![running.spawn(|world| world.append(1))];
        running.world.note();
        running.close(others);
    };
    shuttle::check_dfs(smallest, Some(4000));
}

/// The n-th operation of the disk fails, and only that one: whoever tried again would find it mended.
#[test]
fn after_a_failure_all_are_told_and_nothing_is_written() {
    let failing = || {
        let running = start(SMALL);
        let nth = shuttle::rand::Rng::gen_range(&mut shuttle::rand::thread_rng(), 1..24);
        running.world.disk.set_faults(Faults { fail: Some((Operation::Any, nth, false)), ..Faults::default() });
        let mut others: Vec<_> = (0..3).map(|_| running.spawn(|world| world.append(3))).collect();
        others.push(running.spawn(World::note_and_flush));
        running.world.note();
        running.close(others);
    };
    shuttle::check_random(failing, 1500);
}

/// Nobody waits for it and nothing else is going on.
#[test]
fn a_note_alone_is_written_in_time() {
    let alone = || {
        let running = start(LARGE);
        let before = running.world.disk.operations();
        running.world.note();
        while running.world.disk.operations() == before {
            thread::yield_now();
        }
        running.close(Vec::new());
    };
    shuttle::check_random(alone, 300);
}

/// The disk is full when the next segment is wanted: begins are refused until there is room, and then no more.
#[test]
fn begins_are_refused_while_there_is_no_room_and_only_then() {
    let full = || {
        let running = start(SMALL);
        running.world.disk.set_faults(Faults { capacity: Some(1), ..Faults::default() });
        let appending = running.spawn(|world| world.append(2));
        let beginning = running.spawn(|world| {
            world.append(2);
            world.disk.set_faults(Faults::default());
            while world.shared.check_space().is_err() {
                sync::go_on(Duration::from_millis(600));
                thread::yield_now();
            }
        });
        beginning.join().unwrap();
        running.close(vec![appending]);
    };
    shuttle::check_random(full, 1000);
}

/// What a test of interleavings says of a bug.
fn said(bug: impl Fn() + Send + Sync + UnwindSafe + 'static) -> String {
    let caught = catch_unwind(|| shuttle::check_random(bug, 300)).expect_err("the bug was not noticed");
    let text = caught.downcast_ref::<String>().cloned();
    text.or_else(|| caught.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

/// Who watches the watchers: nobody is woken.
#[test]
fn a_lost_wake_up_is_noticed() {
    let text = said(|| {
        sync::set_deaf(true);
        at_once(LARGE, 1);
    });
    sync::set_deaf(false);
    assert!(text.contains("deadlock"), "{text}");
}

/// Who watches the watchers: syncs that do nothing, which is what an answer before the sync looks like.
#[test]
fn an_answer_before_its_sync_is_noticed() {
    let text = said(|| {
        let running = start(LARGE);
        running.world.disk.set_faults(Faults { lying_sync_from: Some(1), ..Faults::default() });
        let others = vec![running.spawn(|world| world.append(3))];
        running.close(others);
    });
    assert!(text.contains("is not durable"), "{text}");
}
