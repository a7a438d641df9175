//! Scripts for a coordinator.
//!
//! ```text
//! > transaction ledger orders audit:read_only [acknowledge=decided] [payload=key] [anchor=ledger]
//! > commit
//! > vote ledger prepared
//! > durable | append_failed | remembered
//! > finish ledger done
//! > abort
//! ```

use super::Machine;
use crate::id::{BranchId, Incarnation, Lineage, TransactionId};
use crate::protocol::{Acknowledge, Branch, Coordinator, Finish, Input, Mode, Output, Payload, Record, Vote};

#[derive(Default)]
pub(super) struct Script {
    coordinator: Option<Coordinator>,
    branches: Vec<Branch>,
}

/// The transaction of every script.
fn transaction() -> TransactionId {
    TransactionId { node: "node".parse().unwrap(), incarnation: Incarnation(1), sequence: 7 }
}

impl Machine for Script {
    fn say(&mut self, words: &[&str]) -> Option<Vec<String>> {
        let input = match words {
            ["transaction", rest @ ..] => {
                self.begin(rest);
                return Some(Vec::new());
            }
            ["commit"] => Input::Commit,
            ["abort"] => Input::Abort,
            ["durable"] => Input::Durable,
            ["append_failed"] => Input::AppendFailed,
            ["remembered"] => Input::Remembered,
            ["vote", branch, vote] => Input::Voted(self.id(branch), parse_vote(vote)),
            ["finish", branch, finish] => Input::Finished(self.id(branch), parse_finish(finish)),
            _ => return None,
        };
        self.coordinator.as_mut().unwrap().handle(input);
        Some(self.drain())
    }
}

impl Script {
    fn begin(&mut self, words: &[&str]) {
        let mut acknowledge = Acknowledge::Applied;
        let (mut payload, mut anchor) = (None, None);
        self.branches.clear();
        for word in words {
            match word.split_once('=') {
                Some(("acknowledge", "decided")) => acknowledge = Acknowledge::Decided,
                Some(("payload", key)) => payload = Some(Payload { key: key.into(), bytes: b"position".into() }),
                Some(("anchor", name)) => anchor = Some(name.to_owned()),
                Some(other) => panic!("unknown option {other:?}"),
                None => self.add(word),
            }
        }
        let coordinator = Coordinator::new(transaction(), self.branches.clone(), acknowledge, payload);
        self.coordinator = Some(match anchor {
            Some(name) => coordinator.anchored(self.id(&name)),
            None => coordinator,
        });
    }

    fn add(&mut self, word: &str) {
        let (name, mode) = match word.split_once(':') {
            Some((name, "read_only")) => (name, Mode::ReadOnly),
            Some(other) => panic!("unknown mode {other:?}"),
            None => (word, Mode::Writer),
        };
        let number = u16::try_from(self.branches.len()).unwrap();
        let id = transaction().branch(number, 0);
        self.branches.push(Branch { id, participant: name.parse().unwrap(), lineage: Lineage(1), mode });
    }

    fn id(&self, name: &str) -> BranchId {
        self.branches.iter().find(|branch| branch.participant.as_str() == name).unwrap().id
    }

    fn name(&self, id: BranchId) -> String {
        self.branches.iter().find(|branch| branch.id == id).unwrap().participant.to_string()
    }

    fn drain(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        while let Some(output) = self.coordinator.as_mut().unwrap().poll() {
            lines.push(self.print(&output));
        }
        if self.coordinator.as_ref().unwrap().is_finished() {
            lines.push("finished".into());
        }
        if lines.is_empty() {
            lines.push("(nothing)".into());
        }
        lines
    }

    fn print(&self, output: &Output) -> String {
        match output {
            Output::Prepare(id) => format!("prepare {}", self.name(*id)),
            Output::EndReadOnly(id) => format!("end_read_only {}", self.name(*id)),
            Output::CommitOnePhase(id) => format!("commit_one_phase {}", self.name(*id)),
            Output::CommitAnchor(id, record) => {
                format!("commit_anchor {} with {}", self.name(*id), self.print_record(&Record::Commit(record.clone())))
            }
            Output::Commit(id) => format!("commit {}", self.name(*id)),
            Output::RollBack(id) => format!("roll_back {}", self.name(*id)),
            Output::Leave(id) => format!("leave {}", self.name(*id)),
            Output::Append(record) => format!("append {}", self.print_record(record)),
            Output::Damage(branch) => format!("damage {}: {}", branch.participant, branch.why),
            Output::Note(record) => format!("note {}", self.print_record(record)),
            Output::Answer(outcome) => format!("answer {outcome:?}"),
        }
    }

    fn print_record(&self, record: &Record) -> String {
        match record {
            Record::Commit(commit) => {
                let branches: Vec<_> = commit.branches.iter().map(|branch| self.name(branch.id)).collect();
                let payload = commit.payload.as_ref().map_or("", |_| " with payload");
                format!("Commit({}){payload}", branches.join(", "))
            }
            Record::Done(_) => "Done".into(),
            Record::OnePhase(_) => "OnePhase".into(),
            other => panic!("no coordinator writes {other:?}"),
        }
    }
}

fn parse_vote(word: &str) -> Vote {
    match word {
        "prepared" => Vote::Prepared,
        "read_only" => Vote::ReadOnly,
        "no" => Vote::No,
        "lost" => Vote::Lost,
        "unknown" => Vote::Unknown,
        _ => panic!("{word} is no vote"),
    }
}

fn parse_finish(word: &str) -> Finish {
    match word {
        "done" => Finish::Done,
        "rolled_back" => Finish::RolledBack,
        "lost" => Finish::Lost,
        "unknown" => Finish::Unknown,
        _ => panic!("{word} is no finish"),
    }
}
