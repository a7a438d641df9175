//! The database in memory: its rows, locks, sessions and prepared branches, as a value under one lock.

use super::{Fault, Step};
use crate::config::Decision;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{BranchId, Incarnation, JournalId, Lineage, NodeName, ParticipantName, SessionName};
use crate::participant::lease;
use crate::participant::witness::{Key, Kind, PAGE, Witnessed};
use crate::participant::{Claim, Evidence, Prunable, Question, Registered};
use crate::protocol::Vote;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

#[derive(Default)]
pub(super) struct State {
    pub(super) next: u64,
    pub(super) rows: BTreeMap<i64, i64>,
    pub(super) witness: BTreeMap<Key, Kind>,
    /// What the witnesses of an anchor decide: they count as long as those are there.
    pub(super) decisions: BTreeMap<Key, String>,
    /// The entries of an anchor.
    pub(super) kept: BTreeMap<(NodeName, String), Vec<u8>>,
    pub(super) lineage: Option<Lineage>,
    pub(super) incarnations: BTreeMap<(NodeName, Incarnation, u16), Row>,
    /// Who works in a node's name on a participant.
    pub(super) leases: BTreeMap<LeaseKey, Holder>,
    pub(super) sessions: BTreeMap<u64, Session>,
    pub(super) prepared: BTreeMap<String, Work>,
    /// Which transaction holds a row, and which waits for one.
    pub(super) locks: BTreeMap<i64, u64>,
    pub(super) waits: BTreeMap<u64, i64>,
    pub(super) faults: BTreeMap<Step, VecDeque<Fault>>,
    pub(super) calls: BTreeMap<Step, u64>,
}

/// A node on a participant; an incarnation of it where several share the node.
pub(super) type LeaseKey = (NodeName, ParticipantName, Option<Incarnation>);

/// The registration of an incarnation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) journal: JournalId,
    pub(super) decision: Decision,
    pub(super) host: String,
    pub(super) opened: Instant,
}

/// The resolver that has a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) resolver: u64,
    pub(super) incarnation: Incarnation,
    /// Another number for each taking.
    pub(super) taken: u64,
}

pub(super) struct Session {
    pub(super) name: SessionName,
    pub(super) work: Option<Work>,
}

/// A transaction's work.
pub(super) struct Work {
    pub(super) number: u64,
    /// The branch it was begun for: the guard.
    pub(super) marker: Option<BranchId>,
    pub(super) writable: bool,
    pub(super) failed: bool,
    pub(super) writes: BTreeMap<i64, i64>,
    pub(super) witness: Option<(Key, Kind)>,
}

pub(super) fn lost() -> Error {
    Error::new(ErrorKind::Unavailable, "the session is lost")
}

pub(super) fn failed() -> Error {
    Error::new(ErrorKind::Statement, "a statement failed: the transaction can only be rolled back")
}

impl State {
    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Takes a lease, from an earlier resolver of the same incarnation if need be.
    pub(super) fn hold(&mut self, name: ParticipantName, claim: Claim, resolver: u64) -> Result<()> {
        let key = (claim.node, name, claim.shared.then_some(claim.incarnation));
        match self.leases.get(&key) {
            Some(found) if found.incarnation != claim.incarnation => {
                Err(self.describe(claim.node, found.incarnation).refuse(name, &claim, std::time::Duration::ZERO))
            }
            Some(found) if found.resolver == resolver => Ok(()),
            Some(_) | None => {
                let taken = self.number();
                self.leases.insert(key, Holder { resolver, incarnation: claim.incarnation, taken });
                Ok(())
            }
        }
    }

    fn describe(&self, node: NodeName, holder: Incarnation) -> lease::Holder {
        let row = self.incarnations.iter().find(|((of, incarnation, _), _)| (*of, *incarnation) == (node, holder));
        let registered = row.map(|(_, row)| (holder, row.host.clone(), row.opened.elapsed()));
        lease::Holder { incarnation: Some(holder), from: None, registered }
    }

    pub(super) fn begin(&mut self, session: u64, marker: Option<BranchId>, writable: bool) -> Result<()> {
        let number = self.number();
        let session = self.sessions.get_mut(&session).ok_or_else(lost)?;
        let work = Work { number, marker, writable, failed: false, writes: BTreeMap::new(), witness: None };
        session.work = Some(work);
        Ok(())
    }

