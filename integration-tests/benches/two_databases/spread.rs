//! A figure that was taken several times.

use serde_json::{Value, json};
use std::fmt;

/// A figure of every round, as its median and its extremes.
#[derive(Debug, Clone, Copy)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

impl Spread {
    pub fn of(mut figures: Vec<f64>) -> Self {
        assert!(!figures.is_empty(), "everything is measured once at least");
        figures.sort_by(f64::total_cmp);
        let middle = figures.len() / 2;
        let median =
            if figures.len() % 2 == 1 { figures[middle] } else { (figures[middle - 1] + figures[middle]) / 2.0 };
        Self { median, least: figures[0], most: figures[figures.len() - 1] }
    }

    /// Of the ratios of two figures that were taken in the same rounds.
    pub fn of_ratios(these: &[f64], those: &[f64]) -> Self {
        assert_eq!(these.len(), those.len(), "both are measured in every round");
        Self::of(these.iter().zip(those).map(|(this, that)| this / that).collect())
    }

    pub fn json(&self) -> Value {
        json!({ "median": rounded(self.median), "min": rounded(self.least), "max": rounded(self.most) })
    }
}

/// Median [least .. most], with as many digits as the format asks for.
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(2);
        let Self { median, least, most } = self;
        write!(f, "{median:.digits$} [{least:.digits$} .. {most:.digits$}]")
    }
}

/// A figure as it is written for programs.
pub fn rounded(figure: f64) -> f64 {
    (figure * 1000.0).round() / 1000.0
}
