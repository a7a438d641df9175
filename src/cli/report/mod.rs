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
//!       "action": "commit", "done": false, "why": "..", "age_seconds": 12, "age_at_most_seconds": 3600,
//!       "waiting": ["app@10.0.0.7, 12 s: UPDATE .."]}]}],
//!   "foreign": [{"participant": "ledger", "gid": "..", "age_seconds": 7, "waiting": [], "orphan": false,
//!     "registered": {"node": "..", "incarnation": "..", "journal": "..", "host": "..", "opened_seconds_ago": 90},
//!     "evidence": [{"participant": "orders", "evidence": "committed"}]}],
//!   "unsettled": [{"incarnation": "9f3c2a7b11d0e842", "opened_at_ms": 1700000000000, "why": ".."}],
//!   "older": {"than_seconds": 300, "branches": 0}
//! }
//! ```
//!
//! `unsettled` is there only when there are such openings, `older` only when it was asked for. `explain` adds `journal`,
//! `audit`, `statements` and `next` to a transaction.
//!
//! A foreign branch is an `orphan` when it is of this node and of another journal: that one is lost, or belongs to another
//! program of the same name. `registered` is what the participants' own tables say of its opening, `evidence` what the
//! witnesses of an orphan's transaction say.
//!
//! `status` is one of `clean`, `in_doubt`, `unreachable`, `damaged`, `refused`, `corrupt`, and says what the exit code
//! says; a mistake in arguments or configuration is `refused` as well. `error` says why a command came to nothing, as stderr
//! does. An `action` that is `done` was carried out by this very command; `state` is how the branch was found before.
//! What is not known is `null`, never a zero or an empty list: `prepared` of a participant that did not give its
//! whole list, `age_seconds` where a server does not tell (then `age_at_most_seconds` says for how long its opening of
//! the journal has been there, by this machine's clock), `waiting` where a participant did not say. Keys may be added within a schema; none changes its meaning.

mod build;
mod course;
mod explained;
mod facts;
mod rows;
mod text;
mod words;

pub use course::Course;
pub use explained::{Audit, Chronicle, Explained, Statement, Told};
pub use facts::{Facts, gid};
pub use rows::Rows;
pub use text::{Style, branch_facts, for_people, foreign_facts, no_colour, paragraph, table};
pub use words::Moment;

use super::exit::Exit;
use crate::error::Error;
use crate::id::TransactionId;
use crate::protocol::Outcome;
use crate::protocol::recovery::{Action, Evidence, History, Sighting};
use serde::{Serialize, Serializer};
use std::io::{self, Write};
use std::time::Duration;

/// The version of the JSON object.
const SCHEMA: u32 = 1;

/// How things stand.
#[derive(Serialize)]
pub struct Report<'a> {
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
    pub transactions: Rows<'a, Transaction>,
    /// Prepared branches that are not this journal's.
    pub foreign: Rows<'a, Foreign>,
    /// Earlier openings of the journal of which something may still move.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unsettled: Vec<EarlierOpening>,
    /// What has been prepared for too long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub older: Option<Older>,
    #[serde(skip)]
    kind: Kind,
    #[serde(skip)]
    tally: Tally,
}

/// What a report is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// What is there, and what would be done.
    Look,
    /// What was done.
    Recovery,
    /// Whether anything is prepared.
    Drain,
}

/// What `list --older-than` found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Older {
    /// Longer than this, in seconds.
    pub than_seconds: u64,
    /// So many branches, ours and foreign.
    pub branches: usize,
}

/// How many transactions and branches there are of each kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Tally {
    transactions: usize,
    /// Clean and committed.
    committed: usize,
    /// Clean and rolled back.
    rolled_back: usize,
    in_doubt: usize,
    damaged: usize,
    /// A person has to decide.
    to_resolve: usize,
    foreign: usize,
    orphans: usize,
}

impl Tally {
    fn of(transactions: &Rows<'_, Transaction>, foreign: &Rows<'_, Foreign>) -> Self {
        let mut tally = Self::default();
        for one in transactions.iter() {
            tally.transactions += 1;
            match (one.exit, one.outcome) {
                (Exit::Clean, Some(Outcome::Committed)) => tally.committed += 1,
                (Exit::Clean, Some(Outcome::RolledBack)) => tally.rolled_back += 1,
                (Exit::InDoubt, _) => tally.in_doubt += 1,
                (Exit::Damaged, _) if one.action == Action::Resolve => tally.to_resolve += 1,
                (Exit::Damaged, _) => tally.damaged += 1,
                _ => {}
            }
        }
        for one in foreign.iter() {
            tally.foreign += 1;
            tally.orphans += usize::from(one.exit() != Exit::Clean);
        }
        tally
    }
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
    /// What else is known, where it was asked for.
    #[serde(flatten)]
    pub explained: Option<Explained>,
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
    /// Where the server does not tell: how long ago its opening of the journal was, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_at_most_seconds: Option<u64>,
    /// Who waits for it to end, as far as its participant said.
    pub waiting: Option<Vec<String>>,
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
    /// Who waits for it to end, as far as its participant said.
    pub waiting: Option<Vec<String>>,
    /// Whether it is of this node, and of another journal.
    pub orphan: bool,
    /// Its opening, as a participant's own table has it.
    pub registered: Option<Opening>,
    /// What the witnesses of an orphan's transaction say.
    pub evidence: Vec<Proof>,
}

