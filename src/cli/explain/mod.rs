//! `handfast explain`: all about one transaction, for whoever was woken for it.
//!
//! What happened: the journal's records, each with its place. How it stands: what every participant shows and proves.
//! What will be done: recovery's own plan, with the row's reason. How to do it by hand: the exact statements. Changes
//! nothing, and works beside a running application.

mod asked;
mod history;
mod text;

use super::exit::Exit;
use super::output::Output;
use super::report::{Explained, Facts, Foreign, Participant, Report, Rows, Statement, Transaction};
use super::report::{foreign_facts, gid};
use crate::Config;
use crate::error::Result;
use crate::id::{BranchId, TransactionId};
use crate::journal;
use crate::participant::{self, Sighted};
use crate::protocol::Resolution;
use crate::protocol::recovery::{Action, Sighting, TransactionPlan};
use crate::resolver::{Foreigner, Resolver, View};
use asked::Asked;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Explains a transaction, or says what is known of a branch that is not this journal's.
///
/// # Errors
/// When the journal cannot be read.
pub async fn run(config: Config, what: &str, output: &mut Output) -> Result<Exit> {
    let directory = directory(&config);
    let resolver = Resolver::read(config)?;
    let mut view = resolver.observe().await;
    let facts = Facts::of(&resolver, &view).await;
    let exit = match find(&resolver, &view, what) {
        Found::Ours(id) => {
            let one = transaction(&resolver, &mut view, &facts, directory.as_deref(), id).await?;
            let at_least = one.exit;
            let participants = shown(&view, one.exit);
            let report = Report::new(participants, Rows::of(vec![one]), Rows::none())
                .at_least(at_least)
                .in_use_by(resolver.holder());
            output.explanation(&report, text::ours);
            report.status
        }
        Found::Foreign(theirs) => {
            let foreign: Vec<_> = theirs.iter().map(|one| Foreign::of(one, &facts)).collect();
            let report = Report::new(shown(&view, Exit::InDoubt), Rows::none(), Rows::of(foreign));
            let statements = theirs.iter().flat_map(|one| foreign_statements(&resolver, one)).collect::<Vec<_>>();
            output.explanation(&report, |report, out| text::foreign(report, &statements, out));
            report.status
        }
        Found::Ambiguous(candidates) => {
            let names = candidates.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            eprintln!("handfast: {what:?} may be each of {names}: ask for one");
            Exit::Usage
        }
        Found::Nothing(id) => {
            let participants = shown(&view, Exit::InDoubt);
            let unseen: Vec<_> = participants.iter().filter(|one| one.exit != Exit::Clean).collect();
            let (beside, exit) = match unseen.first() {
                Some(one) => (format!(", and {} could not be asked", one.name), one.exit),
                None => (String::new(), Exit::Usage),
            };
            eprintln!(
                "handfast: {what:?} is unknown: neither the journal nor a participant has it{beside}; another \
                 application's configuration may, see --config"
            );
            let report = Report::unknown(id.as_ref().map_or(what, String::as_str)).at_least(exit);
            output.outcome(&report);
            report.status
        }
    };
    resolver.close().await?;
    Ok(exit)
}

/// What was found of a transaction, without what to do about it.
pub(super) fn found_text(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "found: ")?;
    text::facts(report, out)
}

/// What was found of a transaction that this journal does not know, as text.
pub(super) fn foreign_text(view: &View, facts: &Facts, id: TransactionId) -> String {
    let mut lines = String::new();
    for one in of_transaction(view, id) {
        let one = Foreign::of(one, facts);
        lines += &format!("found on {}: {}{}\n", one.participant, one.gid, foreign_facts(&one));
    }
    if lines.is_empty() { format!("found: nothing of {id}, neither in the journal nor prepared\n") } else { lines }
}

/// The participants' word matters where something is still open.
fn shown(view: &View, exit: Exit) -> Vec<Participant> {
    let quiet = |one: Participant| if exit == Exit::Clean { Participant { exit: Exit::Clean, ..one } } else { one };
    view.participants.iter().map(Participant::new).map(quiet).collect()
}

enum Found<'a> {
    Ours(TransactionId),
    Foreign(Vec<&'a Foreigner>),
    Ambiguous(Vec<BranchId>),
    Nothing(Option<String>),
}

fn find<'a>(resolver: &Resolver, view: &'a View, what: &str) -> Found<'a> {
    let id = match Asked::parse(what) {
        Asked::Transaction(id) => id,
        Asked::Joined(candidates) => {
            let is_listed = |id: &BranchId| {
                let same = |one: &participant::Sighting| one.branch == Sighted::Ours(*id);
                view.participants.iter().any(|seen| seen.sightings.iter().any(same))
            };
            let listed: Vec<_> = candidates.iter().copied().filter(is_listed).collect();
            match (listed.as_slice(), candidates.as_slice()) {
                ([one], _) | ([], [one]) => one.transaction,
                ([], _) => return Found::Ambiguous(candidates),
                _ => return Found::Ambiguous(listed),
            }
        }
        Asked::Other(text) => {
            let theirs: Vec<_> = view.foreigners().iter().filter(|one| one.gid.eq_ignore_ascii_case(&text)).collect();
            return if theirs.is_empty() { Found::Nothing(None) } else { Found::Foreign(theirs) };
        }
    };
    let knows = |image: &journal::Image| {
        image.incarnation(id.incarnation).is_some_and(|opened| opened.node == id.node && id.sequence > 0)
    };
    if resolver.image(knows) {
        return Found::Ours(id);
    }
    let theirs = of_transaction(view, id);
    if theirs.is_empty() { Found::Nothing(Some(id.to_string())) } else { Found::Foreign(theirs) }
}

