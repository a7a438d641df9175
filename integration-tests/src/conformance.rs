//! One suite for every participant: what [`Participant`] and [`Branch`] promise, asked of each kind of database.
//!
//! A [`Harness`] is a database of a kind with a table of numbered rows: it lets the suite work inside a branch as an
//! application does, and look at the database from outside as an administrator does. The cases in [`cases`] know
//! nothing else. A new kind implements the trait and is added to the list in `tests/conformance.rs`.

pub mod cases;
mod memory;
pub mod mysql;
mod postgres;

pub use memory::MemoryHarness;
pub use mysql::{MariaDb, MySql, MysqlHarness, OnServer};
pub use postgres::{PostgresHarness, lent, postgres_at};

use handfast::Result;
use handfast::id::{BranchId, Incarnation, JournalId, Lineage, SessionName, TransactionId};
use handfast::participant::{
    Answer, BeginOptions, Branch, Claim, Evidence, Isolation, Participant, Question, Registration, Sighted,
};
use handfast::protocol::{Finish, Mode};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// How long the suite waits for what happens by itself.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// How a participant is to be.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// Whether its branches leave witnesses.
    pub witness: bool,
    /// Its number of sessions.
    pub pool_size: usize,
}

impl Default for Setup {
    fn default() -> Self {
        Self { witness: true, pool_size: 4 }
    }
}

/// A connection that a participant has beside its pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// It holds the lease.
    Lease,
    /// The resolver works on it.
    Resolver,
}

impl Which {
    /// What the connection calls itself under a claim.
    pub fn name(self, participant: &dyn Participant, claim: Claim) -> String {
        let prefix = match self {
            Self::Lease => "handfast.lease",
            Self::Resolver => "handfast.resolver",
        };
        format!("{prefix}.{}.{}", claim.incarnation, participant.name())
    }
}

/// A database of some kind, with a table of numbered rows.
#[expect(async_fn_in_trait, reason = "tests await it where they are, they never send it to another thread")]
pub trait Harness: Sized {
    /// Whether the application can end a branch's transaction by itself, on the session it is lent.
    const APPLICATION_CAN_END: bool;

    /// An empty database of its own.
    async fn new() -> Self;

    /// Another database on the same server.
    async fn sibling(&self) -> Self;

    /// A participant on this database.
    fn participant(&self, name: &str, setup: Setup) -> Box<dyn Participant>;

    /// Inside a branch: sets a row, waiting for its lock.
    async fn write(&self, branch: &dyn Branch, row: i64, value: i64) -> Result<()>;

    /// Inside a branch: reads a row.
    async fn read(&self, branch: &dyn Branch, row: i64) -> Result<Option<i64>>;

    /// Inside a branch: a statement that fails, and whose error the application ignores.
    async fn fail(&self, branch: &dyn Branch);

    /// Inside a branch: the application ends the transaction by itself, and may begin another.
    async fn end(&self, branch: &dyn Branch, commit: bool, then_begin: bool);

    /// From outside: the committed value of a row.
    async fn value(&self, row: i64) -> Option<i64>;

    /// From outside: whether somebody holds a row's lock.
    async fn is_locked(&self, row: i64) -> bool;

    /// From outside: ends sessions by name as an administrator does; whether there was one.
    async fn kill(&self, session: SessionName) -> bool;

    /// From outside: how many sessions of an incarnation there are.
    async fn sessions(&self, incarnation: Incarnation) -> usize;

    /// From outside: ends the connections that a participant has a claim by, the one that holds the lease and the one that
    /// the resolver works on; whether there was one that held it.
    async fn end_resolver(&self, participant: &dyn Participant, claim: Claim) -> bool;

    /// From outside: ends one of the two; whether there was one.
    async fn end_connection(&self, which: Which, participant: &dyn Participant, claim: Claim) -> bool;

    /// From outside: prepares another program's transaction.
    async fn prepare_foreign(&self, name: &str);

    /// From outside: rolls another program's prepared transaction back; whether it was there.
    async fn end_foreign(&self, name: &str) -> bool;

    /// From outside: a person types a statement; whether it was taken.
    async fn type_in(&self, statement: &str) -> bool;

    /// From outside: an administrator ends a prepared branch of ours; whether it was there.
    async fn finish_by_hand(&self, branch: &BranchId, commit: bool) -> bool;
}

/// A registered participant on a database, and its next transaction.
pub struct Bench<'a, H> {
    /// The database.
    pub harness: &'a H,
    /// The participant.
    pub participant: Box<dyn Participant>,
    /// As it was registered.
    pub registration: Registration,
    /// As registration told.
    pub lineage: Lineage,
    next: Cell<u64>,
}

