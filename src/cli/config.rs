//! `handfast config`: what is in force, and who said so. Never a secret.

use super::args::Format;
use super::exit::Exit;
use super::output::Output;
use crate::Config;
use crate::config::{Source, Sources};
use crate::error::{Error, ErrorKind, Result};
use serde_json::{Map, Value, json};
use std::path::Path;

/// What stands in the place of a secret.
const HIDDEN: &str = "(hidden)";

/// Shows the configuration as TOML that says the same when it is read, but for what is hidden, or as JSON.
///
/// # Errors
/// When there is none, or a wrong one.
pub fn run(path: &Path, output: &mut Output) -> Result<Exit> {
    let (config, sources) = Config::load_with_sources(path)?;
    let (options, shortened) = (config.options(), shortened(&config));
    let values = serde_json::to_value(effective(config))
        .map_err(|error| Error::new(ErrorKind::Config, "the configuration cannot be shown").because(error))?;
    match output.format() {
        Format::Text => output.text(&toml(path, &options, &values, &sources, &shortened)),
        Format::Json => {
            let from: Map<_, _> = options.iter().map(|key| (key.clone(), json!(sources.of(key)))).collect();
            let file = path.display().to_string();
            let status = Exit::Clean.as_str();
            output.json(&json!({ "schema": 1, "status": status, "file": file, "config": values, "sources": from }));
        }
    }
    Ok(Exit::Clean)
}

/// With what follows from other options written out.
fn effective(mut config: Config) -> Config {
    config.transaction.lock_timeout = Some(config.transaction.effective_lock_timeout());
    for participant in config.participants.values_mut() {
        participant.pool_size.get_or_insert(config.pool.size);
    }
    config
}

/// The URLs of which not all is shown.
fn shortened(config: &Config) -> Vec<String> {
    let all = config.participants.iter().filter(|(_, one)| one.url != one.url_without_password());
    all.map(|(name, _)| format!("participants.{name}.url")).collect()
}

fn toml(path: &Path, options: &[String], values: &Value, sources: &Sources, shortened: &[String]) -> String {
    let mut text = format!("# In force, by {} and the environment. Secrets are not shown.\n", path.display());
    let mut section = "";
    for key in options {
        let value = values.pointer(&format!("/{}", key.replace('.', "/"))).unwrap_or(&Value::Null);
        if value.is_null() {
            continue;
        }
        let (table, name) = key.rsplit_once('.').unwrap_or(("", key));
        if table != section {
            text += &format!("\n[{table}]\n");
            section = table;
        }
        let part = if shortened.contains(key) { ", without password and parameters" } else { "" };
        text += &line(name, value, sources.of(key), part);
    }
    text
}

/// A string of JSON is one of TOML, but for one character; a table is on one line.
fn as_toml(value: &Value) -> String {
    match value {
        Value::Object(table) => {
            let quoted = |text: &str| as_toml(&Value::from(text));
            let entries: Vec<_> =
                table.iter().map(|(key, one)| format!("{} = {}", quoted(key), as_toml(one))).collect();
            format!("{{ {} }}", entries.join(", "))
        }
        other => other.to_string().replace('\u{7f}', "\\u007f"),
    }
}

/// A secret is a comment, so that nobody takes what stands in its place for it.
fn line(name: &str, value: &Value, source: Source, part: &str) -> String {
    let is_hidden = value.as_str().is_some_and(|text| text.contains(HIDDEN));
    let mark = if is_hidden { "# " } else { "" };
    let said = format!("{mark}{name} = {}", as_toml(value));
    format!("{said:<40} # {source}{part}\n")
}
