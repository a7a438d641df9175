//! What somebody ended behind the bridge's back, and what a journal does not know.

use super::*;
use crate::journal::Journal;
use crate::protocol::{DamageRecord, Resolution};

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
    for restart in 0..3 {
        Runtime::new().unwrap().block_on(async {
            if restart > 0 {
                nobody_answers(&world);
            }
            let bridge = world.open().await;
            eventually("it is found out", || bridge.status().damaged == 1).await;
            assert_eq!(bridge.outcome(left_behind.unwrap()).await.unwrap(), Outcome::Damaged);
            assert_eq!(bridge.status().in_doubt, 0);
            bridge.close().await.unwrap();
        });
    }
    assert_eq!(world.values(1), (Some(10), None));
}

/// What else is prepared of a damaged transaction waits for a person, with its locks: nobody else can tell which way it
/// has to go.
#[test]
fn damage_is_not_forgotten_and_what_is_left_waits_for_a_person() {
    for fault in [Fault::LoseRequest, Fault::LoseAnswer] {
        let world = World::new();
        let mut id = None;
        Runtime::new().unwrap().block_on(async {
            let bridge = world.open().await;
            let tx = write_both(&bridge).await;
            tx.branch::<MemorySession>("left").await.unwrap().end(true).unwrap();
            world.right.arm(Step::RollBack, fault);
            let error = tx.commit().await.unwrap_err();
            assert_eq!(error.outcome(), Outcome::Damaged);
            eventually("it is over", || bridge.engine.live.left().is_empty() && bridge.status().running == 0).await;
            assert_eq!(bridge.outcome(error.id()).await.unwrap(), Outcome::Damaged, "{fault:?}");
            assert_eq!((bridge.status().damaged, world.left.value(1)), (1, Some(10)));
            id = Some(error.id());
            bridge.close().await.unwrap();
        });
        let id = id.unwrap();
        for _ in 0..2 {
            Runtime::new().unwrap().block_on(async {
                let bridge = world.open().await;
                assert_eq!(bridge.outcome(id).await.unwrap(), Outcome::Damaged, "also after a restart");
                assert_eq!(bridge.status().damaged, 1);
                assert_eq!(world.right.is_locked(1), fault == Fault::LoseRequest);
                bridge.close().await.unwrap();
            });
        }
        Runtime::new().unwrap().block_on(async {
            let resolver = world.resolver();
            if fault == Fault::LoseRequest {
                let refused = resolver.forget(id, "too early").await.unwrap_err();
                assert!(refused.chain().contains("still prepared on right"), "{}", refused.chain());
                resolver.resolve(id, Resolution::RollBack, "the left side was compensated").await.unwrap();
            }
            assert!(!world.right.is_locked(1));
            resolver.forget(id, "the left side was compensated").await.unwrap();
            resolver.close().await.unwrap();
            let bridge = world.open().await;
            assert_eq!((bridge.outcome(id).await.unwrap(), bridge.status().damaged), (Outcome::Damaged, 0));
            bridge.close().await.unwrap();
        });
    }
}

/// What is still under way when a person closes the record would come behind it, and nobody would end it any more.
#[test]
fn what_is_forgotten_has_no_session_left_that_could_prepare() {
    let world = World::new();
    let (mut id, mut late) = (None, None);
    crashed(async || {
        let bridge = world.open().await;
        let tx = bridge.begin().await.unwrap();
        write(&tx, "left", 1, 10).await.unwrap();
        tx.branch::<MemorySession>("left").await.unwrap().end(true).unwrap();
        let error = tx.commit().await.unwrap_err();
        assert_eq!(error.outcome(), Outcome::Damaged);
        id = Some(error.id());
        late = Some(left_at(&bridge, 1, error.id().sequence, 2).await);
    });
    Runtime::new().unwrap().block_on(async {
        let resolver = world.resolver();
        resolver.forget(id.unwrap(), "it was paid by hand").await.unwrap();
        let vote = late.unwrap().prepare().await.value;
        assert_ne!(vote, crate::protocol::Vote::Prepared);
        assert_eq!(world.right.prepared_names().len(), 0);
        resolver.close().await.unwrap();
    });
}

