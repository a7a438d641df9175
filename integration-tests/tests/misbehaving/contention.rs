//! Transactions in each other's way: on one server, across the two, past every limit. Whoever has to run again is told so,
//! and both databases agree.

use crate::whole::{agrees, is_whole};
use handfast::mysql_async::prelude::Queryable;
use handfast::participant::Isolation;
use handfast::{Bridge, ErrorKind, Options, Outcome, Result, Transaction};
use integration_tests::each_pair;
use integration_tests::servers::Flavor;
use integration_tests::world::{Home, LEDGER, ORDERS, World, eventually, insert, insert_at};
use std::cell::Cell;
use std::time::Duration;
use tokio::sync::Barrier;

async fn add(tx: &Transaction, side: &str, key: i32) -> Result<()> {
    let statement = format!("UPDATE t SET v = v + 1 WHERE k = {key}");
    if side == LEDGER {
        tx.postgres(side).await?.batch_execute(&statement).await?;
    } else {
        tx.mysql(side).await?.query_drop(statement).await?;
    }
    Ok(())
}

/// Two programs that lock the same two rows the other way round, and run again when they are told to.
async fn cross(bridge: &Bridge, first: (&'static str, i32), second: (&'static str, i32)) {
    let (meet, came) = (Barrier::new(2), Cell::new(0));
    let run = async |one: (&'static str, i32), other: (&'static str, i32)| {
        let work = bridge.transaction(async |tx| {
            add(tx, one.0, one.1).await?;
            // Only the first time: then each has what the other wants.
            if came.replace(came.get() + 1) < 2 {
                meet.wait().await;
            }
            add(tx, other.0, other.1).await
        });
        work.await.unwrap_or_else(|error| panic!("{}", error.chain()));
    };
    tokio::join!(run(first, second), run(second, first));
}

const IMPATIENT: &str = "[transaction]\nlock_timeout = \"1s\"\n";

