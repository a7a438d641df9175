//! The shell on the reference participant: every answer an application can get, and what is there afterwards.

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

#[tokio::test]
async fn a_commit_is_on_both_and_can_be_asked_for() {
    let world = World::new();
    let bridge = world.open().await;
    let committed = write_both(&bridge).await.commit().await.unwrap();
    assert!(committed.pending.is_empty());
    assert_eq!(world.values(1), WRITTEN);
    assert_eq!(bridge.outcome(committed.id).await.unwrap(), Outcome::Committed);
    bridge.close().await.unwrap();

    let bridge = world.open().await;
    assert_eq!(bridge.outcome(committed.id).await.unwrap(), Outcome::Committed, "also after a restart");
}

#[tokio::test]
async fn rollback_and_drop_leave_nothing() {
    let world = World::new();
    let bridge = world.open().await;
    let tx = write_both(&bridge).await;
    let id = tx.id();
    assert_eq!(bridge.outcome(id).await.unwrap(), Outcome::InDoubt, "it is still at work");
    tx.rollback().await.unwrap();
    assert!(world.nothing_held(1), "rollback returns when the locks are gone");
    assert_eq!(bridge.outcome(id).await.unwrap(), Outcome::RolledBack);

    drop(write_both(&bridge).await);
    eventually("the dropped transaction's locks are gone", || world.nothing_held(1)).await;
    assert_eq!(world.values(1), UNTOUCHED);
}

#[tokio::test]
async fn a_transaction_without_branches_commits() {
    let world = World::new();
    let bridge = world.open().await;
    bridge.begin().await.unwrap().commit().await.unwrap();
}

#[tokio::test]
async fn wrong_names_are_told_the_right_ones() {
    let world = World::new();
    let bridge = world.open().await;
    let tx = bridge.begin().await.unwrap();
    let error = tx.branch::<MemorySession>("middle").await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("left, right"), "{error}");
    let error = tx.postgres("left").await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Config);
    let error = bridge.begin_with(Options::new().read_only("middle")).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Config);
    let foreign = "hf1.other.0123456789abcdef.1".parse().unwrap();
    assert_eq!(bridge.outcome(foreign).await.unwrap_err().kind(), ErrorKind::Unknown);
}

/// D17: one participant's failed prepare rolls the other back, whatever became of it.
#[tokio::test]
async fn d17_a_prepare_that_fails_or_is_lost_rolls_all_back() {
    for fault in [Fault::Refuse, Fault::LoseRequest, Fault::LoseAnswer] {
        for faulty in ["left", "right"] {
            let world = World::new();
            let bridge = world.open().await;
            let tx = write_both(&bridge).await;
            if faulty == "left" { &world.left } else { &world.right }.arm(Step::Prepare, fault);
            let error = tx.commit().await.unwrap_err();
            assert_eq!(error.outcome(), Outcome::RolledBack, "{fault:?} at {faulty}");
            assert_eq!(error.cause().participant().unwrap().as_str(), faulty);
            eventually("both are rolled back", || world.nothing_held(1)).await;
            assert_eq!(world.values(1), UNTOUCHED);
            assert_eq!(bridge.outcome(error.id()).await.unwrap(), Outcome::RolledBack);
        }
    }
}

/// D17: the answer never waits for the one that does not answer.
#[tokio::test]
async fn d17_a_no_is_answered_while_the_other_hangs() {
    let world = World::new();
    let bridge = world.open().await;
    let tx = write_both(&bridge).await;
    world.left.arm(Step::Prepare, Fault::Hang);
    world.right.arm(Step::Prepare, Fault::Refuse);
    assert_eq!(tx.commit().await.unwrap_err().outcome(), Outcome::RolledBack);
    assert!(!world.right.is_locked(1) || bridge.status().running > 0);
}

