//! The options of one call are really in force, on each kind of server.

use handfast::mysql_async::prelude::Queryable;
use handfast::participant::Isolation;
use handfast::{Bridge, Error, ErrorKind, Options, Outcome, Result, Transaction};
use integration_tests::each_pair;
use integration_tests::world::{LEDGER, ORDERS, Side, World, eventually, insert_at};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

async fn count(tx: &Transaction, side: &str) -> i64 {
    let text = "SELECT COUNT(*) FROM t";
    if side == LEDGER {
        tx.postgres(side).await.unwrap().query_one(text, &[]).await.unwrap().get(0)
    } else {
        tx.mysql(side).await.unwrap().query_first(text).await.unwrap().unwrap()
    }
}

/// How many more rows one transaction sees after somebody else has committed one on each side: ledger, orders.
async fn news(world: &World, bridge: &Bridge, options: Options, key: i32) -> [i64; 2] {
    let tx = bridge.begin_with(options).await.unwrap();
    let before = [count(&tx, LEDGER).await, count(&tx, ORDERS).await];
    for side in world.sides() {
        side.query(&format!("INSERT INTO t VALUES ({key}, 1)")).await;
    }
    let after = [count(&tx, LEDGER).await, count(&tx, ORDERS).await];
    tx.rollback().await.unwrap();
    [after[0] - before[0], after[1] - before[1]]
}

/// Fails as a deadlock does, each time.
async fn deadlock(tx: &Transaction, side: &str) -> Result<()> {
    if side == LEDGER {
        let text = "DO $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = '40P01'; END $$";
        tx.postgres(side).await?.batch_execute(text).await?;
    } else {
        let text = "SIGNAL SQLSTATE '40001' SET MESSAGE_TEXT = 'again', MYSQL_ERRNO = 1213";
        tx.mysql(side).await?.query_drop(text).await?;
    }
    Ok(())
}

async fn is_refused_as_read_only(error: &Error, side: &Side) {
    let text = error.chain();
    assert!(
        text.to_ascii_lowercase().contains("read") && text.to_ascii_lowercase().contains("only"),
        "{}: {text}",
        side.name
    );
}

each_pair! {
    async fn isolation_is_each_branchs_own(other) {
        let world = World::new(other).await;
        let bridge = world.open().await;
        let (committed, repeatable) = (Isolation::ReadCommitted, Isolation::RepeatableRead);
        let of = |ledger, orders| Options::new().isolation_of(LEDGER, ledger).isolation_of(ORDERS, orders);
        assert_eq!(news(&world, &bridge, of(committed, repeatable), 1).await, [1, 0]);
        assert_eq!(news(&world, &bridge, of(repeatable, committed), 2).await, [0, 1]);
        let all_but_one = || Options::new().isolation(repeatable).isolation_of(ORDERS, committed);
        assert_eq!(news(&world, &bridge, all_but_one(), 3).await, [0, 1]);
        // The session's next transaction has the database's own again: both databases differ in what that is.
        assert_eq!(news(&world, &bridge, Options::new(), 4).await, [1, 0]);

        let serializable = Options::new().isolation_of(LEDGER, Isolation::Serializable);
        let tx = bridge.begin_with(serializable).await.unwrap();
        let ledger = tx.postgres(LEDGER).await.unwrap();
        let shown: String = ledger.query_one("SHOW transaction_isolation", &[]).await.unwrap().get(0);
        assert_eq!(shown, "serializable");
        tx.rollback().await.unwrap();
        // Where MySQL and MariaDB are serializable, a plain read locks what it has read, and the places for more.
        for (isolation, locks) in [(Isolation::RepeatableRead, false), (Isolation::Serializable, true)] {
            let tx = bridge.begin_with(Options::new().isolation_of(ORDERS, isolation)).await.unwrap();
            assert_eq!(count(&tx, ORDERS).await, 4);
            assert_eq!(world.orders.is_locked(1000).await, locks, "{isolation:?}");
            tx.rollback().await.unwrap();
        }
        bridge.close().await.unwrap();
    }

    async fn a_read_only_branch_writes_nothing(other) {
        let world = World::new(other).await;
        let bridge = world.open().await;
        for (side, key) in world.sides().into_iter().zip([10, 20]) {
            let name = world.other(side).name;
            let options = || Options::new().read_only(side.name);
            let tx = bridge.begin_with(options()).await.unwrap();
            insert_at(&tx, name, key).await.unwrap();
            let error = insert_at(&tx, side.name, key).await.expect_err("it is declared read-only");
            is_refused_as_read_only(&error, side).await;
            let error = tx.commit().await.expect_err("a statement has failed");
            assert_eq!(error.outcome(), Outcome::RolledBack);
            world.is_nowhere(key).await;

            let tx = bridge.begin_with(options()).await.unwrap();
            insert_at(&tx, name, key).await.unwrap();
            assert_eq!(count(&tx, side.name).await, 0);
            tx.commit().await.unwrap();
            assert!(world.other(side).has(key).await && !side.has(key).await);
            world.other(side).query(&format!("DELETE FROM t WHERE k = {key}")).await;
        }
        bridge.close().await.unwrap();
    }

    /// Whether or not the application comes back to it; another call's time is its own.
    async fn a_calls_own_deadline_ends_it(other) {
        let world = World::new(other).await;
        let bridge = world.open().await;
        let patient = bridge.begin().await.unwrap();
        tokio::try_join!(insert_at(&patient, LEDGER, 1), insert_at(&patient, ORDERS, 1)).unwrap();
        let hasty = bridge.begin_with(Options::new().timeout(Duration::from_millis(300))).await.unwrap();
        tokio::try_join!(insert_at(&hasty, LEDGER, 2), insert_at(&hasty, ORDERS, 2)).unwrap();
        for side in world.sides() {
            eventually(&format!("the lock at {} is given up", side.name), async || !side.is_locked(2).await).await;
            assert!(side.is_locked(1).await, "the other's deadline is not this one's");
        }
        let error = hasty.commit().await.expect_err("its time is over");
        assert_eq!(error.outcome(), Outcome::RolledBack);
        patient.commit().await.unwrap();
        world.is_on_both(1).await;
        world.is_nowhere(2).await;
        bridge.close().await.unwrap();
    }

    async fn a_calls_own_limit_of_retries_is_kept(other) {
        let world = World::new(other).await;
        let bridge = world.open_with("[transaction]\nretries = 1\n").await;
        for side in [LEDGER, ORDERS] {
            for (options, expected) in [
                (Options::new(), 2),
                (Options::new().retries(0), 1),
                (Options::new().retries(3), 4),
            ] {
                let runs = AtomicU32::new(0);
                let run = bridge.transaction_with(options, async |tx| {
                    runs.fetch_add(1, Ordering::Relaxed);
                    tokio::try_join!(insert_at(tx, LEDGER, 1), insert_at(tx, ORDERS, 1))?;
                    deadlock(tx, side).await
                });
                let error = run.await.expect_err("it fails each time");
                assert_eq!((error.kind(), runs.into_inner()), (ErrorKind::Retry, expected), "{side}: {}", error.chain());
            }
        }
        world.is_nowhere(1).await;
        bridge.close().await.unwrap();
    }
}
