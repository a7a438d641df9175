//! Scripts for recovery. A transaction is written as its incarnation's number and its own: `1.7`; a branch with its
//! participant: `1.7/ledger`. A participant's lineage is 1 unless said otherwise.
//!
//! ```text
//! > incarnation 1 ledger orders
//! > anchor 1 ledger                            its decisions are rows of that participant
//! > remember commit 1.7 ledger orders | done 1.7 | one_phase 1.7 | unsure 1.7 | live 1.7
//! > remember resolved 1.7 commit | resolved 1.7 roll_back
//! > remember damage                            what the plan has found is written down
//! > forget 1.7
//! > settled 1 [unproven] | incomplete 1 | given_up 1 ledger
//! > scan ledger [lineage=2] 1.7/ledger ..       the whole list; a word that is no branch is a foreign one
//! > scan_fails orders connection refused
//! > want 1.7/ledger
//! > heard 1.7/ledger committed
//! > committed 1.7/ledger | gone 1.7/ledger | lost_sight ledger connection reset
//! > unclear 1.7/ledger permission denied
//! > registered 1 3@2                           the registry's rows; @2: by journal 2, else by this one
//! > witnessed 1.7/ledger=committed ..          the witness table's rows
//! > plan
//! > outcome 1.7 never nothing ..
//! ```

use super::Machine;
use crate::id::{BranchId, Incarnation, JournalId, Lineage, ParticipantName, TransactionId};
use crate::protocol::recovery::tests::books::{self, Books};
use crate::protocol::recovery::{
    Evidence, Observation, Plan, Recalled, RegistryRow, Scan, Stale, WitnessRow, outcome_of, plan, unknown_decision,
    unknown_opening,
};
use crate::protocol::{Absence, Resolution};
use std::collections::BTreeSet;

#[derive(Default)]
pub(super) struct Script {
    memory: Books,
    observation: Option<Observation>,
}

impl Machine for Script {
    fn say(&mut self, words: &[&str]) -> Option<Vec<String>> {
        match words {
            ["incarnation", number, participants @ ..] => self.memory.open(number.parse().unwrap(), participants),
            ["anchor", number, name] => {
                let incarnation = Incarnation(number.parse().unwrap());
                let names = &self.memory.incarnations[&incarnation].participants;
                let number = names.iter().position(|other| other.as_str() == *name).unwrap();
                self.memory.anchors.insert(incarnation, u16::try_from(number).unwrap());
            }
            ["settled", number, rest @ ..] => {
                let absence = if rest == ["unproven"] { Absence::Unproven } else { Absence::RolledBack };
                self.memory.settled.insert(Incarnation(number.parse().unwrap()), absence);
            }
            ["incomplete", number] => self.memory.incomplete.extend([Incarnation(number.parse().unwrap())]),
            ["given_up", number, participant] => {
                let what = (Incarnation(number.parse().unwrap()), participant.parse().unwrap());
                self.memory.given_up.insert(what);
            }
            ["remember", "damage"] => self.remember_damage(),
            ["remember", what, id, rest @ ..] => self.remember(what, id, rest),
            ["forget", id] => self.memory.forget(transaction(id)),
            ["scan", participant, rest @ ..] => self.scan(participant, rest),
            ["scan_fails", participant, cause @ ..] => {
                let cause = cause.join(" ");
                self.observation().scanned(participant.parse().unwrap(), Scan::Failed { cause });
            }
            [what @ ("want" | "heard" | "committed" | "gone"), branch, evidence @ ..] => {
                let id = self.branch(branch).unwrap();
                match *what {
                    "want" => self.observation().want(id),
                    "heard" => self.observation().heard(id, parse(evidence[0])),
                    "committed" => self.observation().committed(id),
                    _ => self.observation().gone(id),
                }
            }
            ["lost_sight", participant, cause @ ..] => {
                self.observation().lost_sight(participant.parse().unwrap(), cause.join(" "));
            }
            ["unclear", branch, cause @ ..] => {
                let id = self.branch(branch).unwrap();
                self.observation().unclear(id, cause.join(" "));
            }
            ["registered", rows @ ..] => {
                let rows: Vec<_> = rows.iter().map(|row| registered(row)).collect();
                return Some(print_stale(unknown_opening(&self.memory, JOURNAL, &rows)));
            }
            ["witnessed", rows @ ..] => {
                let rows: Vec<_> = rows.iter().map(|row| self.witnessed(row)).collect();
                return Some(print_stale(unknown_decision(&self.memory, &rows)));
            }
            ["new_pass"] => self.observation = None,
            ["plan"] => {
                self.observation();
                let observation = self.observation.as_ref().unwrap();
                return Some(print(&plan(&self.memory, observation)));
            }
            ["outcome", id, answers @ ..] => {
                let answers: Vec<_> = answers.iter().map(|answer| parse(answer)).collect();
                let outcome = outcome_of(&self.memory, transaction(id), &answers);
                return Some(vec![outcome.map_or("unknown".into(), |outcome| format!("{outcome:?}"))]);
            }
            _ => return None,
        }
        Some(Vec::new())
    }
}

impl Script {
    /// A pass begins when it is first spoken of.
    fn observation(&mut self) -> &mut Observation {
        self.observation.get_or_insert_with(|| Observation::new(&self.memory))
    }

