//! Tasks of the application that sleep for ever, panic, lose their runtime, or forget what they hold.

use crate::whole::{agrees, attempt, is_whole, pair};
use handfast::{Error, ErrorKind, Options, Outcome};
use integration_tests::each_pair;
use integration_tests::servers;
use integration_tests::torture::Tally;
use integration_tests::world::{LEDGER, ORDERS, World, eventually, insert, insert_at};
use std::time::Duration;

const KIND: &str = "the application misbehaves";

/// What a task does with a transaction that has written on both sides.
#[derive(Debug, Clone, Copy)]
enum Deed {
    /// It never comes back to it.
    Sleeps,
    /// It sleeps with a borrowed connection of each side in its hands.
    SleepsHoldingBoth,
    /// It sleeps in the middle of a statement on each side.
    SleepsInStatements,
    /// It forgets it, and it is never dropped.
    Forgets,
    /// It forgets the borrowed connections of a transaction that it then commits: nobody lets go of them any more.
    ForgetsWhatItBorrowed,
    /// It forgets a future that borrows it, in the middle of a statement.
    ForgetsAFuture,
    Panics,
    PanicsInTheClosure,
    PanicsHoldingBoth,
    /// The runtime that it lives on, which is not the bridge's, is shut down.
    LosesItsRuntime,
    IsAborted,
    CommitsThenIsAborted,
}

const DEEDS: [Deed; 12] = [
    Deed::Sleeps,
    Deed::SleepsHoldingBoth,
    Deed::SleepsInStatements,
    Deed::Forgets,
    Deed::ForgetsWhatItBorrowed,
    Deed::ForgetsAFuture,
    Deed::Panics,
    Deed::PanicsInTheClosure,
    Deed::PanicsHoldingBoth,
    Deed::LosesItsRuntime,
    Deed::IsAborted,
    Deed::CommitsThenIsAborted,
];

/// What only the deadline ends has a short one.
fn options(deed: Deed) -> Options {
    let waits = matches!(
        deed,
        Deed::Sleeps
            | Deed::SleepsHoldingBoth
            | Deed::SleepsInStatements
            | Deed::Forgets
            | Deed::ForgetsAFuture
            | Deed::ForgetsWhatItBorrowed
    );
    if waits { Options::new().timeout(Duration::from_secs(2)) } else { Options::new() }
}

async fn statements_without_end(tx: &handfast::Transaction) {
    use handfast::mysql_async::prelude::Queryable;
    let (ledger, mut orders) = tokio::try_join!(tx.postgres(LEDGER), tx.mysql(ORDERS)).unwrap();
    let _ = tokio::join!(ledger.batch_execute("SELECT pg_sleep(3600)"), orders.query_drop("DO SLEEP(3600)"));
}

async fn misbehave(world: &World, bridge: &handfast::Bridge, deed: Deed, key: i32) {
    let tx = bridge.begin_with(options(deed)).await.unwrap();
    let id = tx.id();
    tokio::try_join!(insert_at(&tx, LEDGER, key), insert_at(&tx, ORDERS, key)).unwrap();
    let mut sleeping = None;
    match deed {
        Deed::Sleeps => {
            sleeping = Some(tokio::spawn(async move {
                std::future::pending::<()>().await;
                drop(tx);
            }));
        }
        Deed::SleepsHoldingBoth => {
            sleeping = Some(tokio::spawn(async move {
                let _both = (tx.postgres(LEDGER).await.unwrap(), tx.mysql(ORDERS).await.unwrap());
                std::future::pending::<()>().await;
            }));
        }
        Deed::SleepsInStatements => {
            sleeping = Some(tokio::spawn(async move {
                statements_without_end(&tx).await;
                std::future::pending::<()>().await;
            }));
        }
        Deed::Forgets => std::mem::forget(Box::new(tx)),
        Deed::ForgetsWhatItBorrowed => {
            std::mem::forget((tx.postgres(LEDGER).await.unwrap(), tx.mysql(ORDERS).await.unwrap()));
            let error = tx.commit().await.unwrap_err();
            assert_eq!((error.outcome(), error.kind()), (Outcome::RolledBack, ErrorKind::TimedOut));
        }
        Deed::ForgetsAFuture => {
            let tx: &'static handfast::Transaction = Box::leak(Box::new(tx));
            let mut future = Box::pin(statements_without_end(tx));
            assert!(tokio::time::timeout(Duration::from_millis(50), &mut future).await.is_err());
            std::mem::forget(future);
        }
        Deed::Panics => {
            let panics = tokio::spawn(async move {
                assert_eq!(tx.id().sequence, 0, "as it should");
            });
            panics.await.unwrap_err();
        }
        Deed::PanicsHoldingBoth => {
            let panics = tokio::spawn(async move {
                let _both = (tx.postgres(LEDGER).await.unwrap(), tx.mysql(ORDERS).await.unwrap());
                assert_eq!(tx.id().sequence, 0, "as it should");
            });
            panics.await.unwrap_err();
        }
        Deed::PanicsInTheClosure => {
            tx.rollback().await.unwrap();
            let bridge = bridge.clone();
            let panics = tokio::spawn(async move {
                let work = bridge.transaction(async move |tx| {
                    tokio::try_join!(insert_at(tx, LEDGER, key), insert_at(tx, ORDERS, key))?;
                    assert_eq!(tx.id().sequence, 0, "as it should");
                    Ok::<_, Error>(())
                });
                work.await
            });
            panics.await.unwrap_err();
        }
        Deed::LosesItsRuntime => {
            let runtime = servers::runtime();
            runtime.spawn(async move {
                statements_without_end(&tx).await;
            });
            eventually("it is in its statements", async || {
                let asleep = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(3600)' AND datname = current_database()";
                world.ledger.value(asleep).await.as_deref() == Some("1")
            })
            .await;
            tokio::task::spawn_blocking(move || runtime.shutdown_timeout(Duration::from_secs(10))).await.unwrap();
        }
        Deed::IsAborted => {
            let task = tokio::spawn(async move { statements_without_end(&tx).await });
            tokio::task::yield_now().await;
            task.abort();
            assert!(task.await.unwrap_err().is_cancelled());
        }
        Deed::CommitsThenIsAborted => {
            let task = tokio::spawn(tx.commit());
            tokio::task::yield_now().await;
            task.abort();
            let _ = task.await;
        }
    }
    let outcome = agrees(world, bridge, id, key).await;
    if !matches!(deed, Deed::CommitsThenIsAborted) {
        assert_eq!(outcome, Outcome::RolledBack);
    }
    is_whole(world, bridge, key + 1).await;
    if let Some(task) = sleeping {
        assert!(!task.is_finished(), "nobody has woken it");
        task.abort();
    }
}