/// D05: a lost connection in phase two is no final failure.
#[tokio::test]
async fn d05_a_lost_phase_two_is_committed_and_finished_by_the_resolver() {
    for fault in [Fault::LoseRequest, Fault::LoseAnswer, Fault::Refuse, Fault::Hang] {
        let world = World::new();
        let bridge = world.try_open("[transaction]\napply_wait = \"50ms\"").await.unwrap();
        let tx = write_both(&bridge).await;
        world.right.arm(Step::Commit, fault);
        let committed = tx.commit().await.unwrap();
        eventually("the resolver finishes it", || world.values(1) == WRITTEN && world.nothing_held(1)).await;
        assert_eq!(bridge.outcome(committed.id).await.unwrap(), Outcome::Committed);
        eventually("nothing stays in doubt", || bridge.status().in_doubt == 0).await;
        assert_eq!(bridge.status().damaged, 0, "{fault:?}");
    }
}

#[tokio::test]
async fn what_is_pending_is_named() {
    let world = World::new();
    let bridge = world.try_open("[transaction]\napply_wait = \"10ms\"").await.unwrap();
    let tx = write_both(&bridge).await;
    world.right.arm(Step::Commit, Fault::Hang);
    let committed = tx.commit().await.unwrap();
    assert_eq!(committed.pending, ["right".parse().unwrap()]);
}

/// D22: a single writer's lost answer is in doubt, never guessed, and settled by its witness.
#[tokio::test]
async fn d22_a_single_writers_lost_answer_is_in_doubt_until_it_is_found() {
    for (fault, truth) in [(Fault::LoseAnswer, Outcome::Committed), (Fault::LoseRequest, Outcome::RolledBack)] {
        let world = World::new();
        let bridge = world.open().await;
        let tx = bridge.begin().await.unwrap();
        write(&tx, "left", 1, 10).await.unwrap();
        world.left.arm(Step::CommitOnePhase, fault);
        let error = tx.commit().await.unwrap_err();
        assert_eq!(error.outcome(), Outcome::InDoubt);
        assert_eq!(error.kind(), ErrorKind::InDoubt);
        assert_eq!(outcome_settles(&bridge, error.id()).await, truth);
        assert_eq!(world.left.value(1).is_some(), truth == Outcome::Committed);
    }
}

/// D01, D22: a failed statement that the application swallowed.
#[tokio::test]
async fn d01_d22_a_failed_statement_dooms_the_transaction() {
    for both in [true, false] {
        let world = World::new();
        let bridge = world.open().await;
        let tx = bridge.begin().await.unwrap();
        write(&tx, "left", 1, 10).await.unwrap();
        if both {
            write(&tx, "right", 1, 20).await.unwrap();
        }
        tx.branch::<MemorySession>("left").await.unwrap().fail().unwrap_err();
        assert_eq!(tx.commit().await.unwrap_err().outcome(), Outcome::RolledBack);
        eventually("rolled back", || world.nothing_held(1)).await;
        assert_eq!(world.values(1), UNTOUCHED);
    }
}

#[tokio::test]
async fn the_applications_own_commit_is_damage_never_a_rollback() {
    for both in [true, false] {
        let world = World::new();
        let bridge = world.open().await;
        let tx = bridge.begin().await.unwrap();
        write(&tx, "left", 1, 10).await.unwrap();
        if both {
            write(&tx, "right", 1, 20).await.unwrap();
        }
        let session: Arc<MemorySession> = tx.branch("left").await.unwrap();
        session.end(true).unwrap();
        session.begin().unwrap();
        drop(session);
        let error = tx.commit().await.unwrap_err();
        assert_eq!(error.outcome(), Outcome::Damaged);
        assert_eq!(bridge.outcome(error.id()).await.unwrap(), Outcome::Damaged);
        assert_eq!(bridge.status().damaged, 1);
        eventually("the other side is rolled back", || !world.right.is_locked(1)).await;
        assert_eq!(world.right.value(1), None);
    }
}

