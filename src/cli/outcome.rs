//! `handfast outcome`: how a transaction ended.

use super::exit::Exit;
use super::output::Output;
use super::report::Report;
use crate::Config;
use crate::error::{ErrorKind, Result};
use crate::id::TransactionId;
use crate::protocol::Outcome;
use crate::resolver::Resolver;

/// Tells the outcome. What the journal and the witnesses do not tell is asked for by fences, once nobody else has
/// the journal.
///
/// # Errors
/// When the journal cannot be read.
pub async fn run(config: Config, id: TransactionId, output: &mut Output) -> Result<Exit> {
    let outcome = match find(config, id).await {
        Ok((outcome, holder)) => {
            explain(outcome, holder);
            Some(outcome)
        }
        Err(error) if error.kind() == ErrorKind::Unknown => {
            eprintln!("handfast: {error}");
            None
        }
        Err(error) => return Err(error),
    };
    let report = Report::of_outcome(id, outcome);
    output.outcome(&report);
    Ok(report.status)
}

/// Says on stderr what one word cannot.
fn explain(outcome: Outcome, holder: Option<String>) {
    match (outcome, holder) {
        (Outcome::InDoubt, Some(holder)) => {
            eprintln!("handfast: {holder} has the journal and may be at work on it: ask again in a moment");
        }
        (Outcome::InDoubt, None) => {
            eprintln!("handfast: not every participant could be asked: `handfast list` says which, then ask again");
        }
        (Outcome::Damaged, _) => {
            eprintln!("handfast: a person is needed, or has dealt with it: `handfast explain` tells")
        }
        (Outcome::Committed | Outcome::RolledBack, _) => {}
    }
}

/// The outcome, and who has the journal.
async fn find(config: Config, id: TransactionId) -> Result<(Outcome, Option<String>)> {
    let reader = Resolver::read(config.clone())?;
    let holder = reader.holder();
    let outcome = reader.outcome(id).await;
    reader.close().await?;
    if holder.is_some() || !matches!(outcome, Ok(Outcome::InDoubt)) {
        return outcome.map(|outcome| (outcome, holder));
    }
    let resolver = Resolver::open(config)?;
    let outcome = resolver.outcome(id).await;
    resolver.close().await?;
    outcome.map(|outcome| (outcome, None))
}
