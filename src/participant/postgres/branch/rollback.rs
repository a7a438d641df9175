//! Rolling back, whatever the application left the session at.

use super::super::ends::ROLLBACKS;
use super::super::error::{is_guard, is_of, is_refusal};
use super::super::sql::{END, LOST, Marker, ROLLBACK, Sql};
use super::{Guard, PostgresTransaction, State, Trace};
use crate::participant::Answer;
use crate::protocol::{Finish, Mode};
use futures_util::future::join;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

/// How long a rollback waits for the statement before it.
const GRACE: Duration = Duration::from_millis(200);

impl PostgresTransaction {
    pub(super) async fn do_roll_back(&mut self) -> Answer<Finish> {
        match (self.state, self.client()) {
            (State::RolledBack, _) => Answer::good(Finish::Done),
            (State::Open, Some(client)) => self.roll_back_open(client).await,
            (State::Asked | State::Prepared, Some(client)) => self.roll_back_prepared(client).await,
            _ => self.out_of_order(Finish::Unknown, "roll_back"),
        }
    }

    /// Rolls back what was never asked to prepare, with the guard in front: the application may have committed it.
    async fn roll_back_open(&mut self, client: Arc<Client>) -> Answer<Finish> {
        if !self.lent.revoke() {
            drop(client);
            return self.unused();
        }
        self.asked = Instant::now();
        let nonce = format!("{:016x}", self.nonce);
        let guard = Sql::guard(&self.id, &nonce, Mode::Writer);
        let ending = async { join(client.simple_query(&guard), client.simple_query(END)).await };
        let ((guarded, ended), was_cancelled) = self.hastened(ending).await;
        let refused = guarded.as_ref().err().is_none_or(is_refusal);
        if let (Err(_), Ok(_), Some(refused)) = (&guarded, &ended, self.why_not_begun()) {
            return self.never_begun(client, refused, ROLLBACKS).await;
        }
        drop(client);
        let guard = if guarded.is_ok() { Guard::Passed } else { Guard::Unheard };
        match (guarded, ended.map(|messages| Marker::of(&messages))) {
            (Err(error), _) if is_guard(&error, LOST, &nonce) => self.lost(Finish::Unknown, error),
            (Err(error), Ok(Marker::Ended | Marker::Gone)) => self.lost(Finish::Unknown, error),
            // An aborted transaction refuses the guard, too, and ends like any other.
            (_, Ok(_)) if refused => {
                if was_cancelled {
                    // The request may arrive late: not in the next user's statement.
                    self.leave();
                }
                self.release(State::RolledBack, guard);
                Answer::good(Finish::Done)
            }
            (Err(error), Ok(_)) | (_, Err(error)) => {
                self.leave();
                Answer::because(Finish::Unknown, self.explain("ROLLBACK was not answered positively", error))
            }
            (Ok(_), Ok(_)) => unreachable!("a guard without an error counts as passed"),
        }
    }

    /// Waits for the end of a rollback, and cancels what is in its way: a statement that the application gave up, but
    /// not the server. Whether it did.
    async fn hastened<T>(&self, ending: impl Future<Output = T>) -> (T, bool) {
        let mut ending = std::pin::pin!(ending);
        if let Ok(answer) = tokio::time::timeout(GRACE, &mut ending).await {
            return (answer, false);
        }
        if let Some(lease) = &self.lease {
            lease.cancel().await;
        }
        (ending.await, true)
    }

    /// The end of a branch of which nothing was sent: the session is as it was.
    fn unused(&mut self) -> Answer<Finish> {
        self.state = State::RolledBack;
        if let Some(lease) = self.lease.take() {
            let sure = lease.sure();
            lease.release(sure);
        }
        Answer::good(Finish::Done)
    }

    /// Rolls back what may be prepared. The ROLLBACK in front ends what the prepare may have left open.
    async fn roll_back_prepared(&mut self, client: Arc<Client>) -> Answer<Finish> {
        let statement = Sql::rollback_prepared(&self.id);
        self.asked = Instant::now();
        let (_, ended) = join(client.batch_execute(ROLLBACK), client.batch_execute(&statement)).await;
        let error = match ended {
            Ok(()) => {
                drop(client);
                // It was prepared: by a question whose guard has passed.
                self.release(State::RolledBack, Guard::Passed);
                return Answer::good(Finish::Done);
            }
            Err(error) => error,
        };
        // Never prepared, or ended by somebody else: by a rollback as was asked, unless there is a witness.
        // Having been prepared looks like having been committed, as far as the marker tells.
        let gone = is_of(&error, &SqlState::UNDEFINED_OBJECT)
            && matches!(self.prove_gone(&client).await, Ok(Trace::Nothing | Trace::Lost));
        drop(client);
        if gone {
            self.release(State::RolledBack, Guard::Unheard);
            return Answer::good(Finish::Done);
        }
        self.leave();
        Answer::because(Finish::Unknown, self.explain("ROLLBACK PREPARED was not answered positively", error))
    }
}
