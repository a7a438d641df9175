//! What the examples have in common: databases of their own on the servers whose URLs they are given, and a program to
//! kill. Nothing here is needed by an application, which has databases, and is killed by others.

// Each example uses its part of this.
#![allow(dead_code)]

use handfast::mysql_async::{self, prelude::Queryable};
use handfast::{Bridge, Config, Outcome, Transaction, TransactionId, tokio_postgres};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// The result of what can fail in any way.
pub type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// Databases that this run has created, and a directory for journal and configuration. [`clear`](Self::clear) drops
/// the databases.
pub struct Stage {
    databases: BTreeMap<&'static str, Database>,
    // A temporary directory serves an example. A program needs a disk that keeps what it synced.
    directory: tempfile::TempDir,
}

struct Database {
    server: String,
    name: String,
    is_postgres: bool,
}

impl Stage {
    /// A database for each name, with these tables, on the servers whose URLs are this program's arguments: PostgreSQL
    /// first. A name without an argument of its own is put on the last server.
    pub async fn set(example: &str, participants: &[(&'static str, &str)]) -> Result<Self> {
        let urls: Vec<String> = std::env::args().skip(1).collect();
        let [first, .., last] = urls.as_slice() else {
            let usage = "POSTGRES_URL MYSQL_URL, as `make servers` prints them";
            return Err(format!("cargo run --example {example} -- {usage}").into());
        };
        if !first.starts_with("postgres") || urls[1..].iter().any(|url| !url.starts_with("mysql")) {
            return Err("PostgreSQL's URL comes first, then those of MySQL or MariaDB".into());
        }
        let mut stage = Self { databases: BTreeMap::new(), directory: tempfile::tempdir()? };
        std::fs::create_dir(stage.directory.path().join("journal"))?;
        for (number, (name, tables)) in participants.iter().enumerate() {
            let url = urls.get(number).unwrap_or(last);
            let (server, _) = url.rsplit_once('/').ok_or("the URL ends in /DATABASE")?;
            let database = format!("example_{example}_{}_{name}", std::process::id());
            run(url, &format!("CREATE DATABASE {database}")).await?;
            let is_postgres = url.starts_with("postgres");
            let database = Database { server: server.to_owned(), name: database, is_postgres };
            run(&database.url(), tables).await?;
            stage.databases.insert(name, database);
        }
        std::fs::write(stage.config_path(), stage.toml())?;
        Ok(stage)
    }

    /// The configuration as an application has it in a file.
    pub fn config(&self) -> Result<Config> {
        Ok(Config::load(self.config_path())?)
    }

    /// Where that file is.
    pub fn config_path(&self) -> PathBuf {
        self.directory.path().join("handfast.toml")
    }

    fn toml(&self) -> String {
        let journal = self.directory.path().join("journal");
        let mut toml = format!("node = \"example\"\n[journal]\ndirectory = {journal:?}\n");
        for (name, database) in &self.databases {
            let kind = if database.is_postgres { "postgres" } else { "mysql" };
            toml += &format!("[participants.{name}]\nkind = \"{kind}\"\nurl = {:?}\n", database.url());
        }
        toml
    }

    /// Asks a database directly, as anybody could: the numbers in the first column.
    pub async fn numbers(&self, participant: &str, query: &str) -> Result<Vec<i64>> {
        run(&self.databases[participant].url(), query).await
    }

    /// The first of these.
    pub async fn number(&self, participant: &str, query: &str) -> Result<i64> {
        Ok(*self.numbers(participant, query).await?.first().ok_or("no row")?)
    }

    /// Drops the databases. What fails before leaves them there, to be looked at.
    pub async fn clear(self) -> Result<()> {
        for database in self.databases.values() {
            let last = if database.is_postgres { "postgres" } else { "mysql" };
            run(&format!("{}/{last}", database.server), &format!("DROP DATABASE {}", database.name)).await?;
        }
        Ok(())
    }
}

impl Database {
    fn url(&self) -> String {
        format!("{}/{}", self.server, self.name)
    }
}

/// Runs statements on a session of their own, outside every transaction of Handfast.
async fn run(url: &str, sql: &str) -> Result<Vec<i64>> {
    if url.starts_with("mysql") {
        let mut session = mysql_async::Conn::new(mysql_async::Opts::from_url(url)?).await?;
        let numbers = session.query(sql).await?;
        session.disconnect().await?;
        return Ok(numbers);
    }
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    let connection = tokio::spawn(connection);
    let answers = client.simple_query(sql).await?;
    drop(client);
    connection.await??;
    let mut numbers = Vec::new();
    for answer in answers {
        if let tokio_postgres::SimpleQueryMessage::Row(row) = answer {
            numbers.push(row.get(0).unwrap_or_default().parse()?);
        }
    }
    Ok(numbers)
}

/// The table in which the program to kill writes what it does.
pub const ENTRY: &str = "CREATE TABLE entry (n bigint PRIMARY KEY)";

/// What a transaction of the program that was killed had written, and was told.
pub struct Begun {
    pub id: TransactionId,
    pub entry: i64,
    pub was_told: Option<Outcome>,
}

/// Runs this very program again as one that works until it is killed, and kills it in the middle of its work.
pub fn crash(stage: &Stage) -> Result<Vec<Begun>> {
    let mut program = Command::new(std::env::current_exe()?)
        .args([CRASHING.as_ref(), stage.config_path().as_os_str()])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut begun: Vec<Begun> = Vec::new();
    let mut killed = false;
    // What it had said before it was killed can still be read.
    for line in BufReader::new(program.stdout.take().ok_or("its output")?).lines() {
        let line = line?;
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["begun", entry, id] => begun.push(Begun { id: id.parse()?, entry: entry.parse()?, was_told: None }),
            ["told", entry, outcome] => {
                let entry: i64 = entry.parse()?;
                let one = begun.iter_mut().find(|one| one.entry == entry).ok_or("it was begun")?;
                one.was_told = OUTCOMES.into_iter().find(|one| one.as_str() == outcome);
            }
            _ => return Err(format!("the program said {line:?}").into()),
        }
        if !killed && begun.iter().filter(|one| one.was_told.is_some()).count() >= 20 {
            program.kill()?;
            killed = true;
        }
    }
    // Once it is gone, so is its lock on the journal.
    program.wait()?;
    if killed { Ok(begun) } else { Err("the program ended by itself".into()) }
}

const OUTCOMES: [Outcome; 4] = [Outcome::Committed, Outcome::RolledBack, Outcome::InDoubt, Outcome::Damaged];
const CRASHING: &str = "work-until-killed";

/// If this run is the program to kill: the configuration that it is to work with.
pub fn is_to_crash() -> Option<String> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next()? == CRASHING { arguments.next() } else { None }
}

