//! Two databases with money, and replicas of the service on them.

use integration_tests::servers::{self, ConfigBuilder, Flavor, Server};
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

/// How long a replica may take to begin or to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a replica that was told to end still serves: long enough for each client to hear that it is leaving.
const NOTICE_MS: &str = "3000";

/// All money: what is in the accounts at the beginning.
pub const MONEY: i64 = 10 * 1_000_000;

/// Servers of its own, so that nothing at all may be prepared there at the end.
pub struct Stage {
    postgres: Server,
    mysql: Server,
    directory: TempDir,
}

impl Stage {
    pub async fn new(other: Flavor) -> Self {
        let (postgres, mysql) = tokio::join!(servers::start(Flavor::Postgres), servers::start(other));
        for server in [&postgres, &mysql] {
            server.create_database("bank").await.unwrap();
        }
        let accounts = "CREATE TABLE account (id int PRIMARY KEY, cents bigint NOT NULL); \
                        INSERT INTO account SELECT n, 1000000 FROM generate_series(1, 10) n; \
                        CREATE TABLE transfer (key text PRIMARY KEY, id text NOT NULL)";
        postgres.query("bank", accounts).await.unwrap();
        let wallets = "CREATE TABLE wallet (id int PRIMARY KEY, cents bigint NOT NULL) ENGINE=InnoDB; \
                       INSERT INTO wallet VALUES (1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 0), (7, 0)";
        mysql.query("bank", wallets).await.unwrap();
        Self { postgres, mysql, directory: TempDir::new().unwrap() }
    }

    /// The configuration of a replica: a node and a journal of its own.
    pub fn replica(&self, node: &str) -> Replica {
        let journal = self.directory.path().join(node);
        std::fs::create_dir(&journal).unwrap();
        let config = ConfigBuilder::new(journal).node(node).section("segment_bytes = 65536");
        let config = config.participant("ledger", &self.postgres, "bank").participant("orders", &self.mysql, "bank");
        let config_path = self.directory.path().join(format!("{node}.toml"));
        config.write(&config_path);
        Replica { config_path, address: None, running: None }
    }

    /// The keys that were done, each with its transaction, as the ledger has them.
    pub async fn transfers(&self) -> Vec<(String, String)> {
        let rows = self.postgres.query("bank", "SELECT key, id FROM transfer").await.unwrap();
        let text = |value: &Option<String>| value.clone().unwrap();
        rows.iter().map(|row| (text(&row[0]), text(&row[1]))).collect()
    }

    /// What is in the accounts, and in the wallets.
    pub async fn money(&self) -> (i64, i64) {
        let accounts = self.postgres.value("bank", "SELECT sum(cents) FROM account").await.unwrap();
        let wallets = self.mysql.value("bank", "SELECT sum(cents) FROM wallet").await.unwrap();
        (accounts.unwrap().parse().unwrap(), wallets.unwrap().parse().unwrap())
    }

    /// Whatever is prepared on either server, by whomever.
    pub async fn prepared(&self) -> usize {
        let ledger = self.postgres.query("bank", "SELECT gid FROM pg_prepared_xacts").await.unwrap();
        ledger.len() + self.mysql.query("bank", "XA RECOVER").await.unwrap().len()
    }
}

/// A replica: the example `axum_service`, as a process that is started, told to end, and started again.
pub struct Replica {
    config_path: std::path::PathBuf,
    /// The same after a restart.
    address: Option<SocketAddr>,
    running: Option<(Child, Lines<BufReader<ChildStdout>>)>,
}

impl Replica {
    /// Starts it, and waits until it accepts.
    pub async fn start(&mut self) -> SocketAddr {
        let listen = self.address.map_or("127.0.0.1:0".to_owned(), |address| address.to_string());
        let mut command = Command::new(env!("CARGO_BIN_EXE_example-axum-service"));
        command.arg("serve").arg(&self.config_path).env("LISTEN", listen).env("NOTICE_MS", NOTICE_MS);
        let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        self.running = Some((child, lines));
        let line = self.says().await;
        let address = line.strip_prefix("listening on http://").unwrap_or_else(|| panic!("{line:?}")).parse().unwrap();
        *self.address.insert(address)
    }

    async fn says(&mut self) -> String {
        let (_, lines) = self.running.as_mut().expect("it runs");
        let line = timeout(PATIENCE, lines.next_line()).await.expect("it says something").unwrap();
        line.expect("it has not ended")
    }

    /// SIGTERM; it ends by itself, in good order.
    pub async fn end(&mut self) {
        let (child, _) = self.running.as_mut().expect("it runs");
        let pid = child.id().expect("it runs").to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
        assert_eq!(self.says().await, "leaving");
        assert_eq!(self.says().await, "closed");
        let (mut child, _) = self.running.take().expect("it runs");
        let status = timeout(PATIENCE, child.wait()).await.expect("it ends").unwrap();
        assert!(status.success(), "{status}");
    }

    /// What the recovery tool says of it now that it has ended.
    pub async fn is_clean(&self) {
        let mut tool = Command::new(env!("CARGO_BIN_EXE_handfast-tool"));
        let ran = tool.arg("--config").arg(&self.config_path).arg("list").output().await.unwrap();
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(ran.status.success() && said.starts_with("clean"), "{said}");
    }
}
