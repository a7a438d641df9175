//! An application as the tests of the recovery tool know it: it works through the public API alone, does what it is
//! told on standard input, says on standard output what it was answered, and is there to be killed.
//!
//! | told | does | says |
//! |---|---|---|
//! | (start) | opens the bridge | `open`, or `failed KIND` and ends |
//! | `write N` | begins a transaction and inserts row N in `ledger` and in `orders` | `begun ID` |
//! | `commit` | commits that transaction, in the background | `committed ID`, or `rolled back ID: CAUSE` and the like |
//! | (end of input) | closes the bridge | |

use handfast::mysql_async::prelude::Queryable;
use handfast::{Bridge, Config, Outcome, Transaction};
use std::io::Write;
use std::process::ExitCode;
use tokio::io::{AsyncBufReadExt, BufReader};

#[tokio::main]
async fn main() -> ExitCode {
    let config = std::env::args().nth(1).expect("the argument is a configuration file");
    match run(&config).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("failed {:?}", error.kind()));
            eprintln!("{}", error.chain());
            ExitCode::FAILURE
        }
    }
}

async fn run(config: &str) -> handfast::Result<()> {
    let bridge = Bridge::open(Config::load(config)?).await?;
    say("open");
    let mut told = BufReader::new(tokio::io::stdin()).lines();
    let mut begun = None;
    while let Some(line) = told.next_line().await.expect("standard input can be read") {
        match line.split_once(' ') {
            Some(("write", row)) => begun = Some(write(&bridge, row.parse().expect("a number")).await?),
            _ if line == "commit" => {
                tokio::spawn(commit(begun.take().expect("something was begun")));
            }
            _ => panic!("what is {line:?}?"),
        }
    }
    drop(begun);
    bridge.close().await
}

async fn write(bridge: &Bridge, row: i64) -> handfast::Result<Transaction> {
    let tx = bridge.begin().await?;
    tx.postgres("ledger").await?.execute("INSERT INTO entry VALUES ($1)", &[&row]).await?;
    tx.mysql("orders").await?.exec_drop("INSERT INTO entry VALUES (?)", (row,)).await?;
    say(&format!("begun {}", tx.id()));
    Ok(tx)
}

async fn commit(tx: Transaction) {
    match tx.commit().await {
        Ok(committed) => say(&format!("committed {}", committed.id)),
        Err(error) => {
            let outcome = match error.outcome() {
                Outcome::RolledBack => "rolled back",
                Outcome::InDoubt => "in doubt",
                Outcome::Damaged => "damaged",
                Outcome::Committed => unreachable!("a commit is no error"),
            };
            say(&format!("{outcome} {}: {}", error.id(), error.cause().chain()));
        }
    }
}

/// One line, at once.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).expect("somebody listens");
}
