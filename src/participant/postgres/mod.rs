//! PostgreSQL as a participant, by PREPARE TRANSACTION.
//!
//! Four server facts shape what is sent (`sql.rs` has the statements, `branch.rs` what each answer proves):
//!
//! 1. In an aborted transaction, or outside any, PREPARE TRANSACTION and COMMIT answer *success*, and the driver
//!    hides the command tag that would tell. So a **guard** goes in front: a `SELECT` that fails unless the session is
//!    in the very transaction that was begun, which is marked by `SET LOCAL handfast.branch`.
//!    <https://www.postgresql.org/docs/current/sql-prepare-transaction.html>
//! 2. Only the role that prepared a transaction, or a superuser, can finish it, and only in the same database. So the
//!    role is reset to the one that logged in before the prepare, and the list shows this database alone.
//! 3. A missing answer says nothing. A fatal error can come right behind a success. So only refused statements are a
//!    `No`, and only after a look that nothing is left.
//! 4. COMMIT PREPARED of an unknown transaction is an error whether it was committed, rolled back or never there. So
//!    each writing branch leaves a **witness** row, and recovery asks for that.
//!
//! The application works on sessions of a pool. The resolver has a connection of its own, so that recovery cannot
//! starve behind the transactions that wait for it. Another one holds the lease, and does nothing else.
//!
//! What the application must not do: hold `PREPARE`d statements of its own names for the next user of a session to
//! trip over (other session settings are reset), use what PREPARE TRANSACTION refuses (temporary tables, LISTEN and
//! NOTIFY, cursors WITH HOLD: the commit is refused, cleanly), or set `handfast.branch` (`RESET ALL` does: the
//! transaction then rolls back).

mod anchor;
mod branch;
mod check_sql;
mod checks;
mod control;
mod ends;
mod error;
mod finishing;
mod holding;
mod lease;
mod lent;
mod probe;
mod ride;
mod room;
mod session;
mod setup;
mod sql;
mod transport;
mod unheard;
mod upkeep;
mod url;
mod waiting;

use self::branch::PostgresTransaction;
use self::checks::{Checkup, Expected};
use self::control::Control;
use self::error::explain;
pub use self::lent::{Lent, PostgresBranch};
use self::session::{Connector, Lease, Sessions};
use self::setup::Setup;
use self::sql::Sql;
use super::anchor::Anchor;
use super::lease::silence;
use super::pool::{Registry, Slots};
use super::witness::Witnessed;
use super::{
    Answer, BeginOptions, BoxFuture, Branch, Claim, Evidence, Finding, Hear, Participant, Prunable, Question,
    Registered, Registration, Server, Sighted, Sighting, Waiting,
};
use super::{pool, witness};
use crate::config::{ParticipantConfig, PoolConfig, RecoveryConfig, TransactionConfig};
use crate::error::Result;
use crate::id::{BranchId, Incarnation, Lineage, ParticipantName, SessionName, TransactionId, hex};
use crate::protocol::{Finish, Resolution};
use futures_util::future::join;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};

/// A PostgreSQL database that takes part.
pub struct Postgres {
    connector: Connector,
    /// With the settings that are for the application's sessions alone.
    sessions: Connector,
    control: Arc<Control>,
    sql: Arc<Sql>,
    pool_size: usize,
    expected: Expected,
    nonce: AtomicU64,
    registered: Registry<Sessions>,
}

impl Postgres {
    /// A participant by its configuration. Nothing is connected to yet.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when the URL is not one, contradicts the other keys, or a file that they name cannot be read.
    pub fn new(
        name: ParticipantName,
        config: &ParticipantConfig,
        pool: &PoolConfig,
        recovery: &RecoveryConfig,
    ) -> Result<Self> {
        let schema = config.schema.clone().unwrap_or_else(|| "public".into());
        let sql = Arc::new(Sql::new(schema, config.witness));
        let (driver, access) = url::read(name, config, pool.connect_timeout)?;
        let connector = Connector { name, config: driver, access, timeout: pool.connect_timeout, sql: sql.clone() };
        let sessions =
            Connector { config: url::with_settings(&connector.config, &config.settings), ..connector.clone() };
        let pool_size = config.pool_size.unwrap_or(pool.size);
        Ok(Self {
            control: Arc::new(Control::new(connector.clone(), recovery.statement_timeout, silence(recovery))),
            connector,
            sessions,
            sql,
            pool_size,
            expected: Expected {
                pool_size,
                deadline: TransactionConfig::default().timeout,
                interval: recovery.interval,
                allow_unsafe: config.allow_unsafe,
            },
            nonce: AtomicU64::new(witness::random()?),
            registered: Registry::new(),
        })
    }

