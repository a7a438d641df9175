//! The same on databases in memory, where it takes no time: one thread, so that each poll of the application's future
//! falls between the same steps of the coordinator every time; every future, every poll, with more or less of a turn for
//! the others after each.

use crate::whole::{Dropped, attempt};
use handfast::participant::Participant;
use handfast::participant::memory::{Fault, Memory, MemoryServer, MemorySession, Step};
use handfast::resolver::Resolver;
use handfast::{Bridge, Config, Outcome, Result, Transaction, TransactionId};
use integration_tests::torture::Tally;
use integration_tests::world::eventually;
use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tempfile::TempDir;

/// So many turns the others get, at most, before a future goes on.
const TURNS: usize = 4;

/// A future that gives the others so many turns before each poll of its own.
struct Slowly<F> {
    future: Pin<Box<F>>,
    turns: usize,
    left: usize,
}

impl<F: Future> Slowly<F> {
    fn new(turns: usize, future: F) -> Self {
        Self { future: Box::pin(future), turns, left: turns }
    }
}

impl<F: Future> Future for Slowly<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.left > 0 {
            self.left -= 1;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.left = self.turns;
        self.future.as_mut().poll(context)
    }
}

struct World {
    journal: TempDir,
    servers: [Arc<MemoryServer>; 2],
}

const NAMES: [&str; 2] = ["left", "right"];

impl World {
    fn new() -> Self {
        Self { journal: TempDir::new().unwrap(), servers: [MemoryServer::new(), MemoryServer::new()] }
    }

    fn config(&self) -> Config {
        let directory = self.journal.path();
        let text = format!(
            "node = \"test\"\n[journal]\ndirectory = {directory:?}\nsegment_bytes = 65536\n[recovery]\n\
             interval = \"5ms\"\nbackoff_min = \"2ms\"\nbackoff_max = \"20ms\"\nstatement_timeout = \"300ms\"\n\
             open_wait = \"500ms\"\n"
        );
        Config::from_toml(&text).unwrap()
    }

    fn participants(&self) -> Vec<Arc<dyn Participant>> {
        let memory = |(name, server): (&str, &Arc<MemoryServer>)| -> Arc<dyn Participant> {
            Arc::new(Memory::new(name.parse().unwrap(), server.clone(), true))
        };
        NAMES.into_iter().zip(&self.servers).map(memory).collect()
    }

    async fn open(&self) -> Result<Bridge> {
        Bridge::open_with(self.config(), self.participants()).await
    }

    /// The one outcome, and both databases agree with it; nothing is prepared or locked.
    async fn agrees(&self, bridge: &Bridge, id: TransactionId, row: i64) -> Outcome {
        let outcome = Cell::new(Outcome::InDoubt);
        eventually("the outcome is certain", async || {
            outcome.set(bridge.outcome(id).await.unwrap());
            outcome.get() != Outcome::InDoubt
        })
        .await;
        let expected = (outcome.get() == Outcome::Committed).then_some(1);
        eventually("both agree and nothing is held", async || {
            let free = |server: &Arc<MemoryServer>| !server.is_locked(row) && server.prepared_names().is_empty();
            self.servers.iter().all(|server| free(server) && server.value(row) == expected)
        })
        .await;
        outcome.get()
    }

    /// Nothing runs, no session is held, and the next transaction works.
    async fn is_whole(&self, bridge: &Bridge, id: TransactionId) {
        eventually("nothing runs, no session is held", async || {
            let held = |server: &Arc<MemoryServer>| server.sessions(id.incarnation) > 0;
            bridge.status().running == 0 && !self.servers.iter().any(held)
        })
        .await;
        let next = bridge.begin().await.unwrap();
        write_both(&next, 99).await.unwrap();
        next.rollback().await.unwrap();
    }
}

async fn write(tx: &Transaction, name: &str, row: i64) -> Result<()> {
    tx.branch::<MemorySession>(name).await?.write(row, 1).await
}

async fn write_both(tx: &Transaction, row: i64) -> Result<()> {
    tokio::try_join!(write(tx, NAMES[0], row), write(tx, NAMES[1], row)).map(|_| ())
}

/// A future of the application, to be dropped.
#[derive(Debug, Clone, Copy)]
enum Call {
    Begin,
    Branch,
    Write,
    Commit,
    CommitOfOne,
    CommitWithLostAnswer,
    RollBack,
    Closure,
    Outcome,
    WaitApplied,
    Close,
    Open,
    Sweep,
    Observe,
    LookInto,
}

