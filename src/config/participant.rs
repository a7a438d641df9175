//! One participant.

use super::connection::{Secret, Tls};
use super::driver::Driver;
use super::texts::{kind, kind_text, url_text};
use super::url;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

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
    /// Settings by name that each session of the application has at the start of every transaction, whatever the one before
    /// did: `statement_timeout` or `search_path` of PostgreSQL, `sql_mode` of MySQL.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// The driver's own options, in place of the URL.
    #[serde(skip)]
    pub(crate) driver: Option<Driver>,
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

fn yes() -> bool {
    true
}
