//! The answer to a begin that the application's first statement follows at once, in the same flight.
//!
//! The task that drives the connection takes it in, so that it holds up no other answer. Nobody else waits for it: where
//! the guard has passed, the begin has succeeded. Where something failed, whether the begin did is asked here; a session
//! answers in order, so its answer has come by then.

use super::error::PgError;
use futures_util::stream::Stream;
use futures_util::task::noop_waker_ref;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use tokio_postgres::SimpleQueryStream;

/// What is known of the begin.
#[derive(Default)]
enum Answer {
    /// None was sent, or it has succeeded.
    #[default]
    Good,
    Awaited(Pin<Box<SimpleQueryStream>>),
    Failed(PgError),
}

impl Answer {
    /// Takes in what has come; whether it is all.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Self::Awaited(answer) = self {
            match ready!(answer.as_mut().poll_next(cx)) {
                Some(Ok(_)) => {}
                Some(Err(error)) => *self = Self::Failed(error),
                None => *self = Self::Good,
            }
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

    /// The answer to a begin that has just been sent.
    pub(super) fn expect(&self, answer: SimpleQueryStream) {
        *self.place() = Answer::Awaited(Box::pin(answer));
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
