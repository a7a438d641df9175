//! What a bridge does besides transactions: keeping leases, pruning tables.

use super::*;

/// Loses the lease of the left one, and waits until that was noticed.
async fn lose_lease(world: &World, bridge: &Bridge) {
    for _ in 0..10_000 {
        world.left.arm(Step::Hold, Fault::LoseRequest);
    }
    eventually("it is noticed", || bridge.status().participants.iter().any(|one| !one.reachable)).await;
}

/// Gives it back.
async fn regain_lease(world: &World, bridge: &Bridge) {
    world.left.disarm(Step::Hold);
    eventually("it is held again", || bridge.status().participants.iter().all(|one| one.reachable)).await;
}

/// Nothing is decided while a lease is lost, in one phase or in two; what was not asked to prepare before it was regained
/// goes on.
#[tokio::test]
async fn nothing_is_decided_without_the_lease() {
    for (both, regained) in [(true, true), (true, false), (false, true), (false, false)] {
        let world = World::new();
        let bridge = world.try_open("lease_interval = \"20ms\"").await.unwrap();
        let tx = bridge.begin().await.unwrap();
        write(&tx, "left", 1, 10).await.unwrap();
        if both {
            write(&tx, "right", 1, 20).await.unwrap();
        }
        lose_lease(&world, &bridge).await;
        if regained {
            regain_lease(&world, &bridge).await;
            tx.commit().await.unwrap();
            assert_eq!(world.left.value(1), Some(10));
            continue;
        }
        let error = tx.commit().await.unwrap_err();
        assert_eq!((error.outcome(), error.kind()), (Outcome::RolledBack, ErrorKind::Retry));
        assert_eq!(bridge.engine.journal.image(|image| image.committed_count()), 0);
        eventually("nothing is locked", || world.nothing_held(1)).await;
        assert_eq!(world.values(1), UNTOUCHED);
    }
}

/// Nothing begins where the lease is lost; it goes on when it is held again, and the deadline does not wait for it.
#[tokio::test]
async fn a_branch_waits_for_the_lease() {
    let world = World::new();
    let bridge = world.try_open("lease_interval = \"20ms\"\n[transaction]\ntimeout = \"600ms\"").await.unwrap();
    lose_lease(&world, &bridge).await;
    let tx = bridge.begin().await.unwrap();
    let error = write(&tx, "left", 1, 10).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let tx = bridge.begin().await.unwrap();
    let (written, ()) = tokio::join!(write(&tx, "left", 1, 10), regain_lease(&world, &bridge));
    written.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(world.left.value(1), Some(10));
}

/// The tables stay small however many transactions there are, the newest decision stays, and what is settled goes whole.
#[tokio::test]
async fn tables_stay_small() {
    let world = World::new();
    let rows = || [&world.left, &world.right].map(|server| server.witnesses());
    let mut last = None;
    for _ in 0..3 {
        let bridge = world.open().await;
        for number in 0..500 {
            let tx = bridge.begin().await.unwrap();
            tokio::try_join!(write(&tx, "left", 1, number), write(&tx, "right", 1, number)).unwrap();
            last = Some(tx.commit().await.unwrap().id);
        }
        all_settled(&bridge).await;
        assert!(bridge.engine.prune().await);
        assert!(rows().iter().all(|count| (1..=64).contains(count)), "{:?}", rows());
        bridge.close().await.unwrap();
    }
    let bridge = world.open().await;
    all_settled(&bridge).await;
    assert!(bridge.engine.prune().await);
    assert_eq!(rows(), [0, 0], "nothing moves any more, and nothing is registered but the one at work");
    assert_eq!(bridge.outcome(last.unwrap()).await.unwrap(), Outcome::Committed);
}

/// A bug in a participant, before and after the decision was handed out: the transaction is in doubt, and the resolver
/// finds out, as after a crash. The bridge goes on.
#[tokio::test]
async fn a_panic_leaves_a_transaction_in_doubt_and_is_survived() {
    let cases = [(Step::Prepare, Outcome::RolledBack, UNTOUCHED), (Step::Commit, Outcome::Committed, WRITTEN)];
    for (step, outcome, values) in cases {
        let world = World::new();
        let bridge = world.open().await;
        let tx = write_both(&bridge).await;
        world.left.arm(step, Fault::Panic);
        let error = tx.commit().await.unwrap_err();
        assert_eq!(error.outcome(), Outcome::InDoubt, "{step:?}");
        assert_eq!(outcome_settles(&bridge, error.id()).await, outcome, "{step:?}");
        eventually("nothing is left", || {
            let nothing_prepared = [&world.left, &world.right].iter().all(|one| one.prepared_names().is_empty());
            nothing_prepared && world.nothing_held(1) && world.values(1) == values && bridge.status().in_doubt == 0
        })
        .await;
        assert_eq!(bridge.status().running, 0);
        write_both(&bridge).await.commit().await.unwrap();
        assert_eq!(world.values(1), WRITTEN);
        bridge.close().await.unwrap();
    }
}

/// The same in a rollback, and where one writer decides alone: whether it has committed tells its witness.
#[tokio::test]
async fn a_panic_in_a_rollback_or_of_one_writer_is_found_out() {
    let world = World::new();
    let bridge = world.open().await;
    let tx = write_both(&bridge).await;
    world.left.arm(Step::RollBack, Fault::Panic);
    let id = tx.id();
    let _ = tx.rollback().await;
    assert_eq!(outcome_settles(&bridge, id).await, Outcome::RolledBack);
    eventually("nothing is held", || world.nothing_held(1)).await;
    let tx = bridge.begin().await.unwrap();
    write(&tx, "left", 1, 10).await.unwrap();
    world.left.arm(Step::CommitOnePhase, Fault::Panic);
    let error = tx.commit().await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::InDoubt);
    assert_eq!(outcome_settles(&bridge, error.id()).await, Outcome::RolledBack);
    eventually("nothing is held", || world.nothing_held(1)).await;
    assert_eq!(world.values(1), UNTOUCHED);
    bridge.close().await.unwrap();
}
