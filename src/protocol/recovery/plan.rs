//! From an observation to a plan: the whole of recovery's judgement, as a function.

use super::observation::{Memory, Observation, Recalled, Scan};
use super::outcome::{settled as what_absence_means, without_a_record};
use super::sight::{Sights, Wanted, listed_by_each};
use super::table::{Action, Evidence, History, Sighting, decide};
use crate::id::{BranchId, ParticipantName, TransactionId};
use crate::protocol::message::{Absence, CommitRecord, DamageRecord, DamagedBranch, Outcome, Record, Resolution};
use std::collections::{BTreeMap, BTreeSet};

/// What is to be done, in the order of ids.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Every transaction of this journal of which something is open, prepared or asked for.
    pub transactions: Vec<TransactionPlan>,
    /// Prepared branches that are not this journal's. Nothing is done about them.
    pub foreign: Vec<ForeignBranch>,
    /// The participants without a complete scan.
    pub unscanned: Vec<Unscanned>,
}

/// What is to be done about a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionPlan {
    /// Which.
    pub id: TransactionId,
    /// What is remembered of it. [`History::decision`] has the word for it.
    pub history: History,
    /// How it ended or will end, as far as that is certain now.
    pub outcome: Outcome,
    /// The most pressing of its branches' actions.
    pub action: Action,
    /// Its branches, in order.
    pub branches: Vec<BranchPlan>,
    /// What is proven now and to be remembered, unforced.
    pub note: Option<Record>,
    /// How it was found to be damaged before, if it was.
    pub damage: Option<DamageRecord>,
}

/// What is to be done about a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchPlan {
    /// Which.
    pub id: BranchId,
    /// Whose branch it is.
    pub participant: ParticipantName,
    /// What its participant's scan shows.
    pub sighting: Sighting,
    /// What is proven.
    pub evidence: Evidence,
    /// What is to be done.
    pub action: Action,
    /// The row of the table that says so.
    pub row: &'static str,
    /// Why, for people; ends in the cause where one is known.
    pub why: String,
}

/// A prepared branch that is not this journal's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ForeignBranch {
    /// Where it is prepared.
    pub participant: ParticipantName,
    /// What its server calls it.
    pub gid: String,
}

/// A participant without a complete scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unscanned {
    /// Which.
    pub participant: ParticipantName,
    /// Why.
    pub cause: String,
}

impl Plan {
    /// The branches to send something about, in order: [`Action::Commit`], [`Action::RollBack`], [`Action::Ask`].
    pub fn work(&self) -> impl Iterator<Item = &BranchPlan> {
        self.branches().filter(|branch| branch.action.is_work())
    }

    /// What is to be written when no work is left.
    pub fn notes(&self) -> impl Iterator<Item = &Record> {
        self.transactions.iter().filter_map(|transaction| transaction.note.as_ref())
    }

    /// Damage that is not remembered yet: to be written down, forced.
    pub fn damages(&self) -> impl Iterator<Item = (TransactionId, Vec<DamagedBranch>)> {
        let new = self.transactions.iter().filter(|one| one.action == Action::Damage && one.damage.is_none());
        new.map(|one| (one.id, one.branches.iter().filter_map(BranchPlan::damage).collect()))
    }

    /// All branches, in order.
    pub fn branches(&self) -> impl Iterator<Item = &BranchPlan> {
        self.transactions.iter().flat_map(|transaction| &transaction.branches)
    }
}

impl BranchPlan {
    fn damage(&self) -> Option<DamagedBranch> {
        let Self { id, participant, why, .. } = self;
        (self.action == Action::Damage).then(|| DamagedBranch { id: *id, participant: *participant, why: why.clone() })
    }
}

