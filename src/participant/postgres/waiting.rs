//! Who waits for prepared branches to end.
//!
//! `pg_blocking_pids` answers zero for a prepared transaction, without saying which. So the locks are compared one by one.
//! Those of a prepared transaction have no process; it holds the lock on its own xid, which has the virtual transaction
//! that all its locks have. The manual's `-1/` and the xid is that only after a restart (seen on 15.18).
//! <https://www.postgresql.org/docs/current/view-pg-locks.html>

use super::sql::Sql;
use super::{Postgres, sighted};
use crate::error::Result;
use crate::participant::Waiting;
use crate::participant::checkup;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::Client;

/// The lock modes, each with those that it conflicts with.
/// <https://www.postgresql.org/docs/current/explicit-locking.html>
const CONFLICTS: [(&str, &[&str]); 8] = [
    ("AccessShareLock", &["AccessExclusiveLock"]),
    ("RowShareLock", &["ExclusiveLock", "AccessExclusiveLock"]),
    ("RowExclusiveLock", &["ShareLock", "ShareRowExclusiveLock", "ExclusiveLock", "AccessExclusiveLock"]),
    (
        "ShareUpdateExclusiveLock",
        &["ShareUpdateExclusiveLock", "ShareLock", "ShareRowExclusiveLock", "ExclusiveLock", "AccessExclusiveLock"],
    ),
    (
        "ShareLock",
        &[
            "RowExclusiveLock",
            "ShareUpdateExclusiveLock",
            "ShareRowExclusiveLock",
            "ExclusiveLock",
            "AccessExclusiveLock",
        ],
    ),
    (
        "ShareRowExclusiveLock",
        &[
            "RowExclusiveLock",
            "ShareUpdateExclusiveLock",
            "ShareLock",
            "ShareRowExclusiveLock",
            "ExclusiveLock",
            "AccessExclusiveLock",
        ],
    ),
    (
        "ExclusiveLock",
        &[
            "RowShareLock",
            "RowExclusiveLock",
            "ShareUpdateExclusiveLock",
            "ShareLock",
            "ShareRowExclusiveLock",
            "ExclusiveLock",
            "AccessExclusiveLock",
        ],
    ),
    (
        "AccessExclusiveLock",
        &[
            "AccessShareLock",
            "RowShareLock",
            "RowExclusiveLock",
            "ShareUpdateExclusiveLock",
            "ShareLock",
            "ShareRowExclusiveLock",
            "ExclusiveLock",
            "AccessExclusiveLock",
        ],
    ),
];

/// Serializable transactions take locks of a mode that nobody waits for.
fn conflict(wanted: &str, held: &str) -> bool {
    CONFLICTS.iter().any(|(mode, others)| *mode == wanted && others.contains(&held))
}

/// A session that waits, and the sessions that it waits for.
struct Waiter {
    who: String,
    behind: Vec<i32>,
}

impl Postgres {
    pub(super) async fn do_waiting(&self) -> Result<Vec<Waiting>> {
        let look = |client: Arc<Client>| async move {
            // Nobody is behind a branch where none is.
            let held = client.query_typed(Sql::HELD_UP, &[]).await?;
            if held.is_empty() {
                return Ok((BTreeSet::new(), BTreeMap::new()));
            }
            let mut direct: BTreeSet<(Vec<u8>, i32)> = BTreeSet::new();
            for row in &held {
                if conflict(row.try_get(2)?, row.try_get(3)?) {
                    direct.insert((row.try_get(0)?, row.try_get(1)?));
                }
            }
            let mut waiters = BTreeMap::new();
            for row in client.query_typed(Sql::WAITERS, &[]).await? {
                let (user, address): (Option<&str>, Option<&str>) = (row.try_get(1)?, row.try_get(2)?);
                let (seconds, text): (Option<f64>, Option<&str>) = (row.try_get(3)?, row.try_get(4)?);
                let waiting = Duration::try_from_secs_f64(seconds.unwrap_or_default().max(0.0)).unwrap_or_default();
                let who = checkup::waits(user, address, waiting, text.unwrap_or_default());
                waiters.insert(row.try_get(0)?, Waiter { who, behind: row.try_get(5)? });
            }
            Ok((direct, waiters))
        };
        let (direct, waiters) = self.control.run("cannot ask who waits for prepared transactions", look).await?;
        Ok(with_followers(direct, &waiters)
            .into_iter()
            .filter_map(|(gid, pid)| Some(Waiting { branch: Some(sighted(&gid)), who: waiters.get(&pid)?.who.clone() }))
            .collect())
    }
}

/// Adds those who wait behind somebody who waits: a queue for one row shows the branch to its head alone.
fn with_followers(mut all: BTreeSet<(Vec<u8>, i32)>, waiters: &BTreeMap<i32, Waiter>) -> BTreeSet<(Vec<u8>, i32)> {
    loop {
        let more: Vec<_> = all
            .iter()
            .flat_map(|(gid, head)| {
                let behind = waiters.iter().filter(|(_, waiter)| waiter.behind.contains(head));
                behind.map(|(pid, _)| (gid.clone(), *pid))
            })
            .filter(|one| !all.contains(one))
            .collect();
        if more.is_empty() {
            return all;
        }
        all.extend(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflicts_are_mutual() {
        let modes = CONFLICTS.map(|(mode, _)| mode);
        for (mode, others) in CONFLICTS {
            assert!(others.iter().all(|other| modes.contains(other)), "{mode}");
            for other in modes {
                assert_eq!(conflict(mode, other), conflict(other, mode), "{mode} and {other}");
            }
        }
        assert!(!conflict("ShareLock", "SIReadLock") && !conflict("SIReadLock", "ExclusiveLock"));
    }

    #[test]
    fn a_queue_waits_as_a_whole() {
        let waiter = |behind: &[i32]| Waiter { who: String::new(), behind: behind.to_vec() };
        let waiters = [(1, waiter(&[0])), (2, waiter(&[1])), (3, waiter(&[2, 1])), (4, waiter(&[9]))].into();
        let direct = [(b"g".to_vec(), 1)].into();
        let pids: Vec<_> = with_followers(direct, &waiters).into_iter().map(|(_, pid)| pid).collect();
        assert_eq!(pids, [1, 2, 3]);
    }
}
