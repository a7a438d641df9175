//! What the resolver does, from outside of a branch's session.

use crate::conformance::{Bench, Harness, Setup, assert_answer, registration, writer};
use handfast::id::{BranchId, Incarnation};
use handfast::participant::{Evidence, Question, Sighted};
use handfast::protocol::{Finish, Resolution, Vote};
use std::sync::Mutex;
use std::time::Duration;

/// A branch's id comes back from the list as it was given, with an age that is no nonsense.
pub async fn ids_survive_the_list<H: Harness>(harness: &H) {
    let bench = Bench::registered(harness, harness.participant("bench", Setup::default()), registration(65_535)).await;
    let mut expected = Vec::new();
    for sequence in [1, 1_042, u64::MAX] {
        let id = handfast::id::TransactionId { sequence, ..bench.transaction() };
        let mut branch = bench.participant.begin(id, writer()).await.unwrap();
        assert_eq!((branch.id().transaction, branch.id().participant), (id, 65_535));
        assert_answer(&branch.prepare().await, Vote::Prepared);
        expected.push(branch.id());
    }
    let mut listed = bench.listed().await;
    listed.sort();
    expected.sort();
    assert_eq!(listed, expected);
    for sighting in bench.participant.list().await.unwrap() {
        assert!(sighting.age.is_none_or(|age| age < Duration::from_secs(3600)), "{sighting:?}");
    }
    for id in expected {
        bench.roll_back_from_outside(&id).await;
    }
}

/// Other programs' branches are shown as they are and left alone.
pub async fn foreign_branches_are_left_alone<H: Harness>(harness: &H) {
    let bench = Bench::new(harness).await;
    let name = format!("other.{}", bench.registration.incarnation);
    harness.prepare_foreign(&name).await;
    let mut branch = bench.begin_and_write(1, 10).await;
    assert_answer(&branch.prepare().await, Vote::Prepared);
    let listed: Vec<_> = bench.participant.list().await.unwrap().into_iter().map(|s| s.branch).collect();
    assert!(listed.contains(&Sighted::Ours(branch.id())), "{listed:?}");
    let foreign = |sighted: &&Sighted| matches!(sighted, Sighted::Foreign(text) if text.contains(&name));
    assert_eq!(listed.iter().filter(foreign).count(), 1, "{listed:?}");
    assert_answer(&branch.commit().await, Finish::Done);
    assert!(harness.end_foreign(&name).await, "it was touched");
}

/// The witness table answers, and a fence makes the answer final.
pub async fn the_truth_table_of_evidence<H: Harness>(harness: &H) {
    let bench = Bench::new(harness).await;
    let nobody = bench.transaction().branch(0, 0);
    assert_eq!(bench.ask(&nobody, Question::Look).await, Evidence::Nothing);
    assert_eq!(bench.ask(&nobody, Question::Fence).await, Evidence::Never);
    assert_eq!(bench.ask(&nobody, Question::Look).await, Evidence::Never);
    assert_eq!(bench.ask(&nobody, Question::Fence).await, Evidence::Never);

    let mut branch = bench.begin_and_write(1, 10).await;
    let id = branch.id();
    assert_eq!(bench.ask(&id, Question::Look).await, Evidence::Nothing);
    assert_answer(&branch.prepare().await, Vote::Prepared);
    assert_eq!(bench.ask(&id, Question::Look).await, Evidence::Nothing);
    assert_eq!(bench.ask(&id, Question::Fence).await, Evidence::Blocked);
    assert_answer(&branch.commit().await, Finish::Done);
    assert_eq!(bench.ask(&id, Question::Look).await, Evidence::Committed);
    assert_eq!(bench.ask(&id, Question::Fence).await, Evidence::Committed);
}

/// A fence is the last word: whoever comes later cannot prepare and cannot commit.
pub async fn a_fence_stops_a_late_branch<H: Harness>(harness: &H) {
    let bench = Bench::new(harness).await;
    let mut branch = bench.begin_and_write(1, 10).await;
    assert_eq!(bench.ask(&branch.id(), Question::Fence).await, Evidence::Never);
    assert_answer(&branch.prepare().await, Vote::No);
    assert!(bench.listed().await.is_empty());

    let mut branch = bench.begin_and_write(1, 10).await;
    assert_eq!(bench.ask(&branch.id(), Question::Fence).await, Evidence::Never);
    assert_answer(&branch.commit_one_phase().await, Finish::RolledBack);
    assert_eq!(bench.ask(&branch.id(), Question::Look).await, Evidence::Never);
    assert_eq!(harness.value(1).await, None);
}

