//! MySQL or MariaDB as the anchor: the decisions of others in its witnesses, and all else in a table of its own.

use super::Mysql;
use super::error::{self, DUPLICATE_KEY, MyError, NO_SUCH_TABLE, explain};
use super::lease::lock_of;
use super::setup;
use super::sql::Sql;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Incarnation, NodeName, hex};
use crate::participant::anchor::{ANCHOR_TABLE, Anchor, DecisionRow, Kept};
use crate::participant::lease::Duty;
use crate::participant::witness::Dialect;
use crate::participant::{BoxFuture, Claim};
use mysql_async::prelude::Queryable;
use std::collections::BTreeSet;

/// So many locks are asked for in one question.
const LOCKS: usize = 100;

impl Sql {
    fn anchor(&self) -> String {
        Dialect::MySql.table(&self.schema, ANCHOR_TABLE)
    }
}

impl Mysql {
    fn anchor_sql(&self) -> String {
        let account = self.account_for_people();
        let (create, table) = (Dialect::MySql.create_anchor(&self.sql.schema), self.sql.anchor());
        format!("{create};\nGRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {account};\n")
    }

    /// Looks first, since an account that may not create a table need not where it is there.
    async fn try_set_up(&self) -> Result<()> {
        let (doing, table) = ("cannot create the anchor's table", self.sql.anchor());
        let mut there = self.control.run(doing, &format!("SELECT 1 FROM {table} LIMIT 0")).await?;
        if matches!(&there, Err(error) if error::code(error) == Some(NO_SUCH_TABLE)) {
            there = self.control.run(doing, &Dialect::MySql.create_anchor(&self.sql.schema)).await?;
        }
        there.map_err(|error| {
            let error = explain(self.name(), doing, error);
            if error.kind() != ErrorKind::Setup {
                return error;
            }
            let message = format!("{doing}; run as an administrator:\n{}", self.anchor_sql());
            Error::new(ErrorKind::Setup, message).at(self.name()).because(error)
        })
    }

    async fn do_kept(&self, node: NodeName) -> Result<Vec<Kept>> {
        let doing = "cannot read the anchor's entries";
        let query = format!("SELECT part, entry FROM {} WHERE node = '{node}'", self.sql.anchor());
        let work = async {
            let mut held = self.control.take().await?;
            let answer = held.conn().query::<(String, Vec<u8>), _>(query).await;
            held.keep(&answer);
            match answer {
                Err(error) if error::code(&error) == Some(NO_SUCH_TABLE) => Ok(Vec::new()),
                answer => answer.map_err(|error| explain(self.name(), doing, error)),
            }
        };
        let rows = self.control.within(doing, work).await?;
        Ok(rows.into_iter().map(|(part, bytes)| Kept { part, bytes }).collect())
    }

    async fn do_keep(&self, node: NodeName, part: &str, known: Option<&[u8]>, new: &[u8]) -> Result<bool> {
        // An update to what is there already counts as none.
        if known == Some(new) {
            return Ok(true);
        }
        let (doing, table) = ("cannot write an entry of the anchor", self.sql.anchor());
        // Hexadecimal: MySQL shows a statement with other bytes in it to nobody, and refuses whoever looks at the list of
        // connections meanwhile (error 3854).
        let new = hex(new);
        let statement = match known.map(hex) {
            None => format!("INSERT INTO {table} (node, part, entry) VALUES ('{node}', '{part}', X'{new}')"),
            Some(known) => format!(
                "UPDATE {table} SET entry = X'{new}' WHERE node = '{node}' AND part = '{part}' AND entry = X'{known}'"
            ),
        };
        let work = async {
            let mut held = self.control.take().await?;
            let answer = held.conn().query_drop(statement).await;
            let changed = held.conn().affected_rows() > 0;
            held.keep(&answer);
            Ok(answer.map(|()| changed))
        };
        match self.control.within(doing, work).await? {
            Err(error) if error::code(&error) == Some(DUPLICATE_KEY) => Ok(false),
            answer => answer.map_err(|error: MyError| explain(self.name(), doing, error)),
        }
    }

    async fn do_decisions(&self, participant: u16, incarnations: &[Incarnation]) -> Result<Vec<DecisionRow>> {
        if incarnations.is_empty() {
            return Ok(Vec::new());
        }
        let of: Vec<_> = incarnations.iter().map(|incarnation| incarnation.to_sql().to_string()).collect();
        let query = format!(
            "SELECT incarnation, sequence, kind FROM {} WHERE incarnation IN ({}) AND branch = {participant} \
             AND kind LIKE 'anchor%.%' ORDER BY incarnation, sequence",
            self.sql.witness,
            of.join(", ")
        );
        let rows = self.control.rows::<(i64, i64, String)>("cannot read the decisions", &query).await?;
        DecisionRow::all(&rows).map_err(|error| error.at(self.name()))
    }

    async fn do_clear(&self, participant: u16, incarnation: Incarnation, sequences: &[u64]) -> Result<()> {
        let sequences: Vec<_> = sequences.iter().map(|sequence| sequence.cast_signed()).collect();
        let (doing, statement) = ("cannot clear decisions", self.sql.prune(incarnation, participant, &sequences));
        self.control.run(doing, &statement).await?.map_err(|error| explain(self.name(), doing, error))
    }

    async fn do_held(&self, node: NodeName, incarnations: &[Incarnation]) -> Result<BTreeSet<Incarnation>> {
        let mut held = BTreeSet::new();
        for some in incarnations.chunks(LOCKS) {
            let lock = |incarnation: &Incarnation| {
                let claim = Claim { node, incarnation: *incarnation, shared: true };
                let lock = lock_of(Duty::Hold, &self.sql.schema, self.name(), &claim);
                format!("SELECT {}, IS_USED_LOCK('{lock}') IS NOT NULL", incarnation.to_sql())
            };
            let query = some.iter().map(lock).collect::<Vec<_>>().join(" UNION ALL ");
            let rows = self.control.rows::<(i64, i64)>("cannot see whose lease is held", &query).await?;
            held.extend(rows.into_iter().filter(|(_, held)| *held != 0).map(|(of, _)| Incarnation::from_sql(of)));
        }
        Ok(held)
    }
}

impl Anchor for Mysql {
    fn setup_sql(&self) -> String {
        self.anchor_sql()
    }

    fn set_up(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(setup::create(|| self.try_set_up()))
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
