//! `handfast recover`: settles what a stopped application left.

use super::exit::Exit;
use super::output::Output;
use super::report::{Course, EarlierOpening, Report};
use crate::Config;
use crate::error::Result;
use crate::resolver::{Hindrance, Pass, Progress, Resolver};
use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long passes are repeated while something has to be waited for: a branch that a dying session still holds, an
/// answer that was lost. What takes longer is reported.
const PATIENCE: Duration = Duration::from_secs(30);
/// The pause between two passes.
const PAUSE: Duration = Duration::from_millis(250);

/// Passes until nothing is left to do, or patience ends; then reports what was done and what remains.
///
/// # Errors
/// When the journal is in use, missing or corrupt.
pub async fn run(config: Config, output: &mut Output) -> Result<Exit> {
    let resolver = Resolver::open(config)?;
    let bar = bar();
    let progress = |progress: Progress<'_>| match progress {
        Progress::Planned(count) => bar.inc_length(u64::try_from(count).unwrap_or(u64::MAX)),
        Progress::Done(branch) => {
            bar.set_message(branch.id.to_string());
            bar.inc(1);
        }
    };
    let deadline = Instant::now() + PATIENCE;
    let mut course = Course::default();
    let last = loop {
        let pass = resolver.sweep(&progress).await;
        course.add(&pass);
        if !worth_another(&pass) || Instant::now() > deadline {
            break pass;
        }
        sleep(PAUSE).await;
    };
    bar.finish_and_clear();
    course.facts_mut().ask_who_waits(resolver.participants(), &last.view).await;
    if let Some(error) = &last.refused {
        eprintln!("handfast: {}", error.chain());
    }
    let report = Report::of_recovery(&last, &course)
        .and_unsettled(last.unsettled.iter().map(EarlierOpening::of).collect())
        .refused(last.refused.as_ref());
    output.report(&report);
    let status = report.status;
    drop(report);
    resolver.close().await?;
    Ok(status)
}

/// A participant that cannot be reached is reported at once; what waits for a session to end is worth a little time.
fn worth_another(pass: &Pass) -> bool {
    let out_of_reach = pass.unsettled.iter().any(|one| one.hindrance == Hindrance::OutOfReach);
    pass.refused.is_none()
        && !pass.is_complete()
        && !out_of_reach
        && pass.view.participants.iter().all(|seen| seen.trouble.is_none())
}

/// On a terminal only: elsewhere it draws nothing.
fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} branches in {elapsed}  {msg}")
        .expect("the template is well formed");
    ProgressBar::new(0).with_style(style)
}
