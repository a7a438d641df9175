//! MySQL and MariaDB as participants, by XA transactions. They are told apart on connection.
//!
//! Five server facts shape what is sent (`sql.rs` has the statements, `branch.rs` what each answer proves):
//!
//! 1. On MariaDB nobody but the session that prepared a branch can finish it while that session lives, and a reset of
//!    the session breaks the branch: later answers of *OK* are a lie. So a branch is finished on its own session or
//!    that session is closed, and an answer from outside counts only together with the visible witness.
//! 2. A failed statement does not doom an XA transaction. Here it does (`lent.rs`), as on PostgreSQL.
//! 3. Nothing keeps an application from ending an XA transaction and starting another of the same id. So each in which
//!    more was sent than texts that read or write rows has a **marker**, a savepoint of a random name, which ends with its
//!    transaction; whether it is still there is asked in the same round trip as what it guards.
//! 4. After a deadlock XA END fails and XA ROLLBACK works: a rollback goes on whatever XA END says.
//! 5. *Unknown XID* (1397) is the answer for a branch that was committed, rolled back, never there, or, on MariaDB,
//!    held by a living session. So each writing branch leaves a **witness** row, and recovery asks for that.
//!
//! <https://dev.mysql.com/doc/refman/9.7/en/xa-states.html>, <https://mariadb.com/kb/en/xa-transactions/>
//!
//! The application works on sessions of a pool. The resolver has a connection of its own, so that recovery cannot
//! starve behind the transactions that wait for it. Another one holds the lease, and does nothing else.
//!
//! What the application must not do: send XA statements, run statements that MySQL refuses in an XA transaction (DDL,
//! `LOCK TABLES`, `BEGIN`, `COMMIT`, on MySQL temporary tables: each fails and makes the transaction rollback-only), or
//! set user variables and make temporary tables by the binary protocol: the next user of the session finds them, since
//! nobody has seen it (`leftovers.rs`).

mod anchor;
mod branch;
mod check_sql;
mod checks;
mod control;
mod ending;
mod error;
mod finishing;
mod holding;
mod lease;
mod leftovers;
mod lent;
mod letting_go;
mod notes;
mod probe;
mod savepoints;
mod session;
mod settings;
mod setup;
mod sql;
mod ssl;
mod upkeep;
mod url;
mod waiting;
mod wire;
mod work;

pub use self::lent::{Lent, MysqlBranch};

use self::branch::{Common, XaBranch};
use self::checks::Checkup;
use self::control::Control;
use self::error::{DUPLICATE_KEY, LOCK_NOWAIT, LOCK_WAIT_TIMEOUT, MyError, XA_DUPLICATE, explain};
use self::session::{Connector, Lease, Product, Sessions};
use self::settings::Expected;
use self::setup::Setup;
use self::sql::{BranchSql, Sql, Step};
use self::wire::Failure;
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
use mysql_async::Row;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A MySQL or MariaDB database that takes part.
pub struct Mysql {
    connector: Connector,
    /// With the settings that are for the application's sessions alone.
    sessions: Connector,
    control: Arc<Control>,
    sql: Arc<Sql>,
    pool_size: usize,
    expected: Expected,
    common: Arc<Common>,
    registered: Registry<Sessions>,
}

