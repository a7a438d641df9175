//! What recovery works from: what is remembered, and what was seen.

use super::table::Evidence;
use crate::id::{BranchId, Incarnation, Lineage, ParticipantName, TransactionId};
use crate::protocol::message::{Absence, CommitRecord, DamageRecord, IncarnationRecord, Resolution};
use std::collections::{BTreeMap, BTreeSet};

/// What is remembered: the journal, and the coordinators at work in this process.
pub trait Memory {
    /// The record of an incarnation of this journal; `None` makes it foreign.
    fn incarnation(&self, incarnation: Incarnation) -> Option<IncarnationRecord>;

    /// The number of the participant whose rows are the decisions of an incarnation, its anchor; `None`: they are in the
    /// journal. Of an anchor's rows [`recall`](Self::recall) knows those that were read. When [`Action::Ask`] of the
    /// anchor is answered with [`Evidence::Committed`] its row has been read before the next plan is made.
    ///
    /// [`Action::Ask`]: super::Action::Ask
    fn anchor(&self, _: Incarnation) -> Option<u16> {
        None
    }

    /// Whether a coordinator of this process is at work on it: from before its first branch begins until the
    /// coordinator is finished and what it left in the journal can be recalled. Where several processes share an anchor,
    /// whether any is: the lock of its incarnation is held.
    fn is_live(&self, transaction: TransactionId) -> bool;

    /// What the journal holds of it, durably.
    fn recall(&self, transaction: TransactionId) -> Recalled;

    /// What no record means of a transaction of an incarnation that is settled; `None` while something of it may move.
    fn settled(&self, incarnation: Incarnation) -> Option<Absence>;

    /// All decisions that are not done yet.
    fn open_decisions(&self) -> Vec<CommitRecord>;

    /// The damaged transactions that nobody has dealt with yet.
    fn damaged(&self) -> Vec<DamageRecord>;

    /// Whether records of an incarnation may have been lost, so that no record means nothing.
    fn is_incomplete(&self, incarnation: Incarnation) -> bool;

    /// Whether the process of this incarnation may be at work: what it decides may be younger than what is remembered.
    fn is_at_work(&self, incarnation: Incarnation) -> bool;

    /// Whether what an incarnation left on a participant is out of reach for good.
    fn is_given_up(&self, incarnation: Incarnation, participant: ParticipantName) -> bool;
}

/// What the journal holds of a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Recalled {
    /// No record. Unless it is live, none will come: presumed abort.
    Nothing,
    /// The write of its decision failed, and the journal was not opened again since.
    Unsure,
    /// A decision that is not done yet.
    Decided(CommitRecord),
    /// A decision that is done.
    Finished,
    /// It was committed by its only writer.
    OnePhase,
    /// A person decided.
    Resolved(Resolution),
    /// It was damaged, and a person has dealt with it.
    Forgotten,
}

/// What a participant answered when it was asked for all prepared branches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Scan {
    /// The whole list.
    Whole {
        /// The identity of the data there.
        lineage: Lineage,
        /// The branches whose text is one of ours. Whether their incarnations are this journal's is for the plan to
        /// say.
        branches: BTreeSet<BranchId>,
        /// The others, as text.
        foreign: BTreeSet<String>,
    },
    /// Not a whole list, whatever arrived of it: unreachable, cut short, refused.
    Failed {
        /// Why, for people.
        cause: String,
    },
}

/// What was seen in a pass: scans first, then evidence about what they do not show.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Observation {
    /// The transactions that were decided before the first scan: only of these does *not listed* say anything.
    pub(super) decided_before: BTreeSet<TransactionId>,
    /// By participant; a participant that is missing here was not scanned.
    pub(super) scans: BTreeMap<ParticipantName, Scan>,
    /// By branch; gathered after the scans.
    pub(super) evidence: BTreeMap<BranchId, Evidence>,
    /// Branches that the scans show no longer, and why.
    pub(super) unclear: BTreeMap<BranchId, String>,
    /// Participants that have answered in this pass, and are out of sight since.
    pub(super) answered: BTreeSet<ParticipantName>,
    /// Transactions of which a prepared branch was rolled back in this pass: no single writer has decided them.
    pub(super) undone: BTreeSet<TransactionId>,
}

impl Observation {
    /// Begins a pass, before its first scan. What is decided by now is read from the memory: the branches of a
    /// later decision may have been prepared after they were looked for.
    pub fn new(memory: &dyn Memory) -> Self {
        let decided_before = memory.open_decisions().into_iter().map(|decision| decision.transaction).collect();
        Self {
            decided_before,
            scans: BTreeMap::new(),
            evidence: BTreeMap::new(),
            unclear: BTreeMap::new(),
            answered: BTreeSet::new(),
            undone: BTreeSet::new(),
        }
    }

    /// Adds a participant's scan.
    ///
    /// # Panics
    /// When it was scanned before: a new pass begins with a new observation.
    pub fn scanned(&mut self, participant: ParticipantName, scan: Scan) {
        assert!(self.evidence.is_empty(), "evidence is gathered after all scans");
        let before = self.scans.insert(participant, scan);
        assert!(before.is_none(), "{participant} was scanned before");
    }

    /// Somebody wants to know what became of this branch: a coordinator left it, or its outcome was asked for.
    pub fn want(&mut self, branch: BranchId) {
        self.evidence.entry(branch).or_insert(Evidence::Wanted);
    }

    /// The answer to [`Action::Ask`](super::Action::Ask), or to a look without a fence.
    pub fn heard(&mut self, branch: BranchId, evidence: Evidence) {
        let before = self.evidence.insert(branch, evidence);
        let open = matches!(before, None | Some(Evidence::Wanted | Evidence::NotAsked | Evidence::Nothing));
        assert!(open, "{branch}: {evidence:?} after {before:?}: answers of one pass are final");
    }

    /// A witness of a decision that no record holds was read, beside the plan's own questions.
    pub fn contradicted(&mut self, branch: BranchId) {
        self.evidence.insert(branch, Evidence::Committed);
    }

    /// The server's positive answer to our commit: proof. Where a positive answer is none, say
    /// [`gone`](Self::gone), and its witness will be asked for.
    pub fn committed(&mut self, branch: BranchId) {
        self.gone(branch);
        self.heard(branch, Evidence::Committed);
    }

    /// The server's positive answer to our rollback.
    pub fn rolled_back(&mut self, branch: BranchId) {
        self.gone(branch);
        self.undone.insert(branch.transaction);
    }

    /// The branch is not prepared any more.
    pub fn gone(&mut self, branch: BranchId) {
        for scan in self.scans.values_mut() {
            if let Scan::Whole { branches, .. } = scan {
                branches.remove(&branch);
            }
        }
    }

    /// What the scans show of this branch holds no longer: an action on it was refused. It is looked for again in the
    /// next pass; what was seen of other branches stands, so that one that is stuck does not hold them up.
    pub fn unclear(&mut self, branch: BranchId, cause: String) {
        self.unclear.insert(branch, cause);
    }

    /// What the participant listed holds no longer: an action there had no answer. It is scanned again in the next
    /// pass.
    pub fn lost_sight(&mut self, participant: ParticipantName, cause: String) {
        let before = self.scans.insert(participant, Scan::Failed { cause });
        match before.expect("only a participant that was in sight can be lost") {
            Scan::Whole { .. } => drop(self.answered.insert(participant)),
            Scan::Failed { .. } => {}
        }
    }
}
