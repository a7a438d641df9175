//! What the tests that attack have in common: which cases they take, and the count of what came of them.
//!
//! A matrix has more cases than an everyday run has time for. [`chosen`] takes all of them where `HANDFAST_TORTURE=full`
//! (`make torture`), else a few of each kind, by a seed that it prints and that `HANDFAST_SEED` sets again. A [`Tally`]
//! counts, and leaves its figures in `target/torture` for `docs/torture.md`, which is made from them.

pub mod page;

use crate::servers::{Flavor, installation, target};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Every kind of fault that tests count, in words for the page. Each has to be on it: `scripts/torture NAME..` puts it there.
pub const KINDS: &[&str] = &[
    SOAK,
    "a server is killed",
    "application and server are killed",
    "both servers are killed",
    "recovery is killed",
    "recovery panics",
    "the application is killed",
    "the task that commits panics",
    "upkeep panics",
];

/// What the soak counts.
pub const SOAK: &str = "everything at once, at random (a case is a transaction)";

/// Whether every case is to be tried.
pub fn is_full() -> bool {
    std::env::var("HANDFAST_TORTURE").is_ok_and(|value| value == "full")
}

/// The seed of this run.
///
/// # Panics
/// When `HANDFAST_SEED` is no number.
pub fn seed() -> u64 {
    static SEED: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *SEED.get_or_init(|| match std::env::var("HANDFAST_SEED") {
        Ok(text) => text.parse().unwrap_or_else(|error| panic!("HANDFAST_SEED={text}: {error}")),
        Err(_) => RandomState::new().build_hasher().finish(),
    })
}

/// A sequence of random numbers that a seed repeats (SplitMix64).
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).expect("a machine's size fits");
        usize::try_from(self.roll() % end).expect("it is below a machine's size")
    }
}

/// The cases to try: all in a full run, else `each` of every stratum, as the seed has it.
pub fn chosen<C, K: Ord>(cases: Vec<C>, each: usize, stratum: impl Fn(&C) -> K) -> Vec<C> {
    if is_full() {
        return cases;
    }
    println!("chosen by HANDFAST_SEED={}", seed());
    sample(cases, each, stratum, &mut Dice::new(seed()))
}

fn sample<C, K: Ord>(cases: Vec<C>, each: usize, stratum: impl Fn(&C) -> K, dice: &mut Dice) -> Vec<C> {
    let mut strata: BTreeMap<K, Vec<C>> = BTreeMap::new();
    for case in cases {
        strata.entry(stratum(&case)).or_default().push(case);
    }
    let mut taken = Vec::new();
    for (_, mut of) in strata {
        for _ in 0..each.min(of.len()) {
            taken.push(of.swap_remove(dice.below(of.len())));
        }
    }
    taken
}

/// Switches off the safeguards that `HANDFAST_OFF` names, with commas between: for this process and for good.
///
/// # Panics
/// When there is no such safeguard, or the feature `torture` is not there.
pub fn switch_off_as_told() {
    let Ok(names) = std::env::var("HANDFAST_OFF") else { return };
    for name in names.split(',').filter(|name| !name.is_empty()) {
        switch_off(name);
    }
}

#[cfg(feature = "torture")]
fn switch_off(name: &str) {
    handfast::torture::switch_off(name.parse().unwrap_or_else(|error| panic!("{error}")));
}

#[cfg(not(feature = "torture"))]
fn switch_off(name: &str) {
    panic!("{name} is on: the feature `torture` is not there");
}

/// Counts the cases of one kind of fault over one pair of servers.
pub struct Tally {
    kind: &'static str,
    servers: String,
    counted: Mutex<Counted>,
}

#[derive(Default)]
struct Counted {
    cases: u64,
    violations: Vec<String>,
}

impl Tally {
    /// Of a kind of fault. `servers` as [`pair`] or [`names`] has them.
    ///
    /// # Panics
    /// When the kind is not among [`KINDS`].
    pub fn new(kind: &'static str, servers: impl Into<String>) -> Self {
        assert!(KINDS.contains(&kind) || cfg!(test), "{kind:?} is not in torture::KINDS, so the page would lack it");
        Self { kind, servers: servers.into(), counted: Mutex::default() }
    }

    /// One case was tried: what it has violated, if anything. `Err` has one line for each violation.
    pub fn case<E: Display>(&self, name: impl Display, result: Result<(), E>) {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.cases += 1;
        if let Err(violation) = result {
            eprintln!("VIOLATION {name}: {violation}");
            counted.violations.push(format!("{name}: {violation}"));
        }
    }

    /// So many cases were tried, of which none is worth a name.
    pub fn cases(&self, many: u64) {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner).cases += many;
    }

    /// Leaves the figures for the page, and fails on violations.
    ///
    /// # Panics
    /// With every violation; when nothing was tried; when the figures cannot be written.
    pub fn finish(self) {
        let Counted { cases, violations } = self.counted.into_inner().unwrap_or_else(PoisonError::into_inner);
        assert!(cases > 0, "{}, {}: nothing was tried", self.kind, self.servers);
        let figures = serde_json::json!({
            "kind": self.kind, "servers": self.servers, "cases": cases, "violations": violations, "full": is_full(),
        });
        let directory = directory();
        let file = directory.join(format!("{}.json", file_name(&format!("{} {}", self.kind, self.servers))));
        let written = std::fs::create_dir_all(&directory).and_then(|()| std::fs::write(&file, figures.to_string()));
        written.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        println!("{}, {}: {cases} cases, {} violations", self.kind, self.servers, violations.len());
        assert!(violations.is_empty(), "{} violations:\n{}", violations.len(), violations.join("\n"));
    }
}

fn file_name(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    text.chars().map(plain).collect()
}

/// Where the figures are kept.
pub fn directory() -> PathBuf {
    target().join("torture")
}

/// The servers of a test over PostgreSQL and another: `PostgreSQL 15.18 + MariaDB 10.11.19`.
pub fn pair(other: Flavor) -> String {
    names(&[Flavor::Postgres, other])
}

/// Servers with their real versions.
pub fn names(flavors: &[Flavor]) -> String {
    let name = |flavor: &Flavor| format!("{} {}", flavor.product(), installation(*flavor).version());
    flavors.iter().map(name).collect::<Vec<_>>().join(" + ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_some_of_each_kind_and_is_repeated_by_its_seed() {
        let cases = || (0..100_u32).collect::<Vec<_>>();
        let taken = sample(cases(), 3, |case| case % 7, &mut Dice::new(5));
        assert_eq!(taken.len(), 21);
        assert_eq!(taken, sample(cases(), 3, |case| case % 7, &mut Dice::new(5)));
        assert_ne!(taken, sample(cases(), 3, |case| case % 7, &mut Dice::new(6)));
        for remainder in 0..7 {
            assert_eq!(taken.iter().filter(|case| *case % 7 == remainder).count(), 3);
        }
    }

    #[test]
    #[should_panic(expected = "1 violations:\nB: money is gone")]
    fn a_violation_is_told_at_the_end() {
        let tally = Tally::new("a test of the tally", "nothing");
        tally.case("A", Ok::<_, String>(()));
        tally.case("B", Err("money is gone"));
        tally.finish();
    }
}
