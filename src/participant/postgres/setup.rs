//! Prerequisites, tables, lineage, registration.

use super::checks::{Expected, Settings};
use super::control::Control;
use super::error::{PgError, explain, is_of};
use super::sql::Sql;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Lineage, ParticipantName};
use crate::participant::witness::{Key, new_lineage, wrong_lineage};
use crate::participant::{Registration, Severity};
use std::sync::Arc;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};

/// What setting up works with.
pub(super) struct Setup<'a> {
    pub(super) name: ParticipantName,
    pub(super) control: &'a Control,
    pub(super) sql: &'a Sql,
    pub(super) role: &'a str,
    pub(super) expected: &'a Expected,
}

impl Setup<'_> {
    fn lacks(&self, message: String) -> Error {
        Error::new(ErrorKind::Setup, message).at(self.name)
    }

    /// Refuses what would fail later, when it costs a transaction (D40), and settings that break the promise (D13).
    async fn prerequisites(&self) -> Result<()> {
        let read = |client: Arc<Client>| async move { Settings::read(&client).await };
        let settings = self.control.run("cannot read the settings", read).await?;
        for finding in settings.findings(self.expected) {
            match finding.severity {
                Severity::Failure => return Err(self.lacks(finding.sentence())),
                Severity::Warning => tracing::warn!(participant = %self.name, "{}", finding.sentence()),
                Severity::Note | Severity::Good => {}
            }
        }
        Ok(())
    }

    pub(super) async fn tables_exist(&self) -> Result<bool> {
        let (query, schema) = (self.sql.tables_exist(), self.sql.schema.clone());
        let look = |client: Arc<Client>| async move {
            client.query_typed_one(&query, &[(&schema, Type::TEXT)]).await?.try_get(0)
        };
        self.control.run("cannot look for Handfast's tables", look).await
    }

    pub(super) async fn lineage(&self) -> Result<Option<Lineage>> {
        if !self.tables_exist().await? {
            return Ok(None);
        }
        let query = self.sql.lineage();
        let look = |client: Arc<Client>| async move {
            client.query_typed_opt(&query, &[]).await?.map(|row| row.try_get(0)).transpose()
        };
        let found = self.control.run("cannot read the lineage", look).await?;
        Ok(found.map(Lineage::from_sql))
    }

    /// Creates what is missing; two that do it at once get the same lineage.
    pub(super) async fn init(&self) -> Result<Lineage> {
        if let Some(lineage) = self.lineage().await? {
            return Ok(lineage);
        }
        let created = new_lineage()?.to_sql();
        let create =
            if self.tables_exist().await? { self.sql.insert_lineage(created) } else { self.sql.create(created) };
        let (name, manual) = (self.name, self.sql.setup(self.role));
        let run = |client: Arc<Client>| async move { Ok(client.batch_execute(&create).await) };
        let done = self.control.run("cannot create Handfast's tables", run).await?;
        done.map_err(|error| cannot_create(name, "Handfast's tables", error, &manual))?;
        let missing = || self.lacks(format!("the lineage's row in {} is gone again", self.sql.incarnation));
        self.lineage().await?.ok_or_else(missing)
    }

    async fn rights(&self) -> Result<()> {
        let query = self.sql.rights();
        let look = |client: Arc<Client>| async move { client.query_typed_one(&query, &[]).await?.try_get(0) };
        let enough: bool = self.control.run("cannot read the rights on Handfast's tables", look).await?;
        let missing = || {
            let (role, manual) = (self.role, self.sql.setup(self.role));
            self.lacks(format!("role {role} lacks rights on Handfast's tables; run as their owner:\n{manual}"))
        };
        if enough { Ok(()) } else { Err(missing()) }
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
            let off = self.sql.off(&Key::of_incarnation(registration.incarnation, registration.participant));
            let run = |client: Arc<Client>| async move { client.batch_execute(&off).await };
            self.control.run("cannot say that no witness is kept", run).await?;
        }
        self.insert(registration, lineage, slots).await?;
        Ok(lineage)
    }

    async fn insert(&self, registration: &Registration, lineage: Lineage, slots: u32) -> Result<()> {
        let (insert, look) = (self.sql.register(), self.sql.registered());
        let Registration { node, incarnation, journal, decision, participant, host, .. } = registration.clone();
        let (node, decision, participant) = (node.to_string(), decision.to_string(), i32::from(participant));
        let slots = i32::try_from(slots).unwrap_or(i32::MAX);
        let run = |client: Arc<Client>| async move {
            let (incarnation, lineage, journal) = (incarnation.to_sql(), lineage.to_sql(), journal.to_sql());
            let key: [(&(dyn ToSql + Sync), Type); 3] =
                [(&node, Type::TEXT), (&incarnation, Type::INT8), (&participant, Type::INT4)];
            let mut row = key.to_vec();
            row.extend_from_slice(&[
                (&lineage, Type::INT8),
                (&decision, Type::TEXT),
                (&journal, Type::INT8),
                (&host, Type::TEXT),
                (&slots, Type::INT4),
            ]);
            client.query_typed(&insert, &row).await?;
            let row = client.query_typed_one(&look, &key).await?;
            Ok((row.try_get::<_, i64>(0)?, row.try_get::<_, i64>(1)?))
        };
        let found = self.control.run("cannot register the incarnation", run).await?;
        if found == (journal.to_sql(), lineage.to_sql()) {
            return Ok(());
        }
        let message = format!("incarnation {incarnation} is registered there by another journal or for other data");
        Err(Error::new(ErrorKind::Refused, message).at(self.name))
    }
}

/// The SQL to run by hand, where the role may not.
pub(super) fn cannot_create(name: ParticipantName, what: &str, error: PgError, manual: &str) -> Error {
    let by_hand = is_of(&error, &SqlState::INSUFFICIENT_PRIVILEGE) || is_of(&error, &SqlState::INVALID_SCHEMA_NAME);
    if !by_hand {
        return explain(name, &format!("cannot create {what}"), error);
    }
    let message = format!("the role may not create {what}, or not use what is there; run as an owner:\n{manual}");
    Error::new(ErrorKind::Setup, message).at(name).because(error)
}
