//! A disk that does not answer. A decision is with it: nobody can say what comes of it, and nobody waits for ever.

use super::{EIO, PATIENT, audit, try_one};
use handfast::torture::{DiskOperation, Failing, Fault, watch_disk};
use handfast::{ErrorKind, Outcome};
use integration_tests::each_pair;
use integration_tests::torture::{Tally, pair};
use integration_tests::world::{World, eventually, insert, settled};

/// The application is told *in doubt*, begins are refused, and when the disk has come to an end the outcome is known:
/// committed, or what the next opening finds.
async fn hang(world: &World, operation: DiskOperation, fails: bool, key: i32) -> Result<(), String> {
    let disk = watch_disk(world.journal.path());
    let bridge = world.open_with(PATIENT).await;
    let before = try_one(&bridge, key, true).await?.expect("the disk is sound");
    let tx = insert(&bridge, key + 1).await;
    let id = tx.id();
    disk.fail(Failing { operation: Some(operation), nth: 1, lasting: true, fault: Fault::Hang });
    let error = tx.commit().await.err().ok_or("a commit was answered by a disk that hangs")?;
    let told = (error.outcome(), error.cause().kind());
    if told != (Outcome::InDoubt, ErrorKind::Journal) {
        return Err(format!("told {told:?}"));
    }
    if bridge.outcome(id).await.map_err(|error| error.chain())? != Outcome::InDoubt {
        return Err("an outcome is certain while its decision hangs".into());
    }
    for side in world.sides() {
        if side.prepared().await.len() != 1 {
            return Err(format!("{} is not prepared while the decision hangs", side.name));
        }
    }
    eventually("begins are refused", async || bridge.begin().await.is_err()).await;
    let mut said = vec![before];
    if fails {
        disk.fail_what_hangs(EIO);
        eventually("the journal says that it failed", async || bridge.status().journal_failed.is_some()).await;
        said.push(super::Said { key: key + 1, both: true, id, answer: Outcome::InDoubt });
        let closed = bridge.close().await;
        if closed.is_ok() {
            return Err("a journal that failed is closed without a word".into());
        }
    } else {
        disk.heal();
        let outcome = settled(&bridge, id).await;
        said.push(super::Said { key: key + 1, both: true, id, answer: outcome });
        if outcome != Outcome::Committed {
            return Err(format!("the decision was written, and it is {outcome:?}"));
        }
        eventually("it begins again", async || bridge.begin().await.is_ok()).await;
        said.extend(try_one(&bridge, key + 2, true).await?);
        bridge.close().await.map_err(|error| error.chain())?;
    }
    audit(world, &said).await
}

each_pair! {
    async fn a_decision_hangs(other) {
        let world = World::new(other).await;
        let tally = Tally::new("the disk hangs", pair(other));
        let ways = [(DiskOperation::Sync, false), (DiskOperation::Sync, true), (DiskOperation::Write, false)];
        for ((operation, fails), key) in ways.into_iter().zip((0..).step_by(10)) {
            tally.case(format!("{operation:?}, fails: {fails}"), hang(&world, operation, fails, key).await);
        }
        tally.finish();
    }
}
