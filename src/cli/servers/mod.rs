//! Throwaway database servers, from what is installed on this machine: for `handfast demo` and for the tests.
//!
//! [`Installation::find`] looks for the programs, [`Server::start`] runs one server in a temporary directory of its
//! own, on a free port of the loopback interface. The servers are small but as durable as real ones, since the point
//! of them is to be killed: [`Server::kill`] is a crash, [`Server::restart`] brings the server back on the same port
//! with the same data.
//!
//! Nothing outlives the program that started it. Each server is the child of a guardian (see `guardian.rs`), which
//! ends it and removes its directory as soon as the program is gone, however it went.
//!
//! Root is refused by PostgreSQL: as root we run it as the user `postgres`, else `nobody`. Everything else runs as we
//! do.

mod data;
mod guardian;
mod installation;
mod mysql;
mod postgres;
mod process;

pub use installation::Installation;
pub use process::is_running;

use crate::error::{Error, ErrorKind, Result};
use guardian::Guardian;
use process::User;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a server may take to start, to stop, or to recover from a crash.
const PATIENCE: Duration = Duration::from_secs(90);

/// How often a condition is looked at while we wait for it.
const GLANCE: Duration = Duration::from_millis(25);

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

/// A running server, or one that was stopped or killed. It ends, and its directory goes, with this value.
///
/// The methods that wait need a tokio runtime, any: a server is not bound to the one that it was started in.
#[derive(Debug)]
pub struct Server {
    installation: Installation,
    directory: PathBuf,
    owner: Option<User>,
    port: u16,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    guardian: Guardian,
    /// The server's process, until it was reaped.
    pid: Option<u32>,
    options: Options,
    /// What [`Server::suspend`] stopped.
    suspended: Vec<u32>,
    /// Where in the log the latest start began.
    log_start: u64,
}

/// How an attempt to start ended, when it failed.
enum Failed {
    /// Something is in the way that may go: try again.
    NotYet(Error),
    /// It will not work.
    ForGood(Error),
}

