//! Holds what the application was told against what the databases hold.

use super::answers::{self, Noted, Shape};
use super::chaos::Kills;
use super::stage::Stage;
use crate::cli::exit::Exit;
use crate::error::{Error, ErrorKind, Result};
use crate::id::TransactionId;
use crate::participant::Sighted;
use crate::protocol::Outcome;
use crate::protocol::recovery::Action;
use crate::resolver::Resolver;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

/// What came of it all. Every number is counted from the databases and the answers written down.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    schema: u32,
    /// `clean` or `damaged`.
    status: Exit,
    seed: u64,
    servers: String,
    transactions: usize,
    answered_committed: usize,
    answered_rolled_back: usize,
    kills: Kills,
    /// Transactions that the application had no answer for, or *in doubt*, by what became of them.
    settled_committed: usize,
    settled_rolled_back: usize,
    /// Answers that were held against both databases.
    answers_checked: usize,
    atomicity_violations: usize,
    lost_acknowledged_commits: usize,
    /// Answered *rolled back*, yet there.
    false_rollbacks: usize,
    /// Asked for by id afterwards, and told something else than the databases hold.
    wrong_outcomes: usize,
    left_prepared: usize,
    /// Cents that came from nowhere or went there.
    money_missing: i64,
    /// The first few transactions that something is wrong with.
    examples: Vec<String>,
}

/// What the databases hold.
struct Held {
    ledger: BTreeSet<String>,
    orders: BTreeSet<String>,
}

impl Summary {
    /// Recovers until nothing is left to do, then counts.
    pub async fn count(stage: &Stage, seed: u64, kills: Kills) -> Result<Self> {
        let noted = answers::read::<Shape>(&stage.answers())?;
        let resolver = Resolver::open(stage.config()?)?;
        recover(&resolver).await?;
        let held = Held::read(stage).await?;
        let mut summary = Self::empty(stage, seed, kills, noted.len());
        summary.judge_all(&resolver, &held, &noted).await?;
        let strangers = held.ids().filter(|id| id.parse().map_or(true, |id: TransactionId| !noted.contains_key(&id)));
        summary.atomicity_violations += strangers.count();
        summary.left_prepared = left_prepared(&resolver).await?;
        summary.money_missing = Stage::money() - money(stage).await?;
        resolver.close().await?;
        summary.status = if summary.is_clean() { Exit::Clean } else { Exit::Damaged };
        Ok(summary)
    }

    fn empty(stage: &Stage, seed: u64, kills: Kills, transactions: usize) -> Self {
        Self {
            schema: 1,
            status: Exit::Clean,
            seed,
            servers: stage.describe(),
            transactions,
            answered_committed: 0,
            answered_rolled_back: 0,
            kills,
            settled_committed: 0,
            settled_rolled_back: 0,
            answers_checked: 0,
            atomicity_violations: 0,
            lost_acknowledged_commits: 0,
            false_rollbacks: 0,
            wrong_outcomes: 0,
            left_prepared: 0,
            money_missing: 0,
            examples: Vec::new(),
        }
    }

    /// Clean when nothing was lost, invented or left behind.
    pub fn status(&self) -> Exit {
        self.status
    }

    fn is_clean(&self) -> bool {
        let wrong = self.atomicity_violations
            + self.lost_acknowledged_commits
            + self.false_rollbacks
            + self.wrong_outcomes
            + self.left_prepared;
        wrong == 0 && self.money_missing == 0
    }

    async fn judge_all(
        &mut self,
        resolver: &Resolver,
        held: &Held,
        noted: &BTreeMap<TransactionId, Noted<Shape>>,
    ) -> Result<()> {
        for (id, noted) in noted {
            let truth = held.outcome(*id, noted.shape);
            self.judge(*id, noted.answer, truth);
            // What has no answer is asked for by id, as the application would after its crash.
            if !matches!(noted.answer, Some(Outcome::Committed | Outcome::RolledBack)) {
                let told = resolver.outcome(*id).await?;
                if Some(told) != truth {
                    self.wrong_outcomes += 1;
                    self.example(format!("{id}: asked for its outcome, told {told:?}; the databases say {truth:?}"));
                }
            }
        }
        Ok(())
    }

    fn judge(&mut self, id: TransactionId, answer: Option<Outcome>, truth: Option<Outcome>) {
        let Some(truth) = truth else {
            self.atomicity_violations += 1;
            return self.example(format!("{id}: half of it is there; answered {answer:?}"));
        };
        match (answer, truth) {
            (Some(Outcome::Committed), Outcome::Committed) => self.answered_committed += 1,
            (Some(Outcome::Committed), _) => {
                self.lost_acknowledged_commits += 1;
                self.example(format!("{id}: answered committed, and is not there"));
            }
            (Some(Outcome::RolledBack), Outcome::RolledBack) => self.answered_rolled_back += 1,
            (Some(Outcome::RolledBack), _) => {
                self.false_rollbacks += 1;
                self.example(format!("{id}: answered rolled back, and is there"));
            }
            (_, Outcome::Committed) => self.settled_committed += 1,
            (_, _) => self.settled_rolled_back += 1,
        }
        self.answers_checked += 1;
    }

