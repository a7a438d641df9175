//! The image of the tool: what the Dockerfile does, as far as that can be told by reading it.

use crate::{CONFIG_PATH, USER, config, text};

/// The instructions, a line each.
fn instructions() -> Vec<String> {
    let text = text("docker/Dockerfile").replace("\\\n", " ");
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

/// What stands behind an instruction, each time that it occurs.
fn all(instruction: &str) -> Vec<String> {
    let prefix = format!("{instruction} ");
    instructions().iter().filter_map(|line| line.strip_prefix(&prefix).map(str::to_owned)).collect()
}

fn manifest_value(key: &str) -> String {
    let manifest = text("Cargo.toml");
    let line = manifest.lines().find_map(|line| line.strip_prefix(&format!("{key} = "))).expect("a line of that key");
    line.trim_matches('"').to_owned()
}

#[test]
fn it_is_built_in_one_stage_and_runs_in_another() {
    let stages = all("FROM");
    let [build, run] = stages.as_slice() else { panic!("two stages, not {stages:?}") };
    let oldest = format!("rust:{}-slim-", manifest_value("rust-version"));
    let release =
        build.strip_prefix(&oldest).unwrap_or_else(|| panic!("{build} is not {oldest}")).replace(" AS build", "");
    assert_eq!(*run, format!("debian:{release}-slim"), "one release of Debian: one libc");
    let roots = "--from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/";
    assert_eq!(all("COPY"), [". .", "--from=build /out /", roots]);
    let build = all("RUN").concat();
    for word in ["--locked", "--release", "--package handfast", "--bin handfast", "--features cli"] {
        assert!(build.contains(word), "{word} in {build}");
    }
}

#[test]
fn it_runs_as_nobody_special_and_keeps_the_journal_on_a_volume() {
    assert_eq!(all("USER"), [format!("{USER}:{USER}")]);
    let journal = config().journal.directory.display().to_string();
    assert_eq!(all("VOLUME"), std::slice::from_ref(&journal));
    // An anonymous volume takes its owner from the image.
    assert!(all("RUN").concat().contains(&format!("-o {USER} -g {USER} /out{journal}")));
    assert_eq!(all("ENV"), [format!("HANDFAST_CONFIG={CONFIG_PATH}")]);
    assert_eq!(all("ENTRYPOINT"), ["[\"/usr/local/bin/handfast\"]"]);
    assert_eq!(all("CMD"), ["[\"list\"]"], "what is read-only is what an accident runs");
}

/// Whatever the build reads is let into its context, and the context is no more than that.
#[test]
fn the_build_is_given_what_it_needs() {
    let ignore = text("docker/Dockerfile.dockerignore");
    let lines: Vec<_> = ignore.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    assert_eq!(lines[0], "*");
    let allowed: Vec<_> = lines[1..].iter().map(|line| line.strip_prefix('!').expect("only exceptions")).collect();
    // The workspace's member has to be there, and programs of its that are named in its manifest.
    let needed = ["Cargo.toml", "Cargo.lock", "src", "examples", "integration-tests"];
    assert!(needed.iter().all(|name| allowed.contains(name)), "{allowed:?}");
    assert!(allowed.contains(&manifest_value("readme").as_str()));
    assert!(allowed.iter().all(|name| crate::path(name).exists()), "{allowed:?}");
    assert!(!allowed.contains(&"target") && !allowed.contains(&"docker"));
}
