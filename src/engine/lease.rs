//! The leases of a running bridge: confirmed again and again, and taken back when they are lost.
//!
//! While one is lost, somebody else may have it, and settle what is prepared there. So nothing with a branch there is
//! decided: the pump holds its last vote back until the lease is regained, or the deadline aborts it. A server does not
//! tell that it has forgotten a session; what is found out within `recovery.lease_interval` narrows the race of a copied
//! journal, and cannot close it.

use super::{Engine, Member, jittered};
use crate::error::{Error, ErrorKind};
use crate::id::ParticipantName;
use futures_util::future::join_all;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// What is known of the lease of a member.
#[derive(Debug, Default)]
pub(super) struct Lease {
    /// Why it is not held, and whether somebody else was seen to hold it.
    lost: Mutex<Option<(ErrorKind, String)>>,
    /// Somebody has seen that it is not held.
    missed: Notify,
}

impl Lease {
    fn lost(&self) -> MutexGuard<'_, Option<(ErrorKind, String)>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Member {
    /// Why decisions are held back there, if they are.
    pub fn lease_lost(&self) -> Option<(ErrorKind, String)> {
        self.lease.lost().clone()
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
            match self.participant.hold(claim).await {
                Ok(()) => {
                    if self.lease.lost().take().is_some() {
                        tracing::info!(participant = %self.name, "the lease is held again: decisions go on");
                    }
                    engine.leases.notify_waiters();
                }
                Err(error) => {
                    let cause = format!("the lease is not held, decisions wait: {}", error.chain());
                    let before = self.lease.lost().replace((error.kind(), cause));
                    if before.is_none() {
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

    /// Whether the leases of all of these are held, as far as that is known.
    pub fn holds(&self, names: &[ParticipantName]) -> bool {
        self.of(names).all(|member| member.participant.holds())
    }

    /// What keeps those from being held that are not, one cause at most.
    pub fn why_not_held(&self, names: &[ParticipantName]) -> Option<Error> {
        let mut missed = self.of(names).filter(|member| !member.participant.holds());
        missed.find_map(|one| one.lease_lost().map(|(_, cause)| Error::new(ErrorKind::Unavailable, cause).at(one.name)))
    }

    /// Waits until they are. Cancel safe.
    pub async fn held(&self, names: &[ParticipantName]) {
        loop {
            let changed = self.leases.notified();
            tokio::pin!(changed);
            // Registered before the check, so that a lease regained between the two is not missed.
            changed.as_mut().enable();
            if self.holds(names) {
                return;
            }
            self.of(names).filter(|one| !one.participant.holds()).for_each(|one| one.lease.missed.notify_one());
            // A pass of the resolver may regain it, too, and tells nobody.
            let _ = timeout(self.recovery.lease_interval, changed).await;
        }
    }

    fn of(&self, names: &[ParticipantName]) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| names.contains(&member.name))
    }
}
