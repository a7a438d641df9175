//! One real branch: prepared, listed, rolled back.

use super::checks::Checkup;
use super::sql::Sql;
use crate::error::Result;
use crate::participant::checkup::{self, LEFT_BEHIND, ProbeName, message};
use crate::participant::{Finding, Severity};
use tokio_postgres::Client;

impl Checkup<'_> {
    /// Prepares a branch by a name of its own, looks whether it is listed, and rolls it back; before that it ends what
    /// an earlier check left. `tables` says whether there is a witness table to write to.
    pub(super) async fn probe(&self, client: &Client, tables: bool) -> Result<Vec<Finding>> {
        let mut all = self.sweep(client).await?;
        let name = ProbeName::new()?;
        let prepare = self.ask("cannot prepare a branch", client.batch_execute(&self.sql.probe(name, tables))).await;
        if let Err(error) = prepare {
            // Refused, or not answered: only in the first case this is sent, and ends an aborted transaction.
            let _ = self.ask("cannot roll back", client.batch_execute(super::sql::ROLLBACK)).await;
            all.push(checkup::probe_failed(message(&error), client.is_closed()));
            return Ok(all);
        }
        let listed = self.is_listed(client, name).await;
        let rolled_back = self.ask("cannot roll the branch back", client.batch_execute(&Sql::end_probe(name))).await;
        let left = self.is_listed(client, name).await;
        all.push(match (listed, rolled_back, left) {
            (Ok(true), Ok(()), Ok(false)) => checkup::probed(),
            (Ok(false), ..) => {
                checkup::probe_failed(format!("{name} was answered to be prepared, and is not on the list"), false)
            }
            (Err(error), ..) | (_, Err(error), _) | (.., Err(error)) => checkup::probe_failed(message(&error), true),
            (_, Ok(()), Ok(true)) => {
                checkup::probe_failed(format!("{name} was answered to be rolled back, and is still listed"), true)
            }
        });
        Ok(all)
    }

    async fn is_listed(&self, client: &Client, name: ProbeName) -> Result<bool> {
        let rows = self.ask("cannot list what is prepared", client.query_typed(Sql::LIST, &[])).await?;
        Ok(rows.iter().any(|row| row.get::<_, &[u8]>(0) == name.to_string().as_bytes()))
    }

    /// Ends the branches of checks that were ended in the middle: by their whole name, and old enough to be nobody's.
    async fn sweep(&self, client: &Client) -> Result<Vec<Finding>> {
        let rows = self.ask("cannot list what is prepared", client.query_typed(Sql::LIST, &[])).await?;
        let left = rows.iter().filter_map(|row| {
            let name: ProbeName = std::str::from_utf8(row.get(0)).ok()?.parse().ok()?;
            (row.get::<_, f64>(1) > LEFT_BEHIND.as_secs_f64()).then_some(name)
        });
        let (mut swept, mut all) = (Vec::new(), Vec::new());
        for name in left {
            match self.ask("cannot roll back", client.batch_execute(&Sql::end_probe(name))).await {
                Ok(()) => swept.push(name.to_string()),
                Err(error) => {
                    let found = format!("an earlier check left {name} prepared");
                    let cure = format!("as its owner: {}", Sql::end_probe(name));
                    all.push(Finding::of(Severity::Warning, "leftovers", found, message(&error)).cure(cure));
                }
            }
        }
        if !swept.is_empty() {
            all.push(checkup::swept(&swept));
        }
        Ok(all)
    }
}
