//! The program `watched` as a child, with a safeguard switched off.

use handfast::torture::Safeguard;
use handfast::{Outcome, TransactionId};
use integration_tests::world::PATIENCE;
use std::process::Stdio;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// What is switched off.
pub type Off = &'static [Safeguard];

pub fn names(off: Off) -> String {
    off.iter().map(|safeguard| safeguard.name()).collect::<Vec<_>>().join(",")
}

/// What it opens.
#[derive(Debug, Clone, Copy)]
pub enum Role {
    Bridge,
    Resolver,
}

/// A running program. It is killed when this is dropped.
pub struct Watched {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    _directory: TempDir,
}

impl Watched {
    /// Starts it; whether it has opened, or why not.
    pub async fn try_start(role: Role, config: &str, off: Off) -> Result<Self, String> {
        let directory = TempDir::new().unwrap();
        let file = directory.path().join("handfast.toml");
        std::fs::write(&file, config).unwrap();
        let role = match role {
            Role::Bridge => "bridge",
            Role::Resolver => "resolver",
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_watched"));
        command.arg(role).arg(&file).env("HANDFAST_OFF", names(off));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()).lines());
        let mut watched = Self { child, input, output, _directory: directory };
        match watched.hears().await {
            line if line == "open" => Ok(watched),
            line => Err(line),
        }
    }

    /// The same, where it has to open.
    pub async fn start(role: Role, config: &str, off: Off) -> Self {
        Self::try_start(role, config, off).await.unwrap_or_else(|line| panic!("it does not open: {line}"))
    }

    /// Tells it something without waiting for the answer.
    pub async fn tell(&mut self, line: &str) {
        self.input.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    /// What it says next.
    pub async fn hears(&mut self) -> String {
        let line = timeout(PATIENCE, self.output.next_line()).await.expect("it says something in time");
        line.unwrap().expect("it has not ended")
    }

    pub async fn ask(&mut self, line: &str) -> String {
        self.tell(line).await;
        self.hears().await
    }

    /// Begins a transaction that inserts a key on these sides.
    pub async fn begin(&mut self, key: i32, sides: &[&str]) -> TransactionId {
        let begun = self.ask("begin").await;
        for side in sides {
            assert_eq!(self.ask(&format!("{side} INSERT INTO t VALUES ({key}, 1)")).await, "ok");
        }
        begun.strip_prefix("begun ").unwrap().parse().unwrap()
    }

    /// What it was told of the transaction that it commits.
    pub async fn commit(&mut self) -> Outcome {
        self.tell("commit").await;
        self.told().await
    }

    pub async fn told(&mut self) -> Outcome {
        outcome(&self.hears().await)
    }

    /// What it finds out of a transaction.
    pub async fn outcome(&mut self, id: TransactionId) -> Outcome {
        outcome(&self.ask(&format!("outcome {id}")).await)
    }

    /// SIGKILL. When this returns it is gone.
    pub async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Ends its input and waits until it has closed all.
    pub async fn close(self) {
        let Self { mut child, input, output, _directory } = self;
        drop((input, output));
        timeout(PATIENCE, child.wait()).await.expect("it ends in time").unwrap();
    }
}

fn outcome(line: &str) -> Outcome {
    match line.split_once(' ') {
        Some(("told" | "outcome", "Committed")) => Outcome::Committed,
        Some(("told" | "outcome", "RolledBack")) => Outcome::RolledBack,
        Some(("told" | "outcome", "InDoubt")) => Outcome::InDoubt,
        Some(("told" | "outcome", "Damaged")) => Outcome::Damaged,
        _ => panic!("an outcome: {line}"),
    }
}
