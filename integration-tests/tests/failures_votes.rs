//! Failures in phase one: a vote that is not one, a participant that does not answer, an application that went on
//! after an error. Names begin with the entry of the log of known failures that they try.

use handfast::mysql_async::prelude::Queryable;
use handfast::{CommitError, ErrorKind, Outcome};
use integration_tests::proxy::{Arm, On};
use integration_tests::servers::Flavor;
use integration_tests::world::{LEDGER, ORDERS, Side, World, eventually, insert, insert_at, settled};
use integration_tests::{each_mysql, each_pair};

fn rolled_back(error: &CommitError) {
    assert_eq!(error.outcome(), Outcome::RolledBack, "{error}: {}", error.cause().chain());
}

each_pair! {
    /// A statement failed, the application did not care: PREPARE TRANSACTION would say success.
    async fn d01_a_swallowed_failure_votes_no(other) {
        let world = World::new(other).await;
        let bridge = world.open().await;
        let tx = insert(&bridge, 1).await;
        assert!(tx.postgres(LEDGER).await.unwrap().batch_execute("SELECT 1/0").await.is_err());
        let error = tx.commit().await.unwrap_err();
        rolled_back(&error);
        assert_eq!(error.cause().participant().unwrap().as_str(), LEDGER);
        assert_eq!(error.kind(), ErrorKind::Statement);
        world.is_nowhere(1).await;
        // The session is as good as new.
        insert(&bridge, 1).await.commit().await.unwrap();
        world.is_on_both(1).await;
    }

    /// The application ended the branch's transaction by itself. What it did is done; nothing else is added to it, and
    /// nobody is told that it was rolled back.
    async fn d01_the_applications_own_end_is_found_out(other) {
        let world = World::new(other).await;
        let bridge = world.open().await;
        for (key, statement, kept) in [(1, "COMMIT", true), (2, "ROLLBACK", false), (3, "COMMIT; BEGIN", true)] {
            let tx = insert(&bridge, key).await;
            tx.postgres(LEDGER).await.unwrap().batch_execute(statement).await.unwrap();
            let error = tx.commit().await.unwrap_err();
            assert_eq!(error.outcome(), Outcome::Damaged, "{statement}");
            assert_eq!(error.cause().participant().unwrap().as_str(), LEDGER);
            world.nothing_is_prepared().await;
            assert_eq!(world.ledger.has(key).await, kept, "{statement}");
            eventually("the other side is unlocked", async || !world.orders.is_locked(key).await).await;
            assert!(!world.orders.has(key).await, "{statement}");
            assert!(world.orders.witnesses(error.id()).await.is_empty());
        }
        assert_eq!(bridge.status().damaged, 3);
        insert(&bridge, 4).await.commit().await.unwrap();
        world.is_on_both(4).await;
    }

    /// The same on MariaDB and MySQL, by XA statements.
    async fn d01_the_applications_own_xa_end_is_found_out(other) {
        let world = World::new(other).await;
        let bridge = world.open().await;
        let xids = |tx: &handfast::Transaction| {
            // The slot is not known to an application: the one of its own, as tests may guess it.
            (0..8).map(|slot| tx.id().branch(1, slot).xid_sql()).collect::<Vec<_>>()
        };
        let tx = insert(&bridge, 1).await;
        let mut orders = tx.mysql(ORDERS).await.unwrap();
        let mut ended = false;
        for xid in xids(&tx) {
            if !ended && orders.query_drop(format!("XA END {xid}")).await.is_ok() {
                orders.query_drop(format!("XA COMMIT {xid} ONE PHASE")).await.unwrap();
                ended = true;
            }
        }
        assert!(ended);
        drop(orders);
        let error = tx.commit().await.unwrap_err();
        assert_ne!(error.outcome(), Outcome::RolledBack, "its work is committed");
        world.nothing_is_prepared().await;
        assert!(world.orders.has(1).await);
        eventually("the other side is unlocked", async || !world.ledger.is_locked(1).await).await;
        assert!(!world.ledger.has(1).await);
    }

    /// One rule for both sides: a failed statement dooms the transaction.
    async fn d15_a_swallowed_duplicate_key_rolls_back(other) {
        let world = World::new(other).await;
        let bridge = world.open().await;
        let tx = insert(&bridge, 1).await;
        let mut orders = tx.mysql(ORDERS).await.unwrap();
        assert!(orders.query_drop("INSERT INTO t VALUES (1, 2)").await.is_err());
        orders.query_drop("INSERT INTO t VALUES (2, 1)").await.unwrap();
        drop(orders);
        let error = tx.commit().await.unwrap_err();
        rolled_back(&error);
        assert!(error.cause().chain().contains("1062"), "{}", error.cause().chain());
        assert_eq!(error.cause().participant().unwrap().as_str(), ORDERS);
        world.is_nowhere(1).await;
        world.is_nowhere(2).await;
    }

    async fn d15_a_swallowed_lock_wait_timeout_rolls_back(other) {
        let world = World::new(other).await;
        let bridge = world.open_with("[transaction]\nlock_timeout = \"1s\"\n").await;
        let holder = bridge.begin().await.unwrap();
        insert_at(&holder, ORDERS, 9).await.unwrap();
        let tx = insert(&bridge, 1).await;
        let error = insert_at(&tx, ORDERS, 9).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Retry);
        insert_at(&tx, ORDERS, 2).await.unwrap();
        let error = tx.commit().await.unwrap_err();
        rolled_back(&error);
        assert_eq!(error.kind(), ErrorKind::Retry);
        assert!(error.cause().chain().contains("1205"), "{}", error.cause().chain());
        holder.rollback().await.unwrap();
        for key in [1, 2, 9] {
            world.is_nowhere(key).await;
        }
    }

    /// A savepoint set before the failure and rolled back to undoes it, on both sides.
    async fn d15_a_savepoint_undoes_a_failure(other) {
        let world = World::new(other).await;
        let bridge = world.open().await;
        let tx = insert(&bridge, 1).await;
        let ledger = tx.postgres(LEDGER).await.unwrap();
        let mut orders = tx.mysql(ORDERS).await.unwrap();
        let fails = "INSERT INTO t VALUES (1, 2)";
        for statement in ["SAVEPOINT s", fails, "ROLLBACK TO SAVEPOINT s", "INSERT INTO t VALUES (2, 1)"] {
            assert_eq!(ledger.batch_execute(statement).await.is_err(), statement == fails, "{statement}");
            assert_eq!(orders.query_drop(statement).await.is_err(), statement == fails, "{statement}");
        }
        drop((ledger, orders));
        tx.commit().await.unwrap();
        world.is_on_both(1).await;
        world.is_on_both(2).await;
    }

    /// One side's prepare is cut off, before or behind the server, and that server stays down.
    async fn d17_a_dead_participant_is_not_waited_for(other) {
        let faults: [(&str, Arm); 4] = [
            ("not delivered", On::cut),
            ("no answer", On::cut_answer),
            ("reset", On::reset),
            ("reset later", On::reset_answer),
        ];
        let world = World::new(other).await;
        let bridge = world.open().await;
        let mut key = 0;
        for side in world.sides() {
            for (name, fault) in faults {
                key += 1;
                let tx = insert(&bridge, key).await;
                let id = tx.id();
                let rule = fault(side.proxy.on(side.words().prepare).and_stay_down());
                let error = tx.commit().await.unwrap_err();
                rule.fired().await;
                rolled_back(&error);
                assert_eq!(error.cause().participant().unwrap().as_str(), side.name, "{name}");
                // While it is down: the answer was given, the healthy one is free.
                let healthy = world.other(side);
                eventually("the healthy side is free", async || {
                    healthy.prepared().await.is_empty() && !healthy.is_locked(key).await
                }).await;
                assert!(!healthy.has(key).await);
                side.proxy.up();
                assert_eq!(settled(&bridge, id).await, Outcome::RolledBack, "{name}");
                world.is_nowhere(key).await;
            }
        }
    }

    /// One side's prepare meets a black hole: the deadline ends it.
    async fn d17_a_silent_participant_is_waited_for_until_the_deadline(other) {
        let world = World::new(other).await;
        let sections = "[transaction]\ntimeout = \"1500ms\"\nlock_timeout = \"500ms\"\n";
        let bridge = world.open_with(sections).await;
        let mut key = 0;
        for side in world.sides() {
            for hold in [On::hold as Arm, On::hold_answer] {
                key += 1;
                let tx = insert(&bridge, key).await;
                let rule = hold(side.proxy.on(side.words().prepare));
                let error = tx.commit().await.unwrap_err();
                rolled_back(&error);
                assert_eq!(error.kind(), ErrorKind::TimedOut);
                let healthy = world.other(side);
                eventually("the healthy side is free", async || {
                    healthy.prepared().await.is_empty() && !healthy.is_locked(key).await
                }).await;
                // What was held arrives late, if its session still lives.
                rule.release();
                world.is_nowhere(key).await;
            }
        }
    }

    /// Of a transaction with one branch the plain commit needs the same proof.
    async fn d22_a_single_branch_with_a_swallowed_failure_rolls_back(other) {
        let world = World::new(other).await;
        let bridge = world.open().await;
        for side in world.sides() {
            let tx = bridge.begin().await.unwrap();
            insert_at(&tx, side.name, 1).await.unwrap();
            assert!(insert_at(&tx, side.name, 1).await.is_err());
            let error = tx.commit().await.unwrap_err();
            rolled_back(&error);
            assert_eq!(error.kind(), ErrorKind::Statement);
        }
        world.is_nowhere(1).await;
    }

    /// The answer to a plain commit is lost: in doubt, never sent again, and the witness settles it.
    async fn d22_a_single_branchs_lost_answer_is_settled_by_its_witness(other) {
        let world = World::new(other).await;
        let bridge = world.open().await;
        for side in world.sides() {
            let cases: [(i32, Arm, Outcome); 4] = [
                (1, On::cut_answer, Outcome::Committed),
                (2, On::reset_answer, Outcome::Committed),
                (3, On::cut, Outcome::RolledBack),
                (4, On::reset, Outcome::RolledBack),
            ];
            for (key, fault, outcome) in cases {
                let sent = side.proxy.count(side.words().one_phase);
                let tx = bridge.begin().await.unwrap();
                insert_at(&tx, side.name, key).await.unwrap();
                let rule = fault(side.proxy.on(side.words().one_phase));
                let error = tx.commit().await.unwrap_err();
                rule.fired().await;
                assert_eq!((error.outcome(), error.kind()), (Outcome::InDoubt, ErrorKind::InDoubt));
                assert_eq!(settled(&bridge, error.id()).await, outcome);
                let kind = if outcome == Outcome::Committed { "one_phase" } else { "fence" };
                assert_eq!(side.witnesses(error.id()).await, [kind]);
                assert_eq!(side.has(key).await, outcome == Outcome::Committed);
                assert_eq!(side.proxy.count(side.words().one_phase), sent + 1, "never sent again");
                eventually("nothing is in doubt", async || bridge.status().in_doubt == 0).await;
            }
        }
        world.nothing_is_prepared().await;
        // And the next opening knows it too.
        bridge.close().await.unwrap();
        assert!(world.recover().await.is_complete());
    }

    /// Both block each other on one server: the server's victim is told to run again, and its session serves on.
    async fn d37_a_deadlocks_victim_is_told_to_retry(other) {
        let world = World::new(other).await;
        let bridge = world.open().await;
        for side in world.sides() {
            side.query("INSERT INTO t VALUES (1000, 0), (1001, 0)").await;
            let [first, second] = [bridge.begin().await.unwrap(), bridge.begin().await.unwrap()];
            update(&first, side, 1000).await.unwrap();
            update(&second, side, 1001).await.unwrap();
            let (a, b) = tokio::join!(
                update_and_end(first, side, 1001),
                update_and_end(second, side, 1000)
            );
            let error = match (a, b) {
                (Err(error), Ok(())) | (Ok(()), Err(error)) => error,
                other => panic!("one of the two is the victim: {other:?}"),
            };
            assert_eq!(error.kind(), ErrorKind::Retry);
            let code = if side.flavor() == Flavor::Postgres { "40P01" } else { "1213" };
            assert!(error.chain().contains(code) || error.chain().contains("deadlock"), "{}", error.chain());
            eventually("both have let go", async || bridge.status().running == 0).await;
            let before = side.branch_connections();
            for key in 0..100 {
                let tx = bridge.begin().await.unwrap();
                insert_at(&tx, side.name, key).await.unwrap();
                tx.commit().await.unwrap();
            }
            // No session was lost on the way: each of the 200 transactions ran on one of the two that deadlocked.
            let after = side.branch_connections().split_off(before.len());
            assert!(after.iter().all(|connection| before.contains(connection)), "{before:?} {after:?}");
        }
        assert_eq!((world.ledger.keys().await.len(), world.orders.keys().await.len()), (102, 102));
        world.nothing_is_prepared().await;
    }

    /// XA goes by the text protocol alone: MySQL refuses it in prepared statements.
    async fn d38_xa_is_never_prepared(other) {
        let world = World::new(other).await;
        let bridge = world.open().await;
        insert(&bridge, 1).await.commit().await.unwrap();
        insert(&bridge, 2).await.rollback().await.unwrap();
        let tx = bridge.begin().await.unwrap();
        insert_at(&tx, ORDERS, 3).await.unwrap();
        tx.commit().await.unwrap();
        let messages = world.orders.proxy.messages();
        let xa: Vec<_> = messages.iter().filter(|message| message.text.contains("XA ")).collect();
        assert!(xa.len() >= 6, "{messages:#?}");
        assert!(xa.iter().all(|message| message.kind == 0x03), "{xa:#?}");
        world.is_on_both(1).await;
    }
}

