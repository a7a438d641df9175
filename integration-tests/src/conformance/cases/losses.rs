//! What is lost on the way: by the application's own doing, by an administrator's, by the network's.

use crate::conformance::{Bench, Harness, assert_answer, eventually, reader};
use handfast::participant::{Evidence, Question};
use handfast::protocol::{Finish, Vote};
use std::time::Duration;

/// D1: the application ended the transaction by itself, and may have begun another: never a yes.
pub async fn the_application_ended_the_transaction<H: Harness>(harness: &H) {
    if !H::APPLICATION_CAN_END {
        return;
    }
    let bench = Bench::new(harness).await;
    for (commit, then_begin) in [(true, false), (false, false), (true, true), (false, true)] {
        let expected = commit.then_some(10);
        let ended = async |row: i64| {
            let branch = bench.begin_and_write(row, 10).await;
            harness.end(&*branch, commit, then_begin).await;
            branch
        };
        let first = if commit { 0 } else { 100 } + if then_begin { 10 } else { 0 };

        let mut branch = ended(first).await;
        assert_answer(&branch.prepare().await, Vote::Lost);
        assert_eq!(bench.ask(&branch.id(), Question::Look).await, Evidence::Nothing, "a false proof of commit");
        assert_answer(&branch.roll_back().await, Finish::Unknown);
        assert_eq!(harness.value(first).await, expected);

        let mut branch = ended(first + 1).await;
        assert_answer(&branch.commit_one_phase().await, Finish::Lost);
        assert_eq!(bench.ask(&branch.id(), Question::Look).await, Evidence::Nothing, "a false proof of commit");
        assert_eq!(harness.value(first + 1).await, expected);

        let mut branch = ended(first + 2).await;
        assert_answer(&branch.roll_back().await, Finish::Unknown);
        assert_eq!(harness.value(first + 2).await, expected);

        let mut branch = bench.begin_with(reader()).await;
        harness.end(&*branch, commit, then_begin).await;
        assert_answer(&branch.end_read_only().await, Vote::Lost);
    }
    assert!(bench.listed().await.is_empty());
}

/// A session killed while the application works: no vote is a yes, nothing is left.
pub async fn killed_before_prepare<H: Harness>(harness: &H) {
    let bench = Bench::new(harness).await;
    let mut branch = bench.begin_and_write(1, 10).await;
    assert!(harness.kill(branch.id().session()).await);
    let vote = branch.prepare().await;
    assert!(matches!(vote.value, Vote::Unknown | Vote::No), "{vote:?}");
    assert!(vote.cause.is_some());
    assert!(matches!(branch.roll_back().await.value, Finish::Unknown | Finish::Done));
    bench.unlocked(1).await;
    assert_eq!(harness.value(1).await, None);
    assert!(bench.listed().await.is_empty());

    let mut branch = bench.begin_and_write(1, 10).await;
    assert!(harness.kill(branch.id().session()).await);
    assert_answer(&branch.commit_one_phase().await, Finish::Unknown);
    assert_eq!(bench.ask(&branch.id(), Question::Fence).await, Evidence::Never);
    assert_eq!(harness.value(1).await, None);

    let mut branch = bench.begin_with(reader()).await;
    assert_eq!(harness.read(&*branch, 1).await.unwrap_or_else(|error| panic!("{}", error.chain())), None);
    assert!(harness.kill(branch.id().session()).await);
    assert!(!matches!(branch.end_read_only().await.value, Vote::ReadOnly | Vote::Prepared));

    let mut branch = bench.begin_and_write(1, 10).await;
    assert!(harness.kill(branch.id().session()).await);
    branch.roll_back().await;
    drop(branch);
    bench.unlocked(1).await;
}

/// D5: a session killed after the prepare: unknown, and the branch waits for whoever decides.
pub async fn killed_after_prepare<H: Harness>(harness: &H) {
    let bench = Bench::new(harness).await;
    for commit in [true, false] {
        let mut branch = bench.begin_and_write(1, 10).await;
        assert_answer(&branch.prepare().await, Vote::Prepared);
        let id = branch.id();
        assert!(harness.kill(id.session()).await);
        let answer = if commit { branch.commit().await } else { branch.roll_back().await };
        assert_answer(&answer, Finish::Unknown);
        assert!(answer.cause.is_some());
        drop(branch);
        assert_eq!(bench.listed().await, [id]);
        if commit {
            bench.commit_from_outside(&id).await
        } else {
            bench.roll_back_from_outside(&id).await
        }
        assert!(bench.listed().await.is_empty());
        let evidence = if commit { Evidence::Committed } else { Evidence::Never };
        assert_eq!(bench.ask(&id, Question::Fence).await, evidence);
        assert_eq!(harness.value(1).await, Some(10));
    }
}

/// D3, D21: an administrator was quicker. Never taken for the answer that was hoped for.
pub async fn finished_by_hand<H: Harness>(harness: &H) {
    let bench = Bench::new(harness).await;
    for (by_hand_commit, we_commit) in [(true, true), (false, true), (true, false), (false, false)] {
        let mut branch = bench.begin_and_write(1, 10).await;
        assert_answer(&branch.prepare().await, Vote::Prepared);
        let id = branch.id();
        if !harness.finish_by_hand(&id, by_hand_commit).await {
            // MariaDB lets nobody while the session lives.
            drop(branch);
            eventually("by hand", async || harness.finish_by_hand(&id, by_hand_commit).await).await;
            let answer =
                if we_commit { bench.participant.commit(&id).await } else { bench.participant.roll_back(&id).await };
            assert_answer(&answer, Finish::Unknown);
        } else if we_commit {
            assert_answer(&branch.commit().await, Finish::Unknown);
        } else {
            let expected = if by_hand_commit { Finish::Unknown } else { Finish::Done };
            assert_answer(&branch.roll_back().await, expected);
        }
        let evidence = if by_hand_commit { Evidence::Committed } else { Evidence::Never };
        assert_eq!(bench.ask(&id, Question::Fence).await, evidence);
    }
}

/// D23: a prepare whose future was dropped: a rollback on the same session still finds whatever became of it.
pub async fn a_dropped_prepare_is_rolled_back<H: Harness>(harness: &H) {
    let bench = Bench::new(harness).await;
    for microseconds in [0, 100, 300, 1_000, 3_000] {
        let mut branch = bench.begin_and_write(1, 10).await;
        let id = branch.id();
        let vote = tokio::time::timeout(Duration::from_micros(microseconds), branch.prepare()).await;
        assert!(vote.is_err() || vote.is_ok_and(|vote| vote.value == Vote::Prepared));
        if branch.roll_back().await.value != Finish::Done {
            drop(branch);
            eventually("gone", async || {
                bench.participant.roll_back(&id).await;
                bench.ask(&id, Question::Fence).await == Evidence::Never
            })
            .await;
        }
        assert!(bench.listed().await.is_empty());
        bench.unlocked(1).await;
        assert_eq!(harness.value(1).await, None);
    }
}
