//! Recovers, and holds what the clients were told against what the databases hold.

use super::foreign;
use super::stage::{ACCOUNTS, CLIENTS, OPENING_BALANCE, Stage};
use super::teller::Shape;
use crate::servers::Flavor;
use crate::world::Side;
use handfast::cli::demo::answers::{self, Noted};
use handfast::resolver::Resolver;
use handfast::{Outcome, TransactionId};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// How long recovery may take when nothing is broken.
const PATIENCE: Duration = Duration::from_secs(60);
/// Of so many transactions of earlier rounds one is asked for again.
const AGAIN: usize = 50;

/// What an audit found.
#[derive(Default)]
pub struct Audit {
    /// Transactions that were not judged before.
    pub judged: u64,
    /// What is wrong.
    pub violations: Vec<String>,
    /// In one line.
    pub summary: String,
    counts: BTreeMap<&'static str, u64>,
}

/// How many entries a transaction has on each side.
type Held = [BTreeMap<TransactionId, usize>; 2];

/// Recovers each client's journal, and judges.
///
/// # Panics
/// When a database or a client's notes cannot be read.
pub async fn audit(stage: &mut Stage) -> Audit {
    let mut audit = Audit::default();
    let mut resolvers = Vec::new();
    for client in 0..CLIENTS {
        match recovered(stage, client).await {
            Ok(resolver) => resolvers.push(resolver),
            Err(why) => {
                audit.violations.push(format!("client {client}: {why}"));
                return audit;
            }
        }
    }
    let held = [entries(&stage.ledger).await, entries(&stage.orders).await];
    for (client, resolver) in resolvers.iter().enumerate() {
        let noted = answers::read::<Shape>(&stage.answers(client)).unwrap_or_else(|error| panic!("{}", error.chain()));
        audit.strangers(client, &held, &noted);
        for (n, (id, noted)) in noted.iter().enumerate() {
            let is_new = stage.judged.insert(*id);
            let told = if is_new || n % AGAIN == 0 { Some(resolver.outcome(*id).await) } else { None };
            audit.judge(*id, *noted, truth(&held, *id, noted.shape), told, is_new);
        }
    }
    for (side, foreign) in stage.sides().into_iter().zip(&stage.foreign) {
        audit.prepared(side, foreign).await;
        audit.money(side).await;
        audit.locks(side).await;
    }
    audit.total(stage).await;
    for resolver in resolvers {
        if let Err(error) = resolver.close().await {
            audit.violations.push(format!("the journal does not close: {}", error.chain()));
        }
    }
    let counts: Vec<_> = audit.counts.iter().map(|(what, count)| format!("{what} {count}")).collect();
    audit.summary = format!("{} transactions: {}", audit.judged, counts.join(", "));
    audit
}

