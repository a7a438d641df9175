//! What the documentation promises of every public future.

use std::path::{Path, PathBuf};

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" && name != "cli" {
            found.extend(sources(&path));
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
    found
}

/// The public futures of a text that do not say what dropping them does, and how many say so.
fn silent(text: &str) -> (Vec<String>, usize) {
    let (mut silent, mut said, mut docs) = (Vec::new(), 0, String::new());
    for line in text.split("\n#[cfg(test)]\nmod tests {").next().unwrap().lines() {
        let line = line.trim();
        if let Some(doc) = line.strip_prefix("///") {
            docs.push_str(doc);
            docs.push('\n');
        } else if !line.starts_with("#[") {
            let signature =
                line.starts_with("pub async fn") || (line.starts_with("pub fn") && line.contains("Future<"));
            match (signature, docs.contains("# Cancel safety")) {
                (true, true) => said += 1,
                (true, false) => silent.push(line.to_owned()),
                (false, _) => {}
            }
            docs.clear();
        }
    }
    (silent, said)
}

/// Every public future has the section. What is below `engine` and `journal` is nobody's but Handfast's own.
#[test]
fn every_public_future_says_what_dropping_it_does() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("src");
    let mut total = 0;
    for file in sources(&root) {
        let name = file.strip_prefix(&root).unwrap().display().to_string();
        if ["engine", "torture", "journal/committer", "journal/table"].iter().any(|private| name.starts_with(private)) {
            continue;
        }
        let (silent, said) = silent(&std::fs::read_to_string(&file).unwrap());
        assert!(silent.is_empty(), "{name}: no section *Cancel safety*: {silent:#?}");
        total += said;
    }
    assert!(total >= 25, "only {total} were found");
}

#[test]
fn a_future_without_the_section_is_found() {
    let text = "/// A.\n///\n/// # Cancel safety\n/// B.\npub async fn a() {}\n\n/// C.\npub async fn c() {}\n";
    assert_eq!(silent(text), (vec!["pub async fn c() {}".to_owned()], 1));
}
