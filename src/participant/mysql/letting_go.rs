//! Sessions that end, and when they have let go of what they held.
//!
//! MariaDB: an ending session first lets its branch go in the server, then frees its named locks, then lets the branch
//! go in InnoDB. An XA COMMIT or XA ROLLBACK that comes in between is answered *OK* and does nothing: the branch is on
//! no list then, and keeps its locks until the server restarts (seen on 10.11.19). So the name is waited for, and then
//! a little longer, since nothing that an ordinary account may see tells of the last step.
//!
//! Whoever has the name for longer is not about to end, and is waited for once: it holds one branch at most, of which
//! the server says *unknown*; the others of that name are of earlier sessions, which had let go before it got the name.
//! A name of another incarnation that was free once is free for ever.

use super::control::Control;
use super::error::MyError;
use super::session::Product;
use super::sql::Sql;
use crate::id::{Incarnation, SessionName};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long a session is given to end. Some waits count in whole seconds, as both servers do.
pub(super) const AWAIT_END: Duration = Duration::from_secs(1);

/// How often it is looked for meanwhile.
const LOOK: Duration = Duration::from_millis(20);

/// How long a session takes to let go of its branch after its name is free: microseconds, unless the server's threads
/// wait for a processor.
pub(super) const LET_GO: Duration = Duration::from_millis(50);

/// A session's name, or with no slot all of an incarnation under a number.
pub(super) type Name = (Incarnation, u16, Option<u32>);

pub(super) fn name(session: SessionName) -> Name {
    (session.incarnation, session.participant, Some(session.slot))
}

/// Names of dead sessions that have let go of all they held. What is forgotten is waited for once more.
#[derive(Debug, Default)]
pub(super) struct Freed(Mutex<BTreeSet<Name>>);

impl Freed {
    /// How many are remembered.
    const MOST: usize = 10_000;

    fn contains(&self, (incarnation, participant, slot): Name) -> bool {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        [None, slot].into_iter().any(|slot| names.contains(&(incarnation, participant, slot)))
    }

    fn extend(&self, more: impl Iterator<Item = Name>) {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() >= Self::MOST {
            names.clear();
        }
        names.extend(more.take(Self::MOST));
    }
}

/// The connections that were waited for in vain, by name. For one call: connection ids begin anew with the server.
#[derive(Debug, Default)]
pub(super) struct Staying(Mutex<BTreeMap<SessionName, u64>>);

impl Staying {
    fn is(&self, session: SessionName, holder: u64) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&session) == Some(&holder)
    }

    fn extend(&self, more: BTreeMap<SessionName, u64>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(more);
    }
}

impl Control {
    /// Whether a living session of that name may hold a branch that is listed, or be about to let it go.
    pub(super) fn may_hold(&self, session: SessionName) -> bool {
        self.product() == Product::MariaDb && !self.freed.contains(name(session))
    }

    /// Waits until those sessions have let go that are about to end, all at once.
    pub(super) async fn let_go(
        &self,
        conn: &mut Conn,
        sessions: &BTreeSet<SessionName>,
        staying: &Staying,
    ) -> Result<(), MyError> {
        // What is asked for behind it has to fit into the same time limit.
        let until = Instant::now() + AWAIT_END.min(self.limit() / 4);
        let mut unknown: BTreeSet<_> = sessions.iter().copied().filter(|one| self.may_hold(*one)).collect();
        let mut free = BTreeSet::new();
        while !unknown.is_empty() {
            let holders = holders(conn, &unknown).await?;
            free.extend(unknown.iter().filter(|one| !holders.contains_key(one)).copied());
            let held: BTreeMap<_, _> =
                holders.into_iter().filter(|(session, holder)| !staying.is(*session, *holder)).collect();
            if Instant::now() >= until {
                staying.extend(held);
                break;
            }
            unknown = held.into_keys().collect();
            if !unknown.is_empty() {
                tokio::time::sleep(LOOK).await;
            }
        }
        self.remember_free(free.into_iter().map(name)).await;
        Ok(())
    }

    /// After these names were seen free: waits until their sessions have let go, and remembers those that nobody will go
    /// by again, which are other incarnations'.
    pub(super) async fn remember_free(&self, names: impl Iterator<Item = Name>) {
        let fresh: Vec<Name> = names.filter(|name| !self.freed.contains(*name)).collect();
        if fresh.is_empty() || self.product() == Product::MySql {
            return;
        }
        tokio::time::sleep(LET_GO).await;
        if let Some(ours) = self.claimed() {
            self.freed.extend(fresh.into_iter().filter(|(incarnation, ..)| *incarnation != ours.incarnation));
        }
    }
}

/// The connections that go by these names.
async fn holders(conn: &mut Conn, sessions: &BTreeSet<SessionName>) -> Result<BTreeMap<SessionName, u64>, MyError> {
    let row = conn.query_first::<Row, _>(Sql::session_holders(sessions.iter())).await?;
    let missing = || MyError::Other("IS_USED_LOCK gave no answer".into());
    let row = row.ok_or_else(missing)?;
    let mut holders = BTreeMap::new();
    for (place, session) in sessions.iter().enumerate() {
        let holder = row.get_opt::<Option<u64>, _>(place).and_then(Result::ok).ok_or_else(missing)?;
        holder.map(|holder| holders.insert(*session, holder));
    }
    Ok(holders)
}
