//! The databases: what a participant promises, and the SQL of each.
//!
//! A [`Participant`] is a configured database. It begins branches on sessions of its pool, and it answers the
//! resolver, which looks at branches from outside. A [`Branch`] is one transaction's part there, on one session.
//!
//! Every answer is a claim about a durable fact; what cannot be proven is `Unknown`.

mod access;
pub mod anchor;
mod checkup;
mod lease;
pub mod memory;
pub mod mysql;
mod pool;
pub mod postgres;
mod registration;
pub mod witness;

pub use self::registration::{Claim, Registered, Registration};
use crate::config::{Config, Kind, ParticipantConfig};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{BranchId, Incarnation, Lineage, ParticipantName, SessionName, TransactionId};
use crate::protocol::{CommitRecord, Finish, Mode, Resolution, Vote};
use std::time::Duration;
use std::{any::Any, collections::BTreeMap, pin::Pin, sync::Arc};
use witness::Witnessed;

/// A boxed future, so that participants can be mixed behind `dyn`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Whether a participant can promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Capability {
    /// It has a durable *prepared* state.
    Prepare,
    /// It has none: it can only go last, as the one that decides.
    LastOnly,
}

/// The isolation of a branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Isolation {
    /// The server's default.
    #[default]
    Default,
    /// `READ COMMITTED`
    ReadCommitted,
    /// `REPEATABLE READ`
    RepeatableRead,
    /// `SERIALIZABLE`
    Serializable,
}

/// How a branch is to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BeginOptions {
    /// Writer or declared read-only.
    pub mode: Mode,
    /// The isolation asked for.
    pub isolation: Isolation,
    /// How long a statement may wait for a lock: below the transaction's deadline, since neither database sees a
    /// deadlock between the two.
    pub lock_timeout: Duration,
}

/// Rows that nobody needs any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prunable {
    /// Witnesses of transactions below this sequence; neither fences nor what is kept under sequence 0.
    Witnesses {
        /// Whose.
        incarnation: Incarnation,
        /// The participant's number there.
        participant: u16,
        /// The first sequence to keep.
        below: u64,
    },
    /// Everything of a settled incarnation: witnesses, fences, and its registration.
    Settled {
        /// Which.
        incarnation: Incarnation,
        /// The participant's number there.
        participant: u16,
    },
}

/// Somebody who waits for a prepared branch to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The branch, as the server names it; `None` where the server tells that it is a prepared one and not which.
    pub branch: Option<Sighted>,
    /// Who waits, and for what, for people: `app@10.0.0.7, 12 s: UPDATE account ..`.
    pub who: String,
}

/// How a finding of [`Participant::check`] is to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// As it should be.
    Good,
    /// Worth knowing.
    Note,
    /// Works, and may not when it matters.
    Warning,
    /// A promise of Handfast does not hold with it.
    Failure,
}

/// What one check of a prerequisite found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at, in a word or two: `prepared slots`, `sync_binlog`.
    pub check: &'static str,
    /// How it is to be taken.
    pub severity: Severity,
    /// What was found.
    pub found: String,
    /// Why it matters; empty when it is as it should be.
    pub why: String,
    /// The statement or setting that mends it.
    pub cure: Option<String>,
}

/// What is there: a server as it presents itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Product, version and address, for people: `PostgreSQL 15.18 at db1:5432/ledger`.
    pub description: String,
    /// The identity of the data there; `None` while Handfast's tables are missing.
    pub lineage: Option<Lineage>,
}

/// A prepared branch found on a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighting {
    /// Ours by a full parse, or somebody else's.
    pub branch: Sighted,
    /// How long it has been prepared, by the database's clock, where the database tells.
    pub age: Option<Duration>,
}

/// Whose a prepared branch is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Sighted {
    /// Its text is one of ours; whether its incarnation is this journal's is for recovery to say.
    Ours(BranchId),
    /// Foreign: as text where it is plain ASCII, else in hexadecimal. Never touched.
    Foreign(String),
}

/// How the resolver looks for the proof of a branch's commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Question {
    /// Read the witness row. Its absence proves nothing.
    Look,
    /// Insert the fence: the answer is final.
    Fence,
}