/// Updates a row, like an application that passes the server's error on.
async fn update(tx: &handfast::Transaction, side: &Side, key: i32) -> handfast::Result<()> {
    let statement = format!("UPDATE t SET v = v + 1 WHERE k = {key}");
    if side.flavor() == Flavor::Postgres {
        tx.postgres(side.name).await?.batch_execute(&statement).await?;
    } else {
        tx.mysql(side.name).await?.query_drop(statement).await?;
    }
    Ok(())
}

/// Updates one more row; whoever is the victim goes on to commit, the other one rolls back.
async fn update_and_end(tx: handfast::Transaction, side: &Side, key: i32) -> handfast::Result<()> {
    let answer = update(&tx, side, key).await;
    if answer.is_err() {
        give_up(tx, side).await;
    }
    answer
}

/// An application that commits after a deadlock. PostgreSQL has forgotten by then why the transaction failed, and
/// nobody watches what its driver's client was told.
async fn give_up(victim: handfast::Transaction, side: &Side) {
    let error = victim.commit().await.unwrap_err();
    rolled_back(&error);
    let kind = if side.flavor() == Flavor::Postgres { ErrorKind::Statement } else { ErrorKind::Retry };
    assert_eq!(error.kind(), kind, "{}", error.cause().chain());
}

/// The first pass of a bridge comes after a pause. What these tests prepare has names of this incarnation: a pass takes it
/// for its own, left by nobody, and rolls it back.
const UNHURRIED: &str = "[recovery]\nbackoff_min = \"600s\"\nbackoff_max = \"600s\"\n";