    fn example(&mut self, text: String) {
        if self.examples.len() < 10 {
            self.examples.push(text);
        }
    }
}

impl Held {
    async fn read(stage: &Stage) -> Result<Self> {
        let ledger = stage.postgres.query("ledger", "SELECT id FROM transfer").await?;
        let orders = stage.mysql.query("orders", "SELECT id FROM payment").await?;
        let ids = |rows: Vec<Vec<Option<String>>>| rows.into_iter().flatten().flatten().collect();
        Ok(Self { ledger: ids(ledger), orders: ids(orders) })
    }

    fn ids(&self) -> impl Iterator<Item = &String> {
        self.ledger.union(&self.orders)
    }

    /// How a transaction ended by what is there; `None` when half of it is.
    fn outcome(&self, id: TransactionId, shape: Shape) -> Option<Outcome> {
        let id = id.to_string();
        let (ledger, orders) = (self.ledger.contains(&id), self.orders.contains(&id));
        let expected = match shape {
            Shape::Both => (true, true),
            Shape::Ledger => (true, false),
            Shape::Orders => (false, true),
        };
        match (ledger, orders) {
            (false, false) => Some(Outcome::RolledBack),
            there => (there == expected).then_some(Outcome::Committed),
        }
    }
}

/// Passes until one finds nothing to do, and everything answered.
async fn recover(resolver: &Resolver) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let pass = resolver.sweep(&|_| {}).await;
        if pass.is_complete() {
            return Ok(());
        }
        let trouble = pass.view.participants.iter().find_map(|seen| seen.trouble.as_ref().map(Error::chain));
        let open = pass.left.transactions.iter().find(|one| one.action == Action::Wait);
        let why = trouble.or_else(|| open.map(|one| format!("{} waits", one.id)));
        let why = why.or_else(|| pass.unsettled.first().map(|one| one.cause.clone())).unwrap_or_default();
        if Instant::now() > deadline {
            return Err(Error::new(ErrorKind::InDoubt, format!("recovery did not come to an end in a minute: {why}")));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn left_prepared(resolver: &Resolver) -> Result<usize> {
    let mut left = 0;
    for seen in resolver.observe().await.participants {
        if let Some(trouble) = seen.trouble {
            return Err(trouble);
        }
        left += seen.sightings.iter().filter(|sighting| matches!(sighting.branch, Sighted::Ours(_))).count();
    }
    Ok(left)
}

async fn money(stage: &Stage) -> Result<i64> {
    let ledger = stage.postgres.value("ledger", "SELECT sum(cents)::bigint FROM account").await?;
    let orders = stage.mysql.value("orders", "SELECT CAST(coalesce(sum(cents), 0) AS SIGNED) FROM payment").await?;
    let cents = |text: Option<String>| text.and_then(|text| text.parse::<i64>().ok());
    cents(ledger)
        .zip(cents(orders))
        .map(|(ledger, orders)| ledger + orders)
        .ok_or_else(|| Error::new(ErrorKind::Setup, "the databases do not tell their sums"))
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kills = self.kills;
        let settled = self.settled_committed + self.settled_rolled_back;
        writeln!(f, "{}", self.servers)?;
        writeln!(f, "seed                        {}", self.seed)?;
        writeln!(f, "transactions                {}", self.transactions)?;
        writeln!(f, "  answered committed        {}", self.answered_committed)?;
        writeln!(f, "  answered rolled back      {}", self.answered_rolled_back)?;
        let (a, p, m) = (kills.application, kills.postgres, kills.mysql);
        writeln!(f, "kills                       {a} application, {p} PostgreSQL, {m} MySQL/MariaDB")?;
        let (c, r) = (self.settled_committed, self.settled_rolled_back);
        writeln!(f, "in doubt, settled           {settled} ({c} committed / {r} rolled back)")?;
        writeln!(f, "answers checked             {} against both databases", self.answers_checked)?;
        writeln!(f, "atomicity violations:       {}", self.atomicity_violations)?;
        writeln!(f, "lost acknowledged commits:  {}", self.lost_acknowledged_commits)?;
        writeln!(f, "false rollbacks:            {}", self.false_rollbacks)?;
        writeln!(f, "wrong outcomes:             {}", self.wrong_outcomes)?;
        writeln!(f, "left prepared:              {}", self.left_prepared)?;
        writeln!(f, "cents missing:              {}", self.money_missing)?;
        for example in &self.examples {
            writeln!(f, "  {example}")?;
        }
        Ok(())
    }
}
