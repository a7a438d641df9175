//! The recovery tool `handfast`: one file a command, over the library's public interface alone.
//!
//! Data goes to stdout, messages to stderr. What a command found is a [`report::Report`], printed as text or as JSON;
//! how things stand is an [`exit::Exit`], which becomes the exit code. No command waits without end, but `servers` and
//! `watch`.

pub mod args;
mod by_hand;
mod config;
pub mod demo;
mod doctor;
mod drain;
pub mod exit;
mod explain;
mod init;
mod journal;
mod list;
mod manual;
mod outcome;
mod output;
mod recover;
pub mod report;
pub mod run_servers;
pub mod servers;
mod watch;

use crate::Config;
use crate::error::{Error, ErrorKind, Result};
use args::{Args, Command};
use clap::Parser;
use exit::Exit;
use output::Output;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// The program: parses the command line, runs the command, tells how it ended.
pub fn main() -> ExitCode {
    let args = Args::parse();
    log_to_stderr();
    let mut output = Output::new(args.format);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let result = runtime
        .map_err(|error| Error::new(ErrorKind::Setup, "the system gives no threads").because(error))
        .and_then(|runtime| runtime.block_on(run(args, &mut output)));
    let (exit, error) = match result {
        Ok(exit) => (exit, None),
        Err(error) => {
            eprintln!("handfast: {}", error.chain());
            (Exit::of(&error), Some(error.chain()))
        }
    };
    output.finish(exit, error).into()
}

async fn run(args: Args, output: &mut Output) -> Result<Exit> {
    let loaded = || Config::load(&args.config);
    match args.command {
        Command::Demo(demo) => demo::run(&demo, output).await,
        Command::DemoApplication(application) => demo::application::run(loaded()?, application).await,
        Command::Doctor { all } => doctor::run(&loaded()?, all, output).await,
        Command::List { older_than } => list::run(loaded()?, older_than, output).await,
        Command::Watch(options) => watch::run(&loaded()?, &options, output).await,
        Command::Recover { dry_run: true } => list::run(loaded()?, None, output).await,
        Command::Recover { dry_run: false } => recover::run(loaded()?, output).await,
        Command::Drain { wait } => drain::run(loaded()?, wait, output).await,
        Command::Explain { what } => explain::run(loaded()?, &what, output).await,
        Command::Resolve { id, commit, reason, .. } => {
            by_hand::resolve(loaded()?, id, Command::resolution(commit), &reason, output).await
        }
        Command::Forget { id, reason, .. } => by_hand::forget(loaded()?, id, &reason, output).await,
        Command::Adopt { participant, reason, gone } => {
            by_hand::adopt(loaded()?, participant, &reason, gone, output).await
        }
        Command::Config => config::run(&args.config, output),
        Command::Completions { shell } => Ok(manual::completions(shell, output)),
        Command::Man { directory } => manual::pages(directory.as_deref(), output),
        Command::Outcome { id } => outcome::run(loaded()?, id, output).await,
        Command::Journal { command } => journal::run(loaded()?, command, output).await,
        Command::Init { print } => init::run(&loaded()?, print, output).await,
        Command::Servers(options) => run_servers::run(options, output).await,
    }
}

/// Warnings, unless `HANDFAST_LOG` asks for more (`info`, `handfast=debug`).
fn log_to_stderr() {
    let filter = EnvFilter::try_from_env("HANDFAST_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    let colour = io::stderr().is_terminal() && !report::no_colour();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colour).with_writer(io::stderr).init();
}
