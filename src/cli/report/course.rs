//! What the passes of a recovery came to, put together.

use super::Facts;
use crate::id::TransactionId;
use crate::protocol::recovery::{Action, Plan, TransactionPlan};
use crate::resolver::Pass;
use std::collections::{BTreeMap, BTreeSet};

/// What the passes of a recovery found and did, transaction by transaction.
#[derive(Debug, Default)]
pub struct Course {
    /// As each was first found, and as the latest pass that still saw it left it.
    transactions: BTreeMap<TransactionId, (TransactionPlan, Option<TransactionPlan>)>,
    facts: Facts,
}

impl Course {
    /// What is known of branches besides.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Adds to what is known of branches besides.
    pub fn facts_mut(&mut self) -> &mut Facts {
        &mut self.facts
    }

    /// Each transaction as it was first found, and as it was left, if it still shows.
    pub(super) fn transactions(&self) -> impl Iterator<Item = (&TransactionPlan, Option<&TransactionPlan>)> {
        self.transactions.values().map(|(first, left)| (first, left.as_ref()))
    }

    /// Takes over what a pass found and did.
    pub fn add(&mut self, pass: &Pass) {
        self.facts.add_all(&pass.view);
        for found in &pass.found.transactions {
            self.transactions.entry(found.id).or_insert_with(|| (found.clone(), None));
        }
        for left in &pass.left.transactions {
            let course = self.transactions.entry(left.id).or_insert_with(|| (left.clone(), None));
            course.1 = Some(left.clone());
        }
        let still: BTreeSet<_> = pass.left.transactions.iter().map(|now| now.id).collect();
        for (id, (first, left)) in &mut self.transactions {
            if !still.contains(id) {
                // Settled, and nothing shows it any more; unless it is out of sight.
                *left = out_of_sight(first, &pass.left);
            }
        }
    }
}

/// A transaction that a pass lost sight of: a participant did not answer when it was told to end its branch.
fn out_of_sight(first: &TransactionPlan, plan: &Plan) -> Option<TransactionPlan> {
    let mut left = TransactionPlan { action: Action::Wait, ..first.clone() };
    let mut lost = false;
    for branch in &mut left.branches {
        let unscanned = plan.unscanned.iter().find(|one| one.participant == branch.participant);
        branch.action = if unscanned.is_some() { Action::Wait } else { Action::Nothing };
        if let Some(unscanned) = unscanned {
            lost = true;
            branch.why = format!("{}: {}", branch.why, unscanned.cause);
        }
    }
    lost.then_some(left)
}
