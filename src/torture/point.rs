//! The points at which a process can be stopped, by name.

use std::fmt;
use std::str::FromStr;

/// Where a process can be stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Point {
    /// Around a request to a server.
    Request(Request, Moment),
    /// Between two steps of the program's own.
    Step(Step),
}

/// A request to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Request {
    /// Begins a branch.
    Begin,
    /// Phase one of a writer.
    Prepare,
    /// Phase one of a branch that is declared read-only.
    EndReadOnly,
    /// Both phases at once.
    CommitOnePhase,
    /// Phase two.
    Commit,
    /// Rolls a branch back on the session that it was begun on.
    RollBack,
    /// Takes or confirms the lease.
    Hold,
    /// Registers an opening.
    Register,
    /// Lists what is prepared.
    List,
    /// Finishes prepared branches from outside.
    Finish,
    /// Asks for the outcome of a branch by its fence.
    Fence,
    /// Ends the sessions of earlier openings.
    EndSessions,
    /// Reads the witnesses of earlier openings.
    ReadWitnesses,
    /// Deletes rows that nobody needs.
    Prune,
    /// The plain commit of an anchor, which decides for others.
    CommitAnchor,
    /// Writes an entry of an anchor.
    Keep,
    /// Deletes decisions of an anchor that are over.
    Clear,
}

/// When, as seen from this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Moment {
    /// Nothing was sent.
    Before,
    /// It is on its way; what the server has made of it is open.
    Sent,
    /// The answer is here, and nobody has heard of it.
    Answered,
}

/// A step of the program's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    /// The application has asked for the end of its transaction, and nobody has been asked anything yet.
    Ending,
    /// A record that is waited for is about to be queued.
    Append,
    /// A batch of the journal is written and not synced.
    Written,
    /// A batch is synced; nobody has been answered.
    Synced,
    /// The record's answer is here, and the coordinator has not heard of it.
    Appended,
    /// The outcome is certain, and the application has not heard of it.
    Answer,
    /// A record that nobody waits for is about to be noted.
    Note,
    /// The file of the next segment is there under its temporary name, at opening as at any other time.
    SegmentMade,
    /// The next segment has its name, and its directory is synced.
    SegmentPublished,
    /// The segment before it says that it is closed.
    SegmentClosed,
    /// A segment that begins with a snapshot counts, and the segments before it are still there.
    Compacted,
    /// The resolver knows what is to be done, and has sent nothing.
    Planned,
    /// The resolver has heard all answers of a round, and has written nothing down.
    Applied,
    /// An earlier opening is settled, and nothing says so yet.
    Settling,
}

impl Request {
    /// Each.
    pub const ALL: [Self; 17] = [
        Self::Begin,
        Self::Prepare,
        Self::EndReadOnly,
        Self::CommitOnePhase,
        Self::Commit,
        Self::RollBack,
        Self::Hold,
        Self::Register,
        Self::List,
        Self::Finish,
        Self::Fence,
        Self::EndSessions,
        Self::ReadWitnesses,
        Self::Prune,
        Self::CommitAnchor,
        Self::Keep,
        Self::Clear,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Begin => "begin",
            Self::Prepare => "prepare",
            Self::EndReadOnly => "end-read-only",
            Self::CommitOnePhase => "commit-one-phase",
            Self::Commit => "commit",
            Self::RollBack => "roll-back",
            Self::Hold => "hold",
            Self::Register => "register",
            Self::List => "list",
            Self::Finish => "finish",
            Self::Fence => "fence",
            Self::EndSessions => "end-sessions",
            Self::ReadWitnesses => "read-witnesses",
            Self::Prune => "prune",
            Self::CommitAnchor => "commit-anchor",
            Self::Keep => "keep",
            Self::Clear => "clear",
        }
    }
}

impl Moment {
    /// Each, in order.
    pub const ALL: [Self; 3] = [Self::Before, Self::Sent, Self::Answered];

    const fn name(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::Sent => "sent",
            Self::Answered => "answered",
        }
    }
}

impl Step {
    /// Each.
    pub const ALL: [Self; 14] = [
        Self::Ending,
        Self::Append,
        Self::Written,
        Self::Synced,
        Self::Appended,
        Self::Answer,
        Self::Note,
        Self::SegmentMade,
        Self::SegmentPublished,
        Self::SegmentClosed,
        Self::Compacted,
        Self::Planned,
        Self::Applied,
        Self::Settling,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Ending => "ending",
            Self::Append => "append",
            Self::Written => "written",
            Self::Synced => "synced",
            Self::Appended => "appended",
            Self::Answer => "answer",
            Self::Note => "note",
            Self::SegmentMade => "segment-made",
            Self::SegmentPublished => "segment-published",
            Self::SegmentClosed => "segment-closed",
            Self::Compacted => "compacted",
            Self::Planned => "planned",
            Self::Applied => "applied",
            Self::Settling => "settling",
        }
    }
}

impl Point {
    /// Every point.
    pub fn all() -> impl Iterator<Item = Self> {
        let requests = Request::ALL.into_iter().flat_map(|what| Moment::ALL.map(|when| Self::Request(what, when)));
        requests.chain(Step::ALL.map(Self::Step))
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(what, when) => write!(f, "{}.{}", what.name(), when.name()),
            Self::Step(step) => f.write_str(step.name()),
        }
    }
}

impl FromStr for Point {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::all().find(|point| point.to_string() == text).ok_or_else(|| format!("there is no point {text:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_read_back_and_are_of_one_point_each() {
        let names: BTreeSet<_> = Point::all().map(|point| point.to_string()).collect();
        assert_eq!(names.len(), Point::all().count());
        for point in Point::all() {
            assert_eq!(point.to_string().parse(), Ok(point));
        }
        assert!("commit.never".parse::<Point>().is_err());
    }
}
