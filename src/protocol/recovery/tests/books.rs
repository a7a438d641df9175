//! A memory for tests: what they have written into it, and nothing else.

use crate::id::{BranchId, Incarnation, Lineage, ParticipantName, TransactionId};
use crate::protocol::message::{
    Absence, CommitRecord, DamageRecord, DamagedBranch, DecidedBranch, IncarnationRecord, Record,
};
use crate::protocol::recovery::{Memory, Recalled};
use std::collections::{BTreeMap, BTreeSet};

/// What is remembered.
#[derive(Debug, Clone, Default)]
pub struct Books {
    pub incarnations: BTreeMap<Incarnation, IncarnationRecord>,
    pub recalled: BTreeMap<TransactionId, Recalled>,
    pub live: BTreeSet<TransactionId>,
    pub anchors: BTreeMap<Incarnation, u16>,
    pub settled: BTreeMap<Incarnation, Absence>,
    pub damaged: BTreeMap<TransactionId, DamageRecord>,
    pub incomplete: BTreeSet<Incarnation>,
    pub at_work: BTreeSet<Incarnation>,
    pub given_up: BTreeSet<(Incarnation, ParticipantName)>,
}

/// Transaction `sequence` of incarnation `incarnation`, of the only node that there is.
pub fn transaction(incarnation: u64, sequence: u64) -> TransactionId {
    TransactionId { node: "node".parse().unwrap(), incarnation: Incarnation(incarnation), sequence }
}

impl Books {
    /// Books with one opening, number 1.
    pub fn opened(participants: &[&str]) -> Self {
        let mut books = Self::default();
        books.open(1, participants);
        books
    }

    pub fn open(&mut self, number: u64, participants: &[&str]) {
        let participants = participants.iter().map(|name| name.parse().unwrap()).collect();
        let (node, incarnation) = (transaction(number, 0).node, Incarnation(number));
        self.incarnations.insert(incarnation, IncarnationRecord { node, incarnation, opened_at_ms: 0, participants });
    }

    /// The branch that a transaction has on a participant.
    pub fn branch(&self, id: TransactionId, participant: &str) -> Option<BranchId> {
        let opened = self.incarnations.get(&id.incarnation)?;
        let number = opened.participants.iter().position(|name| name.as_str() == participant)?;
        Some(id.branch(u16::try_from(number).unwrap(), 0))
    }

    /// A decision over branches on these participants, of lineage 1.
    pub fn decision(&self, id: TransactionId, participants: &[&str]) -> CommitRecord {
        let decided = |name: &&str| DecidedBranch {
            id: self.branch(id, name).unwrap(),
            participant: name.parse().unwrap(),
            lineage: Lineage(1),
        };
        CommitRecord { transaction: id, branches: participants.iter().map(decided).collect(), payload: None }
    }

    pub fn decide(&mut self, id: TransactionId, participants: &[&str]) {
        let decision = self.decision(id, participants);
        self.recalled.insert(id, Recalled::Decided(decision));
    }

    pub fn recall_as(&mut self, id: TransactionId, recalled: Recalled) {
        self.recalled.insert(id, recalled);
    }

    /// As the shell does with what a plan finds: the first finding stays.
    pub fn damage(&mut self, id: TransactionId, branches: Vec<DamagedBranch>) {
        let record = DamageRecord { transaction: id, branches, found_at_ms: 0, found_by: Incarnation(9) };
        self.damaged.entry(id).or_insert(record);
    }

    /// A person has dealt with a damaged transaction.
    pub fn forget(&mut self, id: TransactionId) {
        let known = self.damaged.remove(&id);
        assert!(known.is_some(), "only what is damaged is forgotten");
        self.recalled.insert(id, Recalled::Forgotten);
    }

    /// What the journal makes of the records that recovery finds worth one.
    pub fn note(&mut self, record: &Record) {
        match record {
            Record::Done(id) | Record::Witnessed(id) => drop(self.recalled.insert(*id, Recalled::Finished)),
            Record::OnePhase(id) => drop(self.recalled.insert(*id, Recalled::OnePhase)),
            other => panic!("recovery notes no {other:?}"),
        }
    }
}

impl Memory for Books {
    fn incarnation(&self, incarnation: Incarnation) -> Option<IncarnationRecord> {
        self.incarnations.get(&incarnation).cloned()
    }

    fn anchor(&self, incarnation: Incarnation) -> Option<u16> {
        self.anchors.get(&incarnation).copied()
    }

    fn is_live(&self, transaction: TransactionId) -> bool {
        self.live.contains(&transaction)
    }

    fn recall(&self, transaction: TransactionId) -> Recalled {
        self.recalled.get(&transaction).cloned().unwrap_or(Recalled::Nothing)
    }

    fn settled(&self, incarnation: Incarnation) -> Option<Absence> {
        self.settled.get(&incarnation).copied()
    }

    fn open_decisions(&self) -> Vec<CommitRecord> {
        let open = self.recalled.values().filter_map(|recalled| match recalled {
            Recalled::Decided(record) => Some(record.clone()),
            _ => None,
        });
        open.collect()
    }

    fn damaged(&self) -> Vec<DamageRecord> {
        self.damaged.values().cloned().collect()
    }

    fn is_incomplete(&self, incarnation: Incarnation) -> bool {
        self.incomplete.contains(&incarnation)
    }

    fn is_at_work(&self, incarnation: Incarnation) -> bool {
        self.at_work.contains(&incarnation)
    }

    fn is_given_up(&self, incarnation: Incarnation, participant: ParticipantName) -> bool {
        self.given_up.contains(&(incarnation, participant))
    }
}
