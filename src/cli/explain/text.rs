//! An explanation as text: under 25 lines of 80 columns for what is usual, statements on lines of their own.

use crate::cli::exit::Exit;
use crate::cli::report::{Audit, Chronicle, Explained, Moment, Report, Statement, Style, Transaction};
use crate::cli::report::{branch_facts, foreign_facts, paragraph, table};
use crate::protocol::Outcome;
use crate::protocol::recovery::{Action, History, Sighting, TransactionPlan};
use std::io::{self, Write};

/// A transaction of this journal.
pub fn ours(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    facts(report, out)?;
    let one = report.transactions.iter().next();
    let Some(explained) = one.and_then(|one| one.explained) else { return Ok(()) };
    by_hand("if recovery cannot be run", &explained.statements, out)?;
    writeln!(out)?;
    paragraph(&explained.next, out)
}

/// What is known of it.
pub fn facts(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let style = Style::of_stdout();
    let Some(one) = report.transactions.iter().next() else { return Ok(()) };
    writeln!(out, "{}: {}", style.status(report.status), headline(&one))?;
    writeln!(out, "transaction {}", one.id)?;
    if let Some(holder) = &report.in_use_by {
        paragraph(&format!("the journal is in use by {holder}"), out)?;
    }
    writeln!(out)?;
    let mut facts = table();
    if let Some(explained) = &one.explained {
        facts.add_row(["journal".to_owned(), journal(&one, explained).join("\n")]);
    }
    for branch in &one.branches {
        facts.add_row([branch.participant.clone(), branch_facts(branch)]);
    }
    facts.lines().try_for_each(|line| writeln!(out, "{}", style.line(line.trim_end())))
}

/// Branches that are not this journal's.
pub fn foreign(report: &Report<'_>, statements: &[Statement], out: &mut dyn Write) -> io::Result<()> {
    let orphan = report.foreign.iter().any(|one| one.orphan);
    let what = if orphan {
        "of this node, but of another journal: lost?"
    } else {
        "prepared by others: not this journal's, never touched"
    };
    writeln!(out, "{}: {what}\n", Style::of_stdout().status(report.status))?;
    let mut facts = table();
    for one in report.foreign.iter() {
        facts.add_row([one.participant.clone(), format!("{}{}", one.gid, foreign_facts(&one))]);
    }
    facts.lines().try_for_each(|line| writeln!(out, "{}", line.trim_end()))?;
    by_hand(if orphan { "if nothing else helps" } else { "by its owner" }, statements, out)?;
    writeln!(out)?;
    let next = if orphan {
        "now: bring back the journal that knows it; if it is lost for good, compare what the participants prove, then \
         `handfast resolve ID --commit|--rollback --reason TEXT`"
    } else {
        "now: nothing here: ask its owner, whose tool knows whether it is to be committed"
    };
    paragraph(next, out)
}

fn headline(one: &Transaction) -> &'static str {
    match (one.outcome, one.action) {
        (_, Action::Leave) if one.decision == History::Live => "a running application is at work on it",
        _ if one.decision == History::Forgotten && one.exit == Exit::Clean => {
            "it was damaged, and a person has dealt with it"
        }
        (_, Action::Resolve) if one.decision == History::Forgotten => {
            "it was damaged, a person has dealt with it, and a branch is prepared again"
        }
        (_, Action::Resolve) => "whether it was decided is lost: a person has to decide",
        (Some(Outcome::Damaged), _) => "the facts contradict each other: a person is needed",
        (Some(Outcome::Committed), _) if one.exit == Exit::Clean => "it committed",
        (Some(Outcome::RolledBack), _) if one.exit == Exit::Clean => "it was rolled back",
        (Some(Outcome::Committed), _) => "it commits, and that is not done everywhere yet",
        (Some(Outcome::RolledBack), _) => "it is rolled back, and that is not done everywhere yet",
        (Some(Outcome::InDoubt), _) => "how it ended is not known yet",
        (None, _) => "nothing is known of it",
    }
}

