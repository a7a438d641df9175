//! The products, and how a server of one is to run.

use std::fmt;
use std::path::PathBuf;

/// A product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Flavor {
    /// PostgreSQL.
    Postgres,
    /// MariaDB.
    MariaDb,
    /// MySQL.
    MySql,
}

impl Flavor {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Postgres, Self::MariaDb, Self::MySql];

    /// The name in lower case: `postgres`, `mariadb`, `mysql`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::MariaDb => "mariadb",
            Self::MySql => "mysql",
        }
    }

    /// The name as its makers write it.
    pub fn product(self) -> &'static str {
        match self {
            Self::Postgres => "PostgreSQL",
            Self::MariaDb => "MariaDB",
            Self::MySql => "MySQL",
        }
    }

    /// The `kind` of a participant in the configuration: `postgres` or `mysql`.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::MariaDb | Self::MySql => "mysql",
        }
    }
}

impl fmt::Display for Flavor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// How a server is to run.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Whether MySQL and MariaDB write a binary log, synced at each commit. Off by default.
    pub binlog: bool,
    /// Further settings of the server; later ones win over earlier ones and over the defaults.
    pub settings: Vec<(String, String)>,
    /// Files in the server's directory, by their names, written at each start: certificates, lists of who may connect.
    /// The server works in `data` below it.
    pub files: Vec<(String, String)>,
    /// Variables of the server's environment.
    pub environment: Vec<(String, String)>,
    /// A directory in which initialised data directories are kept for the next start; without one, each start
    /// initialises anew.
    pub cache: Option<PathBuf>,
}

impl Options {
    /// Adds a setting.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a file.
    #[must_use]
    pub fn with_file(mut self, name: &str, text: impl Into<String>) -> Self {
        self.files.push((name.to_owned(), text.into()));
        self
    }

    /// Adds a variable to its environment.
    #[must_use]
    pub fn with_environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Turns the binary log on.
    #[must_use]
    pub fn with_binlog(mut self) -> Self {
        self.binlog = true;
        self
    }

    /// Keeps initialised data directories in `cache`.
    #[must_use]
    pub fn with_cache(mut self, cache: impl Into<PathBuf>) -> Self {
        self.cache = Some(cache.into());
        self
    }
}
