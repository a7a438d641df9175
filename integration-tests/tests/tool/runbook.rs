//! The runbook is read at night by somebody who cannot check it: so this does.

use clap::CommandFactory;
use handfast::cli::args::Args;
use handfast::protocol::recovery::TABLE;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn runbook() -> String {
    std::fs::read_to_string(root().join("docs/recovery.md")).unwrap()
}

/// The rows of the table, as the runbook has to have them: all, in order, with what is done and why.
#[test]
fn it_has_every_row_of_the_recovery_table() {
    let rows = |line: &str| {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        (cells.len() == 6).then(|| [cells[1], cells[2], cells[3]].map(str::to_owned))
    };
    let text = runbook();
    let (_, table) = text.split_once("## Every row of the recovery table").unwrap();
    let told: Vec<_> = table.lines().filter(|line| line.starts_with('|')).filter_map(rows).skip(2).collect();
    let expected: Vec<_> =
        TABLE.iter().map(|row| [row.label, row.action.as_str(), row.why].map(str::to_owned)).collect();
    assert_eq!(told, expected);
}

/// What it shows was printed by the tool, on real servers: the other tests keep it.
#[test]
fn what_it_shows_was_really_printed() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tool/snapshots");
    let mut printed = String::new();
    for file in std::fs::read_dir(directory).unwrap() {
        printed += &std::fs::read_to_string(file.unwrap().path()).unwrap();
    }
    let text = runbook();
    let shown: Vec<_> = text.split("```console\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(shown.len() >= 10, "{}", shown.len());
    for block in shown {
        assert!(printed.contains(block.trim_end()), "nobody printed this:\n{block}");
    }
}

/// Every command that it names is one.
#[test]
fn the_commands_it_names_exist() {
    let command = Args::command();
    let text = runbook();
    let named: Vec<_> = text.split("handfast ").skip(1).filter_map(|rest| rest.split_whitespace().next()).collect();
    let names: Vec<_> = command.get_subcommands().map(clap::Command::get_name).collect();
    for name in &names {
        let hidden = command.find_subcommand(name).unwrap().is_hide_set();
        let spoken =
            ["demo", "servers", "completions", "man"].contains(name) || text.contains(&format!("handfast {name}"));
        assert!(hidden || spoken, "the runbook does not speak of {name}");
    }
    for name in named.into_iter().map(|name| name.trim_matches(|c: char| !c.is_ascii_lowercase())) {
        assert!(name.is_empty() || names.contains(&name), "there is no `handfast {name}`");
    }
}
