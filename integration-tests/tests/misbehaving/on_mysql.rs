//! What an application may send to MySQL and MariaDB inside a branch, and what becomes of the transaction.

use crate::whole::{attempt, is_whole};
use handfast::mysql_async::prelude::Queryable;
use handfast::{Bridge, Outcome};
use integration_tests::each_mysql;
use integration_tests::servers::Flavor;
use integration_tests::torture::Tally;
use integration_tests::world::{LEDGER, ORDERS, World, eventually, insert_at, settled};

/// How a transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Committed,
    RolledBack,
    /// As the server does it: not here MariaDB.
    Differs(Outcome, Outcome),
    /// Versions differ: whatever it is, it is told as it is.
    Whatever,
}

use End::{Committed, Differs, RolledBack, Whatever};

/// D44 among them. `$` stands for a key that nobody else uses.
const CASES: &[(&[&str], End)] = &[
    // The server ends nothing that is not ended by XA.
    (&["COMMIT"], RolledBack),
    (&["ROLLBACK"], RolledBack),
    (&["BEGIN"], RolledBack),
    (&["START TRANSACTION"], RolledBack),
    (&["XA START 'mine'"], RolledBack),
    (&["XA COMMIT 'mine'"], RolledBack),
    (&["XA ROLLBACK 'mine'"], RolledBack),
    (&["XA PREPARE 'mine'"], RolledBack),
    (&["CREATE TABLE more (a INT)"], RolledBack),
    (&["ALTER TABLE t ADD COLUMN w INT"], RolledBack),
    (&["TRUNCATE TABLE t"], RolledBack),
    (&["DROP TABLE t"], RolledBack),
    (&["LOCK TABLES t WRITE"], RolledBack),
    (&["SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"], RolledBack),
    (&["PREPARE s FROM 'COMMIT'", "EXECUTE s"], RolledBack),
    (&["INSERT INTO t VALUES ($, 3); SELECT * FROM nowhere"], RolledBack),
    (&["KILL CONNECTION_ID()"], RolledBack),
    (&["CREATE TEMPORARY TABLE mine (a INT)"], Differs(Outcome::RolledBack, Outcome::Committed)),
    // What a branch can hold.
    (&["SAVEPOINT s", "INSERT INTO t VALUES ($, 3)", "ROLLBACK TO s"], Committed),
    (&["SAVEPOINT s", "SELECT * FROM nowhere", "ROLLBACK TO s"], Committed),
    (&["SAVEPOINT s", "RELEASE SAVEPOINT s"], Committed),
    (&["INSERT INTO t VALUES ($, 3); DELETE FROM t WHERE v = 3"], Committed),
    (&["PREPARE s FROM 'INSERT INTO t VALUES ($, 3)'", "EXECUTE s", "DELETE FROM t WHERE v = 3"], Committed),
    (&["SELECT GET_LOCK('mine', 0)"], Committed),
    (&["SELECT 1 INTO @mine"], Committed),
    (&["SET SESSION sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'"], Committed),
    (&["SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE"], Committed),
    (&["SET SESSION TRANSACTION READ ONLY"], Committed),
    (&["SET NAMES latin1"], Committed),
    (&["USE information_schema"], Committed),
    (&["XA RECOVER"], Committed),
    // Whatever the server makes of it.
    (&["SET autocommit = 0"], Whatever),
    (&["SET autocommit = 0", "SET autocommit = 1"], Whatever),
    (&["SET completion_type = 'RELEASE'"], Whatever),
    (&["SET ROLE NONE"], Whatever),
    (&["UNLOCK TABLES"], Whatever),
    (&["HANDLER t OPEN"], Whatever),
    (&["FLUSH TABLES"], Whatever),
    (&["SET sql_log_bin = 0"], Whatever),
    (&["SELECT RELEASE_ALL_LOCKS()"], Whatever),
    (&["SET SESSION innodb_lock_wait_timeout = 1", "SET SESSION wait_timeout = 1"], Whatever),
];

/// By which protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Text,
    Binary,
}

async fn send(world: &World, bridge: &Bridge, texts: &[&str], end: End, by: By, key: i32) {
    let tx = bridge.begin().await.unwrap();
    let id = tx.id();
    tokio::try_join!(insert_at(&tx, LEDGER, key), insert_at(&tx, ORDERS, key)).unwrap();
    let mut conn = tx.mysql(ORDERS).await.unwrap();
    for text in texts {
        let text = text.replace('$', &(key + 1).to_string());
        // An application that does not care.
        let _ = match by {
            By::Text => conn.query_drop(text).await,
            By::Binary => conn.exec_drop(text, ()).await,
        };
    }
    drop(conn);
    let answer = tx.commit().await;
    let answered = answer.as_ref().map_or_else(|error| error.outcome(), |_| Outcome::Committed);
    let said = answer.as_ref().err().map(|error| error.cause().chain()).unwrap_or_default();
    let expected = match end {
        Committed => Some(Outcome::Committed),
        RolledBack => Some(Outcome::RolledBack),
        Differs(mysql, _) if world.orders.flavor() == Flavor::MySql => Some(mysql),
        Differs(_, mariadb) => Some(mariadb),
        Whatever => None,
    };
    // The binary protocol refuses some of it on one server or the other, and a savepoint set by it is not seen.
    if by == By::Text
        && let Some(expected) = expected
    {
        assert_eq!(answered, expected, "{said}");
    }
    assert!(matches!(answered, Outcome::Committed | Outcome::RolledBack), "{answered:?}: {said}");
    assert_eq!(settled(bridge, id).await, answered, "asked later");
    world.agrees(key, answered).await;
    is_whole(world, bridge, key + 2).await;
}

