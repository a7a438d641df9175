//! Reports from what the resolver saw, planned and did.

use super::{
    Branch, Course, EarlierOpening, Facts, Foreign, Kind, Opening, Participant, Proof, Report, Rows, Transaction,
    at_rest, exit_of, scan_exit,
};
use crate::cli::exit::Exit;
use crate::error::Error;
use crate::id::{BranchId, ParticipantName};
use crate::participant::Registered;
use crate::protocol::recovery::{Action, BranchPlan, Evidence, History, Plan, Sighting as State, TransactionPlan};
use crate::protocol::{IncarnationRecord, Outcome};
use crate::resolver::{Foreigner, Hindrance, Pass, Seen, Unsettled, View};

impl<'a> Report<'a> {
    /// A report about a plan.
    pub(super) fn of_plan(
        participants: Vec<Participant>,
        plan: &'a Plan,
        foreigners: &'a [Foreigner],
        facts: &'a Facts,
    ) -> Self {
        let transactions = Rows::new(|| plan.transactions.iter().map(|one| Transaction::planned(one, facts)));
        Self::new(participants, transactions, foreign(foreigners, facts))
    }

    /// A report about what one look showed, and what recovery would do.
    pub fn of_look(view: &'a View, plan: &'a Plan, facts: &'a Facts) -> Self {
        Self::of_plan(view.participants.iter().map(Participant::new).collect(), plan, view.foreigners(), facts)
    }

    /// A report about what is prepared, and nothing else.
    pub fn of_drain(view: &'a View, plan: &'a Plan, facts: &'a Facts) -> Self {
        let prepared = |one: &&TransactionPlan| one.branches.iter().any(|branch| branch.sighting == State::Listed);
        let transactions =
            Rows::new(move || plan.transactions.iter().filter(prepared).map(|one| Transaction::planned(one, facts)));
        let participants: Vec<_> = view.participants.iter().map(Participant::new).collect();
        let holds = view.participants.iter().any(|seen| !seen.sightings.is_empty());
        let left = if holds { Exit::InDoubt } else { Exit::Clean };
        let status = participants.iter().map(|one| one.exit).max().unwrap_or_default().max(left);
        Self { kind: Kind::Drain, status, ..Self::new(participants, transactions, foreign(view.foreigners(), facts)) }
    }

    /// A report about a recovery: what was found and done, and how it stands now.
    pub fn of_recovery(last: &'a Pass, course: &'a Course) -> Self {
        let facts = course.facts();
        let transactions = Rows::new(move || {
            course.transactions().map(|(first, left)| match left {
                Some(left) => Transaction::treated(first, left, facts),
                None => Transaction::settled(first, facts),
            })
        });
        let participants = last.view.participants.iter().map(|seen| Participant::after(seen, &last.left));
        let report = Self::new(participants.collect(), transactions, foreign(last.view.foreigners(), facts));
        Self { kind: Kind::Recovery, ..report }
    }
}

impl EarlierOpening {
    /// One that a recovery could not settle.
    pub fn of(one: &Unsettled) -> Self {
        let exit = match one.hindrance {
            Hindrance::OutOfReach => Exit::Unreachable,
            Hindrance::Pending => Exit::InDoubt,
            Hindrance::Contradiction => Exit::Damaged,
        };
        let (incarnation, why) = (one.incarnation.to_string(), one.cause.clone());
        Self { incarnation, opened_at_ms: one.opened_at_ms, why, exit }
    }

    /// One that nobody has asked for yet.
    pub fn unasked(opened: &IncarnationRecord) -> Self {
        let why = "not asked for yet: the next opening does that, or `handfast recover`".to_owned();
        let incarnation = opened.incarnation.to_string();
        Self { incarnation, opened_at_ms: opened.opened_at_ms, why, exit: Exit::Clean }
    }
}

fn foreign<'a>(all: &'a [Foreigner], facts: &'a Facts) -> Rows<'a, Foreign> {
    Rows::new(move || all.iter().map(|one| Foreign::of(one, facts)))
}

impl Foreign {
    /// A foreign branch, and what is known of it.
    pub fn of(one: &Foreigner, facts: &Facts) -> Self {
        let Foreigner { participant, gid, age, registered, orphan, evidence } = one;
        let proof = |(participant, evidence): &(ParticipantName, Evidence)| Proof {
            participant: participant.to_string(),
            evidence: *evidence,
        };
        Self {
            participant: participant.to_string(),
            gid: gid.clone(),
            age_seconds: age.map(|age| age.as_secs()),
            waiting: facts.waiting(*participant, gid),
            orphan: *orphan,
            registered: registered.as_ref().map(Opening::of),
            evidence: evidence.iter().map(proof).collect(),
        }
    }
}

