//! Decisions in the rows of an anchor, with nothing on this machine.

use super::*;
use crate::ErrorKind;

/// Two databases in memory, of which one decides.
struct Anchored {
    left: Arc<MemoryServer>,
    right: Arc<MemoryServer>,
}

impl Anchored {
    fn new() -> Self {
        Self { left: MemoryServer::new(), right: MemoryServer::new() }
    }

    fn config(decision: &str) -> Config {
        Config::from_toml(&format!(
            "node = \"test\"\n[recovery]\nbackoff_min = \"2ms\"\nbackoff_max = \"20ms\"\nstatement_timeout = \"300ms\"\n\
             open_wait = \"500ms\"\n[transaction]\ndecision = {decision:?}"
        ))
        .unwrap()
    }

    fn participants(&self) -> Vec<Arc<dyn Participant>> {
        let memory = |name: &str, server: &Arc<MemoryServer>| -> Arc<dyn Participant> {
            Arc::new(Memory::new(name.parse().unwrap(), server.clone(), true))
        };
        vec![memory("left", &self.left), memory("right", &self.right)]
    }

    async fn open(&self, decision: &str) -> Bridge {
        Bridge::open_with(Self::config(decision), self.participants()).await.unwrap()
    }

    fn resolver(&self, decision: &str) -> Resolver {
        Resolver::open_with(Self::config(decision), self.participants()).unwrap()
    }

    fn values(&self) -> (Option<i64>, Option<i64>) {
        (self.left.value(1), self.right.value(1))
    }
}

#[tokio::test]
async fn an_anchor_decides_whichever_it_is() {
    for anchor in ["left", "right"] {
        let world = Anchored::new();
        let bridge = world.open(anchor).await;
        let tx = write_both(&bridge).await;
        let id = tx.id();
        tx.commit().await.unwrap();
        assert_eq!(world.values(), WRITTEN);
        assert_eq!(bridge.outcome(id).await.unwrap(), Outcome::Committed);
        let tx = write_both(&bridge).await;
        let undone = tx.id();
        tx.rollback().await.unwrap();
        assert_eq!(bridge.outcome(undone).await.unwrap(), Outcome::RolledBack);
        bridge.close().await.unwrap();
        // For ever, and for whoever asks.
        let next = world.open(anchor).await;
        assert_eq!(next.outcome(id).await.unwrap(), Outcome::Committed);
        assert_eq!(outcome_settles(&next, undone).await, Outcome::RolledBack);
        all_settled(&next).await;
        next.close().await.unwrap();
    }
}

/// The anchor's answer is lost: in doubt, until its row was read.
#[tokio::test]
async fn an_answer_that_was_lost_is_asked_for() {
    for fault in [Fault::LoseAnswer, Fault::LoseRequest] {
        let world = Anchored::new();
        let bridge = world.open("left").await;
        let tx = write_both(&bridge).await;
        let id = tx.id();
        world.left.arm(Step::CommitAnchor, fault);
        let error = tx.commit().await.unwrap_err();
        assert_eq!(error.outcome(), Outcome::InDoubt);
        let expected = if fault == Fault::LoseAnswer { Outcome::Committed } else { Outcome::RolledBack };
        assert_eq!(outcome_settles(&bridge, id).await, expected, "{fault:?}");
        let values = if expected == Outcome::Committed { WRITTEN } else { UNTOUCHED };
        eventually("both agree", || world.values() == values && !world.right.is_locked(1)).await;
        bridge.close().await.unwrap();
    }
}

#[tokio::test]
async fn an_anchor_that_refuses_rolls_the_others_back() {
    let world = Anchored::new();
    let bridge = world.open("left").await;
    let tx = write_both(&bridge).await;
    world.left.arm(Step::CommitAnchor, Fault::Refuse);
    assert_eq!(tx.commit().await.unwrap_err().outcome(), Outcome::RolledBack);
    eventually("nothing is held", || world.values() == UNTOUCHED && !world.right.is_locked(1)).await;
    bridge.close().await.unwrap();
}

/// The process dies around the anchor's commit; another opening finds out.
#[test]
fn a_crash_is_settled_by_the_row_or_the_fence() {
    for (fault, expected) in [(Fault::LoseAnswer, Outcome::Committed), (Fault::LoseRequest, Outcome::RolledBack)] {
        let world = Anchored::new();
        let id = std::sync::Mutex::new(None);
        crashed(async || {
            let bridge = world.open("left").await;
            let tx = write_both(&bridge).await;
            *id.lock().unwrap() = Some(tx.id());
            world.left.arm(Step::CommitAnchor, fault);
            // Whatever the resolver would do, the process is dead before.
            for step in [Step::Ask, Step::Decisions] {
                (0..1000).for_each(|_| world.left.arm(step, Fault::Hang));
            }
            assert_eq!(tx.commit().await.unwrap_err().outcome(), Outcome::InDoubt);
        });
        [Step::Ask, Step::Decisions].into_iter().for_each(|step| world.left.disarm(step));
        assert!(!world.right.prepared_names().is_empty());
        world.left.end_resolvers();
        world.right.end_resolvers();
        crashed(async || {
            let bridge = world.open("left").await;
            let id = *id.lock().unwrap();
            assert_eq!(outcome_settles(&bridge, id.unwrap()).await, expected);
            let values = if expected == Outcome::Committed { WRITTEN } else { UNTOUCHED };
            eventually("both agree", || world.values() == values && world.right.prepared_names().is_empty()).await;
            bridge.close().await.unwrap();
        });
    }
}