/// Makes the plan. Call it when all scans are in the observation: the memory is read here, and has to be younger
/// than they are.
pub fn plan(memory: &dyn Memory, observation: &Observation) -> Plan {
    let mut transactions: BTreeMap<TransactionId, BTreeSet<BranchId>> = BTreeMap::new();
    let mut foreign = BTreeSet::new();
    for decision in memory.open_decisions() {
        let branches = decision.branches.iter().map(|branch| branch.id);
        transactions.entry(decision.transaction).or_default().extend(branches);
    }
    for (participant, id) in listed_by_each(observation) {
        if home(memory, id).is_some() {
            transactions.entry(id.transaction).or_default().insert(id);
        } else {
            foreign.insert(foreign_branch(participant, id));
        }
    }
    let mut damaged: BTreeMap<_, _> = memory.damaged().into_iter().map(|record| (record.transaction, record)).collect();
    let known = damaged.values().flat_map(|record| record.branches.iter().map(|branch| &branch.id));
    for id in observation.evidence.keys().chain(known).filter(|id| home(memory, **id).is_some()) {
        transactions.entry(id.transaction).or_default().insert(*id);
    }
    foreign.extend(texts(observation));
    // What shows no branch of its own is told all the same.
    for id in damaged.keys() {
        transactions.entry(*id).or_default();
    }
    let look = Look { memory, observation, sights: Sights::new(observation) };
    let transactions = transactions.into_iter().map(|(id, branches)| look.about(id, branches, damaged.remove(&id)));
    Plan {
        transactions: transactions.collect(),
        foreign: foreign.into_iter().collect(),
        unscanned: unscanned(observation),
    }
}

impl TransactionPlan {
    /// Damage stays until a person has dealt with it, whatever the servers show now.
    fn damaged_before(self, damage: Option<DamageRecord>) -> Self {
        match damage {
            None => self,
            Some(_) => Self { outcome: Outcome::Damaged, action: Action::Damage, note: None, damage, ..self },
        }
    }
}

/// A listed branch that looks like one of ours and is not: by the table, so that no second rule exists.
fn foreign_branch(participant: ParticipantName, id: BranchId) -> ForeignBranch {
    let row = decide(History::Foreign, Sighting::Listed, Evidence::NotAsked);
    assert_eq!(row.action, Action::Leave);
    ForeignBranch { participant, gid: id.to_string() }
}

/// What a plan is made from.
struct Look<'a> {
    memory: &'a dyn Memory,
    observation: &'a Observation,
    sights: Sights<'a>,
}

