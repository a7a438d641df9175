//! What operators see of transactions: spans and events (`docs/guide/observability.md`), and with the feature `metrics`
//! figures (`docs/metrics.md`). Nothing is decided by it, and nothing is formatted for whom nobody listens to.

mod course;
mod figures;
#[cfg(any(feature = "metrics", feature = "cli"))]
pub mod names;

pub(crate) use course::{Course, Phase, span};
#[cfg(feature = "metrics")]
pub(crate) use figures::Gauges;
pub(crate) use figures::{Timer, ended, phase, pool_wait, retried, synced};
#[cfg(feature = "metrics")]
pub use names::describe;
#[cfg(any(feature = "metrics", feature = "cli"))]
pub use names::{METRICS, Metric, MetricKind};