impl Opening {
    fn of(one: &Registered) -> Self {
        Self {
            node: one.node.to_string(),
            incarnation: one.incarnation.to_string(),
            journal: one.journal.to_string(),
            host: one.host.clone(),
            opened_seconds_ago: one.age.as_secs(),
        }
    }
}

impl Participant {
    /// One as a look found it.
    pub fn new(seen: &Seen) -> Self {
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
    /// One of which nothing is known.
    pub fn silent(id: impl ToString) -> Self {
        Self {
            id: id.to_string(),
            decision: History::Foreign,
            outcome: None,
            action: Action::Nothing,
            done: false,
            branches: Vec::new(),
            explained: None,
            exit: Exit::Usage,
        }
    }

    /// What is to be done.
    pub fn planned(plan: &TransactionPlan, facts: &Facts) -> Self {
        Self {
            explained: None,
            id: plan.id.to_string(),
            decision: plan.history,
            outcome: Some(plan.outcome),
            action: plan.action,
            done: false,
            branches: plan.branches.iter().map(|one| Branch::planned(one, facts)).collect(),
            exit: match plan.history {
                // Its outcome stays what it was; nothing is left to be done about it.
                History::Forgotten if at_rest(plan.action) => Exit::Clean,
                _ => exit_of(plan.outcome, plan.action),
            },
        }
    }

    /// What was found to be done, and what is left of it.
    fn treated(first: &TransactionPlan, left: &TransactionPlan, facts: &Facts) -> Self {
        let mut now = Self::planned(left, facts);
        now.done = now.exit == Exit::Clean && left.action != Action::Leave;
        for found in &first.branches {
            let gid = BranchId::to_string(&found.id);
            match now.branches.iter_mut().find(|branch| branch.gid == gid) {
                Some(branch) => branch.was(found, left.outcome),
                None => now.branches.push(Branch::settled(found, left.outcome, facts)),
            }
        }
        let done = now.branches.iter().filter(|branch| branch.done).map(|branch| branch.action).max();
        now.action = done.filter(|_| now.done).unwrap_or(now.action);
        now
    }

    /// One that was settled and shows no more.
    fn settled(first: &TransactionPlan, facts: &Facts) -> Self {
        let branches = first.branches.iter().map(|one| Branch::settled(one, first.outcome, facts)).collect();
        Self { done: true, branches, exit: Exit::Clean, ..Self::planned(first, facts) }
    }
}

impl Branch {
    fn planned(plan: &BranchPlan, facts: &Facts) -> Self {
        let gid = BranchId::to_string(&plan.id);
        let (age_seconds, is_listed) = (facts.age(plan.participant, &gid), plan.sighting == State::Listed);
        Self {
            participant: plan.participant.to_string(),
            state: plan.sighting,
            evidence: plan.evidence,
            action: plan.action,
            done: false,
            why: plan.why.clone(),
            age_seconds,
            age_at_most_seconds: facts.age_at_most(&plan.id).filter(|_| is_listed && age_seconds.is_none()),
            waiting: match plan.sighting {
                State::Listed => facts.waiting(plan.participant, &gid),
                State::NotListed | State::GivenUp => Some(Vec::new()),
                State::NotScanned | State::OtherData => None,
            },
            gid,
        }
    }

    /// One that was dealt with and shows no more.
    fn settled(first: &BranchPlan, outcome: Outcome, facts: &Facts) -> Self {
        let mut now = Self { waiting: Some(Vec::new()), ..Self::planned(first, facts) };
        match carried_out(first, outcome) {
            Some((action, why)) => (now.done, now.action, now.why) = (true, action, why),
            // What it had to wait for has come.
            None if matches!(first.action, Action::Wait | Action::Ask) => {
                (now.action, now.why) = (Action::Nothing, "nothing is left of it".into());
            }
            None => {}
        }
        now
    }

    /// Tells how it was found; and what was done, if it is at rest now.
    fn was(&mut self, first: &BranchPlan, outcome: Outcome) {
        let at_rest = matches!(self.action, Action::Nothing | Action::Finish | Action::FinishUnproven);
        self.state = first.sighting;
        if at_rest && let Some((action, why)) = carried_out(first, outcome) {
            (self.done, self.action, self.why) = (true, action, why);
        }
    }
}

/// What was done to a branch that is at rest now, and why: what it was found to need; or where that was to wait for a word
/// (an anchor's, a dying session's), what the word was.
fn carried_out(first: &BranchPlan, outcome: Outcome) -> Option<(Action, String)> {
    let waited = first.sighting == State::Listed && matches!(first.action, Action::Wait | Action::Ask);
    match (first.action, outcome) {
        (Action::Commit | Action::RollBack, _) => Some((first.action, first.why.clone())),
        (_, Outcome::Committed) if waited => Some((Action::Commit, "the decision is to commit".into())),
        (_, Outcome::RolledBack) if waited => Some((Action::RollBack, "there is no decision to commit".into())),
        _ => None,
    }
}