impl Mysql {
    /// A participant by its configuration. Nothing is connected to yet.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when the URL is not one or names no database, contradicts the other
    /// keys, or a file that they name cannot be read.
    pub fn new(
        name: ParticipantName,
        config: &ParticipantConfig,
        pool: &PoolConfig,
        recovery: &RecoveryConfig,
    ) -> Result<Self> {
        let url::Read { opts, database, access } = url::read(name, config)?;
        let schema = config.schema.clone().unwrap_or_else(|| database.clone());
        let sql = Arc::new(Sql::new(database, schema, config.witness));
        let product = Arc::new(OnceLock::new());
        let connector = Connector {
            name,
            opts,
            access,
            timeout: pool.connect_timeout,
            sql: sql.clone(),
            product,
            restored: Arc::new([]),
        };
        let sessions = Connector {
            opts: url::with_settings(&connector.opts, &config.settings),
            restored: config.settings.keys().cloned().collect(),
            ..connector.clone()
        };
        let (nonce, marker) = (AtomicU64::new(witness::random()?), AtomicU64::new(witness::random()?));
        Ok(Self {
            control: Arc::new(Control::new(connector.clone(), recovery.statement_timeout, silence(recovery))),
            connector,
            sessions,
            sql,
            pool_size: config.pool_size.unwrap_or(pool.size),
            expected: Expected {
                deadline: TransactionConfig::default().timeout,
                interval: recovery.interval,
                allow_unsafe: config.allow_unsafe,
            },
            common: Arc::new(Common { name, nonce, marker, limit: recovery.statement_timeout }),
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
        Setup { name: self.name(), control: &self.control, sql: &self.sql, expected: &self.expected }
    }

    fn is_mariadb(&self) -> bool {
        self.connector.product.get() == Some(&Product::MariaDb)
    }

    fn account_for_people(&self) -> String {
        sql::account(self.connector.opts.user().unwrap_or_default(), "%")
    }

    async fn do_identify(&self) -> Result<Server> {
        let (product, version) = self.setup().server().await?;
        let version = version.split('-').next().unwrap_or_default();
        let address = url::address(&self.connector.opts);
        let description = format!("{} {version} at {address}/{}", product.title(), self.sql.database);
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
            let sql = Arc::new(BranchSql::new(self.sql.clone(), &id, options, self.common.marker()));
            let (is_warm, is_used) = (lease.is_warm(), lease.is_used());
            let branch = XaBranch::new(self.common.clone(), id, options.mode, sql, lease);
            if is_warm {
                return Ok(Box::new(branch));
            }
            // Most begin with their work: few need room for this.
            let Err(failure) = Box::pin(branch.begin()).await else { return Ok(Box::new(branch)) };
            let is_duplicate = matches!(&failure, Failure::Refused(Step::Start, error) if error.code == XA_DUPLICATE);
            if !is_used || is_duplicate {
                return Err(work::not_begun(self.name(), &id, is_used, failure));
            }
            // It died in the pool, before any work: each such session is closed, and a fresh one decides.
            tracing::debug!(participant = %self.name(), ?failure, "idle session lost");
        }
    }

    async fn do_list(&self) -> Result<Vec<Sighting>> {
        let doing = "cannot list the prepared branches";
        let (product, _) = self.setup().server().await?;
        let rows = self.control.rows::<Row>(doing, product.list()).await;
        if rows.is_err() && product == Product::MySql {
            // Says which privilege is missing, if that is why.
            self.setup().may_recover().await?;
        }
        let rows = rows?;
        // Neither server knows since when.
        Ok(rows.iter().map(|row| Sighting { branch: sighted(row, product), age: None }).collect())
    }

    async fn do_ask(&self, branch: &BranchId, question: Question) -> Result<Evidence> {
        if !self.sql.witness_on {
            return Ok(Evidence::Off);
        }
        let doing = "cannot ask the witness table";
        if question == Question::Fence {
            let known = self.look(branch).await?;
            if known != Evidence::Nothing {
                return Ok(known);
            }
            // First without waiting: InnoDB waits for a lock a whole second at least, and holds up the other calls.
            match self.control.run(doing, &self.sql.try_lock(branch)).await? {
                Err(error) if is_lock_timeout(&error) => return Ok(Evidence::Blocked),
                _ => {}
            }
            match self.control.run(doing, &self.sql.fence(branch)).await? {
                Ok(()) => return Ok(Evidence::Never),
                Err(error) if error::code(&error) == Some(DUPLICATE_KEY) => {}
                Err(error) if is_lock_timeout(&error) => return Ok(Evidence::Blocked),
                Err(error) => return Err(explain(self.name(), doing, error)),
            }
        }
        let evidence = self.look(branch).await?;
        if question == Question::Fence && evidence == Evidence::Nothing {
            // The row that the fence met is gone again: no answer, rather than a wrong one.
            return Err(self.connector.unavailable("the witness changed while it was asked for"));
        }
        Ok(evidence)
    }

    async fn do_end_sessions(&self, participant: u16, incarnations: &[Incarnation]) -> Result<usize> {
        if incarnations.is_empty() {
            return Ok(0);
        }
        let doing = "cannot ask for the session slots of an earlier incarnation";
        let most = self.control.row::<Option<i64>>(doing, &self.sql.most_slots(participant, incarnations)).await?;
        // One that never registered here never had a session here.
        let Some(most) = most.flatten() else { return Ok(0) };
        self.control.end_sessions(participant, incarnations, &self.sql.held(participant, incarnations, most)).await
    }

    async fn do_witnessed(&self, participant: u16, incarnations: &[Incarnation], from: u64) -> Result<Vec<Witnessed>> {
        if incarnations.is_empty() {
            return Ok(Vec::new());
        }
        let query = self.sql.witnessed(participant, incarnations, from);
        let rows = self.control.rows::<(i64, i64, String)>("cannot read the witness table", &query).await?;
        let rows = rows.iter().map(|(incarnation, sequence, kind)| Witnessed::of(*incarnation, *sequence, kind));
        rows.collect::<Result<_>>().map_err(|error| error.at(self.name()))
    }

    /// What the witness table says, as it is committed now.
    async fn look(&self, branch: &BranchId) -> Result<Evidence> {
        let kind = self.control.row::<String>("cannot ask the witness table", &self.sql.evidence(branch)).await?;
        witness::evidence(kind.as_deref()).map_err(|error| error.at(self.name()))
    }
}

/// Whether somebody else holds the row: MySQL has a number of its own for a lock that is not waited for.
fn is_lock_timeout(error: &MyError) -> bool {
    matches!(error::code(error), Some(LOCK_WAIT_TIMEOUT | LOCK_NOWAIT))
}

/// A row of XA RECOVER: ours by a full parse, else as it is, and never left out.
fn sighted(row: &Row, product: Product) -> Sighted {
    let parts = xid(row, product);
    let ours = parts.as_ref().and_then(|(format, gtrid, bqual)| BranchId::from_xid(*format, gtrid, bqual));
    match (ours, parts) {
        (Some(branch), _) => Sighted::Ours(branch),
        (None, Some((format, gtrid, bqual))) => Sighted::Foreign(foreign(format, &gtrid, &bqual)),
        (None, None) => Sighted::Foreign(format!("a row of XA RECOVER that cannot be read: {row:?}")),
    }
}

/// The format and the two parts of an XA identifier, split by their lengths in bytes.
fn xid(row: &Row, product: Product) -> Option<(i64, Vec<u8>, Vec<u8>)> {
    let format = row.get_opt::<i64, _>(0)?.ok()?;
    let gtrid = row.get_opt::<usize, _>(1)?.ok()?;
    let bqual = row.get_opt::<usize, _>(2)?.ok()?;
    let mut data = row.get_opt::<Vec<u8>, _>(3)?.ok()?;
    if product == Product::MySql {
        data = unhex(data.strip_prefix(b"0x")?)?;
    }
    let whole = data.len() == gtrid.checked_add(bqual)?;
    whole.then(|| (format, data[..gtrid].to_vec(), data[gtrid..].to_vec()))
}

fn unhex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let byte = |pair: &[u8]| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?);
    digits.chunks(2).map(byte).collect()
}

