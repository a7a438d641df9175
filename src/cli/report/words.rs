//! The words of a report: what was found, decided and proven, for people.

use crate::protocol::Outcome;
use crate::protocol::recovery::{Action, Evidence, History};
use humantime_serde::re::humantime::format_rfc3339_seconds;
use serde::{Serialize, Serializer};
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A moment in milliseconds since 1970: `2026-11-29T23:01:12Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment(pub u64);

impl Moment {
    /// This one, by this machine's clock.
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What no clock can have written is none.
        match UNIX_EPOCH.checked_add(Duration::from_millis(self.0)).filter(|_| self.0 < 253_402_300_800_000) {
            Some(at) => format_rfc3339_seconds(at).fmt(f),
            None => f.write_str("(no time)"),
        }
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// What the journal says of a transaction.
pub fn decision(history: History) -> &'static str {
    match history {
        History::Foreign => "not this journal's",
        History::Live => "at work",
        History::Unsure => "decision not known to be durable",
        History::Anchor | History::Anchored => "its anchor was not asked yet",
        History::Undecided => "no decision to commit",
        History::Stale => "decided, but not in this journal",
        History::Decided | History::Unnamed | History::Finished => "decided to commit",
        History::OnePhase => "committed by its only writer",
        History::Incomplete => "whether it was decided is lost",
        History::Contradicted => "no decision, and its branches contradict that",
        History::ResolvedCommit => "a person decided to commit",
        History::ResolvedRollBack => "a person decided to roll back",
        History::Forgotten => "damaged, and dealt with by a person",
    }
}

/// What is to be done, or was.
pub fn what(action: Action, done: bool, outcome: Option<Outcome>) -> &'static str {
    match (action, done) {
        (Action::Commit, true) | (Action::Finish, _) => "committed",
        (Action::Commit, false) => "to be committed",
        (Action::RollBack, true) => "rolled back",
        (Action::RollBack, false) => "to be rolled back",
        (Action::FinishUnproven, _) => "committed, as far as can be told",
        (Action::Ask, _) => "to be asked whether it committed",
        (Action::Wait, _) => "has to wait",
        (Action::Resolve, _) => "a person has to decide",
        (Action::Damage, _) => "DAMAGED",
        (Action::Leave, _) => "left alone",
        (Action::Nothing, _) => match outcome {
            Some(Outcome::Committed) => "committed",
            Some(Outcome::RolledBack) => "rolled back",
            _ => "nothing to be done",
        },
    }
}

/// What is proven of a branch, as the end of what was seen of it.
pub fn proof(evidence: Evidence) -> &'static str {
    match evidence {
        Evidence::NotAsked | Evidence::Wanted => "",
        Evidence::Committed => ", proven to have committed",
        Evidence::CommittedAlone => ", proven to have committed alone",
        Evidence::Never => ", proven never to have committed",
        Evidence::Nothing => ", no proof of a commit",
        Evidence::Blocked => ", another session holds it",
        Evidence::Off => ", keeps no proof",
    }
}

/// A duration in its largest unit that is not zero: enough to tell a moment from a night.
pub fn for_people(seconds: u64) -> String {
    let age = Duration::from_secs(seconds);
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", age.as_secs() / 60),
        7_200..=172_799 => format!("{} h", age.as_secs() / 3_600),
        _ => format!("{} days", age.as_secs() / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_for_people() {
        let ages = [0, 119, 120, 7_199, 7_200, 172_800].map(for_people);
        assert_eq!(ages, ["0 s", "119 s", "2 min", "119 min", "2 h", "2 days"]);
    }
}
