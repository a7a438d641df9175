//! A transaction in an application's hands, and the branches it works through.
//!
//! Work is done on the drivers' own types: [`Transaction::postgres`] lends a `tokio_postgres::Client`,
//! [`Transaction::mysql`] a `mysql_async::prelude::Queryable`. A branch begins when it is first asked for. Branches
//! of different participants can be used at the same time.
//!
//! ```no_run
//! # async fn example(bridge: handfast::Bridge) -> Result<(), Box<dyn std::error::Error>> {
//! use handfast::mysql_async::prelude::Queryable;
//!
//! let tx = bridge.begin().await?;
//! let (mut ledger, mut orders) = tokio::try_join!(tx.postgres("ledger"), tx.mysql("orders"))?;
//! ledger.execute("UPDATE account SET cents = cents - $1 WHERE id = $2", &[&700i64, &1i32]).await?;
//! orders.exec_drop("INSERT INTO payment (account, cents) VALUES (?, ?)", (1, 700)).await?;
//! drop((ledger, orders));
//! tx.commit().await?;
//! # Ok(())
//! # }
//! ```

use crate::engine::{Engine, Enlisted, Job, Member, Overdue, Verdict, after, pump};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{ParticipantName, TransactionId};
use crate::participant::mysql::MysqlBranch;
use crate::participant::postgres::{self, PostgresBranch};
use crate::participant::{BeginOptions, Isolation};
use crate::protocol::{self, Acknowledge, Input, Mode, Outcome};
use crate::telemetry::{self, Phase, Timer};
use crate::torture::{self, Request};
use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{OnceCell, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::{Instrument, Span};

/// How a transaction is to run, where it differs from the configuration.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Options {
    isolation: Isolation,
    /// Where a branch has one of its own.
    isolations: Vec<(String, Isolation)>,
    pub(crate) retries: Option<u32>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) acknowledge: Option<Acknowledge>,
    pub(crate) read_only: Vec<String>,
}

impl Options {
    /// As configured.
    pub fn new() -> Self {
        Self::default()
    }

    /// The isolation of every branch, but for those that [`isolation_of`](Self::isolation_of) names.
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// The isolation of one participant's branch.
    pub fn isolation_of(mut self, participant: impl Into<String>, isolation: Isolation) -> Self {
        self.isolations.push((participant.into(), isolation));
        self
    }

    /// How often [`Bridge::transaction_with`](crate::Bridge::transaction_with) runs its closure again; 0 is never.
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = Some(retries);
        self
    }

    /// The deadline: what is not decided by then is rolled back, locks included.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// When `commit` answers.
    pub fn acknowledge(mut self, acknowledge: Acknowledge) -> Self {
        self.acknowledge = Some(acknowledge);
        self
    }

    /// Declares that this participant is only read from: its branch costs no prepare and no forced write.
    pub fn read_only(mut self, participant: impl Into<String>) -> Self {
        self.read_only.push(participant.into());
        self
    }

    /// The participants that are named.
    pub(crate) fn named(&self) -> impl Iterator<Item = &str> {
        let isolated = self.isolations.iter().map(|(name, _)| name);
        self.read_only.iter().chain(isolated).map(String::as_str)
    }

    /// The isolation of a branch; what was said last counts.
    fn isolation_at(&self, participant: ParticipantName) -> Isolation {
        let own = self.isolations.iter().rfind(|(name, _)| name == participant.as_str());
        own.map_or(self.isolation, |(_, isolation)| *isolation)
    }
}

/// A durable commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// The transaction's id, under which its outcome can be asked for at any later time.
    pub id: TransactionId,
    /// Participants on which the commit is decided but was not yet seen to be applied; empty in all but rare cases.
    pub pending: Vec<ParticipantName>,
}

/// A commit that did not answer *committed*.
#[derive(Debug)]
pub struct CommitError {
    id: TransactionId,
    outcome: Outcome,
    cause: Error,
    cleanup: Vec<Error>,
}

impl CommitError {
    /// What is certain: [`Outcome::RolledBack`], [`Outcome::InDoubt`] or [`Outcome::Damaged`].
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// The transaction, to ask for its outcome later.
    pub fn id(&self) -> TransactionId {
        self.id
    }

    /// What to do next: of a transaction that was rolled back the first cause's kind, else
    /// [`ErrorKind::InDoubt`] or [`ErrorKind::Damaged`].
    pub fn kind(&self) -> ErrorKind {
        match self.outcome {
            Outcome::RolledBack => self.cause.kind(),
            Outcome::InDoubt => ErrorKind::InDoubt,
            Outcome::Damaged => ErrorKind::Damaged,
            Outcome::Committed => unreachable!("a commit is no error"),
        }
    }

