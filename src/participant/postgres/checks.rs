//! Every prerequisite of a PostgreSQL database, one after the other, on a session of its own.
//!
//! The session is set up as the application's are, since a role, a database or the URL may set a timeout or another role
//! for it. What the role may not see is a note that says so.

use super::error::{PgError, explain};
use super::session::Connector;
use super::sql::{Sql, milliseconds};
use crate::clock;
use crate::error::{ErrorKind, Result};
use crate::participant::checkup::{self, OLD, message, too_short, unseen};
use crate::participant::{Finding, Severity, Sighted};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

/// What the session calls itself.
const APPLICATION_NAME: &str = "handfast.doctor";

/// What the checks compare with.
pub(super) struct Expected {
    pub(super) pool_size: usize,
    /// How long a transaction may take.
    pub(super) deadline: Duration,
    /// How long the resolver's connection may be idle.
    pub(super) interval: Duration,
    pub(super) allow_unsafe: bool,
}

/// The settings that the promise rests on, by name, and what is found out with them.
pub(super) struct Settings(BTreeMap<String, String>);

impl Settings {
    /// Reads them as they hold for a session.
    pub(super) async fn read(client: &Client) -> Result<Self, PgError> {
        let rows = client.query_typed(Sql::SETTINGS, &[]).await?;
        let pair = |row: &tokio_postgres::Row| Ok((row.try_get(0)?, row.try_get(1)?));
        rows.iter().map(pair).collect::<Result<_, PgError>>().map(Self)
    }

    fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    fn number(&self, name: &str) -> Option<i64> {
        self.0.get(name)?.parse().ok()
    }

    /// A time limit: PostgreSQL's zero is none.
    fn limit(&self, name: &str) -> Option<Duration> {
        let milliseconds = self.number(name).and_then(|limit| u64::try_from(limit).ok());
        milliseconds.filter(|limit| *limit > 0).map(Duration::from_millis)
    }

    /// What opening refuses, or warns of (D13, D40, D41).
    pub(super) fn findings(&self, expected: &Expected) -> Vec<Finding> {
        let mut all = vec![self.version(), self.standby(), self.slots(expected.pool_size)];
        for name in ["fsync", "full_page_writes"] {
            all.push(self.durable(name, expected.allow_unsafe));
        }
        all
    }

    fn version(&self) -> Finding {
        let version = self.number("server_version_num").unwrap_or_default();
        if version >= 140_000 {
            return Finding::good("version", format!("PostgreSQL {}", version / 10_000));
        }
        let found = format!("PostgreSQL 14 or later is needed, this is {}", version / 10_000);
        Finding::of(Severity::Failure, "version", found, "no other was tried").cure("upgrade the server")
    }

    fn standby(&self) -> Finding {
        if self.text("in_recovery") != "true" {
            return Finding::good("primary", "the server is a primary");
        }
        let found = "the server is a standby (in recovery)";
        let why = "nothing can be written there, and nothing prepared";
        Finding::of(Severity::Failure, "primary", found, why).cure("point the URL to the primary")
    }

    fn slots(&self, pool: usize) -> Finding {
        let (slots, used) = (self.number("max_prepared_transactions"), self.number("prepared_in_use"));
        let (slots, used) = (slots.unwrap_or_default(), used.unwrap_or_default());
        let pool = i64::try_from(pool).unwrap_or(i64::MAX);
        let enough = pool.saturating_add(used);
        let check = "prepared slots";
        let cure = format!(
            "set it to at least {enough} (ALTER SYSTEM SET max_prepared_transactions = {enough}) and restart the server"
        );
        if slots == 0 {
            let found = "prepared transactions are disabled: max_prepared_transactions is 0";
            return Finding::of(Severity::Failure, check, found, "every commit would fail").cure(cure);
        }
        let found = format!("max_prepared_transactions is {slots}, {used} in use by whomever");
        if slots >= enough {
            return Finding::good(check, found);
        }
        let why = format!("the pool has {pool} sessions: a commit that finds no slot is refused");
        Finding::of(Severity::Warning, check, found, why).cure(cure)
    }

