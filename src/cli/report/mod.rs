//! What a command found, as a value: one JSON object for programs, the same facts as text for people.
//!
//! ```json
//! {
//!   "schema": 1,
//!   "status": "in_doubt",
//!   "participants": [{"name": "ledger", "kind": "postgres", "reachable": true, "server": "..", "prepared": 1, "cause": null}],
//!   "transactions": [{"id": "hf1...", "decision": "commit", "outcome": "committed", "action": "commit",
//!     "branches": [{"participant": "ledger", "gid": "hf1...", "state": "prepared", "evidence": "not_asked",
//!       "action": "commit", "why": "..", "age_seconds": 12}]}],
//!   "foreign": [{"participant": "ledger", "gid": "..", "age_seconds": 7}],
//!   "unsettled": [{"incarnation": "9f3c2a7b11d0e842", "opened_at_ms": 1700000000000, "why": ".."}]
//! }
//! ```
//!
//! `unsettled` is there only when `recover` found such openings.
//!
//! `status` is one of `clean`, `in_doubt`, `unreachable`, `damaged`, `refused`, `corrupt`, and says what the exit code
//! says. What is not known is `null`, never a zero or an empty list: `prepared` of a participant that did not give its
//! whole list, `age_seconds` where a server does not tell. Keys may be added within a schema; none changes its meaning.

mod text;

use super::exit::Exit;
use crate::error::Error;
use crate::id::{BranchId, ParticipantName, TransactionId};
use crate::participant::{Sighted, Sighting};
use crate::protocol::Outcome;
use crate::protocol::recovery::{Action, BranchPlan, Plan, TransactionPlan};
use crate::resolver::{Hindrance, Seen, Unsettled, View};
use serde::Serialize;
use std::collections::HashMap;
use std::io::{self, Write};
use std::time::Duration;

/// The version of the JSON object.
const SCHEMA: u32 = 1;

/// How things stand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    schema: u32,
    /// The most pressing of all that follows.
    pub status: Exit,
    /// The participants, in the order in which they were given.
    pub participants: Vec<Participant>,
    /// Transactions of this journal that are open, prepared somewhere or asked for.
    pub transactions: Vec<Transaction>,
    /// Prepared branches that are not this journal's.
    pub foreign: Vec<Foreign>,
    /// Earlier openings of the journal of which something may still move. Only a recovery asks for them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unsettled: Vec<EarlierOpening>,
}

/// An earlier opening of the journal that is not settled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EarlierOpening {
    /// The part of its transactions' ids that says so.
    pub incarnation: String,
    /// When it was opened, in milliseconds since 1970.
    pub opened_at_ms: u64,
    /// What is in the way.
    pub why: String,
}

/// A participant as one look found it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Participant {
    /// Its configured name.
    pub name: String,
    /// Its kind: `postgres`, `mysql`, `mariadb`.
    pub kind: String,
    /// Whether it answered.
    pub reachable: bool,
    /// Product, version and address, when it answered.
    pub server: Option<String>,
    /// How many branches are prepared there, ours and foreign, when that is known.
    pub prepared: Option<usize>,
    /// Why it gave no whole list of prepared branches.
    pub cause: Option<String>,
    /// What that means for the exit code.
    #[serde(skip)]
    pub exit: Exit,
}

/// A transaction and what is to be done about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Transaction {
    /// Its id.
    pub id: String,
    /// What the journal says: `commit`, `one_phase`, `none`, or why there is none to tell.
    pub decision: &'static str,
    /// How it ended or will end: `committed`, `rolled_back`, `in_doubt`, `damaged`.
    pub outcome: &'static str,
    /// The most pressing of its branches' actions.
    pub action: &'static str,
    /// Its branches.
    pub branches: Vec<Branch>,
    /// What it means for the exit code.
    #[serde(skip)]
    pub exit: Exit,
}

/// A branch of a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Branch {
    /// Whose branch it is.
    pub participant: String,
    /// What its server calls it.
    pub gid: String,
    /// What the server's list shows: `prepared`, `not_prepared`, `not_scanned`, `other_data`.
    pub state: &'static str,
    /// What its witness proves.
    pub evidence: &'static str,
    /// What is to be done.
    pub action: &'static str,
    /// Why.
    pub why: String,
    /// How long it has been prepared by the server's clock, in seconds, where the server tells.
    pub age_seconds: Option<u64>,
}

