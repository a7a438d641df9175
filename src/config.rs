//! The configuration: parsed once, valid from then on.
//!
//! [`Config::load`] reads a TOML file and lays the environment over it (`HANDFAST__PARTICIPANTS__LEDGER__URL`).
//! Unknown keys are refused, with the place and what was probably meant. `config/handfast.toml` documents every option
//! at its default; a test compares it with this file.

mod connection;
mod decision;
mod keys;
mod source;
mod units;
mod url;

pub use self::connection::{Secret, Tls};
pub use self::decision::Decision;
pub use self::source::{Source, Sources};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{NodeName, ParticipantName};
pub use crate::protocol::Acknowledge;
use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

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

/// `[journal]`
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct JournalConfig {
    /// An existing directory of this program's own, on a disk that keeps what it synced. Empty where there is none, which
    /// is right with an anchor alone.
    #[serde(default)]
    pub directory: PathBuf,
    /// The size of a segment in bytes, preallocated. The file may say it with a unit: `"16 MiB"`.
    #[serde(default = "segment_bytes", with = "units")]
    pub segment_bytes: u64,
}

/// `[transaction]`
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TransactionConfig {
    /// The deadline: a transaction that has not been decided by then is rolled back, locks included.
    #[serde(with = "humantime_serde")]
    pub timeout: Duration,
    /// Where the decision over a transaction of several writers is kept.
    #[serde(serialize_with = "text")]
    pub decision: Decision,
    /// When `commit` answers.
    #[serde(deserialize_with = "acknowledge", serialize_with = "acknowledge_text")]
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
#[derive(Debug, Clone, Deserialize, Serialize)]
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
    /// How often a bridge makes sure that it still has the lease of each participant.
    #[serde(with = "humantime_serde")]
    pub lease_interval: Duration,
    /// How long opening waits for participants that cannot be reached before it goes on without them.
    #[serde(with = "humantime_serde")]
    pub open_wait: Duration,
}

/// `[pool]`
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct PoolConfig {
    /// Sessions for each participant.
    pub size: usize,
    /// How long connecting may take.
    #[serde(with = "humantime_serde")]
    pub connect_timeout: Duration,
}

/// The kinds of database that come with Handfast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// PostgreSQL.
    Postgres,
    /// MySQL or MariaDB, told apart on connection.
    Mysql,
}

/// `[participants.<name>]`
#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ParticipantConfig {
    /// What it is.
    #[serde(deserialize_with = "kind", serialize_with = "kind_text")]
    pub kind: Kind,
    /// Where it is, as its driver writes it. A password in it is never printed.
    #[serde(serialize_with = "url_text")]
    pub url: String,
    /// The password; it replaces one in the URL. Meant for the environment: `HANDFAST__PARTICIPANTS__LEDGER__PASSWORD`.
    #[serde(default)]
    pub password: Option<Secret>,
    /// A file whose first line is the password, read anew for each connection; it replaces one in the URL.
    #[serde(default)]
    pub password_file: Option<PathBuf>,
    /// Encryption of the connection. By default `verify-full`, but for what stays on this machine: nothing for loopback
    /// addresses (`localhost`, `127.0.0.1`, `::1`), and for Unix sockets never any.
    #[serde(default)]
    pub tls: Option<Tls>,
    /// A file with the certificates of those who may sign the server's, in PEM; by default the system's. Like the next
    /// two it is read anew for each connection.
    #[serde(default)]
    pub tls_ca: Option<PathBuf>,
    /// A file with the certificate that this program shows to the server, in PEM.
    #[serde(default)]
    pub tls_certificate: Option<PathBuf>,
    /// The file with its private key, in PEM, not encrypted.
    #[serde(default)]
    pub tls_key: Option<PathBuf>,
    /// The name that the server's certificate has to be for, where it is not the URL's host.
    #[serde(default)]
    pub tls_server_name: Option<String>,
    /// Whether branches prove their commit by a witness row.
    #[serde(default = "yes")]
    pub witness: bool,
    /// Where Handfast's tables are: a schema of PostgreSQL (`public`), a database of MySQL (the URL's).
    #[serde(default)]
    pub schema: Option<String>,
    /// This participant's own pool size.
    #[serde(default)]
    pub pool_size: Option<usize>,
    /// Whether to work on a server whose settings let it forget what it has answered: `fsync = off` and the like.
    #[serde(default)]
    pub allow_unsafe: bool,
}

