//! A branch: an XA transaction on a session, and what each answer about it proves.
//!
//! | answer | proves |
//! |---|---|
//! | every step answered, the nonce first where one is asked for | what was asked for was done, in the very transaction that was begun |
//! | the marker is not there | the transaction is another; rolled back, if XA END says so, else the application's doing |
//! | a step before the last refused | the last was not done: nothing is prepared or committed |
//! | the last step refused | what XA ROLLBACK answers then |
//! | anything else | nothing |
//!
//! A branch that was never asked to prepare cannot commit any more once its session is closed: the server rolls an
//! unprepared XA transaction back with its session. That is certain unless the application may have sent XA statements
//! of its own, which is noted. (On MariaDB it may send them unseen, as prepared statements: found as long as the
//! session lives, not after its loss.)

use super::ending::{Gone, LOST};
use super::error::{MyError, XA_UNKNOWN, explain};
use super::lent::Lent;
use super::session::Lease;
use super::sql::{BranchSql, Open, Question, Step};
use super::wire::Failure;
use super::work::{Begun, Work};
use crate::error::{Error, ErrorKind};
use crate::id::{BranchId, ParticipantName};
use crate::participant::anchor::listing;
use crate::participant::witness::Kind;
use crate::participant::{Answer, BoxFuture, Branch};
use crate::protocol::{CommitRecord, Finish, Mode, Vote};
use crate::torture::{self, Safeguard};
use mysql_async::DriverError;
use mysql_async::prelude::Queryable;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How far a branch is, by what was answered, never by what was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// The application works in it.
    Open,
    /// XA PREPARE was sent and not answered clearly.
    Asked,
    /// It is prepared.
    Prepared,
    /// Proven to be rolled back.
    RolledBack,
    /// Proven to be committed.
    Committed,
    /// Out of this session's hands: lost, or the answer that decides is missing.
    Left,
}

/// What a participant's branches have in common.
pub(super) struct Common {
    pub(super) name: ParticipantName,
    /// The last nonce used.
    pub(super) nonce: AtomicU64,
    /// The last marker's number. From a random one on, which is shown to nobody.
    pub(super) marker: AtomicU64,
    /// How long an answer in phase two is waited for.
    pub(super) limit: Duration,
}

impl Common {
    pub(super) fn nonce(&self) -> u64 {
        self.nonce.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn marker(&self) -> u64 {
        self.marker.fetch_add(1, Ordering::Relaxed)
    }
}

/// An XA transaction on a session.
pub(super) struct XaBranch {
    pub(super) common: Arc<Common>,
    id: BranchId,
    pub(super) mode: Mode,
    pub(super) sql: Arc<BranchSql>,
    pub(super) state: State,
    lent: Arc<Lent>,
    /// Taken from the application at the first step towards the end, `None` again when it was released or closed.
    pub(super) work: Option<Work>,
}

impl XaBranch {
    /// A branch on a session, where it has not begun yet.
    pub(super) fn new(common: Arc<Common>, id: BranchId, mode: Mode, sql: Arc<BranchSql>, lease: Lease) -> Self {
        let (name, place) = (common.name, lease.place());
        let lent = Lent::new(Work::new(name, id, sql.clone(), lease), place);
        Self { common, id, mode, sql, state: State::Open, lent, work: None }
    }

    /// Begins it now.
    pub(super) async fn begin(&self) -> Result<(), Failure> {
        self.lent.begin().await
    }

    pub(super) fn error(&self, kind: ErrorKind, message: impl Into<String>) -> Error {
        Error::new(kind, message).at(self.common.name)
    }

    pub(super) fn explain(&self, doing: &str, error: MyError) -> Error {
        explain(self.common.name, doing, error)
    }

    /// The answer to a call out of order: nothing was sent.
    fn out_of_order<T>(&self, value: T, call: &str) -> Answer<T> {
        let message = format!("{call} was asked of branch {} while it is {:?}", self.id, self.state);
        Answer::because(value, self.error(ErrorKind::Closed, message))
    }

    /// The session is free again.
    pub(super) fn release(&mut self, state: State) {
        self.state = state;
        if let Some(Work { lease: Some(lease), notes, .. }) = self.work.take() {
            lease.release(notes.leaves());
        }
    }

    /// The session is of no more use, but what it is at may still end well.
    pub(super) fn leave(&mut self) {
        self.state = State::Left;
        if let Some(Work { lease: Some(lease), .. }) = self.work.take() {
            lease.close();
        }
    }

