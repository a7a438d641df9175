//! `handfast resolve`, `forget` and `adopt`: what a person decides, written to the journal with its reason.
//!
//! Each first shows what it found, then what it did, or why it was refused.

use super::args::Format;
use super::exit::Exit;
use super::explain;
use super::output::Output;
use super::report::{Facts, Participant, Report, Rows, Transaction};
use crate::Config;
use crate::error::{Error, Result};
use crate::id::{ParticipantName, TransactionId};
use crate::protocol::Resolution;
use crate::protocol::recovery::Action;
use crate::resolver::{Adoption, Resolver};
use serde_json::{Value, json};

/// Decides about a transaction where the journal cannot, and carries it out.
///
/// # Errors
/// When the journal cannot be opened or written, or does not know the transaction.
pub async fn resolve(
    config: Config,
    id: TransactionId,
    resolution: Resolution,
    reason: &str,
    output: &mut Output,
) -> Result<Exit> {
    let resolver = Resolver::open(config.clone())?;
    let found = show_found(&resolver, &config, id, output).await?;
    let did = resolver.resolve(id, resolution, reason).await;
    let exit = match &did {
        Err(error) => Exit::of(error),
        Ok(pass) => {
            let left = pass.left.transactions.iter().find(|one| one.id == id);
            let participants = pass.view.participants.iter().map(Participant::new).map(|one| one.exit);
            left.map_or(Exit::Clean, |one| Transaction::planned(one, &Facts::default()).exit)
                .max(participants.max().unwrap_or_default())
        }
    };
    let word = match resolution {
        Resolution::Commit => "commit",
        Resolution::RollBack => "roll back",
    };
    let did = did.map(|pass| {
        let count = |action| {
            let done = pass.found.branches().filter(|one| one.id.transaction == id && one.action == action);
            let left = pass.left.branches().filter(|one| one.id.transaction == id && one.action == action);
            done.count() - left.count()
        };
        let (committed, rolled_back) = (count(Action::Commit), count(Action::RollBack));
        let waits = pass.left.branches().filter(|one| one.id.transaction == id && one.action == Action::Wait).count();
        format!(
            "resolved to {word}, and written to the journal; branches committed: {committed}, rolled back: \
             {rolled_back}, to be ended when their participant is back: {waits}"
        )
    });
    finish(resolver, found, did, exit, output).await
}

/// Closes the record of a damaged transaction.
///
/// # Errors
/// When the journal cannot be opened or written, or does not know the transaction.
pub async fn forget(config: Config, id: TransactionId, reason: &str, output: &mut Output) -> Result<Exit> {
    let resolver = Resolver::open(config.clone())?;
    let found = show_found(&resolver, &config, id, output).await?;
    let did = resolver.forget(id, reason).await.map(|()| {
        "forgotten, and written to the journal: it is not reported any more, and its outcome stays damaged".to_owned()
    });
    let exit = did.as_ref().map_or_else(Exit::of, |_| Exit::Clean);
    finish(resolver, found, did, exit, output).await
}

/// Accepts another server under a participant's name, or only gives up what the former one held.
///
/// # Errors
/// When the journal cannot be opened or written, or the participant cannot be reached.
pub async fn adopt(
    config: Config,
    name: ParticipantName,
    reason: &str,
    gone: bool,
    output: &mut Output,
) -> Result<Exit> {
    let resolver = Resolver::open(config)?;
    let view = resolver.observe().await;
    let seen = view.participants.iter().find(|seen| seen.name == name).map(Participant::new);
    let known = resolver.image(|image| image.participant(name).map(|known| known.lineage));
    let known = known.map_or_else(|| "no server".to_owned(), |lineage| format!("lineage {lineage}"));
    if output.format() == Format::Text {
        output.paragraph(&format!("found: the journal knows {known} as {name}; there is"));
        let server = seen.as_ref().map_or(Some("nothing configured"), |one| one.server.as_deref());
        output.text(&format!("{}\n", server.unwrap_or("nothing that answers")));
        if let Some(cause) = seen.as_ref().and_then(|one| one.cause.as_deref()) {
            output.paragraph(cause);
        }
    }
    let did = if gone { resolver.give_up(name, reason).await } else { resolver.adopt(name, reason).await };
    let (exit, error) = match &did {
        Ok(adoption) => (if adoption.unproven.is_empty() { Exit::Clean } else { Exit::Damaged }, None),
        Err(error) => (Exit::of(error), Some(error.chain())),
    };
    match (output.format(), &did) {
        (Format::Text, Ok(adoption)) => adopted(adoption).iter().for_each(|line| output.paragraph(line)),
        (Format::Text, Err(error)) => eprintln!("handfast: {}", error.chain()),
        (Format::Json, _) => output.json(&json!({
            "schema": 1,
            "status": exit.as_str(),
            "error": error,
            "participant": name.as_str(),
            "found": { "journal": known, "participant": seen },
            "did": did.as_ref().ok().map(adoption_object),
        })),
    }
    resolver.close().await?;
    Ok(exit)
}

