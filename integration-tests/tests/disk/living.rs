//! The journal's files are deleted, replaced, cut or moved under a bridge that lives.

use super::{PATIENT, audit, copy, segments, try_one};
use handfast::{Bridge, ErrorKind, Outcome};
use integration_tests::each_pair;
use integration_tests::torture::{Tally, pair};
use integration_tests::world::World;
use std::fs;
use std::path::Path;

#[derive(Debug, Clone, Copy)]
enum Deed {
    Delete,
    DeleteAll,
    Replace,
    Cut,
}

fn do_it(deed: Deed, journal: &Path) {
    let last = segments(journal).pop().unwrap();
    match deed {
        Deed::Delete => fs::remove_file(last).unwrap(),
        Deed::DeleteAll => fs::remove_dir_all(journal).unwrap(),
        Deed::Replace => {
            let other = journal.join("restored");
            fs::copy(&last, &other).unwrap();
            fs::rename(other, last).unwrap();
        }
        Deed::Cut => fs::OpenOptions::new().write(true).open(last).unwrap().set_len(4096).unwrap(),
    }
}

/// What is written to a file that is lost is not acknowledged, and what was decided meanwhile is not guessed.
async fn lose(world: &World, deed: Deed) -> Result<(), String> {
    let bridge = world.open_with(PATIENT).await;
    let before = try_one(&bridge, 1, true).await?.expect("the disk is sound");
    if before.answer != Outcome::Committed {
        return Err(format!("before: {:?}", before.answer));
    }
    do_it(deed, world.journal.path());
    let after = try_one(&bridge, 2, true).await?.expect("nobody has noticed yet");
    if after.answer != Outcome::InDoubt {
        return Err(format!("answered {:?} by a journal that is lost", after.answer));
    }
    match bridge.begin().await {
        Err(error) if error.kind() == ErrorKind::Journal => {}
        Err(error) => return Err(format!("begins are refused with {:?}: {}", error.kind(), error.chain())),
        Ok(_) => return Err("it begins with a journal that is lost".into()),
    }
    // It has nothing to close any more, and says so.
    let _ = bridge.close().await;
    let refused = match Bridge::open(world.config(PATIENT)).await {
        Ok(reopened) => {
            // Restored as it was: nothing is missing but what was never acknowledged.
            reopened.close().await.map_err(|error| error.chain())?;
            return audit(world, &[before, after]).await;
        }
        Err(error) => error,
    };
    if ![ErrorKind::Corrupt, ErrorKind::Config].contains(&refused.kind()) {
        return Err(format!("refused with {:?}: {}", refused.kind(), refused.chain()));
    }
    for side in world.sides() {
        if side.roll_back_by_hand().await != 1 {
            return Err(format!("{} was touched without a journal", side.name));
        }
    }
    Ok(())
}

/// The directory goes elsewhere, and another is in its place: the bridge goes on where its files are, the other is found
/// to be an older copy.
async fn move_it(world: &World) -> Result<(), String> {
    let bridge = world.open_with(PATIENT).await;
    let mut said = vec![try_one(&bridge, 1, true).await?.expect("the disk is sound")];
    let old = copy(world.journal.path());
    let elsewhere = world.journal.path().with_extension("moved");
    fs::rename(world.journal.path(), &elsewhere).unwrap();
    fs::rename(old.keep(), world.journal.path()).unwrap();
    said.extend(try_one(&bridge, 2, true).await?);
    if Bridge::open(world.config(PATIENT)).await.is_ok() {
        return Err("the copy opens beside the original".into());
    }
    bridge.close().await.map_err(|error| error.chain())?;
    match Bridge::open(world.config(PATIENT)).await {
        Err(error) if error.kind() == ErrorKind::Refused && error.chain().contains("older copy") => {}
        Err(error) => return Err(format!("the older copy: {:?}: {}", error.kind(), error.chain())),
        Ok(_) => return Err("the older copy opens".into()),
    }
    fs::remove_dir_all(world.journal.path()).unwrap();
    fs::rename(elsewhere, world.journal.path()).unwrap();
    audit(world, &said).await
}

each_pair! {
    async fn files_are_lost(other) {
        let tally = Tally::new("the disk loses the journal's files under a living bridge", pair(other));
        for deed in [Deed::Delete, Deed::DeleteAll, Deed::Replace, Deed::Cut] {
            tally.case(format!("{deed:?}"), lose(&World::new(other).await, deed).await);
        }
        tally.case("Move", move_it(&World::new(other).await).await);
        tally.finish();
    }
}
