//! Two databases behind proxies, a journal, and what tests of failures ask of them.
//!
//! A [`World`] is PostgreSQL as `ledger` and MariaDB or MySQL as `orders`, each with a database of the test's own and
//! a [`Proxy`] in front. A test inserts a row of one key on both sides, lets something fail, and then looks at both
//! databases directly: the key is on both or on neither, and nothing of this world is prepared any more.

use crate::proxy::Proxy;
use crate::servers::{self, ConfigBuilder, Flavor, Server};
use handfast::id::hex;
use handfast::mysql_async::prelude::Queryable;
use handfast::resolver::{Pass, Resolver};
use handfast::{Bridge, Config, ErrorKind, Outcome, Result, Transaction, TransactionId};
use std::ops::Deref;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::time::Instant;

/// How long anything that has to come true is waited for.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for a condition.
///
/// # Panics
/// When it does not come true within 30 seconds.
pub async fn eventually(what: &str, condition: impl AsyncFnMut() -> bool) {
    eventually_or(what, condition, String::new).await;
}

/// Waits for a condition, and has more to say when it does not come true.
///
/// # Panics
/// When it does not come true within 30 seconds.
pub async fn eventually_or(what: &str, mut condition: impl AsyncFnMut() -> bool, instead: impl FnOnce() -> String) {
    let deadline = Instant::now() + PATIENCE;
    while !condition().await {
        if Instant::now() > deadline {
            panic!("{what}: did not come true. {}", instead());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A server that is shared with other tests, or this test's own.
pub enum Home {
    /// Not to be killed.
    Shared(&'static Server),
    /// To do with as one likes.
    Own(Box<Server>),
}

impl Home {
    /// The shared server of a product.
    pub async fn shared(flavor: Flavor) -> Self {
        Self::Shared(servers::shared(flavor).await)
    }

    /// A new server.
    pub async fn own(flavor: Flavor) -> Self {
        Self::Own(Box::new(servers::start(flavor).await))
    }
}

impl Deref for Home {
    type Target = Server;

    fn deref(&self) -> &Server {
        match self {
            Self::Shared(server) => server,
            Self::Own(server) => server,
        }
    }
}

/// The words by which a proxy knows a step.
#[derive(Debug, Clone, Copy)]
pub struct Words {
    /// Begins a branch.
    pub begin: &'static str,
    /// Phase one.
    pub prepare: &'static str,
    /// Phase two.
    pub commit: &'static str,
    /// Rolls back a prepared branch.
    pub roll_back: &'static str,
    /// Both phases at once.
    pub one_phase: &'static str,
    /// The list of prepared branches.
    pub list: &'static str,
}

/// One database and the way to it.
pub struct Side {
    /// The participant's name.
    pub name: &'static str,
    /// Its server.
    pub server: Home,
    /// The database.
    pub database: String,
    /// What the participant connects to.
    pub proxy: Proxy,
    /// The world's node name.
    node: String,
}

/// The participant on PostgreSQL.
pub const LEDGER: &str = "ledger";
/// The participant on MariaDB or MySQL.
pub const ORDERS: &str = "orders";

impl Side {
    /// A database with the table `t (k, v)` on a server.
    pub async fn new(name: &'static str, server: Home, node: &str) -> Self {
        let database = servers::fresh_database(&server).await;
        server.query(&database, "CREATE TABLE t (k INT PRIMARY KEY, v INT NOT NULL)").await.expect("a table");
        let proxy = Proxy::start(&server).await;
        Self { name, server, database, proxy, node: node.to_owned() }
    }

    /// Its product.
    pub fn flavor(&self) -> Flavor {
        self.server.flavor()
    }

    /// The node name of its world.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// The words of its dialect.
    pub fn words(&self) -> Words {
        match self.flavor() {
            Flavor::Postgres => Words {
                begin: "SET LOCAL handfast.branch",
                prepare: "PREPARE TRANSACTION",
                commit: "COMMIT PREPARED",
                roll_back: "ROLLBACK PREPARED",
                one_phase: "'one_phase'",
                list: "FROM pg_catalog.pg_prepared_xacts WHERE database",
            },
            Flavor::MariaDb | Flavor::MySql => Words {
                begin: "XA START",
                prepare: "XA PREPARE",
                commit: "XA COMMIT",
                roll_back: "XA ROLLBACK",
                one_phase: "ONE PHASE",
                list: "XA RECOVER",
            },
        }
    }

    /// Runs statements on the server directly, past the proxy.
    ///
    /// # Panics
    /// When the server refuses.
    pub async fn query(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        self.server.query(&self.database, sql).await.unwrap_or_else(|error| panic!("{}", error.chain()))
    }

    /// The first value of a query's answer.
    ///
    /// # Panics
    /// When the server refuses.
    pub async fn value(&self, sql: &str) -> Option<String> {
        self.query(sql).await.into_iter().next().and_then(|row| row.into_iter().next().flatten())
    }

    /// The keys that can be read.
    pub async fn keys(&self) -> Vec<i32> {
        let rows = self.query("SELECT k FROM t ORDER BY k").await;
        rows.into_iter().map(|row| row[0].as_deref().expect("not null").parse().expect("a number")).collect()
    }

    /// Whether a key can be read.
    pub async fn has(&self, key: i32) -> bool {
        self.value(&format!("SELECT v FROM t WHERE k = {key}")).await.is_some()
    }

    /// Whether somebody holds a lock on a key: the row, or its place.
    pub async fn is_locked(&self, key: i32) -> bool {
        self.is_any_locked(&[key]).await
    }

    /// Whether somebody holds a lock on one of these keys.
    pub async fn is_any_locked(&self, keys: &[i32]) -> bool {
        let wait = match self.flavor() {
            Flavor::Postgres => "SET lock_timeout = '50ms'",
            Flavor::MariaDb | Flavor::MySql => "SET SESSION innodb_lock_wait_timeout = 1",
        };
        let rows: Vec<String> = keys.iter().map(|key| format!("({key}, 0)")).collect();
        let statement = format!("{wait}; BEGIN; INSERT INTO t VALUES {}; ROLLBACK", rows.join(", "));
        let answer = self.server.query(&self.database, &statement).await;
        let chain = answer.err().map(|error| error.chain()).unwrap_or_default();
        // 55P03 and 1205; a duplicate key is an answer, and no lock.
        chain.contains("lock timeout") || chain.contains("Lock wait timeout")
    }

    /// What of this world is prepared there, as the server names it, in order.
    pub async fn prepared(&self) -> Vec<String> {
        let ours = format!("hf1.{}.", self.node);
        let ours = if self.flavor() == Flavor::MySql { hex(ours.as_bytes()) } else { ours };
        let mut names = self.listed().await;
        names.retain(|name| name.to_ascii_lowercase().contains(&ours));
        // No server promises an order.
        names.sort();
        names
    }

    /// What is prepared there at all, as the server names it.
    async fn listed(&self) -> Vec<String> {
        let (sql, column) = match self.flavor() {
            Flavor::Postgres => ("SELECT gid FROM pg_prepared_xacts", 0),
            Flavor::MariaDb => ("XA RECOVER", 3),
            Flavor::MySql => ("XA RECOVER CONVERT XID", 3),
        };
        let rows = self.query(sql).await;
        rows.into_iter().filter_map(|mut row| row.swap_remove(column)).collect()
    }

    /// The texts of the ids of all that is prepared there, of whatever node.
    pub async fn prepared_of_all(&self) -> Vec<String> {
        let names = self.listed().await;
        if self.flavor() == Flavor::MySql { names.iter().map(|name| unhex(name)).collect() } else { names }
    }

    /// The ids of what of this world is prepared there, in order.
    pub async fn prepared_ids(&self) -> Vec<handfast::id::BranchId> {
        let names = self.prepared().await;
        let read = |name: &String| match self.flavor() {
            Flavor::Postgres => name.parse().expect("one of our ids"),
            Flavor::MariaDb => reunite(name),
            Flavor::MySql => reunite(&unhex(name)),
        };
        names.iter().map(read).collect()
    }

    /// Waits until nobody has a session in the database any more: what a killed program had sent before has been done.
    pub async fn sessions_are_gone(&self) {
        self.sessions_are_gone_but(0).await;
    }

    /// Waits until nobody has a session in the database any more but so many.
    pub async fn sessions_are_gone_but(&self, many: usize) {
        let others = match self.flavor() {
            Flavor::Postgres => "pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
            Flavor::MariaDb | Flavor::MySql => {
                "information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
            }
        };
        let count = format!("SELECT count(*) FROM {others}");
        let many = many.to_string();
        eventually("no other session is left", async || self.value(&count).await == Some(many.clone())).await;
    }

    /// The kinds of the witness rows of a transaction.
    pub async fn witnesses(&self, id: TransactionId) -> Vec<String> {
        let (incarnation, sequence) = (id.incarnation.to_sql(), id.sequence);
        let sql = format!(
            "SELECT kind FROM handfast_witness WHERE incarnation = {incarnation} AND sequence = {sequence} ORDER BY kind"
        );
        self.query(&sql).await.into_iter().filter_map(|mut row| row.swap_remove(0)).collect()
    }

    /// Rolls back by hand all that is prepared of this world; what a session still holds is waited for.
    pub async fn roll_back_by_hand(&self) -> usize {
        let names = self.prepared().await;
        for name in &names {
            let statement = match self.flavor() {
                Flavor::Postgres => format!("ROLLBACK PREPARED '{name}'"),
                Flavor::MariaDb | Flavor::MySql => format!("XA ROLLBACK {}", self.xid(name)),
            };
            eventually("the branch can be rolled back by hand", async || {
                self.server.query(&self.database, &statement).await.is_ok()
            })
            .await;
        }
        names.len()
    }

    /// A listed name as XA statements take it.
    fn xid(&self, name: &str) -> String {
        let text = if self.flavor() == Flavor::MySql { unhex(name) } else { name.to_owned() };
        let branch: handfast::id::BranchId = reunite(&text);
        branch.xid_sql()
    }

    /// The connections of a world's pool: those on which a branch has begun.
    pub fn branch_connections(&self) -> Vec<u32> {
        let begun = self.proxy.messages().into_iter().filter(|message| message.text.contains(self.words().begin));
        begun.map(|message| message.connection).collect()
    }
}

fn unhex(text: &str) -> String {
    let digits = text.trim_start_matches("0x").trim_start_matches("0X").as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("hexadecimal");
    String::from_utf8(digits.chunks(2).map(byte).collect()).expect("our ids are ASCII")
}

/// A global and a branch part, listed without anything between: `hf1.node.incarnation.sequence` and `0.3`. Where the
/// one ends is not told; every place is tried that gives an id whose participant has one digit.
fn reunite(text: &str) -> handfast::id::BranchId {
    let (head, slot) = text.rsplit_once('.').expect("a branch part");
    let (global, participant) = head.split_at(head.len() - 1);
    format!("{global}.{participant}.{slot}").parse().expect("one of our ids")
}

/// Two databases and a journal.
pub struct World {
    /// PostgreSQL.
    pub ledger: Side,
    /// MariaDB or MySQL.
    pub orders: Side,
    /// The journal's directory.
    pub journal: TempDir,
    node: String,
}

impl World {
    /// On shared servers.
    pub async fn new(other: Flavor) -> Self {
        Self::on(Home::shared(Flavor::Postgres).await, Home::shared(other).await).await
    }

    /// On servers of its choice.
    ///
    /// # Panics
    /// When there is no room for a journal.
    pub async fn on(ledger: Home, orders: Home) -> Self {
        let node = servers::unique("n").replace('_', "-");
        let (ledger, orders) = tokio::join!(Side::new(LEDGER, ledger, &node), Side::new(ORDERS, orders, &node));
        Self { ledger, orders, journal: TempDir::new().expect("a directory"), node }
    }

    /// Both sides.
    pub fn sides(&self) -> [&Side; 2] {
        [&self.ledger, &self.orders]
    }

    /// The other side.
    pub fn other(&self, side: &Side) -> &Side {
        if side.name == LEDGER { &self.orders } else { &self.ledger }
    }

    /// The configuration, with sections added: small, impatient, through the proxies.
    pub fn builder(&self, sections: &str) -> ConfigBuilder {
        self.builder_at(self.journal.path(), sections)
    }

    /// The same with another path to the journal.
    pub fn builder_at(&self, journal: &Path, sections: &str) -> ConfigBuilder {
        let defaults = [
            ("[transaction]", "timeout = \"20s\"\nlock_timeout = \"5s\"\n"),
            (
                "[recovery]",
                "backoff_min = \"5ms\"\nbackoff_max = \"50ms\"\nstatement_timeout = \"2s\"\nopen_wait = \"5s\"\n",
            ),
            ("[pool]", "size = 4\n"),
        ];
        let mut text = String::from("segment_bytes = 65536\n");
        for (section, lines) in defaults {
            text.push_str(&merged(section, lines, sections));
        }
        let builder = ConfigBuilder::new(journal).node(&self.node).section(&text);
        let with = |builder: ConfigBuilder, side: &Side| {
            builder.participant_at(side.name, side.flavor(), &side.proxy.url(&side.database))
        };
        with(with(builder, &self.ledger), &self.orders)
    }

    /// The configuration.
    pub fn config(&self, sections: &str) -> Config {
        self.builder(sections).build()
    }

    /// Opens a bridge.
    ///
    /// # Panics
    /// When it does not open.
    pub async fn open(&self) -> Bridge {
        self.open_with("").await
    }

    /// Opens a bridge with sections added to its configuration.
    ///
    /// # Panics
    /// When it does not open.
    pub async fn open_with(&self, sections: &str) -> Bridge {
        let opening = Bridge::open(self.config(sections)).await;
        opening.unwrap_or_else(|error| panic!("{}", error.chain()))
    }

    /// One pass after another by a resolver that holds the journal, until one is complete or something is damaged.
    ///
    /// # Panics
    /// When that takes more than 30 seconds.
    pub async fn recover(&self) -> Pass {
        self.recover_with("").await
    }

    /// The same, with sections added to the configuration.
    ///
    /// # Panics
    /// As [`recover`](Self::recover).
    pub async fn recover_with(&self, sections: &str) -> Pass {
        let resolver = Resolver::open(self.config(sections)).unwrap_or_else(|error| panic!("{}", error.chain()));
        let deadline = Instant::now() + PATIENCE;
        loop {
            let pass = resolver.sweep(&|_| {}).await;
            let damaged = pass.left.transactions.iter().any(|one| one.outcome == Outcome::Damaged);
            if pass.is_complete() || damaged {
                resolver.close().await.expect("the journal closes");
                return pass;
            }
            assert!(Instant::now() < deadline, "recovery is not complete: {:#?}", pass.left);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until nothing of this world is prepared anywhere.
    pub async fn nothing_is_prepared(&self) {
        for side in self.sides() {
            eventually(&format!("nothing is prepared at {}", side.name), async || side.prepared().await.is_empty())
                .await;
        }
    }

    /// The end of a test: the key is on both sides, nothing is prepared.
    pub async fn is_on_both(&self, key: i32) {
        self.nothing_is_prepared().await;
        assert_eq!((self.ledger.has(key).await, self.orders.has(key).await), (true, true), "key {key}");
    }

    /// The end of a test: the key is on neither side, nothing is prepared, nothing is locked.
    pub async fn is_nowhere(&self, key: i32) {
        self.nothing_is_prepared().await;
        assert_eq!((self.ledger.has(key).await, self.orders.has(key).await), (false, false), "key {key}");
        for side in self.sides() {
            eventually(&format!("key {key} is not locked at {}", side.name), async || !side.is_locked(key).await).await;
        }
    }

    /// The key is there or not as the outcome says, on both sides.
    pub async fn agrees(&self, key: i32, outcome: Outcome) {
        match outcome {
            Outcome::Committed => self.is_on_both(key).await,
            Outcome::RolledBack => self.is_nowhere(key).await,
            other => panic!("{other:?} is no end"),
        }
    }
}

/// A section with a test's own lines in front of the defaults that they do not replace.
fn merged(section: &str, defaults: &str, own: &str) -> String {
    let mut lines: Vec<&str> = Vec::new();
    let mut inside = false;
    for line in own.lines() {
        if line.starts_with('[') {
            inside = line == section;
        } else if inside {
            lines.push(line);
        }
    }
    let key = |line: &str| line.split('=').next().unwrap_or_default().trim().to_owned();
    let mine: Vec<String> = lines.iter().map(|line| key(line)).collect();
    lines.extend(defaults.lines().filter(|line| !mine.contains(&key(line))));
    format!("{section}\n{}\n", lines.join("\n"))
}

/// Inserts a key on one side.
///
/// # Errors
/// What the branch or the statement says.
pub async fn insert_at(tx: &Transaction, side: &str, key: i32) -> Result<()> {
    let statement = format!("INSERT INTO t VALUES ({key}, 1)");
    if side.starts_with(LEDGER) {
        tx.postgres(side).await?.batch_execute(&statement).await?;
    } else {
        tx.mysql(side).await?.query_drop(statement).await?;
    }
    Ok(())
}

/// Begins a transaction and inserts a key on both sides.
///
/// # Errors
/// The first one's.
pub async fn try_insert(bridge: &Bridge, key: i32) -> Result<Transaction> {
    let tx = bridge.begin().await?;
    tokio::try_join!(insert_at(&tx, LEDGER, key), insert_at(&tx, ORDERS, key))?;
    Ok(tx)
}

/// Begins a transaction and inserts a key on both sides.
///
/// # Panics
/// When one refuses.
pub async fn insert(bridge: &Bridge, key: i32) -> Transaction {
    try_insert(bridge, key).await.unwrap_or_else(|error| panic!("{}", error.chain()))
}

/// The name of the other side of a world.
pub fn other_than(name: &str) -> &'static str {
    if name == LEDGER { ORDERS } else { LEDGER }
}

/// Sections of a configuration, with the participant in theirs of transactions that decides, if one does.
pub fn deciding(sections: &str, anchor: Option<&str>) -> String {
    let decision = anchor.map(|anchor| format!("[transaction]\ndecision = \"{anchor}\"\n"));
    sections.replacen("[transaction]\n", decision.as_deref().unwrap_or("[transaction]\n"), 1)
}

/// Commits what [`insert`] began, if need be in a second run: where the lease was lost with its connection, what was prepared
/// before it is held again is rolled back, and the answer says to run it again.
///
/// # Panics
/// When it is not committed for another reason, or not by the second run.
pub async fn commits(bridge: &Bridge, tx: Transaction, key: i32) {
    match tx.commit().await {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::Retry => {
            let again = bridge.transaction(async move |tx| {
                tokio::try_join!(insert_at(tx, LEDGER, key), insert_at(tx, ORDERS, key)).map(drop)
            });
            again.await.unwrap_or_else(|error| panic!("{}", error.chain()));
        }
        Err(error) => panic!("{}", error.cause().chain()),
    }
}

/// Waits until a transaction's outcome is certain.
///
/// # Panics
/// When that takes more than 30 seconds.
pub async fn settled(bridge: &Bridge, id: TransactionId) -> Outcome {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let outcome = bridge.outcome(id).await.unwrap_or_else(|error| panic!("{}", error.chain()));
        if outcome != Outcome::InDoubt {
            return outcome;
        }
        assert!(Instant::now() < deadline, "{id} stays in doubt: {:#?}", bridge.status());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A program that can crash: a bridge on a runtime of its own.
pub struct Program {
    runtime: Runtime,
    /// Its bridge.
    pub bridge: Bridge,
}

impl Program {
    /// Opens a bridge.
    ///
    /// # Panics
    /// When it does not open.
    pub async fn start(config: Config) -> Self {
        Self::try_start(config).await.unwrap_or_else(|error| panic!("{}", error.chain()))
    }

    /// Opens a bridge.
    ///
    /// # Errors
    /// What opening says.
    pub async fn try_start(config: Config) -> Result<Self> {
        let runtime = servers::runtime();
        let opening = runtime.spawn(Bridge::open(config)).await.expect("opening does not panic");
        match opening {
            Ok(bridge) => Ok(Self { runtime, bridge }),
            Err(error) => {
                stop(runtime).await;
                Err(error)
            }
        }
    }

    /// A program whose bridge was opened on this runtime.
    pub fn of(runtime: Runtime, bridge: Bridge) -> Self {
        Self { runtime, bridge }
    }

    /// Runs something on its runtime.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.runtime.spawn(work)
    }

    /// Inserts a key on both sides and begins to commit; the id.
    ///
    /// # Panics
    /// When a statement fails.
    pub async fn begin_commit(&self, key: i32) -> TransactionId {
        let bridge = self.bridge.clone();
        let tx = self.spawn(async move { insert(&bridge, key).await }).await.expect("inserting does not panic");
        let id = tx.id();
        self.spawn(tx.commit());
        id
    }

    /// Everything it was doing stops where it is; its sockets close.
    pub async fn crash(self) {
        let Self { runtime, bridge } = self;
        drop(bridge);
        stop(runtime).await;
    }
}

/// Stops a runtime, and all that works on it where it is.
///
/// # Panics
/// When something on it has panicked.
pub async fn stop(runtime: Runtime) {
    let stopping = tokio::task::spawn_blocking(move || runtime.shutdown_timeout(Duration::from_secs(10)));
    stopping.await.expect("a runtime stops");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tests_own_lines_replace_the_defaults() {
        let own = "[pool]\nsize = 1\n[recovery]\ninterval = \"1s\"\nopen_wait = \"1s\"\n";
        let merged = merged("[recovery]", "backoff_min = \"5ms\"\nopen_wait = \"5s\"\n", own);
        assert_eq!(merged, "[recovery]\ninterval = \"1s\"\nopen_wait = \"1s\"\nbackoff_min = \"5ms\"\n");
    }

    #[test]
    fn listed_names_are_read_back() {
        let id: handfast::id::BranchId = "hf1.n12-3.9f3c2a7b11d0e842.1042.1.13".parse().unwrap();
        assert_eq!(reunite(&format!("{}{}", id.gtrid(), id.bqual())), id);
        assert_eq!(unhex("0x686631"), "hf1");
    }
}
