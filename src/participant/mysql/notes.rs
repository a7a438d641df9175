//! What is noted of an application's work on a branch.
//!
//! A failed statement dooms a branch of PostgreSQL; MySQL undoes the statement and goes on. One rule for both (D15): a
//! failed statement makes the branch rollback-only, unless a savepoint that was set before it is rolled back to, and
//! never after an error that ends the whole branch. So the first failure is remembered.

use super::error::{self, MyError};
use super::leftovers::Leaves;
use super::savepoints::{Action, may_end_transaction};
use super::sql::Sql;
use crate::error::Error;
use crate::torture::{self, Safeguard};
use mysql_async::prelude::{AsQuery, Queryable};
use mysql_async::{Conn, Row, ServerError};

/// What is known of the application's work on a branch.
#[derive(Default)]
pub(super) struct Notes {
    /// A call was begun and has not come back.
    busy: bool,
    /// The rest of an answer was left to the application: there may be an error in it.
    unseen: bool,
    /// Something was sent that may have ended the transaction, and was not refused.
    suspect: bool,
    /// The same, before the latest call.
    was_suspect: bool,
    /// What the calls so far may have left in the session.
    leaves: Leaves,
    /// The server said that it has rolled the whole transaction back.
    pub(super) rolled_back: bool,
    /// The first failure that was not undone.
    failed: Option<Failed>,
    /// Set, and not known to be gone; while there is a failure, those alone that were set before it.
    savepoints: Vec<String>,
}

struct Failed {
    error: Error,
    /// No savepoint can undo it.
    is_final: bool,
}

impl Notes {
    /// Whether the application may have ended the transaction by itself.
    pub(super) fn is_suspect(&self) -> bool {
        self.suspect
    }

    /// What the application may have left in the session.
    pub(super) fn leaves(&self) -> Leaves {
        self.leaves
    }

    /// The rest of an answer is left to the application.
    pub(super) fn leaves_rest(&mut self) {
        self.unseen = true;
    }

    /// Whether a call was dropped half way.
    pub(super) fn is_torn(&self) -> bool {
        self.busy && torture::is_on(Safeguard::Torn)
    }

    /// The first failure that was not undone.
    pub(super) fn failure(&mut self) -> Option<Error> {
        self.failed.take().map(|failed| failed.error)
    }

    /// A call begins.
    pub(super) fn enter(&mut self, call: &Call) {
        self.busy = true;
        self.was_suspect = self.suspect;
        self.leaves = self.leaves.max(call.leaves);
        // Until the answer says otherwise: there may never be one.
        self.suspect |= call.may_end;
        if let (Action::Opaque | Action::Unseen, Some(failed)) = (&call.action, &mut self.failed) {
            // It may set one of the savepoints anew, behind the failure.
            failed.is_final = true;
        }
    }

    fn succeeded(&mut self, action: &Action) {
        match action {
            Action::Set(name) => {
                self.savepoints.retain(|known| known != name);
                if self.failed.is_none() {
                    self.savepoints.push(name.clone());
                }
            }
            Action::Release(name) => self.forget_from(name, 0),
            Action::RollBackTo(name) => {
                let known = self.savepoints.contains(name);
                if known && self.failed.as_ref().is_some_and(|failed| !failed.is_final) {
                    self.failed = None;
                }
                self.forget_from(name, 1);
            }
            Action::Plain | Action::Unseen | Action::Opaque => {}
        }
    }

    /// Forgets the savepoints from this one on, but for the first `keep`.
    fn forget_from(&mut self, name: &str, keep: usize) {
        if let Some(at) = self.savepoints.iter().position(|known| known == name) {
            self.savepoints.truncate(at + keep);
        }
    }

    fn failed(&mut self, said: &MyError) {
        let code = error::code(said);
        self.rolled_back |= code.is_some_and(error::ends_branch);
        let is_final = code.is_none_or(|code| error::ends_branch(code) || error::ends_session(code));
        match &mut self.failed {
            Some(first) => first.is_final |= is_final,
            None => {
                let copy = match said {
                    MyError::Server(server) => MyError::Server(server.clone()),
                    other => MyError::Other(other.to_string().into()),
                };
                self.failed = Some(Failed { error: error::describe("a statement failed", copy), is_final });
            }
        }
    }

    /// A call has come back.
    pub(super) fn leave<T>(&mut self, call: &Call, answer: Result<T, MyError>) -> Result<T, MyError> {
        self.busy = false;
        match &answer {
            Ok(_) => self.succeeded(&call.action),
            Err(error) => {
                self.failed(error);
                // Of several statements some may have been done.
                if call.is_single && error::code(error).is_some_and(|code| !error::ends_session(code)) {
                    self.suspect = self.was_suspect;
                }
            }
        }
        answer
    }

    /// Looks for the error in an answer that only the application has read.
    pub(super) async fn look_for_unseen(&mut self, conn: &mut Conn) -> Result<(), MyError> {
        if !self.unseen {
            return Ok(());
        }
        // Each call would have room for it; few need it.
        Box::pin(self.ask_for_errors(conn)).await
    }

    async fn ask_for_errors(&mut self, conn: &mut Conn) -> Result<(), MyError> {
        self.busy = true;
        // Whatever of the answer is still unread is read by the driver first, and its error comes out here.
        let errors = conn.query::<Row, _>(Sql::SHOW_ERRORS).await;
        self.busy = false;
        self.unseen = false;
        let found = errors.inspect_err(|error| self.failed(error))?;
        if let Some(server) = found.first().and_then(server_error) {
            self.failed(&MyError::Server(server));
        }
        Ok(())
    }
}