    fn durable(&self, name: &'static str, allow_unsafe: bool) -> Finding {
        match self.text(name) {
            "on" => Finding::good(name, format!("{name} is on")),
            "" => unseen(name, "the setting is not shown"),
            other => {
                let why = "a crash of the server or its machine can lose what it has answered";
                Finding::breaks_promise(name, allow_unsafe, format!("{name} is {other}"), why)
                    .cure(format!("ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf()"))
            }
        }
    }

    /// What ends a session, or what it is at, before Handfast would.
    fn timeouts(&self, role: &str, expected: &Expected) -> Vec<Finding> {
        let Expected { deadline, interval, .. } = *expected;
        let within = |name: &str| format!("within the {deadline:?} that a transaction may take ({name})");
        let limits = [
            (
                "idle_in_transaction_session_timeout",
                deadline,
                Severity::Warning,
                "the server ends a session that is idle, and its branch with it, ",
            ),
            ("transaction_timeout", deadline, Severity::Warning, "the server ends the branch and its session "),
            (
                "statement_timeout",
                deadline,
                Severity::Note,
                "the server cancels a statement, which makes the transaction rollback-only, ",
            ),
            ("idle_session_timeout", interval, Severity::Warning, ""),
        ];
        let mut all: Vec<_> = limits
            .into_iter()
            .filter_map(|(name, needed, severity, why)| {
                let limit = too_short(self.limit(name), needed)?;
                let why = match why {
                    "" => format!(
                        "the server ends the resolver's session, which is idle for {interval:?}, and the pool's"
                    ),
                    why => format!("{why}{}", within("transaction.timeout")),
                };
                let longer = needed.saturating_add(needed);
                let cure = format!("ALTER ROLE {role} SET {name} = '{}ms'", milliseconds(longer));
                Some(Finding::of(severity, "timeouts", format!("{name} is {limit:?}"), why).cure(cure))
            })
            .collect();
        if all.is_empty() {
            all.push(Finding::good("timeouts", "no timeout of the server comes before Handfast's own"));
        }
        all
    }

    /// Whether what is answered is on another server as well.
    fn replication(&self, role: &str) -> Finding {
        let check = "replication";
        let (standbys, names) = (self.number("standbys").unwrap_or_default(), self.text("synchronous_standby_names"));
        let weak = matches!(self.text("synchronous_commit"), "off" | "local");
        match (standbys, names) {
            (_, names) if !names.is_empty() && weak => {
                let found = format!(
                    "synchronous_commit is {} for this role, with synchronous_standby_names = '{names}'",
                    self.text("synchronous_commit")
                );
                let why = "PREPARE does not wait for the standby: a failover can lose a prepared branch";
                Finding::of(Severity::Warning, check, found, why)
                    .cure(format!("ALTER ROLE {role} SET synchronous_commit = on"))
            }
            (_, names) if !names.is_empty() => Finding::good(check, "commits wait for a standby"),
            (0, _) => Finding::good(check, "no standby is connected"),
            (connected, _) => {
                let found = format!("{connected} standby(s) connected, none of them synchronous");
                let why = "after a failover, a prepared branch or a commit that was answered may be missing";
                Finding::of(Severity::Warning, check, found, why)
                    .cure("set synchronous_standby_names, or never promote a standby that has not received everything")
            }
        }
    }

