//! One transaction over three databases, one that writes to two and reads from the third, and one with a single writer.
//!
//! A third URL may name one more server (MySQL beside MariaDB); otherwise the third database is on the second server.
//! Participants are databases, not servers.
//!
//! ```sh
//! make servers                                                  # in another terminal; prints the URLs
//! cargo run --example three_participants -- POSTGRES_URL MYSQL_URL [MYSQL_URL]
//! ```

mod common;

use common::{Result, Stage};
use handfast::mysql_async::prelude::Queryable;
use handfast::{Bridge, Options};

/// Writes to all three. Each branch begins when it is first asked for, and they can be used at the same time.
async fn order(bridge: &Bridge, item: i32) -> Result<()> {
    let tx = bridge.begin().await?;
    let (ledger, mut orders, mut stock) =
        tokio::try_join!(tx.postgres("ledger"), tx.mysql("orders"), tx.mysql("stock"))?;
    tokio::try_join!(
        async { Ok::<_, handfast::Error>(ledger.execute("INSERT INTO charge (item) VALUES ($1)", &[&item]).await?) },
        async { Ok(orders.exec_drop("INSERT INTO placed (item) VALUES (?)", (item,)).await?) },
        async { Ok(stock.exec_drop("UPDATE item SET pieces = pieces - 1 WHERE id = ?", (item,)).await?) },
    )?;
    drop((orders, stock));
    println!("  {} is committed on three", tx.commit().await?.id);
    Ok(())
}

/// Reads from one, writes to two: the one that is declared read-only costs no prepare and no forced write.
async fn order_what_is_there(bridge: &Bridge, item: i32) -> Result<bool> {
    let tx = bridge.begin_with(Options::new().read_only("stock")).await?;
    let pieces: Option<i32> =
        tx.mysql("stock").await?.exec_first("SELECT pieces FROM item WHERE id = ?", (item,)).await?;
    if pieces.is_none_or(|pieces| pieces == 0) {
        tx.rollback().await?;
        return Ok(false);
    }
    tx.postgres("ledger").await?.execute("INSERT INTO charge (item) VALUES ($1)", &[&item]).await?;
    tx.mysql("orders").await?.exec_drop("INSERT INTO placed (item) VALUES (?)", (item,)).await?;
    println!("  {} is committed on two, having read the third", tx.commit().await?.id);
    Ok(true)
}

/// One writer alone: its own commit decides, at the price of a plain transaction.
async fn restock(bridge: &Bridge, item: i32) -> Result<()> {
    let tx = bridge.begin().await?;
    tx.mysql("stock").await?.exec_drop("UPDATE item SET pieces = pieces + 5 WHERE id = ?", (item,)).await?;
    println!("  {} is committed on one", tx.commit().await?.id);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let items = "CREATE TABLE item (id int PRIMARY KEY, pieces int NOT NULL CHECK (pieces >= 0)); \
                 INSERT INTO item VALUES (1, 1), (2, 0)";
    let (charges, placed) = ("CREATE TABLE charge (item int NOT NULL)", "CREATE TABLE placed (item int NOT NULL)");
    let stage = Stage::set("three", &[("ledger", charges), ("orders", placed), ("stock", items)]).await?;
    let bridge = Bridge::open(stage.config()?).await?;

    println!("item 1, of which there is one:");
    order(&bridge, 1).await?;
    println!("item 1, of which there is none left:");
    match order(&bridge, 1).await {
        Ok(()) => return Err("stock gave away what it does not have".into()),
        Err(error) => println!("  stock refuses, so it is committed nowhere: {error}"),
    }
    println!("item 2, looked for before it is ordered:");
    assert!(!order_what_is_there(&bridge, 2).await?);
    println!("  there is none: rolled back");
    restock(&bridge, 2).await?;
    assert!(order_what_is_there(&bridge, 2).await?);

    bridge.close().await?;
    let charges = stage.numbers("ledger", "SELECT item FROM charge ORDER BY item").await?;
    let placed = stage.numbers("orders", "SELECT item FROM placed ORDER BY item").await?;
    let pieces = stage.numbers("stock", "SELECT pieces FROM item ORDER BY id").await?;
    println!("charged {charges:?}, placed {placed:?}, pieces left {pieces:?}");
    assert_eq!((charges, placed, pieces), (vec![1, 2], vec![1, 2], vec![0, 5]));
    stage.clear().await
}