/// The witness of a decision that the journal does not know: it is an older copy, and settles nothing. A person who knows
/// better says so, and it is one damaged transaction among others.
#[test]
fn a_decision_that_the_journal_lacks_is_refused_until_a_person_decides() {
    let world = World::new();
    let mut id = None;
    crashed(async || {
        let bridge = world.open().await;
        let mut decided = left_at(&bridge, 0, 1, 1).await;
        assert_eq!(decided.prepare().await.value, crate::protocol::Vote::Prepared);
        assert_eq!(decided.commit().await.value, crate::protocol::Finish::Done);
        let mut undecided = left_at(&bridge, 1, 1, 2).await;
        assert_eq!(undecided.prepare().await.value, crate::protocol::Vote::Prepared);
        id = Some(bridge.engine.id(1));
    });
    let id = id.unwrap();
    for _ in 0..2 {
        Runtime::new().unwrap().block_on(async {
            let error = world.try_open("").await.err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Refused);
            assert!(error.chain().contains("older copy") && error.chain().contains(&id.to_string()), "{error}");
            let resolver = world.resolver();
            let pass = resolver.sweep(&|_| {}).await;
            assert_eq!(pass.refused.unwrap().kind(), ErrorKind::Refused);
            resolver.close().await.unwrap();
            assert_eq!(world.right.prepared_names().len(), 1, "nothing was rolled back");
        });
    }
    Runtime::new().unwrap().block_on(async {
        let resolver = world.resolver();
        let pass = resolver.resolve(id, Resolution::Commit, "somebody was too quick").await.unwrap();
        assert!(pass.refused.is_none(), "{pass:#?}");
        resolver.close().await.unwrap();
        assert_eq!(world.right.value(2), Some(10));
        let bridge = world.open().await;
        all_settled(&bridge).await;
        assert_eq!((bridge.outcome(id).await.unwrap(), bridge.status().damaged), (Outcome::Damaged, 1));
        bridge.close().await.unwrap();
        let resolver = world.resolver();
        resolver.forget(id, "both sides have it").await.unwrap();
        resolver.close().await.unwrap();
        let bridge = world.open().await;
        assert_eq!((bridge.outcome(id).await.unwrap(), bridge.status().damaged), (Outcome::Damaged, 0));
        bridge.close().await.unwrap();
    });
}

/// What is decided and damaged does not move any more: its incarnation is settled, and the damage stays reported.
#[test]
fn damage_does_not_keep_an_incarnation_from_being_settled() {
    let world = World::new();
    crashed(async || {
        let bridge = world.try_open("[transaction]\napply_wait = \"10ms\"").await.unwrap();
        let tx = write_both(&bridge).await;
        world.right.arm(Step::Commit, Fault::Hang);
        tx.commit().await.unwrap();
    });
    assert!(world.right.roll_back_by_hand(&world.right.prepared_names()[0]));
    for _ in 0..2 {
        Runtime::new().unwrap().block_on(async {
            let bridge = world.open().await;
            all_settled(&bridge).await;
            eventually("it is damaged all the same", || bridge.status().damaged == 1).await;
            bridge.close().await.unwrap();
        });
    }
}

