//! Every variant against the clock: all take turns in short slices, round after round, on the same servers.

use crate::cpu::{Cpu, Meter};
use crate::plan::Plan;
use crate::report::Report;
use crate::stage::Stage;
use crate::ways::{Variant, Way, Ways};
use hdrhistogram::Histogram;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What one slice showed.
pub struct Sample {
    /// Transactions a second.
    pub throughput: f64,
    /// Of each transaction, in microseconds.
    pub latencies: Histogram<u64>,
    /// Processor time of the whole slice.
    pub cpu: Cpu,
}

/// All variants on PostgreSQL and one other server.
pub async fn measure(plan: &Plan, stage: &Stage, variants: &[Variant]) -> Report {
    let meter = Meter::new(stage.postgres.pid(), stage.mysql.pid());
    let ways = Ways::open(&stage.access(), variants).await;
    let mut report = Report::new(plan.rounds);
    // Opens every connection and brings every row into memory.
    for variant in variants {
        slice(ways.way(variant), plan.most(), plan.slice, &meter).await;
    }
    for round in 0..plan.rounds {
        for &concurrency in &plan.concurrency {
            let mut order: Vec<&Variant> = variants.iter().collect();
            // Who follows whom changes: nobody always has the same predecessor's dirty pages to flush.
            if round % 2 == 1 {
                order.reverse();
            }
            for variant in order {
                let sample = slice(ways.way(variant), concurrency, plan.slice, &meter).await;
                report.add(concurrency, variant, sample);
            }
        }
    }
    ways.close().await;
    stage.check().await;
    report
}

/// One variant for a moment, with so many transactions at once, each worker on a task of its own.
async fn slice(way: Arc<dyn Way>, concurrency: usize, duration: Duration, meter: &Meter) -> Sample {
    let before = meter.read();
    let began = Instant::now();
    let workers = (0..concurrency).map(|worker| tokio::spawn(work(way.clone(), worker, began + duration)));
    let mut latencies = Histogram::new(3).expect("three digits are possible");
    for worker in workers.collect::<Vec<_>>() {
        latencies.add(worker.await.expect("the work succeeds")).expect("the histogram grows");
    }
    way.settle().await;
    let throughput = latencies.len() as f64 / began.elapsed().as_secs_f64();
    Sample { throughput, latencies, cpu: meter.read().since(&before) }
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