/// A prepared branch that is not this journal's: it is shown and never touched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Foreign {
    /// Where it is prepared.
    pub participant: String,
    /// What its server calls it.
    pub gid: String,
    /// How long it has been prepared by the server's clock, in seconds, where the server tells.
    pub age_seconds: Option<u64>,
}

/// How long branches have been prepared, by participant and by what the server calls them.
#[derive(Debug, Default)]
pub struct Ages(HashMap<(ParticipantName, String), u64>);

impl Ages {
    /// Takes over a participant's list.
    pub fn add(&mut self, participant: ParticipantName, sightings: &[Sighting]) {
        for sighting in sightings {
            let gid = match &sighting.branch {
                Sighted::Ours(id) => id.to_string(),
                Sighted::Foreign(text) => text.clone(),
            };
            if let Some(age) = sighting.age {
                self.0.insert((participant, gid), age.as_secs());
            }
        }
    }

    fn of(&self, participant: ParticipantName, gid: &str) -> Option<u64> {
        self.0.get(&(participant, gid.to_owned())).copied()
    }
}

impl Report {
    /// A report whose status is the most pressing of its parts'.
    pub fn new(participants: Vec<Participant>, transactions: Vec<Transaction>, foreign: Vec<Foreign>) -> Self {
        let exits = participants.iter().map(|one| one.exit).chain(transactions.iter().map(|one| one.exit));
        let status = exits.max().unwrap_or_default();
        Self { schema: SCHEMA, status, participants, transactions, foreign, unsettled: Vec::new() }
    }

    /// A report about a plan.
    pub fn of_plan(participants: Vec<Participant>, plan: &Plan, ages: &Ages) -> Self {
        let transactions = plan.transactions.iter().map(|one| Transaction::new(one, ages)).collect();
        let foreign = plan.foreign.iter().map(|one| Foreign {
            participant: one.participant.to_string(),
            gid: one.gid.clone(),
            age_seconds: ages.of(one.participant, &one.gid),
        });
        Self::new(participants, transactions, foreign.collect())
    }

    /// A report about what one look showed, and what recovery would do.
    pub fn of_look(view: &View, plan: &Plan) -> Self {
        let mut ages = Ages::default();
        for seen in &view.participants {
            ages.add(seen.name, &seen.sightings);
        }
        Self::of_plan(view.participants.iter().map(Participant::new).collect(), plan, &ages)
    }

    /// A report about a recovery: what was found to be done, and how it stands now.
    pub fn of_recovery(view: &View, found: impl Iterator<Item = TransactionPlan>, left: &Plan) -> Self {
        let mut report = Self::of_look(view, left);
        let found: HashMap<_, _> = found.map(|one| (one.id.to_string(), one)).collect();
        for (id, first) in &found {
            match report.transactions.iter_mut().find(|now| now.id == *id) {
                Some(now) => now.was_to(first),
                // Settled by an earlier pass: nothing shows it any more.
                None => report.transactions.push(Transaction::settled(first)),
            }
        }
        report.transactions.sort_by(|one, other| one.id.cmp(&other.id));
        report
    }

    /// A report about one transaction's outcome; `None` when this journal does not know it.
    pub fn of_outcome(id: TransactionId, outcome: Option<Outcome>) -> Self {
        let exit = match outcome {
            Some(Outcome::Committed | Outcome::RolledBack) => Exit::Clean,
            Some(Outcome::InDoubt) => Exit::InDoubt,
            Some(Outcome::Damaged) => Exit::Damaged,
            None => Exit::Usage,
        };
        let transaction = Transaction {
            id: id.to_string(),
            decision: if outcome == Some(Outcome::Committed) { "commit" } else { "none" },
            outcome: outcome.map_or("unknown", outcome_word),
            action: "nothing",
            branches: Vec::new(),
            exit,
        };
        Self::new(Vec::new(), vec![transaction], Vec::new())
    }