/// D32: the deadline frees the locks without the application's help.
#[tokio::test]
async fn d32_a_deadline_ends_a_transaction_that_sleeps() {
    let world = World::new();
    let bridge = world.open().await;
    let tx = bridge.begin_with(Options::new().timeout(Duration::from_millis(50))).await.unwrap();
    write(&tx, "left", 1, 10).await.unwrap();
    let session: Arc<MemorySession> = tx.branch("left").await.unwrap();
    eventually("its locks are gone", || world.nothing_held(1)).await;
    assert!(session.write(1, 11).await.is_err(), "the session was taken away");
    assert_eq!(tx.branch::<MemorySession>("right").await.err().unwrap().kind(), ErrorKind::TimedOut);
    let id = tx.id();
    let error = tx.commit().await.unwrap_err();
    assert_eq!((error.outcome(), error.kind()), (Outcome::RolledBack, ErrorKind::TimedOut));
    eventually("it has ended", || bridge.status().running == 0).await;
    assert_eq!(bridge.outcome(id).await.unwrap(), Outcome::RolledBack);
}

/// D18, D35: a deadline before the decision wins, and the answer does not wait for who hangs.
#[tokio::test]
async fn d18_a_deadline_during_prepare_rolls_back() {
    let world = World::new();
    let bridge = world.open().await;
    let tx = bridge.begin_with(Options::new().timeout(Duration::from_millis(60))).await.unwrap();
    tokio::try_join!(write(&tx, "left", 1, 10), write(&tx, "right", 1, 20)).unwrap();
    world.right.arm(Step::Prepare, Fault::Hang);
    let error = tx.commit().await.unwrap_err();
    assert_eq!((error.outcome(), error.kind()), (Outcome::RolledBack, ErrorKind::TimedOut));
    eventually("both are rolled back", || world.nothing_held(1)).await;
    assert_eq!(world.values(1), UNTOUCHED);
}