each_pair! {
    /// On one server it sees the deadlock; across the two nobody does, and the wait for a lock ends it.
    async fn deadlocks_are_run_again(other) {
        let world = World::new(other).await;
        let bridge = world.open_with(IMPATIENT).await;
        for side in world.sides() {
            side.query("INSERT INTO t VALUES (1, 0), (2, 0)").await;
        }
        for (first, second) in [
            ((LEDGER, 1), (LEDGER, 2)),
            ((ORDERS, 1), (ORDERS, 2)),
            ((LEDGER, 1), (ORDERS, 1)),
        ] {
            cross(&bridge, first, second).await;
        }
        // Each row was added to by both programs, each time it was part of a cross.
        for (side, key, sum) in [(&world.ledger, 1, "4"), (&world.ledger, 2, "2"), (&world.orders, 1, "4"), (&world.orders, 2, "2")] {
            assert_eq!(side.value(&format!("SELECT v FROM t WHERE k = {key}")).await.as_deref(), Some(sum), "{} {key}", side.name);
        }
        is_whole(&world, &bridge, 10).await;
    }

    /// Without the closure, whoever waits too long is told to run again; what it had done is gone on both sides.
    async fn a_wait_past_the_limit_is_to_be_run_again(other) {
        let world = World::new(other).await;
        let bridge = world.open_with(IMPATIENT).await;
        for side in world.sides() {
            let holder = bridge.begin().await.unwrap();
            insert_at(&holder, side.name, 1).await.unwrap();
            let tx = insert(&bridge, 2).await;
            let id = tx.id();
            assert_eq!(insert_at(&tx, side.name, 1).await.unwrap_err().kind(), ErrorKind::Retry);
            let error = tx.commit().await.unwrap_err();
            assert_eq!(error.outcome(), Outcome::RolledBack);
            assert_eq!(agrees(&world, &bridge, id, 2).await, Outcome::RolledBack);
            holder.rollback().await.unwrap();
        }
        is_whole(&world, &bridge, 10).await;
    }

    /// D36: PREPARE fails with 40001 while the other server is gone: the answer is the first cause, and to run it again,
    /// whatever becomes of the clean-up.
    async fn d36_a_serialization_failure_is_told_before_the_clean_up(other) {
        let world = World::new(other).await;
        let bridge = world.open().await;
        world.ledger.query("INSERT INTO t VALUES (1, 0), (2, 0)").await;
        let serializable = || bridge.begin_with(Options::new().isolation(Isolation::Serializable));
        let (first, second) = (serializable().await.unwrap(), serializable().await.unwrap());
        for (tx, read, written) in [(&first, 1, 2), (&second, 2, 1)] {
            let client = tx.postgres(LEDGER).await.unwrap();
            client.query(&format!("SELECT v FROM t WHERE k = {read}"), &[]).await.unwrap();
            client.batch_execute(&format!("UPDATE t SET v = v + 1 WHERE k = {written}")).await.unwrap();
        }
        insert_at(&first, ORDERS, 3).await.unwrap();
        insert_at(&second, ORDERS, 4).await.unwrap();
        first.commit().await.unwrap();
        // Its vote does not come, and then nothing does.
        let rule = world.orders.proxy.on(world.orders.words().prepare).hold();
        let id = second.id();
        let error = second.commit().await.unwrap_err();
        rule.fired().await;
        world.orders.proxy.down();
        assert_eq!((error.outcome(), error.kind()), (Outcome::RolledBack, ErrorKind::Retry), "{}", error.cause().chain());
        assert!(error.cause().chain().contains("serialize"), "{}", error.cause().chain());
        assert_eq!(error.cause().participant().unwrap().as_str(), LEDGER);
        world.orders.proxy.up();
        assert_eq!(integration_tests::world::settled(&bridge, id).await, Outcome::RolledBack);
        eventually("the other side is free", async || !world.orders.is_locked(4).await).await;
        assert_eq!((world.orders.has(3).await, world.orders.has(4).await), (true, false));
        is_whole(&world, &bridge, 10).await;
    }

    /// D35: PREPARE TRANSACTION waits for a standby that is not there, and no time limit of the server ends that.
    async fn d35_a_prepare_without_a_standby_ends_at_the_deadline(other) {
        let world = World::on(Home::own(Flavor::Postgres).await, Home::shared(other).await).await;
        let bridge = world.open().await;
        let standby = async |name: &str| {
            world.ledger.query(&format!("ALTER SYSTEM SET synchronous_standby_names = '{name}'")).await;
            world.ledger.query("SELECT pg_reload_conf()").await;
            eventually("reloaded", async || {
                world.ledger.value("SELECT current_setting('synchronous_standby_names')").await.as_deref() == Some(name)
            })
            .await;
        };
        let tx = bridge.begin_with(Options::new().timeout(Duration::from_secs(3))).await.unwrap();
        let id = tx.id();
        tokio::try_join!(insert_at(&tx, LEDGER, 1), insert_at(&tx, ORDERS, 1)).unwrap();
        standby("nobody").await;
        let error = tx.commit().await.unwrap_err();
        assert_eq!((error.outcome(), error.kind()), (Outcome::RolledBack, ErrorKind::TimedOut), "{}", error.cause().chain());
        eventually("the other side is free at once", async || {
            world.orders.prepared().await.is_empty() && !world.orders.is_locked(1).await
        })
        .await;
        standby("").await;
        assert_eq!(agrees(&world, &bridge, id, 1).await, Outcome::RolledBack);
        is_whole(&world, &bridge, 10).await;
        bridge.close().await.unwrap();
    }

    /// D46: passes of recovery, one after another, beside coordinators whose phase two takes its time. One that has seen a
    /// branch just before its owner was done may finish it once more, and hear that it is not there: nobody is alarmed.
    async fn d46_recovery_beside_live_owners_alarms_nobody(other) {
        let world = World::new(other).await;
        let bridge = world.open_with("[recovery]\ninterval = \"5ms\"\n").await;
        let rules: Vec<_> = world
            .sides()
            .into_iter()
            .map(|side| side.proxy.on(side.words().commit).every().delay(Duration::from_millis(60)))
            .collect();
        let before = world.sides().map(|side| (side.proxy.count(side.words().commit), side.proxy.count(side.words().list)));
        let commits = (0..8).map(|key| {
            let bridge = bridge.clone();
            async move { insert(&bridge, key).await.commit().await }
        });
        for answers in futures_util::future::join_all(commits).await {
            let committed = answers.unwrap_or_else(|error| panic!("{}", error.cause().chain()));
            assert!(committed.pending.is_empty());
        }
        for ((side, rule), (commits, lists)) in world.sides().into_iter().zip(&rules).zip(before) {
            let sessions = side.branch_connections();
            let all = side.proxy.messages().into_iter().filter(|one| one.text.contains(side.words().commit));
            let own = all.skip(commits).filter(|one| sessions.contains(&one.connection)).count();
            assert_eq!(own, 8, "{}: each by its owner, once", side.name);
            assert!(side.proxy.count(side.words().list) > lists, "{}: no pass looked meanwhile", side.name);
            rule.disarm();
        }
        let status = bridge.status();
        assert_eq!((status.in_doubt, status.damaged), (0, 0), "{status:#?}");
        is_whole(&world, &bridge, 10).await;
    }
}
