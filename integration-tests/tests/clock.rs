//! The wall clock jumps two hours, of the program and of both servers, forwards and backwards: during a transaction,
//! while a branch is left behind, between a crash and its recovery. Nothing that is promised depends on it.
//!
//! The servers' clocks are moved by libfaketime. Where that is missing, which is said, only the program's jumps.

#![cfg(feature = "torture")]

use handfast::{Bridge, Outcome, torture::shift_clock};
use integration_tests::each_pair;
use integration_tests::servers::{self, Flavor, Server, options};
use integration_tests::torture::{Tally, pair};
use integration_tests::world::{Home, Program, World, eventually, insert, settled};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};
use tempfile::TempDir;
use tokio::sync::Mutex;

/// A machine that is busy is no fault to be found here.
const PATIENT: &str =
    "[transaction]\ntimeout = \"60s\"\n[recovery]\nstatement_timeout = \"20s\"\nopen_wait = \"60s\"\n";
const HOURS: i64 = 2 * 3600;
/// The clock of a process is one: tests that move it take turns.
static CLOCK: Mutex<()> = Mutex::const_new(());

fn library() -> Option<PathBuf> {
    let found = [
        "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
        "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
    ];
    let found = found.iter().map(PathBuf::from).find(|path| path.exists());
    if found.is_none() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: the servers' clocks do not jump: install libfaketime");
    }
    found
}

/// What the clocks of program and servers are told by.
struct Clocks {
    directory: TempDir,
    library: Option<PathBuf>,
}

impl Clocks {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        // PostgreSQL runs as another user.
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let clocks = Self { directory, library: library() };
        clocks.jump(0);
        clocks
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("clock")
    }

    fn jump(&self, seconds: i64) {
        let new = self.directory.path().join("new");
        std::fs::write(&new, format!("{seconds:+}\n")).unwrap();
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o644)).unwrap();
        std::fs::rename(new, self.file()).unwrap();
        shift_clock(seconds);
    }

    /// A server that runs by these clocks; where it cannot, which is said, one that runs by the machine's.
    async fn server(&self, flavor: Flavor) -> Home {
        let Some(library) = &self.library else { return Home::shared(flavor).await };
        let file = self.file();
        let options = options()
            .with_environment("LD_PRELOAD", &library.display().to_string())
            .with_environment("FAKETIME_TIMESTAMP_FILE", &file.display().to_string())
            .with_environment("FAKETIME_CACHE_DURATION", "1")
            .with_environment("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .with_environment("DONT_FAKE_MONOTONIC", "1");
        match Server::start(&servers::installation(flavor), options).await {
            Ok(server) => Home::Own(Box::new(server)),
            Err(error) => {
                let _ = writeln!(std::io::stderr(), "SKIPPED: the clock of {flavor} does not jump: {}", error.chain());
                Home::shared(flavor).await
            }
        }
    }
}

/// The servers' clocks do jump, or this would test nothing.
async fn has_jumped(world: &World, seconds: i64) {
    let questions = ["SELECT floor(extract(epoch FROM clock_timestamp()))::bigint", "SELECT UNIX_TIMESTAMP()"];
    let own = world.sides().into_iter().zip(questions).filter(|(side, _)| matches!(side.server, Home::Own(_)));
    for (side, question) in own {
        eventually(&format!("the clock of {} is {seconds} s ahead", side.name), async || {
            let shown: i64 = side.value(question).await.unwrap().parse().unwrap();
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
            (shown - i64::try_from(now).unwrap() - seconds).abs() < 600
        })
        .await;
    }
}

/// In the middle of a transaction, before its commit.
async fn during(world: &World, clocks: &Clocks, seconds: i64, key: i32) -> Result<(), String> {
    let bridge = world.open_with(PATIENT).await;
    let tx = insert(&bridge, key).await;
    clocks.jump(seconds);
    has_jumped(world, seconds).await;
    let id = tx.id();
    tx.commit().await.map_err(|error| format!("{:?}: {}", error.outcome(), error.cause().chain()))?;
    let again = insert(&bridge, key + 1).await;
    clocks.jump(0);
    again.commit().await.map_err(|error| format!("back: {:?}", error.outcome()))?;
    // As of the last pass: the next one has it.
    eventually("nobody is missed, and nothing in doubt", async || {
        let status = bridge.status();
        status.participants.iter().all(|one| one.reachable) && status.in_doubt == 0
    })
    .await;
    if settled(&bridge, id).await != Outcome::Committed {
        return Err("another outcome".into());
    }
    bridge.close().await.map_err(|error| error.chain())?;
    world.is_on_both(key).await;
    world.is_on_both(key + 1).await;
    Ok(())
}

/// `handfast list` beside it: no panic, no age below nothing.
fn list(config: &Path) -> Result<(), String> {
    let tool = Command::new(env!("CARGO_BIN_EXE_handfast-tool"))
        .arg("--config")
        .arg(config)
        .args(["--format", "json", "list"])
        .output();
    let tool = tool.unwrap();
    let text = String::from_utf8_lossy(&tool.stdout).into_owned();
    if tool.status.code() == Some(3)
        && text.contains("age_")
        && !text.contains("_seconds\":-")
        && !text.contains("_seconds\": -")
    {
        return Ok(());
    }
    Err(format!("list ends with {:?}: {text}{}", tool.status.code(), String::from_utf8_lossy(&tool.stderr)))
}

/// Between a crash, which leaves one side committed and the other prepared, and the recovery.
async fn between(world: &World, clocks: &Clocks, seconds: i64, key: i32) -> Result<(), String> {
    let no_commit = world.orders.proxy.on(world.orders.words().commit).every().cut();
    let program = Program::start(world.config(PATIENT)).await;
    let id = program.begin_commit(key).await;
    no_commit.fired().await;
    eventually("it is committed at the other side", async || world.ledger.has(key).await).await;
    program.crash().await;
    clocks.jump(seconds);
    has_jumped(world, seconds).await;
    let file = clocks.directory.path().join("handfast.toml");
    world.builder(PATIENT).write(&file);
    list(&file)?;
    no_commit.disarm();
    let bridge =
        Bridge::open(world.config(&format!("{PATIENT}interval = \"100ms\"\n"))).await.map_err(|error| error.chain())?;
    if settled(&bridge, id).await != Outcome::Committed {
        return Err("another outcome".into());
    }
    world.is_on_both(key).await;
    eventually("the earlier openings are settled", async || bridge.status().unsettled == 0).await;
    clocks.jump(0);
    let tx = insert(&bridge, key + 1).await;
    tx.commit().await.map_err(|error| format!("afterwards: {:?}", error.outcome()))?;
    bridge.close().await.map_err(|error| error.chain())?;
    world.is_on_both(key + 1).await;
    Ok(())
}

each_pair! {
    async fn the_clock_jumps(other) {
        let _alone = CLOCK.lock().await;
        let clocks = Clocks::new();
        let world = World::on(clocks.server(Flavor::Postgres).await, clocks.server(other).await).await;
        let tally = Tally::new("the clock jumps", pair(other));
        for (seconds, key) in [(HOURS, 0), (-HOURS, 10)] {
            tally.case(format!("{seconds} s during a transaction"), during(&world, &clocks, seconds, key).await);
            clocks.jump(0);
            tally.case(format!("{seconds} s before recovery"), between(&world, &clocks, seconds, key + 5).await);
            clocks.jump(0);
        }
        tally.finish();
    }
}
