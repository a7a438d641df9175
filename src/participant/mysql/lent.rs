//! What an application works through, and what is noted of its work.
//!
//! A failed statement dooms a branch of PostgreSQL; MySQL undoes the statement and goes on. One rule for both (D15): a
//! failed statement makes the branch rollback-only, unless a savepoint that was set before it is rolled back to, and
//! never after an error that ends the whole branch. So every call is watched, and the first failure is remembered.
//!
//! A call that is dropped half way leaves an answer behind that the next call would take for its own. The branch is of
//! no more use then.

use super::error::{self, MyError};
use super::savepoints::{Action, may_end_transaction};
use super::session::Lease;
use super::sql::Sql;
use crate::error::{Error, ErrorKind};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use mysql_async::prelude::{AsQuery, FromRow, Queryable, StatementLike};
use mysql_async::{
    BinaryProtocol, Conn, Params, QueryResult, ResultSetStream, Row, ServerError, Statement, TextProtocol,
};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{Mutex, OwnedMutexGuard};

/// A branch's [handle](crate::participant::Branch::handle): the way to its session until the branch ends.
pub struct Lent {
    desk: Arc<Mutex<Option<Work>>>,
    /// The branch is ending: no more calls.
    ended: AtomicBool,
    /// The branch is gone: whoever holds its session closes it.
    abandoned: AtomicBool,
}

/// A session at work.
pub(super) struct Work {
    /// `None` once it was closed.
    pub(super) lease: Option<Lease>,
    pub(super) notes: Notes,
}

impl Lent {
    pub(super) fn new(lease: Lease) -> Arc<Self> {
        let desk = Arc::new(Mutex::new(Some(Work { lease: Some(lease), notes: Notes::default() })));
        Arc::new(Self { desk, ended: AtomicBool::new(false), abandoned: AtomicBool::new(false) })
    }

    /// Takes the session away from the application, waiting until it is let go of.
    pub(super) async fn take(&self) -> Option<Work> {
        self.ended.store(true, Ordering::SeqCst);
        self.desk.lock().await.take()
    }

    /// Takes the session away and closes it: now, or when the application lets go of it.
    pub(super) fn close(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.abandoned.store(true, Ordering::SeqCst);
        if let Ok(mut desk) = self.desk.try_lock() {
            drop(desk.take());
        }
    }
}

/// What is known of the application's work on a branch.
#[derive(Default)]
pub(super) struct Notes {
    /// A call was begun and has not come back.
    busy: bool,
    /// The rest of an answer was left to the application: there may be an error in it.
    unseen: bool,
    /// Something was sent that may have ended the transaction, and was not refused.
    suspect: bool,
    /// The server said that it has rolled the whole transaction back.
    pub(super) rolled_back: bool,
    /// The first failure that was not undone.
    failed: Option<Failed>,
    /// Set, and not known to be gone; while there is a failure, those alone that were set before it.
    savepoints: Vec<String>,
}

struct Failed {
    error: Error,
    /// No savepoint can undo it.
    is_final: bool,
}

impl Notes {
    /// Whether the application may have ended the transaction by itself.
    pub(super) fn is_suspect(&self) -> bool {
        self.suspect
    }

    /// Whether a call was dropped half way.
    pub(super) fn is_torn(&self) -> bool {
        self.busy
    }

    /// The first failure that was not undone.
    pub(super) fn failure(&mut self) -> Option<Error> {
        self.failed.take().map(|failed| failed.error)
    }

    fn enter(&mut self, call: &Call) {
        self.busy = true;
        // Until the answer says otherwise: there may never be one.
        self.suspect |= call.may_end;
        if let (Action::Opaque | Action::Unseen, Some(failed)) = (&call.action, &mut self.failed) {
            // It may set one of the savepoints anew, behind the failure.
            failed.is_final = true;
        }
    }

    fn succeeded(&mut self, action: Action) {
        match action {
            Action::Set(name) => {
                self.savepoints.retain(|known| *known != name);
                if self.failed.is_none() {
                    self.savepoints.push(name);
                }
            }
            Action::Release(name) => self.forget_from(&name, 0),
            Action::RollBackTo(name) => {
                let known = self.savepoints.contains(&name);
                if known && self.failed.as_ref().is_some_and(|failed| !failed.is_final) {
                    self.failed = None;
                }
                self.forget_from(&name, 1);
            }
            Action::Plain | Action::Unseen | Action::Opaque => {}
        }
    }

