//! What the errors of MySQL and MariaDB mean, and what the caller does next.
//!
//! Numbers are of <https://dev.mysql.com/doc/mysql-errors/en/server-error-reference.html> and
//! <https://mariadb.com/kb/en/mariadb-error-code-reference/>.

use crate::error::{Error, ErrorKind};
use crate::id::ParticipantName;
use crate::participant::access::handshake;
use mysql_async::ServerError;

/// The driver's error.
pub(super) type MyError = mysql_async::Error;

pub(super) const RECORD_CHANGED: u16 = 1020;
pub(super) const DUPLICATE_KEY: u16 = 1062;
pub(super) const NO_SUCH_THREAD: u16 = 1094;
pub(super) const NO_SUCH_TABLE: u16 = 1146;
pub(super) const LOCK_WAIT_TIMEOUT: u16 = 1205;
pub(super) const DEADLOCK: u16 = 1213;
pub(super) const XA_UNKNOWN: u16 = 1397;
pub(super) const XA_WRONG_STATE: u16 = 1399;
pub(super) const XA_FAILED: u16 = 1401;
pub(super) const XA_ROLLED_BACK: u16 = 1402;
pub(super) const XA_DUPLICATE: u16 = 1440;
pub(super) const XA_TIMED_OUT: u16 = 1613;
pub(super) const XA_DEADLOCK: u16 = 1614;
pub(super) const LOCK_NOWAIT: u16 = 3572;

/// The server's error number, where it is the server's error.
pub(super) fn code(error: &MyError) -> Option<u16> {
    match error {
        MyError::Server(server) => Some(server.code),
        _ => None,
    }
}

/// Whether the server has rolled the branch back by itself and waits only to be told to forget it.
///
/// MySQL says it by codes of their own, MariaDB by the name of the state, which is not translated.
pub(super) fn is_rollback_only(error: &ServerError) -> bool {
    matches!(error.code, XA_ROLLED_BACK | XA_TIMED_OUT | XA_DEADLOCK)
        || (error.code == XA_WRONG_STATE && error.message.contains("ROLLBACK ONLY"))
}

/// Whether an error ends the whole branch, whatever savepoints there were.
pub(super) fn ends_branch(code: u16) -> bool {
    matches!(code, DEADLOCK | RECORD_CHANGED | XA_ROLLED_BACK | XA_TIMED_OUT | XA_DEADLOCK)
}

/// Whether the session is over, though the server found the time to say so.
pub(super) fn ends_session(code: u16) -> bool {
    matches!(code, 1053 | 1077..=1081 | 1152..=1161 | 1184 | 1927 | 3169 | 4031)
}

/// What the caller does next.
fn kind(error: &MyError) -> ErrorKind {
    let Some(code) = code(error) else {
        return if handshake(error).is_some() { ErrorKind::Setup } else { ErrorKind::Unavailable };
    };
    match code {
        DEADLOCK | LOCK_WAIT_TIMEOUT | LOCK_NOWAIT | RECORD_CHANGED | XA_DEADLOCK | XA_TIMED_OUT => ErrorKind::Retry,
        // No right, no such database, no such table, wrong password.
        1044 | 1045 | 1049 | 1142 | 1143 | 1146 | 1227 | 1698 => ErrorKind::Setup,
        // Too many connections, of all or of one account.
        1040 | 1203 | 1226 => ErrorKind::Unavailable,
        _ if ends_session(code) => ErrorKind::Unavailable,
        _ => ErrorKind::Statement,
    }
}

/// What is wrong with the encryption, if that is what is wrong.
fn handshake(error: &MyError) -> Option<String> {
    match error {
        MyError::Driver(mysql_async::DriverError::NoClientSslFlagFromServer) => Some(handshake::NOT_THERE.into()),
        error => handshake::problem(error),
    }
}

/// Says what was being done, to whom, and what the server said.
pub(super) fn explain(name: ParticipantName, doing: &str, error: MyError) -> Error {
    describe(doing, error).at(name)
}

/// The same where it is not known to whom.
pub(super) fn describe(doing: &str, error: MyError) -> Error {
    let said = match &error {
        MyError::Server(server) => format!("{} (error {}, {})", server.message, server.code, server.state),
        // The driver says `Input/output error` once for each of its layers.
        other => handshake(other).unwrap_or_else(|| other.to_string().replace("Input/output error: ", "")),
    };
    Error::new(kind(&error), format!("{doing}: {said}")).because(error)
}

/// So that `?` works on the driver's calls in an application's closure: the kind says whether to run it again.
impl From<MyError> for Error {
    fn from(error: MyError) -> Self {
        match error {
            // What the branch itself said, on its way through the driver's type.
            MyError::Other(inner) => match inner.downcast::<Self>() {
                Ok(ours) => *ours,
                Err(inner) => describe("a statement failed", MyError::Other(inner)),
            },
            error => describe("a statement failed", error),
        }
    }
}
