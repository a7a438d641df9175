//! The two servers, the network before them, and a directory for each client.

use super::client::Client;
use super::foreign;
use crate::servers::{ConfigBuilder, Flavor};
use crate::world::{Home, LEDGER, ORDERS, Side, deciding};
use handfast::Config;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// How many client processes there are.
pub const CLIENTS: usize = 2;
/// Accounts on each side, counted from 0.
pub const ACCOUNTS: i32 = 200;
/// What is in each at first.
pub const OPENING_BALANCE: i64 = 1_000_000;

/// What the clients sit at: small segments, so that there is much rotation and compaction, and little patience.
const SETTINGS: &str = "segment_bytes = 65536\n\
     [transaction]\ntimeout = \"6s\"\nlock_timeout = \"1s\"\napply_wait = \"1s\"\n\
     [recovery]\nbackoff_min = \"5ms\"\nbackoff_max = \"200ms\"\nstatement_timeout = \"2s\"\nopen_wait = \"2s\"\n\
     interval = \"2s\"\nlease_interval = \"1s\"\n\
     [pool]\nsize = 8\nconnect_timeout = \"2s\"\n";

/// What decides that a transaction commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decided {
    /// Records of each client's journal.
    ByJournals,
    /// The first client's transactions by PostgreSQL, the second's by the other server.
    ByParticipants,
}

/// Servers and files; all gone when it is dropped, unless it is to be [kept](Self::keep).
pub struct Stage {
    /// PostgreSQL.
    pub ledger: Side,
    /// MariaDB or MySQL.
    pub orders: Side,
    /// What is prepared on each side that is not ours.
    pub foreign: [Vec<String>; 2],
    /// Whether participants decide, for each client another one, in place of its journal.
    decided: Decided,
    /// Transactions that an audit has seen before.
    pub judged: BTreeSet<handfast::TransactionId>,
    /// The client as it was when this began, whatever is built meanwhile.
    program: PathBuf,
    directory: TempDir,
}

impl Stage {
    /// Starts servers, creates what the clients work on.
    ///
    /// # Panics
    /// When it cannot be done.
    pub async fn set(program: &str, other: Flavor, decided: Decided) -> Self {
        let (ledger, orders) = tokio::join!(Home::own(Flavor::Postgres), Home::own(other));
        let (ledger, orders) = tokio::join!(Side::new(LEDGER, ledger, "soak"), Side::new(ORDERS, orders, "soak"));
        let mut foreign = [Vec::new(), Vec::new()];
        for (side, foreign) in [&ledger, &orders].into_iter().zip(&mut foreign) {
            create(side).await;
            foreign::prepare(side).await;
            *foreign = foreign::all_prepared(side).await;
        }
        let directory = TempDir::with_prefix("handfast-soak-").expect("a directory");
        let copy = directory.path().join("soak-client");
        std::fs::copy(program, &copy).unwrap_or_else(|error| panic!("{program}: {error}"));
        let program = copy;
        let stage = Self { ledger, orders, foreign, decided, judged: BTreeSet::new(), program, directory };
        for client in 0..CLIENTS {
            std::fs::create_dir_all(stage.journal(client)).expect("a directory");
            std::fs::write(stage.answers(client), "").expect("a file");
            stage.builder(client).write(&stage.config_file(client));
        }
        stage
    }

    /// Both sides.
    pub fn sides(&self) -> [&Side; 2] {
        [&self.ledger, &self.orders]
    }

    fn builder(&self, client: usize) -> ConfigBuilder {
        let anchor = (self.decided == Decided::ByParticipants).then(|| self.sides()[client].name);
        let settings = deciding(SETTINGS, anchor);
        let builder = ConfigBuilder::new(self.journal(client)).node(&format!("soak-{client}")).section(&settings);
        self.sides().into_iter().fold(builder, |builder, side| {
            builder.participant_at(side.name, side.flavor(), &side.proxy.url(&side.database))
        })
    }

    /// The configuration of a client.
    pub fn config(&self, client: usize) -> Config {
        self.builder(client).build()
    }

    fn file(&self, client: usize, name: &str) -> PathBuf {
        self.directory.path().join(client.to_string()).join(name)
    }

    fn journal(&self, client: usize) -> PathBuf {
        self.file(client, "journal")
    }

    /// Where a client writes down what it was answered.
    pub fn answers(&self, client: usize) -> PathBuf {
        self.file(client, "answers")
    }

    /// Where a client's messages go.
    pub fn log(&self, client: usize) -> PathBuf {
        self.file(client, "log")
    }

    fn config_file(&self, client: usize) -> PathBuf {
        self.file(client, "handfast.toml")
    }

    /// Starts a client, to stop at a point by itself if one is given.
    pub fn start(&self, client: usize, seed: u64, stop: Option<&super::schedule::StopAt>) -> Client {
        let mut arguments = vec![
            self.config_file(client).into_os_string(),
            self.answers(client).into_os_string(),
            seed.to_string().into(),
        ];
        arguments.extend(stop.map(|stop| stop.to_string().into()));
        Client::start(&self.program, &arguments, &self.log(client))
    }

    /// Keeps the files beyond this value's life, for people.
    pub fn keep(&mut self) -> &Path {
        self.directory.disable_cleanup(true);
        self.directory.path()
    }
}

async fn create(side: &Side) {
    let accounts: Vec<_> = (0..ACCOUNTS).map(|id| format!("({id}, {OPENING_BALANCE})")).collect();
    let engine = if side.flavor() == Flavor::Postgres { "" } else { "ENGINE=InnoDB" };
    side.query(&format!(
        "CREATE TABLE account (id INT PRIMARY KEY, cents BIGINT NOT NULL) {engine}; \
         CREATE TABLE entry (tx VARCHAR(100), n INT, account INT NOT NULL, cents BIGINT NOT NULL, PRIMARY KEY (tx, n)) \
         {engine}; INSERT INTO account VALUES {}",
        accounts.join(", ")
    ))
    .await;
}
