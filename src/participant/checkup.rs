//! What the checks of all participants share: how a finding is put, and the name of the branch that a check prepares.

use super::witness::random;
use super::{Finding, Severity};
use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A prepared branch this old is nobody's work in progress: no transaction's deadline is that long.
pub(super) const OLD: Duration = Duration::from_secs(3600);

/// Another check's branch this old is one that its program left behind.
pub(super) const LEFT_BEHIND: Duration = Duration::from_secs(60);

/// A difference of clocks that people should know of when they compare two logs.
const CLOCKS_APART: f64 = 5.0;

/// So many names are shown of a longer list.
const SHOWN: usize = 5;

impl Severity {
    /// The word, as the tool prints it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Failure => "failure",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Finding {
    /// As it should be.
    pub fn good(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, severity: Severity::Good, found: found.into(), why: String::new(), cure: None }
    }

    /// Not as it should be, or worth knowing: what was found, and why it matters.
    pub fn of(severity: Severity, check: &'static str, found: impl Into<String>, why: impl Into<String>) -> Self {
        Self { check, severity, found: found.into(), why: why.into(), cure: None }
    }

    /// Adds what mends it.
    #[must_use]
    pub fn cure(mut self, cure: impl Into<String>) -> Self {
        self.cure = Some(cure.into());
        self
    }

    /// What was found, why it matters and what mends it, in a line.
    pub fn sentence(&self) -> String {
        let parts = [&self.found, &self.why].into_iter().chain(&self.cure);
        parts.filter(|part| !part.is_empty()).map(String::as_str).collect::<Vec<_>>().join("; ")
    }

    /// A setting that breaks the promise: a failure, unless the configuration has accepted it.
    pub(super) fn breaks_promise(
        check: &'static str,
        allow_unsafe: bool,
        found: impl Into<String>,
        why: impl Into<String>,
    ) -> Self {
        match allow_unsafe {
            true => {
                let why = format!("{}; accepted by allow_unsafe = true", why.into());
                Self::of(Severity::Warning, check, found, why)
            }
            false => Self::of(Severity::Failure, check, found, why),
        }
    }
}

/// The first few of many names, and how many there are.
pub(super) fn some(names: &[String]) -> String {
    let shown = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len() {
        0..=SHOWN => shown,
        more => format!("{shown} and {} more", more - SHOWN),
    }
}

/// A duration in its largest unit that is not small.
pub(super) fn age(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds @ 120..=7_199 => format!("{} min", seconds / 60),
        seconds @ 7_200..=172_799 => format!("{} h", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

/// Something that this role or account is not shown.
pub(super) fn unseen(check: &'static str, why: impl Into<String>) -> Finding {
    Finding::of(Severity::Note, check, "could not be checked", why)
}

/// What an error says, without the participant, which is said elsewhere.
pub(super) fn message(error: &Error) -> String {
    let text = error.to_string();
    match error.participant().map(|name| format!("{name}: ")) {
        Some(prefix) => text.strip_prefix(&prefix).unwrap_or(&text).to_owned(),
        None => text,
    }
}

/// Compares the server's clock with this machine's, which was read before and after it was asked.
pub(super) fn clocks(server: f64, before: SystemTime, after: SystemTime) -> Finding {
    let seconds = |at: SystemTime| at.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    let (before, after) = (seconds(before), seconds(after));
    // Whatever the answer took is no difference.
    let apart = if server < before { server - before } else { (server - after).max(0.0) };
    if apart.abs() <= CLOCKS_APART {
        return Finding::good("clock", "the server's clock and this machine's agree");
    }
    let which = if apart > 0.0 { "ahead of" } else { "behind" };
    let found = format!("the server's clock is {:.0} s {which} this machine's", apart.abs());
    Finding::of(Severity::Note, "clock", found, "nothing depends on it, but the two logs do not compare")
        .cure("let both follow the same time source (NTP)")
}

/// A time limit of the server that is shorter than what it limits; `None` is no limit.
pub(super) fn too_short(limit: Option<Duration>, needed: Duration) -> Option<Duration> {
    limit.filter(|limit| *limit < needed)
}

/// The participant keeps no witness.
pub(super) fn witness(on: bool) -> Finding {
    if on {
        return Finding::good("witness", "each branch leaves a proof of its commit");
    }
    let why = "a branch that is gone after the decision cannot be told from one that was committed";
    Finding::of(Severity::Warning, "witness", "witness = false: branches leave no proof of their commit", why)
        .cure("remove `witness = false` from this participant's configuration")
}

/// The one real branch that a check prepares, by its own name: `handfast-doctor.` and 16 hexadecimal digits. It is no id of
/// ours, so that no recovery takes it for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProbeName(pub(super) u64);

const PREFIX: &str = "handfast-doctor.";

impl ProbeName {
    pub(super) fn new() -> Result<Self> {
        random().map(Self)
    }

    /// The incarnation that its row in the witness table has; nobody's.
    pub(super) fn incarnation(self) -> i64 {
        self.0.cast_signed()
    }
}

impl fmt::Display for ProbeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{:016x}", self.0)
    }
}

