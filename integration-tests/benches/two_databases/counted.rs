//! Round trips and forced writes of a transaction, counted, not timed: one transaction at a time, first through relays
//! that count round trips, then under `strace`, which makes everything slow.
//!
//! A way is opened, does so many transactions and is closed; then the same with three times as many. The difference
//! is what the transactions cost: opening and closing, which force writes too, are not in it.

mod counters;
mod relay;
mod strace;

use crate::cpu;
use crate::plan::Plan;
use crate::spread::rounded;
use crate::stage::{Access, Size, Stage};
use crate::ways::{Variant, Ways};
use integration_tests::servers::Flavor;
use relay::Relay;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use strace::Strace;

/// What is counted. The servers know their logs; `strace` knows every file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    TripsPostgres,
    TripsMysql,
    /// Forced writes of PostgreSQL's write-ahead log, of InnoDB's redo log, of the binary log, and of where decisions
    /// are: Handfast's journal, or the log of the hand-written commit.
    Wal,
    Redo,
    Binlog,
    Journal,
    /// Of the servers' data files, in the background: nobody waits for them.
    Other,
    /// Those of the first two by the servers' own counters.
    CounterWal,
    CounterRedo,
}

const NAMES: [(What, &str); 9] = [
    (What::TripsPostgres, "round_trips_postgres"),
    (What::TripsMysql, "round_trips_mysql"),
    (What::Wal, "forced_wal"),
    (What::Redo, "forced_redo"),
    (What::Binlog, "forced_binlog"),
    (What::Journal, "forced_journal"),
    (What::Other, "forced_other"),
    (What::CounterWal, "counter_wal"),
    (What::CounterRedo, "counter_redo"),
];

/// The counts, in the order of [`NAMES`]; none where there is nobody who counts.
#[derive(Debug, Clone, Copy, Default)]
struct Counts([Option<f64>; NAMES.len()]);

impl Counts {
    fn get(&self, what: What) -> Option<f64> {
        self.0[what as usize]
    }

    /// All forced writes that a transaction waits for, whoever counted them.
    fn forced(&self) -> Option<f64> {
        [What::Wal, What::Redo, What::Binlog, What::Journal].iter().map(|what| self.get(*what)).sum()
    }

    /// What is counted here, and the other's where that is not.
    fn or(self, other: Self) -> Self {
        Self(std::array::from_fn(|place| self.0[place].or(other.0[place])))
    }

    /// Of each of so many transactions, what is more than before.
    fn since(self, before: Self, transactions: usize) -> Self {
        let each = |place: usize| Some((self.0[place]? - before.0[place]?) / transactions as f64);
        Self(std::array::from_fn(each))
    }
}

/// The counts of one pair of servers, with or without a binary log.
pub struct Counted {
    title: String,
    pub binlog: bool,
    lines: Vec<(&'static str, Counts)>,
}

/// Counts every variant on servers of its own.
pub async fn count(plan: &Plan, other: Flavor, binlog: bool, variants: &[Variant]) -> Counted {
    let stage = Stage::set(other, binlog, Size { workers: 1, connections: 100, prepared: 50 }).await;
    let mut lines: Vec<_> = variants.iter().map(|variant| (variant.name, Counts::default())).collect();
    let relayed = Counter { stage: &stage, relays: Some(Relays::start(&stage).await), strace: None };
    relayed.count(plan.counted, variants, &mut lines).await;
    drop(relayed);
    let strace = Strace::start(&processes(&stage), stage.path());
    let traced = Counter { stage: &stage, relays: None, strace };
    traced.count(plan.counted, variants, &mut lines).await;
    drop(traced);
    stage.check().await;
    Counted { title: stage.describe(), binlog, lines }
}

/// This program and the servers.
fn processes(stage: &Stage) -> Vec<u32> {
    let mut processes = vec![std::process::id()];
    for server in [stage.postgres.pid(), stage.mysql.pid()].into_iter().flatten() {
        processes.push(server);
        processes.extend(cpu::children(server));
    }
    processes
}

/// One before each server.
struct Relays {
    postgres: Relay,
    mysql: Relay,
}

impl Relays {
    async fn start(stage: &Stage) -> Self {
        let direct = stage.access();
        let postgres = Relay::start(&direct.postgres, stage.postgres.port()).await;
        Self { postgres, mysql: Relay::start(&direct.mysql, stage.mysql.port()).await }
    }
}

/// Who looks at what is done on a stage.
struct Counter<'a> {
    stage: &'a Stage,
    relays: Option<Relays>,
    strace: Option<Strace>,
}

