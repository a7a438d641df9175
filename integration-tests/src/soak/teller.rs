//! What a client does: moves money in all the ways in which a transaction can go well or badly, and writes down what
//! it was told.

use super::stage::ACCOUNTS;
use crate::torture::Dice;
use crate::world::{LEDGER, ORDERS};
use handfast::cli::demo::answers::Notebook;
use handfast::mysql_async::prelude::Queryable;
use handfast::participant::Isolation;
use handfast::protocol::Acknowledge;
use handfast::{Bridge, ErrorKind, Options, Outcome, Result, Transaction, TransactionId};
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// How many rows belong to a transaction on each side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// On PostgreSQL.
    pub ledger: usize,
    /// On MariaDB or MySQL.
    pub orders: usize,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.ledger, self.orders)
    }
}

impl FromStr for Shape {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (ledger, orders) = text.split_once('+').unwrap_or((text, ""));
        Ok(Self { ledger: ledger.parse()?, orders: orders.parse()? })
    }
}

/// What becomes of a transaction, if it is up to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Commit,
    /// The future of the commit is dropped after so many microseconds.
    CommitAndLeave(u64),
    RollBack,
    /// The work is dropped in the middle, after so many microseconds.
    Leave(u64),
    /// A statement fails, and then the client commits.
    FailAndCommit,
    /// Sits with its locks until its deadline is near or past, after so many milliseconds, and then commits.
    Dawdle(u64),
}

/// A change of one account.
#[derive(Debug, Clone, Copy)]
struct Move {
    account: i32,
    cents: i64,
}

/// One transaction, decided before it begins.
#[derive(Debug, Clone)]
struct Job {
    ledger: Vec<Move>,
    orders: Vec<Move>,
    /// Reads there in a branch that is declared to.
    reads: Option<&'static str>,
    /// Both sides at once, else one after the other.
    at_once: bool,
    isolation: Isolation,
    acknowledge: Acknowledge,
    end: End,
}

impl Job {
    fn roll(dice: &mut Dice) -> Self {
        let mut number = |end: usize| dice.below(end);
        let (rows_l, rows_o, reads) = match number(20) {
            0 | 1 => (2, 0, None),
            2 | 3 => (0, 2, None),
            4 => (0, 2, Some(LEDGER)),
            5 => (2, 0, Some(ORDERS)),
            6 => (0, 0, Some(LEDGER)),
            _ => (1 + number(3), 1 + number(3), None),
        };
        let end = match number(24) {
            0..=2 => End::CommitAndLeave(number(9000) as u64),
            3 => End::RollBack,
            4 => End::Leave(number(9000) as u64),
            5 if rows_l > 0 || rows_o > 0 => End::FailAndCommit,
            6 => End::Dawdle(number(400) as u64),
            _ => End::Commit,
        };
        let isolation = match number(8) {
            0 => Isolation::Serializable,
            1 => Isolation::RepeatableRead,
            2 => Isolation::ReadCommitted,
            _ => Isolation::Default,
        };
        let acknowledge = if number(5) == 0 { Acknowledge::Decided } else { Acknowledge::Applied };
        let at_once = number(2) == 0;
        let (ledger, orders) = moves(rows_l, rows_o, dice);
        Self { ledger, orders, reads, at_once, isolation, acknowledge, end }
    }

    fn options(&self) -> Options {
        let mut options = Options::new().isolation(self.isolation).acknowledge(self.acknowledge);
        if let Some(side) = self.reads {
            options = options.read_only(side);
        }
        if let End::Dawdle(_) = self.end {
            options = options.timeout(Duration::from_millis(200));
        }
        options
    }

    /// One row more than there can be, where the commit must not succeed.
    fn shape(&self) -> Shape {
        let never = usize::from(self.end == End::FailAndCommit);
        Shape { ledger: self.ledger.len() + never, orders: self.orders.len() }
    }
}

