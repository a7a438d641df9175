//! The bridge: opens the journal and the participants, begins transactions, and keeps the resolver at work.
//!
//! Opening does, in this order: lock and read the journal, make durable what was read, write down a new incarnation,
//! register it with every participant that can be reached, settle what earlier incarnations left. Only then does a
//! transaction begin. A participant that cannot be reached does not hold the others up: the resolver goes on trying.

mod live;
mod member;
pub(crate) mod pump;
#[cfg(test)]
mod tests;

pub(crate) use live::{Live, Standing};
pub(crate) use member::Member;
pub(crate) use pump::{Enlisted, Job, Verdict};

use crate::config::{Config, RecoveryConfig, TransactionConfig};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Incarnation, ParticipantName, SessionName, TransactionId};
use crate::journal::{Journal, Opening};
use crate::participant::{self, Participant, Registration};
use crate::protocol::Outcome;
use crate::resolver::{Found, Resolver, Status};
use crate::transaction::{Options, Transaction};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// The first pause before a transaction is run again; it doubles.
const RETRY_PAUSE: Duration = Duration::from_millis(5);

/// One atomic transaction out of work on several databases: the entrance to the library.
///
/// Cheap to clone: all clones are one bridge. The journal stays locked until the last clone is gone or
/// [`close`](Self::close) was called.
#[derive(Clone)]
pub struct Bridge {
    shared: Arc<Shared>,
    resolver: Arc<Background>,
}

/// What transactions, coordinators and the resolver share.
pub(crate) struct Shared {
    pub members: Vec<Member>,
    pub journal: Journal,
    pub registration: Registration,
    pub transaction: TransactionConfig,
    pub recovery: RecoveryConfig,
    pub live: Live,
    /// What the resolver's passes have found.
    pub found: Found,
    pub runtime: tokio::runtime::Handle,
    /// Wakes the resolver: something was left to it.
    pub work: Notify,
    closing: AtomicBool,
}

/// The resolver's task; it ends with the last handle of the bridge.
struct Background(std::sync::Mutex<Option<JoinHandle<()>>>);

impl Drop for Background {
    fn drop(&mut self) {
        if let Ok(Some(task)) = self.0.get_mut().map(Option::take) {
            task.abort();
        }
    }
}

impl Bridge {
    /// Opens a bridge and settles what earlier openings left.
    ///
    /// Waits for participants that cannot be reached no longer than `recovery.open_wait`; what they hold is settled
    /// in the background when they come back.
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
        let participants = participant::by_name(participant::from_config(&config)?, others)?;
        let shared = Arc::new(Shared::open(config, participants)?);
        let reached = shared.reach_all().await;
        let resolver = Resolver::live(shared.clone());
        let swept = tokio::time::timeout(shared.recovery.open_wait, resolver.sweep(&|_| {})).await;
        if swept.is_err() {
            tracing::warn!("recovery goes on in the background: it took longer than recovery.open_wait");
        }
        reached?;
        let task = shared.runtime.spawn(resolver.run());
        Ok(Self { shared, resolver: Arc::new(Background(std::sync::Mutex::new(Some(task)))) })
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
    /// # Errors
    /// As [`begin`](Self::begin); [`ErrorKind::Config`] when an option names a participant that is not configured.
    ///
    /// # Cancel safety
    /// Does not wait for anything.
    pub async fn begin_with(&self, options: Options) -> Result<Transaction> {
        for name in &options.read_only {
            self.shared.member(name)?;
        }
        if self.shared.closing.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "the bridge is closed"));
        }
        self.shared.journal.check_space()?;
        let sequence = self.shared.live.begin();
        Ok(Transaction::new(self.shared.clone(), self.shared.id(sequence), options))
    }

    /// Runs `work` in a transaction and commits it; rolls back when it returns an error or panics.
    ///
    /// Deadlocks and serialization failures of either database ([`ErrorKind::Retry`]) are run again from the start,
    /// up to `transaction.retries` times, after a pause that grows and is never the same twice. A transaction in
    /// doubt is never run again.
    ///
    /// On a task of its own (`tokio::spawn`), `work` has to own what it uses: write `async move |tx| ..`.
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
        // Owned throughout: a future that borrowed the bridge could not be sent to another thread, for want of a way
        // to say that what `work` returns can be, for every lifetime.
        let bridge = self.clone();
        async move {
            let mut attempt = 0;
            loop {
                let tx = bridge.begin().await?;
                let error = match work(&tx).await {
                    Ok(value) => match tx.commit().await {
                        Ok(_) => return Ok(value),
                        Err(error) => error.into(),
                    },
                    Err(error) => {
                        tx.rollback().await?;
                        error
                    }
                };
                if error.kind() != ErrorKind::Retry || attempt >= bridge.shared.transaction.retries {
                    return Err(error);
                }
                tracing::debug!(attempt, error = %error.chain(), "transaction is run again");
                tokio::time::sleep(jittered(RETRY_PAUSE * 2u32.saturating_pow(attempt.min(8)))).await;
                attempt += 1;
            }
        }
    }

    /// How a transaction ended, at any later time and after any crash.
    ///
    /// A transaction still at work is [`Outcome::InDoubt`]. Of an earlier incarnation's transaction that left no
    /// record, every participant is asked by a fence: once all have answered *never*, it is rolled back for good.
    ///
    /// # Errors
    /// [`ErrorKind::Unknown`] when this journal never gave out that id.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn outcome(&self, id: TransactionId) -> Result<Outcome> {
        Resolver::live(self.shared.clone()).outcome(id).await
    }

    /// What is going on: transactions in doubt, damaged, running; which participants can be reached. Does not ask
    /// the databases: it is as of the resolver's last pass.
    pub fn status(&self) -> Status {
        Status::of(&self.shared)
    }

    /// Refuses new transactions, waits until the running ones have ended, each by its deadline at the latest, and
    /// closes every connection and the journal.
    ///
    /// # Errors
    /// [`ErrorKind::Journal`] when the journal's last write failed.
    ///
    /// # Cancel safety
    /// Dropped half way, new transactions stay refused; call it again.
    pub async fn close(&self) -> Result<()> {
        self.shared.closing.store(true, Ordering::Release);
        self.shared.live.idle().await;
        let task = self.resolver.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some(task) = task {
            task.abort();
            // Aborted between two statements or within one: both are what recovery is for.
            let _ = task.await;
        }
        let closing = self.shared.members.iter().map(|member| member.participant.close());
        futures_util::future::join_all(closing).await;
        self.shared.journal.close()
    }
}

