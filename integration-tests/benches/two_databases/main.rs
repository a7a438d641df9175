//! One row of work on each of two databases, committed in several ways: what atomicity costs, and how much of that is
//! Handfast's. `docs/performance.md` says what is measured and how to read the figures.
//!
//! What is compared takes turns in short slices, round after round, on the same servers: a figure is the median over
//! the rounds, a ratio is taken within each round and then its median. Whatever else the machine does hits all alike.
//!
//! | module | what it does |
//! |---|---|
//! | `plan` | how much is measured: `BENCH_..` in the environment |
//! | `stage` | the servers, and the work |
//! | `ways`, `direct`, `group_commit`, `bridged` | the ways to do it, by hand and through Handfast |
//! | `load`, `cpu`, `report` | all of them against the clock |
//! | `counted` | round trips and forced writes |
//! | `costs` | begins, memory, many participants, recovery |
//! | `journal` | the journal without databases |
//! | `targets`, `summary` | what was to be reached; all figures for programs |

mod bridged;
mod costs;
mod counted;
mod cpu;
mod direct;
mod group_commit;
mod journal;
mod load;
mod plan;
mod report;
mod spread;
mod stage;
mod summary;
mod targets;
mod ways;

use crate::costs::begin::{self, Begin};
use crate::costs::memory::{self, Memory};
use crate::costs::participants::{self, Participants};
use crate::costs::recovery::{self, Recovery};
use crate::counted::Counted;
use crate::plan::{Part, Plan};
use crate::report::Report;
use crate::stage::{Size, Stage};
use integration_tests::servers::{self, Flavor};

/// All that was measured with PostgreSQL and one other server; nothing, where it was not asked for.
struct Pair {
    /// The other server.
    other: &'static str,
    servers: String,
    binlog: bool,
    /// Variants that this version of Handfast has no configuration for.
    left_out: Vec<&'static str>,
    timed: Option<Report>,
    counted: Vec<Counted>,
    participants: Option<Participants>,
    begin: Option<Begin>,
    memory: Option<Memory>,
    recovery: Option<Recovery>,
}

fn main() {
    if memory::run_as_child() {
        return;
    }
    let plan = Plan::from_environment();
    let runtime = servers::runtime();
    let mut pairs = Vec::new();
    if plan.needs_servers() {
        for (place, flavor) in plan.servers.iter().enumerate() {
            pairs.push(runtime.block_on(measure(&plan, *flavor, place == 0)));
        }
    }
    let journal = plan.has(Part::Journal).then(|| runtime.block_on(journal::measure(&plan)));
    if let Some(journal) = &journal {
        println!("\n{journal}");
    }
    let verdicts = targets::judge(&pairs, journal.as_ref());
    println!("\ntargets");
    for verdict in &verdicts {
        println!("{verdict}");
    }
    let path = summary::write(&plan, &pairs, journal.as_ref(), &verdicts);
    println!("\nsummary: {}", path.display());
}

/// All with PostgreSQL and one other server. Each part is printed as soon as it is there.
async fn measure(plan: &Plan, other: Flavor, with_postgres_alone: bool) -> Pair {
    let stage = Stage::set(other, plan.binlog, Size::of(plan)).await;
    println!("\n{}", stage.describe());
    let (variants, left_out) = ways::known(&stage.access());
    let asked = |variant: &ways::Variant| plan.keeps(variant.name) && (with_postgres_alone || !variant.postgres_alone);
    let variants: Vec<_> = variants.into_iter().filter(asked).collect();
    if !left_out.is_empty() {
        println!("left out, since this version has no such configuration: {}", left_out.join(", "));
    }
    let mut pair = Pair {
        other: other.as_str(),
        servers: stage.describe(),
        binlog: plan.binlog,
        left_out,
        timed: None,
        counted: Vec::new(),
        participants: None,
        begin: None,
        memory: None,
        recovery: None,
    };
    if plan.has(Part::Timed) {
        pair.timed = Some(shown(load::measure(plan, &stage, &variants).await));
    }
    if plan.has(Part::Participants) {
        pair.participants = Some(shown(participants::measure(&stage, plan.rounds, plan.slice).await));
    }
    if plan.has(Part::Begin) {
        pair.begin = Some(shown(begin::measure(&stage, plan.rounds).await));
    }
    // The rest has servers of its own.
    drop(stage);
    if plan.has(Part::Counted) {
        for binlog in [false, true] {
            pair.counted.push(shown(counted::count(plan, other, binlog, &variants).await));
        }
    }
    if plan.has(Part::Memory) {
        pair.memory = memory::measure(other, plan.open).await.map(shown);
    }
    if plan.has(Part::Recovery) {
        pair.recovery = Some(shown(recovery::measure(other, plan.in_doubt).await));
    }
    pair
}

/// Prints a part.
fn shown<T: std::fmt::Display>(part: T) -> T {
    println!("\n{part}");
    part
}
