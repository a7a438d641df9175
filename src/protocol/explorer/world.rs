//! The world: servers, journal, one process with its coordinators and its resolver, and what the application was told.
//!
//! A participant holds at most one branch of each transaction, so the servers are a table of [`Site`]s. All is small
//! and `Copy` but the coordinators, which are the real ones.

use super::copy::{Lease, Twin};
use super::setting::{DEALS, PLACES, Remains, SITES, Setting};
use crate::protocol::coordinator::{Phase, Stage};
use crate::protocol::recovery::{Action, Evidence};
use crate::protocol::{Coordinator, Finish, Mode, Outcome, Resolution, Vote};
use std::rc::Rc;

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

/// A promise is on its way.
pub const PROMISED: Line = Line::Answered(Reply::Voted(Vote::Prepared));

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
    /// Prepared, and neither listed nor to be ended until its server starts anew.
    Hidden,
}

/// What became of a branch before its server was set back, as far as that may happen here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Past {
    Fresh,
    /// It was prepared: a backup may hold it.
    Promised,
    /// It had committed, and is prepared again.
    WasCommitted,
    /// It had been rolled back or was hidden, and is prepared again.
    WasGone,
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
    /// `None` where the transaction has no branch.
    pub mode: Option<Mode>,
    pub state: State,
    pub past: Past,
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
    /// It was damaged, and a person has dealt with it.
    pub forgotten: bool,
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
    pub sites: [Site; SITES],
    pub deals: [Deal; DEALS],
    pub up: bool,
    /// The process that began has not died yet.
    pub first_life: bool,
    pub poisoned: bool,
    pub crashes: u8,
    pub operator: u8,
    pub returns: u8,
    pub lies: u8,
    /// How many faults there may still be.
    pub faults: Option<u8>,
    /// How often the disk may still lose records.
    pub losses: u8,
    /// It has: no record means nothing.
    pub incomplete: bool,
    /// By participant.
    pub leases: [Lease; PLACES],
    pub twin: Twin,
}

impl World {
    pub fn new(setting: &Setting) -> Self {
        let site = Site {
            mode: None,
            state: State::Ended,
            past: Past::Fresh,
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
            forgotten: false,
            decided: false,
            against: false,
            unguarded: false,
            answer: None,
            told: None,
            memory_before: 0,
        };
        let (sites, deals) = ([site; SITES], std::array::from_fn(|_| deal.clone()));
        let mut world = Self {
            sites,
            deals,
            up: true,
            first_life: true,
            poisoned: false,
            crashes: setting.crashes,
            operator: setting.operator,
            returns: setting.returns,
            lies: setting.lies,
            faults: setting.faults,
            losses: setting.losses,
            incomplete: false,
            leases: [Lease::Original; PLACES],
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
        self.of(setting, transaction).iter().filter(|site| site.mode == Some(Mode::Writer))
    }

    /// The world in a few words, the same for worlds that differ only in the order of alike participants, or of alike
    /// transactions.
    pub fn key(&self, setting: &Setting) -> Key {
        let deals = setting.modes.len();
        let mut packed = [[0u64; PLACES]; DEALS];
        let mut heads = [0u64; DEALS];
        for (number, deal) in self.deals.iter().enumerate().take(deals) {
            let sites = self.of(setting, number);
            let mut stages = [None; PLACES];
            let (mut phase, mut unremembered) = (None, 0);
            if let Some(coordinator) = &deal.coordinator {
                let (at, _, damage, each) = coordinator.fingerprint();
                (phase, unremembered) = (Some(at), damage);
                let branches = (0..sites.len()).filter(|place| sites[*place].mode.is_some());
                branches.zip(each).for_each(|(place, stage)| stages[place] = Some(stage));
            }
            for (place, site) in sites.iter().enumerate() {
                packed[number][place] = site.pack(stages[place]);
            }
            heads[number] = deal.pack(phase, unremembered);
        }
        let mut word = Word(0);
        word.put(4, u32::from(self.crashes));
        word.put(4, u32::from(self.operator));
        word.put(2, u32::from(self.losses));
        word.put(2, u32::from(self.returns));
        word.put(2, u32::from(self.lies));
        word.put(4, self.faults.map_or(0, |faults| 1 + u32::from(faults)));
        word.put(1, u32::from(self.incomplete));
        word.put(2, self.twin as u32);
        word.put(1, u32::from(self.first_life));
        word.put(1, u32::from(self.up));
        word.put(1, u32::from(self.poisoned));
        let arranged = ORDERS[deals - 1].iter().map(|order| {
            let mut columns = [[0u64; DEALS]; PLACES];
            let mut key = [0u64; SITES + DEALS + 1];
            for (slot, number) in order.iter().enumerate() {
                (0..setting.participants()).for_each(|place| columns[place][slot] = packed[*number][place]);
                key[SITES + slot] = heads[*number];
            }
            for (column, lease) in columns.iter_mut().zip(self.leases) {
                column[0] |= (lease as u64) << 62;
            }
            let columns = &mut columns[..setting.participants()];
            columns.sort_unstable();
            for (slot, site) in columns.iter().flat_map(|column| &column[..deals]).enumerate() {
                key[slot] = *site;
            }
            key[SITES + DEALS] = word.0;
            key
        });
        arranged.min().expect("there is at least one order")
    }
}

/// A world in a few words.
pub type Key = [u64; SITES + DEALS + 1];

/// By the number of transactions: all orders that they can be looked at in.
const ORDERS: [&[&[usize]]; DEALS] =
    [&[&[0]], &[&[0, 1], &[1, 0]], &[&[0, 1, 2], &[0, 2, 1], &[1, 0, 2], &[1, 2, 0], &[2, 0, 1], &[2, 1, 0]]];

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
        word.put(2, self.mode.map_or(0, |mode| 1 + mode as u32));
        word.put(3, self.state as u32);
        word.put(2, self.past as u32);
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
        word.put(1, u32::from(self.forgotten));
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
