//! The configuration: parsed once, valid from then on.
//!
//! [`Config::load`] reads a TOML file and lays the environment over it (`HANDFAST__PARTICIPANTS__LEDGER__URL`).
//! Unknown keys are refused, with the place and what is known there. `config/handfast.toml` documents every option
//! at its default; a test compares it with this file.

use crate::error::{Error, ErrorKind, Result};
use crate::id::{NodeName, ParticipantName};
pub use crate::protocol::Acknowledge;
use serde::Deserialize;
use serde::de::{self, Deserializer};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// Everything a bridge needs to know.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// This program's name, part of every branch id: two programs that share a database need two names.
    #[serde(deserialize_with = "from_text")]
    pub node: NodeName,
    /// Where decisions are kept.
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
    #[serde(deserialize_with = "participants")]
    pub participants: BTreeMap<ParticipantName, ParticipantConfig>,
}

/// `[journal]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalConfig {
    /// An existing directory of this program's own, on a disk that keeps what it synced.
    pub directory: PathBuf,
    /// The size of a segment in bytes, preallocated.
    #[serde(default = "segment_bytes")]
    pub segment_bytes: u64,
}

/// `[transaction]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TransactionConfig {
    /// The deadline: a transaction that has not been decided by then is rolled back, locks included.
    #[serde(with = "humantime_serde")]
    pub timeout: Duration,
    /// When `commit` answers.
    #[serde(deserialize_with = "acknowledge")]
    pub acknowledge: Acknowledge,
    /// How long `commit` waits for phase two before it answers with the participants still pending.
    #[serde(with = "humantime_serde")]
    pub apply_wait: Duration,
    /// How long a statement waits for a lock; by default half the timeout.
    #[serde(with = "humantime_serde")]
    pub lock_timeout: Option<Duration>,
    /// How often `Bridge::transaction` runs its closure again after a deadlock or a serialization failure.
    pub retries: u32,
}

/// `[recovery]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RecoveryConfig {
    /// How often the resolver looks when nothing is known to be pending.
    #[serde(with = "humantime_serde")]
    pub interval: Duration,
    /// The first wait after a failed attempt; it doubles, with jitter.
    #[serde(with = "humantime_serde")]
    pub backoff_min: Duration,
    /// The longest wait between two attempts.
    #[serde(with = "humantime_serde")]
    pub backoff_max: Duration,
    /// How long one statement of the resolver may take.
    #[serde(with = "humantime_serde")]
    pub statement_timeout: Duration,
    /// How long opening waits for participants that cannot be reached before it goes on without them.
    #[serde(with = "humantime_serde")]
    pub open_wait: Duration,
}

/// `[pool]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PoolConfig {
    /// Sessions for each participant.
    pub size: usize,
    /// How long connecting may take.
    #[serde(with = "humantime_serde")]
    pub connect_timeout: Duration,
}

/// The kinds of database that come with Handfast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// PostgreSQL.
    Postgres,
    /// MySQL or MariaDB, told apart on connection.
    Mysql,
}

/// `[participants.<name>]`
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParticipantConfig {
    /// What it is.
    pub kind: Kind,
    /// Where it is, as its driver writes it. A password in it is never printed.
    pub url: String,
    /// A file whose first line is the password; it replaces one in the URL.
    #[serde(default)]
    pub password_file: Option<PathBuf>,
    /// Encryption of the connection. This version knows `disable` alone.
    #[serde(default)]
    pub tls: Tls,
    /// Whether branches prove their commit by a witness row.
    #[serde(default = "yes")]
    pub witness: bool,
    /// Where Handfast's tables are: a schema of PostgreSQL (`public`), a database of MySQL (the URL's).
    #[serde(default)]
    pub schema: Option<String>,
    /// This participant's own pool size.
    #[serde(default)]
    pub pool_size: Option<usize>,
}

/// Encryption of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tls {
    /// None: for loopback and networks that are private by other means.
    #[default]
    Disable,
}

impl fmt::Debug for ParticipantConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParticipantConfig")
            .field("kind", &self.kind)
            .field("url", &self.url_without_password())
            .field("schema", &self.schema)
            .field("witness", &self.witness)
            .finish_non_exhaustive()
    }
}

impl ParticipantConfig {
    /// The URL for people: without its password, wherever the driver takes one.
    pub fn url_without_password(&self) -> String {
        let (scheme, rest) = self.url.split_once("://").unwrap_or(("", &self.url));
        let rest = rest.split('?').next().unwrap_or_default();
        match rest.rsplit_once('@') {
            Some((user, host)) => {
                let user = user.split(':').next().unwrap_or_default();
                format!("{scheme}://{user}@{host}")
            }
            // Key-value strings of PostgreSQL hold `password=`: show nothing of them.
            None if scheme.is_empty() => String::from("(hidden)"),
            None => format!("{scheme}://{rest}"),
        }
    }

