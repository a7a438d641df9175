//! A client's process, from outside.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::process::{Child, ChildStdin, Command};

/// The status with which a client ends when it could not open its bridge for a reason that goes by.
pub const COULD_NOT_OPEN: i32 = 10;

/// How long a client may take to end once it is asked to.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a client ended that nobody ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// It could not open its bridge just now.
    Closed,
    /// It came to where it was to stop.
    Stopped,
    /// As it must not.
    Wrong(String),
}

/// A running client. It is killed when this is dropped.
pub struct Client {
    child: Child,
    /// At its end the client stops. Apart, since to wait for a child closes its input.
    input: Option<ChildStdin>,
    log: PathBuf,
    log_start: u64,
    /// Whether it may abort by itself.
    is_armed: bool,
}

impl Client {
    /// Starts `program` with these arguments.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(program: &Path, arguments: &[OsString], log: &Path) -> Self {
        let output = OpenOptions::new().create(true).append(true).open(log).expect("a file");
        let log_start = output.metadata().expect("a file has a length").len();
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(output.try_clone().expect("a file"))
            .stderr(output)
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let input = child.stdin.take();
        Self { child, input, log: log.to_owned(), log_start, is_armed: arguments.len() > 3 }
    }

    /// What it has said since it was started.
    pub fn said(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let start = usize::try_from(self.log_start).expect("it is short").min(log.len());
        String::from_utf8_lossy(&log[start..]).into_owned()
    }

    /// Whether its bridge is open.
    pub fn is_open(&self) -> bool {
        self.said().lines().any(|line| line == "open")
    }

    /// How it ended by itself, if it did.
    ///
    /// # Panics
    /// When it cannot be asked for.
    pub fn ended(&mut self) -> Option<End> {
        let status = self.child.try_wait().expect("a child can be asked for")?;
        Some(self.judge(status))
    }

    fn judge(&self, status: ExitStatus) -> End {
        const SIGABRT: i32 = 6;
        if status.code() == Some(COULD_NOT_OPEN) {
            End::Closed
        } else if self.is_armed && status.signal() == Some(SIGABRT) {
            End::Stopped
        } else {
            End::Wrong(format!("a client ended by itself, {status}:\n{}", self.said()))
        }
    }

    /// SIGKILL. When this returns it is gone.
    ///
    /// # Panics
    /// When it cannot be waited for.
    pub async fn kill(&mut self) {
        self.child.kill().await.expect("a child can be killed");
    }

    /// SIGSTOP or SIGCONT, `STOP` or `CONT`.
    ///
    /// # Panics
    /// When there is no program `kill`.
    pub async fn signal(&self, signal: &str) {
        // It may have ended by itself: then there is nobody to stop.
        let Some(pid) = self.child.id() else { return };
        let sent = Command::new("kill").arg(format!("-{signal}")).arg(pid.to_string()).status().await;
        sent.expect("there is a program kill");
    }

    /// Asks it to end in good order, and waits until it has. An armed one may die instead.
    ///
    /// # Errors
    /// When it does not, or takes too long.
    ///
    /// # Panics
    /// When it cannot be waited for.
    pub async fn finish(&mut self) -> Result<(), String> {
        drop(self.input.take());
        match tokio::time::timeout(PATIENCE, self.child.wait()).await {
            Err(_) => {
                self.kill().await;
                Err(format!("a client did not end within {PATIENCE:?} of being asked to:\n{}", self.said()))
            }
            Ok(status) => {
                let status = status.expect("a child can be waited for");
                match self.judge(status) {
                    End::Wrong(_) if status.success() => Ok(()),
                    End::Wrong(why) => Err(why),
                    End::Closed | End::Stopped => Ok(()),
                }
            }
        }
    }
}