    /// The outcome in a report about one.
    pub fn outcome(&self) -> &'static str {
        self.transactions.first().map_or("unknown", |one| one.outcome)
    }

    /// A report that nothing could be looked at, and why that is.
    pub fn without_a_look(status: Exit) -> Self {
        Self { status, ..Self::new(Vec::new(), Vec::new(), Vec::new()) }
    }

    /// Adds the earlier openings that are not settled: while there is one, nothing is clean.
    pub fn and_unsettled(mut self, unsettled: &[Unsettled]) -> Self {
        for one in unsettled {
            self.status = self.status.max(match one.hindrance {
                Hindrance::OutOfReach => Exit::Unreachable,
                Hindrance::Pending => Exit::InDoubt,
                Hindrance::Contradiction => Exit::Damaged,
            });
            let (incarnation, why) = (one.incarnation.to_string(), one.cause.clone());
            self.unsettled.push(EarlierOpening { incarnation, opened_at_ms: one.opened_at_ms, why });
        }
        self
    }

    /// Raises the status, when something else weighs more.
    pub fn at_least(mut self, exit: Exit) -> Self {
        self.status = self.status.max(exit);
        self
    }

    /// Writes the JSON object and a newline.
    ///
    /// # Errors
    /// When `out` cannot be written.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, self)?;
        writeln!(out)
    }

    /// Writes the text, at most 80 columns wide.
    ///
    /// # Errors
    /// When `out` cannot be written.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        text::write(self, out)
    }
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
}

/// Whatever kept a participant from giving its whole list, what it holds is not known; unless it is refused.
fn scan_exit(trouble: &Error) -> Exit {
    Exit::of(trouble).max(Exit::Unreachable)
}

impl Transaction {
    /// Tells what was done instead of what is left to be done.
    fn was_to(&mut self, first: &TransactionPlan) {
        if self.exit == Exit::Clean {
            self.action = first.action.as_str();
            for branch in &mut self.branches {
                let before = first.branches.iter().find(|before| before.id.to_string() == branch.gid);
                if let Some(before) = before {
                    branch.action = before.action.as_str();
                    branch.why.clone_from(&before.why);
                }
            }
        }
    }

    /// One that was settled, as it was found.
    fn settled(first: &TransactionPlan) -> Self {
        Self { exit: Exit::Clean, ..Self::new(first, &Ages::default()) }
    }

    fn new(plan: &TransactionPlan, ages: &Ages) -> Self {
        Self {
            id: plan.id.to_string(),
            decision: plan.history.decision(),
            outcome: outcome_word(plan.outcome),
            action: plan.action.as_str(),
            branches: plan.branches.iter().map(|one| Branch::new(one, ages)).collect(),
            exit: exit_of(plan.outcome, plan.action),
        }
    }
}

impl Branch {
    fn new(plan: &BranchPlan, ages: &Ages) -> Self {
        let gid = BranchId::to_string(&plan.id);
        Self {
            participant: plan.participant.to_string(),
            state: plan.sighting.as_str(),
            evidence: plan.evidence.as_str(),
            action: plan.action.as_str(),
            why: plan.why.clone(),
            age_seconds: ages.of(plan.participant, &gid),
            gid,
        }
    }
}

/// The outcome as a word for people and programs.
pub fn outcome_word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Committed => "committed",
        Outcome::RolledBack => "rolled_back",
        Outcome::InDoubt => "in_doubt",
        Outcome::Damaged => "damaged",
    }
}

/// A transaction is clean when its outcome is certain and nothing is left to be sent or waited for.
fn exit_of(outcome: Outcome, action: Action) -> Exit {
    let at_rest = matches!(action, Action::Nothing | Action::Finish | Action::FinishUnproven);
    match outcome {
        // A running application is at work on it.
        _ if action == Action::Leave => Exit::Clean,
        Outcome::Damaged => Exit::Damaged,
        _ if action == Action::Damage => Exit::Damaged,
        Outcome::Committed | Outcome::RolledBack if at_rest => Exit::Clean,
        Outcome::Committed | Outcome::RolledBack | Outcome::InDoubt => Exit::InDoubt,
    }
}

/// A duration in its largest unit that is not zero: enough to tell a moment from a night.
fn for_people(seconds: u64) -> String {
    let age = Duration::from_secs(seconds);
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", age.as_secs() / 60),
        7_200..=172_799 => format!("{} h", age.as_secs() / 3_600),
        _ => format!("{} days", age.as_secs() / 86_400),
    }
}

#[cfg(test)]
mod tests;
