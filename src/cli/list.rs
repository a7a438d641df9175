//! `handfast list` and `handfast recover --dry-run`: what is there, and what recovery would do. Changes nothing.

use super::exit::Exit;
use super::output::Output;
use super::report::{EarlierOpening, Facts, Report, gid};
use crate::Config;
use crate::error::Result;
use crate::id::ParticipantName;
use crate::protocol::recovery::{Action, Plan, Sighting};
use crate::resolver::{Resolver, View};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::sleep;

/// What is still prepared after this pause is nobody's traffic.
const SECOND_LOOK: Duration = Duration::from_secs(1);

/// Looks and reports, beside a running application or without one; with `older_than`, nothing is clean while anything has
/// been prepared for longer.
///
/// # Errors
/// When the journal cannot be read.
pub async fn run(config: Config, older_than: Option<Duration>, output: &mut Output) -> Result<Exit> {
    look(config, older_than, |report| output.report(report)).await
}

/// Looks, and hands the report to `show`.
///
/// # Errors
/// When the journal cannot be read.
pub(super) async fn look(config: Config, older_than: Option<Duration>, show: impl FnOnce(&Report<'_>)) -> Result<Exit> {
    let resolver = Resolver::read(config)?;
    let mut view = resolver.observe().await;
    let plan = resolver.examine(&mut view).await;
    let facts = Facts::of(&resolver, &view).await;
    let mut report =
        Report::of_look(&view, &plan, &facts).in_use_by(resolver.holder()).and_unsettled(unasked(&resolver));
    if let Some(threshold) = older_than {
        report = report.and_older(threshold, older(&resolver, &view, &plan, &facts, threshold).await);
    }
    show(&report);
    let status = report.status;
    drop(report);
    resolver.close().await?;
    Ok(status)
}

/// The earlier openings that nobody has settled yet. Each leaves one, well ended or not, until the next opening has asked
/// for it: so this alone says nothing bad.
fn unasked(resolver: &Resolver) -> Vec<EarlierOpening> {
    let mut all: Vec<_> = resolver.image(|image| image.unsettled().cloned().collect());
    all.retain(|opened| !resolver.is_at_work(opened.incarnation));
    let mut all: Vec<_> = all.iter().map(EarlierOpening::unasked).collect();
    all.sort_by_key(|one| one.opened_at_ms);
    all
}

/// How many branches have been prepared for longer than this. A branch that nobody can date is one when it is still there
/// after a moment, unless a running application is at work on it.
async fn older(resolver: &Resolver, view: &View, plan: &Plan, facts: &Facts, than: Duration) -> usize {
    let live: BTreeSet<_> = plan.branches().filter(|one| one.action == Action::Leave).map(|one| one.id).collect();
    let (mut known, mut undated) = (0, BTreeSet::new());
    for branch in plan.branches().filter(|one| one.sighting == Sighting::Listed) {
        let is_young = || facts.age_at_most(&branch.id).is_some_and(|at_most| at_most <= than.as_secs());
        match facts.age(branch.participant, &branch.id.to_string()) {
            Some(age) => known += usize::from(age > than.as_secs()),
            None if live.contains(&branch.id) || is_young() => {}
            None => drop(undated.insert((branch.participant, branch.id.to_string()))),
        }
    }
    for one in view.foreigners() {
        let is_young = || one.registered.as_ref().is_some_and(|opened| opened.age <= than);
        match one.age {
            Some(age) => known += usize::from(age > than),
            None if is_young() => {}
            None => drop(undated.insert((one.participant, one.gid.clone()))),
        }
    }
    if undated.is_empty() {
        return known;
    }
    sleep(SECOND_LOOK).await;
    let still = listed(&resolver.observe().await);
    known + undated.intersection(&still).count()
}

fn listed(view: &View) -> BTreeSet<(ParticipantName, String)> {
    let of = |seen: &crate::resolver::Seen| {
        seen.sightings.iter().map(|sighting| (seen.name, gid(&sighting.branch))).collect::<Vec<_>>()
    };
    view.participants.iter().flat_map(of).collect()
}
