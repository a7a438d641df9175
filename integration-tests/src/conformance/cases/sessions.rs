//! Sessions: their reuse, their locks, and waiting for each other.

use crate::conformance::{Bench, Harness, Setup, assert_answer, eventually, reader, writer};
use handfast::ErrorKind;
use handfast::participant::BeginOptions;
use handfast::protocol::{Finish, Vote};
use std::time::Duration;

/// D27: a session serves a hundred branches that end in every way, and no branch sees another's.
pub async fn sessions_are_clean_when_reused<H: Harness>(harness: &H) {
    let bench = Bench::with(harness, Setup { pool_size: 1, ..Setup::default() }).await;
    let mut expected = 0;
    for round in 0..100 {
        let mode = if round % 5 == 4 { reader() } else { writer() };
        let mut branch = bench.begin_with(mode).await;
        let seen = harness.read(&*branch, 1).await.unwrap();
        assert_eq!(seen.unwrap_or(0), expected, "round {round}");
        if round % 5 == 4 {
            assert_answer(&branch.end_read_only().await, Vote::ReadOnly);
            continue;
        }
        harness.write(&*branch, 1, round + 1).await.unwrap();
        match round % 5 {
            0 => {
                assert_answer(&branch.prepare().await, Vote::Prepared);
                assert_answer(&branch.commit().await, Finish::Done);
                expected = round + 1;
            }
            1 => {
                assert_answer(&branch.prepare().await, Vote::Prepared);
                assert_answer(&branch.roll_back().await, Finish::Done);
            }
            2 => {
                assert_answer(&branch.commit_one_phase().await, Finish::Done);
                expected = round + 1;
            }
            _ => assert_answer(&branch.roll_back().await, Finish::Done),
        }
    }
    assert!(harness.sessions(bench.registration.incarnation).await <= 2);
    assert!(bench.listed().await.is_empty());
    assert_eq!(harness.value(1).await, Some(expected));
}

/// D27: a begin whose future was dropped leaves no session in a transaction, and the pool whole.
pub async fn a_dropped_begin_leaves_nothing<H: Harness>(harness: &H) {
    let bench = Bench::with(harness, Setup { pool_size: 1, ..Setup::default() }).await;
    for round in 0..30 {
        let limit = Duration::from_micros([0, 50, 100, 200, 400, 800][round % 6]);
        drop(tokio::time::timeout(limit, bench.participant.begin(bench.transaction(), writer())).await);
        let mut branch = bench.begin_and_write(1, 10).await;
        assert_answer(&branch.roll_back().await, Finish::Done);
    }
    assert_eq!(harness.value(1).await, None);
    eventually("one session", async || harness.sessions(bench.registration.incarnation).await <= 1).await;
}

/// A branch that is dropped at work frees its locks, and its place in the pool.
pub async fn a_dropped_branch_frees_its_locks<H: Harness>(harness: &H) {
    let bench = Bench::with(harness, Setup { pool_size: 1, ..Setup::default() }).await;
    for _ in 0..5 {
        let branch = bench.begin_and_write(1, 10).await;
        assert!(harness.is_locked(1).await);
        drop(branch);
        bench.unlocked(1).await;
    }
    assert_eq!(harness.value(1).await, None);
}

/// D32: a branch that is dropped in the middle of a statement frees its locks, too.
pub async fn a_dropped_branch_frees_its_locks_while_it_waits<H: Harness>(harness: &H) {
    let bench = Bench::new(harness).await;
    let mut holder = bench.begin_and_write(1, 10).await;
    let waiter = bench.begin_with(BeginOptions { lock_timeout: Duration::from_secs(60), ..writer() }).await;
    harness.write(&*waiter, 2, 20).await.unwrap();
    let waiting = tokio::time::timeout(Duration::from_millis(200), harness.write(&*waiter, 1, 20)).await;
    assert!(waiting.is_err(), "{waiting:?}");
    drop(waiter);
    bench.unlocked(2).await;
    assert_answer(&holder.commit_one_phase().await, Finish::Done);
    assert_eq!((harness.value(1).await, harness.value(2).await), (Some(10), None));
}

