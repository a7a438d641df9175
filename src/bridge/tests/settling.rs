//! Earlier incarnations as a whole.

use super::*;

/// D20: a half-open session of a dead incarnation loses its locks, and what it sends afterwards meets nobody.
#[test]
fn late_requests_of_a_dead_incarnation_meet_nobody() {
    let world = World::new();
    let mut left = None;
    crashed(async || {
        let bridge = world.open().await;
        let prepares = left_at(&bridge, 0, 1, 1).await;
        let commits = left_at(&bridge, 1, 2, 2).await;
        left = Some((bridge.engine.id(1), bridge.engine.id(2), prepares, commits));
    });
    let (first, second, mut prepares, mut commits) = left.unwrap();
    Runtime::new().unwrap().block_on(async {
        let bridge = world.open().await;
        all_settled(&bridge).await;
        assert!(world.nothing_held(1) && world.nothing_held(2), "its sessions are gone, their locks with them");
        nobody_answers(&world);
        for id in [first, second] {
            assert_eq!(bridge.outcome(id).await.unwrap(), Outcome::RolledBack);
        }
        assert_eq!(prepares.prepare().await.value, crate::protocol::Vote::Unknown);
        assert_eq!(commits.commit_one_phase().await.value, crate::protocol::Finish::Unknown);
        assert!(world.left.prepared_names().is_empty());
        assert_eq!(world.right.value(2), None);
        // Its own sessions go on.
        write_both(&bridge).await.commit().await.unwrap();
        assert_eq!(world.values(1), WRITTEN);
    });
}

/// A one-phase commit whose note was lost with the process is found by its witness, whatever number of others there is.
#[test]
fn a_commit_that_nobody_wrote_down_is_found_by_its_witness() {
    const MANY: u64 = 2_500;
    let world = World::new();
    let mut ids = Vec::new();
    // Several incarnations that were not settled, since a participant was not there for them.
    (0..10_000).for_each(|_| world.right.arm(Step::EndSessions, Fault::LoseRequest));
    for many in [3, MANY, 5] {
        crashed(async || {
            let bridge = world.open().await;
            for sequence in 1..=many {
                let row = i64::try_from(sequence).unwrap();
                let mut branch = left_at(&bridge, 0, sequence, row).await;
                let commits = sequence == 1 || sequence + 1 == many;
                if commits {
                    assert_eq!(branch.commit_one_phase().await.value, crate::protocol::Finish::Done);
                } else {
                    drop(branch);
                    let never = bridge.engine.id(sequence).branch(0, 0);
                    bridge.engine.members[0].participant.ask(&never, Question::Fence).await.unwrap();
                }
                let expected = if commits { Outcome::Committed } else { Outcome::RolledBack };
                ids.push((bridge.engine.id(sequence), expected));
            }
        });
    }
    Runtime::new().unwrap().block_on(async {
        let bridge = world.open().await;
        assert_eq!(bridge.status().unsettled, 3, "one participant does not answer");
        world.right.disarm(Step::EndSessions);
        all_settled(&bridge).await;
        nobody_answers(&world);
        for (id, expected) in ids {
            assert_eq!(bridge.outcome(id).await.unwrap(), expected, "{id}");
        }
        assert_eq!(bridge.engine.journal.image(|image| image.committed_count()), 6);
    });
}

/// A fault at any step delays it, and nothing else.
#[test]
fn whatever_fails_delays_the_settling() {
    for step in [Step::EndSessions, Step::List, Step::Identify, Step::Witnessed] {
        for fault in [Fault::LoseRequest, Fault::LoseAnswer, Fault::Refuse] {
            let world = World::new();
            let mut left = None;
            crashed(async || {
                let bridge = world.open().await;
                let mut alone = left_at(&bridge, 0, 1, 1).await;
                assert_eq!(alone.commit_one_phase().await.value, crate::protocol::Finish::Done);
                left = Some((bridge.engine.id(1), left_at(&bridge, 1, 2, 2).await));
            });
            let (id, _half_open) = left.unwrap();
            Runtime::new().unwrap().block_on(async {
                (0..5).for_each(|_| world.right.arm(step, fault));
                let bridge = match world.try_open("").await {
                    Ok(bridge) => bridge,
                    // Asked before anything is registered: who refuses that is not worked with.
                    Err(error) => {
                        assert!(fault == Fault::Refuse && matches!(step, Step::Identify | Step::Witnessed));
                        assert_eq!(error.kind(), ErrorKind::Setup);
                        world.right.disarm(step);
                        world.open().await
                    }
                };
                assert_eq!(bridge.outcome(id).await.unwrap(), Outcome::Committed);
                all_settled(&bridge).await;
                assert!(world.nothing_held(2), "{step:?} {fault:?}");
                assert_eq!(bridge.outcome(bridge_id(id, 2)).await.unwrap(), Outcome::RolledBack);
                assert_eq!((bridge.status().damaged, bridge.status().in_doubt), (0, 0));
            });
        }
    }
}

