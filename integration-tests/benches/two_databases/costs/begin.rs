//! How long it takes until a transaction has begun on both databases: with a session to be connected first, and with
//! one at hand.

use crate::bridged::{self, Setup};
use crate::direct::Pair;
use crate::stage::{Access, Stage};
use handfast::Bridge;
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use std::fmt;
use std::time::Instant;

/// Sessions in each round: each is connected once and then used again once.
const SESSIONS: usize = 20;

/// By whom, and how.
const ROWS: [&str; 4] = ["by hand, cold", "handfast, cold", "by hand, warm", "handfast, warm"];

/// The latencies in microseconds, in the order of [`ROWS`].
pub struct Begin([Histogram<u64>; ROWS.len()]);

pub async fn measure(stage: &Stage, rounds: usize) -> Begin {
    let access = Access { workers: SESSIONS, ..stage.access() };
    let mut begin = Begin(std::array::from_fn(|_| Histogram::new(3).expect("three digits are possible")));
    for _ in 0..rounds {
        begin.by_hand(&access).await;
        begin.handfast(&access).await;
    }
    stage.check().await;
    begin
}

impl Begin {
    fn record(&mut self, row: usize, since: Instant) {
        let micros = u64::try_from(since.elapsed().as_micros()).expect("a begin does not take that long");
        self.0[row].record(micros.max(1)).expect("the histogram grows");
    }

    async fn by_hand(&mut self, access: &Access) {
        let mut pairs = Vec::new();
        for _ in 0..SESSIONS {
            let since = Instant::now();
            let mut pair = Pair::connect(access).await;
            pair.both("BEGIN", "START TRANSACTION").await;
            self.record(0, since);
            pairs.push(pair);
        }
        for pair in &mut pairs {
            pair.both("ROLLBACK", "ROLLBACK").await;
        }
        for mut pair in pairs {
            let since = Instant::now();
            pair.both("BEGIN", "START TRANSACTION").await;
            self.record(2, since);
            pair.both("ROLLBACK", "ROLLBACK").await;
        }
    }

    async fn handfast(&mut self, access: &Access) {
        let bridge = Bridge::open(bridged::config(access, Setup::DEFAULT).build()).await.expect("a bridge");
        // All stay open until all have begun: none finds the session of another.
        for row in [1, 3] {
            let mut open = Vec::new();
            for _ in 0..SESSIONS {
                let since = Instant::now();
                let tx = bridge.begin().await.expect("a transaction");
                bridged::begin(&tx).await;
                self.record(row, since);
                open.push(tx);
            }
            for tx in open {
                tx.rollback().await.expect("a rollback");
            }
        }
        bridge.close().await.expect("nothing is left to do");
    }

    pub fn json(&self) -> Value {
        let row = |(name, latencies): (&&str, &Histogram<u64>)| {
            json!({
                "what": name,
                "p50_us": latencies.value_at_quantile(0.5),
                "p99_us": latencies.value_at_quantile(0.99),
            })
        };
        json!(ROWS.iter().zip(&self.0).map(row).collect::<Vec<_>>())
    }
}

impl fmt::Display for Begin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "begin on both databases, one at a time, milliseconds: p50, p99")?;
        for (name, latencies) in ROWS.iter().zip(&self.0) {
            let millis = |quantile| latencies.value_at_quantile(quantile) as f64 / 1000.0;
            writeln!(f, "{name:<15} {:>8.2} {:>8.2}", millis(0.5), millis(0.99))?;
        }
        Ok(())
    }
}
