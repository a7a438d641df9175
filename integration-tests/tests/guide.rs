//! What docs/guide/isolation.md says of the databases, on the databases.

use handfast::mysql_async::prelude::Queryable;
use handfast::mysql_async::{self, Conn, Opts};
use handfast::tokio_postgres;
use integration_tests::each_pair;
use integration_tests::servers::{self, Flavor, Server};
use integration_tests::world::World;
use integration_tests::{each_mysql, each_server};

/// A session of its own on MySQL or MariaDB.
async fn session(server: &Server, database: &str) -> Conn {
    let options = Opts::from_url(&server.url(database)).unwrap();
    Conn::new(options).await.unwrap()
}

/// `t` with one row, in a database of its own.
async fn one_row(server: &Server) -> String {
    let database = servers::fresh_database(server).await;
    let create = "CREATE TABLE t (k INT PRIMARY KEY, v INT NOT NULL); INSERT INTO t VALUES (1, 5)";
    server.query(&database, create).await.unwrap();
    database
}

/// Whether another session has to wait for the row while a branch that has read it so is prepared, and not committed.
async fn waits(flavor: Flavor, isolation: &str, read: &str) -> bool {
    let server = servers::shared(flavor).await;
    let database = one_row(server).await;
    let mut branch = session(server, &database).await;
    let xid = servers::unique("guide");
    branch.query_drop(format!("SET SESSION TRANSACTION ISOLATION LEVEL {isolation}")).await.unwrap();
    branch.query_drop(format!("XA START '{xid}'")).await.unwrap();
    let _: Vec<i32> = branch.query(read).await.unwrap();
    // Something is written, as in every branch of Handfast.
    branch.query_drop("INSERT INTO t VALUES (2, 0)").await.unwrap();
    branch.query_drop(format!("XA END '{xid}'")).await.unwrap();

    let mut other = session(server, &database).await;
    other.query_drop("SET SESSION innodb_lock_wait_timeout = 1").await.unwrap();
    let update = "UPDATE t SET v = v + 1 WHERE k = 1";
    let before = other.query_drop(update).await;
    assert_eq!(code(before), Some(1205), "before the prepare the lock is there, whatever kind it is");
    branch.query_drop(format!("XA PREPARE '{xid}'")).await.unwrap();
    let after = other.query_drop(update).await;
    branch.query_drop(format!("XA COMMIT '{xid}'")).await.unwrap();
    match code(after) {
        None => false,
        Some(1205) => true,
        Some(other) => panic!("error {other}"),
    }
}

fn code(answer: Result<(), mysql_async::Error>) -> Option<u16> {
    match answer {
        Ok(()) => None,
        Err(mysql_async::Error::Server(error)) => Some(error.code),
        Err(error) => panic!("{error}"),
    }
}

each_mysql! {
    async fn shared_locks_between_prepare_and_commit(flavor) {
        let shared = "SELECT v FROM t WHERE k = 1 LOCK IN SHARE MODE";
        let kept = waits(flavor, "REPEATABLE READ", shared).await;
        assert_eq!(kept, flavor == Flavor::MySql, "MariaDB drops them");
        assert!(waits(flavor, "SERIALIZABLE", shared).await, "unless it is serializable");
        assert!(waits(flavor, "SERIALIZABLE", "SELECT v FROM t WHERE k = 1").await, "where every read locks");
        assert!(waits(flavor, "REPEATABLE READ", "SELECT v FROM t WHERE k = 1 FOR UPDATE").await);
    }
}

#[test]
fn postgresql_keeps_shared_locks() {
    servers::runtime().block_on(async {
        let server = servers::shared(Flavor::Postgres).await;
        let database = one_row(server).await;
        let gid = servers::unique("guide");
        let prepare = format!(
            "BEGIN; SELECT v FROM t WHERE k = 1 FOR SHARE; INSERT INTO t VALUES (2, 0); PREPARE TRANSACTION '{gid}'"
        );
        server.query(&database, &prepare).await.unwrap();
        let update = "SET lock_timeout = '100ms'; UPDATE t SET v = v + 1 WHERE k = 1";
        let waited = server.query(&database, update).await.expect_err("the row is locked").chain();
        assert!(waited.contains("lock timeout"), "{waited}");
        server.query(&database, &format!("COMMIT PREPARED '{gid}'")).await.unwrap();
        server.query(&database, update).await.unwrap();
    });
}