impl Look<'_> {
    fn about(
        &self,
        id: TransactionId,
        mut branches: BTreeSet<BranchId>,
        damage: Option<DamageRecord>,
    ) -> TransactionPlan {
        let memory = self.memory;
        // This order: a transaction that is not live any more has left its record.
        let recalled = if memory.is_live(id) { None } else { Some(memory.recall(id)) };
        let proven: Vec<_> = branches.iter().map(|branch| self.evidence(*branch)).collect();
        let settled = memory.settled(id.incarnation);
        let anchor = memory.anchor(id.incarnation).map(|number| {
            let own = branches.iter().find(|branch| branch.participant == number);
            own.copied().unwrap_or_else(|| id.branch(number, 0))
        });
        let judging = Judging {
            settled: settled.is_some(),
            incomplete: memory.is_incomplete(id.incarnation),
            damaged: damage.is_some(),
            anchor: anchor.map(|branch| self.evidence(branch)),
        };
        let history = judge(recalled.as_ref(), &proven, judging);
        if history == History::Anchored {
            branches.extend(anchor);
        }
        let plans: Vec<_> = branches.iter().map(|branch| self.one(*branch, history, recalled.as_ref())).collect();
        let action = plans.iter().map(|branch| branch.action).max().unwrap_or(Action::Nothing);
        let participants = memory.incarnation(id.incarnation).map_or(0, |opened| opened.participants.len());
        let outcome = match outcome(history, &plans, participants, settled) {
            // What was prepared, and is not any more, was proof as well.
            Outcome::InDoubt if history == History::Undecided && self.observation.undone.contains(&id) => {
                Outcome::RolledBack
            }
            outcome => outcome,
        };
        let note = note(id, history, recalled.as_ref(), &plans);
        assert!(note.is_none() || matches!(action, Action::Nothing | Action::Finish | Action::FinishUnproven));
        TransactionPlan { id, history, outcome, action, branches: plans, note, damage: None }.damaged_before(damage)
    }

    fn one(&self, id: BranchId, history: History, recalled: Option<&Recalled>) -> BranchPlan {
        let decided = match recalled {
            Some(Recalled::Decided(record)) => record.branches.iter().find(|branch| branch.id == id),
            _ => None,
        };
        let history = match history {
            History::Decided if decided.is_none() => History::Unnamed,
            History::Anchored if self.memory.anchor(id.transaction.incarnation) == Some(id.participant) => {
                History::Anchor
            }
            _ => history,
        };
        let participant = decided.map(|branch| branch.participant).or_else(|| home(self.memory, id));
        let participant = participant.expect("only branches with a home, or named in a decision, are planned");
        let (sighting, cause) = self.sights.of(&Wanted {
            id,
            participant,
            lineage: decided.map(|branch| branch.lineage),
            given_up: self.memory.is_given_up(id.transaction.incarnation, participant),
            too_early: history == History::Decided && !self.observation.decided_before.contains(&id.transaction),
        });
        let evidence = self.evidence(id);
        let row = decide(history, sighting, evidence);
        let why = cause.map_or_else(|| row.why.to_owned(), |cause| format!("{}: {cause}", row.why));
        BranchPlan { id, participant, sighting, evidence, action: row.action, row: row.label, why }
    }

    fn evidence(&self, id: BranchId) -> Evidence {
        self.observation.evidence.get(&id).copied().unwrap_or(Evidence::NotAsked)
    }
}

/// What is known of a transaction and its incarnation, besides its record.
struct Judging {
    settled: bool,
    incomplete: bool,
    /// It was found to be damaged before.
    damaged: bool,
    /// What its anchor said, where it has one.
    anchor: Option<Evidence>,
}

/// What is remembered, corrected by what a witness proves of a transaction without a record.
fn judge(recalled: Option<&Recalled>, proven: &[Evidence], known: Judging) -> History {
    let Judging { settled, incomplete, damaged, anchor } = known;
    // Settled or not: whoever was taken for dead, and was not, has to find the fence.
    let unasked = anchor.is_some_and(|evidence| evidence != Evidence::Never) && !damaged;
    let alone = proven.iter().filter(|evidence| **evidence == Evidence::CommittedAlone).count();
    match recalled {
        None => History::Live,
        Some(Recalled::Unsure) => History::Unsure,
        Some(Recalled::Decided(_)) => History::Decided,
        Some(Recalled::Finished) => History::Finished,
        Some(Recalled::OnePhase) => History::OnePhase,
        Some(Recalled::Resolved(Resolution::Commit)) => History::ResolvedCommit,
        Some(Recalled::Resolved(Resolution::RollBack)) => History::ResolvedRollBack,
        Some(Recalled::Forgotten) => History::Forgotten,
        Some(Recalled::Nothing) if incomplete => History::Incomplete,
        Some(Recalled::Nothing) if unasked && alone == 0 => History::Anchored,
        // Its row was read, and is not there: no journal is at fault.
        Some(Recalled::Nothing) if anchor.is_some() && proven.contains(&Evidence::Committed) => History::Contradicted,
        Some(Recalled::Nothing) if proven.contains(&Evidence::Committed) => History::Stale,
        // All that had committed was known when the incarnation was settled.
        Some(Recalled::Nothing) if alone > 0 && settled => History::Stale,
        // The evidence of the pass that found the damage is gone: that it was there is enough to touch nothing.
        Some(Recalled::Nothing) if alone > 1 || damaged => History::Contradicted,
        Some(Recalled::Nothing) if alone == 1 => History::OnePhase,
        Some(Recalled::Nothing) => History::Undecided,
    }
}

