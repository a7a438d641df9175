//! `handfast drain`: waits for a moment in which nothing is prepared.

use super::exit::Exit;
use super::output::Output;
use super::report::{Facts, Report};
use crate::Config;
use crate::error::Result;
use crate::resolver::{Resolver, View};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(100);

/// Looks until nothing at all is prepared on any participant, ours or foreign, a participant does not answer, or the
/// time is over; then reports what is left.
///
/// # Errors
/// When the journal cannot be read.
pub async fn run(config: Config, wait: Duration, output: &mut Output) -> Result<Exit> {
    let deadline = Instant::now() + wait;
    let resolver = Resolver::read(config)?;
    let mut view = resolver.observe().await;
    while holds_something(&view) && is_whole(&view) && Instant::now() < deadline {
        sleep(PAUSE.min(deadline.saturating_duration_since(Instant::now()))).await;
        view = resolver.observe().await;
    }
    let plan = resolver.examine(&mut view).await;
    let mut facts = Facts::default();
    facts.add_all(&view);
    let report = Report::of_drain(&view, &plan, &facts).in_use_by(resolver.holder());
    output.report(&report);
    let status = report.status;
    drop(report);
    resolver.close().await?;
    Ok(status)
}

fn holds_something(view: &View) -> bool {
    view.participants.iter().any(|seen| !seen.sightings.is_empty())
}

/// A participant that does not answer will not say that it is empty: nothing is worth waiting for.
fn is_whole(view: &View) -> bool {
    view.participants.iter().all(|seen| seen.trouble.is_none())
}