    pub(super) fn work(&mut self, session: u64) -> Result<&mut Work> {
        let none = || Error::new(ErrorKind::Statement, "no transaction is open");
        self.sessions.get_mut(&session).ok_or_else(lost)?.work.as_mut().ok_or_else(none)
    }

    pub(super) fn take_work(&mut self, session: u64) -> Option<Work> {
        self.sessions.get_mut(&session)?.work.take()
    }

    pub(super) fn apply(&mut self, work: Work) {
        self.locks.retain(|_, holder| *holder != work.number);
        self.rows.extend(work.writes);
        self.witness.extend(work.witness);
    }

    pub(super) fn discard(&mut self, work: &Work) {
        self.locks.retain(|_, holder| *holder != work.number);
        self.waits.remove(&work.number);
    }

    pub(super) fn end_session(&mut self, session: u64) -> bool {
        let Some(ended) = self.sessions.remove(&session) else { return false };
        if let Some(work) = ended.work {
            self.discard(&work);
        }
        true
    }

    pub(super) fn end_sessions(&mut self, participant: u16, incarnations: &[Incarnation]) -> usize {
        let ours = |name: SessionName| name.participant == participant && incarnations.contains(&name.incarnation);
        let named = |(number, session): (&u64, &Session)| ours(session.name).then_some(*number);
        let sessions: Vec<_> = self.sessions.iter().filter_map(named).collect();
        sessions.into_iter().filter(|session| self.end_session(*session)).count()
    }

    pub(super) fn witnessed(&self, participant: u16, incarnations: &[Incarnation], from: u64) -> Vec<Witnessed> {
        let wanted = |key: &&Key| {
            let sequence = key.sequence.cast_unsigned();
            let incarnation = Incarnation::from_sql(key.incarnation);
            key.branch == i32::from(participant) && sequence >= from && incarnations.contains(&incarnation)
        };
        let row = |(key, kind): (&Key, &Kind)| Witnessed {
            incarnation: Incarnation::from_sql(key.incarnation),
            sequence: key.sequence.cast_unsigned(),
            kind: *kind,
        };
        self.witness.iter().filter(|(key, _)| wanted(key)).map(row).take(PAGE).collect()
    }

    pub(super) fn registry(&self) -> Vec<Registered> {
        let row = |((node, incarnation, participant), row): (&(NodeName, Incarnation, u16), &Row)| Registered {
            node: *node,
            incarnation: *incarnation,
            participant: *participant,
            journal: row.journal,
            decision: Some(row.decision),
            host: row.host.clone(),
            age: row.opened.elapsed(),
        };
        self.incarnations.iter().map(row).collect()
    }

    /// Removes a page of rows: whether there may be more.
    pub(super) fn prune(&mut self, what: Prunable) -> bool {
        let (of, number) = match what {
            Prunable::Witnesses { incarnation, participant, .. } | Prunable::Settled { incarnation, participant } => {
                (incarnation, participant)
            }
        };
        let is_wanted = |key: &Key, kind: Kind| match what {
            Prunable::Witnesses { below, .. } => {
                let is_witness = matches!(kind, Kind::Decided | Kind::OnePhase | Kind::Anchor);
                is_witness && (1..below).contains(&key.sequence.cast_unsigned())
            }
            Prunable::Settled { .. } => true,
        };
        let ours = |key: &Key| key.incarnation == of.to_sql() && key.branch == i32::from(number);
        let wanted = self.witness.iter().filter(|(key, kind)| ours(key) && is_wanted(key, **kind));
        let page: BTreeSet<_> = wanted.map(|(key, _)| *key).take(PAGE).collect();
        self.witness.retain(|key, _| !page.contains(key));
        let is_whole = page.len() < PAGE;
        if is_whole && matches!(what, Prunable::Settled { .. }) {
            self.incarnations.retain(|(_, incarnation, participant), _| (*incarnation, *participant) != (of, number));
        }
        !is_whole
    }

    /// Whether waiting for a row would close a circle of transactions that wait for each other.
    pub(super) fn is_deadlock(&self, waiting: u64, row: i64) -> bool {
        let mut seen = BTreeSet::new();
        let mut row = row;
        while let Some(holder) = self.locks.get(&row) {
            if *holder == waiting {
                return true;
            }
            match self.waits.get(holder) {
                Some(next) if seen.insert(*holder) => row = *next,
                _ => return false,
            }
        }
        false
    }

