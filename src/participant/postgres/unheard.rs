//! The answer to a begin that goes out with the application's first statement, in the same text or right in front of it.
//!
//! Nobody waits for it: where the guard has passed, the begin has succeeded. Where something failed, whether the begin did
//! is asked here; a session answers in order, so its answer has come by then. In the same text whoever reads the answer
//! to the statement reads it; else the task that drives the connection takes it in, so that it holds up no other answer.

use super::error::PgError;
use super::sql::Begin;
use futures_util::FutureExt;
use futures_util::stream::Stream;
use futures_util::task::noop_waker_ref;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use tokio_postgres::{Client, SimpleQueryMessage, SimpleQueryStream};

/// The answer to a text that a begin stands in front of.
pub(super) struct Beginning {
    answer: Pin<Box<SimpleQueryStream>>,
    /// Statements of the begin that were not answered yet.
    left: usize,
}

impl Beginning {
    /// Sends such a text. It is on its way when this returns.
    pub(super) fn send(client: &Client, text: &str) -> Result<Self, PgError> {
        let sent = client.simple_query_raw(text).now_or_never();
        let answer = sent.expect("the driver queues a text without waiting for anything")?;
        Ok(Self { answer: Box::pin(answer), left: Begin::STATEMENTS })
    }

    /// Whether the begin has succeeded.
    pub(super) fn poll_begun(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), PgError>> {
        while self.left > 0 {
            match ready!(self.answer.as_mut().poll_next(cx)) {
                Some(Ok(SimpleQueryMessage::CommandComplete(_))) => self.left -= 1,
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(Err(error)),
                // Fewer answers than there were statements: the guard has the last word.
                None => self.left = 0,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Whether not even the first of its statements has been carried out, and so nothing of the text.
    pub(super) fn has_not_started(&self) -> bool {
        self.left == Begin::STATEMENTS
    }

    /// What is answered to the text behind it.
    pub(super) fn rest(&mut self) -> &mut Pin<Box<SimpleQueryStream>> {
        &mut self.answer
    }
}

/// What is known of the begin.
#[derive(Default)]
enum Answer {
    /// None was sent, or it has succeeded.
    #[default]
    Good,
    Awaited(Beginning),
    Failed(PgError),
}

impl Answer {
    /// Takes in what has come; whether it is all.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Self::Awaited(beginning) = self {
            *self = match ready!(beginning.poll_begun(cx)) {
                Ok(()) => Self::Good,
                Err(error) => Self::Failed(error),
            };
        }
        Poll::Ready(())
    }
}

/// A session's place for that answer.
#[derive(Default)]
pub(super) struct Unheard(Mutex<Answer>);

impl Unheard {
    fn place(&self) -> MutexGuard<'_, Answer> {
        // What is done under the lock cannot panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer to a begin that has been sent, or that it could not be.
    pub(super) fn expect(&self, answer: Result<Beginning, PgError>) {
        *self.place() = match answer {
            Ok(beginning) => Answer::Awaited(beginning),
            Err(error) => Answer::Failed(error),
        };
    }

    /// Takes in what has come of it.
    pub(super) fn take_in(&self, cx: &mut Context<'_>) {
        let _ = self.place().poll(cx);
    }

    /// What is known by now. Where something behind the begin was answered, or its connection is lost, that is all.
    fn by_now(&self) -> MutexGuard<'_, Answer> {
        let mut place = self.place();
        // Where it is not, the task of the connection looks again when it has something to do, and nobody waits for it
        // until then.
        let _ = place.poll(&mut Context::from_waker(noop_waker_ref()));
        place
    }

    /// Whether the begin is known to have failed.
    pub(super) fn has_failed(&self) -> bool {
        matches!(*self.by_now(), Answer::Failed(_))
    }

    /// Why the begin has failed, if it has.
    pub(super) fn failed(&self) -> Option<PgError> {
        match std::mem::take(&mut *self.by_now()) {
            Answer::Failed(error) => Some(error),
            Answer::Good | Answer::Awaited(_) => None,
        }
    }
}
