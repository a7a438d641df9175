//! From an installation to a server that answers: the directory, the data, the process, the first answer.

use super::guardian::Guardian;
use super::state::{State, blocking, guardian_gone, lock};
use super::{Flavor, GLANCE, Installation, Options, PATIENCE, Server, data, is_running, mysql, postgres, process};
use crate::error::{Error, ErrorKind, Result};
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How an attempt to start ended, when it failed.
pub(super) enum Failed {
    /// Something is in the way that may go: try again.
    NotYet(Error),
    /// It will not work.
    ForGood(Error),
}

impl Server {
    pub(super) fn admin(&self) -> &'static str {
        if self.flavor() == Flavor::Postgres { postgres::ADMIN } else { mysql::ADMIN }
    }

    pub(super) fn admin_database(&self) -> &'static str {
        if self.flavor() == Flavor::Postgres { "postgres" } else { "mysql" }
    }

    /// A server's directory with its data, before its first start.
    pub(super) fn prepare(installation: Installation, options: Options) -> Result<Self> {
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
        for (name, text) in &options.files {
            let place = self.directory.join(name);
            // Before there is a data directory nothing is written to it.
            if place.parent().is_some_and(Path::is_dir) {
                data::write(&place, text, self.owner)?;
            }
        }
        data::write(&self.directory.join(file), &text, self.owner)
    }

    /// Runs the server and waits until it answers.
    pub(super) async fn try_launch(&self, deadline: Instant) -> Result<(), Failed> {
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
        let variables = lock(&self.state).options.environment.clone();
        let environment = variables.into_iter().map(|(name, value)| OsString::from(format!("{name}={value}")));
        let words: Vec<_> = [OsString::from("env")].into_iter().chain(environment).chain(words).collect();
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

    pub(super) async fn signal(&self, signal: &'static str, pids: Vec<u32>) -> Result<()> {
        let state = self.state.clone();
        blocking(move || lock(&state).guardian.signal(signal, &pids).map_err(guardian_gone)).await
    }

    pub(super) fn error(&self, what: impl fmt::Display) -> Error {
        let (product, version) = (self.flavor().product(), self.installation.version());
        let message = format!("the throwaway {product} {version} {what}; its log ends:\n{}", self.log_tail());
        Error::new(ErrorKind::Setup, message)
    }
}

/// A shell script that becomes this command. One that is not UTF-8 cannot be written; such paths are not supported.
fn script(words: &[OsString]) -> String {
    let quoted = words.iter().map(|word| format!("'{}'", word.to_string_lossy().replace('\'', r"'\''")));
    format!("exec {}\n", quoted.collect::<Vec<_>>().join(" "))
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
