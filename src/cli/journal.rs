//! `handfast journal verify|dump|repair`: how the journal is, beside a running application or without one; and the way
//! out when it is corrupt, or an older copy. Only `repair --yes` writes.

use super::args::{Format, JournalCommand};
use super::exit::Exit;
use super::output::Output;
use super::report::Moment;
use crate::config::{Config, JournalConfig};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Incarnation, TransactionId};
use crate::journal::format::Entry;
use crate::journal::{self, LeftOut, Offline, OfflineEntry, Repaired, Verdict};
use crate::protocol::{Absence, Record, Remark, Resolution};
use crate::resolver::{Lacking, Resolver};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// So many transactions are named of each kind; `dump` has all.
const NAMED: usize = 20;

/// Reads the journal and tells how it is, or repairs it.
///
/// # Errors
/// When there is none, or it cannot be read at all; of a repair, when it is sound and no older copy, or in use, and what
/// keeps a participant from telling what it knows of a sound one.
pub async fn run(config: Config, command: JournalCommand, output: &mut Output) -> Result<Exit> {
    if let Some(anchor) = config.transaction.decision.anchor() {
        let message = format!("there is no journal: transaction.decision is {anchor}, which keeps the decisions");
        return Err(Error::new(ErrorKind::Config, message));
    }
    match command {
        JournalCommand::Verify => read(&config.journal, false, output),
        JournalCommand::Dump => read(&config.journal, true, output),
        JournalCommand::Repair { reason, yes } => {
            let verdict = journal::read(&config.journal.directory)?.verdict;
            match verdict {
                Verdict::Corrupt(_) => repair(&config.journal, &reason, yes, output),
                // Nothing that is there is damaged; what is not there, only the participants know.
                Verdict::Clean | Verdict::TornTail { .. } => complete(config, &reason, yes, output).await,
            }
        }
    }
}

/// Goes on with an older copy of a journal, or says what that would come to.
async fn complete(config: Config, reason: &str, yes: bool, output: &mut Output) -> Result<Exit> {
    let directory = config.journal.directory.clone();
    // Opening it would write to it: not before there is something to do.
    let reader = Resolver::read(config.clone())?;
    let lacking = reader.lacking().await;
    reader.close().await?;
    let mut lacking = lacking?;
    if yes {
        let resolver = Resolver::open(config)?;
        let completed = resolver.complete_copy(reason).await;
        resolver.close().await?;
        lacking = completed?;
    }
    match output.format() {
        Format::Text => output.text(&lacking_text(&lacking, &directory, yes)),
        Format::Json => output.json(&lacking_object(&lacking, yes)),
    }
    Ok(Exit::Clean)
}

fn lacking_text(lacking: &Lacking, directory: &Path, done: bool) -> String {
    let mut text = format!("the journal in {} is an older copy of itself: records are missing\n", directory.display());
    lacking.signs.iter().take(NAMED).for_each(|sign| text += &format!("shown by {sign}\n"));
    if lacking.signs.len() > NAMED {
        text += &format!("and by {} more\n", lacking.signs.len() - NAMED);
    }
    for opened in &lacking.unknown {
        text += &format!("incomplete: opening {}, which it does not know\n", opened.incarnation);
    }
    for incarnation in &lacking.unsettled {
        text += &format!("incomplete: opening {incarnation}: no record of its transactions means nothing\n");
    }
    text += if done {
        "completed. Next: `handfast list` shows what is prepared and undecided,\n\
         `handfast resolve` takes a decision; docs/recovery.md says on what grounds\n"
    } else {
        "nothing was changed. Is there a younger journal? Then bring it back. If this is all there is, the same with --yes\n\
         marks these openings: what was decided and is missing here is for a person to decide again\n"
    };
    text
}

fn lacking_object(lacking: &Lacking, done: bool) -> Value {
    let unknown = lacking.unknown.iter().map(|opened| opened.incarnation.to_string());
    json!({
        "schema": 1,
        "status": Exit::Clean.as_str(),
        "older_copy": true,
        "completed": done,
        "signs": lacking.signs,
        "unknown": unknown.collect::<Vec<_>>(),
        "unsettled": lacking.unsettled.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "next": ["handfast list", "handfast resolve"],
    })
}

fn read(config: &JournalConfig, dump: bool, output: &mut Output) -> Result<Exit> {
    let found = journal::read(&config.directory)?;
    let exit = if matches!(found.verdict, Verdict::Corrupt(_)) { Exit::Corrupt } else { Exit::Clean };
    let entries = dump.then_some(&found.entries);
    let concerned = (exit == Exit::Corrupt).then(|| Concerned::of(&found));
    match output.format() {
        Format::Text => output.text(&text(&found, &config.directory, entries, concerned.as_ref())),
        Format::Json => output.json(&object(&found, exit, entries, concerned.as_ref())),
    }
    Ok(exit)
}

