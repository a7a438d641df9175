//! The coordinator of one transaction, as a value: it is told an [`Input`], it asks for [`Output`]s.
//!
//! [`handle`](Coordinator::handle) holds every transition in one match. Whoever drives it keeps one rule: after each
//! input, [`poll`](Coordinator::poll) until it is empty, and start what comes out in that order. Nothing that must
//! wait for an answer comes out before the answer went in, so there is no other order to keep.
//!
//! Time is outside. A deadline is [`Input::Abort`]. A driver that will not wait longer for a branch answers in the
//! branch's place, `Unknown`, and the branch is left to recovery; the real answer may still come and is ignored.

use super::message::{
    Acknowledge, Branch, CommitRecord, DamagedBranch, DecidedBranch, Finish, Input, Mode, Outcome, Output, Payload,
    Record, Vote,
};
use crate::id::{BranchId, TransactionId};
use std::collections::VecDeque;

/// Where the transaction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// The application works; nothing was asked of any branch.
    Working,
    /// Phase one: some votes are still out.
    Voting,
    /// The decision is with the journal. Nothing can abort any more, nothing may commit yet.
    Deciding,
    /// A writer decides by its own commit: the only one, or the anchor, for which the others are prepared.
    Alone,
    /// The transaction is committed; phase two is under way or over.
    Committing,
    /// No decision was made and none will be.
    RollingBack,
    /// The journal failed while the decision was with it, or the writer that decides gave no answer. What became of the
    /// decision, recovery finds out.
    Abandoned,
}

/// Where a branch is, as far as the coordinator heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    /// The application works on it.
    Active,
    /// Its vote is out.
    Asked,
    /// It promised.
    Prepared,
    /// It was told to commit, with or without a promise.
    Committing,
    /// It was told to roll back.
    RollingBack,
    /// It ended, and said so.
    Settled,
    /// Its session is closed; whatever is left of it is recovery's.
    Left,
}

/// Two-phase commit for one transaction.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Coordinator {
    transaction: TransactionId,
    branches: Vec<(Branch, Stage)>,
    acknowledge: Acknowledge,
    payload: Option<Payload>,
    /// The branch whose commit is the decision, where no journal has it.
    anchor: Option<BranchId>,
    phase: Phase,
    answer: Option<Outcome>,
    /// How much damage is on its way into the journal.
    unremembered: u8,
    outputs: VecDeque<Output>,
}

impl Coordinator {
    /// A coordinator of a transaction whose branches the application has finished working on, or may have to give
    /// up. A payload makes a decision record necessary, whatever the branches.
    ///
    /// # Panics
    /// When a branch is another transaction's, or comes twice.
    pub fn new(
        transaction: TransactionId,
        branches: Vec<Branch>,
        acknowledge: Acknowledge,
        payload: Option<Payload>,
    ) -> Self {
        for (index, branch) in branches.iter().enumerate() {
            assert_eq!(branch.id.transaction, transaction, "a branch of another transaction");
            let same = |other: &Branch| other.id.participant == branch.id.participant;
            assert!(!branches[..index].iter().any(same), "two branches on one participant");
        }
        let branches = branches.into_iter().map(|branch| (branch, Stage::Active)).collect();
        let (phase, outputs) = (Phase::Working, VecDeque::new());
        let (anchor, answer) = (None, None);
        Self { transaction, branches, acknowledge, payload, anchor, phase, answer, unremembered: 0, outputs }
    }

    /// The same, with the decision in a row that this branch commits, and not in the journal.
    ///
    /// # Panics
    /// When there is something to decide for several, and this is none of its writers.
    #[must_use]
    pub fn anchored(mut self, anchor: BranchId) -> Self {
        assert_eq!(self.phase, Phase::Working);
        let writes = self.writers().any(|(branch, _)| branch.id == anchor);
        assert!(writes || !self.needs_record(), "{anchor} cannot decide: it is no writer of {}", self.transaction);
        self.anchor = Some(anchor);
        self
    }

    /// What is to be done next; `None` until the next input.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Whether everything was asked for, answered and handed out: no input makes a difference any more.
    pub fn is_finished(&self) -> bool {
        let over = |stage: &Stage| matches!(stage, Stage::Settled | Stage::Left);
        let told = self.answer.is_some() && self.unremembered == 0;
        told && self.outputs.is_empty() && self.branches.iter().all(|(_, stage)| over(stage))
    }

    /// The answer that was given to the application, if it was.
    pub fn answer(&self) -> Option<Outcome> {
        self.answer
    }

    /// The transaction.
    pub fn transaction(&self) -> TransactionId {
        self.transaction
    }

