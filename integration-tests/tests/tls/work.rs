//! Whole transactions, recovery and the tool, over connections that are encrypted and over sockets.

use crate::stage::{APP, PASSWORD, PKI, fresh_database, shared, tool, url};
use handfast::mysql_async::prelude::Queryable;
use handfast::{Bridge, Outcome};
use integration_tests::each_pair;
use integration_tests::proxy::Proxy;
use integration_tests::servers::{self, ConfigBuilder, Flavor, Server};
use integration_tests::world::eventually;
use std::path::PathBuf;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

/// Two databases with a table `entry`, and a journal.
pub struct Work {
    pub servers: [&'static Server; 2],
    pub databases: [String; 2],
    pub directory: TempDir,
    pub node: String,
}

pub const NAMES: [&str; 2] = ["ledger", "orders"];

impl Work {
    pub async fn new(other: Flavor) -> Self {
        let servers = [shared(Flavor::Postgres).await, shared(other).await];
        let databases = [fresh_database(servers[0]).await, fresh_database(servers[1]).await];
        let directory = TempDir::new().unwrap();
        std::fs::create_dir(directory.path().join("journal")).unwrap();
        let work = Self { servers, databases, directory, node: servers::unique("n").replace('_', "-") };
        for (server, database) in work.sides() {
            let table = "CREATE TABLE entry (n bigint PRIMARY KEY)";
            server.query(database, table).await.unwrap();
        }
        let owner = format!("ALTER TABLE entry OWNER TO {APP}");
        work.servers[0].query(&work.databases[0], &owner).await.unwrap();
        work
    }

    pub fn sides(&self) -> [(&'static Server, &String); 2] {
        [(self.servers[0], &self.databases[0]), (self.servers[1], &self.databases[1])]
    }

    /// A participant for each of these URLs, with these lines.
    pub fn config(&self, urls: [&str; 2], lines: [&str; 2]) -> ConfigBuilder {
        let mut config = ConfigBuilder::new(self.directory.path().join("journal")).node(&self.node);
        for (side, name) in NAMES.into_iter().enumerate() {
            config = config.participant_at(name, self.servers[side].flavor(), urls[side]).with(lines[side]);
        }
        config
    }

    pub fn urls(&self, user: &str, password: &str) -> [String; 2] {
        self.sides().map(|(server, database)| url(server, user, password, "localhost", database))
    }

    /// As a production would have it.
    pub fn encrypted(&self) -> ConfigBuilder {
        let [ledger, orders] = self.urls(APP, PASSWORD);
        let lines = full();
        self.config([&ledger, &orders], [&lines, &lines])
    }

    pub fn path(&self, config: &ConfigBuilder) -> PathBuf {
        let path = self.directory.path().join("handfast.toml");
        config.write(&path);
        path
    }

    pub async fn rows(&self) -> [Vec<String>; 2] {
        let mut rows = [vec![], vec![]];
        for (side, (server, database)) in self.sides().into_iter().enumerate() {
            let found = server.query(database, "SELECT n FROM entry ORDER BY n").await.unwrap();
            rows[side] = found.into_iter().filter_map(|mut row| row.swap_remove(0)).collect();
        }
        rows
    }
}

fn full() -> String {
    format!("tls = \"verify-full\"\n{}", PKI.trusting("ca.pem"))
}

/// Inserts a row on both sides and commits.
pub async fn commit(bridge: &Bridge, row: i64) -> handfast::Result<()> {
    let tx = bridge.begin().await?;
    tx.postgres("ledger").await?.execute("INSERT INTO entry VALUES ($1)", &[&row]).await?;
    tx.mysql("orders").await?.exec_drop("INSERT INTO entry VALUES (?)", (row,)).await?;
    Ok(tx.commit().await.map(drop)?)
}

/// An application that dies when one side has committed and the other has not been told yet. The side that is cut off is
/// spoken to in the clear, so that the proxy can tell what to hold.
async fn die_half_way(work: &Work, cut_off: usize) {
    let (server, database) = work.sides()[cut_off];
    let proxy = Proxy::start(server).await;
    let scheme = if cut_off == 0 { "postgresql" } else { "mysql" };
    let plain = format!("{scheme}://{APP}:{PASSWORD}@127.0.0.1:{}/{database}", proxy.port());
    let [ledger, orders] = work.urls(APP, PASSWORD);
    let (mut urls, lines) = ([&*ledger, &*orders], full());
    let mut all = [&*lines, &*lines];
    (urls[cut_off], all[cut_off]) = (&plain, "tls = \"disable\"");
    let path = work.directory.path().join("through-a-proxy.toml");
    work.config(urls, all).write(&path);

    let mut application = tokio::process::Command::new(env!("CARGO_BIN_EXE_test-application"))
        .arg(&path)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut said = BufReader::new(application.stdout.take().unwrap()).lines();
    let mut told = application.stdin.take().unwrap();
    told.write_all(b"open\n").await.unwrap();
    assert_eq!(said.next_line().await.unwrap().as_deref(), Some("open"));
    told.write_all(b"entry 1\n").await.unwrap();
    assert!(said.next_line().await.unwrap().unwrap().starts_with("begun "));
    let rule = proxy.on(if cut_off == 0 { "COMMIT PREPARED" } else { "XA COMMIT" }).hold();
    told.write_all(b"commit\n").await.unwrap();
    rule.fired().await;
    eventually("the other side has committed", async || work.rows().await[1 - cut_off] == ["1"]).await;
    application.kill().await.unwrap();
    proxy.sever();
}

/// A statement that is at work when its deadline passes is cancelled by a request that is encrypted as well: a server that
/// is busy does not look at its socket.
mod a_cancel_request {
    use super::*;

