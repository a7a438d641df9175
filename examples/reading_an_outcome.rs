//! After a crash: what became of the transactions whose commit was never answered? `Bridge::outcome` says.
//!
//! This program runs itself as another process that inserts numbers in two databases, and kills it (`kill -9`) in the
//! middle of its commits. What that process was doing is known by the transactions' ids alone, which it had written
//! down (here: printed) before each commit. Each answer is then compared with what both databases hold.
//!
//! ```sh
//! make servers                                                  # in another terminal; prints the URLs
//! cargo run --example reading_an_outcome -- POSTGRES_URL MYSQL_URL
//! ```

mod common;

use common::{ENTRY, Result, Stage};
use handfast::{Bridge, Outcome, TransactionId};
use std::time::Duration;

/// The outcome, once it is certain. It is in doubt while a server cannot be reached, or still holds a session of the
/// killed process; an application asks again later.
async fn certain(bridge: &Bridge, id: TransactionId) -> Result<Outcome> {
    let asking = async {
        loop {
            match bridge.outcome(id).await? {
                Outcome::InDoubt => tokio::time::sleep(Duration::from_millis(50)).await,
                outcome => return Ok(outcome),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), asking).await?
}

#[tokio::main]
async fn main() -> Result<()> {
    if let Some(config) = common::is_to_crash() {
        return common::work_until_killed(&config).await;
    }
    let stage = Stage::set("outcome", &[("ledger", ENTRY), ("orders", ENTRY)]).await?;
    let begun = common::crash(&stage)?;
    let unanswered = begun.iter().filter(|one| one.was_told.is_none()).count();
    println!("the program was killed; {unanswered} of its {} commits were not answered", begun.len());

    // Opening settles what the other process left: commits what was decided, rolls back the rest.
    let bridge = Bridge::open(stage.config()?).await?;
    for one in &begun {
        let outcome = certain(&bridge, one.id).await?;
        let count = format!("SELECT count(*) FROM entry WHERE n = {}", one.entry);
        let (ledger, orders) = (stage.number("ledger", &count).await?, stage.number("orders", &count).await?);
        if one.was_told.is_none() {
            println!("  {}: {}; rows in ledger and orders: {ledger}, {orders}", one.id, outcome.as_str());
        }
        let expected = i64::from(outcome == Outcome::Committed);
        assert_eq!((ledger, orders), (expected, expected), "{}", one.id);
        // What was answered before the crash is as it was answered.
        assert!(one.was_told.is_none_or(|told| told == outcome), "{}", one.id);
    }
    println!("every answer agrees with both databases");
    bridge.close().await?;
    stage.clear().await
}
