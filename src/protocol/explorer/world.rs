//! The world: servers, journal, one process with its coordinators and its resolver, and what the application was told.
//!
//! A participant holds at most one branch of each transaction, so the servers are a table of [`Site`]s. All is small
//! and `Copy` but the coordinators, which are the real ones.

use super::copy::{Lease, Twin};
use crate::id::{BranchId, Incarnation, Lineage, NodeName, ParticipantName, TransactionId};
use crate::protocol::coordinator::{Phase, Stage};
use crate::protocol::recovery::{Action, Evidence};
use crate::protocol::{Acknowledge, Branch, Coordinator, Finish, Mode, Outcome, Payload, Resolution, Vote};
use std::rc::Rc;
use std::sync::LazyLock;

/// What is explored: the transactions, and which faults may come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// By transaction, then by participant. Each transaction has a branch on every participant.
    pub modes: Vec<Vec<Mode>>,
    /// How often the process may die, besides the reopening of a failed journal.
    pub crashes: u8,
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
    pub bug: Option<super::bugs::Bug>,
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
        let branch = |participant: usize| Branch {
            id: self.branch(transaction * self.participants() + participant),
            participant: self.participant(participant),
            lineage: Lineage(1),
            mode: self.modes[transaction][participant],
        };
        let branches = (0..self.participants()).map(branch).collect();
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

/// A request on the session of a branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    Prepare,
    EndReadOnly,
    CommitAlone,
    Commit,
    RollBack,
}

/// Its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    Voted(Vote),
    Finished(Finish),
}

/// The session between the process and the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    Idle,
    /// The request is under way.
    Asked(Request),
    /// The server acted, its answer is under way.
    Answered(Reply),
    /// Lost without the process knowing yet.
    Broken,
    Closed,
}

/// The branch in its database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Active,
    Prepared,
    Committed,
    /// Rolled back, or a reader that has ended.
    Ended,
    /// Ended by the application itself: its work may be committed.
    Strayed,
}

/// The branch's committed row in the witness table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Witness {
    None,
    Decided,
    Alone,
    Fence,
}

/// What the resolver's pass has seen of a branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    NotYet,
    Listed,
    NotListed,
    Failed,
    /// Looked for, and not to be trusted any more; the rest of the scan is.
    Unclear,
}

/// A branch: in its database, on its way there, and in the resolver's eyes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Site {
    pub mode: Mode,
    pub state: State,
    pub witness: Witness,
    pub line: Line,
    /// A request of a session that is gone: it may still be carried out.
    pub late: Option<Request>,
    pub seen: Seen,
    pub evidence: Evidence,
    pub todo: Option<Action>,
    /// A request of the resolver without an answer: it may still be carried out.
    pub stray: Option<Action>,
    /// What the fence has answered to who asked for the outcome by id.
    pub answer: Evidence,
    /// On the resolver's list of branches that coordinators left.
    pub wanted: bool,
}

/// A record in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    Absent,
    /// Handed over, not synced.
    Pending,
    /// Its write or sync failed.
    Limbo,
    /// Written unforced, or (by a bug) taken for durable.
    Cached,
    Durable,
}

impl Slot {
    /// Whether a crash may keep it or lose it.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::Limbo | Self::Cached)
    }
}

/// A transaction: its coordinator, its records, and what was said of it.
#[derive(Debug, Clone)]
pub struct Deal {
    pub begun: bool,
    pub coordinator: Option<Rc<Coordinator>>,
    pub commit: Slot,
    pub done: Slot,
    pub alone: Slot,
    /// That a branch was found to be ended by somebody else.
    pub damage: Slot,
    /// What a person decided.
    pub resolved: Option<Resolution>,
    /// The decision was durable once, whatever was lost since.
    pub decided: bool,
    /// A person decided against what the application was told, where no branch showed it.
    pub against: bool,
    /// A lease was lost since it began.
    pub unguarded: bool,
    /// What the application was told.
    pub answer: Option<Outcome>,
    /// What recovery told whoever asked, once it was sure.
    pub told: Option<Outcome>,
    /// What the resolver remembered when its pass began, as far as it makes a difference.
    pub memory_before: u8,
}

/// All of it.
#[derive(Debug, Clone)]
pub struct World {
    pub sites: [Site; 4],
    pub deals: [Deal; 2],
    pub up: bool,
    /// The process that began has not died yet.
    pub first_life: bool,
    pub poisoned: bool,
    pub crashes: u8,
    pub operator: u8,
    /// How often the disk may still lose records.
    pub losses: u8,
    /// It has: no record means nothing.
    pub incomplete: bool,
    /// By participant.
    pub leases: [Lease; 3],
    pub twin: Twin,
}

impl World {
    pub fn new(setting: &Setting) -> Self {
        let site = Site {
            mode: Mode::Writer,
            state: State::Ended,
            witness: Witness::None,
            line: Line::Closed,
            late: None,
            seen: Seen::NotYet,
            evidence: Evidence::NotAsked,
            todo: None,
            stray: None,
            answer: Evidence::NotAsked,
            wanted: false,
        };
        let deal = Deal {
            begun: false,
            coordinator: None,
            commit: Slot::Absent,
            done: Slot::Absent,
            alone: Slot::Absent,
            damage: Slot::Absent,
            resolved: None,
            decided: false,
            against: false,
            unguarded: false,
            answer: None,
            told: None,
            memory_before: 0,
        };
        let (sites, deals) = ([site; 4], [deal.clone(), deal]);
        let mut world = Self {
            sites,
            deals,
            up: true,
            first_life: true,
            poisoned: false,
            crashes: setting.crashes,
            operator: setting.operator,
            losses: setting.losses,
            incomplete: false,
            leases: [Lease::Original; 3],
            twin: Twin::Opened,
        };
        for index in world.indices(setting) {
            world.sites[index].mode = setting.modes[index / setting.participants()][index % setting.participants()];
        }
        if let Some(remains) = setting.remains {
            world.bequeath(remains);
        }
        world
    }

