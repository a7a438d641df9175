//! `handfast journal verify|dump`: reads the journal, beside a running application or without one; never writes.

use super::args::{Format, JournalCommand};
use super::exit::Exit;
use super::output::Output;
use crate::config::JournalConfig;
use crate::error::Result;
use crate::journal::format::Entry;
use crate::journal::{self, Offline, OfflineEntry, Verdict};
use crate::protocol::{Absence, Record, Remark, Resolution};
use serde_json::{Value, json};
use std::path::Path;

/// Reads the journal and tells how it is.
///
/// # Errors
/// When there is none, or it cannot be read at all.
pub fn run(config: &JournalConfig, command: JournalCommand, output: &mut Output) -> Result<Exit> {
    let found = journal::read(&config.directory)?;
    let exit = if matches!(found.verdict, Verdict::Corrupt(_)) { Exit::Corrupt } else { Exit::Clean };
    let entries = match command {
        JournalCommand::Verify => None,
        JournalCommand::Dump => Some(&found.entries),
    };
    match output.format() {
        Format::Text => output.text(&text(&found, &config.directory, entries)),
        Format::Json => output.json(&object(&found, exit, entries)),
    }
    Ok(exit)
}

fn text(found: &Offline, directory: &Path, entries: Option<&Vec<OfflineEntry>>) -> String {
    let mut text = String::new();
    for entry in entries.into_iter().flatten() {
        text += &format!("{}:{:<8} {:<8} {}\n", entry.file, entry.offset, standing(entry), describe(&entry.entry));
    }
    let id = found.journal.map_or_else(|| String::from("(unknown)"), |id| id.to_string());
    let openings = count(found.image.incarnations().len() as u64, "opening");
    let commits = count(found.image.committed_count(), "commit");
    let open = count(found.image.open_decisions().len() as u64, "open decision");
    text += &format!("journal {id} in {}: {openings}, {commits}, {open}\n", directory.display());
    if !found.in_doubt.is_empty() {
        let records = count(found.in_doubt.len() as u64, "record");
        text += &format!("{records} beyond the last synced mark: opening the journal makes that durable\n");
    }
    text + &verdict(&found.verdict) + "\n"
}

fn count(number: u64, of: &str) -> String {
    format!("{number} {of}{}", if number == 1 { "" } else { "s" })
}

fn verdict(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Clean => String::from("clean: every byte is as it was written"),
        Verdict::TornTail { file, offset } => {
            format!("clean: {file} ends in a write that was never acknowledged, at offset {offset}")
        }
        Verdict::Corrupt(damage) => {
            format!("corrupt: {} at offset {}: {}", damage.file, damage.offset, damage.why)
        }
    }
}

fn standing(entry: &OfflineEntry) -> &'static str {
    match (entry.salvaged, entry.durable) {
        (true, _) => "salvaged",
        (false, true) => "durable",
        // It says something of others, and nothing depends on it.
        (false, false) if entry.entry == Entry::Mark => "-",
        (false, false) => "in doubt",
    }
}

/// One entry in a line.
fn describe(entry: &Entry) -> String {
    match entry {
        Entry::Header(header) => format!("segment {} of journal {}", header.sequence, header.journal),
        Entry::Mark => String::from("mark"),
        Entry::Next(sequence) => format!("continued in segment {sequence}"),
        Entry::Record(record) => describe_record(record),
        Entry::Outcomes(chunk) => {
            let settled = if chunk.settled.is_some() { ", settled" } else { "" };
            format!("outcomes of {}{settled}: {} commits", chunk.incarnation, chunk.committed.len())
        }
        Entry::Payload(id, payload) => {
            format!("payload of {id}: {} bytes under {}", payload.bytes.len(), crate::id::hex(&payload.key))
        }
    }
}

fn describe_record(record: &Record) -> String {
    match record {
        Record::Incarnation(opened) => {
            let names: Vec<_> = opened.participants.iter().map(ToString::to_string).collect();
            format!("opening {} of node {}: {}", opened.incarnation, opened.node, names.join(", "))
        }
        Record::Participant(one) => format!("participant {} is lineage {} ({})", one.name, one.lineage, one.reason),
        Record::Commit(decision) => {
            let branches = decision.branches.iter().map(|branch| format!("{} {}", branch.participant, branch.id));
            format!("commit {} on {}", decision.transaction, branches.collect::<Vec<_>>().join(", "))
        }
        Record::Done(id) => format!("done {id}"),
        Record::OnePhase(id) => format!("committed in one phase {id}"),
        Record::Settled(incarnation, Absence::RolledBack) => format!("settled {incarnation}"),
        Record::Settled(incarnation, Absence::Unproven) => format!("settled {incarnation}, not all of it proven"),
        Record::Damaged(damage) => {
            let branches =
                damage.branches.iter().map(|branch| format!("{} on {}: {}", branch.id, branch.participant, branch.why));
            format!("damaged {}: {}", damage.transaction, branches.collect::<Vec<_>>().join("; "))
        }
        Record::Resolved(id, Resolution::Commit, remark) => format!("resolved {id} to commit {}", by_hand(remark)),
        Record::Resolved(id, Resolution::RollBack, remark) => format!("resolved {id} to roll back {}", by_hand(remark)),
        Record::Forgotten(id, remark) => format!("forgotten {id} {}", by_hand(remark)),
        Record::Incomplete(incarnation, remark) => {
            format!("records of {incarnation} may have been lost {}", by_hand(remark))
        }
        Record::Witnessed(id) => format!("committed, as a witness proves, {id}"),
        Record::GivenUp(incarnation, participant) => {
            format!("what {incarnation} left on {participant} is given up")
        }
    }
}

/// Who did it, when and why.
fn by_hand(remark: &Remark) -> String {
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_millis(remark.at_ms);
    let at = humantime_serde::re::humantime::format_rfc3339_seconds(at);
    format!("on {} at {at}: {}", remark.host, remark.reason)
}

fn object(found: &Offline, exit: Exit, entries: Option<&Vec<OfflineEntry>>) -> Value {
    let entries = entries.map(|entries| {
        let entry = |entry: &OfflineEntry| {
            json!({
                "file": entry.file,
                "offset": entry.offset,
                "length": entry.length,
                "standing": standing(entry),
                "entry": describe(&entry.entry),
            })
        };
        entries.iter().map(entry).collect::<Vec<_>>()
    });
    json!({
        "schema": 1,
        "status": exit.as_str(),
        "journal": found.journal.map(|id| id.to_string()),
        "in_use": found.in_use,
        "openings": found.image.incarnations().len(),
        "commits": found.image.committed_count(),
        "open_decisions": found.image.open_decisions().map(|open| open.transaction.to_string()).collect::<Vec<_>>(),
        "beyond_synced_mark": found.in_doubt.len(),
        "verdict": verdict(&found.verdict),
        "entries": entries,
    })
}
