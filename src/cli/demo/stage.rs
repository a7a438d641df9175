//! What the demo is played on: two servers, two databases, a configuration, all in temporary directories.

use super::application::{ACCOUNTS, LEDGER, ORDERS};
use crate::Config;
use crate::cli::args::ServerArgs;
use crate::cli::run_servers::options_here;
use crate::cli::servers::{Flavor, Installation, Server};
use crate::error::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The cents in each account at first.
const OPENING_BALANCE: i64 = 1_000_000;

/// The servers and files of a demo; all gone when it is dropped.
pub struct Stage {
    pub postgres: Server,
    pub mysql: Server,
    directory: TempDir,
}

impl Stage {
    /// Starts the servers and creates what the application works on.
    pub async fn set(args: &ServerArgs) -> Result<Self> {
        let postgres = Installation::find(Flavor::Postgres, args.postgres_bin.as_deref())?;
        let mysql = find_mysql(args.mysql_bin.as_deref())?;
        let directory = TempDir::with_prefix("handfast-demo-")
            .map_err(|error| Error::new(ErrorKind::Setup, "no temporary directory can be made").because(error))?;
        let (postgres, mysql) =
            tokio::try_join!(Server::start(&postgres, options_here()), Server::start(&mysql, options_here()))?;
        let stage = Self { postgres, mysql, directory };
        stage.create().await?;
        Ok(stage)
    }

    async fn create(&self) -> Result<()> {
        self.postgres.create_database(LEDGER).await?;
        let ledger = format!(
            "CREATE TABLE account (id int PRIMARY KEY, cents bigint NOT NULL); \
             CREATE TABLE transfer (id text PRIMARY KEY, cents bigint NOT NULL); \
             INSERT INTO account SELECT n, {OPENING_BALANCE} FROM generate_series(0, {}) AS n",
            ACCOUNTS - 1
        );
        self.postgres.query(LEDGER, &ledger).await?;
        self.mysql.create_database(ORDERS).await?;
        let orders = "CREATE TABLE payment (id varchar(100) PRIMARY KEY, cents bigint NOT NULL) ENGINE=InnoDB";
        self.mysql.query(ORDERS, orders).await?;
        let made = std::fs::create_dir(self.directory.path().join("journal"))
            .and_then(|()| std::fs::write(self.config_path(), self.config_text()))
            .and_then(|()| std::fs::write(self.answers(), ""));
        made.map_err(|error| Error::new(ErrorKind::Setup, "the temporary directory cannot be written").because(error))
    }

    fn config_text(&self) -> String {
        let url = |server: &Server, database: &str| toml_text(&server.url(database));
        format!(
            "node = \"demo\"\n[journal]\ndirectory = {}\nsegment_bytes = 1048576\n[transaction]\ntimeout = \"10s\"\n\
             [recovery]\nopen_wait = \"3s\"\nstatement_timeout = \"3s\"\nbackoff_max = \"1s\"\n\
             [participants.{LEDGER}]\nkind = \"postgres\"\nurl = {}\n\
             [participants.{ORDERS}]\nkind = \"mysql\"\nurl = {}\n",
            toml_text(&self.directory.path().join("journal").display().to_string()),
            url(&self.postgres, LEDGER),
            url(&self.mysql, ORDERS),
        )
    }

    /// The configuration's file, for the application and for whoever wants to look.
    pub fn config_path(&self) -> PathBuf {
        self.directory.path().join("handfast.toml")
    }

    /// The configuration.
    pub fn config(&self) -> Result<Config> {
        Config::load(self.config_path())
    }

    /// Where the application writes down what it was told.
    pub fn answers(&self) -> PathBuf {
        self.directory.path().join("answers")
    }

    /// Where the application's messages go.
    pub fn log(&self) -> PathBuf {
        self.directory.path().join("application.log")
    }

    /// All the money there is.
    pub fn money() -> i64 {
        OPENING_BALANCE * i64::try_from(ACCOUNTS).expect("there are few accounts")
    }

    /// What it is, for people.
    pub fn describe(&self) -> String {
        let one = |server: &Server| {
            format!("{} {} on port {}", server.flavor().product(), server.installation().version(), server.port())
        };
        format!(
            "{} and {}, journal and answers in {}",
            one(&self.postgres),
            one(&self.mysql),
            self.directory.path().display()
        )
    }
}

/// MariaDB or MySQL: what `--mysql-bin` points to, else the installed MariaDB, else an installed MySQL.
fn find_mysql(bin: Option<&Path>) -> Result<Installation> {
    Installation::find(Flavor::MariaDb, bin)
        .or_else(|missing| Installation::find(Flavor::MySql, bin).map_err(|_| missing))
}

/// A text as a TOML string.
fn toml_text(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