/// D23: the future of commit is dropped at once; the transaction ends whole all the same.
#[tokio::test]
async fn d23_a_dropped_commit_ends_whole() {
    let world = World::new();
    let bridge = world.open().await;
    for row in 1..40 {
        let tx = bridge.begin().await.unwrap();
        tokio::try_join!(write(&tx, "left", row, 10), write(&tx, "right", row, 20)).unwrap();
        let id = tx.id();
        let mut commit = Box::pin(tx.commit());
        // Polled a few times, each time at another point of the protocol, then dropped.
        for _ in 0..row % 5 {
            let polled = futures_util::poll!(commit.as_mut());
            if polled.is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
        let polled_once = row % 5 > 0;
        drop(commit);
        if polled_once {
            assert_eq!(outcome_settles(&bridge, id).await, Outcome::Committed);
            eventually("it is applied", || world.values(row) == WRITTEN).await;
        }
    }
    bridge.close().await.unwrap();
}

#[tokio::test]
async fn a_dropped_commit_that_was_never_polled_rolls_back() {
    let world = World::new();
    let bridge = world.open().await;
    let tx = write_both(&bridge).await;
    let id = tx.id();
    drop(tx.commit());
    eventually("rolled back", || world.nothing_held(1)).await;
    assert_eq!(outcome_settles(&bridge, id).await, Outcome::RolledBack);
    assert_eq!(world.values(1), UNTOUCHED);
}

/// A process that is gone in the middle: its runtime is dropped with everything on it.
fn crashed(scenario: impl AsyncFnOnce()) {
    let runtime = Runtime::new().unwrap();
    runtime.block_on(scenario());
    runtime.shutdown_timeout(Duration::from_secs(5));
}

/// D31: prepared, not decided, gone: rolled back at the next opening.
#[test]
fn d31_what_was_not_decided_is_rolled_back_at_opening() {
    let world = World::new();
    let mut left_behind = None;
    crashed(async || {
        let bridge = world.open().await;
        let tx = write_both(&bridge).await;
        left_behind = Some(tx.id());
        world.right.arm(Step::Prepare, Fault::Hang);
        let commit = tokio::spawn(tx.commit());
        eventually("the left branch is prepared", || world.left.prepared_names().len() == 1).await;
        commit.abort();
    });
    world.left.restart();
    world.right.restart();
    assert!(world.left.is_locked(1), "it survives its server's crash");
    Runtime::new().unwrap().block_on(async {
        let bridge = world.open().await;
        assert!(world.nothing_held(1), "opening settles it");
        assert_eq!(bridge.outcome(left_behind.unwrap()).await.unwrap(), Outcome::RolledBack);
        assert_eq!(world.values(1), UNTOUCHED);
    });
}

/// Decided, not applied, gone: committed at the next opening.
#[test]
fn what_was_decided_is_committed_at_opening() {
    let world = World::new();
    let mut left_behind = None;
    crashed(async || {
        let bridge = world.try_open("[transaction]\napply_wait = \"10ms\"").await.unwrap();
        let tx = write_both(&bridge).await;
        world.left.arm(Step::Commit, Fault::Hang);
        world.right.arm(Step::Commit, Fault::Hang);
        let committed = tx.commit().await.unwrap();
        assert_eq!(committed.pending.len(), 2);
        left_behind = Some(committed.id);
    });
    Runtime::new().unwrap().block_on(async {
        let bridge = world.open().await;
        assert_eq!(world.values(1), WRITTEN);
        assert!(world.nothing_held(1));
        assert_eq!(bridge.outcome(left_behind.unwrap()).await.unwrap(), Outcome::Committed);
    });
}

/// D03 B: an operator rolled a decided branch back.
#[test]
fn d03_a_branch_rolled_back_by_hand_is_damage_at_every_run() {
    let world = World::new();
    let mut left_behind = None;
    crashed(async || {
        let bridge = world.try_open("[transaction]\napply_wait = \"10ms\"").await.unwrap();
        let tx = write_both(&bridge).await;
        world.right.arm(Step::Commit, Fault::Hang);
        left_behind = Some(tx.commit().await.unwrap().id);
    });
    let right = world.right.prepared_names();
    assert_eq!(right.len(), 1);
    assert!(world.right.roll_back_by_hand(&right[0]));
    for _ in 0..2 {
        Runtime::new().unwrap().block_on(async {
            let bridge = world.open().await;
            eventually("it is found out", || bridge.status().damaged == 1).await;
            assert_eq!(bridge.status().in_doubt, 0);
            bridge.close().await.unwrap();
        });
    }
    assert_eq!(world.values(1), (Some(10), None));
}

/// One branch that cannot be finished holds up nothing but itself: not what else is to be done and remembered there.
#[test]
fn a_branch_that_is_stuck_holds_up_no_other() {
    let world = World::new();
    let mut decided = None;
    crashed(async || {
        let bridge = world.try_open("[transaction]\napply_wait = \"10ms\"").await.unwrap();
        let stuck = write_both(&bridge).await;
        world.right.arm(Step::Prepare, Fault::Hang);
        let commit = tokio::spawn(stuck.commit());
        eventually("the left branch is prepared", || world.left.prepared_names().len() == 1).await;
        commit.abort();

        let tx = bridge.begin().await.unwrap();
        tokio::try_join!(write(&tx, "left", 2, 10), write(&tx, "right", 2, 20)).unwrap();
        world.left.arm(Step::Commit, Fault::Hang);
        decided = Some(tx.commit().await.unwrap().id);
    });
    for _ in 0..10_000 {
        world.left.arm(Step::RollBackFromOutside, Fault::Refuse);
    }
    Runtime::new().unwrap().block_on(async {
        let bridge = world.open().await;
        assert_eq!(world.values(2), WRITTEN);
        eventually("the decision is remembered as done", || {
            bridge.engine.journal.image(|image| image.open_decisions().len()) == 0
        })
        .await;
        assert_eq!(bridge.status().in_doubt, 1, "the stuck one alone");
        assert_eq!(bridge.outcome(decided.unwrap()).await.unwrap(), Outcome::Committed);
    });
}

/// D04, D46: passes in the background never touch what a live coordinator is at work on.
#[tokio::test]
async fn d04_the_resolver_leaves_live_transactions_alone() {
    let world = World::new();
    let bridge = world.try_open("[pool]\nsize = 4").await.unwrap();
    let resolver = Resolver::live(bridge.engine.clone());
    let passes = tokio::spawn(async move {
        loop {
            resolver.sweep(&|_| {}).await;
            tokio::task::yield_now().await;
        }
    });
    for row in 1..200 {
        let tx = bridge.begin().await.unwrap();
        tokio::try_join!(write(&tx, "left", row, 10), write(&tx, "right", row, 20)).unwrap();
        assert!(tx.commit().await.unwrap().pending.is_empty());
        assert_eq!(world.values(row), WRITTEN);
    }
    passes.abort();
    assert_eq!((bridge.status().in_doubt, bridge.status().damaged), (0, 0));
}

/// D20, D30: a participant that cannot be scanned holds up its own branches alone, and nothing is presumed of it.
#[test]
fn d20_d30_one_participant_is_not_scanned() {
    let world = World::new();
    crashed(async || {
        let bridge = world.try_open("[transaction]\napply_wait = \"10ms\"").await.unwrap();
        let tx = write_both(&bridge).await;
        world.left.arm(Step::Commit, Fault::Hang);
        world.right.arm(Step::Commit, Fault::Hang);
        tx.commit().await.unwrap();
    });
    Runtime::new().unwrap().block_on(async {
        for _ in 0..3 {
            world.right.arm(Step::List, Fault::LoseRequest);
        }
        let bridge = world.open().await;
        assert_eq!(world.left.value(1), Some(10), "the healthy one is settled at once");
        eventually("the other follows when it answers", || world.right.value(1) == Some(20)).await;
        eventually("and is remembered as done", || bridge.status().in_doubt == 0).await;
    });
}

#[tokio::test]
async fn a_participant_that_comes_back_is_used_again() {
    let world = World::new();
    for _ in 0..3 {
        world.right.arm(Step::Register, Fault::LoseRequest);
    }
    let bridge = world.open().await;
    let tx = bridge.begin().await.unwrap();
    write(&tx, "left", 1, 10).await.unwrap();
    tx.commit().await.unwrap();
    eventually("the resolver registers with it", || bridge.status().participants.iter().all(|p| p.reachable)).await;
    write_both(&bridge).await.commit().await.unwrap();
    assert_eq!(world.values(1), WRITTEN);
}

#[tokio::test]
async fn opening_fails_when_nothing_answers_or_something_cannot_serve() {
    let world = World::new();
    world.left.arm(Step::Register, Fault::LoseRequest);
    world.right.arm(Step::Register, Fault::LoseRequest);
    assert_eq!(world.try_open("").await.err().unwrap().kind(), ErrorKind::Unavailable);
    world.right.arm(Step::Register, Fault::Refuse);
    world.right.arm(Step::Register, Fault::Refuse);
    let error = world.try_open("").await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Setup);
    assert_eq!(error.participant().unwrap().as_str(), "right");
}

