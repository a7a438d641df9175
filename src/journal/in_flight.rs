//! Records on their way to the disk, which the image does not know yet.
//!
//! A record is checked when it is handed in and counts when it is durable. What is handed in meanwhile has to fit
//! behind it as well: it is the order on the disk that an opening reads.

use super::outcomes::{Image, Impossible};
use crate::id::{Incarnation, TransactionId};
use crate::protocol::{CommitRecord, Record};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The forced records that are queued or half written, in order.
#[derive(Debug, Default)]
pub struct InFlight {
    records: VecDeque<Arc<Record>>,
    /// The transactions that commit by them.
    ending: HashMap<TransactionId, Ending>,
    /// How many of them bind an incarnation's later records, and are no commits.
    binding: HashMap<Incarnation, usize>,
}

/// How often a transaction is to be found committed, and whether it is decided.
#[derive(Debug, Default)]
struct Ending {
    records: usize,
    is_decided: bool,
}

/// The transaction that commits by this record.
fn ended_by(record: &Record) -> Option<TransactionId> {
    match record {
        Record::Commit(CommitRecord { transaction: id, .. }) | Record::OnePhase(id) | Record::Witnessed(id) => {
            Some(*id)
        }
        _ => None,
    }
}

/// The incarnation of which this record says what can come behind it. Those of other kinds go with everything.
fn bound_by(record: &Record) -> Option<Incarnation> {
    match record {
        Record::Incarnation(opened) => Some(opened.incarnation),
        Record::Settled(incarnation, _) | Record::Incomplete(incarnation, _) => Some(*incarnation),
        Record::Resolved(id, ..) | Record::Forgotten(id, _) => Some(id.incarnation),
        _ => None,
    }
}

impl InFlight {
    /// Adds a record that was checked.
    pub fn add(&mut self, record: &Arc<Record>) {
        if let Some(id) = ended_by(record) {
            let ending = self.ending.entry(id).or_default();
            ending.records += 1;
            let is_decision = matches!(&**record, Record::Commit(_));
            assert!(!(is_decision && ending.is_decided), "a transaction is decided once");
            ending.is_decided |= is_decision;
        }
        if let Some(incarnation) = bound_by(record) {
            *self.binding.entry(incarnation).or_default() += 1;
        }
        self.records.push_back(Arc::clone(record));
    }

    /// Removes a record that is in the image now.
    pub fn arrived(&mut self, record: &Arc<Record>) {
        let first = self.records.pop_front().expect("it was in flight until now");
        assert!(Arc::ptr_eq(&first, record), "records arrive in the order in which they left");
        if let Some(id) = ended_by(record) {
            let Entry::Occupied(mut ending) = self.ending.entry(id) else { panic!("added when it left") };
            ending.get_mut().records -= 1;
            ending.get_mut().is_decided &= !matches!(&**record, Record::Commit(_));
            if ending.get().records == 0 {
                ending.remove();
            }
        }
        if let Some(incarnation) = bound_by(record) {
            let Entry::Occupied(mut count) = self.binding.entry(incarnation) else { panic!("counted when it left") };
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// Forgets all: the journal has failed, nothing arrives any more.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Whether a record can follow those in the image and those on their way. One that is `noted` gets into the image
    /// before those, and onto the disk behind them: it has to fit both.
    ///
    /// # Errors
    /// The contradiction.
    pub fn check(&self, image: &Image, record: &Record, noted: bool) -> Result<(), Impossible> {
        let ended = ended_by(record);
        // Two may have seen the same witness; only one can decide.
        let twice = |id: &TransactionId| {
            let ending = self.ending.get(id);
            ending.is_some_and(|ending| ending.is_decided || matches!(record, Record::Commit(_)))
        };
        if let Some(id) = ended.filter(twice) {
            return Err(Impossible(format!("transaction {id} is being decided already")));
        }
        let bound = bound_by(record);
        let concerns = match (ended, bound) {
            (Some(id), _) => self.binding.contains_key(&id.incarnation).then_some(id.incarnation),
            (None, bound) => bound,
        };
        // What is usual is not looked for among all that waits: that would be as many looks as there are pairs of them.
        let Some(concerns) = concerns else { return image.check(record) };
        let others: Vec<_> = self.records.iter().filter(|other| of(other) == Some(concerns)).collect();
        if noted || others.is_empty() {
            image.check(record)?;
        }
        if others.is_empty() {
            return Ok(());
        }
        // Rare: a person's work, or an incarnation that is being settled.
        let mut on_disk = image.clone();
        others.iter().try_for_each(|other| on_disk.apply(other))?;
        on_disk.check(record)?;
        if noted {
            let mut in_memory = image.clone();
            in_memory.apply(record)?;
            others.iter().try_for_each(|other| in_memory.apply(other))?;
        }
        Ok(())
    }
}

fn of(record: &Record) -> Option<Incarnation> {
    ended_by(record).map(|id| id.incarnation).or_else(|| bound_by(record))
}