impl Shared {
    fn open(config: Config, participants: BTreeMap<ParticipantName, Arc<dyn Participant>>) -> Result<Self> {
        let opening = opening(&config, participants.keys().copied())?;
        let incarnation = opening.incarnation;
        let journal = Journal::open(&config.journal, opening)?;
        let registration = Registration {
            node: config.node,
            incarnation,
            journal: journal.id(),
            participant: 0,
            host: host(),
            expected: None,
        };
        let members = participants.into_values().zip(0..).map(|(participant, number)| Member::new(number, participant));
        Ok(Self {
            members: members.collect(),
            journal,
            registration,
            transaction: config.transaction,
            recovery: config.recovery,
            live: Live::default(),
            found: Found::default(),
            runtime: tokio::runtime::Handle::current(),
            work: Notify::new(),
            closing: AtomicBool::new(false),
        })
    }

    /// This incarnation's id of a sequence.
    pub fn id(&self, sequence: u64) -> TransactionId {
        TransactionId { node: self.registration.node, incarnation: self.registration.incarnation, sequence }
    }

    /// The member of a configured name.
    pub fn member(&self, name: &str) -> Result<&Member> {
        self.members.iter().find(|member| member.name.as_str() == name).ok_or_else(|| {
            let known: Vec<_> = self.members.iter().map(|member| member.name.as_str()).collect();
            let message = format!("no participant {name:?} is configured; there are: {}", known.join(", "));
            Error::new(ErrorKind::Config, message)
        })
    }

    /// A member's lineage, after registering with it where that has not been done yet.
    pub async fn ready(&self, member: &Member) -> Result<crate::id::Lineage> {
        member.ready(&self.journal, &self.registration).await
    }

    /// Registers with every participant, at once. An error where one answers that it cannot serve, or none answers;
    /// one that merely cannot be reached is the resolver's to try again.
    async fn reach_all(&self) -> Result<()> {
        let wait = self.recovery.open_wait;
        let attempts = self.members.iter().map(|member| async move {
            tokio::time::timeout(wait, self.ready(member)).await.unwrap_or_else(|_| {
                Err(Error::new(ErrorKind::Unavailable, format!("no answer within {wait:?}")).at(member.name))
            })
        });
        let failed: Vec<_> =
            futures_util::future::join_all(attempts).await.into_iter().filter_map(Result::err).collect();
        let none_reached = failed.len() == self.members.len();
        for error in &failed {
            tracing::warn!(error = %error.chain(), "participant cannot be used yet");
        }
        let fatal = failed.into_iter().find(|error| none_reached || error.kind() != ErrorKind::Unavailable);
        fatal.map_or(Ok(()), Err)
    }

    /// Ends a session from outside, within the resolver's patience.
    pub async fn end_session(&self, participant: ParticipantName, session: SessionName) {
        let Ok(member) = self.member(participant.as_str()) else { return };
        let ending =
            tokio::time::timeout(self.recovery.statement_timeout, member.participant.end_session(session)).await;
        if !matches!(ending, Ok(Ok(_))) {
            tracing::warn!(%participant, %session, "a session could not be ended from outside; its socket is closed");
        }
    }

    /// Tells the resolver that there is something to do.
    pub fn kick_resolver(&self) {
        self.work.notify_one();
    }
}

/// A new incarnation of the journal.
pub(crate) fn opening(config: &Config, participants: impl Iterator<Item = ParticipantName>) -> Result<Opening> {
    Ok(Opening {
        node: config.node,
        incarnation: Incarnation(random()?),
        opened_at_ms: now_ms(),
        participants: participants.collect(),
    })
}

/// 64 bits that nobody can foresee.
pub(crate) fn random() -> Result<u64> {
    getrandom::u64()
        .map_err(|error| Error::new(ErrorKind::Setup, format!("the system gives no random numbers: {error}")))
}

/// A pause between half of `pause` and all of it, so that those who failed together do not return together.
pub(crate) fn jittered(pause: Duration) -> Duration {
    let part = getrandom::u32().unwrap_or(u32::MAX / 2);
    pause.mul_f64(0.5 + f64::from(part) / f64::from(u32::MAX) / 2.0)
}

fn now_ms() -> u64 {
    // For people alone: a clock before 1970 may as well say 1970.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| String::from("unknown"), |h| h.trim().to_owned())
}