    fn synchronous_commit(&self) -> Finding {
        match self.text("synchronous_commit") {
            "off" => {
                let why = "PREPARE and COMMIT PREPARED are durable all the same, and Handfast raises it for a single \
                           writer's COMMIT; the application's own transactions beside Handfast are not";
                Finding::of(Severity::Note, "synchronous_commit", "synchronous_commit is off for this role", why)
            }
            other => Finding::good("synchronous_commit", format!("synchronous_commit is {other}")),
        }
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
        let link = self.connector.connect(APPLICATION_NAME).await?;
        let client = &*link.client;
        let settings = self.ask("cannot read the settings", Settings::read(client)).await?;
        let role = super::sql::quote(self.role());
        let mut all = settings.findings(self.expected);
        all.extend(settings.timeouts(&role, self.expected));
        all.extend([settings.replication(&role), settings.synchronous_commit()]);
        self.add(&mut all, "role", self.who(client).await)?;
        self.add(&mut all, "encryption", self.encryption(client).await)?;
        // From here on as the resolver works.
        let session = Sql::control_session(self.limit, self.limit.min(Duration::from_secs(1)));
        self.ask("cannot set up the session", client.batch_execute(&session)).await?;
        let exist = self.exist(client).await?;
        self.add(&mut all, "tables", if exist { self.tables(client).await } else { self.missing(client).await })?;
        if exist {
            self.add(&mut all, "rights", self.rights(client).await)?;
        }
        all.push(checkup::witness(self.sql.witness_on));
        self.add(&mut all, "prepared branches", self.prepared(client).await)?;
        self.add(&mut all, "other tables", self.application_tables(client).await)?;
        self.add(&mut all, "clock", self.clock(client).await)?;
        let hopeless = ["version", "primary", "prepared slots", "rights"];
        if all.iter().any(|one| one.severity == Severity::Failure && hopeless.contains(&one.check)) {
            all.push(Finding::of(
                Severity::Note,
                "probe",
                "no branch was prepared",
                "it would fail for what is said above",
            ));
        } else {
            all.extend(self.probe(client, exist).await?);
        }
        Ok(all)
    }

    fn role(&self) -> &str {
        self.connector.config.get_user().unwrap_or_default()
    }

    /// Bounds a question in time.
    pub(super) async fn ask<T>(&self, doing: &str, answer: impl Future<Output = Result<T, PgError>>) -> Result<T> {
        let late = |_| self.connector.unavailable(format!("{doing}: no answer within {:?}", self.limit));
        let answer = tokio::time::timeout(self.limit, answer).await.map_err(late)?;
        answer.map_err(|error| explain(self.connector.name, doing, error))
    }

