//! What the records add up to.
//!
//! Commits are kept for ever, a bit each: one compressed bitmap of sequences for each incarnation. An outcome that
//! is asked for years later is there, and a branch that a server brings back from a backup gets its real one.
//!
//! [`Image::apply`] is the only way in for a fact of the protocol. It refuses what cannot be, before it changes
//! anything: in a live journal that is a bug of ours, in one that was read it is corruption.

use super::audit::Audit;
use super::format::{Content, Entry, OutcomeChunk};
use crate::id::{Incarnation, JournalId, Lineage, ParticipantName, TransactionId};
use crate::protocol::{
    Absence, CommitRecord, DamageRecord, DecidedBranch, IncarnationRecord, ParticipantRecord, Payload, Record,
};
use roaring::RoaringTreemap;
use std::collections::BTreeMap;

/// So many sequences go into one entry of a snapshot: two MiB at worst.
const CHUNK: u64 = 1 << 24;

/// A record that contradicts those before it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Impossible(pub(super) String);

/// The outcomes of one incarnation's transactions.
#[derive(Debug, Clone, PartialEq, Default)]
struct Outcomes {
    committed: RoaringTreemap,
    /// What no record means; `None` while something of the incarnation may still move.
    settled: Option<Absence>,
}

/// The state of a journal.
#[derive(Debug, Clone, PartialEq)]
pub struct Image {
    journal: JournalId,
    incarnations: BTreeMap<Incarnation, IncarnationRecord>,
    participants: BTreeMap<ParticipantName, ParticipantRecord>,
    open: BTreeMap<TransactionId, CommitRecord>,
    outcomes: BTreeMap<Incarnation, Outcomes>,
    payloads: BTreeMap<Vec<u8>, (TransactionId, Vec<u8>)>,
    audit: Audit,
}

impl Image {
    /// The state of a journal that holds nothing yet.
    pub fn new(journal: JournalId) -> Self {
        Self {
            journal,
            incarnations: BTreeMap::new(),
            participants: BTreeMap::new(),
            open: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            payloads: BTreeMap::new(),
            audit: Audit::default(),
        }
    }

    /// The journal's identity.
    pub fn journal(&self) -> JournalId {
        self.journal
    }

    /// Whether this journal opened that incarnation, so that its branches are ours.
    pub fn knows(&self, incarnation: Incarnation) -> bool {
        self.incarnations.contains_key(&incarnation)
    }

    /// An opening.
    pub fn incarnation(&self, incarnation: Incarnation) -> Option<&IncarnationRecord> {
        self.incarnations.get(&incarnation)
    }

    /// All openings, in no order of time.
    pub fn incarnations(&self) -> impl ExactSizeIterator<Item = &IncarnationRecord> {
        self.incarnations.values()
    }

    /// A participant as it was last accepted.
    pub fn participant(&self, name: ParticipantName) -> Option<&ParticipantRecord> {
        self.participants.get(&name).filter(|known| known.lineage != Lineage(0))
    }

    /// All participants.
    pub fn participants(&self) -> impl ExactSizeIterator<Item = &ParticipantRecord> {
        self.participants.values()
    }

    /// The decisions that are not known to be carried out everywhere, by id. Their payloads are kept apart, see
    /// [`payload`](Self::payload).
    pub fn open_decisions(&self) -> impl ExactSizeIterator<Item = &CommitRecord> {
        self.open.values()
    }

    /// The open decision over a transaction.
    pub fn open_decision(&self, id: TransactionId) -> Option<&CommitRecord> {
        self.open.get(&id)
    }

    /// Whether it is recorded that the transaction has committed. *No* is not an outcome: see the design's §6.
    pub fn is_committed(&self, id: TransactionId) -> bool {
        let ours = self.incarnations.get(&id.incarnation).is_some_and(|record| record.node == id.node);
        ours && self.outcomes.get(&id.incarnation).is_some_and(|known| known.committed.contains(id.sequence))
    }

