//! The harness of PostgreSQL.

use super::{Harness, Setup, Which};
use crate::servers::{self, Flavor, Server};
use handfast::Result;
use handfast::config::Config;
use handfast::id::{BranchId, Incarnation, SessionName};
use handfast::participant::postgres::{Lent, Postgres};
use handfast::participant::{Branch, Claim, Participant};
use std::sync::Arc;

/// A database of the shared server.
pub struct PostgresHarness {
    server: &'static Server,
    database: String,
}

/// What the application is lent.
///
/// # Panics
/// When it is not PostgreSQL's.
pub fn lent(branch: &dyn Branch) -> Arc<Lent> {
    branch.handle().downcast().expect("the handle of a branch on PostgreSQL")
}

/// A participant by its URL and further lines of its configuration.
///
/// # Panics
/// When the configuration is wrong.
pub fn postgres_at(name: &str, url: &str, lines: &str) -> Postgres {
    let text = format!(
        "node = \"bench\"\n[journal]\ndirectory = \"/nowhere\"\n[participants.{name}]\nkind = \"postgres\"\n\
         url = \"{url}\"\n{lines}\n"
    );
    let config = Config::from_toml(&text).unwrap();
    let (name, participant) = config.participants.iter().next().unwrap();
    Postgres::new(*name, participant, &config.pool, &config.recovery).unwrap()
}

impl PostgresHarness {
    /// A database of this server.
    pub async fn on(server: &'static Server) -> Self {
        let database = servers::fresh_database(server).await;
        server.query(&database, "CREATE TABLE data (id int8 PRIMARY KEY, value int8 NOT NULL)").await.unwrap();
        Self { server, database }
    }

    /// The URL of the database.
    pub fn url(&self) -> String {
        self.server.url(&self.database)
    }

    /// Runs statements as the superuser; the first value of the last one.
    ///
    /// # Panics
    /// When the server refuses.
    pub async fn sql(&self, sql: &str) -> Option<String> {
        self.server.value(&self.database, sql).await.unwrap_or_else(|error| panic!("{sql}: {}", error.chain()))
    }

    async fn does(&self, sql: &str) -> bool {
        self.server.query(&self.database, sql).await.is_ok()
    }
}

impl Harness for PostgresHarness {
    const APPLICATION_CAN_END: bool = true;

    async fn new() -> Self {
        Self::on(servers::shared(Flavor::Postgres).await).await
    }

    async fn sibling(&self) -> Self {
        Self::on(self.server).await
    }

    fn participant(&self, name: &str, setup: Setup) -> Box<dyn Participant> {
        let lines = format!("witness = {}\npool_size = {}", setup.witness, setup.pool_size);
        Box::new(postgres_at(name, &self.url(), &lines))
    }

    async fn write(&self, branch: &dyn Branch, row: i64, value: i64) -> Result<()> {
        let upsert = "INSERT INTO data VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET value = excluded.value";
        lent(branch).borrow()?.execute(upsert, &[&row, &value]).await?;
        Ok(())
    }

    async fn read(&self, branch: &dyn Branch, row: i64) -> Result<Option<i64>> {
        let row = lent(branch).borrow()?.query_opt("SELECT value FROM data WHERE id = $1", &[&row]).await?;
        Ok(row.map(|row| row.get(0)))
    }

    async fn fail(&self, branch: &dyn Branch) {
        lent(branch).borrow().unwrap().execute("SELECT 1/0", &[]).await.unwrap_err();
    }

    async fn end(&self, branch: &dyn Branch, commit: bool, then_begin: bool) {
        let lent = lent(branch);
        let client = lent.borrow().unwrap();
        client.batch_execute(if commit { "COMMIT" } else { "ROLLBACK" }).await.unwrap();
        if then_begin {
            client.batch_execute("BEGIN").await.unwrap();
        }
    }

    async fn value(&self, row: i64) -> Option<i64> {
        self.sql(&format!("SELECT value FROM data WHERE id = {row}")).await.map(|value| value.parse().unwrap())
    }

    async fn is_locked(&self, row: i64) -> bool {
        // A row that is only being inserted cannot be seen, but its key is taken.
        let take = "INSERT INTO data VALUES ({row}, 0) ON CONFLICT (id) DO UPDATE SET value = 0";
        let take = take.replace("{row}", &row.to_string());
        !self.does(&format!("BEGIN; SET LOCAL lock_timeout = '200ms'; {take}; ROLLBACK")).await
    }

    async fn kill(&self, session: SessionName) -> bool {
        let kill = format!(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = '{session}'"
        );
        self.sql(&kill).await.as_deref() == Some("t")
    }

    async fn sessions(&self, incarnation: Incarnation) -> usize {
        let count =
            format!("SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'handfast.{incarnation}.%'");
        self.sql(&count).await.unwrap().parse().unwrap()
    }

    async fn end_resolver(&self, participant: &dyn Participant, claim: Claim) -> bool {
        self.end_connection(Which::Resolver, participant, claim).await;
        self.end_connection(Which::Lease, participant, claim).await
    }

    async fn end_connection(&self, which: Which, participant: &dyn Participant, claim: Claim) -> bool {
        let name = which.name(participant, claim);
        let end =
            format!("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = '{name}'");
        self.sql(&end).await.as_deref() == Some("t")
    }

    async fn prepare_foreign(&self, name: &str) {
        self.sql(&format!("BEGIN; INSERT INTO data VALUES (999, 0); PREPARE TRANSACTION '{name}'")).await;
    }

    async fn end_foreign(&self, name: &str) -> bool {
        self.does(&format!("ROLLBACK PREPARED '{name}'")).await
    }

    async fn type_in(&self, statement: &str) -> bool {
        assert!(statement.contains(&self.database), "{statement}");
        self.does(statement).await
    }

    async fn finish_by_hand(&self, branch: &BranchId, commit: bool) -> bool {
        let verb = if commit { "COMMIT" } else { "ROLLBACK" };
        self.does(&format!("{verb} PREPARED '{branch}'")).await
    }
}
