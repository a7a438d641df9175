//! The application's transactions.

use crate::say;
use handfast::mysql_async::prelude::Queryable;
use handfast::{Bridge, CommitError, ErrorKind, Options, Outcome, Result, Transaction, TransactionId};
use integration_tests::world::{LEDGER, insert_at, try_insert};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use tokio::task::JoinSet;

/// Begins a transaction and works on each of its sides in turn. `orders` writes there, `orders?` is declared read-only
/// and reads, `orders!` writes and is bound to fail when it is asked to prepare: on `ledger` by a constraint that is
/// looked at then, on `orders` because somebody has killed its session.
pub async fn write(bridge: &Bridge, key: i32, sides: &[&str]) -> Result<Transaction> {
    let read_only = sides.iter().filter_map(|side| side.strip_suffix('?'));
    let tx = bridge.begin_with(read_only.fold(Options::new(), Options::read_only)).await?;
    for side in sides {
        if let Some(side) = side.strip_suffix('?') {
            read(&tx, side).await?;
        } else if let Some(side) = side.strip_suffix('!') {
            insert_at(&tx, side, key).await?;
            doom(bridge, &tx, side, key).await?;
        } else {
            insert_at(&tx, side, key).await?;
        }
    }
    Ok(tx)
}

async fn read(tx: &Transaction, side: &str) -> Result<()> {
    let sql = "SELECT count(*) FROM t";
    if side == LEDGER {
        tx.postgres(side).await?.query_one(sql, &[]).await?;
    } else {
        tx.mysql(side).await?.query_drop(sql).await?;
    }
    Ok(())
}

async fn doom(bridge: &Bridge, tx: &Transaction, side: &str, key: i32) -> Result<()> {
    if side == LEDGER {
        let twice = format!("INSERT INTO looked_at_late VALUES ({key}), ({key})");
        return Ok(tx.postgres(side).await?.batch_execute(&twice).await?);
    }
    let session: Option<u64> = tx.mysql(side).await?.query_first("SELECT CONNECTION_ID()").await?;
    let other = bridge.begin().await?;
    let kill = format!("KILL {}", session.expect("one row"));
    other.mysql(side).await?.query_drop(kill).await?;
    other.rollback().await
}

/// Inserts a row on both sides, in the tables of the tests of the tool.
pub async fn entry(bridge: &Bridge, row: i32) -> Result<Transaction> {
    let tx = bridge.begin().await?;
    let statement = format!("INSERT INTO entry VALUES ({row})");
    tx.postgres("ledger").await?.batch_execute(&statement).await?;
    tx.mysql("orders").await?.query_drop(statement).await?;
    Ok(tx)
}

pub async fn commit(key: i32, tx: Transaction) {
    let id = tx.id();
    answered(key, id, tx.commit().await.map(drop));
}

pub async fn roll_back(key: i32, tx: Transaction) {
    let id = tx.id();
    match tx.rollback().await {
        Ok(()) => say(&format!("RolledBack {key} {id} as it was told")),
        Err(error) => say(&format!("{:?} {key} {id} {}", error.kind(), error.chain())),
    }
}

fn answered(key: i32, id: TransactionId, answer: Result<(), CommitError>) {
    match answer {
        Ok(()) => say(&format!("{:?} {key} {id}", Outcome::Committed)),
        Err(error) => {
            let cause = error.cause().chain().replace('\n', " ");
            say(&format!("{:?} {key} {id} {cause}", error.outcome()));
        }
    }
}

/// Commits a transaction for each key from the first one on; without a limit until the bridge is closed.
pub async fn load(bridge: Bridge, first: i32, tasks: i32, limit: i32) {
    let end = if limit == 0 { i32::MAX } else { first + limit };
    let next = Arc::new(AtomicI32::new(first));
    let mut workers = JoinSet::new();
    for _ in 0..tasks {
        workers.spawn(insert_all(bridge.clone(), next.clone(), end));
    }
    workers.join_all().await;
}

async fn insert_all(bridge: Bridge, next: Arc<AtomicI32>, end: i32) {
    loop {
        let key = next.fetch_add(1, Ordering::Relaxed);
        if key >= end {
            return;
        }
        match try_insert(&bridge, key).await {
            Ok(tx) => {
                say(&format!("begun {key} {}", tx.id()));
                commit(key, tx).await;
            }
            Err(error) if error.kind() == ErrorKind::Closed => return,
            Err(error) => {
                say(&format!("refused {key} {}", error.chain().replace('\n', " ")));
                // Not at once again: the keys would be used up in no time.
                tokio::time::sleep(super::GLANCE).await;
            }
        }
    }
}
