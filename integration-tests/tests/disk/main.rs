//! The disk under the journal of a bridge on real servers: it fails, fills up, hangs, and loses what was on it. What the
//! application was told is held against both databases after a restart with a sound disk.

#![cfg(feature = "torture")]

mod closed;
mod full;
mod hanging;
mod living;
mod operations;

use handfast::{Bridge, ErrorKind, Outcome, TransactionId};
use integration_tests::world::{LEDGER, ORDERS, World, insert_at, settled};
use std::path::Path;
use tempfile::TempDir;

/// A machine that is busy is no fault to be found here.
const PATIENT: &str =
    "[transaction]\ntimeout = \"60s\"\n[recovery]\nstatement_timeout = \"20s\"\nopen_wait = \"60s\"\n";

/// Errors of the operating system.
const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;

/// A transaction that was begun, and what its application was told.
struct Said {
    key: i32,
    /// On both sides, or on `ledger` alone.
    both: bool,
    id: TransactionId,
    answer: Outcome,
}

/// One transaction. `None` where none could be begun, and that for a reason that concerns the journal.
async fn try_one(bridge: &Bridge, key: i32, both: bool) -> Result<Option<Said>, String> {
    let tx = match bridge.begin().await {
        Ok(tx) => tx,
        Err(error) if [ErrorKind::Journal, ErrorKind::Refused].contains(&error.kind()) => return Ok(None),
        Err(error) => return Err(format!("a begin is refused with {:?}: {}", error.kind(), error.chain())),
    };
    let id = tx.id();
    let sides: &[&str] = if both { &[LEDGER, ORDERS] } else { &[LEDGER] };
    for side in sides {
        if let Err(error) = insert_at(&tx, side, key).await {
            let journal = error.chain().contains("journal");
            let rolled_back = tx.rollback().await;
            let said = Said { key, both, id, answer: Outcome::RolledBack };
            return match rolled_back {
                Ok(()) if journal => Ok(Some(said)),
                _ => Err(format!("{key} cannot be inserted: {}", error.chain())),
            };
        }
    }
    let answer = tx.commit().await.map_or_else(|error| error.outcome(), |_| Outcome::Committed);
    Ok(Some(Said { key, both, id, answer }))
}

/// With a sound disk: every outcome is certain, is what was answered, and is what both databases have.
async fn audit(world: &World, said: &[Said]) -> Result<(), String> {
    let opening = Bridge::open(world.config(PATIENT)).await;
    let bridge = opening.map_err(|error| format!("healed, it does not open: {}", error.chain()))?;
    let mut wrong = Vec::new();
    for one in said {
        let outcome = settled(&bridge, one.id).await;
        if one.answer != Outcome::InDoubt && one.answer != outcome {
            wrong.push(format!("{} was answered {:?} and is {outcome:?}", one.id, one.answer));
        }
    }
    world.nothing_is_prepared().await;
    for one in said {
        let committed = settled(&bridge, one.id).await == Outcome::Committed;
        let (ledger, orders) = (world.ledger.has(one.key).await, world.orders.has(one.key).await);
        if (ledger, orders) != (committed, committed && one.both) {
            wrong.push(format!("{}, committed: {committed}, is there: {ledger}, {orders}", one.id));
        }
    }
    bridge.close().await.map_err(|error| error.chain())?;
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
}

/// A copy of a journal's directory.
fn copy(from: &Path) -> TempDir {
    let to = TempDir::new().unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), to.path().join(file.file_name())).unwrap();
    }
    to
}

/// The segments of a journal's directory, in order.
fn segments(directory: &Path) -> Vec<std::path::PathBuf> {
    let files = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| path.display().to_string().contains("segment-")).collect();
    files.sort();
    files
}
