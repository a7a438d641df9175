//! The report as text: 80 columns, no colours, identifiers on lines of their own so that they can be copied whole.

use super::{Branch, EarlierOpening, Foreign, Participant, Report, Transaction, for_people};
use crate::cli::exit::Exit;
use comfy_table::{ContentArrangement, Table, presets};
use std::io::{self, Write};

const WIDTH: u16 = 80;
/// So many openings are enough to see what is in the way.
const SHOWN: usize = 10;

pub(super) fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}: {}", report.status.as_str(), sentence(report.status))?;
    if !report.participants.is_empty() {
        writeln!(out)?;
        participants(&report.participants, out)?;
    }
    for one in &report.transactions {
        writeln!(out)?;
        transaction(one, out)?;
    }
    if !report.foreign.is_empty() {
        writeln!(out, "\nforeign: prepared by others, never touched")?;
        foreign(&report.foreign, out)?;
    }
    if !report.unsettled.is_empty() {
        writeln!(out, "\nearlier openings of the journal that may still have left something")?;
        unsettled(&report.unsettled, out)?;
    }
    Ok(())
}

fn sentence(status: Exit) -> &'static str {
    match status {
        Exit::Clean => "nothing is left to be done",
        Exit::Usage => "something is to be corrected first",
        Exit::InDoubt => "something is prepared or decided, and not finished",
        Exit::Unreachable => "a participant could not be asked: what it holds is not known",
        Exit::Damaged => "the facts contradict each other: a person is needed",
        Exit::Refused => "refused, in order not to do harm",
        Exit::Corrupt => "the journal is corrupt: no branch was touched",
    }
}

fn participants(all: &[Participant], out: &mut dyn Write) -> io::Result<()> {
    let mut table = table();
    table.set_header(["participant", "kind", "prepared", "server"]);
    for one in all {
        let prepared = one.prepared.map_or_else(|| String::from("?"), |count| count.to_string());
        let mut server = one.server.clone().unwrap_or_default();
        if let Some(cause) = &one.cause {
            if !server.is_empty() {
                server.push('\n');
            }
            server.push_str(if one.reachable { "" } else { "not reachable: " });
            server.push_str(cause);
        }
        table.add_row([clean(&one.name), clean(&one.kind), prepared, clean(&server)]);
    }
    print(&table, out)
}

fn transaction(one: &Transaction, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "transaction {}", one.id)?;
    writeln!(out, "decision {}, outcome {}, action {}", one.decision, one.outcome, one.action)?;
    let mut table = table();
    for branch in &one.branches {
        table.add_row([clean(&branch.participant), clean(&facts(branch))]);
    }
    print(&table, out)
}

fn facts(branch: &Branch) -> String {
    let Branch { gid, state, evidence, action, why, .. } = branch;
    let age = branch.age_seconds.map(|seconds| format!(" for {}", for_people(seconds))).unwrap_or_default();
    format!("{gid}\n{state}{age}, evidence {evidence}, action {action}\n{why}")
}

fn foreign(all: &[Foreign], out: &mut dyn Write) -> io::Result<()> {
    let mut table = table();
    for one in all {
        let age = one.age_seconds.map(|seconds| format!("\nprepared for {}", for_people(seconds))).unwrap_or_default();
        table.add_row([clean(&one.participant), clean(&format!("{}{age}", one.gid))]);
    }
    print(&table, out)
}

fn unsettled(all: &[EarlierOpening], out: &mut dyn Write) -> io::Result<()> {
    let mut table = table();
    for one in all.iter().take(SHOWN) {
        table.add_row([clean(&one.incarnation), clean(&one.why)]);
    }
    print(&table, out)?;
    if all.len() > SHOWN { writeln!(out, "and {} more", all.len() - SHOWN) } else { Ok(()) }
}

fn table() -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(WIDTH)
        .force_no_tty();
    table
}

fn print(table: &Table, out: &mut dyn Write) -> io::Result<()> {
    table.lines().try_for_each(|line| writeln!(out, "{}", line.trim_end()))
}

/// What a server calls its branches, and what it says in an error, is not ours: it may not steer a terminal.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '?' } else { c }).collect()
}
