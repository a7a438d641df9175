//! The harness of MySQL and MariaDB.

use super::{Harness, Setup, Which, eventually};
use crate::servers::{self, Flavor, Server};
use handfast::Result;
use handfast::config::Config;
use handfast::id::{BranchId, Incarnation, SessionName};
use handfast::mysql_async::prelude::Queryable;
use handfast::mysql_async::{Conn, Opts, OptsBuilder};
use handfast::participant::mysql::{Lent, Mysql, MysqlBranch};
use handfast::participant::{Branch, Claim, Participant};
use std::fmt::Display;
use std::marker::PhantomData;
use std::sync::Arc;

/// Which of the two products.
pub trait OnServer {
    /// As the servers know it.
    const FLAVOR: Flavor;
}

/// MySQL.
pub struct MySql;

/// MariaDB.
pub struct MariaDb;

impl OnServer for MySql {
    const FLAVOR: Flavor = Flavor::MySql;
}

impl OnServer for MariaDb {
    const FLAVOR: Flavor = Flavor::MariaDb;
}

/// A database of a server.
pub struct MysqlHarness<F> {
    url: String,
    server: &'static Server,
    flavor: PhantomData<F>,
}

/// What the application is lent.
///
/// # Panics
/// When it is not MySQL's.
pub async fn lent(branch: &dyn Branch) -> MysqlBranch<'static> {
    let lent: Arc<Lent> = branch.handle().downcast().unwrap_or_else(|_| panic!("not the handle of a branch on MySQL"));
    MysqlBranch::lock(lent).await
}

/// A participant by its URL and further lines of its configuration.
///
/// # Errors
/// As the constructor.
///
/// # Panics
/// When the configuration is wrong.
pub fn try_mysql(name: &str, url: &str, lines: &str) -> Result<Mysql> {
    let text = format!(
        "node = \"bench\"\n[journal]\ndirectory = \"/nowhere\"\n[participants.{name}]\nkind = \"mysql\"\n\
         url = \"{url}\"\n{lines}\n"
    );
    let config = Config::from_toml(&text).unwrap();
    let (name, participant) = config.participants.iter().next().unwrap();
    Mysql::new(*name, participant, &config.pool, &config.recovery)
}

/// A connection of an administrator, to a database by its URL.
///
/// # Panics
/// When there is none.
pub async fn connect(url: &str) -> Conn {
    let options = OptsBuilder::from_opts(Opts::from_url(url).unwrap()).prefer_socket(false);
    Conn::new(options).await.unwrap_or_else(|error| panic!("{url}: {error}"))
}

/// A new database with the table, on a server.
///
/// # Panics
/// When the server refuses.
pub async fn database(server: &Server) -> String {
    let database = servers::fresh_database(server).await;
    let table = "CREATE TABLE data (id bigint PRIMARY KEY, value bigint NOT NULL) ENGINE=InnoDB";
    server.query(&database, table).await.unwrap_or_else(|error| panic!("{}", error.chain()));
    database
}

impl<F: OnServer> MysqlHarness<F> {
    async fn on(server: &'static Server) -> Self {
        Self { url: server.url(&database(server).await), server, flavor: PhantomData }
    }

    /// The URL of the database.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Runs statements as the superuser, one after the other, in one session; the first error ends it.
    ///
    /// # Errors
    /// The server's.
    pub async fn run(&self, statements: &[&str]) -> handfast::mysql_async::Result<()> {
        let mut conn = connect(&self.url).await;
        for statement in statements {
            conn.query_drop(*statement).await?;
        }
        conn.disconnect().await
    }

    /// The first value of a query.
    ///
    /// # Panics
    /// When the server refuses.
    pub async fn number(&self, query: &str) -> Option<i64> {
        let mut conn = connect(&self.url).await;
        let found = conn.query_first::<Option<i64>, _>(query).await;
        conn.disconnect().await.unwrap();
        found.unwrap_or_else(|error| panic!("{query}: {error}")).flatten()
    }

    async fn holder(&self, name: impl Display) -> Option<i64> {
        self.number(&format!("SELECT IS_USED_LOCK('{name}')")).await
    }

    async fn end_holder(&self, name: impl Display) -> bool {
        let Some(holder) = self.holder(&name).await else { return false };
        self.run(&[&format!("KILL {holder}")]).await.unwrap();
        eventually("killed", async || self.holder(&name).await != Some(holder)).await;
        true
    }
}

