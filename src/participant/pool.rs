//! What the pools of the databases have in common.

use crate::error::{Error, ErrorKind, Result};
use crate::id::ParticipantName;
use deadpool::managed::{Manager, Object, Pool, PoolError};
use std::time::Duration;

/// Takes a session, waiting no longer than for a lock.
///
/// A session is one: two transactions that hold the last session of one pool each and want one of the other's wait for
/// each other, and no database sees it.
pub(super) async fn take<M>(name: ParticipantName, pool: &Pool<M>, wait: Duration) -> Result<Object<M>>
where
    M: Manager<Error = Error>,
{
    let Ok(taken) = tokio::time::timeout(wait, pool.get()).await else {
        let status = pool.status();
        let (kind, why) = if status.size >= status.max_size {
            (
                ErrorKind::Retry,
                format!("none of the pool's {} sessions was given back within {wait:?}", status.max_size),
            )
        } else {
            (ErrorKind::Unavailable, format!("no connection within {wait:?}"))
        };
        return Err(Error::new(kind, why).at(name));
    };
    taken.map_err(|error| match error {
        PoolError::Backend(error) => error,
        PoolError::Closed => Error::new(ErrorKind::Closed, "the participant is closed").at(name),
        other => Error::new(ErrorKind::Unavailable, "no session").at(name).because(other),
    })
}
