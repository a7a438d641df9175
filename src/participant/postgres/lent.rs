//! What an application is lent of a session, and how it is taken back.

use super::unheard::Unheard;
use crate::error::{Error, ErrorKind, Result};
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_postgres::Client;

/// What an application is lent of a branch: the driver's client, for as long as it borrows the transaction.
///
/// Everything that works on a shared [`tokio_postgres::Client`] works here. Its `transaction()` is out of reach: a
/// branch has one transaction, which ends with all others of its global transaction.
pub struct PostgresBranch<'a> {
    client: Arc<Client>,
    transaction: PhantomData<&'a ()>,
}

impl PostgresBranch<'_> {
    /// Lends a client out for a lifetime of the caller's choice: that of the transaction.
    pub(crate) fn new(client: Arc<Client>) -> Self {
        Self { client, transaction: PhantomData }
    }
}

impl Deref for PostgresBranch<'_> {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// A branch's [handle](crate::participant::Branch::handle): the way to its client until the branch ends.
///
/// The branch revokes it *before* it gives its session back, so a handle that somebody keeps, or uses at the very
/// moment of a deadline, never reaches another transaction. A client that was lent out before and is still held makes
/// the branch close its session instead.
pub struct Lent {
    client: Mutex<Option<Arc<Client>>>,
    unheard: Arc<Unheard>,
}

impl Lent {
    pub(super) fn new(client: Arc<Client>, unheard: Arc<Unheard>) -> Arc<Self> {
        Arc::new(Self { client: Mutex::new(Some(client)), unheard })
    }

    fn place(&self) -> MutexGuard<'_, Option<Arc<Client>>> {
        // What is done under the lock cannot panic.
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn revoke(&self) {
        self.place().take();
    }

    /// Whether the branch's begin, which was not waited for, is known to have failed: all that was sent in it has then, too,
    /// or only read.
    pub(crate) fn was_never_begun(&self) -> bool {
        // Revoked, it may be another branch's.
        self.place().is_some() && self.unheard.has_failed()
    }

    /// The client.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] once the branch has ended.
    pub(crate) fn client(&self) -> Result<Arc<Client>> {
        self.place().clone().ok_or_else(|| Error::new(ErrorKind::Closed, "the branch has ended"))
    }

    /// Lends the client out.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] once the branch has ended.
    pub fn borrow(&self) -> Result<PostgresBranch<'_>> {
        self.client().map(PostgresBranch::new)
    }
}
