//! The lease: one program at a time decides and settles in a node's name. What the databases have in common of it.
//!
//! A lease is a lock of the server that a connection holds for life: the server frees it when the connection ends, however
//! it ends, and no clock is needed. That connection does nothing else, so that nothing the resolver asks for can cost the
//! lease. The resolver's own connection has a lock, too, for as long as it lives. Each of the two is taken first and
//! looks at the other then: who takes the lease makes sure that no other program's resolver is at work, and a resolver goes
//! to work when it has seen, its own lock in hand, that the lease is its program's. So whichever comes second sees the
//! first, and a resolver that has gone to work may go on when its lease is lost: nobody else can have it meanwhile.
//!
//! What a connection of the *same* incarnation still holds, because its other end has not noticed that the network is gone,
//! is ended: it is known by the name that the connection has, in which the incarnation is.

use super::Claim;
use crate::config::RecoveryConfig;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Incarnation, ParticipantName};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a resolver's connection calls itself while it claims nothing: of no incarnation, so that nobody who ends an
/// incarnation's sessions ends it.
pub(super) const UNCLAIMED: &str = "handfast.resolver";

/// What the connections call themselves that hold a lease.
pub(super) const HOLDER: &str = "handfast.lease";

/// The two connections of a claim, each with a lock of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Duty {
    /// Holds the lease.
    Hold,
    /// Works for the resolver.
    Work,
}

/// What a connection calls itself under a claim: 59 bytes at most, below the limits of PostgreSQL (63) and MySQL (64).
pub(super) fn connection_name(duty: Duty, participant: ParticipantName, claim: &Claim) -> String {
    let prefix = match duty {
        Duty::Hold => HOLDER,
        Duty::Work => UNCLAIMED,
    };
    format!("{prefix}.{}.{participant}", claim.incarnation)
}

/// The incarnation in such a name.
pub(super) fn incarnation_of(connection_name: &str) -> Option<Incarnation> {
    let rest = [HOLDER, UNCLAIMED].into_iter().find_map(|prefix| connection_name.strip_prefix(prefix))?;
    rest.strip_prefix('.')?.split('.').next()?.parse().ok()
}

/// What a lease is of: a node on a participant. Where an anchor decides, each incarnation has one of its own.
pub(super) fn lock_parts(participant: ParticipantName, claim: &Claim) -> Vec<String> {
    let mut parts = vec![claim.node.to_string(), participant.to_string()];
    parts.extend(claim.shared.then(|| claim.incarnation.to_string()));
    parts
}

/// A number for a lock, the same in every version: FNV-1a over the parts and their ends.
pub(super) fn key(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0xff]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// How long a server keeps the two connections, and with them the lease, of a program of which it hears nothing any more.
/// Far longer than two confirmations are apart, so that only who is gone is forgotten.
pub(super) fn silence(recovery: &RecoveryConfig) -> Duration {
    recovery
        .lease_interval
        .saturating_mul(4)
        .max(recovery.statement_timeout.saturating_mul(2))
        .max(Duration::from_secs(2))
}

/// What a participant's resolver claims, once it does.
#[derive(Debug, Default)]
pub(super) struct Claimed(Mutex<Option<Claim>>);

impl Claimed {
    /// Claims from now on.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] when it works for another incarnation already.
    pub(super) fn claim(&self, name: ParticipantName, claim: Claim) -> Result<()> {
        let known = *self.place().get_or_insert(claim);
        if known == claim {
            return Ok(());
        }
        let message = format!("this participant works for incarnation {} already", known.incarnation);
        Err(Error::new(ErrorKind::Refused, message).at(name))
    }

    /// Claims nothing any more.
    pub(super) fn give_up(&self) {
        *self.place() = None;
    }

    pub(super) fn get(&self) -> Option<Claim> {
        *self.place()
    }