    async fn take_work(&mut self) {
        if self.work.is_none() {
            self.work = self.lent.take().await;
        }
    }

    /// How far it has begun; `None` without a session.
    pub(super) fn begun(&self) -> Option<Begun> {
        self.work.as_ref().map(|work| work.begun)
    }

    pub(super) fn is_marked(&self) -> bool {
        self.begun() == Some(Begun::Marked)
    }

    /// What is open now that it is to end.
    fn open(&mut self) -> Open {
        self.work.as_mut().map_or(Open::Unmarked, Work::open)
    }

    pub(super) async fn ask(&mut self, question: &Question) -> Result<(), Failure> {
        match &mut self.work {
            // A future by itself: around it, each step is too large for what an allocator has at hand.
            Some(Work { lease: Some(lease), .. }) => Box::pin(lease.ask(question)).await,
            _ => Err(Failure::Broken(MyError::Driver(DriverError::ConnectionClosed))),
        }
    }

    async fn do_prepare(&mut self) -> Answer<Vote> {
        if (self.state, self.mode) != (State::Open, Mode::Writer) {
            return self.out_of_order(Vote::Unknown, "prepare");
        }
        self.take_work().await;
        if let Some(cause) = self.doomed().await {
            let gone = Box::pin(self.abort()).await;
            return Answer::because(gone.vote(), self.told(gone, cause));
        }
        self.state = State::Asked;
        let open = self.open();
        let question = self.sql.prepare(self.common.nonce(), open);
        match self.ask(&question).await {
            Ok(()) => {
                self.state = State::Prepared;
                if !torture::is_on(Safeguard::SameConnection) {
                    Box::pin(self.reset()).await;
                }
                Answer::good(Vote::Prepared)
            }
            Err(failure) => {
                let (gone, cause) = Box::pin(self.give_up("the branch cannot be prepared", failure)).await;
                Answer::because(gone.vote(), cause)
            }
        }
    }

    /// What the driver's own pool does to a connection that comes back to it.
    async fn reset(&mut self) {
        if let Some(Work { lease: Some(lease), .. }) = &mut self.work {
            let _ = lease.wire().conn().reset().await;
        }
    }

    async fn do_commit_one_phase(&mut self) -> Answer<Finish> {
        self.decide("commit_one_phase", Kind::OnePhase.as_str()).await
    }

    async fn do_commit_anchor(&mut self, decision: &CommitRecord) -> Answer<Finish> {
        self.decide("commit_anchor", &listing(decision)).await
    }

    /// Commits plainly, with the witness inside, whose kind this is.
    async fn decide(&mut self, call: &str, kind: &str) -> Answer<Finish> {
        if (self.state, self.mode) != (State::Open, Mode::Writer) {
            return self.out_of_order(Finish::Unknown, call);
        }
        self.take_work().await;
        if let Some(cause) = self.doomed().await {
            let gone = Box::pin(self.abort()).await;
            return Answer::because(gone.finish(), self.told(gone, cause));
        }
        self.state = State::Left;
        let open = self.open();
        let question = self.sql.deciding(self.common.nonce(), open, kind);
        match self.ask(&question).await {
            Ok(()) => {
                self.release(State::Committed);
                Answer::good(Finish::Done)
            }
            Err(failure) => {
                let (gone, cause) = Box::pin(self.give_up("the branch cannot be committed", failure)).await;
                Answer::because(gone.finish(), cause)
            }
        }
    }

    async fn do_end_read_only(&mut self) -> Answer<Vote> {
        if (self.state, self.mode) != (State::Open, Mode::ReadOnly) {
            return self.out_of_order(Vote::Unknown, "end_read_only");
        }
        self.take_work().await;
        if let Some(cause) = self.doomed().await {
            let gone = Box::pin(self.abort()).await;
            return Answer::because(gone.vote(), self.told(gone, cause));
        }
        if self.begun() == Some(Begun::Not) {
            self.release(State::Committed);
            return Answer::good(Vote::ReadOnly);
        }
        self.state = State::Left;
        let question = self.sql.end_read_only(self.common.nonce(), self.is_marked());
        match self.ask(&question).await {
            Ok(()) => {
                self.release(State::Committed);
                Answer::good(Vote::ReadOnly)
            }
            Err(failure) => {
                let (gone, cause) = Box::pin(self.give_up("the read-only branch cannot be committed", failure)).await;
                Answer::because(gone.vote(), cause)
            }
        }
    }

