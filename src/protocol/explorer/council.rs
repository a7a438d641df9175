//! The real [`plan`], asked with the world's memory and scans. The world has many states, its questions are few:
//! answers are kept.

use super::bugs::Bug;
use super::setting::{DEALS, FOREIGN, INCARNATION, NODE, SITES, Setting};
use super::world::{Seen, Slot, World};
use crate::id::{Incarnation, Lineage, ParticipantName, TransactionId};
use crate::protocol::DamageRecord;
use crate::protocol::recovery::{Action, Evidence, Memory, Observation, Plan, Recalled, Scan, outcome_of, plan};
use crate::protocol::{Absence, CommitRecord, DecidedBranch, IncarnationRecord, Mode, Outcome, Record, Resolution};
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

/// Answers that were given before.
#[derive(Default)]
pub struct Council {
    answers: HashMap<[u8; SITES + DEALS + 1], Rc<Verdict>>,
}

/// A plan, by the world's indices.
#[derive(Debug, Clone, Default)]
pub struct Verdict {
    /// The rows of the table that it used.
    pub rows: Vec<&'static str>,
    /// By site: nothing where the plan does not name it.
    pub actions: [Option<Action>; SITES],
    /// By transaction.
    pub outcomes: [Option<Outcome>; DEALS],
    /// By transaction: whether the plan notes that it is done, or that one writer committed it.
    pub done: [bool; DEALS],
    pub alone: [bool; DEALS],
    /// By transaction: whether it is damaged, and nobody knew.
    pub damaged: [bool; DEALS],
    /// The plan names something of another journal otherwise than as foreign.
    pub trespasses: bool,
}

/// What is remembered of a transaction, in six bits: whether it is damaged, whether it is live, and what the journal
/// holds.
pub fn remembered(world: &World, setting: &Setting, deal: usize) -> u8 {
    let live = match setting.bug {
        Some(Bug::LiveIsForgotten) => false,
        Some(Bug::LiveUntilTheDecision) => {
            world.deals[deal].coordinator.is_some() && world.deals[deal].commit == Slot::Absent
        }
        _ => world.deals[deal].coordinator.is_some(),
    };
    let deal = &world.deals[deal];
    let there = |slot: Slot| matches!(slot, Slot::Cached | Slot::Durable);
    let holds = match deal.commit {
        _ if deal.forgotten && setting.bug != Some(Bug::ForgottenIsUndecided) => FORGOTTEN,
        _ if deal.forgotten => NOTHING,
        _ if there(deal.done) && setting.bug == Some(Bug::DoneIsForgotten) => NOTHING,
        _ if deal.resolved == Some(Resolution::Commit) => RESOLVED_COMMIT,
        _ if deal.resolved == Some(Resolution::RollBack) => RESOLVED_ROLL_BACK,
        _ if there(deal.done) => FINISHED,
        Slot::Cached | Slot::Durable => DECIDED,
        Slot::Limbo if setting.bug != Some(Bug::FailedAppendIsForgotten) => UNSURE,
        _ if there(deal.alone) => ONE_PHASE,
        _ => NOTHING,
    };
    let damaged = there(deal.damage) && !deal.forgotten && setting.bug != Some(Bug::DamageIsForgotten);
    u8::from(damaged) << DAMAGED | u8::from(live) << 3 | holds
}

pub const NOTHING: u8 = 0;
const UNSURE: u8 = 1;
pub const DECIDED: u8 = 2;
const FINISHED: u8 = 3;
const ONE_PHASE: u8 = 4;
const RESOLVED_COMMIT: u8 = 5;
const RESOLVED_ROLL_BACK: u8 = 6;
const FORGOTTEN: u8 = 7;
/// Nothing is held, and it is at work.
pub const LIVE: u8 = 1 << 3;
/// The bit that says so.
pub const DAMAGED: u8 = 5;

struct Image<'a> {
    setting: &'a Setting,
    deals: [u8; DEALS],
    /// Records may have been lost.
    incomplete: bool,
}

