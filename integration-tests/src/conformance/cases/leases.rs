//! The lease: one program at a time works in a node's name.

use crate::conformance::{Bench, Harness, Setup, Which, assert_answer, eventually, registration};
use crate::proxy::Proxy;
use handfast::ErrorKind;
use handfast::participant::{Claim, Evidence, Participant, Question};
use handfast::protocol::Vote;

/// The lease of another opening of the same node.
fn rival_of(claim: Claim) -> Claim {
    Claim { incarnation: registration(0).incarnation, ..claim }
}

/// Asserts that a participant may not work, and gives what it was told.
async fn refused(participant: &dyn Participant, claim: Claim) -> String {
    let error = participant.hold(claim).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{}", error.chain());
    assert!(!participant.holds());
    let error = participant.list().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{}", error.chain());
    error.chain()
}

async fn regained(participant: &dyn Participant, claim: Claim) {
    eventually("the lease is free", async || match participant.hold(claim).await {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Refused, "{}", error.chain());
            false
        }
    })
    .await;
    assert!(participant.holds());
}

/// Who comes second is refused and told who was first, until that one closes; nothing that the first does meanwhile
/// lets go of its lease.
pub async fn one_program_works_in_a_nodes_name<H: Harness>(harness: &H) {
    let first = Bench::new(harness).await;
    assert!(first.participant.holds(), "registered is held");
    let claim = first.registration.claim();
    let mut branch = first.begin_and_write(1, 10).await;
    assert_answer(&branch.prepare().await, Vote::Prepared);
    let id = branch.id();
    assert_eq!(first.ask(&id, Question::Fence).await, Evidence::Blocked);
    drop(branch);
    first.commit_from_outside(&id).await;
    first.participant.end_session(id.session()).await.unwrap();
    first.participant.end_sessions(0, &[registration(0).incarnation]).await.unwrap();
    first.participant.hold(claim).await.unwrap();

    let second = harness.participant("bench", Setup::default());
    assert!(!second.holds());
    let rival = handfast::participant::Registration { node: claim.node, ..registration(0) };
    let error = second.register(&rival).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{}", error.chain());
    let told = refused(&*second, rival.claim()).await;
    for part in [&claim.node.to_string(), &claim.incarnation.to_string(), "on here", "seconds ago"] {
        assert!(told.contains(part), "{part} in {told}");
    }
    assert!(first.participant.holds());
    assert!(first.listed().await.is_empty(), "the first goes on");
    let other = first.participant.hold(rival.claim()).await.unwrap_err();
    assert_eq!(other.kind(), ErrorKind::Refused, "a participant works for one incarnation: {}", other.chain());

    first.participant.close().await;
    assert!(!first.participant.holds());
    regained(&*second, rival.claim()).await;
    second.register(&rival).await.unwrap();
    second.list().await.unwrap();
}

/// Another participant's name, another node's, and another database's lease are others.
pub async fn leases_of_others_do_not_meet<H: Harness>(harness: &H) {
    let sibling = harness.sibling().await;
    let claim = registration(0).claim();
    let participants = [
        (harness.participant("bench", Setup::default()), claim),
        (harness.participant("other", Setup::default()), claim),
        (harness.participant("bench", Setup::default()), registration(0).claim()),
        (sibling.participant("bench", Setup::default()), claim),
        (sibling.participant("other", Setup::default()), rival_of(claim)),
    ];
    for (participant, claim) in &participants {
        // Looked at before: the connection is there, and takes no lease until it is asked to.
        participant.identify().await.unwrap();
        assert!(!participant.holds());
        participant.hold(*claim).await.unwrap_or_else(|error| panic!("{}", error.chain()));
    }
    for (participant, claim) in &participants {
        assert!(participant.holds());
        participant.hold(*claim).await.unwrap();
    }
    let late = harness.participant("other", Setup::default());
    refused(&*late, rival_of(claim)).await;
}

/// A connection that the server ended has lost the lease: it is taken again with the next one, unless somebody else was
/// quicker; then nothing is done until it is free.
pub async fn a_lost_lease_is_regained<H: Harness>(harness: &H) {
    let first = Bench::new(harness).await;
    let claim = first.registration.claim();
    for by_itself in [false, true] {
        assert!(harness.end_resolver(&*first.participant, claim).await);
        if by_itself {
            eventually("listed again", async || first.participant.list().await.is_ok()).await;
        } else {
            regained(&*first.participant, claim).await;
        }
        assert!(first.participant.holds());
    }
    let rival = harness.participant("bench", Setup::default());
    refused(&*rival, rival_of(claim)).await;
    rival.close().await;

    assert!(harness.end_resolver(&*first.participant, claim).await);
    let rival = harness.participant("bench", Setup::default());
    let theirs = rival_of(claim);
    regained(&*rival, theirs).await;
    refused(&*first.participant, claim).await;
    assert!(rival.holds());
    rival.close().await;
    regained(&*first.participant, claim).await;
    assert!(first.listed().await.is_empty());
}

