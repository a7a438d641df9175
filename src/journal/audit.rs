//! What was found to contradict itself, what persons did about it, and what is known to be missing.
//!
//! Few records, and each is kept for ever: whoever asks years later is told what was decided by hand, by whom and why.

use super::format::Content;
use super::outcomes::Impossible;
use crate::id::{Incarnation, ParticipantName, TransactionId};
use crate::protocol::{DamageRecord, Record, Remark, Resolution};
use std::collections::BTreeMap;

/// The part of an image that persons have a hand in.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Audit {
    damaged: BTreeMap<TransactionId, DamageRecord>,
    forgotten: BTreeMap<TransactionId, Remark>,
    resolved: BTreeMap<TransactionId, (Resolution, Remark)>,
    incomplete: BTreeMap<Incarnation, Remark>,
    given_up: BTreeMap<(Incarnation, ParticipantName), Remark>,
}

impl Audit {
    /// The damaged transactions that nobody has dealt with.
    pub fn damaged(&self) -> impl Iterator<Item = &DamageRecord> {
        self.damaged.values().filter(|record| !self.forgotten.contains_key(&record.transaction))
    }

    /// How a transaction was found to be damaged, dealt with or not.
    pub fn damage(&self, id: TransactionId) -> Option<&DamageRecord> {
        self.damaged.get(&id)
    }

    /// Who dealt with a damaged transaction, and why.
    pub fn forgotten(&self, id: TransactionId) -> Option<&Remark> {
        self.forgotten.get(&id)
    }

    /// What a person decided about a transaction.
    pub fn resolved(&self, id: TransactionId) -> Option<(Resolution, &Remark)> {
        self.resolved.get(&id).map(|(resolution, remark)| (*resolution, remark))
    }

    /// Every decision of a person.
    pub fn resolutions(&self) -> impl Iterator<Item = (TransactionId, Resolution)> {
        self.resolved.iter().map(|(id, (resolution, _))| (*id, *resolution))
    }

    /// Why records of an incarnation may be missing, if so.
    pub fn incomplete(&self, incarnation: Incarnation) -> Option<&Remark> {
        self.incomplete.get(&incarnation)
    }

    /// The incarnations of which records may be missing, known or not.
    pub fn incompletes(&self) -> impl Iterator<Item = (Incarnation, &Remark)> {
        self.incomplete.iter().map(|(incarnation, remark)| (*incarnation, remark))
    }

    /// Whether what an incarnation left on a participant is out of reach for good.
    pub fn is_given_up(&self, incarnation: Incarnation, participant: ParticipantName) -> bool {
        self.given_up.contains_key(&(incarnation, participant))
    }

    /// Adds a record of this kind, after it was checked; leaves others alone.
    pub(super) fn apply(&mut self, record: &Record) {
        match record {
            // What was found first is what a person needs to see; later passes see what others made of it.
            Record::Damaged(record) => {
                self.damaged.entry(record.transaction).or_insert_with(|| record.clone());
            }
            Record::Forgotten(id, remark) => drop(self.forgotten.entry(*id).or_insert_with(|| remark.clone())),
            Record::Resolved(id, resolution, remark) => {
                self.resolved.entry(*id).or_insert_with(|| (*resolution, remark.clone()));
            }
            Record::Incomplete(incarnation, remark) => {
                self.incomplete.entry(*incarnation).or_insert_with(|| remark.clone());
            }
            Record::GivenUp(incarnation, participant, remark) => {
                self.given_up.entry((*incarnation, *participant)).or_insert_with(|| remark.clone());
            }
            _ => {}
        }
    }

    /// Whether a record of this kind can follow those before it; others always can.
    pub(super) fn check(&self, record: &Record) -> Result<(), Impossible> {
        match record {
            Record::Forgotten(id, _) if !self.damaged.contains_key(id) => {
                Err(Impossible(format!("transaction {id} is forgotten and was never damaged")))
            }
            Record::Resolved(id, ..) if self.forgotten.contains_key(id) => {
                Err(Impossible(format!("transaction {id} is resolved after a person has dealt with it")))
            }
            Record::Resolved(id, resolution, _)
                if self.resolved.get(id).is_some_and(|(other, _)| other != resolution) =>
            {
                Err(Impossible(format!("transaction {id} is resolved a second time, and otherwise")))
            }
            Record::Witnessed(id) if !self.incomplete.contains_key(&id.incarnation) => {
                Err(Impossible(format!("transaction {id} is known by its witness, though no record was lost")))
            }
            _ => Ok(()),
        }
    }

    /// Hands out what has to come before the outcomes.
    pub(super) fn snapshot(&self, mut put: impl FnMut(Content<'_>)) {
        for (incarnation, remark) in &self.incomplete {
            put(Content::Record(&Record::Incomplete(*incarnation, remark.clone())));
        }
        for ((incarnation, participant), remark) in &self.given_up {
            put(Content::Record(&Record::GivenUp(*incarnation, *participant, remark.clone())));
        }
        for record in self.damaged.values() {
            put(Content::Record(&Record::Damaged(record.clone())));
        }
        for (id, (resolution, remark)) in &self.resolved {
            put(Content::Record(&Record::Resolved(*id, *resolution, remark.clone())));
        }
        for (id, remark) in &self.forgotten {
            put(Content::Record(&Record::Forgotten(*id, remark.clone())));
        }
    }
}
