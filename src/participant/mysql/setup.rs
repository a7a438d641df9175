//! Prerequisites, tables, lineage, registration.

use super::control::Control;
use super::error::{self, DUPLICATE_KEY, MyError, XA_FAILED, explain};
use super::session::Product;
use super::settings::{Expected, Settings};
use super::sql::{self, Sql};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Lineage, ParticipantName};
use crate::participant::witness::{new_lineage, wrong_lineage};
use crate::participant::{Registration, Severity};
use mysql_async::prelude::Queryable;

/// What setting up works with.
pub(super) struct Setup<'a> {
    pub(super) name: ParticipantName,
    pub(super) control: &'a Control,
    pub(super) sql: &'a Sql,
    pub(super) expected: &'a Expected,
}

/// How often creating tables is tried while others do so.
const ATTEMPTS: u32 = 5;

/// Creates tables. Others that do so at once may be in the way, and the server then ends one of them by a deadlock: it goes on
/// when the other has.
pub(super) async fn create<T, F: Future<Output = Result<T>>>(attempt: impl Fn() -> F) -> Result<T> {
    for _ in 1..ATTEMPTS {
        match attempt().await {
            Err(error) if error.kind() == ErrorKind::Retry => {
                tracing::debug!(error = %error.chain(), "the tables are created by somebody else, too");
            }
            done => return done,
        }
    }
    attempt().await
}