    /// Forgets the savepoints from this one on, but for the first `keep`.
    fn forget_from(&mut self, name: &str, keep: usize) {
        if let Some(at) = self.savepoints.iter().position(|known| known == name) {
            self.savepoints.truncate(at + keep);
        }
    }

    pub(super) fn failed(&mut self, said: &MyError) {
        let code = error::code(said);
        self.rolled_back |= code.is_some_and(error::ends_branch);
        let is_final = code.is_none_or(|code| error::ends_branch(code) || error::ends_session(code));
        match &mut self.failed {
            Some(first) => first.is_final |= is_final,
            None => {
                let copy = match said {
                    MyError::Server(server) => MyError::Server(server.clone()),
                    other => MyError::Other(other.to_string().into()),
                };
                self.failed = Some(Failed { error: error::describe("a statement failed", copy), is_final });
            }
        }
    }

    fn leave<T>(&mut self, call: Call, was_suspect: bool, answer: Result<T, MyError>) -> Result<T, MyError> {
        self.busy = false;
        match &answer {
            Ok(_) => self.succeeded(call.action),
            Err(error) => {
                self.failed(error);
                // Of several statements some may have been done.
                if call.is_single && error::code(error).is_some_and(|code| !error::ends_session(code)) {
                    self.suspect = was_suspect;
                }
            }
        }
        answer
    }

    /// Looks for the error in an answer that only the application has read.
    pub(super) async fn look_for_unseen(&mut self, conn: &mut Conn) -> Result<(), MyError> {
        if !self.unseen {
            return Ok(());
        }
        self.busy = true;
        // Whatever of the answer is still unread is read by the driver first, and its error comes out here.
        let errors = conn.query::<Row, _>(Sql::SHOW_ERRORS).await;
        self.busy = false;
        self.unseen = false;
        let found = errors.inspect_err(|error| self.failed(error))?;
        if let Some(server) = found.first().and_then(server_error) {
            self.failed(&MyError::Server(server));
        }
        Ok(())
    }
}

/// A call as far as its text tells.
struct Call {
    action: Action,
    may_end: bool,
    /// It is one statement for certain.
    is_single: bool,
}

impl Call {
    fn text(query: &impl AsQuery) -> Self {
        let text = query.as_query();
        let is_single = !text.contains(&b';');
        Self { action: Action::read(&text), may_end: may_end_transaction(&text), is_single }
    }

    fn plain() -> Self {
        Self { action: Action::Plain, may_end: false, is_single: true }
    }

    fn unseen() -> Self {
        Self { action: Action::Unseen, may_end: false, is_single: true }
    }
}

fn server_error(row: &Row) -> Option<ServerError> {
    let code = row.get_opt::<u16, _>(1)?.ok()?;
    let message = row.get_opt::<String, _>(2)?.ok()?;
    Some(ServerError { code, message, state: "HY000".into() })
}

/// What an application is lent of a branch on MySQL or MariaDB, for as long as it borrows the transaction.
///
/// It implements [`Queryable`], all of it: write what you would write with a [`mysql_async::Conn`]. Two who borrow the
/// same branch take turns.
///
/// A statement that fails makes the transaction rollback-only, unless a savepoint was set before it and is rolled back
/// to afterwards. Set savepoints and roll back to them by `query_drop`, one to a call: texts that go by `exec_*` are
/// not seen, and then the failure stands. A deadlock (1213) or a changed record (1020) always ends the branch.
///
/// Do not send `XA` statements: prepare finds out that the transaction is another, and it cannot commit.
///
/// # Cancel safety
/// A call that is dropped half way makes the branch unusable: what was sent cannot be taken back, and its answer would
/// be taken for the next one's. The transaction can only be rolled back.
pub struct MysqlBranch<'a> {
    desk: OwnedMutexGuard<Option<Work>>,
    lent: Arc<Lent>,
    transaction: PhantomData<&'a ()>,
}

