//! Which entry of the log of known failures of other systems is tried where. A test names an entry in its own name, as
//! `d07_..`, or in its comments and code, as `D07`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// So many entries has the log.
const ENTRIES: u32 = 50;

/// What no test tries yet, and what it is about.
const OPEN: &[(u32, &str)] = &[];

/// The entries that are tried by what their tests are, not by their name.
const ELSEWHERE: &[(u32, &str, &str)] = &[
    // Whoever lends a branch borrows the transaction, and commit takes it: work after prepare cannot be written down.
    (16, "src/transaction.rs", "fn commit(mut self)"),
    (34, "docs/recovery.md", "handfast drain"),
    (34, "integration-tests/tests/tool/monitoring.rs", "drain"),
];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if name.ends_with(".rs") && name != "failures_listed.rs" {
            found.push(path);
        }
    }
    found
}

/// The entries that a file's tests name.
fn named(text: &str) -> BTreeSet<u32> {
    let numbers = |rest: &str| rest.get(..2).and_then(|digits| digits.parse::<u32>().ok());
    let word = |text: &str, at: usize| at == 0 || !text.as_bytes()[at - 1].is_ascii_alphanumeric();
    let mut found = BTreeSet::new();
    for line in text.lines() {
        let function = line.split_once("fn ").map(|(_, name)| name).filter(|name| name.starts_with('d'));
        for part in function.into_iter().flat_map(|name| name.split('_')).take_while(|part| part.starts_with('d')) {
            found.extend(part.strip_prefix('d').filter(|rest| rest.len() == 2).and_then(numbers));
        }
        let upper = line.match_indices('D').filter(|(at, _)| word(line, *at));
        found.extend(upper.filter_map(|(at, _)| {
            let rest = &line[at + 1..];
            let ends = rest.as_bytes().get(2).is_none_or(|next| !next.is_ascii_alphanumeric());
            ends.then(|| numbers(rest)).flatten()
        }));
    }
    found
}

#[test]
fn every_known_failure_is_tried_or_open() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut tried: BTreeMap<u32, BTreeSet<String>> = BTreeMap::new();
    for folder in ["integration-tests/src", "integration-tests/tests", "src"] {
        for file in sources(&root.join(folder)) {
            let text = std::fs::read_to_string(&file).unwrap();
            // Of the product, only what is test code.
            let is_test = folder != "src" || file.components().any(|part| part.as_os_str() == "tests");
            let tests = if is_test { Some(&text[..]) } else { text.split_once("mod tests").map(|(_, tests)| tests) };
            let name = file.strip_prefix(root).unwrap().display().to_string();
            for entry in tests.map(named).into_iter().flatten() {
                tried.entry(entry).or_default().insert(name.clone());
            }
        }
    }
    for (entry, file, word) in ELSEWHERE {
        assert!(std::fs::read_to_string(root.join(file)).unwrap().contains(word), "D{entry}: {word:?} in {file}");
        tried.entry(*entry).or_default().insert((*file).to_owned());
    }
    for (entry, files) in &tried {
        println!("D{entry:02}: {}", files.iter().cloned().collect::<Vec<_>>().join(", "));
    }
    let open: BTreeSet<_> = OPEN.iter().map(|(entry, _)| *entry).collect();
    let missing: Vec<_> = (1..=ENTRIES).filter(|entry| !tried.contains_key(entry) && !open.contains(entry)).collect();
    assert!(missing.is_empty(), "no test names {missing:?}");
    assert!(open.iter().all(|entry| !tried.contains_key(entry)), "tried after all");
}

#[test]
fn names_are_found() {
    assert_eq!(named("    async fn d03_d21_by_hand(x) {\n/// (D20): D5x, D123, XD04"), [3, 20, 21].into());
}
