//! The cases: a statement, what becomes of it, on which side, and what comes next.

use integration_tests::proxy::{On, Rule};
use integration_tests::world::{LEDGER, ORDERS, other_than};
use std::fmt;

/// What is sent when the network fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Statement {
    /// Begins a branch.
    Begin,
    /// The application's own.
    Work,
    /// Phase one.
    Prepare,
    /// Phase two.
    Commit,
    /// Rolls a branch back that is not prepared.
    RollBack,
    /// Rolls a prepared one back.
    RollBackPrepared,
    /// Both phases at once, of the only writer.
    OnePhase,
    /// Ends a branch that was declared read-only.
    EndReadOnly,
    /// Commits the branch that decides for all.
    Decide,
    /// Confirms the lease while a transaction is under way.
    ConfirmLease,
    /// Asks for the outcome of a single writer's commit whose answer was lost.
    FenceInDoubt,
    /// Takes the lease, at opening.
    TakeLease,
    /// Goes to work under it.
    GoToWork,
    /// Registers the opening.
    Register,
    /// Reads the registry.
    Registry,
    /// Lists what is prepared.
    List,
    /// Commits a branch that an earlier opening has left.
    Finish,
    /// Rolls one back.
    FinishBack,
    /// Reads the witness of one.
    Look,
    /// Asks for one by its fence.
    Fence,
    /// Ends the sessions of earlier openings.
    EndSessions,
    /// Reads the witnesses that earlier openings have left.
    Witnesses,
    /// Reads an anchor's entries.
    Entries,
    /// Writes the first of an opening's.
    WriteEntry,
    /// Asks an anchor who is at work.
    Held,
    /// Reads the decisions that earlier openings have left on an anchor.
    Decisions,
}

impl Statement {
    const ALL: [Self; 26] = [
        Self::Begin,
        Self::Work,
        Self::Prepare,
        Self::Commit,
        Self::RollBack,
        Self::RollBackPrepared,
        Self::OnePhase,
        Self::EndReadOnly,
        Self::Decide,
        Self::ConfirmLease,
        Self::FenceInDoubt,
        Self::TakeLease,
        Self::GoToWork,
        Self::Register,
        Self::Registry,
        Self::List,
        Self::Finish,
        Self::FinishBack,
        Self::Look,
        Self::Fence,
        Self::EndSessions,
        Self::Witnesses,
        Self::Entries,
        Self::WriteEntry,
        Self::Held,
        Self::Decisions,
    ];

    /// What it is tried with.
    fn decided(self) -> &'static [Decides] {
        use Decides::{Here, Journal, There};
        match self {
            Self::Decide | Self::Entries | Self::WriteEntry | Self::Held | Self::Decisions => &[Here],
            Self::FenceInDoubt | Self::Fence => &[Journal, Here],
            Self::Prepare | Self::Commit | Self::RollBackPrepared | Self::List | Self::Finish | Self::FinishBack => {
                &[Journal, There]
            }
            _ => &[Journal],
        }
    }

    /// With what it is tried on a side.
    fn on(self, side: &'static str) -> impl Iterator<Item = (&'static str, Decides)> {
        let decided = self.decided().iter().map(move |decides| (side, *decides));
        // There the witness is looked at first, and is found.
        decided.filter(move |(side, decides)| (self, *side, *decides) != (Self::Fence, ORDERS, Decides::Journal))
    }

    /// Whether it settles what an earlier opening has left.
    pub fn is_of_recovery(self) -> bool {
        self >= Self::TakeLease
    }

    /// Whether it is sent on one of the two connections by which a program is known to be at work: while its server has
    /// not noticed that the program is gone, nobody else gets in.
    pub fn keeps_others_out(self) -> bool {
        self >= Self::ConfirmLease
    }
}

/// What decides that a transaction commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Decides {
    Journal,
    /// The side whose network fails.
    Here,
    /// The other one.
    There,
}

/// When what was held is let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Release {
    /// As soon as the application was answered, or the next opening is on its way.
    Soon,
    /// When all is settled.
    Late,
    /// Never: it is swallowed, and no end of the connection is told to the other.
    Never,
}

/// What becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The connection is closed before it is delivered.
    Cut,
    /// It is delivered, and the connection is closed without an answer.
    CutAnswer,
    /// As `Cut`, by a reset.
    Reset,
    /// As `CutAnswer`, by a reset.
    ResetAnswer,
    /// A part of the answer comes.
    Truncate,
    /// It is held.
    Hold(Release),
    /// It is delivered, its answer is held.
    HoldAnswer(Release),
}

impl Fault {
    const ALL: [Self; 11] = [
        Self::Cut,
        Self::CutAnswer,
        Self::Reset,
        Self::ResetAnswer,
        Self::Truncate,
        Self::Hold(Release::Soon),
        Self::Hold(Release::Late),
        Self::Hold(Release::Never),
        Self::HoldAnswer(Release::Soon),
        Self::HoldAnswer(Release::Late),
        Self::HoldAnswer(Release::Never),
    ];

    /// Arms it.
    pub fn arm(self, on: On) -> Rule {
        match self {
            Self::Cut => on.cut(),
            Self::CutAnswer => on.cut_answer(),
            Self::Reset => on.reset(),
            Self::ResetAnswer => on.reset_answer(),
            // Less than the shortest answer of either protocol.
            Self::Truncate => on.truncate_answer(4),
            Self::Hold(_) => on.hold(),
            Self::HoldAnswer(_) => on.hold_answer(),
        }
    }

    /// When it is let go, if it holds something.
    pub fn release(self) -> Option<Release> {
        match self {
            Self::Hold(release) | Self::HoldAnswer(release) => Some(release),
            _ => None,
        }
    }
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Next {
    /// The same bridge goes on.
    Goes,
    /// The program is killed when the fault has happened, and the next one opens.
    Restarts,
    /// It is killed, and the tool's recovery settles.
    Recovers,
}

/// A case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Case {
    pub statement: Statement,
    pub fault: Fault,
    pub side: &'static str,
    pub next: Next,
    pub decides: Decides,
}

impl Case {
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for statement in Statement::ALL {
            for fault in Fault::ALL {
                for (side, decides) in [LEDGER, ORDERS].into_iter().flat_map(|side| statement.on(side)) {
                    let cases = [Next::Goes, Next::Restarts, Next::Recovers];
                    all.extend(cases.map(|next| Self { statement, fault, side, next, decides }));
                }
            }
        }
        all
    }

    /// The participant that decides, if one does.
    pub fn anchor(&self) -> Option<&'static str> {
        match self.decides {
            Decides::Journal => None,
            Decides::Here => Some(self.side),
            Decides::There => Some(other_than(self.side)),
        }
    }

    /// Of each of these an everyday run has some.
    pub fn stratum(&self) -> (Statement, Next, Decides) {
        (self.statement, self.next, self.decides)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { statement, fault, side, next, decides: _ } = self;
        let decides = self.anchor().map(|anchor| format!(", {anchor} decides")).unwrap_or_default();
        write!(f, "{statement:?} at {side}, {fault:?}, {next:?}{decides}")
    }
}
