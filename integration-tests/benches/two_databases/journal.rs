//! The journal without databases.

mod appends;
mod records;
mod start;

use crate::plan::Plan;
use appends::Appends;
use serde_json::{Value, json};
use start::Start;
use std::fmt;
use tempfile::TempDir;

/// What it does alone.
pub struct Alone {
    pub appends: Appends,
    pub start: Start,
}

pub async fn measure(plan: &Plan) -> Alone {
    let directory = TempDir::with_prefix("handfast-bench-").expect("a temporary directory");
    let appends = appends::measure(directory.path(), plan.rounds, plan.slice).await;
    let start = start::measure(directory.path(), plan.rounds, plan.finished, appends.bytes()).await;
    Alone { appends, start }
}

impl Alone {
    pub fn json(&self) -> Value {
        json!({ "appends": self.appends.json(), "start": self.start.json() })
    }
}

impl fmt::Display for Alone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the journal alone\n{}{}", self.appends, self.start)
    }
}
