//! What an application works through: the whole of the driver's trait, every call of it watched.
//!
//! A call that is dropped half way leaves an answer behind that the next call would take for its own. The branch is of
//! no more use then.

use super::error::MyError;
use super::notes::Call;
use super::session::Place;
use super::wire::{Answers, Failure};
use super::work::{Entered, Work};
use crate::error::{Error, ErrorKind};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::task::AtomicWaker;
use mysql_async::prelude::{AsQuery, FromRow, Queryable, StatementLike};
use mysql_async::{BinaryProtocol, Params, QueryResult, ResultSetStream, Row, Statement, TextProtocol, from_row};
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tokio::sync::{Mutex, OwnedMutexGuard};

/// A branch's [handle](crate::participant::Branch::handle): the way to its session until the branch ends.
pub struct Lent {
    desk: Arc<Mutex<Option<Work>>>,
    place: Arc<Place>,
    /// The branch has taken the session to end its work.
    taken: AtomicBool,
    /// The branch is ending: no more calls.
    ended: AtomicBool,
    /// The branch is gone: whoever holds its session closes it, and waits for no answer on it any more.
    abandoned: AtomicBool,
    /// Whoever is in a call, which takes the desk: one at a time.
    in_call: AtomicWaker,
}

impl Lent {
    pub(super) fn new(work: Work, place: Arc<Place>) -> Arc<Self> {
        let desk = Arc::new(Mutex::new(Some(work)));
        let (taken, ended, abandoned) = (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { desk, place, taken, ended, abandoned, in_call: AtomicWaker::new() })
    }

    /// Begins the branch, before anybody else has a way to its session.
    pub(super) async fn begin(&self) -> Result<(), Failure> {
        match &mut *self.desk.lock().await {
            Some(work) => work.begin().await,
            None => Ok(()),
        }
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
        self.abandoned.store(true, Ordering::SeqCst);
        self.in_call.wake();
        match self.desk.try_lock() {
            Ok(mut desk) => drop(desk.take()),
            Err(_) if self.taken.load(Ordering::SeqCst) => {}
            Err(_) => self.place.give_up(),
        }
    }

    fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::SeqCst)
    }

    /// Ready once the branch is gone.
    fn poll_gone(&self, cx: &Context<'_>) -> Poll<()> {
        self.in_call.register(cx.waker());
        // Looked at afterwards: what is told in between is not missed.
        if self.is_abandoned() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Looks at one whole call, as long as the branch is there: at its deadline the network may have swallowed the answer,
    /// and the end of the session with it.
    fn poll_call<T>(
        &self,
        call: Pin<&mut impl Future<Output = Result<T, MyError>>>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<T, MyError>> {
        match call.poll(cx) {
            Poll::Pending => self.poll_gone(cx).map(|()| Err(ended())),
            answered => answered,
        }
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

    /// What [`lock`](Self::lock) gives, where nobody has it.
    pub(crate) fn try_lock(lent: &Arc<Lent>) -> Option<Self> {
        let desk = lent.desk.clone().try_lock_owned().ok()?;
        Some(Self { desk, lent: lent.clone(), transaction: PhantomData })
    }

    /// The branch went while this was lent: nobody else closes its session.
    fn close_if_abandoned(&mut self) {
        if self.lent.is_abandoned() {
            drop(self.desk.take());
        }
    }

    /// The session, for one call.
    async fn enter(&mut self, call: &Call) -> Result<Entered<'_>, MyError> {
        self.close_if_abandoned();
        if self.lent.ended.load(Ordering::SeqCst) {
            return Err(ended());
        }
        let work = self.desk.as_mut().ok_or_else(ended)?;
        let wire = work.lease.as_mut().ok_or_else(ended)?.wire();
        if work.notes.is_torn() || wire.is_broken() {
            let torn = "a call was dropped half way or the connection was lost: the branch can only be rolled back";
            return Err(unusable(ErrorKind::Statement, torn));
        }
        work.notes.look_for_unseen(wire.conn()).await?;
        work.notes.enter(call);
        work.enter(call).await
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

fn ended() -> MyError {
    unusable(ErrorKind::Closed, "the branch has ended")
}

/// What the driver's trait returns.
type Answer<'a, T> = BoxFuture<'a, Result<T, MyError>>;

/// One whole call, watched.
macro_rules! watched {
    ($self:ident, $call:expr, |$way:ident, $notes:ident| $run:expr) => {{
        let (call, lent) = ($call, $self.lent.clone());
        async move {
            // Made where it stays: each move of it would cost as much room again.
            let mut whole = pin!(async move {
                let Entered { way: $way, notes: $notes } = $self.enter(&call).await?;
                let answer = $run;
                $notes.leave(&call, answer)
            });
            poll_fn(|cx| lent.poll_call(whole.as_mut(), cx)).await
        }
        .boxed()
    }};
}

/// A call by the text protocol, in which the branch may begin: what is done with the answer is what the driver does with it.
macro_rules! text {
    ($self:ident, $query:expr, |$answers:ident| $run:expr) => {{
        let query = $query;
        watched!($self, Call::text(&query), |way, notes| match way.query(query).await {
            Ok($answers) => $run,
            Err(error) => Err(error),
        })
    }};
}

/// A call of the driver by the binary protocol, or one without a text.
macro_rules! call {
    ($self:ident, $call:expr, |$conn:ident| $run:expr) => {
        watched!($self, $call, |way, notes| {
            let $conn = way.conn;
            $run.await
        })
    };
}

/// The first row of the first result set, as the driver finds it.
async fn first<T: FromRow>(answers: Answers<'_>) -> Result<Option<T>, MyError> {
    let first = answers.reduce_and_drop(None, |first: Option<Row>, row: Row| first.or(Some(row)));
    Ok(first.await?.map(from_row))
}

/// The rows of the first result set, as they come.
async fn stream<'a, T: Unpin + FromRow + Send + 'static>(
    answers: Answers<'a>,
) -> Result<ResultSetStream<'a, 'a, 'static, T, TextProtocol>, MyError> {
    answers.stream_and_drop().await?.ok_or_else(|| MyError::Other("the server answered no result set".into()))
}

impl Queryable for MysqlBranch<'_> {
    fn ping(&mut self) -> Answer<'_, ()> {
        call!(self, Call::plain(), |conn| conn.ping())
    }

    fn query_iter<'a, Q>(&'a mut self, query: Q) -> Answer<'a, QueryResult<'a, 'static, TextProtocol>>
    where
        Q: AsQuery + 'a,
    {
        watched!(self, Call::text(&query), |way, notes| {
            notes.leaves_rest();
            way.query(query).await
        })
    }

    fn prep<'a, Q>(&'a mut self, query: Q) -> Answer<'a, Statement>
    where
        Q: AsQuery + 'a,
    {
        call!(self, Call::plain(), |conn| conn.prep(query))
    }

    fn close(&mut self, stmt: Statement) -> Answer<'_, ()> {
        call!(self, Call::plain(), |conn| conn.close(stmt))
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
        watched!(self, Call::unseen(), |way, notes| {
            notes.leaves_rest();
            way.conn.exec_iter(stmt, params).await
        })
    }

    fn query<'a, T, Q>(&'a mut self, query: Q) -> Answer<'a, Vec<T>>
    where
        Q: AsQuery + 'a,
        T: FromRow + Send + 'static,
    {
        text!(self, query, |answers| answers.collect_and_drop().await)
    }

    fn query_first<'a, T, Q>(&'a mut self, query: Q) -> Answer<'a, Option<T>>
    where
        Q: AsQuery + 'a,
        T: FromRow + Send + 'static,
    {
        text!(self, query, |answers| first(answers).await)
    }

    fn query_map<'a, T, F, Q, U>(&'a mut self, query: Q, mut f: F) -> Answer<'a, Vec<U>>
    where
        Q: AsQuery + 'a,
        T: FromRow + Send + 'static,
        F: FnMut(T) -> U + Send + 'a,
        U: Send,
    {
        text!(self, query, |answers| answers.map_and_drop(|row| f(from_row(row))).await)
    }

    fn query_fold<'a, T, F, Q, U>(&'a mut self, query: Q, init: U, mut f: F) -> Answer<'a, U>
    where
        Q: AsQuery + 'a,
        T: FromRow + Send + 'static,
        F: FnMut(U, T) -> U + Send + 'a,
        U: Send + 'a,
    {
        text!(self, query, |answers| answers.reduce_and_drop(init, &mut f).await)
    }

    fn query_drop<'a, Q>(&'a mut self, query: Q) -> Answer<'a, ()>
    where
        Q: AsQuery + 'a,
    {
        text!(self, query, |answers| answers.drop_result().await)
    }

    fn exec_batch<'a: 'b, 'b, S, P, I>(&'a mut self, stmt: S, params_iter: I) -> Answer<'b, ()>
    where
        S: StatementLike + 'b,
        I: IntoIterator<Item = P> + Send + 'b,
        I::IntoIter: Send,
        P: Into<Params> + Send,
    {
        call!(self, Call::unseen(), |conn| conn.exec_batch(stmt, params_iter))
    }

    fn exec<'a: 'b, 'b, T, S, P>(&'a mut self, stmt: S, params: P) -> Answer<'b, Vec<T>>
    where
        S: StatementLike + 'b,
        P: Into<Params> + Send + 'b,
        T: FromRow + Send + 'static,
    {
        call!(self, Call::unseen(), |conn| conn.exec(stmt, params))
    }

    fn exec_first<'a: 'b, 'b, T, S, P>(&'a mut self, stmt: S, params: P) -> Answer<'b, Option<T>>
    where
        S: StatementLike + 'b,
        P: Into<Params> + Send + 'b,
        T: FromRow + Send + 'static,
    {
        call!(self, Call::unseen(), |conn| conn.exec_first(stmt, params))
    }

    fn exec_map<'a: 'b, 'b, T, S, P, U, F>(&'a mut self, stmt: S, params: P, f: F) -> Answer<'b, Vec<U>>
    where
        S: StatementLike + 'b,
        P: Into<Params> + Send + 'b,
        T: FromRow + Send + 'static,
        F: FnMut(T) -> U + Send + 'a,
        U: Send + 'a,
    {
        call!(self, Call::unseen(), |conn| conn.exec_map(stmt, params, f))
    }

    fn exec_fold<'a: 'b, 'b, T, S, P, U, F>(&'a mut self, stmt: S, params: P, init: U, f: F) -> Answer<'b, U>
    where
        S: StatementLike + 'b,
        P: Into<Params> + Send + 'b,
        T: FromRow + Send + 'static,
        F: FnMut(U, T) -> U + Send + 'a,
        U: Send + 'a,
    {
        call!(self, Call::unseen(), |conn| conn.exec_fold(stmt, params, init, f))
    }

    fn exec_drop<'a: 'b, 'b, S, P>(&'a mut self, stmt: S, params: P) -> Answer<'b, ()>
    where
        S: StatementLike + 'b,
        P: Into<Params> + Send + 'b,
    {
        call!(self, Call::unseen(), |conn| conn.exec_drop(stmt, params))
    }

    fn query_stream<'a, T, Q>(&'a mut self, query: Q) -> Answer<'a, ResultSetStream<'a, 'a, 'static, T, TextProtocol>>
    where
        T: Unpin + FromRow + Send + 'static,
        Q: AsQuery + 'a,
    {
        watched!(self, Call::text(&query), |way, notes| {
            notes.leaves_rest();
            match way.query(query).await {
                Ok(answers) => stream(answers).await,
                Err(error) => Err(error),
            }
        })
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
        watched!(self, Call::unseen(), |way, notes| {
            notes.leaves_rest();
            way.conn.exec_stream(stmt, params).await
        })
    }
}