/// The connection that the resolver works on is lost again and again: the lease is held on, by the same taking.
pub async fn a_lost_worker_keeps_the_lease<H: Harness>(harness: &H) {
    let first = Bench::new(harness).await;
    let claim = first.registration.claim();
    let taken = first.participant.lease();
    assert!(taken.is_some());
    let (rival, theirs) = (harness.participant("bench", Setup::default()), rival_of(claim));
    for confirmed in [false, true, false] {
        first.listed().await;
        assert!(harness.end_connection(Which::Resolver, &*first.participant, claim).await);
        refused(&*rival, theirs).await;
        if confirmed {
            first.participant.hold(claim).await.unwrap();
        }
        eventually("listed again", async || first.participant.list().await.is_ok()).await;
        assert_eq!(first.participant.lease(), taken);
    }
}

/// The server has lost the lease of somebody who is at work: nobody else gets it while that work may go on, and whoever
/// had it gets it back, by another taking. Where the lease is another's, nobody goes to work.
pub async fn who_is_at_work_keeps_others_out<H: Harness>(harness: &H) {
    let first = Bench::new(harness).await;
    let claim = first.registration.claim();
    let taken = first.participant.lease();
    first.listed().await;
    assert!(harness.end_connection(Which::Lease, &*first.participant, claim).await);
    let (rival, theirs) = (harness.participant("bench", Setup::default()), rival_of(claim));
    let told = refused(&*rival, theirs).await;
    assert!(told.contains(&claim.incarnation.to_string()), "{told}");
    regained(&*first.participant, claim).await;
    assert!(first.participant.lease() > taken);
    assert!(first.listed().await.is_empty());

    // Not noticed: the next connection of the resolver finds out, and whatever comes behind it takes the lease anew.
    let taken = first.participant.lease();
    assert!(harness.end_resolver(&*first.participant, claim).await);
    eventually("listed again", async || first.participant.list().await.is_ok()).await;
    assert!(first.participant.lease() > taken);

    assert!(harness.end_resolver(&*first.participant, claim).await);
    regained(&*rival, theirs).await;
    assert!(rival.list().await.unwrap().is_empty());
    refused(&*first.participant, claim).await;
}

/// The network of a connection is gone and nobody has told the server: the same program takes over from its own earlier
/// connection, and nobody else can. Of the resolver's connection that leaves the lease as it was; `confirmed` is how a
/// proxy knows that the lease is confirmed.
pub async fn a_half_open_lease_is_taken_over(
    proxy: &Proxy,
    confirmed: &str,
    through: &dyn Participant,
    rival: &dyn Participant,
) {
    let claim = registration(0).claim();
    let theirs = rival_of(claim);
    through.hold(claim).await.unwrap_or_else(|error| panic!("{}", error.chain()));
    for _ in 0..2 {
        through.list().await.unwrap();
        let black_hole = proxy.on(confirmed).hold();
        assert_eq!(through.hold(claim).await.unwrap_err().kind(), ErrorKind::Unavailable);
        black_hole.fired().await;
        assert!(!through.holds());
        refused(rival, theirs).await;
        through.hold(claim).await.unwrap_or_else(|error| panic!("{}", error.chain()));
        assert!(through.holds());
        refused(rival, theirs).await;
        through.list().await.unwrap();

        let taken = through.lease();
        let black_hole = proxy.on("WHERE node <> ''").hold();
        assert_eq!(through.registry().await.unwrap_err().kind(), ErrorKind::Unavailable);
        black_hole.fired().await;
        refused(rival, theirs).await;
        through.hold(claim).await.unwrap_or_else(|error| panic!("{}", error.chain()));
        through.list().await.unwrap();
        assert_eq!(through.lease(), taken);
    }
}

/// Where no table tells who the holder is, the refusal says as much.
pub async fn a_holder_is_named_without_tables<H: Harness>(harness: &H) {
    let claim = registration(0).claim();
    let first = harness.participant("bench", Setup::default());
    first.hold(claim).await.unwrap();
    let second = harness.participant("bench", Setup::default());
    let told = refused(&*second, rival_of(claim)).await;
    assert!(told.contains(&claim.node.to_string()) && told.contains("has not registered here"), "{told}");
    assert_eq!(first.identify().await.unwrap().lineage, None, "nothing was created");
}