/// Fence and witness never both win, whoever is quicker.
pub async fn a_fence_and_a_branch_have_one_winner<H: Harness>(harness: &H) {
    let bench = Bench::new(harness).await;
    for row in 0..10 {
        let mut branch = bench.begin_and_write(row, 10).await;
        let id = branch.id();
        let (vote, evidence) = tokio::join!(branch.prepare(), bench.ask(&id, Question::Fence));
        match vote.value {
            Vote::Prepared => assert_eq!(evidence, Evidence::Blocked, "row {row}"),
            _ => assert_eq!((vote.value, evidence), (Vote::No, Evidence::Never), "row {row}"),
        }
        assert_answer(&branch.roll_back().await, Finish::Done);

        let mut branch = bench.begin_and_write(row, 10).await;
        let id = branch.id();
        let (finish, evidence) = tokio::join!(branch.commit_one_phase(), bench.ask(&id, Question::Fence));
        match finish.value {
            Finish::Done => assert!(matches!(evidence, Evidence::CommittedAlone | Evidence::Blocked), "{evidence:?}"),
            _ => assert_eq!((finish.value, evidence), (Finish::RolledBack, Evidence::Never), "row {row}"),
        }
    }
}

/// A prepared branch outlives its session and is committed or rolled back from outside.
pub async fn finished_from_outside<H: Harness>(harness: &H) {
    let bench = Bench::new(harness).await;
    for (row, commit) in [(1, true), (2, false)] {
        let mut branch = bench.begin_and_write(row, 10).await;
        assert_answer(&branch.prepare().await, Vote::Prepared);
        let id = branch.id();
        drop(branch);
        assert_eq!(bench.listed().await, [id]);
        if commit {
            bench.commit_from_outside(&id).await
        } else {
            bench.roll_back_from_outside(&id).await
        }
        assert!(bench.listed().await.is_empty());
        assert_eq!(harness.value(row).await, commit.then_some(10));
        bench.unlocked(row).await;
    }
}

/// Many are finished by one call: each is told of once and in order, and what cannot be finished stops none of the others.
pub async fn many_are_finished_at_once<H: Harness>(harness: &H) {
    let live = Bench::new(harness).await;
    for of_the_dead in [true, false] {
        let dead = if of_the_dead { &Bench::new(harness).await } else { &live };
        let never = dead.transaction().branch(0, 0);
        let (mut work, mut expected, mut held) = (Vec::new(), Vec::new(), Vec::new());
        for row in 1..=70 {
            let mut branch = dead.begin_and_write(row, 10).await;
            assert_answer(&branch.prepare().await, Vote::Prepared);
            let resolution = if row % 3 == 0 { Resolution::RollBack } else { Resolution::Commit };
            work.push((branch.id(), resolution));
            expected.push(Finish::Done);
            if row % 35 == 0 {
                // Its session lives: for the moment it may be in the way.
                held.push(branch);
            }
            if row % 20 == 0 {
                work.push((never, resolution));
                expected.push(Finish::Unknown);
            }
        }
        let told = Mutex::new(Vec::new());
        live.participant.finish_all(&work, &|place, answer| told.lock().unwrap().push((place, answer))).await;
        let told = told.into_inner().unwrap();
        assert!(told.iter().map(|(place, _)| *place).eq(0..work.len()), "{told:?}");
        for ((place, answer), expected) in told.iter().zip(expected) {
            assert_eq!(answer.value, expected, "{place}: {:?}", answer.cause);
        }
        assert!(dead.listed().await.is_empty());
        for row in 1..=70 {
            assert_eq!(harness.value(row).await, (row % 3 != 0).then_some(10), "row {row}");
            assert!(!harness.is_locked(row).await, "row {row}");
        }
        drop(held);
        live.participant.finish_all(&[], &|_, answer| panic!("{answer:?}")).await;
    }
}