fn bridge_id(id: TransactionId, sequence: u64) -> TransactionId {
    TransactionId { sequence, ..id }
}

/// A process that dies between two steps has settled nothing, and the next one begins anew.
#[test]
fn a_crash_between_the_steps_settles_nothing() {
    for step in [Step::EndSessions, Step::List, Step::Witnessed] {
        let world = World::new();
        let mut left = None;
        crashed(async || {
            let bridge = world.open().await;
            let mut alone = left_at(&bridge, 0, 1, 1).await;
            assert_eq!(alone.commit_one_phase().await.value, crate::protocol::Finish::Done);
            left = Some((bridge.engine.id(1), left_at(&bridge, 1, 2, 2).await));
        });
        let (id, _half_open) = left.unwrap();
        crashed(async || {
            let bridge = world.open().await;
            let resolver = Resolver::live(bridge.engine.clone());
            let pass = tokio::spawn(async move { resolver.sweep(&|_| {}).await.unsettled.len() });
            (0..1000).for_each(|_| world.right.arm(step, Fault::Hang));
            tokio::time::timeout(Duration::from_millis(30), pass).await.ok();
        });
        world.right.disarm(step);
        Runtime::new().unwrap().block_on(async {
            let bridge = world.open().await;
            all_settled(&bridge).await;
            assert_eq!(bridge.outcome(id).await.unwrap(), Outcome::Committed, "{step:?}");
            assert_eq!(bridge.outcome(bridge_id(id, 2)).await.unwrap(), Outcome::RolledBack, "{step:?}");
            assert!(world.nothing_held(2));
        });
    }
}

/// A thousand restarts while a participant was away cost one question each, and the settled ones cost none.
#[test]
fn many_restarts_cost_one_question() {
    let world = World::new();
    let participants: Vec<_> = ["left", "right"].iter().map(|name| name.parse().unwrap()).collect();
    Runtime::new().unwrap().block_on(async { world.open().await.close().await.unwrap() });
    for number in 1..=300 {
        let opening = crate::journal::Opening {
            node: "test".parse().unwrap(),
            incarnation: crate::id::Incarnation(number),
            opened_at_ms: 0,
            participants: participants.clone(),
        };
        crate::journal::Journal::open(&world.config("").journal, opening).unwrap().close().unwrap();
    }
    Runtime::new().unwrap().block_on(async {
        let before = world.left.calls(Step::EndSessions);
        let bridge = world.open().await;
        all_settled(&bridge).await;
        assert_eq!(world.left.calls(Step::EndSessions) - before, 1);
        assert_eq!(world.left.calls(Step::Witnessed), world.right.calls(Step::Witnessed));
        bridge.close().await.unwrap();
        // The next opening asks for its predecessor alone, and is done with it.
        let bridge = world.open().await;
        all_settled(&bridge).await;
        assert_eq!(world.left.calls(Step::EndSessions) - before, 2);
        assert!(Resolver::live(bridge.engine.clone()).sweep(&|_| {}).await.is_complete());
        assert_eq!(world.left.calls(Step::EndSessions) - before, 2, "nothing is left to ask for");
    });
}

/// Of an incarnation without witnesses nothing moves, and nothing is known.
#[test]
fn without_a_witness_nothing_is_presumed() {
    let world = World::new();
    let mut id = None;
    crashed(async || {
        let bridge = world.open_with("", false).await.unwrap();
        let mut alone = left_at(&bridge, 0, 1, 1).await;
        assert_eq!(alone.commit_one_phase().await.value, crate::protocol::Finish::Done);
        id = Some(bridge.engine.id(1));
    });
    Runtime::new().unwrap().block_on(async {
        let bridge = world.open().await;
        all_settled(&bridge).await;
        nobody_answers(&world);
        assert_eq!(bridge.outcome(id.unwrap()).await.unwrap(), Outcome::InDoubt);
    });
}

/// A participant that was never reached holds nothing.
#[test]
fn what_was_never_used_need_not_be_reached() {
    let world = World::new();
    for _ in 0..10_000 {
        world.right.arm(Step::Register, Fault::LoseRequest);
    }
    for _ in 0..2 {
        Runtime::new().unwrap().block_on(async {
            let bridge = world.open().await;
            all_settled(&bridge).await;
            bridge.close().await.unwrap();
        });
    }
}
