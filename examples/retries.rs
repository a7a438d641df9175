//! Runs what a deadlock or a serialization failure ended once more, and only that: `Bridge::transaction`.
//!
//! Two transactions lock the same two rows in opposite order, so that the database ends one of them. Its closure runs
//! again from the start, and both commit. An error of the application's own is not run again.
//!
//! ```sh
//! make servers                                                  # in another terminal; prints the URLs
//! cargo run --example retries -- POSTGRES_URL MYSQL_URL
//! ```

mod common;

use common::{Result, Stage};
use handfast::mysql_async::prelude::Queryable;
use handfast::{Bridge, Error, ErrorKind, Transaction};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::sync::Barrier;

/// Books a sale in the ledger and takes from both shelves. A closure may run more than once: it does nothing that
/// cannot be rolled back, or counts on it, as this one does.
async fn sell(tx: &Transaction, shelves: [i32; 2], runs: &AtomicU32, both_hold_one: &Barrier) -> handfast::Result<()> {
    let is_first_run = runs.fetch_add(1, Ordering::SeqCst) == 0;
    tx.postgres("ledger").await?.execute("INSERT INTO sale (shelf) VALUES ($1)", &[&shelves[0]]).await?;
    let mut orders = tx.mysql("orders").await?;
    orders.exec_drop("UPDATE shelf SET items = items - 1 WHERE id = ?", (shelves[0],)).await?;
    if is_first_run {
        // Both have locked their first row: a deadlock is certain.
        both_hold_one.wait().await;
    }
    orders.exec_drop("UPDATE shelf SET items = items - 1 WHERE id = ?", (shelves[1],)).await?;
    Ok(())
}

/// `sell` in a transaction on a task of its own; answers how often it ran.
async fn sold(bridge: Bridge, shelves: [i32; 2], both_hold_one: Arc<Barrier>) -> Result<u32> {
    let runs = Arc::new(AtomicU32::new(0));
    let counted = runs.clone();
    // To be spawned, the closure owns what it uses: `async move`.
    tokio::spawn(bridge.transaction(async move |tx| sell(tx, shelves, &counted, &both_hold_one).await)).await??;
    Ok(runs.load(Ordering::SeqCst))
}

#[tokio::main]
async fn main() -> Result<()> {
    let sales = "CREATE TABLE sale (shelf int NOT NULL)";
    let shelves =
        "CREATE TABLE shelf (id int PRIMARY KEY, items int NOT NULL); INSERT INTO shelf VALUES (1, 9), (2, 9)";
    let stage = Stage::set("retries", &[("ledger", sales), ("orders", shelves)]).await?;
    // `transaction.retries` says how often at most; the pauses between grow, and are never the same twice.
    let bridge = Bridge::open(stage.config()?).await?;

    let barrier = Arc::new(Barrier::new(2));
    let (one, other) =
        tokio::try_join!(sold(bridge.clone(), [1, 2], barrier.clone()), sold(bridge.clone(), [2, 1], barrier))?;
    println!("both are sold; their closures ran {one} and {other} times");
    assert!(one + other >= 3, "the deadlock's victim has run again");

    let (runs, error) = refused(&bridge).await?;
    println!("an error of the application's own ({error}): ran {runs} time");
    assert_eq!((runs, error.kind()), (1, ErrorKind::Statement));

    bridge.close().await?;
    let sales = stage.number("ledger", "SELECT count(*) FROM sale").await?;
    let items = stage.numbers("orders", "SELECT items FROM shelf ORDER BY id").await?;
    println!("{sales} sales in the ledger, {items:?} items on the shelves");
    assert_eq!((sales, items), (2, vec![7, 7]));
    stage.clear().await
}

/// A transaction whose closure refuses: how often it ran, and its error.
async fn refused(bridge: &Bridge) -> Result<(u32, Error)> {
    let runs = AtomicU32::new(0);
    let refusing = async |tx: &Transaction| {
        runs.fetch_add(1, Ordering::SeqCst);
        tx.postgres("ledger").await?.execute("INSERT INTO sale (shelf) VALUES (3)", &[]).await?;
        Err::<(), _>(Error::new(ErrorKind::Statement, "there is no shelf 3"))
    };
    match bridge.transaction(refusing).await {
        Ok(()) => Err("it was committed".into()),
        Err(error) => Ok((runs.load(Ordering::SeqCst), error)),
    }
}