impl Image<'_> {
    fn deal(&self, transaction: TransactionId) -> Option<usize> {
        (0..self.setting.modes.len()).find(|deal| self.setting.id(*deal) == transaction)
    }

    fn record(&self, deal: usize) -> CommitRecord {
        let participants = self.setting.participants();
        let writers = (0..participants).filter(|number| self.setting.modes[deal][*number] == Some(Mode::Writer));
        let decided = |number: usize| DecidedBranch {
            id: self.setting.branch(deal * participants + number),
            participant: self.setting.participant(number),
            lineage: Lineage(1),
        };
        CommitRecord { transaction: self.setting.id(deal), branches: writers.map(decided).collect(), payload: None }
    }
}

impl Memory for Image<'_> {
    fn damaged(&self) -> Vec<DamageRecord> {
        let damaged = (0..self.setting.modes.len()).filter(|deal| self.deals[*deal] >> DAMAGED & 1 == 1);
        // Which branches it was of makes no difference.
        let record = |deal| DamageRecord {
            transaction: self.setting.id(deal),
            branches: Vec::new(),
            found_at_ms: 0,
            found_by: Incarnation(9),
        };
        damaged.map(record).collect()
    }

    fn is_incomplete(&self, _: Incarnation) -> bool {
        self.incomplete && self.setting.bug != Some(Bug::LostMeansUndecided)
    }

    fn is_at_work(&self, _: Incarnation) -> bool {
        false
    }

    fn is_given_up(&self, _: Incarnation, _: ParticipantName) -> bool {
        false
    }

    fn incarnation(&self, incarnation: Incarnation) -> Option<IncarnationRecord> {
        let participants = (0..self.setting.participants()).map(|number| self.setting.participant(number)).collect();
        let node = *NODE;
        let known = incarnation == INCARNATION;
        known.then_some(IncarnationRecord { node, incarnation, opened_at_ms: 0, participants })
    }

    fn is_live(&self, transaction: TransactionId) -> bool {
        self.deal(transaction).is_some_and(|deal| self.deals[deal] >> 3 & 1 == 1)
    }

    fn recall(&self, transaction: TransactionId) -> Recalled {
        let Some(deal) = self.deal(transaction) else { return Recalled::Nothing };
        match self.deals[deal] & 7 {
            NOTHING => Recalled::Nothing,
            UNSURE => Recalled::Unsure,
            DECIDED => Recalled::Decided(self.record(deal)),
            FINISHED => Recalled::Finished,
            ONE_PHASE => Recalled::OnePhase,
            RESOLVED_COMMIT => Recalled::Resolved(Resolution::Commit),
            RESOLVED_ROLL_BACK => Recalled::Resolved(Resolution::RollBack),
            _ => Recalled::Forgotten,
        }
    }

    fn settled(&self, _: Incarnation) -> Option<Absence> {
        // The only process here is the one at work: what is earlier than it is explored with `Settling`.
        None
    }

    fn open_decisions(&self) -> Vec<CommitRecord> {
        if self.setting.bug == Some(Bug::OpenDecisionsAreForgotten) {
            return Vec::new();
        }
        let open = (0..self.setting.modes.len()).filter(|deal| self.deals[*deal] & 7 == DECIDED);
        open.map(|deal| self.record(deal)).collect()
    }
}

/// What the real [`outcome_of`] makes of answers.
pub fn outcome_now(world: &World, setting: &Setting, deal: usize, answers: &[Evidence]) -> Option<Outcome> {
    let mut deals = [0; DEALS];
    (0..setting.modes.len()).for_each(|deal| deals[deal] = remembered(world, setting, deal));
    outcome_of(&Image { setting, deals, incomplete: world.incomplete }, setting.id(deal), answers)
}

