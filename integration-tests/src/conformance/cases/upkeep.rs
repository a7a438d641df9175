//! What is kept in the tables, how long, and what a person may do by hand.

use crate::conformance::{Bench, Harness, Setup, assert_answer, eventually};
use handfast::ErrorKind;
use handfast::id::Incarnation;
use handfast::participant::witness::{Kind, PAGE};
use handfast::participant::{Evidence, Participant, Prunable, Question, Registered, Registration};
use handfast::protocol::{Finish, Resolution, Vote};
use std::time::Duration;

/// What is left of an incarnation's rows, as sequence and kind.
async fn left(participant: &dyn Participant, number: u16, of: Incarnation) -> Vec<(u64, Kind)> {
    let rows = participant.witnessed(number, &[of], 0).await.unwrap();
    rows.into_iter().map(|row| (row.sequence, row.kind)).collect()
}

async fn commit_alone<H: Harness>(bench: &Bench<'_, H>, row: i64) {
    assert_answer(&bench.begin_and_write(row, 1).await.commit_one_phase().await, Finish::Done);
}

/// Every opening is in the registry, of whatever node, journal and number; the lineage is none.
pub async fn the_registry_tells_who_was_there<H: Harness>(harness: &H) {
    let nobody = harness.participant("bench", Setup::default());
    assert_eq!(nobody.registry().await.unwrap(), [], "and nothing was created");
    assert_eq!(nobody.identify().await.unwrap().lineage, None);
    let (one, two) = (Bench::new(harness).await, Bench::new(harness).await);
    let other_number = Registration { participant: 7, ..one.registration.clone() };
    let three = Bench::registered(harness, harness.participant("other", Setup::default()), other_number).await;
    let mut found = nobody.registry().await.unwrap();
    for row in &mut found {
        assert!(row.age < Duration::from_secs(600), "{row:?}");
        row.age = Duration::ZERO;
    }
    let expected = [&one, &two, &three].map(|bench| {
        let Registration { node, incarnation, journal, decision, participant, host, .. } = bench.registration.clone();
        let decision = Some(decision);
        Registered { node, incarnation, participant, journal, decision, host, age: Duration::ZERO }
    });
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(expected.iter().all(|row| found.contains(row)), "{found:?}");
}

/// Witnesses below a sequence go; fences, what is not committed yet, and everybody else's stay.
pub async fn witnesses_are_pruned_below<H: Harness>(harness: &H) {
    let (bench, neighbour) = (Bench::new(harness).await, Bench::new(harness).await);
    let without = Bench::with(harness, Setup { witness: false, ..Setup::default() }).await;
    let Registration { incarnation, participant, .. } = bench.registration;
    for row in 1..=3 {
        commit_alone(&bench, row).await;
        commit_alone(&neighbour, 10 + row).await;
    }
    assert_eq!(bench.ask(&bench.transaction().branch(0, 0), Question::Fence).await, Evidence::Never);
    let mut decided = bench.begin_and_write(5, 1).await;
    let mut held = bench.begin_and_write(6, 1).await;
    for branch in [&mut decided, &mut held] {
        assert_answer(&branch.prepare().await, Vote::Prepared);
    }
    assert_answer(&decided.commit().await, Finish::Done);
    let other_number = bench.transaction().branch(1, 0);
    assert_eq!(bench.ask(&other_number, Question::Fence).await, Evidence::Never);

    let prune = async |below| bench.participant.prune(Prunable::Witnesses { incarnation, participant, below }).await;
    assert!(!prune(3).await.unwrap());
    let expected = [(3, Kind::OnePhase), (4, Kind::Fence), (5, Kind::Decided)];
    assert_eq!(left(&*bench.participant, 0, incarnation).await, expected);
    assert!(!prune(0).await.unwrap() && !prune(1).await.unwrap());
    assert_eq!(left(&*bench.participant, 0, incarnation).await, expected);
    assert!(!prune(u64::MAX).await.unwrap());
    assert_eq!(left(&*bench.participant, 0, incarnation).await, [(4, Kind::Fence)]);
    assert_answer(&held.commit().await, Finish::Done);
    assert_eq!(bench.ask(&held.id(), Question::Look).await, Evidence::Committed, "what was held is not pruned");

    assert_eq!(left(&*bench.participant, 1, incarnation).await, [(other_number.transaction.sequence, Kind::Fence)]);
    assert_eq!(left(&*bench.participant, 0, neighbour.registration.incarnation).await.len(), 3);
    let of = without.registration.incarnation;
    assert!(!bench.participant.prune(Prunable::Witnesses { incarnation: of, participant, below: 9 }).await.unwrap());
    assert_eq!(left(&*bench.participant, 0, of).await, [(0, Kind::Off)]);
}