impl fmt::Debug for ParticipantConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParticipantConfig")
            .field("kind", &self.kind)
            .field("url", &self.url_without_password())
            .field("tls", &self.tls)
            .field("schema", &self.schema)
            .field("witness", &self.witness)
            .field("allow_unsafe", &self.allow_unsafe)
            .finish_non_exhaustive()
    }
}

impl ParticipantConfig {
    /// The URL for people: without its password, wherever the driver takes one.
    pub fn url_without_password(&self) -> String {
        url::without_password(&self.url)
    }
}

impl Default for TransactionConfig {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            decision: Decision::Journal,
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

impl Default for JournalConfig {
    fn default() -> Self {
        Self { directory: PathBuf::new(), segment_bytes: segment_bytes() }
    }
}

impl JournalConfig {
    /// Whether there is a directory at all.
    pub fn is_set(&self) -> bool {
        !self.directory.as_os_str().is_empty()
    }
}

impl Default for RecoveryConfig {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(60),
            backoff_min: Duration::from_millis(100),
            backoff_max: Duration::from_secs(30),
            statement_timeout: Duration::from_secs(10),
            lease_interval: Duration::from_secs(5),
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

fn kind<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Kind, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "postgres" => Ok(Kind::Postgres),
        "mysql" => Ok(Kind::Mysql),
        other => Err(de::Error::custom(format!("{other:?} is not \"postgres\" or \"mysql\" (for MariaDB too)"))),
    }
}

const NO_DIRECTORY: &str = "missing field `directory` in journal: decisions are kept there, unless transaction.decision \
     names the participant that keeps them";

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

fn text<S: Serializer>(value: &impl fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn acknowledge_text<S: Serializer>(value: &Acknowledge, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match value {
        Acknowledge::Applied => "applied",
        Acknowledge::Decided => "decided",
    })
}

fn kind_text<S: Serializer>(value: &Kind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match value {
        Kind::Postgres => "postgres",
        Kind::Mysql => "mysql",
    })
}

fn url_text<S: Serializer>(value: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&url::without_password(value))
}

