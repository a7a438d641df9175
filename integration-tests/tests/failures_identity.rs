//! Failures around who is who: two holders of one journal, ids that come twice, foreign branches, servers that cannot
//! serve. Names begin with the entry of the log of known failures that they try.

use handfast::mysql_async::prelude::Queryable;
use handfast::resolver::Resolver;
use handfast::{Bridge, ErrorKind, Outcome};
use integration_tests::application::Application;
use integration_tests::servers::{self, ConfigBuilder, Flavor};
use integration_tests::world::{Home, LEDGER, ORDERS, Program, Side, World, eventually, insert, insert_at, settled};
use integration_tests::{each_mysql, each_pair};
use std::collections::BTreeSet;

each_pair! {
    /// A second bridge on the journal of a first is refused and told who holds it, by whatever path it comes. The first
    /// goes on.
    async fn d10_a_second_bridge_is_refused(other) {
        let world = World::new(other).await;
        let links = tempfile::TempDir::new().unwrap();
        let link = links.path().join("journal");
        std::os::unix::fs::symlink(world.journal.path(), &link).unwrap();
        let program = env!("CARGO_BIN_EXE_test-application");
        let first = Application::load(program, &world.builder(""), 0, 2, 0).await;
        eventually("it works", async || first.has_said("Committed")).await;
        let last = |side: &Side| side.proxy.messages().iter().map(|message| message.connection).max();
        let connections = || world.sides().map(last);
        for path in [world.journal.path(), &link] {
            let config = world.builder_at(path, "").build();
            let before = connections();
            for error in [
                Bridge::open(config.clone()).await.err().unwrap(),
                Resolver::open(config.clone()).err().unwrap(),
            ] {
                assert_eq!(error.kind(), ErrorKind::Refused);
                assert!(error.chain().contains(&first.pid().to_string()), "it names the holder: {}", error.chain());
            }
            // Before it touched a database. The first may open further sessions of its own: at most its pool's.
            assert!(connections().iter().zip(before).all(|(after, before)| after.unwrap() <= before.unwrap() + 4));
            let reader = Resolver::read(config).unwrap();
            assert!(reader.holder().unwrap().contains(&first.pid().to_string()));
            reader.close().await.unwrap();
        }
        let said = first.transactions().len();
        eventually("the first goes on", async || first.transactions().len() > said + 10).await;
        assert!(first.transactions().values().all(|one| one.answer.is_none_or(|answer| answer == Outcome::Committed)));
    }

    /// The lock is the kernel's: when its holder is gone, however it went, the next one starts at once.
    async fn d45_the_lock_of_a_killed_program_is_free(other) {
        let world = World::new(other).await;
        let program = env!("CARGO_BIN_EXE_test-application");
        for round in 0..3 {
            let mut application = Application::load(program, &world.builder(""), round * 100_000, 2, 0).await;
            eventually("it works", async || application.has_said("Committed")).await;
            application.kill().await;
            let pass = world.recover().await;
            assert!(pass.is_complete(), "{:#?}", pass.left);
        }
        // A prepare may be under way at a server when its program is gone already.
        for side in world.sides() {
            side.sessions_are_gone().await;
        }
        world.recover().await;
        world.nothing_is_prepared().await;
        assert_eq!(world.ledger.keys().await, world.orders.keys().await);
    }

    /// Programs with databases in common that are started at the same moment, as after a failure of power: each opens.
    async fn programs_that_start_at_once_do_not_meet(other) {
        let world = World::new(other).await;
        for round in 0..4 {
            let starts = (0..12).map(|number| {
                let journal = tempfile::TempDir::new().unwrap();
                let config = world.builder_at(journal.path(), "").node(&format!("at-once-{round}-{number}")).build();
                tokio::spawn(async move {
                    let bridge = Bridge::open(config).await.unwrap_or_else(|error| panic!("{}", error.chain()));
                    bridge.close().await.unwrap();
                    drop(journal);
                })
            });
            for start in starts.collect::<Vec<_>>() {
                start.await.unwrap();
            }
        }
    }

    /// Restarted twice, within the same second: no id comes again.
    async fn d19_ids_never_repeat(other) {
        let world = World::new(other).await;
        let mut ids = BTreeSet::new();
        for round in 0..3 {
            let program = Program::start(world.config("")).await;
            for key in 0..3 {
                let bridge = program.bridge.clone();
                let committing = program.spawn(async move { insert(&bridge, round * 10 + key).await.commit().await });
                ids.insert(committing.await.unwrap().unwrap().id);
            }
            if round == 1 {
                program.bridge.close().await.unwrap();
            }
            program.crash().await;
        }
        assert_eq!(ids.len(), 9);
        let sequences: BTreeSet<u64> = ids.iter().map(|id| id.sequence).collect();
        assert_eq!(sequences.len(), 3, "the sequence alone would have come again");
        let bridge = world.open().await;
        for id in ids {
            assert_eq!(bridge.outcome(id).await.unwrap(), Outcome::Committed);
        }
    }

    /// An old decision is not taken for that of a new branch with the same number.
    async fn d19_an_old_decision_says_nothing_of_a_new_branch(other) {
        let world = World::new(other).await;
        let words = world.orders.words();
        let no_commit = world.orders.proxy.on(words.commit).every().cut();
        let first = Program::start(world.config("")).await;
        let decided = first.begin_commit(1).await;
        no_commit.fired().await;
        eventually("it is committed at the other side", async || world.ledger.has(1).await).await;
        first.crash().await;
        assert_eq!(world.orders.prepared().await.len(), 1);

        let second = Program::start(world.config("")).await;
        let no_vote = world.ledger.proxy.on("PREPARE TRANSACTION").hold();
        let undecided = second.begin_commit(2).await;
        no_vote.fired().await;
        assert_eq!(undecided.sequence, decided.sequence);
        eventually("both are prepared", async || world.orders.prepared().await.len() == 2).await;
        second.crash().await;
        world.sides().into_iter().for_each(|side| side.proxy.sever());
        no_commit.disarm();

        let bridge = world.open().await;
        assert_eq!(settled(&bridge, decided).await, Outcome::Committed);
        assert_eq!(settled(&bridge, undecided).await, Outcome::RolledBack);
        world.is_on_both(1).await;
        world.is_nowhere(2).await;
        assert_eq!(bridge.status().damaged, 0);
    }

    /// Two databases on each of two servers are four participants.
    async fn d42_four_participants_on_two_servers(other) {
        let world = World::new(other).await;
        let node = servers::unique("f").replace('_', "-");
        let names = [LEDGER, "ledger_2", ORDERS, "orders_2"];
        let mut sides = Vec::new();
        for (name, flavor) in names.into_iter().zip([Flavor::Postgres, Flavor::Postgres, other, other]) {
            sides.push(Side::new(name, Home::shared(flavor).await, &node).await);
        }
        let recovery = "[recovery]\nbackoff_min = \"5ms\"\nbackoff_max = \"50ms\"\nstatement_timeout = \"2s\"";
        let mut builder = ConfigBuilder::new(world.journal.path()).node(&node).section(recovery);
        for side in &sides {
            builder = builder.participant_at(side.name, side.flavor(), &side.proxy.url(&side.database));
        }
        let everywhere = async |key: i32| {
            for side in &sides {
                eventually("nothing is prepared", async || side.prepared().await.is_empty()).await;
                assert!(side.has(key).await, "{key} at {}", side.name);
            }
        };
        let bridge = Bridge::open(builder.build()).await.unwrap();
        let tx = bridge.begin().await.unwrap();
        for name in names {
            insert_at(&tx, name, 1).await.unwrap();
        }
        let committed = tx.commit().await.unwrap();
        assert!(committed.pending.is_empty());
        everywhere(1).await;
        for side in &sides {
            assert_eq!(side.witnesses(committed.id).await, ["decided"], "each has its own");
        }
        bridge.close().await.unwrap();

        // And through a crash between decision and phase two.
        let program = Program::start(builder.build()).await;
        let rules: Vec<_> = sides.iter().map(|side| side.proxy.on(side.words().commit).every().cut()).collect();
        let bridge = program.bridge.clone();
        program.spawn(async move {
            let tx = bridge.begin().await.unwrap();
            for name in names {
                insert_at(&tx, name, 2).await.unwrap();
            }
            tx.commit().await
        });
        for rule in &rules {
            rule.fired().await;
        }
        program.crash().await;
        for rule in &rules {
            rule.disarm();
        }
        assert_eq!(sides[0].prepared().await.len(), 2, "a server lists those of both its databases");
        let bridge = Bridge::open(builder.build()).await.unwrap();
        everywhere(2).await;
        eventually("all is well", async || bridge.status().in_doubt == 0).await;
        assert_eq!(bridge.status().damaged, 0);
    }
}

