//! How one transaction ended.

use super::store::Store;
use super::{Resolver, unknown};
use crate::engine::Standing;
use crate::error::Result;
use crate::id::{BranchId, ParticipantName, TransactionId};
use crate::participant::Question;
use crate::protocol::recovery::{Action, Evidence, Memory, Recalled, outcome_of, questions};
use crate::protocol::{Outcome, Resolution};
use futures_util::future::join_all;

impl Resolver {
    /// How a transaction ended. A resolver that only reads inserts no fence: what it cannot read off is in doubt.
    ///
    /// # Errors
    /// [`ErrorKind::Unknown`](crate::ErrorKind::Unknown) when this journal never gave out that id.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn outcome(&self, id: TransactionId) -> Result<Outcome> {
        if self.store.standing(id).is_none()
            && let Err(error) = self.store.refresh().await
        {
            // A bridge has read it before: what it knows is certain, and the rest is in doubt.
            let Store::Live(_) = &self.store else { return Err(error) };
            tracing::debug!(%id, error = %error.chain(), "the anchor cannot be read");
        }
        match self.store.standing(id) {
            Some(Standing::Future) => return Err(unknown(id)),
            _ if self.image(|image| image.audit().damage(id).is_some()) => return Ok(Outcome::Damaged),
            Some(Standing::Running) => return Ok(Outcome::InDoubt),
            Some(Standing::Unsettled(outcome)) => return Ok(outcome),
            // Nothing but this incarnation could have decided it, and it remembers.
            Some(Standing::Ended) if self.store.recall(id) == Recalled::Nothing => {
                return Ok(Outcome::RolledBack);
            }
            Some(Standing::Ended) | None => {}
        }
        match self.store.recall(id) {
            Recalled::Decided(_) => return Ok(self.outcome_of_decided(id).await),
            // Beside a running program its transactions may be at work, but what is recorded is certain.
            Recalled::Finished | Recalled::OnePhase => return Ok(Outcome::Committed),
            Recalled::Resolved(Resolution::Commit) => return Ok(Outcome::Committed),
            Recalled::Resolved(Resolution::RollBack) => return Ok(Outcome::RolledBack),
            Recalled::Forgotten => return Ok(Outcome::Damaged),
            Recalled::Unsure | Recalled::Nothing => {}
        }
        let (mut answers, mut held) = self.ask_all(id).await;
        if held && self.store.journal().is_some() {
            // Still prepared: a pass rolls it back, since no decision exists.
            let pass = self.sweep_branches(&|_| {}).await;
            if let (Store::Live(engine), false) = (&self.store, pass.is_complete()) {
                engine.kick_resolver();
            }
            (answers, held) = self.ask_all(id).await;
        }
        tracing::debug!(%id, ?answers, held, "participants were asked for the outcome");
        outcome_of(&self.store, id, &answers).ok_or_else(|| unknown(id))
    }

    /// A decision is a commit, unless a branch was ended against it. What would need a fence is in doubt to who only
    /// reads.
    async fn outcome_of_decided(&self, id: TransactionId) -> Outcome {
        let plan = match &self.store {
            Store::Live(engine) if engine.found.last().damaged.contains(&id) => return Outcome::Damaged,
            Store::Live(_) => return Outcome::Committed,
            Store::Locked(_) => self.sweep_branches(&|_| {}).await.left,
            Store::Offline(_) | Store::Read(_) => self.examine(&mut self.observe().await).await,
        };
        match plan.transactions.into_iter().find(|transaction| transaction.id == id) {
            Some(one) if one.outcome == Outcome::Damaged => Outcome::Damaged,
            Some(one) if one.branches.iter().any(|branch| branch.action == Action::Ask) => Outcome::InDoubt,
            Some(_) | None => Outcome::Committed,
        }
    }

    /// Puts the fence question to every participant of a transaction's incarnation: the answers, and whether one of
    /// them has to wait for a branch that is still held.
    async fn ask_all(&self, id: TransactionId) -> (Vec<Evidence>, bool) {
        let asked = questions(&self.store, id).into_iter().map(|(name, branch)| self.ask(name, branch));
        let answers = join_all(asked).await;
        let held = answers.contains(&Evidence::Blocked);
        (answers, held)
    }

    async fn ask(&self, name: ParticipantName, branch: BranchId) -> Evidence {
        let Some(participant) = self.participant(name) else { return Evidence::NotAsked };
        // A fence on another server than the journal's would say *never* of what it never saw.
        if self.identified(&**participant, &mut None).await.is_err() {
            return Evidence::NotAsked;
        }
        let found = if self.store.journal().is_some() {
            Self::fence(&**participant, &branch).await
        } else {
            participant.ask(&branch, Question::Look).await
        };
        found.map_or(Evidence::NotAsked, Evidence::from)
    }
}