/// D10: a second opening of the journal is refused, and the first goes on.
#[tokio::test]
async fn d10_a_second_bridge_is_refused() {
    let world = World::new();
    let bridge = world.open().await;
    let error = world.try_open("").await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
    write_both(&bridge).await.commit().await.unwrap();
    bridge.close().await.unwrap();
    world.open().await;
}

/// D11: another server under a known name is refused, and nothing there is touched.
#[tokio::test]
async fn another_lineage_under_a_known_name_is_refused() {
    let mut world = World::new();
    world.open().await.close().await.unwrap();
    world.right = MemoryServer::new();
    let error = world.try_open("").await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert_eq!(error.participant().unwrap().as_str(), "right");
}

#[tokio::test]
async fn a_declared_read_only_branch_needs_no_decision() {
    let world = World::new();
    let bridge = world.open().await;
    write_both(&bridge).await.commit().await.unwrap();
    let tx = bridge.begin_with(Options::new().read_only("left")).await.unwrap();
    assert_eq!(tx.branch::<MemorySession>("left").await.unwrap().read(1).unwrap(), Some(10));
    write(&tx, "right", 1, 21).await.unwrap();
    let committed = tx.commit().await.unwrap();
    assert_eq!(world.right.value(1), Some(21));
    assert_eq!(bridge.outcome(committed.id).await.unwrap(), Outcome::Committed);
    bridge.close().await.unwrap();
    assert_eq!(world.open().await.outcome(committed.id).await.unwrap(), Outcome::Committed);
}