/// Inserts one number after the other in `ledger` and in `orders`, four at once, until it is killed.
pub async fn work_until_killed(config: &str) -> Result<()> {
    let bridge = Bridge::open(Config::load(config)?).await?;
    // Numbers that no earlier program has used.
    let (next, first) = (Arc::new(AtomicI64::new(1)), i64::from(std::process::id()) * 1_000_000);
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let (bridge, next) = (bridge.clone(), next.clone());
            tokio::spawn(async move {
                loop {
                    enter(&bridge, first + next.fetch_add(1, Ordering::Relaxed)).await?;
                }
            })
        })
        .collect();
    for worker in workers {
        let never: Result<()> = worker.await?;
        never?;
    }
    Ok(())
}

async fn enter(bridge: &Bridge, entry: i64) -> Result<()> {
    let tx = bridge.begin().await?;
    write(&tx, entry).await?;
    say(&format!("begun {entry} {}", tx.id()))?;
    let outcome = tx.commit().await.map_or_else(|error| error.outcome(), |_| Outcome::Committed);
    say(&format!("told {entry} {}", outcome.as_str()))
}

async fn write(tx: &Transaction, entry: i64) -> Result<()> {
    tx.postgres("ledger").await?.execute("INSERT INTO entry VALUES ($1)", &[&entry]).await?;
    Ok(tx.mysql("orders").await?.exec_drop("INSERT INTO entry VALUES (?)", (entry,)).await?)
}

/// One line in one write, so that none is half there when this is killed.
pub fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    Ok(out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush())?)
}
