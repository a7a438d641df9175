//! What an application is lent of a session, and how it is taken back.

use super::error::PgError;
use super::ride::{Ride, Unbegun};
use super::sql::Begin;
use super::unheard::{Beginning, Unheard};
use crate::error::{Error, ErrorKind, Result};
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_postgres::{Client, SimpleQueryMessage};

/// What an application is lent of a branch: the driver's client, for as long as it borrows the transaction.
///
/// Everything that works on a shared [`tokio_postgres::Client`] works here. Its `transaction()` is out of reach: a
/// branch has one transaction, which ends with all others of its global transaction.
///
/// A branch begins with its first statement. If that is sent by one of the two methods here, the begin goes out in the
/// same text, which saves the server and the client a message; in front of all others it is a message of its own, in the
/// same flight. Nobody waits for it.
pub struct PostgresBranch<'a> {
    client: Arc<Client>,
    lent: Arc<Lent>,
    transaction: PhantomData<&'a ()>,
}

impl PostgresBranch<'_> {
    /// Lends a client out for a lifetime of the caller's choice: that of the transaction.
    pub(crate) fn new(lent: Arc<Lent>) -> Result<Self> {
        Ok(Self { client: lent.client()?, lent, transaction: PhantomData })
    }

    /// [`Client::batch_execute`].
    ///
    /// # Errors
    /// The driver's. In the very first text of a branch a [position](tokio_postgres::error::DbError::position) of an error
    /// that is not one of syntax counts from the begin in front of it.
    ///
    /// # Cancel safety
    /// The statements may be carried out if the future is dropped. The branch can go on or roll back.
    pub async fn batch_execute(&self, query: &str) -> Result<(), PgError> {
        match self.ride(query).await {
            Some(answer) => answer.map(drop),
            None => self.client.batch_execute(query).await,
        }
    }

    /// [`Client::simple_query`].
    ///
    /// # Errors
    /// As [`batch_execute`](Self::batch_execute).
    ///
    /// # Cancel safety
    /// As [`batch_execute`](Self::batch_execute).
    pub async fn simple_query(&self, query: &str) -> Result<Vec<SimpleQueryMessage>, PgError> {
        match self.ride(query).await {
            Some(answer) => answer,
            None => self.client.simple_query(query).await,
        }
    }

    /// The answer to a text that went out behind its branch's begin; `None` where it has to be sent by itself.
    async fn ride(&self, query: &str) -> Option<Result<Vec<SimpleQueryMessage>, PgError>> {
        match self.lent.ride(query)?.arrive().await {
            Ok(answer) => Some(answer),
            Err(unbegun) => {
                if let Unbegun::Again(begin) = unbegun {
                    self.lent.begin_by(begin);
                }
                None
            }
        }
    }
}

impl Deref for PostgresBranch<'_> {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.lent.begin();
        &self.client
    }
}

/// A branch's [handle](crate::participant::Branch::handle): the way to its client until the branch ends.
///
/// The branch revokes it *before* it gives its session back, so a handle that somebody keeps, or uses at the very
/// moment of a deadline, never reaches another transaction. A client that was lent out before and is still held makes
/// the branch close its session instead.
pub struct Lent {
    place: Mutex<Place>,
    unheard: Arc<Unheard>,
}

struct Place {
    /// `None` once the branch has ended.
    client: Option<Arc<Client>>,
    /// What was not sent yet.
    begin: Option<Begin>,
}

impl Lent {
    /// `begin` is what has to be sent in front of the first statement, if it was not sent.
    pub(super) fn new(client: Arc<Client>, unheard: Arc<Unheard>, begin: Option<Begin>) -> Arc<Self> {
        Arc::new(Self { place: Mutex::new(Place { client: Some(client), begin }), unheard })
    }

    fn place(&self) -> MutexGuard<'_, Place> {
        // What is done under the lock cannot panic.
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody gets at the client any more, and nothing is begun. Whether it was.
    pub(super) fn revoke(&self) -> bool {
        let mut place = self.place();
        place.client = None;
        place.begin.take().is_none()
    }

    /// Sends the begin, if it was not sent. What is sent next is behind it: it is queued when this returns.
    pub(super) fn begin(&self) {
        let mut place = self.place();
        if let Some(begin) = place.begin.take() {
            self.send(&place, &begin);
        }
    }

    fn begin_by(&self, begin: Begin) {
        self.send(&self.place(), &begin);
    }

    fn send(&self, place: &Place, begin: &Begin) {
        if let Some(client) = &place.client {
            self.unheard.expect(Beginning::send(client, &begin.0));
        }
    }

    /// Sends a text with the begin in front, if that was not sent.
    fn ride(&self, query: &str) -> Option<Ride> {
        // Until it is queued: a text of another task would get in front.
        let mut place = self.place();
        let begin = place.begin.take()?;
        match Beginning::send(place.client.as_ref()?, &begin.and(query)) {
            Ok(beginning) => Some(Ride::new(beginning, begin, self.unheard.clone())),
            // It is no text, or the connection is lost.
            Err(_) => {
                self.send(&place, &begin);
                None
            }
        }
    }

    /// Whether the branch's begin, which was not waited for, is known to have failed: all that was sent in it has then, too,
    /// or only read.
    pub(crate) fn was_never_begun(&self) -> bool {
        // Revoked, it may be another branch's.
        self.place().client.is_some() && self.unheard.has_failed()
    }

    /// The client.
    fn client(&self) -> Result<Arc<Client>> {
        self.place().client.clone().ok_or_else(|| Error::new(ErrorKind::Closed, "the branch has ended"))
    }

    /// Lends the client out.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] once the branch has ended.
    pub fn borrow(self: &Arc<Self>) -> Result<PostgresBranch<'_>> {
        PostgresBranch::new(self.clone())
    }
}
