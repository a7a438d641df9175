//! What docs/guide/isolation.md says of the databases, on the databases.

use handfast::mysql_async::prelude::Queryable;
use handfast::mysql_async::{self, Conn, Opts};
use handfast::participant::Isolation;
use handfast::tokio_postgres;
use handfast::{Bridge, Error, Options};
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

/// The money of an account on both sides, as of one moment.
async fn total(bridge: &Bridge, account: i32) -> Result<i64, Error> {
    bridge
        .transaction(async move |tx| {
            // The rows that a transfer updates, in the order in which it does.
            let ledger = tx.postgres("ledger").await?;
            let row = ledger.query_one("SELECT cents FROM account WHERE id = $1 FOR UPDATE", &[&account]).await?;
            let there: Option<i64> = tx
                .mysql("orders")
                .await?
                .exec_first("SELECT cents FROM wallet WHERE account = ? FOR UPDATE", (account,))
                .await?;
            Ok(row.get::<_, i64>(0) + there.unwrap_or(0))
        })
        .await
}

/// The page has `total` as it is run here.
#[test]
fn what_the_page_shows_is_run() {
    let without_blanks = |text: &str| text.split_whitespace().collect::<String>();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a member of the workspace");
    let page = std::fs::read_to_string(root.join("docs/guide/isolation.md")).unwrap();
    let here = std::fs::read_to_string(root.join("integration-tests/tests/guide.rs")).unwrap();
    let block = page.split("\n```").find(|block| block.contains("async fn total")).expect("it is shown");
    let function = &block[block.find("/// The money").expect("its first line")..];
    assert!(without_blanks(&here).contains(&without_blanks(function)), "{function}");
}

each_pair! {
    /// The table on the guide's first page: a reader between the two commits, without locks and with.
    async fn read_skew(other) {
        let world = World::new(other).await;
        // Nobody else carries the commit out while its answer is withheld.
        let bridge = world.open_with("[recovery]\nstatement_timeout = \"60s\"\n").await;
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

    /// What helps: the page's own function waits for a transfer that is committed on one side, and sees all of it.
    async fn who_locks_what_it_reads_sees_all_of_it(other) {
        let world = World::new(other).await;
        // Nobody else carries the commit out while its answer is withheld.
        let patient = "[transaction]\ntimeout = \"60s\"\n[recovery]\nstatement_timeout = \"60s\"\n";
        let bridge = world.open_with(patient).await;
        world.ledger.query("CREATE TABLE account (id INT PRIMARY KEY, cents BIGINT NOT NULL)").await;
        world.ledger.query("INSERT INTO account VALUES (1, 5000)").await;
        world.orders.query("CREATE TABLE wallet (account INT PRIMARY KEY, cents BIGINT NOT NULL)").await;
        world.orders.query("INSERT INTO wallet VALUES (1, 0)").await;
        assert_eq!(total(&bridge, 1).await.unwrap(), 5000);

        let tx = bridge.begin().await.unwrap();
        tx.postgres("ledger").await.unwrap().execute("UPDATE account SET cents = cents - 700", &[]).await.unwrap();
        tx.mysql("orders").await.unwrap().query_drop("UPDATE wallet SET cents = cents + 700").await.unwrap();
        let held = world.orders.proxy.on(world.orders.words().commit).hold();
        let committing = tokio::spawn(tx.commit());
        held.fired().await;
        let account = "SELECT cents FROM account WHERE id = 1";
        integration_tests::world::eventually("ledger has committed", async || {
            world.ledger.value(account).await.as_deref() == Some("4300")
        })
        .await;
        let reading = tokio::spawn(async move { total(&bridge, 1).await.map(|total| (bridge, total)) });
        let waits = "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE() AND \
                     command = 'Execute' AND info LIKE '%wallet%'";
        integration_tests::world::eventually("it waits for the wallet", async || {
            world.orders.value(waits).await.is_some_and(|waiting| waiting != "0")
        })
        .await;
        assert!(!reading.is_finished());

        held.release();
        committing.await.unwrap().unwrap();
        let (bridge, seen) = reading.await.unwrap().unwrap();
        assert_eq!(seen, 5000, "all of it, where 43.00 were to be seen without locks");
        bridge.close().await.unwrap();
    }

    /// "Serializable on each is not serializable over both", step by step.
    async fn a_cycle_over_both_that_nobody_sees(other) {
        let world = World::new(other).await;
        let bridge = world.open_with("[transaction]\ntimeout = \"20s\"\nlock_timeout = \"1s\"\n").await;
        world.ledger.query("INSERT INTO t VALUES (1, 0)").await;
        world.orders.query("INSERT INTO t VALUES (1, 0)").await;
        let serializable = || bridge.begin_with(Options::new().isolation(Isolation::Serializable));
        let update = "UPDATE t SET v = 1 WHERE k = 1";

        let (a, b) = (serializable().await.unwrap(), serializable().await.unwrap());
        let read = "SELECT v FROM t WHERE k = 1";
        let row = a.postgres("ledger").await.unwrap().query_one(read, &[]).await.unwrap();
        let there: Option<i32> = b.mysql("orders").await.unwrap().query_first(read).await.unwrap();
        assert_eq!((row.get::<_, i32>(0), there), (0, Some(0)));
        b.postgres("ledger").await.unwrap().execute(update, &[]).await.unwrap();
        b.commit().await.unwrap();
        a.mysql("orders").await.unwrap().query_drop(update).await.unwrap();
        a.commit().await.unwrap();
        assert_eq!(world.ledger.value(read).await.as_deref(), Some("1"));
        assert_eq!(world.orders.value(read).await.as_deref(), Some("1"));

        // With locks, B waits where it went on.
        let (a, b) = (bridge.begin().await.unwrap(), bridge.begin().await.unwrap());
        let read = "SELECT v FROM t WHERE k = 1 FOR UPDATE";
        a.postgres("ledger").await.unwrap().query_one(read, &[]).await.unwrap();
        let _: Option<i32> = b.mysql("orders").await.unwrap().query_first(read).await.unwrap();
        let waited = b.postgres("ledger").await.unwrap().execute(update, &[]).await;
        assert_eq!(handfast::Error::from(waited.unwrap_err()).kind(), handfast::ErrorKind::Retry);
        b.rollback().await.unwrap();
        a.mysql("orders").await.unwrap().query_drop(update).await.unwrap();
        a.commit().await.unwrap();
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