    /// What the absence of a record means of an incarnation of which nothing can move any more; `None` of any other.
    pub fn settled(&self, incarnation: Incarnation) -> Option<Absence> {
        self.outcomes.get(&incarnation).and_then(|known| known.settled)
    }

    /// Whether nothing of that incarnation can move any more.
    pub fn is_settled(&self, incarnation: Incarnation) -> bool {
        self.settled(incarnation).is_some()
    }

    /// The openings of which something may still move, the one at work among them.
    pub fn unsettled(&self) -> impl Iterator<Item = &IncarnationRecord> {
        self.incarnations.values().filter(|record| !self.is_settled(record.incarnation))
    }

    /// How many transactions are recorded as committed.
    pub fn committed_count(&self) -> u64 {
        self.outcomes.values().map(|known| known.committed.len()).sum()
    }

    /// The latest committed payload of a key, and the transaction that brought it.
    pub fn payload(&self, key: &[u8]) -> Option<(TransactionId, &[u8])> {
        self.payloads.get(key).map(|(id, bytes)| (*id, bytes.as_slice()))
    }

    /// What was found damaged, what persons decided, what is known to be missing.
    pub fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Adds a record.
    ///
    /// # Errors
    /// If it contradicts those before it; nothing has changed then.
    pub fn apply(&mut self, record: &Record) -> Result<(), Impossible> {
        self.check(record)?;
        match record {
            Record::Incarnation(record) => self.apply_incarnation(record),
            Record::Participant(record) => {
                self.participants.insert(record.name, record.clone());
            }
            Record::Commit(record) => self.apply_commit(record),
            // Coordinator and resolver may both have seen the last branch commit.
            Record::Done(id) => drop(self.open.remove(id)),
            Record::OnePhase(id) | Record::Witnessed(id) => {
                self.set_committed(*id);
            }
            // Two passes may have come to the same end at once.
            Record::Settled(incarnation, absence) => {
                let absence = self.absence(*incarnation, *absence);
                self.outcomes.entry(*incarnation).or_default().settled.get_or_insert(absence);
            }
            Record::Forgotten(id, _) => {
                self.audit.apply(record);
                // What was left to be done about it, the person has done.
                self.open.remove(id);
            }
            Record::Damaged(_) | Record::Resolved(..) | Record::Incomplete(..) | Record::GivenUp(..) => {
                self.audit.apply(record)
            }
        }
        Ok(())
    }

    /// Whether a record can follow those before it.
    ///
    /// # Errors
    /// The contradiction.
    pub fn check(&self, record: &Record) -> Result<(), Impossible> {
        let impossible = |what: String| Err(Impossible(what));
        self.audit.check(record)?;
        match record {
            Record::Incarnation(record) => self.check_incarnation(record),
            Record::Participant(_) => Ok(()),
            Record::Commit(record) => self.check_commit(record),
            Record::Done(id) if !self.is_committed(*id) => {
                impossible(format!("transaction {id} is done without having been decided"))
            }
            Record::Done(_) => Ok(()),
            Record::OnePhase(id) if self.open.contains_key(id) => {
                impossible(format!("transaction {id} is decided, and yet of one writer"))
            }
            Record::OnePhase(id) if self.is_committed(*id) => Ok(()),
            Record::OnePhase(id) => self.check_open(*id).map(drop),
            Record::Settled(incarnation, _) if !self.knows(*incarnation) => {
                impossible(format!("incarnation {incarnation} is settled and was never opened"))
            }
            Record::Settled(..) => Ok(()),
            Record::Witnessed(id) if self.is_committed(*id) => Ok(()),
            Record::Witnessed(id) => self.check_open(*id).map(drop),
            Record::Resolved(id, ..) if self.is_committed(*id) => {
                impossible(format!("transaction {id} has committed, and yet is resolved by hand"))
            }
            Record::Damaged(DamageRecord { transaction: id, .. })
            | Record::Resolved(id, ..)
            | Record::Forgotten(id, _) => self.check_own(*id).map(drop),
            Record::Incomplete(incarnation, _)
                if self.is_settled(*incarnation) && self.audit.incomplete(*incarnation).is_none() =>
            {
                impossible(format!("incarnation {incarnation} cannot have lost records: it is settled"))
            }
            // Before the incarnation itself is known: see `Journal::take_over`.
            Record::Incomplete(..) => Ok(()),
            Record::GivenUp(incarnation, participant, _) => {
                let opened = self.incarnations.get(incarnation);
                match opened.is_some_and(|opened| opened.participants.contains(participant)) {
                    true => Ok(()),
                    false => impossible(format!("incarnation {incarnation} never worked on {participant}")),
                }
            }
        }
    }

