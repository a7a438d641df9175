//! What a running bridge consists of: its participants, its journal, its live transactions. Transactions, coordinators
//! and the resolver share one [`Engine`].

pub(crate) mod anchor;
mod deadlines;
mod found;
mod lease;
mod live;
mod member;
mod prune;
pub(crate) mod pump;
mod vet;

pub(crate) use deadlines::{Deadlines, Overdue};
pub(crate) use found::Found;
pub(crate) use lease::Taking;
pub(crate) use live::{Live, Standing};
pub(crate) use member::Member;
pub(crate) use pump::{Enlisted, Job, Verdict};
pub(crate) use vet::{Objection, older_copy, unknown_decision, unknown_opening, vet};

pub(crate) use crate::clock::now_ms;
use crate::config::{Config, Decision, RecoveryConfig, TransactionConfig};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Incarnation, Lineage, ParticipantName, SessionName, TransactionId};
use crate::journal::{self, Journal, Opening};
use crate::participant::{Claim, Participant, Registration, witness};
use futures_util::future::join_all;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::futures::Notified;
use tokio::sync::{Mutex, Notify};
use tokio::time::Instant;

/// What transactions, coordinators and the resolver share.
pub(crate) struct Engine {
    pub members: Vec<Member>,
    pub journal: Journal,
    pub registration: Registration,
    pub transaction: TransactionConfig,
    pub recovery: RecoveryConfig,
    pub live: Live,
    /// Of the transactions that are open in the application's hands.
    pub deadlines: Deadlines,
    /// What the resolver's passes have found.
    pub found: Found,
    /// Why nothing is settled and nothing begins any more: the journal is an older copy.
    stale: OnceLock<String>,
    /// Nothing is settled any more, whoever waits for it.
    closed: AtomicBool,
    /// Told whenever a lease may be held again.
    leases: Notify,
    /// Told whenever a pass of the resolver is over.
    pub passed: Notify,
    pub runtime: tokio::runtime::Handle,
    /// Wakes the resolver: something was left to it.
    pub work: Notify,
    /// Held for a pass: two at once would take each other's work for refused, and the one that began earlier would have the
    /// last word about what was found.
    pub passing: Mutex<()>,
}

impl Engine {
    /// Takes the journal's lock and a new incarnation. Reaches nobody yet but the anchor, where one decides.
    pub async fn open(config: Config, participants: BTreeMap<ParticipantName, Arc<dyn Participant>>) -> Result<Self> {
        let opening = opening(&config, participants.keys().copied())?;
        let incarnation = opening.incarnation;
        let journal = match anchor::find(&config, &participants)? {
            None => Journal::open(&config.journal, opening)?,
            Some(anchor) => anchor::open(anchor, opening).await?,
        };
        let registration = Registration {
            node: config.node,
            incarnation,
            journal: journal.id(),
            decision: config.transaction.decision,
            participant: 0,
            host: journal::host(),
            expected: None,
        };
        let runtime = tokio::runtime::Handle::current();
        let members = participants.into_values().zip(0..).map(|(participant, number)| Member::new(number, participant));
        Ok(Self {
            members: members.collect(),
            journal,
            registration,
            transaction: config.transaction,
            recovery: config.recovery,
            live: Live::default(),
            deadlines: Deadlines::new(&runtime),
            found: Found::default(),
            stale: OnceLock::new(),
            closed: AtomicBool::new(false),
            leases: Notify::new(),
            passed: Notify::new(),
            runtime,
            work: Notify::new(),
            passing: Mutex::new(()),
        })
    }

    /// This incarnation's id of a sequence.
    pub fn id(&self, sequence: u64) -> TransactionId {
        TransactionId { node: self.registration.node, incarnation: self.registration.incarnation, sequence }
    }

    /// The member of a configured name.
    pub fn member(&self, name: &str) -> Result<&Member> {
        self.members.iter().find(|member| member.name.as_str() == name).ok_or_else(|| {
            let known: Vec<_> = self.members.iter().map(|member| member.name.as_str()).collect();
            let message = format!("no participant {name:?} is configured; there are: {}", known.join(", "));
            Error::new(ErrorKind::Config, message)
        })
    }

    /// A member's lineage, after registering with it where that has not been done yet.
    pub async fn ready(&self, member: &Member) -> Result<Lineage> {
        member.ready(&self.journal, &self.registration).await.map_err(|objection| self.heard(objection))
    }

    fn heard(&self, objection: Objection) -> Error {
        match objection {
            Objection::Stale(error) => self.halt(error),
            Objection::Other(error) => error,
        }
    }

    /// The journal was found to be an older copy: nothing is settled any more, and nothing begins.
    pub fn halt(&self, stale: Error) -> Error {
        if self.stale.set(stale.chain()).is_ok() {
            tracing::error!("{}", stale.chain());
        }
        stale
    }