/// A resolver that has nothing left to do.
async fn recovered(stage: &Stage, client: usize) -> Result<Resolver, String> {
    let resolver = Resolver::open(stage.config(client)).map_err(|error| error.chain())?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let pass = resolver.sweep(&|_| {}).await;
        if pass.is_complete() {
            let damaged: Vec<_> = pass.left.damages().map(|(id, _)| id.to_string()).collect();
            return if damaged.is_empty() { Ok(resolver) } else { Err(format!("damaged: {}", damaged.join(", "))) };
        }
        if Instant::now() > deadline {
            let refused = pass.refused.map(|error| error.chain());
            return Err(format!(
                "recovery is not complete after {PATIENCE:?}: refused {refused:?}, unsettled {:?}, left {:#?}",
                pass.unsettled, pass.left
            ));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn entries(side: &Side) -> BTreeMap<TransactionId, usize> {
    let rows = side.query("SELECT tx, COUNT(*) FROM entry GROUP BY tx").await;
    let read = |row: Vec<Option<String>>| {
        let [tx, count] = row.try_into().expect("two columns");
        let text = |value: Option<String>| value.expect("not null");
        (text(tx).parse().expect("an id"), text(count).parse().expect("a number"))
    };
    rows.into_iter().map(read).collect()
}

/// What became of a transaction: `None` for half of it. One that writes nothing has left no trace.
fn truth(held: &Held, id: TransactionId, shape: Shape) -> Option<Outcome> {
    let [ledger, orders] = [0, 1].map(|side| held[side].get(&id).copied().unwrap_or_default());
    match (ledger, orders) {
        (0, 0) => Some(Outcome::RolledBack),
        (l, o) if (l, o) == (shape.ledger, shape.orders) => Some(Outcome::Committed),
        _ => None,
    }
}

impl Audit {
    fn judge(
        &mut self,
        id: TransactionId,
        noted: Noted<Shape>,
        truth: Option<Outcome>,
        told: Option<handfast::Result<Outcome>>,
        is_new: bool,
    ) {
        let writes = noted.shape.ledger + noted.shape.orders > 0;
        let Some(truth) = truth else {
            return self.violations.push(format!("{id}: not whole, {}; answered {:?}", noted.shape, noted.answer));
        };
        let certain = matches!(noted.answer, Some(Outcome::Committed | Outcome::RolledBack));
        if noted.answer == Some(Outcome::Damaged) || certain && writes && noted.answer != Some(truth) {
            self.violations.push(format!("{id}: answered {:?}, and it is {truth:?}", noted.answer));
        }
        match told {
            None => {}
            Some(Err(error)) => self.violations.push(format!("{id}: no outcome: {}", error.chain())),
            Some(Ok(told)) if told == truth || !writes && told == Outcome::Committed => {}
            Some(Ok(told)) => self.violations.push(format!("{id}: told {told:?} by id, and it is {truth:?}")),
        }
        if is_new {
            self.judged += 1;
            *self.counts.entry(what(noted.answer, truth)).or_default() += 1;
        }
    }

    /// What nobody began.
    fn strangers(&mut self, client: usize, held: &Held, noted: &BTreeMap<TransactionId, Noted<Shape>>) {
        let node = format!("soak-{client}");
        let ids = held.iter().flat_map(BTreeMap::keys).filter(|id| id.node.as_str() == node);
        let strangers = ids.filter(|id| !noted.contains_key(*id));
        self.violations.extend(strangers.map(|id| format!("{id}: nobody began it, and it is there")));
    }

    async fn prepared(&mut self, side: &Side, foreign: &[String]) {
        let there = foreign::all_prepared(side).await;
        if there != foreign {
            self.violations.push(format!("prepared at {}: {there:?}; of others: {foreign:?}", side.name));
        }
    }

    /// Every account has what its entries say.
    async fn money(&mut self, side: &Side) {
        let sql = format!(
            "SELECT a.id FROM account a LEFT JOIN (SELECT account, SUM(cents) AS moved FROM entry GROUP BY account) e \
             ON e.account = a.id WHERE a.cents <> {OPENING_BALANCE} + COALESCE(e.moved, 0)"
        );
        for row in side.query(&sql).await {
            self.violations.push(format!("account {row:?} at {} has not what its entries say", side.name));
        }
    }

    /// Nobody holds an account any more.
    async fn locks(&mut self, side: &Side) {
        let wait = match side.flavor() {
            Flavor::Postgres => "SET lock_timeout = '1s'",
            Flavor::MariaDb | Flavor::MySql => "SET SESSION innodb_lock_wait_timeout = 1",
        };
        let statements = format!("{wait}; BEGIN; SELECT id FROM account FOR UPDATE; ROLLBACK");
        if let Err(error) = side.server.query(&side.database, &statements).await {
            self.violations.push(format!("an account is locked at {}: {}", side.name, error.chain()));
        }
    }

    async fn total(&mut self, stage: &Stage) {
        let mut sum = 0;
        for side in stage.sides() {
            let cents = side.value("SELECT SUM(cents) FROM account").await.expect("there are accounts");
            sum += cents.parse::<i64>().expect("a number");
        }
        let missing = 2 * i64::from(ACCOUNTS) * OPENING_BALANCE - sum;
        if missing != 0 {
            self.violations.push(format!("{missing} cents are missing"));
        }
    }
}

fn what(answer: Option<Outcome>, truth: Outcome) -> &'static str {
    match (answer, truth) {
        (Some(Outcome::Committed), _) => "answered committed",
        (Some(Outcome::RolledBack), _) => "answered rolled back",
        (Some(_), _) => "in doubt",
        (None, Outcome::Committed) => "no answer, committed",
        (None, _) => "no answer, rolled back",
    }
}