    /// The first thing that went wrong: also the [`source`](std::error::Error::source).
    pub fn cause(&self) -> &Error {
        &self.cause
    }

    /// What went wrong after the cause, while cleaning up.
    pub fn cleanup(&self) -> &[Error] {
        &self.cleanup
    }
}

impl fmt::Display for CommitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.outcome {
            Outcome::RolledBack => write!(f, "transaction {} was rolled back", self.id),
            Outcome::InDoubt => {
                write!(f, "transaction {} is in doubt: do not run it again, ask for its outcome by this id", self.id)
            }
            _ => write!(f, "transaction {} is damaged: part of its work may be committed, a person is needed", self.id),
        }
    }
}

impl std::error::Error for CommitError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

impl From<CommitError> for Error {
    fn from(error: CommitError) -> Self {
        let message = error.to_string();
        Error::new(error.kind(), message).of(error.id).because(error.cause)
    }
}

/// One global transaction, from [`Bridge::begin`](crate::Bridge::begin).
///
/// Dropped without [`commit`](Self::commit) it is rolled back in the background.
pub struct Transaction {
    /// Taken by commit and rollback.
    inner: Option<Arc<Inner>>,
}

/// What the application's handle and the deadline share.
struct Inner {
    engine: Arc<Engine>,
    id: TransactionId,
    options: Options,
    deadline: Instant,
    span: Span,
    /// One for each participant of the bridge.
    branches: Vec<OnceCell<Arc<dyn Any + Send + Sync>>>,
    stage: Mutex<Stage>,
}

/// Who may use the branches.
enum Stage {
    /// The application; enlisted so far.
    Open(Vec<Enlisted>),
    /// Nobody: commit, rollback or the deadline took them.
    Ended(ErrorKind, &'static str),
}

impl Transaction {
    pub(crate) fn new(engine: Arc<Engine>, id: TransactionId, options: Options) -> Self {
        let deadline = after(options.timeout.unwrap_or(engine.transaction.timeout));
        let branches = engine.members.iter().map(|_| OnceCell::new()).collect();
        let stage = Mutex::new(Stage::Open(Vec::new()));
        let inner = Arc::new(Inner { engine, id, options, deadline, span: telemetry::span(id), branches, stage });
        // From the beginning: who closes the bridge waits for this transaction, whether or not it is ever used.
        let overdue: Weak<Inner> = Arc::downgrade(&inner);
        inner.engine.deadlines.add(deadline, id.sequence, overdue);
        Self { inner: Some(inner) }
    }

    fn inner(&self) -> &Arc<Inner> {
        self.inner.as_ref().expect("only commit, rollback and drop take it, and they take the handle too")
    }

    /// The transaction's id, under which its outcome can be asked for at any later time.
    pub fn id(&self) -> TransactionId {
        self.inner().id
    }

    /// The transaction's span: enter it, or instrument work with it, and what is traced there belongs to the transaction.
    /// [`Bridge::transaction`](crate::Bridge::transaction) does so by itself.
    pub fn span(&self) -> &Span {
        &self.inner().span
    }

    /// The branch on a PostgreSQL participant, begun on first use.
    ///
    /// What is lent derefs to `tokio_postgres::Client`. Do not send `COMMIT` or `ROLLBACK` through it: prepare finds
    /// it out, and the transaction cannot commit.
    ///
    /// On a session that was just in use, the begin goes out together with the first statement. Should it be refused, by
    /// a request to cancel that comes late for example, that statement fails, and the commit with [`ErrorKind::Retry`].
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a name that is no PostgreSQL participant, [`ErrorKind::Unavailable`] when it cannot
    /// be reached, [`ErrorKind::TimedOut`] after the deadline.
    ///
    /// # Cancel safety
    /// A branch whose begin was cut off is closed, and begun anew by the next call.
    pub async fn postgres(&self, participant: &str) -> Result<PostgresBranch<'_>> {
        let lent: Arc<postgres::Lent> = self.lend(participant, "postgres").await?;
        PostgresBranch::new(lent)
    }

