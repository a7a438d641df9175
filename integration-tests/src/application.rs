//! The program `application` as a child process that tests kill.

use crate::servers::ConfigBuilder;
use handfast::{Outcome, TransactionId};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A running application. It is killed when this is dropped.
pub struct Application {
    child: Child,
    output: PathBuf,
    directory: TempDir,
}

/// What an application says of one transaction.
#[derive(Debug, Clone, Copy)]
pub struct Said {
    /// Its id.
    pub id: TransactionId,
    /// What it was told, if it was told anything.
    pub answer: Option<Outcome>,
}

impl Application {
    /// Starts `program`: `env!("CARGO_BIN_EXE_application")`. See there for the numbers.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(program: &str, config: &ConfigBuilder, first_key: i32, tasks: u32, limit: u32) -> Self {
        let directory = TempDir::new().expect("a directory");
        let (file, output) = (directory.path().join("handfast.toml"), directory.path().join("output"));
        config.write(&file);
        let child = Command::new(program)
            .arg(&file)
            .args([first_key.to_string(), tasks.to_string(), limit.to_string()])
            .stdin(Stdio::piped())
            .stdout(File::create(&output).expect("a file"))
            .stderr(File::create(directory.path().join("errors")).expect("a file"))
            .spawn()
            .unwrap_or_else(|error| panic!("{program}: {error}"));
        Self { child, output, directory }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// All whole lines that it has printed.
    ///
    /// # Panics
    /// When they cannot be read.
    pub fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.output).expect("its output");
        text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).map(str::to_owned).collect()
    }

    /// Whether it has printed a line that begins so.
    pub fn has_said(&self, start: &str) -> bool {
        self.lines().iter().any(|line| line.starts_with(start))
    }

    /// What it printed as its errors.
    ///
    /// # Panics
    /// When they cannot be read.
    pub fn errors(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("errors")).expect("its errors")
    }

    /// The transactions that it began, by key.
    ///
    /// # Panics
    /// When it printed something else.
    pub fn transactions(&self) -> BTreeMap<i32, Said> {
        let mut said = BTreeMap::new();
        for line in self.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let [what, key, id] = fields.as_slice() else { continue };
            let answer = match *what {
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

    /// SIGKILL. When this returns it is gone.
    ///
    /// # Panics
    /// When it cannot be waited for.
    pub fn kill(&mut self) {
        // An error: it is gone already.
        let _ = self.child.kill();
        self.child.wait().expect("a child can be waited for");
    }

    /// The directory of its files.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        self.kill();
    }
}
