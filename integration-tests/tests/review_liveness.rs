//! Nothing waits for ever: sessions that wait for each other, servers with settings of their own.

use handfast::mysql_async::prelude::Queryable;
use handfast::{Bridge, Result, Transaction};
use integration_tests::conformance::{PATIENCE, eventually};
use integration_tests::servers::{self, ConfigBuilder, Flavor, Server, fresh_database, shared};
use integration_tests::{each_mysql, each_pair};
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::Barrier;

/// A database with one row, for `UPDATE`s.
async fn table(server: &Server) -> String {
    let database = fresh_database(server).await;
    server.query(&database, "CREATE TABLE data (id int PRIMARY KEY, value int NOT NULL)").await.unwrap();
    server.query(&database, "INSERT INTO data VALUES (1, 0)").await.unwrap();
    database
}

async fn value(server: &Server, database: &str) -> Option<String> {
    server.value(database, "SELECT value FROM data WHERE id = 1").await.unwrap()
}

const ADD: &str = "UPDATE data SET value = value + 1 WHERE id = 1";

async fn add_in_ledger(tx: &Transaction) -> Result<()> {
    Ok(tx.postgres("ledger").await?.batch_execute(ADD).await?)
}

async fn add_in_orders(tx: &Transaction) -> Result<()> {
    Ok(tx.mysql("orders").await?.query_drop(ADD).await?)
}

each_pair! {
    /// Two transactions that hold the last session of one pool and wait for the other's are a deadlock like any other:
    /// it breaks before their deadline, and they are run again.
    async fn sessions_that_wait_for_each_other(flavor) {
        let (postgres, other) = (shared(Flavor::Postgres).await, shared(flavor).await);
        let (ledger, orders) = (table(postgres).await, table(other).await);
        let journal = TempDir::new().unwrap();
        let config = ConfigBuilder::new(journal.path())
            .section("[pool]\nsize = 1\n[transaction]\ntimeout = \"8s\"\nlock_timeout = \"1s\"")
            .participant("ledger", postgres, &ledger)
            .participant("orders", other, &orders);
        let bridge = Bridge::open(config.build()).await.unwrap();
        let (meet, again) = (Barrier::new(2), std::cell::Cell::new(0));
        let first = bridge.transaction(async |tx| {
            add_in_ledger(tx).await?;
            if again.replace(again.get() + 1) < 2 {
                meet.wait().await;
            }
            add_in_orders(tx).await
        });
        let second = bridge.transaction(async |tx| {
            add_in_orders(tx).await?;
            if again.replace(again.get() + 1) < 2 {
                meet.wait().await;
            }
            add_in_ledger(tx).await
        });
        let (first, second) = tokio::join!(first, second);
        first.unwrap_or_else(|error| panic!("{}", error.chain()));
        second.unwrap_or_else(|error| panic!("{}", error.chain()));
        assert_eq!(value(postgres, &ledger).await.as_deref(), Some("2"));
        assert_eq!(value(other, &orders).await.as_deref(), Some("2"));
        bridge.close().await.unwrap();
    }
}

each_pair! {
    /// A statement that the application gave up is not waited for, by whomever: the server is told to.
    async fn an_abandoned_statement_keeps_no_locks(flavor) {
        let (postgres, other) = (shared(Flavor::Postgres).await, shared(flavor).await);
        let (ledger, orders) = (table(postgres).await, table(other).await);
        let journal = TempDir::new().unwrap();
        // Whoever only waits until patience ends waits too long for this test.
        let config = ConfigBuilder::new(journal.path())
            .section("[recovery]\nstatement_timeout = \"10m\"\n[transaction]\ntimeout = \"10m\"")
            .participant("ledger", postgres, &ledger)
            .participant("orders", other, &orders);
        let bridge = Bridge::open(config.build()).await.unwrap();
        for is_dropped in [false, true] {
            let tx = bridge.begin().await.unwrap();
            add_in_ledger(&tx).await.unwrap();
            add_in_orders(&tx).await.unwrap();
            let sleep = async {
                let client = tx.postgres("ledger").await.unwrap();
                let mut conn = tx.mysql("orders").await.unwrap();
                tokio::join!(client.batch_execute("SELECT pg_sleep(3600)"), conn.query_drop("DO SLEEP(3600)"))
            };
            tokio::time::timeout(Duration::from_millis(100), sleep).await.unwrap_err();
            if is_dropped {
                drop(tx);
            } else {
                tokio::time::timeout(PATIENCE, tx.rollback()).await.expect("it ends").unwrap();
            }
            for (server, database) in [(postgres, &ledger), (other, &orders)] {
                let read = "SELECT value FROM data WHERE id = 1 FOR UPDATE NOWAIT";
                eventually("the row is free", async || server.query(database, read).await.is_ok()).await;
            }
        }
        bridge.close().await.unwrap();
    }
}

each_mysql! {
    /// D44: a server whose sessions begin a transaction with their first read.
    async fn autocommit_is_off(flavor) {
        let server = servers::start(flavor).await;
        let orders = table(&server).await;
        server.query(&orders, "SET GLOBAL autocommit = 0").await.unwrap();
        let journal = TempDir::new().unwrap();
        let bridge = Bridge::open(ConfigBuilder::new(journal.path()).participant("orders", &server, &orders).build());
        let bridge = bridge.await.unwrap_or_else(|error| panic!("{}", error.chain()));
        for _ in 0..3 {
            let added = bridge.transaction(async |tx| add_in_orders(tx).await).await;
            added.unwrap_or_else(|error| panic!("{}", error.chain()));
        }
        assert_eq!(value(&server, &orders).await.as_deref(), Some("3"));
        bridge.close().await.unwrap();
    }
}
