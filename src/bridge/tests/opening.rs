//! What an opening finds: work of a dead incarnation, participants that do not answer, another server, another holder.

use super::*;

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