/// The foreign branches of a transaction.
fn of_transaction(view: &View, id: TransactionId) -> Vec<&Foreigner> {
    let of_it = |one: &&Foreigner| one.gid.parse::<BranchId>().is_ok_and(|branch| branch.transaction == id);
    view.foreigners().iter().filter(of_it).collect()
}

/// The journal's directory, where there is one.
pub(super) fn directory(config: &Config) -> Option<PathBuf> {
    config.transaction.decision.anchor().is_none().then(|| config.journal.directory.clone())
}

/// A transaction of this journal with all that is known of it.
pub(super) async fn transaction(
    resolver: &Resolver,
    view: &mut View,
    facts: &Facts,
    directory: Option<&Path>,
    id: TransactionId,
) -> Result<Transaction> {
    let host = registered_host(resolver, id).await;
    let plan = resolver.look_into(view, id).await;
    let (mut journal, audit) = match directory {
        Some(directory) => history::of(&journal::read(directory)?, id),
        None => (resolver.image(|image| history::on_anchor(image, id)), Vec::new()),
    };
    journal.host = host;
    let Some(plan) = plan else {
        // Known to the journal, and nothing else says a word of it.
        let next = "now: `handfast outcome` tells how it ended".to_owned();
        let explained = Explained { journal, audit, statements: Vec::new(), next };
        return Ok(Transaction { explained: Some(explained), ..Transaction::silent(id) });
    };
    let statements = statements(resolver, &plan);
    let next = text::next(&plan, resolver.holder().is_some());
    let explained = Explained { journal, audit, statements, next };
    Ok(Transaction { explained: Some(explained), ..Transaction::planned(&plan, facts) })
}

/// The machine of a transaction's opening, as the first participant that knows it says.
async fn registered_host(resolver: &Resolver, id: TransactionId) -> Option<String> {
    for participant in resolver.participants() {
        let rows = participant.registry().await.unwrap_or_default();
        if let Some(row) = rows.into_iter().find(|row| row.incarnation == id.incarnation && row.node == id.node) {
            return Some(row.host);
        }
    }
    None
}

/// What recovery would send, as a person types it; both ways where a person has to decide.
fn statements(resolver: &Resolver, plan: &TransactionPlan) -> Vec<Statement> {
    let mut all = Vec::new();
    for branch in plan.branches.iter().filter(|branch| branch.sighting == Sighting::Listed) {
        let ways: &[Resolution] = match branch.action {
            Action::Commit => &[Resolution::Commit],
            Action::RollBack => &[Resolution::RollBack],
            Action::Resolve | Action::Damage => &[Resolution::Commit, Resolution::RollBack],
            _ => &[],
        };
        let participant = resolver.participants().iter().find(|one| one.name() == branch.participant);
        all.extend(participant.iter().flat_map(|one| by_hand(one, &branch.id, ways)));
    }
    all
}

fn by_hand(participant: &Arc<dyn participant::Participant>, id: &BranchId, ways: &[Resolution]) -> Vec<Statement> {
    let one = |way: &Resolution| {
        Some(Statement {
            participant: participant.name().to_string(),
            gid: gid(&Sighted::Ours(*id)),
            resolution: match way {
                Resolution::Commit => "commit",
                Resolution::RollBack => "roll_back",
            },
            statement: participant.statement(id, *way)?,
        })
    };
    ways.iter().filter_map(one).collect()
}

/// How the owner of a foreign branch ends it.
fn foreign_statements(resolver: &Resolver, one: &Foreigner) -> Vec<Statement> {
    let Some(participant) = resolver.participants().iter().find(|other| other.name() == one.participant) else {
        return Vec::new();
    };
    if let Ok(id) = one.gid.parse() {
        return by_hand(participant, &id, &[Resolution::Commit, Resolution::RollBack]);
    }
    let statement = |resolution, words: &str, name: String| Statement {
        participant: one.participant.to_string(),
        gid: one.gid.clone(),
        resolution,
        statement: format!("{words} {name};"),
    };
    match participant.kind() {
        "postgres" => {
            let name = format!("'{}'", one.gid.replace('\'', "''"));
            vec![
                statement("commit", "COMMIT PREPARED", name.clone()),
                statement("roll_back", "ROLLBACK PREPARED", name),
            ]
        }
        _ if asked::is_foreign_xid(&one.gid) => vec![
            statement("commit", "XA COMMIT", one.gid.clone()),
            statement("roll_back", "XA ROLLBACK", one.gid.clone()),
        ],
        _ => Vec::new(),
    }
}
