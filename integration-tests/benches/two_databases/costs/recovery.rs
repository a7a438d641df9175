//! How long recovery takes when many transactions are decided and carried out nowhere: from the opening of the bridge
//! until nothing is in doubt.

use crate::bridged;
use crate::spread::rounded;
use crate::stage::{Access, DATABASE, Size, Stage};
use handfast::Bridge;
use handfast::config::Acknowledge;
use handfast::transaction::Options;
use integration_tests::proxy::Proxy;
use integration_tests::servers::{ConfigBuilder, Flavor, Server};
use integration_tests::world::{LEDGER, ORDERS};
use serde_json::{Value, json};
use std::fmt;
use std::path::Path;
use std::time::Instant;

/// Who works at once while the transactions are made.
const WORKERS: usize = 16;

/// Seconds that the recovery of so many took.
pub struct Recovery {
    transactions: usize,
    /// Branches that were prepared on each server when it began.
    prepared: [usize; 2],
    seconds: f64,
}

/// So many transactions in doubt on servers of their own, and their recovery.
pub async fn measure(other: Flavor, transactions: usize) -> Recovery {
    let size = Size { workers: WORKERS, connections: 200, prepared: transactions + 50 };
    let stage = Stage::set(other, false, size).await;
    let journal = stage.path().join("journal");
    std::fs::create_dir(&journal).expect("a directory");
    make(&stage, &journal, transactions).await;
    let prepared = [prepared(&stage.postgres).await, prepared(&stage.mysql).await];
    let Access { postgres, mysql, .. } = stage.access();
    // Opening waits for all of it.
    let config = config(&journal, other, "open_wait = \"1h\"", &postgres, &mysql);
    let began = Instant::now();
    let bridge = Bridge::open(config.build()).await.expect("a bridge");
    while bridge.status().in_doubt > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    let seconds = began.elapsed().as_secs_f64();
    bridge.close().await.expect("nothing is left to do");
    stage.check().await;
    Recovery { transactions, prepared, seconds }
}

fn config(journal: &Path, other: Flavor, recovery: &str, postgres: &str, mysql: &str) -> ConfigBuilder {
    ConfigBuilder::new(journal)
        .node("bench-recovery")
        .section(&format!("[recovery]\n{recovery}"))
        .participant_at(LEDGER, Flavor::Postgres, postgres)
        .participant_at(ORDERS, other, mysql)
}

/// Leaves transactions that are decided and prepared on both: the connection breaks whenever a commit is sent.
async fn make(stage: &Stage, journal: &Path, transactions: usize) {
    let (first, second) = (Proxy::start(&stage.postgres).await, Proxy::start(&stage.mysql).await);
    let _rules = (first.on("COMMIT PREPARED").every().cut(), second.on("XA COMMIT").every().cut());
    // Nobody tries again while there are more to come.
    let patient = "interval = \"1h\"\nbackoff_min = \"1h\"\nbackoff_max = \"1h\"\nopen_wait = \"5s\"";
    let config = config(journal, stage.mysql.flavor(), patient, &first.url(DATABASE), &second.url(DATABASE));
    let bridge = Bridge::open(config.build()).await.expect("a bridge");
    let workers = (0..WORKERS).map(|worker| {
        let bridge = bridge.clone();
        tokio::spawn(async move {
            for number in (worker..transactions).step_by(WORKERS) {
                let options = Options::new().acknowledge(Acknowledge::Decided);
                let tx = bridge.begin_with(options).await.expect("a transaction");
                bridged::work(&tx, worker, number / WORKERS).await;
                tx.commit().await.expect("a decision");
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.expect("the work succeeds");
    }
    first.down();
    second.down();
    // It leaves what it cannot settle, and says what it thinks of that.
    let _ = bridge.close().await;
}

/// How many branches are prepared on a server.
async fn prepared(server: &Server) -> usize {
    let list = match server.flavor() {
        Flavor::Postgres => "SELECT gid FROM pg_prepared_xacts",
        Flavor::MariaDb | Flavor::MySql => "XA RECOVER",
    };
    server.query(DATABASE, list).await.expect("a list").len()
}

impl Recovery {
    pub fn json(&self) -> Value {
        json!({
            "transactions": self.transactions,
            "prepared": self.prepared,
            "seconds": rounded(self.seconds),
        })
    }
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { transactions, prepared: [first, second], seconds } = self;
        let each = *transactions as f64 / seconds;
        writeln!(
            f,
            "recovery of {transactions} transactions, {first} and {second} branches prepared: {seconds:.2} s, {each:.0} a second"
        )
    }
}
