//! Ten thousand transactions in doubt: recovery settles all of them, and takes no more than twice as long as a loop of
//! bare statements on as many connections, three times where the server's answer needs a proof. Run by hand, with the machine to itself: see `make bench`.

use futures_util::stream::{self, StreamExt};
use handfast::id::{BranchId, Incarnation};
use handfast::journal::{Journal, Opening};
use handfast::mysql_async::Conn;
use handfast::mysql_async::prelude::Queryable;
use handfast::participant::{self, BeginOptions, Isolation, Participant, Registration};
use handfast::protocol::{CommitRecord, DecidedBranch, Mode, ParticipantRecord, Record, Vote};
use handfast::resolver::Resolver;
use handfast::{Config, TransactionId, tokio_postgres};
use integration_tests::servers::{self, ConfigBuilder, Flavor, Server};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// So many, where the environment does not say otherwise.
const MANY: u64 = 10_000;

/// What an application leaves that is killed when all its transactions are decided and none is committed anywhere: its
/// own phase one on both sides, its own records. Only its sessions are closed one by one, not all at its death.
async fn decided(config: &Config, incarnation: u64, many: u64) -> Vec<BranchId> {
    let all = participant::from_config(config).unwrap();
    let names = all.iter().map(|one| one.name()).collect();
    let incarnation = Incarnation(incarnation);
    let opening = Opening { node: config.node, incarnation, opened_at_ms: 0, participants: names };
    let journal = Journal::open(&config.journal, opening).unwrap();
    let mut lineages = Vec::new();
    for (one, number) in all.iter().zip(0..) {
        let expected = journal.image(|image| image.participant(one.name()).map(|known| known.lineage));
        let registration = Registration {
            node: config.node,
            incarnation,
            journal: journal.id(),
            participant: number,
            decision: handfast::config::Decision::Journal,
            host: "bench".into(),
            expected,
        };
        let lineage = one.register(&registration).await.unwrap_or_else(|error| panic!("{}", error.chain()));
        if expected.is_none() {
            let record = ParticipantRecord { name: one.name(), lineage, reason: "first seen".into() };
            journal.append(Record::Participant(record)).await.unwrap();
        }
        lineages.push(lineage);
    }
    let ids = (1..=many).map(|sequence| TransactionId { node: config.node, incarnation, sequence });
    let prepared = stream::iter(ids).map(|id| {
        let (all, lineages, journal) = (&all, &lineages, &journal);
        async move {
            let mut branches = Vec::new();
            for (one, lineage) in all.iter().zip(lineages) {
                let id = prepare(&**one, id).await;
                branches.push(DecidedBranch { id, participant: one.name(), lineage: *lineage });
            }
            let ids: Vec<_> = branches.iter().map(|branch| branch.id).collect();
            let record = CommitRecord { transaction: id, branches, payload: None };
            journal.append(Record::Commit(record)).await.unwrap();
            ids
        }
    });
    let ids: Vec<_> = prepared.buffer_unordered(16).collect::<Vec<_>>().await.concat();
    for one in &all {
        one.close().await;
    }
    journal.close().unwrap();
    ids
}

async fn prepare(one: &dyn Participant, id: TransactionId) -> BranchId {
    let options =
        BeginOptions { mode: Mode::Writer, isolation: Isolation::Default, lock_timeout: Duration::from_secs(5) };
    let mut branch = one.begin(id, options).await.unwrap_or_else(|error| panic!("{}", error.chain()));
    let vote = branch.prepare().await;
    assert_eq!(vote.value, Vote::Prepared, "{:?}", vote.cause);
    branch.id()
}

/// The bare statements, one after another on one connection to each server, both at once.
async fn bare(servers: [&Server; 2], database: &str, ids: &[BranchId]) -> Duration {
    let on = |number: u16| ids.iter().filter(move |id| id.participant == number);
    let url = servers[0].url(database);
    let (ledger, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let options = handfast::mysql_async::OptsBuilder::from_opts(
        handfast::mysql_async::Opts::from_url(&servers[1].url(database)).unwrap(),
    )
    .prefer_socket(false);
    let mut orders = Conn::new(options).await.unwrap();
    let started = Instant::now();
    let one = async {
        for id in on(0) {
            ledger.batch_execute(&format!("COMMIT PREPARED '{id}'")).await.unwrap();
        }
    };
    let two = async {
        for id in on(1) {
            orders.query_drop(format!("XA COMMIT {}", id.xid_sql())).await.unwrap();
        }
    };
    tokio::join!(one, two);
    started.elapsed()
}

async fn recovered(config: &Config) -> Duration {
    let resolver = Resolver::open(config.clone()).unwrap();
    let started = Instant::now();
    let pass = resolver.sweep(&|_| {}).await;
    let took = started.elapsed();
    assert!(pass.refused.is_none(), "{:?}", pass.refused);
    assert!(pass.is_complete(), "{} are left, {:?}", pass.left.transactions.len(), pass.unsettled);
    assert_eq!(resolver.image(|image| image.open_decisions().len()), 0);
    resolver.close().await.unwrap();
    took
}

/// In one run: the bare statements before and after, so that a server that grows slower counts for both.
async fn ten_thousand_in_doubt(other: Flavor) {
    let many = std::env::var("HANDFAST_MANY").map_or(MANY, |many| many.parse().unwrap());
    let slots = servers::options().with("max_prepared_transactions", &(many + 100).to_string());
    let (ledger, orders) = tokio::join!(servers::start_with(Flavor::Postgres, slots), servers::start(other));
    for server in [&ledger, &orders] {
        server.create_database("bench").await.unwrap();
    }
    let journal = TempDir::new().unwrap();
    let config = ConfigBuilder::new(journal.path())
        .section("[recovery]\nstatement_timeout = \"60s\"\n")
        .participant("ledger", &ledger, "bench")
        .participant("orders", &orders, "bench")
        .build();
    let config = Arc::new(config);
    let first = decided(&config, 1, many).await;
    let before = bare([&ledger, &orders], "bench", &first).await;
    // What is gone is proven by its witness, and closed.
    recovered(&config).await;
    decided(&config, 2, many).await;
    let took = recovered(&config).await;
    let last = decided(&config, 3, many).await;
    let after = bare([&ledger, &orders], "bench", &last).await;
    let bare = (before + after) / 2;
    let ratio = took.as_secs_f64() / bare.as_secs_f64();
    println!(
        "{many} transactions on PostgreSQL and {}: bare statements {before:.2?} and {after:.2?}, recovery {took:.2?}: \
             {ratio:.2} times as long",
        other.product()
    );
    // MariaDB's OK is no proof: a second statement for each branch is.
    let most = if other == Flavor::MariaDb { 3.0 } else { 2.0 };
    assert!(ratio <= most, "{ratio:.2}");
}

#[test]
#[ignore = "takes minutes, and measures: `make bench` runs it"]
fn postgres_mariadb() {
    servers::runtime().block_on(ten_thousand_in_doubt(Flavor::MariaDb));
}

#[test]
#[ignore = "takes minutes, and measures: `make bench` runs it"]
fn postgres_mysql() {
    if servers::is_available(Flavor::MySql) {
        servers::runtime().block_on(ten_thousand_in_doubt(Flavor::MySql));
    }
}
