//! Golden transcripts: `testscripts/` holds one scenario a file, each named as the fact that it shows.
//!
//! A line that begins with `> ` is said to the machine under test; the lines below are what it answered; `#` begins
//! a comment. The runner says the lines again and compares. After an intended change, run the tests with
//! `HANDFAST_REWRITE=1`, then read the difference before it is committed.

mod coordinator;
mod recovery;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// Something that scripts talk to.
trait Machine {
    /// Takes one line and answers with any number of them; `None` for a line that it does not know.
    fn say(&mut self, words: &[&str]) -> Option<Vec<String>>;
}

/// Both machines, so that one script can tell how a coordinator's remains are recovered.
#[derive(Default)]
struct Stage {
    coordinator: coordinator::Script,
    recovery: recovery::Script,
}

impl Stage {
    fn say(&mut self, line: &str) -> Vec<String> {
        let words: Vec<_> = line.split_whitespace().collect();
        let said =
            catch_unwind(AssertUnwindSafe(|| self.coordinator.say(&words).or_else(|| self.recovery.say(&words))));
        match said {
            Ok(Some(answer)) => answer,
            Ok(None) => panic!("no machine understands {line:?}"),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
                vec![format!("panic: {}", text.unwrap_or("?").lines().next().unwrap_or_default())]
            }
        }
    }
}

/// The script as it would read if all its answers were today's.
fn replay(script: &str) -> String {
    let mut stage = Stage::default();
    let mut text = String::new();
    for line in script.lines() {
        let said = line.strip_prefix("> ");
        if said.is_some() || line.starts_with('#') || line.is_empty() {
            text.push_str(line);
            text.push('\n');
        }
        for answer in said.map(|said| stage.say(said)).unwrap_or_default() {
            text.push_str(&answer);
            text.push('\n');
        }
    }
    text
}

fn scripts() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/protocol/testscripts");
    let entries = fs::read_dir(folder).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

#[test]
fn every_transcript_reads_as_recorded() {
    let rewrite = std::env::var_os("HANDFAST_REWRITE").is_some();
    let mut wrong = Vec::new();
    for path in scripts() {
        let recorded = fs::read_to_string(&path).unwrap();
        let today = replay(&recorded);
        if recorded != today && rewrite {
            fs::write(&path, today).unwrap();
        } else if recorded != today {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let (was, is) = recorded.lines().zip(today.lines()).find(|(was, is)| was != is).unwrap_or_default();
            wrong.push(format!("{name}: recorded {was:?}, today {is:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}\nHANDFAST_REWRITE=1 records today's answers", wrong.join("\n"));
    assert!(scripts().len() >= 25);
}

#[test]
fn every_transcript_says_why_it_is_there() {
    for path in scripts() {
        let script = fs::read_to_string(&path).unwrap();
        assert!(script.starts_with("# "), "{}: begins with a comment", path.display());
        assert!(script.contains("\n> "), "{}: says something", path.display());
    }
}
