//! One application's life, and the verdict on it.

use crate::ground::Life;
use crate::script::Script;
use handfast::Outcome;
use integration_tests::application::{Application, Said};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// What both databases show at the end: of `ledger`, of `orders`.
pub struct Seen {
    pub keys: [BTreeSet<i32>; 2],
    pub prepared: [Vec<String>; 2],
    pub locked: [BTreeSet<i32>; 2],
}

/// What one application did, was told, and left.
pub struct Trial {
    pub name: String,
    pub script: &'static Script,
    pub life: Life,
    /// What has to come of it, where that is certain.
    pub expected: Option<Outcome>,
    /// What it was answered while it lived.
    said: BTreeMap<i32, Said>,
    /// What recovery found, each time.
    found: Vec<(i32, Outcome)>,
    violations: Vec<String>,
}

/// The signal of `abort`.
const SIGABRT: i32 = 6;

/// Whether a process has stopped where it was told to.
pub fn is_stopped(status: ExitStatus) -> bool {
    status.signal() == Some(SIGABRT)
}

impl Trial {
    pub fn new(name: String, script: &'static Script, life: Life) -> Self {
        let (said, found, violations) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { name, script, life, expected: None, said, found, violations }
    }

    /// Its keys.
    pub fn keys(&self) -> impl Iterator<Item = i32> + use<> {
        self.life.first_key..self.life.first_key + self.script.keys
    }

    pub fn violated(&mut self, what: impl Into<String>) {
        self.violations.push(what.into());
    }

    /// Remembers what an application said before it ended. Whoever was not stopped has to end well.
    pub fn heard(&mut self, application: &Application, status: Option<ExitStatus>) {
        self.said.extend(application.transactions());
        for line in application.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["found", key, _, outcome] => {
                    let key = key.parse().expect("a key");
                    self.found.push((key, outcome_named(outcome)));
                }
                ["unsettled", ..] => self.violated(line),
                _ => {}
            }
        }
        if let Some(status) = status.filter(|status| !status.success() && !is_stopped(*status)) {
            self.violated(format!("{status}: {:?} {}", application.lines(), application.errors()));
        }
    }

    /// What another process of the application, or of recovery, has to be told of it.
    pub fn known(&self) -> String {
        self.said.iter().map(|(key, said)| format!("know {key} {}\n", said.id)).collect()
    }

    /// What is wrong, a line each.
    pub fn judge(mut self, seen: &Seen) -> Result<(), String> {
        let settled = self.violations.is_empty();
        let node = format!("hf1.{}.", self.life.node);
        for (side, prepared) in ["ledger", "orders"].into_iter().zip(&seen.prepared) {
            let left: Vec<&String> = prepared.iter().filter(|name| name.starts_with(&node)).collect();
            if !left.is_empty() {
                self.violated(format!("{left:?} is prepared on {side}"));
            }
        }
        for key in self.keys() {
            self.judge_key(key, seen);
        }
        if settled && !self.said.is_empty() && self.found.is_empty() {
            self.violated("nobody has said what became of it");
        }
        if self.violations.is_empty() { Ok(()) } else { Err(self.violations.join("\n    ")) }
    }

    fn judge_key(&mut self, key: i32, seen: &Seen) {
        let there = [0, 1].map(|side| seen.keys[side].contains(&key));
        let written = ["ledger", "orders"].map(|side| self.script.writes.contains(&side));
        let is_there = there[0] || there[1];
        if there != written && is_there {
            self.violated(format!("key {key} is on ledger: {}, on orders: {}", there[0], there[1]));
        }
        for (side, locked) in ["ledger", "orders"].into_iter().zip(&seen.locked) {
            if locked.contains(&key) {
                self.violated(format!("key {key} is locked on {side}"));
            }
        }
        let answer = self.said.get(&key).and_then(|said| said.answer);
        let found: Vec<Outcome> = self.found.iter().filter(|(of, _)| *of == key).map(|(_, outcome)| *outcome).collect();
        let outcome = if is_there { Outcome::Committed } else { Outcome::RolledBack };
        if !matches!(answer, None | Some(Outcome::InDoubt)) && answer != Some(outcome) {
            self.violated(format!("key {key} was answered {answer:?}, and it is {outcome:?}"));
        }
        if found.iter().any(|found| *found != outcome) {
            self.violated(format!("key {key} was found to be {found:?}, and it is {outcome:?}"));
        }
        if self.expected.is_some_and(|expected| expected != outcome) {
            self.violated(format!("key {key} is {outcome:?}, where only {:?} is right", self.expected));
        }
        if is_there && !self.script.may_commit() {
            self.violated(format!("key {key} is committed, which nobody wanted"));
        }
    }
}

fn outcome_named(name: &str) -> Outcome {
    let all = [Outcome::Committed, Outcome::RolledBack, Outcome::InDoubt, Outcome::Damaged];
    all.into_iter().find(|one| format!("{one:?}") == name).unwrap_or_else(|| panic!("{name:?} is no outcome"))
}
