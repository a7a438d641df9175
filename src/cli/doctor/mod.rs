//! `handfast doctor`: every prerequisite of this machine and of every participant, with what mends it.
//!
//! ```json
//! {
//!   "schema": 1,
//!   "status": "refused",
//!   "participants": [{"name": "ledger", "kind": "postgres", "reachable": true, "server": "..", "cause": null}],
//!   "findings": [{"participant": "ledger", "check": "fsync", "severity": "failure", "found": "fsync is off",
//!     "why": "a crash of the server can lose what it has answered", "cure": "ALTER SYSTEM SET fsync = on; .."}]
//! }
//! ```
//!
//! `participant` is `null` for what concerns this machine; `severity` is one of `good`, `note`, `warning`, `failure`. Only
//! failures count for the exit code: 2 for what has to be set up, 4 for a participant that cannot be reached, 6 for a
//! wrong server, 7 for a corrupt journal.
//!
//! It changes nothing but for the one branch that each participant prepares and rolls back, and works beside a running
//! application.

mod known;
mod machine;
mod text;

use super::args::Format;
use super::exit::Exit;
use super::output::Output;
use super::report::for_people;
use crate::Config;
use crate::error::Result;
use crate::id::{Lineage, ParticipantName};
use crate::participant::{self, Finding, Participant, Severity};
use futures_util::future::join_all;
use known::Known;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// A participant and what was found out about it.
struct Patient {
    name: ParticipantName,
    kind: &'static str,
    server: Option<String>,
    lineage: Option<Lineage>,
    /// Why it could not be checked, or not to its end.
    cause: Option<String>,
    findings: Vec<Finding>,
    exit: Exit,
}

/// Looks at everything and reports.
///
/// # Errors
/// When the configuration makes no participants.
pub async fn run(config: &Config, all: bool, output: &mut Output) -> Result<Exit> {
    let participants = participant::from_config(config)?;
    let machine = machine::look(config);
    let known = match Known::of_anchor(config).await {
        Some(known) => Some(known),
        None => machine.journal,
    };
    // Each call is bounded by itself; together they are, too, however many there are.
    let patience = (config.recovery.statement_timeout + config.pool.connect_timeout) * 4;
    let mut patients = join_all(participants.iter().map(|one| examine(one, config, known.as_ref(), patience))).await;
    join_all(participants.iter().map(|one| one.close())).await;
    compare(&mut patients);
    let exit = patients.iter().map(|one| one.exit).fold(machine.exit, Exit::max);
    match output.format() {
        Format::Text => output.text(&text::report(&machine.findings, &patients, all)),
        Format::Json => output.json(&object(&machine.findings, &patients, exit)),
    }
    Ok(exit)
}

/// One participant, whatever it does.
async fn examine(
    participant: &Arc<dyn Participant>,
    config: &Config,
    known: Option<&Known>,
    patience: Duration,
) -> Patient {
    let name = participant.name();
    let mut patient = Patient {
        name,
        kind: participant.kind(),
        server: None,
        lineage: None,
        cause: None,
        findings: Vec::new(),
        exit: Exit::Clean,
    };
    let examined = tokio::time::timeout(patience, look(participant, config, known, &mut patient)).await;
    patient.kind = participant.kind();
    match examined {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            let text = error.to_string();
            let text = text.strip_prefix(&format!("{name}: ")).unwrap_or(&text).to_owned();
            let why = "nothing can be said of what was not seen, and no transaction begins there";
            patient.findings.push(Finding::of(Severity::Failure, "connection", text.clone(), why));
            patient.cause = Some(text);
            patient.exit = Exit::of(&error);
        }
        Err(_) => {
            let found = format!("no end of the checks within {patience:?}");
            let why = "the server is too slow, or hangs";
            patient.findings.push(Finding::of(Severity::Failure, "connection", found.clone(), why));
            patient.cause = Some(found);
            patient.exit = Exit::Unreachable;
        }
    }
    let failed = patient.findings.iter().any(|one| one.severity == Severity::Failure);
    if failed && patient.exit == Exit::Clean {
        patient.exit = Exit::Usage;
    }
    patient
}