const CALLS: [Call; 15] = [
    Call::Begin,
    Call::Branch,
    Call::Write,
    Call::Commit,
    Call::CommitOfOne,
    Call::CommitWithLostAnswer,
    Call::RollBack,
    Call::Closure,
    Call::Outcome,
    Call::WaitApplied,
    Call::Close,
    Call::Open,
    Call::Sweep,
    Call::Observe,
    Call::LookInto,
];

/// Whether the call was dropped, or came through.
async fn case(call: Call, turns: usize, polls: usize) -> bool {
    let world = World::new();
    match call {
        Call::Open => opening(&world, turns, polls).await,
        Call::Sweep | Call::Observe | Call::LookInto => recovery(&world, call, turns, polls).await,
        Call::Close => closing(&world, turns, polls).await,
        Call::Begin | Call::Branch | Call::Write => working(&world, call, turns, polls).await,
        _ => ending(&world, call, turns, polls).await,
    }
}

async fn working(world: &World, call: Call, turns: usize, polls: usize) -> bool {
    let bridge = world.open().await.unwrap();
    let tx = bridge.begin().await.unwrap();
    let id = tx.id();
    let dropped = match call {
        Call::Begin => {
            let begun = Dropped::after(polls, Slowly::new(turns, bridge.begin())).await;
            begun.map(|begun| drop(begun.unwrap())).is_none()
        }
        Call::Branch => {
            let begun = Dropped::after(polls, Slowly::new(turns, tx.branch::<MemorySession>(NAMES[0]))).await;
            begun.map(|begun| drop(begun.unwrap())).is_none()
        }
        _ => {
            // It waits for a lock.
            let holder = bridge.begin().await.unwrap();
            write(&holder, NAMES[0], 1).await.unwrap();
            let letting_go = tokio::spawn(async move {
                tokio::task::yield_now().await;
                holder.rollback().await.unwrap();
            });
            let written = Dropped::after(polls, Slowly::new(turns, write(&tx, NAMES[0], 1))).await;
            letting_go.await.unwrap();
            written.map(|written| written.unwrap()).is_none()
        }
    };
    write_both(&tx, 1).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(world.agrees(&bridge, id, 1).await, Outcome::Committed);
    world.is_whole(&bridge, id).await;
    bridge.close().await.unwrap();
    dropped
}

async fn ending(world: &World, call: Call, turns: usize, polls: usize) -> bool {
    let bridge = world.open().await.unwrap();
    let tx = bridge.begin().await.unwrap();
    let id = Cell::new(tx.id());
    if let Call::CommitOfOne = call {
        write(&tx, NAMES[0], 1).await.unwrap();
        let dropped = Dropped::after(polls, Slowly::new(turns, tx.commit())).await.is_none();
        let outcome = Cell::new(Outcome::InDoubt);
        eventually("the outcome is certain", async || {
            outcome.set(bridge.outcome(id.get()).await.unwrap());
            outcome.get() != Outcome::InDoubt
        })
        .await;
        assert_eq!(world.servers[0].value(1), (outcome.get() == Outcome::Committed).then_some(1));
        world.is_whole(&bridge, id.get()).await;
        return dropped;
    }
    write_both(&tx, 1).await.unwrap();
    if let Call::CommitWithLostAnswer = call {
        world.servers[1].arm(Step::Commit, Fault::LoseAnswer);
    }
    let dropped = match call {
        Call::RollBack => Dropped::after(polls, Slowly::new(turns, tx.rollback())).await.is_none(),
        Call::Closure => {
            tx.rollback().await.unwrap();
            let work = bridge.transaction(async |tx| {
                id.set(tx.id());
                write_both(tx, 1).await
            });
            Dropped::after(polls, Slowly::new(turns, work)).await.is_none()
        }
        Call::Outcome | Call::WaitApplied => {
            let committing = tokio::spawn(tx.commit());
            let dropped = if let Call::Outcome = call {
                Dropped::after(polls, Slowly::new(turns, bridge.outcome(id.get()))).await.is_none()
            } else {
                Dropped::after(polls, Slowly::new(turns, bridge.wait_applied(id.get()))).await.is_none()
            };
            committing.await.unwrap().unwrap();
            dropped
        }
        _ => Dropped::after(polls, Slowly::new(turns, tx.commit())).await.is_none(),
    };
    let outcome = world.agrees(&bridge, id.get(), 1).await;
    match call {
        Call::RollBack => assert_eq!(outcome, Outcome::RolledBack),
        // From its first own poll on it commits, whoever has an eye on it.
        Call::Commit | Call::CommitWithLostAnswer => {
            assert_eq!(outcome == Outcome::Committed, polls > turns || !dropped, "{outcome:?}");
        }
        _ if !dropped => assert_eq!(outcome, Outcome::Committed),
        _ => {}
    }
    world.is_whole(&bridge, id.get()).await;
    bridge.close().await.unwrap();
    dropped
}

