//! What the resolver asks about whole incarnations, to settle them.

use crate::conformance::{Bench, Harness, Setup, assert_answer, registration};
use handfast::participant::witness::{Kind, Witnessed};
use handfast::participant::{Evidence, Question, Registration};
use handfast::protocol::{Finish, Vote};

/// Every session of a dead incarnation is ended, and waited for; its promises stand, and nobody else is disturbed.
pub async fn sessions_of_an_incarnation_are_ended<H: Harness>(harness: &H) {
    let dead = Bench::with(harness, Setup { pool_size: 12, ..Setup::default() }).await;
    let other_number = Registration { participant: 1, ..dead.registration.clone() };
    let neighbour = Bench::registered(harness, harness.participant("other", Setup::default()), other_number).await;
    let live = Bench::new(harness).await;
    let mut prepared = dead.begin_and_write(1, 10).await;
    assert_answer(&prepared.prepare().await, Vote::Prepared);
    let (mut second, mut third) = (dead.begin_and_write(2, 10).await, dead.begin_and_write(3, 10).await);
    let mut idle = Vec::new();
    for _ in 0..9 {
        idle.push(dead.begin().await);
    }
    let (mut theirs, mut ours) = (neighbour.begin_and_write(4, 10).await, live.begin_and_write(5, 10).await);

    let unknown = registration(0).incarnation;
    let of = [unknown, dead.registration.incarnation];
    assert_eq!(live.participant.end_sessions(0, &of).await.unwrap(), 12);
    for row in [2, 3] {
        assert!(!harness.is_locked(row).await, "ended means that its locks are free");
    }
    assert!(harness.is_locked(1).await && harness.is_locked(4).await && harness.is_locked(5).await);
    assert_eq!(dead.listed().await, [prepared.id()]);
    assert_ne!(second.prepare().await.value, Vote::Prepared);
    assert_ne!(third.commit_one_phase().await.value, Finish::Done);
    assert_eq!(live.participant.end_sessions(0, &of).await.unwrap(), 0);
    assert_eq!(live.participant.end_sessions(0, &[]).await.unwrap(), 0);

    assert_answer(&theirs.commit_one_phase().await, Finish::Done);
    assert_answer(&ours.commit_one_phase().await, Finish::Done);
    live.roll_back_from_outside(&prepared.id()).await;
    for (row, value) in [(1, None), (2, None), (3, None), (4, Some(10)), (5, Some(10))] {
        assert_eq!(harness.value(row).await, value, "row {row}");
    }
}

/// Witnesses are read in order: of these incarnations, under this number, from a sequence on, whatever they say.
pub async fn witnesses_are_read_in_order<H: Harness>(harness: &H) {
    let (one, two, live) = (Bench::new(harness).await, Bench::new(harness).await, Bench::new(harness).await);
    let without = Bench::with(harness, Setup { witness: false, ..Setup::default() }).await;
    for row in 1..=3 {
        assert_answer(&one.begin_and_write(row, 1).await.commit_one_phase().await, Finish::Done);
    }
    assert_eq!(one.ask(&one.transaction().branch(0, 0), Question::Fence).await, Evidence::Never);
    assert_eq!(one.ask(&one.transaction().branch(1, 0), Question::Fence).await, Evidence::Never);
    let mut decided = two.begin_and_write(4, 1).await;
    assert_answer(&decided.prepare().await, Vote::Prepared);
    let unseen = two.begin_and_write(5, 1).await;
    assert_answer(&without.begin_and_write(6, 1).await.commit_one_phase().await, Finish::Done);
    assert_answer(&live.begin_and_write(7, 1).await.commit_one_phase().await, Finish::Done);

    let row = |bench: &Bench<'_, H>, sequence, kind| Witnessed {
        incarnation: bench.registration.incarnation,
        sequence,
        kind,
    };
    let of = [one.registration.incarnation, two.registration.incarnation, without.registration.incarnation];
    let mut expected: Vec<_> = (1..=3).map(|sequence| row(&one, sequence, Kind::OnePhase)).collect();
    expected.push(row(&one, 4, Kind::Fence));
    expected.push(row(&without, 0, Kind::Off));
    // The tables hold signed numbers.
    let order = |row: &Witnessed| (row.incarnation.to_sql(), row.sequence);
    expected.sort_by_key(order);
    let read = async |participant, of: &[_], from| live.participant.witnessed(participant, of, from).await.unwrap();
    let mut found = read(0, &of, 0).await;
    found.sort_by_key(order);
    assert_eq!(found, expected, "what is prepared is not visible");
    assert_answer(&decided.commit().await, Finish::Done);
    assert_eq!(read(0, &of[1..2], 0).await, [row(&two, 1, Kind::Decided)]);
    assert_eq!(read(0, &of[..1], 3).await, [row(&one, 3, Kind::OnePhase), row(&one, 4, Kind::Fence)]);
    assert_eq!(read(0, &of[..1], 5).await, []);
    assert_eq!(read(1, &of, 0).await, [row(&one, 5, Kind::Fence)]);
    assert_eq!(read(0, &[], 0).await, []);
    // One that keeps no witness now still reads those of others.
    assert_eq!(without.participant.witnessed(0, &of[1..2], 0).await.unwrap(), [row(&two, 1, Kind::Decided)]);
    drop(unseen);
}
