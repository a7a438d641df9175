//! Deadlines, dropped futures and panics: an end that the application did not ask for.

use super::*;

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
