//! The same work through a bridge.

use crate::Way;
use crate::stage::{DATABASE, Stage, select, update};
use futures_util::future::BoxFuture;
use handfast::config::Acknowledge;
use handfast::mysql_async::prelude::Queryable;
use handfast::transaction::Options;
use handfast::{Bridge, Transaction};
use integration_tests::servers::ConfigBuilder;
use integration_tests::world::{LEDGER, ORDERS};

/// A bridge with a session for every worker on each participant.
pub async fn open(stage: &Stage, node: &str, witness: bool) -> Bridge {
    let witness = format!("witness = {witness}");
    let config = ConfigBuilder::new(stage.directory(node))
        .node(node)
        .section(&format!("[pool]\nsize = {}", stage.workers))
        .participant(LEDGER, &stage.postgres, DATABASE)
        .with(&witness)
        .participant(ORDERS, &stage.mysql, DATABASE)
        .with(&witness);
    Bridge::open(config.build()).await.expect("a bridge")
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
            Kind::Both | Kind::PostgresAlone | Kind::MysqlAlone => Options::new(),
        };
        let tx = self.bridge.begin_with(options).await.expect("a transaction");
        let (work, look) = (update(worker, number), select(worker, number));
        match self.kind {
            Kind::Both | Kind::Decided => {
                tokio::join!(postgres(&tx, &work), mysql(&tx, &work));
            }
            Kind::ReadOnly => {
                tokio::join!(postgres(&tx, &work), mysql(&tx, &look));
            }
            Kind::PostgresAlone => postgres(&tx, &work).await,
            Kind::MysqlAlone => mysql(&tx, &work).await,
        }
        let committed = tx.commit().await.expect("a commit");
        assert!(matches!(self.kind, Kind::Decided) || committed.pending.is_empty(), "it is applied everywhere");
    }

    /// Waits for phase two of what was answered before it.
    async fn do_settle(&self) {
        while self.bridge.status().running > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(self.bridge.status().in_doubt, 0, "nothing failed");
    }
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
