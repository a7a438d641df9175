//! The lease on a PostgreSQL database: an advisory lock of one session, and another of the session that works under it.
//!
//! Advisory locks are per database. A session's lock lives as long as the session.
//! <https://www.postgresql.org/docs/current/explicit-locking.html#ADVISORY-LOCKS>

use super::error::{PgError, explain, is_of};
use super::sql::Sql;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Incarnation, ParticipantName};
use crate::participant::Claim;
use crate::participant::lease::{Duty, Holder, connection_name, incarnation_of, key, lock_parts};
use crate::torture::{self, Safeguard};
use std::time::{Duration, Instant};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

/// How often the lock is asked for before its holder is taken for one who stays.
const ATTEMPTS: usize = 3;

/// A claim on a participant, and how it is made good on a new session.
pub(super) struct Lease<'a> {
    pub(super) name: ParticipantName,
    pub(super) claim: Claim,
    pub(super) sql: &'a Sql,
    /// How long an earlier session is given to end, or another program's to be gone.
    pub(super) wait: Duration,
    /// How long the server may take to notice that a holder is gone.
    pub(super) silence: Duration,
}

/// The number of a lock.
pub(super) fn lock_of(duty: Duty, name: ParticipantName, claim: &Claim) -> u64 {
    let parts = lock_parts(name, claim);
    let mut parts: Vec<_> = parts.iter().map(String::as_str).collect();
    if duty == Duty::Work {
        parts.push("work");
    }
    key(&parts)
}

/// A session that has the lock.
struct Session {
    pid: i32,
    application_name: Option<String>,
    address: Option<String>,
}

