//! What an application leaves in a session outside its transactions, and how the next one is spared it (D49).
//!
//! A reset of the connection undoes all of it, and the statements that the driver keeps prepared as well. So it is made
//! only where a text was seen that may have changed something, and behind the branch's end, where nobody waits for it:
//! nothing is prepared on the session then, so MariaDB has no branch to break by it (D02). What goes by the binary
//! protocol is not seen. It costs no reset: settings are restored, and locks released, in front of the next XA START.

use super::session::Connector;
use super::sql::{Question, Sql, Step};
use super::wire::{Wire, ask};
use crate::id::SessionName;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// What a branch's application may have left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Leaves {
    /// Nothing: every statement read or wrote rows.
    #[default]
    Nothing,
    /// Who knows: statements went by the binary protocol, whose texts the driver keeps to itself.
    Unseen,
    /// Something, by the words of a text.
    Something,
}

impl Leaves {
    /// By the words of a text that does no more than read or write rows: it may still set a variable or take a lock.
    pub(super) fn of_rows(text: &[u8]) -> Self {
        let lock = |words: &[u8]| words[0] == b'_' && words.eq_ignore_ascii_case(b"_LOCK");
        if text.contains(&b'@') || text.windows(5).any(lock) { Self::Something } else { Self::Nothing }
    }
}

/// The session's state as it was when it was new.
#[derive(Debug, Clone)]
pub(super) struct Fresh {
    pub(super) name: SessionName,
    /// The statement that makes its settings what they were.
    pub(super) restoring: String,
}

impl Fresh {
    /// What makes a session fresh again, as far as statements can.
    pub(super) fn question(&self) -> Question {
        Sql::rename_session(&self.name).then(Step::Setting, [&self.restoring])
    }
}

/// A connection that is being reset. Dropped, it is closed.
pub(super) struct Cleaning(JoinHandle<Option<Wire>>);

impl Cleaning {
    /// Begins to reset a connection; without a runtime it is closed.
    pub(super) fn start(mut wire: Wire, fresh: Fresh, connector: &Connector) -> Option<Self> {
        let Ok(runtime) = Handle::try_current() else {
            wire.sever();
            return None;
        };
        let limit = connector.timeout;
        Some(Self(runtime.spawn(async move {
            let work = async {
                let was_reset = wire.conn().reset().await.is_ok_and(|supported| supported);
                was_reset && ask(wire.conn(), &fresh.question()).await.is_ok()
            };
            let is_clean = tokio::time::timeout(limit, work).await.unwrap_or(false);
            if is_clean {
                return Some(wire);
            }
            wire.sever();
            None
        })))
    }

    /// The connection, once it is clean; `None` when that was not to be.
    ///
    /// # Cancel safety
    /// May be dropped and asked again.
    pub(super) async fn cleaned(&mut self) -> Option<Wire> {
        (&mut self.0).await.ok().flatten()
    }
}

impl Drop for Cleaning {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_may_leave_something() {
        for text in ["SELECT @x := 1", "SELECT get_lock('a', 1)", "INSERT INTO t SELECT RELEASE_LOCK('a')"] {
            assert_eq!(Leaves::of_rows(text.as_bytes()), Leaves::Something, "{text}");
        }
        for text in ["SELECT 1", "INSERT INTO t VALUES (1, 'x')", "SELECT * FROM t FOR UPDATE"] {
            assert_eq!(Leaves::of_rows(text.as_bytes()), Leaves::Nothing, "{text}");
        }
    }
}
