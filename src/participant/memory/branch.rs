//! A branch in memory.

use super::state::{State, failed, lost};
use super::{Fault, MemorySession, Step};
use crate::error::{Error, ErrorKind, Result};
use crate::id::BranchId;
use crate::participant::anchor::listing;
use crate::participant::{Answer, BoxFuture, Branch, Evidence, Question};
use crate::protocol::{CommitRecord, Finish, Mode, Vote};
use std::any::Any;
use std::sync::Arc;

/// How far a branch is, by what was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The application works in it.
    Open,
    /// It was asked to prepare, and has not answered.
    Asked,
    /// It is prepared.
    Prepared,
    /// Proven to be.
    RolledBack,
    /// Ended otherwise, or lost.
    Left,
}

/// A transaction on a session.
pub(super) struct MemoryBranch {
    id: BranchId,
    mode: Mode,
    session: Arc<MemorySession>,
    witness: bool,
    stage: Stage,
}

impl MemoryBranch {
    pub(super) fn new(id: BranchId, mode: Mode, session: Arc<MemorySession>, witness: bool) -> Self {
        Self { id, mode, session, witness, stage: Stage::Open }
    }

    /// Lets an armed fault have its way with a call on the session: `None` where the answer is lost.
    async fn call<T>(&self, step: Step, act: impl FnOnce(&mut State) -> T, refused: T) -> Option<T> {
        let server = &self.session.server;
        let end_session = |state: &mut State| state.end_session(self.session.number);
        match server.fault(step) {
            None => Some(server.change(act)),
            Some(Fault::LoseAnswer) => {
                server.change(act);
                server.change(end_session);
                None
            }
            Some(Fault::LoseRequest) => {
                server.change(end_session);
                None
            }
            Some(Fault::Refuse) => {
                server.change(|state| {
                    if let Some(work) = state.take_work(self.session.number) {
                        state.discard(&work);
                    }
                });
                Some(refused)
            }
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::Panic) => panic!("a bug in {step:?}, as armed"),
        }
    }

    fn is_open(&self, mode: Mode) -> bool {
        self.stage == Stage::Open && self.mode == mode
    }

    fn vote(&mut self, answer: Option<Result<(), Vote>>) -> Result<(), Answer<Vote>> {
        let (vote, cause) = match answer {
            Some(Ok(())) => return Ok(()),
            Some(Err(vote)) => (vote, failed()),
            None => (Vote::Unknown, lost()),
        };
        self.stage = match vote {
            Vote::No => Stage::RolledBack,
            Vote::Unknown if self.stage == Stage::Asked => Stage::Asked,
            _ => Stage::Left,
        };
        Err(Answer::because(vote, cause))
    }

    async fn do_prepare(&mut self) -> Answer<Vote> {
        if !self.is_open(Mode::Writer) {
            return Answer::because(Vote::Unknown, out_of_order());
        }
        let (session, id, witness) = (self.session.number, self.id, self.witness);
        self.stage = Stage::Asked;
        let answer = self.call(Step::Prepare, |state| state.prepare(session, &id, witness), Err(Vote::No)).await;
        match self.vote(answer) {
            Err(answer) => answer,
            Ok(()) => {
                self.stage = Stage::Prepared;
                Answer::good(Vote::Prepared)
            }
        }
    }

    async fn do_end_read_only(&mut self) -> Answer<Vote> {
        if !self.is_open(Mode::ReadOnly) {
            return Answer::because(Vote::Unknown, out_of_order());
        }
        let (session, id) = (self.session.number, self.id);
        self.stage = Stage::Left;
        let act = |state: &mut State| state.guarded(session, &id).map(|work| state.discard(&work));
        let answer = self.call(Step::EndReadOnly, act, Err(Vote::No)).await;
        self.vote(answer).map_or_else(|answer| answer, |()| Answer::good(Vote::ReadOnly))
    }

    async fn do_commit_one_phase(&mut self) -> Answer<Finish> {
        let (session, id, witness) = (self.session.number, self.id, self.witness);
        self.decide(Step::CommitOnePhase, move |state| state.commit_one_phase(session, &id, witness)).await
    }

    async fn do_commit_anchor(&mut self, decision: &CommitRecord) -> Answer<Finish> {
        let (session, id, listing) = (self.session.number, self.id, listing(decision));
        self.decide(Step::CommitAnchor, move |state| state.commit_anchor(session, &id, listing)).await
    }

    async fn decide(&mut self, step: Step, act: impl FnOnce(&mut State) -> Result<(), Vote>) -> Answer<Finish> {
        if !self.is_open(Mode::Writer) {
            return Answer::because(Finish::Unknown, out_of_order());
        }
        self.stage = Stage::Left;
        let answer = self.call(step, act, Err(Vote::No)).await;
        let Err(Answer { value, cause }) = self.vote(answer) else { return Answer::good(Finish::Done) };
        let value = match value {
            Vote::No => Finish::RolledBack,
            Vote::Lost => Finish::Lost,
            Vote::Prepared | Vote::ReadOnly | Vote::Unknown => Finish::Unknown,
        };
        Answer { value, cause }
    }

    async fn do_commit(&mut self) -> Answer<Finish> {
        if self.stage != Stage::Prepared {
            return Answer::because(Finish::Unknown, out_of_order());
        }
        let (session, name) = (self.session.number, self.id.to_string());
        self.stage = Stage::Left;
        let act = |state: &mut State| {
            if state.sessions.contains_key(&session) { state.commit_prepared(&name) } else { Err(lost()) }
        };
        finish(self.call(Step::Commit, act, Err(failed())).await)
    }

    async fn do_roll_back(&mut self) -> Answer<Finish> {
        let (session, id) = (self.session.number, self.id);
        let act: fn(&mut State, u64, &BranchId) -> Result<()> = match self.stage {
            Stage::RolledBack => return Answer::good(Finish::Done),
            Stage::Left => return Answer::because(Finish::Unknown, out_of_order()),
            Stage::Open => roll_back_open,
            Stage::Asked | Stage::Prepared => roll_back_prepared,
        };
        let answer = finish(self.call(Step::RollBack, |state| act(state, session, &id), Err(failed())).await);
        self.stage = if answer.value == Finish::Done { Stage::RolledBack } else { Stage::Left };
        answer
    }
}

