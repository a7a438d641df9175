//! Opening: tables, lineage, registration, and who may begin.

use crate::conformance::{Bench, Harness, Setup, assert_answer, registration, writer};
use futures_util::future::join_all;
use handfast::ErrorKind;
use handfast::id::{JournalId, Lineage, TransactionId};
use handfast::participant::{Evidence, Question, Registration};
use handfast::protocol::{Finish, Vote};

/// Looking changes nothing; registering makes the lineage, once and for all.
pub async fn the_lineage_is_made_once<H: Harness>(harness: &H) {
    let participant = harness.participant("bench", Setup::default());
    let before = participant.identify().await.unwrap();
    assert_eq!(before.lineage, None);
    assert_eq!(participant.identify().await.unwrap(), before);
    let registration = registration(0);
    let lineage = participant.register(&registration).await.unwrap();
    assert_eq!(participant.identify().await.unwrap().lineage, Some(lineage));
    assert_eq!(participant.init().await.unwrap(), lineage);
    assert_eq!(participant.register(&registration).await.unwrap(), lineage, "registered twice is registered");
    let expecting = Registration { expected: Some(lineage), ..registration };
    assert_eq!(participant.register(&expecting).await.unwrap(), lineage);
    assert_ne!(Bench::new(&harness.sibling().await).await.lineage, lineage);
}

/// Several that open an empty database at once agree.
pub async fn opened_at_once_they_agree<H: Harness>(harness: &H) {
    let participants: Vec<_> = (0..4).map(|_| harness.participant("bench", Setup::default())).collect();
    let lineages = join_all(participants.iter().map(async |participant| {
        let registration = registration(0);
        // A database may refuse to create one table twice at the same moment; it is asked again, as opening does.
        for _ in 0..5 {
            match participant.register(&registration).await {
                Ok(lineage) => return lineage,
                Err(error) => assert_ne!(error.kind(), ErrorKind::Refused, "{}", error.chain()),
            }
        }
        panic!("not registered in five attempts");
    }));
    let lineages = lineages.await;
    assert!(lineages.iter().all(|lineage| *lineage == lineages[0]), "{lineages:?}");
}

/// Several that make an empty database an anchor at once are not in each other's way.
pub async fn made_an_anchor_at_once<H: Harness>(harness: &H) {
    let participants: Vec<_> = (0..8).map(|_| harness.participant("bench", Setup::default())).collect();
    let made = join_all(participants.iter().map(|one| one.anchor().expect("it can be one").set_up())).await;
    made.into_iter().for_each(|made| made.unwrap_or_else(|error| panic!("{}", error.chain())));
}

/// A server of another lineage is refused and left as it was found.
pub async fn another_lineage_is_refused<H: Harness>(harness: &H) {
    let lineage = Bench::new(harness).await.lineage;
    let other = Lineage(lineage.0 ^ 1);
    let participant = harness.participant("bench", Setup::default());
    let error = participant.register(&Registration { expected: Some(other), ..registration(0) }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    let text = error.chain();
    assert!(text.contains("bench") && text.contains(&other.to_string()), "{text}");
    assert!(text.contains(&lineage.to_string()), "{text}");

    let empty = harness.sibling().await;
    let participant = empty.participant("bench", Setup::default());
    let error = participant.register(&Registration { expected: Some(other), ..registration(0) }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{}", error.chain());
    assert_eq!(participant.identify().await.unwrap().lineage, None, "nothing is created on the wrong server");
}

/// Nothing begins before registration, nor for another incarnation than the registered one.
pub async fn nothing_begins_unregistered<H: Harness>(harness: &H) {
    let participant = harness.participant("bench", Setup::default());
    let Registration { node, incarnation, .. } = registration(0);
    let stranger = TransactionId { node, incarnation, sequence: 1 };
    assert_eq!(participant.begin(stranger, writer()).await.err().unwrap().kind(), ErrorKind::Refused);
    let bench = Bench::registered(harness, participant, registration(0)).await;
    assert_eq!(bench.participant.begin(stranger, writer()).await.err().unwrap().kind(), ErrorKind::Refused);
    let other = bench.participant.register(&registration(0)).await.unwrap_err();
    assert_eq!(other.kind(), ErrorKind::Refused, "{}", other.chain());
    let copied = Registration { journal: JournalId(1), ..bench.registration.clone() };
    let other = harness.participant("bench", Setup::default()).register(&copied).await.unwrap_err();
    assert_eq!(other.kind(), ErrorKind::Refused, "{}", other.chain());
    bench.begin().await;
}

/// D42: two participants may share a database, and a server, in one transaction.
pub async fn two_participants_share_a_server<H: Harness>(harness: &H) {
    let sibling = harness.sibling().await;
    for second in [harness, &sibling] {
        let first = registration(0);
        let other = Registration { participant: 1, ..first.clone() };
        let one = Bench::registered(harness, harness.participant("one", Setup::default()), first).await;
        let two = Bench::registered(second, second.participant("two", Setup::default()), other).await;
        let transaction = one.transaction();
        let mut a = one.participant.begin(transaction, writer()).await.unwrap();
        let mut b = two.participant.begin(transaction, writer()).await.unwrap();
        assert_ne!(a.id(), b.id());
        harness.write(&*a, 1, 10).await.unwrap();
        second.write(&*b, 2, 20).await.unwrap();
        assert_answer(&a.prepare().await, Vote::Prepared);
        assert_answer(&b.prepare().await, Vote::Prepared);
        assert_answer(&a.commit().await, Finish::Done);
        assert_eq!(two.ask(&b.id(), Question::Fence).await, Evidence::Blocked);
        assert_eq!((harness.value(1).await, second.value(2).await), (Some(10), None));
        assert_answer(&b.roll_back().await, Finish::Done);
        assert_eq!(one.ask(&a.id(), Question::Fence).await, Evidence::Committed);
        assert_eq!(two.ask(&b.id(), Question::Fence).await, Evidence::Never);
    }
}
