//! What a session has prepared is still prepared in its next transaction.

use handfast::mysql_async::prelude::Queryable;
use integration_tests::each_pair;
use integration_tests::world::{LEDGER, ORDERS, World};

/// One session serves all.
const ONE: &str = "[pool]\nsize = 1\n";
const ROUNDS: i32 = 5;
const READ: &str = "SELECT COUNT(*)::int FROM t WHERE k < $1";

each_pair! {
    /// The handle stays good, and the server was asked to prepare once.
    async fn of_postgres_stay_prepared(other) {
        let world = World::new(other).await;
        let bridge = world.open_with(ONE).await;
        let mut statement = None;
        for round in 0..ROUNDS {
            let tx = bridge.begin().await.unwrap();
            let ledger = tx.postgres(LEDGER).await.unwrap();
            let prepared = match statement.clone() {
                Some(prepared) => prepared,
                None => ledger.prepare(READ).await.unwrap(),
            };
            let count: i32 = ledger.query_one(&prepared, &[&i32::MAX]).await.unwrap().get(0);
            assert_eq!(count, round, "read anew each time");
            ledger.execute("INSERT INTO t VALUES ($1, 1)", &[&round]).await.unwrap();
            let known = "SELECT COUNT(*) FROM pg_prepared_statements WHERE statement = $1";
            let known: i64 = ledger.query_one(known, &[&READ]).await.unwrap().get(0);
            assert_eq!(known, 1, "round {round}");
            statement = Some(prepared);
            drop(ledger);
            tx.commit().await.unwrap();
        }
        bridge.close().await.unwrap();
    }

    /// The driver keeps them by text; rows alone are no reason to reset the session, which would forget them.
    async fn of_mysql_stay_prepared(other) {
        let world = World::new(other).await;
        let bridge = world.open_with(ONE).await;
        for round in 0..ROUNDS {
            let tx = bridge.begin().await.unwrap();
            let mut orders = tx.mysql(ORDERS).await.unwrap();
            orders.exec_drop("INSERT INTO t VALUES (?, 1)", (round,)).await.unwrap();
            let counted: Option<(String, i64)> = orders.query_first("SHOW SESSION STATUS LIKE 'Com_stmt_prepare'").await.unwrap();
            assert_eq!(counted.unwrap().1, 1, "round {round}: prepared once for all");
            drop(orders);
            tx.commit().await.unwrap();
        }
        bridge.close().await.unwrap();
    }
}