fn text(
    found: &Offline,
    directory: &Path,
    entries: Option<&Vec<OfflineEntry>>,
    concerned: Option<&Concerned>,
) -> String {
    let mut text = String::new();
    for entry in entries.into_iter().flatten() {
        text += &format!("{}:{:<8} {:<8} {}\n", entry.file, entry.offset, standing(entry), describe(&entry.entry));
    }
    let id = found.journal.map_or_else(|| String::from("(unknown)"), |id| id.to_string());
    let openings = count(found.image.incarnations().len() as u64, "opening");
    let commits = count(found.image.committed_count(), "commit");
    let open = count(found.image.open_decisions().len() as u64, "open decision");
    let scope = if concerned.is_some() { ", up to the damage" } else { "" };
    text += &format!("journal {id} in {}: {openings}, {commits}, {open}{scope}\n", directory.display());
    if !found.in_doubt.is_empty() {
        let records = count(found.in_doubt.len() as u64, "record");
        text += &format!("{records} beyond the last synced mark: opening the journal makes that durable\n");
    }
    text + &verdict(&found.verdict) + "\n" + &concerned.map_or_else(String::new, Concerned::text)
}

/// What the unreadable part of a corrupt journal may concern, as far as the rest can tell.
#[derive(Debug, Default)]
struct Concerned {
    /// Openings of which something may be missing, with the highest sequence that the rest knows of.
    incarnations: BTreeMap<Incarnation, u64>,
    /// Decided, and not known to be carried out: the record that says so may be the one that is missing.
    open: BTreeSet<TransactionId>,
    /// Named by records behind the damage.
    behind: BTreeSet<TransactionId>,
}

impl Concerned {
    fn of(found: &Offline) -> Self {
        let mut concerned = Self::default();
        let unsettled = found.image.unsettled().map(|opened| opened.incarnation);
        concerned.incarnations =
            unsettled.chain(found.latest_incarnation).map(|incarnation| (incarnation, 0)).collect();
        concerned.open = found.image.open_decisions().map(|decision| decision.transaction).collect();
        for entry in &found.entries {
            concerned.add(entry);
        }
        // What `init` or a repair made is no opening.
        concerned.incarnations.remove(&Incarnation(0));
        concerned
    }

    fn add(&mut self, entry: &OfflineEntry) {
        let about = transaction(&entry.entry);
        let named = match &entry.entry {
            Entry::Outcomes(chunk) => Some((chunk.incarnation, chunk.committed.max().unwrap_or(0))),
            _ => about.map(|id| (id.incarnation, id.sequence)),
        };
        if let Some((incarnation, sequence)) = named
            && (entry.salvaged || self.incarnations.contains_key(&incarnation))
        {
            let highest = self.incarnations.entry(incarnation).or_default();
            *highest = (*highest).max(sequence);
        }
        if !entry.salvaged {
            return;
        }
        self.behind.extend(about);
        match &entry.entry {
            Entry::Record(Record::Done(id)) => drop(self.open.remove(id)),
            Entry::Record(Record::Commit(decision)) => drop(self.open.insert(decision.transaction)),
            Entry::Record(Record::Incarnation(opened)) => {
                self.incarnations.entry(opened.incarnation).or_default();
            }
            _ => {}
        }
    }

    fn text(&self) -> String {
        let mut text = String::from("what cannot be read may concern\n");
        for (incarnation, highest) in &self.incarnations {
            let known = if *highest > 0 { format!("; known up to sequence {highest}") } else { String::new() };
            text += &format!("  any transaction of opening {incarnation}{known}\n");
        }
        if self.incarnations.is_empty() {
            text += "  any transaction of any opening: none can be read\n";
        }
        text += &listed("decided, not known to be done:", &self.open);
        text += &listed("named behind the damage:", &self.behind);
        text + "touch no prepared branch and delete nothing: docs/recovery.md tells how to go on\n"
    }

    fn object(&self) -> Value {
        let openings = self.incarnations.iter();
        let openings = openings.map(|(id, highest)| json!({ "incarnation": id.to_string(), "known_up_to": highest }));
        let ids = |ids: &BTreeSet<TransactionId>| ids.iter().map(ToString::to_string).collect::<Vec<_>>();
        json!({
            "openings": openings.collect::<Vec<_>>(),
            "open": ids(&self.open),
            "behind": ids(&self.behind),
            "manual": "docs/recovery.md",
        })
    }
}