    #[test]
    fn postgres() {
        servers::runtime().block_on(async {
            let work = Work::new(Flavor::MariaDb).await;
            let config = work.encrypted().section("[transaction]\ntimeout = \"2s\"\napply_wait = \"1s\"").build();
            let bridge = Bridge::open(config).await.unwrap_or_else(|error| panic!("{}", error.chain()));
            let tx = bridge.begin().await.unwrap();
            tx.postgres("ledger").await.unwrap().query("SELECT pg_sleep(600)", &[]).await.expect_err("cancelled");
            let busy = format!(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = '{}' AND query LIKE '%pg_sleep(600)%' \
                 AND state = 'active' AND pid <> pg_backend_pid()",
                work.databases[0]
            );
            eventually("the statement is given up", async || {
                work.servers[0].value("postgres", &busy).await.unwrap().as_deref() == Some("0")
            })
            .await;
            drop(tx);
            bridge.close().await.unwrap();
        });
    }
}

each_pair! {
    /// The pool, the resolver and the tool, by connections that nobody can read.
    async fn a_whole_transaction(other) {
        let work = Work::new(other).await;
        let config = work.encrypted();
        let bridge = Bridge::open(config.build()).await.unwrap_or_else(|error| panic!("{}", error.chain()));
        commit(&bridge, 1).await.unwrap();
        let tx = bridge.begin().await.unwrap();
        let id = tx.id();
        tx.postgres("ledger").await.unwrap().execute("INSERT INTO entry VALUES (2)", &[]).await.unwrap();
        tx.mysql("orders").await.unwrap().query_drop("INSERT INTO entry VALUES (2)").await.unwrap();
        tx.rollback().await.unwrap();
        assert_eq!(bridge.outcome(id).await.unwrap(), Outcome::RolledBack);

        let in_the_clear = format!(
            "SELECT count(*) FILTER (WHERE ssl), count(*) FILTER (WHERE NOT ssl) FROM pg_stat_ssl \
             JOIN pg_stat_activity USING (pid) WHERE datname = '{}' AND usename = '{APP}'",
            work.databases[0]
        );
        let sessions = work.servers[0].query("postgres", &in_the_clear).await.unwrap();
        let count = |column: usize| sessions[0][column].as_deref().and_then(|count| count.parse::<u32>().ok()).unwrap();
        // The pool's, and the resolver's one or two.
        assert!(count(0) >= 2 && count(1) == 0, "{sessions:?}");
        bridge.close().await.unwrap();
        assert_eq!(work.rows().await, [["1"], ["1"]]);

        let path = work.path(&config);
        let (code, said) = tool(&path, "doctor --all").await;
        assert_eq!((code, said.matches("tls = \"verify-full\"").count()), (0, 2), "{said}");
        assert_eq!(said.matches("TLSv1.3").count(), 2, "{said}");
    }

    /// What a program left half done on either side is finished by encrypted connections.
    async fn recovery(other) {
        for cut_off in [0, 1] {
            let work = Work::new(other).await;
            die_half_way(&work, cut_off).await;
            assert!(work.rows().await[cut_off].is_empty());
            let path = work.path(&work.encrypted());
            let (code, said) = tool(&path, "list").await;
            assert_eq!(code, 3, "{said}");
            let (code, said) = tool(&path, "recover").await;
            assert_eq!(code, 0, "{said}");
            assert_eq!(work.rows().await, [["1"], ["1"]], "{said}");
        }
    }

    /// Nothing but sockets is used when sockets are given: the servers' ports could be closed.
    async fn unix_sockets(other) {
        let work = Work::new(other).await;
        let place = TempDir::new().unwrap();
        // The server is another user than this program, where this program is root.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(place.path(), open).unwrap();
        let place = place.path().display().to_string();
        let ledger = servers::start_with(
            Flavor::Postgres,
            servers::options().with("unix_socket_directories", &place),
        ).await;
        let database = servers::fresh_database(&ledger).await;
        ledger.query(&database, "CREATE TABLE entry (n bigint PRIMARY KEY)").await.unwrap();
        let socket = work.servers[1].directory().join("socket").display().to_string();
        let local = format!("CREATE USER IF NOT EXISTS '{APP}'@'localhost' IDENTIFIED BY '{PASSWORD}'");
        work.servers[1].query("mysql", &local).await.unwrap();
        let grant = format!("GRANT ALL ON *.* TO '{APP}'@'localhost'");
        work.servers[1].query("mysql", &grant).await.unwrap();

        let urls = [
            format!("postgresql:///{database}?host={place}&port={}&user=postgres", ledger.port()),
            format!("mysql://{APP}:{PASSWORD}@ignored.example/{}?socket={socket}", work.databases[1]),
        ];
        let config = work.config([&urls[0], &urls[1]], ["", ""]);
        let bridge = Bridge::open(config.build()).await.unwrap_or_else(|error| panic!("{}", error.chain()));
        commit(&bridge, 7).await.unwrap();
        bridge.close().await.unwrap();
        assert_eq!(work.rows().await[1], ["7"]);
        assert_eq!(ledger.value(&database, "SELECT n FROM entry").await.unwrap().as_deref(), Some("7"));
        let (code, said) = tool(&work.path(&config), "doctor --all").await;
        assert_eq!((code, said.matches("not encrypted: a Unix socket").count()), (0, 2), "{said}");
        assert!(said.contains(&socket) && said.contains(&place), "{said}");
    }
}
