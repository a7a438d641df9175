//! The resolver's own connection: one session beside the pool, made anew when it is lost. What holds the lease is another
//! one (`holding.rs`), and without the lease this one does nothing.

use super::error::{PgError, explain, is_refusal};
use super::holding::Holding;
use super::lease::{Lease, give_up};
use super::session::{Connector, Link};
use super::sql::Sql;
use crate::error::Result;
use crate::id::Lineage;
use crate::participant::Claim;
use crate::participant::lease::{Claimed, Duty, UNCLAIMED, connection_name};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio_postgres::Client;

/// A connection, and the claim that it works under.
struct Work {
    link: Link,
    claim: Option<Claim>,
}

/// The connection, where there is one.
pub(super) struct Control {
    connector: Connector,
    place: Mutex<Option<Work>>,
    limit: Duration,
    /// After so long without a sign of life the server is to end the connection.
    silence: Duration,
    /// Set by registration: from then on no other server is talked to.
    expected: OnceLock<Lineage>,
    /// Once made, nothing is done without the lease.
    claimed: Claimed,
    holding: Holding,
}

impl Control {
    pub(super) fn new(connector: Connector, limit: Duration, silence: Duration) -> Self {
        let (expected, claimed, holding) = (OnceLock::new(), Claimed::default(), Holding::default());
        Self { connector, place: Mutex::default(), limit, silence, expected, claimed, holding }
    }

    /// Takes the lease, or makes sure that it is still held.
    pub(super) async fn hold(&self, claim: Claim) -> Result<()> {
        self.claimed.claim(self.connector.name, claim)?;
        self.within("cannot hold the node's lease", self.take(claim)).await?;
        self.recheck(claim).await;
        Ok(())
    }

    async fn take(&self, claim: Claim) -> Result<()> {
        let name = connection_name(Duty::Hold, self.connector.name, &claim);
        self.holding.hold(&self.lease(claim), self.session(&name)).await
    }

    /// Gives up a connection that is idle and may not work any more: a pooler has handed its session to somebody else.
    async fn recheck(&self, claim: Claim) {
        let Ok(mut place) = self.place.try_lock() else { return };
        let (Some(work), Some(holder)) = (place.take(), self.holding.process()) else { return };
        let lease = self.lease(claim);
        let check = tokio::time::timeout(self.limit / 4, lease.is_at_work(&work.link.client, holder));
        if work.claim == Some(claim) && matches!(check.await, Ok(Ok(true))) {
            *place = Some(work);
        }
    }

    /// The incarnation that works here, if one does.
    pub(super) fn claimed(&self) -> Option<Claim> {
        self.claimed.get()
    }

    /// Which taking of the lease was in force when its connection was last heard of, if one was.
    pub(super) fn lease_number(&self) -> Option<u64> {
        self.holding.number()
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
            let mut place = self.place.lock().await;
            let claim = self.claimed.get();
            if let Some(claim) = claim
                && self.holding.process().is_none()
            {
                self.take(claim).await?;
            }
            let work = match place.take() {
                Some(work) if work.claim == claim && !work.link.client.is_closed() => work,
                _ => Work { link: self.connect(claim).await?, claim },
            };
            let result = operation(work.link.client.clone()).await;
            if result.as_ref().err().is_none_or(is_refusal) {
                *place = Some(work);
            }
            result.map_err(|error| explain(self.connector.name, doing, error))
        };
        self.within(doing, work).await
    }

    /// A connection to work on, under the lease where one is claimed.
    async fn connect(&self, claim: Option<Claim>) -> Result<Link> {
        let Some(claim) = claim else { return self.session(UNCLAIMED).await };
        // What has ended the connection before this one may have ended the lease's, and nobody has told.
        self.take(claim).await?;
        let link = self.session(&connection_name(Duty::Work, self.connector.name, &claim)).await?;
        let lost = || self.connector.unavailable("the lease is not held any more");
        let holder = self.holding.process().ok_or_else(lost)?;
        if self.lease(claim).go_to_work(&link.client, holder).await? {
            return Ok(link);
        }
        // Nobody has told: what is next takes it again.
        self.holding.lost(holder).await;
        Err(lost())
    }

    async fn session(&self, name: &str) -> Result<Link> {
        let link = self.connector.connect(name).await?;
        let failed = |error| explain(self.connector.name, "cannot set up the resolver's session", error);
        for settings in [Sql::control_session(self.limit, self.lock_timeout()), Sql::mortal(self.silence)] {
            link.client.batch_execute(&settings).await.map_err(failed)?;
        }
        if let Some(expected) = self.expected.get() {
            self.connector.check_lineage(&link.client, *expected).await?;
        }
        Ok(link)
    }

    /// Closes the connections; a later call opens another, and claims nothing. What they hold is given up by word: a server
    /// that has much to do notices late that a socket was closed, and whoever comes next would be refused.
    pub(super) async fn close(&self) {
        self.claimed.give_up();
        if let Some(work) = self.place.lock().await.take() {
            give_up(&work.link.client, self.limit).await;
        }
        self.holding.close(self.limit).await;
    }
}
