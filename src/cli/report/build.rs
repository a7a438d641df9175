//! Reports from what the resolver saw, planned and did.

use super::{Branch, EarlierOpening, Foreign, Participant, Report, Transaction, exit_of, scan_exit};
use crate::cli::exit::Exit;
use crate::error::Error;
use crate::id::{BranchId, ParticipantName, TransactionId};
use crate::participant::{Sighted, Sighting};
use crate::protocol::recovery::{Action, BranchPlan, Plan, Sighting as State, TransactionPlan};
use crate::resolver::{Hindrance, Pass, Seen, Unsettled, View};
use std::collections::{BTreeMap, HashMap};

/// How long branches have been prepared, by participant and by what the server calls them.
#[derive(Debug, Default)]
pub(super) struct Ages(HashMap<(ParticipantName, String), u64>);

impl Ages {
    /// Takes over a participant's list; what was known before stays.
    pub(super) fn add(&mut self, participant: ParticipantName, sightings: &[Sighting]) {
        for sighting in sightings {
            let gid = match &sighting.branch {
                Sighted::Ours(id) => id.to_string(),
                Sighted::Foreign(text) => text.clone(),
            };
            if let Some(age) = sighting.age {
                self.0.entry((participant, gid)).or_insert(age.as_secs());
            }
        }
    }

    fn add_all(&mut self, view: &View) {
        for seen in &view.participants {
            self.add(seen.name, &seen.sightings);
        }
    }

    fn of(&self, participant: ParticipantName, gid: &str) -> Option<u64> {
        self.0.get(&(participant, gid.to_owned())).copied()
    }
}

/// What the passes of a recovery found and did, transaction by transaction.
#[derive(Debug, Default)]
pub struct Course {
    /// As each was first found, and as the latest pass that still saw it left it.
    transactions: BTreeMap<TransactionId, (TransactionPlan, Option<TransactionPlan>)>,
    ages: Ages,
}

