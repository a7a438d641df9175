//! What an open transaction holds in the application's memory, over what the two connections hold.
//!
//! Each side is a process of its own, this same program. What it gave back to its allocator while it started serves the
//! first transactions; so the growth from a part of them to all of them is what is divided.

use crate::bridged::{self, Setup};
use crate::direct::Pair;
use crate::spread::rounded;
use crate::stage::{Access, Size, Stage, update};
use handfast::Bridge;
use handfast::transaction::Options;
use integration_tests::servers::{self, Flavor};
use serde_json::{Value, json};
use std::fmt;
use std::time::Duration;

/// The first argument of the process: what follows is who, how many, and where.
const ARGUMENT: &str = "open-transactions";

/// What part of the transactions is open before memory is looked at first: one in so many.
const FIRST: usize = 5;

/// Bytes for each transaction that is open.
pub struct Memory {
    transactions: usize,
    by_hand: f64,
    handfast: f64,
}

/// So many open transactions on servers of their own, first by hand, then through a bridge.
pub async fn measure(other: Flavor, transactions: usize) -> Option<Memory> {
    assert!(transactions >= FIRST, "BENCH_OPEN is too small to show anything");
    // Without `/proc` nobody tells.
    resident()?;
    let size = Size { workers: transactions, connections: transactions + 50, prepared: 10 };
    let stage = Stage::set(other, false, size).await;
    let by_hand = ask("by-hand", &stage.access()).await;
    let handfast = ask("handfast", &stage.access()).await;
    Some(Memory { transactions, by_hand, handfast })
}

/// What each transaction holds, as such a process finds.
async fn ask(who: &str, access: &Access) -> f64 {
    let program = std::env::current_exe().expect("this program has a name");
    let output = tokio::process::Command::new(program)
        .args([ARGUMENT, who, &access.workers.to_string(), access.flavor.as_str()])
        .args([&access.postgres, &access.mysql])
        .arg(&access.directory)
        .stderr(std::process::Stdio::inherit())
        .output()
        .await
        .expect("this program can be run");
    assert!(output.status.success(), "{who}: {}", output.status);
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number")
}

/// Such a process: does what its arguments say, if they say it.
pub fn run_as_child() -> bool {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [first, who, transactions, flavor, postgres, mysql, directory] = arguments.as_slice() else { return false };
    if first != ARGUMENT {
        return false;
    }
    let access = Access {
        postgres: postgres.clone(),
        mysql: mysql.clone(),
        flavor: Flavor::ALL.into_iter().find(|each| each.as_str() == flavor).expect("a server"),
        workers: transactions.parse().expect("a number"),
        directory: directory.into(),
    };
    let bytes = servers::runtime()
        .block_on(async { if who == "by-hand" { by_hand(&access).await } else { handfast(&access).await } });
    println!("{bytes}");
    true
}

async fn by_hand(access: &Access) -> f64 {
    let mut growth = Growth::new(access.workers);
    let mut pairs = Vec::with_capacity(access.workers);
    for worker in 0..access.workers {
        let mut pair = Pair::connect(access).await;
        let work = update(worker, 0);
        pair.both(&format!("BEGIN; {work}"), &format!("START TRANSACTION; {work}")).await;
        pairs.push(pair);
        growth.look(pairs.len());
    }
    growth.of_each()
}

async fn handfast(access: &Access) -> f64 {
    let bridge = Bridge::open(bridged::config(access, Setup::DEFAULT).build()).await.expect("a bridge");
    let mut growth = Growth::new(access.workers);
    let mut open = Vec::with_capacity(access.workers);
    for worker in 0..access.workers {
        let options = Options::new().timeout(Duration::from_secs(3600));
        let tx = bridge.begin_with(options).await.expect("a transaction");
        bridged::work(&tx, worker, 0).await;
        open.push(tx);
        growth.look(open.len());
    }
    growth.of_each()
}

/// Memory when the first part of the transactions was open, and when all were.
struct Growth {
    all: usize,
    first: f64,
    last: f64,
}

impl Growth {
    fn new(all: usize) -> Self {
        Self { all, first: 0.0, last: 0.0 }
    }

    fn look(&mut self, open: usize) {
        if open == self.all / FIRST {
            self.first = resident().expect("the parent has asked");
        }
        if open == self.all {
            self.last = resident().expect("the parent has asked");
        }
    }

    /// Bytes of each transaction.
    fn of_each(&self) -> f64 {
        (self.last - self.first) / (self.all - self.all / FIRST) as f64
    }
}

/// This process's own memory in bytes. <https://docs.kernel.org/filesystems/proc.html>
fn resident() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok()? * 1024.0)
}

impl Memory {
    /// KiB that Handfast holds for each open transaction over what is held by hand.
    pub fn kib_over_connections(&self) -> f64 {
        (self.handfast - self.by_hand) / 1024.0
    }

    pub fn json(&self) -> Value {
        json!({
            "transactions": self.transactions,
            "by_hand_bytes": rounded(self.by_hand),
            "handfast_bytes": rounded(self.handfast),
        })
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "memory of each of {} open transactions: by hand {:.1} KiB, handfast {:.1} KiB: {:.1} KiB over it",
            self.transactions,
            self.by_hand / 1024.0,
            self.handfast / 1024.0,
            self.kib_over_connections(),
        )
    }
}
