//! What can go wrong, by what the caller does next. The driver's own error stays the [`source`](std::error::Error::source).

use crate::id::{ParticipantName, TransactionId};
use std::error::Error as StdError;
use std::fmt;

/// The result of most calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What the caller of a failed call does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Configuration or arguments are wrong: correct them.
    Config,
    /// A participant lacks a setting, a table or a privilege: the message has the statement or setting that mends it.
    Setup,
    /// A participant could not be reached or did not answer: try again later.
    Unavailable,
    /// Refused in order not to do harm: the journal is in use, the server is another one than the journal knows.
    Refused,
    /// The journal holds bytes that it cannot have written: restore it, touch no branch.
    Corrupt,
    /// The journal could not be written: reopen it, the outcome of what was being decided is known then.
    Journal,
    /// A statement failed: the transaction can only be rolled back.
    Statement,
    /// A deadlock, a wait for a lock or a session that might have been one, or a serialization failure: roll back and
    /// run the whole transaction again.
    Retry,
    /// The transaction's deadline has passed: it was rolled back.
    TimedOut,
    /// The bridge is closed or closing, or the transaction has ended.
    Closed,
    /// The transaction's outcome is not known yet: never run it again, ask for the outcome by its id.
    InDoubt,
    /// A branch was ended against the decision: a person is needed.
    Damaged,
    /// This journal has never heard of what was asked for.
    Unknown,
}

/// How PostgreSQL's driver calls whatever the server says; what that is comes behind it.
const SAYS_NOTHING: &str = "db error";

/// An error of Handfast. [`kind`](Self::kind) says what to do, `Display` says what happened and to whom.
pub struct Error {
    kind: ErrorKind,
    participant: Option<ParticipantName>,
    // Boxed, as it is there in few errors: every result has room for one.
    transaction: Option<Box<TransactionId>>,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error that names the thing and the cure.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, participant: None, transaction: None, message: message.into(), source: None }
    }

    /// Adds the participant that it concerns.
    #[must_use]
    pub fn at(mut self, participant: ParticipantName) -> Self {
        self.participant.get_or_insert(participant);
        self
    }

    /// Adds the transaction whose commit it is about.
    pub(crate) fn of(mut self, transaction: TransactionId) -> Self {
        self.transaction = Some(Box::new(transaction));
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What the caller does next.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The participant that it concerns, if it is one's.
    pub fn participant(&self) -> Option<ParticipantName> {
        self.participant
    }

    /// The transaction whose commit failed, to ask for its outcome by: there for every error of a commit, of
    /// [`Bridge::transaction`](crate::Bridge::transaction) too.
    pub fn transaction(&self) -> Option<TransactionId> {
        self.transaction.as_deref().copied()
    }

    /// The error and its causes on one line, for logs and status pages.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            let next = error.to_string();
            // Drivers like to repeat their source in their own text, and to wrap it: what it ends in says it.
            let last = next.rsplit(": ").next().unwrap_or_default().trim_end_matches('\'');
            if !text.contains(last) && last != SAYS_NOTHING {
                text.push_str(": ");
                text.push_str(&next);
            }
            cause = error.source();
        }
        text
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.participant {
            Some(participant) => write!(f, "{participant}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// What a program prints whose `main` returns the error: the kind and the whole chain.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.chain())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_tells_whom_it_concerns_and_its_causes_once() {
        let cause = std::io::Error::other("connection refused");
        let error = Error::new(ErrorKind::Unavailable, "cannot connect").at("ledger".parse().unwrap()).because(cause);
        assert_eq!(error.to_string(), "ledger: cannot connect");
        assert_eq!(error.chain(), "ledger: cannot connect: connection refused");
        assert_eq!(format!("{error:?}"), "Unavailable: ledger: cannot connect: connection refused");
        let outer = Error::new(ErrorKind::Unavailable, "gave up: connection refused").because(error);
        assert_eq!(outer.chain(), "gave up: connection refused: ledger: cannot connect");
    }

    #[test]
    fn what_drivers_wrap_is_told_once() {
        let mysql = "Server error: `ERROR 4025 (23000): CONSTRAINT `pieces` failed for `shop`.`item`'";
        let message = "a statement failed: CONSTRAINT `pieces` failed for `shop`.`item` (error 4025, 23000)";
        assert_eq!(Error::new(ErrorKind::Statement, message).because(mysql).chain(), message);
        let message = "canceling statement due to lock timeout, SQLSTATE 55P03";
        assert_eq!(Error::new(ErrorKind::Retry, message).because("db error").chain(), message);
    }

    #[test]
    fn the_error_of_a_commit_names_its_transaction() {
        let id = "hf1.front.0123456789abcdef.7".parse().unwrap();
        assert_eq!(Error::new(ErrorKind::InDoubt, "in doubt").of(id).transaction(), Some(id));
        assert_eq!(Error::new(ErrorKind::InDoubt, "in doubt").transaction(), None);
    }
}
