//! Whether this journal is the one to settle anything: asked before each pass, of every participant that answers.

use super::store::Store;
use super::{Resolver, View};
use crate::engine::{Engine, Objection, older_copy, vet};
use crate::error::{Error, ErrorKind, Result};
use crate::journal::Journal;
use crate::participant::{BoxFuture, Claim, Participant};
use crate::protocol::recovery::{BranchPlan, Plan, WitnessRow, unknown_decision};
use crate::torture::{self, Safeguard};
use futures_util::future::join_all;
use std::sync::PoisonError;

impl Resolver {
    /// Makes sure that nothing speaks against settling, on any participant that answers: whoever holds the lease of one
    /// goes by our node's name everywhere, and a journal is stale as a whole. A bridge has vetted its participants before
    /// it registered with them.
    pub(super) async fn vet(&self) -> Result<()> {
        match &self.store {
            Store::Live(engine) => engine.halted().or_else(|| usurped(engine)).map_or(Ok(()), Err),
            Store::Locked(_) => self.each(|one| Box::pin(self.vet_one(one))).await,
            Store::Offline(_) | Store::Read(_) => Ok(()),
        }
    }

    async fn vet_one(&self, participant: &dyn Participant) -> Result<()> {
        let Store::Locked(journal) = &self.store else { return Ok(()) };
        let name = participant.name();
        let known = || self.vetted.lock().unwrap_or_else(PoisonError::into_inner);
        if known().contains(&name) {
            return self.claim_of(participant).await;
        }
        let claim = self.claim_under(journal);
        match vet(participant, journal, claim).await {
            Ok(_) => {
                known().insert(name);
                Ok(())
            }
            Err(Objection::Stale(error) | Objection::Other(error)) => Err(error.at(name)),
        }
    }

    fn claim_under(&self, journal: &Journal) -> Claim {
        Claim { node: self.node, incarnation: journal.incarnation(), shared: journal.is_on_anchor() }
    }

    /// Takes the lease of every participant that can be reached.
    pub(super) async fn claim(&self) -> Result<()> {
        self.each(|one| Box::pin(self.claim_of(one))).await
    }

    /// Asks every participant at once; the first refusal. What cannot be reached is the next pass's.
    async fn each<'a>(&'a self, ask: impl Fn(&'a dyn Participant) -> BoxFuture<'a, Result<()>>) -> Result<()> {
        let answers: Vec<_> = self.participants.iter().map(|one| ask(&**one)).collect();
        let refused = |answer: &Result<()>| answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Refused);
        join_all(answers).await.into_iter().find(refused).unwrap_or(Ok(()))
    }

    /// Takes the lease of a participant. A bridge has it since it registered there.
    pub(super) async fn claim_of(&self, participant: &dyn Participant) -> Result<()> {
        let Store::Locked(journal) = &self.store else { return Ok(()) };
        let claim = self.claim_under(journal);
        participant.hold(claim).await.map_err(|error| error.at(participant.name()))
    }

    /// Whether nothing that a pass has seen shows that the journal is an older copy. A bridge that finds it out settles
    /// nothing any more.
    pub(super) fn fresh(&self, view: &View, plan: &Plan) -> Result<()> {
        let stale = view.stale().or_else(|| self.by_witness(plan)).filter(|_| torture::is_on(Safeguard::OlderCopy));
        let Some(stale) = stale else { return Ok(()) };
        Err(match &self.store {
            Store::Live(engine) => engine.halt(stale),
            Store::Locked(_) | Store::Offline(_) | Store::Read(_) => stale,
        })
    }

    /// The witness of a decision that the journal does not hold, among those that a pass has read.
    fn by_witness(&self, plan: &Plan) -> Option<Error> {
        // An anchor's rows are all there is to know: what contradicts them is damage, and no older copy's.
        if self.store.anchored().is_some() {
            return None;
        }
        let row = |branch: &BranchPlan| WitnessRow {
            incarnation: branch.id.transaction.incarnation,
            participant: branch.id.participant,
            sequence: branch.id.transaction.sequence,
            evidence: branch.evidence,
        };
        let rows: Vec<_> = plan.branches().map(row).collect();
        unknown_decision(&self.store, &rows).map(|stale| older_copy(&stale))
    }
}

/// Somebody else was seen to hold a lease that was ours.
fn usurped(engine: &Engine) -> Option<Error> {
    engine.members.iter().find_map(|member| match member.lease_lost() {
        Some((ErrorKind::Refused, cause)) => Some(Error::new(ErrorKind::Refused, cause).at(member.name)),
        _ => None,
    })
}
