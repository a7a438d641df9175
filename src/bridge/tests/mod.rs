//! The shell on the reference participant: every answer an application can get, and what is there afterwards.

mod anchor;
mod closing;
mod commits;
mod damage;
mod deadlines;
mod opening;
mod settling;
mod telemetry;
mod upkeep;

use super::*;
use crate::error::Error;
use crate::participant::memory::{Fault, Memory, MemoryServer, MemorySession, Step};
use crate::participant::{Evidence, Question};
use crate::protocol::Acknowledge;
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Two databases in memory and a journal on disk.
struct World {
    journal: TempDir,
    left: Arc<MemoryServer>,
    right: Arc<MemoryServer>,
}

impl World {
    fn new() -> Self {
        Self { journal: TempDir::new().unwrap(), left: MemoryServer::new(), right: MemoryServer::new() }
    }

    fn config(&self, extra: &str) -> Config {
        Config::from_toml(&format!(
            "node = \"test\"\n[journal]\ndirectory = {:?}\nsegment_bytes = 65536\n[recovery]\nbackoff_min = \"2ms\"\n\
             backoff_max = \"20ms\"\nstatement_timeout = \"300ms\"\nopen_wait = \"500ms\"\n{extra}",
            self.journal.path()
        ))
        .unwrap()
    }

    async fn try_open(&self, extra: &str) -> Result<Bridge> {
        self.open_with(extra, true).await
    }

    async fn open_with(&self, extra: &str, witness: bool) -> Result<Bridge> {
        let memory = |name: &str, server: &Arc<MemoryServer>| -> Arc<dyn Participant> {
            Arc::new(Memory::new(name.parse().unwrap(), server.clone(), witness))
        };
        let participants = vec![memory("left", &self.left), memory("right", &self.right)];
        Bridge::open_with(self.config(extra), participants).await
    }

    fn resolver(&self) -> Resolver {
        let memory = |name: &str, server: &Arc<MemoryServer>| -> Arc<dyn Participant> {
            Arc::new(Memory::new(name.parse().unwrap(), server.clone(), true))
        };
        let participants = vec![memory("left", &self.left), memory("right", &self.right)];
        Resolver::open_with(self.config(""), participants).unwrap()
    }

    async fn open(&self) -> Bridge {
        self.try_open("").await.unwrap()
    }

    fn values(&self, row: i64) -> (Option<i64>, Option<i64>) {
        (self.left.value(row), self.right.value(row))
    }

    fn nothing_held(&self, row: i64) -> bool {
        !self.left.is_locked(row) && !self.right.is_locked(row)
    }
}

/// Waits for a condition, at most ten seconds.
async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(tokio::time::Instant::now() < deadline, "{what} did not come true");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn outcome_settles(bridge: &Bridge, id: TransactionId) -> Outcome {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    loop {
        let outcome = bridge.outcome(id).await.unwrap();
        if outcome != Outcome::InDoubt {
            return outcome;
        }
        assert!(tokio::time::Instant::now() < deadline, "{id} stays in doubt: {:?}", bridge.status());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn write(tx: &Transaction, participant: &str, row: i64, value: i64) -> Result<()> {
    tx.branch::<MemorySession>(participant).await?.write(row, value).await
}

async fn write_both(bridge: &Bridge) -> Transaction {
    let tx = bridge.begin().await.unwrap();
    tokio::try_join!(write(&tx, "left", 1, 10), write(&tx, "right", 1, 20)).unwrap();
    tx
}

const WRITTEN: (Option<i64>, Option<i64>) = (Some(10), Some(20));
const UNTOUCHED: (Option<i64>, Option<i64>) = (None, None);

/// A process that is gone in the middle: its runtime is dropped with everything on it.
fn crashed(scenario: impl AsyncFnOnce()) {
    let runtime = Runtime::new().unwrap();
    runtime.block_on(scenario());
    runtime.shutdown_timeout(Duration::from_secs(5));
}

/// What a process leaves behind that dies with sessions at a server that does not notice: a branch of its own.
async fn left_at(bridge: &Bridge, member: usize, sequence: u64, row: i64) -> Box<dyn crate::participant::Branch> {
    let options = crate::participant::BeginOptions {
        mode: crate::protocol::Mode::Writer,
        isolation: crate::participant::Isolation::Default,
        lock_timeout: Duration::from_secs(1),
    };
    let branch = bridge.engine.members[member].participant.begin(bridge.engine.id(sequence), options).await.unwrap();
    branch.handle().downcast::<MemorySession>().ok().unwrap().write(row, 10).await.unwrap();
    branch
}

async fn all_settled(bridge: &Bridge) {
    eventually("earlier incarnations are settled", || bridge.status().unsettled == 0).await;
}

/// Nobody is asked any more: every question would hang.
fn nobody_answers(world: &World) {
    for server in [&world.left, &world.right] {
        (0..1000).for_each(|_| server.arm(Step::Ask, Fault::Hang));
    }
}

/// Programs open bridges on tasks of their own.
#[test]
fn opening_can_be_sent_to_another_thread() {
    fn can_be_sent<T: Send>(_: &T) {}
    let world = World::new();
    can_be_sent(&Bridge::open(world.config("")));
}
