//! The bridge: opens the journal and the participants, begins transactions, and keeps the resolver at work.
//!
//! Opening does, in this order: lock and read the journal, make durable what was read, write down a new incarnation,
//! register it with every participant that can be reached, settle what earlier incarnations left. Only then does a
//! transaction begin. A participant that cannot be reached does not hold the others up: the resolver goes on trying.

mod elsewhere;
#[cfg(feature = "metrics")]
mod figures;
#[cfg(test)]
mod tests;

use crate::config::Config;
use crate::engine::{Engine, Refusal, jittered, told};
use crate::error::{Error, ErrorKind, Result};
use crate::id::TransactionId;
use crate::participant::{self, BoxFuture, Participant};
use crate::protocol::Outcome;
use crate::resolver::{Pass, Resolver, Status};
use crate::telemetry;
use crate::transaction::{Options, Transaction};
use elsewhere::Elsewhere;
use futures_util::FutureExt;
use futures_util::future::join_all;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;
use tracing::Instrument;

/// The first pause before a transaction is run again; it doubles.
const RETRY_PAUSE: Duration = Duration::from_millis(5);

/// Why a transaction is run again whose work has met something else first.
const NEVER_BEGUN: &str = "a branch was never begun, and nothing of it was done";

/// One atomic transaction out of work on several databases: the entrance to the library.
///
/// Cheap to clone: all clones are one bridge. The journal stays locked until [`close`](Self::close) has returned, or
/// until shortly after the last clone is gone and what was begun with it has ended.
///
/// ```no_run
/// use handfast::{Bridge, Config};
///
/// # async fn example() -> handfast::Result<()> {
/// let bridge = Bridge::open(Config::load("config/handfast.toml")?).await?;
/// // The application's work, each task with a clone. On SIGTERM:
/// bridge.close().await
/// # }
/// ```
#[derive(Clone)]
pub struct Bridge {
    engine: Arc<Engine>,
    /// What decided for this node before, where that was elsewhere.
    elsewhere: Arc<Elsewhere>,
    background: Arc<Background>,
}

/// The tasks of the resolver and of the leases; they end with the last handle of the bridge.
struct Background(Mutex<Vec<JoinHandle<()>>>);

impl Drop for Background {
    fn drop(&mut self) {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..).for_each(|task| task.abort());
    }
}

/// Does something until it ends, if ever. A bug that it meets must not end it for good, no more than the resolver's passes.
async fn for_ever<T>(on: Arc<T>, pause: Duration, what: &'static str, work: fn(&T) -> BoxFuture<'_, ()>) {
    while AssertUnwindSafe(work(&on)).catch_unwind().await.is_err() {
        tracing::error!("{what} has met a bug; it begins anew");
        tokio::time::sleep(jittered(pause)).await;
    }
}

impl Bridge {
    /// Opens a bridge and settles what earlier openings left.
    ///
    /// Waits for participants that cannot be reached no longer than `recovery.open_wait`; what they hold is settled
    /// in the background when they come back. So are the earlier openings as a whole: their sessions are ended where a
    /// server has not noticed that they are gone, and commits whose note was lost are found.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] and [`ErrorKind::Setup`] name what to mend; [`ErrorKind::Refused`] when the journal is
    /// in use or a server is not the one that the journal knows; [`ErrorKind::Corrupt`] when the journal is damaged;
    /// [`ErrorKind::Unavailable`] when no participant at all can be reached. What can be settled on the other
    /// participants is settled before an error of one of them is returned.
    ///
    /// # Cancel safety
    /// May be dropped at any point; the lock on the journal is released.
    pub async fn open(config: Config) -> Result<Self> {
        Self::open_with(config, Vec::new()).await
    }

