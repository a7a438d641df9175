//! Where a value comes from.

use config::{Value, ValueKind};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// Where an option's value comes from. What comes later in this list lies over what comes before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Nobody said anything.
    Default,
    /// The file says it.
    File,
    /// A variable `HANDFAST__..` says it.
    Environment,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Default => "default",
            Self::File => "file",
            Self::Environment => "environment",
        })
    }
}

/// Where each option's value comes from, from [`Config::load_with_sources`](super::Config::load_with_sources).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources(BTreeMap<String, Source>);

impl Sources {
    /// The source of an option by its dotted name: `transaction.timeout`, `participants.ledger.url`.
    pub fn of(&self, key: &str) -> Source {
        self.0.get(key).copied().unwrap_or(Source::Default)
    }

    pub(super) fn read(root: &Value) -> Self {
        let mut all = Self::default();
        all.take(root, String::new());
        all
    }

    fn take(&mut self, value: &Value, path: String) {
        if !path.is_empty() {
            self.0.insert(path.clone(), of_value(value));
        }
        let ValueKind::Table(table) = &value.kind else { return };
        for (key, inner) in table {
            let dot = if path.is_empty() { "" } else { "." };
            self.take(inner, format!("{path}{dot}{key}"));
        }
    }
}

/// The source of a value; of a table the environment only when all of it is from there.
pub(super) fn of_value(value: &Value) -> Source {
    match &value.kind {
        ValueKind::Table(table) => table.values().map(of_value).min().unwrap_or(Source::File),
        _ if value.origin() == Some(ENVIRONMENT) => Source::Environment,
        _ => Source::File,
    }
}

/// As the crate `config` names it; a test would see another name.
const ENVIRONMENT: &str = "the environment";
