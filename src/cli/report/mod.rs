//! What a command found, as a value: one JSON object for programs, the same facts as text for people.
//!
//! ```json
//! {
//!   "schema": 1,
//!   "status": "in_doubt",
//!   "error": null,
//!   "in_use_by": null,
//!   "participants": [{"name": "ledger", "kind": "postgres", "reachable": true, "server": "..", "prepared": 1, "cause": null}],
//!   "transactions": [{"id": "hf1...", "decision": "commit", "outcome": "committed", "action": "commit", "done": false,
//!     "branches": [{"participant": "ledger", "gid": "hf1...", "state": "prepared", "evidence": "not_asked",
//!       "action": "commit", "done": false, "why": "..", "age_seconds": 12}]}],
//!   "foreign": [{"participant": "ledger", "gid": "..", "age_seconds": 7}],
//!   "unsettled": [{"incarnation": "9f3c2a7b11d0e842", "opened_at_ms": 1700000000000, "why": ".."}]
//! }
//! ```
//!
//! `unsettled` is there only when `recover` found such openings.
//!
//! `status` is one of `clean`, `in_doubt`, `unreachable`, `damaged`, `refused`, `corrupt`, and says what the exit code
//! says; a mistake in arguments or configuration is `refused` as well. `error` says why a command came to nothing, as stderr
//! does. An `action` that is `done` was carried out by this very command; `state` is how the branch was found before.
//! What is not known is `null`, never a zero or an empty list: `prepared` of a participant that did not give its
//! whole list, `age_seconds` where a server does not tell. Keys may be added within a schema; none changes its meaning.

mod build;
mod text;

pub use build::Course;
pub(super) use text::for_people;

use super::exit::Exit;
use crate::error::Error;
use crate::id::TransactionId;
use crate::protocol::Outcome;
use crate::protocol::recovery::{Action, Evidence, History, Sighting};
use crate::resolver::Unsettled;
use serde::{Serialize, Serializer};
use std::io::{self, Write};

/// The version of the JSON object.
const SCHEMA: u32 = 1;

/// How things stand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    schema: u32,
    /// The most pressing of all that follows.
    pub status: Exit,
    /// Why the command came to nothing, if it did.
    pub error: Option<String>,
    /// Who has the journal, where it was only read: what that process is at work on is its own.
    pub in_use_by: Option<String>,
    /// The participants, in the order in which they were given.
    pub participants: Vec<Participant>,
    /// Transactions of this journal that are open, prepared somewhere or asked for.
    pub transactions: Vec<Transaction>,
    /// Prepared branches that are not this journal's.
    pub foreign: Vec<Foreign>,
    /// Earlier openings of the journal of which something may still move. Only a recovery asks for them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unsettled: Vec<EarlierOpening>,
    /// Whether this is about what was done, not about what would be.
    #[serde(skip)]
    recovery: bool,
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
    /// What that means for the exit code.
    #[serde(skip)]
    pub exit: Exit,
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

/// A transaction and what is to be done about it, or was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Transaction {
    /// Its id.
    pub id: String,
    /// What the journal says: `commit`, `one_phase`, `none`, or why there is none to tell.
    #[serde(serialize_with = "decision")]
    pub decision: History,
    /// How it ended or will end: `committed`, `rolled_back`, `in_doubt`, `damaged`; `unknown` to this journal.
    #[serde(serialize_with = "outcome")]
    pub outcome: Option<Outcome>,
    /// The most pressing of its branches' actions.
    #[serde(serialize_with = "action")]
    pub action: Action,
    /// Whether that was done, and nothing is left to do.
    pub done: bool,
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
    /// What the server's list showed: `prepared`, `not_prepared`, `not_scanned`, `other_data`.
    #[serde(serialize_with = "sighting")]
    pub state: Sighting,
    /// What its witness proves.
    #[serde(serialize_with = "evidence")]
    pub evidence: Evidence,
    /// What is to be done.
    #[serde(serialize_with = "action")]
    pub action: Action,
    /// Whether that was done.
    pub done: bool,
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

impl Report {
    /// A report whose status is the most pressing of its parts'.
    pub fn new(participants: Vec<Participant>, transactions: Vec<Transaction>, foreign: Vec<Foreign>) -> Self {
        let exits = participants.iter().map(|one| one.exit).chain(transactions.iter().map(|one| one.exit));
        let status = exits.max().unwrap_or_default();
        Self {
            schema: SCHEMA,
            status,
            error: None,
            in_use_by: None,
            participants,
            transactions,
            foreign,
            unsettled: Vec::new(),
            recovery: false,
        }
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
            decision: if outcome == Some(Outcome::Committed) { History::Finished } else { History::Undecided },
            outcome,
            action: Action::Nothing,
            done: false,
            branches: Vec::new(),
            exit,
        };
        Self::new(Vec::new(), vec![transaction], Vec::new())
    }

    /// The outcome in a report about one.
    pub fn outcome(&self) -> &'static str {
        outcome_word(self.transactions.first().and_then(|one| one.outcome))
    }

    /// A report that nothing could be looked at, and why that is.
    pub fn without_a_look(status: Exit, error: Option<String>) -> Self {
        Self { status, error, ..Self::new(Vec::new(), Vec::new(), Vec::new()) }
    }

    /// Says who has the journal.
    #[must_use]
    pub fn in_use_by(mut self, holder: Option<String>) -> Self {
        self.in_use_by = holder;
        self
    }

    /// Adds the earlier openings that are not settled: while there is one, nothing is clean.
    #[must_use]
    pub fn and_unsettled(mut self, unsettled: &[Unsettled]) -> Self {
        self.unsettled.extend(unsettled.iter().map(EarlierOpening::of));
        let most = self.unsettled.iter().map(|one| one.exit).max().unwrap_or_default();
        self.at_least(most)
    }

    /// Raises the status, when something else weighs more.
    #[must_use]
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

/// Whatever kept a participant from giving its whole list, what it holds is not known; unless it is refused.
fn scan_exit(trouble: &Error) -> Exit {
    Exit::of(trouble).max(Exit::Unreachable)
}

/// The outcome's word; `unknown` is no outcome.
fn outcome_word(outcome: Option<Outcome>) -> &'static str {
    outcome.map_or("unknown", Outcome::as_str)
}

fn decision<S: Serializer>(history: &History, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(history.decision())
}

fn outcome<S: Serializer>(outcome: &Option<Outcome>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(outcome_word(*outcome))
}

fn action<S: Serializer>(action: &Action, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(action.as_str())
}

fn sighting<S: Serializer>(sighting: &Sighting, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(sighting.as_str())
}

fn evidence<S: Serializer>(evidence: &Evidence, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(evidence.as_str())
}

/// A transaction is clean when its outcome is certain and nothing is left to be sent or waited for.
fn exit_of(outcome: Outcome, action: Action) -> Exit {
    let at_rest = matches!(action, Action::Nothing | Action::Finish | Action::FinishUnproven);
    match outcome {
        // A running application is at work on it.
        _ if action == Action::Leave => Exit::Clean,
        Outcome::Damaged => Exit::Damaged,
        _ if matches!(action, Action::Damage | Action::Resolve) => Exit::Damaged,
        Outcome::Committed | Outcome::RolledBack if at_rest => Exit::Clean,
        Outcome::Committed | Outcome::RolledBack | Outcome::InDoubt => Exit::InDoubt,
    }
}

#[cfg(test)]
mod tests;
