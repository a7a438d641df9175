//! One row of work on each of two databases, committed in several ways: what atomicity costs, and how much of that is
//! Handfast's. `docs/performance.md` says what the variants are and how to read the figures.
//!
//! All variants take turns in short slices, round after round, on the same servers: a figure is the median over the
//! rounds, a ratio is taken within each round and then its median. Whatever else the machine does hits all alike.
//!
//! `BENCH_ROUNDS` (5), `BENCH_SLICE_MS` (450), `BENCH_CONCURRENCY` (`1,8,32`), `BENCH_SERVERS` (`mariadb,mysql`) and
//! `BENCH_VARIANTS` (all) make a run shorter or longer.

mod bridged;
mod cpu;
mod direct;
mod group_commit;
mod report;
mod stage;

use crate::cpu::Meter;
use crate::report::{Report, Sample};
use crate::stage::Stage;
use futures_util::future::BoxFuture;
use hdrhistogram::Histogram;
use integration_tests::servers::{self, Flavor};
use std::fmt::Debug;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A way to do the work. Its transactions for different workers, or of different numbers, touch different rows.
trait Way: Send + Sync {
    /// One whole transaction of a worker, until its end is certain.
    fn transact(&self, worker: usize, number: usize) -> BoxFuture<'_, ()>;

    /// Waits until nothing goes on in the background.
    fn settle(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// A way and how it is told of.
struct Variant {
    name: &'static str,
    /// Those that its throughput is compared with.
    against: &'static [&'static str],
    way: Arc<dyn Way>,
}

/// How much is measured.
struct Plan {
    rounds: usize,
    slice: Duration,
    concurrency: Vec<usize>,
    servers: Vec<Flavor>,
    variants: Option<Vec<String>>,
}

impl Plan {
    fn from_environment() -> Self {
        let servers: Vec<String> = list("BENCH_SERVERS", "mariadb,mysql");
        let known = |name: &String| {
            let flavor = Flavor::ALL.into_iter().find(|flavor| flavor.as_str() == name);
            flavor.unwrap_or_else(|| panic!("BENCH_SERVERS: {name:?} is no server"))
        };
        let servers = servers.iter().map(known).filter(|flavor| servers::is_available(*flavor)).collect();
        Self {
            rounds: one("BENCH_ROUNDS", "5"),
            slice: Duration::from_millis(one("BENCH_SLICE_MS", "450")),
            concurrency: list("BENCH_CONCURRENCY", "1,8,32"),
            servers,
            variants: std::env::var_os("BENCH_VARIANTS").map(|_| list("BENCH_VARIANTS", "")),
        }
    }