each_mysql! {
    /// Somebody else's branch with bytes that are no text, beside one of ours.
    async fn d39_a_binary_xid_is_shown_and_left(flavor) {
        let world = World::on(Home::shared(Flavor::Postgres).await, Home::own(flavor).await).await;
        world.orders.query("CREATE TABLE other (k INT)").await;
        world.orders.query(
            "XA START X'00ff275c',X'5c2700',7; INSERT INTO other VALUES (1); \
             XA END X'00ff275c',X'5c2700',7; XA PREPARE X'00ff275c',X'5c2700',7"
        ).await;
        let program = Program::start(world.config("")).await;
        let bridge = program.bridge.clone();
        program.spawn(async move { insert(&bridge, 1).await.commit().await }).await.unwrap().unwrap();
        // One of ours to be settled beside it.
        let rule = world.orders.proxy.on("XA COMMIT").cut();
        let id = program.begin_commit(2).await;
        rule.fired().await;
        program.crash().await;

        let reader = Resolver::read(world.config("")).unwrap();
        let view = reader.observe().await;
        let plan = reader.plan(&view.observation);
        let texts: Vec<_> = plan.foreign.iter().map(|one| one.gid.as_str()).collect();
        assert_eq!(texts, ["X'00ff275c',X'5c2700',7"]);
        reader.close().await.unwrap();

        let pass = world.recover().await;
        assert!(pass.is_complete(), "{:#?}", pass.left);
        assert_eq!(pass.left.foreign.len(), 1);
        world.is_on_both(1).await;
        world.is_on_both(2).await;
        let bridge = world.open().await;
        assert_eq!(bridge.outcome(id).await.unwrap(), Outcome::Committed);
        world.orders.query("XA ROLLBACK X'00ff275c',X'5c2700',7").await;
    }

    /// Neither server loses a branch of ours at a crash, whatever formatIDs others use within 31 bits.
    async fn d14_prepared_branches_survive_foreign_format_ids(flavor) {
        let world = world_with_foreign_xids(flavor, &["2147483647", "1"]).await;
        let bridge = world.open().await;
        let rule = world.orders.proxy.on("XA COMMIT").hold();
        let commit = tokio::spawn(insert(&bridge, 1).await.commit());
        rule.fired().await;
        assert_eq!(world.orders.prepared().await.len(), 1);
        world.orders.server.kill().await.unwrap();
        world.orders.server.restart().await.unwrap();
        rule.release();
        let committed = commit.await.unwrap().unwrap();
        world.is_on_both(1).await;
        eventually("it is written down", async || bridge.status().in_doubt == 0).await;
        assert_eq!((bridge.status().damaged, bridge.outcome(committed.id).await.unwrap()), (0, Outcome::Committed));
    }
}