fn listed(heading: &str, ids: &BTreeSet<TransactionId>) -> String {
    if ids.is_empty() {
        return String::new();
    }
    let mut text = format!("  {heading}\n");
    ids.iter().take(NAMED).for_each(|id| text += &format!("    {id}\n"));
    if ids.len() > NAMED {
        text += &format!("    and {} more: `handfast journal dump` has all\n", ids.len() - NAMED);
    }
    text
}

/// The transaction that an entry is about.
fn transaction(entry: &Entry) -> Option<TransactionId> {
    match entry {
        Entry::Record(Record::Commit(decision)) => Some(decision.transaction),
        Entry::Record(Record::Damaged(damage)) => Some(damage.transaction),
        Entry::Record(
            Record::Done(id)
            | Record::OnePhase(id)
            | Record::Witnessed(id)
            | Record::Resolved(id, ..)
            | Record::Forgotten(id, _),
        )
        | Entry::Payload(id, _) => Some(*id),
        _ => None,
    }
}

fn repair(config: &JournalConfig, reason: &str, yes: bool, output: &mut Output) -> Result<Exit> {
    let remark = journal::remark(reason)?;
    let repaired = if yes { journal::repair(config, remark) } else { journal::plan_repair(config, remark) }?;
    match output.format() {
        Format::Text => output.text(&repair_text(&repaired, &config.directory)),
        Format::Json => output.json(&repair_object(&repaired, &config.directory)),
    }
    Ok(Exit::Clean)
}

fn repair_text(repaired: &Repaired, directory: &Path) -> String {
    let done = repaired.copy.is_some();
    let mut text = format!("journal {} in {}\n", repaired.journal, directory.display());
    for damage in &repaired.damage {
        text += &format!("damaged: {damage}\n");
    }
    text += &format!("{} {}\n", if done { "kept:" } else { "can be kept:" }, count(repaired.kept as u64, "record"));
    for left in &repaired.left_out {
        text += &format!("left out: {}:{} {}: {}\n", left.file, left.offset, describe(&left.entry), left.why);
    }
    for incarnation in &repaired.incomplete {
        let guessed = if repaired.guessed.contains(incarnation) { " (its own record is lost)" } else { "" };
        text += &format!("incomplete: opening {incarnation}{guessed}: no record of its transactions means nothing\n");
    }
    match &repaired.copy {
        Some(copy) => {
            text += &format!("every file was copied as it was to {}\n", directory.join(copy).display());
            text += "repaired. Next: `handfast list` shows what is prepared and undecided,\n\
                     `handfast resolve` takes a decision; docs/recovery.md says on what grounds\n";
        }
        None => {
            text += "nothing was changed: the same with --yes copies every file, then repairs\n";
        }
    }
    text
}

fn repair_object(repaired: &Repaired, directory: &Path) -> Value {
    let left = |left: &LeftOut| json!({ "file": left.file, "offset": left.offset, "entry": describe(&left.entry), "why": left.why });
    let ids = |ids: &[Incarnation]| ids.iter().map(ToString::to_string).collect::<Vec<_>>();
    let damage = repaired.damage.iter();
    let damage = damage.map(|one| json!({ "file": one.file, "offset": one.offset, "why": one.why }));
    json!({
        "schema": 1,
        "status": Exit::Clean.as_str(),
        "journal": repaired.journal.to_string(),
        "repaired": repaired.copy.is_some(),
        "copy": repaired.copy.as_ref().map(|copy| directory.join(copy).display().to_string()),
        "damage": damage.collect::<Vec<_>>(),
        "kept": repaired.kept,
        "left_out": repaired.left_out.iter().map(left).collect::<Vec<_>>(),
        "incomplete": ids(&repaired.incomplete),
        "guessed": ids(&repaired.guessed),
        "next": ["handfast list", "handfast resolve"],
    })
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
        Record::GivenUp(incarnation, participant, remark) => {
            format!("what {incarnation} left on {participant} is given up {}", by_hand(remark))
        }
    }
}

/// Who did it, when and why.
fn by_hand(remark: &Remark) -> String {
    format!("on {} at {}: {}", remark.host, Moment(remark.at_ms), remark.reason)
}

fn object(found: &Offline, exit: Exit, entries: Option<&Vec<OfflineEntry>>, concerned: Option<&Concerned>) -> Value {
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
        "may_concern": concerned.map(Concerned::object),
        "entries": entries,
    })
}
