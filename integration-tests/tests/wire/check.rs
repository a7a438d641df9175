//! What has to be true in the end.

use handfast::{Bridge, Outcome, TransactionId};
use integration_tests::world::{PATIENCE, World, eventually, eventually_or, settled, try_insert};
use tokio::time::Instant;

/// A transaction whose end is looked at.
pub struct Deed {
    pub id: TransactionId,
    pub key: i32,
    /// Where its key is if it committed.
    pub on: Vec<&'static str>,
    /// What the application was answered, if it was.
    pub said: Option<Outcome>,
    /// How it has to end, where only one end is right.
    pub must: Option<Outcome>,
}

impl Deed {
    /// The bridge knows how it ended, and that is what was said and what both databases show.
    pub async fn is_settled(&self, world: &World, bridge: &Bridge) {
        let outcome = settled(bridge, self.id).await;
        let Self { said, must, .. } = self;
        assert!(matches!(outcome, Outcome::Committed | Outcome::RolledBack), "{outcome:?} (said: {said:?})");
        assert!(must.is_none_or(|must| must == outcome), "{outcome:?} in place of {must:?} (said: {said:?})");
        if let Some(certain @ (Outcome::Committed | Outcome::RolledBack | Outcome::Damaged)) = said {
            assert_eq!(*certain, outcome, "what was said, and what is so");
        }
        for side in world.sides() {
            let what = format!("nothing is prepared at {}", side.name);
            let tell = || format!("{:#?}", bridge.status());
            eventually_or(&what, async || side.prepared().await.is_empty(), tell).await;
        }
        self.shows(world, outcome).await;
    }

    /// Both databases show an outcome, and hold nothing of it.
    pub async fn shows(&self, world: &World, outcome: Outcome) {
        for side in world.sides() {
            let expected = outcome == Outcome::Committed && self.on.contains(&side.name);
            let (key, said) = (self.key, self.said);
            assert_eq!(side.has(key).await, expected, "{key} at {}: {outcome:?} (said: {said:?})", side.name);
            if !expected {
                let what = format!("{key} is not locked at {}", side.name);
                eventually(&what, async || !side.is_locked(key).await).await;
            }
        }
    }
}

/// Nothing is in doubt or damaged, all participants are well, and work goes on.
pub async fn all_is_well(world: &World, bridge: &Bridge, key: i32) {
    eventually("all is settled", async || {
        let status = bridge.status();
        assert_eq!(status.damaged, 0, "{status:#?}");
        status.in_doubt == 0 && status.unsettled == 0 && status.participants.iter().all(|one| one.reachable)
    })
    .await;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let tx = match try_insert(bridge, key).await {
            Ok(tx) => tx,
            Err(error) => {
                assert!(Instant::now() < deadline, "nothing goes on: {}", error.chain());
                continue;
            }
        };
        match tx.commit().await {
            Ok(_) => break,
            Err(error) => {
                assert_eq!(error.outcome(), Outcome::RolledBack, "{error}");
                assert!(Instant::now() < deadline, "nothing goes on: {}", error.cause().chain());
            }
        }
    }
    world.is_on_both(key).await;
}