impl Server {
    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    /// [`ErrorKind::Setup`], with the end of the server's log, when it does not start within 90 seconds.
    ///
    /// # Cancel safety
    /// Dropping the future ends what was started.
    pub async fn start(installation: &Installation, options: Options) -> Result<Self> {
        let copy = installation.clone();
        let mut server = blocking(move || Self::prepare(copy, options)).await?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            server.port = process::free_port();
            match server.try_launch(deadline).await {
                Ok(()) => return Ok(server),
                // Somebody else was quicker to take the port: another one.
                Err(Failed::NotYet(_)) if Instant::now() < deadline => {}
                Err(Failed::NotYet(error) | Failed::ForGood(error)) => return Err(error),
            }
        }
    }

    /// Ends the server at once, as a crash does: SIGKILL for it and all its processes.
    ///
    /// # Errors
    /// When the guardian is gone.
    ///
    /// # Cancel safety
    /// It is killed even if the future is dropped once it has been polled.
    pub async fn kill(&self) -> Result<()> {
        let state = self.state.clone();
        blocking(move || lock(&state).kill()).await
    }

    /// Stops the server in good order, without waiting for clients. Does nothing to one that does not run.
    ///
    /// # Errors
    /// When it takes more than 90 seconds; it is killed then.
    ///
    /// # Cancel safety
    /// The server was told to stop; call it again to wait.
    pub async fn stop(&self) -> Result<()> {
        self.resume().await?;
        let Some(pid) = self.pid() else { return Ok(()) };
        self.signal(if self.flavor() == Flavor::Postgres { postgres::STOP } else { mysql::STOP }, vec![pid]).await?;
        let deadline = Instant::now() + PATIENCE;
        while is_running(pid) {
            if Instant::now() > deadline {
                self.kill().await?;
                return Err(self.error(format!("did not stop within {PATIENCE:?} and was killed")));
            }
            tokio::time::sleep(GLANCE).await;
        }
        self.kill().await
    }

    /// Starts the server again on the same port with the same data, after stopping it if it runs. Waits until it
    /// answers, which means that it has recovered.
    ///
    /// # Errors
    /// [`ErrorKind::Setup`], with the end of the server's log, when it does not answer within 90 seconds.
    ///
    /// # Cancel safety
    /// The server may be running or not; call it again.
    pub async fn restart(&self) -> Result<()> {
        self.stop().await?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.try_launch(deadline).await {
                Ok(()) => return Ok(()),
                Err(Failed::NotYet(_)) if Instant::now() < deadline => tokio::time::sleep(GLANCE).await,
                Err(Failed::NotYet(error) | Failed::ForGood(error)) => return Err(error),
            }
        }
    }

    /// Adds a setting, which holds from the next [`restart`](Self::restart) on.
    pub fn set(&self, name: &str, value: &str) {
        lock(&self.state).options.settings.push((name.to_owned(), value.to_owned()));
    }

    /// Stops all its processes where they are, until [`resume`](Self::resume): connections stay open, nothing is
    /// answered.
    ///
    /// # Errors
    /// When the guardian is gone.
    ///
    /// # Cancel safety
    /// It is suspended even if the future is dropped once it has been polled.
    pub async fn suspend(&self) -> Result<()> {
        let state = self.state.clone();
        blocking(move || lock(&state).suspend()).await
    }

    /// Lets a suspended server go on.
    ///
    /// # Errors
    /// When the guardian is gone.
    ///
    /// # Cancel safety
    /// It is resumed even if the future is dropped once it has been polled.
    pub async fn resume(&self) -> Result<()> {
        let state = self.state.clone();
        blocking(move || lock(&state).resume()).await
    }

    /// The product.
    pub fn flavor(&self) -> Flavor {
        self.installation.flavor()
    }

    /// What it runs from.
    pub fn installation(&self) -> &Installation {
        &self.installation
    }

    /// The port on 127.0.0.1; it stays the same through restarts.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its process id while it was not stopped or killed. PostgreSQL: the postmaster's.
    pub fn pid(&self) -> Option<u32> {
        lock(&self.state).pid
    }

    /// Its directory: `data` and `log` are in there.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The URL of a database, as its superuser: for a participant's configuration.
    pub fn url(&self, database: &str) -> String {
        self.url_as(self.admin(), database)
    }

    /// The URL of a database as another user; none has a password.
    pub fn url_as(&self, user: &str, database: &str) -> String {
        match self.flavor() {
            Flavor::Postgres => postgres::url(user, self.port, database),
            Flavor::MariaDb | Flavor::MySql => mysql::url(user, self.port, database),
        }
    }

    /// The URL of the server's own database as superuser.
    pub fn admin_url(&self) -> String {
        self.url(self.admin_database())
    }

    /// Creates a database. The name is taken as it is: letters, digits, underscores.
    ///
    /// # Errors
    /// The server's.
    pub async fn create_database(&self, name: &str) -> Result<()> {
        self.query(self.admin_database(), &format!("CREATE DATABASE {name}")).await.map(drop)
    }

    /// Creates a user without a password, and grants it what stands between `GRANT` and `TO`, run in `database`.
    ///
    /// # Errors
    /// The server's.
    pub async fn create_user(&self, database: &str, user: &str, grants: &[&str]) -> Result<()> {
        let statements = match self.flavor() {
            Flavor::Postgres => postgres::create_user(user, grants),
            Flavor::MariaDb | Flavor::MySql => mysql::create_user(user, grants),
        };
        for statement in statements {
            self.query(database, &statement).await?;
        }
        Ok(())
    }

    /// Runs statements, separated by semicolons, in a session of its own as superuser; returns the rows of the last
    /// one as text, `None` for NULL.
    ///
    /// # Errors
    /// The server's, or [`ErrorKind::Unavailable`].
    pub async fn query(&self, database: &str, sql: &str) -> Result<Vec<Vec<Option<String>>>> {
        self.query_as(self.admin(), database, sql).await
    }

    /// The same as another user.
    ///
    /// # Errors
    /// The server's, or [`ErrorKind::Unavailable`].
    pub async fn query_as(&self, user: &str, database: &str, sql: &str) -> Result<Vec<Vec<Option<String>>>> {
        let url = self.url_as(user, database);
        match self.flavor() {
            Flavor::Postgres => postgres::query(&url, sql).await,
            Flavor::MariaDb | Flavor::MySql => mysql::query(&url, sql).await,
        }
    }

    /// The first column of the first row of [`query`](Self::query); `None` without a row or for NULL.
    ///
    /// # Errors
    /// The server's, or [`ErrorKind::Unavailable`].
    pub async fn value(&self, database: &str, sql: &str) -> Result<Option<String>> {
        Ok(self.query(database, sql).await?.into_iter().next().and_then(|row| row.into_iter().next().flatten()))
    }

    /// The end of what the server has written since its latest start.
    pub fn log_tail(&self) -> String {
        let start = lock(&self.state).log_start;
        log_since(&self.directory, start).unwrap_or_else(|error| format!("(log unreadable: {error})"))
    }
}