/// The participant that a branch of this journal belongs to; `None` for any other branch.
fn home(memory: &dyn Memory, id: BranchId) -> Option<ParticipantName> {
    let opened = memory.incarnation(id.transaction.incarnation)?;
    let ours = opened.node == id.transaction.node && opened.incarnation == id.transaction.incarnation;
    ours.then(|| opened.participants.get(usize::from(id.participant)).copied()).flatten()
}

fn outcome(history: History, branches: &[BranchPlan], participants: usize, settled: Option<Absence>) -> Outcome {
    if branches.iter().any(|branch| branch.action == Action::Damage) {
        return Outcome::Damaged;
    }
    match history {
        History::Decided | History::Unnamed | History::Finished | History::OnePhase | History::ResolvedCommit => {
            Outcome::Committed
        }
        History::ResolvedRollBack => Outcome::RolledBack,
        History::Foreign | History::Live | History::Unsure | History::Anchor | History::Anchored => Outcome::InDoubt,
        History::Stale | History::Contradicted | History::Forgotten => Outcome::Damaged,
        History::Incomplete if branches.iter().any(|branch| branch.evidence.is_commit()) => Outcome::Committed,
        History::Incomplete => Outcome::InDoubt,
        // A prepared branch is proof that no single writer decided, and no record says that anybody else did.
        History::Undecided if branches.iter().any(|branch| branch.sighting == Sighting::Listed) => Outcome::RolledBack,
        History::Undecided if settled.is_some() => settled.map_or(Outcome::InDoubt, what_absence_means),
        History::Undecided => {
            let mut answers = BTreeMap::new();
            for branch in branches {
                answers.insert(branch.participant, branch.evidence);
            }
            without_a_record(&answers.into_values().collect::<Vec<_>>(), participants)
        }
    }
}

/// A decision is done when each of its branches is; what a single writer's witness proves is worth a record.
fn note(id: TransactionId, history: History, recalled: Option<&Recalled>, branches: &[BranchPlan]) -> Option<Record> {
    let finished = |branch: &BranchPlan| matches!(branch.action, Action::Finish | Action::FinishUnproven);
    let at_rest = |branch: &BranchPlan| branch.action == Action::Nothing;
    match (history, recalled) {
        (History::Decided, Some(Recalled::Decided(record))) => {
            let done = whole(record, branches) && branches.iter().all(finished);
            done.then_some(Record::Done(id))
        }
        (History::OnePhase, Some(Recalled::Nothing)) => branches.iter().all(at_rest).then_some(Record::OnePhase(id)),
        // Its record was lost, and a witness is as good; while a sibling is prepared, a person has the word.
        (History::Incomplete, _) if branches.iter().all(at_rest) => {
            let any = |wanted: Evidence| branches.iter().any(|branch| branch.evidence == wanted);
            let alone = || any(Evidence::CommittedAlone).then_some(Record::OnePhase(id));
            any(Evidence::Committed).then_some(Record::Witnessed(id)).or_else(alone)
        }
        _ => None,
    }
}

fn whole(record: &CommitRecord, branches: &[BranchPlan]) -> bool {
    record.branches.iter().all(|decided| branches.iter().any(|branch| branch.id == decided.id))
}

fn texts(observation: &Observation) -> impl Iterator<Item = ForeignBranch> {
    observation.scans.iter().flat_map(|(participant, scan)| {
        let texts = match scan {
            Scan::Whole { foreign, .. } => Some(foreign),
            Scan::Failed { .. } => None,
        };
        texts.into_iter().flatten().map(|gid| ForeignBranch { participant: *participant, gid: gid.clone() })
    })
}

fn unscanned(observation: &Observation) -> Vec<Unscanned> {
    let failed = |(participant, scan): (&ParticipantName, &Scan)| match scan {
        Scan::Failed { cause } => Some(Unscanned { participant: *participant, cause: cause.clone() }),
        Scan::Whole { .. } => None,
    };
    observation.scans.iter().filter_map(failed).collect()
}
