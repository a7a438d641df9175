//! The program `test-application` as a child process, which tests talk to and kill.

use crate::servers::ConfigBuilder;
use crate::world::PATIENCE;
use handfast::{Outcome, TransactionId};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// A running application. It is killed when this is dropped.
pub struct Application {
    child: Child,
    input: Option<ChildStdin>,
    said: watch::Receiver<Vec<String>>,
    /// How many of its lines were waited for.
    heard: usize,
    listener: JoinHandle<()>,
    errors: PathBuf,
    /// Of its files, where they are nobody else's.
    _directory: Option<TempDir>,
}

/// What an application says of one transaction.
#[derive(Debug, Clone, Copy)]
pub struct Said {
    /// Its id.
    pub id: TransactionId,
    /// What it was told, if it was told anything.
    pub answer: Option<Outcome>,
}

async fn listen(output: ChildStdout, said: watch::Sender<Vec<String>>) {
    let mut lines = BufReader::new(output).lines();
    // An error is the end, too: it was killed in the middle of a letter.
    while let Ok(Some(line)) = lines.next_line().await {
        said.send_modify(|all| all.push(line));
    }
}

impl Application {
    /// Starts `program`: `env!("CARGO_BIN_EXE_test-application")`, where what it can be told is written.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(program: &str, config: &ConfigBuilder) -> Self {
        let directory = TempDir::new().expect("a directory");
        let file = directory.path().join("handfast.toml");
        config.write(&file);
        let errors = directory.path().join("errors");
        Self { _directory: Some(directory), ..Self::start_at(program, &file, errors) }
    }

    /// Starts it with a configuration that is there; what it prints as its errors is added to a file.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_at(program: &str, config: &Path, errors: PathBuf) -> Self {
        let log = File::options().create(true).append(true).open(&errors).expect("a file");
        let mut child = Command::new(program)
            .arg(config)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{program}: {error}"));
        let (input, output) = (child.stdin.take(), child.stdout.take().expect("it was piped"));
        let (speaker, said) = watch::channel(Vec::new());
        let listener = tokio::spawn(listen(output, speaker));
        Self { child, input, said, heard: 0, listener, errors, _directory: None }
    }

    /// Starts it with work to do: keys are counted up from the first one, by so many tasks at once, for so many
    /// transactions, or without a limit for ever.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    pub async fn load(program: &str, config: &ConfigBuilder, first_key: i32, tasks: u32, limit: u32) -> Self {
        let mut application = Self::start(program, config);
        application.tell(&format!("open\nload {first_key} {tasks} {limit}")).await;
        application
    }

    /// Its process id.
    ///
    /// # Panics
    /// When it has ended.
    pub fn pid(&self) -> u32 {
        self.child.id().expect("it was not waited for")
    }

    /// Tells it to do something. What it is told after its end is lost, and shows as what it does not say.
    ///
    /// # Panics
    /// When its input was closed.
    pub async fn tell(&mut self, line: &str) {
        let input = self.input.as_mut().expect("its input was not closed");
        let _ = input.write_all(format!("{line}\n").as_bytes()).await;
    }

    /// Waits for its next line, which must begin like this; returns the rest.
    ///
    /// # Panics
    /// When it says something else, ends, or says nothing within 30 seconds.
    pub async fn says(&mut self, beginning: &str) -> String {
        let next = self.heard;
        let mut said = self.said.clone();
        let line = match timeout(PATIENCE, said.wait_for(|lines| lines.len() > next)).await {
            Ok(Ok(lines)) => lines[next].clone(),
            Ok(Err(_)) => panic!("it has ended without {beginning:?}: {}", self.errors()),
            Err(_) => panic!("no {beginning:?} within {PATIENCE:?}: {}", self.errors()),
        };
        self.heard += 1;
        let rest = line.strip_prefix(beginning).map(|rest| rest.trim().to_owned());
        rest.unwrap_or_else(|| panic!("{line:?}, not {beginning:?}: {}", self.errors()))
    }

    /// Waits until it has said something that begins like one of these, or has ended: whether it has said it.
    pub async fn has_come_to_any(&self, beginnings: &[&str]) -> bool {
        let is_one = |line: &String| beginnings.iter().any(|beginning| line.starts_with(beginning));
        self.said.clone().wait_for(|lines| lines.iter().any(is_one)).await.is_ok()
    }

    /// All lines that it has printed.
    pub fn lines(&self) -> Vec<String> {
        self.said.borrow().clone()
    }

    /// Whether it has printed a line that begins so.
    pub fn has_said(&self, start: &str) -> bool {
        self.said.borrow().iter().any(|line| line.starts_with(start))
    }

    /// What it printed as its errors.
    ///
    /// # Panics
    /// When they cannot be read.
    pub fn errors(&self) -> String {
        std::fs::read_to_string(&self.errors).expect("its errors")
    }

    /// The transactions that it began, by key.
    pub fn transactions(&self) -> BTreeMap<i32, Said> {
        let mut said = BTreeMap::new();
        for line in self.said.borrow().iter() {
            let mut fields = line.split(' ');
            let (Some(what), Some(key), Some(id)) = (fields.next(), fields.next(), fields.next()) else { continue };
            let answer = match what {
                "begun" => None,
                "Committed" => Some(Outcome::Committed),
                "RolledBack" => Some(Outcome::RolledBack),
                "InDoubt" => Some(Outcome::InDoubt),
                "Damaged" => Some(Outcome::Damaged),
                _ => continue,
            };
            let id = id.parse().expect("an id");
            said.insert(key.parse().expect("a key"), Said { id, answer });
        }
        said
    }

    /// SIGKILL. When this returns it is gone, and all is heard that it has said.
    ///
    /// # Panics
    /// When it cannot be waited for.
    pub async fn kill(&mut self) {
        self.input = None;
        // An error: it is gone already.
        let _ = self.child.start_kill();
        self.ended().await;
    }

    /// Nothing more is told to it: it closes its bridge and ends.
    pub fn hang_up(&mut self) {
        self.input = None;
    }

    /// Waits for its end; all is heard then that it has said.
    ///
    /// # Panics
    /// When it does not come.
    pub async fn ended(&mut self) -> ExitStatus {
        // Longer than anything takes that it is told to wait for.
        let status = timeout(PATIENCE * 3, self.child.wait()).await;
        let status = status.unwrap_or_else(|_| panic!("it does not end: {:#?} {}", self.lines(), self.errors()));
        (&mut self.listener).await.expect("listening does not panic");
        status.expect("a child can be waited for")
    }

    /// Lets it end in good order.
    ///
    /// # Panics
    /// When that fails.
    pub async fn end(&mut self) {
        self.hang_up();
        let status = self.ended().await;
        assert!(status.success(), "{status}: {}", self.errors());
    }
}