/// Moves whose sum over both sides is nothing.
fn moves(ledger: usize, orders: usize, dice: &mut Dice) -> (Vec<Move>, Vec<Move>) {
    let accounts = usize::try_from(ACCOUNTS).expect("there are few");
    let mut all: Vec<Move> = (0..ledger + orders)
        .map(|_| Move {
            account: i32::try_from(dice.below(accounts)).expect("there are few"),
            cents: i64::try_from(dice.below(1800)).expect("it is small") - 900,
        })
        .collect();
    let sum: i64 = all.iter().map(|one| one.cents).sum();
    if let Some(last) = all.last_mut() {
        last.cents -= sum;
    }
    let orders = all.split_off(ledger);
    (all, orders)
}

/// One task of a client.
pub struct Teller {
    /// The bridge.
    pub bridge: Bridge,
    /// Where answers go.
    pub notebook: Arc<Notebook>,
    /// Decides what is wanted next.
    pub dice: Dice,
}

impl Teller {
    /// Works until it is told to stop.
    pub async fn work(mut self, stopping: Arc<AtomicBool>) {
        while !stopping.load(Ordering::Relaxed) {
            // Of its own dice: how far one comes does not change the next.
            let mut dice = Dice::new(self.dice.roll());
            let job = Job::roll(&mut dice);
            let worked = match job.end {
                End::Commit if job.reads.is_none() && dice.below(3) == 0 => self.retried(&job).await,
                _ => self.one(&job).await,
            };
            if worked.is_err() {
                // Perhaps a server is down: do not knock without pause.
                sleep(Duration::from_millis(10)).await;
            }
        }
    }

    /// Through `Bridge::transaction`: every attempt is a transaction of its own.
    async fn retried(&self, job: &Job) -> Result<()> {
        let last: Arc<Mutex<Option<TransactionId>>> = Arc::default();
        let (notebook, begun, own) = (self.notebook.clone(), last.clone(), job.clone());
        let work = async move |tx: &Transaction| {
            notebook.begun(tx.id(), own.shape());
            let before = begun.lock().expect("nobody panics with it").replace(tx.id());
            // It was run again: so it is rolled back.
            before.into_iter().for_each(|id| notebook.answered(id, Outcome::RolledBack));
            work(tx, &own).await
        };
        let answer = self.bridge.transaction(work).await;
        let last = *last.lock().expect("nobody panics with it");
        if let Some(id) = last {
            let outcome = match answer.as_ref().map_err(handfast::Error::kind) {
                Ok(()) => Outcome::Committed,
                Err(ErrorKind::InDoubt) => Outcome::InDoubt,
                Err(ErrorKind::Damaged) => Outcome::Damaged,
                Err(_) => Outcome::RolledBack,
            };
            self.answered(id, outcome).await;
        }
        answer
    }

    /// One transaction, whatever becomes of it.
    async fn one(&self, job: &Job) -> Result<()> {
        let tx = self.bridge.begin_with(job.options()).await?;
        let id = tx.id();
        self.notebook.begun(id, job.shape());
        let worked = match job.end {
            End::Leave(after) => {
                // Cut off or not: what follows is the drop.
                let _ = timeout(Duration::from_micros(after), work(&tx, job)).await;
                drop(tx);
                self.answered(id, Outcome::RolledBack).await;
                return Ok(());
            }
            _ => work(&tx, job).await,
        };
        if let Err(error) = worked {
            tx.rollback().await?;
            self.answered(id, Outcome::RolledBack).await;
            return Err(error);
        }
        if let Some(outcome) = self.finish(tx, job).await? {
            self.answered(id, outcome).await;
        }
        // Nobody waited for the answer, or it was none: it can be asked for.
        Ok(())
    }

