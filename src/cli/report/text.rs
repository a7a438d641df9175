//! The report as text: 80 columns, identifiers on lines of their own so that they can be copied whole.
//!
//! Whoever reads it was woken for it. The first line says how things stand, the last what to do; in between is what
//! was seen, what was or will be done about it, and why.

use super::words::{decision, proof, what};
use super::{Branch, EarlierOpening, Foreign, Kind, Opening, Participant, Proof, Report, Tally, Transaction};
use crate::cli::exit::Exit;
use crate::protocol::recovery::{Action, Evidence, Sighting};
use comfy_table::{ContentArrangement, Table, presets};
use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};

pub use super::words::for_people;

const WIDTH: u16 = 80;
/// So many openings are enough to see what is in the way.
const SHOWN: usize = 10;
/// So many transactions, and so many foreign branches, are enough to see what is the matter.
const ROWS: usize = 50;
/// So many are enough to see that somebody waits.
const WAITING: usize = 3;

/// How text looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Style {
    /// Whether the status and what is damaged are coloured.
    pub colour: bool,
}

impl Style {
    /// Colours on a terminal, unless `NO_COLOR` is set (<https://no-color.org>).
    pub fn of_stdout() -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { colour: io::stdout().is_terminal() && !unwanted }
    }

    /// The status, in its colour.
    pub fn status(self, exit: Exit) -> String {
        let word = exit.as_str();
        let colour = match exit {
            Exit::Clean => "32",
            Exit::InDoubt | Exit::Unreachable => "33",
            Exit::Usage | Exit::Damaged | Exit::Refused | Exit::Corrupt => "1;31",
        };
        if self.colour { format!("\x1b[{colour}m{word}\x1b[0m") } else { word.to_owned() }
    }

    /// A line of text, with what is damaged in its colour.
    pub fn line(self, line: &str) -> String {
        if self.colour { line.replace("DAMAGED", "\x1b[1;31mDAMAGED\x1b[0m") } else { line.to_owned() }
    }
}

pub(super) fn write(report: &Report<'_>, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let word = report.status.as_str();
    let mut first = Vec::new();
    paragraph(&format!("{word}: {}", headline(report)), &mut first)?;
    write!(out, "{}", style.status(report.status))?;
    out.write_all(&first[word.len()..])?;
    if let Some(holder) = &report.in_use_by {
        paragraph(&format!("the journal is in use by {holder},"), out)?;
        paragraph("which settles its own transactions", out)?;
    }
    if !report.participants.is_empty() {
        writeln!(out)?;
        participants(&report.participants, out)?;
    }
    transactions(report, style, out)?;
    let Tally { foreign: all, orphans, .. } = report.tally;
    if orphans > 0 {
        writeln!(out, "\norphans: of this node, but of another journal: lost?")?;
        foreign(report, true, orphans, out)?;
    }
    if all > orphans {
        writeln!(out, "\nforeign: prepared by others, never touched")?;
        foreign(report, false, all - orphans, out)?;
    }
    if report.unsettled.iter().any(|one| one.exit != Exit::Clean) {
        writeln!(out, "\nearlier openings of the journal that may still have left something:")?;
        unsettled(&report.unsettled, out)?;
    }
    let unasked = report.unsettled.iter().filter(|one| one.exit == Exit::Clean).count();
    if unasked > 0 {
        let text = format!("earlier openings that the next opening, or `handfast recover`, asks about: {unasked}");
        writeln!(out)?;
        paragraph(&text, out)?;
    }
    let last = if report.kind == Kind::Recovery { Some(summary(&report.tally)) } else { None };
    for line in last.into_iter().chain(older(report)).chain(next(report)) {
        writeln!(out)?;
        paragraph(&line, out)?;
    }
    Ok(())
}

