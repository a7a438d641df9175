//! What an application works through: the whole of the driver's trait, every call of it watched.
//!
//! A call that is dropped half way leaves an answer behind that the next call would take for its own. The branch is of
//! no more use then.

use super::error::MyError;
use super::notes::{Call, Notes};
use super::session::{Lease, Place};
use crate::error::{Error, ErrorKind};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use mysql_async::prelude::{AsQuery, FromRow, Queryable, StatementLike};
use mysql_async::{BinaryProtocol, Conn, Params, QueryResult, ResultSetStream, Statement, TextProtocol};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{Mutex, OwnedMutexGuard, watch};

/// A branch's [handle](crate::participant::Branch::handle): the way to its session until the branch ends.
pub struct Lent {
    desk: Arc<Mutex<Option<Work>>>,
    place: Arc<Place>,
    /// The branch has taken the session to end its work.
    taken: AtomicBool,
    /// The branch is ending: no more calls.
    ended: AtomicBool,
    /// The branch is gone: whoever holds its session closes it, and waits for no answer on it any more.
    abandoned: watch::Sender<bool>,
}

/// A session at work.
pub(super) struct Work {
    /// `None` once it was closed.
    pub(super) lease: Option<Lease>,
    pub(super) notes: Notes,
}

impl Lent {
    pub(super) fn new(lease: Lease) -> Arc<Self> {
        let place = lease.place();
        let desk = Arc::new(Mutex::new(Some(Work { lease: Some(lease), notes: Notes::default() })));
        let (taken, ended) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { desk, place, taken, ended, abandoned: watch::Sender::new(false) })
    }

    /// Takes the session away from the application, waiting until it is let go of.
    pub(super) async fn take(&self) -> Option<Work> {
        self.ended.store(true, Ordering::SeqCst);
        let mut desk = self.desk.lock().await;
        self.taken.store(true, Ordering::SeqCst);
        desk.take()
    }

    /// Takes the session away and closes it: now, or when the application lets go of it. It may never: then the server is
    /// told to end the session, with its locks, and its place in the pool is free.
    pub(super) fn close(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.abandoned.send_replace(true);
        match self.desk.try_lock() {
            Ok(mut desk) => drop(desk.take()),
            Err(_) if self.taken.load(Ordering::SeqCst) => {}
            Err(_) => self.place.give_up(),
        }
    }

    /// Waits until the branch is gone.
    async fn is_gone(&self) {
        // It ends with an error only when the sender is gone, which is this.
        let _ = self.abandoned.subscribe().wait_for(|gone| *gone).await;
    }
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
    ///
    /// # Cancel safety
    /// Dropped while it waits, it has lent nothing.
    pub async fn lock(lent: Arc<Lent>) -> Self {
        let desk = lent.desk.clone().lock_owned().await;
        Self { desk, lent, transaction: PhantomData }
    }

    /// The branch went while this was lent: nobody else closes its session.
    fn close_if_abandoned(&mut self) {
        if *self.lent.abandoned.borrow() {
            drop(self.desk.take());
        }
    }

    /// The connection, for one call.
    async fn enter(&mut self, call: &Call) -> Result<(&mut Conn, &mut Notes), MyError> {
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
        notes.enter(call);
        Ok((wire.conn(), notes))
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

/// Runs one whole call of the driver, as long as the branch is there: at its deadline the network may have swallowed the
/// answer, and the end of the session with it.
macro_rules! watched {
    ($self:ident, $call:expr, |$conn:ident| $run:expr) => {{
        let (call, lent) = ($call, $self.lent.clone());
        let whole = async move {
            let ($conn, notes) = $self.enter(&call).await?;
            let answer = $run.await;
            notes.leave(call, answer)
        };
        async move {
            tokio::select! {
                biased;
                answer = whole => answer,
                () = lent.is_gone() => Err(unusable(ErrorKind::Closed, "the branch has ended")),
            }
        }
        .boxed()
    }};
}

/// The same for a call whose answer the application goes on reading.
macro_rules! watched_open {
    ($self:ident, $call:expr, |$conn:ident| $run:expr) => {{
        let (call, lent) = ($call, $self.lent.clone());
        let whole = async move {
            let ($conn, notes) = $self.enter(&call).await?;
            notes.leaves_rest();
            let answer = $run.await;
            notes.leave(call, answer)
        };
        async move {
            tokio::select! {
                biased;
                answer = whole => answer,
                () = lent.is_gone() => Err(unusable(ErrorKind::Closed, "the branch has ended")),
            }
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
