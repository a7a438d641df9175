//! `handfast init`: the journal's directory, and the tables that the participants need.

use super::args::Format;
use super::exit::Exit;
use super::output::Output;
use crate::Config;
use crate::config::Decision;
use crate::error::Result;
use crate::id::Lineage;
use crate::journal::Journal;
use crate::participant::{self, Participant};
use serde_json::{Value, json};
use std::sync::Arc;

/// Creates what is missing and leaves alone what is there; with `print` only shows the SQL.
///
/// # Errors
/// The first that says what cannot be created. The other participants are still looked after.
pub async fn run(config: &Config, print: bool, output: &mut Output) -> Result<Exit> {
    let participants = participant::from_config(config)?;
    if print {
        show(&participants, config.transaction.decision, output);
        return Ok(Exit::Clean);
    }
    let decision = config.transaction.decision;
    let journal = match decision {
        Decision::Journal => Some(Journal::create_if_absent(&config.journal)?),
        Decision::Anchor(_) => None,
    };
    let directory = config.journal.directory.display();
    let mut text = match journal {
        Some(journal) => format!("journal {journal} in {directory}\n"),
        None => format!("decisions on {decision}: no journal is needed\n"),
    };
    let (mut exit, mut ready) = (Exit::Clean, Vec::new());
    for one in &participants {
        let result = set_up(&**one, decision).await.map_err(|error| error.at(one.name()));
        one.close().await;
        match &result {
            Ok(lineage) => text += &format!("{} ({}): ready, lineage {lineage}\n", one.name(), one.kind()),
            Err(error) => {
                eprintln!("handfast: {}", error.chain());
                exit = exit.max(Exit::of(error));
            }
        }
        ready.push(json!({
            "name": one.name().as_str(),
            "kind": one.kind(),
            "lineage": result.as_ref().ok().map(ToString::to_string),
            "cause": result.as_ref().err().map(crate::Error::chain),
        }));
    }
    match output.format() {
        Format::Text => output.text(&text),
        Format::Json => output.json(&json!({
            "schema": 1,
            "status": exit.as_str(),
            "journal": journal.map(|journal| json!({ "id": journal.to_string(), "directory": directory.to_string() })),
            "participants": ready,
        })),
    }
    Ok(exit)
}

/// Creates what a participant needs, and an anchor besides.
async fn set_up(one: &dyn Participant, decision: Decision) -> Result<Lineage> {
    let lineage = one.init().await?;
    if decision.anchor() == Some(one.name())
        && let Some(anchor) = one.anchor()
    {
        anchor.set_up().await?;
    }
    Ok(lineage)
}

fn sql(one: &dyn Participant, decision: Decision) -> String {
    let anchor = one.anchor().filter(|_| decision.anchor() == Some(one.name()));
    one.setup_sql() + &anchor.map(|anchor| anchor.setup_sql()).unwrap_or_default()
}

fn show(participants: &[Arc<dyn Participant>], decision: Decision, output: &mut Output) {
    match output.format() {
        Format::Text => {
            for one in participants {
                let sql = sql(&**one, decision);
                output.text(&format!("-- {} ({})\n{}\n", one.name(), one.kind(), sql.trim_end()));
            }
        }
        Format::Json => {
            let one = |one: &Arc<dyn Participant>| -> Value {
                json!({ "name": one.name().as_str(), "kind": one.kind(), "sql": sql(&**one, decision) })
            };
            let all: Vec<_> = participants.iter().map(one).collect();
            output.json(&json!({ "schema": 1, "status": Exit::Clean.as_str(), "participants": all }));
        }
    }
}