    /// The branches of a committed transaction that have not said that they did: what `Committed` is still to be
    /// applied on. Empty for every other transaction.
    pub fn pending(&self) -> impl Iterator<Item = &Branch> {
        let committed = self.phase == Phase::Committing;
        let open = move |(_, stage): &&(Branch, Stage)| committed && *stage != Stage::Settled;
        self.branches.iter().filter(open).map(|(branch, _)| branch)
    }

    /// Takes one input. All transitions are here.
    ///
    /// # Panics
    /// On an input that no correct driver or participant can produce, such as a vote that was not asked for.
    pub fn handle(&mut self, input: Input) {
        use Input::{Abort, AppendFailed, Commit, Durable, Finished, Remembered, Voted};
        use Phase::{Abandoned, Alone, Committing, Deciding, RollingBack, Voting, Working};

        match (self.phase, input) {
            // A branch that was left has no say: what it had sent before its session was closed may still arrive.
            (_, Voted(id, _) | Finished(id, _)) if self.stage(id) == Stage::Left => {}

            (Working, Commit) => self.request_votes(),
            // The deadline was first; the application has its answer already.
            (RollingBack, Commit) => {}

            (Working, Abort) => self.abort(Outcome::RolledBack),
            (Voting, Abort) => {
                self.leave_the_silent();
                self.abort(Outcome::RolledBack);
            }
            (RollingBack, Abort) => self.leave_the_silent(),
            // From the hand-over of the decision on, nothing aborts.
            (Deciding | Alone | Committing | Abandoned, Abort) => {}

            (Voting, Voted(id, Vote::Prepared)) => self.agree(id, Mode::Writer, Stage::Prepared),
            (Voting, Voted(id, Vote::ReadOnly)) => self.agree(id, Mode::ReadOnly, Stage::Settled),
            (Voting, Voted(id, Vote::No)) => {
                self.roll_back_voter(id);
                self.abort(Outcome::RolledBack);
            }
            (Voting, Voted(id, Vote::Unknown)) => {
                self.leave(id, Stage::Asked);
                self.abort(Outcome::RolledBack);
            }
            (Voting, Voted(id, Vote::Lost)) => {
                self.lose(id, Stage::Asked);
                self.abort(Outcome::Damaged);
            }
            (RollingBack, Voted(id, Vote::Prepared | Vote::No)) => self.roll_back_voter(id),
            (RollingBack, Voted(id, Vote::ReadOnly)) => self.advance(id, Stage::Asked, Stage::Settled),
            (RollingBack, Voted(id, Vote::Unknown)) => self.leave(id, Stage::Asked),
            // What was answered cannot be taken back; who asks later hears better.
            (RollingBack, Voted(id, Vote::Lost)) => self.lose(id, Stage::Asked),
            (_, Remembered) => self.remembered(),

            (Deciding, Durable) => self.commit_branches(),
            (Deciding, AppendFailed) => self.abandon(),

            (Alone, Finished(id, finish)) => self.conclude_alone(id, finish),
            (Committing, Finished(id, Finish::Done)) => self.committed(id),
            (Committing, Finished(id, Finish::Unknown)) => self.unfinished(id),
            (RollingBack, Finished(id, Finish::Done)) => self.advance(id, Stage::RollingBack, Stage::Settled),
            (RollingBack, Finished(id, Finish::Unknown)) => self.leave(id, Stage::RollingBack),

            // What remains is a bug of the driver or of a participant.
            (Voting | Deciding | Alone | Committing | Abandoned, Commit)
            | (Working | Deciding | Alone | Committing | Abandoned, Voted(..))
            | (Working | Voting | Alone | Committing | RollingBack | Abandoned, Durable | AppendFailed)
            | (Working | Voting | Deciding | Abandoned, Finished(..))
            | (Committing | RollingBack, Finished(_, Finish::RolledBack | Finish::Lost)) => {
                panic!("{}: {input:?} cannot happen in phase {:?}", self.transaction, self.phase)
            }
        }
        self.check();
    }

    /// Phase one: all branches at once. A writer that is to decide, alone or as the anchor, is asked when the others
    /// have answered.
    fn request_votes(&mut self) {
        assert!(self.outputs.is_empty(), "the driver did not poll");
        let record = self.needs_record();
        for (branch, stage) in &mut self.branches {
            assert_eq!(*stage, Stage::Active, "{} was asked before", branch.id);
            let request = match branch.mode {
                Mode::ReadOnly => Output::EndReadOnly(branch.id),
                Mode::Writer if record && self.anchor != Some(branch.id) => Output::Prepare(branch.id),
                Mode::Writer => continue,
            };
            self.outputs.push_back(request);
            *stage = Stage::Asked;
        }
        self.phase = Phase::Voting;
        self.decide_if_agreed();
    }

    /// One writer can decide by its own commit, none has nothing to decide. A payload lives in the record alone.
    fn needs_record(&self) -> bool {
        self.writers().count() > 1 || self.payload.is_some()
    }

