//! A participant as a bridge keeps it: its number, and whether it may be used.
//!
//! A member is used only after this incarnation was registered in it and its lineage compared with the journal's.
//! One that cannot be reached when the bridge opens is registered later, by the first call or resolver's pass that
//! finds it; until then transactions that do not need it go on.

use super::lease::Lease;
use super::vet::{Objection, orphans, vet};
use crate::config::Decision;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Lineage, ParticipantName};
use crate::journal::Journal;
use crate::participant::{Claim, Participant, Registration};
use crate::protocol::{ParticipantRecord, Record};
use crate::torture::{self, Request};
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// So many decisions may become durable together, for all that is known.
const LATEST: usize = 64;

/// One participant of a bridge.
pub(crate) struct Member {
    pub name: ParticipantName,
    /// Its number in this incarnation's branch ids.
    pub number: u16,
    pub participant: Arc<dyn Participant>,
    standing: Mutex<Standing>,
    /// Whether nothing speaks against using it with this journal.
    vetted: AtomicBool,
    pub(super) lease: Lease,
    /// The sequences of the latest decisions with a branch here, the last one at the end.
    decided: Mutex<VecDeque<u64>>,
    /// Where the decisions of our node's openings are that were registered here.
    registered: Mutex<BTreeSet<Decision>>,
    /// Held while registering, so that it happens once.
    registering: tokio::sync::Mutex<()>,
}

/// Whether a member may be used.
#[derive(Debug, Clone)]
enum Standing {
    Ready(Lineage),
    Not { kind: ErrorKind, cause: Arc<str> },
}

impl Member {
    pub fn new(number: u16, participant: Arc<dyn Participant>) -> Self {
        let standing = Standing::Not { kind: ErrorKind::Unavailable, cause: "not reached yet".into() };
        Self {
            name: participant.name(),
            number,
            participant,
            standing: Mutex::new(standing),
            vetted: AtomicBool::new(false),
            lease: Lease::default(),
            decided: Mutex::default(),
            registered: Mutex::default(),
            registering: tokio::sync::Mutex::new(()),
        }
    }

    /// The lowest sequence of the latest decisions with a branch here. Those that became durable together may be told of
    /// in another order than the journal has: so the last one alone would not do.
    pub fn last_decided(&self) -> Option<u64> {
        self.decided.lock().unwrap_or_else(PoisonError::into_inner).iter().min().copied()
    }

    /// A decision with a branch here is durable.
    pub fn decided(&self, sequence: u64) {
        let mut decided = self.decided.lock().unwrap_or_else(PoisonError::into_inner);
        decided.push_back(sequence);
        if decided.len() > LATEST {
            decided.pop_front();
        }
    }

    /// Where the decisions of our node's openings are, as its registry had them when it was vetted.
    pub fn registered(&self) -> BTreeSet<Decision> {
        self.registered.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn standing(&self) -> Standing {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, standing: Standing) {
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner) = standing;
    }

    /// Why it cannot be used, as last seen; `None` when it can.
    pub fn trouble(&self) -> Option<(ErrorKind, Arc<str>)> {
        match self.standing() {
            Standing::Ready(_) => None,
            Standing::Not { kind, cause } => Some((kind, cause)),
        }
    }

    /// Looks whether anything speaks against using it, where that has not been done yet. Nothing is written there but the
    /// lease. Cancel safe.
    pub async fn vet(&self, journal: &Journal, claim: Claim) -> Result<(), Objection> {
        let _once = self.registering.lock().await;
        self.vet_once(journal, claim).await
    }

    async fn vet_once(&self, journal: &Journal, claim: Claim) -> Result<(), Objection> {
        if self.vetted.load(Ordering::Relaxed) {
            return Ok(());
        }
        let vetted = vet(&*self.participant, journal, claim).await;
        let registered = vetted.map_err(|objection| match objection {
            Objection::Stale(error) => Objection::Stale(self.cannot(error)),
            Objection::Other(error) => Objection::Other(self.cannot(error)),
        })?;
        let ours = registered.iter().filter(|row| row.node == claim.node);
        self.registered.lock().unwrap_or_else(PoisonError::into_inner).extend(ours.filter_map(|row| row.decision));
        orphans(&*self.participant, journal, claim.node, &registered).await.map_err(|error| self.cannot(error))?;
        self.vetted.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// The lineage of the data there, after vetting it and registering this incarnation where that has not been done
    /// yet. Cancel safe: a registration that was cut off is made again.
    pub async fn ready(&self, journal: &Journal, registration: &Registration) -> Result<Lineage, Objection> {
        if let Standing::Ready(lineage) = self.standing() {
            return Ok(lineage);
        }
        // Each transaction's begin would have room for all of it; few need it.
        Box::pin(self.make_ready(journal, registration)).await
    }

    async fn make_ready(&self, journal: &Journal, registration: &Registration) -> Result<Lineage, Objection> {
        let _once = self.registering.lock().await;
        if let Standing::Ready(lineage) = self.standing() {
            return Ok(lineage);
        }
        self.vet_once(journal, registration.claim()).await?;
        let lineage = self.register(journal, registration).await.map_err(|error| self.cannot(error))?;
        self.set(Standing::Ready(lineage));
        Ok(lineage)
    }

    /// Remembers why it cannot be used.
    fn cannot(&self, error: Error) -> Error {
        let error = error.at(self.name);
        self.set(Standing::Not { kind: error.kind(), cause: error.chain().into() });
        error
    }

    async fn register(&self, journal: &Journal, registration: &Registration) -> Result<Lineage> {
        let expected = journal.image(|image| image.participant(self.name).map(|known| known.lineage));
        let registration = Registration { participant: self.number, expected, ..registration.clone() };
        let registering = self.participant.register(&registration);
        let lineage = torture::request(Request::Register, self.name, registering).await?;
        match expected {
            Some(expected) if lineage == expected => {}
            // The participant refuses such a server, unless its name led elsewhere between two of its questions.
            Some(expected) => {
                let message = format!("the server became one of lineage {lineage}, the journal knows {expected}");
                return Err(Error::new(ErrorKind::Refused, message));
            }
            None => {
                let record = ParticipantRecord { name: self.name, lineage, reason: String::from("first seen") };
                journal.append(Record::Participant(record)).await?;
            }
        }
        Ok(lineage)
    }
}