    fn bequeath(&mut self, remains: Remains) {
        self.deals[0].begun = true;
        self.first_life = false;
        self.sites[0].state = State::Prepared;
        (self.sites[1].state, self.sites[1].late) = match remains {
            Remains::HalfPrepared => (State::Active, Some(Request::Prepare)),
            Remains::HalfCommitted => (State::Prepared, Some(Request::Commit)),
        };
        if remains == Remains::HalfCommitted {
            self.deals[0].commit = Slot::Durable;
            self.deals[0].decided = true;
        }
    }

    pub fn indices(&self, setting: &Setting) -> std::ops::Range<usize> {
        0..setting.modes.len() * setting.participants()
    }

    /// The sites of a transaction.
    pub fn of(&self, setting: &Setting, transaction: usize) -> &[Site] {
        let first = transaction * setting.participants();
        &self.sites[first..first + setting.participants()]
    }

    pub fn writers(&self, setting: &Setting, transaction: usize) -> impl Iterator<Item = &Site> {
        self.of(setting, transaction).iter().filter(|site| site.mode == Mode::Writer)
    }

    /// The world in a few words, the same for worlds that differ only in the order of alike participants.
    pub fn key(&self, setting: &Setting) -> [u64; 7] {
        let participants = setting.participants();
        let mut columns = [[0u64; 2]; 3];
        let mut key = [0u64; 7];
        for (number, deal) in self.deals.iter().enumerate().take(setting.modes.len()) {
            let mut stages = [None; 3];
            let (mut phase, mut unremembered) = (None, 0);
            if let Some(coordinator) = &deal.coordinator {
                let (at, _, damage, each) = coordinator.fingerprint();
                (phase, unremembered) = (Some(at), damage);
                each.enumerate().for_each(|(index, stage)| stages[index] = Some(stage));
            }
            for participant in 0..participants {
                columns[participant][number] =
                    self.sites[number * participants + participant].pack(stages[participant]);
            }
            key[4 + number] = deal.pack(phase, unremembered);
        }
        for (column, lease) in columns.iter_mut().zip(self.leases) {
            column[0] |= (lease as u64) << 62;
        }
        columns[..participants].sort_unstable();
        for (index, word) in columns[..participants].iter().flat_map(|c| &c[..setting.modes.len()]).enumerate() {
            key[index] = *word;
        }
        let mut word = Word(0);
        word.put(4, u32::from(self.crashes));
        word.put(4, u32::from(self.operator));
        word.put(2, u32::from(self.losses));
        word.put(1, u32::from(self.incomplete));
        word.put(2, self.twin as u32);
        word.put(1, u32::from(self.first_life));
        word.put(1, u32::from(self.up));
        word.put(1, u32::from(self.poisoned));
        key[6] = word.0;
        key
    }
}

impl Site {
    fn pack(self, stage: Option<Stage>) -> u64 {
        let line = match self.line {
            Line::Idle => 0,
            Line::Broken => 1,
            Line::Closed => 2,
            Line::Asked(request) => 3 + request as u32,
            Line::Answered(Reply::Voted(vote)) => 8 + vote as u32,
            Line::Answered(Reply::Finished(finish)) => 13 + finish as u32,
        };
        let late = self.late.map_or(0, |request| 1 + request as u32);
        let work = |action: Option<Action>| match action {
            None => 0,
            Some(Action::RollBack) => 1,
            Some(Action::Commit) => 2,
            Some(Action::Ask) => 3,
            Some(other) => panic!("{other:?} is no work"),
        };
        let stage = stage.map_or(0, |stage| 1 + stage as u32);
        let mut word = Word(0);
        word.put(1, self.mode as u32);
        word.put(3, self.state as u32);
        word.put(2, self.witness as u32);
        word.put(5, line);
        word.put(3, late);
        word.put(3, self.seen as u32);
        word.put(3, self.evidence as u32);
        word.put(2, work(self.todo));
        word.put(2, work(self.stray));
        word.put(1, u32::from(self.wanted));
        word.put(3, self.answer as u32);
        word.put(3, stage);
        word.0
    }
}

impl Deal {
    fn pack(&self, phase: Option<Phase>, unremembered: u8) -> u64 {
        let outcome = |outcome: Option<Outcome>| outcome.map_or(0, |outcome| 1 + outcome as u32);
        let mut word = Word(0);
        word.put(1, u32::from(self.begun));
        word.put(3, phase.map_or(0, |phase| 1 + phase as u32));
        word.put(3, self.commit as u32);
        word.put(3, self.done as u32);
        word.put(3, self.alone as u32);
        word.put(3, self.damage as u32);
        word.put(2, u32::from(unremembered));
        word.put(3, outcome(self.answer));
        word.put(3, outcome(self.told));
        word.put(6, u32::from(self.memory_before));
        word.put(2, self.resolved.map_or(0, |resolution| 1 + resolution as u32));
        word.put(1, u32::from(self.decided));
        word.put(1, u32::from(self.against));
        word.put(1, u32::from(self.unguarded));
        word.0
    }
}

/// Bits, side by side.
struct Word(u64);

impl Word {
    fn put(&mut self, bits: u32, value: u32) {
        assert!(value < 1 << bits && self.0 >> (64 - bits) == 0);
        self.0 = self.0 << bits | u64::from(value);
    }
}