each_mysql! {
    /// A branch of the name that comes next is there already, and it is not this program's work.
    async fn d48_a_duplicate_xid_is_never_adopted(flavor) {
        let world = World::new(flavor).await;
        let bridge = world.open_with(UNHURRIED).await;
        let tx = insert(&bridge, 1).await;
        let first = tx.id();
        tx.commit().await.unwrap();
        let next = handfast::TransactionId { sequence: first.sequence + 1, ..first };
        for slot in 0..8 {
            let xid = next.branch(1, slot).xid_sql();
            world.orders.query(&format!(
                "XA START {xid}; INSERT INTO t VALUES ({}, 0); XA END {xid}; XA PREPARE {xid}", 100 + slot
            )).await;
        }
        let tx = bridge.begin().await.unwrap();
        assert_eq!(tx.id(), next);
        insert_at(&tx, LEDGER, 2).await.unwrap();
        let error = insert_at(&tx, ORDERS, 2).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{}", error.chain());
        tx.rollback().await.unwrap();
        // The one after it works.
        let sent = world.orders.proxy.count("XA COMMIT");
        insert(&bridge, 3).await.commit().await.unwrap();
        assert_eq!(world.orders.proxy.count("XA COMMIT"), sent + 1, "never that of the others");
        assert!(world.ledger.has(3).await && world.orders.has(3).await);
        for slot in 0..8 {
            assert!(!world.orders.has(100 + slot).await);
        }
        bridge.close().await.unwrap();
        world.recover().await;
        world.is_nowhere(2).await;
    }
}

