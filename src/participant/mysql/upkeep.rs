//! The registry, the pruning, and what a person types.

use super::Mysql;
use super::error::{self, NO_SUCH_TABLE, explain};
use super::finishing::statement;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{BranchId, Incarnation};
use crate::participant::pool::refuse_running;
use crate::participant::witness::PAGE;
use crate::participant::{Prunable, Registered};
use crate::protocol::Resolution;
use mysql_async::prelude::Queryable;

impl Mysql {
    pub(super) async fn do_registry(&self) -> Result<Vec<Registered>> {
        type Row = (String, i64, i64, String, i64, String, f64);
        let (doing, query) = ("cannot read the registry", self.sql.registry());
        let work = async {
            let mut held = self.control.take().await?;
            let answer = held.conn().query::<Row, _>(query).await;
            held.keep(&answer);
            match answer {
                // Nobody was ever here.
                Err(error) if error::code(&error) == Some(NO_SUCH_TABLE) => Ok(Vec::new()),
                answer => answer.map_err(|error| explain(self.name(), doing, error)),
            }
        };
        let of = |(node, incarnation, participant, decision, journal, host, age): Row| {
            Registered::of(&node, incarnation, participant, (&decision, journal), host, age)
        };
        let rows = self.control.within(doing, work).await?;
        rows.into_iter().map(of).collect::<Result<_>>().map_err(|error| error.at(self.name()))
    }

    pub(super) async fn do_prune(&self, what: Prunable) -> Result<bool> {
        match what {
            Prunable::Witnesses { incarnation, participant, below } => {
                let query = self.sql.prunable_witnesses(incarnation, participant, below);
                self.delete(incarnation, participant, &query).await
            }
            Prunable::Settled { incarnation, participant } => {
                refuse_running(self.name(), self.control.claimed(), incarnation)?;
                self.prune_settled(incarnation, participant).await
            }
        }
    }

    /// The registration goes last: it is what tells that there may be more.
    async fn prune_settled(&self, incarnation: Incarnation, participant: u16) -> Result<bool> {
        if self.delete(incarnation, participant, &self.sql.prunable_settled(incarnation, participant)).await? {
            return Ok(true);
        }
        let doing = "cannot delete a registration";
        for node in self.control.rows::<String>(doing, &self.sql.node_of(incarnation, participant)).await? {
            let strange = |error| {
                let message = format!("{} has a row of the strange node {node:?}", self.sql.incarnation);
                Error::new(ErrorKind::Refused, message).at(self.name()).because(error)
            };
            let node = node.parse().map_err(strange)?;
            let answer = self.control.run(doing, &self.sql.unregister(&node, incarnation, participant)).await?;
            answer.map_err(|error| explain(self.name(), doing, error))?;
        }
        Ok(false)
    }

    /// Deletes the page of rows that a query lists: whether there may be more of them.
    async fn delete(&self, incarnation: Incarnation, participant: u16, query: &str) -> Result<bool> {
        let doing = "cannot prune the witness table";
        let sequences: Vec<i64> = self.control.rows(doing, query).await?;
        if sequences.is_empty() {
            return Ok(false);
        }
        let answer = self.control.run(doing, &self.sql.prune(incarnation, participant, &sequences)).await?;
        answer.map_err(|error| explain(self.name(), doing, error))?;
        Ok(sequences.len() >= PAGE)
    }

    /// The statement for a person.
    pub(super) fn typed(branch: &BranchId, resolution: Resolution) -> String {
        format!("{};", statement(branch, resolution))
    }
}
