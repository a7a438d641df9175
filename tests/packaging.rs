//! What is published: the right files, and documentation that says of features and versions what the manifest says.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

fn text(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// The files of the package, as cargo would publish them.
fn packaged() -> Vec<String> {
    let mut cargo = Command::new(env!("CARGO"));
    let list = cargo.args(["package", "--list", "--allow-dirty", "--offline"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = list.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn the_package_has_what_a_user_needs_and_nothing_else() {
    let files = packaged();
    let has = |name: &str| files.iter().any(|file| file == name);
    for name in
        ["src/lib.rs", "src/main.rs", "config/handfast.toml", "examples/common/mod.rs", "LICENSE-MIT", "LICENSE-APACHE"]
    {
        assert!(has(name), "{name} is missing");
    }
    let ours = ["src/", "config/", "docs/", "examples/", "tests/"];
    for file in &files {
        let at_root = !file.contains('/') && !file.ends_with(".rs");
        assert!(at_root || ours.iter().any(|place| file.starts_with(place)), "{file} is nobody's business");
    }
    // What the published pages of the root link to is published with them.
    for page in ["README.md", "CONTRIBUTING.md", "SECURITY.md"] {
        assert!(has(page), "{page} is missing");
    }
    // Compiled into the library, or into its documentation's tests.
    for include in text("src/lib.rs").split("include_str!(\"../").skip(1) {
        let name = include.split('"').next().unwrap();
        assert!(has(name), "{name} is missing");
    }
}

/// Every relative link of every page leads to a file. Of what is published, as far as that is published as well.
#[test]
fn links_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let is_repository = root.join("docker").exists();
    let mut pages = vec![root.join("docker/README.md")];
    pages.retain(|_| is_repository);
    for place in ["", "docs", "docs/guide", "docs/decisions"] {
        let entries = std::fs::read_dir(root.join(place)).unwrap().map(|entry| entry.unwrap().path());
        pages.extend(entries.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    }
    let mut seen = 0;
    for page in &pages {
        for link in std::fs::read_to_string(page).unwrap().split("](").skip(1) {
            let target = link.split([')', '#']).next().unwrap();
            let leaves =
                ["docker/", "integration-tests/", "fuzz/", "scripts/"].iter().any(|place| target.contains(place));
            if target.is_empty() || target.contains("://") || (leaves && !is_repository) {
                continue;
            }
            assert!(page.parent().unwrap().join(target).exists(), "{}: {target}", page.display());
            seen += 1;
        }
    }
    assert!(seen > 20, "only {seen} links");
}

/// `[features]` of the manifest and the table of the documentation.
#[test]
fn every_feature_is_documented() {
    let manifest = text("Cargo.toml");
    let section = manifest.split("\n[features]\n").nth(1).unwrap().split("\n[").next().unwrap();
    let names = section.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
    let mut names: Vec<_> =
        names.map(|line| line.split(' ').next().unwrap()).filter(|name| *name != "default").collect();
    names.sort_unstable();
    for page in ["src/lib.rs", "README.md"] {
        let text = text(page);
        let table = text.split("| feature |").nth(1).unwrap_or_else(|| panic!("{page} has no table of features"));
        let rows = table.lines().skip(2).map(|line| line.trim_start_matches("//! "));
        let rows = rows.take_while(|line| line.starts_with("| `"));
        let mut documented: Vec<_> = rows.map(|line| line.split('`').nth(1).unwrap()).collect();
        documented.sort_unstable();
        assert_eq!(documented, names, "{page}");
    }
}

#[test]
fn the_oldest_compiler_is_said_where_it_is_asked_for() {
    let manifest = text("Cargo.toml");
    let oldest =
        manifest.lines().find_map(|line| line.strip_prefix("rust-version = \"")).unwrap().trim_end_matches('"');
    for page in ["README.md", "docs/versions.md"] {
        assert!(text(page).contains(&format!("Rust {oldest}")), "{page} does not say Rust {oldest}");
    }
}