async fn closing(world: &World, turns: usize, polls: usize) -> bool {
    let bridge = world.open().await.unwrap();
    let tx = bridge.begin().await.unwrap();
    let id = tx.id();
    write_both(&tx, 1).await.unwrap();
    drop(tokio::spawn(tx.commit()));
    let dropped = Dropped::after(polls, Slowly::new(turns, bridge.close())).await.is_none();
    bridge.close().await.unwrap();
    drop(bridge);
    let bridge = world.open().await.unwrap();
    world.agrees(&bridge, id, 1).await;
    world.is_whole(&bridge, id).await;
    bridge.close().await.unwrap();
    dropped
}

/// A decision that one side has not carried out, and a branch that nobody decided.
async fn left_behind(world: &World) -> [TransactionId; 2] {
    let bridge = world.open().await.unwrap();
    let tx = bridge.begin().await.unwrap();
    let decided = tx.id();
    write_both(&tx, 1).await.unwrap();
    let undecided = bridge.begin().await.unwrap();
    let open = undecided.id();
    write_both(&undecided, 2).await.unwrap();
    for server in &world.servers {
        server.arm(Step::Commit, Fault::Hang);
        (0..1000).for_each(|_| server.arm(Step::CommitFromOutside, Fault::LoseRequest));
    }
    drop(tokio::spawn(tx.commit()));
    eventually("it is decided", async || world.servers.iter().all(|server| server.calls(Step::Commit) == 1)).await;
    for server in &world.servers {
        server.arm(Step::Prepare, Fault::LoseAnswer);
        (0..1000).for_each(|_| server.arm(Step::RollBackFromOutside, Fault::LoseRequest));
    }
    undecided.commit().await.unwrap_err();
    [decided, open]
}

/// What is left by a program whose runtime is gone.
fn crashed(world: &World) -> [TransactionId; 2] {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let left = runtime.block_on(left_behind(world));
    drop(runtime);
    for server in &world.servers {
        server.restart();
        for step in [Step::Commit, Step::CommitFromOutside, Step::RollBackFromOutside, Step::Prepare] {
            server.disarm(step);
        }
        assert_eq!(server.prepared_names().len(), 2, "both transactions are prepared");
    }
    left
}

async fn opening(world: &World, turns: usize, polls: usize) -> bool {
    let [decided, open] = std::thread::scope(|scope| scope.spawn(|| crashed(world)).join().unwrap());
    let dropped = Dropped::after(polls, Slowly::new(turns, world.open())).await;
    let is_dropped = dropped.is_none();
    if let Some(bridge) = dropped {
        bridge.unwrap().close().await.unwrap();
    }
    both_end(world, decided, open).await;
    is_dropped
}

async fn both_end(world: &World, decided: TransactionId, open: TransactionId) {
    let bridge = world.open().await.unwrap_or_else(|error| panic!("{}", error.chain()));
    assert_eq!(world.agrees(&bridge, decided, 1).await, Outcome::Committed);
    assert_eq!(world.agrees(&bridge, open, 2).await, Outcome::RolledBack);
    world.is_whole(&bridge, decided).await;
    bridge.close().await.unwrap();
}

async fn recovery(world: &World, call: Call, turns: usize, polls: usize) -> bool {
    let [decided, open] = std::thread::scope(|scope| scope.spawn(|| crashed(world)).join().unwrap());
    let resolver = Resolver::open_with(world.config(), world.participants()).unwrap();
    let dropped = match call {
        Call::Sweep => Dropped::after(polls, Slowly::new(turns, resolver.sweep(&|_| {}))).await.is_none(),
        Call::Observe => Dropped::after(polls, Slowly::new(turns, resolver.observe())).await.is_none(),
        _ => {
            let mut view = resolver.observe().await;
            let looking = Slowly::new(turns, resolver.look_into(&mut view, decided));
            Dropped::after(polls, looking).await.is_none()
        }
    };
    resolver.close().await.unwrap();
    both_end(world, decided, open).await;
    dropped
}

#[test]
fn every_call_at_every_poll() {
    const MOST: usize = 2000;
    let tally = Tally::new("a future of the application is dropped", "memory + memory");
    for call in CALLS {
        for turns in 0..TURNS {
            let came_through = Cell::new(false);
            for polls in 0..=MOST {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                let result = runtime.block_on(attempt(async {
                    came_through.set(!case(call, turns, polls).await);
                }));
                let failed = result.is_err();
                tally.case(format!("{call:?} dropped after {polls} polls, {turns} turns"), result);
                if failed || came_through.get() {
                    break;
                }
            }
        }
    }
    tally.finish();
}
