//! Every prerequisite of a MySQL or MariaDB database, one after the other, on a session of its own.
//!
//! The session is set up as the application's are, since the server may set a time limit for it. What the account may not
//! see is a note that says so.

use super::check_sql::grant_process;
use super::error::{self, MyError, XA_FAILED, explain};
use super::session::{AsyncPrepare, Connector, Product};
use super::settings::{Expected, Settings};
use super::sql::{self, Sql};
use super::waiting::{Shown, is_forbidden, waiters};
use super::wire::Wire;
use crate::clock;
use crate::error::{ErrorKind, Result};
use crate::id::FORMAT_ID;
use crate::participant::checkup::{self, OLD, message, unseen};
use crate::participant::{Finding, Severity};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row};
use std::time::Duration;

/// Reads the settings of a new session.
struct Reading<'a>(&'a Connector);

impl AsyncPrepare<Settings> for Reading<'_> {
    async fn run(self, wire: &mut Wire) -> Result<Settings> {
        let read = Settings::read(wire.conn()).await;
        let settings = read.map_err(|error| explain(self.0.name, "cannot read the settings", error))?;
        self.0.learn(settings.version());
        Ok(settings)
    }
}

/// All the checks of a database.
pub(super) struct Checkup<'a> {
    pub(super) connector: &'a Connector,
    pub(super) sql: &'a Sql,
    pub(super) expected: &'a Expected,
    /// How long one statement may take.
    pub(super) limit: Duration,
}