/// What the witness table says of a branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Evidence {
    /// A witness row that the branch itself wrote is visible: the branch committed, as one of several or as the
    /// anchor.
    Committed,
    /// A witness row that the branch itself wrote is visible: it committed as its transaction's only writer.
    CommittedAlone,
    /// A fence is there, found or just inserted: the branch has not committed and never will.
    Never,
    /// Nothing is visible, and nothing was asked for that would make it final.
    Nothing,
    /// The fence has to wait for a row that is neither committed nor gone: somebody still holds the branch.
    Blocked,
    /// This participant keeps no witness: there is no proof to be had.
    Off,
}

/// An answer, with the cause where it is not the one hoped for.
#[derive(Debug)]
pub struct Answer<T> {
    /// What is certain.
    pub value: T,
    /// Why it is not better: the server's or driver's error.
    pub cause: Option<Error>,
}

impl<T> Answer<T> {
    /// A good answer.
    pub fn good(value: T) -> Self {
        Self { value, cause: None }
    }

    /// An answer with its cause.
    pub fn because(value: T, cause: Error) -> Self {
        Self { value, cause: Some(cause) }
    }

    /// Whether it is none because the participant could not be reached: asking for the next thing would be in vain.
    pub fn is_lost(&self) -> bool {
        self.cause.as_ref().is_some_and(|cause| cause.kind() == ErrorKind::Unavailable)
    }
}

/// Hears of each branch of [`Participant::finish_all`], by its place in what was asked for.
pub type Hear<'a> = &'a (dyn Fn(usize, Answer<Finish>) + Sync);

