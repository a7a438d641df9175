//! The drivers alone, by hand: what can be reached at best. No checks, no recovery, every worker with connections of
//! its own, what can go together in one text, both databases at once.

use crate::group_commit::GroupCommit;
use crate::stage::{Access, select, update};
use crate::ways::Way;
use futures_util::future::BoxFuture;
use handfast::mysql_async::prelude::Queryable;
use handfast::mysql_async::{Conn, Opts, OptsBuilder};
use handfast::tokio_postgres::{Client, NoTls};
use integration_tests::servers;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{Mutex, MutexGuard};

/// What a worker works with.
pub struct Pair {
    pub postgres: Client,
    pub mysql: Conn,
}

/// The connections of all workers, and the log.
pub struct Hands {
    pairs: Vec<Mutex<Pair>>,
    log: GroupCommit,
    next: AtomicU64,
}

impl Hands {
    pub async fn new(access: &Access) -> Self {
        let mut pairs = Vec::new();
        for _ in 0..access.workers {
            pairs.push(Mutex::new(Pair::connect(access).await));
        }
        let log = GroupCommit::create(&access.directory.join(servers::unique("decisions")));
        // Each begins where none before it can have come: the names and the proofs of all are on the same servers.
        static HANDS: AtomicU64 = AtomicU64::new(0);
        let first = HANDS.fetch_add(1, Ordering::Relaxed) << 40;
        Self { pairs, log, next: AtomicU64::new(first) }
    }

    /// Ends every session.
    pub async fn close(self) {
        for pair in self.pairs {
            let Pair { postgres, mysql } = pair.into_inner();
            drop(postgres);
            mysql.disconnect().await.expect("a farewell");
        }
    }
}

impl Pair {
    /// Both at once.
    pub async fn connect(access: &Access) -> Self {
        let (postgres, mysql) = tokio::join!(postgres(&access.postgres), mysql(&access.mysql));
        Self { postgres, mysql }
    }

    /// A text to each of both, at once.
    pub async fn both(&mut self, postgres: &str, mysql: &str) {
        let (first, second) = tokio::join!(self.postgres.batch_execute(postgres), self.mysql.query_drop(mysql));
        first.expect(postgres);
        second.expect(mysql);
    }
}

/// A session on PostgreSQL.
pub async fn postgres(url: &str) -> Client {
    let (client, connection) = handfast::tokio_postgres::connect(url, NoTls).await.expect("PostgreSQL");
    tokio::spawn(connection);
    client
}

/// A session on MariaDB or MySQL, over TCP as that of PostgreSQL.
pub async fn mysql(url: &str) -> Conn {
    let opts = Opts::from_url(url).expect("a URL");
    Conn::new(OptsBuilder::from_opts(opts).prefer_socket(false)).await.expect("MySQL")
}

/// What is done with them.
#[derive(Clone, Copy)]
pub enum Kind {
    /// Two commits at once that know nothing of each other: not atomic.
    Local,
    /// Two-phase commit.
    Floor {
        /// Each branch leaves a row that proves its commit.
        proof: bool,
        /// The begin is answered before the work is sent, as by everything that lends the driver to an application.
        begin_apart: bool,
    },
    /// A commit on PostgreSQL, a read-only transaction on the other.
    LocalAndRead,
    PostgresAlone,
    MysqlAlone,
    /// Two transactions that do nothing and are rolled back.
    RollBack,
}

/// One of them.
pub struct Direct {
    hands: Arc<Hands>,
    kind: Kind,
}

impl Direct {
    pub fn new(hands: Arc<Hands>, kind: Kind) -> Self {
        Self { hands, kind }
    }

    async fn pair(&self, worker: usize) -> MutexGuard<'_, Pair> {
        // Never waits: a worker does one thing at a time.
        self.hands.pairs[worker].lock().await
    }

    async fn local(&self, worker: usize, number: usize) {
        let mut pair = self.pair(worker).await;
        let work = update(worker, number);
        pair.both(&format!("BEGIN; {work}"), &format!("START TRANSACTION; {work}")).await;
        pair.both("COMMIT", "COMMIT").await;
    }

    async fn floor(&self, worker: usize, number: usize, proof: bool, begin_apart: bool) {
        let mut pair = self.pair(worker).await;
        let work = update(worker, number);
        let id = self.hands.next.fetch_add(1, Ordering::Relaxed);
        let (gid, xid) = (format!("floor.{id}"), format!("'floor.{id}','1',2147483647"));
        let proof = |branch| {
            if proof { format!("INSERT INTO proof VALUES (1, {id}, {branch}, 'decided'); ") } else { String::new() }
        };
        if begin_apart {
            pair.both("BEGIN", &format!("XA START {xid}")).await;
            pair.both(&work, &work).await;
        } else {
            pair.both(&format!("BEGIN; {work}"), &format!("XA START {xid}; {work}")).await;
        }
        let prepare_xa = format!("{}XA END {xid}; XA PREPARE {xid}", proof(1));
        pair.both(&format!("{}PREPARE TRANSACTION '{gid}'", proof(0)), &prepare_xa).await;
        self.hands.log.decide().await;
        pair.both(&format!("COMMIT PREPARED '{gid}'"), &format!("XA COMMIT {xid}")).await;
    }

    async fn local_and_read(&self, worker: usize, number: usize) {
        let mut pair = self.pair(worker).await;
        let begin = format!("BEGIN; {}", update(worker, number));
        pair.both(&begin, &format!("START TRANSACTION READ ONLY; {}", select(worker, number))).await;
        pair.both("COMMIT", "COMMIT").await;
    }

    async fn postgres_alone(&self, worker: usize, number: usize) {
        let pair = self.pair(worker).await;
        pair.postgres.batch_execute(&format!("BEGIN; {}", update(worker, number))).await.expect("work");
        pair.postgres.batch_execute("COMMIT").await.expect("a commit");
    }

    async fn mysql_alone(&self, worker: usize, number: usize) {
        let mut pair = self.pair(worker).await;
        pair.mysql.query_drop(format!("START TRANSACTION; {}", update(worker, number))).await.expect("work");
        pair.mysql.query_drop("COMMIT").await.expect("a commit");
    }

    async fn roll_back(&self, worker: usize) {
        let mut pair = self.pair(worker).await;
        pair.both("BEGIN", "START TRANSACTION").await;
        pair.both("ROLLBACK", "ROLLBACK").await;
    }
}

impl Way for Direct {
    fn transact(&self, worker: usize, number: usize) -> BoxFuture<'_, ()> {
        match self.kind {
            Kind::Local => Box::pin(self.local(worker, number)),
            Kind::Floor { proof, begin_apart } => Box::pin(self.floor(worker, number, proof, begin_apart)),
            Kind::LocalAndRead => Box::pin(self.local_and_read(worker, number)),
            Kind::PostgresAlone => Box::pin(self.postgres_alone(worker, number)),
            Kind::MysqlAlone => Box::pin(self.mysql_alone(worker, number)),
            Kind::RollBack => Box::pin(self.roll_back(worker)),
        }
    }
}
