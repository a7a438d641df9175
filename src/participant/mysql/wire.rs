//! A connection, and questions whose every answer is proven to be one.

use super::error::MyError;
use super::sql::{Question, Step};
use crate::torture::{self, Safeguard};
use futures_util::FutureExt;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row, ServerError};

/// A connection that is closed at once when it is severed. Dropped, it says good-bye first.
pub(super) struct Wire(Option<Conn>);

impl Wire {
    pub(super) fn new(conn: Conn) -> Self {
        Self(Some(conn))
    }

    pub(super) fn conn(&mut self) -> &mut Conn {
        self.0.as_mut().expect("only sever takes it, and it takes the wire with it")
    }

    /// Whether a call on it was dropped half way, or the connection is lost: what comes next would be the answer to
    /// another question.
    pub(super) fn is_broken(&self) -> bool {
        self.0.as_ref().is_none_or(Conn::is_disconnected) && torture::is_on(Safeguard::Torn)
    }

    /// Closes the socket, now: answers that nobody read, or a statement that runs, are not waited for.
    ///
    /// The driver closes a dropped connection by reading what is pending and saying good-bye. It does neither for one
    /// whose call was dropped half way, and every call marks the connection so at its first poll.
    pub(super) fn sever(mut self) {
        if let Some(mut conn) = self.0.take() {
            let _ = conn.ping().now_or_never();
            drop(conn);
        }
    }
}

/// Why a question has no good answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server refused this step and did nothing of those behind it.
    Refused(Step, ServerError),
    /// The connection failed: any of it may have been done, or may yet be.
    Broken(MyError),
    /// What came is not the answer to what was asked.
    Misunderstood,
}

impl Failure {
    fn at(step: Step, error: MyError) -> Self {
        match error {
            // The refusal of the first statement carries no nonce: it may be the answer to another question.
            MyError::Server(_) if step == Step::Nonce => Self::Broken(error),
            MyError::Server(server) => Self::Refused(step, server),
            other => Self::Broken(other),
        }
    }

    pub(super) fn into_error(self) -> MyError {
        match self {
            Self::Refused(_, server) => MyError::Server(server),
            Self::Broken(error) => error,
            Self::Misunderstood => MyError::Other("the server's answer is not one to what was asked".into()),
        }
    }
}

/// Sends a question and reads exactly one answer for each of its statements.
///
/// # Cancel safety
/// Dropped, it leaves the connection [broken](Wire::is_broken).
pub(super) async fn ask(conn: &mut Conn, question: &Question) -> Result<(), Failure> {
    let (first, _) = question.steps.first().expect("a question has the step that it is there for");
    let mut answers = conn.query_iter(question.text()).await.map_err(|error| Failure::at(*first, error))?;
    for (step, _) in &question.steps {
        // A step that was refused announces no columns either, and `collect` then has the refusal.
        let announced = answers.columns().is_some();
        let rows = answers.collect::<Row>().await.map_err(|error| Failure::at(*step, error))?;
        if !announced || (*step == Step::Nonce && !shows(&rows, question.nonce.as_deref())) {
            return Err(Failure::Misunderstood);
        }
    }
    if answers.columns().is_some() { Err(Failure::Misunderstood) } else { Ok(()) }
}

fn shows(rows: &[Row], nonce: Option<&str>) -> bool {
    if !torture::is_on(Safeguard::Nonce) {
        return true;
    }
    let found = rows.first().and_then(|row| row.get_opt::<String, _>(0)?.ok());
    rows.len() == 1 && found.is_some() && found.as_deref() == nonce
}
