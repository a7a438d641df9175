//! A server that was restarted while sessions were idle costs each of them a second try at its begin, and no application an
//! error before it has done any work: however lately they were used, however the server went, and all of them at once.

use futures_util::future::try_join_all;
use handfast::{Bridge, ErrorKind, Transaction};
use integration_tests::each_pair;
use integration_tests::servers::Flavor;
use integration_tests::world::{Home, LEDGER, ORDERS, Side, World, commits, insert, insert_at};
use std::time::Duration;

/// So many sessions has each pool of a [`World`].
const POOL: i32 = 4;

/// Longer than any session is taken for alive without having been asked.
const LONG: Duration = Duration::from_millis(3300);

async fn use_all_sessions(bridge: &Bridge, key: i32) {
    let mut all: Vec<Transaction> = Vec::new();
    for number in 0..POOL {
        all.push(insert(bridge, key + number).await);
    }
    for (number, tx) in (0..).zip(all) {
        // The other side may have been restarted just before.
        commits(bridge, tx, key + number).await;
    }
}

async fn restart(side: &Side, is_killed: bool) {
    if is_killed {
        side.server.kill().await.unwrap()
    } else {
        side.server.stop().await.unwrap()
    }
    side.server.restart().await.unwrap();
}

/// Begins, and does its first work on both.
async fn begun(bridge: &Bridge, key: i32) -> handfast::Result<Transaction> {
    let tx = bridge.begin().await?;
    tokio::try_join!(insert_at(&tx, LEDGER, key), insert_at(&tx, ORDERS, key))?;
    Ok(tx)
}

each_pair! {
    async fn no_session_has_an_error_before_its_work(other) {
        let world = World::on(Home::own(Flavor::Postgres).await, Home::own(other).await).await;
        let bridge = world.open().await;
        let mut key = 0;
        for side in world.sides() {
            for (is_killed, age) in [(true, Duration::ZERO), (false, Duration::ZERO), (true, LONG), (false, LONG)] {
                use_all_sessions(&bridge, key).await;
                // Nothing is waited for: to have been idle for so long is the case.
                tokio::time::sleep(age).await;
                restart(side, is_killed).await;
                let all = try_join_all((0..POOL).map(|number| begun(&bridge, key + 10 + number)));
                let case = format!("{}, killed: {is_killed}, idle for {age:?}", side.name);
                let all = all.await.unwrap_or_else(|error| panic!("{case}: an error before its work: {}", error.chain()));
                for (number, tx) in (0..).zip(all) {
                    commits(&bridge, tx, key + 10 + number).await;
                    world.is_on_both(key + 10 + number).await;
                }
                key += 20;
            }
        }
        bridge.close().await.unwrap();
    }

    /// The connection is gone, and that shows when the next begin is sent: behind a network that keeps quiet. A session that was
    /// idle for a while costs a second try. One that was used a moment ago is not asked first, and its transaction is to be run
    /// again, which `Bridge::transaction` does by itself; begun by hand, its first statement fails.
    async fn a_death_that_nobody_has_heard_of(other) {
        let world = World::new(other).await;
        let bridge = world.open_with("[pool]\nsize = 1\n").await;
        let mut key = 1000;
        for side in world.sides() {
            for age in [Duration::ZERO, LONG] {
                for by_closure in [false, true] {
                    insert(&bridge, key).await.commit().await.unwrap();
                    tokio::time::sleep(age).await;
                    let rule = side.proxy.on(side.words().begin).reset();
                    let case = format!("{}, idle for {age:?}, by a closure: {by_closure}", side.name);
                    key += 1;
                    if by_closure {
                        let done = bridge.transaction(async |tx| {
                            tokio::try_join!(insert_at(tx, LEDGER, key), insert_at(tx, ORDERS, key)).map(drop)
                        });
                        done.await.unwrap_or_else(|error| panic!("{case}: {}", error.chain()));
                    } else {
                        match begun(&bridge, key).await {
                            Ok(tx) => drop(tx.commit().await.unwrap()),
                            Err(error) => {
                                assert!(age.is_zero(), "{case}: an error before its work: {}", error.chain());
                                // PostgreSQL's client is lent as it is: the error is its driver's own.
                                let expected =
                                    if side.name == LEDGER { ErrorKind::Unavailable } else { ErrorKind::Retry };
                                assert_eq!(error.kind(), expected, "{case}: {}", error.chain());
                                world.is_nowhere(key).await;
                            }
                        }
                    }
                    assert_eq!(rule.times(), 1, "{case}: it has met the dead connection");
                    key += 1;
                }
            }
        }
        bridge.close().await.unwrap();
    }
}
