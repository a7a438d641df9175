//! The application that the demo kills: moves money through the public API, from several tasks, until its standard
//! input is closed. Whatever happens to its transactions, it writes down what it was told.

use super::super::exit::Exit;
use super::Dice;
use super::answers::{Notebook, Shape};
use crate::error::{Error, ErrorKind, Result};
use crate::protocol::Outcome;
use crate::transaction::{Options, Transaction};
use crate::{Bridge, Config};
use mysql_async::prelude::Queryable;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::AsyncReadExt;

/// The participant on PostgreSQL.
pub const LEDGER: &str = "ledger";
/// The participant on MySQL or MariaDB.
pub const ORDERS: &str = "orders";
/// The accounts in the ledger.
pub const ACCOUNTS: u64 = 16;

/// `handfast demo-application`, started by the demo itself.
#[derive(Debug, Clone, clap::Args)]
pub struct ApplicationArgs {
    /// Where to write down what was begun and answered.
    #[arg(long)]
    pub answers: PathBuf,
    /// Tasks that move money at the same time.
    #[arg(long, default_value_t = 8)]
    pub tasks: u64,
    /// Where the dice begin.
    #[arg(long)]
    pub seed: u64,
}

/// Runs until standard input is closed.
///
/// # Errors
/// When the bridge cannot be opened: the demo starts it again.
pub async fn run(config: Config, args: ApplicationArgs) -> Result<Exit> {
    let bridge = Bridge::open(config).await?;
    let notebook = Arc::new(Notebook::open(&args.answers)?);
    let stopping = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..args.tasks)
        .map(|number| {
            let teller = Teller {
                bridge: bridge.clone(),
                notebook: notebook.clone(),
                dice: Dice::new(args.seed.wrapping_add(number << 32)),
            };
            tokio::spawn(teller.work(stopping.clone()))
        })
        .collect();
    // The end of input is the end of the demo, or of the process that ran it.
    let _ = tokio::io::stdin().read_to_end(&mut Vec::new()).await;
    stopping.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.map_err(|error| Error::new(ErrorKind::Closed, "a task of the demo failed").because(error))?;
    }
    bridge.close().await?;
    Ok(Exit::Clean)
}

/// One task that moves money.
struct Teller {
    bridge: Bridge,
    notebook: Arc<Notebook>,
    dice: Dice,
}

impl Teller {
    async fn work(mut self, stopping: Arc<AtomicBool>) {
        while !stopping.load(Ordering::Relaxed) {
            if let Err(error) = self.one().await {
                // A server is down: not an answer about any transaction. Knock again a little later.
                tracing::debug!(error = %error.chain(), "no transaction could be begun");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }

    /// One transaction, whatever becomes of it. An error says that none was begun.
    async fn one(&mut self) -> Result<()> {
        let shape = match self.dice.roll(10) {
            0 => Shape::Ledger,
            1 => Shape::Orders,
            _ => Shape::Both,
        };
        let options = Options::new();
        let options = if shape == Shape::Orders { options.read_only(LEDGER) } else { options };
        let tx = self.bridge.begin_with(options).await?;
        let id = tx.id();
        self.notebook.begun(id, shape);
        let work = self.move_money(&tx, shape).await;
        let outcome = if work.is_err() || self.dice.roll(20) == 0 {
            tx.rollback().await?;
            Outcome::RolledBack
        } else {
            match tx.commit().await {
                Ok(_) => Outcome::Committed,
                Err(error) => error.outcome(),
            }
        };
        self.notebook.answered(id, outcome);
        work
    }

    async fn move_money(&mut self, tx: &Transaction, shape: Shape) -> Result<()> {
        let (from, to) = (self.account(), self.account());
        let cents = i64::try_from(self.dice.roll(900)).expect("below 900") + 1;
        let id = tx.id().to_string();
        if shape == Shape::Orders {
            // A declared read-only branch beside a single writer.
            tx.postgres(LEDGER).await?.query_one("SELECT sum(cents)::bigint FROM account", &[]).await?;
            return pay(tx, &id, 0).await;
        }
        let ledger = tx.postgres(LEDGER).await?;
        ledger.execute("UPDATE account SET cents = cents - $1 WHERE id = $2", &[&cents, &from]).await?;
        if shape == Shape::Ledger {
            ledger.execute("UPDATE account SET cents = cents + $1 WHERE id = $2", &[&cents, &to]).await?;
        }
        ledger.execute("INSERT INTO transfer (id, cents) VALUES ($1, $2)", &[&id, &cents]).await?;
        if shape == Shape::Both { pay(tx, &id, cents).await } else { Ok(()) }
    }

    fn account(&mut self) -> i32 {
        i32::try_from(self.dice.roll(ACCOUNTS)).expect("there are few accounts")
    }
}

async fn pay(tx: &Transaction, id: &str, cents: i64) -> Result<()> {
    let mut orders = tx.mysql(ORDERS).await?;
    orders.exec_drop("INSERT INTO payment (id, cents) VALUES (?, ?)", (id, cents)).await?;
    Ok(())
}
