//! When an earlier incarnation is settled: nothing of it can move any more, and what it left is known.
//!
//! A process that died leaves more behind than prepared branches. A `PREPARE` or a one-phase commit may still be on its
//! way to a server that has not noticed the death of its sender, and of a one-phase commit that was carried out the
//! note may have died with the process. So *no record* means nothing at first; each transaction has to be fenced off
//! before one may say that it was rolled back. [`Settling`] ends that for a whole incarnation, once:
//!
//! 1. *No decision comes any more.* Decisions are made by an incarnation's own process, which has the journal's lock; we
//!    have it now, and we are another incarnation. So whatever the journal lacks was never decided.
//! 2. *No request comes any more.* A server acts on what a session of the incarnation has sent. Each participant's
//!    sessions are ended and waited for; what was still on its way to them meets nobody. New ones cannot come: a session
//!    is named before it is given work, by a process that waits for the answer, and that process is gone.
//! 3. *So a list that is made afterwards is whole.* What those sessions have prepared is on it; what is not on it never
//!    will be. A list from before says nothing, since a request may have come in between. While anything is listed the
//!    incarnation is not settled: the branch can still go either way, by recovery's hand or a person's.
//! 4. *So are the witnesses that are read after that.* A row becomes visible when a session commits in one phase, which
//!    (2) excludes, or when a prepared branch commits, which (3) excludes. Read before the list, the row of a branch that
//!    somebody committed in between would be missed.
//! 5. *A witness without a record* is a lost note, when it is of a one-phase commit: it is remembered now. When it is of
//!    a decided branch, the journal lacks a decision that was made, which makes it an older copy: it is not settled, and
//!    a person is told. (Unless the incarnation has found out itself that somebody committed the branch by hand: then it
//!    is damage, remembered as such, and moves nothing. See `stale.rs`.)
//! 6. *Each participant for itself.* Nothing that is left on one can make anything move on another, so (2) to (4) may
//!    be true of each at another time. They must be true of all in the same pass, since nothing of it is remembered.
//! 7. *A participant that the journal knows no lineage of* was never used: lineages are journalled before the first
//!    branch begins there. It need not be reached.
//!
//! What is decided and open needs no condition. It has a record, and whether it is still to be proven or is damaged for
//! good, nothing else depends on it: recovery goes on with it as before. Requests of a dead process's *resolver* need
//! none either: a late commit is of a decided branch, a late rollback of one that is on the list, or gone, and a late
//! fence says of what never committed that it never will.
//!
//! Without witnesses (5) cannot be done. Then the incarnation is settled all the same, nothing of it moves, and what no
//! record means is [`Absence::Unproven`]. Three more cases end there, or are told otherwise:
//!
//! * *A participant was given up*: its server is gone, or other data was accepted in its place. What it did cannot be
//!   found out any more, so it need not be reached, and counts as one without witnesses.
//! * *Records of the incarnation were lost.* Then a decided witness without a record is what was to be expected: it is
//!   taken over as [`Record::Witnessed`], and contradicts nothing. But a record that was lost may have been of a
//!   transaction whose witness was pruned since, so no record never means rolled back.
//! * *A person decided.* A witness that agrees is nothing new. One of a transaction that was to be rolled back is damage.
//!   It has to be remembered before the incarnation is settled, since settled witnesses are pruned: so it is
//!   [told](Verdict::Refuted) as long as the memory does not call it damaged. One that was [`Recalled::Forgotten`] is told
//!   no more, whatever its witnesses say.

use super::observation::{Memory, Recalled};
use super::table::Evidence;
use crate::id::{BranchId, Incarnation, NodeName, ParticipantName, TransactionId};
use crate::protocol::message::{Absence, IncarnationRecord, Record, Resolution};
use std::collections::{BTreeMap, BTreeSet};

/// So many contradictions are told of one incarnation; a person who has seen these knows.
const TOLD: usize = 100;