/// A server with a binary log, in which others have committed XA transactions of these formatIDs.
async fn world_with_foreign_xids(flavor: Flavor, formats: &[&str]) -> World {
    let server = servers::start_with(flavor, servers::options().with_binlog()).await;
    let world = World::on(Home::shared(Flavor::Postgres).await, Home::Own(Box::new(server))).await;
    for (n, format) in formats.iter().enumerate() {
        let xid = format!("'foreign{n}','b',{format}");
        let key = 100 + n;
        let branch =
            format!("XA START {xid}; INSERT INTO t VALUES ({key}, 0); XA END {xid}; XA PREPARE {xid}; XA COMMIT {xid}");
        world.orders.query(&branch).await;
    }
    world
}

/// MySQL's bug 120125: where others use formatIDs of more than 31 bits, its crash recovery loses prepared branches of
/// any formatID. Then the loss is told, never taken for a commit (D03, D13).
#[test]
fn d14_a_branch_that_the_server_lost_is_damage() {
    if !servers::is_available(Flavor::MySql) {
        return;
    }
    servers::runtime().block_on(async {
        let world = world_with_foreign_xids(Flavor::MySql, &["4294967296", "1"]).await;
        let bridge = world.open().await;
        let rule = world.orders.proxy.on("XA COMMIT").hold();
        let commit = tokio::spawn(insert(&bridge, 1).await.commit());
        rule.fired().await;
        world.orders.server.kill().await.unwrap();
        world.orders.server.restart().await.unwrap();
        rule.release();
        let committed = commit.await.unwrap();
        if world.orders.has(1).await {
            // A version without the bug.
            return;
        }
        assert!(committed.is_ok(), "the decision stands: {committed:?}");
        eventually("it is found out", async || bridge.status().damaged == 1).await;
        world.nothing_is_prepared().await;
        bridge.close().await.unwrap();
        let found = world.recover().await.left.transactions;
        assert_eq!((found.len(), found[0].outcome), (1, Outcome::Damaged));
    });
}

