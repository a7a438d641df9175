//! The guardian: a small shell process between a program and its server.
//!
//! A program that is killed cannot tidy up. So the server is the child of a `sh` that listens on a pipe which only
//! the program holds: when the pipe closes, on drop, panic, Ctrl-C or `kill -9` alike, the guardian ends the server
//! and removes its directory. It creates the directory too, so there is no moment in which one could be left behind.
//! It has a process group of its own: a terminal's Ctrl-C does not reach it or the server.

use super::process::User;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const SCRIPT: &str = include_str!("guardian.sh");

/// The program's end of a guardian. Its calls block, for as long as the guardian needs.
#[derive(Debug)]
pub(super) struct Guardian {
    child: Child,
    /// `Some` until drop, which closes it.
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    directory: PathBuf,
}

impl Guardian {
    /// Starts a guardian, which creates `directory`. `last_signal` is what ends its server at once and tidily.
    pub(super) fn start(directory: PathBuf, last_signal: &str, user: Option<User>) -> io::Result<Self> {
        let mut command = Command::new("sh");
        command
            // By the environment, so that lists of processes show one short line.
            .args(["-c", r#"eval "$HANDFAST_GUARDIAN""#, "guardian"])
            .arg(&directory)
            .arg(last_signal)
            // Nothing of the caller's environment may reach a server: PGPORT, MYSQL_HOME, LC_ALL and their like.
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin:/usr/sbin:/sbin".into()))
            .env("HANDFAST_GUARDIAN", SCRIPT)
            .env("LC_ALL", "C")
            .env("HOME", &directory)
            // MariaDB servers that share a TMPDIR delete each other's temporary tables when they start.
            .env("TMPDIR", directory.join("tmp"))
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0);
        if let Some(user) = user {
            command.uid(user.uid).gid(user.gid);
        }
        let mut child = command.spawn()?;
        let orders = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().expect("stdout was asked to be a pipe"));
        let mut guardian = Self { child, orders, answers, directory };
        match guardian.answer()?.as_str() {
            "ready" => Ok(guardian),
            refusal => Err(io::Error::other(refusal.to_owned())),
        }
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Runs a shell script of the directory; returns its process id.
    pub(super) fn run(&mut self, file: &str) -> io::Result<u32> {
        let answer = self.order(&format!("start {file}"))?;
        answer
            .parse()
            .map_err(|_| io::Error::other(format!("the guardian answered {answer:?} in place of a process id")))
    }

    /// Sends a signal to processes. Those that are gone already are passed over.
    pub(super) fn signal(&mut self, signal: &str, pids: &[u32]) -> io::Result<()> {
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        self.order(&format!("signal {signal} {}", pids.join(" "))).map(drop)
    }

    /// Waits for the end of what was started; returns its exit status as the shell tells it.
    pub(super) fn wait(&mut self) -> io::Result<u32> {
        let answer = self.order("wait")?;
        answer.parse().map_err(|_| io::Error::other(format!("the guardian answered {answer:?} in place of a status")))
    }

    fn order(&mut self, order: &str) -> io::Result<String> {
        let orders = self.orders.as_mut().expect("orders are taken in drop only");
        orders.write_all(format!("{order}\n").as_bytes())?;
        self.answer()
    }

    fn answer(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.answers.read_line(&mut line)? {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server's guardian is gone")),
            _ => Ok(line.trim_end().to_owned()),
        }
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        self.orders = None;
        // Who drops a server may rely on it and its directory being gone.
        let _ = self.child.wait();
    }
}
