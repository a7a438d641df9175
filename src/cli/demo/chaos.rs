//! Kills the application and the servers at random moments, and starts them again.

use super::Dice;
use super::stage::Stage;
use crate::error::{Error, ErrorKind, Result};
use indicatif::ProgressBar;
use serde::Serialize;
use std::fs::OpenOptions;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::{Instant, sleep, timeout};

/// How often the application may end by itself before the demo gives up: it does so when it is started while both
/// servers are down.
const STUMBLES: u32 = 20;

/// How often each was killed.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Kills {
    pub application: u32,
    pub postgres: u32,
    pub mysql: u32,
}

impl Kills {
    fn total(self) -> u32 {
        self.application + self.postgres + self.mysql
    }
}

enum Victim {
    Application,
    Postgres,
    Mysql,
}

/// The application, and its standard input, at whose end it stops. Apart, since to wait for a child closes its input.
struct Application {
    process: Child,
    input: Option<ChildStdin>,
}

/// The one who kills.
pub struct Chaos<'a> {
    stage: &'a Stage,
    dice: Dice,
    kills: Kills,
    stumbles: u32,
}

impl<'a> Chaos<'a> {
    pub fn new(stage: &'a Stage, seed: u64) -> Self {
        Self { stage, dice: Dice::new(seed), kills: Kills::default(), stumbles: 0 }
    }

    /// Kills for as long as is said, then lets the application end in good order.
    pub async fn run(mut self, length: Duration, bar: &ProgressBar) -> Result<Kills> {
        let end = Instant::now() + length;
        let mut application = self.start()?;
        while Instant::now() < end {
            bar.set_message(format!("{} begun, {} kills", begun(self.stage), self.kills.total()));
            bar.set_position(length.as_secs() - (end - Instant::now()).as_secs());
            let pause = Duration::from_millis(150 + self.dice.roll(700));
            if timeout(pause.min(end - Instant::now()), application.process.wait()).await.is_ok() {
                application = self.stumbled().await?;
                continue;
            }
            match self.victim() {
                Victim::Application => {
                    self.kills.application += 1;
                    // SIGKILL, and waits until it is gone.
                    application.process.kill().await.map_err(broken)?;
                    application = self.start()?;
                }
                Victim::Postgres => {
                    self.kills.postgres += 1;
                    self.stage.postgres.kill().await?;
                    sleep(Duration::from_millis(self.dice.roll(300))).await;
                    self.stage.postgres.restart().await?;
                }
                Victim::Mysql => {
                    self.kills.mysql += 1;
                    self.stage.mysql.kill().await?;
                    sleep(Duration::from_millis(self.dice.roll(300))).await;
                    self.stage.mysql.restart().await?;
                }
            }
        }
        self.finish(application).await?;
        Ok(self.kills)
    }

    /// Each is killed early on; after that the dice decide.
    fn victim(&mut self) -> Victim {
        match (self.kills.total(), self.dice.roll(10)) {
            (0 | 2 | 4, _) => Victim::Application,
            (1, _) => Victim::Postgres,
            (3, _) => Victim::Mysql,
            (_, 0..=6) => Victim::Application,
            (_, 7) => Victim::Postgres,
            _ => Victim::Mysql,
        }
    }

    fn start(&mut self) -> Result<Application> {
        let log = OpenOptions::new().create(true).append(true).open(self.stage.log()).map_err(broken)?;
        let program = std::env::current_exe().map_err(broken)?;
        let mut process = Command::new(program)
            .arg("--config")
            .arg(self.stage.config_path())
            .arg("demo-application")
            .arg("--answers")
            .arg(self.stage.answers())
            .args(["--seed", &self.dice.roll(u64::MAX).to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .map_err(broken)?;
        let input = process.stdin.take();
        Ok(Application { process, input })
    }

    /// The application ended by itself.
    async fn stumbled(&mut self) -> Result<Application> {
        self.stumbles += 1;
        if self.stumbles > STUMBLES {
            let log = std::fs::read_to_string(self.stage.log()).unwrap_or_default();
            let tail: Vec<_> = log.lines().rev().take(5).collect();
            let text = format!("the application ends by itself again and again: {}", tail.join(" | "));
            return Err(Error::new(ErrorKind::Unavailable, text));
        }
        self.start()
    }

    /// Closes the application's input, on which it ends; kills it when it does not within a minute.
    async fn finish(&mut self, mut application: Application) -> Result<()> {
        drop(application.input.take());
        if timeout(Duration::from_secs(60), application.process.wait()).await.is_err() {
            application.process.kill().await.map_err(broken)?;
            return Err(Error::new(ErrorKind::TimedOut, "the application did not end within a minute of being asked"));
        }
        Ok(())
    }
}

fn begun(stage: &Stage) -> usize {
    std::fs::read_to_string(stage.answers()).map_or(0, |text| text.lines().filter(|l| l.starts_with("begun")).count())
}

fn broken(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Setup, "the demo's application cannot be run").because(error)
}
