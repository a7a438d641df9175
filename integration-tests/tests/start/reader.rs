//! Somebody who follows the page, and what they have at hand: a terminal, a second one for the databases, an editor.

use crate::page::{Command, shows};
use handfast::mysql_async::{Conn, Opts, prelude::Queryable};
use handfast::tokio_postgres::{NoTls, SimpleQueryMessage, connect};
use integration_tests::servers::{Flavor, target};
use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command as Process};
use tokio::time::timeout;

/// How long a command may take: the first one that builds compiles all that a user's program needs.
const PATIENCE: Duration = Duration::from_secs(900);
/// How often the program is killed until there is something to recover, as the page says.
const KILLS: usize = 8;

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a member of the workspace")
}

pub struct Reader {
    other: Flavor,
    home: TempDir,
    /// Where the terminal is.
    here: PathBuf,
    /// The second terminal.
    databases: Option<Databases>,
    /// The id that was printed last.
    id: Option<String>,
}

struct Databases {
    process: Child,
    ledger: String,
    orders: String,
}

impl Drop for Databases {
    /// Ctrl-C; they remove what they hold.
    fn drop(&mut self) {
        if let Some(pid) = self.process.id() {
            let _ = std::process::Command::new("kill").args(["-TERM", &pid.to_string()]).status();
            while matches!(self.process.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

impl Reader {
    pub fn new(other: Flavor) -> Self {
        let home = TempDir::new().unwrap();
        let bin = home.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        symlink(env!("CARGO_BIN_EXE_handfast-tool"), bin.join("handfast")).unwrap();
        Self { other, here: home.path().to_owned(), home, databases: None, id: None }
    }

    /// The commands of one block. What a kill leaves is not the same each time: the page says to kill once more.
    pub async fn types(&mut self, commands: &[Command]) {
        let kills = commands.iter().any(|command| command.line.starts_with("timeout -s KILL"));
        let tries = if kills { KILLS } else { 1 };
        let mut last = String::new();
        'again: for _ in 0..tries {
            for command in commands {
                if let Err(other) = self.try_out(command).await {
                    last = other;
                    continue 'again;
                }
            }
            return;
        }
        panic!("{last}");
    }

    async fn try_out(&mut self, command: &Command) -> Result<(), String> {
        let words: Vec<_> = command.line.split(' ').collect();
        match words[..] {
            // What it would install is built with this test.
            ["cargo", "install", "handfast", "--features", "cli"] => Ok(()),
            ["handfast", "servers"] => self.starts_databases(command).await,
            ["cd", folder] => {
                self.here = self.here.join(folder);
                // Not to compile the same again for each test.
                let shared = target().join("readme");
                std::fs::create_dir_all(&shared).unwrap();
                symlink(shared, self.here.join("target")).unwrap();
                std::fs::copy(root().join("Cargo.lock"), self.here.join("Cargo.lock")).unwrap();
                Ok(())
            }
            _ => {
                let output = self.ran(&command.line).await;
                self.compares(command, &output)
            }
        }
    }

    async fn ran(&self, line: &str) -> Output {
        let line = line.replace(" ID", &format!(" {}", self.id.as_deref().unwrap_or("ID")));
        let mut shell = self.process("sh");
        shell.arg("-c").arg(&line).current_dir(&self.here);
        timeout(PATIENCE, shell.output()).await.unwrap_or_else(|_| panic!("endless: {line}")).unwrap()
    }

    fn compares(&mut self, command: &Command, output: &Output) -> Result<(), String> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (printed, complained) = (text(&output.stdout), text(&output.stderr));
        self.id = printed.lines().rev().find_map(id_in).or(self.id.take());
        let status = output.status;
        let is_killed = command.line.starts_with("timeout -s KILL") && killed(status);
        let is_it = is_killed || status.code() == Some(command.exit_code);
        let is_shown = shows(&command.prints, &printed);
        (is_it && is_shown).then_some(()).ok_or_else(|| {
            format!("$ {}\n{printed}{complained}{status}, where the page has {command:#?}", command.line)
        })
    }

    async fn starts_databases(&mut self, command: &Command) -> Result<(), String> {
        let mut tool = self.process("handfast");
        // Servers are found as from a checkout: MySQL is nowhere else.
        tool.arg("servers").current_dir(root()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = tool.spawn().unwrap();
        let mut printed = String::new();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut errors = BufReader::new(process.stderr.take().unwrap()).lines();
        // Its last words when all of them run.
        while let Some(line) = timeout(PATIENCE, errors.next_line()).await.expect("they start").unwrap() {
            if line.starts_with("Ctrl-C") {
                break;
            }
        }
        while let Ok(Ok(Some(line))) = timeout(Duration::from_millis(200), lines.next_line()).await {
            printed += &format!("{line}\n");
        }
        let url = |product: &str| {
            let after = printed.split(product).nth(1).unwrap_or_else(|| panic!("no {product}: {printed}"));
            after.lines().nth(1).unwrap().trim().to_owned()
        };
        let (ledger, orders) = (url(Flavor::Postgres.product()), url(self.other.product()));
        self.databases = Some(Databases { process, ledger, orders });
        shows(&command.prints, &printed).then_some(()).ok_or(printed)
    }

    /// A program of the page's, with nothing of this one's environment that it would listen to.
    fn process(&self, program: &str) -> Process {
        let bin = self.home.path().join("bin");
        let mut path = OsString::from(&bin);
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        let mut process = Process::new(if program == "handfast" { bin.join(program) } else { program.into() });
        process.env("PATH", path).env("CARGO_NET_OFFLINE", "true").env_remove("CARGO_TARGET_DIR");
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("HANDFAST_") && !text.ends_with("_ROOT") {
                process.env_remove(&name);
            }
        }
        process.stdin(Stdio::null()).kill_on_drop(true);
        process
    }

    /// Two words are not the page's: where the library is, and the ports.
    pub fn writes(&self, name: &str, text: &str) {
        let path = self.here.join(name);
        let text = match name {
            "Cargo.toml" => {
                let published = "handfast = \"0.1\"";
                assert!(env!("CARGO_PKG_VERSION").starts_with("0.1.") && text.contains(published), "{text}");
                let here = text.replace(published, &format!("handfast = {{ path = {:?} }}", root()));
                // "At the end of".
                std::fs::read_to_string(&path).unwrap() + &here
            }
            "config/handfast.toml" => {
                let databases = self.databases.as_ref().expect("they were started");
                let with = |text: String, url: &str| text.replacen("PORT", &port(url), 1);
                with(with(text.to_owned(), &databases.ledger), &databases.orders)
            }
            _ => text.to_owned(),
        };
        std::fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    /// Statements in a database; the values that they return.
    pub async fn runs(&self, participant: &str, sql: &str) -> Vec<String> {
        let databases = self.databases.as_ref().expect("they were started");
        if participant == "ledger" {
            let (client, connection) = connect(&databases.ledger, NoTls).await.unwrap();
            tokio::spawn(connection);
            let value = |answer: SimpleQueryMessage| match answer {
                SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                _ => None,
            };
            return client.simple_query(sql).await.unwrap().into_iter().filter_map(value).collect();
        }
        let mut session = Conn::new(Opts::from_url(&databases.orders).unwrap()).await.unwrap();
        let values = session.query(sql).await.unwrap();
        session.disconnect().await.unwrap();
        values
    }
}

/// SIGKILL, as it is or as a shell passes it on.
fn killed(status: ExitStatus) -> bool {
    status.signal() == Some(9) || status.code() == Some(128 + 9)
}

fn port(url: &str) -> String {
    let (_, rest) = url.split_once("127.0.0.1:").unwrap_or_else(|| panic!("{url}"));
    rest.split('/').next().unwrap().to_owned()
}

/// The id with which a line begins.
fn id_in(line: &str) -> Option<String> {
    let first = line.split(' ').next()?;
    first.parse::<handfast::TransactionId>().is_ok().then(|| first.to_owned())
}
