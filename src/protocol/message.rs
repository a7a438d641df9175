//! The whole vocabulary of the protocol: what a [`Coordinator`](super::Coordinator) is told, what it asks for, and
//! what is remembered.

use crate::id::{BranchId, Incarnation, Lineage, NodeName, ParticipantName, TransactionId};

/// How a branch takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// It may have written: it is prepared, or decides alone.
    Writer,
    /// Declared read-only: it holds no promise and ends in phase one with a checked commit.
    ReadOnly,
}

/// A branch as the coordinator and the decision record know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Branch {
    /// What the server knows it by.
    pub id: BranchId,
    /// Whose branch it is.
    pub participant: ParticipantName,
    /// The data that it belongs to.
    pub lineage: Lineage,
    /// How it takes part.
    pub mode: Mode,
}

/// When the caller of commit is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Acknowledge {
    /// After phase two: what was committed can be read everywhere.
    #[default]
    Applied,
    /// After the decision: it will be readable soon.
    Decided,
}

/// A branch's answer in phase one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Vote {
    /// It is prepared: durable, and able to commit or roll back whatever happens. VOTE_COMMIT in the textbooks.
    Prepared,
    /// A declared read-only branch whose checked commit succeeded.
    ReadOnly,
    /// It is not prepared and cannot commit. VOTE_ABORT in the textbooks.
    No,
    /// Somebody else ended its transaction (the application's own `COMMIT`, say): its work may be committed.
    Lost,
    /// No answer, or one that may be of another question. It may be prepared, now or later; never a yes.
    Unknown,
}

/// A branch's answer to the commit or rollback that was asked of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Finish {
    /// A positive answer: it is as was asked.
    Done,
    /// Only in answer to a plain commit, of one writer alone or of the anchor: certainly rolled back.
    RolledBack,
    /// Only in answer to a plain commit: somebody else ended its transaction, its work may be committed.
    Lost,
    /// Anything else, a lost connection first of all: it may have happened or not.
    Unknown,
}

/// What a coordinator is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Input {
    /// The application asked for commit.
    Commit,
    /// The application asked for rollback, dropped its handle, or the deadline passed.
    Abort,
    /// The answer to [`Output::Prepare`] or [`Output::EndReadOnly`].
    Voted(BranchId, Vote),
    /// The record of [`Output::Append`] is durable.
    Durable,
    /// The record's write or sync failed: it may survive or not.
    AppendFailed,
    /// The damage of an [`Output::Damage`] is durable; or its write failed, which makes no other answer.
    Remembered,
    /// The answer to [`Output::Commit`], [`Output::RollBack`], [`Output::CommitOnePhase`] or [`Output::CommitAnchor`].
    Finished(BranchId, Finish),
}

/// What a coordinator asks for, in the order in which it is to be started. Nothing that depends on an answer is
/// asked for before that answer has been heard: the shell has no order to keep by itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Output {
    /// Prove and prepare this branch. VOTE_REQUEST in the textbooks.
    Prepare(BranchId),
    /// End this declared read-only branch with a checked commit.
    EndReadOnly(BranchId),
    /// Let this one writer decide by its own commit.
    CommitOnePhase(BranchId),
    /// Commit this branch, the anchor, plainly, with a witness row inside that lists these branches: that row is the
    /// decision. Answered like [`CommitOnePhase`](Self::CommitOnePhase).
    CommitAnchor(BranchId, CommitRecord),
    /// Make this record durable, then say [`Input::Durable`] or [`Input::AppendFailed`].
    Append(Record),
    /// Make durable that somebody else ended this branch, as a [`Record::Damaged`], then say [`Input::Remembered`], even
    /// if that failed: the application has to hear of it either way.
    Damage(DamagedBranch),
    /// Commit this prepared branch. GLOBAL_COMMIT in the textbooks.
    Commit(BranchId),
    /// Roll this branch back, prepared or not. GLOBAL_ABORT in the textbooks.
    RollBack(BranchId),
    /// Close the branch's session and leave the branch to recovery.
    Leave(BranchId),
    /// Write this record when convenient: losing it costs work, not truth.
    Note(Record),
    /// Tell the application.
    Answer(Outcome),
}

/// How a transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// Durably committed, everywhere or soon.
    Committed,
    /// Certainly rolled back: nothing of it will ever be visible.
    RolledBack,
    /// Not known yet; it will be settled.
    InDoubt,
    /// A branch was ended against the decision, or the evidence contradicts it: a person is needed.
    Damaged,
}

