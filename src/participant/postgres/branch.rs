//! A branch: one transaction on one session, and what each answer proves of it.
//!
//! | answer to the question of phase one | what else could have produced it | so |
//! |---|---|---|
//! | our nonce, then success of every statement | nothing: a failed statement ends the text | `Prepared` |
//! | the guard's own text | nothing: it holds our nonce | `Lost` |
//! | an error of a statement | a success that something behind it spoiled; the end of another transaction | `ROLLBACK`, then look that nothing is there and that the marker is what it was before: `No` |
//! | a fatal error, a lost connection, anything else | a prepare that succeeded | `Unknown` |
//!
//! A session answers in the order in which it was asked. That is why a rollback may follow a prepare whose answer is
//! missing: *does not exist* then proves that the prepare did not and will not happen.
//!
//! In an aborted transaction the server evaluates no guard. Whether it was the branch's own, the marker tells after the
//! rollback (`sql.rs`). One thing stays unseen: an application that rolls back by its own `ROLLBACK`, works outside any
//! transaction, begins anew and then runs into an error is told that the branch rolled back, which is so.

mod rollback;

use super::Lent;
use super::ends::{COMMITS, Ends, VOTES};
use super::error::{PgError, explain, is_guard, is_out_of_slots, is_refusal};
use super::session::Lease;
use super::sql::{self, Begin, END, END_UNBEGUN, LOST, Marker, Question, Sql, rows};
use crate::error::{Error, ErrorKind};
use crate::id::{BranchId, ParticipantName};
use crate::participant::anchor::listing;
use crate::participant::witness::Kind;
use crate::participant::{Answer, BoxFuture, Branch};
use crate::protocol::{CommitRecord, Finish, Mode, Vote};
use crate::torture::{self, Safeguard};
use futures_util::future::join;
use std::any::Any;
use std::sync::Arc;
use std::time::Instant;
use tokio_postgres::{Client, SimpleQueryMessage};

/// How far a branch is, by what was answered, never by what was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The application works in it.
    Open,
    /// PREPARE TRANSACTION was sent and not answered clearly.
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

/// Whether the guard has told that the session was in the branch's transaction to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guard {
    Passed,
    Unheard,
}

/// A transaction on a session.
pub(super) struct PostgresTransaction {
    name: ParticipantName,
    id: BranchId,
    mode: Mode,
    sql: Arc<Sql>,
    nonce: u64,
    state: State,
    /// When the last question to the session was sent.
    asked: Instant,
    /// `None` once the session was given back or closed.
    lease: Option<Lease>,
    lent: Arc<Lent>,
}

/// What a failed branch left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trace {
    /// Nothing: neither prepared nor committed.
    Nothing,
    /// The application has committed it, or may have.
    Lost,
    /// A prepared transaction of its name.
    Prepared,
    /// A witness that it committed alone.
    CommittedAlone,
    /// A witness that it was prepared and committed, by whomever.
    Committed,
}

impl PostgresTransaction {
    pub(super) fn new(
        name: ParticipantName,
        id: BranchId,
        mode: Mode,
        sql: Arc<Sql>,
        nonce: u64,
        lease: Lease,
        begin: Option<Begin>,
    ) -> Self {
        let lent = Lent::new(lease.client().clone(), lease.unheard().clone(), begin);
        let asked = Instant::now();
        Self { name, id, mode, sql, nonce, state: State::Open, asked, lease: Some(lease), lent }
    }

    fn client(&self) -> Option<Arc<Client>> {
        self.lease.as_ref().map(|lease| lease.client().clone())
    }

    /// The session is free again. Where a guard has passed, with the end behind it, nothing can be written on it outside of
    /// a transaction.
    fn release(&mut self, state: State, guard: Guard) {
        self.state = state;
        self.lent.revoke();
        if let Some(lease) = self.lease.take() {
            lease.release((guard == Guard::Passed).then_some(self.asked));
        }
    }

    /// The session is of no more use.
    fn leave(&mut self) {
        self.state = State::Left;
        self.lent.revoke();
        if let Some(lease) = self.lease.take() {
            lease.close();
        }
    }

    fn explain(&self, doing: &str, error: PgError) -> Error {
        explain(self.name, doing, error)
    }

    fn error(&self, kind: ErrorKind, message: impl Into<String>) -> Error {
        Error::new(kind, message).at(self.name)
    }

    /// The answer to a call out of order: nothing was sent.
    fn out_of_order<T>(&self, value: T, call: &str) -> Answer<T> {
        let message = format!("{call} was asked of branch {} while it is {:?}", self.id, self.state);
        Answer::because(value, self.error(ErrorKind::Closed, message))
    }

