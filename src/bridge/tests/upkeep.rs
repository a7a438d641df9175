//! What a bridge does besides transactions: keeping leases, pruning tables.

use super::*;

/// While the lease of a participant is lost nothing is decided there, in one phase or in two; regained, it goes on.
#[tokio::test]
async fn a_lost_lease_holds_decisions_back() {
    for both in [true, false] {
        let world = World::new();
        let extra = "lease_interval = \"20ms\"";
        let bridge = world.try_open(extra).await.unwrap();
        let tx = bridge.begin().await.unwrap();
        write(&tx, "left", 1, 10).await.unwrap();
        if both {
            write(&tx, "right", 1, 20).await.unwrap();
        }
        for _ in 0..10_000 {
            world.left.arm(Step::Hold, Fault::LoseRequest);
        }
        eventually("it is noticed", || bridge.status().participants.iter().any(|one| !one.reachable)).await;
        let committing = tokio::spawn(tx.commit());
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!committing.is_finished());
        assert_eq!(world.left.value(1), None);
        assert_eq!(bridge.engine.journal.image(|image| image.committed_count()), 0);
        world.left.disarm(Step::Hold);
        committing.await.unwrap().unwrap();
        assert_eq!(world.left.value(1), Some(10));
        eventually("nothing is wrong any more", || bridge.status().participants.iter().all(|one| one.reachable)).await;
    }
}

/// The deadline does not wait for a lease.
#[tokio::test]
async fn a_deadline_aborts_what_waits_for_a_lease() {
    let world = World::new();
    let bridge = world.try_open("lease_interval = \"20ms\"\n[transaction]\ntimeout = \"600ms\"").await.unwrap();
    for both in [true, false] {
        let tx = bridge.begin().await.unwrap();
        write(&tx, "left", 1, 10).await.unwrap();
        if both {
            write(&tx, "right", 1, 20).await.unwrap();
        }
        for _ in 0..10_000 {
            world.left.arm(Step::Hold, Fault::LoseRequest);
        }
        eventually("it is noticed", || bridge.status().participants.iter().any(|one| !one.reachable)).await;
        let error = tx.commit().await.unwrap_err();
        assert_eq!((error.outcome(), error.kind()), (Outcome::RolledBack, ErrorKind::TimedOut));
        world.left.disarm(Step::Hold);
        eventually("nothing is locked", || world.nothing_held(1)).await;
        assert_eq!(world.values(1), UNTOUCHED);
        eventually("the lease is back", || bridge.status().participants.iter().all(|one| one.reachable)).await;
    }
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
        bridge.engine.prune().await;
        assert!(rows().iter().all(|count| (1..=64).contains(count)), "{:?}", rows());
        bridge.close().await.unwrap();
    }
    let bridge = world.open().await;
    all_settled(&bridge).await;
    bridge.engine.prune().await;
    assert_eq!(rows(), [0, 0], "nothing moves any more, and nothing is registered but the one at work");
    assert_eq!(bridge.outcome(last.unwrap()).await.unwrap(), Outcome::Committed);
}
