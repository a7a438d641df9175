//! The configuration: parsed once, valid from then on.
//!
//! [`Config::load`] reads a TOML file and lays the environment over it (`HANDFAST__PARTICIPANTS__LEDGER__URL`).
//! Unknown keys are refused, with the place and what was probably meant. `config/handfast.toml` documents every option
//! at its default; a test compares it with this file.

mod check;
mod connection;
mod decision;
mod driver;
mod keys;
mod participant;
mod reading;
mod sections;
mod settings;
mod source;
#[cfg(test)]
mod tests;
mod texts;
mod units;
mod url;

pub use self::connection::{Secret, Tls};
pub use self::decision::Decision;
pub(crate) use self::driver::Driver;
pub use self::participant::{Kind, ParticipantConfig};
pub use self::sections::{JournalConfig, PoolConfig, RecoveryConfig, TransactionConfig};
pub use self::source::{Source, Sources};
use self::texts::{by_name, from_text, participants, text};
use crate::error::Result;
use crate::id::{NodeName, ParticipantName};
pub use crate::protocol::Acknowledge;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Everything a bridge needs to know.
///
/// It serializes without passwords, so that a program can log what it runs with.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// This program's name, part of every branch id: two programs that share a database need two names.
    #[serde(deserialize_with = "from_text", serialize_with = "text")]
    pub node: NodeName,
    /// The directory of decisions, where they are not kept by an anchor.
    #[serde(default)]
    pub journal: JournalConfig,
    /// How transactions run.
    #[serde(default)]
    pub transaction: TransactionConfig,
    /// How the resolver works.
    #[serde(default)]
    pub recovery: RecoveryConfig,
    /// The pools of all participants.
    #[serde(default)]
    pub pool: PoolConfig,
    /// The databases, by name.
    #[serde(default, deserialize_with = "participants", serialize_with = "by_name")]
    pub participants: BTreeMap<ParticipantName, ParticipantConfig>,
}

impl Config {
    /// Reads a TOML file and lays the environment (`HANDFAST__SECTION__KEY`) over it.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config), naming the file and the key.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        Self::load_with_sources(path).map(|(config, _)| config)
    }

    /// [`load`](Self::load), with the sources of what it read: for those who show a configuration.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_with_sources(path: impl AsRef<Path>) -> Result<(Self, Sources)> {
        Self::read(path.as_ref(), None)
    }

    /// Reads a configuration from TOML text alone.
    ///
    /// ```
    /// use handfast::Config;
    ///
    /// let text = r#"
    ///     node = "front-1"
    ///     journal.directory = "/var/lib/handfast"
    ///     participants.ledger = { kind = "postgres", url = "postgresql://app@db1.example/ledger" }
    ///     participants.orders = { kind = "mysql", url = "mysql://app@db2.example/orders" }
    /// "#;
    /// assert_eq!(Config::from_toml(text)?.transaction.timeout.as_secs(), 30);
    /// let refused = Config::from_toml(&text.replace("node", "nod")).unwrap_err();
    /// assert!(refused.to_string().contains("did you mean node?"), "{refused}");
    /// # Ok::<_, handfast::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config), naming the key.
    pub fn from_toml(text: &str) -> Result<Self> {
        Self::read_text(text)
    }

    /// The dotted names of all options, said or not, in the order of the documentation: `node`, `journal.directory`, ..
    pub fn options(&self) -> Vec<String> {
        let section = |section: &str| match section {
            "participants" => self.participants.keys().map(|name| format!("participants.{name}")).collect(),
            other => vec![other.to_owned()],
        };
        let below = |table: String| -> Vec<String> {
            let path: Vec<_> = table.split('.').collect();
            let keys = keys::of(&path).map(|keys| keys.iter().map(|key| format!("{table}.{key}")).collect());
            keys.unwrap_or_else(|| vec![table.clone()])
        };
        let sections = keys::of(&[]).unwrap_or_default();
        sections.iter().flat_map(|one| section(one)).flat_map(below).collect()
    }
}
