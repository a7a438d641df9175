//! The structure is a promise like any other: who may import whom, what the pure parts may not name, how long a
//! function may grow. DESIGN in a test, so that it cannot drift.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

/// A source file without its tests, as lines with their numbers.
struct Source {
    path: String,
    lines: Vec<(usize, String)>,
}

fn sources(below: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    collect(&root.join("src").join(below), &mut files);
    files.sort();
    assert!(!files.is_empty(), "nothing found below src/{below}");
    files.iter().map(|file| read(root, file)).collect()
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) {
    if path.is_file() {
        files.push(path.to_owned());
    } else if let Ok(entries) = fs::read_dir(path) {
        for entry in entries {
            let path = entry.unwrap().path();
            // Whole folders and files of tests are not the product.
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let is_test =
                ["tests", "tests.rs", "explorer", "transcripts", "fixtures", "testscripts"].contains(&name.as_str());
            if !is_test && (path.is_dir() || name.ends_with(".rs")) {
                collect(&path, files);
            }
        }
    }
}

fn read(root: &Path, file: &Path) -> Source {
    let text = fs::read_to_string(file).unwrap();
    let product = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap();
    let lines = product.lines().map(str::to_owned).enumerate().map(|(number, line)| (number + 1, line)).collect();
    Source { path: file.strip_prefix(root).unwrap().display().to_string(), lines }
}

/// The line without its comment.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap()
}

/// `crate::x` anywhere in code, as module names.
fn imports(line: &str) -> Vec<String> {
    let line = code(line);
    let braced = line.trim().strip_prefix("use crate::{").map(|rest| {
        rest.split(',').filter_map(|part| part.trim().split([':', '}', ';', ' ']).next().map(str::to_owned)).collect()
    });
    braced.unwrap_or_else(|| {
        let tails = line.split("crate::").skip(1);
        tails.map(|tail| tail.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()).collect()
    })
}

#[test]
fn modules_import_only_what_they_may() {
    let rules: &[(&str, &[&str])] = &[
        ("id.rs", &["torture"]),
        ("torture", &["id", "torture"]),
        ("torture.rs", &["id", "torture"]),
        ("error.rs", &["id"]),
        ("clock.rs", &["torture"]),
        ("config.rs", &["error", "id", "protocol"]),
        ("config", &["error", "id", "protocol"]),
        ("protocol", &["id", "protocol"]),
        ("journal", &["id", "error", "protocol", "config", "journal", "torture", "clock", "telemetry"]),
        ("participant", &["id", "error", "protocol", "config", "participant", "torture", "clock", "telemetry"]),
        ("telemetry", &["id", "error", "protocol", "telemetry"]),
    ];
    for (place, allowed) in rules {
        for source in sources(place) {
            for (number, line) in &source.lines {
                for import in imports(line) {
                    let fine = import.is_empty() || allowed.contains(&import.as_str());
                    assert!(fine, "{}:{number}: {place} may not import {import}", source.path);
                }
            }
        }
    }
}

/// The tool is a user like any other.
#[test]
fn the_tool_uses_the_public_api_alone() {
    let private = ["bridge", "engine"];
    for source in sources("cli") {
        for (number, line) in &source.lines {
            for import in imports(line) {
                assert!(!private.contains(&import.as_str()), "{}:{number}: {import} is not public", source.path);
            }
            assert!(!code(line).contains("pub(crate) use crate::"), "{}:{number}", source.path);
        }
    }
}

#[test]
fn the_pure_parts_name_no_outside() {
    let outside =
        ["std::fs", "std::net", "std::thread", "std::time", "std::env", "Instant", "SystemTime", "tokio", "getrandom"];
    let pure = sources("protocol").into_iter().chain(sources("journal/format.rs"));
    for source in pure {
        for (number, line) in &source.lines {
            for word in outside {
                assert!(!code(line).contains(word), "{}:{number}: {word} in a pure part", source.path);
            }
        }
    }
}

/// A switch that nobody looks at would tell of tests that watch nothing.
#[test]
fn every_safeguard_has_its_switch() {
    let named = sources("torture/safeguard.rs").remove(0).lines.into_iter();
    let named = named.filter_map(|(_, line)| line.trim().strip_prefix("Self::")?.strip_suffix(',').map(str::to_owned));
    let named: Vec<String> = named.filter(|name| name.bytes().all(|byte| byte.is_ascii_alphanumeric())).collect();
    assert!(named.len() > 10, "{named:?}");
    let product: Vec<_> = sources("").into_iter().filter(|one| !one.path.starts_with("src/torture")).collect();
    for name in named {
        let switch = format!("is_on(Safeguard::{name})");
        let looks = |one: &Source| one.lines.iter().any(|(_, line)| code(line).contains(&switch));
        assert!(product.iter().any(looks), "nobody asks whether {name} is on");
    }
}

/// The wall clock is read in one place, so that tests can make it jump for all: nothing is decided by it. The tool, which
/// shows ages to people, has its own.
#[test]
fn the_wall_clock_has_one_door() {
    let doors = ["clock.rs", "torture/clock.rs", "cli/"];
    let mut seen = 0;
    for source in sources("") {
        for (number, line) in source.lines.iter().filter(|(_, line)| code(line).contains("SystemTime::now")) {
            let path = source.path.trim_start_matches("src/");
            assert!(doors.iter().any(|door| path.starts_with(door)), "{}:{number}: {line}", source.path);
            seen += 1;
        }
    }
    assert!(seen > 0, "somebody reads the clock");
}

#[test]
fn functions_stay_short() {
    for source in sources("") {
        let mut start = None;
        for (number, line) in &source.lines {
            let indent = line.len() - line.trim_start().len();
            let begins = line.trim_start().starts_with("fn ") || line.contains(" fn ");
            if start.is_none()
                && begins
                && !code(line).trim_end().ends_with(';')
                && !line.trim_start().starts_with("//")
            {
                start = Some((*number, indent));
            }
            if let Some((first, depth)) = start
                && line.trim_end() == format!("{}}}", " ".repeat(depth))
            {
                assert!(number - first < 70, "{}:{first}: a function of {} lines", source.path, number - first + 1);
                start = None;
            }
        }
    }
}

#[test]
fn files_hold_one_idea() {
    for source in sources("") {
        assert!(source.lines.len() <= 500, "{} has {} lines without its tests", source.path, source.lines.len());
    }
}

#[test]
fn nothing_is_left_unfinished() {
    for source in sources("") {
        for (number, line) in &source.lines {
            for word in ["todo!", "unimplemented!", "TODO", "FIXME", "XXX", "dbg!", ".unwrap()"] {
                assert!(!code(line).contains(word), "{}:{number}: {word}", source.path);
            }
        }
    }
}
