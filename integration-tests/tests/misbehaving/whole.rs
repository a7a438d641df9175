//! What is asked after each case, and futures that are dropped half way.

use futures_util::FutureExt;
use futures_util::future::try_join_all;
use handfast::mysql_async::prelude::Queryable;
use handfast::{Bridge, ErrorKind, Outcome, Transaction, TransactionId};
use integration_tests::servers::Flavor;
use integration_tests::world::{LEDGER, ORDERS, World, eventually, insert, settled};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};

/// So many sessions has each pool of a [`World`].
pub const POOL: usize = 4;

/// A future that is dropped after so many polls that found it pending; after none, it is never polled at all.
pub struct Dropped<F> {
    future: Option<Pin<Box<F>>>,
    left: usize,
}

impl<F: Future> Dropped<F> {
    /// `None` when it was dropped, else what it came to.
    pub fn after(polls: usize, future: F) -> Self {
        Self { future: Some(Box::pin(future)), left: polls }
    }
}

impl<F: Future> Future for Dropped<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.left > 0
            && let Some(future) = &mut self.future
        {
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(Some(output));
            }
            self.left -= 1;
        }
        if self.left > 0 {
            return Poll::Pending;
        }
        self.future = None;
        Poll::Ready(None)
    }
}

/// Runs a case: what it panics with is its violation.
pub async fn attempt(case: impl Future<Output = ()>) -> Result<(), String> {
    AssertUnwindSafe(case).catch_unwind().await.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
    })
}

/// The servers of a pair, as people call them.
pub fn pair(other: Flavor) -> String {
    integration_tests::torture::pair(other)
}

/// The transaction has one certain outcome, and both databases agree with it.
pub async fn agrees(world: &World, bridge: &Bridge, id: TransactionId, key: i32) -> Outcome {
    let outcome = settled(bridge, id).await;
    world.agrees(key, outcome).await;
    outcome
}

/// A transaction at work on both. One session after another may have been killed right behind its last use: the transaction
/// that meets it is to be run again.
async fn on_both(bridge: &Bridge) -> handfast::Result<Transaction> {
    for _ in 0..2 * POOL {
        let tx = bridge.begin().await?;
        match look_at_both(&tx).await {
            Err(error) if error.kind() == ErrorKind::Retry => tx.rollback().await?,
            looked => return looked.map(|()| tx),
        }
    }
    panic!("more sessions were lost than there are");
}

async fn look_at_both(tx: &Transaction) -> handfast::Result<()> {
    let (ledger, mut orders) = tokio::try_join!(tx.postgres(LEDGER), tx.mysql(ORDERS))?;
    ledger.batch_execute("SELECT 1").await?;
    orders.query_drop("SELECT 1").await?;
    Ok(())
}

/// Nothing runs, nothing is prepared, every session of both pools can be had at once, and the next transaction works.
pub async fn is_whole(world: &World, bridge: &Bridge, key: i32) {
    eventually("nothing runs any more", async || bridge.status().running == 0).await;
    world.nothing_is_prepared().await;
    let all = try_join_all((0..POOL).map(|_| on_both(bridge)));
    let all = all.await.unwrap_or_else(|error| panic!("a session is missing: {}", error.chain()));
    for tx in all {
        tx.rollback().await.expect("it rolls back");
    }
    let tx = insert(bridge, key).await;
    tx.commit().await.unwrap_or_else(|error| panic!("the next transaction: {}", error.cause().chain()));
    world.is_on_both(key).await;
}