/// The whole of it or nothing: what merely begins so is somebody else's.
impl FromStr for ProbeName {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let digits = text.strip_prefix(PREFIX).ok_or(())?;
        let name = u64::from_str_radix(digits, 16).map(Self).map_err(drop)?;
        if name.to_string() == text { Ok(name) } else { Err(()) }
    }
}

/// What a check that came to its end did.
pub(super) fn probed() -> Finding {
    Finding::good("probe", "a branch was prepared, listed and rolled back")
}

/// What went wrong with it.
pub(super) fn probe_failed(found: String, is_prepared: bool) -> Finding {
    let why = match is_prepared {
        true => "commits would fail or stay in doubt; the branch may be left, and the next `handfast doctor` ends it",
        false => "commits would fail in the same way",
    };
    Finding::of(Severity::Failure, "probe", found, why)
        .cure("mend what the message names, then run `handfast doctor` again")
}

/// Branches of earlier checks that this one has ended.
pub(super) fn swept(names: &[String]) -> Finding {
    let found = format!("rolled back what an earlier check left prepared: {}", some(names));
    Finding::of(Severity::Note, "leftovers", found, "that check was ended in the middle")
}

/// What may be seen of whom, made fit for a terminal: without control characters, 80 of them at most.
pub(super) fn statement(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let words = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(80) {
        Some(_) => words.chars().take(78).chain("..".chars()).collect(),
        None => words,
    }
}

/// Somebody who waits, for people: `app@10.0.0.7, 12 s: UPDATE account ..`.
pub(super) fn waits(user: Option<&str>, address: Option<&str>, waiting: Duration, text: &str) -> String {
    let (user, address) = (user.unwrap_or("(unknown user)"), address.unwrap_or("(unknown address)"));
    let who = statement(&format!("{user}@{address}"));
    let text = if text.is_empty() { "(its statement cannot be seen)".into() } else { statement(text) };
    format!("{who}, {}: {text}", age(waiting))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_known_by_its_whole_name() {
        let name = ProbeName(0x1f);
        assert_eq!(name.to_string(), "handfast-doctor.000000000000001f");
        assert_eq!(name.to_string().parse(), Ok(name));
        for other in [
            "handfast-doctor.1f",
            "handfast-doctor.000000000000001F",
            "handfast-doctor.000000000000001f2",
            "handfast-doctor.+00000000000001f",
            "handfast-doctor.000000000000001f ",
            "Handfast-doctor.000000000000001f",
            "hf1.n.000000000000001f.1.0.0",
        ] {
            assert_eq!(other.parse::<ProbeName>(), Err(()), "{other}");
        }
        assert!(name.to_string().parse::<crate::id::BranchId>().is_err(), "no recovery takes it for one of ours");
    }

    #[test]
    fn an_answer_that_took_long_is_no_difference_of_clocks() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let severity = |server| clocks(server, at(100), at(130)).severity;
        assert_eq!(severity(96.0), Severity::Good);
        assert_eq!(severity(115.0), Severity::Good);
        assert_eq!(severity(134.0), Severity::Good);
        assert_eq!(severity(94.0), Severity::Note);
        assert_eq!(clocks(137.0, at(100), at(130)).found, "the server's clock is 7 s ahead of this machine's");
    }

    #[test]
    fn names_and_statements_are_cut() {
        let names: Vec<_> = (1..=7).map(|n| format!("t{n}")).collect();
        assert_eq!(some(&names[..5]), "t1, t2, t3, t4, t5");
        assert_eq!(some(&names), "t1, t2, t3, t4, t5 and 2 more");
        let long = statement(&format!("SELECT\x1b[31m\n  {}", "x".repeat(100)));
        assert_eq!((long.chars().count(), long.starts_with("SELECT [31m xx"), long.ends_with("..")), (80, true, true));
        let who = waits(Some("app"), None, Duration::from_secs(12), "UPDATE t");
        assert_eq!(who, "app@(unknown address), 12 s: UPDATE t");
    }

    #[test]
    fn what_breaks_the_promise_is_a_failure_unless_it_was_accepted() {
        let finding = |allowed| Finding::breaks_promise("fsync", allowed, "fsync is off", "commits are lost");
        assert_eq!(finding(false).severity, Severity::Failure);
        assert_eq!(finding(true).severity, Severity::Warning);
        let sentence = finding(false).cure("set it on").sentence();
        assert_eq!(sentence, "fsync is off; commits are lost; set it on");
    }
}
