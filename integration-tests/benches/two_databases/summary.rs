//! All figures for programs: `target/bench/summary.json`.

use crate::Pair;
use crate::journal::Alone;
use crate::plan::Plan;
use crate::targets::Verdict;
use integration_tests::servers;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Writes it: its path.
pub fn write(plan: &Plan, pairs: &[Pair], journal: Option<&Alone>, verdicts: &[Verdict]) -> PathBuf {
    let path = servers::target().join("bench/summary.json");
    let summary = json!({
        "schema": 2,
        "slice_ms": u64::try_from(plan.slice.as_millis()).expect("a slice is short"),
        "processors": std::thread::available_parallelism().map(usize::from).ok(),
        "pairs": pairs.iter().map(pair).collect::<Vec<_>>(),
        "journal": journal.map(Alone::json),
        "targets": verdicts.iter().map(Verdict::json).collect::<Vec<_>>(),
    });
    let text = serde_json::to_string_pretty(&summary).expect("a value is text");
    std::fs::create_dir_all(path.parent().expect("it is in a directory")).expect("a directory");
    std::fs::write(&path, text + "\n").expect("the summary can be written");
    path
}

fn pair(pair: &Pair) -> Value {
    json!({
        "servers": pair.servers,
        "binlog": pair.binlog,
        "left_out": pair.left_out,
        "timed": pair.timed.as_ref().map(|part| part.json()),
        "counted": pair.counted.iter().map(|part| part.json()).collect::<Vec<_>>(),
        "participants": pair.participants.as_ref().map(|part| part.json()),
        "begin": pair.begin.as_ref().map(|part| part.json()),
        "memory": pair.memory.as_ref().map(|part| part.json()),
        "recovery": pair.recovery.as_ref().map(|part| part.json()),
    })
}
