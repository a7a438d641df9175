//! An order on one database, its payment on the other, in one transaction: there is no order without its payment, no
//! payment without its order, and nothing to be taken back when the second side says no. No outbox, no relay, no saga.
//!
//! Both sides may refuse here: the shop has only so many pieces, the customer only so much credit. That is what two-phase
//! commit is for. **An outbox is the better choice** where the second part cannot refuse and may come later (the receipt
//! by mail, the search index, another team's copy), where it is no database that can prepare, or where one database's
//! outage must not stop the other. The receipt below is such a thing: its row in `outbox` is there if and only if *both*
//! commits happened, and a relay sends it at leisure. `docs/guide/when-not.md` compares at length.
//!
//! ```sh
//! make servers                                                  # in another terminal; prints the URLs
//! cargo run --example order_and_payment -- POSTGRES_URL MYSQL_URL
//! ```

mod common;

use common::{Result, Stage};
use handfast::mysql_async::prelude::Queryable;
use handfast::{Bridge, ErrorKind, Transaction};

/// `payments` is PostgreSQL, where a customer's credit may not fall below zero; `shop` is MySQL or MariaDB, where the
/// stock may not. The databases themselves say so, by CHECK.
async fn place(tx: &Transaction, customer: i32, item: i32, cents: i64) -> handfast::Result<()> {
    // What both rows are found by, and compared by: the transaction's own id.
    let reference = tx.id().to_string();
    let payments = tx.postgres("payments").await?;
    let debit = "UPDATE customer SET credit = credit - $1 WHERE id = $2";
    payments.execute(debit, &[&cents, &customer]).await?;
    let pay = "INSERT INTO payment (reference, customer, cents) VALUES ($1, $2, $3)";
    payments.execute(pay, &[&reference, &customer, &cents]).await?;
    payments.execute("INSERT INTO outbox (kind, reference) VALUES ('receipt', $1)", &[&reference]).await?;

    let mut shop = tx.mysql("shop").await?;
    shop.exec_drop("UPDATE item SET pieces = pieces - 1 WHERE id = ?", (item,)).await?;
    let order = "INSERT INTO placed (reference, customer, item) VALUES (?, ?, ?)";
    shop.exec_drop(order, (&reference, customer, item)).await?;
    Ok(())
}

/// Whether it was placed. With retries of deadlocks, so that many can be placed at once.
async fn order(bridge: &Bridge, customer: i32, item: i32, cents: i64) -> Result<bool> {
    match bridge.transaction(async move |tx| place(tx, customer, item, cents).await).await {
        Ok(()) => Ok(true),
        // One of the two databases has refused: nothing of it is left on either.
        Err(error) if error.kind() == ErrorKind::Statement => {
            println!("  customer {customer}, item {item}: {}", error.chain());
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let customers = "CREATE TABLE customer (id int PRIMARY KEY, credit bigint NOT NULL CHECK (credit >= 0)); \
                     INSERT INTO customer VALUES (1, 5000), (2, 900); \
                     CREATE TABLE payment (reference text PRIMARY KEY, customer int NOT NULL, cents bigint NOT NULL); \
                     CREATE TABLE outbox (kind text NOT NULL, reference text NOT NULL)";
    let items = "CREATE TABLE item (id int PRIMARY KEY, pieces int NOT NULL CHECK (pieces >= 0)); \
                 INSERT INTO item VALUES (1, 100), (2, 3); \
                 CREATE TABLE placed (reference varchar(80) PRIMARY KEY, customer int NOT NULL, item int NOT NULL)";
    let stage = Stage::set("order", &[("payments", customers), ("shop", items)]).await?;
    let bridge = Bridge::open(stage.config()?).await?;

    println!("one that both sides accept:");
    assert!(order(&bridge, 1, 1, 700).await?);
    println!("one that the customer cannot pay:");
    assert!(!order(&bridge, 2, 1, 1000).await?);
    println!("six at once of an item of which there are three:");
    let orders: Vec<_> = (0..6).map(|_| order(&bridge, 1, 2, 500)).collect();
    let mut placed = 0;
    for order in futures_util::future::join_all(orders).await {
        placed += usize::from(order?);
    }
    assert_eq!(placed, 3);
    bridge.close().await?;

    let credit = stage.numbers("payments", "SELECT credit FROM customer ORDER BY id").await?;
    let pieces = stage.numbers("shop", "SELECT pieces FROM item ORDER BY id").await?;
    let payments = stage.number("payments", "SELECT count(*) FROM payment").await?;
    let receipts = stage.number("payments", "SELECT count(*) FROM outbox").await?;
    let orders = stage.number("shop", "SELECT count(*) FROM placed").await?;
    println!("{orders} orders, {payments} payments, {receipts} receipts to send; credit {credit:?}, pieces {pieces:?}");
    assert_eq!((orders, payments, receipts), (4, 4, 4));
    assert_eq!((credit, pieces), (vec![2800, 900], vec![99, 0]));
    stage.clear().await
}