    /// As the server sees it: between it and a proxy it may be another.
    async fn encryption(&self, client: &Client) -> Result<Vec<Finding>> {
        let row = self.ask("cannot ask for the encryption", client.query_typed_opt(Sql::ENCRYPTION, &[])).await?;
        let cipher = row.and_then(|row| Some((row.try_get(0).ok()?, row.try_get(1).ok()?)));
        Ok(vec![self.connector.access.finding(cipher)])
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

    async fn who(&self, client: &Client) -> Result<Vec<Finding>> {
        let row = self.ask("cannot ask for the role", client.query_typed_one(Sql::WHO, &[])).await?;
        let (login, current, database): (String, String, String) = (row.get(0), row.get(1), row.get(2));
        if login == current {
            return Ok(vec![Finding::good("role", format!("role {login}, database {database}"))]);
        }
        let found = format!("sessions of {login} begin with the role {current}, in database {database}");
        let why = format!("branches are prepared and finished as {login}, which needs the rights on Handfast's tables");
        Ok(vec![Finding::of(Severity::Note, "role", found, why)])
    }

    async fn exist(&self, client: &Client) -> Result<bool> {
        let query = self.sql.tables_exist();
        let schema = [(&self.sql.schema as &(dyn ToSql + Sync), Type::TEXT)];
        let look = client.query_typed_one(&query, &schema);
        Ok(self.ask("cannot look for Handfast's tables", look).await?.get(0))
    }

    async fn missing(&self, client: &Client) -> Result<Vec<Finding>> {
        let schema = [(&self.sql.schema as &(dyn ToSql + Sync), Type::TEXT)];
        let look = client.query_typed_one(Sql::MAY_CREATE, &schema);
        let may: bool = self.ask("cannot ask for the right to create tables", look).await?.get(0);
        let found = format!("Handfast's tables are missing in schema {}", self.sql.schema);
        let finding = match may {
            true => Finding::of(Severity::Note, "tables", found, "opening creates them, this role may")
                .cure("handfast init"),
            false => Finding::of(Severity::Failure, "tables", found, "this role may not create them")
                .cure(format!("run as an owner:\n{}", self.sql.setup(self.role()).trim_end())),
        };
        Ok(vec![finding])
    }

    /// Whether the tables are as `handfast init` makes them, and keep what is written.
    async fn tables(&self, client: &Client) -> Result<Vec<Finding>> {
        let query = self.sql.tables();
        let rows = self.ask("cannot look at Handfast's tables", client.query_typed(&query, &[])).await?;
        let mut all = Vec::new();
        for row in &rows {
            let (table, persistence, security): (String, String, bool) = (row.get(0), row.get(1), row.get(2));
            let (columns, key): (Option<String>, Option<String>) = (row.get(3), row.get(4));
            let (expected_columns, expected_key) = Sql::columns(&table);
            let full = format!("{}.{table}", self.sql.schema);
            if persistence != "p" {
                let why = "a crash of the server empties it, and the proof of what was committed with it";
                let found = format!("{full} is unlogged");
                let cure = format!("ALTER TABLE {full} SET LOGGED");
                all.push(Finding::of(Severity::Failure, "tables", found, why).cure(cure));
            }
            if security {
                let found = format!("{full} has row level security");
                let why = "rows that a policy hides are taken for rows that are not there";
                let cure = format!("ALTER TABLE {full} DISABLE ROW LEVEL SECURITY");
                all.push(Finding::of(Severity::Warning, "tables", found, why).cure(cure));
            }
            if key.as_deref() != Some(expected_key) {
                let found = format!("{full} has the primary key ({})", key.unwrap_or_default());
                let why = "the key is the referee between a branch and recovery";
                let cure = format!("ALTER TABLE {full} ADD PRIMARY KEY ({expected_key})");
                all.push(Finding::of(Severity::Failure, "tables", found, why).cure(cure));
            }
            if columns.as_deref() != Some(expected_columns) {
                let found = format!("{full} has the columns {}", columns.unwrap_or_default());
                let why = format!("`handfast init` makes {expected_columns}");
                all.push(
                    Finding::of(Severity::Warning, "tables", found, why).cure("compare with `handfast init --print`"),
                );
            }
        }
        if all.is_empty() {
            all.push(Finding::good("tables", format!("both tables are in schema {}", self.sql.schema)));
        }
        Ok(all)
    }

    async fn rights(&self, client: &Client) -> Result<Vec<Finding>> {
        let query = self.sql.rights();
        let role = self.role();
        let lacks = |why: String| {
            let found = format!("role {role} lacks rights on Handfast's tables");
            Finding::of(Severity::Failure, "rights", found, why).cure(self.sql.grants(role).trim_end())
        };
        let doing = "cannot read the rights on Handfast's tables";
        match self.ask(doing, client.query_typed_one(&query, &[])).await {
            Ok(row) if row.get(0) => Ok(vec![Finding::good("rights", format!("role {role} may use both tables"))]),
            Ok(_) => Ok(vec![lacks("a branch could not leave its proof, or recovery not read it".into())]),
            // Such as no right on the schema.
            Err(error) if error.kind() == ErrorKind::Setup => Ok(vec![lacks(message(&error))]),
            Err(error) => Err(error),
        }
    }

    /// What is prepared for long (D24), and what this role could not finish.
    async fn prepared(&self, client: &Client) -> Result<Vec<Finding>> {
        let rows = self.ask("cannot list what is prepared", client.query_typed(Sql::PREPARED, &[])).await?;
        let (mut old, mut other_owner, mut oldest) = (Vec::new(), Vec::new(), Duration::ZERO);
        for row in &rows {
            let (gid, seconds, owner): (&[u8], f64, String) = (row.get(0), row.get(1), row.get(2));
            let (database, is_here, mine): (String, bool, bool) = (row.get(3), row.get(4), row.get(5));
            let sighted = super::sighted(gid);
            let is_ours = matches!(sighted, Sighted::Ours(_));
            let name = match sighted {
                Sighted::Ours(id) => id.to_string(),
                Sighted::Foreign(text) => text,
            };
            let age = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default();
            if is_ours && is_here && !mine {
                other_owner.push(format!("{name} of {owner}"));
            }
            if age >= OLD {
                oldest = oldest.max(age);
                old.push(if is_here { name } else { format!("{name} in database {database}") });
            }
        }
        Ok(prepared(rows.len(), &old, oldest, &other_owner))
    }

    /// Tables of the application that do not keep, or cannot take part in, what is committed.
    async fn application_tables(&self, client: &Client) -> Result<Vec<Finding>> {
        let rows = self.ask("cannot look at the tables", client.query_typed(Sql::OTHER_TABLES, &[])).await?;
        let of = |kind: &str| -> Vec<String> {
            rows.iter().filter(|row| row.get::<_, &str>(1) == kind).map(|row| row.get(0)).collect()
        };
        let (unlogged, foreign) = (of("unlogged"), of("foreign"));
        let mut all = Vec::new();
        if !unlogged.is_empty() {
            let found = format!("{} unlogged table(s): {}", unlogged.len(), checkup::some(&unlogged));
            let why = "a crash of the server empties them: half of a committed transaction is lost with them";
            let cure = "ALTER TABLE .. SET LOGGED for those that transactions over two databases write";
            all.push(Finding::of(Severity::Warning, "other tables", found, why).cure(cure));
        }
        if !foreign.is_empty() {
            let found = format!("{} foreign table(s): {}", foreign.len(), checkup::some(&foreign));
            let why = "PREPARE refuses a transaction that has touched one of postgres_fdw: the commit fails, cleanly";
            all.push(Finding::of(Severity::Note, "other tables", found, why));
        }
        if all.is_empty() {
            all.push(Finding::good("other tables", "all tables of the database keep what is committed"));
        }
        Ok(all)
    }

    async fn clock(&self, client: &Client) -> Result<Vec<Finding>> {
        let before = clock::now();
        let row = self.ask("cannot ask for the time", client.query_typed_one(Sql::CLOCK, &[])).await?;
        Ok(vec![checkup::clocks(row.get(0), before, clock::now())])
    }
}

/// What the list of prepared transactions of the whole server says.
fn prepared(count: usize, old: &[String], oldest: Duration, other_owner: &[String]) -> Vec<Finding> {
    let check = "prepared branches";
    let mut all = Vec::new();
    if !old.is_empty() {
        let found = format!(
            "{} prepared for more than an hour, up to {}: {}",
            old.len(),
            checkup::age(oldest),
            checkup::some(old)
        );
        let why = "they hold locks, take slots, and keep VACUUM from its work";
        let cure = "`handfast list` tells whose they are; `handfast recover` ends this program's. Of others, ask their \
                    owners first, then ROLLBACK PREPARED or COMMIT PREPARED in their database";
        all.push(Finding::of(Severity::Warning, check, found, why).cure(cure));
    }
    if !other_owner.is_empty() {
        let found =
            format!("{} of Handfast's format belong to other roles: {}", other_owner.len(), checkup::some(other_owner));
        let why = "only the role that prepared one, or a superuser, can finish it";
        all.push(Finding::of(Severity::Warning, check, found, why).cure("run the program that owns them as that role"));
    }
    if all.is_empty() {
        all.push(Finding::good(check, format!("{count} on the server, none for longer than an hour")));
    }
    all
}