/// A session killed in the pool costs nobody a transaction.
pub async fn a_session_lost_in_the_pool_is_replaced<H: Harness>(harness: &H) {
    let bench = Bench::with(harness, Setup { pool_size: 2, ..Setup::default() }).await;
    for round in 1..=5 {
        let (mut a, mut b) = (bench.begin().await, bench.begin().await);
        let sessions = [a.id().session(), b.id().session()];
        assert_answer(&a.roll_back().await, Finish::Done);
        assert_answer(&b.roll_back().await, Finish::Done);
        drop((a, b));
        for session in sessions {
            harness.kill(session).await;
        }
        let mut branch = bench.begin().await;
        let mut written = harness.write(&*branch, 1, round).await;
        // Killed a moment after its last use, one may be found dead by its first statement only, which says so.
        for _ in sessions {
            let Err(error) = written else { break };
            assert_eq!(error.kind(), ErrorKind::Retry, "{}", error.chain());
            drop(branch);
            branch = bench.begin().await;
            written = harness.write(&*branch, 1, round).await;
        }
        written.unwrap_or_else(|error| panic!("{}", error.chain()));
        assert_answer(&branch.commit_one_phase().await, Finish::Done);
    }
    assert_eq!(harness.value(1).await, Some(5));
}

/// D37: the victim of a deadlock is told to try again, rolls back, and its session serves on.
pub async fn a_deadlock_is_to_be_retried<H: Harness>(harness: &H) {
    let bench = Bench::with(harness, Setup { pool_size: 2, ..Setup::default() }).await;
    assert_answer(&bench.begin_and_write(1, 0).await.commit_one_phase().await, Finish::Done);
    assert_answer(&bench.begin_and_write(2, 0).await.commit_one_phase().await, Finish::Done);
    let (mut a, mut b) = (bench.begin_and_write(1, 10).await, bench.begin_and_write(2, 20).await);
    // The victim is rolled back as soon as it is told, as an application does; the other goes on then.
    let first = async {
        let result = harness.write(&*a, 2, 10).await;
        if result.is_err() {
            assert_eq!(a.prepare().await.value, Vote::No);
            assert_answer(&a.roll_back().await, Finish::Done);
        }
        result
    };
    let second = async {
        let result = harness.write(&*b, 1, 20).await;
        if result.is_err() {
            assert_eq!(b.prepare().await.value, Vote::No);
            assert_answer(&b.roll_back().await, Finish::Done);
        }
        result
    };
    let (first, second) = tokio::join!(first, second);
    let victim = if first.is_err() { &first } else { &second };
    assert_eq!(victim.as_ref().unwrap_err().kind(), ErrorKind::Retry, "{first:?} {second:?}");
    let value = match (&first, &second) {
        (Ok(()), Err(_)) => (10, a.commit_one_phase().await),
        (Err(_), Ok(())) => (20, b.commit_one_phase().await),
        both => panic!("one victim: {both:?}"),
    };
    assert_answer(&value.1, Finish::Done);
    assert_eq!((harness.value(1).await, harness.value(2).await), (Some(value.0), Some(value.0)));
    drop((a, b));
    for round in 0..20 {
        assert_answer(&bench.begin_and_write(1, round).await.commit_one_phase().await, Finish::Done);
    }
}

/// A lock that is not given in time breaks what no database sees as a deadlock.
pub async fn a_wait_for_a_lock_ends<H: Harness>(harness: &H) {
    let bench = Bench::new(harness).await;
    let mut holder = bench.begin_and_write(1, 10).await;
    let mut waiter = bench.begin_with(BeginOptions { lock_timeout: Duration::from_secs(1), ..writer() }).await;
    let error = harness.write(&*waiter, 1, 20).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retry, "{}", error.chain());
    assert_answer(&waiter.prepare().await, Vote::No);
    assert_answer(&waiter.roll_back().await, Finish::Done);
    assert_answer(&holder.commit_one_phase().await, Finish::Done);
    assert_eq!(harness.value(1).await, Some(10));
}

/// A closed participant keeps no session and begins nothing; branches at work end as they were going to.
pub async fn close_leaves_no_session<H: Harness>(harness: &H) {
    let bench = Bench::new(harness).await;
    let mut branch = bench.begin_and_write(1, 10).await;
    bench.participant.close().await;
    assert_answer(&branch.commit_one_phase().await, Finish::Done);
    drop(branch);
    eventually("no session is left", async || harness.sessions(bench.registration.incarnation).await == 0).await;
    assert_eq!(harness.value(1).await, Some(10));
    let after = bench.participant.begin(bench.transaction(), writer()).await;
    assert_eq!(after.err().unwrap().kind(), ErrorKind::Closed);
}