impl Course {
    /// Takes over what a pass found and did.
    pub fn add(&mut self, pass: &Pass) {
        self.ages.add_all(&pass.view);
        for found in &pass.found.transactions {
            self.transactions.entry(found.id).or_insert_with(|| (found.clone(), None));
        }
        for left in &pass.left.transactions {
            let course = self.transactions.entry(left.id).or_insert_with(|| (left.clone(), None));
            course.1 = Some(left.clone());
        }
        for (id, (first, left)) in &mut self.transactions {
            if pass.left.transactions.iter().all(|now| now.id != *id) {
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

impl Report {
    /// A report about a plan.
    pub(super) fn of_plan(participants: Vec<Participant>, plan: &Plan, ages: &Ages) -> Self {
        let transactions = plan.transactions.iter().map(|one| Transaction::planned(one, ages)).collect();
        Self::new(participants, transactions, foreign(plan, ages))
    }

    /// A report about what one look showed, and what recovery would do.
    pub fn of_look(view: &View, plan: &Plan) -> Self {
        let mut ages = Ages::default();
        ages.add_all(view);
        Self::of_plan(view.participants.iter().map(Participant::new).collect(), plan, &ages)
    }

    /// A report about a recovery: what was found and done, and how it stands now.
    pub fn of_recovery(last: &Pass, course: &Course) -> Self {
        let transactions = course.transactions.values().map(|(first, left)| match left {
            Some(left) => Transaction::treated(first, left, &course.ages),
            None => Transaction::settled(first, &course.ages),
        });
        let participants = last.view.participants.iter().map(|seen| Participant::after(seen, &last.left));
        let report = Self::new(participants.collect(), transactions.collect(), foreign(&last.left, &course.ages));
        Self { recovery: true, ..report }
    }
}

impl EarlierOpening {
    pub(super) fn of(one: &Unsettled) -> Self {
        let exit = match one.hindrance {
            Hindrance::OutOfReach => Exit::Unreachable,
            Hindrance::Pending => Exit::InDoubt,
            Hindrance::Contradiction => Exit::Damaged,
        };
        let (incarnation, why) = (one.incarnation.to_string(), one.cause.clone());
        Self { incarnation, opened_at_ms: one.opened_at_ms, why, exit }
    }
}

fn foreign(plan: &Plan, ages: &Ages) -> Vec<Foreign> {
    let foreign = plan.foreign.iter().map(|one| Foreign {
        participant: one.participant.to_string(),
        gid: one.gid.clone(),
        age_seconds: ages.of(one.participant, &one.gid),
    });
    foreign.collect()
}

impl Participant {
    fn new(seen: &Seen) -> Self {
        Self {
            name: seen.name.to_string(),
            kind: seen.kind.to_owned(),
            reachable: seen.server.is_some(),
            server: seen.server.clone(),
            prepared: seen.trouble.is_none().then_some(seen.sightings.len()),
            cause: seen.trouble.as_ref().map(Error::chain),
            exit: seen.trouble.as_ref().map_or(Exit::Clean, scan_exit),
        }
    }

    /// One that was scanned and then told to end its branches, which it may not have answered.
    fn after(seen: &Seen, left: &Plan) -> Self {
        let unscanned = left.unscanned.iter().find(|one| one.participant == seen.name);
        match unscanned {
            Some(unscanned) if seen.trouble.is_none() => Self {
                prepared: None,
                cause: Some(unscanned.cause.clone()),
                exit: Exit::Unreachable,
                ..Self::new(seen)
            },
            _ => Self { prepared: still_prepared(seen, left), ..Self::new(seen) },
        }
    }
}

/// How many branches are prepared after a pass, when that is known: the list is from before it.
fn still_prepared(seen: &Seen, left: &Plan) -> Option<usize> {
    let foreign = left.foreign.iter().filter(|one| one.participant == seen.name).count();
    let listed = |branch: &&BranchPlan| branch.participant == seen.name && branch.sighting == State::Listed;
    seen.trouble.is_none().then(|| foreign + left.branches().filter(listed).count())
}

impl Transaction {
    /// What is to be done.
    fn planned(plan: &TransactionPlan, ages: &Ages) -> Self {
        Self {
            id: plan.id.to_string(),
            decision: plan.history,
            outcome: Some(plan.outcome),
            action: plan.action,
            done: false,
            branches: plan.branches.iter().map(|one| Branch::planned(one, ages)).collect(),
            exit: exit_of(plan.outcome, plan.action),
        }
    }

    /// What was found to be done, and what is left of it.
    fn treated(first: &TransactionPlan, left: &TransactionPlan, ages: &Ages) -> Self {
        let mut now = Self::planned(left, ages);
        now.done = now.exit == Exit::Clean && left.action != Action::Leave;
        for found in &first.branches {
            let gid = BranchId::to_string(&found.id);
            match now.branches.iter_mut().find(|branch| branch.gid == gid) {
                Some(branch) => branch.was(found),
                None => now.branches.push(Branch::settled(found, ages)),
            }
        }
        let done = now.branches.iter().filter(|branch| branch.done).map(|branch| branch.action).max();
        now.action = done.filter(|_| now.done).unwrap_or(now.action);
        now
    }

    /// One that was settled and shows no more.
    fn settled(first: &TransactionPlan, ages: &Ages) -> Self {
        let branches = first.branches.iter().map(|one| Branch::settled(one, ages)).collect();
        Self { done: true, branches, exit: Exit::Clean, ..Self::planned(first, ages) }
    }
}

impl Branch {
    fn planned(plan: &BranchPlan, ages: &Ages) -> Self {
        let gid = BranchId::to_string(&plan.id);
        Self {
            participant: plan.participant.to_string(),
            state: plan.sighting,
            evidence: plan.evidence,
            action: plan.action,
            done: false,
            why: plan.why.clone(),
            age_seconds: ages.of(plan.participant, &gid),
            gid,
        }
    }

    /// One that was dealt with and shows no more.
    fn settled(first: &BranchPlan, ages: &Ages) -> Self {
        Self { done: matches!(first.action, Action::Commit | Action::RollBack), ..Self::planned(first, ages) }
    }

    /// Tells how it was found; and what was done, if it is at rest now.
    fn was(&mut self, first: &BranchPlan) {
        let at_rest = matches!(self.action, Action::Nothing | Action::Finish | Action::FinishUnproven);
        self.state = first.sighting;
        if at_rest && matches!(first.action, Action::Commit | Action::RollBack) {
            self.done = true;
            self.action = first.action;
            self.why.clone_from(&first.why);
        }
    }
}
