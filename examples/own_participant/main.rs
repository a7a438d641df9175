//! A participant of a kind of its own: letters in a directory, written together with rows of two databases, or not at all.
//!
//! `letters.rs` implements the trait. Here it is used: a transaction that commits on all three, one that rolls back, and a
//! program that is killed in the middle of its work, after which every row has its letter and every letter its rows.
//!
//! ```sh
//! make servers                                                  # in another terminal; prints the URLs
//! cargo run --example own_participant -- POSTGRES_URL MYSQL_URL
//! ```

#[path = "../common/mod.rs"]
mod common;
mod letters;

use common::{ENTRY, Result, Stage, say};
use handfast::mysql_async::prelude::Queryable;
use handfast::{Bridge, Config, Outcome, Transaction};
use letters::{Desk, Letters};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Configured participants and one more.
async fn open(config: Config, letters: &Path) -> Result<Bridge> {
    let participant = Letters::new("letters".parse()?, letters);
    Ok(Bridge::open_with(config, vec![Arc::new(participant)]).await?)
}

async fn write(tx: &Transaction, entry: i64) -> Result<()> {
    tx.postgres("ledger").await?.execute("INSERT INTO entry VALUES ($1)", &[&entry]).await?;
    tx.mysql("orders").await?.exec_drop("INSERT INTO entry VALUES (?)", (entry,)).await?;
    let desk: Arc<Desk> = tx.branch("letters").await?;
    Ok(desk.write(&entry.to_string())?)
}

/// Beside the journal.
fn directory(config: &Path) -> PathBuf {
    config.with_file_name("letters")
}

/// The letters that were sent.
fn sent(directory: &Path) -> Result<Vec<i64>> {
    let mut entries = Vec::new();
    for place in ["sent", "alone"] {
        for file in std::fs::read_dir(directory.join(place))? {
            for line in std::fs::read_to_string(file?.path())?.lines() {
                entries.push(line.parse()?);
            }
        }
    }
    entries.sort_unstable();
    Ok(entries)
}

async fn work_until_killed(config: &str) -> Result<()> {
    let bridge = open(Config::load(config)?, &directory(Path::new(config))).await?;
    for entry in 1000.. {
        let tx = bridge.begin().await?;
        write(&tx, entry).await?;
        say(&format!("begun {entry} {}", tx.id()))?;
        let outcome = tx.commit().await.map_or_else(|error| error.outcome(), |_| Outcome::Committed);
        say(&format!("told {entry} {}", outcome.as_str()))?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    if let Some(config) = common::is_to_crash() {
        return work_until_killed(&config).await;
    }
    let stage = Stage::set("letters", &[("ledger", ENTRY), ("orders", ENTRY)]).await?;
    let directory = directory(&stage.config_path());
    std::fs::create_dir(&directory)?;

    let bridge = open(stage.config()?, &directory).await?;
    let tx = bridge.begin().await?;
    write(&tx, 1).await?;
    println!("{} is committed on three", tx.commit().await?.id);
    let tx = bridge.begin().await?;
    write(&tx, 2).await?;
    tx.rollback().await?;
    let tx = bridge.begin().await?;
    tx.branch::<Desk>("letters").await?.write("3")?;
    tx.commit().await?;
    println!("letters {:?}: one with its rows, and one that needed none", sent(&directory)?);
    bridge.close().await?;

    let begun = common::crash(&stage)?;
    println!("the program was killed after {} transactions", begun.len());
    let bridge = open(stage.config()?, &directory).await?;
    for one in &begun {
        while bridge.outcome(one.id).await? == Outcome::InDoubt {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    bridge.close().await?;
    let mut letters = sent(&directory)?;
    letters.retain(|entry| *entry != 3);
    for participant in ["ledger", "orders"] {
        assert_eq!(stage.numbers(participant, "SELECT n FROM entry ORDER BY n").await?, letters, "{participant}");
    }
    println!("every row has its letter, and every letter its rows");
    stage.clear().await
}