async fn look(
    participant: &Arc<dyn Participant>,
    config: &Config,
    known: Option<&Known>,
    patient: &mut Patient,
) -> Result<()> {
    let server = participant.identify().await?;
    patient.server = Some(server.description);
    patient.lineage = server.lineage;
    let keeper = known.map_or("journal", |known| known.keeper);
    let lineage = lineage(keeper, known.and_then(|known| known.lineage(participant.name())), server.lineage);
    if lineage.severity == Severity::Failure {
        patient.exit = Exit::Refused;
    }
    patient.findings.push(lineage);
    patient.findings.extend(participant.check().await?);
    let node = config.node;
    let is_anchor = config.transaction.decision.anchor() == Some(participant.name());
    if is_anchor && server.lineage.is_some() {
        patient.findings.extend(known::entries(&**participant, node).await);
    }
    // Whether others are strangers is not known of an anchor that has not answered.
    let is_known = known.is_some() || config.transaction.decision.anchor().is_none();
    if server.lineage.is_some() && is_known {
        let namesakes = participant.registry().await?.into_iter().filter(|one| one.node == node);
        let strangers = namesakes.filter(|one| known.is_none_or(|known| one.journal != known.id));
        let newest = strangers.min_by_key(|one| one.age);
        patient.findings.extend(newest.map(|one| {
            let found = format!(
                "the node name {node} is registered by another journal, {}, of {} {} ago",
                one.journal,
                one.host,
                for_people(one.age.as_secs())
            );
            let why = "two programs of one node name refuse each other; or this journal replaces one that was lost, and \
                       what that one left is listed as foreign";
            Finding::of(Severity::Warning, "node name", found, why)
                .cure("give each program a node name and a journal of its own; `handfast list` shows what is prepared")
        }));
    }
    Ok(())
}

/// Whether the data is what the journal, or the anchor, knows by that name.
fn lineage(keeper: &str, known: Option<Lineage>, found: Option<Lineage>) -> Finding {
    let check = "lineage";
    match (known, found) {
        (Some(known), Some(found)) if known == found => Finding::good(check, format!("the data is lineage {found}")),
        (Some(known), found) => {
            let found = found.map_or_else(|| "no tables of Handfast".into(), |found| format!("lineage {found}"));
            let found = format!("another server than the {keeper} knows: it has {found}, the {keeper} expects {known}");
            let why = "the URL leads elsewhere, or the data was created anew or restored; nothing there is touched";
            Finding::of(Severity::Failure, check, found, why).cure(
                "correct the URL; if this is the right server from now on: handfast adopt PARTICIPANT --reason TEXT",
            )
        }
        (None, Some(found)) => Finding::good(check, format!("the data is lineage {found}, new to this {keeper}")),
        (None, None) => Finding::good(check, "the data has no lineage yet: opening gives it one"),
    }
}

/// What only shows when all have been seen.
fn compare(patients: &mut [Patient]) {
    let lineages: Vec<_> = patients.iter().map(|one| (one.name, one.lineage)).collect();
    for patient in patients.iter_mut() {
        let same = |(name, lineage): &&(ParticipantName, Option<Lineage>)| {
            *name != patient.name && lineage.is_some() && *lineage == patient.lineage
        };
        if let Some((other, _)) = lineages.iter().find(same) {
            let found = format!("{other} has the same tables of Handfast: both are one database and schema");
            let why = "one transaction can have a branch of each there, which may wait for each other's locks";
            patient.findings.push(Finding::of(Severity::Note, "same database", found, why));
        }
    }
}

fn object(machine: &[Finding], patients: &[Patient], exit: Exit) -> Value {
    let of = |participant: Option<&ParticipantName>, one: &Finding| {
        json!({
            "participant": participant.map(ParticipantName::as_str),
            "check": one.check,
            "severity": one.severity.as_str(),
            "found": one.found,
            "why": one.why,
            "cure": one.cure,
        })
    };
    let mut findings: Vec<Value> = machine.iter().map(|one| of(None, one)).collect();
    findings
        .extend(patients.iter().flat_map(|patient| patient.findings.iter().map(|one| of(Some(&patient.name), one))));
    let one = |one: &Patient| {
        json!({
            "name": one.name.as_str(),
            "kind": one.kind,
            "reachable": one.server.is_some(),
            "server": one.server,
            "cause": one.cause,
        })
    };
    json!({
        "schema": 1,
        "status": exit.as_str(),
        "participants": patients.iter().map(one).collect::<Vec<_>>(),
        "findings": findings,
    })
}
