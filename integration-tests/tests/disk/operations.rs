//! Each operation of an opening, three transactions and a close fails, one after another, in each way.

use super::{EIO, ENOSPC, EROFS, PATIENT, Said, audit, try_one};
use handfast::torture::{DiskOperation, Failing, Fault, FaultyDisk, watch_disk};
use handfast::{Bridge, ErrorKind};
use integration_tests::each_pair;
use integration_tests::torture::{Tally, chosen, pair};
use integration_tests::world::World;
use std::collections::BTreeSet;

#[derive(Debug, Clone, Copy)]
struct Case {
    nth: usize,
    operation: DiskOperation,
    errno: i32,
    lasting: bool,
}

/// What an application does meanwhile; what it was told.
async fn work(world: &World, first: i32) -> Result<Vec<Said>, String> {
    let bridge = match Bridge::open(world.config(PATIENT)).await {
        Ok(bridge) => bridge,
        Err(error) if [ErrorKind::Journal, ErrorKind::Config].contains(&error.kind()) => return Ok(Vec::new()),
        Err(error) => return Err(format!("opening is refused with {:?}: {}", error.kind(), error.chain())),
    };
    let mut said = Vec::new();
    for (key, both) in [(first, true), (first + 1, false), (first + 2, true)] {
        said.extend(try_one(&bridge, key, both).await?);
    }
    match bridge.close().await {
        Ok(()) => Ok(said),
        Err(error) if error.kind() == ErrorKind::Journal => Ok(said),
        Err(error) => Err(format!("closing ends in {:?}: {}", error.kind(), error.chain())),
    }
}

async fn one(world: &World, disk: &FaultyDisk, case: Case, first: i32) -> Result<(), String> {
    let Case { nth, errno, lasting, .. } = case;
    disk.fail(Failing { operation: None, nth, lasting, fault: Fault::Error(errno) });
    let said = work(world, first).await;
    let was_hit = disk.is_hit();
    disk.heal();
    audit(world, &said?).await?;
    // The last operations are not always the same ones: notes find company or not.
    if was_hit || nth > 20 { Ok(()) } else { Err("it was not hit".into()) }
}

each_pair! {
    async fn each_operation_fails_in_each_way(other) {
        let world = World::new(other).await;
        // Twice: the first opening of all makes the journal.
        work(&world, 0).await.unwrap();
        let disk = watch_disk(world.journal.path());
        assert_eq!(work(&world, 10).await.unwrap().len(), 3);
        let operations = disk.take_operations();
        let kinds: BTreeSet<_> = operations.iter().copied().collect();
        assert_eq!(kinds.len(), 7, "all kinds: {operations:?}");
        let mut cases = Vec::new();
        for (operation, nth) in operations.into_iter().zip(1..) {
            for (errno, lasting) in [(EIO, false), (EIO, true), (ENOSPC, false), (EROFS, true)] {
                cases.push(Case { nth, operation, errno, lasting });
            }
        }
        let tally = Tally::new("the disk fails at an operation", pair(other));
        let cases = chosen(cases, 1, |case| (case.operation, case.errno, case.lasting));
        for (case, first) in cases.into_iter().zip((20..).step_by(10)) {
            tally.case(format!("{case:?}"), one(&world, &disk, case, first).await);
        }
        tally.finish();
    }
}
