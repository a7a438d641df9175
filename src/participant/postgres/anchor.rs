//! PostgreSQL as the anchor: the decisions of others in its witnesses, and all else in a table of its own.

use super::Postgres;
use super::error::{explain, is_of};
use super::lease::lock_of;
use super::setup::cannot_create;
use super::sql::{Sql, quote};
use crate::error::Result;
use crate::id::{Incarnation, NodeName};
use crate::participant::anchor::{ANCHOR_TABLE, Anchor, DecisionRow, Kept};
use crate::participant::lease::Duty;
use crate::participant::witness::Dialect;
use crate::participant::{BoxFuture, Claim};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};

/// The advisory locks of this database that are held, by anybody.
const HELD: &str = "SELECT (l.classid::pg_catalog.int8 << 32) | l.objid::pg_catalog.int8 FROM pg_catalog.pg_locks l \
     WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.database = (SELECT d.oid FROM \
     pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())";

impl Sql {
    fn anchor(&self) -> String {
        Dialect::Postgres.table(&self.schema, ANCHOR_TABLE)
    }
}

impl Postgres {
    fn anchor_sql(&self) -> String {
        let role = quote(self.connector.config.get_user().unwrap_or_default());
        let (create, table) = (Dialect::Postgres.create_anchor(&self.sql.schema), self.sql.anchor());
        format!("{create};\nGRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {role};\n")
    }

    /// Looks first, since a role that may not create a table need not where it is there.
    async fn do_set_up(&self) -> Result<()> {
        let look = format!("SELECT FROM {} LIMIT 0", self.sql.anchor());
        // The lock keeps two that open at once from colliding in the catalog.
        let lock = "SELECT pg_catalog.pg_advisory_xact_lock(4641530982773310825)";
        let create = format!("{lock}; {}", Dialect::Postgres.create_anchor(&self.sql.schema));
        let run = |client: Arc<Client>| async move {
            match client.batch_execute(&look).await {
                Err(error) if is_of(&error, &SqlState::UNDEFINED_TABLE) => Ok(client.batch_execute(&create).await),
                Err(error) if is_of(&error, &SqlState::INSUFFICIENT_PRIVILEGE) => Ok(Err(error)),
                looked => looked.map(Ok),
            }
        };
        let created = self.control.run("cannot create the anchor's table", run).await?;
        created.map_err(|error| cannot_create(self.name(), "the anchor's table", error, &self.anchor_sql()))
    }

    async fn do_kept(&self, node: NodeName) -> Result<Vec<Kept>> {
        let (query, node) =
            (format!("SELECT part, entry FROM {} WHERE node = $1", self.sql.anchor()), node.to_string());
        let run = |client: Arc<Client>| async move {
            let rows = match client.query_typed(&query, &[(&node, Type::TEXT)]).await {
                Err(error) if is_of(&error, &SqlState::UNDEFINED_TABLE) => return Ok(Vec::new()),
                rows => rows?,
            };
            rows.iter().map(|row| Ok(Kept { part: row.try_get(0)?, bytes: row.try_get(1)? })).collect()
        };
        self.control.run("cannot read the anchor's entries", run).await
    }

    async fn do_keep(&self, node: NodeName, part: &str, known: Option<&[u8]>, new: &[u8]) -> Result<bool> {
        let table = self.sql.anchor();
        let (node, part, new, known) = (node.to_string(), part.to_owned(), new.to_vec(), known.map(<[u8]>::to_vec));
        let run = |client: Arc<Client>| async move {
            let mut of: Vec<(&(dyn ToSql + Sync), Type)> =
                vec![(&node, Type::TEXT), (&part, Type::TEXT), (&new, Type::BYTEA)];
            let statement = match &known {
                None => format!("INSERT INTO {table} VALUES ($1, $2, $3) ON CONFLICT DO NOTHING RETURNING 1"),
                Some(known) => {
                    of.push((known, Type::BYTEA));
                    format!("UPDATE {table} SET entry = $3 WHERE node = $1 AND part = $2 AND entry = $4 RETURNING 1")
                }
            };
            Ok(!client.query_typed(&statement, &of).await?.is_empty())
        };
        self.control.run("cannot write an entry of the anchor", run).await
    }