    /// The password of `password_file`, where one is configured.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when the file cannot be read.
    pub fn password(&self) -> Result<Option<String>> {
        let Some(path) = &self.password_file else { return Ok(None) };
        let text = std::fs::read_to_string(path).map_err(|error| {
            Error::new(ErrorKind::Config, format!("password_file {} cannot be read", path.display())).because(error)
        })?;
        Ok(text.lines().next().map(str::to_owned))
    }
}

impl Default for TransactionConfig {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            acknowledge: Acknowledge::Applied,
            apply_wait: Duration::from_secs(5),
            lock_timeout: None,
            retries: 5,
        }
    }
}

impl TransactionConfig {
    /// The lock timeout in force: below the deadline, so that a deadlock between two databases breaks.
    pub fn effective_lock_timeout(&self) -> Duration {
        self.lock_timeout.unwrap_or(self.timeout / 2)
    }
}

impl Default for RecoveryConfig {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(60),
            backoff_min: Duration::from_millis(100),
            backoff_max: Duration::from_secs(30),
            statement_timeout: Duration::from_secs(10),
            open_wait: Duration::from_secs(10),
        }
    }
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self { size: 16, connect_timeout: Duration::from_secs(5) }
    }
}

fn segment_bytes() -> u64 {
    16 * 1024 * 1024
}

fn yes() -> bool {
    true
}

fn from_text<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: FromStr<Err: fmt::Display>,
    D: Deserializer<'de>,
{
    String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
}

fn acknowledge<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Acknowledge, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "applied" => Ok(Acknowledge::Applied),
        "decided" => Ok(Acknowledge::Decided),
        other => Err(de::Error::custom(format!("{other:?} is not \"applied\" or \"decided\""))),
    }
}

fn participants<'de, D>(deserializer: D) -> Result<BTreeMap<ParticipantName, ParticipantConfig>, D::Error>
where
    D: Deserializer<'de>,
{
    BTreeMap::<String, ParticipantConfig>::deserialize(deserializer)?
        .into_iter()
        .map(|(name, config)| Ok((name.parse().map_err(de::Error::custom)?, config)))
        .collect()
}

impl Config {
    /// Reads a TOML file and lays the environment (`HANDFAST__SECTION__KEY`) over it.
    ///
    /// # Errors
    /// [`ErrorKind::Config`], naming the file and the key.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = config::File::from(path).format(config::FileFormat::Toml);
        let environment =
            config::Environment::with_prefix("HANDFAST").prefix_separator("__").separator("__").try_parsing(true);
        let parsed = config::Config::builder()
            .add_source(file)
            .add_source(environment)
            .build()
            .and_then(config::Config::try_deserialize::<Self>);
        parsed
            .map_err(|error| Error::new(ErrorKind::Config, format!("configuration {}: {error}", path.display())))?
            .checked()
    }

    /// Reads a configuration from TOML text alone.
    ///
    /// # Errors
    /// [`ErrorKind::Config`], naming the key.
    pub fn from_toml(text: &str) -> Result<Self> {
        config::Config::builder()
            .add_source(config::File::from_str(text, config::FileFormat::Toml))
            .build()
            .and_then(config::Config::try_deserialize::<Self>)
            .map_err(|error| Error::new(ErrorKind::Config, format!("configuration: {error}")))?
            .checked()
    }

    /// What serde cannot see: values that make no sense together.
    fn checked(self) -> Result<Self> {
        let wrong = |message: String| Err(Error::new(ErrorKind::Config, message));
        if self.participants.is_empty() {
            return wrong("no participant is configured: add a [participants.<name>] with kind and url".into());
        }
        if self.participants.len() > usize::from(u16::MAX) {
            return wrong("more than 65535 participants".into());
        }
        if self.transaction.timeout.is_zero() {
            return wrong("transaction.timeout is zero: nothing could commit".into());
        }
        if self.transaction.lock_timeout.is_some_and(|lock| lock >= self.transaction.timeout) {
            return wrong("transaction.lock_timeout is not below transaction.timeout: a deadlock between two databases would not break before the deadline".into());
        }
        if self.pool.size == 0 || self.participants.values().any(|p| p.pool_size == Some(0)) {
            return wrong("a pool of size 0 can serve no transaction".into());
        }
        if self.journal.segment_bytes < 64 * 1024 {
            return wrong("journal.segment_bytes is below 65536".into());
        }
        Ok(self)
    }
}
