//! The report as text: 80 columns, no colours, identifiers on lines of their own so that they can be copied whole.
//!
//! Whoever reads it was woken for it. The first line says how things stand, the last what to do; in between is what
//! was seen, what was or will be done about it, and why.

use super::{Branch, EarlierOpening, Foreign, Participant, Report, Transaction};
use crate::cli::exit::Exit;
use crate::protocol::Outcome;
use crate::protocol::recovery::{Action, Evidence, History, Sighting};
use comfy_table::{ContentArrangement, Table, presets};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

const WIDTH: u16 = 80;
/// So many openings are enough to see what is in the way.
const SHOWN: usize = 10;

pub(super) fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    paragraph(&format!("{}: {}", report.status.as_str(), headline(report)), out)?;
    if let Some(holder) = &report.in_use_by {
        paragraph(&format!("the journal is in use by {holder},"), out)?;
        paragraph("which settles its own transactions", out)?;
    }
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
        writeln!(out, "\nearlier openings of the journal that may still have left something:")?;
        unsettled(&report.unsettled, out)?;
    }
    let last = if report.recovery { Some(summary(report)) } else { None };
    for line in last.into_iter().chain(next(report)) {
        writeln!(out)?;
        paragraph(&line, out)?;
    }
    Ok(())
}

fn headline(report: &Report) -> &'static str {
    match report.status {
        Exit::Clean => "nothing is left to be done",
        Exit::Usage => "something is to be corrected first",
        Exit::InDoubt if report.transactions.iter().all(|one| one.exit == Exit::Clean) => {
            "an earlier opening may still have left something"
        }
        Exit::InDoubt => "something is prepared or decided, and not finished",
        Exit::Unreachable => "a participant could not be asked: what it holds is not known",
        Exit::Damaged => "the facts contradict each other: a person is needed",
        Exit::Refused => "refused, in order not to do harm",
        Exit::Corrupt => "the journal is corrupt: no branch was touched",
    }
}

/// What a recovery came to, in a line.
fn summary(report: &Report) -> String {
    let count = |is: &dyn Fn(&Transaction) -> bool| report.transactions.iter().filter(|one| is(one)).count();
    let done = |outcome| count(&|one: &Transaction| one.exit == Exit::Clean && one.outcome == Some(outcome));
    let left = |exit| count(&|one: &Transaction| one.exit == exit);
    let (committed, rolled_back) = (done(Outcome::Committed), done(Outcome::RolledBack));
    let (waiting, damaged, foreign) = (left(Exit::InDoubt), left(Exit::Damaged), report.foreign.len());
    format!(
        "recovered: {committed} committed, {rolled_back} rolled back; \
         left: {waiting} waiting, {damaged} damaged, {foreign} foreign"
    )
}

/// What to do now, one line for each thing.
fn next(report: &Report) -> Vec<String> {
    let mut next = Vec::new();
    let any = |exit| report.transactions.iter().any(|one| one.exit == exit);
    if any(Exit::Damaged) {
        next.push(
            "next: a person has to compare the rows of the damaged transaction's branches and correct one side by \
             hand; Handfast touches nothing of it, and reports it every time"
                .to_owned(),
        );
    }
    for one in report.participants.iter().filter(|one| one.exit != Exit::Clean) {
        let again = if report.recovery { " again" } else { "" };
        next.push(format!("next: mend what {} reports above, then run `handfast recover`{again}", one.name));
    }
    if next.is_empty() && report.unsettled.iter().any(|one| one.exit == Exit::Unreachable) {
        next.push("next: mend what the earlier openings above wait for, then run `handfast recover` again".to_owned());
    }
    if next.is_empty() && (any(Exit::InDoubt) || report.unsettled.iter().any(|one| one.exit == Exit::InDoubt)) {
        next.push(settle(report).to_owned());
    }
    next
}

fn settle(report: &Report) -> &'static str {
    match (report.recovery, &report.in_use_by) {
        (true, _) => "next: run `handfast recover` again in a moment",
        (false, Some(_)) => "next: nothing, if it is gone in a moment: the process that has the journal is at it",
        (false, None) => "next: run `handfast recover`, or start the application, which does the same",
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
            server.push_str(cause.trim_start_matches(&format!("{}: ", one.name)));
        }
        table.add_row([clean(&one.name), clean(&one.kind), prepared, clean(&server)]);
    }
    print(&table, out)
}

fn transaction(one: &Transaction, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "transaction {}", one.id)?;
    let state = match one.action {
        Action::Ask => "not finished",
        action => what(action, one.done, one.outcome),
    };
    writeln!(out, "{}: {state}", decision(one.decision))?;
    let mut table = table();
    for branch in &one.branches {
        table.add_row([clean(&branch.participant), clean(&facts(branch))]);
    }
    print(&table, out)
}