    /// One attempt to write: `None` means wait.
    pub(super) fn write(&mut self, session: u64, row: i64, value: i64) -> Option<Result<()>> {
        let work = match self.work(session) {
            Ok(work) if work.failed || !work.writable => return Some(self.fail(session, failed())),
            Ok(work) => work.number,
            Err(error) => return Some(Err(error)),
        };
        match self.locks.get(&row) {
            Some(holder) if *holder != work => {
                if self.is_deadlock(work, row) {
                    return Some(self.fail(session, Error::new(ErrorKind::Retry, "deadlock")));
                }
                self.waits.insert(work, row);
                None
            }
            _ => {
                self.waits.remove(&work);
                self.locks.insert(row, work);
                Some(self.work(session).map(|work| {
                    work.writes.insert(row, value);
                }))
            }
        }
    }

    pub(super) fn fail(&mut self, session: u64, error: Error) -> Result<()> {
        let work = self.work(session)?;
        work.failed = true;
        let number = work.number;
        self.waits.remove(&number);
        Err(error)
    }

    /// Takes the branch's transaction off its session, when it is still the one that was begun and unharmed.
    pub(super) fn guarded(&mut self, session: u64, branch: &BranchId) -> Result<Work, Vote> {
        if !self.sessions.contains_key(&session) {
            return Err(Vote::Unknown);
        }
        let Some(work) = self.take_work(session) else { return Err(Vote::Lost) };
        let vote = match work.marker {
            Some(marker) if marker == *branch && !work.failed => return Ok(work),
            Some(marker) if marker == *branch => Vote::No,
            _ => Vote::Lost,
        };
        self.discard(&work);
        Err(vote)
    }

    /// Gives the work its witness, unless a fence or another's witness is in its place.
    pub(super) fn attest(&mut self, mut work: Work, branch: &BranchId, kind: Kind, on: bool) -> Result<Work, Vote> {
        if !work.writable || self.witness.contains_key(&Key::from(branch)) {
            self.discard(&work);
            return Err(Vote::No);
        }
        work.witness = on.then(|| (Key::from(branch), kind));
        Ok(work)
    }

    pub(super) fn prepare(&mut self, session: u64, branch: &BranchId, witness: bool) -> Result<(), Vote> {
        let work = self.guarded(session, branch)?;
        let work = self.attest(work, branch, Kind::Decided, witness)?;
        self.prepared.insert(branch.to_string(), work);
        Ok(())
    }

    pub(super) fn commit_one_phase(&mut self, session: u64, branch: &BranchId, witness: bool) -> Result<(), Vote> {
        let work = self.guarded(session, branch)?;
        let work = self.attest(work, branch, Kind::OnePhase, witness)?;
        self.apply(work);
        Ok(())
    }

    pub(super) fn commit_anchor(&mut self, session: u64, branch: &BranchId, listing: String) -> Result<(), Vote> {
        let work = self.guarded(session, branch)?;
        let work = self.attest(work, branch, Kind::Anchor, true)?;
        self.decisions.insert(Key::from(branch), listing);
        self.apply(work);
        Ok(())
    }

    pub(super) fn commit_prepared(&mut self, name: &str) -> Result<()> {
        let work = self.prepared.remove(name).ok_or_else(|| unknown(name))?;
        self.apply(work);
        Ok(())
    }

    pub(super) fn roll_back_prepared(&mut self, name: &str) -> Result<()> {
        let work = self.prepared.remove(name).ok_or_else(|| unknown(name))?;
        self.discard(&work);
        Ok(())
    }

    pub(super) fn ask(&mut self, branch: &BranchId, question: Question) -> Evidence {
        let key = Key::from(branch);
        if let Some(kind) = self.witness.get(&key) {
            return kind.evidence();
        }
        let ours = Key::of_incarnation(branch.transaction.incarnation, branch.participant);
        if self.witness.contains_key(&ours) {
            return Evidence::Off;
        }
        let held = self.prepared.values().any(|work| work.witness.is_some_and(|(held, _)| held == key));
        match question {
            Question::Look => Evidence::Nothing,
            Question::Fence if held => Evidence::Blocked,
            Question::Fence => {
                self.witness.insert(key, Kind::Fence);
                Evidence::Never
            }
        }
    }
}

pub(super) fn unknown(name: &str) -> Error {
    Error::new(ErrorKind::Statement, format!("prepared branch {name} does not exist"))
}