    /// The branch on a MySQL or MariaDB participant, begun on first use.
    ///
    /// What is lent implements `mysql_async::prelude::Queryable`. A second call waits until what the first one lent
    /// is dropped. A statement that fails makes the transaction rollback-only, unless a savepoint was set before it
    /// and is rolled back to. The branch begins with its first statement, which says what keeps it from beginning: as a
    /// driver's error that turns into an [`Error`] of the kind that says what to do.
    ///
    /// # Errors
    /// As [`postgres`](Self::postgres).
    ///
    /// # Cancel safety
    /// As [`postgres`](Self::postgres).
    pub async fn mysql(&self, participant: &str) -> Result<MysqlBranch<'_>> {
        let lent = self.lend(participant, "mysql").await?;
        // Most is lent once.
        if let Some(branch) = MysqlBranch::try_lock(&lent) {
            return Ok(branch);
        }
        let turn = tokio::time::timeout_at(self.inner().deadline, MysqlBranch::lock(lent));
        Box::pin(turn).await.map_err(|_| {
            let text = "what was lent of this branch before was not given back by the transaction's deadline";
            Error::new(ErrorKind::TimedOut, format!("{participant}: {text}"))
        })
    }

    /// The branch on a participant of another kind, begun on first use: what its
    /// [`Branch::handle`](crate::participant::Branch::handle) gives.
    ///
    /// # Errors
    /// As [`postgres`](Self::postgres); [`ErrorKind::Config`] also when the handle is no `T`.
    ///
    /// # Cancel safety
    /// As [`postgres`](Self::postgres).
    pub async fn branch<T: Any + Send + Sync>(&self, participant: &str) -> Result<Arc<T>> {
        self.lend(participant, std::any::type_name::<T>()).await
    }

    async fn lend<T: Any + Send + Sync>(&self, participant: &str, asked_for: &str) -> Result<Arc<T>> {
        let inner = self.inner();
        let member = inner.engine.member(participant)?;
        let place = &inner.branches[usize::from(member.number)];
        let begin = || inner.begin(member).instrument(Phase::Begin.span(&inner.span, Some(member.name)));
        // The application's own future would have room for it as long as that lives.
        let handle = Box::pin(place.get_or_try_init(begin)).await?.clone();
        inner.open()?;
        handle.downcast().map_err(|_| {
            let kind = member.participant.kind();
            Error::new(ErrorKind::Config, format!("it is of kind {kind}, not {asked_for}")).at(member.name)
        })
    }

    /// Whether a branch was never begun, as its session has told when it was lent already. That is the cause of whatever
    /// the application has run into on it, and another try meets another session.
    pub(crate) fn was_never_begun(&self) -> bool {
        let begun = self.inner().branches.iter().filter_map(OnceCell::get);
        begun.filter_map(|handle| handle.downcast_ref::<postgres::Lent>()).any(postgres::Lent::was_never_begun)
    }

    /// Commits on every participant, or on none.
    ///
    /// ```no_run
    /// # async fn example(tx: handfast::Transaction) {
    /// match tx.commit().await {
    ///     Ok(committed) => println!("{} is committed", committed.id),
    ///     Err(error) if error.outcome() == handfast::Outcome::RolledBack => println!("nothing was done: {error}"),
    ///     Err(error) => println!("never to be run again: {} is {}", error.id(), error.outcome().as_str()),
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`CommitError`], whose [`outcome`](CommitError::outcome) says what is certain.
    ///
    /// # Cancel safety
    /// From the first poll on the work is done in a task of its own: a dropped future never leaves it half way, and
    /// [`Bridge::outcome`](crate::Bridge::outcome) tells how it ended. Dropped before, the transaction rolls back.
    pub async fn commit(mut self) -> Result<Committed, CommitError> {
        let inner = self.inner.take().expect("the handle is whole until here");
        let id = inner.id;
        let failed = |outcome, cause| CommitError { id, outcome, cause, cleanup: Vec::new() };
        let verdict = match inner.end(Input::Commit) {
            Ok((verdict, _task)) => verdict,
            Err(ended) => return Err(failed(Outcome::RolledBack, ended)),
        };
        match verdict.await {
            Ok(Verdict { outcome: Outcome::Committed, pending, .. }) => Ok(Committed { id, pending }),
            Ok(Verdict { outcome, cause, cleanup, .. }) => {
                let cause = cause.unwrap_or_else(|| Error::new(ErrorKind::Statement, "no cause was given"));
                Err(CommitError { id, outcome, cause, cleanup })
            }
            // Whatever it had done, recovery finds out.
            Err(_) => {
                let gone = "the task that commits is gone: its runtime was shut down, or it met a bug";
                Err(failed(Outcome::InDoubt, Error::new(ErrorKind::Closed, gone)))
            }
        }
    }

    /// Rolls back on every participant, and returns when that has been answered or was left to the resolver.
    ///
    /// # Errors
    /// None today; room for a participant whose rollback can be found impossible.
    ///
    /// # Cancel safety
    /// As [`commit`](Self::commit); dropped before the first poll, the transaction rolls back all the same.
    pub async fn rollback(mut self) -> Result<()> {
        let inner = self.inner.take().expect("the handle is whole until here");
        if let Ok((_verdict, task)) = inner.end(Input::Abort) {
            // It fails only with its runtime: the servers roll back what loses its connection.
            let _ = task.await;
        }
        Ok(())
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take() {
            // Already ended by its deadline: nothing is left to do.
            let _ = inner.end(Input::Abort);
        }
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").field("id", &self.inner.as_ref().map(|inner| inner.id)).finish_non_exhaustive()
    }
}