/// Prepared transactions are off by default: refused at opening, with the name of the setting and its cure.
#[test]
fn d40_disabled_prepared_transactions_are_found_at_opening() {
    servers::runtime().block_on(async {
        let options = servers::options().with("max_prepared_transactions", "0");
        let server = servers::start_with(Flavor::Postgres, options).await;
        let world = World::on(Home::Own(Box::new(server)), Home::shared(Flavor::MariaDb).await).await;
        let error = Bridge::open(world.config("")).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Setup);
        assert_eq!(error.participant().unwrap().as_str(), LEDGER);
        let text = error.chain();
        assert!(text.contains("max_prepared_transactions") && text.contains("restart"), "{text}");

        world.ledger.server.set("max_prepared_transactions", "10");
        world.ledger.server.restart().await.unwrap();
        insert(&world.open().await, 1).await.commit().await.unwrap();
        world.is_on_both(1).await;
    });
}

/// A setting that changes under a running bridge is a clean *no* at prepare.
#[test]
fn d40_disabled_under_a_running_bridge_they_vote_no() {
    servers::runtime().block_on(async {
        let world = World::on(Home::own(Flavor::Postgres).await, Home::shared(Flavor::MariaDb).await).await;
        let bridge = world.open().await;
        world.ledger.server.set("max_prepared_transactions", "0");
        world.ledger.server.restart().await.unwrap();
        let error = insert(&bridge, 1).await.commit().await.unwrap_err();
        assert_eq!(error.outcome(), Outcome::RolledBack);
        assert!(error.cause().chain().contains("55000"), "{}", error.cause().chain());
        world.is_nowhere(1).await;
        // A single writer needs no promise.
        let tx = bridge.begin().await.unwrap();
        tx.mysql(ORDERS).await.unwrap().query_drop("INSERT INTO t VALUES (2, 1)").await.unwrap();
        tx.commit().await.unwrap();
    });
}
