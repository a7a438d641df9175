//! From a file and the environment to a configuration.

use super::source::Sources;
use super::{Config, keys};
use crate::error::{Error, ErrorKind, Result};
use std::collections::HashMap;
use std::path::Path;

/// Reads what was gathered, or says in one line what is wrong with it.
fn parse(gathered: config::ConfigBuilder<config::builder::DefaultState>) -> Result<(Config, Sources), String> {
    let gathered = gathered.build().map_err(|error| wrong(&error.to_string()))?;
    keys::check(&gathered.cache).map_err(|text| wrong(&text))?;
    let sources = Sources::read(&gathered.cache);
    let config = gathered.try_deserialize().map_err(|error| wrong(&error.to_string()))?;
    Ok((config, sources))
}

/// In one line, without the lines of the file and the values that its parser likes to quote: there may be a password in
/// them.
fn wrong(text: &str) -> String {
    let is_quotation = |line: &&str| line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ').starts_with('|');
    let mut text: String = text.lines().filter(|line| !is_quotation(line)).collect::<Vec<_>>().join(" ");
    for secret in ["://", "password="] {
        if let Some(at) = text.find(secret) {
            text.truncate(at);
            text.push_str("..");
        }
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Config {
    /// With these variables in place of the environment's, if there are some.
    pub(super) fn read(path: &Path, variables: Option<HashMap<String, String>>) -> Result<(Self, Sources)> {
        let file = config::File::from(path).format(config::FileFormat::Toml);
        // Not parsed into numbers and such: what they are for decides, and a password of digits is none.
        let environment =
            config::Environment::with_prefix("HANDFAST").prefix_separator("__").separator("__").source(variables);
        let parsed = parse(config::Config::builder().add_source(file).add_source(environment));
        let (config, sources) = parsed
            .map_err(|cause| Error::new(ErrorKind::Config, format!("configuration {}: {cause}", path.display())))?;
        config.check()?;
        Ok((config, sources))
    }

    pub(super) fn read_text(text: &str) -> Result<Self> {
        let text = config::File::from_str(text, config::FileFormat::Toml);
        let (config, _) = parse(config::Config::builder().add_source(text))
            .map_err(|cause| Error::new(ErrorKind::Config, format!("configuration: {cause}")))?;
        config.check()?;
        Ok(config)
    }
}
