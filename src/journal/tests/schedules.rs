//! Random schedules of work, failures, crashes and restarts against a simple model.

use super::disk::{Dice, Disk, Faults, Operation};
use super::samples::{decision, id, name, opening, wait};
use crate::id::{Lineage, TransactionId};
use crate::journal::{Image, Journal, Verdict, read_from};
use crate::protocol::{ParticipantRecord, Record};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone)]
enum Step {
    /// So many appends at once, each with a payload under the key, if any.
    Commit { count: u8, key: Option<u8> },
    /// Notes that the n-th acknowledged commit is done.
    Done(u8),
    /// Notes a transaction of one writer.
    OnePhase,
    /// Appends a new lineage of a participant.
    Participant(u64),
    /// The n-th operation from now on fails.
    Fail { operation: Operation, nth: usize, lasting: bool },
    /// The disk has so many bytes from now on.
    Capacity(usize),
    /// The journal is closed and opened again.
    Reopen,
    /// The process is killed and started again.
    Kill,
    /// The power fails.
    LosePower(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let operation = prop_oneof![Just(Operation::Any), Just(Operation::Write), Just(Operation::Sync)];
    prop_oneof![
        8 => (1..9_u8, proptest::option::of(0..3_u8)).prop_map(|(count, key)| Step::Commit { count, key }),
        8 => any::<u8>().prop_map(Step::Done),
        2 => Just(Step::OnePhase),
        1 => (1..u64::MAX).prop_map(Step::Participant),
        1 => (operation, 1..30_usize, any::<bool>())
            .prop_map(|(operation, nth, lasting)| Step::Fail { operation, nth, lasting }),
        1 => (1000..9000_usize).prop_map(Step::Capacity),
        1 => Just(Step::Reopen),
        1 => Just(Step::Kill),
        2 => (1..u64::MAX).prop_map(Step::LosePower),
    ]
}

/// What an attempt came to, as far as the application was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Durable,
    InDoubt,
}

#[derive(Debug, Default)]
struct Model {
    commits: BTreeMap<TransactionId, Told>,
    noted_done: BTreeSet<TransactionId>,
    noted_one_phase: BTreeSet<TransactionId>,
    /// Values of a key, by the transaction that brought them, in the order of the attempts.
    payloads: BTreeMap<u8, Vec<(TransactionId, Told)>>,
    lineages: Vec<(u64, Told)>,
}

impl Model {
    fn check(&self, image: &Image) {
        for (id, told) in &self.commits {
            assert!(*told == Told::InDoubt || image.is_committed(*id), "the acknowledged {id} is lost");
            let open = image.open_decision(*id).is_some();
            assert!(open || !image.is_committed(*id) || self.noted_done.contains(id), "{id} is done by itself");
        }
        for decision in image.open_decisions() {
            assert!(self.commits.contains_key(&decision.transaction), "{} came from nowhere", decision.transaction);
        }
        let possible = self.commits.keys().chain(&self.noted_one_phase).filter(|id| image.is_committed(**id)).count();
        assert_eq!(image.committed_count(), possible as u64, "commits that nobody asked for");
        for (key, attempts) in &self.payloads {
            let found = image.payload(&[*key]).map(|(id, _)| id);
            let after = attempts.iter().rposition(|(_, told)| *told == Told::Durable);
            let allowed = &attempts[after.unwrap_or(0)..];
            assert!(after.is_some() || found.is_none() || allowed.iter().any(|(id, _)| Some(*id) == found));
            assert!(
                after.is_none() || allowed.iter().any(|(id, _)| Some(*id) == found),
                "{key}: {found:?} of {allowed:?}"
            );
        }
        let found = image.participant(name("ledger")).map(|record| record.lineage.0);
        let after = self.lineages.iter().rposition(|(_, told)| *told == Told::Durable);
        let allowed = self.lineages[after.unwrap_or(0)..].iter().map(|(lineage, _)| Some(*lineage));
        assert!(allowed.chain(after.is_none().then_some(None)).any(|lineage| lineage == found), "lineage {found:?}");
    }
}

struct World {
    disk: Disk,
    journal: Option<Journal>,
    incarnation: u64,
    sequence: u64,
    model: Model,
}

const SEGMENT: u64 = 1500;

impl World {
    fn new() -> Self {
        Self { disk: Disk::default(), journal: None, incarnation: 0, sequence: 0, model: Model::default() }
    }

