//! The figures, for people and for programs.

use crate::Variant;
use crate::cpu::Cpu;
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What one slice showed.
pub struct Sample {
    /// Transactions a second.
    pub throughput: f64,
    /// Of each transaction, in microseconds.
    pub latencies: Histogram<u64>,
    /// Processor time of the whole slice.
    pub cpu: Cpu,
}

/// All slices of one variant at one concurrency.
struct Series {
    against: &'static [&'static str],
    /// By round.
    throughput: Vec<f64>,
    latencies: Histogram<u64>,
    cpu: Cpu,
}

impl Series {
    /// Processor time of a transaction, in microseconds: in this program, in PostgreSQL, in the other server.
    fn cpu(&self) -> [f64; 3] {
        self.cpu.0.map(|nanos| nanos as f64 / 1000.0 / self.latencies.len().max(1) as f64)
    }
}

/// A figure of every round, as its median and its extremes.
struct Spread {
    median: f64,
    least: f64,
    most: f64,
}

impl Spread {
    fn of(mut figures: Vec<f64>) -> Self {
        assert!(!figures.is_empty(), "every variant runs in every round");
        figures.sort_by(f64::total_cmp);
        let middle = figures.len() / 2;
        let median =
            if figures.len() % 2 == 1 { figures[middle] } else { (figures[middle - 1] + figures[middle]) / 2.0 };
        Self { median, least: figures[0], most: figures[figures.len() - 1] }
    }

    fn json(&self) -> Value {
        let rounded = |figure: f64| (figure * 1000.0).round() / 1000.0;
        json!({ "median": rounded(self.median), "min": rounded(self.least), "max": rounded(self.most) })
    }
}

/// The figures of one pair of servers.
pub struct Report {
    servers: String,
    rounds: usize,
    /// The variants in the order in which they are shown.
    names: Vec<&'static str>,
    series: BTreeMap<usize, BTreeMap<&'static str, Series>>,
}

impl Report {
    pub fn new(servers: String, rounds: usize) -> Self {
        Self { servers, rounds, names: Vec::new(), series: BTreeMap::new() }
    }

    pub fn add(&mut self, concurrency: usize, variant: &Variant, sample: Sample) {
        let Variant { name, against, .. } = *variant;
        if !self.names.contains(&name) {
            self.names.push(name);
        }
        let series = self.series.entry(concurrency).or_default().entry(name).or_insert_with(|| Series {
            against,
            throughput: Vec::new(),
            latencies: Histogram::new(3).expect("three digits are possible"),
            cpu: Cpu::default(),
        });
        for (sum, more) in series.cpu.0.iter_mut().zip(sample.cpu.0) {
            *sum += more;
        }
        series.throughput.push(sample.throughput);
        series.latencies.add(sample.latencies).expect("the histogram grows");
    }

    /// What a variant is compared with: the ratios of their throughput in the same round.
    fn ratios<'a>(
        &'a self,
        concurrency: usize,
        series: &'a Series,
    ) -> impl Iterator<Item = (&'static str, Spread)> + 'a {
        series.against.iter().filter_map(move |other| {
            let base = self.series[&concurrency].get(other)?;
            let ratios = series.throughput.iter().zip(&base.throughput).map(|(ours, theirs)| ours / theirs);
            Some((*other, Spread::of(ratios.collect())))
        })
    }

    /// Every variant at every concurrency, in the order in which they are shown.
    fn lines(&self) -> impl Iterator<Item = (usize, &'static str, &Series)> {
        self.series.iter().flat_map(move |(concurrency, series)| {
            self.names.iter().filter_map(move |name| Some((*concurrency, *name, series.get(name)?)))
        })
    }

    fn json(&self) -> Value {
        let results = self.lines().map(|(concurrency, name, series)| {
            let ratios = self.ratios(concurrency, series).map(|(other, ratio)| (other.to_owned(), ratio.json()));
            let [client, postgres, mysql] = series.cpu();
            json!({
                "variant": name,
                "concurrency": concurrency,
                "transactions": series.latencies.len(),
                "transactions_per_second": Spread::of(series.throughput.clone()).json(),
                "p50_us": series.latencies.value_at_quantile(0.5),
                "p99_us": series.latencies.value_at_quantile(0.99),
                "cpu_us": { "client": client.round(), "postgres": postgres.round(), "mysql": mysql.round() },
                "ratios": ratios.collect::<serde_json::Map<_, _>>(),
            })
        });
        json!({ "servers": self.servers, "rounds": self.rounds, "results": results.collect::<Vec<_>>() })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{}; medians of {} rounds, [least .. most]", self.servers, self.rounds)?;
        let mut shown = 0;
        for (concurrency, name, series) in self.lines() {
            if concurrency != shown {
                shown = concurrency;
                writeln!(
                    f,
                    "\n{concurrency:>2} at once        tx/s [least ..  most]   p50 ms   p99 ms  cpu us: own   pg    my  throughput"
                )?;
            }
            let Spread { median, least, most } = Spread::of(series.throughput.clone());
            let millis = |quantile| series.latencies.value_at_quantile(quantile) as f64 / 1000.0;
            let (p50, p99) = (millis(0.5), millis(0.99));
            write!(f, "{name:<13} {median:>7.0} [{least:>5.0} .. {most:>5.0}] {p50:>8.2} {p99:>8.2}")?;
            let [client, postgres, mysql] = series.cpu();
            write!(f, "         {client:>5.0} {postgres:>4.0} {mysql:>5.0}")?;
            for (place, (other, Spread { median, least, most })) in self.ratios(concurrency, series).enumerate() {
                let lead = if place == 0 { "  " } else { ", " };
                write!(f, "{lead}{median:.2} x {other} [{least:.2} .. {most:.2}]")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// Writes `target/bench/summary.json`: its path.
pub fn write_summary(reports: &[Report], slice: Duration) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a member of the workspace").join("target"),
        PathBuf::from,
    );
    let path = target.join("bench/summary.json");
    let summary = json!({
        "schema": 1,
        "slice_ms": u64::try_from(slice.as_millis()).expect("a slice is short"),
        "pairs": reports.iter().map(Report::json).collect::<Vec<_>>(),
    });
    let text = serde_json::to_string_pretty(&summary).expect("a value is text");
    std::fs::create_dir_all(path.parent().expect("it is in a directory")).expect("a directory");
    std::fs::write(&path, text + "\n").expect("the summary can be written");
    path
}