    /// How long a transaction may take, which the server's own time limits are compared with; by default as the
    /// configuration's default is.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.expected.deadline = deadline;
        self
    }

    fn name(&self) -> ParticipantName {
        self.connector.name
    }

    fn setup(&self) -> Setup<'_> {
        let role = self.connector.config.get_user().unwrap_or_default();
        Setup { name: self.name(), control: &self.control, sql: &self.sql, role, expected: &self.expected }
    }

    async fn do_identify(&self) -> Result<Server> {
        let look = |client: Arc<Client>| async move {
            let query = "SELECT pg_catalog.current_setting('server_version'), pg_catalog.current_database()::text";
            let row = client.query_typed_one(query, &[]).await?;
            Ok((row.try_get(0)?, row.try_get(1)?))
        };
        let (version, database): (String, String) = self.control.run("cannot identify the server", look).await?;
        let version = version.split(' ').next().unwrap_or_default();
        let description = format!("PostgreSQL {version} at {}/{database}", url::address(&self.connector.config));
        Ok(Server { description, lineage: self.setup().lineage().await? })
    }

    async fn do_register(&self, registration: &Registration) -> Result<Lineage> {
        self.control.hold(registration.claim()).await?;
        let lineage = self.setup().register(registration, Slots::count(self.pool_size)).await?;
        let Registration { incarnation, participant, .. } = *registration;
        let sessions = Sessions {
            connector: self.sessions.clone(),
            named: SessionName { incarnation, participant, slot: 0 },
            lineage,
            slots: Slots::new(self.pool_size),
            control: self.control.clone(),
        };
        self.registered.keep(self.name(), registration, lineage, sessions, self.pool_size)?;
        self.control.expect(lineage);
        Ok(lineage)
    }

    async fn do_begin(&self, transaction: TransactionId, options: BeginOptions) -> Result<Box<dyn Branch>> {
        let ours = self.registered.of(self.name(), transaction.incarnation)?;
        loop {
            let lease = Lease::new(pool::take(self.name(), &ours.pool, options.lock_timeout).await?);
            let id = transaction.branch(ours.participant, lease.slot());
            match lease.begin(self.sql.begin(&id, &options)).await {
                Ok(begin) => {
                    let nonce = self.nonce.fetch_add(1, Ordering::Relaxed);
                    let (name, sql) = (self.name(), self.sql.clone());
                    return Ok(Box::new(PostgresTransaction::new(name, id, options.mode, sql, nonce, lease, begin)));
                }
                // It died in the pool, before any work: each such session is closed, and a fresh one decides.
                Err(error) if lease.is_used() => {
                    self.sql.has_kept_nothing(&error);
                    tracing::debug!(participant = %self.name(), %error, "idle session lost");
                }
                Err(error) => return Err(explain(self.name(), "cannot begin a branch", error)),
            }
        }
    }

    async fn do_list(&self) -> Result<Vec<Sighting>> {
        let look = |client: Arc<Client>| async move {
            let rows = client.query_typed(Sql::LIST, &[]).await?;
            rows.iter().map(|row| Ok(sighting(row.try_get(0)?, row.try_get(1)?))).collect()
        };
        self.control.run("cannot list the prepared transactions", look).await
    }

    /// Finishes a branch from outside: only the server's positive answer counts.
    async fn finish(&self, statement: String) -> Answer<Finish> {
        let doing = format!("{statement} was not answered positively");
        let run = |client: Arc<Client>| async move { client.batch_execute(&statement).await };
        match self.control.run(&doing, run).await {
            Ok(()) => Answer::good(Finish::Done),
            Err(cause) => Answer::because(Finish::Unknown, cause),
        }
    }

    async fn do_ask(&self, branch: &BranchId, question: Question) -> Result<Evidence> {
        if !self.sql.witness_on {
            return Ok(Evidence::Off);
        }
        let fence = match question {
            Question::Look => None,
            Question::Fence => Some(self.sql.fence(branch)),
        };
        let look = self.sql.evidence(branch);
        let run = |client: Arc<Client>| async move {
            let fenced = async {
                match &fence {
                    Some(fence) => client.query_typed(fence, &[]).await,
                    None => Ok(Vec::new()),
                }
            };
            // Two transactions, one after the other: the look sees the row that the fence met, and its own answer
            // comes after the fence is durable.
            let (fenced, found) = join(fenced, client.query_typed_opt(&look, &[])).await;
            match fenced {
                Err(error) if error::is_of(&error, &SqlState::LOCK_NOT_AVAILABLE) => Ok(None),
                Err(error) => Err(error),
                Ok(_) => Ok(Some(found?.map(|row| row.try_get::<_, String>(0)).transpose()?)),
            }
        };
        let Some(kind) = self.control.run("cannot ask the witness table", run).await? else {
            return Ok(Evidence::Blocked);
        };
        witness::evidence(kind.as_deref()).map_err(|error| error.at(self.name()))
    }

    async fn do_end_session(&self, session: SessionName) -> Result<bool> {
        let (name, wait) = (session.to_string(), self.control.limit() / 2);
        let wait = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
        let run = |client: Arc<Client>| async move {
            let rows = client.query_typed(Sql::END_SESSION, &[(&name, Type::TEXT), (&wait, Type::INT8)]).await?;
            rows.iter().map(|row| row.try_get(0)).collect()
        };
        let ended: Vec<bool> = self.control.run("cannot end the session", run).await?;
        if ended.iter().all(|ended| *ended) {
            return Ok(!ended.is_empty());
        }
        Err(self.connector.unavailable(format!("session {session} was told to end and has not")))
    }

    async fn do_end_sessions(&self, participant: u16, incarnations: &[Incarnation]) -> Result<usize> {
        let names: Vec<String> = incarnations.iter().map(ToString::to_string).collect();
        let wait = i64::try_from((self.control.limit() / 2).as_millis()).unwrap_or(i64::MAX);
        let run = |client: Arc<Client>| async move {
            let told = client.query_typed(&Sql::end_sessions(participant), &[(&names, Type::TEXT_ARRAY)]).await?.len();
            if told == 0 {
                return Ok((told, Vec::new()));
            }
            let awaited = [(&names as &(dyn ToSql + Sync), Type::TEXT_ARRAY), (&wait, Type::INT8)];
            client.query_typed(&Sql::await_sessions(participant), &awaited).await?;
            // What goes by itself in between is no longer there to be waited for: only a look is proof.
            let left = client.query_typed(&Sql::sessions(participant), &[(&names, Type::TEXT_ARRAY)]).await?;
            let left = left.iter().map(|row| row.try_get::<_, String>(0)).collect::<Result<Vec<_>, _>>()?;
            Ok((told, left))
        };
        let (told, left) = self.control.run("cannot end the sessions of an earlier incarnation", run).await?;
        match left.first() {
            None => Ok(told),
            Some(session) => Err(self.connector.unavailable(format!("session {session} was told to end and has not"))),
        }
    }

    async fn do_witnessed(&self, participant: u16, incarnations: &[Incarnation], from: u64) -> Result<Vec<Witnessed>> {
        let query = self.sql.witnessed();
        let incarnations: Vec<i64> = incarnations.iter().map(|incarnation| incarnation.to_sql()).collect();
        let (participant, from) = (i32::from(participant), from.cast_signed());
        let run = |client: Arc<Client>| async move {
            let of: [(&(dyn ToSql + Sync), Type); 3] =
                [(&incarnations, Type::INT8_ARRAY), (&participant, Type::INT4), (&from, Type::INT8)];
            let rows = client.query_typed(&query, &of).await?;
            rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get::<_, String>(2)?))).collect()
        };
        let rows: Vec<(i64, i64, String)> = self.control.run("cannot read the witness table", run).await?;
        let rows = rows.iter().map(|(incarnation, sequence, kind)| Witnessed::of(*incarnation, *sequence, kind));
        rows.collect::<Result<_>>().map_err(|error| error.at(self.name()))
    }
}

