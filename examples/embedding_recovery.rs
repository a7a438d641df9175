//! Recovery inside an application instead of the tool on somebody's terminal: looking (read-only, beside a running
//! program), settling (a maintenance job, while the program is stopped), and the health of a program that does both by
//! itself while it runs.
//!
//! Each time a program is killed (`kill -9`) in the middle of its commits first, so that there is something to recover.
//!
//! ```sh
//! make servers                                                  # in another terminal; prints the URLs
//! cargo run --example embedding_recovery -- POSTGRES_URL MYSQL_URL
//! ```

mod common;

use common::{ENTRY, Result, Stage};
use handfast::resolver::Resolver;
use handfast::{Bridge, Status};
use std::time::Duration;

/// For a status page: what is prepared, and what recovery would do about it. Takes no lock, changes nothing.
async fn look(stage: &Stage) -> Result<()> {
    let resolver = Resolver::read(stage.config()?)?;
    let mut view = resolver.observe().await;
    let plan = resolver.examine(&mut view).await;
    for seen in &view.participants {
        println!("  {}: {} prepared", seen.name, seen.sightings.len());
    }
    for transaction in &plan.transactions {
        println!("  {}: {}, to do: {:?}", transaction.id, transaction.outcome.as_str(), transaction.action);
    }
    Ok(resolver.close().await?)
}

/// For a job that runs while the application is stopped: takes the journal's lock, and makes passes until one is
/// complete. What `handfast recover` does.
async fn settle(stage: &Stage) -> Result<()> {
    let resolver = Resolver::open(stage.config()?)?;
    let passes = async {
        // A pass is incomplete while a server cannot be reached or still holds a dead program's session.
        while !resolver.sweep(&|_| {}).await.is_complete() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(30), passes).await;
    resolver.close().await?;
    Ok(in_time?)
}

/// For a health check: what an operator has to hear of. `status` does not ask the databases, so it answers at once.
fn complaints(status: &Status) -> Vec<String> {
    let mut complaints = Vec::new();
    if let Some(cause) = &status.journal_failed {
        complaints.push(format!("the journal takes no more decisions: {cause}"));
    }
    if status.damaged > 0 {
        complaints.push(format!("{} transactions are damaged: a person is needed", status.damaged));
    }
    if status.oldest_in_doubt.is_some_and(|age| age > Duration::from_secs(60)) {
        complaints.push(format!("{} transactions are in doubt, one for more than a minute", status.in_doubt));
    }
    for participant in status.participants.iter().filter(|participant| !participant.reachable) {
        let cause = participant.cause.as_deref().unwrap_or("no cause is known");
        complaints.push(format!("{} cannot be used: {cause}", participant.name));
    }
    complaints
}

#[tokio::main]
async fn main() -> Result<()> {
    if let Some(config) = common::is_to_crash() {
        return common::work_until_killed(&config).await;
    }
    let stage = Stage::set("recovery", &[("ledger", ENTRY), ("orders", ENTRY)]).await?;

    common::crash(&stage)?;
    println!("a program was killed. What is there:");
    look(&stage).await?;
    settle(&stage).await?;
    println!("settled. What is there now:");
    look(&stage).await?;

    common::crash(&stage)?;
    println!("another one was killed. A bridge settles by itself what it finds, at opening and in the background:");
    let bridge = Bridge::open(stage.config()?).await?;
    let settled = async {
        while bridge.status().in_doubt > 0 || bridge.status().unsettled > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), settled).await?;
    println!("  complaints: {:?}", complaints(&bridge.status()));
    assert!(complaints(&bridge.status()).is_empty());
    bridge.close().await?;

    let all = "SELECT n FROM entry ORDER BY n";
    let (ledger, orders) = (stage.numbers("ledger", all).await?, stage.numbers("orders", all).await?);
    println!("{} entries in each database, the same ones", ledger.len());
    assert!(ledger.len() >= 40 && ledger == orders);
    stage.clear().await
}