#[tokio::test]
async fn decided_is_answered_before_it_is_applied() {
    let world = World::new();
    let bridge = world.open().await;
    let tx = bridge.begin_with(Options::new().acknowledge(Acknowledge::Decided)).await.unwrap();
    tokio::try_join!(write(&tx, "left", 1, 10), write(&tx, "right", 1, 20)).unwrap();
    world.left.arm(Step::Commit, Fault::Hang);
    world.right.arm(Step::Commit, Fault::Hang);
    assert_eq!(tx.commit().await.unwrap().pending.len(), 2);
    eventually("it is applied", || world.values(1) == WRITTEN).await;
}

#[tokio::test]
async fn the_closure_is_run_again_only_where_that_is_right() {
    let world = World::new();
    let bridge = world.open().await;
    let runs = Arc::new(AtomicU32::new(0));
    // On a task of its own: the future has to be `Send`.
    let task = tokio::spawn({
        let (bridge, runs) = (bridge.clone(), runs.clone());
        async move {
            bridge
                .transaction(async move |tx| {
                    write(tx, "left", 1, 10).await?;
                    if runs.fetch_add(1, Ordering::Relaxed) < 2 {
                        return Err(Error::new(ErrorKind::Retry, "deadlock"));
                    }
                    write(tx, "right", 1, 20).await
                })
                .await
        }
    });
    task.await.unwrap().unwrap();
    assert_eq!(runs.load(Ordering::Relaxed), 3);
    assert_eq!(world.values(1), WRITTEN);

    world.left.arm(Step::CommitOnePhase, Fault::LoseAnswer);
    let runs = AtomicU32::new(0);
    let error = bridge
        .transaction(async |tx| {
            runs.fetch_add(1, Ordering::Relaxed);
            write(tx, "left", 2, 1).await
        })
        .await
        .unwrap_err();
    assert_eq!((error.kind(), runs.load(Ordering::Relaxed)), (ErrorKind::InDoubt, 1), "in doubt is never run again");
}

#[tokio::test]
async fn a_panic_rolls_back() {
    let world = World::new();
    let bridge = world.open().await;
    let task = tokio::spawn({
        let bridge = bridge.clone();
        async move {
            let tx = write_both(&bridge).await;
            assert_eq!(tx.id().sequence, 0, "this panics");
        }
    });
    task.await.unwrap_err();
    eventually("rolled back", || world.nothing_held(1)).await;
    assert_eq!(world.values(1), UNTOUCHED);
}

#[tokio::test]
async fn closing_waits_for_the_running_and_refuses_the_new() {
    let world = World::new();
    let bridge = world.open().await;
    let tx = write_both(&bridge).await;
    let closing = tokio::spawn({
        let bridge = bridge.clone();
        async move { bridge.close().await }
    });
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    loop {
        match bridge.begin().await {
            Err(error) => break assert_eq!(error.kind(), ErrorKind::Closed),
            Ok(tx) => tx.rollback().await.unwrap(),
        }
        assert!(tokio::time::Instant::now() < deadline);
    }
    assert!(!closing.is_finished());
    tx.commit().await.unwrap();
    closing.await.unwrap().unwrap();
    assert_eq!(world.values(1), WRITTEN);
    world.open().await;
}

