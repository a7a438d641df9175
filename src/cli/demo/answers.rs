//! What an application wrote down, the demo's and that of the tests: each transaction before its first statement, each
//! answer when it came.
//!
//! A line is written by one call on a file opened for appending, so it is whole or absent after `kill -9`.

use crate::error::{Error, ErrorKind, Result};
use crate::id::TransactionId;
use crate::protocol::Outcome;
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::str::FromStr;

/// Where a transaction writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// On both databases.
    Both,
    /// On PostgreSQL alone: one phase.
    Ledger,
    /// On MySQL or MariaDB alone: one phase.
    Orders,
}

impl Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Both => "both",
            Self::Ledger => "ledger",
            Self::Orders => "orders",
        })
    }
}

impl FromStr for Shape {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Self, ()> {
        [Self::Both, Self::Ledger, Self::Orders].into_iter().find(|shape| shape.to_string() == text).ok_or(())
    }
}

/// Writes answers down.
pub struct Notebook(File);

impl Notebook {
    /// Opens the file for appending.
    pub fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        file.map(Self).map_err(|error| unreadable(path, error))
    }

    /// Before the first statement. `shape` says in one word what belongs to the transaction.
    pub fn begun(&self, id: TransactionId, shape: impl Display) {
        self.line("begun", id, shape);
    }

    /// When the answer came.
    pub fn answered(&self, id: TransactionId, outcome: Outcome) {
        self.line("answer", id, outcome.as_str());
    }

    fn line(&self, what: &str, id: TransactionId, rest: impl Display) {
        let line = format!("{what} {id} {rest}\n");
        (&self.0).write_all(line.as_bytes()).expect("a demo that cannot write down its answers proves nothing");
    }
}

/// What was written down of one transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Noted<S> {
    /// What belongs to it.
    pub shape: S,
    /// `None` when the application was killed before it had one.
    pub answer: Option<Outcome>,
}

/// Reads everything that was written down.
pub fn read<S: FromStr>(path: &Path) -> Result<BTreeMap<TransactionId, Noted<S>>> {
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(path, error))?;
    let mut noted = BTreeMap::new();
    for line in text.lines() {
        add(&mut noted, line).ok_or_else(|| Error::new(ErrorKind::Corrupt, format!("unreadable answer {line:?}")))?;
    }
    Ok(noted)
}

fn add<S: FromStr>(noted: &mut BTreeMap<TransactionId, Noted<S>>, line: &str) -> Option<()> {
    let mut words = line.split(' ');
    let (what, id, rest) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
    match what {
        "begun" => {
            let new = noted.insert(id, Noted { shape: rest.parse().ok()?, answer: None });
            assert!(new.is_none(), "transaction ids never repeat: {id}");
        }
        "answer" => {
            let known = noted.get_mut(&id)?;
            let all = [Outcome::Committed, Outcome::RolledBack, Outcome::InDoubt, Outcome::Damaged];
            known.answer = Some(all.into_iter().find(|outcome| outcome.as_str() == rest)?);
        }
        _ => return None,
    }
    Some(())
}

fn unreadable(path: &Path, error: std::io::Error) -> Error {
    Error::new(ErrorKind::Setup, format!("{} cannot be used", path.display())).because(error)
}