/// The other participant does not hear of the decision; the process dies; the decision is in the anchor's row.
#[test]
fn a_decision_outlives_its_process() {
    let world = Anchored::new();
    let id = std::sync::Mutex::new(None);
    crashed(async || {
        let bridge = world.open("left").await;
        let tx = write_both(&bridge).await;
        *id.lock().unwrap() = Some(tx.id());
        world.right.arm(Step::Commit, Fault::LoseRequest);
        (0..1000).for_each(|_| world.right.arm(Step::CommitFromOutside, Fault::LoseRequest));
        let committed = tx.commit().await.unwrap();
        assert_eq!(committed.pending.len(), 1);
    });
    world.right.disarm(Step::CommitFromOutside);
    world.left.end_resolvers();
    world.right.end_resolvers();
    assert_eq!(world.values(), (Some(10), None));
    crashed(async || {
        let resolver = world.resolver("left");
        let pass = resolver.sweep(&|_| {}).await;
        assert!(pass.refused.is_none(), "{:?}", pass.refused);
        assert_eq!(world.values(), WRITTEN);
        let id = *id.lock().unwrap();
        assert_eq!(resolver.outcome(id.unwrap()).await.unwrap(), Outcome::Committed);
        assert!(pass.is_complete(), "{:?}", pass.unsettled);
        resolver.close().await.unwrap();
        // The row is gone and its outcome is not.
        assert_eq!(world.resolver("left").outcome(id.unwrap()).await.unwrap(), Outcome::Committed);
    });
}

#[tokio::test]
async fn several_share_a_node_and_leave_each_other_alone() {
    let world = Anchored::new();
    let (one, two) = (world.open("left").await, world.open("left").await);
    let tx = write_both(&one).await;
    let id = tx.id();
    world.right.arm(Step::Commit, Fault::Hang);
    let committing = tokio::spawn(tx.commit());
    eventually("it is prepared", || !world.right.prepared_names().is_empty()).await;
    // A pass of the other one while the first is in the middle of it.
    let pass = Resolver::live(two.engine.clone()).sweep(&|_| {}).await;
    assert!(pass.refused.is_none() && !world.right.prepared_names().is_empty(), "{pass:?}");
    assert_eq!(two.outcome(id).await.unwrap(), Outcome::InDoubt);
    committing.await.unwrap().unwrap();
    eventually("it is applied", || world.values() == WRITTEN).await;
    one.close().await.unwrap();
    assert_eq!(outcome_settles(&two, id).await, Outcome::Committed);
    two.close().await.unwrap();
}

/// What another program has decided is told as it was last read, and what was not is in doubt.
#[tokio::test]
async fn what_is_known_is_told_while_the_anchor_is_down() {
    let world = Anchored::new();
    let (one, two) = (world.open("left").await, world.open("left").await);
    let tx = write_both(&one).await;
    let known = tx.id();
    tx.commit().await.unwrap();
    one.close().await.unwrap();
    assert_eq!(outcome_settles(&two, known).await, Outcome::Committed);
    for step in [Step::Kept, Step::Held, Step::Decisions, Step::Ask, Step::Identify] {
        (0..1000).for_each(|_| world.left.arm(step, Fault::LoseRequest));
    }
    assert_eq!(two.outcome(known).await.unwrap(), Outcome::Committed);
    let other = TransactionId { sequence: 99, ..known };
    assert_eq!(two.outcome(other).await.unwrap(), Outcome::InDoubt);
    two.close().await.unwrap();
}

#[tokio::test]
async fn what_cannot_decide_is_refused() {
    let refused = async |decision: &str| {
        let error = Bridge::open_with(Anchored::config(decision), Anchored::new().participants()).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Config, "{}", error.chain());
        error.chain()
    };
    assert!(refused("nobody").await.contains("left, right"));
}

/// One that did not take part begins a branch to decide for the others.
#[tokio::test]
async fn an_anchor_that_did_not_take_part_decides_all_the_same() {
    let world = Anchored::new();
    let third = MemoryServer::new();
    let mut participants = world.participants();
    participants.push(Arc::new(Memory::new("third".parse().unwrap(), third.clone(), true)));
    let bridge = Bridge::open_with(Anchored::config("third"), participants).await.unwrap();
    let tx = write_both(&bridge).await;
    let id = tx.id();
    tx.commit().await.unwrap();
    assert_eq!((world.values(), third.calls(Step::CommitAnchor)), (WRITTEN, 1));
    assert_eq!(bridge.outcome(id).await.unwrap(), Outcome::Committed);
    bridge.close().await.unwrap();
}