    fn remember(&mut self, what: &str, id: &str, participants: &[&str]) {
        let transaction = transaction(id);
        let recalled = match what {
            "live" => {
                self.memory.live.insert(transaction);
                return;
            }
            "commit" => Recalled::Decided(self.memory.decision(transaction, participants)),
            "done" => Recalled::Finished,
            "one_phase" => Recalled::OnePhase,
            "unsure" => Recalled::Unsure,
            "resolved" => Recalled::Resolved(match participants {
                ["commit"] => Resolution::Commit,
                ["roll_back"] => Resolution::RollBack,
                other => panic!("{other:?} is no resolution"),
            }),
            _ => panic!("{what} cannot be remembered"),
        };
        self.memory.recalled.insert(transaction, recalled);
    }

    /// What the plan of this pass has found, as the shell writes it down.
    fn remember_damage(&mut self) {
        self.observation();
        let plan = plan(&self.memory, self.observation.as_ref().unwrap());
        plan.damages().for_each(|(id, branches)| self.memory.damage(id, branches));
    }

    fn scan(&mut self, participant: &str, words: &[&str]) {
        let (mut lineage, mut branches, mut foreign) = (Lineage(1), BTreeSet::new(), BTreeSet::new());
        for word in words {
            if let Some(other) = word.strip_prefix("lineage=") {
                lineage = Lineage(other.parse().unwrap());
            } else if let Some(branch) = self.branch(word) {
                branches.insert(branch);
            } else {
                foreign.insert((*word).to_owned());
            }
        }
        self.observation().scanned(participant.parse().unwrap(), Scan::Whole { lineage, branches, foreign });
    }

    fn witnessed(&self, word: &str) -> WitnessRow {
        let (branch, evidence) = word.split_once('=').unwrap();
        let BranchId { transaction, participant, .. } = self.branch(branch).unwrap();
        let TransactionId { incarnation, sequence, .. } = transaction;
        WitnessRow { incarnation, participant, sequence, evidence: parse(evidence) }
    }

    fn branch(&self, word: &str) -> Option<BranchId> {
        let (id, name) = word.split_once('/')?;
        let transaction = transaction(id);
        let participants = self.memory.incarnations.get(&transaction.incarnation).map(|record| &record.participants);
        let position = |names: &Vec<ParticipantName>| names.iter().position(|other| other.as_str() == name);
        let number = participants.and_then(position).unwrap_or(9);
        Some(transaction.branch(u16::try_from(number).unwrap(), 0))
    }
}

fn transaction(word: &str) -> TransactionId {
    let (incarnation, sequence) = word.split_once('.').unwrap();
    books::transaction(incarnation.parse().unwrap(), sequence.parse().unwrap())
}

/// The journal of every script.
const JOURNAL: JournalId = JournalId(1);

/// `3`, or `3@2` where journal 2 opened it.
fn registered(word: &str) -> RegistryRow {
    let (incarnation, journal) = word.split_once('@').unwrap_or((word, "1"));
    let (incarnation, journal) = (Incarnation(incarnation.parse().unwrap()), JournalId(journal.parse().unwrap()));
    RegistryRow { incarnation, journal, node: "node".parse().unwrap() }
}

fn print_stale(stale: Option<Stale>) -> Vec<String> {
    vec![stale.map_or("sound".into(), |stale| format!("stale: {stale}"))]
}

fn parse(word: &str) -> Evidence {
    *Evidence::ALL.iter().find(|evidence| evidence.as_str() == word).unwrap()
}

fn print(plan: &Plan) -> Vec<String> {
    let mut lines = Vec::new();
    for transaction in &plan.transactions {
        let (incarnation, sequence) = (transaction.id.incarnation.0, transaction.id.sequence);
        let (decision, action) = (transaction.history.decision(), transaction.action.as_str());
        lines.push(format!("{incarnation}.{sequence}: decision {decision}, {:?}: {action}", transaction.outcome));
        for branch in &transaction.branches {
            let (sighting, evidence) = (branch.sighting.as_str(), branch.evidence.as_str());
            let (participant, action) = (branch.participant, branch.action.as_str());
            lines.push(format!("  {participant}: {sighting}, {evidence} -> {action} ({}) {}", branch.row, branch.why));
        }
        for known in transaction.damage.iter().flat_map(|record| &record.branches) {
            lines.push(format!("  damaged before: {}: {}", known.participant, known.why));
        }
        if let Some(note) = &transaction.note {
            let name = format!("{note:?}");
            lines.push(format!("  note {}", name.split('(').next().unwrap()));
        }
    }
    for (id, branches) in plan.damages() {
        let branches: Vec<_> = branches.iter().map(|branch| branch.participant.as_str()).collect();
        lines.push(format!("append Damaged({}.{}: {})", id.incarnation.0, id.sequence, branches.join(", ")));
    }
    lines.extend(plan.foreign.iter().map(|foreign| format!("foreign on {}: {}", foreign.participant, foreign.gid)));
    if lines.is_empty() {
        lines.push("(nothing to do)".into());
    }
    lines.extend(plan.unscanned.iter().map(|lost| format!("not scanned: {} ({})", lost.participant, lost.cause)));
    lines
}