    async fn do_decisions(&self, participant: u16, incarnations: &[Incarnation]) -> Result<Vec<DecisionRow>> {
        let query = format!(
            "SELECT incarnation, sequence, kind FROM {} WHERE incarnation = ANY ($1) AND branch = $2 \
             AND kind LIKE 'anchor%.%' ORDER BY incarnation, sequence",
            self.sql.witness
        );
        let incarnations: Vec<i64> = incarnations.iter().map(|incarnation| incarnation.to_sql()).collect();
        let participant = i32::from(participant);
        let run = |client: Arc<Client>| async move {
            let rows =
                client.query_typed(&query, &[(&incarnations, Type::INT8_ARRAY), (&participant, Type::INT4)]).await?;
            rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))).collect()
        };
        let rows: Vec<(i64, i64, String)> = self.control.run("cannot read the decisions", run).await?;
        DecisionRow::all(&rows).map_err(|error| error.at(self.name()))
    }

    async fn do_clear(&self, participant: u16, incarnation: Incarnation, sequences: &[u64]) -> Result<()> {
        let statement =
            format!("DELETE FROM {} WHERE incarnation = $1 AND branch = $2 AND sequence = ANY ($3)", self.sql.witness);
        let (incarnation, participant) = (incarnation.to_sql(), i32::from(participant));
        let sequences: Vec<i64> = sequences.iter().map(|sequence| sequence.cast_signed()).collect();
        let run = |client: Arc<Client>| async move {
            let of: [(&(dyn ToSql + Sync), Type); 3] =
                [(&incarnation, Type::INT8), (&participant, Type::INT4), (&sequences, Type::INT8_ARRAY)];
            client.query_typed(&statement, &of).await.map(drop)
        };
        self.control.run("cannot clear decisions", run).await
    }

    async fn do_held(&self, node: NodeName, incarnations: &[Incarnation]) -> Result<BTreeSet<Incarnation>> {
        let look = |client: Arc<Client>| async move { client.query_typed(HELD, &[]).await };
        let rows = self.control.run("cannot see whose lease is held", look).await?;
        let locks: Result<BTreeSet<i64>, _> = rows.iter().map(|row| row.try_get(0)).collect();
        let locks = locks.map_err(|error| explain(self.name(), "cannot read the locks", error))?;
        let held = |incarnation: &Incarnation| {
            let claim = Claim { node, incarnation: *incarnation, shared: true };
            locks.contains(&lock_of(Duty::Hold, self.name(), &claim).cast_signed())
        };
        Ok(incarnations.iter().copied().filter(held).collect())
    }
}

impl Anchor for Postgres {
    fn setup_sql(&self) -> String {
        self.anchor_sql()
    }

    fn set_up(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.do_set_up())
    }

    fn kept(&self, node: NodeName) -> BoxFuture<'_, Result<Vec<Kept>>> {
        Box::pin(self.do_kept(node))
    }

    fn keep<'a>(
        &'a self,
        node: NodeName,
        part: &'a str,
        known: Option<&'a [u8]>,
        new: &'a [u8],
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.do_keep(node, part, known, new))
    }

    fn decisions<'a>(
        &'a self,
        participant: u16,
        incarnations: &'a [Incarnation],
    ) -> BoxFuture<'a, Result<Vec<DecisionRow>>> {
        Box::pin(self.do_decisions(participant, incarnations))
    }

    fn clear<'a>(
        &'a self,
        participant: u16,
        incarnation: Incarnation,
        sequences: &'a [u64],
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.do_clear(participant, incarnation, sequences))
    }

    fn held<'a>(
        &'a self,
        node: NodeName,
        incarnations: &'a [Incarnation],
    ) -> BoxFuture<'a, Result<BTreeSet<Incarnation>>> {
        Box::pin(self.do_held(node, incarnations))
    }
}
