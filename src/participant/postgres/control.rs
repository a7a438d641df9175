//! The resolver's own connection: one session beside the pool, made anew when it is lost.

use super::error::{PgError, explain, is_refusal};
use super::session::{Connector, Link};
use super::sql::Sql;
use crate::error::{Error, Result};
use crate::id::Lineage;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio_postgres::Client;

/// What the session calls itself: of no incarnation, so that nobody who ends an incarnation's sessions ends it.
const APPLICATION_NAME: &str = "handfast.resolver";

/// The connection, where there is one.
pub(super) struct Control {
    connector: Connector,
    link: Mutex<Option<Link>>,
    limit: Duration,
    /// Set by registration: from then on no other server is talked to.
    expected: OnceLock<Lineage>,
}

impl Control {
    pub(super) fn new(connector: Connector, limit: Duration) -> Self {
        Self { connector, link: Mutex::new(None), limit, expected: OnceLock::new() }
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
        let late = |_| self.connector.unavailable(format!("{doing}: no answer within {:?}", self.limit));
        tokio::time::timeout(self.limit, work).await.map_err(late)?
    }

    async fn connect(&self) -> Result<Link, Error> {
        let link = self.connector.connect(APPLICATION_NAME).await?;
        let settings = Sql::control_session(self.limit, self.lock_timeout());
        let set = link.client.batch_execute(&settings).await;
        set.map_err(|error| explain(self.connector.name, "cannot set up the resolver's session", error))?;
        if let Some(expected) = self.expected.get() {
            self.connector.check_lineage(&link.client, *expected).await?;
        }
        Ok(link)
    }

    /// Closes the connection; a later call opens another.
    pub(super) async fn close(&self) {
        *self.link.lock().await = None;
    }
}