impl Counter<'_> {
    /// Adds to the counts of all variants what can be counted here.
    async fn count(&self, transactions: usize, variants: &[Variant], lines: &mut [(&str, Counts)]) {
        for (variant, (_, counts)) in variants.iter().zip(lines) {
            // Whoever is first on these servers has more to do.
            self.run(variant, 0).await;
            let few = self.run(variant, transactions).await;
            let many = self.run(variant, 3 * transactions).await;
            *counts = counts.or(many.since(few, 2 * transactions));
        }
    }

    fn access(&self) -> Access {
        let direct = self.stage.access();
        match &self.relays {
            Some(relays) => Access { postgres: relays.postgres.url(), mysql: relays.mysql.url(), ..direct },
            None => direct,
        }
    }

    /// All that happens while a way is opened, does so many transactions, and is closed.
    async fn run(&self, variant: &Variant, transactions: usize) -> Counts {
        let before = self.look().await;
        let ways = Ways::open(&self.access(), &[*variant]).await;
        let way = ways.way(variant);
        for number in 0..transactions {
            way.transact(0, number).await;
        }
        way.settle().await;
        drop(way);
        ways.close().await;
        self.look().await.since(before, 1)
    }

    /// What has happened since the servers' start.
    async fn look(&self) -> Counts {
        // First: it waits until everybody has gone.
        let counters = counters::read(self.stage).await;
        let files = self.strace.as_ref().map(Strace::files);
        let of = |what: What| match what {
            What::TripsPostgres => Some(self.relays.as_ref()?.postgres.trips() as f64),
            What::TripsMysql => Some(self.relays.as_ref()?.mysql.trips() as f64),
            What::CounterWal => Some(counters.postgres as f64),
            What::CounterRedo => counters.mysql.map(|syncs| syncs as f64),
            log => Some(files.as_ref()?.iter().filter(|file| self.log(file) == log).count() as f64),
        };
        Counts(NAMES.map(|(what, _)| of(what)))
    }

    /// Which log a file belongs to.
    fn log(&self, file: &Path) -> What {
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if file.starts_with(self.stage.path()) {
            What::Journal
        } else if file.components().any(|part| part.as_os_str() == "pg_wal") {
            What::Wal
        } else if name.starts_with("ib_logfile") || name.starts_with("#ib_redo") {
            What::Redo
        } else if name.starts_with("binlog.") {
            What::Binlog
        } else {
            What::Other
        }
    }
}

impl Counted {
    /// The forced writes of a variant's transaction, if they were counted.
    pub fn forced(&self, variant: &str) -> Option<f64> {
        self.lines.iter().find(|(name, _)| *name == variant)?.1.forced()
    }

    pub fn json(&self) -> Value {
        let line = |(name, counts): &(&str, Counts)| {
            let figures = NAMES.iter().map(|(what, figure)| (*figure, counts.get(*what).map(rounded)));
            let mut line = json!(figures.collect::<BTreeMap<_, _>>());
            line["variant"] = json!(name);
            line["forced"] = json!(counts.forced().map(rounded));
            line
        };
        json!({
            "servers": self.title,
            "binlog": self.binlog,
            "variants": self.lines.iter().map(line).collect::<Vec<_>>(),
        })
    }
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "counted, of one transaction at a time; {}", self.title)?;
        writeln!(
            f,
            "                round trips   forced writes by strace                   by the servers' counters"
        )?;
        writeln!(f, "                 pg     my      pg     my binlog journal    all   other     pg     my")?;
        for (name, counts) in &self.lines {
            let figure = |what| shown(counts.get(what));
            writeln!(
                f,
                "{name:<13} {} {}  {} {} {}  {} {}  {} {} {}",
                figure(What::TripsPostgres),
                figure(What::TripsMysql),
                figure(What::Wal),
                figure(What::Redo),
                figure(What::Binlog),
                figure(What::Journal),
                shown(counts.forced()),
                figure(What::Other),
                figure(What::CounterWal),
                figure(What::CounterRedo),
            )?;
        }
        Ok(())
    }
}

fn shown(count: Option<f64>) -> String {
    count.map_or_else(|| format!("{:>6}", "-"), |count| format!("{count:>6.2}"))
}
