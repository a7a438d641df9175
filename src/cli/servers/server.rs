//! A server as its owner handles it.

use super::launch::Failed;
use super::process::{self, User};
use super::state::{State, blocking, lock, log_since};
use super::{Flavor, GLANCE, Installation, Options, PATIENCE, is_running, mysql, postgres};
use crate::error::Result;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// A running server, or one that was stopped or killed. It ends, and its directory goes, with this value.
///
/// The methods that wait need a tokio runtime, any: a server is not bound to the one that it was started in.
#[derive(Debug)]
pub struct Server {
    pub(super) installation: Installation,
    pub(super) directory: PathBuf,
    pub(super) owner: Option<User>,
    pub(super) port: u16,
    pub(super) state: Arc<Mutex<State>>,
}

impl Server {
    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    /// [`ErrorKind::Setup`](crate::ErrorKind::Setup), with the end of the server's log, when it does not start within 90 seconds.
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
    /// [`ErrorKind::Setup`](crate::ErrorKind::Setup), with the end of the server's log, when it does not answer within 90 seconds.
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
    /// The server's, or [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable).
    pub async fn query(&self, database: &str, sql: &str) -> Result<Vec<Vec<Option<String>>>> {
        self.query_as(self.admin(), database, sql).await
    }

    /// The same as another user.
    ///
    /// # Errors
    /// The server's, or [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable).
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
    /// The server's, or [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable).
    pub async fn value(&self, database: &str, sql: &str) -> Result<Option<String>> {
        Ok(self.query(database, sql).await?.into_iter().next().and_then(|row| row.into_iter().next().flatten()))
    }

    /// The end of what the server has written since its latest start.
    pub fn log_tail(&self) -> String {
        let start = lock(&self.state).log_start;
        log_since(&self.directory, start).unwrap_or_else(|error| format!("(log unreadable: {error})"))
    }
}
