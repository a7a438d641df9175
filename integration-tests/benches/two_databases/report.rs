//! The figures of what was timed.

use crate::cpu::Cpu;
use crate::load::Sample;
use crate::spread::Spread;
use crate::ways::Variant;
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;

/// All slices of one variant at one concurrency.
struct Series {
    against: &'static [&'static str],
    /// These three by round.
    throughput: Vec<f64>,
    p50: Vec<f64>,
    own_cpu: Vec<f64>,
    latencies: Histogram<u64>,
    cpu: Cpu,
}

/// What two variants can be compared by, in the same round.
#[derive(Clone, Copy)]
pub enum By {
    /// Transactions a second.
    Throughput,
    /// The median latency.
    P50,
    /// Processor time of a transaction in this program.
    OwnCpu,
}

impl Series {
    fn of(variant: &Variant) -> Self {
        Self {
            against: variant.against,
            throughput: Vec::new(),
            p50: Vec::new(),
            own_cpu: Vec::new(),
            latencies: Histogram::new(3).expect("three digits are possible"),
            cpu: Cpu::default(),
        }
    }

    fn add(&mut self, sample: Sample) {
        let [own, ..] = sample.cpu.of_each(sample.latencies.len());
        self.own_cpu.push(own);
        self.throughput.push(sample.throughput);
        self.p50.push(sample.latencies.value_at_quantile(0.5) as f64);
        self.latencies.add(sample.latencies).expect("the histogram grows");
        self.cpu = self.cpu.and(sample.cpu);
    }

    fn by(&self, by: By) -> &[f64] {
        match by {
            By::Throughput => &self.throughput,
            By::P50 => &self.p50,
            By::OwnCpu => &self.own_cpu,
        }
    }

    /// Processor time of a transaction, in microseconds: in this program, in PostgreSQL, in the other server.
    fn cpu(&self) -> [f64; 3] {
        self.cpu.of_each(self.latencies.len())
    }
}

/// The figures of one pair of servers.
pub struct Report {
    rounds: usize,
    /// The variants in the order in which they are shown.
    names: Vec<&'static str>,
    series: BTreeMap<usize, BTreeMap<&'static str, Series>>,
}

impl Report {
    pub fn new(rounds: usize) -> Self {
        Self { rounds, names: Vec::new(), series: BTreeMap::new() }
    }

    pub fn add(&mut self, concurrency: usize, variant: &Variant, sample: Sample) {
        if !self.names.contains(&variant.name) {
            self.names.push(variant.name);
        }
        let series = self.series.entry(concurrency).or_default();
        series.entry(variant.name).or_insert_with(|| Series::of(variant)).add(sample);
    }

    /// One variant against another: the ratio in each round, if both were measured.
    pub fn ratio(&self, by: By, this: &str, that: &str, concurrency: usize) -> Option<Spread> {
        let series = self.series.get(&concurrency)?;
        Some(Spread::of_ratios(series.get(this)?.by(by), series.get(that)?.by(by)))
    }

    /// What a variant is compared with: the ratios of their throughput.
    fn ratios<'a>(
        &'a self,
        concurrency: usize,
        name: &'a str,
        series: &'a Series,
    ) -> impl Iterator<Item = (&'static str, Spread)> + 'a {
        let others = series.against.iter();
        others.filter_map(move |other| Some((*other, self.ratio(By::Throughput, name, other, concurrency)?)))
    }

    /// Every variant at every concurrency, in the order in which they are shown.
    fn lines(&self) -> impl Iterator<Item = (usize, &'static str, &Series)> {
        self.series.iter().flat_map(move |(concurrency, series)| {
            self.names.iter().filter_map(move |name| Some((*concurrency, *name, series.get(name)?)))
        })
    }

    pub fn json(&self) -> Value {
        let results = self.lines().map(|(concurrency, name, series)| {
            let ratios = self.ratios(concurrency, name, series).map(|(other, ratio)| (other.to_owned(), ratio.json()));
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
        json!({ "rounds": self.rounds, "results": results.collect::<Vec<_>>() })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "medians of {} rounds, [least .. most]", self.rounds)?;
        let mut shown = 0;
        for (concurrency, name, series) in self.lines() {
            if concurrency != shown {
                shown = concurrency;
                writeln!(
                    f,
                    "\n{concurrency:>3} at once       tx/s [least ..  most]   p50 ms   p99 ms  cpu us: own   pg    my  throughput"
                )?;
            }
            let Spread { median, least, most } = Spread::of(series.throughput.clone());
            let millis = |quantile| series.latencies.value_at_quantile(quantile) as f64 / 1000.0;
            let (p50, p99) = (millis(0.5), millis(0.99));
            write!(f, "{name:<13} {median:>7.0} [{least:>5.0} .. {most:>5.0}] {p50:>8.2} {p99:>8.2}")?;
            let [client, postgres, mysql] = series.cpu();
            write!(f, "         {client:>5.0} {postgres:>4.0} {mysql:>5.0}")?;
            for (place, (other, Spread { median, least, most })) in self.ratios(concurrency, name, series).enumerate() {
                let lead = if place == 0 { "  " } else { ", " };
                write!(f, "{lead}{median:.2} x {other} [{least:.2} .. {most:.2}]")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