fn headline(report: &Report<'_>) -> &'static str {
    match report.status {
        Exit::Clean if report.kind == Kind::Drain => "nothing is prepared on any participant",
        Exit::InDoubt if report.kind == Kind::Drain => "something is still prepared",
        Exit::Clean => "nothing is left to be done",
        Exit::Usage => "something is to be corrected first",
        Exit::InDoubt if report.tally.in_doubt > 0 => "something is prepared or decided, and not finished",
        Exit::InDoubt if report.tally.orphans > 0 => {
            "branches of this node are prepared that this journal does not know"
        }
        Exit::InDoubt if report.older.is_some_and(|older| older.branches > 0) => {
            "something has been prepared for too long"
        }
        Exit::InDoubt if report.unsettled.iter().any(|one| one.exit == Exit::InDoubt) => {
            "an earlier opening may still have left something"
        }
        Exit::InDoubt => "something is prepared or decided, and not finished",
        Exit::Unreachable => "a participant could not be asked: what it holds is not known",
        Exit::Damaged if report.tally.damaged == 0 && report.tally.to_resolve > 0 => {
            "the journal's records were lost: a person has to decide"
        }
        Exit::Damaged => "the facts contradict each other: a person is needed",
        Exit::Refused => "refused, in order not to do harm",
        Exit::Corrupt => "the journal is corrupt: no branch was touched",
    }
}

/// What a recovery came to, in a line.
fn summary(tally: &Tally) -> String {
    let Tally { committed, rolled_back, in_doubt, damaged, to_resolve, foreign, .. } = tally;
    let to_resolve = if *to_resolve > 0 { format!("{to_resolve} for a person to decide, ") } else { String::new() };
    format!(
        "recovered: {committed} committed, {rolled_back} rolled back; \
         left: {in_doubt} waiting, {damaged} damaged, {to_resolve}{foreign} foreign"
    )
}

fn older(report: &Report<'_>) -> Option<String> {
    let older = report.older?;
    let than = for_people(older.than_seconds);
    let few = format!("prepared for longer than {than}: {}", older.branches);
    Some(if older.branches == 0 { format!("nothing has been prepared for longer than {than}") } else { few })
}

/// What to do now, one line for each thing.
fn next(report: &Report<'_>) -> Vec<String> {
    if report.kind == Kind::Drain {
        return after_drain(report);
    }
    let mut next = Vec::new();
    if let Some(error) = &report.error {
        next.push(format!("refused: {error}"));
    }
    if report.tally.orphans > 0 {
        next.push(
            "next: bring back the journal that knows the orphans, or let a person decide about each: `handfast explain \
             ID` says by what, `handfast resolve ID` does it"
                .to_owned(),
        );
    }
    if report.tally.to_resolve > 0 {
        next.push(
            "next: a person has to decide where the journal's records were lost: `handfast explain ID` says by what, \
             `handfast resolve ID` does it"
                .to_owned(),
        );
    }
    if report.tally.damaged > 0 {
        next.push(
            "next: a person has to compare the rows of the damaged transaction's branches and correct one side by \
             hand, then `handfast forget ID`; Handfast touches nothing of it, and reports it every time until then"
                .to_owned(),
        );
    }
    for one in report.participants.iter().filter(|one| one.exit != Exit::Clean) {
        let again = if report.kind == Kind::Recovery { " again" } else { "" };
        next.push(format!("next: mend what {} reports above, then run `handfast recover`{again}", one.name));
    }
    if next.is_empty() && report.unsettled.iter().any(|one| one.exit == Exit::Unreachable) {
        next.push("next: mend what the earlier openings above wait for, then run `handfast recover` again".to_owned());
    }
    if report.error.is_none()
        && next.is_empty()
        && (report.tally.in_doubt > 0 || report.unsettled.iter().any(|one| one.exit == Exit::InDoubt))
    {
        next.push(settle(report).to_owned());
    }
    next
}

fn after_drain(report: &Report<'_>) -> Vec<String> {
    let next = match report.status {
        Exit::Clean => {
            "next: take the backup now; only a stopped application, or a pause in its traffic, makes this moment last, \
             and of others' prepared work as well"
        }
        Exit::InDoubt => {
            "next: stop the application or its traffic, settle what `handfast list` shows, and ask again; what is \
             foreign is its owner's to end"
        }
        _ => "next: mend what the participants report above, and ask again",
    };
    vec![next.to_owned()]
}

fn settle(report: &Report<'_>) -> &'static str {
    match (report.kind == Kind::Recovery, &report.in_use_by) {
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

/// The first of them, what is damaged before all others, and how many there are besides.
fn transactions(report: &Report<'_>, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let damaged = report.transactions.iter().filter(|one| one.exit == Exit::Damaged).take(ROWS);
    let others = report.transactions.iter().filter(|one| one.exit != Exit::Damaged);
    for one in damaged.chain(others).take(ROWS) {
        writeln!(out)?;
        transaction(&one, style, out)?;
    }
    let Tally { transactions: all, in_doubt, damaged, .. } = report.tally;
    if all > ROWS {
        let text = format!(
            "the first {ROWS} of {all} transactions are shown; of all, {in_doubt} wait and {damaged} are damaged; \
             --format json shows each"
        );
        writeln!(out)?;
        paragraph(&text, out)?;
    }
    Ok(())
}

fn transaction(one: &Transaction, style: Style, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "transaction {}", one.id)?;
    let state = match one.action {
        Action::Ask => "not finished",
        action => what(action, one.done, one.outcome),
    };
    writeln!(out, "{}: {}", decision(one.decision), style.line(state))?;
    let mut table = table();
    for branch in &one.branches {
        table.add_row([clean(&branch.participant), branch_facts(branch)]);
    }
    table.lines().try_for_each(|line| writeln!(out, "{}", style.line(line.trim_end())))
}

/// What is known of a branch, a line each.
pub fn branch_facts(branch: &Branch) -> String {
    let Branch { gid, why, .. } = branch;
    let age = age(branch.age_seconds, branch.age_at_most_seconds);
    let state = match (branch.state, branch.done) {
        (Sighting::Listed, true) => format!("was prepared{age}"),
        (Sighting::Listed, false) => format!("prepared{age}"),
        (Sighting::NotListed, _) => "not prepared".to_owned(),
        (Sighting::NotScanned, _) => "not seen".to_owned(),
        (Sighting::OtherData, _) => "its data is elsewhere".to_owned(),
        (Sighting::GivenUp, _) => "its server was given up".to_owned(),
    };
    let proven = branch.action == Action::Nothing && branch.evidence.is_commit() && branch.state == Sighting::NotListed;
    if branch.action == Action::Finish || proven {
        return format!("{gid}\ncommitted, as its witness proves");
    }
    // While a branch is prepared its witness cannot be seen: that there is none says nothing.
    let idle = branch.done || (branch.state == Sighting::Listed && branch.evidence == Evidence::Nothing);
    let proof = if idle { "" } else { proof(branch.evidence) };
    let waiting = waiting(branch.waiting.as_deref());
    clean(&format!("{gid}\n{state}{proof}: {}\n{why}{waiting}", what(branch.action, branch.done, None)))
}

fn age(seconds: Option<u64>, at_most: Option<u64>) -> String {
    match (seconds, at_most) {
        (Some(seconds), _) => format!(" for {}", for_people(seconds)),
        (None, Some(at_most)) => format!(" for {} at most", for_people(at_most)),
        (None, None) => String::new(),
    }
}

/// Who waits for a branch, a line each.
fn waiting(who: Option<&[String]>) -> String {
    let who = who.unwrap_or_default();
    let mut lines: String = who.iter().take(WAITING).map(|one| format!("\nwaits for it: {one}")).collect();
    if who.len() > WAITING {
        lines += &format!("\nand {} more wait for it", who.len() - WAITING);
    }
    lines
}

fn foreign(report: &Report<'_>, orphans: bool, count: usize, out: &mut dyn Write) -> io::Result<()> {
    let mut table = table();
    for one in report.foreign.iter().filter(|one| one.orphan == orphans).take(ROWS) {
        table.add_row([clean(&one.participant), format!("{}{}", clean(&one.gid), foreign_facts(&one))]);
    }
    print(&table, out)?;
    if count > ROWS {
        writeln!(out, " and {} more", count - ROWS)?;
    }
    Ok(())
}

/// What is known of a branch that is not this journal's, a line each.
pub fn foreign_facts(one: &Foreign) -> String {
    let mut lines = String::new();
    if let Some(Opening { node, journal, host, opened_seconds_ago, .. }) = &one.registered {
        let ago = for_people(*opened_seconds_ago);
        let node = if one.orphan { String::new() } else { format!("node {node}, ") };
        lines += &format!("\n{node}journal {journal} on {host}, opened {ago} ago");
    }
    if let Some(seconds) = one.age_seconds {
        lines += &format!("\nprepared for {}", for_people(seconds));
    }
    for Proof { participant, evidence } in &one.evidence {
        let what = match evidence {
            Evidence::Committed | Evidence::CommittedAlone => "its witness proves that the transaction committed",
            Evidence::Never => "its fence says that the transaction never committed there",
            Evidence::Blocked => "another session holds the answer",
            Evidence::Off => "keeps no proof",
            Evidence::NotAsked | Evidence::Wanted | Evidence::Nothing => "no proof of a commit",
        };
        lines += &format!("\n{participant}: {what}");
    }
    clean(&(lines + &waiting(one.waiting.as_deref())))
}

/// What is in the way, and of which openings.
fn unsettled(all: &[EarlierOpening], out: &mut dyn Write) -> io::Result<()> {
    let mut openings: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let hindered = all.iter().filter(|one| one.exit != Exit::Clean);
    hindered.for_each(|one| openings.entry(&one.why).or_default().push(&one.incarnation));
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

/// A table that fits.
pub fn table() -> Table {
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
pub fn paragraph(text: &str, out: &mut dyn Write) -> io::Result<()> {
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