    /// Why nothing is settled and nothing begins any more, if so.
    pub fn halted(&self) -> Option<Error> {
        self.stale.get().map(|cause| Error::new(ErrorKind::Refused, cause.clone()))
    }

    /// From now on nothing is settled any more.
    pub fn set_closed(&self) {
        self.closed.store(true, Ordering::Release);
        self.live.changed().notify_waiters();
        self.passed.notify_waiters();
    }

    /// The bridge was closed: what is in doubt stays so.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Vets every participant, and registers with every one that can be reached, at once. An error where one answers
    /// that it cannot serve, or none answers; one that merely cannot be reached is the resolver's to try again.
    ///
    /// When the journal is an older copy, or somebody else is at work with it, no participant is registered with.
    pub async fn reach_all(&self) -> Result<(), Refusal> {
        let claim = self.registration.claim();
        let vetting = self.members.iter().map(|member| self.in_time(member, self.vet(member, claim)));
        let (mut good, mut failed) = (Vec::new(), Vec::new());
        for (member, vetted) in self.members.iter().zip(join_all(vetting).await) {
            match vetted {
                Ok(()) => good.push(member),
                Err(error) if error.kind() == ErrorKind::Refused => return Err(Refusal::Whole(error)),
                Err(error) => failed.push(error),
            }
        }
        let registering = good.into_iter().map(|member| self.in_time(member, self.ready(member)));
        failed.extend(join_all(registering).await.into_iter().filter_map(Result::err));
        let none_reached = failed.len() == self.members.len();
        for error in &failed {
            tracing::warn!(error = %error.chain(), "participant cannot be used yet");
        }
        let fatal = failed.into_iter().find(|error| none_reached || error.kind() != ErrorKind::Unavailable);
        fatal.map_or(Ok(()), |error| Err(Refusal::Part(error)))
    }

    /// Where the decisions of earlier openings are, if elsewhere, as far as the registries were read.
    pub fn decided_elsewhere(&self) -> BTreeSet<Decision> {
        let all = self.members.iter().flat_map(Member::registered);
        all.filter(|decision| *decision != self.transaction.decision).collect()
    }

    async fn vet(&self, member: &Member, claim: Claim) -> Result<()> {
        member.vet(&self.journal, claim).await.map_err(|objection| self.heard(objection))
    }

    /// Bounds an attempt by the patience of opening.
    async fn in_time<T>(&self, member: &Member, attempt: impl Future<Output = Result<T>>) -> Result<T> {
        let wait = self.recovery.open_wait;
        tokio::time::timeout(wait, attempt).await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Unavailable, format!("no answer within {wait:?}")).at(member.name))
        })
    }

    /// Ends a session from outside, within the resolver's patience.
    pub async fn end_session(&self, participant: ParticipantName, session: SessionName) {
        let Ok(member) = self.member(participant.as_str()) else { return };
        let ending =
            tokio::time::timeout(self.recovery.statement_timeout, member.participant.end_session(session)).await;
        if !matches!(ending, Ok(Ok(_))) {
            tracing::warn!(%participant, %session, "a session could not be ended from outside; its socket is closed");
        }
    }

    /// Begins the next transaction: its sequence.
    pub fn begin(&self) -> Result<TransactionId> {
        if let Some(halted) = self.halted() {
            return Err(halted);
        }
        self.journal.check_space()?;
        let sequence = self.live.begin().ok_or_else(|| Error::new(ErrorKind::Closed, "the bridge is closed"))?;
        Ok(self.id(sequence))
    }

    /// Tells the resolver that there is something to do.
    pub fn kick_resolver(&self) {
        self.work.notify_one();
    }
}

/// Why a bridge does not open.
pub(crate) enum Refusal {
    /// Nothing may be touched.
    Whole(Error),
    /// One participant cannot be used; what the others hold can be settled.
    Part(Error),
}

/// A new incarnation of the journal.
pub(crate) fn opening(config: &Config, participants: impl Iterator<Item = ParticipantName>) -> Result<Opening> {
    Ok(Opening {
        node: config.node,
        incarnation: Incarnation(witness::random()?),
        opened_at_ms: now_ms(),
        participants: participants.collect(),
    })
}

/// What will be told from now on: taken before a condition is looked at, it misses nothing that is told between the two.
pub(crate) fn told(by: &Notify) -> Pin<Box<Notified<'_>>> {
    let mut next = Box::pin(by.notified());
    next.as_mut().enable();
    next
}

/// So much later. What no clock can reach is as good as far away.
pub(crate) fn after(wait: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 3600);
    let now = Instant::now();
    now.checked_add(wait).unwrap_or_else(|| now + FAR)
}

/// A pause between half of `pause` and all of it, so that those who failed together do not return together.
pub(crate) fn jittered(pause: Duration) -> Duration {
    let part = getrandom::u32().unwrap_or(u32::MAX / 2);
    pause.mul_f64(0.5 + f64::from(part) / f64::from(u32::MAX) / 2.0)
}