each_mysql! {
    async fn statements(flavor) {
        let tally = Tally::new("the application misbehaves", format!("{}: statements", flavor.product()));
        let world = World::new(flavor).await;
        let bridge = world.open().await;
        for (number, (texts, end)) in CASES.iter().enumerate() {
            for by in [By::Text, By::Binary] {
                let key = i32::try_from(number * 20).unwrap() + if by == By::Text { 0 } else { 10 };
                let result = attempt(send(&world, &bridge, texts, *end, by, key)).await;
                tally.case(format!("{texts:?} by {by:?}"), result);
            }
        }
        bridge.close().await.unwrap();
        tally.finish();
    }

    /// The application ends the XA transaction by itself, by either protocol: nobody says that it is not committed. MySQL
    /// refuses XA as prepared statements.
    async fn xa_statements_of_its_own(flavor) {
        let tally = Tally::new("the application misbehaves", format!("{}: XA of its own", flavor.product()));
        let world = World::new(flavor).await;
        let bridge = world.open().await;
        let endings: [(&[&str], bool); 5] = [
            (&["XA END $", "XA COMMIT $ ONE PHASE"], true),
            (&["XA END $", "XA ROLLBACK $"], false),
            (&["XA END $", "XA COMMIT $ ONE PHASE", "XA START $", "INSERT INTO t VALUES (?, 3)"], true),
            (&["XA END $", "XA PREPARE $", "XA COMMIT $"], true),
            (&["XA END $"], false),
        ];
        for (number, (texts, commits)) in endings.iter().enumerate() {
            for by in [By::Text, By::Binary] {
                let key = i32::try_from(number * 20).unwrap() + if by == By::Text { 0 } else { 10 };
                let case = async {
                    let tx = bridge.begin().await.unwrap();
                    let id = tx.id();
                    tokio::try_join!(insert_at(&tx, LEDGER, key), insert_at(&tx, ORDERS, key)).unwrap();
                    let mut conn = tx.mysql(ORDERS).await.unwrap();
                    // An application does not know its slot: it may read it from the server, or guess.
                    let name = format!("handfast.{}.1.", id.incarnation);
                    let slots: Vec<u32> = {
                        let mut held = Vec::new();
                        for slot in 0..16 {
                            let asked = format!("SELECT IS_USED_LOCK('{name}{slot}') = CONNECTION_ID()");
                            if conn.query_first::<Option<i64>, _>(asked).await.unwrap().flatten() == Some(1) {
                                held.push(slot);
                            }
                        }
                        held
                    };
                    let xid = id.branch(1, slots[0]).xid_sql();
                    let mut refused = false;
                    for text in *texts {
                        let text = text.replace('$', &xid).replace('?', &(key + 1).to_string());
                        let sent = match by {
                            By::Text => conn.query_drop(text).await,
                            By::Binary => conn.exec_drop(text, ()).await,
                        };
                        refused |= sent.is_err();
                    }
                    drop(conn);
                    let answer = tx.commit().await;
                    let answered = answer.as_ref().map_or_else(|error| error.outcome(), |_| Outcome::Committed);
                    let there = world.orders.has(key).await;
                    assert_eq!(there, *commits && !refused);
                    if there {
                        assert!(matches!(answered, Outcome::Damaged | Outcome::InDoubt), "{answered:?}");
                    } else {
                        assert_ne!(answered, Outcome::Committed);
                    }
                    assert!(!world.ledger.has(key).await);
                    for side in world.sides() {
                        eventually("nobody holds the key", async || !side.is_locked(key).await).await;
                    }
                    is_whole(&world, &bridge, key + 2).await;
                };
                tally.case(format!("{texts:?} by {by:?}"), attempt(case).await);
            }
        }
        bridge.close().await.unwrap();
        tally.finish();
    }

    /// D16: a connection that was kept from before reaches nothing once the commit has begun: what would be committed on the
    /// spot is not sent.
    async fn d16_a_kept_handle_sends_nothing_after_prepare(flavor) {
        use handfast::participant::mysql::{Lent, MysqlBranch};
        let world = World::new(flavor).await;
        let bridge = world.open().await;
        let tx = bridge.begin().await.unwrap();
        tokio::try_join!(insert_at(&tx, LEDGER, 1), insert_at(&tx, ORDERS, 1)).unwrap();
        let handle = tx.branch::<Lent>(ORDERS).await.unwrap();
        // PostgreSQL votes no, late: MySQL has prepared by then, and its session would take anything.
        tx.postgres(LEDGER).await.unwrap().batch_execute("CREATE TEMP TABLE mine (a int)").await.unwrap();
        let rule = world.ledger.proxy.on("PREPARE TRANSACTION").hold();
        let committing = tokio::spawn(tx.commit());
        rule.fired().await;
        eventually("prepared", async || !world.orders.prepared().await.is_empty()).await;
        let sent = tokio::spawn(async move {
            let mut kept = MysqlBranch::lock(handle).await;
            kept.query_drop("INSERT INTO t VALUES (2, 66)").await
        });
        let refused = sent.await.unwrap().unwrap_err();
        assert!(refused.to_string().contains("ended"), "{refused}");
        assert_eq!(world.orders.proxy.count("VALUES (2, 66)"), 0, "it was not sent");
        rule.release();
        assert_eq!(committing.await.unwrap().unwrap_err().outcome(), Outcome::RolledBack);
        world.is_nowhere(1).await;
        world.is_nowhere(2).await;
        is_whole(&world, &bridge, 3).await;
    }
}