    async fn do_commit(&mut self) -> Answer<Finish> {
        if self.state != State::Prepared {
            return self.out_of_order(Finish::Unknown, "commit");
        }
        // Should this call be dropped, nothing more is asked on this session.
        self.state = State::Left;
        let question = self.sql.commit();
        match self.answered(&question).await {
            Ok(()) => {
                self.release(State::Committed);
                Answer::good(Finish::Done)
            }
            // Refused or not: what became of it is for the resolver to find out (D03, D05).
            Err(cause) => {
                self.leave();
                Answer::because(Finish::Unknown, cause)
            }
        }
    }

    async fn do_roll_back(&mut self) -> Answer<Finish> {
        match self.state {
            State::RolledBack => Answer::good(Finish::Done),
            State::Open => self.roll_back_open().await,
            State::Asked | State::Prepared => self.roll_back_prepared().await,
            State::Committed | State::Left => self.out_of_order(Finish::Unknown, "roll_back"),
        }
    }

    async fn roll_back_open(&mut self) -> Answer<Finish> {
        let limit = self.common.limit;
        let work = async {
            self.take_work().await;
            // The cause of a failure is of no interest now; what it did to the transaction is.
            self.abort().await
        };
        let gone = tokio::time::timeout(limit, work).await;
        let unclear = |message: &str| self.error(ErrorKind::Unavailable, message);
        match gone {
            Ok(Gone::RolledBack) => Answer::good(Finish::Done),
            Ok(Gone::Closed) => Answer::because(
                Finish::Unknown,
                unclear("XA ROLLBACK was not answered positively; the session is closed"),
            ),
            Ok(Gone::Lost) => Answer::because(Finish::Unknown, unclear(LOST)),
            Ok(Gone::Unclear) => Answer::because(Finish::Unknown, unclear("XA ROLLBACK was not answered positively")),
            Err(_) => {
                let late = unclear("the application does not let go of the session, or the server does not answer");
                self.leave();
                self.lent.close();
                Answer::because(Finish::Unknown, late)
            }
        }
    }

    /// Rolls back what is prepared, or may be.
    async fn roll_back_prepared(&mut self) -> Answer<Finish> {
        self.state = State::Left;
        let question = self.sql.roll_back_ended(self.common.nonce());
        let limit = self.common.limit;
        let answer = match tokio::time::timeout(limit, self.ask(&question)).await {
            Ok(Err(Failure::Refused(Step::Last, error))) if error.code == XA_UNKNOWN => {
                let gone = tokio::time::timeout(limit, self.is_gone()).await.unwrap_or(false);
                if gone { Ok(()) } else { Err(Failure::Refused(Step::Last, error)) }
            }
            answer => answer.unwrap_or(Err(Failure::Misunderstood)),
        };
        match answer {
            Ok(()) => {
                self.release(State::RolledBack);
                Answer::good(Finish::Done)
            }
            Err(failure) => {
                self.leave();
                let cause = self.explain("XA ROLLBACK was not answered positively", failure.into_error());
                Answer::because(Finish::Unknown, cause)
            }
        }
    }

    /// Whether a branch that the server does not know was rolled back, by whomever: its witness would be there.
    ///
    /// The read waits for the row's lock: somebody may be committing it this moment.
    async fn is_gone(&mut self) -> bool {
        let (Some(look), Some(Work { lease: Some(lease), .. })) = (self.sql.look_locking(), &mut self.work) else {
            return false;
        };
        let found = lease.wire().conn().query_first::<String, _>(look).await;
        found.is_ok_and(|kind| kind.is_none_or(|kind| kind == Kind::Fence.as_str()))
    }

    /// The answer to a question of phase two, within the time limit.
    async fn answered(&mut self, question: &Question) -> Result<(), Error> {
        let limit = self.common.limit;
        match tokio::time::timeout(limit, self.ask(question)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(failure)) => {
                let doing = format!("{} was not answered positively", question.last());
                Err(self.explain(&doing, failure.into_error()))
            }
            Err(_) => Err(self.error(ErrorKind::Unavailable, format!("no answer within {limit:?}"))),
        }
    }
}

impl Branch for XaBranch {
    fn id(&self) -> BranchId {
        self.id
    }

    fn handle(&self) -> Arc<dyn Any + Send + Sync> {
        self.lent.clone()
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

impl Drop for XaBranch {
    fn drop(&mut self) {
        self.lent.close();
        match self.state {
            // A promise stands or is being made, or an end of it is under way: a kill could do no good.
            State::Asked | State::Prepared | State::Left => self.leave(),
            State::Open | State::RolledBack | State::Committed => {}
        }
    }
}