    fn open(&mut self) {
        self.incarnation += 1;
        self.sequence = 0;
        let offline = read_from(&self.disk);
        let journal = Journal::open_on(self.disk.clone(), SEGMENT, opening(self.incarnation)).unwrap();
        journal.image(|image| {
            self.model.check(image);
            let Ok(offline) = offline else { return };
            assert!(!matches!(offline.verdict, Verdict::Corrupt(_)));
            let mut all = offline.image;
            offline.in_doubt.iter().for_each(|record| all.apply(record).unwrap());
            all.apply(&Record::Incarnation(opening(self.incarnation).record())).unwrap();
            assert_eq!(&all, image, "a reader sees what an opening finds");
        });
        self.journal = Some(journal);
    }

    fn journal(&self) -> &Journal {
        self.journal.as_ref().expect("it is open between steps")
    }

    fn next(&mut self) -> TransactionId {
        self.sequence += 1;
        id(self.incarnation, self.sequence)
    }

    fn commit(&mut self, count: u8, key: Option<u8>) {
        let ids: Vec<_> = (0..count).map(|_| self.next()).collect();
        let journal = self.journal();
        let appends = ids.iter().map(|id| {
            let payload = key.map(|key| (vec![key], id.sequence.to_le_bytes()));
            let payload = payload.as_ref().map(|(key, bytes)| (key.as_slice(), bytes.as_slice()));
            journal.append(Record::Commit(decision(*id, payload)))
        });
        let told: Vec<_> = wait(futures_util::future::join_all(appends)).iter().map(told).collect();
        for (id, told) in ids.into_iter().zip(told) {
            self.model.commits.insert(id, told);
            if let Some(key) = key {
                self.model.payloads.entry(key).or_default().push((id, told));
            }
        }
    }

    fn done(&mut self, nth: u8) {
        let known: Vec<_> = self.model.commits.keys().copied().collect();
        let Some(id) = known.get(usize::from(nth) % known.len().max(1)).copied() else { return };
        // Whether the journal has it, not whether it was acknowledged: an opening may have found it.
        if self.journal().image(|image| image.is_committed(id)) {
            self.journal().note(Record::Done(id));
            self.model.noted_done.insert(id);
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Commit { count, key } => self.commit(count, key),
            Step::Done(nth) => self.done(nth),
            Step::OnePhase => {
                let id = self.next();
                self.journal().note(Record::OnePhase(id));
                self.model.noted_one_phase.insert(id);
            }
            Step::Participant(lineage) => {
                let (name, reason) = (name("ledger"), String::from("another server"));
                let record = ParticipantRecord { name, lineage: Lineage(lineage), reason };
                let result = wait(self.journal().append(Record::Participant(record)));
                self.model.lineages.push((lineage, told(&result)));
            }
            Step::Fail { operation, nth, lasting } => {
                self.disk.set_faults(Faults { fail: Some((operation, nth, lasting)), ..Faults::default() });
            }
            Step::Capacity(bytes) => self.disk.set_faults(Faults { capacity: Some(bytes), ..Faults::default() }),
            Step::Reopen => self.end(|disk| disk.kill()),
            Step::Kill => {
                self.disk = self.disk.kill();
                self.end(Disk::clone);
            }
            Step::LosePower(seed) => {
                self.disk = self.disk.lose_power(&mut Dice(seed));
                self.end(Disk::clone);
            }
        }
    }

    /// Drops the journal, lets something befall the disk, and opens again.
    fn end(&mut self, fate: impl FnOnce(&Disk) -> Disk) {
        drop(self.journal.take());
        self.disk = fate(&self.disk);
        self.open();
    }
}

fn told(result: &crate::Result<()>) -> Told {
    match result {
        Ok(()) => Told::Durable,
        Err(error) => {
            assert_eq!(error.kind(), crate::ErrorKind::Journal, "{error}");
            Told::InDoubt
        }
    }
}

/// A random schedule found it: the mark behind the first part of a batch failed, and the rest, which was to go into the
/// next segment, was answered before there was a reason to give.
#[test]
fn a_failed_write_is_told_with_its_reason_wherever_it_meets_a_batch() {
    for nth in 1..40 {
        let mut world = World::new();
        world.open();
        for key in [0, 1] {
            world.step(Step::Commit { count: 2, key: Some(key) });
        }
        world.step(Step::Fail { operation: Operation::Write, nth, lasting: false });
        for _ in 0..4 {
            world.step(Step::Commit { count: 8, key: Some(1) });
        }
        world.end(|disk| disk.lose_power(&mut Dice(nth as u64)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_schedules_agree_with_the_model(steps in proptest::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        world.open();
        for step in steps {
            world.step(step);
        }
        world.end(|disk| disk.lose_power(&mut Dice(99)));
        world.end(|disk| disk.lose_power(&mut Dice(98)));
    }
}
