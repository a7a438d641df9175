//! Pruning: deletes from the participants' tables what nobody needs any more, so that they stay small for ever.
//!
//! A witness proves what the journal may not know. Once the journal knows it durably, the row is of no use, with one
//! exception: the row of the decision that was made last on a participant stays. A copy of the journal that lacks any
//! decision lacks that one, and is found out by it. Fences stay until their incarnation is settled, since they stop what
//! may still be on its way. Of a settled incarnation nothing is needed, unless a decision of it is not carried out yet, or
//! a person has to look at it.
//!
//! Order makes it safe: first the bound, from what has ended; then the journal is flushed, so that the notes of all that
//! has ended are durable; then rows below the bound go. A crash in between leaves rows, never a gap.

use super::{Engine, Member};
use crate::error::Result;
use crate::id::Incarnation;
use crate::participant::{Participant, Prunable};
use crate::torture::{self, Request, Safeguard};
use futures_util::future::join_all;
use std::time::Duration;

/// The pause between two rounds.
const EVERY: Duration = Duration::from_secs(5);
/// So many batches a round on each participant: the connection is the resolver's, too.
const BATCHES: usize = 100;

impl Engine {
    /// Prunes for ever, whenever something has ended since the last round that was done to its end.
    pub async fn keep_pruning(&self) {
        let mut done = None;
        loop {
            tokio::time::sleep(EVERY).await;
            let now = self.ended();
            if self.halted().is_none() && self.journal.is_poisoned().is_none() && done != Some(now.clone()) {
                done = self.prune().await.then_some(now);
            }
        }
    }

    /// What decides which rows may go: where nothing of it has changed, there is nothing new to prune.
    fn ended(&self) -> (Vec<u64>, [usize; 3]) {
        let bounds = self.members.iter().map(|member| self.bound(member)).collect();
        let rest = self
            .journal
            .image(|image| [image.unsettled().count(), image.open_decisions().len(), image.audit().damaged().count()]);
        (bounds, rest)
    }

    /// One round: whether nothing is left to be pruned.
    pub async fn prune(&self) -> bool {
        let own = self.registration.incarnation;
        let bounds: Vec<_> = self.members.iter().map(|member| (member, self.bound(member))).collect();
        if torture::is_on(Safeguard::NoteBeforePruning)
            && let Err(error) = self.journal.flush().await
        {
            tracing::debug!(error = %error.chain(), "nothing is pruned");
            return false;
        }
        let rounds = bounds.into_iter().map(|(member, below)| async move {
            if member.trouble().is_some() || member.taking().is_none() {
                return false;
            }
            let participant = member.number;
            let own = Prunable::Witnesses { incarnation: own, participant, below };
            let pruned = async {
                let mut all = true;
                for what in std::iter::once(own).chain(self.over(&*member.participant).await?) {
                    all &= exhaust(&*member.participant, what).await?;
                }
                Ok::<_, crate::Error>(all)
            };
            pruned.await.unwrap_or_else(|error| {
                tracing::debug!(participant = %member.name, error = %error.chain(), "pruning waits for the next round");
                false
            })
        });
        join_all(rounds).await.into_iter().all(|done| done)
    }

    /// The first sequence of this incarnation whose witness on this member is to stay.
    fn bound(&self, member: &Member) -> u64 {
        let own = self.registration.incarnation;
        // Before the journal is looked at: what has ended by now has left its record.
        let open = self.live.lowest_open();
        let mine = |id: &crate::TransactionId| id.incarnation == own;
        let decided = self.journal.image(|image| {
            image.open_decisions().map(|decision| decision.transaction).filter(mine).map(|id| id.sequence).min()
        });
        [decided, member.last_decided()].into_iter().flatten().fold(open, u64::min)
    }

    /// What is registered there and over: settled, carried out, and nothing for a person to look at.
    async fn over(&self, participant: &dyn Participant) -> Result<Vec<Prunable>> {
        let registered = participant.registry().await?;
        let is_over = |image: &crate::journal::Image, incarnation: Incarnation| {
            image.is_settled(incarnation)
                && !image.open_decisions().any(|decision| decision.transaction.incarnation == incarnation)
                && !image.audit().damaged().any(|damage| damage.transaction.incarnation == incarnation)
        };
        let over = self.journal.image(|image| {
            let ours = registered.iter().filter(|row| {
                let opened = image.incarnation(row.incarnation);
                let here = |opened: &crate::protocol::IncarnationRecord| {
                    let name = opened.participants.get(usize::from(row.participant));
                    opened.node == row.node && name == Some(&participant.name())
                };
                opened.is_some_and(here) && is_over(image, row.incarnation)
            });
            ours.map(|row| Prunable::Settled { incarnation: row.incarnation, participant: row.participant }).collect()
        });
        Ok(over)
    }
}

/// Whether all of it is gone.
async fn exhaust(participant: &dyn Participant, what: Prunable) -> Result<bool> {
    for _ in 0..BATCHES {
        if !torture::request(Request::Prune, participant.name(), participant.prune(what)).await? {
            return Ok(true);
        }
    }
    Ok(false)
}
