//! Arbitrary texts as a configuration: valid or an error in one line, never a panic, never a password in the error.

use bolero::check;
use handfast::Config;
use handfast_fuzz::edits::{Edit, corpus, edited};
use std::time::Duration;

/// The passwords of the corpus.
const SECRET: &str = "s3cr3t";

/// Whether the secret is where passwords are, wherever it is.
fn is_hidden_well(text: &str) -> bool {
    text.match_indices(SECRET).all(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + SECRET.len()..]);
        (before.ends_with(':') && after.starts_with('@')) || before.ends_with("password=")
    })
}

fn examine(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match Config::from_toml(text) {
        Ok(config) => {
            let shown = format!("{config:?}");
            assert!(!shown.contains(SECRET) || !is_hidden_well(text), "{shown}");
        }
        Err(error) => {
            let said = error.chain();
            assert!(!said.contains('\n'), "{said}");
            assert!(!said.contains(SECRET) || !is_hidden_well(text), "{said}\nof\n{text}");
        }
    }
}

#[test]
fn config() {
    check!().with_iterations(5000).with_test_time(Duration::from_secs(5)).for_each(examine);
}

#[test]
fn edited_configurations() {
    let sound = corpus("config");
    let bounded = check!().with_iterations(5000).with_test_time(Duration::from_secs(5));
    bounded.with_type::<(u8, Vec<Edit>)>().for_each(|(which, edits)| {
        examine(&edited(&sound[usize::from(*which) % sound.len()], edits));
    });
}

#[test]
fn the_corpus_is_of_valid_configurations() {
    for input in corpus("config") {
        let text = String::from_utf8(input).unwrap();
        Config::from_toml(&text).unwrap_or_else(|error| panic!("{}: {text}", error.chain()));
        assert!(is_hidden_well(&text));
    }
}
