//! Random schedules of work, failures, crashes and restarts against a simple model.

use super::disk::{Dice, Disk, Faults, Operation};
use super::samples::{decision, id, name, opening, remark, wait};
use crate::id::{Incarnation, Lineage, TransactionId};
use crate::journal::{Image, Journal, Verdict, read_from};
use crate::protocol::{Absence, DamageRecord, IncarnationRecord, ParticipantRecord, Record, Resolution};
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
    /// Something of the audit, of the n-th earlier opening or the n-th commit.
    Audit(Audit, u8),
    /// Waits until all that was noted is durable.
    Flush,
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

#[derive(Debug, Clone, Copy)]
enum Audit {
    Damaged,
    Forgotten,
    Resolved,
    Incomplete,
    Witnessed,
    GivenUp,
    Settled,
    TakeOver,
}

fn audit() -> impl Strategy<Value = Audit> {
    use Audit::*;
    let kinds = [Damaged, Forgotten, Resolved, Incomplete, Witnessed, GivenUp, Settled, TakeOver];
    proptest::sample::select(kinds.to_vec())
}

fn step() -> impl Strategy<Value = Step> {
    let operation = prop_oneof![Just(Operation::Any), Just(Operation::Write), Just(Operation::Sync)];
    prop_oneof![
        8 => (1..9_u8, proptest::option::of(0..3_u8)).prop_map(|(count, key)| Step::Commit { count, key }),
        8 => any::<u8>().prop_map(Step::Done),
        2 => Just(Step::OnePhase),
        1 => (1..u64::MAX).prop_map(Step::Participant),
        6 => (audit(), any::<u8>()).prop_map(|(what, nth)| Step::Audit(what, nth)),
        1 => Just(Step::Flush),
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
    /// What was appended of the audit.
    audit: Vec<(Record, Told)>,
    /// What this opening has noted, and what a flush vouched for.
    noted_here: BTreeSet<TransactionId>,
    flushed: BTreeSet<TransactionId>,
}

impl Model {
    fn check(&self, image: &Image) {
        for (id, told) in &self.commits {
            assert!(*told == Told::InDoubt || image.is_committed(*id), "the acknowledged {id} is lost");
            let open = image.open_decision(*id).is_some();
            // A decision that was never acknowledged may be lost, and yet a witness be found.
            let witnessed = self.audit.iter().any(|(record, _)| *record == Record::Witnessed(*id));
            let ended = self.noted_done.contains(id) || image.audit().forgotten(*id).is_some() || witnessed;
            assert!(open || !image.is_committed(*id) || ended, "{id} is done by itself");
        }
        let flushed = |id: &TransactionId| image.is_committed(*id) && image.open_decision(*id).is_none();
        assert!(self.flushed.iter().all(flushed), "what was flushed is lost");
        self.check_audit(image);
        for decision in image.open_decisions() {
            assert!(self.commits.contains_key(&decision.transaction), "{} came from nowhere", decision.transaction);
        }
        let witnessed = self.audit.iter().filter_map(|(record, _)| match record {
            Record::Witnessed(id) => Some(id),
            _ => None,
        });
        let asked: BTreeSet<_> = self.commits.keys().chain(&self.noted_one_phase).chain(witnessed).collect();
        let possible = asked.into_iter().filter(|id| image.is_committed(**id)).count();
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

impl Model {
    /// What was acknowledged is there; what is there was asked for.
    fn check_audit(&self, image: &Image) {
        let audit = image.audit();
        let there = |record: &Record| match record {
            Record::Damaged(damage) => audit.damage(damage.transaction).is_some(),
            Record::Forgotten(id, _) => audit.forgotten(*id).is_some() && image.open_decision(*id).is_none(),
            Record::Resolved(id, resolution, _) => audit.resolved(*id).is_some_and(|(found, _)| found == *resolution),
            Record::Incomplete(incarnation, _) => audit.incomplete(*incarnation).is_some(),
            Record::Witnessed(id) => image.is_committed(*id),
            Record::GivenUp(incarnation, participant, _) => audit.is_given_up(*incarnation, *participant),
            Record::Settled(incarnation, _) => image.is_settled(*incarnation),
            Record::Incarnation(opened) => image.knows(opened.incarnation),
            _ => unreachable!("of the audit"),
        };
        for (record, told) in &self.audit {
            assert!(*told == Told::InDoubt || there(record), "{record:?} is lost");
        }
        let asked = |wanted: &dyn Fn(&Record) -> bool| self.audit.iter().any(|(record, _)| wanted(record));
        for damage in audit.damaged() {
            assert!(asked(&|record| matches!(record, Record::Damaged(one) if one == damage)), "{damage:?}");
        }
        for (id, resolution) in audit.resolutions() {
            let same =
                |record: &Record| matches!(record, Record::Resolved(one, to, _) if (*one, *to) == (id, resolution));
            assert!(asked(&same), "nobody resolved {id}");
        }
        for (incarnation, _) in audit.incompletes() {
            let same = |record: &Record| matches!(record, Record::Incomplete(one, _) if *one == incarnation);
            assert!(asked(&same), "nobody called {incarnation} incomplete");
            let settled = image.settled(incarnation);
            assert!(settled != Some(Absence::RolledBack), "{incarnation} is incomplete, so nothing is proven");
        }
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
        self.model.noted_here.clear();
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
            self.model.noted_here.insert(id);
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
            Step::Audit(what, nth) => self.audit(what, usize::from(nth)),
            Step::Flush => {
                let noted = self.model.noted_here.clone();
                if wait(self.journal().flush()).is_ok() {
                    self.model.flushed.extend(noted);
                }
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

    /// Appends what a pass or a person may append now: the image says what that is, as it does to them.
    fn audit(&mut self, what: Audit, nth: usize) {
        let earlier = 1 + nth as u64 % self.incarnation;
        let (incarnation, lost) = (Incarnation(earlier), Incarnation(1_000_000 + nth as u64 % 3));
        let known: Vec<_> = self.model.commits.keys().copied().collect();
        let some = if nth.is_multiple_of(2) { known.get(nth % known.len().max(1)).copied() } else { None };
        let transaction = some.unwrap_or(id(earlier, 500 + nth as u64 % 7));
        let records = match what {
            Audit::Damaged => {
                let found_at_ms = self.model.audit.len() as u64;
                vec![Record::Damaged(DamageRecord {
                    transaction,
                    branches: Vec::new(),
                    found_at_ms,
                    found_by: Incarnation(9),
                })]
            }
            Audit::Forgotten => vec![Record::Forgotten(transaction, remark("by hand"))],
            Audit::Resolved if nth.is_multiple_of(3) => {
                vec![Record::Resolved(transaction, Resolution::Commit, remark("by hand"))]
            }
            Audit::Resolved => vec![Record::Resolved(transaction, Resolution::RollBack, remark("by hand"))],
            Audit::Incomplete => vec![Record::Incomplete(incarnation, remark("lost"))],
            Audit::Witnessed => vec![Record::Witnessed(transaction)],
            Audit::GivenUp => vec![Record::GivenUp(incarnation, name("orders"), remark("gone"))],
            Audit::Settled => vec![Record::Settled(incarnation, Absence::RolledBack)],
            Audit::TakeOver => {
                let opened = IncarnationRecord { incarnation: lost, ..opening(1).record() };
                vec![Record::Incomplete(lost, remark("lost")), Record::Incarnation(opened)]
            }
        };
        for record in records {
            let own =
                matches!(&record, Record::Settled(one, _) | Record::Incomplete(one, _) if one.0 == self.incarnation);
            if own || self.journal().image(|image| image.check(&record)).is_err() {
                return;
            }
            let told = told(&wait(self.journal().append(record.clone())));
            self.model.audit.push((record, told));
            if told == Told::InDoubt {
                return;
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
