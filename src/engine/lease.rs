//! The leases of a running bridge: confirmed again and again, and taken back when they are lost.
//!
//! While one is lost, somebody else may have it, and settle what is prepared there; regained, it does not tell whether
//! somebody did. So no branch begins there until it is held, and a transaction is decided only if each [`Taking`] that was
//! in force before its branches were asked to prepare still is. A server does not tell that it has forgotten a
//! session; what is found out within `recovery.lease_interval` narrows the race of a copied journal, and cannot close it.

use super::{Engine, Member, jittered, told};
use crate::error::{Error, ErrorKind, Result};
use crate::torture::{self, Request, Safeguard};
use futures_util::future::join_all;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// What is known of the lease of a member.
#[derive(Debug, Default)]
pub(super) struct Lease {
    /// Why it is not held, and whether somebody else was seen to hold it.
    lost: Mutex<Option<(ErrorKind, String)>>,
    /// How often it was found to be lost.
    losses: AtomicU64,
    /// Somebody has seen that it is not held.
    missed: Notify,
}

/// The lease as it was held once: as long as it is the same, nobody else had it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taking {
    number: u64,
    losses: u64,
}

impl Lease {
    fn lost(&self) -> MutexGuard<'_, Option<(ErrorKind, String)>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Member {
    /// Why nothing begins there, if so.
    pub fn lease_lost(&self) -> Option<(ErrorKind, String)> {
        self.lease.lost().clone()
    }

    /// The lease, if it is held: as the connection was last heard of, and as it was last confirmed.
    pub fn taking(&self) -> Option<Taking> {
        let losses = self.lease.losses.load(Ordering::Acquire);
        let number = self.participant.lease()?;
        self.lease.lost().is_none().then_some(Taking { number, losses })
    }

    /// Confirms the lease for ever, and takes it back with growing pauses.
    async fn keep_lease(&self, engine: &Engine) {
        let (claim, settings) = (engine.registration.claim(), &engine.recovery);
        let mut pause = settings.backoff_min;
        loop {
            if self.lease_lost().is_some() {
                sleep(jittered(pause)).await;
                pause = (pause * 2).min(settings.backoff_max).min(settings.lease_interval);
            } else {
                pause = settings.backoff_min;
                // Early, when somebody has missed it; or else in time.
                let _ = timeout(settings.lease_interval, self.lease.missed.notified()).await;
            }
            // Nobody claims anything where registering will do so first.
            if self.trouble().is_some() {
                continue;
            }
            match torture::request(Request::Hold, self.name, self.participant.hold(claim)).await {
                Ok(()) => {
                    if self.lease.lost().take().is_some() {
                        tracing::info!(participant = %self.name, "the lease is held again");
                    }
                    engine.leases.notify_waiters();
                }
                Err(error) => {
                    let cause = format!("the lease is not held, nothing begins there: {}", error.chain());
                    let before = self.lease.lost().replace((error.kind(), cause));
                    if before.is_none() {
                        self.lease.losses.fetch_add(1, Ordering::AcqRel);
                        tracing::warn!(participant = %self.name, error = %error.chain(), "the lease is lost");
                    }
                }
            }
        }
    }
}

impl Engine {
    /// Keeps the leases of all members, for ever.
    pub async fn keep_leases(&self) {
        join_all(self.members.iter().map(|member| member.keep_lease(self))).await;
    }

    /// Waits until the lease of a member is held. Cancel safe.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`], naming the holder, when somebody else has it.
    pub async fn leased(&self, member: &Member) -> Result<()> {
        // Almost always: nothing is waited for.
        if member.taking().is_some() {
            return Ok(());
        }
        Box::pin(self.await_lease(member)).await
    }

    async fn await_lease(&self, member: &Member) -> Result<()> {
        loop {
            let changed = told(&self.leases);
            if member.taking().is_some() {
                return Ok(());
            }
            if let Some((ErrorKind::Refused, cause)) = member.lease_lost() {
                return Err(Error::new(ErrorKind::Refused, cause).at(member.name));
            }
            member.lease.missed.notify_one();
            // A pass of the resolver may regain it, too, and tells nobody.
            let _ = timeout(self.recovery.lease_interval, changed).await;
        }
    }

    /// The lease of the participant of a number, if it is held.
    pub fn taking(&self, number: u16) -> Option<Taking> {
        self.members[usize::from(number)].taking()
    }

    /// Why nothing may be decided that was asked to prepare under these leases, if one of them was not held or is not what
    /// it was.
    pub fn interrupted(&self, under: &[(u16, Option<Taking>)]) -> Option<Error> {
        if !torture::is_on(Safeguard::UnderLease) {
            return None;
        }
        let (number, _) = under.iter().find(|(number, taken)| taken.is_none() || self.taking(*number) != *taken)?;
        let message = "the lease was lost, and somebody else may settle what is prepared there: the transaction is rolled \
                       back, run it again";
        Some(Error::new(ErrorKind::Retry, message).at(self.members[usize::from(*number)].name))
    }
}