/// D3: a branch that is not there is no success, whatever was asked of it.
pub async fn unknown_branches_are_unknown<H: Harness>(harness: &H) {
    let bench = Bench::new(harness).await;
    let mut done = bench.begin().await;
    assert_answer(&done.prepare().await, Vote::Prepared);
    assert_answer(&done.commit().await, Finish::Done);
    let never: BranchId = "hf1.nobody.0000000000000001.1.0.0".parse().unwrap();
    assert_ne!(bench.registration.incarnation, Incarnation(1));
    for id in [done.id(), never] {
        for answer in [bench.participant.commit(&id).await, bench.participant.roll_back(&id).await] {
            assert_answer(&answer, Finish::Unknown);
            assert!(answer.cause.is_some());
        }
    }
}

/// A session is ended by its name, with what it holds.
pub async fn sessions_are_ended_by_name<H: Harness>(harness: &H) {
    let bench = Bench::new(harness).await;
    let mut branch = bench.begin_and_write(1, 10).await;
    let session = branch.id().session();
    assert!(bench.participant.end_session(session).await.unwrap());
    assert!(!harness.is_locked(1).await, "ended means that its locks are free");
    assert_ne!(branch.prepare().await.value, Vote::Prepared);
    assert!(!bench.participant.end_session(session).await.unwrap());
    drop(branch);
    let mut next = bench.begin_and_write(1, 11).await;
    assert_answer(&next.commit_one_phase().await, Finish::Done);
    assert_eq!(harness.value(1).await, Some(11));
}

/// Ending the session of a prepared branch frees nothing: the promise stands.
pub async fn an_ended_session_leaves_its_promise<H: Harness>(harness: &H) {
    let bench = Bench::new(harness).await;
    let mut branch = bench.begin_and_write(1, 10).await;
    assert_answer(&branch.prepare().await, Vote::Prepared);
    let id = branch.id();
    assert!(bench.participant.end_session(id.session()).await.unwrap());
    assert_eq!(bench.listed().await, [id]);
    assert!(harness.is_locked(1).await);
    drop(branch);
    bench.commit_from_outside(&id).await;
    assert_eq!(harness.value(1).await, Some(10));
}

/// A witness that is switched on says nothing of branches that were begun without one, and fences none of them.
pub async fn a_missing_witness_accuses_nobody<H: Harness>(harness: &H) {
    let without = Bench::with(harness, Setup { witness: false, ..Setup::default() }).await;
    let mut branch = without.begin_and_write(1, 10).await;
    assert_answer(&branch.prepare().await, Vote::Prepared);
    let with = Bench::new(harness).await;
    for question in [Question::Look, Question::Fence, Question::Look] {
        assert_eq!(with.ask(&branch.id(), question).await, Evidence::Off);
    }
    assert_answer(&branch.commit().await, Finish::Done);
    assert_eq!(with.ask(&branch.id(), Question::Fence).await, Evidence::Off);
    let ours = with.transaction().branch(0, 0);
    assert_eq!(with.ask(&ours, Question::Fence).await, Evidence::Never, "its own are as ever");
}

/// Whoever asks late for the end of a branch that is gone disturbs nobody who works under its session's name now.
pub async fn finishing_what_is_gone_disturbs_nobody<H: Harness>(harness: &H) {
    let bench = Bench::with(harness, Setup { pool_size: 1, ..Setup::default() }).await;
    let mut gone = bench.begin_and_write(1, 10).await;
    assert_answer(&gone.prepare().await, Vote::Prepared);
    assert_answer(&gone.commit().await, Finish::Done);
    let mut next = bench.begin_and_write(2, 20).await;
    assert_answer(&bench.participant.commit(&gone.id()).await, Finish::Unknown);
    assert_answer(&bench.participant.roll_back(&gone.id()).await, Finish::Unknown);
    assert_answer(&next.prepare().await, Vote::Prepared);
    assert_answer(&bench.participant.commit(&gone.id()).await, Finish::Unknown);
    assert_answer(&next.commit().await, Finish::Done);
    assert_eq!((harness.value(1).await, harness.value(2).await), (Some(10), Some(20)));
}