    /// What the client was told, if it stayed to hear it.
    async fn finish(&self, tx: Transaction, job: &Job) -> Result<Option<Outcome>> {
        match job.end {
            End::RollBack => {
                tx.rollback().await?;
                return Ok(Some(Outcome::RolledBack));
            }
            End::CommitAndLeave(after) => {
                let id = tx.id();
                let answer = timeout(Duration::from_micros(after), tx.commit()).await;
                if answer.is_err() {
                    let asked = timeout(Duration::from_secs(1), self.bridge.wait_applied(id)).await;
                    return asked.map_or(Ok(None), |asked| asked.map(Some));
                }
                return Ok(answer.ok().map(outcome));
            }
            End::FailAndCommit => fail(&tx, job).await,
            End::Dawdle(pause) => sleep(Duration::from_millis(pause)).await,
            End::Commit | End::Leave(_) => {}
        }
        Ok(Some(outcome(tx.commit().await)))
    }

    /// Writes an answer down; after *in doubt* asks once more.
    async fn answered(&self, id: TransactionId, outcome: Outcome) {
        self.notebook.answered(id, outcome);
        if outcome == Outcome::InDoubt
            && let Ok(Ok(outcome)) = timeout(Duration::from_secs(1), self.bridge.wait_applied(id)).await
        {
            self.notebook.answered(id, outcome);
        }
    }
}

fn outcome(answer: std::result::Result<handfast::Committed, handfast::CommitError>) -> Outcome {
    answer.map_or_else(|error| error.outcome(), |_| Outcome::Committed)
}

async fn work(tx: &Transaction, job: &Job) -> Result<()> {
    match job.reads {
        Some(LEDGER) => {
            tx.postgres(LEDGER).await?.query_one("SELECT sum(cents)::bigint FROM account", &[]).await?;
        }
        Some(_) => tx.mysql(ORDERS).await?.query_drop("SELECT SUM(cents) FROM account").await?,
        None => {}
    }
    if job.at_once {
        tokio::try_join!(ledger(tx, &job.ledger), orders(tx, &job.orders))?;
    } else {
        orders(tx, &job.orders).await?;
        ledger(tx, &job.ledger).await?;
    }
    Ok(())
}

async fn ledger(tx: &Transaction, moves: &[Move]) -> Result<()> {
    if moves.is_empty() {
        return Ok(());
    }
    let (id, ledger) = (tx.id().to_string(), tx.postgres(LEDGER).await?);
    for (n, Move { account, cents }) in (0_i32..).zip(moves) {
        ledger.execute("UPDATE account SET cents = cents + $1 WHERE id = $2", &[cents, account]).await?;
        ledger.execute("INSERT INTO entry VALUES ($1, $2, $3, $4)", &[&id, &n, account, cents]).await?;
    }
    Ok(())
}

async fn orders(tx: &Transaction, moves: &[Move]) -> Result<()> {
    if moves.is_empty() {
        return Ok(());
    }
    let (id, mut orders) = (tx.id().to_string(), tx.mysql(ORDERS).await?);
    for (n, Move { account, cents }) in (0_i32..).zip(moves) {
        orders.query_drop(format!("UPDATE account SET cents = cents + {cents} WHERE id = {account}")).await?;
        orders.exec_drop("INSERT INTO entry VALUES (?, ?, ?, ?)", (&id, n, account, cents)).await?;
    }
    Ok(())
}

/// A statement that fails, on a branch that has worked: its row is there.
async fn fail(tx: &Transaction, job: &Job) {
    let again = format!("INSERT INTO entry VALUES ('{}', 0, 0, 0)", tx.id());
    // That it fails is what it is for; whether the server said so or was gone is the same.
    if job.orders.is_empty() {
        if let Ok(ledger) = tx.postgres(LEDGER).await {
            let _ = ledger.batch_execute(&again).await;
        }
    } else if let Ok(mut orders) = tx.mysql(ORDERS).await {
        let _ = orders.query_drop(again).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_job_makes_money() {
        let mut dice = Dice::new(1);
        for _ in 0..1000 {
            let job = Job::roll(&mut dice);
            let sum: i64 = job.ledger.iter().chain(&job.orders).map(|one| one.cents).sum();
            assert_eq!(sum, 0, "{job:?}");
            assert_eq!(job.shape().to_string().parse(), Ok(job.shape()));
        }
    }
}