/// A registration of an incarnation that nobody used before, of a node of its own: several may live at once.
///
/// # Panics
/// Never.
pub fn registration(participant: u16) -> Registration {
    Registration {
        node: format!("bench-{:08x}", random() >> 32).parse().unwrap(),
        incarnation: Incarnation(random()),
        journal: JournalId(random()),
        decision: handfast::config::Decision::Journal,
        participant,
        host: "here".into(),
        expected: None,
    }
}

fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

/// Options of a branch that may write.
pub fn writer() -> BeginOptions {
    BeginOptions { mode: Mode::Writer, isolation: Isolation::Default, lock_timeout: Duration::from_secs(5) }
}

/// Options of a branch declared read-only.
pub fn reader() -> BeginOptions {
    BeginOptions { mode: Mode::ReadOnly, ..writer() }
}

impl<'a, H: Harness> Bench<'a, H> {
    /// A participant with defaults.
    pub async fn new(harness: &'a H) -> Self {
        Self::with(harness, Setup::default()).await
    }

    /// A participant as asked for.
    pub async fn with(harness: &'a H, setup: Setup) -> Self {
        Self::registered(harness, harness.participant("bench", setup), registration(0)).await
    }

    /// A participant with a registration of one's own.
    pub async fn registered(harness: &'a H, participant: Box<dyn Participant>, registration: Registration) -> Self {
        let lineage = participant.register(&registration).await.unwrap_or_else(|error| panic!("{}", error.chain()));
        Self { harness, participant, registration, lineage, next: Cell::new(1) }
    }

    /// The next transaction.
    pub fn transaction(&self) -> TransactionId {
        let Registration { node, incarnation, .. } = self.registration;
        TransactionId { node, incarnation, sequence: self.next.replace(self.next.get() + 1) }
    }

    /// The next transaction's branch.
    pub async fn begin(&self) -> Box<dyn Branch> {
        self.begin_with(writer()).await
    }

    /// The next transaction's branch, as asked for.
    pub async fn begin_with(&self, options: BeginOptions) -> Box<dyn Branch> {
        let branch = self.participant.begin(self.transaction(), options).await;
        branch.unwrap_or_else(|error| panic!("{}", error.chain()))
    }

    /// The next transaction's branch, with a row written.
    pub async fn begin_and_write(&self, row: i64, value: i64) -> Box<dyn Branch> {
        let branch = self.begin().await;
        let written = self.harness.write(&*branch, row, value).await;
        written.unwrap_or_else(|error| panic!("{}", error.chain()));
        branch
    }

    /// Our branches on the list.
    pub async fn listed(&self) -> Vec<BranchId> {
        let listed = self.participant.list().await.unwrap_or_else(|error| panic!("{}", error.chain()));
        let ours = listed.into_iter().filter_map(|sighting| match sighting.branch {
            Sighted::Ours(id) => Some(id),
            Sighted::Foreign(_) => None,
        });
        ours.filter(|id| id.transaction.incarnation == self.registration.incarnation).collect()
    }

    /// What the witness table says.
    pub async fn ask(&self, id: &BranchId, question: Question) -> Evidence {
        self.participant.ask(id, question).await.unwrap_or_else(|error| panic!("{}", error.chain()))
    }

    /// Commits from outside; while the session that prepared is not gone yet, again.
    pub async fn commit_from_outside(&self, id: &BranchId) {
        eventually("committed from outside", async || self.participant.commit(id).await.value == Finish::Done).await;
    }

    /// Rolls back from outside; while the session that prepared is not gone yet, again.
    pub async fn roll_back_from_outside(&self, id: &BranchId) {
        eventually("rolled back from outside", async || self.participant.roll_back(id).await.value == Finish::Done)
            .await;
    }

    /// Waits until nobody holds a row.
    pub async fn unlocked(&self, row: i64) {
        eventually("the row is free", async || !self.harness.is_locked(row).await).await;
    }
}

/// Waits until something is so.
///
/// # Panics
/// When it is not within [`PATIENCE`].
pub async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so().await {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Asserts an answer, and shows its cause if it is another.
///
/// # Panics
/// When it is another.
#[track_caller]
pub fn assert_answer<T: PartialEq + std::fmt::Debug>(answer: &Answer<T>, expected: T) {
    let cause = answer.cause.as_ref().map(handfast::Error::chain);
    assert_eq!(answer.value, expected, "cause: {cause:?}");
}
