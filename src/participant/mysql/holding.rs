//! The connection that holds the lease, and does nothing else.

use super::lease::{Lease, give_up};
use super::wire::Wire;
use crate::error::Result;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as Cell, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Mutex;

/// A connection that has taken the lease, and its number: while that lives here, so does the connection.
struct Link {
    wire: Wire,
    number: Arc<u64>,
}

/// The connection, where there is one.
#[derive(Default)]
pub(super) struct Holding {
    place: Mutex<Option<Link>>,
    holder: Cell<Weak<u64>>,
    /// How often the lease was taken.
    taken: AtomicU64,
}

impl Holding {
    /// Makes sure that the lease is held, or takes it on a new connection.
    pub(super) async fn hold(
        &self,
        lease: &Lease<'_>,
        connect: impl Future<Output = Result<(Wire, u64)>>,
    ) -> Result<()> {
        let mut place = self.place.lock().await;
        if let Some(mut link) = place.take() {
            if !link.wire.is_broken() && matches!(lease.is_held(link.wire.conn()).await, Ok(true)) {
                *place = Some(link);
                return Ok(());
            }
            link.wire.sever();
        }
        let (wire, number) = connect.await?;
        let number = Arc::new(number);
        self.taken.fetch_add(1, Ordering::Release);
        *self.holder() = Arc::downgrade(&number);
        *place = Some(Link { wire, number });
        Ok(())
    }

    /// The connection that held it when it was last heard of, if it was held.
    pub(super) fn connection(&self) -> Option<u64> {
        self.holder().upgrade().map(|number| *number)
    }

    /// Which taking was in force when the connection was last heard of, if one was.
    pub(super) fn number(&self) -> Option<u64> {
        // In this order: a taking is counted before its connection is the holder.
        self.connection().map(|_| self.taken.load(Ordering::Acquire))
    }

    /// Gives the lease up and closes the connection.
    pub(super) async fn close(&self, limit: Duration) {
        if let Some(mut link) = self.place.lock().await.take() {
            give_up(link.wire.conn(), limit).await;
            link.wire.sever();
        }
    }

    /// That connection does not hold the lease any more.
    pub(super) async fn lost(&self, number: u64) {
        let mut place = self.place.lock().await;
        if let Some(link) = place.take_if(|link| *link.number == number) {
            link.wire.sever();
        }
    }

    fn holder(&self) -> MutexGuard<'_, Weak<u64>> {
        self.holder.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