impl Checkup<'_> {
    /// Runs them all.
    pub(super) async fn run(&self) -> Result<Vec<Finding>> {
        let (mut wire, settings) = self.connector.connect(Reading(self.connector)).await?;
        let all = self.all(wire.conn(), &settings).await;
        if all.is_err() {
            wire.sever();
        }
        all
    }

    async fn all(&self, conn: &mut Conn, settings: &Settings) -> Result<Vec<Finding>> {
        let product = settings.product();
        let mut all = settings.findings(self.expected);
        all.extend(settings.timeouts(self.expected));
        all.push(settings.replication());
        let account: Option<String> =
            self.ask("cannot ask for the account", conn.query_first(Sql::CURRENT_USER)).await?;
        let account = sql::account_of(&account.unwrap_or_default());
        all.push(Finding::good("role", format!("account {account}, database {}", self.sql.database)));
        all.push(self.encryption(conn).await?);
        self.ask("cannot set up the session", conn.query_drop(Sql::control_session(self.limit))).await?;
        if product == Product::MySql {
            self.add(&mut all, "privileges", self.may_recover(conn, &account).await)?;
        }
        let (exist, tables) = self.tables(conn).await?;
        all.extend(tables);
        if exist {
            self.add(&mut all, "rights", self.rights(conn, &account).await)?;
        }
        all.push(checkup::witness(self.sql.witness_on));
        let may_list = !failed(&all, &["privileges"]);
        if may_list {
            self.add(&mut all, "prepared branches", self.prepared(conn, product, &account).await)?;
        }
        self.add(&mut all, "who waits", self.waiting(conn, product).await)?;
        self.add(&mut all, "other tables", self.engines(conn).await)?;
        self.add(&mut all, "clock", self.clock(conn).await)?;
        if failed(&all, &["version", "primary", "cluster", "privileges", "rights"]) {
            all.push(Finding::of(
                Severity::Note,
                "probe",
                "no branch was prepared",
                "it would fail for what is said above",
            ));
        } else {
            let probed = self.probe(conn, product, exist).await;
            self.add(&mut all, "probe", probed)?;
        }
        Ok(all)
    }

    /// Bounds a question in time.
    pub(super) async fn ask<T>(&self, doing: &str, answer: impl Future<Output = Result<T, MyError>>) -> Result<T> {
        let late = |_| self.connector.unavailable(format!("{doing}: no answer within {:?}", self.limit));
        let answer = tokio::time::timeout(self.limit, answer).await.map_err(late)?;
        answer.map_err(|error| explain(self.connector.name, doing, error))
    }

    async fn encryption(&self, conn: &mut Conn) -> Result<Finding> {
        let rows =
            self.ask("cannot ask for the encryption", conn.query::<(String, String), _>(Sql::ENCRYPTION)).await?;
        let value =
            |name: &str| rows.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.clone());
        let cipher = value("Ssl_version").zip(value("Ssl_cipher")).filter(|(_, cipher)| !cipher.is_empty());
        Ok(self.connector.access.finding(cipher))
    }

    /// Adds what a check found; one that was refused is no reason to give up the others, a lost connection is.
    fn add(&self, all: &mut Vec<Finding>, check: &'static str, found: Result<Vec<Finding>>) -> Result<()> {
        match found {
            Ok(found) => all.extend(found),
            Err(error) if error.kind() == ErrorKind::Unavailable => return Err(error),
            Err(error) => all.push(unseen(check, message(&error))),
        }
        Ok(())
    }

    /// Without the privilege everything works until the first crash (D29).
    async fn may_recover(&self, conn: &mut Conn, account: &str) -> Result<Vec<Finding>> {
        let answer = async { Ok(conn.query_drop(Sql::LIST_MYSQL).await) };
        match self.ask("cannot list the prepared branches", answer).await? {
            Ok(()) => Ok(vec![Finding::good("privileges", "the account may see prepared branches (XA_RECOVER_ADMIN)")]),
            Err(error) if error::code(&error) == Some(XA_FAILED) => {
                let found = "the account may not see prepared branches (XA RECOVER)";
                let why = "everything works until the first crash; then nothing can be recovered";
                let finding = Finding::of(Severity::Failure, "privileges", found, why);
                Ok(vec![finding.cure(format!("{};", sql::grant_recover(account)))])
            }
            Err(error) => Err(explain(self.connector.name, "cannot list the prepared branches", error)),
        }
    }

    /// Whether the tables are there, and as `handfast init` makes them.
    async fn tables(&self, conn: &mut Conn) -> Result<(bool, Vec<Finding>)> {
        let doing = "cannot look at Handfast's tables";
        let engines: Vec<(String, Option<String>)> = self.ask(doing, conn.query(self.sql.tables())).await?;
        let schema = &self.sql.schema;
        if engines.len() < 2 {
            let found = format!("Handfast's tables are missing in database {schema}, or this account may not see them");
            let why = "opening creates them if the account may";
            return Ok((false, vec![Finding::of(Severity::Warning, "tables", found, why).cure("handfast init")]));
        }
        let mut all = Vec::new();
        for (table, engine) in engines {
            let engine = engine.unwrap_or_else(|| "none".into());
            if !engine.eq_ignore_ascii_case("InnoDB") {
                let found = format!("table {schema}.{table} has the engine {engine}");
                let why = "what is written there is no part of the branch, and so proves nothing";
                let cure = format!("ALTER TABLE `{schema}`.`{table}` ENGINE=InnoDB");
                all.push(Finding::of(Severity::Failure, "tables", found, why).cure(cure));
            }
        }
        let columns: Vec<(String, String, Option<String>)> =
            self.ask(doing, conn.query(self.sql.table_columns())).await?;
        for (table, columns, key) in columns {
            let (expected_columns, expected_key) = Sql::columns(&table);
            if key.as_deref() != Some(expected_key) {
                let found = format!("{schema}.{table} has the primary key ({})", key.unwrap_or_default());
                let why = "the key is the referee between a branch and recovery";
                let cure = format!("ALTER TABLE `{schema}`.`{table}` ADD PRIMARY KEY ({expected_key})");
                all.push(Finding::of(Severity::Failure, "tables", found, why).cure(cure));
            }
            if columns != expected_columns {
                let found = format!("{schema}.{table} has the columns {columns}");
                let why = format!("`handfast init` makes {expected_columns}");
                all.push(
                    Finding::of(Severity::Warning, "tables", found, why).cure("compare with `handfast init --print`"),
                );
            }
        }
        if all.is_empty() {
            all.push(Finding::good("tables", format!("both tables are in database {schema}, in InnoDB")));
        }
        Ok((true, all))
    }

    async fn rights(&self, conn: &mut Conn, account: &str) -> Result<Vec<Finding>> {
        let mut answer = Ok(());
        for statement in self.sql.try_rights().into_iter().chain(self.sql.try_registry_rights()) {
            answer = self.ask("the account lacks rights on Handfast's tables", conn.query_drop(statement)).await;
            if answer.is_err() {
                break;
            }
        }
        match answer {
            Ok(()) => Ok(vec![Finding::good("rights", "the account may use both tables")]),
            Err(error) if error.kind() == ErrorKind::Setup => {
                let why = "a branch could not leave its proof, or recovery not read it";
                let finding = Finding::of(Severity::Failure, "rights", message(&error), why);
                Ok(vec![finding.cure(self.sql.grants(account).trim_end())])
            }
            Err(error) => Err(error),
        }
    }

    /// What is prepared for long (D24), as far as the account may see since when.
    async fn prepared(&self, conn: &mut Conn, product: Product, account: &str) -> Result<Vec<Finding>> {
        let check = "prepared branches";
        let rows: Vec<Row> = self.ask("cannot list the prepared branches", conn.query(product.list())).await?;
        let count = rows.len();
        if count == 0 {
            return Ok(vec![Finding::good(check, "none on the server")]);
        }
        let formats = rows.iter().filter_map(|row| super::xid(row, product)).map(|(format, ..)| format);
        let mut all: Vec<_> = formats.max().and_then(|highest| high_format(product, highest)).into_iter().collect();
        all.push(self.since_when(conn, count, account).await?);
        Ok(all)
    }

    async fn since_when(&self, conn: &mut Conn, count: usize, account: &str) -> Result<Finding> {
        let check = "prepared branches";
        let answer = async { Ok(conn.query::<u64, _>(Sql::DETACHED).await) };
        let ages = match self.ask("cannot ask since when branches are prepared", answer).await? {
            Ok(ages) => ages,
            Err(error) if is_forbidden(&error) => {
                let found = format!("{count} on the server; since when, this account may not see");
                let why = "one that is prepared for hours holds locks, and old versions of rows";
                let finding = Finding::of(Severity::Note, check, found, why);
                return Ok(finding.cure(format!("{}; or look at `handfast list`", grant_process(account))));
            }
            Err(error) => {
                return Err(explain(self.connector.name, "cannot ask since when branches are prepared", error));
            }
        };
        let old: Vec<_> = ages.into_iter().map(Duration::from_secs).filter(|age| *age >= OLD).collect();
        let Some(oldest) = old.iter().max() else {
            let found = format!("{count} on the server, none seen that is prepared for longer than an hour");
            return Ok(Finding::good(check, found));
        };
        let found = format!("{} prepared for more than an hour, up to {}", old.len(), checkup::age(*oldest));
        let why = "they hold locks, and keep old versions of rows from being removed";
        let cure = "`handfast list` tells whose they are; `handfast recover` ends this program's. Of others, ask their \
                    owners first, then XA ROLLBACK or XA COMMIT";
        Ok(Finding::of(Severity::Warning, check, found, why).cure(cure))
    }

    /// Who waits for a prepared branch, and whether this account could see it.
    async fn waiting(&self, conn: &mut Conn, product: Product) -> Result<Vec<Finding>> {
        let check = "who waits";
        let mut all = Vec::new();
        let seen = match self.ask("cannot ask who waits for prepared branches", waiters(conn, product)).await? {
            Shown::All(seen) if seen.is_empty() => {
                all.push(Finding::good(check, "nobody seen who waits for a prepared branch"));
                seen
            }
            Shown::All(seen) => seen,
            Shown::Some(seen, cure) => {
                let why = "`handfast list` cannot show it; nothing else depends on it";
                all.push(Finding::of(Severity::Note, check, "this account may not see it", why).cure(cure));
                seen
            }
        };
        if !seen.is_empty() {
            let found = format!("{} wait for a prepared branch: {}", seen.len(), checkup::some(&seen));
            all.push(Finding::of(Severity::Note, check, found, "they go on when it ends").cure("handfast list"));
        }
        Ok(all)
    }

    /// Tables whose rows stay when a branch rolls back.
    async fn engines(&self, conn: &mut Conn) -> Result<Vec<Finding>> {
        let tables: Vec<(String, String)> =
            self.ask("cannot look at the tables", conn.query(self.sql.other_engines())).await?;
        if tables.is_empty() {
            return Ok(vec![Finding::good("other tables", "every table seen has an engine that can be prepared")]);
        }
        let names: Vec<_> = tables.iter().map(|(table, engine)| format!("{table} ({engine})")).collect();
        let found = format!("{} table(s) that cannot be rolled back: {}", names.len(), checkup::some(&names));
        let why = "what a transaction writes there stays when it rolls back, or is lost when it commits";
        let cure = "ALTER TABLE .. ENGINE=InnoDB for those that transactions over two databases write";
        Ok(vec![Finding::of(Severity::Warning, "other tables", found, why).cure(cure)])
    }

    async fn clock(&self, conn: &mut Conn) -> Result<Vec<Finding>> {
        let before = clock::now();
        let seconds: Option<String> = self.ask("cannot ask for the time", conn.query_first(Sql::CLOCK)).await?;
        let after = clock::now();
        Ok(vec![match seconds.and_then(|seconds| seconds.parse().ok()) {
            Some(seconds) => checkup::clocks(seconds, before, after),
            None => unseen("clock", "the server gave no time"),
        }])
    }
}

/// MySQL loses prepared branches in a crash when its binary log has such XIDs (bug 120125).
fn high_format(product: Product, highest: i64) -> Option<Finding> {
    (product == Product::MySql && highest > i64::from(FORMAT_ID)).then(|| {
        let found = format!("another program's branch has the formatID {highest}");
        let why = "with such ids in its binary log, MySQL loses others' prepared branches in a crash";
        Finding::of(Severity::Warning, "formatID", found, why).cure("move that program to another server")
    })
}

fn failed(all: &[Finding], checks: &[&str]) -> bool {
    all.iter().any(|one| one.severity == Severity::Failure && checks.contains(&one.check))
}
