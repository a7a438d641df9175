//! What it is called that a branch was never begun, by what it was asked for.

use crate::protocol::{Finish, Vote};

/// What the ends of a question are called: of what was asked to prepare, to commit, to roll back.
pub(super) struct Ends<T> {
    /// It is rolled back.
    pub(super) gone: T,
    /// The application has ended it by itself.
    pub(super) lost: T,
    pub(super) unknown: T,
}

pub(super) const VOTES: Ends<Vote> = Ends { gone: Vote::No, lost: Vote::Lost, unknown: Vote::Unknown };
pub(super) const COMMITS: Ends<Finish> =
    Ends { gone: Finish::RolledBack, lost: Finish::Lost, unknown: Finish::Unknown };
pub(super) const ROLLBACKS: Ends<Finish> = Ends { gone: Finish::Done, lost: Finish::Unknown, unknown: Finish::Unknown };