    fn lost<T>(&mut self, value: T, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Answer<T> {
        self.leave();
        let message = "the application ended the branch's transaction by itself: its work may be committed";
        Answer::because(value, self.error(ErrorKind::Statement, message).because(cause))
    }

    /// Sends a question and lets nothing but its own whole answer count.
    async fn ask(&mut self, client: &Client, question: &Question) -> Result<bool, PgError> {
        self.lent.begin();
        self.asked = Instant::now();
        let messages = client.simple_query(&question.text).await?;
        let completed = messages.iter().filter(|m| matches!(m, SimpleQueryMessage::CommandComplete(_))).count();
        let is_ours = rows(&messages).next() == Some(&question.nonce) || !torture::is_on(Safeguard::Nonce);
        Ok(is_ours && completed == question.statements)
    }

    /// After something behind the begin was refused: why the begin was, if that is why.
    fn why_not_begun(&self) -> Option<PgError> {
        self.lease.as_ref()?.unheard().failed().filter(is_refusal)
    }

    /// The begin was refused, and the application has worked nowhere: what it sent could only read. The session is closed.
    async fn never_begun<T>(&mut self, client: Arc<Client>, refused: PgError, ends: Ends<T>) -> Answer<T> {
        let marker = client.simple_query(END_UNBEGUN).await.map(|messages| Marker::of(&messages));
        drop(client);
        self.sql.has_kept_nothing(&refused);
        let refused = self.explain("the server refused to begin the branch", refused);
        match marker {
            Ok(Marker::Idle) => {
                self.leave();
                self.state = State::RolledBack;
                // Whatever it was, it has met a session that was well: another one will do.
                let message = "the branch was never begun, and nothing of it was done";
                Answer::because(ends.gone, self.error(ErrorKind::Retry, message).because(refused))
            }
            Ok(Marker::Ended | Marker::Gone) => self.lost(ends.lost, refused),
            Err(_) => {
                self.leave();
                Answer::because(ends.unknown, refused)
            }
        }
    }

    /// After a statement was refused: ends the transaction and looks for what is left of the branch.
    ///
    /// Should the text have been refused *behind* the step that counts, it is found here.
    async fn prove_gone(&self, client: &Client) -> Result<Trace, PgError> {
        let traces = sql::as_login_role(&self.sql.traces(&self.id));
        let (ended, found) = join(client.simple_query(END), client.simple_query(&traces)).await;
        let marker = Marker::of(&ended?);
        let trace = rows(&found?).fold(Trace::Nothing, |trace, found| match found {
            "prepared" => Trace::Prepared,
            _ if trace == Trace::Prepared || found == Kind::Fence.as_str() => trace,
            _ if found == Kind::OnePhase.as_str() => Trace::CommittedAlone,
            _ => Trace::Committed,
        });
        Ok(if trace == Trace::Nothing && marker != Marker::Idle { Trace::Lost } else { trace })
    }

    async fn do_prepare(&mut self) -> Answer<Vote> {
        let (State::Open, Mode::Writer, Some(client)) = (self.state, self.mode, self.client()) else {
            return self.out_of_order(Vote::Unknown, "prepare");
        };
        self.state = State::Asked;
        let question = self.sql.prepare(&self.id, self.nonce);
        match self.ask(&client, &question).await {
            Ok(true) => {
                self.state = State::Prepared;
                Answer::good(Vote::Prepared)
            }
            Ok(false) => self.misunderstood(Vote::Unknown),
            Err(error) if is_refusal(&error) => match self.why_not_begun() {
                Some(refused) => self.never_begun(client, refused, VOTES).await,
                None if is_guard(&error, LOST, &question.nonce) => self.lost(Vote::Lost, error),
                None => self.prepare_refused(client, error).await,
            },
            Err(error) => Answer::because(Vote::Unknown, self.explain("the prepare has no clear answer", error)),
        }
    }

    fn misunderstood<T>(&mut self, value: T) -> Answer<T> {
        self.leave();
        Answer::because(value, self.error(ErrorKind::Unavailable, "the server's answer is not one to what was asked"))
    }

    async fn prepare_refused(&mut self, client: Arc<Client>, error: PgError) -> Answer<Vote> {
        let trace = self.prove_gone(&client).await;
        let slots = if is_out_of_slots(&error) { client.simple_query(Sql::SLOTS).await.ok() } else { None };
        drop(client);
        let is_kept = !self.sql.has_kept_nothing(&error);
        let mut doing = String::from("the branch cannot be prepared");
        if let Some(slots) = slots.as_deref().and_then(|messages| rows(messages).next()) {
            doing = format!("{doing} (max_prepared_transactions {slots})");
        }
        let cause = self.explain(&doing, error);
        match trace {
            Ok(Trace::Nothing) => self.refused(Vote::No, cause, is_kept),
            Ok(Trace::Lost) => self.lost(Vote::Lost, cause),
            Ok(_) | Err(_) => {
                self.leave();
                Answer::because(Vote::Unknown, cause)
            }
        }
    }

    /// The branch is rolled back, since it was refused. Without what it keeps the session is of no more use.
    fn refused<T>(&mut self, value: T, cause: Error, is_kept: bool) -> Answer<T> {
        if is_kept {
            self.release(State::RolledBack, Guard::Unheard);
            return Answer::because(value, cause);
        }
        self.leave();
        self.state = State::RolledBack;
        let message = "the session's prepared statements were deallocated, those of Handfast among them";
        Answer::because(value, self.error(ErrorKind::Retry, message).because(cause))
    }

    async fn do_end_read_only(&mut self) -> Answer<Vote> {
        let (State::Open, Mode::ReadOnly, Some(client)) = (self.state, self.mode, self.client()) else {
            return self.out_of_order(Vote::Unknown, "end_read_only");
        };
        self.state = State::Left;
        let question = Sql::end_read_only(&self.id, self.nonce);
        let answer = self.ask(&client, &question).await;
        match answer {
            Ok(true) => {
                drop(client);
                self.release(State::Committed, Guard::Passed);
                Answer::good(Vote::ReadOnly)
            }
            Ok(false) => self.misunderstood(Vote::Unknown),
            Err(error) if is_refusal(&error) => match self.why_not_begun() {
                Some(refused) => self.never_begun(client, refused, VOTES).await,
                None if is_guard(&error, LOST, &question.nonce) => self.lost(Vote::Lost, error),
                None => self.read_only_refused(client, error).await,
            },
            Err(error) => {
                self.leave();
                Answer::because(Vote::Unknown, self.explain("the commit has no clear answer", error))
            }
        }
    }

    async fn read_only_refused(&mut self, client: Arc<Client>, error: PgError) -> Answer<Vote> {
        let marker = client.simple_query(END).await.map(|messages| Marker::of(&messages));
        drop(client);
        let cause = self.explain("the read-only branch cannot be committed", error);
        match marker {
            Ok(Marker::Idle) => {
                self.release(State::RolledBack, Guard::Unheard);
                Answer::because(Vote::No, cause)
            }
            Ok(Marker::Ended | Marker::Gone) => self.lost(Vote::Lost, cause),
            Err(_) => {
                self.leave();
                Answer::because(Vote::Unknown, cause)
            }
        }
    }

    async fn do_commit_one_phase(&mut self) -> Answer<Finish> {
        let question = self.sql.one_phase(&self.id, self.nonce);
        self.decide("commit_one_phase", question).await
    }

    async fn do_commit_anchor(&mut self, decision: &CommitRecord) -> Answer<Finish> {
        let question = self.sql.anchor_commit(&self.id, self.nonce, &listing(decision));
        self.decide("commit_anchor", question).await
    }

    /// Commits plainly, with the witness inside.
    async fn decide(&mut self, call: &str, question: Question) -> Answer<Finish> {
        let (State::Open, Mode::Writer, Some(client)) = (self.state, self.mode, self.client()) else {
            return self.out_of_order(Finish::Unknown, call);
        };
        self.state = State::Left;
        let answer = self.ask(&client, &question).await;
        match answer {
            Ok(true) => {
                drop(client);
                self.release(State::Committed, Guard::Passed);
                Answer::good(Finish::Done)
            }
            Ok(false) => self.misunderstood(Finish::Unknown),
            Err(error) if is_refusal(&error) => match self.why_not_begun() {
                Some(refused) => self.never_begun(client, refused, COMMITS).await,
                None if is_guard(&error, LOST, &question.nonce) => self.lost(Finish::Lost, error),
                None => self.one_phase_refused(client, error).await,
            },
            Err(error) => {
                self.leave();
                Answer::because(Finish::Unknown, self.explain("the commit has no clear answer", error))
            }
        }
    }

    async fn one_phase_refused(&mut self, client: Arc<Client>, error: PgError) -> Answer<Finish> {
        let trace = self.prove_gone(&client).await;
        drop(client);
        let is_kept = !self.sql.has_kept_nothing(&error);
        let cause = self.explain("the branch cannot be committed", error);
        match trace {
            Ok(Trace::Nothing) => self.refused(Finish::RolledBack, cause, is_kept),
            Ok(Trace::CommittedAlone) => {
                self.release(State::Committed, Guard::Unheard);
                Answer::because(Finish::Done, cause)
            }
            Ok(Trace::Lost) => self.lost(Finish::Lost, cause),
            Ok(Trace::Prepared | Trace::Committed) | Err(_) => {
                self.leave();
                Answer::because(Finish::Unknown, cause)
            }
        }
    }

    async fn do_commit(&mut self) -> Answer<Finish> {
        let (State::Prepared, Some(client)) = (self.state, self.client()) else {
            return self.out_of_order(Finish::Unknown, "commit");
        };
        self.state = State::Left;
        self.asked = Instant::now();
        let answer = client.batch_execute(&Sql::commit_prepared(&self.id)).await;
        drop(client);
        match answer {
            Ok(()) => {
                self.release(State::Committed, Guard::Passed);
                Answer::good(Finish::Done)
            }
            // Refused or not: what became of it is for the resolver to find out (D03, D05).
            Err(error) => {
                self.leave();
                Answer::because(Finish::Unknown, self.explain("COMMIT PREPARED was not answered positively", error))
            }
        }
    }
}

impl Branch for PostgresTransaction {
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

impl Drop for PostgresTransaction {
    fn drop(&mut self) {
        self.lent.revoke();
        let Some(lease) = self.lease.take() else { return };
        match self.state {
            // A promise stands, or an end of it is under way: cancelling could do no good.
            State::Prepared | State::Left => lease.close(),
            State::Open | State::Asked | State::RolledBack | State::Committed => drop(lease),
        }
    }
}