/// A database that can take part. Implement it to add another kind: `examples/own_participant` does so for a directory of files.
///
/// The resolver calls everything but [`begin`](Self::begin) over a connection that is the participant's own, never
/// from the pool, so that recovery cannot starve behind the transactions that wait for it; another one holds the lease.
/// Each call is bounded in time by the implementation.
pub trait Participant: Send + Sync + 'static {
    /// The configured name.
    fn name(&self) -> ParticipantName;

    /// The kind as configuration and tool print it: `postgres`, `mysql`, `mariadb`.
    fn kind(&self) -> &'static str;

    /// Whether it can promise.
    fn capability(&self) -> Capability {
        Capability::Prepare
    }

    /// Looks at the server without changing anything.
    fn identify(&self) -> BoxFuture<'_, Result<Server>>;

    /// Takes the [lease](Self::hold), checks every prerequisite, creates the tables where they are missing, refuses a
    /// server of another lineage than expected ([`ErrorKind::Refused`]), and registers the incarnation. Until it has
    /// returned, no branch begins.
    fn register<'a>(&'a self, registration: &'a Registration) -> BoxFuture<'a, Result<Lineage>>;

    /// The SQL that creates Handfast's tables, and the grants needed, as `handfast init --print` shows it.
    fn setup_sql(&self) -> String;

    /// Creates the tables and the row that holds the lineage, where missing.
    fn init(&self) -> BoxFuture<'_, Result<Lineage>>;

    /// Begins a branch on a session of its own.
    fn begin<'a>(&'a self, transaction: TransactionId, options: BeginOptions)
    -> BoxFuture<'a, Result<Box<dyn Branch>>>;

    /// All prepared branches there, ours and foreign: the whole list or an error, never a part.
    fn list(&self) -> BoxFuture<'_, Result<Vec<Sighting>>>;

    /// Commits a prepared branch from outside; a session that still holds it is one that nobody uses any more, and is
    /// ended where it is in the way. [`Finish::Done`] is a positive answer of the server.
    fn commit<'a>(&'a self, branch: &'a BranchId) -> BoxFuture<'a, Answer<Finish>>;

    /// Rolls a prepared branch back from outside, as [`commit`](Self::commit) commits it.
    fn roll_back<'a>(&'a self, branch: &'a BranchId) -> BoxFuture<'a, Answer<Finish>>;

    /// Finishes many prepared branches from outside, as [`commit`](Self::commit) and [`roll_back`](Self::roll_back)
    /// finish one each; a participant may send several before it has heard of the first.
    ///
    /// `hear` is told of each branch once, in the order asked for, as its answer comes. After an answer that is
    /// [lost](Answer::is_lost) nothing more is sent: what was under way is told as lost, too. Where there is no working
    /// with the participant at all, the next branch is told why. Of the others, which were never sent, nothing is told.
    ///
    /// # Cancel safety
    /// May be dropped at any point; what was under way is as uncertain as after a lost answer.
    fn finish_all<'a>(&'a self, work: &'a [(BranchId, Resolution)], hear: Hear<'a>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            for (place, (branch, resolution)) in work.iter().enumerate() {
                let answer = match resolution {
                    Resolution::Commit => self.commit(branch).await,
                    Resolution::RollBack => self.roll_back(branch).await,
                };
                let is_lost = answer.is_lost();
                hear(place, answer);
                if is_lost {
                    break;
                }
            }
        })
    }

    /// Asks the witness table about a branch. An error is no answer.
    fn ask<'a>(&'a self, branch: &'a BranchId, question: Question) -> BoxFuture<'a, Result<Evidence>>;

    /// Ends a session of ours by its name, with what it holds: `true` when there was one. How a deadline takes a
    /// session away from an application that does not come back.
    fn end_session<'a>(&'a self, session: SessionName) -> BoxFuture<'a, Result<bool>>;

    /// Ends every session that these incarnations have under this participant's number, all at once, and waits until they
    /// are gone with what they hold: how many there were. Prepared branches stay. Sessions of any other incarnation or
    /// number are left alone. An error when one lingers, or may not be ended: then nothing is certain of any.
    fn end_sessions<'a>(&'a self, participant: u16, incarnations: &'a [Incarnation]) -> BoxFuture<'a, Result<usize>>;

    /// The witnesses that these incarnations' branches have left under this participant's number, and what stands in
    /// their place, in the order of incarnation and sequence; of each incarnation only those with this sequence and
    /// beyond. At most [`witness::PAGE`] rows: fewer are all there are.
    ///
    /// Reads the table whether or not the participant keeps witnesses now: its earlier incarnations may have.
    fn witnessed<'a>(
        &'a self,
        participant: u16,
        incarnations: &'a [Incarnation],
        from: u64,
    ) -> BoxFuture<'a, Result<Vec<Witnessed>>>;

    /// Takes the lease of a node on this participant, or makes sure that it is still held. From then on nothing is done for
    /// the resolver without it, and whatever becomes of the resolver's calls, it stays. What an earlier connection of the
    /// same incarnation still holds is taken from it.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`], naming the holder, when somebody else has it. A participant without locks, which cannot
    /// tell, says `Ok`.
    fn hold(&self, _claim: Claim) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    /// Which taking of the lease was in force when the connection was last heard of: another number each time that it
    /// was taken, so that who sees the same one twice knows that nobody else had it in between; `None` while it is not
    /// held. Asks nobody.
    fn lease(&self) -> Option<u64> {
        Some(0)
    }

    /// Whether the lease was held when the connection was last heard of. Asks nobody.
    fn holds(&self) -> bool {
        self.lease().is_some()
    }

    /// What makes it able to be an anchor, if it is.
    fn anchor(&self) -> Option<&dyn anchor::Anchor> {
        None
    }

    /// The incarnations in the participant's own table: any node's, any journal's, this participant's number or another's.
    fn registry(&self) -> BoxFuture<'_, Result<Vec<Registered>>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Deletes a bounded number of rows that nobody needs any more: whether more of them may be left.
    fn prune(&self, _what: Prunable) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async { Ok(false) })
    }

    /// Who waits for prepared branches to end, as far as the server lets this account see; [`ErrorKind::Setup`], naming
    /// the right, where it sees nobody because it may not.
    fn waiting(&self) -> BoxFuture<'_, Result<Vec<Waiting>>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// How many more branches the server would let be prepared, of whomever; `None` where there is no such bound.
    fn room(&self) -> BoxFuture<'_, Result<Option<u64>>> {
        Box::pin(async { Ok(None) })
    }

    /// Looks at every prerequisite that this participant has, in a few seconds, and prepares, lists and rolls back one
    /// branch of its own.
    ///
    /// # Errors
    /// When the server cannot be reached at all.
    fn check(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// The statement by which a person finishes a prepared branch, as it is typed at the server's own prompt.
    fn statement(&self, _branch: &BranchId, _resolution: Resolution) -> Option<String> {
        None
    }

    /// Closes the pool, the resolver's connection, and the one that holds the lease.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// The participants of a configuration, in the order of their names. None is connected to yet.
///
/// # Errors
/// [`ErrorKind::Config`] for a URL that its driver does not understand.
pub fn from_config(config: &Config) -> Result<Vec<Arc<dyn Participant>>> {
    let build = |(name, one): (&ParticipantName, &ParticipantConfig)| -> Result<Arc<dyn Participant>> {
        Ok(match one.kind {
            Kind::Postgres => {
                let postgres = postgres::Postgres::new(*name, one, &config.pool, &config.recovery)?;
                Arc::new(postgres.with_deadline(config.transaction.timeout))
            }
            Kind::Mysql => {
                let mysql = mysql::Mysql::new(*name, one, &config.pool, &config.recovery)?;
                Arc::new(mysql.with_deadline(config.transaction.timeout))
            }
        })
    };
    config.participants.iter().map(build).collect()
}

/// All participants by name, no two of one name, and one at least.
pub(crate) fn by_name(
    configured: Vec<Arc<dyn Participant>>,
    others: Vec<Arc<dyn Participant>>,
) -> Result<BTreeMap<ParticipantName, Arc<dyn Participant>>> {
    let mut all: BTreeMap<ParticipantName, Arc<dyn Participant>> = BTreeMap::new();
    for participant in configured.into_iter().chain(others) {
        let name = participant.name();
        if all.insert(name, participant).is_some() {
            return Err(Error::new(ErrorKind::Config, format!("two participants are named {name}")));
        }
    }
    if all.is_empty() {
        let message = "no participant is configured: add a [participants.<name>] with kind and url";
        return Err(Error::new(ErrorKind::Config, message));
    }
    Ok(all)
}

/// One transaction's part on one participant.
///
/// A branch that is dropped before it finished closes its session: unprepared work is rolled back by the server,
/// a prepared branch stays for recovery.
pub trait Branch: Send {
    /// What the server knows it by.
    fn id(&self) -> BranchId;

    /// What the application works through, to be downcast: `postgres::Lent`, `mysql::Lent`, or an own type.
    fn handle(&self) -> Arc<dyn Any + Send + Sync>;

    /// Phase one: proves that the branch's transaction is still the one that was begun, writes the witness,
    /// prepares. [`Vote::Prepared`] only when all of that was answered positively, in answer to this very question.
    fn prepare(&mut self) -> BoxFuture<'_, Answer<Vote>>;

    /// Ends a declared read-only branch with a checked commit: [`Vote::ReadOnly`] or not.
    fn end_read_only(&mut self) -> BoxFuture<'_, Answer<Vote>>;

    /// Commits without preparing, with the witness inside: this branch decides.
    fn commit_one_phase(&mut self) -> BoxFuture<'_, Answer<Finish>>;

    /// Commits without preparing, with a witness inside that lists these branches: it decides for all of them. Only asked of
    /// a participant that can be an [anchor](Participant::anchor).
    fn commit_anchor<'a>(&'a mut self, decision: &'a CommitRecord) -> BoxFuture<'a, Answer<Finish>> {
        let message = format!("{} cannot decide for others", decision.transaction);
        let cause = Error::new(ErrorKind::Config, message);
        Box::pin(async { Answer::because(Finish::Unknown, cause) })
    }

    /// Commits the prepared branch, on the session that prepared it.
    fn commit(&mut self) -> BoxFuture<'_, Answer<Finish>>;

    /// Rolls the branch back, prepared or not, on its session.
    fn roll_back(&mut self) -> BoxFuture<'_, Answer<Finish>>;
}