/// An opening of some journal, as a participant's own table has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Opening {
    /// The node.
    pub node: String,
    /// Which opening of its journal.
    pub incarnation: String,
    /// The journal.
    pub journal: String,
    /// The machine.
    pub host: String,
    /// How long ago, by the database's clock.
    pub opened_seconds_ago: u64,
}

/// What a participant's witness says of a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Proof {
    /// Whose.
    pub participant: String,
    /// What it says.
    #[serde(serialize_with = "evidence")]
    pub evidence: Evidence,
}

impl Foreign {
    /// What it means for the exit code: an orphan is nobody's but ours.
    pub fn exit(&self) -> Exit {
        if self.orphan { Exit::InDoubt } else { Exit::Clean }
    }
}

impl<'a> Report<'a> {
    /// A report whose status is the most pressing of its parts'.
    pub fn new(
        participants: Vec<Participant>,
        transactions: Rows<'a, Transaction>,
        foreign: Rows<'a, Foreign>,
    ) -> Self {
        let tally = Tally::of(&transactions, &foreign);
        let parts = [
            participants.iter().map(|one| one.exit).max().unwrap_or_default(),
            if tally.in_doubt + tally.orphans > 0 { Exit::InDoubt } else { Exit::Clean },
            if tally.damaged + tally.to_resolve > 0 { Exit::Damaged } else { Exit::Clean },
        ];
        let status = parts.into_iter().max().unwrap_or_default();
        Self {
            schema: SCHEMA,
            status,
            error: None,
            in_use_by: None,
            participants,
            transactions,
            foreign,
            unsettled: Vec::new(),
            older: None,
            kind: Kind::Look,
            tally,
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
            explained: None,
            exit,
        };
        let status = transaction.exit;
        Self::new(Vec::new(), Rows::of(vec![transaction]), Rows::none()).at_least(status)
    }

    /// A report about something that neither the journal nor a participant knows.
    pub fn unknown(what: &str) -> Self {
        let transaction = Transaction { id: what.to_owned(), ..Transaction::silent(what) };
        Self::new(Vec::new(), Rows::of(vec![transaction]), Rows::none())
    }

    /// The outcome in a report about one.
    pub fn outcome(&self) -> &'static str {
        outcome_word(self.transactions.iter().next().and_then(|one| one.outcome))
    }

    /// A report that nothing could be looked at, and why that is.
    pub fn without_a_look(status: Exit, error: Option<String>) -> Self {
        Self { status, error, ..Self::new(Vec::new(), Rows::none(), Rows::none()) }
    }

    /// How many transactions recovery has to settle yet.
    pub fn in_doubt(&self) -> usize {
        self.tally.in_doubt
    }

    /// How many transactions wait for a person.
    pub fn damaged(&self) -> usize {
        self.tally.damaged + self.tally.to_resolve
    }

    /// Says who has the journal.
    #[must_use]
    pub fn in_use_by(mut self, holder: Option<String>) -> Self {
        self.in_use_by = holder;
        self
    }

    /// Says why nothing was done.
    #[must_use]
    pub fn refused(mut self, error: Option<&Error>) -> Self {
        let Some(error) = error else { return self };
        self.error = Some(error.chain());
        self.at_least(Exit::of(error))
    }

    /// Adds the earlier openings that are not settled: what hinders them says what that means.
    #[must_use]
    pub fn and_unsettled(mut self, unsettled: Vec<EarlierOpening>) -> Self {
        self.unsettled = unsettled;
        let most = self.unsettled.iter().map(|one| one.exit).max().unwrap_or_default();
        self.at_least(most)
    }

    /// Tells what has been prepared for too long: then nothing is clean.
    #[must_use]
    pub fn and_older(mut self, than: Duration, branches: usize) -> Self {
        self.older = Some(Older { than_seconds: than.as_secs(), branches });
        self.at_least(if branches > 0 { Exit::InDoubt } else { Exit::Clean })
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
    pub fn write_text(&self, style: Style, out: &mut dyn Write) -> io::Result<()> {
        text::write(self, style, out)
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

/// Whether nothing is to be sent or waited for.
fn at_rest(action: Action) -> bool {
    matches!(action, Action::Nothing | Action::Finish | Action::FinishUnproven)
}

/// A transaction is clean when its outcome is certain and nothing is left to be sent or waited for.
fn exit_of(outcome: Outcome, action: Action) -> Exit {
    match outcome {
        // A running application is at work on it.
        _ if action == Action::Leave => Exit::Clean,
        Outcome::Damaged => Exit::Damaged,
        _ if matches!(action, Action::Damage | Action::Resolve) => Exit::Damaged,
        Outcome::Committed | Outcome::RolledBack if at_rest(action) => Exit::Clean,
        Outcome::Committed | Outcome::RolledBack | Outcome::InDoubt => Exit::InDoubt,
    }
}

#[cfg(test)]
mod tests;
