//! A connection, and questions whose every answer is proven to be one.

use super::error::MyError;
use super::sql::{Question, Step};
use crate::torture::{self, Safeguard};
use futures_util::FutureExt;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, QueryResult, Row, ServerError, TextProtocol};

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
    /// A refusal in front of what would have shown that it answers this question.
    Doubted(Step, ServerError),
    /// The connection failed: any of it may have been done, or may yet be.
    Broken(MyError),
    /// What came is not the answer to what was asked.
    Misunderstood,
}

impl Failure {
    fn at(question: &Question, place: usize, error: MyError) -> Self {
        let (step, _) = question.steps()[place];
        let is_doubted = question.steps()[place..].iter().any(|(_, shows)| shows.is_some());
        match error {
            // It may be the answer to another question, and there is nothing behind it to ask for.
            MyError::Server(_) if step == Step::Nonce => Self::Broken(error),
            MyError::Server(server) if is_doubted => Self::Doubted(step, server),
            MyError::Server(server) => Self::Refused(step, server),
            other => Self::Broken(other),
        }
    }

    pub(super) fn into_error(self) -> MyError {
        match self {
            Self::Refused(_, server) | Self::Doubted(_, server) => MyError::Server(server),
            Self::Broken(error) => error,
            Self::Misunderstood => MyError::Other("the server's answer is not one to what was asked".into()),
        }
    }
}

/// Answers to a text, in part unread.
pub(super) type Answers<'a> = QueryResult<'a, 'static, TextProtocol>;

/// Sends a question and reads exactly one answer for each of its statements.
///
/// # Cancel safety
/// Dropped, it leaves the connection [broken](Wire::is_broken).
pub(super) async fn ask(conn: &mut Conn, question: &Question) -> Result<(), Failure> {
    let answers = conn.query_iter(question.text()).await;
    let answers = read(question, answers.map_err(|error| Failure::at(question, 0, error))?).await?;
    if answers.columns().is_some() { Err(Failure::Misunderstood) } else { Ok(()) }
}

/// The same with a statement of the application's behind it, whose answer is left to be read.
///
/// # Cancel safety
/// As of [`ask`].
pub(super) async fn ask_before<'a>(
    conn: &'a mut Conn,
    question: &Question,
    statement: &[u8],
) -> Result<Result<Answers<'a>, MyError>, Failure> {
    let mut text = Vec::with_capacity(question.text().len() + 2 + statement.len());
    text.extend_from_slice(question.text().as_bytes());
    text.extend_from_slice(b"; ");
    text.extend_from_slice(statement);
    let answers = conn.query_iter(text).await;
    let mut answers = read(question, answers.map_err(|error| Failure::at(question, 0, error))?).await?;
    if answers.columns().is_some() {
        return Ok(Ok(answers));
    }
    // One that was refused announces no columns: as the first of a text it would have failed at once.
    match answers.collect::<Row>().await {
        Err(error) => Ok(Err(error)),
        Ok(_) => Err(Failure::Misunderstood),
    }
}

/// Reads the answers to a question; what comes behind them is left.
async fn read<'a>(question: &Question, mut answers: Answers<'a>) -> Result<Answers<'a>, Failure> {
    for (place, (_, shows)) in question.steps().iter().enumerate() {
        // A step that was refused announces no columns either, and `collect` then has the refusal.
        let announced = answers.columns().is_some();
        // Of this answer, before the next one is read with its last row.
        let id = answers.last_insert_id();
        let rows = answers.collect::<Row>().await.map_err(|error| Failure::at(question, place, error))?;
        let is_shown = shows.as_ref().is_none_or(|shows| shows.is_in(id, &rows)) || !torture::is_on(Safeguard::Nonce);
        if !announced || !is_shown {
            return Err(Failure::Misunderstood);
        }
    }
    Ok(answers)
}
