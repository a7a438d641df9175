//! How much is measured, from the environment; `docs/performance.md` has the table.

use integration_tests::servers::{self, Flavor};
use std::fmt::Debug;
use std::str::FromStr;
use std::time::Duration;

/// What there is to measure, in the order in which it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Every variant against the clock.
    Timed,
    /// Round trips and forced writes.
    Counted,
    /// Two, three, four and eight databases.
    Participants,
    /// How long a begin takes, with and without a session at hand.
    Begin,
    /// What an open transaction holds.
    Memory,
    /// From in doubt to settled.
    Recovery,
    /// The journal without databases.
    Journal,
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "timed" => Self::Timed,
            "counted" => Self::Counted,
            "participants" => Self::Participants,
            "begin" => Self::Begin,
            "memory" => Self::Memory,
            "recovery" => Self::Recovery,
            "journal" => Self::Journal,
            other => return Err(format!("there is no part {other:?}")),
        })
    }
}

/// How much is measured.
pub struct Plan {
    pub rounds: usize,
    pub slice: Duration,
    pub concurrency: Vec<usize>,
    pub servers: Vec<Flavor>,
    /// Whether MariaDB and MySQL keep a binary log in what is timed.
    pub binlog: bool,
    /// Transactions for each figure that is counted.
    pub counted: usize,
    /// Transactions that are open at once when memory is looked at.
    pub open: usize,
    /// Transactions in doubt when recovery begins.
    pub in_doubt: usize,
    /// Finished transactions in the journal whose start is timed.
    pub finished: usize,
    parts: Vec<Part>,
    variants: Option<Vec<String>>,
}

impl Plan {
    pub fn from_environment() -> Self {
        let servers: Vec<String> = list("BENCH_SERVERS", "mariadb,mysql");
        let known = |name: &String| {
            let flavor = Flavor::ALL.into_iter().find(|flavor| flavor.as_str() == name);
            flavor.unwrap_or_else(|| panic!("BENCH_SERVERS: {name:?} is no server"))
        };
        let servers = servers.iter().map(known).filter(|flavor| servers::is_available(*flavor)).collect();
        Self {
            rounds: one("BENCH_ROUNDS", "5"),
            slice: Duration::from_millis(one("BENCH_SLICE_MS", "450")),
            concurrency: list("BENCH_CONCURRENCY", "1,8,32,128"),
            servers,
            binlog: one::<u8>("BENCH_BINLOG", "0") != 0,
            counted: one("BENCH_COUNTED", "40"),
            open: one("BENCH_OPEN", "1000"),
            in_doubt: one("BENCH_IN_DOUBT", "1000"),
            finished: one("BENCH_FINISHED", "1000000"),
            parts: list("BENCH_PARTS", "timed,counted,participants,begin,memory,recovery,journal"),
            variants: std::env::var_os("BENCH_VARIANTS").map(|_| list("BENCH_VARIANTS", "")),
        }
    }

    pub fn has(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }

    /// Whether anything is asked for that needs a server.
    pub fn needs_servers(&self) -> bool {
        self.parts.iter().any(|part| *part != Part::Journal)
    }

    /// Leaves out what was not asked for.
    pub fn keeps(&self, variant: &str) -> bool {
        self.variants.as_ref().is_none_or(|wanted| wanted.iter().any(|name| name == variant))
    }

    /// Transactions at once at most.
    pub fn most(&self) -> usize {
        self.concurrency.iter().copied().max().expect("BENCH_CONCURRENCY names one at least")
    }
}

fn one<T: FromStr<Err: Debug>>(name: &str, default: &str) -> T {
    let text = std::env::var(name).unwrap_or_else(|_| default.to_owned());
    text.trim().parse().unwrap_or_else(|error| panic!("{name}: {text:?}: {error:?}"))
}

fn list<T: FromStr<Err: Debug>>(name: &str, default: &str) -> Vec<T> {
    let text = std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let parsed = text.split(',').map(|part| part.trim().parse());
    parsed.map(|part| part.unwrap_or_else(|error| panic!("{name}: {text:?}: {error:?}"))).collect()
}