/// How far an incarnation is on its way to be settled. The order in which things are to be found out on each participant
/// is asserted: sessions, list, witnesses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settling {
    incarnation: Incarnation,
    node: NodeName,
    /// By number.
    places: Vec<(ParticipantName, Place)>,
    /// Whether its records may have been lost.
    incomplete: bool,
    /// Those of its transactions whose damage is remembered.
    damaged: BTreeSet<TransactionId>,
    /// Those of which it has found that itself: it never decided them.
    undecided: BTreeSet<TransactionId>,
    /// Commits that the memory does not know, by sequence.
    lost: BTreeMap<u64, Evidence>,
    /// Branches with witnesses of decisions that the memory does not know.
    against: BTreeSet<BranchId>,
    /// Branches that have committed, though a person decided otherwise.
    refuting: BTreeSet<BranchId>,
}

/// What is known of a participant, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Unasked,
    OutOfReach(String),
    /// Its sessions are gone.
    Silent,
    /// And these branches were listed after that.
    Holds(BTreeSet<BranchId>),
    /// Or none.
    Empty,
    /// And its witnesses were read after that; whether it kept any.
    Read(bool),
    /// Nothing was ever there.
    Unused,
    /// What was there is out of reach for good.
    GivenUp,
}

/// Whether an incarnation is settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is; this is what no record means from now on.
    Settled(Absence),
    /// It is not, because of this participant; it may be in a later pass.
    Waits(ParticipantName, Why),
    /// The witnesses of these branches prove decisions that the journal does not hold.
    Contradicted(BTreeSet<BranchId>),
    /// These branches have committed, and a person decided that their transactions are rolled back: damage, which has
    /// to be remembered first. Say [`Observation::contradicted`](super::Observation::contradicted) of each, and plan.
    Refuted(BTreeSet<BranchId>),
}

/// Why an incarnation has to wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// The participant could not be asked all of it: the cause, for people.
    OutOfReach(String),
    /// These branches are still prepared there.
    Holds(BTreeSet<BranchId>),
}

impl Settling {
    /// Nothing is known yet but what is remembered.
    pub fn new(memory: &dyn Memory, opened: &IncarnationRecord) -> Self {
        let IncarnationRecord { incarnation, node, .. } = *opened;
        let place = |name| if memory.is_given_up(incarnation, name) { Place::GivenUp } else { Place::Unasked };
        let damaged: Vec<_> =
            memory.damaged().into_iter().filter(|record| record.transaction.incarnation == incarnation).collect();
        let undecided = damaged.iter().filter(|record| record.found_by == incarnation);
        Self {
            incarnation,
            node,
            places: opened.participants.iter().map(|name| (*name, place(*name))).collect(),
            incomplete: memory.is_incomplete(incarnation),
            undecided: undecided.map(|record| record.transaction).collect(),
            damaged: damaged.into_iter().map(|record| record.transaction).collect(),
            lost: BTreeMap::new(),
            against: BTreeSet::new(),
            refuting: BTreeSet::new(),
        }
    }

    /// Which.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Its participants, by number.
    pub fn participants(&self) -> impl Iterator<Item = (u16, ParticipantName)> {
        let number = |index: usize| u16::try_from(index).expect("participants are numbered by u16 in every branch id");
        self.places.iter().enumerate().map(move |(index, (name, _))| (number(index), *name))
    }

    /// The incarnation never worked on this participant.
    pub fn unused(&mut self, participant: ParticipantName) {
        self.advance(participant, |before| before == &Place::Unasked, Place::Unused);
    }

    /// A question to this participant had no answer: what it showed before does not count.
    pub fn out_of_reach(&mut self, participant: ParticipantName, cause: String) {
        self.advance(participant, |before| before != &Place::Unused, Place::OutOfReach(cause));
    }

    /// All its sessions there are gone.
    pub fn silent(&mut self, participant: ParticipantName) {
        self.advance(participant, |before| before == &Place::Unasked, Place::Silent);
    }

    /// The whole list of branches there, made after its sessions were gone. Those of other incarnations are nothing to
    /// it; its own count whatever participant's they are, since a server lists all of its databases.
    pub fn listed(&mut self, participant: ParticipantName, branches: &BTreeSet<BranchId>) {
        let ours = |id: &&BranchId| id.transaction.incarnation == self.incarnation && id.transaction.node == self.node;
        let held: BTreeSet<_> = branches.iter().filter(ours).copied().collect();
        let place = if held.is_empty() { Place::Empty } else { Place::Holds(held) };
        self.advance(participant, |before| before == &Place::Silent, place);
    }

