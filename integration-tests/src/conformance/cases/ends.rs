//! The ways in which a branch ends by its own session.

use crate::conformance::{Bench, Harness, Setup, assert_answer, reader};
use handfast::participant::{Evidence, Question};
use handfast::protocol::{Finish, Vote};

/// What was prepared is locked and unseen, what was committed is seen.
pub async fn prepared_then_committed<H: Harness>(harness: &H) {
    let bench = Bench::new(harness).await;
    let mut branch = bench.begin_and_write(1, 10).await;
    assert_eq!(harness.value(1).await, None);
    assert_answer(&branch.prepare().await, Vote::Prepared);
    assert_eq!(bench.listed().await, [branch.id()]);
    assert_eq!(harness.value(1).await, None);
    assert!(harness.is_locked(1).await);
    assert_answer(&branch.commit().await, Finish::Done);
    assert_eq!(harness.value(1).await, Some(10));
    assert!(bench.listed().await.is_empty());
    assert_eq!(bench.ask(&branch.id(), Question::Look).await, Evidence::Committed);
    bench.unlocked(1).await;
}

/// Nothing is left of what was prepared and rolled back.
pub async fn prepared_then_rolled_back<H: Harness>(harness: &H) {
    let bench = Bench::new(harness).await;
    let mut branch = bench.begin_and_write(1, 10).await;
    assert_answer(&branch.prepare().await, Vote::Prepared);
    assert_answer(&branch.roll_back().await, Finish::Done);
    assert_eq!(harness.value(1).await, None);
    assert!(bench.listed().await.is_empty());
    assert_eq!(bench.ask(&branch.id(), Question::Look).await, Evidence::Nothing);
    bench.unlocked(1).await;
}

/// Nothing is left of what was rolled back without a prepare, failed statement or not.
pub async fn rolled_back_unprepared<H: Harness>(harness: &H) {
    let bench = Bench::new(harness).await;
    for fails in [false, true] {
        let mut branch = bench.begin_and_write(1, 10).await;
        if fails {
            harness.fail(&*branch).await;
        }
        assert_answer(&branch.roll_back().await, Finish::Done);
        assert_eq!(harness.value(1).await, None);
        bench.unlocked(1).await;
    }
}

/// A branch that wrote nothing is prepared like any other, and its commit can be proven.
pub async fn an_empty_branch_is_a_branch<H: Harness>(harness: &H) {
    let bench = Bench::new(harness).await;
    let mut branch = bench.begin().await;
    assert_answer(&branch.prepare().await, Vote::Prepared);
    assert_eq!(bench.listed().await, [branch.id()]);
    assert_answer(&branch.commit().await, Finish::Done);
    assert_eq!(bench.ask(&branch.id(), Question::Fence).await, Evidence::Committed);
}

/// D1: a failed statement that the application ignores is a `No`, and the session goes on to serve.
pub async fn a_failed_statement_votes_no<H: Harness>(harness: &H) {
    let bench = Bench::with(harness, Setup { pool_size: 1, ..Setup::default() }).await;
    let mut branch = bench.begin_and_write(1, 10).await;
    harness.fail(&*branch).await;
    let answer = branch.prepare().await;
    assert_answer(&answer, Vote::No);
    assert!(answer.cause.is_some());
    assert!(bench.listed().await.is_empty());
    assert_answer(&branch.roll_back().await, Finish::Done);
    assert_eq!(harness.value(1).await, None);
    drop(branch);
    let mut next = bench.begin_and_write(1, 11).await;
    assert_answer(&next.prepare().await, Vote::Prepared);
    assert_answer(&next.commit().await, Finish::Done);
    assert_eq!(harness.value(1).await, Some(11));
}

/// One writer decides by its own commit, and leaves a proof that says so.
pub async fn one_phase_commits<H: Harness>(harness: &H) {
    let bench = Bench::new(harness).await;
    let mut branch = bench.begin_and_write(1, 10).await;
    assert_answer(&branch.commit_one_phase().await, Finish::Done);
    assert_eq!(harness.value(1).await, Some(10));
    assert!(bench.listed().await.is_empty());
    assert_eq!(bench.ask(&branch.id(), Question::Look).await, Evidence::CommittedAlone);
    assert_eq!(bench.ask(&branch.id(), Question::Fence).await, Evidence::CommittedAlone);
}

