//! What PostgreSQL's errors prove, and what the caller does next.
//!
//! Only an error that the server reports of a *statement*, on a session that lives on, proves that its transaction is
//! aborted. A fatal one may come right behind a success: the session of a prepared branch can be terminated between
//! the two. Codes are of <https://www.postgresql.org/docs/current/errcodes-appendix.html>.

use crate::error::{Error, ErrorKind};
use crate::id::ParticipantName;
use crate::participant::access::handshake;
use std::error::Error as _;
use tokio_postgres::error::{DbError, Severity, SqlState};

/// The driver's error.
pub(super) type PgError = tokio_postgres::Error;

/// Whether the server refused a statement and nothing else happened: the transaction it was in is aborted.
pub(super) fn is_refusal(error: &PgError) -> bool {
    let Some(db) = error.as_db_error() else { return false };
    db.parsed_severity() == Some(Severity::Error) && !is_about_the_session(db.code())
}

/// Connection exceptions (class 08), operator intervention that ends sessions (57P0x), and 40003, whose very name is
/// *statement completion unknown*.
fn is_about_the_session(code: &SqlState) -> bool {
    code.code().starts_with("08")
        || code.code().starts_with("57P")
        || *code == SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN
        || *code == SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT
}

/// Whether the guard failed by its own text, in answer to this question.
pub(super) fn is_guard(error: &PgError, text: &str, nonce: &str) -> bool {
    error.as_db_error().is_some_and(|db| {
        *db.code() == SqlState::INVALID_TEXT_REPRESENTATION && db.message().contains(&format!("{text}{nonce}:"))
    })
}

/// Whether all slots for prepared transactions are in use. The code alone also means other memory; messages are
/// translated; the name of the server's function is neither.
pub(super) fn is_out_of_slots(error: &PgError) -> bool {
    is_of(error, &SqlState::OUT_OF_MEMORY) && is_from_mark_as_preparing(error)
}

fn is_disabled(error: &PgError) -> bool {
    is_of(error, &SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE) && is_from_mark_as_preparing(error)
}

fn is_from_mark_as_preparing(error: &PgError) -> bool {
    error.as_db_error().is_some_and(|db| db.routine() == Some("MarkAsPreparing"))
}

/// Whether an error has a code.
pub(super) fn is_of(error: &PgError, code: &SqlState) -> bool {
    error.code() == Some(code)
}

/// What the caller does next.
fn kind(error: &PgError) -> ErrorKind {
    let Some(code) = error.code() else {
        return if handshake(error).is_some() { ErrorKind::Setup } else { ErrorKind::Unavailable };
    };
    match *code {
        // A lock that was not given in time is how a deadlock between two databases ends.
        SqlState::T_R_SERIALIZATION_FAILURE | SqlState::T_R_DEADLOCK_DETECTED | SqlState::LOCK_NOT_AVAILABLE => {
            ErrorKind::Retry
        }
        SqlState::INSUFFICIENT_PRIVILEGE
        | SqlState::INVALID_AUTHORIZATION_SPECIFICATION
        | SqlState::INVALID_PASSWORD
        | SqlState::INVALID_CATALOG_NAME
        | SqlState::INVALID_SCHEMA_NAME
        | SqlState::UNDEFINED_TABLE => ErrorKind::Setup,
        SqlState::TOO_MANY_CONNECTIONS | SqlState::QUERY_CANCELED => ErrorKind::Unavailable,
        _ if is_disabled(error) => ErrorKind::Setup,
        _ if is_out_of_slots(error) => ErrorKind::Setup,
        _ if is_about_the_session(code) => ErrorKind::Unavailable,
        _ => ErrorKind::Statement,
    }
}

/// What is wrong with the encryption, if that is what is wrong.
fn handshake(error: &PgError) -> Option<String> {
    // The driver has no type for it.
    let is_not_there = error.source().is_some_and(|cause| cause.to_string() == "server does not support TLS");
    if is_not_there { Some(handshake::NOT_THERE.into()) } else { handshake::problem(error) }
}

/// Says what was being done, to whom, and what the server said.
pub(super) fn explain(name: ParticipantName, doing: &str, error: PgError) -> Error {
    let other = || handshake(&error).unwrap_or_else(|| error.to_string());
    let said = error.as_db_error().map_or_else(other, said);
    let hint = if is_disabled(&error) {
        "; set max_prepared_transactions above 0 and restart the server"
    } else if is_out_of_slots(&error) {
        "; all slots of max_prepared_transactions are in use: settle what is prepared, or raise it and restart"
    } else {
        ""
    };
    Error::new(kind(&error), format!("{doing}: {said}{hint}")).at(name).because(error)
}

fn said(db: &DbError) -> String {
    let detail = db.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
    format!("{}{detail}, SQLSTATE {}", db.message(), db.code().code())
}

/// So that `?` works on the driver's calls in an application's closure: the kind says whether to run it again.
impl From<PgError> for Error {
    fn from(error: PgError) -> Self {
        let said = error.as_db_error().map_or_else(|| error.to_string(), said);
        Self::new(kind(&error), said).because(error)
    }
}