/// A settled incarnation leaves nothing under its number, not even that it was there; one that is at work is refused.
pub async fn a_settled_incarnation_is_pruned_whole<H: Harness>(harness: &H) {
    let dead = Bench::with(harness, Setup { witness: false, ..Setup::default() }).await;
    let Registration { incarnation, participant, .. } = dead.registration;
    let other_number = Registration { participant: 1, ..dead.registration.clone() };
    let neighbour = Bench::registered(harness, harness.participant("other", Setup::default()), other_number).await;
    commit_alone(&neighbour, 1).await;
    let live = Bench::new(harness).await;
    commit_alone(&live, 2).await;

    let settled = Prunable::Settled { incarnation, participant };
    let error = dead.participant.prune(settled).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{}", error.chain());
    assert_eq!(left(&*live.participant, 0, incarnation).await, [(0, Kind::Off)]);
    for _ in 0..2 {
        assert!(!live.participant.prune(settled).await.unwrap());
        assert_eq!(left(&*live.participant, 0, incarnation).await, []);
        assert_eq!(left(&*live.participant, 1, incarnation).await, [(1, Kind::OnePhase)]);
        assert_eq!(left(&*live.participant, 0, live.registration.incarnation).await, [(1, Kind::OnePhase)]);
        let mut numbers: Vec<_> =
            live.participant.registry().await.unwrap().iter().map(|row| (row.incarnation, row.participant)).collect();
        numbers.sort_unstable();
        let mut expected = [(incarnation, 1), (live.registration.incarnation, 0)];
        expected.sort_unstable();
        assert_eq!(numbers, expected);
    }
    assert_eq!(live.participant.identify().await.unwrap().lineage, Some(live.lineage));
}

/// A page at a time, and the registration with the last one.
pub async fn pruning_is_bounded<H: Harness>(harness: &H) {
    let (dead, live) = (Bench::new(harness).await, Bench::new(harness).await);
    let Registration { incarnation, participant, .. } = dead.registration;
    for _ in 0..=PAGE {
        assert_eq!(live.ask(&dead.transaction().branch(0, 0), Question::Fence).await, Evidence::Never);
    }
    let settled = Prunable::Settled { incarnation, participant };
    assert!(live.participant.prune(settled).await.unwrap(), "there is more");
    assert_eq!(left(&*live.participant, 0, incarnation).await, [(PAGE as u64 + 1, Kind::Fence)]);
    assert_eq!(live.participant.registry().await.unwrap().len(), 2);
    assert!(!live.participant.prune(settled).await.unwrap());
    assert_eq!(left(&*live.participant, 0, incarnation).await, []);
    assert_eq!(live.participant.registry().await.unwrap().len(), 1);
}

/// What a person is told to type does what it says.
pub async fn a_person_finishes_what_the_statement_names<H: Harness>(harness: &H) {
    let bench = Bench::new(harness).await;
    for (row, resolution) in [(1, Resolution::Commit), (2, Resolution::RollBack)] {
        let mut branch = bench.begin_and_write(row, 10).await;
        assert_answer(&branch.prepare().await, Vote::Prepared);
        let id = branch.id();
        drop(branch);
        let statement = bench.participant.statement(&id, resolution).unwrap();
        eventually("taken", async || harness.type_in(&statement).await).await;
        let expected = (resolution == Resolution::Commit).then_some(10);
        eventually("it is so", async || harness.value(row).await == expected).await;
        assert!(bench.listed().await.is_empty(), "{statement}");
    }
}