    /// [`open`](Self::open) with participants of kinds that the configuration does not know.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`ErrorKind::Config`] also when two participants have one name.
    ///
    /// # Cancel safety
    /// As [`open`](Self::open).
    pub async fn open_with(config: Config, others: Vec<Arc<dyn Participant>>) -> Result<Self> {
        // Code may have changed it since it was read.
        config.check()?;
        let participants = participant::by_name(participant::from_config(&config)?, others)?;
        let engine = Arc::new(Engine::open(config.clone(), participants).await?);
        let mut reached = engine.reach_all().await;
        let elsewhere = Arc::new(Elsewhere::find(&config, engine.decided_elsewhere())?);
        if !elsewhere.is_empty() {
            // What is prepared under another memory's decisions is settled by those, and may have been in the way.
            elsewhere.settle(config.recovery.open_wait).await;
            reached = engine.reach_all().await;
        }
        let reached = match reached {
            Err(Refusal::Whole(error)) => return Err(error),
            Err(Refusal::Part(error)) => Err(error),
            Ok(()) => Ok(()),
        };
        let resolver = Resolver::live(engine.clone());
        let swept = tokio::time::timeout(engine.recovery.open_wait, resolver.sweep_branches(&|_| {})).await;
        match swept {
            Ok(Pass { refused: Some(refused), .. }) => return Err(refused),
            Ok(_) => {}
            Err(_) => tracing::warn!("recovery goes on in the background: it took longer than recovery.open_wait"),
        }
        reached?;
        let (runtime, pause) = (&engine.runtime, engine.recovery.lease_interval);
        let on_engine = |what, work| runtime.spawn(for_ever(engine.clone(), pause, what, work));
        let before =
            for_ever(elsewhere.clone(), pause, "settling what was decided elsewhere", Elsewhere::keep_settling);
        #[cfg_attr(not(feature = "metrics"), expect(unused_mut, reason = "figures are one more task"))]
        let mut tasks = vec![
            runtime.spawn(before),
            runtime.spawn(resolver.run()),
            on_engine("keeping the leases", |engine| Box::pin(engine.keep_leases())),
            on_engine("pruning", |engine| Box::pin(engine.keep_pruning())),
        ];
        #[cfg(feature = "metrics")]
        {
            telemetry::describe();
            tasks.push(on_engine("telling figures", figures::keep));
        }
        Ok(Self { engine, elsewhere, background: Arc::new(Background(Mutex::new(tasks))) })
    }

    /// Begins a transaction as configured.
    ///
    /// # Errors
    /// [`ErrorKind::Journal`] when decisions cannot be kept, for want of space or after a failed write;
    /// [`ErrorKind::Closed`] after [`close`](Self::close).
    ///
    /// # Cancel safety
    /// Does not wait for anything.
    pub async fn begin(&self) -> Result<Transaction> {
        self.begin_with(Options::new()).await
    }

