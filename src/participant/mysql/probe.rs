//! One real branch: prepared, listed, rolled back.

use super::check_sql::probe_xid;
use super::checks::Checkup;
use super::letting_go::LET_GO;
use super::session::Product;
use super::xid;
use crate::error::Result;
use crate::id::FORMAT_ID;
use crate::participant::checkup::{self, ProbeName, message};
use crate::participant::{Finding, Severity};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row};

impl Checkup<'_> {
    /// Prepares a branch by a name of its own, looks whether it is listed, and rolls it back; before that it ends what
    /// an earlier check left. `tables` says whether there is a witness table to write to.
    ///
    /// A lock of the branch's name says that its check is still at it: neither server tells how old a branch is.
    pub(super) async fn probe(&self, conn: &mut Conn, product: Product, tables: bool) -> Result<Vec<Finding>> {
        let mut all = self.sweep(conn, product).await?;
        let name = ProbeName::new()?;
        if !self.lock(conn, name).await? {
            all.push(checkup::probe_failed(format!("GET_LOCK('{name}', 0) is refused"), false));
            return Ok(all);
        }
        all.push(self.probe_named(conn, product, name, tables).await);
        self.ask("cannot release a lock", conn.query_drop(format!("SELECT RELEASE_LOCK('{name}')"))).await?;
        Ok(all)
    }

    async fn probe_named(&self, conn: &mut Conn, product: Product, name: ProbeName, tables: bool) -> Finding {
        let xid = probe_xid(name);
        for statement in self.sql.probe(name, tables) {
            let sent = self.ask(&format!("{statement} was refused"), conn.query_drop(statement)).await;
            if let Err(error) = sent {
                // Whatever state it is in, one of the two applies.
                for end in [format!("XA END {xid}"), format!("XA ROLLBACK {xid}")] {
                    let _ = self.ask("cannot roll back", conn.query_drop(end)).await;
                }
                return checkup::probe_failed(message(&error), conn.is_disconnected());
            }
        }
        let listed = self.is_listed(conn, product, name).await;
        let roll_back = self.ask("cannot roll the branch back", conn.query_drop(format!("XA ROLLBACK {xid}"))).await;
        let left = self.is_listed(conn, product, name).await;
        match (listed, roll_back, left) {
            (Ok(true), Ok(()), Ok(false)) => checkup::probed(),
            (Ok(false), ..) => {
                checkup::probe_failed(format!("{name} was answered to be prepared, and is not on the list"), false)
            }
            (Err(error), ..) | (_, Err(error), _) | (.., Err(error)) => checkup::probe_failed(message(&error), true),
            (_, Ok(()), Ok(true)) => {
                checkup::probe_failed(format!("{name} was answered to be rolled back, and is still listed"), true)
            }
        }
    }

    async fn probes(&self, conn: &mut Conn, product: Product) -> Result<Vec<ProbeName>> {
        let rows: Vec<Row> = self.ask("cannot list what is prepared", conn.query(product.list())).await?;
        let name = |row: &Row| {
            let (format, gtrid, bqual) = xid(row, product)?;
            let is_ours = format == i64::from(FORMAT_ID) && bqual.is_empty();
            is_ours.then(|| std::str::from_utf8(&gtrid).ok()?.parse().ok()).flatten()
        };
        Ok(rows.iter().filter_map(name).collect())
    }

    async fn is_listed(&self, conn: &mut Conn, product: Product, name: ProbeName) -> Result<bool> {
        Ok(self.probes(conn, product).await?.contains(&name))
    }

    async fn lock(&self, conn: &mut Conn, name: ProbeName) -> Result<bool> {
        let taken = conn.query_first::<Option<i64>, _>(format!("SELECT GET_LOCK('{name}', 0)"));
        Ok(self.ask("cannot take a lock", taken).await?.flatten() == Some(1))
    }

    /// Ends the branches of checks that were ended in the middle: by their whole name, with no session at them.
    async fn sweep(&self, conn: &mut Conn, product: Product) -> Result<Vec<Finding>> {
        let (mut swept, mut all) = (Vec::new(), Vec::new());
        for name in self.probes(conn, product).await? {
            if !self.lock(conn, name).await? {
                continue;
            }
            // An ending session frees the name before InnoDB lets the branch go.
            tokio::time::sleep(LET_GO).await;
            let roll_back = format!("XA ROLLBACK {}", probe_xid(name));
            let rolled_back = self.ask("cannot roll back", conn.query_drop(&roll_back)).await;
            self.ask("cannot release a lock", conn.query_drop(format!("SELECT RELEASE_LOCK('{name}')"))).await?;
            match rolled_back {
                Ok(()) => swept.push(name.to_string()),
                // Gone by itself in the meantime, or not to be had: only the list tells.
                Err(error) if self.is_listed(conn, product, name).await? => {
                    let found = format!("an earlier check left {name} prepared");
                    all.push(Finding::of(Severity::Warning, "leftovers", found, message(&error)).cure(roll_back));
                }
                Err(_) => {}
            }
        }
        if !swept.is_empty() {
            all.push(checkup::swept(&swept));
        }
        Ok(all)
    }
}