fn decision(history: History) -> &'static str {
    match history {
        History::Foreign => "not this journal's",
        History::Live => "at work",
        History::Unsure => "decision not known to be durable",
        History::Undecided => "no decision to commit",
        History::Stale => "decided, but not in this journal",
        History::Decided | History::Unnamed | History::Finished => "decided to commit",
        History::OnePhase => "committed by its only writer",
        History::Incomplete => "whether it was decided is lost",
        History::Contradicted => "no decision, and its branches contradict that",
        History::ResolvedCommit => "a person decided to commit",
        History::ResolvedRollBack => "a person decided to roll back",
        History::Forgotten => "damaged, and dealt with by a person",
    }
}

/// What is to be done, or was.
fn what(action: Action, done: bool, outcome: Option<Outcome>) -> &'static str {
    match (action, done) {
        (Action::Commit, true) | (Action::Finish, _) => "committed",
        (Action::Commit, false) => "to be committed",
        (Action::RollBack, true) => "rolled back",
        (Action::RollBack, false) => "to be rolled back",
        (Action::FinishUnproven, _) => "committed, as far as can be told",
        (Action::Ask, _) => "to be asked whether it committed",
        (Action::Wait, _) => "has to wait",
        (Action::Resolve, _) => "a person has to decide",
        (Action::Damage, _) => "DAMAGED",
        (Action::Leave, _) => "left alone",
        (Action::Nothing, _) => match outcome {
            Some(Outcome::Committed) => "committed",
            Some(Outcome::RolledBack) => "rolled back",
            _ => "nothing to be done",
        },
    }
}

fn facts(branch: &Branch) -> String {
    let Branch { gid, why, .. } = branch;
    let age = branch.age_seconds.map(|seconds| format!(" for {}", for_people(seconds))).unwrap_or_default();
    let state = match (branch.state, branch.done) {
        (Sighting::Listed, true) => format!("was prepared{age}"),
        (Sighting::Listed, false) => format!("prepared{age}"),
        (Sighting::NotListed, _) => "not prepared".to_owned(),
        (Sighting::NotScanned, _) => "not seen".to_owned(),
        (Sighting::OtherData, _) => "its data is elsewhere".to_owned(),
        (Sighting::GivenUp, _) => "its server was given up".to_owned(),
    };
    if branch.action == Action::Finish {
        return format!("{gid}\ncommitted, as its witness proves");
    }
    let proof = if branch.done { "" } else { proof(branch.evidence) };
    format!("{gid}\n{state}{proof}: {}\n{why}", what(branch.action, branch.done, None))
}

fn proof(evidence: Evidence) -> &'static str {
    match evidence {
        Evidence::NotAsked | Evidence::Wanted => "",
        Evidence::Committed => ", proven to have committed",
        Evidence::CommittedAlone => ", proven to have committed alone",
        Evidence::Never => ", proven never to have committed",
        Evidence::Nothing => ", no proof of a commit",
        Evidence::Blocked => ", another session holds it",
        Evidence::Off => ", keeps no proof",
    }
}

fn foreign(all: &[Foreign], out: &mut dyn Write) -> io::Result<()> {
    let mut table = table();
    for one in all {
        let age = one.age_seconds.map(|seconds| format!("\nprepared for {}", for_people(seconds))).unwrap_or_default();
        table.add_row([clean(&one.participant), clean(&format!("{}{age}", one.gid))]);
    }
    print(&table, out)
}

/// What is in the way, and of which openings.
fn unsettled(all: &[EarlierOpening], out: &mut dyn Write) -> io::Result<()> {
    let mut openings: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    all.iter().for_each(|one| openings.entry(&one.why).or_default().push(&one.incarnation));
    for (why, incarnations) in openings {
        paragraph(&clean(why), out)?;
        for incarnation in incarnations.iter().take(SHOWN) {
            writeln!(out, " {incarnation}")?;
        }
        if incarnations.len() > SHOWN {
            writeln!(out, " and {} more", incarnations.len() - SHOWN)?;
        }
    }
    Ok(())
}

/// A duration in its largest unit that is not zero: enough to tell a moment from a night.
pub fn for_people(seconds: u64) -> String {
    let age = Duration::from_secs(seconds);
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", age.as_secs() / 60),
        7_200..=172_799 => format!("{} h", age.as_secs() / 3_600),
        _ => format!("{} days", age.as_secs() / 86_400),
    }
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

/// A sentence, broken between words.
fn paragraph(text: &str, out: &mut dyn Write) -> io::Result<()> {
    let mut column = 0;
    for word in clean(text).split_whitespace() {
        let width = word.chars().count();
        let gap = match column {
            0 => "",
            _ if column + 1 + width > usize::from(WIDTH) => "\n",
            _ => " ",
        };
        column = if gap == " " { column + 1 + width } else { width };
        write!(out, "{gap}{word}")?;
    }
    writeln!(out)
}

/// What a server calls its branches, and what it says in an error, is not ours: it may not steer a terminal.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_for_people() {
        let ages = [0, 119, 120, 7_199, 7_200, 172_800].map(for_people);
        assert_eq!(ages, ["0 s", "119 s", "2 min", "119 min", "2 h", "2 days"]);
    }
}