/// What the journal says, a line each.
fn journal(one: &Transaction, explained: &Explained) -> Vec<String> {
    let Chronicle { opened, host, settled, records } = &explained.journal;
    let mut lines = Vec::new();
    if let Some(opened) = opened {
        let host = host.as_deref().map(|host| format!(" on {host}")).unwrap_or_default();
        let settled = if *settled { ", settled since" } else { "" };
        lines.push(format!("begun by the opening of {opened}{host}{settled}"));
    }
    for told in records.iter().filter(|told| !told.what.starts_with("its opening")) {
        let durable = if told.durable { "" } else { ", not known to be durable" };
        lines.push(format!("{} ({}){durable}", told.what, told.place));
    }
    let absent = match one.decision {
        History::Undecided => Some("no decision to commit"),
        History::Incomplete => Some("no decision to commit, but records may have been lost"),
        History::Stale => Some("no decision to commit, though there was one: an older copy"),
        History::Decided | History::Unnamed => Some("not done: not every branch is known to be committed"),
        _ => None,
    };
    lines.extend(absent.map(str::to_owned));
    lines.extend(explained.audit.iter().map(audit));
    lines
}

fn audit(one: &Audit) -> String {
    let Audit { place, what, at, host, why } = one;
    let what = match *what {
        "damaged" => "found to be damaged",
        "resolved_commit" => "a person decided to commit it",
        "resolved_roll_back" => "a person decided to roll it back",
        "forgotten" => "a person has dealt with it",
        "incomplete" => "records may have been lost",
        _ => "given up",
    };
    let at = at.map(|at: Moment| format!(" at {at}")).unwrap_or_default();
    let host = host.as_deref().map(|host| format!(" on {host}")).unwrap_or_default();
    format!("{what}{at}{host} ({place}): {why}")
}

/// The statements, each whole on a line of its own: they are to be copied.
fn by_hand(when: &str, statements: &[Statement], out: &mut dyn Write) -> io::Result<()> {
    let mut at = "";
    for one in statements {
        if one.participant != at {
            writeln!(out, "\nby hand on {}, {when}:", one.participant)?;
            at = &one.participant;
        }
        writeln!(out, "{}", one.statement)?;
    }
    Ok(())
}

/// What to do now, in a line.
pub fn next(plan: &TransactionPlan, in_use: bool) -> String {
    let id = plan.id;
    let unseen = plan.branches.iter().find(|one| matches!(one.sighting, Sighting::NotScanned | Sighting::OtherData));
    match (plan.action, unseen) {
        (Action::Leave, _) if plan.history == History::Live => {
            "now: nothing: the process that has the journal is at work on it".to_owned()
        }
        _ if plan.history == History::Stale => {
            "now: this journal is an older copy: bring back the one that was used last".to_owned()
        }
        (Action::Damage, _) => format!(
            "now: compare the rows of its branches and correct one side by hand, then `handfast forget {id} --reason \
             TEXT --yes`"
        ),
        // Its record is closed: there is nothing to resolve any more, but a branch to be ended.
        (Action::Resolve, _) if plan.history == History::Forgotten => {
            "now: end what is prepared the way that was taken when it was dealt with, by a statement above".to_owned()
        }
        (Action::Resolve, _) => format!(
            "now: decide by what the branches show, then `handfast resolve {id} --commit|--rollback --reason TEXT`"
        ),
        (Action::Wait, Some(unseen)) => {
            format!("now: mend what {} reports above, then run `handfast recover`", unseen.participant)
        }
        (Action::Nothing | Action::Finish | Action::FinishUnproven | Action::Leave, _)
            if plan.outcome != Outcome::InDoubt && plan.history != History::Decided =>
        {
            "now: nothing is left to be done".to_owned()
        }
        _ if in_use => "now: nothing, if it is gone in a moment: the process that has the journal is at it".to_owned(),
        _ => "now: run `handfast recover`, or start the application, which does the same".to_owned(),
    }
}
