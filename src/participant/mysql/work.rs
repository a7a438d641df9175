//! A session at work on a branch, and how the branch begins.
//!
//! A begin that has a round trip of its own costs as much as the work of many a transaction. So nothing is sent when a branch
//! is asked for: the begin rides in front of the first text, if that is certain to read or write rows and to do nothing
//! else, or has its round trip right before the first call of another kind, or goes with the prepare if there was no call at
//! all. A text whose begin is refused is not run: the server stops at the first statement that fails.
//!
//! A session that was idle for more than a [moment](MOMENT) is begun with before it is lent: what died in the pool costs a
//! try more, and no application an error.

use super::error::{self, MyError, XA_DUPLICATE, explain};
use super::notes::{Call, Notes};
use super::session::Lease;
use super::sql::{BranchSql, Open, Question, Step};
use super::wire::{Answers, Failure, ask_before};
use crate::error::{Error, ErrorKind};
use crate::id::{BranchId, ParticipantName};
use mysql_async::prelude::{AsQuery, Queryable};
use mysql_async::{Conn, DriverError};
use std::sync::Arc;
use std::time::Duration;

/// For so long a session that was just used is taken to be alive.
pub(super) const MOMENT: Duration = Duration::from_millis(50);

/// How far a branch has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begun {
    /// Nothing was sent.
    Not,
    /// Its begin was sent, and not answered positively: it may be another's name that it met.
    Asked,
    /// It has begun, and nothing was sent that could do more than read or write rows.
    Plain,
    /// It has its marker.
    Marked,
}

/// A session at work.
pub(super) struct Work {
    /// `None` once it was closed.
    pub(super) lease: Option<Lease>,
    pub(super) notes: Notes,
    pub(super) begun: Begun,
    id: BranchId,
    name: ParticipantName,
    sql: Arc<BranchSql>,
}

impl Work {
    pub(super) fn new(name: ParticipantName, id: BranchId, sql: Arc<BranchSql>, lease: Lease) -> Self {
        Self { lease: Some(lease), notes: Notes::default(), begun: Begun::Not, id, name, sql }
    }

    /// Begins with a round trip of its own.
    pub(super) async fn begin(&mut self) -> Result<(), Failure> {
        let Some(question) = self.beginning() else { return Ok(()) };
        let question = self.sql.mark(Some(question));
        let Some(lease) = &mut self.lease else { return Ok(()) };
        lease.ask(&question).await?;
        self.begun = Begun::Marked;
        Ok(())
    }

    /// What begins the branch, to be sent now.
    fn beginning(&mut self) -> Option<Question> {
        let lease = self.lease.as_mut()?;
        let (anew, seconds) = (lease.anew(), self.sql.lock_seconds());
        let is_set = anew.is_none() && lease.is_set(seconds);
        lease.set(seconds);
        self.begun = Begun::Asked;
        Some(self.sql.begin(anew, is_set))
    }

    /// The way of one call to the session, on which the branch has begun or begins with the call's text.
    pub(super) async fn enter(&mut self, call: &Call) -> Result<Entered<'_>, MyError> {
        let ready = self.ready_for(call).await;
        let Self { lease: Some(lease), notes, begun, id, name, .. } = self else {
            return Err(MyError::Driver(DriverError::ConnectionClosed));
        };
        let begin = match ready {
            Ok(begin) => begin,
            Err(error) => return notes.leave(call, Err(error)),
        };
        let (id, name, is_used) = (*id, *name, lease.is_used());
        Ok(Entered {
            way: Way {
                conn: lease.wire().conn(),
                begin: begin.map(|question| Begin { question, begun, id, name, is_used }),
            },
            notes,
        })
    }

    /// Sees to it that the branch has begun as this call needs it; what is to be sent in front of its text, if something is.
    async fn ready_for(&mut self, call: &Call) -> Result<Option<Question>, MyError> {
        match self.begun {
            Begun::Not if call.rides() => return Ok(self.beginning()),
            Begun::Not => {
                let begun = Box::pin(self.begin()).await;
                begun.map_err(|failure| self.not_begun(failure))?;
            }
            Begun::Plain if call.does_more() => {
                let mark = self.sql.mark(None);
                if let Some(lease) = &mut self.lease {
                    Box::pin(lease.ask(&mark)).await.map_err(Failure::into_error)?;
                    self.begun = Begun::Marked;
                }
            }
            Begun::Asked | Begun::Plain | Begun::Marked => {}
        }
        Ok(None)
    }

    /// What is open now that the branch is to end.
    pub(super) fn open(&mut self) -> Open {
        match self.begun {
            Begun::Not => self.beginning().map_or(Open::Unmarked, Open::Never),
            Begun::Asked | Begun::Plain => Open::Unmarked,
            Begun::Marked => Open::Marked,
        }
    }

    /// Why the branch did not begin.
    fn not_begun(&self, failure: Failure) -> MyError {
        let is_used = self.lease.as_ref().is_some_and(Lease::is_used);
        MyError::Other(not_begun(self.name, &self.id, is_used, failure).into())
    }
}

/// The session, for one call.
pub(super) struct Entered<'a> {
    pub(super) way: Way<'a>,
    pub(super) notes: &'a mut Notes,
}

/// The connection, for one call.
pub(super) struct Way<'a> {
    pub(super) conn: &'a mut Conn,
    /// What goes in front of the call's text.
    begin: Option<Begin<'a>>,
}

struct Begin<'a> {
    question: Question,
    begun: &'a mut Begun,
    id: BranchId,
    name: ParticipantName,
    is_used: bool,
}

impl<'a> Way<'a> {
    /// Sends a text, behind the begin where that has not been sent: the answer to the text, not yet read.
    pub(super) async fn query(self, text: impl AsQuery + 'a) -> Result<Answers<'a>, MyError> {
        let Some(Begin { question, begun, id, name, is_used }) = self.begin else {
            return self.conn.query_iter(text).await;
        };
        match ask_before(self.conn, &question, &text.as_query()).await {
            Ok(answer) => {
                *begun = Begun::Plain;
                answer
            }
            Err(failure) => Err(MyError::Other(not_begun(name, &id, is_used, failure).into())),
        }
    }
}

/// Why a branch did not begin, on a session that was used before or a new one.
pub(super) fn not_begun(name: ParticipantName, id: &BranchId, is_used: bool, failure: Failure) -> Error {
    match failure {
        Failure::Refused(Step::Start, error) if error.code == XA_DUPLICATE => {
            // Never adopted (D48): it is the work of somebody else.
            let message = format!("a branch {id} is there already, and it is not this program's work");
            Error::new(ErrorKind::Refused, message).at(name).because(MyError::Server(error))
        }
        failure => {
            let is_lost = match &failure {
                Failure::Refused(_, error) | Failure::Doubted(_, error) => error::ends_session(error.code),
                Failure::Broken(_) | Failure::Misunderstood => true,
            };
            let error = explain(name, "cannot begin a branch", failure.into_error());
            if !(is_lost && is_used) {
                return error;
            }
            // No more than this can have been sent, and what was done of it went with the session.
            let message =
                "a session was lost when it was used again, before any work was answered: run the transaction again";
            Error::new(ErrorKind::Retry, message).at(name).because(error)
        }
    }
}