/// Somebody else's identifier: the name that was given by `XA START 'name'`, else as an XA statement takes it.
fn foreign(format: i64, gtrid: &[u8], bqual: &[u8]) -> String {
    let is_plain = |part: &[u8]| part.iter().all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'\'' | b'\\'));
    let text = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
    match (is_plain(gtrid) && is_plain(bqual), bqual, format) {
        (true, [], 1) => text(gtrid),
        (true, ..) => format!("'{}','{}',{format}", text(gtrid), text(bqual)),
        (false, ..) => format!("X'{}',X'{}',{format}", hex(gtrid), hex(bqual)),
    }
}

impl Participant for Mysql {
    fn name(&self) -> ParticipantName {
        Self::name(self)
    }

    fn kind(&self) -> &'static str {
        self.connector.product.get().map_or("mysql", |product| product.kind())
    }

    fn identify(&self) -> BoxFuture<'_, Result<Server>> {
        Box::pin(self.do_identify())
    }

    fn register<'a>(&'a self, registration: &'a Registration) -> BoxFuture<'a, Result<Lineage>> {
        Box::pin(self.do_register(registration))
    }

    fn setup_sql(&self) -> String {
        self.sql.setup(&self.account_for_people())
    }

    fn init(&self) -> BoxFuture<'_, Result<Lineage>> {
        Box::pin(async { self.setup().prepare().await })
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
        Box::pin(self.finish(branch, Resolution::Commit))
    }

    fn roll_back<'a>(&'a self, branch: &'a BranchId) -> BoxFuture<'a, Answer<Finish>> {
        Box::pin(self.finish(branch, Resolution::RollBack))
    }

    fn finish_all<'a>(&'a self, work: &'a [(BranchId, Resolution)], hear: Hear<'a>) -> BoxFuture<'a, ()> {
        Box::pin(self.do_finish_all(work, hear))
    }

    fn ask<'a>(&'a self, branch: &'a BranchId, question: Question) -> BoxFuture<'a, Result<Evidence>> {
        Box::pin(self.do_ask(branch, question))
    }

    fn end_session<'a>(&'a self, session: SessionName) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.control.end_session(session))
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
        Some(Self::typed(branch, resolution))
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
