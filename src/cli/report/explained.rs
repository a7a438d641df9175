//! What `explain` adds to a transaction in a report.

use super::Moment;
use serde::Serialize;

/// What `explain` adds to a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explained {
    /// What the journal says.
    pub journal: Chronicle,
    /// What persons did, and what needs one.
    pub audit: Vec<Audit>,
    /// How to do by hand what recovery does.
    pub statements: Vec<Statement>,
    /// What to do now.
    pub next: String,
}

/// A statement for a server's own prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Statement {
    /// Where to type it.
    pub participant: String,
    /// What it ends.
    pub gid: String,
    /// `commit` or `roll_back`
    pub resolution: &'static str,
    /// What to type.
    pub statement: String,
}

/// What the journal says.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Chronicle {
    /// When the opening was that began it.
    pub opened: Option<Moment>,
    /// The machine of that opening, as a participant's own table has it.
    pub host: Option<String>,
    /// Whether nothing of that opening can move any more.
    pub settled: bool,
    /// The records about it, in order.
    pub records: Vec<Told>,
}

/// A record, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Told {
    /// `file:offset`
    pub place: String,
    /// Whether it is certainly durable.
    pub durable: bool,
    /// What it says.
    pub what: String,
}

/// What a person did, or what was found that needs one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Audit {
    /// `file:offset`
    pub place: String,
    /// What: `damaged`, `resolved_commit`, `resolved_roll_back`, `forgotten`, `incomplete`, `given_up`.
    pub what: &'static str,
    /// When, if the record says so.
    pub at: Option<Moment>,
    /// On which machine, if the record says so.
    pub host: Option<String>,
    /// What was found, or the reason that was given.
    pub why: String,
}