    /// Whether a transaction is one of this journal's, and of which opening.
    fn check_own(&self, id: TransactionId) -> Result<&IncarnationRecord, Impossible> {
        match self.incarnations.get(&id.incarnation) {
            Some(record) if record.node == id.node && id.sequence > 0 => Ok(record),
            _ => Err(Impossible(format!("transaction {id} is of no incarnation of this journal"))),
        }
    }

    /// An incarnation is opened once. Of one whose records were lost more participants may come to be known, by number.
    fn check_incarnation(&self, record: &IncarnationRecord) -> Result<(), Impossible> {
        let id = record.incarnation;
        let Some(known) = self.incarnations.get(&id) else { return Ok(()) };
        let both = known.participants.iter().zip(&record.participants);
        if self.audit.incomplete(id).is_none() {
            Err(Impossible(format!("incarnation {id} is opened a second time")))
        } else if known.node == record.node && both.into_iter().all(|(one, other)| one == other) {
            Ok(())
        } else {
            Err(Impossible(format!("incarnation {id} is taken over a second time, and otherwise")))
        }
    }

    fn apply_incarnation(&mut self, record: &IncarnationRecord) {
        let known = self.incarnations.entry(record.incarnation).or_insert_with(|| record.clone());
        if record.participants.len() > known.participants.len() {
            known.participants.clone_from(&record.participants);
        }
        known.opened_at_ms = known.opened_at_ms.max(record.opened_at_ms);
    }

    /// What no record means of a settled incarnation. Where records were lost, one that is missing proves nothing.
    fn absence(&self, incarnation: Incarnation, absence: Absence) -> Absence {
        if self.audit.incomplete(incarnation).is_some() { Absence::Unproven } else { absence }
    }

    fn check_commit(&self, record: &CommitRecord) -> Result<(), Impossible> {
        let id = record.transaction;
        let opened = self.check_open(id)?;
        if self.is_committed(id) {
            return Err(Impossible(format!("transaction {id} is decided a second time")));
        }
        if self.audit.resolved(id).is_some() || self.audit.forgotten(id).is_some() {
            return Err(Impossible(format!("transaction {id} is decided after a person has dealt with it")));
        }
        match record.branches.iter().find(|branch| branch.id.transaction != id || !is_numbered(opened, branch)) {
            Some(branch) => Err(Impossible(format!("{} is not a branch of {id} on {}", branch.id, branch.participant))),
            None => Ok(()),
        }
    }

    fn apply_commit(&mut self, record: &CommitRecord) {
        let CommitRecord { transaction: id, branches, payload } = record;
        let undone = CommitRecord { transaction: *id, branches: branches.clone(), payload: None };
        let replaced = self.open.insert(*id, undone);
        let is_new = self.set_committed(*id);
        assert!(replaced.is_none() && is_new, "a transaction is decided once");
        if let Some(Payload { key, bytes }) = payload {
            self.payloads.insert(key.clone(), (*id, bytes.clone()));
        }
    }

    /// Whether a transaction can have been begun, and can still be found to have committed.
    fn check_open(&self, id: TransactionId) -> Result<&IncarnationRecord, Impossible> {
        let opened = self.check_own(id)?;
        match self.is_settled(id.incarnation) {
            true => Err(Impossible(format!("transaction {id} commits after its incarnation was settled without it"))),
            false => Ok(opened),
        }
    }

