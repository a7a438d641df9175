//! A small file system that is full, and one that is mounted for reading only: real ones, in a mount namespace that only
//! the application sees.

use super::PATIENT;
use handfast::Outcome;
use integration_tests::each_pair;
use integration_tests::torture::{Tally, pair};
use integration_tests::world::{World, eventually_or};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A shell in a mount namespace of its own, with a small file system in `disk`. It ends with this value.
struct Small {
    shell: Child,
    directory: TempDir,
    done: u32,
}

impl Small {
    /// `None`, said loudly, where this machine does not permit it.
    fn mount() -> Option<Self> {
        let directory = TempDir::new().unwrap();
        let disk = directory.path().join("disk");
        std::fs::create_dir(&disk).unwrap();
        let mount = format!("mount -t tmpfs -o size=320k none {}", disk.display());
        let ways = [&["--mount"][..], &["--user", "--map-root-user", "--mount"]];
        let may = |way: &&&[&str]| {
            let tried = Command::new("unshare").args(**way).args(["sh", "-c", &mount]).output();
            tried.is_ok_and(|tried| tried.status.success())
        };
        let Some(way) = ways.iter().find(may) else {
            let _ =
                writeln!(std::io::stderr(), "SKIPPED: no file system can be mounted here: injected failures stand in");
            return None;
        };
        let mut shell = Command::new("unshare");
        shell.args(*way).arg("sh").stdin(Stdio::piped()).stdout(Stdio::null());
        let shell = shell.spawn().unwrap();
        let mut small = Self { shell, directory, done: 0 };
        small.tell(&mount);
        Some(small)
    }

    fn disk(&self) -> PathBuf {
        self.directory.path().join("disk")
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.shell.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Runs a line and waits until it is done.
    async fn run(&mut self, line: &str) {
        self.done += 1;
        let sign = self.directory.path().join(format!("done-{}", self.done));
        self.tell(&format!("{line}; touch {}", sign.display()));
        eventually_or("the shell has done it", async || sign.exists(), || line.to_owned()).await;
    }

    /// Starts the application there; where it prints.
    fn start(&mut self, world: &World, name: &str, first: i32, limit: u32) -> PathBuf {
        let (config, output) = (self.directory.path().join("handfast.toml"), self.directory.path().join(name));
        world.builder_at(&self.disk(), PATIENT).write(&config);
        let program = env!("CARGO_BIN_EXE_test-application");
        // Its input ends, and with it the application, when the shell is gone.
        self.tell(&format!(
            "{{ printf 'open\\nload {first} 4 {limit}\\n'; tail -f --pid=$$ /dev/null; }} | {program} {} > {} 2>&1 & app=$!",
            config.display(),
            output.display()
        ));
        output
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

fn lines(output: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(output).unwrap_or_default();
    text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).map(str::to_owned).collect()
}

/// What was answered, by key.
fn answers(output: &Path) -> BTreeMap<i32, Outcome> {
    let answer = |line: String| {
        let mut words = line.split(' ');
        let outcome = match words.next()? {
            "Committed" => Outcome::Committed,
            "RolledBack" => Outcome::RolledBack,
            "InDoubt" => Outcome::InDoubt,
            _ => return None,
        };
        Some((words.next()?.parse().ok()?, outcome))
    };
    lines(output).into_iter().filter_map(answer).collect()
}

/// Fills up, is emptied, goes on, is killed; then everything agrees.
async fn fill(world: &World, small: &mut Small) -> Result<(), String> {
    let output = small.start(world, "output", 1, 100_000);
    let said = |start: &str| lines(&output).iter().any(|line| line.starts_with(start));
    let all = || lines(&output).join("\n");
    eventually_or("it commits", async || said("Committed"), all).await;
    small.run(&format!("cat /dev/zero > {}/filler 2>/dev/null", small.disk().display())).await;
    let refused = || lines(&output).iter().any(|line| line.starts_with("refused") && line.contains("no space"));
    while !refused() {
        let many = lines(&output).len();
        eventually_or("it goes on or begins are refused", async || refused() || lines(&output).len() > many, all).await;
    }
    let before = answers(&output).len();
    small.run(&format!("rm {}/filler", small.disk().display())).await;
    eventually_or("it goes on", async || answers(&output).len() > before + 10, all).await;
    small.run("kill -9 $app; wait $app").await;
    let next = small.start(world, "next", 200_000, 1);
    let all = || lines(&next).join("\n");
    eventually_or("it commits once more", async || answers(&next).contains_key(&200_000), all).await;
    world.nothing_is_prepared().await;
    let (ledger, orders) = (world.ledger.keys().await, world.orders.keys().await);
    if ledger != orders {
        return Err(format!("{ledger:?} and {orders:?}"));
    }
    for (key, answer) in answers(&output).into_iter().chain(answers(&next)) {
        if answer != Outcome::InDoubt && ledger.binary_search(&key).is_ok() != (answer == Outcome::Committed) {
            return Err(format!("{key} was answered {answer:?}"));
        }
        if answer == Outcome::InDoubt {
            return Err(format!("{key} is in doubt for want of space, which is looked for before"));
        }
    }
    Ok(())
}

/// Mounted for reading only, it is refused with the cure; writable again, it works.
async fn read_only(world: &World, small: &mut Small) -> Result<(), String> {
    small.run("kill -9 $app; wait $app").await;
    let disk = small.disk();
    small.run(&format!("mount -o remount,ro {}", disk.display())).await;
    let output = small.start(world, "refused", 300_000, 1);
    let says = || lines(&output).join("\n");
    let refused = async || says().contains("Read-only") && says().contains("let this user write there");
    eventually_or("it is refused", refused, says).await;
    small.run(&format!("mount -o remount,rw {}", disk.display())).await;
    let output = small.start(world, "writable", 300_001, 1);
    let all = || lines(&output).join("\n");
    eventually_or("it works", async || answers(&output).contains_key(&300_001), all).await;
    world.nothing_is_prepared().await;
    if world.ledger.has(300_000).await || !world.orders.has(300_001).await {
        return Err("something else happened".into());
    }
    Ok(())
}

each_pair! {
    async fn a_real_one_is_full_and_read_only(other) {
        let Some(mut small) = Small::mount() else { return };
        let world = World::new(other).await;
        let tally = Tally::new("the disk is full, then read-only", pair(other));
        tally.case("full", fill(&world, &mut small).await);
        tally.case("read-only", read_only(&world, &mut small).await);
        tally.finish();
    }
}
