//! The example of a service as it is deployed, under load: ended in good order, and restarted replica by replica. No client
//! sees an error but refused connections, nothing is left prepared, and the money of both databases adds up.

mod http;
mod load;
mod stage;

use integration_tests::each_pair;
use integration_tests::world::eventually;
use load::{Load, Seen};
use stage::{MONEY, Stage};
use std::collections::BTreeMap;

/// Enough to have some in every phase of a commit at any moment.
const CLIENTS: u32 = 8;

/// The end of a test, when all replicas have ended: what the clients were told is what both databases have.
async fn adds_up(stage: &Stage, seen: &Seen) {
    println!("{} transfers, {} connections refused, {:?}", seen.committed.len(), seen.refused, seen.openings());
    assert!(seen.errors.is_empty(), "{} errors: {:#?}", seen.errors.len(), seen.errors);
    assert_eq!(stage.prepared().await, 0, "something is left prepared");
    let told: BTreeMap<_, _> = seen.committed.iter().map(|(key, id)| (key.clone(), id.to_string())).collect();
    let done: BTreeMap<_, _> = stage.transfers().await.into_iter().collect();
    assert_eq!(told, done, "what was told, and what was done");
    let (accounts, wallets) = stage.money().await;
    assert_eq!((accounts + wallets, wallets), (MONEY, 3 * i64::try_from(done.len()).unwrap()));
}

each_pair! {
    async fn a_graceful_shutdown(other) {
        let stage = Stage::new(other).await;
        let mut replica = stage.replica("front");
        let load = Load::start(&[replica.start().await], CLIENTS);
        eventually("money moves", async || load.seen().committed.len() > 300).await;
        replica.end().await;
        let seen = load.end(false).await;
        assert!(seen.refused >= CLIENTS as usize, "each client has seen it go: {}", seen.refused);
        adds_up(&stage, &seen).await;
        replica.is_clean().await;
    }

    async fn a_rolling_restart(other) {
        let stage = Stage::new(other).await;
        let mut replicas = [stage.replica("front-1"), stage.replica("front-2")];
        let addresses = [replicas[0].start().await, replicas[1].start().await];
        let load = Load::start(&addresses, CLIENTS);
        eventually("both serve", async || load.seen().openings().len() == 2).await;
        // Twice around: the second time what a restarted one has taken over is handed on.
        for (restart, at) in [0, 1, 0, 1].into_iter().enumerate() {
            replicas[at].end().await;
            let refused = load.seen().refused;
            eventually("a client comes while it is down", async || load.seen().refused > refused).await;
            assert_eq!(replicas[at].start().await, addresses[at]);
            eventually("the new one serves", async || load.seen().openings().len() == 3 + restart).await;
        }
        let seen = load.end(true).await;
        for replica in &mut replicas {
            replica.end().await;
        }
        adds_up(&stage, &seen).await;
        for replica in &replicas {
            replica.is_clean().await;
        }
    }
}