/// A transaction that the application keeps and never uses holds nothing, and still ends by its deadline.
#[tokio::test]
async fn closing_waits_for_an_idle_transaction_no_longer_than_its_deadline() {
    let world = World::new();
    let bridge = world.open().await;
    let tx = bridge.begin_with(Options::new().timeout(Duration::from_millis(50))).await.unwrap();
    tokio::time::timeout(Duration::from_secs(10), bridge.close()).await.expect("it closes").unwrap();
    let error = tx.commit().await.unwrap_err();
    assert_eq!((error.outcome(), error.kind()), (Outcome::RolledBack, ErrorKind::TimedOut));
}

#[tokio::test]
async fn a_deadline_may_lie_beyond_all_time() {
    let world = World::new();
    let bridge = world.try_open("[transaction]\napply_wait = \"584542046090years\"").await.unwrap();
    let tx = bridge.begin_with(Options::new().timeout(Duration::MAX)).await.unwrap();
    tokio::try_join!(write(&tx, "left", 1, 10), write(&tx, "right", 1, 20)).unwrap();
    tx.commit().await.unwrap();
    assert_eq!(world.values(1), WRITTEN);
    bridge.close().await.unwrap();
}

/// A wait for a lock ends before the transaction's own deadline, not only before the configured one.
#[tokio::test]
async fn a_short_transaction_waits_shortly_for_locks() {
    let world = World::new();
    let bridge = world.open().await;
    let holder = write_both(&bridge).await;
    let tx = bridge.begin_with(Options::new().timeout(Duration::from_secs(2))).await.unwrap();
    assert_eq!(write(&tx, "left", 1, 11).await.unwrap_err().kind(), ErrorKind::Retry);
    holder.rollback().await.unwrap();
}

/// Asking is allowed for ever; what would have to be written down first is not known any more.
#[test]
fn a_closed_bridge_still_answers() {
    let world = World::new();
    for _ in 0..1000 {
        world.right.arm(Step::Register, Fault::LoseRequest);
    }
    let mut earlier = None;
    crashed(async || earlier = Some(world.open().await.begin().await.unwrap().id()));
    Runtime::new().unwrap().block_on(async {
        let bridge = world.open().await;
        bridge.close().await.unwrap();
        world.right.disarm(Step::Register);
        assert_eq!(bridge.outcome(earlier.unwrap()).await.unwrap(), Outcome::InDoubt);
    });
}

/// A witness that is switched on says nothing of branches that were begun without.
#[test]
fn a_missing_witness_accuses_no_branch_that_never_had_one() {
    let world = World::new();
    let copy = TempDir::new().unwrap();
    let copy_journal = |from: &TempDir, to: &TempDir| {
        for entry in std::fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), to.path().join(entry.file_name())).unwrap();
        }
    };
    let mut ids = None;
    crashed(async || {
        let bridge = world.open_with("", false).await.unwrap();
        for server in [&world.left, &world.right] {
            (0..1000).for_each(|_| server.arm(Step::List, Fault::LoseRequest));
        }
        // Committed on both sides; the answer is lost, and nobody looks what became of it.
        let decided = write_both(&bridge).await;
        world.right.arm(Step::Commit, Fault::LoseAnswer);
        let decided = decided.commit().await.unwrap().id;
        let alone = bridge.begin().await.unwrap();
        write(&alone, "left", 2, 10).await.unwrap();
        // What is noted from here on is lost with the process.
        copy_journal(&world.journal, &copy);
        ids = Some((decided, alone.commit().await.unwrap().id));
    });
    copy_journal(&copy, &world.journal);
    world.left.disarm(Step::List);
    world.right.disarm(Step::List);
    let (decided, alone) = ids.unwrap();
    Runtime::new().unwrap().block_on(async {
        let bridge = world.open().await;
        assert_eq!((bridge.status().damaged, bridge.status().in_doubt), (0, 0));
        assert_eq!(bridge.outcome(decided).await.unwrap(), Outcome::Committed);
        assert_eq!(world.left.value(2), Some(10));
        assert_eq!(bridge.outcome(alone).await.unwrap(), Outcome::InDoubt, "there is no proof either way");
    });
}

