//! What is explored: the transactions, and which faults may come.

use super::bugs::Bug;
use crate::id::{BranchId, Incarnation, Lineage, NodeName, ParticipantName, TransactionId};
use crate::protocol::{Acknowledge, Branch, Coordinator, Mode, Payload};
use std::sync::LazyLock;

/// So many transactions there may be, participants, and branches.
pub const DEALS: usize = 3;
pub const PLACES: usize = 3;
pub const SITES: usize = 6;

/// What is explored: the transactions, and which faults may come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// By transaction, then by participant; `None` where a transaction has no branch.
    pub modes: Vec<Vec<Option<Mode>>>,
    /// How often the process may die, besides the reopening of a failed journal.
    pub crashes: u8,
    /// How many faults there may be in all, where that is bounded.
    pub faults: Option<u8>,
    /// Whether the participants keep witnesses.
    pub witness: bool,
    /// What an earlier process has left of the first transaction; `None`: nothing, it is yet to begin.
    pub remains: Option<Remains>,
    /// Whether a request of the resolver that had no answer may be carried out later.
    pub ghosts: bool,
    /// Whether a prepared branch can be ended by its own session alone, as long as that lives (MariaDB).
    pub pinned: bool,
    /// Whether the application may end a branch by itself.
    pub strays: bool,
    /// How many prepared branches an operator rolls back by hand.
    pub operator: u8,
    /// How often the disk may lose durable records, and be repaired.
    pub losses: u8,
    /// How often a server, restored from a backup, may bring back a branch that has ended.
    pub returns: u8,
    /// How often a server may answer the resolver that it has ended a branch, and have hidden it (MariaDB).
    pub lies: u8,
    /// Whether witnesses are pruned.
    pub prunes: bool,
    /// Whether a person closes what is damaged.
    pub forgets: bool,
    /// Whether a copy of the journal, from before all transactions, is opened beside it.
    pub copy: bool,
    /// Whether somebody may ask for an outcome by id, and put the question to the participants himself.
    pub fences: bool,
    /// Whether somebody may ask for an outcome by id.
    pub questions: bool,
    /// Whether each transaction carries a payload, which makes a decision record necessary.
    pub payload: bool,
    /// No faults, no refusals, nobody gives up.
    pub calm: bool,
    /// When the coordinator answers.
    pub acknowledge: Acknowledge,
    /// What is broken, for the tests of this test.
    pub bug: Option<Bug>,
}

/// What a process has left behind that died in the middle of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remains {
    /// One branch is prepared, the request to prepare the other one is still under way.
    HalfPrepared,
    /// It was decided; one branch is prepared, the request to commit the other one is still under way.
    HalfCommitted,
}

impl Setting {
    pub fn participants(&self) -> usize {
        self.modes[0].len()
    }

    pub fn id(&self, transaction: usize) -> TransactionId {
        let sequence = u64::try_from(transaction).unwrap() + 1;
        TransactionId { node: *NODE, incarnation: INCARNATION, sequence }
    }

    pub fn branch(&self, index: usize) -> BranchId {
        let (transaction, participant) = (index / self.participants(), index % self.participants());
        self.id(transaction).branch(u16::try_from(participant).unwrap(), 0)
    }

    /// The site of a branch; `None` for one that is not of this world.
    pub fn site(&self, id: BranchId) -> Option<usize> {
        let deal = (0..self.modes.len()).find(|deal| self.id(*deal) == id.transaction)?;
        let participant = usize::from(id.participant);
        (id.slot == 0 && participant < self.participants()).then_some(deal * self.participants() + participant)
    }

    pub fn participant(&self, number: usize) -> ParticipantName {
        ["ledger", "orders", "stock"][number].parse().unwrap()
    }

    pub fn coordinator(&self, transaction: usize) -> Coordinator {
        let branch = |(participant, mode): (usize, &Option<Mode>)| {
            mode.map(|mode| Branch {
                id: self.branch(transaction * self.participants() + participant),
                participant: self.participant(participant),
                lineage: Lineage(1),
                mode,
            })
        };
        let branches = self.modes[transaction].iter().enumerate().filter_map(branch).collect();
        let payload = self.payload.then(|| Payload { key: b"key".to_vec(), bytes: Vec::new() });
        Coordinator::new(self.id(transaction), branches, self.acknowledge, payload)
    }
}

/// The node of all transactions here. Parsed once: ids are made in every step.
pub static NODE: LazyLock<NodeName> = LazyLock::new(|| "node".parse().unwrap());
/// The incarnation of all transactions here.
pub const INCARNATION: Incarnation = Incarnation(1);
/// A branch of another journal, prepared on every participant for ever.
pub const FOREIGN: Incarnation = Incarnation(2);