fn adopted(adoption: &Adoption) -> Vec<String> {
    let Adoption { participant, before, accepted, given_up, unproven } = adoption;
    let mut lines = vec![match (accepted, before) {
        (Some(accepted), Some(before)) => format!("adopted: {participant} is lineage {accepted} now, not {before}"),
        (Some(accepted), None) => format!("adopted: {participant} is lineage {accepted} now"),
        (None, _) => format!("given up: what the former server of {participant} held"),
    }];
    lines.push(format!("earlier openings whose branches there are out of reach for good: {}", given_up.len()));
    if unproven.is_empty() {
        lines.push("no decided transaction is lost with it".to_owned());
    } else {
        lines.push("decided, and whether they committed there cannot be known any more: damaged".to_owned());
        lines.extend(unproven.iter().map(ToString::to_string));
        lines.push("next: `handfast explain ID` for each, and compare the rows".to_owned());
    }
    lines
}

fn adoption_object(adoption: &Adoption) -> Value {
    let Adoption { before, accepted, given_up, unproven, .. } = adoption;
    json!({
        "before": before.map(|lineage| lineage.to_string()),
        "accepted": accepted.map(|lineage| lineage.to_string()),
        "given_up": given_up.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "unproven": unproven.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

/// Shows what is known of a transaction before anything is done; as JSON it is kept for the one object. `None` where
/// this journal does not know it yet.
async fn show_found(
    resolver: &Resolver,
    config: &Config,
    id: TransactionId,
    output: &mut Output,
) -> Result<Option<Transaction>> {
    let mut view = resolver.observe().await;
    let facts = Facts::of(resolver, &view).await;
    let ours = resolver.image(|image| image.incarnation(id.incarnation).is_some());
    if !ours {
        if output.format() == Format::Text {
            let shown = explain::foreign_text(&view, &facts, id);
            output.text(&shown);
        }
        return Ok(None);
    }
    let directory = explain::directory(config);
    let one = explain::transaction(resolver, &mut view, &facts, directory.as_deref(), id).await?;
    if output.format() == Format::Text {
        let report = Report::new(Vec::new(), Rows::of(vec![one.clone()]), Rows::none()).at_least(one.exit);
        output.explanation(&report, explain::found_text);
    }
    Ok(Some(one))
}

/// Says what was done, or why it was refused.
async fn finish(
    resolver: Resolver,
    found: Option<Transaction>,
    did: Result<String>,
    exit: Exit,
    output: &mut Output,
) -> Result<Exit> {
    let error = did.as_ref().err().map(Error::chain);
    match (output.format(), &did) {
        (Format::Text, Ok(did)) => {
            output.text("\n");
            output.paragraph(did);
        }
        (Format::Text, Err(error)) => {
            eprintln!("handfast: {}", error.chain());
            // What would help instead.
            if let Some(explained) = found.as_ref().and_then(|one| one.explained.as_ref()) {
                eprintln!("handfast: {}", explained.next);
            }
        }
        (Format::Json, _) => output.json(&json!({
            "schema": 1,
            "status": exit.as_str(),
            "error": error,
            "transactions": found.into_iter().collect::<Vec<_>>(),
            "did": did.as_ref().ok(),
        })),
    }
    resolver.close().await?;
    Ok(exit)
}
