//! What applications do before they are killed.

use handfast::Outcome;
use handfast::torture::{Moment, Point, Request, Step};
use integration_tests::world::{LEDGER, ORDERS};

/// What an application is told, and what may come of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Script {
    pub name: &'static str,
    /// `KEY` stands for the first of its keys.
    pub lines: &'static [&'static str],
    /// How many keys it needs.
    pub keys: i32,
    /// The sides that it writes to.
    pub writes: &'static [&'static str],
    pub kind: Kind,
}

/// What is meant to come of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A commit on both sides.
    Commit,
    /// A commit with one writer.
    OnePhase,
    /// It is rolled back, or a branch refuses.
    Abort,
    /// Many commits.
    Load,
}

const BOTH: &[&str] = &[LEDGER, ORDERS];

const fn one(
    name: &'static str,
    kind: Kind,
    writes: &'static [&'static str],
    lines: &'static [&'static str],
) -> Script {
    Script { name, lines, keys: 1, writes, kind }
}

/// The first one stands for all that is alike in all of them.
pub static SCRIPTS: [Script; 10] = [
    one("commit", Kind::Commit, BOTH, &["open", "write KEY ledger orders", "commit", "wait"]),
    one("rollback", Kind::Abort, BOTH, &["open", "write KEY ledger orders", "rollback", "wait"]),
    one("ledger fails", Kind::Abort, BOTH, &["open", "write KEY ledger! orders", "commit", "wait"]),
    one("orders fails", Kind::Abort, BOTH, &["open", "write KEY ledger orders!", "commit", "wait"]),
    one("ledger alone", Kind::OnePhase, &[LEDGER], &["open", "write KEY ledger", "commit", "wait"]),
    one("orders alone", Kind::OnePhase, &[ORDERS], &["open", "write KEY orders", "commit", "wait"]),
    one("orders are read", Kind::OnePhase, &[LEDGER], &["open", "write KEY orders? ledger", "commit", "wait"]),
    one("ledger is read", Kind::OnePhase, &[ORDERS], &["open", "write KEY ledger? orders", "commit", "wait"]),
    one(
        UPKEEP,
        Kind::Commit,
        BOTH,
        &[
            "open",
            "write KEY ledger orders",
            "commit",
            "wait",
            "until prune.answered ledger",
            "until prune.answered orders",
        ],
    ),
    // So many that the journal goes on in another segment four times, the last time in a compacted one.
    Script { name: "load", lines: &["open", "load KEY 8 1600", "wait"], keys: 1600, writes: BOTH, kind: Kind::Load },
];

/// Those that are over at once.
pub fn short() -> impl Iterator<Item = &'static Script> {
    SCRIPTS.iter().filter(|script| script.kind != Kind::Load && script.name != UPKEEP)
}

/// The name of the script that waits for what keeps the tables small.
pub const UPKEEP: &str = "upkeep";

/// The script of a name.
pub fn named(name: &str) -> &'static Script {
    SCRIPTS.iter().find(|script| script.name == name).unwrap_or_else(|| panic!("there is no script {name:?}"))
}

impl Script {
    /// What it is told, with these keys. When it has come to its end, so has all that goes on behind it.
    pub fn told(&self, key: i32) -> String {
        format!("{}\nsettle", self.lines.join("\n")).replace("KEY", &key.to_string())
    }

    /// Whether a commit would be against what was meant.
    pub fn may_commit(&self) -> bool {
        self.kind != Kind::Abort
    }

    /// What has to come of it when its process ends there, where that is certain.
    pub fn outcome_at(&self, point: Point) -> Option<Outcome> {
        use Moment::{Answered, Before};
        match (self.kind, point) {
            (Kind::Load, _) => None,
            (Kind::Abort, _) => Some(Outcome::RolledBack),
            (_, Point::Request(Request::Begin | Request::Prepare | Request::EndReadOnly, _))
            | (_, Point::Request(Request::CommitOnePhase | Request::CommitAnchor, Before))
            | (_, Point::Step(Step::Ending | Step::Append)) => Some(Outcome::RolledBack),
            (_, Point::Request(Request::Commit, _))
            | (_, Point::Request(Request::Prune, _))
            | (_, Point::Request(Request::Keep | Request::Clear, _))
            | (_, Point::Request(Request::CommitOnePhase | Request::CommitAnchor, Answered))
            | (_, Point::Step(Step::Appended | Step::Answer | Step::Note)) => Some(Outcome::Committed),
            _ => None,
        }
    }
}
