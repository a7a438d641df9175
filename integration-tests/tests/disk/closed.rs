//! The journal's files are moved, cut, replaced or from another version while nobody has them open, and branches are
//! prepared that they decide about.

use super::{PATIENT, copy, segments};
use handfast::{Bridge, ErrorKind, Outcome};
use integration_tests::each_pair;
use integration_tests::torture::{Tally, pair};
use integration_tests::world::{Program, World, eventually, settled};
use std::fs;
use std::path::Path;

#[derive(Debug, Clone, Copy)]
enum Deed {
    Move,
    Cut,
    Empty,
    LoseAll,
    Swap,
    LaterVersion,
}

/// Does it; what kind of refusal is right.
fn do_it(deed: Deed, journal: &Path, stranger: &Path) -> Option<ErrorKind> {
    let last = segments(journal).pop().unwrap();
    match deed {
        Deed::Move => {
            let elsewhere = journal.with_extension("elsewhere");
            fs::rename(journal, &elsewhere).unwrap();
            fs::rename(copy(&elsewhere).keep(), journal).unwrap();
            fs::remove_dir_all(elsewhere).unwrap();
            return None;
        }
        Deed::Cut => fs::OpenOptions::new().write(true).open(last).unwrap().set_len(90).unwrap(),
        Deed::Empty => fs::write(last, "").unwrap(),
        Deed::LoseAll => segments(journal).into_iter().for_each(|file| fs::remove_file(file).unwrap()),
        Deed::Swap => drop(fs::copy(segments(stranger).pop().unwrap(), last).unwrap()),
        Deed::LaterVersion => {
            later_version(&last);
            return Some(ErrorKind::Refused);
        }
    }
    Some(ErrorKind::Corrupt)
}

/// Makes the header say version 2, with the checksum that goes with it.
fn later_version(segment: &Path) {
    use handfast::journal::format::{CHECKSUM_AT, CONTENT_AT, HEADER_AT, HEADER_END, LENGTH_AT, TYPE_AT};
    let mut bytes = fs::read(segment).unwrap();
    bytes[HEADER_AT + CONTENT_AT] = 2;
    let bound = crc32c::crc32c_append(0, &(HEADER_AT as u64).to_le_bytes());
    let bound = crc32c::crc32c_append(bound, &bytes[HEADER_AT + LENGTH_AT..HEADER_AT + CHECKSUM_AT]);
    let checksum = crc32c::crc32c_append(bound, &bytes[HEADER_AT + TYPE_AT..HEADER_END]);
    bytes[HEADER_AT + CHECKSUM_AT..HEADER_AT + TYPE_AT].copy_from_slice(&checksum.to_le_bytes());
    fs::write(segment, bytes).unwrap();
}

/// A program was killed between the two commits of phase two; then it happens. The journal is refused and no branch is
/// touched, until the journal is restored; or it works.
async fn one(world: &World, stranger: &World, deed: Deed) -> Result<(), String> {
    let no_commit = world.orders.proxy.on(world.orders.words().commit).every().cut();
    let program = Program::start(world.config(PATIENT)).await;
    let id = program.begin_commit(1).await;
    no_commit.fired().await;
    eventually("it is committed at the other side", async || world.ledger.has(1).await).await;
    program.crash().await;
    no_commit.disarm();
    let sound = copy(world.journal.path());
    if let Some(kind) = do_it(deed, world.journal.path(), stranger.journal.path()) {
        for _ in 0..2 {
            match Bridge::open(world.config(PATIENT)).await {
                Err(error) if error.kind() == kind && error.chain().contains("segment-") => {}
                Err(error) => return Err(format!("refused with {:?}: {}", error.kind(), error.chain())),
                Ok(_) => return Err("it opens".into()),
            }
        }
        if world.orders.prepared().await.len() != 1 {
            return Err("a branch was touched without its journal".into());
        }
        fs::remove_dir_all(world.journal.path()).unwrap();
        fs::rename(sound.keep(), world.journal.path()).unwrap();
    }
    let bridge = Bridge::open(world.config(PATIENT)).await.map_err(|error| error.chain())?;
    let outcome = settled(&bridge, id).await;
    world.is_on_both(1).await;
    bridge.close().await.map_err(|error| error.chain())?;
    if outcome == Outcome::Committed { Ok(()) } else { Err(format!("{outcome:?}")) }
}

each_pair! {
    async fn files_are_changed(other) {
        let stranger = World::new(other).await;
        stranger.open_with(PATIENT).await.close().await.unwrap();
        let tally = Tally::new("the disk's files are changed while nobody has them open", pair(other));
        for deed in [Deed::Move, Deed::Cut, Deed::Empty, Deed::LoseAll, Deed::Swap, Deed::LaterVersion] {
            tally.case(format!("{deed:?}"), one(&World::new(other).await, &stranger, deed).await);
        }
        tally.finish();
    }
}