    fn writers(&self) -> impl Iterator<Item = &(Branch, Stage)> {
        self.branches.iter().filter(|(branch, _)| branch.mode == Mode::Writer)
    }

    fn agree(&mut self, id: BranchId, mode: Mode, to: Stage) {
        assert_eq!(self.branch(id).0.mode, mode, "{id} cannot vote that");
        self.advance(id, Stage::Asked, to);
        self.decide_if_agreed();
    }

    /// The point of no return, once no vote is out.
    fn decide_if_agreed(&mut self) {
        assert_eq!(self.phase, Phase::Voting);
        if self.branches.iter().any(|(_, stage)| *stage == Stage::Asked) {
            return;
        }
        if self.needs_record() {
            let record = self.decision();
            if let Some(anchor) = self.anchor {
                self.outputs.push_back(Output::CommitAnchor(anchor, record));
                self.advance(anchor, Stage::Active, Stage::Committing);
                self.phase = Phase::Alone;
            } else {
                self.outputs.push_back(Output::Append(Record::Commit(record)));
                self.phase = Phase::Deciding;
            }
            return;
        }
        let writer = self.writers().next().map(|(branch, _)| branch.id);
        if let Some(writer) = writer {
            self.outputs.push_back(Output::CommitOnePhase(writer));
            self.advance(writer, Stage::Active, Stage::Committing);
            self.phase = Phase::Alone;
        } else {
            // Nothing was written: there is nothing to remember.
            self.phase = Phase::Committing;
            self.give(Outcome::Committed);
        }
    }

    fn decision(&self) -> CommitRecord {
        let decided = |(branch, stage): &(Branch, Stage)| {
            let promised = *stage == Stage::Prepared || self.anchor == Some(branch.id);
            assert!(promised, "{} has made no promise", branch.id);
            DecidedBranch { id: branch.id, participant: branch.participant, lineage: branch.lineage }
        };
        let branches = self.writers().map(decided).collect();
        CommitRecord { transaction: self.transaction, branches, payload: self.payload.clone() }
    }

    /// Phase two: all branches at once.
    fn commit_branches(&mut self) {
        self.phase = Phase::Committing;
        for index in 0..self.branches.len() {
            let (branch, stage) = self.branches[index];
            if stage == Stage::Prepared {
                self.outputs.push_back(Output::Commit(branch.id));
                self.advance(branch.id, Stage::Prepared, Stage::Committing);
            }
        }
        if self.acknowledge == Acknowledge::Decided {
            self.give(Outcome::Committed);
        }
        self.conclude_if_applied();
    }

    fn committed(&mut self, id: BranchId) {
        self.advance(id, Stage::Committing, Stage::Settled);
        self.conclude_if_applied();
    }

    fn unfinished(&mut self, id: BranchId) {
        self.leave(id, Stage::Committing);
        self.conclude_if_applied();
    }

    /// The end of phase two. A branch without a positive answer keeps the decision open: the resolver closes it.
    fn conclude_if_applied(&mut self) {
        assert_eq!(self.phase, Phase::Committing);
        if self.branches.iter().any(|(_, stage)| *stage == Stage::Committing) {
            return;
        }
        if self.branches.iter().all(|(_, stage)| *stage == Stage::Settled) {
            self.outputs.push_back(Output::Note(Record::Done(self.transaction)));
        }
        if self.answer.is_none() {
            self.give(Outcome::Committed);
        }
    }

    /// The writer that decides has answered. The others wait for it, where there are any.
    fn conclude_alone(&mut self, id: BranchId, finish: Finish) {
        match finish {
            Finish::Done if self.needs_record() => {
                self.advance(id, Stage::Committing, Stage::Settled);
                self.commit_branches();
            }
            Finish::Done => {
                self.advance(id, Stage::Committing, Stage::Settled);
                self.outputs.push_back(Output::Note(Record::OnePhase(self.transaction)));
                self.give(Outcome::Committed);
            }
            Finish::RolledBack => {
                self.advance(id, Stage::Committing, Stage::Settled);
                self.abort(Outcome::RolledBack);
            }
            Finish::Lost => {
                self.lose(id, Stage::Committing);
                self.abort(Outcome::Damaged);
            }
            // Never sent again: a second one could not tell its own effect from the first one's.
            Finish::Unknown => {
                self.leave(id, Stage::Committing);
                self.abandon();
            }
        }
    }

    /// Nothing is decided and nothing will be: the application need not wait for a single branch.
    ///
    /// A branch whose vote is out is told when the vote has come: its session is busy until then.
    fn abort(&mut self, outcome: Outcome) {
        assert!(matches!(self.phase, Phase::Working | Phase::Voting | Phase::Alone), "abort after the decision");
        assert!(matches!(outcome, Outcome::RolledBack | Outcome::Damaged));
        self.phase = Phase::RollingBack;
        for index in 0..self.branches.len() {
            let (branch, stage) = self.branches[index];
            if matches!(stage, Stage::Active | Stage::Prepared) {
                self.roll_back(branch.id, stage);
            }
        }
        // Damage is told when it is remembered.
        if outcome != Outcome::Damaged {
            self.give(outcome);
        }
    }