/// D22: a commit that the server turns into a rollback is told as one.
pub async fn one_phase_of_a_failed_branch_is_rolled_back<H: Harness>(harness: &H) {
    let bench = Bench::new(harness).await;
    let mut branch = bench.begin_and_write(1, 10).await;
    harness.fail(&*branch).await;
    assert_answer(&branch.commit_one_phase().await, Finish::RolledBack);
    assert_eq!(harness.value(1).await, None);
    assert_eq!(bench.ask(&branch.id(), Question::Fence).await, Evidence::Never);
}

/// A branch declared read-only reads, and is no promise.
pub async fn read_only_branches_end_in_phase_one<H: Harness>(harness: &H) {
    let bench = Bench::new(harness).await;
    assert_answer(&bench.begin_and_write(1, 10).await.commit_one_phase().await, Finish::Done);
    let mut branch = bench.begin_with(reader()).await;
    assert_eq!(harness.read(&*branch, 1).await.unwrap(), Some(10));
    assert_eq!(harness.read(&*branch, 2).await.unwrap(), None);
    assert_answer(&branch.end_read_only().await, Vote::ReadOnly);
    assert_eq!(bench.ask(&branch.id(), Question::Look).await, Evidence::Nothing);
    assert!(bench.listed().await.is_empty());
}

/// A branch declared read-only that writes fails, and cannot end well.
pub async fn read_only_branches_cannot_write<H: Harness>(harness: &H) {
    let bench = Bench::new(harness).await;
    let mut branch = bench.begin_with(reader()).await;
    harness.write(&*branch, 1, 10).await.unwrap_err();
    assert_answer(&branch.end_read_only().await, Vote::No);
    assert_answer(&branch.roll_back().await, Finish::Done);
    assert_eq!(harness.value(1).await, None);
    let branch = bench.begin_with(reader()).await;
    let mut branch = branch;
    assert_answer(&branch.roll_back().await, Finish::Done);
}

/// Calls out of order do nothing and are never answered well.
pub async fn calls_out_of_order_are_unknown<H: Harness>(harness: &H) {
    let bench = Bench::new(harness).await;
    let mut branch = bench.begin_and_write(1, 10).await;
    assert_answer(&branch.commit().await, Finish::Unknown);
    assert_eq!(harness.value(1).await, None);
    let mut branch = bench.begin_and_write(2, 20).await;
    assert_answer(&branch.prepare().await, Vote::Prepared);
    assert_ne!(branch.prepare().await.value, Vote::Prepared);
    assert_answer(&branch.commit_one_phase().await, Finish::Unknown);
    let id = branch.id();
    drop(branch);
    bench.roll_back_from_outside(&id).await;
    assert_eq!(harness.value(2).await, None);
}

/// Without a witness everything works, and nothing can be proven.
pub async fn without_a_witness<H: Harness>(harness: &H) {
    let bench = Bench::with(harness, Setup { witness: false, ..Setup::default() }).await;
    let mut branch = bench.begin_and_write(1, 10).await;
    assert_answer(&branch.prepare().await, Vote::Prepared);
    assert_eq!(bench.ask(&branch.id(), Question::Fence).await, Evidence::Off);
    assert_answer(&branch.commit().await, Finish::Done);
    assert_eq!(bench.ask(&branch.id(), Question::Look).await, Evidence::Off);
    assert_answer(&bench.begin_and_write(2, 20).await.commit_one_phase().await, Finish::Done);
    let mut failed = bench.begin_and_write(3, 30).await;
    harness.fail(&*failed).await;
    assert_answer(&failed.prepare().await, Vote::No);
    assert_eq!((harness.value(1).await, harness.value(2).await), (Some(10), Some(20)));
    assert_eq!(harness.value(3).await, None);
}