fn sighting(gid: &[u8], age_in_seconds: f64) -> Sighting {
    Sighting { branch: sighted(gid), age: Duration::try_from_secs_f64(age_in_seconds.max(0.0)).ok() }
}

/// Ours by a full parse, else as it is.
fn sighted(gid: &[u8]) -> Sighted {
    let text = std::str::from_utf8(gid).ok().filter(|text| text.bytes().all(|byte| matches!(byte, b' '..=b'~')));
    match text {
        Some(text) => text.parse().map_or_else(|_| Sighted::Foreign(text.to_owned()), Sighted::Ours),
        None => Sighted::Foreign(hex(gid)),
    }
}

impl Participant for Postgres {
    fn name(&self) -> ParticipantName {
        Self::name(self)
    }

    fn kind(&self) -> &'static str {
        "postgres"
    }

    fn identify(&self) -> BoxFuture<'_, Result<Server>> {
        Box::pin(self.do_identify())
    }

    fn register<'a>(&'a self, registration: &'a Registration) -> BoxFuture<'a, Result<Lineage>> {
        Box::pin(self.do_register(registration))
    }

    fn setup_sql(&self) -> String {
        self.sql.setup(self.connector.config.get_user().unwrap_or_default())
    }

    fn init(&self) -> BoxFuture<'_, Result<Lineage>> {
        Box::pin(async { self.setup().init().await })
    }

    fn begin<'a>(
        &'a self,
        transaction: TransactionId,
        options: BeginOptions,
    ) -> BoxFuture<'a, Result<Box<dyn Branch>>> {
        Box::pin(self.do_begin(transaction, options))
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Sighting>>> {
        Box::pin(self.do_list())
    }

    fn commit<'a>(&'a self, branch: &'a BranchId) -> BoxFuture<'a, Answer<Finish>> {
        Box::pin(self.finish(Sql::commit_prepared(branch)))
    }

    fn roll_back<'a>(&'a self, branch: &'a BranchId) -> BoxFuture<'a, Answer<Finish>> {
        Box::pin(self.finish(Sql::rollback_prepared(branch)))
    }

    fn finish_all<'a>(&'a self, work: &'a [(BranchId, Resolution)], hear: Hear<'a>) -> BoxFuture<'a, ()> {
        Box::pin(self.do_finish_all(work, hear))
    }

    fn ask<'a>(&'a self, branch: &'a BranchId, question: Question) -> BoxFuture<'a, Result<Evidence>> {
        Box::pin(self.do_ask(branch, question))
    }

    fn end_session<'a>(&'a self, session: SessionName) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.do_end_session(session))
    }

    fn end_sessions<'a>(&'a self, participant: u16, incarnations: &'a [Incarnation]) -> BoxFuture<'a, Result<usize>> {
        Box::pin(self.do_end_sessions(participant, incarnations))
    }

    fn witnessed<'a>(
        &'a self,
        participant: u16,
        incarnations: &'a [Incarnation],
        from: u64,
    ) -> BoxFuture<'a, Result<Vec<Witnessed>>> {
        Box::pin(self.do_witnessed(participant, incarnations, from))
    }

    fn waiting(&self) -> BoxFuture<'_, Result<Vec<Waiting>>> {
        Box::pin(self.do_waiting())
    }

    fn room(&self) -> BoxFuture<'_, Result<Option<u64>>> {
        Box::pin(self.do_room())
    }

    fn check(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        let Self { connector, sql, expected, control, .. } = self;
        let checkup = Checkup { connector, sql, expected, limit: control.limit() };
        Box::pin(async move { checkup.run().await })
    }

    fn hold(&self, claim: Claim) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.control.hold(claim))
    }

    fn lease(&self) -> Option<u64> {
        self.control.lease_number()
    }

    fn anchor(&self) -> Option<&dyn Anchor> {
        Some(self)
    }

    fn registry(&self) -> BoxFuture<'_, Result<Vec<Registered>>> {
        Box::pin(self.do_registry())
    }

    fn prune(&self, what: Prunable) -> BoxFuture<'_, Result<bool>> {
        Box::pin(self.do_prune(what))
    }

    fn statement(&self, branch: &BranchId, resolution: Resolution) -> Option<String> {
        Some(self.typed(branch, resolution))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if let Some(ours) = self.registered.get() {
                ours.pool.close();
            }
            self.control.close().await;
        })
    }
}