    /// Somebody else has ended a branch, and its work may be committed. That this was found is in nobody's memory yet,
    /// and no server would show it again.
    fn lose(&mut self, id: BranchId, from: Stage) {
        let participant = self.branch(id).0.participant;
        let why = "the application ended the branch by itself; its work may be committed".to_owned();
        self.leave(id, from);
        self.outputs.push_back(Output::Damage(DamagedBranch { id, participant, why }));
        self.unremembered += 1;
    }

    fn remembered(&mut self) {
        assert!(self.unremembered > 0, "{}: no damage was handed out", self.transaction);
        self.unremembered -= 1;
        if self.answer.is_none() {
            self.give(Outcome::Damaged);
        }
    }

    /// The deadline: whoever has not voted by now may never.
    fn leave_the_silent(&mut self) {
        for index in 0..self.branches.len() {
            let (branch, stage) = self.branches[index];
            if stage == Stage::Asked {
                self.leave(branch.id, Stage::Asked);
            }
        }
    }

    /// The decision may be there or not: to commit or to roll back would both be guesses.
    fn abandon(&mut self) {
        self.phase = Phase::Abandoned;
        for index in 0..self.branches.len() {
            let (branch, stage) = self.branches[index];
            if stage == Stage::Prepared {
                self.leave(branch.id, Stage::Prepared);
            }
        }
        self.give(Outcome::InDoubt);
    }

    /// A No is rolled back too: its transaction is still open on its session, and failed.
    fn roll_back_voter(&mut self, id: BranchId) {
        self.roll_back(id, Stage::Asked);
    }

    fn roll_back(&mut self, id: BranchId, from: Stage) {
        self.advance(id, from, Stage::RollingBack);
        self.outputs.push_back(Output::RollBack(id));
    }

    fn leave(&mut self, id: BranchId, from: Stage) {
        self.advance(id, from, Stage::Left);
        self.outputs.push_back(Output::Leave(id));
    }

    fn give(&mut self, outcome: Outcome) {
        assert_eq!(self.answer, None, "{}: a second answer, {outcome:?}", self.transaction);
        self.answer = Some(outcome);
        self.outputs.push_back(Output::Answer(outcome));
    }

    fn advance(&mut self, id: BranchId, from: Stage, to: Stage) {
        let (_, stage) = self.branch_mut(id);
        assert_eq!(*stage, from, "{id} cannot become {to:?}");
        *stage = to;
    }

    fn stage(&self, id: BranchId) -> Stage {
        self.branch(id).1
    }

    fn branch(&self, id: BranchId) -> &(Branch, Stage) {
        let found = self.branches.iter().find(|(branch, _)| branch.id == id);
        found.unwrap_or_else(|| panic!("{id} is no branch of {}", self.transaction))
    }

    fn branch_mut(&mut self, id: BranchId) -> &mut (Branch, Stage) {
        let found = self.branches.iter_mut().find(|(branch, _)| branch.id == id);
        found.expect("the caller's id was looked up when its answer came in, or comes from the list itself")
    }

    /// What holds after every input.
    fn check(&self) {
        let any = |wanted: Stage| self.branches.iter().any(|(_, stage)| *stage == wanted);
        let decides = matches!(self.phase, Phase::Alone | Phase::Committing);
        assert!(!any(Stage::Committing) || decides, "a commit without a decision");
        assert!(!any(Stage::RollingBack) || self.phase == Phase::RollingBack, "a rollback beside a decision");
        assert!(!any(Stage::Asked) || matches!(self.phase, Phase::Voting | Phase::RollingBack), "a vote too late");
        let undecided = matches!(self.phase, Phase::Working | Phase::Voting | Phase::Deciding);
        assert!(!undecided || self.answer.is_none(), "an answer before the decision");
        let told = self.answer.is_some() || self.unremembered > 0;
        assert!(self.phase != Phase::RollingBack || told, "the application waits for nothing");
        let ended = matches!(self.phase, Phase::Alone | Phase::RollingBack);
        assert!(self.unremembered == 0 || ended, "damage beside a decision");
    }
}

#[cfg(test)]
impl Coordinator {
    /// All that differs between two states of coordinators that began alike and were polled dry.
    pub(super) fn fingerprint(&self) -> (Phase, Option<Outcome>, u8, impl Iterator<Item = Stage>) {
        assert!(self.outputs.is_empty());
        (self.phase, self.answer, self.unremembered, self.branches.iter().map(|(_, stage)| *stage))
    }
}