impl<F: OnServer> Harness for MysqlHarness<F> {
    const APPLICATION_CAN_END: bool = true;

    async fn new() -> Self {
        Self::on(servers::shared(F::FLAVOR).await).await
    }

    async fn sibling(&self) -> Self {
        Self::on(self.server).await
    }

    fn participant(&self, name: &str, setup: Setup) -> Box<dyn Participant> {
        let lines = format!("witness = {}\npool_size = {}", setup.witness, setup.pool_size);
        Box::new(try_mysql(name, &self.url, &lines).unwrap())
    }

    async fn write(&self, branch: &dyn Branch, row: i64, value: i64) -> Result<()> {
        let upsert = "INSERT INTO data VALUES (?, ?) ON DUPLICATE KEY UPDATE value = VALUES(value)";
        Ok(lent(branch).await.exec_drop(upsert, (row, value)).await?)
    }

    async fn read(&self, branch: &dyn Branch, row: i64) -> Result<Option<i64>> {
        Ok(lent(branch).await.exec_first("SELECT value FROM data WHERE id = ?", (row,)).await?)
    }

    async fn fail(&self, branch: &dyn Branch) {
        lent(branch).await.query_drop("SELECT * FROM nowhere").await.unwrap_err();
    }

    async fn end(&self, branch: &dyn Branch, commit: bool, then_begin: bool) {
        let xid = branch.id().xid_sql();
        let mut lent = lent(branch).await;
        let is_xa = lent.query_drop(format!("XA END {xid}")).await.is_ok();
        let (end, begin) = match (is_xa, commit) {
            (true, true) => (format!("XA COMMIT {xid} ONE PHASE"), format!("XA START {xid}")),
            (true, false) => (format!("XA ROLLBACK {xid}"), format!("XA START {xid}")),
            (false, true) => ("COMMIT".into(), "START TRANSACTION".into()),
            (false, false) => ("ROLLBACK".into(), "START TRANSACTION".into()),
        };
        lent.query_drop(end).await.unwrap();
        if then_begin {
            lent.query_drop(begin).await.unwrap();
        }
    }

    async fn value(&self, row: i64) -> Option<i64> {
        self.number(&format!("SELECT value FROM data WHERE id = {row}")).await
    }

    async fn is_locked(&self, row: i64) -> bool {
        self.run(&[&format!("SELECT * FROM data WHERE id = {row} FOR UPDATE NOWAIT")]).await.is_err()
    }

    async fn kill(&self, session: SessionName) -> bool {
        self.end_holder(session).await
    }

    async fn sessions(&self, incarnation: Incarnation) -> usize {
        let names =
            (0..2).flat_map(|participant| (0..16).map(move |slot| SessionName { incarnation, participant, slot }));
        let terms: Vec<_> = names.map(|name| format!("(IS_USED_LOCK('{name}') IS NOT NULL)")).collect();
        let count = self.number(&format!("SELECT {}", terms.join(" + "))).await.unwrap();
        usize::try_from(count).unwrap()
    }

    async fn end_resolver(&self, participant: &dyn Participant, claim: Claim) -> bool {
        self.end_connection(Which::Resolver, participant, claim).await;
        self.end_connection(Which::Lease, participant, claim).await
    }

    async fn end_connection(&self, which: Which, participant: &dyn Participant, claim: Claim) -> bool {
        self.end_holder(which.name(participant, claim)).await
    }

    async fn prepare_foreign(&self, name: &str) {
        let xid = format!("'{name}'");
        self.run(&[
            &format!("XA START {xid}"),
            "INSERT INTO data VALUES (999, 0)",
            &format!("XA END {xid}"),
            &format!("XA PREPARE {xid}"),
        ])
        .await
        .unwrap();
    }

    async fn end_foreign(&self, name: &str) -> bool {
        self.run(&[&format!("XA ROLLBACK '{name}'")]).await.is_ok()
    }

    async fn type_in(&self, statement: &str) -> bool {
        self.run(&[statement]).await.is_ok()
    }

    async fn finish_by_hand(&self, branch: &BranchId, commit: bool) -> bool {
        let verb = if commit { "COMMIT" } else { "ROLLBACK" };
        self.run(&[&format!("XA {verb} {}", branch.xid_sql())]).await.is_ok()
    }
}