/// No branch began in time. A lease that could not be taken says why.
fn late(member: &Member) -> Error {
    let error = Error::new(ErrorKind::TimedOut, "the transaction's deadline passed before the branch began");
    match member.lease_lost() {
        Some((_, cause)) => error.because(cause),
        None => error,
    }
}

impl Inner {
    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> Result<()> {
        match &*self.stage() {
            Stage::Open(_) => Ok(()),
            Stage::Ended(kind, why) => Err(self.ended(*kind, why)),
        }
    }

    /// Begins the branch on a member: what the application is lent.
    async fn begin(&self, member: &Member) -> Result<Arc<dyn Any + Send + Sync>> {
        self.open()?;
        let timer = Timer::start();
        let options = self.begin_options(member);
        let begin = async {
            let lineage = self.engine.ready(member).await?;
            self.engine.leased(member).await?;
            let begin = member.participant.begin(self.id, options);
            let branch = torture::request(Request::Begin, member.name, begin).await?;
            Ok::<_, Error>((lineage, branch))
        };
        let (lineage, branch) = tokio::time::timeout_at(self.deadline, begin)
            .await
            .map_err(|_| late(member))
            .flatten()
            .map_err(|error| error.at(member.name))?;
        telemetry::phase(Phase::Begin, timer);
        let info = protocol::Branch { id: branch.id(), participant: member.name, lineage, mode: options.mode };
        self.enlist(Enlisted { info, branch })
    }

    fn begin_options(&self, member: &Member) -> BeginOptions {
        let read_only = self.options.read_only.iter().any(|name| name == member.name.as_str());
        let configured = self.engine.transaction.effective_lock_timeout();
        BeginOptions {
            mode: if read_only { Mode::ReadOnly } else { Mode::Writer },
            isolation: self.options.isolation_at(member.name),
            lock_timeout: self.options.timeout.map_or(configured, |own| configured.min(own / 2)),
        }
    }

    fn enlist(&self, new: Enlisted) -> Result<Arc<dyn Any + Send + Sync>> {
        let handle = new.branch.handle();
        if let Stage::Open(enlisted) = &mut *self.stage() {
            enlisted.push(new);
            return Ok(handle);
        }
        // The deadline passed meanwhile: dropping the branch closes its session.
        self.open().map(|()| handle)
    }

    /// Takes the branches away from the application. `Err` says why they are gone already.
    fn close(&self, kind: ErrorKind, why: &'static str) -> Result<Vec<Enlisted>> {
        let mut stage = self.stage();
        match &mut *stage {
            Stage::Ended(kind, why) => Err(self.ended(*kind, why)),
            Stage::Open(enlisted) => {
                let enlisted = std::mem::take(enlisted);
                *stage = Stage::Ended(kind, why);
                drop(stage);
                self.engine.deadlines.remove(self.deadline, self.id.sequence);
                Ok(enlisted)
            }
        }
    }

    fn ended(&self, kind: ErrorKind, why: &str) -> Error {
        Error::new(kind, format!("transaction {} {why}", self.id))
    }

    /// Hands the branches to a coordinator in a task of its own, and tells where its verdict will come.
    fn end(&self, input: Input) -> Result<(oneshot::Receiver<Verdict>, JoinHandle<()>)> {
        let enlisted = self.close(ErrorKind::Closed, "has ended")?;
        let (answer, verdict) = oneshot::channel();
        let job = Job {
            engine: self.engine.clone(),
            id: self.id,
            enlisted,
            acknowledge: self.options.acknowledge.unwrap_or(self.engine.transaction.acknowledge),
            deadline: self.deadline,
            span: self.span.clone(),
        };
        Ok((verdict, self.engine.runtime.spawn(pump::run(job, input, answer))))
    }
}

impl Overdue for Inner {
    /// Ends the transaction, whether or not the application comes back: its sessions are ended from outside, since the
    /// application may be in the middle of a statement on them, or asleep with one in its hand.
    fn expire(self: Arc<Self>) {
        let Ok(enlisted) = self.close(ErrorKind::TimedOut, "was rolled back at its deadline") else { return };
        self.span.record("outcome", Outcome::RolledBack.as_str());
        tracing::warn!(parent: &self.span, id = %self.id, "transaction rolled back at its deadline");
        let (engine, id) = (self.engine.clone(), self.id);
        engine.runtime.clone().spawn(async move {
            let ends = enlisted.iter().map(|e| engine.end_session(e.info.participant, e.branch.id().session()));
            futures_util::future::join_all(ends).await;
            drop(enlisted);
            engine.live.end(id.sequence, Outcome::RolledBack, Vec::new());
        });
    }
}
