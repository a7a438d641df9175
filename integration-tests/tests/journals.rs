//! Journals that are not the one that decided: copies, older copies, lost ones; and leases, on real servers. Names begin
//! with the entry of the log of known failures that they try.

use handfast::protocol::Resolution;
use handfast::resolver::Resolver;
use handfast::{Bridge, ErrorKind, Outcome, TransactionId};
use integration_tests::each_pair;
use integration_tests::world::{Program, World, eventually, insert, settled};
use std::path::Path;
use tempfile::TempDir;

/// A copy of a journal's directory, as a snapshot of its disk or a backup makes it.
fn copy(from: &Path) -> TempDir {
    let to = TempDir::new().unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), to.path().join(file.file_name())).unwrap();
    }
    to
}

/// A program that was killed when `orders` was still prepared and `ledger` had committed; a copy of its journal from
/// before that, within the same opening.
async fn half_committed(world: &World, key: i32) -> (TransactionId, TempDir) {
    let no_commit = world.orders.proxy.on(world.orders.words().commit).every().cut();
    let program = Program::start(world.config("")).await;
    let before = copy(world.journal.path());
    let id = program.begin_commit(key).await;
    no_commit.fired().await;
    eventually("it is committed at the other side", async || world.ledger.has(key).await).await;
    program.crash().await;
    no_commit.disarm();
    assert_eq!(world.orders.prepared().await.len(), 1);
    (id, before)
}

/// Nothing is settled with this journal, by a bridge or by a recovery; nothing is touched.
async fn is_refused(world: &World, journal: &Path, says: &str) {
    let config = world.builder_at(journal, "").build();
    for _ in 0..2 {
        let error = Bridge::open(config.clone()).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Refused, "{}", error.chain());
        assert!(error.chain().contains(says), "{}", error.chain());
        let resolver = Resolver::open(config.clone()).unwrap();
        let pass = resolver.sweep(&|_| {}).await;
        let refused = pass.refused.expect("nothing is done");
        assert!(refused.kind() == ErrorKind::Refused && refused.chain().contains(says), "{}", refused.chain());
        resolver.close().await.unwrap();
    }
    assert_eq!(world.orders.prepared().await.len(), 1, "the branch is still there");
}

each_pair! {
    /// A copy from before the latest opening: each participant's table has an opening that it does not know.
    async fn d12_a_copy_from_before_the_latest_opening_is_refused(other) {
        let world = World::new(other).await;
        world.open().await.close().await.unwrap();
        let old = copy(world.journal.path());
        let (id, _within) = half_committed(&world, 1).await;
        is_refused(&world, old.path(), "older copy").await;
        let bridge = world.open().await;
        assert_eq!(settled(&bridge, id).await, Outcome::Committed, "the original goes on");
        world.is_on_both(1).await;
    }

    /// A copy from within the latest opening, before its last decision: the witness on the other side tells.
    async fn d12_a_copy_that_lacks_the_last_decision_is_refused(other) {
        let world = World::new(other).await;
        let (id, old) = half_committed(&world, 1).await;
        is_refused(&world, old.path(), &id.to_string()).await;
        let bridge = world.open().await;
        assert_eq!(settled(&bridge, id).await, Outcome::Committed, "the original goes on");
        world.is_on_both(1).await;
    }

    /// The journal is gone, a branch is not: a new one does not begin beside it, shows what is known, and a person decides.
    async fn d11_a_lost_journal_is_told_and_resolved_by_a_person(other) {
        let world = World::new(other).await;
        let (id, _old) = half_committed(&world, 1).await;
        let fresh = TempDir::new().unwrap();
        let config = world.builder_at(fresh.path(), "").build();
        for _ in 0..2 {
            let error = Bridge::open(config.clone()).await.err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Refused, "{}", error.chain());
            assert!(error.chain().contains(&id.to_string()), "{}", error.chain());
        }
        let resolver = Resolver::open(config.clone()).unwrap();
        let pass = resolver.sweep(&|_| {}).await;
        assert!(pass.refused.is_none(), "{:?}", pass.refused);
        let orphans: Vec<_> = pass.view.foreigners().iter().filter(|one| one.orphan).collect();
        assert_eq!(orphans.len(), 1, "{orphans:?}");
        assert_eq!(orphans[0].branch().unwrap().transaction, id);
        let told: Vec<_> = orphans[0].evidence.iter().map(|(name, found)| (name.to_string(), found.is_commit())).collect();
        assert!(told.contains(&("ledger".into(), true)), "{told:?}");
        assert_eq!(world.orders.prepared().await.len(), 1, "nothing was touched");
        resolver.resolve(id, Resolution::Commit, "the other side has committed").await.unwrap();
        world.is_on_both(1).await;
        resolver.close().await.unwrap();
        let bridge = Bridge::open(config).await.unwrap();
        assert_eq!(bridge.outcome(id).await.unwrap(), Outcome::Committed);
        insert(&bridge, 2).await.commit().await.unwrap();
    }

    /// A copy beside the live original: refused, with the original's name, and the original goes on.
    async fn d10_a_copied_journal_beside_the_original_is_refused(other) {
        let world = World::new(other).await;
        let bridge = world.open().await;
        let theirs = insert(&bridge, 1).await;
        let other = copy(world.journal.path());
        let config = world.builder_at(other.path(), "").build();
        let holder = theirs.id().incarnation.to_string();
        let error = Bridge::open(config.clone()).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.chain().contains(&holder), "{}", error.chain());
        let resolver = Resolver::open(config).unwrap();
        let refused = resolver.sweep(&|_| {}).await.refused.unwrap();
        assert!(refused.chain().contains(&holder), "{}", refused.chain());
        resolver.close().await.unwrap();
        theirs.commit().await.unwrap();
        world.is_on_both(1).await;
        // What was refused has left no trace by which the original would look stale.
        bridge.close().await.unwrap();
        world.open().await;
    }

    /// A branch rolled back by hand against the decision: told by every later run, until a person closes it.
    async fn d21_damage_is_told_again_after_every_restart(other) {
        let world = World::new(other).await;
        let (id, _old) = half_committed(&world, 1).await;
        assert_eq!(world.orders.roll_back_by_hand().await, 1);
        for _ in 0..3 {
            let bridge = world.open().await;
            eventually("it is found out", async || bridge.status().damaged == 1).await;
            assert_eq!(bridge.outcome(id).await.unwrap(), Outcome::Damaged);
            bridge.close().await.unwrap();
        }
        let resolver = Resolver::open(world.config("")).unwrap();
        let refused = resolver.resolve(id, Resolution::Commit, "again").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Refused, "the journal decides");
        resolver.forget(id, "the order was entered again").await.unwrap();
        resolver.close().await.unwrap();
        let bridge = world.open().await;
        assert_eq!((bridge.outcome(id).await.unwrap(), bridge.status().damaged), (Outcome::Damaged, 0));
    }

    /// The application's own COMMIT: damage that no server would show after a restart.
    async fn the_applications_own_commit_is_damage_after_every_restart(other) {
        let world = World::new(other).await;
        let bridge = world.open().await;
        let tx = insert(&bridge, 1).await;
        tx.postgres("ledger").await.unwrap().batch_execute("COMMIT").await.unwrap();
        let error = tx.commit().await.unwrap_err();
        assert_eq!(error.outcome(), Outcome::Damaged);
        bridge.close().await.unwrap();
        for _ in 0..3 {
            let bridge = world.open().await;
            assert_eq!(bridge.outcome(error.id()).await.unwrap(), Outcome::Damaged);
            assert_eq!(bridge.status().damaged, 1);
            bridge.close().await.unwrap();
        }
    }
}
