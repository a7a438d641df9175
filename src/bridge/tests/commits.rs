//! Commits, rollbacks, and what single lost answers do to them.

use super::*;

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
    let committed = tx.commit().await.unwrap();
    assert_eq!(committed.pending.len(), 2);
    assert_eq!(world.values(1), UNTOUCHED);
    assert_eq!(applied(&bridge, committed.id).await, Outcome::Committed);
    assert_eq!(world.values(1), WRITTEN, "one's own writes are read");
}

async fn applied(bridge: &Bridge, id: TransactionId) -> Outcome {
    tokio::time::timeout(Duration::from_secs(10), bridge.wait_applied(id)).await.expect("it is applied").unwrap()
}

#[tokio::test]
async fn whoever_waits_for_the_end_hears_of_every_one() {
    let world = World::new();
    let bridge = world.open().await;
    let tx = write_both(&bridge).await;
    let id = tx.id();
    let waiting = tokio::spawn({
        let bridge = bridge.clone();
        async move { bridge.wait_applied(id).await }
    });
    assert_eq!(tx.commit().await.unwrap().id, id);
    assert_eq!(waiting.await.unwrap().unwrap(), Outcome::Committed);

    let tx = bridge.begin().await.unwrap();
    let id = tx.id();
    tx.rollback().await.unwrap();
    assert_eq!(applied(&bridge, id).await, Outcome::RolledBack);
    let never = bridge.engine.id(1000);
    assert_eq!(bridge.wait_applied(never).await.unwrap_err().kind(), ErrorKind::Unknown);
}

/// What an earlier opening decided is applied when its participant comes back.
#[test]
fn an_earlier_openings_commit_is_waited_for() {
    let world = World::new();
    let mut id = None;
    crashed(async || {
        let bridge = world.open().await;
        let tx = bridge.begin_with(Options::new().acknowledge(Acknowledge::Decided)).await.unwrap();
        tokio::try_join!(write(&tx, "left", 1, 10), write(&tx, "right", 1, 20)).unwrap();
        world.right.arm(Step::Commit, Fault::LoseRequest);
        id = Some(tx.commit().await.unwrap().id);
    });
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        (0..3).for_each(|_| world.right.arm(Step::List, Fault::LoseRequest));
        let bridge = world.open().await;
        assert_eq!(applied(&bridge, id.unwrap()).await, Outcome::Committed);
        assert_eq!(world.values(1), WRITTEN);
    });
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
async fn a_call_has_options_of_its_own() {
    let world = World::new();
    let bridge = world.open().await;
    let runs = AtomicU32::new(0);
    for (limit, expected) in [(0, 1), (2, 3)] {
        runs.store(0, Ordering::Relaxed);
        let failing = async |_: &Transaction| {
            runs.fetch_add(1, Ordering::Relaxed);
            Err::<(), _>(Error::new(ErrorKind::Retry, "deadlock"))
        };
        let error = bridge.transaction_with(Options::new().retries(limit), failing).await.unwrap_err();
        assert_eq!((error.kind(), runs.load(Ordering::Relaxed)), (ErrorKind::Retry, expected));
    }
    runs.store(0, Ordering::Relaxed);
    let late = async |tx: &Transaction| {
        write(tx, "left", 1, 10).await?;
        runs.fetch_add(1, Ordering::Relaxed);
        std::future::pending::<Result<()>>().await
    };
    let options = Options::new().timeout(Duration::from_millis(50));
    let waiting = tokio::time::timeout(Duration::from_secs(10), bridge.transaction_with(options, late));
    tokio::select! {
        _ = waiting => panic!("the closure never ends"),
        () = eventually("the deadline has freed the row", || runs.load(Ordering::Relaxed) == 1 && world.nothing_held(1)) => {}
    }
    let unknown = Options::new().isolation_of("middle", crate::participant::Isolation::Serializable);
    assert_eq!(bridge.transaction_with(unknown, async |_| Ok(())).await.unwrap_err().kind(), ErrorKind::Config);
}

#[tokio::test]
async fn a_panic_in_the_closure_rolls_back() {
    let world = World::new();
    let bridge = world.open().await;
    let task = tokio::spawn(bridge.transaction(async move |tx| {
        write(tx, "left", 1, 10).await?;
        panic!("the application's own bug")
    }));
    let ended: Result<Result<()>, _> = task.await;
    assert!(ended.unwrap_err().is_panic());
    eventually("its row is free", || world.nothing_held(1)).await;
    assert_eq!(world.values(1), UNTOUCHED);
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