each_server! {
    /// A branch that was declared read-only cannot lock what it reads.
    async fn no_locking_reads_in_read_only_transactions(flavor) {
        let server = servers::shared(flavor).await;
        let database = one_row(server).await;
        let read = "START TRANSACTION READ ONLY; SELECT v FROM t WHERE k = 1 FOR UPDATE; COMMIT";
        let refused = server.query(&database, read).await.expect_err("a lock is a write").chain();
        assert!(refused.to_lowercase().replace('-', " ").contains("read only transaction"), "{refused}");
    }
}

each_pair! {
    /// The table on the guide's first page: a reader between the two commits, without locks and with.
    async fn read_skew(other) {
        let world = World::new(other).await;
        let bridge = world.open().await;
        world.ledger.query("INSERT INTO t VALUES (1, 50)").await;
        world.orders.query("INSERT INTO t VALUES (1, 0)").await;
        let tx = bridge.begin().await.unwrap();
        tx.postgres("ledger").await.unwrap().execute("UPDATE t SET v = v - 7", &[]).await.unwrap();
        tx.mysql("orders").await.unwrap().query_drop("UPDATE t SET v = v + 7").await.unwrap();
        let held = world.orders.proxy.on(world.orders.words().commit).hold();
        let committing = tokio::spawn(tx.commit());
        held.fired().await;
        let read = "SELECT v FROM t WHERE k = 1";
        integration_tests::world::eventually("ledger has committed", async || {
            world.ledger.value(read).await.as_deref() == Some("43")
        })
        .await;
        assert_eq!(world.orders.value(read).await.as_deref(), Some("0"), "7 are nowhere");
        assert!(world.orders.is_locked(1).await, "who locks what it reads has to wait");

        held.release();
        committing.await.unwrap().unwrap();
        assert_eq!(world.orders.value(read).await.as_deref(), Some("7"));
        bridge.close().await.unwrap();
    }

    /// "Neither database sees a cycle": the lock timeout ends it, as an error that is worth another run.
    async fn a_deadlock_between_the_two_ends_by_the_lock_timeout(other) {
        let world = World::new(other).await;
        let bridge = world.open_with("[transaction]\ntimeout = \"20s\"\nlock_timeout = \"1s\"\n").await;
        world.ledger.query("INSERT INTO t VALUES (1, 0)").await;
        world.orders.query("INSERT INTO t VALUES (1, 0)").await;
        let update = "UPDATE t SET v = v + 1";
        let (a, b) = (bridge.begin().await.unwrap(), bridge.begin().await.unwrap());
        a.postgres("ledger").await.unwrap().execute(update, &[]).await.unwrap();
        b.mysql("orders").await.unwrap().query_drop(update).await.unwrap();
        let ledger = b.postgres("ledger").await.unwrap();
        let mut orders = a.mysql("orders").await.unwrap();
        let (of_a, of_b) = tokio::join!(orders.query_drop(update), ledger.execute(update, &[]));
        let of_a = of_a.err().map(handfast::Error::from);
        let of_b: Option<handfast::Error> = of_b.err().map(|error: tokio_postgres::Error| error.into());
        let kinds: Vec<_> = [of_a, of_b].into_iter().flatten().map(|error| error.kind()).collect();
        assert!(!kinds.is_empty() && kinds.iter().all(|kind| *kind == handfast::ErrorKind::Retry), "{kinds:?}");
        drop((ledger, orders));
        a.rollback().await.unwrap();
        b.rollback().await.unwrap();
        bridge.close().await.unwrap();
    }
}
