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
        Ok(outcome) => Some(outcome),
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

async fn find(config: Config, id: TransactionId) -> Result<Outcome> {
    let reader = Resolver::read(config.clone())?;
    let in_use = reader.holder().is_some();
    let outcome = reader.outcome(id).await;
    reader.close().await?;
    if in_use || !matches!(outcome, Ok(Outcome::InDoubt)) {
        return outcome;
    }
    let resolver = Resolver::open(config)?;
    let outcome = resolver.outcome(id).await;
    resolver.close().await?;
    outcome
}
