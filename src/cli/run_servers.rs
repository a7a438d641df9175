//! `handfast servers`: throwaway servers to try things on, until Ctrl-C.

use super::args::ServerArgs;
use super::exit::Exit;
use super::output::Output;
use super::servers::{Flavor, Installation, Options, Server};
use crate::error::{Error, ErrorKind, Result};
use futures_util::future::try_join_all;
use std::path::Path;
use tokio::signal::unix::{SignalKind, signal};

/// Starts one server of each product that is there, prints their URLs, and ends them on Ctrl-C or SIGTERM.
///
/// # Errors
/// When PostgreSQL, or any other server, is missing or does not start.
pub async fn run(options: ServerArgs, output: &mut Output) -> Result<Exit> {
    let mut installations = vec![Installation::find(Flavor::Postgres, options.postgres_bin.as_deref())?];
    match options.mysql_bin.as_deref() {
        Some(bin) => installations.push(Installation::find(Flavor::MySql, Some(bin))?),
        None => {
            let found = [Flavor::MariaDb, Flavor::MySql].map(|flavor| Installation::find(flavor, None));
            for missing in found.iter().filter_map(|found| found.as_ref().err()) {
                eprintln!("handfast: {missing}");
            }
            installations.extend(found.into_iter().flatten());
        }
    }
    let started = installations.iter().map(|installation| Server::start(installation, options_here()));
    let servers = try_join_all(started).await?;
    for server in &servers {
        let (flavor, version) = (server.flavor().product(), server.installation().version());
        output.text(&format!("{flavor} {version}\n  {}\n  {}\n", server.admin_url(), server.directory().display()));
    }
    eprintln!("Ctrl-C ends them and removes what they hold.");
    until_told().await?;
    tokio::task::block_in_place(|| drop(servers));
    Ok(Exit::Clean)
}

/// In a checkout, initialised data directories are kept below the target directory, as the tests do.
pub(super) fn options_here() -> Options {
    let target = Path::new("target");
    if target.join("CACHEDIR.TAG").exists() {
        Options::default().with_cache(target.join("servers/templates"))
    } else {
        Options::default()
    }
}

/// Waits for Ctrl-C, or for what Kubernetes and systemd send.
pub(super) async fn until_told() -> Result<()> {
    let deaf = |error| Error::new(ErrorKind::Setup, "signals cannot be received").because(error);
    let mut interrupt = signal(SignalKind::interrupt()).map_err(deaf)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(deaf)?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}