fn by_name<S: Serializer>(
    all: &BTreeMap<ParticipantName, ParticipantConfig>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(all.iter().map(|(name, one)| (name.as_str(), one)))
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
        Self::load_with_sources(path).map(|(config, _)| config)
    }

    /// [`load`](Self::load), with the sources of what it read: for those who show a configuration.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_with_sources(path: impl AsRef<Path>) -> Result<(Self, Sources)> {
        Self::read(path.as_ref(), None)
    }

    /// With these variables in place of the environment's, if there are some.
    fn read(path: &Path, variables: Option<HashMap<String, String>>) -> Result<(Self, Sources)> {
        let file = config::File::from(path).format(config::FileFormat::Toml);
        // Not parsed into numbers and such: what they are for decides, and a password of digits is none.
        let environment =
            config::Environment::with_prefix("HANDFAST").prefix_separator("__").separator("__").source(variables);
        let parsed = parse(config::Config::builder().add_source(file).add_source(environment));
        let (config, sources) = parsed
            .map_err(|cause| Error::new(ErrorKind::Config, format!("configuration {}: {cause}", path.display())))?;
        Ok((config.checked()?, sources))
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
    /// [`ErrorKind::Config`], naming the key.
    pub fn from_toml(text: &str) -> Result<Self> {
        let text = config::File::from_str(text, config::FileFormat::Toml);
        let (config, _) = parse(config::Config::builder().add_source(text))
            .map_err(|cause| Error::new(ErrorKind::Config, format!("configuration: {cause}")))?;
        config.checked()
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

    /// What serde cannot see: values that make no sense together.
    fn checked(self) -> Result<Self> {
        let wrong = |message: String| Err(Error::new(ErrorKind::Config, message));
        if self.participants.len() > usize::from(u16::MAX) {
            return wrong("more than 65535 participants".into());
        }
        if self.transaction.timeout.is_zero() {
            return wrong("transaction.timeout is zero: nothing could commit".into());
        }
        if self.transaction.lock_timeout.is_some_and(|lock| lock >= self.transaction.timeout) {
            return wrong("transaction.lock_timeout is not below transaction.timeout: a deadlock between two databases would not break before the deadline".into());
        }
        let RecoveryConfig { interval, backoff_min, backoff_max, statement_timeout, lease_interval, .. } =
            self.recovery;
        let never_zero = [
            ("recovery.interval", interval),
            ("recovery.backoff_min", backoff_min),
            ("recovery.statement_timeout", statement_timeout),
            ("recovery.lease_interval", lease_interval),
            ("pool.connect_timeout", self.pool.connect_timeout),
        ];
        if let Some((key, _)) = never_zero.iter().find(|(_, time)| time.is_zero()) {
            return wrong(format!(
                "{key} is zero: no participant answers within no time, and none is asked without rest"
            ));
        }
        if backoff_min > backoff_max {
            return wrong("recovery.backoff_min is above recovery.backoff_max".into());
        }
        if self.pool.size == 0 || self.participants.values().any(|p| p.pool_size == Some(0)) {
            return wrong("a pool of size 0 can serve no transaction".into());
        }
        if self.journal.segment_bytes < 64 * 1024 {
            return wrong("journal.segment_bytes is below 65536".into());
        }
        let Some(anchor) = self.transaction.decision.anchor() else {
            return if self.journal.is_set() { Ok(self) } else { wrong(NO_DIRECTORY.into()) };
        };
        if self.participants.get(&anchor).is_some_and(|anchor| !anchor.witness) {
            return wrong(format!(
                "transaction.decision is {anchor}, and participants.{anchor}.witness is off: its witness is the decision"
            ));
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMAL: &str = r#"
        node = "n"
        journal.directory = "/j"
        participants.ledger = { kind = "postgres", url = "postgresql://app:secret@db1/ledger" }
    "#;

    fn refused(extra: &str) -> String {
        let error = Config::from_toml(&format!("{extra}\n{MINIMAL}")).expect_err(extra);
        assert_eq!(error.kind(), ErrorKind::Config);
        error.chain()
    }

    /// The sample documents every option, at its default.
    #[test]
    fn the_sample_says_what_the_code_does() {
        let sample = include_str!("../config/handfast.toml");
        // What is commented out as an option has to be one; what has no default in the code has none in the sample.
        let optional = ["lock_timeout", "password", "tls", "schema", "pool_size"];
        let all =
            optional.iter().fold(sample.to_owned(), |all, key| all.replace(&format!("\n# {key}"), &format!("\n{key}")));
        let all = Config::from_toml(&all).expect("every option in the sample exists");
        assert_eq!(all.transaction.lock_timeout, Some(TransactionConfig::default().effective_lock_timeout()));

        let sampled = Config::from_toml(sample).expect("the sample is valid");
        assert_eq!(format!("{:?}", sampled.transaction), format!("{:?}", TransactionConfig::default()));
        assert_eq!(format!("{:?}", sampled.recovery), format!("{:?}", RecoveryConfig::default()));
        assert_eq!(format!("{:?}", sampled.pool), format!("{:?}", PoolConfig::default()));
        assert_eq!(sampled.journal.segment_bytes, segment_bytes());
        let bare = Config::from_toml(MINIMAL).expect("the rest has defaults");
        let participant = &sampled.participants[&"ledger".parse().unwrap()];
        let default = &bare.participants[&"ledger".parse().unwrap()];
        assert_eq!((participant.witness, participant.tls), (default.witness, Some(Tls::VerifyFull)));
        assert_eq!(participant.allow_unsafe, default.allow_unsafe);
    }

    /// Every option of the code is in the sample: a new one cannot stay undocumented.
    #[test]
    fn the_sample_has_every_option() {
        let sample = include_str!("../config/handfast.toml");
        let options = Config::from_toml(sample).expect("the sample is valid").options();
        let below = |section: &str| sample.split(&format!("\n[{section}]\n")).nth(1).unwrap_or(sample);
        for option in options.iter().filter(|option| !option.starts_with("participants.orders.")) {
            let (section, key) = option.rsplit_once('.').unwrap_or(("", option));
            let documented = below(section).split("\n[").next().unwrap();
            let is_there = ["\n", "\n# "].iter().any(|at| format!("\n{documented}").contains(&format!("{at}{key} = ")));
            assert!(is_there, "config/handfast.toml does not document {option}");
        }
        assert!(options.len() >= 35, "only {} options: this test does not see them all", options.len());
    }

    #[test]
    fn unknown_keys_and_bad_values_are_named() {
        assert!(refused("transaction.timeuot = \"3s\"").contains("timeuot"));
        assert!(refused("transaction.timeout = \"3 parsecs\"").contains("timeout"));
        assert!(refused("transaction.timeout = \"0s\"").contains("transaction.timeout"));
        assert!(refused("transaction.acknowledge = \"maybe\"").contains("\"maybe\" is not \"applied\" or \"decided\""));
        assert!(refused("pool.size = 0").contains("pool of size 0"));
        for key in ["recovery.interval", "recovery.backoff_min", "recovery.statement_timeout", "pool.connect_timeout"] {
            assert!(refused(&format!("{key} = \"0s\"")).contains(key));
        }
        assert!(refused("recovery.backoff_min = \"1h\"").contains("backoff_max"));
        assert!(refused("transaction.lock_timeout = \"40s\"").contains("lock_timeout"));
        assert!(refused("journal.segment_bytes = 5").contains("65536"));
        assert!(refused("participants.Orders = { kind = \"mysql\", url = \"\" }").contains("Orders"));
        let oracle = refused("participants.o = { kind = \"oracle\", url = \"\" }");
        assert!(oracle.contains("\"oracle\" is not \"postgres\" or \"mysql\""), "{oracle}");
        assert!(refused("participants.o = { kind = \"mysql\", url = \"\", tls = \"prefer\" }").contains("tls"));
    }

    #[test]
    fn errors_quote_no_password() {
        for line in [
            "participants.o = \"mysql://app:secret@db\"",
            "participants.o = \"host=db password=secret\"",
            "participants.o.url = \"mysql://app:secret@db",
            "participants.o = { kind = \"mysql://app:secret@db\", url = \"\" }",
        ] {
            let text = refused(line);
            assert!(!text.contains("secret") && !text.contains('\n'), "{text}");
        }
    }

    /// As `Environment` passes on what it finds, which no test may change for the others.
    #[test]
    fn the_environment_is_taken_by_what_it_is_for() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("handfast.toml");
        std::fs::write(&file, MINIMAL).unwrap();
        let of = |key: &str, value: &str| (format!("HANDFAST__{key}"), value.to_owned());
        let variables = [
            of("PARTICIPANTS__LEDGER__PASSWORD", "007"),
            of("PARTICIPANTS__LEDGER__POOL_SIZE", "7"),
            of("PARTICIPANTS__LEDGER__WITNESS", "false"),
            of("TRANSACTION__TIMEOUT", "7s"),
            of("JOURNAL__SEGMENT_BYTES", "65536"),
        ];
        let (config, sources) = Config::read(&file, Some(variables.into_iter().collect())).unwrap();
        let ledger = config.participants.values().next().unwrap();
        assert_eq!(ledger.password, Some("007".into()));
        assert_eq!((ledger.pool_size, ledger.witness), (Some(7), false));
        assert_eq!((config.transaction.timeout, config.journal.segment_bytes), (Duration::from_secs(7), 65536));
        assert_eq!(sources.of("transaction.timeout"), Source::Environment);
        assert_eq!(sources.of("participants.ledger.url"), Source::File);
        assert_eq!(sources.of("transaction.retries"), Source::Default);
    }

    #[test]
    fn what_is_misspelt_is_refused_with_what_was_meant() {
        for (line, meant) in [
            ("transaction.timeuot = \"3s\"", "transaction.timeuot is unknown: did you mean transaction.timeout?"),
            ("nod = \"x\"", "nod is unknown: did you mean node?"),
            ("timeout = \"3s\"", "timeout is unknown: did you mean transaction.timeout?"),
            ("journals.directory = \"/j\"", "journals is unknown: did you mean journal?"),
            ("pool.colour = 1", "pool.colour is unknown: there are size, connect_timeout"),
            (
                "participants.o = { kind = \"mysql\", uri = \"\" }",
                "participants.o.uri is unknown: did you mean participants.o.url?",
            ),
            ("participants.legder.pool_size = 3", "participants.legder has no kind: did you mean participants.ledger?"),
        ] {
            assert_eq!(refused(line), format!("configuration: {meant}"));
        }
        let two = refused("pool.sizes = 1\nrecovery.open-wait = \"1s\"");
        assert!(two.contains("did you mean pool.size?; recovery.open-wait"), "{two}");
    }

    /// In the words of the environment, where the mistake is there.
    #[test]
    fn the_environments_misspellings_are_refused_too() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("handfast.toml");
        std::fs::write(&file, MINIMAL).unwrap();
        for (name, meant) in [
            ("TRANSACTION__TIMEUOT", "HANDFAST__TRANSACTION__TIMEOUT?"),
            ("TRANSACTOIN__TIMEOUT", "HANDFAST__TRANSACTION__..?"),
            ("PARTICIPANTS__LEDGER__PASWORD", "HANDFAST__PARTICIPANTS__LEDGER__PASSWORD?"),
            ("PARTICIPANTS__LEGDER__PASSWORD", "HANDFAST__PARTICIPANTS__LEDGER__..?"),
        ] {
            let variables = [(format!("HANDFAST__{name}"), String::from("hush"))];
            let error = Config::read(&file, Some(variables.into_iter().collect())).unwrap_err().chain();
            assert!(error.contains(&format!("did you mean {meant}")) && !error.contains("hush"), "{error}");
        }
    }

    #[test]
    fn sizes_and_times_ask_for_their_units() {
        let of = |line: &str| Config::from_toml(&format!("{line}\n{MINIMAL}")).unwrap();
        for line in ["journal.segment_bytes = 1048576", "journal.segment_bytes = \"1 MiB\""] {
            assert_eq!(of(line).journal.segment_bytes, 1 << 20);
        }
        for line in ["journal.segment_bytes = \"1 mile\"", "journal.segment_bytes = -1"] {
            let text = refused(line);
            assert!(text.contains("a size such as \"16 MiB\"") && text.contains("segment_bytes"), "{text}");
        }
        for line in ["transaction.timeout = 30", "transaction.timeout = \"30\""] {
            let text = refused(line);
            assert!(text.contains("transaction.timeout"), "{text}");
        }
    }

    /// Whoever shows a configuration shows no secret, and what he shows can be read.
    #[test]
    fn a_configuration_serializes_without_secrets() {
        let mut config = Config::from_toml(MINIMAL).unwrap();
        let ledger = config.participants.values_mut().next().unwrap();
        ledger.password = Some("hush".into());
        let shown = config::Config::try_from(&config).unwrap().cache.to_string();
        assert!(!shown.contains("secret") && !shown.contains("hush"), "{shown}");
        let options = config.options();
        for name in ["node", "journal.directory", "transaction.timeout", "participants.ledger.tls_ca"] {
            assert!(options.iter().any(|option| option == name), "{name} in {options:?}");
        }
        assert!(shown.contains("postgresql://app@db1/ledger") && shown.contains("16 MiB"), "{shown}");
    }

    /// With an anchor there is no journal to name; without one there is.
    #[test]
    fn an_anchor_needs_no_journal() {
        let of = |decision: &str, extra: &str| {
            let text = format!(
                "node = \"n\"\n{decision}\nparticipants.ledger = {{ kind = \"postgres\", url = \"u\"{extra} }}"
            );
            Config::from_toml(&text)
        };
        let anchored = of("transaction.decision = \"ledger\"", "").unwrap();
        assert_eq!(anchored.transaction.decision.anchor().map(|name| name.to_string()), Some("ledger".into()));
        assert!(!anchored.journal.is_set());
        let refused = |result: Result<Config>| result.map(|_| ()).unwrap_err().chain();
        assert!(refused(of("", "")).contains("missing field `directory`"));
        assert!(refused(of("transaction.decision = \"journal\"", "")).contains("missing field `directory`"));
        assert!(refused(of("transaction.decision = \"ledger\"", ", witness = false")).contains("witness"));
        assert!(refused(of("transaction.decision = \"Ledger!\"", "")).contains("neither"));
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Config::load("/nowhere/handfast.toml").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.chain().contains("/nowhere/handfast.toml"), "{}", error.chain());
    }

    #[test]
    fn passwords_are_never_printed() {
        let config = Config::from_toml(MINIMAL).unwrap();
        assert!(!format!("{config:?}").contains("secret"));
        let url = |url: &str| {
            let mut one = config.participants.values().next().unwrap().clone();
            one.url = url.into();
            one.url_without_password()
        };
        assert_eq!(url("mysql://app:p@ss:w@db2:3306/orders?x=y"), "mysql://app@db2:3306/orders");
        assert_eq!(url("mysql://db2/orders"), "mysql://db2/orders");
        assert_eq!(url("mysql://app:sec?ret@db2/orders"), "mysql://(hidden)");
        assert_eq!(url("postgresql://db1/ledger?password=secret"), "postgresql://db1/ledger");
        assert_eq!(url("host=db1 password=secret"), "(hidden)");
        for url in [
            url("host=db1 password=sec@ret"),
            url("postgresql://app:sec?ret@db1/ledger"),
            url("postgresql://db1/ledger?password=sec@ret"),
            url("postgresql://db1/ledger?user=app&password=secret"),
            url("postgresql://app:sec/r@et@db1/ledger?options=a@b"),
            url("postgresql://db1/ledger?password=a:sec@ret"),
        ] {
            assert!(!url.contains("sec") && !url.contains("ret"), "{url}");
        }
    }
}
