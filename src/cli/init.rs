//! `handfast init`: the journal's directory, and the tables that the participants need.

use super::exit::Exit;
use super::output::Output;
use crate::Config;
use crate::error::Result;
use crate::journal::Journal;
use crate::participant;

/// Creates what is missing and leaves alone what is there; with `print` only shows the SQL.
///
/// # Errors
/// The first that says what cannot be created. The other participants are still looked after.
pub async fn run(config: &Config, print: bool, output: &mut Output) -> Result<Exit> {
    let participants = participant::from_config(config)?;
    if print {
        for one in &participants {
            output.text(&format!("-- {} ({})\n{}\n", one.name(), one.kind(), one.setup_sql().trim_end()));
        }
        return Ok(Exit::Clean);
    }
    let journal = Journal::create_if_absent(&config.journal)?;
    output.text(&format!("journal {journal} in {}\n", config.journal.directory.display()));
    let mut failed = None;
    for one in &participants {
        match one.init().await {
            Ok(lineage) => output.text(&format!("{} ({}): lineage {lineage}\n", one.name(), one.kind())),
            Err(error) => {
                let error = error.at(one.name());
                eprintln!("handfast: {}", error.chain());
                failed = failed.max(Some(Exit::of(&error)));
            }
        }
        one.close().await;
    }
    Ok(failed.unwrap_or_default())
}