impl Outcome {
    /// The outcome as a word for people and programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::RolledBack => "rolled_back",
            Self::InDoubt => "in_doubt",
            Self::Damaged => "damaged",
        }
    }
}

/// A fact that outlives the process. The journal's format gives each its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Record {
    /// This incarnation may have begun transactions.
    Incarnation(IncarnationRecord),
    /// The data that a participant's name stands for from now on.
    Participant(ParticipantRecord),
    /// The decision: this transaction commits.
    Commit(CommitRecord),
    /// Every branch of a decided transaction is known to be committed.
    Done(TransactionId),
    /// A transaction of one writer has committed, by that writer's own commit.
    OnePhase(TransactionId),
    /// Nothing of an earlier incarnation can move any more: what it left is known or will never be.
    Settled(Incarnation, Absence),
    /// The facts of this transaction contradict each other. Kept until a person has dealt with it.
    Damaged(DamageRecord),
    /// A person decided what the journal could not.
    Resolved(TransactionId, Resolution, Remark),
    /// A person has dealt with a damaged transaction: it is not reported any more.
    Forgotten(TransactionId, Remark),
    /// Records of this incarnation may have been lost: of its transactions, no record means nothing.
    Incomplete(Incarnation, Remark),
    /// Of an incarnation whose records were lost: a witness proves that this transaction committed.
    Witnessed(TransactionId),
    /// What this incarnation left on this participant is out of reach for good: its server was replaced or is gone.
    GivenUp(Incarnation, ParticipantName, Remark),
}

/// What a person decides where the journal cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resolution {
    /// Its branches are to be committed.
    Commit,
    /// Its branches are to be rolled back.
    RollBack,
}

/// Who did something by hand, and why: for the audit, nothing depends on it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Remark {
    /// When, in milliseconds since 1970 by this machine's clock.
    pub at_ms: u64,
    /// The machine's name.
    pub host: String,
    /// What the person gave as the reason.
    pub reason: String,
}

/// A transaction whose facts contradict each other.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DamageRecord {
    /// Which.
    pub transaction: TransactionId,
    /// The branches that show it, as they were when it was found.
    pub branches: Vec<DamagedBranch>,
    /// When it was found, in milliseconds since 1970 by this machine's clock: for people.
    pub found_at_ms: u64,
    /// The opening that found it. One that found it of its own transaction knows for certain that it never decided it,
    /// or has written the decision before.
    pub found_by: Incarnation,
}

/// A branch that contradicts the rest.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DamagedBranch {
    /// What the server knows it by.
    pub id: BranchId,
    /// The participant's name.
    pub participant: ParticipantName,
    /// What was found, and against what, in words.
    pub why: String,
}

/// What the absence of a record means, of a transaction whose incarnation is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Absence {
    /// Every branch that committed left a witness, and all of them were read: it was rolled back.
    RolledBack,
    /// A participant kept no witness: it was rolled back, or committed by one writer alone there, and nobody can tell.
    Unproven,
}

/// An opening of a bridge.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IncarnationRecord {
    /// The node name in its branch ids.
    pub node: NodeName,
    /// Its 64 random bits.
    pub incarnation: Incarnation,
    /// When, in milliseconds since 1970 by this machine's clock: for people, nothing depends on it.
    pub opened_at_ms: u64,
    /// Its participants; a branch id's participant number is the index here.
    pub participants: Vec<ParticipantName>,
}

/// A participant as the journal knows it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ParticipantRecord {
    /// Its configured name.
    pub name: ParticipantName,
    /// The identity of its data.
    pub lineage: Lineage,
    /// Why it replaced another, if it did.
    pub reason: String,
}

/// A decision, naming every branch exactly.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CommitRecord {
    /// The transaction that commits.
    pub transaction: TransactionId,
    /// Its prepared branches.
    pub branches: Vec<DecidedBranch>,
    /// What the application wants to be kept with the decision: the latest committed one of each key is.
    pub payload: Option<Payload>,
}

/// A branch in a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DecidedBranch {
    /// What the server knows it by.
    pub id: BranchId,
    /// The participant's name.
    pub participant: ParticipantName,
    /// The data that it belongs to: it is looked for nowhere else.
    pub lineage: Lineage,
}

/// Bytes kept with a decision.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Payload {
    /// At most 255 bytes.
    pub key: Vec<u8>,
    /// At most 5 MiB.
    pub bytes: Vec<u8>,
}