impl MysqlBranch<'_> {
    /// Waits for its turn. The lifetime is of the caller's choice: that of the transaction.
    pub async fn lock(lent: Arc<Lent>) -> Self {
        let desk = lent.desk.clone().lock_owned().await;
        Self { desk, lent, transaction: PhantomData }
    }

    /// The branch went while this was lent: nobody else closes its session.
    fn close_if_abandoned(&mut self) {
        if self.lent.abandoned.load(Ordering::SeqCst) {
            drop(self.desk.take());
        }
    }

    /// The connection, for one call.
    async fn enter(&mut self, call: &Call) -> Result<(&mut Conn, &mut Notes, bool), MyError> {
        let closed = || unusable(ErrorKind::Closed, "the branch has ended");
        self.close_if_abandoned();
        if self.lent.ended.load(Ordering::SeqCst) {
            return Err(closed());
        }
        let Work { lease, notes } = self.desk.as_mut().ok_or_else(closed)?;
        let wire = lease.as_mut().ok_or_else(closed)?.wire();
        if notes.is_torn() || wire.is_broken() {
            let torn = "a call was dropped half way or the connection was lost: the branch can only be rolled back";
            return Err(unusable(ErrorKind::Statement, torn));
        }
        notes.look_for_unseen(wire.conn()).await?;
        let was_suspect = notes.suspect;
        notes.enter(call);
        Ok((wire.conn(), notes, was_suspect))
    }
}

impl Drop for MysqlBranch<'_> {
    fn drop(&mut self) {
        self.close_if_abandoned();
    }
}

fn unusable(kind: ErrorKind, message: &str) -> MyError {
    MyError::Other(Error::new(kind, message).into())
}

/// What the driver's trait returns.
type Answer<'a, T> = BoxFuture<'a, Result<T, MyError>>;

/// Runs one whole call of the driver.
macro_rules! watched {
    ($self:ident, $call:expr, |$conn:ident| $run:expr) => {{
        let call = $call;
        async move {
            let ($conn, notes, was_suspect) = $self.enter(&call).await?;
            let answer = $run.await;
            notes.leave(call, was_suspect, answer)
        }
        .boxed()
    }};
}

/// The same for a call whose answer the application goes on reading.
macro_rules! watched_open {
    ($self:ident, $call:expr, |$conn:ident| $run:expr) => {{
        let call = $call;
        async move {
            let ($conn, notes, was_suspect) = $self.enter(&call).await?;
            notes.unseen = true;
            let answer = $run.await;
            notes.leave(call, was_suspect, answer)
        }
        .boxed()
    }};
}