impl Setup<'_> {
    fn lacks(&self, message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Setup, message).at(self.name)
    }

    /// The version's text and the product behind it.
    pub(super) async fn server(&self) -> Result<(Product, String)> {
        let version = self.control.row::<String>("cannot identify the server", Sql::VERSION).await?;
        let version = version.ok_or_else(|| self.control.connector.unavailable("VERSION() gave no answer"))?;
        Ok((Product::of(&version), version))
    }

    /// The account as the server sees it, as GRANT takes it.
    async fn account(&self) -> Result<String> {
        let account = self.control.row::<String>("cannot ask for the account", Sql::CURRENT_USER).await?;
        Ok(sql::account_of(&account.unwrap_or_default()))
    }

    /// Refuses what would fail later, when it costs a transaction, and settings that break the promise (D13).
    async fn prerequisites(&self) -> Result<()> {
        if self.settings_allow().await? == Product::MySql {
            self.may_recover().await?;
        }
        Ok(())
    }

    async fn settings_allow(&self) -> Result<Product> {
        let doing = "cannot read the settings";
        let work = async {
            let mut held = self.control.take().await?;
            let answer = Settings::read(held.conn()).await;
            held.keep(&answer);
            answer.map_err(|error| explain(self.name, doing, error))
        };
        let settings = self.control.within(doing, work).await?;
        for finding in settings.findings(self.expected) {
            match finding.severity {
                Severity::Failure => return Err(self.lacks(finding.sentence())),
                Severity::Warning => tracing::warn!(participant = %self.name, "{}", finding.sentence()),
                Severity::Note => tracing::info!(participant = %self.name, "{}", finding.sentence()),
                Severity::Good => {}
            }
        }
        Ok(settings.product())
    }

    /// Without the privilege everything works until the first crash (D29).
    pub(super) async fn may_recover(&self) -> Result<()> {
        let doing = "cannot list the prepared branches";
        match self.control.run(doing, Sql::LIST_MYSQL).await? {
            Ok(()) => Ok(()),
            Err(error) if error::code(&error) == Some(XA_FAILED) => {
                let grant = sql::grant_recover(&self.account().await?);
                let message = format!(
                    "the account may not see prepared branches (XA RECOVER); run as an administrator:\n{grant};"
                );
                Err(self.lacks(message).because(error))
            }
            Err(error) => Err(explain(self.name, doing, error)),
        }
    }

    /// Whether both tables are there; refuses an engine that cannot roll back.
    async fn tables_exist(&self) -> Result<bool> {
        let doing = "cannot look for Handfast's tables";
        let tables = self.control.rows::<(String, Option<String>)>(doing, &self.sql.tables()).await?;
        for (table, engine) in &tables {
            if !engine.as_deref().is_some_and(|engine| engine.eq_ignore_ascii_case("InnoDB")) {
                let engine = engine.as_deref().unwrap_or("none");
                return Err(self.lacks(format!("table {table} has the engine {engine}, it must be InnoDB")));
            }
        }
        Ok(tables.len() == 2)
    }

    /// The identity of the data there, `None` while there is none.
    pub(super) async fn lineage(&self) -> Result<Option<Lineage>> {
        if !self.tables_exist().await? {
            return Ok(None);
        }
        let found = self.control.row::<i64>("cannot read the lineage", &self.sql.lineage()).await?;
        Ok(found.map(Lineage::from_sql))
    }

    /// Creates what is missing on a server whose settings registration would accept; nothing is written to any other.
    /// What the account lacks may be granted later.
    pub(super) async fn prepare(&self) -> Result<Lineage> {
        self.settings_allow().await?;
        self.init().await
    }

    /// Creates what is missing; two that do it at once get the same lineage.
    async fn init(&self) -> Result<Lineage> {
        create(|| self.try_init()).await
    }

    async fn try_init(&self) -> Result<Lineage> {
        if let Some(lineage) = self.lineage().await? {
            return Ok(lineage);
        }
        if !self.tables_exist().await? {
            for create in self.sql.create_tables() {
                self.owner("cannot create Handfast's tables", &create).await?;
            }
        }
        let created = new_lineage()?;
        let doing = "cannot write the lineage";
        match self.control.run(doing, &self.sql.insert_lineage(created)).await? {
            Ok(()) => {}
            Err(error) if error::code(&error) == Some(DUPLICATE_KEY) => {}
            Err(error) => return Err(self.by_hand(doing, error).await),
        }
        let missing = || self.lacks(format!("the lineage's row in {} is gone again", self.sql.incarnation));
        self.lineage().await?.ok_or_else(missing)
    }

    /// Runs what may take rights that the account lacks.
    async fn owner(&self, doing: &str, statement: &str) -> Result<()> {
        match self.control.run(doing, statement).await? {
            Ok(()) => Ok(()),
            Err(error) => Err(self.by_hand(doing, error).await),
        }
    }

    /// The SQL to run by hand, where the account may not.
    async fn by_hand(&self, doing: &str, error: MyError) -> Error {
        let error = explain(self.name, doing, error);
        if error.kind() != ErrorKind::Setup {
            return error;
        }
        match self.account().await {
            Ok(account) => {
                let manual = self.sql.setup(&account);
                self.lacks(format!("{doing}; run as an administrator:\n{manual}")).because(error)
            }
            Err(_) => error,
        }
    }

    async fn rights(&self) -> Result<()> {
        let doing = "the account lacks rights on Handfast's tables";
        let work = async {
            let mut held = self.control.take().await?;
            let mut answer = Ok(());
            for statement in self.sql.try_rights() {
                answer = held.conn().query_drop(statement).await;
                if answer.is_err() {
                    break;
                }
            }
            held.keep(&answer);
            Ok(answer)
        };
        match self.control.within(doing, work).await? {
            Ok(()) => Ok(()),
            Err(error) => Err(self.by_hand(doing, error).await),
        }
    }

    /// All of it, in the order in which it may fail, and the incarnation's row last.
    pub(super) async fn register(&self, registration: &Registration, slots: u32) -> Result<Lineage> {
        self.prerequisites().await?;
        if let (Some(expected), found) = (registration.expected, self.lineage().await?)
            && found != Some(expected)
        {
            // Before anything is created there: an empty server under a known name is left as it is.
            return Err(wrong_lineage(self.name, expected, found));
        }
        let lineage = self.init().await?;
        self.rights().await?;
        if !self.sql.witness_on {
            let doing = "cannot say that no witness is kept";
            match self.control.run(doing, &self.sql.off(registration)).await? {
                Err(error) if error::code(&error) != Some(DUPLICATE_KEY) => {
                    return Err(explain(self.name, doing, error));
                }
                _ => {}
            }
        }
        self.insert(registration, lineage, slots).await?;
        Ok(lineage)
    }

    async fn insert(&self, registration: &Registration, lineage: Lineage, slots: u32) -> Result<()> {
        let doing = "cannot register the incarnation";
        let insert = self.sql.register(registration, lineage, slots);
        let work = async {
            let mut held = self.control.take().await?;
            let answer = held.conn().exec_drop(insert, (registration.host.as_str(),)).await;
            held.keep(&answer);
            Ok(answer)
        };
        match self.control.within(doing, work).await? {
            Ok(()) => {}
            Err(error) if error::code(&error) == Some(DUPLICATE_KEY) => {}
            Err(error) => return Err(self.by_hand(doing, error).await),
        }
        let found = self.control.row::<(i64, i64)>(doing, &self.sql.registered(registration)).await?;
        if found == Some((registration.journal.to_sql(), lineage.to_sql())) {
            return Ok(());
        }
        let incarnation = registration.incarnation;
        let message = format!("incarnation {incarnation} is registered there by another journal or for other data");
        Err(Error::new(ErrorKind::Refused, message).at(self.name))
    }
}

/// The three numbers that a version begins with.
pub(super) fn numbers(version: &str) -> (u32, u32, u32) {
    let mut parts = version.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    let mut next = || parts.next().unwrap_or(0);
    (next(), next(), next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(numbers("9.7.4-2"), (9, 7, 4));
        assert_eq!(numbers("10.11.19-MariaDB-0+deb12u1"), (10, 11, 19));
        assert_eq!(numbers("nonsense"), (0, 0, 0));
        assert_eq!(Product::of("10.11.19-MariaDB-0+deb12u1"), Product::MariaDb);
        assert_eq!(Product::of("9.7.4-2"), Product::MySql);
    }
}