impl Server {
    fn admin(&self) -> &'static str {
        if self.flavor() == Flavor::Postgres { postgres::ADMIN } else { mysql::ADMIN }
    }

    fn admin_database(&self) -> &'static str {
        if self.flavor() == Flavor::Postgres { "postgres" } else { "mysql" }
    }

    /// A server's directory with its data, before its first start.
    fn prepare(installation: Installation, options: Options) -> Result<Self> {
        let flavor = installation.flavor();
        let is_postgres = flavor == Flavor::Postgres;
        let owner = (is_postgres && process::is_root()).then(|| process::first_user(postgres::USERS)).flatten();
        let directory = std::env::temp_dir().join(format!("handfast-{flavor}-{:016x}", process::random()));
        let last_signal = if is_postgres { postgres::LAST } else { mysql::LAST };
        let wrong = |what: &str, error: io::Error| {
            Error::new(ErrorKind::Setup, format!("{} in {}: {what}", flavor.product(), directory.display()))
                .because(error)
        };
        let guardian = Guardian::start(directory.clone(), last_signal, owner).map_err(|e| wrong("cannot begin", e))?;
        let directory = guardian.directory().to_owned();
        let state = State { guardian, pid: None, options, suspended: Vec::new(), log_start: 0 };
        let server = Self { installation, directory, owner, port: 0, state: Arc::new(Mutex::new(state)) };
        server.fill()?;
        Ok(server)
    }

    /// Makes the data directory, from a template where there is one.
    fn fill(&self) -> Result<()> {
        let data = self.directory.join("data");
        let failed = |error: io::Error| self.error("data directory cannot be made").because(error);
        let Some(cache) = lock(&self.state).options.cache.clone() else { return self.initialize() };
        // Two installations of one version may differ: the path is part of the name.
        let path = crc32c::crc32c(self.installation.server().as_os_str().as_bytes());
        let name = format!("{}-{}-{path:08x}", self.flavor(), self.installation.version());
        let template = data::Template::lock(&cache, &name).map_err(failed)?;
        match template.get() {
            Some(place) => data::copy(place, &data, self.owner).map_err(failed),
            None => {
                self.initialize()?;
                template.put(&data).map_err(failed)
            }
        }
    }

    fn initialize(&self) -> Result<()> {
        let words = match self.flavor() {
            Flavor::Postgres => postgres::initialize(&self.installation, &self.directory),
            Flavor::MariaDb | Flavor::MySql => mysql::initialize(&self.installation, &self.directory),
        };
        let run = || -> io::Result<u32> {
            if self.flavor() != Flavor::Postgres {
                self.write_settings()?;
                data::write(&self.directory.join(mysql::FIRST_FILE), mysql::FIRST_SQL, self.owner)?;
            }
            data::write(&self.directory.join("initialize"), &script(&words), self.owner)?;
            let mut state = lock(&self.state);
            let pid = state.guardian.run("initialize")?;
            let deadline = Instant::now() + PATIENCE;
            while is_running(pid) && Instant::now() < deadline {
                std::thread::sleep(GLANCE);
            }
            state.guardian.signal("KILL", &[pid])?;
            state.guardian.wait()
        };
        match run() {
            Ok(0) => Ok(()),
            Ok(status) => Err(self.error(format!("initialisation ended with status {status}"))),
            Err(error) => Err(self.error("initialisation failed").because(error)),
        }
    }

    fn write_settings(&self) -> io::Result<()> {
        let options = lock(&self.state).options.clone();
        let (file, text) = match self.flavor() {
            Flavor::Postgres => (postgres::SETTINGS_FILE, postgres::settings(self.port, &options)),
            Flavor::MariaDb | Flavor::MySql => {
                (mysql::SETTINGS_FILE, mysql::settings(&self.installation, &self.directory, self.port, &options))
            }
        };
        data::write(&self.directory.join(file), &text, self.owner)
    }

    /// Runs the server and waits until it answers.
    async fn try_launch(&self, deadline: Instant) -> Result<(), Failed> {
        self.launch().map_err(|error| Failed::ForGood(self.error("cannot be run").because(error)))?;
        loop {
            if self.is_this_server().await {
                return Ok(());
            }
            if !self.pid().is_some_and(is_running) {
                self.kill().await.map_err(Failed::ForGood)?;
                return Err(self.why_it_ended());
            }
            if Instant::now() > deadline {
                return Err(Failed::ForGood(self.error(format!("does not answer after {PATIENCE:?}"))));
            }
            tokio::time::sleep(GLANCE).await;
        }
    }

    fn launch(&self) -> io::Result<()> {
        let words = match self.flavor() {
            Flavor::Postgres => postgres::serve(&self.installation, &self.directory),
            Flavor::MariaDb | Flavor::MySql => mysql::serve(&self.installation, &self.directory),
        };
        self.write_settings()?;
        data::write(&self.directory.join("serve"), &script(&words), self.owner)?;
        let mut state = lock(&self.state);
        state.log_start = fs::metadata(self.directory.join("log")).map_or(0, |log| log.len());
        state.pid = Some(state.guardian.run("serve")?);
        Ok(())
    }

    /// Whether what answers on the port is this very server, not one that took the port before it.
    async fn is_this_server(&self) -> bool {
        let which = if self.flavor() == Flavor::Postgres { postgres::WHICH } else { mysql::WHICH };
        let answer = tokio::time::timeout(Duration::from_secs(5), self.value(self.admin_database(), which)).await;
        let Ok(Ok(Some(place))) = answer else { return false };
        let canonical = |path: &Path| path.canonicalize().ok();
        let ours = canonical(&self.directory.join("data"));
        ours.is_some() && canonical(Path::new(&place)) == ours
    }

    fn why_it_ended(&self) -> Failed {
        let not_yet = if self.flavor() == Flavor::Postgres { postgres::NOT_YET } else { mysql::NOT_YET };
        let log = self.log_tail();
        let error = self.error("ended before it answered");
        if not_yet.iter().any(|sign| log.contains(sign)) { Failed::NotYet(error) } else { Failed::ForGood(error) }
    }

    async fn signal(&self, signal: &'static str, pids: Vec<u32>) -> Result<()> {
        let state = self.state.clone();
        blocking(move || lock(&state).guardian.signal(signal, &pids).map_err(guardian_gone)).await
    }

    fn error(&self, what: impl fmt::Display) -> Error {
        let (product, version) = (self.flavor().product(), self.installation.version());
        let message = format!("the throwaway {product} {version} {what}; its log ends:\n{}", self.log_tail());
        Error::new(ErrorKind::Setup, message)
    }
}