impl Lease<'_> {
    fn key(&self, duty: Duty) -> u64 {
        lock_of(duty, self.name, &self.claim)
    }

    fn failed(&self, error: PgError) -> Error {
        explain(self.name, "cannot take the node's lease", error)
    }

    /// Takes the lease for this session, where no other program's resolver is at work any more: its process.
    pub(super) async fn take(&self, client: &Client) -> Result<i32> {
        self.lock(client, Duty::Hold).await?;
        self.await_others(client).await?;
        let own = client.query_typed_one("SELECT pg_catalog.pg_backend_pid()", &[]).await;
        own.and_then(|row| row.try_get(0)).map_err(|error| self.failed(error))
    }

    /// Lets this session go to work under a lease that another session has: whether it still has it.
    pub(super) async fn go_to_work(&self, client: &Client, holder: i32) -> Result<bool> {
        self.lock(client, Duty::Work).await?;
        self.is_at_work(client, holder).await.map_err(|error| self.failed(error))
    }

    /// Whether this session may work, under the lease of that process.
    pub(super) async fn is_at_work(&self, client: &Client, holder: i32) -> Result<bool, PgError> {
        if !torture::is_on(Safeguard::Lease) {
            return Ok(true);
        }
        let (lease, work) = (self.key(Duty::Hold), self.key(Duty::Work));
        client.query_typed_one(&Sql::is_at_work(lease, work), &[(&holder, Type::INT4)]).await?.try_get(0)
    }

    /// Takes a lock for this session, from an earlier session of the same incarnation if need be.
    async fn lock(&self, client: &Client, duty: Duty) -> Result<()> {
        let failed = |error| self.failed(error);
        let (mut rival, until) = (None, Instant::now() + self.wait);
        for _ in 0..ATTEMPTS {
            if self.try_lock(client, duty).await.map_err(failed)? {
                return Ok(());
            }
            // Who has it may be gone by now.
            let Some(holder) = self.holder(client, duty).await.map_err(failed)? else { continue };
            let ours = connection_name(duty, self.name, &self.claim);
            if holder.application_name.as_ref() == Some(&ours) {
                tracing::info!(participant = %self.name, "an earlier connection of this program is ended for its lease");
                self.end(client, holder.pid, &ours).await.map_err(failed)?;
            } else if self.wait(client, duty).await.map_err(failed)? {
                return Ok(());
            } else {
                rival = Some(holder);
                // To say who it is takes time, too.
                if Instant::now() >= until {
                    break;
                }
            }
        }
        let Some(rival) = rival else {
            let message = "an earlier connection of this program was told to end and has not";
            return Err(Error::new(ErrorKind::Unavailable, message).at(self.name));
        };
        Err(self.refuse(client, rival).await)
    }

    /// Waits until no other program's resolver is at work. None begins, as long as this session has the lease.
    async fn await_others(&self, client: &Client) -> Result<()> {
        let failed = |error| self.failed(error);
        let (mut rival, until) = (None, Instant::now() + self.wait);
        for _ in 0..ATTEMPTS {
            let Some(worker) = self.holder(client, Duty::Work).await.map_err(failed)? else { return Ok(()) };
            let ours = connection_name(Duty::Work, self.name, &self.claim);
            if worker.application_name == Some(ours) {
                return Ok(());
            }
            if self.wait(client, Duty::Work).await.map_err(failed)? {
                let unlock = Sql::unlock(self.key(Duty::Work));
                return client.query_typed(&unlock, &[]).await.map(drop).map_err(failed);
            }
            rival = Some(worker);
            if Instant::now() >= until {
                break;
            }
        }
        match rival {
            Some(rival) => Err(self.refuse(client, rival).await),
            None => Ok(()),
        }
    }

    async fn try_lock(&self, client: &Client, duty: Duty) -> Result<bool, PgError> {
        if !torture::is_on(Safeguard::Lease) {
            return Ok(true);
        }
        client.query_typed_one(&Sql::try_lock(self.key(duty)), &[]).await?.try_get(0)
    }

    /// Waits for a lock as long as the session waits for any: a program that was killed a moment ago holds it until its
    /// server has noticed.
    async fn wait(&self, client: &Client, duty: Duty) -> Result<bool, PgError> {
        match client.query_typed(&Sql::lock(self.key(duty)), &[]).await {
            Ok(_) => Ok(true),
            Err(error) if is_of(&error, &SqlState::LOCK_NOT_AVAILABLE) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether this very session has the lease: through a pooler that hands sessions around it may be another's.
    pub(super) async fn is_held(&self, client: &Client) -> Result<bool, PgError> {
        if !torture::is_on(Safeguard::Lease) {
            return Ok(true);
        }
        client.query_typed_one(&Sql::lease_is_held(self.key(Duty::Hold)), &[]).await?.try_get(0)
    }

    async fn holder(&self, client: &Client, duty: Duty) -> Result<Option<Session>, PgError> {
        let Some(row) = client.query_typed_opt(&Sql::lock_holder(self.key(duty)), &[]).await? else { return Ok(None) };
        Ok(Some(Session { pid: row.try_get(0)?, application_name: row.try_get(1)?, address: row.try_get(2)? }))
    }

    async fn end(&self, client: &Client, pid: i32, name: &str) -> Result<(), PgError> {
        let wait = i64::try_from(self.wait.as_millis()).unwrap_or(i64::MAX);
        let session = [(&pid as _, Type::INT4), (&name as _, Type::TEXT), (&wait as _, Type::INT8)];
        client.query_typed(Sql::END_PREDECESSOR, &session).await.map(drop)
    }

    async fn refuse(&self, client: &Client, rival: Session) -> Error {
        self.describe(client, rival).await.refuse(self.name, &self.claim, self.silence)
    }

    /// What else is known of the holder: nothing, where the table is missing or may not be read.
    async fn describe(&self, client: &Client, holder: Session) -> Holder {
        let incarnation = holder.application_name.as_deref().and_then(incarnation_of);
        let newest = async {
            let (node, wanted) = (self.claim.node.to_string(), incarnation.map_or(0, Incarnation::to_sql));
            let of = [(&node as _, Type::TEXT), (&wanted as _, Type::INT8)];
            let row = client.query_typed_opt(&self.sql.newest(), &of).await.ok()??;
            let age = Duration::try_from_secs_f64(row.try_get::<_, f64>(2).ok()?.max(0.0)).ok()?;
            Some((Incarnation::from_sql(row.try_get(0).ok()?), row.try_get(1).ok()?, age))
        };
        Holder { incarnation, from: holder.address, registered: newest.await }
    }
}

/// Frees every lock of a session that is about to be closed, as far as that can be said in time.
pub(super) async fn give_up(client: &Client, limit: Duration) {
    let _ = tokio::time::timeout(limit, client.batch_execute("SELECT pg_catalog.pg_advisory_unlock_all()")).await;
}
