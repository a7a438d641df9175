//! The connection that holds the lease, and does nothing else.

use super::lease::{Lease, give_up};
use super::session::Link;
use crate::error::Result;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as Cell, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio_postgres::Client;

/// The connection, where there is one.
#[derive(Default)]
pub(super) struct Holding {
    place: Mutex<Option<Link>>,
    /// The session that has taken the lease, and its process: as long as it lives it holds it.
    holder: Cell<(Weak<Client>, i32)>,
    /// How often the lease was taken.
    taken: AtomicU64,
}

impl Holding {
    /// Makes sure that the lease is held, or takes it on a new connection.
    pub(super) async fn hold(&self, lease: &Lease<'_>, connect: impl Future<Output = Result<Link>>) -> Result<()> {
        let mut place = self.place.lock().await;
        if let Some(link) = place.take()
            && matches!(lease.is_held(&link.client).await, Ok(true))
        {
            *place = Some(link);
            return Ok(());
        }
        let link = connect.await?;
        let process = lease.take(&link.client).await?;
        self.taken.fetch_add(1, Ordering::Release);
        *self.holder() = (Arc::downgrade(&link.client), process);
        *place = Some(link);
        Ok(())
    }

    /// The process that held it when its connection was last heard of, if it was held.
    pub(super) fn process(&self) -> Option<i32> {
        let (client, process) = &*self.holder();
        client.upgrade().is_some_and(|client| !client.is_closed()).then_some(*process)
    }

    /// Which taking was in force when the connection was last heard of, if one was.
    pub(super) fn number(&self) -> Option<u64> {
        // In this order: a taking is counted before its connection is the holder.
        self.process().map(|_| self.taken.load(Ordering::Acquire))
    }

    /// Gives the lease up and closes the connection.
    pub(super) async fn close(&self, limit: Duration) {
        if let Some(link) = self.place.lock().await.take() {
            give_up(&link.client, limit).await;
        }
    }

    /// That process does not hold the lease any more.
    pub(super) async fn lost(&self, process: i32) {
        let mut place = self.place.lock().await;
        if self.process() == Some(process) {
            *place = None;
        }
    }

    fn holder(&self) -> MutexGuard<'_, (Weak<Client>, i32)> {
        self.holder.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
