//! What was set out to be reached, and whether this run reached it.

use crate::Pair;
use crate::journal::Alone;
use crate::report::By;
use serde_json::{Value, json};
use std::fmt;

/// Where a bound lies.
#[derive(Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
    /// Of what happens a whole number of times in each transaction. Counted, it is a mean, a little higher for what
    /// happens in the background.
    Count(f64),
}
use Bound::{AtLeast, AtMost, Count};

/// A figure of one pair of servers.
enum Figure {
    /// A variant in another, at these numbers of transactions at once.
    Ratio(By, &'static str, &'static str, &'static [usize]),
    /// Forced writes of a variant's transaction with the binary log on.
    Forced(&'static str),
    /// KiB of an open transaction over its connections.
    Memory,
    /// The latency with eight participants, in that with two.
    EightToTwo,
}

/// A figure of the journal alone.
enum Lone {
    /// Decisions a second with so many waiters, in bare syncs a second.
    Appends(usize),
    /// Milliseconds that opening takes longer than of an empty one, with so many finished transactions.
    Start(u64),
    /// MiB of its records then.
    Size(u64),
}

const FEW: &[usize] = &[1, 8, 32];

/// Every target that is of a pair of servers.
const OF_PAIRS: &[(&str, Figure, Bound)] = &[
    ("throughput, handfast / floor+proof", ratio(By::Throughput, "handfast", "floor+proof", FEW), AtLeast(0.95)),
    ("throughput, handfast / floor", ratio(By::Throughput, "handfast", "floor", FEW), AtLeast(0.80)),
    ("p50, handfast / floor+proof", ratio(By::P50, "handfast", "floor+proof", FEW), AtMost(1.10)),
    ("throughput, witness=false / floor", ratio(By::Throughput, "witness=false", "floor", FEW), AtLeast(0.95)),
    ("throughput, anchor-pg / floor", ratio(By::Throughput, "anchor-pg", "floor", FEW), AtLeast(1.15)),
    ("throughput, anchor-mysql / floor", ratio(By::Throughput, "anchor-mysql", "floor", FEW), AtLeast(1.15)),
    ("forced writes, handfast, binary log on", Figure::Forced("handfast"), Count(7.0)),
    ("forced writes, anchor-pg, binary log on", Figure::Forced("anchor-pg"), Count(5.0)),
    ("forced writes, anchor-mysql, binary log on", Figure::Forced("anchor-mysql"), Count(4.0)),
    ("p50, decided / floor", ratio(By::P50, "decided", "floor", &[1, 8]), AtMost(0.70)),
    (
        "throughput, single-mysql / local-mysql",
        ratio(By::Throughput, "single-mysql", "local-mysql", FEW),
        AtLeast(0.85),
    ),
    ("processor time here, handfast / floor", ratio(By::OwnCpu, "handfast", "floor", FEW), AtMost(1.3)),
    ("KiB of an open transaction", Figure::Memory, AtMost(32.0)),
    ("p50, 8 participants / 2", Figure::EightToTwo, AtMost(1.5)),
];

/// Those of PostgreSQL alone: it is measured with the first pair.
const OF_POSTGRES: &[(&str, Figure, Bound)] =
    &[("throughput, single-pg / local-pg", ratio(By::Throughput, "single-pg", "local-pg", FEW), AtLeast(0.85))];

/// Those of the journal alone.
const OF_THE_JOURNAL: &[(&str, Lone, Bound)] = &[
    ("journal, 1 waiter / bare fdatasync", Lone::Appends(1), AtLeast(0.9)),
    ("journal, 1024 waiters / bare fdatasync", Lone::Appends(1024), AtLeast(100.0)),
    ("journal, ms to open after 10 million", Lone::Start(10_000_000), AtMost(100.0)),
    ("journal, MiB of records after 10 million", Lone::Size(10_000_000), AtMost(8.0)),
];

const fn ratio(by: By, this: &'static str, that: &'static str, at: &'static [usize]) -> Figure {
    Figure::Ratio(by, this, that, at)
}

/// A target and what was measured of it: nothing, where nobody measured it.
pub struct Verdict {
    what: &'static str,
    /// The other server, if it matters.
    of: &'static str,
    bound: Bound,
    /// Each with the number of transactions at once, where that matters.
    figures: Vec<(Option<usize>, f64)>,
}

/// Every target, one pair after the other.
pub fn judge(pairs: &[Pair], journal: Option<&Alone>) -> Vec<Verdict> {
    let of = |pair: &Pair, targets: &[(&'static str, Figure, Bound)]| -> Vec<Verdict> {
        let verdict = |(what, figure, bound): &(&'static str, Figure, Bound)| Verdict {
            what,
            of: pair.other,
            bound: *bound,
            figures: figures(pair, figure),
        };
        targets.iter().map(verdict).collect()
    };
    let mut verdicts: Vec<_> = pairs.iter().flat_map(|pair| of(pair, OF_PAIRS)).collect();
    verdicts.extend(pairs.iter().take(1).flat_map(|pair| of(pair, OF_POSTGRES)));
    verdicts.extend(OF_THE_JOURNAL.iter().map(|(what, figure, bound)| {
        let figure = journal.and_then(|journal| lone(journal, figure));
        Verdict { what, of: "", bound: *bound, figures: alone(figure) }
    }));
    verdicts
}

fn alone(figure: Option<f64>) -> Vec<(Option<usize>, f64)> {
    figure.map(|figure| (None, figure)).into_iter().collect()
}

fn figures(pair: &Pair, figure: &Figure) -> Vec<(Option<usize>, f64)> {
    match figure {
        Figure::Ratio(by, this, that, at) => {
            let Some(timed) = &pair.timed else { return Vec::new() };
            let at = at.iter().filter_map(|at| Some((Some(*at), timed.ratio(*by, this, that, *at)?.median)));
            at.collect()
        }
        Figure::Forced(variant) => {
            alone(pair.counted.iter().find(|counted| counted.binlog).and_then(|counted| counted.forced(variant)))
        }
        Figure::Memory => alone(pair.memory.as_ref().map(|memory| memory.kib_over_connections())),
        Figure::EightToTwo => alone(pair.participants.as_ref().map(|many| many.eight_to_two().median)),
    }
}

fn lone(journal: &Alone, figure: &Lone) -> Option<f64> {
    match figure {
        Lone::Appends(waiters) => Some(journal.appends.to_bare(*waiters)?.median),
        Lone::Start(finished) if journal.start.finished() >= *finished => Some(journal.start.over_empty_ms().median),
        Lone::Size(finished) if journal.start.finished() >= *finished => Some(journal.start.opened_mib()),
        Lone::Start(_) | Lone::Size(_) => None,
    }
}

impl Verdict {
    /// Whether all figures are within the bound; nothing where there is none.
    fn is_reached(&self) -> Option<bool> {
        let within = |figure: f64| match self.bound {
            AtLeast(least) => figure >= least,
            AtMost(most) => figure <= most,
            Count(most) => figure.round() <= most,
        };
        (!self.figures.is_empty()).then(|| self.figures.iter().all(|(_, figure)| within(*figure)))
    }

    fn word(&self) -> &'static str {
        match self.is_reached() {
            Some(true) => "reached",
            Some(false) => "not reached",
            None => "not measured",
        }
    }

    pub fn json(&self) -> Value {
        let figure = |(at, figure): &(Option<usize>, f64)| json!({ "concurrency": at, "figure": figure });
        let (least, most) = match self.bound {
            AtLeast(least) => (Some(least), None),
            AtMost(most) | Count(most) => (None, Some(most)),
        };
        json!({
            "target": self.what,
            "with": self.of,
            "at_least": least,
            "at_most": most,
            "verdict": self.word(),
            "figures": self.figures.iter().map(figure).collect::<Vec<_>>(),
        })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = match self.bound {
            AtLeast(least) => format!(">= {least:.2}"),
            AtMost(most) | Count(most) => format!("<= {most:.2}"),
        };
        write!(f, "{:<12} {:<42} {:<8} {bound:>9}", self.word(), self.what, self.of)?;
        for (at, figure) in &self.figures {
            match at {
                Some(at) => write!(f, "   at {at}: {figure:.2}")?,
                None => write!(f, "   {figure:.2}")?,
            }
        }
        Ok(())
    }
}
