//! The same work through a bridge.

use crate::stage::{Access, select, update};
use crate::ways::Way;
use futures_util::future::BoxFuture;
use handfast::config::Acknowledge;
use handfast::mysql_async::prelude::Queryable;
use handfast::transaction::Options;
use handfast::{Bridge, Transaction};
use integration_tests::servers::{self, ConfigBuilder, Flavor};
use integration_tests::world::{LEDGER, ORDERS};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How a bridge is configured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Setup {
    witness: bool,
    /// Lines of `[transaction]`.
    transaction: &'static str,
}

impl Setup {
    pub const DEFAULT: Self = Self { witness: true, transaction: "" };
    pub const WITHOUT_WITNESS: Self = Self { witness: false, ..Self::DEFAULT };
    /// The decision is a row on PostgreSQL.
    pub const ANCHOR_POSTGRES: Self = Self { transaction: "decision = \"ledger\"", ..Self::DEFAULT };
    /// The decision is a row on MariaDB or MySQL.
    pub const ANCHOR_MYSQL: Self = Self { transaction: "decision = \"orders\"", ..Self::DEFAULT };
}

/// The configuration of a bridge with a session for every worker on each participant, under a name of its own.
pub fn config(access: &Access, setup: Setup) -> ConfigBuilder {
    let witness = format!("witness = {}", setup.witness);
    empty_config(access)
        .section(&format!("[transaction]\n{}", setup.transaction))
        .section(&format!("[pool]\nsize = {}", access.workers))
        .participant_at(LEDGER, Flavor::Postgres, &access.postgres)
        .with(&witness)
        .participant_at(ORDERS, access.flavor, &access.mysql)
        .with(&witness)
}

/// A configuration without participants, under a name of its own.
pub fn empty_config(access: &Access) -> ConfigBuilder {
    static NODES: AtomicU32 = AtomicU32::new(0);
    let journal = access.directory.join(servers::unique("journal"));
    std::fs::create_dir(&journal).expect("a directory");
    ConfigBuilder::new(journal).node(&format!("bench-{}", NODES.fetch_add(1, Ordering::Relaxed)))
}

/// What is done through it.
#[derive(Clone, Copy)]
pub enum Kind {
    Both,
    /// Answered when it is decided.
    Decided,
    /// The branch on MySQL or MariaDB only reads.
    ReadOnly,
    PostgresAlone,
    MysqlAlone,
    /// Begun on both and rolled back.
    RollBack,
}

/// One of them.
pub struct Bridged {
    bridge: Bridge,
    kind: Kind,
}

impl Bridged {
    pub fn new(bridge: Bridge, kind: Kind) -> Self {
        Self { bridge, kind }
    }

    async fn do_transact(&self, worker: usize, number: usize) {
        let options = match self.kind {
            Kind::Decided => Options::new().acknowledge(Acknowledge::Decided),
            Kind::ReadOnly => Options::new().read_only(ORDERS),
            Kind::Both | Kind::PostgresAlone | Kind::MysqlAlone | Kind::RollBack => Options::new(),
        };
        let tx = self.bridge.begin_with(options).await.expect("a transaction");
        let (work, look) = (update(worker, number), select(worker, number));
        match self.kind {
            Kind::Both | Kind::Decided => self::work(&tx, worker, number).await,
            Kind::ReadOnly => {
                tokio::join!(postgres(&tx, &work), mysql(&tx, &look));
            }
            Kind::PostgresAlone => postgres(&tx, &work).await,
            Kind::MysqlAlone => mysql(&tx, &work).await,
            Kind::RollBack => {
                begin(&tx).await;
                return tx.rollback().await.expect("a rollback");
            }
        }
        let committed = tx.commit().await.expect("a commit");
        assert!(matches!(self.kind, Kind::Decided) || committed.pending.is_empty(), "it is applied everywhere");
    }

    /// Waits for phase two of what was answered before it.
    async fn do_settle(&self) {
        while self.bridge.status().running > 0 {
            // Long enough not to compete for the processor, short enough not to show.
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
        assert_eq!(self.bridge.status().in_doubt, 0, "nothing failed");
    }
}

/// Begins on both at once.
pub async fn begin(tx: &Transaction) {
    let (postgres, mysql) = tokio::join!(tx.postgres(LEDGER), tx.mysql(ORDERS));
    postgres.expect("a branch");
    mysql.expect("a branch");
}

/// Work on both at once.
pub async fn work(tx: &Transaction, worker: usize, number: usize) {
    let work = update(worker, number);
    tokio::join!(postgres(tx, &work), mysql(tx, &work));
}

async fn postgres(tx: &Transaction, work: &str) {
    tx.postgres(LEDGER).await.expect("a branch").batch_execute(work).await.expect("work");
}

async fn mysql(tx: &Transaction, work: &str) {
    tx.mysql(ORDERS).await.expect("a branch").query_drop(work).await.expect("work");
}

impl Way for Bridged {
    fn transact(&self, worker: usize, number: usize) -> BoxFuture<'_, ()> {
        Box::pin(self.do_transact(worker, number))
    }

    fn settle(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.do_settle())
    }
}
