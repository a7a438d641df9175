//! `handfast completions` and `handfast man`: made from the command line's own description, so that they cannot say
//! anything else.

use super::args::Args;
use super::exit::Exit;
use super::output::Output;
use crate::error::{Error, ErrorKind, Result};
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use std::fs;
use std::path::Path;

/// Prints a shell's completions.
pub fn completions(shell: Shell, output: &mut Output) -> Exit {
    let (mut command, mut script) = (visible(), Vec::new());
    let name = command.get_name().to_owned();
    clap_complete::generate(shell, &mut command, name, &mut script);
    output.text(&String::from_utf8_lossy(&script));
    Exit::Clean
}

/// Prints the manual page, or writes those of all commands: `handfast.1`, `handfast-list.1` and so on.
///
/// # Errors
/// [`ErrorKind::Setup`] when a page cannot be written.
pub fn pages(directory: Option<&Path>, output: &mut Output) -> Result<Exit> {
    let unwritten = |what: String, error| Error::new(ErrorKind::Setup, what).because(error);
    let Some(directory) = directory else {
        let mut page = Vec::new();
        let rendered = Man::new(visible()).render(&mut page);
        rendered.map_err(|error| unwritten("the page cannot be made".into(), error))?;
        output.text(&String::from_utf8_lossy(&page));
        return Ok(Exit::Clean);
    };
    let at = directory.display();
    fs::create_dir_all(directory).map_err(|error| unwritten(format!("{at} cannot be made"), error))?;
    clap_mangen::generate_to(visible(), directory)
        .map_err(|error| unwritten(format!("no page can be written into {at}"), error))?;
    eprintln!("handfast: the pages are in {at}: man -l {at}/handfast.1");
    Ok(Exit::Clean)
}

/// The command line without what is hidden from people.
fn visible() -> Command {
    let whole = Args::command();
    let shown = whole.get_subcommands().filter(|one| !one.is_hide_set()).cloned();
    let version = env!("CARGO_PKG_VERSION");
    let named = Command::new("handfast").version(version).propagate_version(true);
    let mut command = named.args(whole.get_arguments().cloned()).subcommands(shown);
    for (text, set) in [
        (whole.get_about().cloned(), Command::about as fn(Command, clap::builder::StyledStr) -> Command),
        (whole.get_after_help().cloned(), Command::after_help),
    ] {
        command = text.into_iter().fold(command, set);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_is_not_told() {
        let mut command = visible();
        command.build();
        let names: Vec<_> = command.get_subcommands().map(Command::get_name).collect();
        assert!(names.contains(&"list") && names.contains(&"man"), "{names:?}");
        assert!(names.contains(&"servers") && !names.contains(&"demo-application"), "{names:?}");
        assert!(command.get_after_help().is_some() && command.get_about().is_some() && command.get_version().is_some());
    }
}