/// The same on PostgreSQL, where a name is taken only at prepare.
#[test]
fn d48_a_duplicate_gid_is_never_adopted() {
    integration_tests::servers::runtime().block_on(async {
        let world = World::new(Flavor::MariaDb).await;
        let bridge = world.open_with(UNHURRIED).await;
        let tx = insert(&bridge, 1).await;
        let first = tx.id();
        tx.commit().await.unwrap();
        let next = handfast::TransactionId { sequence: first.sequence + 1, ..first };
        for slot in 0..8 {
            let gid = next.branch(0, slot);
            world
                .ledger
                .query(&format!("BEGIN; INSERT INTO t VALUES ({}, 0); PREPARE TRANSACTION '{gid}'", 100 + slot))
                .await;
        }
        let tx = insert(&bridge, 2).await;
        assert_eq!(tx.id(), next);
        let error = tx.commit().await.unwrap_err();
        rolled_back(&error);
        assert!(error.cause().chain().contains("already in use"), "{}", error.cause().chain());
        assert_eq!(world.ledger.proxy.count("COMMIT PREPARED"), 1);
        insert(&bridge, 3).await.commit().await.unwrap();
        bridge.close().await.unwrap();
        world.recover().await;
        world.is_nowhere(2).await;
        for slot in 0..8 {
            assert!(!world.ledger.has(100 + slot).await);
        }
        world.is_on_both(3).await;
    });
}
