//! The licences of what is built here are those that deny.toml allows. `cargo deny` looks closer, where it is installed;
//! this looks always.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a member of the workspace")
}

fn allowed() -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join("deny.toml")).unwrap();
    let section = text.split("[licenses]").nth(1).expect("a section");
    let list = section.split("allow = [").nth(1).and_then(|rest| rest.split(']').next()).expect("a list");
    list.lines().filter_map(|line| Some(line.trim().strip_prefix('"')?.split('"').next()?.to_owned())).collect()
}

/// Whether an SPDX expression can be met with what is allowed: OR binds less than AND, parentheses bind most.
fn is_met(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    let met = any(&mut rest, allowed);
    assert!(rest.is_empty(), "{expression:?} was not understood: {rest:?}");
    met
}

fn any(words: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    let mut met = all(words, allowed);
    while words.first() == Some(&"OR") {
        *words = &words[1..];
        met |= all(words, allowed);
    }
    met
}

fn all(words: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    let mut met = one(words, allowed);
    while words.first() == Some(&"AND") {
        *words = &words[1..];
        met &= one(words, allowed);
    }
    met
}

fn one(words: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    let (word, rest) = words.split_first().expect("a licence");
    *words = rest;
    if *word == "(" {
        let met = any(words, allowed);
        *words = words.strip_prefix(&[")"]).expect("a closing parenthesis");
        return met;
    }
    if let ["WITH", exception, rest @ ..] = *words {
        *words = rest;
        return allowed.contains(&format!("{word} WITH {exception}"));
    }
    allowed.contains(*word)
}

#[test]
fn every_licence_is_allowed() {
    let host = Command::new("rustc").arg("-vV").output().unwrap();
    let host = String::from_utf8(host.stdout).unwrap();
    let host = host.lines().find_map(|line| line.strip_prefix("host: ")).expect("a host");
    let mut cargo = Command::new(env!("CARGO"));
    // Of this platform alone: others' packages need not have been fetched.
    cargo.args(["metadata", "--format-version", "1", "--offline", "--locked", "--all-features"]);
    let output = cargo.args(["--filter-platform", host]).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().expect("packages");
    let allowed = allowed();
    for package in packages {
        let name = &package["name"];
        let licence = package["license"].as_str().unwrap_or_else(|| panic!("{name} names no licence"));
        assert!(is_met(licence, &allowed), "{name}: {licence} is not among {allowed:?}");
    }
    assert!(packages.len() > 50, "{}", packages.len());
}

#[test]
fn expressions_are_understood() {
    let allowed = BTreeSet::from(["MIT".to_owned(), "Zlib".to_owned()]);
    for met in ["MIT", "GPL-3.0 OR MIT", "Apache-2.0/MIT", "(GPL-3.0 OR MIT) AND Zlib", "MIT OR GPL-3.0 AND BSL-1.0"] {
        assert!(is_met(met, &allowed), "{met}");
    }
    for not in ["GPL-3.0", "MIT AND GPL-3.0", "(MIT OR GPL-3.0) AND BSL-1.0", "MIT WITH LLVM-exception"] {
        assert!(!is_met(not, &allowed), "{not}");
    }
}
