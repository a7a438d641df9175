//! `handfast watch`: what `list` says, again and again, for a terminal; and for those who ask over HTTP.
//!
//! A look that comes to nothing (no journal yet, a server that is down) is told like any other, and the next one is made:
//! whoever watches wants to see how it ends.

mod http;
mod seen;

use super::args::WatchArgs;
use super::exit::Exit;
use super::list;
use super::output::Output;
use super::report::Report;
use super::run_servers::until_told;
use crate::Config;
use crate::error::Result;
use crate::participant::{self, Participant};
use futures_util::future::join_all;
use seen::{Look, Seen};
use std::pin::pin;
use std::sync::Arc;
use tokio::time::sleep;

/// Looks until Ctrl-C, a request to end, or the number of looks asked for. How the last one found things is how it ends.
///
/// # Errors
/// When the address is not to be had, or the configuration is wrong.
pub async fn run(config: &Config, options: &WatchArgs, output: &mut Output) -> Result<Exit> {
    let watch = Watch::new(config, options).await?;
    let mut told = pin!(until_told());
    let mut last = Exit::Clean;
    let mut looks = 0;
    loop {
        tokio::select! {
            exit = watch.look(output) => last = exit,
            told = &mut told => { told?; break }
        }
        looks += 1;
        if options.count.is_some_and(|count| looks >= count) || output.is_closed() {
            break;
        }
        tokio::select! {
            () = sleep(options.interval) => {}
            told = &mut told => { told?; break }
        }
    }
    join_all(watch.rooms.iter().map(|one| one.close())).await;
    Ok(last)
}

struct Watch<'a> {
    config: &'a Config,
    heading: String,
    seen: Arc<Seen>,
    /// Those that are asked for their room; only where somebody may want to know.
    rooms: Vec<Arc<dyn Participant>>,
}

impl<'a> Watch<'a> {
    async fn new(config: &'a Config, options: &WatchArgs) -> Result<Self> {
        let interval = humantime_serde::re::humantime::format_duration(options.interval);
        let heading = format!("{}, every {interval}, until Ctrl-C", config.node);
        // So long may a look take at the worst: then the watch itself is stuck.
        let patience = options.interval + 10 * config.recovery.statement_timeout + 10 * config.pool.connect_timeout;
        let seen = Arc::new(Seen::nothing(config.node, patience));
        let mut rooms = Vec::new();
        if let Some(address) = options.listen {
            rooms = participant::from_config(config)?;
            let bound = http::serve(address, seen.clone()).await?;
            eprintln!("handfast: http://{bound}/health, /ready and /metrics");
        }
        Ok(Self { config, heading, seen, rooms })
    }

    async fn look(&self, output: &mut Output) -> Exit {
        let mut look = Look::default();
        let looked = list::look(self.config.clone(), None, |report| {
            output.glance(&self.heading, report);
            look = Look::of(report);
        });
        if let Err(error) = looked.await {
            let report = Report::without_a_look(Exit::of(&error), Some(error.chain()));
            output.glance(&self.heading, &report);
            look = Look::of(&report);
        }
        let reachable = self.rooms.iter().filter(|one| look.reached(one.name()));
        let asked = reachable.map(|one| async { (one.name(), one.room().await.ok().flatten()) });
        for (name, room) in join_all(asked).await {
            look.has_room(name, room);
        }
        let exit = look.exit;
        self.seen.tell(look);
        exit
    }
}