    /// Begins a transaction with options of its own.
    ///
    /// ```no_run
    /// use handfast::{Bridge, Options, participant::Isolation};
    /// use std::time::Duration;
    ///
    /// # async fn example(bridge: Bridge) -> handfast::Result<()> {
    /// let options = Options::new().isolation(Isolation::Serializable).read_only("prices").timeout(Duration::from_secs(2));
    /// let tx = bridge.begin_with(options).await?;
    /// # tx.rollback().await
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`begin`](Self::begin); [`ErrorKind::Config`] when an option names a participant that is not configured.
    ///
    /// # Cancel safety
    /// Does not wait for anything.
    pub async fn begin_with(&self, options: Options) -> Result<Transaction> {
        for name in options.named() {
            self.engine.member(name)?;
        }
        let id = self.engine.begin()?;
        Ok(Transaction::new(self.engine.clone(), id, options))
    }

    /// Runs `work` in a transaction and commits it; rolls back when it returns an error or panics.
    ///
    /// Deadlocks and serialization failures of either database ([`ErrorKind::Retry`]), and what never began since its session
    /// had died in the pool, are run again from the start, up to `transaction.retries` times, after a pause that grows and
    /// is never the same twice. A transaction in doubt is never run again.
    ///
    /// On a task of its own (`tokio::spawn`), `work` has to own what it uses: write `async move |tx| ..`.
    ///
    /// ```no_run
    /// use handfast::{Bridge, Error, ErrorKind, mysql_async::prelude::Queryable};
    ///
    /// # async fn example(bridge: Bridge, cents: i64) -> handfast::Result<()> {
    /// let id = bridge.transaction(async move |tx| {
    ///     let debit = "UPDATE account SET cents = cents - $1 WHERE id = 1 AND cents >= $1";
    ///     if tx.postgres("ledger").await?.execute(debit, &[&cents]).await? == 0 {
    ///         // A no of the application's own: rolled back on all, and not run again.
    ///         return Err(Error::new(ErrorKind::Statement, "there is not enough in the account"));
    ///     }
    ///     tx.mysql("orders").await?.exec_drop("INSERT INTO payment VALUES (1, ?)", (cents,)).await?;
    ///     Ok(tx.id())
    /// }).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The last error of `work` or of the commit.
    ///
    /// # Cancel safety
    /// Dropped while `work` runs, it rolls back; dropped during the commit, as
    /// [`Transaction::commit`].
    pub fn transaction<T, W>(&self, work: W) -> impl Future<Output = Result<T>> + use<T, W>
    where
        W: AsyncFn(&Transaction) -> Result<T>,
    {
        self.transaction_with(Options::new(), work)
    }

    /// [`transaction`](Self::transaction) with options of its own, the same for every run; each run has the whole time
    /// until its deadline.
    ///
    /// # Errors
    /// As [`transaction`](Self::transaction) and [`begin_with`](Self::begin_with).
    ///
    /// # Cancel safety
    /// As [`transaction`](Self::transaction).
    pub fn transaction_with<T, W>(&self, options: Options, work: W) -> impl Future<Output = Result<T>> + use<T, W>
    where
        W: AsyncFn(&Transaction) -> Result<T>,
    {
        // Owned throughout: a future that borrowed the bridge could not be sent to another thread, for want of a way
        // to say that what `work` returns can be, for every lifetime.
        let bridge = self.clone();
        async move {
            let limit = options.retries.unwrap_or(bridge.engine.transaction.retries);
            let mut attempt = 0;
            loop {
                let tx = bridge.begin_with(options.clone()).await?;
                let error = match work(&tx).instrument(tx.span().clone()).await {
                    Ok(value) => match tx.commit().await {
                        Ok(_) => return Ok(value),
                        Err(error) => error.into(),
                    },
                    Err(error) => {
                        let was_never_begun = tx.was_never_begun();
                        tx.rollback().await?;
                        if was_never_begun { Error::new(ErrorKind::Retry, NEVER_BEGUN).because(error) } else { error }
                    }
                };
                if error.kind() != ErrorKind::Retry || attempt >= limit {
                    return Err(error);
                }
                telemetry::retried();
                tracing::debug!(attempt, error = %error.chain(), "transaction is run again");
                tokio::time::sleep(jittered(RETRY_PAUSE * 2u32.saturating_pow(attempt.min(8)))).await;
                attempt += 1;
            }
        }
    }

    /// How a transaction ended, at any later time and after any crash.
    ///
    /// A transaction still at work is [`Outcome::InDoubt`]. Of an earlier incarnation's transaction that left no
    /// record, every participant is asked by a fence: once all have answered *never*, it is rolled back for good. Where
    /// one of them kept no witness, that cannot be known, and it stays in doubt. As soon as that incarnation is settled
    /// ([`Status::unsettled`]) nobody need be asked.
    ///
    /// A transaction that wrote nothing leaves nothing to tell it by: it is [`Outcome::RolledBack`], also when its
    /// commit was answered.
    ///
    /// ```no_run
    /// use handfast::{Bridge, Outcome, TransactionId};
    ///
    /// # async fn example(bridge: Bridge) -> Result<(), Box<dyn std::error::Error>> {
    /// // As it was written down before the commit that was not answered.
    /// let id: TransactionId = "hf1.front-1.0123456789abcdef.7".parse()?;
    /// match bridge.outcome(id).await? {
    ///     Outcome::Committed => println!("it is done"),
    ///     Outcome::RolledBack => println!("nothing of it was done: it may be run again"),
    ///     Outcome::InDoubt => println!("not known yet: ask again later"),
    ///     Outcome::Damaged => println!("a person is needed: handfast explain {id}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unknown`] when this journal never gave out that id.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn outcome(&self, id: TransactionId) -> Result<Outcome> {
        match Resolver::live(self.engine.clone()).outcome(id).await {
            Err(error) if error.kind() == ErrorKind::Unknown => self.elsewhere.outcome(id, error).await,
            outcome => outcome,
        }
    }

    /// Waits until a transaction is over: committed and readable on every participant, rolled back, or damaged. After a
    /// commit that answered at the decision, or with participants still pending, this is how to read one's own writes.
    ///
    /// Never answers [`Outcome::InDoubt`]. Waits as long as it takes, a participant that is down included: bound it with
    /// `tokio::time::timeout`.
    ///
    /// ```no_run
    /// # async fn example(bridge: handfast::Bridge, tx: handfast::Transaction) -> handfast::Result<()> {
    /// let committed = tx.commit().await?;
    /// if !committed.pending.is_empty() {
    ///     bridge.wait_applied(committed.id).await?;
    /// }
    /// // Read here what was written.
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`outcome`](Self::outcome). [`ErrorKind::Closed`] after [`close`](Self::close), of what is not over by then: the
    /// next opening settles it.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn wait_applied(&self, id: TransactionId) -> Result<Outcome> {
        let engine = &self.engine;
        // Of another opening's transactions only a pass finds out more.
        let news = if engine.id(id.sequence) == id { engine.live.changed() } else { &engine.passed };
        loop {
            let next = told(news);
            // Before the question: what was settled by the last pass is answered.
            let is_closed = engine.is_closed();
            let outcome = self.outcome(id).await?;
            let is_open = || engine.journal.image(|image| image.open_decision(id).is_some());
            if outcome != Outcome::InDoubt && !(outcome == Outcome::Committed && is_open()) {
                return Ok(outcome);
            }
            if is_closed {
                let text = format!("the bridge was closed before {id} was over: the next opening settles it");
                return Err(Error::new(ErrorKind::Closed, text));
            }
            next.await;
        }
    }

    /// What is going on: transactions in doubt, damaged, running; which participants can be reached. Does not ask
    /// the databases: it is as of the resolver's last pass.
    ///
    /// ```no_run
    /// /// For a readiness probe.
    /// fn is_ready(bridge: &handfast::Bridge) -> bool {
    ///     let status = bridge.status();
    ///     status.journal_failed.is_none() && status.participants.iter().all(|participant| participant.reachable)
    /// }
    /// ```
    pub fn status(&self) -> Status {
        Status::of(&self.engine)
    }

    /// Refuses new transactions, waits until the running ones have ended, each by its deadline at the latest, settles
    /// what they left as far as that can be done within `recovery.open_wait`, and closes every connection and the
    /// journal.
    ///
    /// # Errors
    /// [`ErrorKind::Journal`] when the journal's last write failed.
    ///
    /// # Cancel safety
    /// Dropped half way, new transactions stay refused; call it again.
    pub async fn close(&self) -> Result<()> {
        self.engine.live.refuse_new();
        self.engine.live.idle().await;
        let tasks = std::mem::take(&mut *self.background.0.lock().unwrap_or_else(PoisonError::into_inner));
        // All of them before the first is waited for: should this be dropped meanwhile, none goes on for ever, and holds the
        // leases.
        tasks.iter().for_each(JoinHandle::abort);
        // Aborted between two statements or within one: both are what recovery is for.
        join_all(tasks).await;
        if self.status().in_doubt > 0 || !self.engine.live.left().is_empty() {
            let resolver = Resolver::live(self.engine.clone());
            // What it does not settle in time is the next opening's.
            let _ = tokio::time::timeout(self.engine.recovery.open_wait, resolver.sweep_branches(&|_| {})).await;
        }
        self.engine.set_closed();
        // What is over is written down while there is a connection for it; or else the next opening does so.
        if self.engine.journal.is_on_anchor() {
            let wait = self.engine.recovery.statement_timeout;
            let _ = tokio::time::timeout(wait, self.engine.journal.flush()).await;
        }
        let closing = self.engine.members.iter().map(|member| member.participant.close());
        join_all(closing).await;
        self.elsewhere.close().await;
        self.engine.journal.close()
    }
}
