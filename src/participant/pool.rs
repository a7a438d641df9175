//! What the pools of the databases have in common, and the registration that they serve.

use super::witness::wrong_lineage;
use super::{BoxFuture, Claim, Registration};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Incarnation, Lineage, ParticipantName};
use crate::telemetry::{self, Timer};
use deadpool::managed::{Manager, Object, Pool, PoolError, QueueMode};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Takes a session, waiting no longer than for a lock.
///
/// A session is one: two transactions that hold the last session of one pool each and want one of the other's wait for
/// each other, and no database sees it.
pub(super) async fn take<M>(name: ParticipantName, pool: &Pool<M>, wait: Duration) -> Result<Object<M>>
where
    M: Manager<Error = Error>,
{
    let timer = Timer::start();
    // A future by itself: around it, a begin is too large for what an allocator has at hand.
    let taken = tokio::time::timeout(wait, Box::pin(pool.get())).await;
    telemetry::pool_wait(name, timer);
    let Ok(taken) = taken else {
        let status = pool.status();
        let (kind, why) = if status.size >= status.max_size {
            (
                ErrorKind::Retry,
                format!("none of the pool's {} sessions was given back within {wait:?}", status.max_size),
            )
        } else {
            (ErrorKind::Unavailable, format!("no connection within {wait:?}"))
        };
        return Err(Error::new(kind, why).at(name));
    };
    taken.map_err(|error| match error {
        PoolError::Backend(error) => error,
        PoolError::Closed => Error::new(ErrorKind::Closed, "the participant is closed").at(name),
        other => Error::new(ErrorKind::Unavailable, "no session").at(name).because(other),
    })
}

/// How a session that was closed is seen out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// Whatever it is at.
    AtOnce,
    /// Once it is at nothing; what it is at is the end of its work.
    Idle,
}

/// Sees a session out, again and again until the server has told that nothing of it is left, or the participant is closed.
pub(super) async fn see_out<'a>(is_open: impl Fn() -> bool, attempt: impl Fn() -> BoxFuture<'a, Result<()>>) {
    // Most have gone by then by themselves.
    let mut pause = Duration::from_millis(50);
    loop {
        tokio::time::sleep(pause).await;
        if !is_open() {
            return;
        }
        match attempt().await {
            Ok(()) => return,
            Err(error) => tracing::debug!(error = %error.chain(), "a closed session may still be there"),
        }
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

/// The slot numbers of a participant's sessions: bounded, and each free one is used as late as possible, so that a
/// late request to end a session by its name seldom meets its successor.
pub(super) struct Slots {
    free: Mutex<VecDeque<u32>>,
    freed: Notify,
}

impl Slots {
    /// How many a pool of this size has: the double, since a closing session keeps its number until it is gone.
    pub(super) fn count(pool_size: usize) -> u32 {
        u32::try_from(pool_size.saturating_mul(2)).unwrap_or(u32::MAX)
    }

    pub(super) fn new(pool_size: usize) -> Arc<Self> {
        Arc::new(Self { free: Mutex::new((0..Self::count(pool_size)).collect()), freed: Notify::new() })
    }

    pub(super) fn take(self: &Arc<Self>) -> Option<Slot> {
        let number = self.free().pop_front()?;
        Some(Slot { number, of: self.clone() })
    }

    /// Waits until there is one.
    pub(super) async fn wait(self: &Arc<Self>) -> Slot {
        loop {
            let freed = self.freed.notified();
            if let Some(slot) = self.take() {
                return slot;
            }
            freed.await;
        }
    }

    fn free(&self) -> MutexGuard<'_, VecDeque<u32>> {
        // No code panics while it holds the lock; the numbers are whole in any case.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A slot in use; dropped, it is free.
pub(super) struct Slot {
    pub(super) number: u32,
    of: Arc<Slots>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.of.free().push_back(self.number);
        self.of.freed.notify_one();
    }
}

/// Refuses to take an incarnation at work for a settled one.
pub(super) fn refuse_running(name: ParticipantName, claimed: Option<Claim>, settled: Incarnation) -> Result<()> {
    if claimed.is_none_or(|claim| claim.incarnation != settled) {
        return Ok(());
    }
    let message = format!("incarnation {settled} is at work: nothing of it is pruned as settled");
    Err(Error::new(ErrorKind::Refused, message).at(name))
}

/// What registration left: who this is there, and the sessions under that name.
pub(super) struct Registered<M: Manager> {
    pub(super) incarnation: Incarnation,
    pub(super) participant: u16,
    pub(super) lineage: Lineage,
    pub(super) pool: Pool<M>,
}

/// A participant's place for its registration: it works for one incarnation.
pub(super) struct Registry<M: Manager>(OnceLock<Registered<M>>);

impl<M: Manager<Error = Error>> Registry<M> {
    pub(super) fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Keeps a registration that the server has taken, with a pool of such sessions. The same one may come again.
    pub(super) fn keep(
        &self,
        name: ParticipantName,
        registration: &Registration,
        lineage: Lineage,
        sessions: M,
        size: usize,
    ) -> Result<()> {
        let Registration { incarnation, participant, .. } = *registration;
        // The session that was used last is the one whose server process has all at hand, and is taken for alive.
        let pool = Pool::builder(sessions)
            .max_size(size)
            .queue_mode(QueueMode::Lifo)
            .build()
            .map_err(|error| Error::new(ErrorKind::Config, "the pool cannot be built").at(name).because(error))?;
        let ours = self.0.get_or_init(|| Registered { incarnation, participant, lineage, pool });
        if (ours.incarnation, ours.participant) != (incarnation, participant) {
            let message = format!("this participant works for incarnation {} already", ours.incarnation);
            return Err(Error::new(ErrorKind::Refused, message).at(name));
        }
        if ours.lineage != lineage {
            return Err(wrong_lineage(name, ours.lineage, Some(lineage)));
        }
        Ok(())
    }

    /// The registration, if there is one.
    pub(super) fn get(&self) -> Option<&Registered<M>> {
        self.0.get()
    }

    /// The registration under which a branch of this incarnation may begin.
    pub(super) fn of(&self, name: ParticipantName, incarnation: Incarnation) -> Result<&Registered<M>> {
        self.get().filter(|ours| ours.incarnation == incarnation).ok_or_else(|| {
            let message = format!("incarnation {incarnation} is not registered here: no branch can begin");
            Error::new(ErrorKind::Refused, message).at(name)
        })
    }
}
