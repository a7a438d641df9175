//! `handfast list`, and `recover --dry-run`: what is in doubt or prepared, and what recovery would do. Changes nothing.

use super::exit::Exit;
use super::output::Output;
use super::report::Report;
use crate::Config;
use crate::error::Result;
use crate::resolver::Resolver;

/// Looks and reports, beside a running application or without one.
///
/// # Errors
/// When the journal cannot be read.
pub async fn run(config: Config, output: &mut Output) -> Result<Exit> {
    let resolver = Resolver::read(config)?;
    let mut view = resolver.observe().await;
    let plan = resolver.examine(&mut view).await;
    let report = Report::of_look(&view, &plan).in_use_by(resolver.holder());
    output.report(&report);
    resolver.close().await?;
    Ok(report.status)
}
