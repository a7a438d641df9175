//! `handfast demo`: the newcomer's first minute.
//!
//! Starts a throwaway PostgreSQL and a throwaway MySQL or MariaDB, lets an application (a process of its own, see
//! [`application`]) move money from the one to the other from several tasks, and meanwhile kills the application and
//! both servers with SIGKILL at random moments. The application writes down each transaction before it begins and each
//! answer it gets; at the end those answers are held against what the databases really hold (see `audit.rs`).
//!
//! Nothing is assumed: the three zeros at the end are counted. Everything that was started or made is gone at the end,
//! on Ctrl-C as well.

pub mod answers;
pub mod application;
mod audit;
mod chaos;
mod stage;

use super::args::{DemoArgs, Format};
use super::exit::Exit;
use super::output::Output;
use crate::error::{Error, ErrorKind, Result};
use audit::Summary;
use chaos::Chaos;
use indicatif::{ProgressBar, ProgressStyle};
use stage::Stage;
use std::time::Duration;

/// Runs the demo. It is clean when nothing was lost, invented or left behind.
///
/// # Errors
/// When servers are missing or do not start, when the application cannot be kept running, and on Ctrl-C.
pub async fn run(args: &DemoArgs, output: &mut Output) -> Result<Exit> {
    tokio::select! {
        done = play(args, output) => done,
        // Dropping the play ends what it started and removes what it made.
        _ = tokio::signal::ctrl_c() => Err(Error::new(ErrorKind::Closed, "interrupted; everything was removed")),
    }
}

async fn play(args: &DemoArgs, output: &mut Output) -> Result<Exit> {
    let seed = args.seed.unwrap_or_else(|| u64::from(std::process::id()));
    let bar = progress(args.seconds);
    bar.set_message("starting two servers");
    let stage = Stage::set(&args.servers).await?;
    bar.println(stage.describe());
    let kills = Chaos::new(&stage, seed).run(Duration::from_secs(args.seconds), &bar).await?;
    bar.set_message("recovering and counting");
    let summary = Summary::count(&stage, seed, kills).await?;
    bar.finish_and_clear();
    match output.format() {
        Format::Text => output.text(&summary.to_string()),
        Format::Json => output.json(&summary),
    }
    Ok(summary.status())
}

fn progress(seconds: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("[{elapsed}/{len}s] {bar:30} {msg}").expect("the template is well formed");
    let bar = ProgressBar::new(seconds).with_style(style);
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}

/// Numbers that look random and come again with the same seed (splitmix64, Steele, Lea and Flood 2014).
#[derive(Debug, Clone)]
pub(super) struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 up to and without `sides`.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.next() % sides
    }
}
