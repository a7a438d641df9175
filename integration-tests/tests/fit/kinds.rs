//! One kind of database alone, and several databases on one server: what commits together is whole after a crash, too.

use handfast::mysql_async::prelude::Queryable;
use handfast::{Bridge, Config, Options, Transaction};
use integration_tests::servers::{self, ConfigBuilder, Flavor, Server};
use integration_tests::world::{Program, eventually};
use integration_tests::{each_mysql, test_with_servers};
use tempfile::TempDir;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Four databases on as many servers as there are.
struct Several {
    flavor: Flavor,
    databases: Vec<(&'static Server, String)>,
    journal: TempDir,
    node: String,
}

impl Several {
    async fn new(flavor: Flavor) -> Self {
        let server = servers::shared(flavor).await;
        let mut databases = Vec::new();
        for _ in NAMES {
            let database = servers::fresh_database(server).await;
            server.query(&database, "CREATE TABLE t (k INT PRIMARY KEY)").await.unwrap();
            databases.push((server, database));
        }
        let journal = TempDir::new().unwrap();
        Self { flavor, databases, journal, node: servers::unique("n").replace('_', "-") }
    }

    fn config(&self) -> Config {
        let builder = ConfigBuilder::new(self.journal.path()).node(&self.node);
        let section = "[transaction]\nacknowledge = \"decided\"\n[recovery]\nbackoff_min = \"5ms\"\n";
        let builder = builder.section(section);
        let all = NAMES.iter().zip(&self.databases);
        all.fold(builder, |builder, (name, (server, database))| builder.participant(name, server, database)).build()
    }

    async fn keys(&self) -> Vec<Vec<String>> {
        let mut all = Vec::new();
        for (server, database) in &self.databases {
            let rows = server.query(database, "SELECT k FROM t ORDER BY k").await.unwrap();
            all.push(rows.into_iter().map(|row| row[0].clone().unwrap()).collect());
        }
        all
    }

    async fn insert(flavor: Flavor, tx: &Transaction, name: &str, key: i32) -> handfast::Result<()> {
        let text = format!("INSERT INTO t VALUES ({key})");
        match flavor {
            Flavor::Postgres => tx.postgres(name).await?.batch_execute(&text).await?,
            Flavor::MariaDb | Flavor::MySql => tx.mysql(name).await?.query_drop(text).await?,
        }
        Ok(())
    }

    async fn all_or_none(&self) {
        let flavor = self.flavor;
        let bridge = Bridge::open(self.config()).await.unwrap_or_else(|error| panic!("{}", error.chain()));
        let tx = bridge.begin().await.unwrap();
        for name in NAMES {
            Self::insert(flavor, &tx, name, 1).await.unwrap();
        }
        let id = tx.commit().await.unwrap_or_else(|error| panic!("{}", error.cause().chain())).id;
        bridge.wait_applied(id).await.unwrap();
        assert_eq!(self.keys().await, vec![vec!["1"]; NAMES.len()]);
        // The last of them refuses: none keeps anything.
        let tx = bridge.begin_with(Options::new()).await.unwrap();
        for name in &NAMES[..3] {
            Self::insert(flavor, &tx, name, 2).await.unwrap();
        }
        Self::insert(flavor, &tx, NAMES[3], 1).await.expect_err("the row is there");
        tx.commit().await.expect_err("a statement has failed");
        assert_eq!(self.keys().await, vec![vec!["1"]; NAMES.len()]);
        bridge.close().await.unwrap();
        self.is_whole_after_a_crash().await;
    }

    /// Many commits that are answered at the decision, and the program is gone: the next opening carries all of them out.
    async fn is_whole_after_a_crash(&self) {
        let flavor = self.flavor;
        let program = Program::start(self.config()).await;
        let bridge = program.bridge.clone();
        let answered = program.spawn(async move {
            for key in 10..30 {
                let tx = bridge.begin().await.unwrap();
                for name in NAMES {
                    Self::insert(flavor, &tx, name, key).await.unwrap();
                }
                tx.commit().await.unwrap();
            }
        });
        answered.await.unwrap();
        program.crash().await;
        let bridge = Bridge::open(self.config()).await.unwrap_or_else(|error| panic!("{}", error.chain()));
        let expected: Vec<String> = std::iter::once(1).chain(10..30).map(|key: i32| key.to_string()).collect();
        eventually("all is carried out", async || self.keys().await == vec![expected.clone(); NAMES.len()]).await;
        bridge.close().await.unwrap();
    }
}

mod postgres_alone {
    use super::*;

    async fn run(flavor: Flavor) {
        Several::new(flavor).await.all_or_none().await;
    }

    test_with_servers! { four_databases_of_one_server: run(Postgres) }
}

each_mysql! {
    async fn four_databases_of_one_server(flavor) {
        Several::new(flavor).await.all_or_none().await;
    }
}