impl Council {
    pub fn rows(&self) -> BTreeSet<&'static str> {
        self.answers.values().flat_map(|verdict| verdict.rows.iter().copied()).collect()
    }

    pub fn consult(&mut self, world: &World, setting: &Setting) -> Rc<Verdict> {
        let mut question = [0u8; SITES + DEALS + 1];
        question[SITES + DEALS] = u8::from(world.incomplete);
        for index in world.indices(setting) {
            let site = &world.sites[index];
            question[index] = site.seen as u8 | (site.evidence as u8) << 3 | u8::from(site.wanted) << 6;
        }
        let (mut deals, mut before) = ([0; DEALS], [0; DEALS]);
        for deal in 0..setting.modes.len() {
            let stale = setting.bug == Some(Bug::MemoryBeforeScans);
            deals[deal] = if stale { world.deals[deal].memory_before } else { remembered(world, setting, deal) };
            let known = world.deals[deal].memory_before & 7 == DECIDED || setting.bug == Some(Bug::AbsenceIsTrusted);
            before[deal] = if known { DECIDED } else { NOTHING };
            question[SITES + deal] = deals[deal] | u8::from(known) << 4;
        }
        let answer = self.answers.entry(question);
        let answer = answer.or_insert_with(|| {
            let incomplete = world.incomplete;
            let observation = observe(world, setting, &Image { setting, deals: before, incomplete });
            let plan = plan(&Image { setting, deals, incomplete }, &observation);
            Rc::new(verdict(setting, &plan))
        });
        Rc::clone(answer)
    }
}

fn observe(world: &World, setting: &Setting, before: &Image<'_>) -> Observation {
    let mut observation = Observation::new(before);
    for number in 0..setting.participants() {
        let here = |index: &usize| index % setting.participants() == number;
        let sites = world.indices(setting).filter(here);
        let mut branches = BTreeSet::new();
        let mut failed = false;
        for index in sites {
            let seen = world.sites[index].seen;
            assert_ne!(seen, Seen::NotYet, "planned before all scans were in");
            failed |= seen == Seen::Failed;
            if seen == Seen::Listed {
                branches.insert(setting.branch(index));
            }
        }
        let mut foreign = setting.id(0).branch(u16::try_from(number).unwrap(), 0);
        foreign.transaction.incarnation = FOREIGN;
        branches.insert(foreign);
        let scan = if failed && setting.bug != Some(Bug::FailedScanIsEmpty) {
            Scan::Failed { cause: "no answer".into() }
        } else {
            Scan::Whole { lineage: Lineage(1), branches, foreign: BTreeSet::from(["somebody's".into()]) }
        };
        observation.scanned(setting.participant(number), scan);
    }
    for index in world.indices(setting) {
        let site = &world.sites[index];
        if site.seen == Seen::Unclear {
            observation.unclear(setting.branch(index), "refused".into());
        }
        if site.wanted {
            observation.want(setting.branch(index));
        }
        if site.evidence != Evidence::NotAsked {
            observation.heard(setting.branch(index), site.evidence);
        }
    }
    observation
}

fn verdict(setting: &Setting, plan: &Plan) -> Verdict {
    let mut verdict = Verdict::default();
    let scanned = setting.participants() - plan.unscanned.len();
    verdict.trespasses = plan.foreign.len() != 2 * scanned;
    for branch in plan.branches() {
        verdict.rows.push(branch.row);
        match setting.site(branch.id) {
            Some(index) => verdict.actions[index] = Some(super::bugs::bend_row(setting, branch.row, branch.action)),
            None => verdict.trespasses = true,
        }
    }
    for (id, _) in plan.damages() {
        (0..setting.modes.len()).filter(|deal| setting.id(*deal) == id).for_each(|deal| verdict.damaged[deal] = true);
    }
    for transaction in &plan.transactions {
        let deal = (0..setting.modes.len()).find(|deal| setting.id(*deal) == transaction.id);
        let Some(deal) = deal else { continue };
        verdict.outcomes[deal] = Some(transaction.outcome);
        verdict.done[deal] = matches!(transaction.note, Some(Record::Done(_) | Record::Witnessed(_)));
        verdict.alone[deal] = matches!(transaction.note, Some(Record::OnePhase(_)));
        if setting.bug == Some(Bug::NotListedIsCommitted) {
            let first = deal * setting.participants();
            let actions = &verdict.actions[first..first + setting.participants()];
            verdict.done[deal] |= actions.contains(&Some(Action::Finish))
                && actions.iter().all(|action| matches!(action, None | Some(Action::Finish)));
        }
    }
    verdict
}