    /// Whether nothing but the witnesses is missing.
    pub fn awaits_witnesses(&self) -> bool {
        self.places
            .iter()
            .all(|(_, place)| matches!(place, Place::Empty | Place::Unused | Place::GivenUp | Place::Read(_)))
    }

    /// Whether this participant's witnesses are to be read.
    pub fn is_read_next(&self, participant: ParticipantName) -> bool {
        let empty = self.places.iter().any(|(name, place)| *name == participant && *place == Place::Empty);
        empty && self.awaits_witnesses() && self.against.is_empty() && self.refuting.is_empty()
    }

    /// A witness that was read there, after nothing was listed.
    pub fn witness(&mut self, memory: &dyn Memory, participant: u16, sequence: u64, evidence: Evidence) {
        let (_, place) = &self.places[usize::from(participant)];
        assert!(*place == Place::Empty, "witnesses are read after the list, and before all is read");
        let id = TransactionId { node: self.node, incarnation: self.incarnation, sequence };
        // Sequences begin at 1: what is kept under 0 is of no transaction.
        if sequence == 0 || !evidence.is_commit() {
            return;
        }
        let branch = id.branch(participant, 0);
        let set = match memory.recall(id) {
            Recalled::Nothing if self.incomplete || evidence == Evidence::CommittedAlone => {
                self.lost.insert(sequence, evidence);
                return;
            }
            Recalled::Nothing if self.undecided.contains(&id) => return,
            Recalled::Nothing => &mut self.against,
            Recalled::Resolved(Resolution::RollBack) if !self.damaged.contains(&id) => &mut self.refuting,
            _ => return,
        };
        if set.len() < TOLD {
            set.insert(branch);
        }
    }

    /// All witnesses there were read; whether its branches left any.
    pub fn read(&mut self, participant: ParticipantName, kept: bool) {
        self.advance(participant, |before| before == &Place::Empty, Place::Read(kept));
    }

    /// What was found to have committed and is to be remembered, before [`verdict`](Self::verdict) is.
    pub fn take_lost(&mut self) -> impl Iterator<Item = Record> + use<> {
        let (node, incarnation) = (self.node, self.incarnation);
        let id = move |sequence| TransactionId { node, incarnation, sequence };
        std::mem::take(&mut self.lost).into_iter().map(move |(sequence, evidence)| match evidence {
            Evidence::CommittedAlone => Record::OnePhase(id(sequence)),
            _ => Record::Witnessed(id(sequence)),
        })
    }

    /// Whether it is settled.
    ///
    /// # Panics
    /// When something found was not [taken](Self::take_lost).
    pub fn verdict(&self) -> Verdict {
        assert!(self.lost.is_empty(), "what was found is remembered first");
        if !self.against.is_empty() {
            return Verdict::Contradicted(self.against.clone());
        }
        if !self.refuting.is_empty() {
            return Verdict::Refuted(self.refuting.clone());
        }
        let mut absence = if self.incomplete { Absence::Unproven } else { Absence::RolledBack };
        for (name, place) in &self.places {
            match place {
                Place::Unused | Place::Read(true) => {}
                Place::Read(false) | Place::GivenUp => absence = Absence::Unproven,
                Place::OutOfReach(cause) => return Verdict::Waits(*name, Why::OutOfReach(cause.clone())),
                Place::Holds(held) => return Verdict::Waits(*name, Why::Holds(held.clone())),
                Place::Unasked | Place::Silent | Place::Empty => {}
            }
        }
        let unread = |place: &Place| matches!(place, Place::Unasked | Place::Silent | Place::Empty);
        match self.places.iter().find(|(_, place)| unread(place)) {
            Some((name, _)) => Verdict::Waits(*name, Why::OutOfReach(String::from("it was not asked"))),
            None => Verdict::Settled(absence),
        }
    }

    fn advance(&mut self, participant: ParticipantName, fits: impl Fn(&Place) -> bool, place: Place) {
        let mut named = self.places.iter_mut().filter(|(name, _)| *name == participant);
        let (_, before) = named.next().expect("only the incarnation's own participants are asked");
        // Other data may answer to its name.
        if *before == Place::GivenUp {
            return;
        }
        assert!(fits(before), "{participant}: {place:?} after {before:?}");
        *before = place;
    }
}

#[cfg(test)]
mod tests;
