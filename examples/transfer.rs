//! Moves money from accounts in PostgreSQL to payments in MySQL or MariaDB, and shows the three ways in which it can end
//! without a crash: committed on both, rolled back because the application says so, rolled back because a database does.
//!
//! ```sh
//! make servers                                                  # in another terminal; prints the URLs
//! cargo run --example transfer -- POSTGRES_URL MYSQL_URL
//! ```

mod common;

use common::{Result, Stage};
use handfast::mysql_async::prelude::Queryable;
use handfast::{Bridge, Outcome};

/// Moves `cents`; says whether they were moved.
async fn transfer(bridge: &Bridge, account: i32, cents: i64) -> Result<bool> {
    let tx = bridge.begin().await?;

    // The account is locked by its update, so what is read here holds until the commit.
    let ledger = tx.postgres("ledger").await?;
    let update = "UPDATE account SET cents = cents - $1 WHERE id = $2 RETURNING cents";
    let row = ledger.query_one(update, &[&cents, &account]).await?;
    if row.get::<_, i64>(0) < 0 {
        tx.rollback().await?;
        return Ok(false);
    }

    // An error on the way out drops `tx`, which rolls back on both.
    let mut orders = tx.mysql("orders").await?;
    orders.exec_drop("INSERT INTO payment (account, cents) VALUES (?, ?)", (account, cents)).await?;
    drop(orders);

    match tx.commit().await {
        Ok(committed) => {
            println!("  {} is committed on both", committed.id);
            Ok(true)
        }
        // Certainly nowhere: it may be run again.
        Err(error) if error.outcome() == Outcome::RolledBack => Err(error.into()),
        // In doubt: it may be committed. Never run it again; keep the id, and ask for the outcome under it.
        Err(error) => {
            println!("  keep {}: its outcome is {}", error.id(), error.outcome().as_str());
            Err(error.into())
        }
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let accounts = "CREATE TABLE account (id int PRIMARY KEY, cents bigint NOT NULL); \
                    INSERT INTO account VALUES (1, 5000), (2, 5000)";
    // Account 2 is closed for payments: the second database refuses what the first has accepted.
    let payments = "CREATE TABLE payment (account int NOT NULL CHECK (account <> 2), cents bigint NOT NULL)";
    let stage = Stage::set("transfer", &[("ledger", accounts), ("orders", payments)]).await?;
    let bridge = Bridge::open(stage.config()?).await?;

    println!("7.00 from account 1:");
    assert!(transfer(&bridge, 1, 700).await?);

    println!("90.00 from account 1, which has 43.00:");
    assert!(!transfer(&bridge, 1, 9000).await?);
    println!("  not enough: rolled back");

    println!("7.00 from account 2:");
    match transfer(&bridge, 2, 700).await {
        Ok(_) => return Err("orders accepted a payment that it must refuse".into()),
        Err(error) => println!("  refused, and rolled back on both: {error}"),
    }

    // Waits for what is still rolled back in the background.
    bridge.close().await?;
    let left = stage.numbers("ledger", "SELECT cents FROM account ORDER BY id").await?;
    let paid = stage.number("orders", "SELECT CAST(SUM(cents) AS SIGNED) FROM payment").await?;
    println!("accounts hold {left:?} cents, payments are {paid} cents");
    assert_eq!((left, paid), (vec![4300, 5000], 700));
    stage.clear().await
}
