//! The registry, the pruning, and what a person types.

use super::Postgres;
use super::error::is_of;
use super::finishing::statement;
use crate::error::Result;
use crate::id::{BranchId, Incarnation};
use crate::participant::pool::refuse_running;
use crate::participant::witness::PAGE;
use crate::participant::{Prunable, Registered};
use crate::protocol::Resolution;
use std::sync::Arc;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, SimpleQueryMessage};

impl Postgres {
    pub(super) async fn do_registry(&self) -> Result<Vec<Registered>> {
        type Row = (String, i64, i32, String, i64, String, f64);
        let query = self.sql.registry();
        let run = |client: Arc<Client>| async move {
            let rows = match client.query_typed(&query, &[]).await {
                // Nobody was ever here.
                Err(error) if is_of(&error, &SqlState::UNDEFINED_TABLE) => return Ok(Vec::new()),
                rows => rows?,
            };
            let row = |row: &tokio_postgres::Row| {
                let of = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
                Ok((of.0, of.1, of.2, row.try_get(3)?, row.try_get(4)?, row.try_get(5)?, row.try_get(6)?))
            };
            rows.iter().map(row).collect()
        };
        let rows: Vec<Row> = self.control.run("cannot read the registry", run).await?;
        let of = |(node, incarnation, participant, decision, journal, host, age): Row| {
            Registered::of(&node, incarnation, participant.into(), (&decision, journal), host, age)
        };
        rows.into_iter().map(of).collect::<Result<_>>().map_err(|error| error.at(self.name()))
    }

    pub(super) async fn do_prune(&self, what: Prunable) -> Result<bool> {
        match what {
            Prunable::Witnesses { incarnation, participant, below } => {
                Ok(self.delete(self.sql.prune_witnesses(incarnation, participant, below)).await? >= PAGE as u64)
            }
            Prunable::Settled { incarnation, participant } => {
                refuse_running(self.name(), self.control.claimed(), incarnation)?;
                self.prune_settled(incarnation, participant).await
            }
        }
    }

    /// The registration goes last: it is what tells that there may be more.
    async fn prune_settled(&self, incarnation: Incarnation, participant: u16) -> Result<bool> {
        let deleted = self.delete(self.sql.prune_settled(incarnation, participant)).await?;
        if deleted >= PAGE as u64 {
            return Ok(true);
        }
        self.delete(self.sql.unregister(incarnation, participant)).await?;
        Ok(false)
    }

    /// Runs a DELETE: how many rows it took.
    async fn delete(&self, statement: String) -> Result<u64> {
        let run = |client: Arc<Client>| async move {
            let messages = client.simple_query(&statement).await?;
            let count = |message: &SimpleQueryMessage| match message {
                SimpleQueryMessage::CommandComplete(rows) => Some(*rows),
                _ => None,
            };
            Ok(messages.iter().filter_map(count).sum())
        };
        self.control.run("cannot prune the witness table", run).await
    }

    /// The statement for a person, with the database where alone it works.
    pub(super) fn typed(&self, branch: &BranchId, resolution: Resolution) -> String {
        let statement = statement(branch, resolution);
        let config = &self.connector.config;
        let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
        format!("{statement}; -- in the database {}", database.escape_debug())
    }
}