each_pair! {
    /// D32 among them: the deadline ends it, locks included, with no help from the application.
    async fn whatever_a_task_does(other) {
        let tally = Tally::new(KIND, format!("{}: tasks", pair(other)));
        let world = World::new(other).await;
        let bridge = world.open().await;
        for (number, deed) in DEEDS.into_iter().enumerate() {
            let key = i32::try_from(number).unwrap() * 10;
            tally.case(format!("{deed:?}"), attempt(misbehave(&world, &bridge, deed, key)).await);
        }
        bridge.close().await.unwrap();
        tally.finish();
    }

    /// The runtime goes down under everything: what was decided stays, what was not is rolled back by the next opening.
    async fn the_runtime_is_shut_down(other) {
        let tally = Tally::new(KIND, format!("{}: no runtime", pair(other)));
        let world = World::new(other).await;
        for (number, step) in ["INSERT", "PREPARE TRANSACTION", "COMMIT PREPARED"].into_iter().enumerate() {
            let key = i32::try_from(number).unwrap() * 10;
            let case = async {
                let program = integration_tests::world::Program::start(world.config("")).await;
                let rule = world.ledger.proxy.on(step).hold_answer();
                let bridge = program.bridge.clone();
                let (tell, told) = tokio::sync::oneshot::channel();
                program.spawn(async move {
                    let tx = bridge.begin().await.unwrap();
                    tell.send(tx.id()).unwrap();
                    tokio::try_join!(insert_at(&tx, LEDGER, key), insert_at(&tx, ORDERS, key)).unwrap();
                    let _ = tx.commit().await;
                });
                let id = told.await.unwrap();
                rule.fired().await;
                program.crash().await;
                rule.release();
                let bridge = world.open().await;
                let outcome = agrees(&world, &bridge, id, key).await;
                let expected = if step == "COMMIT PREPARED" { Outcome::Committed } else { Outcome::RolledBack };
                assert_eq!(outcome, expected);
                is_whole(&world, &bridge, key + 1).await;
                bridge.close().await.unwrap();
            };
            tally.case(format!("at {step}"), attempt(case).await);
        }
        tally.finish();
    }

    /// D32: the application that comes back is told why.
    async fn who_comes_back_after_the_deadline_is_told(other) {
        let world = World::new(other).await;
        let bridge = world.open().await;
        let tx = bridge.begin_with(Options::new().timeout(Duration::from_millis(500))).await.unwrap();
        tokio::try_join!(insert_at(&tx, LEDGER, 1), insert_at(&tx, ORDERS, 1)).unwrap();
        eventually("both sides are free", async || {
            !world.ledger.is_locked(1).await && !world.orders.is_locked(1).await
        })
        .await;
        assert_eq!(insert_at(&tx, LEDGER, 2).await.unwrap_err().kind(), ErrorKind::TimedOut);
        let error = tx.commit().await.unwrap_err();
        assert_eq!((error.outcome(), error.kind()), (Outcome::RolledBack, ErrorKind::TimedOut));
        // Whoever wants the rows has them.
        insert(&bridge, 1).await.commit().await.unwrap();
        is_whole(&world, &bridge, 3).await;
    }
}
