//! The lease on a MySQL or MariaDB database: two named locks of the resolver's session.
//!
//! Named locks are the server's as a whole, so the database's name is in the lease's. The second lock is the session's
//! own name, in which the incarnation is: who has that one is an earlier session of the same program, whether it has the
//! lease already or was cut off before it had. So it is taken first.
//! <https://dev.mysql.com/doc/refman/9.7/en/locking-functions.html>, <https://mariadb.com/kb/en/get_lock/>

use super::control::tell_to_end;
use super::error::{MyError, explain};
use super::sql::Sql;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Incarnation, ParticipantName};
use crate::participant::Claim;
use crate::participant::lease::{Holder, connection_name, key};
use crate::torture::{self, Safeguard};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use std::time::Duration;

/// How many seconds another program is given.
const PATIENCE: u64 = 2;

/// A claim on a participant, and how it is made good on a new session.
pub(super) struct Lease<'a> {
    pub(super) name: ParticipantName,
    pub(super) claim: Claim,
    pub(super) sql: &'a Sql,
    /// How long an earlier session is given to end, of this program or another.
    pub(super) wait: Duration,
    /// How long the server may take to notice that a holder is gone.
    pub(super) silence: Duration,
}

impl Lease<'_> {
    /// Whole, since a name is one lock for both products and below their limit of 64 characters.
    fn lock(&self) -> String {
        let key = key(&[&self.sql.schema, &self.claim.node.to_string(), &self.name.to_string()]);
        format!("handfast.lease.{key:016x}")
    }

    /// Takes both locks for this session, from an earlier session of the same incarnation if need be.
    pub(super) async fn take(&self, conn: &mut Conn) -> Result<()> {
        if !torture::is_on(Safeguard::Lease) {
            return Ok(());
        }
        let failed = |error| explain(self.name, "cannot take the node's lease", error);
        let own_name = connection_name(self.name, &self.claim);
        if !try_lock(conn, &own_name, 0).await.map_err(failed)? {
            self.end_predecessor(conn, &own_name).await?;
        }
        // A program that was killed a moment ago holds it until its server has noticed.
        if try_lock(conn, &self.lock(), self.wait.as_secs().min(PATIENCE)).await.map_err(failed)? {
            return Ok(());
        }
        Err(self.describe(conn).await.refuse(self.name, &self.claim, self.silence))
    }

    async fn end_predecessor(&self, conn: &mut Conn, own_name: &str) -> Result<()> {
        let failed = |error| explain(self.name, "cannot end an earlier connection of this program", error);
        if let Some(holder) = holder(conn, own_name).await.map_err(failed)? {
            tracing::info!(participant = %self.name, "an earlier connection of this program holds its lease: it is ended");
            tell_to_end(conn, holder).await.map_err(failed)?;
        }
        if try_lock(conn, own_name, self.wait.as_secs().max(1)).await.map_err(failed)? {
            return Ok(());
        }
        let message = "an earlier connection of this program was told to end and has not";
        Err(Error::new(ErrorKind::Unavailable, message).at(self.name))
    }

    /// Whether this very session has the lease.
    pub(super) async fn is_held(&self, conn: &mut Conn) -> Result<bool, MyError> {
        if !torture::is_on(Safeguard::Lease) {
            return Ok(true);
        }
        let own = conn.query_first::<Option<i64>, _>(Sql::lock_is_own(&self.lock())).await?;
        Ok(own.flatten() == Some(1))
    }

    /// What is known of the holder: nothing, where it is gone by now, or a table is missing or may not be read.
    async fn describe(&self, conn: &mut Conn) -> Holder {
        let mut found = Holder::default();
        let Ok(Some(holder)) = holder(conn, &self.lock()).await else { return found };
        found.from = conn.query_first::<Option<String>, _>(Sql::address(holder)).await.ok().flatten().flatten();
        type Row = (i64, String, f64, Option<i64>);
        let newest = self.sql.newest(&self.claim.node, self.name, holder);
        if let Ok(Some((incarnation, host, age, is_holder))) = conn.query_first::<Row, _>(newest).await {
            let incarnation = Incarnation::from_sql(incarnation);
            found.incarnation = (is_holder == Some(1)).then_some(incarnation);
            found.registered = Duration::try_from_secs_f64(age.max(0.0)).ok().map(|age| (incarnation, host, age));
        }
        found
    }
}

async fn try_lock(conn: &mut Conn, lock: &str, seconds: u64) -> Result<bool, MyError> {
    Ok(conn.query_first::<Option<i64>, _>(Sql::take_lock(lock, seconds)).await?.flatten() == Some(1))
}

/// The connection that has a lock.
async fn holder(conn: &mut Conn, lock: &str) -> Result<Option<u64>, MyError> {
    Ok(conn.query_first::<Option<u64>, _>(Sql::lock_holder(lock)).await?.flatten())
}