fn out_of_order() -> Error {
    Error::new(ErrorKind::Closed, "the branch is not in a state to be asked that")
}

fn finish(answer: Option<Result<()>>) -> Answer<Finish> {
    match answer {
        Some(Ok(())) => Answer::good(Finish::Done),
        Some(Err(cause)) => Answer::because(Finish::Unknown, cause),
        None => Answer::because(Finish::Unknown, lost()),
    }
}

/// Rolls back the transaction that was begun for the branch, and tells when it is another.
fn roll_back_open(state: &mut State, session: u64, branch: &BranchId) -> Result<()> {
    let work = state.sessions.get_mut(&session).ok_or_else(lost)?.work.take().ok_or_else(failed)?;
    state.discard(&work);
    if work.marker == Some(*branch) { Ok(()) } else { Err(failed()) }
}

/// Rolls back what may be prepared. Nothing there is a branch that never was, or that somebody else ended: as was
/// asked, unless its witness says otherwise.
fn roll_back_prepared(state: &mut State, session: u64, branch: &BranchId) -> Result<()> {
    if !state.sessions.contains_key(&session) {
        return Err(lost());
    }
    if let Some(work) = state.take_work(session) {
        state.discard(&work);
    }
    let missing = state.roll_back_prepared(&branch.to_string()).is_err();
    if missing && state.ask(branch, Question::Look) == Evidence::Committed { Err(failed()) } else { Ok(()) }
}

impl Branch for MemoryBranch {
    fn id(&self) -> BranchId {
        self.id
    }

    fn handle(&self) -> Arc<dyn Any + Send + Sync> {
        self.session.clone()
    }

    fn prepare(&mut self) -> BoxFuture<'_, Answer<Vote>> {
        Box::pin(self.do_prepare())
    }

    fn end_read_only(&mut self) -> BoxFuture<'_, Answer<Vote>> {
        Box::pin(self.do_end_read_only())
    }

    fn commit_one_phase(&mut self) -> BoxFuture<'_, Answer<Finish>> {
        Box::pin(self.do_commit_one_phase())
    }

    fn commit_anchor<'a>(&'a mut self, decision: &'a CommitRecord) -> BoxFuture<'a, Answer<Finish>> {
        Box::pin(self.do_commit_anchor(decision))
    }

    fn commit(&mut self) -> BoxFuture<'_, Answer<Finish>> {
        Box::pin(self.do_commit())
    }

    fn roll_back(&mut self) -> BoxFuture<'_, Answer<Finish>> {
        Box::pin(self.do_roll_back())
    }
}

impl Drop for MemoryBranch {
    fn drop(&mut self) {
        self.session.server.change(|state| state.end_session(self.session.number));
    }
}
