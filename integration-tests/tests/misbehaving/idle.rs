//! What happens to sessions while nobody uses them: killed by the server, or the server with them. It costs one try more
//! at the next begin each, and nobody an error.

use crate::whole::{POOL, attempt, is_whole, pair};
use handfast::{Bridge, Transaction};
use integration_tests::each_pair;
use integration_tests::servers::Flavor;
use integration_tests::torture::Tally;
use integration_tests::world::{Home, LEDGER, ORDERS, Side, World, commits, insert, insert_at};

const KIND: &str = "sessions die while idle";

async fn fill(bridge: &Bridge, key: i32) {
    let mut all: Vec<Transaction> = Vec::new();
    for number in 0..i32::try_from(POOL).unwrap() {
        all.push(insert(bridge, key + number).await);
    }
    for tx in all {
        tx.commit().await.unwrap();
    }
}

/// An administrator ends every idle session of a side, the resolver's included.
async fn kill_idle(side: &Side) {
    match side.flavor() {
        Flavor::Postgres => {
            side.query(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity \
                 WHERE datname = current_database() AND pid <> pg_backend_pid()",
            )
            .await;
        }
        Flavor::MariaDb | Flavor::MySql => {
            let others =
                "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()";
            for row in side.query(others).await {
                let id = row[0].as_deref().unwrap();
                // It may have gone by itself.
                let _ = side.server.query(&side.database, &format!("KILL {id}")).await;
            }
        }
    }
    side.sessions_are_gone().await;
}

each_pair! {
    async fn sessions_killed_by_the_server(other) {
        let tally = Tally::new(KIND, format!("{}: killed", pair(other)));
        let world = World::new(other).await;
        let bridge = world.open().await;
        for (number, sides) in [vec![&world.ledger], vec![&world.orders], vec![&world.ledger, &world.orders]].iter().enumerate() {
            let key = i32::try_from(number).unwrap() * 100;
            let names: Vec<_> = sides.iter().map(|side| side.name).collect();
            let case = async {
                fill(&bridge, key).await;
                for side in sides {
                    kill_idle(side).await;
                }
                // The lease's connection was among them: what is prepared before it is held again is to be run again.
                let again = bridge.transaction(async |tx| {
                    tokio::try_join!(insert_at(tx, LEDGER, key + 40), insert_at(tx, ORDERS, key + 40)).map(drop)
                });
                again.await.unwrap_or_else(|error| panic!("{}", error.chain()));
                // Every one of them finds a dead session first, and no work is lost by it.
                let all = futures_util::future::try_join_all((0..POOL).map(|_| async {
                    let tx = bridge.begin().await?;
                    tokio::try_join!(tx.postgres(LEDGER), tx.mysql(ORDERS)).map(drop)?;
                    Ok::<_, handfast::Error>(tx)
                }));
                let all = all.await.unwrap_or_else(|error| panic!("an error before work was done: {}", error.chain()));
                for (number, tx) in (50..).zip(all) {
                    tokio::try_join!(insert_at(&tx, LEDGER, key + number), insert_at(&tx, ORDERS, key + number)).unwrap();
                    commits(&bridge, tx, key + number).await;
                    world.is_on_both(key + number).await;
                }
                is_whole(&world, &bridge, key + 90).await;
            };
            tally.case(names.join(" and "), attempt(case).await);
        }
        bridge.close().await.unwrap();
        tally.finish();
    }

    async fn a_server_restarted_while_idle(other) {
        let tally = Tally::new(KIND, format!("{}: restarted", pair(other)));
        let world = World::on(Home::own(Flavor::Postgres).await, Home::own(other).await).await;
        let bridge = world.open().await;
        for (number, side) in world.sides().into_iter().enumerate() {
            let key = i32::try_from(number).unwrap() * 100;
            let case = async {
                fill(&bridge, key).await;
                side.server.kill().await.unwrap();
                side.server.restart().await.unwrap();
                let tx = insert(&bridge, key + 50).await;
                commits(&bridge, tx, key + 50).await;
                world.is_on_both(key + 50).await;
                is_whole(&world, &bridge, key + 90).await;
            };
            tally.case(side.name, attempt(case).await);
        }
        bridge.close().await.unwrap();
        tally.finish();
    }
}
