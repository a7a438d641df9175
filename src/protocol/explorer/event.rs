//! The steps of a world, and what it means that one was wrong.

use super::world::{State, World};
use crate::protocol::Resolution;

/// A step of the world. Indices are of transactions (`Begin`, `Ask` ..), sites (`Serve`, `Cut` ..) or participants
/// (`Scan`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Begin(usize),
    Commit(usize),
    /// The deadline, or the application's own rollback.
    Abort(usize),
    /// The server carries the request out.
    Serve(usize, Will),
    /// The answer arrives.
    Hear(usize),
    /// The session is lost.
    Cut(usize),
    /// A request of a lost session is carried out after all.
    Land(usize),
    /// It never will be: the server has noticed.
    Drop(usize),
    Sync(usize),
    SyncFails(usize),
    /// The damage that was found is on record, or its write fails.
    Remember(usize),
    RememberFails(usize),
    Crash,
    /// The process is back. The bits say which of the open records the disk has kept.
    Reopen(u8),
    /// The process is back, and some durable records are gone for good: so many bits as there are.
    ReopenWithLoss(u8),
    /// A person decides what no record does.
    Resolve(usize, Resolution),
    /// A person rolls a prepared branch back.
    Operator(usize),
    /// A person asks for the outcome by id.
    Ask(usize),
    Scan(usize),
    ScanFails(usize),
    Plan,
    Act(usize, Delivery),
    /// Somebody who asks for the outcome by id puts the fence question, and hears an answer or none.
    Fence(usize, Delivery),
    Conclude(usize),
    /// A server forgets the lease of a participant.
    LoseLease(usize),
    RegainLease(usize),
    CopyTakes(usize),
    /// The copy asks whether it is stale.
    CopyChecks,
    /// It rolls a branch back.
    CopyActs(usize),
    CopyEnds,
    /// An unanswered request of the resolver is carried out after all.
    LandStray(usize),
    DropStray(usize),
    /// A server starts anew, and a branch is prepared that had ended, or was hidden.
    Return(usize),
    /// A witness that is not needed any more is deleted.
    Prune(usize),
    /// A person closes a damaged transaction.
    Forget(usize),
}

/// What a branch is in the mood for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Will {
    Agrees,
    Refuses,
    /// The application has ended it by itself.
    Strayed,
}

/// What becomes of a request of the resolver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    Answered,
    Unanswered,
    Lost,
    /// Answered, and not carried out: the branch is hidden.
    Lied,
}

impl Event {
    /// What need not happen. All else happens sooner or later.
    pub fn is_fault(self, world: &World) -> bool {
        match self {
            Self::LoseLease(_)
            | Self::CopyTakes(_)
            | Self::CopyActs(_)
            | Self::ReopenWithLoss(_)
            | Self::Cut(_)
            | Self::SyncFails(_)
            | Self::RememberFails(_)
            | Self::Operator(_)
            | Self::ScanFails(_) => true,
            Self::Act(_, delivery) | Self::Fence(_, delivery) => delivery != Delivery::Answered,
            // What is hidden comes back some day.
            Self::Return(index) => world.sites[index].state != State::Hidden,
            Self::Serve(_, will) => will == Will::Strayed,
            Self::Crash => !world.poisoned,
            _ => false,
        }
    }
}

impl Event {
    /// What is no fault, and still no agreement.
    pub fn gives_up(self) -> bool {
        matches!(self, Self::Abort(_) | Self::Serve(_, Will::Refuses))
    }
}

/// An invariant that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// `I1` and so on, as the module's essay numbers them.
    pub invariant: &'static str,
    pub what: String,
}

pub fn broken<T>(invariant: &'static str, what: impl Into<String>) -> Result<T, Broken> {
    Err(Broken { invariant, what: what.into() })
}