impl Queryable for MysqlBranch<'_> {
    fn ping(&mut self) -> Answer<'_, ()> {
        watched!(self, Call::plain(), |conn| conn.ping())
    }

    fn query_iter<'a, Q>(&'a mut self, query: Q) -> Answer<'a, QueryResult<'a, 'static, TextProtocol>>
    where
        Q: AsQuery + 'a,
    {
        watched_open!(self, Call::text(&query), |conn| conn.query_iter(query))
    }

    fn prep<'a, Q>(&'a mut self, query: Q) -> Answer<'a, Statement>
    where
        Q: AsQuery + 'a,
    {
        watched!(self, Call::plain(), |conn| conn.prep(query))
    }

    fn close(&mut self, stmt: Statement) -> Answer<'_, ()> {
        watched!(self, Call::plain(), |conn| conn.close(stmt))
    }

    fn exec_iter<'a: 's, 's, Q, P>(
        &'a mut self,
        stmt: Q,
        params: P,
    ) -> Answer<'s, QueryResult<'a, 'static, BinaryProtocol>>
    where
        Q: StatementLike + 's,
        P: Into<Params>,
    {
        let params = params.into();
        watched_open!(self, Call::unseen(), |conn| conn.exec_iter(stmt, params))
    }

    fn query<'a, T, Q>(&'a mut self, query: Q) -> Answer<'a, Vec<T>>
    where
        Q: AsQuery + 'a,
        T: FromRow + Send + 'static,
    {
        watched!(self, Call::text(&query), |conn| conn.query(query))
    }

    fn query_first<'a, T, Q>(&'a mut self, query: Q) -> Answer<'a, Option<T>>
    where
        Q: AsQuery + 'a,
        T: FromRow + Send + 'static,
    {
        watched!(self, Call::text(&query), |conn| conn.query_first(query))
    }

    fn query_map<'a, T, F, Q, U>(&'a mut self, query: Q, f: F) -> Answer<'a, Vec<U>>
    where
        Q: AsQuery + 'a,
        T: FromRow + Send + 'static,
        F: FnMut(T) -> U + Send + 'a,
        U: Send,
    {
        watched!(self, Call::text(&query), |conn| conn.query_map(query, f))
    }

    fn query_fold<'a, T, F, Q, U>(&'a mut self, query: Q, init: U, f: F) -> Answer<'a, U>
    where
        Q: AsQuery + 'a,
        T: FromRow + Send + 'static,
        F: FnMut(U, T) -> U + Send + 'a,
        U: Send + 'a,
    {
        watched!(self, Call::text(&query), |conn| conn.query_fold(query, init, f))
    }

    fn query_drop<'a, Q>(&'a mut self, query: Q) -> Answer<'a, ()>
    where
        Q: AsQuery + 'a,
    {
        watched!(self, Call::text(&query), |conn| conn.query_drop(query))
    }

    fn exec_batch<'a: 'b, 'b, S, P, I>(&'a mut self, stmt: S, params_iter: I) -> Answer<'b, ()>
    where
        S: StatementLike + 'b,
        I: IntoIterator<Item = P> + Send + 'b,
        I::IntoIter: Send,
        P: Into<Params> + Send,
    {
        watched!(self, Call::unseen(), |conn| conn.exec_batch(stmt, params_iter))
    }

    fn exec<'a: 'b, 'b, T, S, P>(&'a mut self, stmt: S, params: P) -> Answer<'b, Vec<T>>
    where
        S: StatementLike + 'b,
        P: Into<Params> + Send + 'b,
        T: FromRow + Send + 'static,
    {
        watched!(self, Call::unseen(), |conn| conn.exec(stmt, params))
    }

    fn exec_first<'a: 'b, 'b, T, S, P>(&'a mut self, stmt: S, params: P) -> Answer<'b, Option<T>>
    where
        S: StatementLike + 'b,
        P: Into<Params> + Send + 'b,
        T: FromRow + Send + 'static,
    {
        watched!(self, Call::unseen(), |conn| conn.exec_first(stmt, params))
    }

    fn exec_map<'a: 'b, 'b, T, S, P, U, F>(&'a mut self, stmt: S, params: P, f: F) -> Answer<'b, Vec<U>>
    where
        S: StatementLike + 'b,
        P: Into<Params> + Send + 'b,
        T: FromRow + Send + 'static,
        F: FnMut(T) -> U + Send + 'a,
        U: Send + 'a,
    {
        watched!(self, Call::unseen(), |conn| conn.exec_map(stmt, params, f))
    }

    fn exec_fold<'a: 'b, 'b, T, S, P, U, F>(&'a mut self, stmt: S, params: P, init: U, f: F) -> Answer<'b, U>
    where
        S: StatementLike + 'b,
        P: Into<Params> + Send + 'b,
        T: FromRow + Send + 'static,
        F: FnMut(U, T) -> U + Send + 'a,
        U: Send + 'a,
    {
        watched!(self, Call::unseen(), |conn| conn.exec_fold(stmt, params, init, f))
    }

    fn exec_drop<'a: 'b, 'b, S, P>(&'a mut self, stmt: S, params: P) -> Answer<'b, ()>
    where
        S: StatementLike + 'b,
        P: Into<Params> + Send + 'b,
    {
        watched!(self, Call::unseen(), |conn| conn.exec_drop(stmt, params))
    }

    fn query_stream<'a, T, Q>(&'a mut self, query: Q) -> Answer<'a, ResultSetStream<'a, 'a, 'static, T, TextProtocol>>
    where
        T: Unpin + FromRow + Send + 'static,
        Q: AsQuery + 'a,
    {
        watched_open!(self, Call::text(&query), |conn| conn.query_stream(query))
    }

    fn exec_stream<'a: 's, 's, T, Q, P>(
        &'a mut self,
        stmt: Q,
        params: P,
    ) -> Answer<'s, ResultSetStream<'a, 'a, 'static, T, BinaryProtocol>>
    where
        T: Unpin + FromRow + Send + 'static,
        Q: StatementLike + 's,
        P: Into<Params> + Send + 's,
    {
        watched_open!(self, Call::unseen(), |conn| conn.exec_stream(stmt, params))
    }
}