    fn place(&self) -> MutexGuard<'_, Option<Claim>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is known of whoever holds a lease.
#[derive(Debug, Default)]
pub(super) struct Holder {
    /// Its incarnation, where its connection tells.
    pub(super) incarnation: Option<Incarnation>,
    /// From where it is connected, where the account may see that.
    pub(super) from: Option<String>,
    /// Its registration, or else the node's newest: the incarnation, its host, and how long ago it was opened.
    pub(super) registered: Option<(Incarnation, String, Duration)>,
}

impl Holder {
    /// The refusal that names it. `silence` is how long a server may take to notice that it is gone.
    ///
    /// That an earlier opening of this journal is dead, as the lock of its directory proves, is no reason to take its
    /// lease: the opening of a copy of the directory has the same journal's name, on another machine.
    pub(super) fn refuse(&self, name: ParticipantName, claim: &Claim, silence: Duration) -> Error {
        let who = match (self.incarnation, &self.registered) {
            (Some(holder), Some((incarnation, host, age))) if holder == *incarnation => {
                format!("incarnation {holder} on {host}, opened {} ago", ago(*age))
            }
            (Some(holder), _) => format!("incarnation {holder}, which has not registered here"),
            (None, Some((incarnation, host, age))) => format!(
                "a program that does not tell its incarnation; the node's newest is {incarnation} on {host}, opened \
                 {} ago",
                ago(*age)
            ),
            (None, None) => "a program that has not registered here".into(),
        };
        let from = self.from.as_ref().map(|from| format!(", connected from {from}")).unwrap_or_default();
        let message = format!(
            "node {} is in use there by {who}{from}: stop it first; if it is gone already, its server has not noticed, and \
             does so within about {silence:?}: try again then; should both be meant to run, each needs a node name and a \
             journal of its own",
            claim.node
        );
        Error::new(ErrorKind::Refused, message).at(name)
    }
}

/// For people, in the largest unit of which there are two.
fn ago(age: Duration) -> String {
    let seconds = age.as_secs();
    let units = [(86_400, "days"), (3_600, "hours"), (60, "minutes")];
    let unit = units.into_iter().find(|(unit, _)| seconds >= 2 * unit);
    unit.map_or_else(|| format!("{seconds} seconds"), |(unit, word)| format!("{} {word}", seconds / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_tells_its_incarnation() {
        let claim = Claim { node: "n".parse().unwrap(), incarnation: Incarnation(0xa1), shared: false };
        for duty in [Duty::Hold, Duty::Work] {
            let name = connection_name(duty, "a23456789012345678901234".parse().unwrap(), &claim);
            assert!(name.len() <= 59, "{name}");
            assert_eq!(incarnation_of(&name), Some(Incarnation(0xa1)));
        }
        for other in [
            UNCLAIMED,
            HOLDER,
            "handfast.lease.00000000000000zz.a",
            "handfast.00000000000000a1.0.0",
            "handfast.resolverx.00000000000000a1.a",
            "",
        ] {
            assert_eq!(incarnation_of(other), None, "{other}");
        }
    }

    #[test]
    fn a_key_tells_its_parts_apart_and_stays_the_same() {
        assert_ne!(key(&["ab", "c"]), key(&["a", "bc"]));
        // Two versions of the program must meet at one lock.
        assert_eq!(key(&["orders-1", "ledger"]), 16761861430204561503);
    }

    #[test]
    fn only_who_is_gone_is_forgotten() {
        for (confirmed, patience, silence) in [(5_000, 10_000, 20_000), (60_000, 10_000, 240_000), (20, 300, 2_000)] {
            let (lease_interval, statement_timeout) =
                (Duration::from_millis(confirmed), Duration::from_millis(patience));
            let recovery = RecoveryConfig { lease_interval, statement_timeout, ..RecoveryConfig::default() };
            assert_eq!(super::silence(&recovery), Duration::from_millis(silence));
        }
    }

    #[test]
    fn ages_are_told_in_words() {
        let told = [(3, "3 seconds"), (130, "2 minutes"), (7200, "2 hours"), (864_000, "10 days")];
        for (seconds, text) in told {
            assert_eq!(ago(Duration::from_secs(seconds)), text);
        }
    }
}