    /// Whether that was not known before.
    fn set_committed(&mut self, id: TransactionId) -> bool {
        assert!(self.knows(id.incarnation), "checked by the caller");
        self.outcomes.entry(id.incarnation).or_default().committed.insert(id.sequence)
    }

    /// Adds an entry that was read: a record, or a part of a snapshot.
    ///
    /// # Errors
    /// If it contradicts those before it.
    pub fn apply_entry(&mut self, entry: &Entry) -> Result<(), Impossible> {
        match entry {
            Entry::Record(record) => self.apply(record),
            Entry::Mark | Entry::Next(_) => Ok(()),
            Entry::Header(_) => Err(Impossible("a header in the middle of a segment".into())),
            Entry::Outcomes(chunk) => self.apply_outcomes(chunk),
            Entry::Payload(id, _) if !self.is_committed(*id) => {
                Err(Impossible(format!("a payload of transaction {id}, which has not committed")))
            }
            Entry::Payload(id, Payload { key, bytes }) => {
                self.payloads.insert(key.clone(), (*id, bytes.clone()));
                Ok(())
            }
        }
    }

    fn apply_outcomes(&mut self, chunk: &OutcomeChunk) -> Result<(), Impossible> {
        if !self.knows(chunk.incarnation) || chunk.committed.contains(0) {
            return Err(Impossible(format!("outcomes that incarnation {} cannot have", chunk.incarnation)));
        }
        let settled = chunk.settled.map(|absence| self.absence(chunk.incarnation, absence));
        let known = self.outcomes.entry(chunk.incarnation).or_default();
        known.committed |= &chunk.committed;
        known.settled = known.settled.or(settled);
        Ok(())
    }

    /// Hands out the entries that bring an empty image to this state: incarnations and participants, then the open
    /// decisions, the outcomes of what is finished, the payloads. In this order: behind the outcomes of a settled
    /// incarnation none of its decisions can come.
    pub fn snapshot(&self, mut put: impl FnMut(Content<'_>)) {
        for record in self.incarnations.values() {
            put(Content::Record(&Record::Incarnation(record.clone())));
        }
        for record in self.participants.values() {
            put(Content::Record(&Record::Participant(record.clone())));
        }
        self.audit.snapshot(&mut put);
        for decision in self.open.values() {
            put(Content::Open(decision));
        }
        for (incarnation, known) in &self.outcomes {
            let mut finished = known.committed.clone();
            for id in self.open.keys().filter(|id| id.incarnation == *incarnation) {
                assert!(finished.remove(id.sequence), "an open decision is a commit");
            }
            let mut pieces = chunks(&finished);
            if pieces.is_empty() && known.settled.is_some() {
                pieces.push(RoaringTreemap::new());
            }
            for committed in pieces {
                put(Content::Outcomes(&OutcomeChunk { incarnation: *incarnation, settled: known.settled, committed }));
            }
        }
        for (key, (id, bytes)) in &self.payloads {
            put(Content::Payload(*id, key, bytes));
        }
    }
}

/// A branch's number is the index of its participant in the incarnation.
fn is_numbered(opened: &IncarnationRecord, branch: &DecidedBranch) -> bool {
    opened.participants.get(usize::from(branch.id.participant)) == Some(&branch.participant)
}

/// A bitmap in pieces that fit an entry each.
fn chunks(whole: &RoaringTreemap) -> Vec<RoaringTreemap> {
    let mut pieces = Vec::new();
    let mut from = whole.min();
    while let Some(first) = from {
        let last = first | (CHUNK - 1);
        let mut piece = RoaringTreemap::new();
        piece.insert_range(first..=last);
        piece &= whole;
        piece.optimize();
        assert!(!piece.is_empty(), "each piece begins with a member");
        pieces.push(piece);
        let mut rest = whole.iter();
        rest.advance_to(last);
        from = rest.find(|sequence| *sequence > last);
    }
    pieces
}