/// A call as far as its text tells.
pub(super) struct Call {
    action: Action,
    may_end: bool,
    leaves: Leaves,
    /// It is one statement for certain.
    is_single: bool,
    /// A begin may go in front of its text.
    rides: bool,
}

/// A longer text has a begin of its own in front: it would have to be copied, or be as long as the server takes.
const MOST: usize = 65_536;

impl Call {
    pub(super) fn text(query: &impl AsQuery) -> Self {
        let text = query.as_query();
        let is_single = !text.contains(&b';');
        let action = Action::read(&text);
        let leaves = if action == Action::Opaque { Leaves::Something } else { Leaves::of_rows(&text) };
        let rides = action == Action::Plain && text.len() <= MOST;
        let may_end = action == Action::Opaque && may_end_transaction(&text);
        Self { action, may_end, leaves, is_single, rides }
    }

    pub(super) fn plain() -> Self {
        Self { action: Action::Plain, may_end: false, leaves: Leaves::Nothing, is_single: true, rides: false }
    }

    /// A call by the binary protocol, whose texts the driver keeps to itself.
    pub(super) fn unseen() -> Self {
        Self { action: Action::Unseen, may_end: false, leaves: Leaves::Unseen, is_single: true, rides: false }
    }

    /// Whether a begin may go in front of its text: one statement, which does no more than read or write rows. No function
    /// or trigger that it calls can end a transaction: neither server lets one be made that could (1422).
    pub(super) fn rides(&self) -> bool {
        self.rides
    }

    /// Whether it may do more than read or write rows.
    pub(super) fn does_more(&self) -> bool {
        self.action != Action::Plain
    }
}

fn server_error(row: &Row) -> Option<ServerError> {
    let code = row.get_opt::<u16, _>(1)?.ok()?;
    let message = row.get_opt::<String, _>(2)?.ok()?;
    Some(ServerError { code, message, state: "HY000".into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(notes: &mut Notes, text: &str, code: Option<u16>) {
        let call = Call::text(&text);
        notes.enter(&call);
        let refusal = |code| ServerError { code, message: "no".into(), state: "HY000".into() };
        let answer = code.map_or(Ok(()), |code| Err(MyError::Server(refusal(code))));
        notes.leave(&call, answer).ok();
    }

    fn failure(calls: &[(&str, Option<u16>)]) -> Option<Error> {
        let mut notes = Notes::default();
        calls.iter().for_each(|(text, code)| run(&mut notes, text, *code));
        notes.failure()
    }

    #[test]
    fn the_first_failure_is_told() {
        let told = failure(&[("SELECT 1", Some(1146)), ("INSERT INTO t VALUES (1)", Some(1062))]).unwrap();
        assert!(told.to_string().contains("1146"), "{told}");
        assert!(failure(&[("SELECT 1", None)]).is_none());
    }

    #[test]
    fn a_deadlock_is_never_forgiven() {
        for code in [1213, 1020, 1614] {
            let calls = [("SAVEPOINT a", None), ("SELECT 1", Some(code)), ("ROLLBACK TO a", None)];
            assert!(failure(&calls).is_some(), "{code}");
        }
        let calls =
            [("SAVEPOINT a", None), ("SELECT 1", Some(1062)), ("SELECT 1", Some(1213)), ("ROLLBACK TO a", None)];
        assert!(failure(&calls).is_some());
    }

    #[test]
    fn a_savepoint_from_before_forgives() {
        let calls = [("SAVEPOINT a", None), ("SELECT 1", Some(1205)), ("ROLLBACK TO a", None)];
        assert!(failure(&calls).is_none());
        let calls = [("SELECT 1", Some(1205)), ("SAVEPOINT a", None), ("ROLLBACK TO a", None)];
        assert!(failure(&calls).is_some());
    }

    #[test]
    fn what_was_refused_ended_nothing() {
        let mut notes = Notes::default();
        run(&mut notes, "COMMIT", Some(1399));
        assert!(!notes.is_suspect());
        run(&mut notes, "XA END 'x'; XA COMMIT 'x' ONE PHASE", Some(1399));
        assert!(notes.is_suspect(), "the first of the two may have been done");
        let mut notes = Notes::default();
        run(&mut notes, "XA END 'x'", Some(1053));
        assert!(notes.is_suspect(), "the session ended in it");
    }

    #[test]
    fn a_begin_rides_with_rows_alone() {
        for text in ["SELECT 1", " insert INTO t VALUES ('--', \"#\");", "WITH a AS (SELECT 1) SELECT * FROM a -- b"] {
            assert!(Call::text(&text).rides(), "{text}");
        }
        let long = format!("INSERT INTO t VALUES ('{}')", "x".repeat(MOST));
        for text in [
            "",
            ";",
            "SELECT 1; SELECT 2",
            "/* SELECT */ SELECT 1",
            "SELECT 1 /*",
            "# SELECT",
            "-- SELECT",
            "DELIMITER //",
            "SET autocommit = 0",
            "SAVEPOINT a",
            "CALL p()",
            long.as_str(),
        ] {
            assert!(!Call::text(&text).rides(), "{text}");
        }
        assert!(!Call::plain().rides() && !Call::unseen().rides());
    }

    #[test]
    fn a_call_that_does_not_come_back_is_torn() {
        let mut notes = Notes::default();
        notes.enter(&Call::text(&"XA END 'x'"));
        assert!(notes.is_torn() && notes.is_suspect());
    }
}
