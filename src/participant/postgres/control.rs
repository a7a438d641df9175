//! The resolver's own connection: one session beside the pool, made anew when it is lost.

use super::error::{PgError, explain, is_refusal};
use super::lease::Lease;
use super::session::{Connector, Link};
use super::sql::Sql;
use crate::error::Result;
use crate::id::Lineage;
use crate::participant::Claim;
use crate::participant::lease::{Claimed, UNCLAIMED, connection_name};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as Cell, OnceLock, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio_postgres::Client;

/// The connection, where there is one.
pub(super) struct Control {
    connector: Connector,
    link: Mutex<Option<Link>>,
    limit: Duration,
    /// After so long without a sign of life the server is to end the connection.
    silence: Duration,
    /// Set by registration: from then on no other server is talked to.
    expected: OnceLock<Lineage>,
    /// Once made, no connection is used that has not taken the lease.
    claimed: Claimed,
    /// The session that has taken the lease: as long as it lives it holds it.
    holder: Cell<Weak<Client>>,
    /// How often the lease was taken.
    taken: AtomicU64,
}

impl Control {
    pub(super) fn new(connector: Connector, limit: Duration, silence: Duration) -> Self {
        let (link, expected, claimed, holder) =
            (Mutex::default(), OnceLock::new(), Claimed::default(), Cell::default());
        Self { connector, link, limit, silence, expected, claimed, holder, taken: AtomicU64::new(0) }
    }

    /// Takes the lease, or makes sure that the connection still has it.
    pub(super) async fn hold(&self, claim: Claim) -> Result<()> {
        self.claimed.claim(self.connector.name, claim)?;
        let doing = "cannot hold the node's lease";
        let lease = self.lease(claim);
        let work = async {
            let mut place = self.link.lock().await;
            if let Some(link) = place.take()
                && self.holds()
                && matches!(lease.is_held(&link.client).await, Ok(true))
            {
                *place = Some(link);
                return Ok(());
            }
            *place = Some(self.connect().await?);
            Ok(())
        };
        self.within(doing, work).await
    }

    /// The incarnation that works here, if one does.
    pub(super) fn claimed(&self) -> Option<Claim> {
        self.claimed.get()
    }

    /// Which taking of the lease was in force when the connection was last heard of, if one was.
    pub(super) fn lease_number(&self) -> Option<u64> {
        // In this order: a taking is counted before its connection is the holder.
        self.holds().then(|| self.taken.load(Ordering::Acquire))
    }

    fn holds(&self) -> bool {
        let holder = self.holder.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        holder.is_some_and(|client| !client.is_closed())
    }

    fn lease(&self, claim: Claim) -> Lease<'_> {
        Lease {
            name: self.connector.name,
            claim,
            sql: &self.connector.sql,
            wait: self.limit / 2,
            silence: self.silence,
        }
    }

    /// Bounds an operation in time, waiting for the connection included.
    async fn within<T>(&self, doing: &str, operation: impl Future<Output = Result<T>>) -> Result<T> {
        let late = |_| self.connector.unavailable(format!("{doing}: no answer within {:?}", self.limit));
        tokio::time::timeout(self.limit, operation).await.map_err(late)?
    }

    /// From now on only a server of this lineage is talked to.
    pub(super) fn expect(&self, lineage: Lineage) {
        self.expected.get_or_init(|| lineage);
    }

    /// How long one call may take.
    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// How long a statement waits for a lock: short, since one that has to wait holds up the others.
    fn lock_timeout(&self) -> Duration {
        (self.limit / 4).min(Duration::from_millis(500))
    }

    /// Runs one operation within the time limit, waiting for the connection included.
    ///
    /// The connection is kept only when the operation ran to an answer: an operation that is dropped or times out takes
    /// its connection with it, so that no answer of one can be taken for the answer to another.
    pub(super) async fn run<T, F>(&self, doing: &str, operation: impl FnOnce(Arc<Client>) -> F) -> Result<T>
    where
        F: Future<Output = Result<T, PgError>>,
    {
        let work = async {
            let mut place = self.link.lock().await;
            let link = match place.take() {
                Some(link) if !link.client.is_closed() => link,
                _ => self.connect().await?,
            };
            let result = operation(link.client.clone()).await;
            if result.as_ref().err().is_none_or(is_refusal) {
                *place = Some(link);
            }
            result.map_err(|error| explain(self.connector.name, doing, error))
        };
        self.within(doing, work).await
    }

    async fn connect(&self) -> Result<Link> {
        let claim = self.claimed.get();
        let called = claim.map_or_else(|| UNCLAIMED.into(), |claim| connection_name(self.connector.name, &claim));
        let link = self.connector.connect(&called).await?;
        let settings = Sql::control_session(self.limit, self.lock_timeout());
        let set = link.client.batch_execute(&settings).await;
        set.map_err(|error| explain(self.connector.name, "cannot set up the resolver's session", error))?;
        let mortal = link.client.batch_execute(&Sql::mortal(self.silence)).await;
        mortal.map_err(|error| explain(self.connector.name, "cannot set up the resolver's session", error))?;
        if let Some(expected) = self.expected.get() {
            self.connector.check_lineage(&link.client, *expected).await?;
        }
        if let Some(claim) = claim {
            self.lease(claim).take(&link.client).await?;
            self.taken.fetch_add(1, Ordering::Release);
            *self.holder.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&link.client);
        }
        Ok(link)
    }

    /// Closes the connection; a later call opens another, and claims nothing. The lease is given up by word: a server that
    /// has much to do notices late that a socket was closed, and whoever comes next would be refused.
    pub(super) async fn close(&self) {
        self.claimed.give_up();
        if let Some(link) = self.link.lock().await.take() {
            let giving_up = link.client.batch_execute("SELECT pg_catalog.pg_advisory_unlock_all()");
            let _ = tokio::time::timeout(self.limit, giving_up).await;
        }
    }
}
