//! The end of a bridge.

use super::*;

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

/// Asking is allowed for ever; what would have to be written down first is not known any more.
#[test]
fn a_closed_bridge_still_answers() {
    let world = World::new();
    let mut earlier = None;
    crashed(async || earlier = Some(world.open().await.begin().await.unwrap().id()));
    // It was used by the earlier opening, which cannot be settled without it.
    for step in [Step::Register, Step::List, Step::Ask] {
        (0..1000).for_each(|_| world.right.arm(step, Fault::LoseRequest));
    }
    Runtime::new().unwrap().block_on(async {
        let bridge = world.open().await;
        bridge.close().await.unwrap();
        world.right.disarm(Step::Register);
        assert_eq!(bridge.outcome(earlier.unwrap()).await.unwrap(), Outcome::InDoubt);
    });
}

/// Nothing is settled behind a close: whoever waits for it is told, before and after.
#[tokio::test]
async fn nobody_waits_for_what_a_closed_bridge_leaves_in_doubt() {
    let world = World::new();
    let bridge = world.open().await;
    let tx = write_both(&bridge).await;
    let (id, over) = (tx.id(), bridge.begin().await.unwrap());
    let over_id = over.id();
    over.rollback().await.unwrap();
    // Neither the commit itself nor any pass reaches it.
    for step in [Step::Commit, Step::List, Step::CommitFromOutside] {
        (0..1000).for_each(|_| world.right.arm(step, Fault::LoseRequest));
    }
    tx.commit().await.unwrap();
    let waiting = tokio::spawn({
        let bridge = bridge.clone();
        async move { bridge.wait_applied(id).await }
    });
    bridge.close().await.unwrap();
    let early = tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("it is told").unwrap();
    let late = tokio::time::timeout(Duration::from_secs(10), bridge.wait_applied(id)).await.expect("it is told");
    for told in [early, late] {
        let error = told.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed);
        assert!(error.to_string().contains(&id.to_string()), "{error}");
    }
    assert_eq!(bridge.wait_applied(over_id).await.unwrap(), Outcome::RolledBack);
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