impl State {
    fn kill(&mut self) -> Result<()> {
        let Some(pid) = self.pid else { return Ok(()) };
        let mut end = || -> io::Result<()> {
            // Stopped first: it can start no further process while we look for those it has.
            self.guardian.signal("STOP", &[pid])?;
            let mut all = vec![pid];
            all.extend(process::children(pid));
            self.guardian.signal("KILL", &all)?;
            self.guardian.wait().map(drop)
        };
        end().map_err(guardian_gone)?;
        self.pid = None;
        self.suspended.clear();
        Ok(())
    }

    fn suspend(&mut self) -> Result<()> {
        let Some(pid) = self.pid else { return Ok(()) };
        self.guardian.signal("STOP", &[pid]).map_err(guardian_gone)?;
        self.suspended = vec![pid];
        self.suspended.extend(process::children(pid));
        self.guardian.signal("STOP", &self.suspended).map_err(guardian_gone)
    }

    fn resume(&mut self) -> Result<()> {
        let suspended = std::mem::take(&mut self.suspended);
        if suspended.is_empty() {
            return Ok(());
        }
        self.guardian.signal("CONT", &suspended).map_err(guardian_gone)
    }
}

fn guardian_gone(error: io::Error) -> Error {
    Error::new(ErrorKind::Setup, "the throwaway server's guardian does not answer").because(error)
}

/// A panic elsewhere does not make the guardian's pipe unusable.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs what blocks where it disturbs nobody.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Error::new(ErrorKind::Setup, "a task about a throwaway server was lost").because(error)),
    }
}

/// A shell script that becomes this command. One that is not UTF-8 cannot be written; such paths are not supported.
fn script(words: &[OsString]) -> String {
    let quoted = words.iter().map(|word| format!("'{}'", word.to_string_lossy().replace('\'', r"'\''")));
    format!("exec {}\n", quoted.collect::<Vec<_>>().join(" "))
}

/// The last 4 KiB of the log from `start` on.
fn log_since(directory: &Path, start: u64) -> io::Result<String> {
    let path = directory.join("log");
    if !path.exists() {
        return Ok(String::new());
    }
    let mut log = File::open(path)?;
    let length = log.metadata()?.len();
    log.seek(SeekFrom::Start(start.max(length.saturating_sub(4096))))?;
    let mut bytes = Vec::new();
    log.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_quote_every_word() {
        let words = ["/a b/mysqld".into(), "--x='$HOME'".into()];
        assert_eq!(script(&words), "exec '/a b/mysqld' '--x='\\''$HOME'\\'''\n");
    }
}