/// A prepare that nobody answered may still be on its way when recovery looks: the fence stops it.
#[tokio::test]
async fn a_branch_that_was_left_is_fenced() {
    let world = World::new();
    let bridge = world.open().await;
    let tx = bridge.begin_with(Options::new().timeout(Duration::from_millis(60))).await.unwrap();
    tokio::try_join!(write(&tx, "left", 1, 10), write(&tx, "right", 1, 20)).unwrap();
    let late = tx.id().branch(1, 0);
    world.right.arm(Step::Prepare, Fault::Hang);
    assert_eq!(tx.commit().await.unwrap_err().outcome(), Outcome::RolledBack);
    let right = bridge.engine.members[1].participant.clone();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while right.ask(&late, Question::Look).await.unwrap() != Evidence::Never {
        assert!(tokio::time::Instant::now() < deadline, "no fence");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!((bridge.status().in_doubt, bridge.status().damaged), (0, 0));
}

/// Recovery rolls back what is left of a damaged transaction; that makes it no rolled back one.
#[tokio::test]
async fn damage_is_not_forgotten_when_the_rest_is_rolled_back() {
    for fault in [Fault::LoseRequest, Fault::LoseAnswer] {
        let world = World::new();
        let bridge = world.open().await;
        let tx = write_both(&bridge).await;
        tx.branch::<MemorySession>("left").await.unwrap().end(true).unwrap();
        world.right.arm(Step::RollBack, fault);
        let error = tx.commit().await.unwrap_err();
        assert_eq!(error.outcome(), Outcome::Damaged);
        eventually("the resolver has passed", || {
            !world.right.is_locked(1) && bridge.engine.live.left().is_empty() && bridge.status().running == 0
        })
        .await;
        assert_eq!(bridge.outcome(error.id()).await.unwrap(), Outcome::Damaged, "{fault:?}");
        assert_eq!((bridge.status().damaged, world.left.value(1)), (1, Some(10)));
    }
}

/// The status knows of a decision that is not carried out before the resolver has looked.
#[tokio::test]
async fn an_open_decision_is_in_doubt_at_once() {
    let world = World::new();
    let bridge = world.open().await;
    let tx = write_both(&bridge).await;
    world.right.arm(Step::Commit, Fault::LoseRequest);
    world.left.arm(Step::Identify, Fault::Hang);
    tx.commit().await.unwrap();
    eventually("the coordinator has ended", || bridge.status().running == 0).await;
    assert_eq!(bridge.status().in_doubt, 1);
    assert!(bridge.status().oldest_in_doubt.is_some());
}

/// What is left of the last transactions keeps no locks until somebody opens the journal again.
#[tokio::test]
async fn closing_settles_what_it_can() {
    let world = World::new();
    let bridge = world.open().await;
    let tx = write_both(&bridge).await;
    world.right.arm(Step::Commit, Fault::LoseRequest);
    // The pass in the background never comes to an end.
    world.left.arm(Step::Identify, Fault::Hang);
    tx.commit().await.unwrap();
    eventually("the coordinator has ended", || bridge.status().running == 0).await;
    bridge.close().await.unwrap();
    assert_eq!(world.values(1), WRITTEN);
    assert!(world.nothing_held(1));
}
