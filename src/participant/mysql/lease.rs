//! The lease on a MySQL or MariaDB database: a named lock of one session, and another of the session that works under it.
//!
//! Named locks are the server's as a whole, so the database's name is in the lease's. Each of the two sessions has its
//! own name as a lock, too, in which the incarnation is: who has that one is an earlier session of the same program,
//! whether it has the other lock already or was cut off before it had. So it is taken first.
//! <https://dev.mysql.com/doc/refman/9.7/en/locking-functions.html>, <https://mariadb.com/kb/en/get_lock/>

use super::control::tell_to_end;
use super::error::{MyError, explain};
use super::sql::Sql;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Incarnation, ParticipantName};
use crate::participant::Claim;
use crate::participant::lease::{Duty, Holder, connection_name, key, lock_parts};
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

/// The name of a lock. Whole, since a name is one lock for both products and below their limit of 64 characters.
pub(super) fn lock_of(duty: Duty, schema: &str, name: ParticipantName, claim: &Claim) -> String {
    let parts = lock_parts(name, claim);
    let parts: Vec<_> = std::iter::once(schema).chain(parts.iter().map(String::as_str)).collect();
    let key = key(&parts);
    match duty {
        Duty::Hold => format!("handfast.lease.{key:016x}"),
        Duty::Work => format!("handfast.work.{key:016x}"),
    }
}

impl Lease<'_> {
    fn lock_of(&self, duty: Duty) -> String {
        lock_of(duty, &self.sql.schema, self.name, &self.claim)
    }

    fn own_name(&self, duty: Duty) -> String {
        connection_name(duty, self.name, &self.claim)
    }

    fn failed(&self, error: MyError) -> Error {
        explain(self.name, "cannot take the node's lease", error)
    }

    /// Takes the lease for this session, where no other program's resolver is at work any more: its connection's number.
    pub(super) async fn take(&self, conn: &mut Conn) -> Result<u64> {
        self.lock(conn, Duty::Hold).await?;
        self.await_others(conn).await?;
        let own = conn.query_first::<u64, _>("SELECT CONNECTION_ID()").await.map_err(|error| self.failed(error))?;
        own.ok_or_else(|| self.failed(MyError::Other("CONNECTION_ID() gave no answer".into())))
    }

    /// Lets this session go to work under a lease that another session has: whether it still has it.
    pub(super) async fn go_to_work(&self, conn: &mut Conn, holder: u64) -> Result<bool> {
        self.lock(conn, Duty::Work).await?;
        self.is_at_work(conn, holder).await.map_err(|error| self.failed(error))
    }

    /// Whether this session may work, under the lease of that connection.
    pub(super) async fn is_at_work(&self, conn: &mut Conn, holder: u64) -> Result<bool, MyError> {
        if !torture::is_on(Safeguard::Lease) {
            return Ok(true);
        }
        let query = Sql::is_at_work(&self.lock_of(Duty::Hold), holder, &self.lock_of(Duty::Work));
        Ok(conn.query_first::<Option<i64>, _>(query).await?.flatten() == Some(1))
    }

    /// Takes a lock for this session, and its name from an earlier session of the same incarnation if need be.
    async fn lock(&self, conn: &mut Conn, duty: Duty) -> Result<()> {
        let failed = |error| self.failed(error);
        let own_name = self.own_name(duty);
        if !try_lock(conn, &own_name, 0).await.map_err(failed)? {
            self.end_predecessor(conn, &own_name).await?;
        }
        // A program that was killed a moment ago holds it until its server has noticed.
        if try_lock(conn, &self.lock_of(duty), self.patience()).await.map_err(failed)? {
            return Ok(());
        }
        Err(self.refuse(conn, duty).await)
    }

    fn patience(&self) -> u64 {
        self.wait.as_secs().min(PATIENCE)
    }

    /// Waits until no other program's resolver is at work. None begins, as long as this session has the lease.
    async fn await_others(&self, conn: &mut Conn) -> Result<()> {
        let failed = |error| self.failed(error);
        let work = self.lock_of(Duty::Work);
        let is_free = conn.query_first::<i64, _>(Sql::is_free_but_for(&work, &self.own_name(Duty::Work))).await;
        if is_free.map_err(failed)? == Some(1) {
            return Ok(());
        }
        if try_lock(conn, &work, self.patience()).await.map_err(failed)? {
            return conn.query_drop(Sql::release_lock(&work)).await.map_err(failed);
        }
        Err(self.refuse(conn, Duty::Work).await)
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
        let own = conn.query_first::<Option<i64>, _>(Sql::lock_is_own(&self.lock_of(Duty::Hold))).await?;
        Ok(own.flatten() == Some(1))
    }

    async fn refuse(&self, conn: &mut Conn, duty: Duty) -> Error {
        self.describe(conn, duty).await.refuse(self.name, &self.claim, self.silence)
    }

    /// What is known of the holder: nothing, where it is gone by now, or a table is missing or may not be read.
    async fn describe(&self, conn: &mut Conn, duty: Duty) -> Holder {
        let mut found = Holder::default();
        let Ok(Some(holder)) = holder(conn, &self.lock_of(duty)).await else { return found };
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

/// Frees every lock of a session that is about to be closed, as far as that can be said in time.
pub(super) async fn give_up(conn: &mut Conn, limit: Duration) {
    let _ = tokio::time::timeout(limit, conn.query_drop("DO RELEASE_ALL_LOCKS()")).await;
}

async fn try_lock(conn: &mut Conn, lock: &str, seconds: u64) -> Result<bool, MyError> {
    if !torture::is_on(Safeguard::Lease) {
        return Ok(true);
    }
    Ok(conn.query_first::<Option<i64>, _>(Sql::take_lock(lock, seconds)).await?.flatten() == Some(1))
}

/// The connection that has a lock.
async fn holder(conn: &mut Conn, lock: &str) -> Result<Option<u64>, MyError> {
    Ok(conn.query_first::<Option<u64>, _>(Sql::lock_holder(lock)).await?.flatten())
}