    /// Leaves out what was not asked for.
    fn keeps(&self, variant: &Variant) -> bool {
        self.variants.as_ref().is_none_or(|wanted| wanted.iter().any(|name| name == variant.name))
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

fn main() {
    let plan = Plan::from_environment();
    let runtime = servers::runtime();
    let mut reports = Vec::new();
    for (place, flavor) in plan.servers.iter().enumerate() {
        // PostgreSQL alone is measured once.
        let report = runtime.block_on(measure(&plan, *flavor, place == 0));
        print!("{report}");
        reports.push(report);
    }
    let path = report::write_summary(&reports, plan.slice);
    println!("\nsummary: {}", path.display());
}

/// All variants on PostgreSQL and one other server.
async fn measure(plan: &Plan, other: Flavor, with_postgres_alone: bool) -> Report {
    let most = plan.concurrency.iter().copied().max().expect("BENCH_CONCURRENCY names one at least");
    let stage = Stage::set(other, most).await;
    let meter = Meter::new(stage.postgres.pid(), stage.mysql.pid());
    let variants = variants(&stage, with_postgres_alone).await;
    let variants: Vec<Variant> = variants.into_iter().filter(|variant| plan.keeps(variant)).collect();
    let mut report = Report::new(stage.describe(), plan.rounds);
    // Opens every connection and brings every row into memory.
    for variant in &variants {
        slice(variant, most, plan.slice, &meter).await;
    }
    for round in 0..plan.rounds {
        for &concurrency in &plan.concurrency {
            let mut order: Vec<&Variant> = variants.iter().collect();
            // Who follows whom changes: nobody always has the same predecessor's dirty pages to flush.
            if round % 2 == 1 {
                order.reverse();
            }
            for variant in order {
                let sample = slice(variant, concurrency, plan.slice, &meter).await;
                report.add(concurrency, variant, sample);
            }
        }
    }
    stage.check().await;
    report
}

/// One variant for a moment, with so many transactions at once, each worker on a task of its own.
async fn slice(variant: &Variant, concurrency: usize, duration: Duration, meter: &Meter) -> Sample {
    let before = meter.read();
    let began = Instant::now();
    let workers = (0..concurrency).map(|worker| tokio::spawn(work(variant.way.clone(), worker, began + duration)));
    let mut latencies = Histogram::new(3).expect("three digits are possible");
    for worker in workers.collect::<Vec<_>>() {
        latencies.add(worker.await.expect("the work succeeds")).expect("the histogram grows");
    }
    variant.way.settle().await;
    let throughput = latencies.len() as f64 / began.elapsed().as_secs_f64();
    Sample { throughput, latencies, cpu: meter.read().since(before) }
}

/// One transaction after the other: how long each took, in microseconds.
async fn work(way: Arc<dyn Way>, worker: usize, until: Instant) -> Histogram<u64> {
    let mut latencies = Histogram::new(3).expect("three digits are possible");
    for number in 0.. {
        let start = Instant::now();
        if start >= until {
            break;
        }
        way.transact(worker, number).await;
        let micros = u64::try_from(start.elapsed().as_micros()).expect("a transaction does not take that long");
        latencies.record(micros.max(1)).expect("the histogram grows");
    }
    latencies
}

/// Every way there is, those that are compared with each other side by side.
async fn variants(stage: &Stage, with_postgres_alone: bool) -> Vec<Variant> {
    let hands = Arc::new(direct::Hands::new(stage).await);
    let direct = |kind| Arc::new(direct::Direct::new(hands.clone(), kind)) as Arc<dyn Way>;
    let bridge = bridged::open(stage, "bench", true).await;
    let unproven = bridged::open(stage, "bench-unproven", false).await;
    let bridged = |kind| Arc::new(bridged::Bridged::new(bridge.clone(), kind)) as Arc<dyn Way>;
    let variant = |name, against, way| Variant { name, against, way };
    let floor = |proof, begin_apart| direct(direct::Kind::Floor { proof, begin_apart });
    let floors: &[&str] = &["floor", "floor+proof"];
    let mut all = vec![
        variant("local", &[], direct(direct::Kind::Local)),
        variant("floor", &["local"], floor(false, false)),
        variant("handfast", &["floor", "floor+proof", "floor+begin"], bridged(bridged::Kind::Both)),
        variant("floor+proof", &["floor"], floor(true, false)),
        variant("floor+begin", &["floor"], floor(true, true)),
        variant("witness=false", floors, Arc::new(bridged::Bridged::new(unproven, bridged::Kind::Both))),
        variant("decided", floors, bridged(bridged::Kind::Decided)),
        variant("local+read", &[], direct(direct::Kind::LocalAndRead)),
        variant("read-only", &["local+read"], bridged(bridged::Kind::ReadOnly)),
        variant("local-mysql", &[], direct(direct::Kind::MysqlAlone)),
        variant("single-mysql", &["local-mysql"], bridged(bridged::Kind::MysqlAlone)),
    ];
    if with_postgres_alone {
        all.push(variant("local-pg", &[], direct(direct::Kind::PostgresAlone)));
        all.push(variant("single-pg", &["local-pg"], bridged(bridged::Kind::PostgresAlone)));
    }
    all
}