/// Somebody commits a branch by hand while its transaction is undecided: the bridge that began it knows that it was not
/// decided, and no later opening takes the witness for a sign that the journal is a copy.
#[test]
fn a_commit_by_hand_that_its_own_bridge_noticed_refuses_no_later_opening() {
    let world = World::new();
    let mut id = None;
    Runtime::new().unwrap().block_on(async {
        let bridge = world.try_open("[transaction]\ntimeout = \"500ms\"").await.unwrap();
        let tx = write_both(&bridge).await;
        id = Some(tx.id());
        world.left.arm(Step::Prepare, Fault::Hang);
        let (ended, ()) = tokio::join!(tx.commit(), async {
            eventually("it is prepared", || !world.right.prepared_names().is_empty()).await;
            assert!(world.right.commit_by_hand(&world.right.prepared_names()[0]));
        });
        assert_ne!(ended.unwrap_err().outcome(), Outcome::InDoubt);
        eventually("it is noticed", || bridge.status().damaged == 1).await;
        bridge.close().await.unwrap();
    });
    let id = id.unwrap();
    for _ in 0..2 {
        Runtime::new().unwrap().block_on(async {
            let bridge = world.open().await;
            all_settled(&bridge).await;
            assert_eq!((bridge.outcome(id).await.unwrap(), bridge.status().damaged), (Outcome::Damaged, 1));
            let tx = bridge.begin().await.unwrap();
            write(&tx, "left", 2, 1).await.unwrap();
            tx.commit().await.unwrap();
            bridge.close().await.unwrap();
        });
    }
    assert_eq!(world.values(1), (None, Some(20)));
}

/// An opening of the journal that reaches nobody.
fn journal_of(world: &World) -> Journal {
    let config = world.config("");
    let opening = crate::engine::opening(&config, ["left", "right"].map(|name| name.parse().unwrap()).into_iter());
    Journal::open(&config.journal, opening.unwrap()).unwrap()
}

/// What shows that a journal is a copy is marked last, so that it is one as long as anything else is not marked; then it
/// is gone on with.
#[test]
fn a_copy_is_gone_on_with() {
    let world = World::new();
    let mut id = None;
    crashed(async || {
        let bridge = world.open().await;
        let mut decided = left_at(&bridge, 0, 1, 1).await;
        assert_eq!(decided.prepare().await.value, crate::protocol::Vote::Prepared);
        assert_eq!(decided.commit().await.value, crate::protocol::Finish::Done);
        id = Some(bridge.engine.id(1));
    });
    let id = id.unwrap();
    for _ in 0..9 {
        journal_of(&world).close().unwrap();
    }
    Runtime::new().unwrap().block_on(async {
        let resolver = world.resolver();
        let lacking = resolver.lacking().await.unwrap();
        assert_eq!(resolver.complete_copy("all there is").await.unwrap(), lacking);
        assert_eq!((lacking.signs.len(), lacking.unknown.len(), lacking.unsettled.len()), (1, 0, 10));
        assert_eq!(lacking.unsettled.last(), Some(&id.incarnation));
        assert_eq!(resolver.lacking().await.unwrap_err().kind(), ErrorKind::Refused, "nothing shows it any more");
        resolver.close().await.unwrap();
        let bridge = world.open().await;
        all_settled(&bridge).await;
        assert_eq!(bridge.outcome(id).await.unwrap(), Outcome::Committed, "as its witness proves");
        bridge.close().await.unwrap();
    });
}

/// A copy may call a transaction damaged, whose decision it lacks, before it sees the witness. That makes it no original.
#[test]
fn damage_that_a_copy_has_found_is_still_a_sign() {
    let world = World::new();
    let mut id = None;
    crashed(async || {
        let bridge = world.open().await;
        let mut decided = left_at(&bridge, 0, 1, 1).await;
        assert_eq!(decided.prepare().await.value, crate::protocol::Vote::Prepared);
        assert_eq!(decided.commit().await.value, crate::protocol::Finish::Done);
        id = Some(bridge.engine.id(1));
    });
    let transaction = id.unwrap();
    Runtime::new().unwrap().block_on(async {
        let copy = journal_of(&world);
        let record = DamageRecord { transaction, branches: Vec::new(), found_at_ms: 0, found_by: copy.incarnation() };
        copy.append(crate::protocol::Record::Damaged(record)).await.unwrap();
        copy.close().unwrap();
        let error = world.try_open("").await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.chain().contains("older copy"), "{}", error.chain());
    });
}
