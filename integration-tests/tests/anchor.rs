//! A participant decides, in place of a journal: on real servers, whichever of the two it is.

use handfast::protocol::recovery::Plan;
use handfast::resolver::Resolver;
use handfast::{Bridge, ErrorKind, Outcome, TransactionId};
use integration_tests::each_pair;
use integration_tests::servers::Flavor;
use integration_tests::world::{Home, LEDGER, ORDERS, Program, Side, World, eventually, insert, insert_at, settled};
use std::time::Duration;

/// The configuration's sections that make a participant the anchor.
fn by(anchor: &str) -> String {
    format!("[transaction]\ndecision = \"{anchor}\"\n")
}

fn side<'a>(world: &'a World, name: &str) -> &'a Side {
    world.sides().into_iter().find(|side| side.name == name).expect("there are two")
}

/// The anchor and the other one.
fn both<'a>(world: &'a World, anchor: &str) -> (&'a Side, &'a Side) {
    let anchor = side(world, anchor);
    (anchor, world.other(anchor))
}

async fn recovered(world: &World, anchor: &str, id: TransactionId) -> Outcome {
    let resolver = Resolver::open(world.config(&by(anchor))).unwrap();
    eventually("recovery is complete", async || resolver.sweep(&|_| {}).await.is_complete()).await;
    let outcome = resolver.outcome(id).await.unwrap();
    resolver.close().await.unwrap();
    outcome
}

/// What the plan has of a transaction's branches.
fn rows(plan: &Plan, id: TransactionId) -> Vec<(&'static str, &'static str)> {
    let of = plan.branches().filter(|branch| branch.id.transaction == id);
    of.map(|branch| (if branch.participant.as_str() == LEDGER { LEDGER } else { ORDERS }, branch.row)).collect()
}

each_pair! {
    async fn it_commits_and_rolls_back(other) {
        let world = World::new(other).await;
        let mut key = 0;
        for anchor in [LEDGER, ORDERS] {
            let (decides, follows) = both(&world, anchor);
            let bridge = world.open_with(&by(anchor)).await;
            let tx = insert(&bridge, key + 1).await;
            let id = tx.id();
            let (prepares, listed) = (decides.proxy.count(decides.words().prepare), decides.proxy.count("'anchor "));
            tx.commit().await.unwrap();
            world.is_on_both(key + 1).await;
            assert_eq!(decides.proxy.count(decides.words().prepare), prepares, "the anchor is never prepared");
            assert_eq!(decides.proxy.count("'anchor "), listed + 1, "its row is the decision");
            // Rolled back by the application, and by a vote that never comes.
            let tx = insert(&bridge, key + 2).await;
            tx.rollback().await.unwrap();
            world.is_nowhere(key + 2).await;
            let rule = follows.proxy.on(follows.words().prepare).cut();
            let refused = insert(&bridge, key + 3).await;
            let undone = refused.id();
            assert_eq!(refused.commit().await.unwrap_err().outcome(), Outcome::RolledBack);
            assert_eq!(rule.times(), 1);
            world.is_nowhere(key + 3).await;
            // One writer alone needs no decision of others.
            for writer in [LEDGER, ORDERS] {
                key += 1;
                let tx = bridge.begin().await.unwrap();
                insert_at(&tx, writer, key + 10).await.unwrap();
                tx.commit().await.unwrap();
            }
            bridge.close().await.unwrap();
            assert!(decides.witnesses(id).await.is_empty(), "what is over is folded");
            assert_eq!(recovered(&world, anchor, id).await, Outcome::Committed);
            assert_eq!(recovered(&world, anchor, undone).await, Outcome::RolledBack);
            key += 20;
        }
    }

    /// The answer of the commit that decides is lost, or the commit itself; with the process or without it.
    async fn a_lost_answer_is_asked_for(other) {
        let world = World::new(other).await;
        let mut key = 100;
        for anchor in [LEDGER, ORDERS] {
            let (decides, follows) = both(&world, anchor);
            for (lost, expected) in [("request", Outcome::RolledBack), ("answer", Outcome::Committed)] {
                let arm = |stay_down: bool| {
                    let on = decides.proxy.on("'anchor ");
                    let on = if stay_down { on.and_stay_down() } else { on };
                    if lost == "request" { on.cut() } else { on.cut_answer() }
                };
                // It lives on.
                key += 1;
                let bridge = world.open_with(&by(anchor)).await;
                let tx = insert(&bridge, key).await;
                let (id, rule) = (tx.id(), arm(false));
                assert_eq!(tx.commit().await.unwrap_err().outcome(), Outcome::InDoubt);
                assert_eq!(rule.times(), 1);
                assert_eq!(settled(&bridge, id).await, expected, "{anchor} {lost}");
                world.agrees(key, expected).await;
                bridge.close().await.unwrap();
                // It dies.
                key += 1;
                let program = Program::start(world.config(&by(anchor))).await;
                let rule = arm(true);
                let id = program.begin_commit(key).await;
                rule.fired().await;
                program.crash().await;
                decides.proxy.up();
                assert!(!follows.prepared().await.is_empty());
                assert_eq!(recovered(&world, anchor, id).await, expected, "{anchor} {lost}");
                world.agrees(key, expected).await;
            }
        }
    }

    /// Decided, and the other one has not heard of it: whoever opens next commits there, by the row.
    async fn a_decision_outlives_its_process(other) {
        let world = World::new(other).await;
        let mut key = 200;
        for anchor in [LEDGER, ORDERS] {
            let (decides, follows) = both(&world, anchor);
            key += 1;
            let program = Program::start(world.config(&by(anchor))).await;
            let rule = follows.proxy.on(follows.words().commit).and_stay_down().cut();
            let id = program.begin_commit(key).await;
            rule.fired().await;
            program.crash().await;
            follows.proxy.up();
            assert!(decides.has(key).await && !follows.has(key).await);
            // Without the anchor nobody can tell, and nothing is touched.
            decides.proxy.down();
            let resolver = Resolver::open(world.config(&by(anchor))).unwrap();
            let pass = resolver.sweep(&|_| {}).await;
            assert!(!pass.is_complete() && !follows.prepared().await.is_empty());
            resolver.close().await.unwrap();
            decides.proxy.up();
            let bridge = world.open_with(&by(anchor)).await;
            assert_eq!(settled(&bridge, id).await, Outcome::Committed);
            world.is_on_both(key).await;
            assert_eq!(bridge.wait_applied(id).await.unwrap(), Outcome::Committed);
            bridge.close().await.unwrap();
        }
    }

    /// Two programs of one node: one is killed, the other works on, settles what it left, and is not disturbed.
    async fn one_of_two_is_killed_while_the_other_works(other) {
        let world = World::new(other).await;
        let mut key = 300;
        for anchor in [LEDGER, ORDERS] {
            let (_, follows) = both(&world, anchor);
            let survivor = world.open_with(&by(anchor)).await;
            let program = Program::start(world.config(&by(anchor))).await;
            let rule = follows.proxy.on(follows.words().commit).hold();
            let id = program.begin_commit(key + 1).await;
            rule.fired().await;
            // While it lives, it is let alone.
            insert(&survivor, key + 2).await.commit().await.unwrap();
            assert!(!follows.prepared().await.is_empty());
            assert_eq!(survivor.outcome(id).await.unwrap(), Outcome::InDoubt);
            program.crash().await;
            insert(&survivor, key + 3).await.commit().await.unwrap();
            assert_eq!(settled(&survivor, id).await, Outcome::Committed);
            rule.release();
            for key in key + 1..=key + 3 {
                world.is_on_both(key).await;
            }
            survivor.close().await.unwrap();
            key += 10;
        }
    }

    /// Whatever decided before is asked for what it decided.
    async fn another_decision_finds_the_old_ones(other) {
        let world = World::new(other).await;
        let mut key = 400;
        let ways = [("journal", LEDGER), (LEDGER, "journal"), ("journal", ORDERS), (LEDGER, ORDERS), (ORDERS, LEDGER)];
        for (before, after) in ways {
            let follows = if before == ORDERS { &world.ledger } else { &world.orders };
            // Decided and not carried out; and prepared without a decision.
            let program = Program::start(world.config(&by(before))).await;
            let decided = {
                let rule = follows.proxy.on(follows.words().commit).and_stay_down().cut();
                let id = program.begin_commit(key + 1).await;
                rule.fired().await;
                id
            };
            program.crash().await;
            follows.proxy.up();
            assert!(!follows.prepared().await.is_empty(), "{before}, then {after}");
            let bridge = world.open_with(&by(after)).await;
            world.is_on_both(key + 1).await;
            assert_eq!(settled(&bridge, decided).await, Outcome::Committed, "{before}, then {after}");
            insert(&bridge, key + 2).await.commit().await.unwrap();
            world.is_on_both(key + 2).await;
            bridge.close().await.unwrap();
            key += 10;
        }
    }

    /// Whoever asks what became of a transaction of before does not wait for a pass that settles others.
    async fn an_old_outcome_waits_for_no_pass(other) {
        let world = World::new(other).await;
        let bridge = world.open_with(&by("journal")).await;
        let id = insert(&bridge, 800).await.commit().await.unwrap().id;
        bridge.close().await.unwrap();
        let program = Program::start(world.config(&by("journal"))).await;
        let rule = world.orders.proxy.on(world.orders.words().commit).and_stay_down().cut();
        program.begin_commit(801).await;
        rule.fired().await;
        eventually("the ledger has committed", async || world.ledger.has(801).await).await;
        program.crash().await;
        world.orders.proxy.up();

        let held = world.orders.proxy.on(world.orders.words().list).every().hold();
        let slow = "[recovery]\nstatement_timeout = \"20s\"\nopen_wait = \"1s\"\n";
        let bridge = world.open_with(&format!("{}{slow}", by(LEDGER))).await;
        let asked = tokio::time::timeout(Duration::from_secs(10), bridge.outcome(id));
        assert_eq!(asked.await.expect("it waits for a pass").unwrap(), Outcome::Committed);
        held.disarm();
        held.release();
        world.is_on_both(801).await;
        bridge.close().await.unwrap();
    }

    /// A row of a decision names no lineage. It needs none: another server under a known name is refused, and what earlier
    /// openings left on the old one is given up by whoever adopts the new one, whatever was decided about it.
    async fn another_server_is_refused_and_then_adopted(other) {
        let mut world = World::on(Home::shared(Flavor::Postgres).await, Home::own(other).await).await;
        let program = Program::start(world.config(&by(LEDGER))).await;
        let rule = world.orders.proxy.on(world.orders.words().commit).every().cut();
        let id = program.begin_commit(700).await;
        rule.fired().await;
        program.crash().await;
        let node = world.ledger.node().to_owned();
        let fresh = Side::new(ORDERS, Home::shared(other).await, &node).await;
        std::mem::replace(&mut world.orders, fresh).server.kill().await.unwrap();

        let refused = Bridge::open(world.config(&by(LEDGER))).await.map(|_| ()).expect_err("it is another server");
        assert_eq!(refused.kind(), ErrorKind::Refused, "{}", refused.chain());
        let resolver = Resolver::open(world.config(&by(LEDGER))).unwrap();
        let pass = resolver.sweep(&|_| {}).await;
        assert!(!pass.is_complete(), "the old server may still have it: {:#?}", pass.left);
        assert_eq!(resolver.outcome(id).await.unwrap(), Outcome::Committed, "which its row says");
        let adoption = resolver.adopt(ORDERS.parse().unwrap(), "its disks are lost").await.unwrap();
        assert_eq!(adoption.unproven, [id]);
        resolver.close().await.unwrap();

        let bridge = world.open_with(&by(LEDGER)).await;
        eventually("it is damaged", async || bridge.status().damaged == 1).await;
        assert_eq!(bridge.outcome(id).await.unwrap(), Outcome::Damaged);
        insert(&bridge, 701).await.commit().await.unwrap();
        world.is_on_both(701).await;
        bridge.close().await.unwrap();
    }

    /// What recovery finds where nobody knows yet whether it was decided.
    async fn nothing_moves_before_the_anchor_has_said(other) {
        let world = World::new(other).await;
        let program = Program::start(world.config(&by(LEDGER))).await;
        let rule = world.ledger.proxy.on("'anchor ").and_stay_down().cut();
        let id = program.begin_commit(600).await;
        rule.fired().await;
        program.crash().await;
        world.ledger.proxy.up();
        let reader = Resolver::read(world.config(&by(LEDGER))).unwrap();
        let seen = async || rows(&reader.plan(&reader.observe().await.observation), id);
        // row: anchor, asked
        // row: anchored
        eventually("its lease is free", async || seen().await == [(LEDGER, "anchor, asked"), (ORDERS, "anchored")]).await;
        // row: anchor, unseen
        world.ledger.proxy.down();
        assert_eq!(seen().await, [(LEDGER, "anchor, unseen"), (ORDERS, "anchored")]);
        world.ledger.proxy.up();
        // row: anchor, there
        let own = id.branch(0, 0);
        world.ledger.query(&format!("BEGIN; PREPARE TRANSACTION '{own}'")).await;
        assert_eq!(seen().await, [(LEDGER, "anchor, there"), (ORDERS, "anchored")]);
        world.ledger.query(&format!("ROLLBACK PREPARED '{own}'")).await;
        reader.close().await.unwrap();
        // row: anchor, held
        let (somebody, key) = (format!("of {id}"), format!("{}, {}, 0", id.incarnation.to_sql(), id.sequence));
        let insert = format!("INSERT INTO handfast_witness VALUES ({key}, 'decided')");
        world.ledger.query(&format!("BEGIN; {insert}; PREPARE TRANSACTION '{somebody}'")).await;
        let resolver = Resolver::open(world.config(&by(LEDGER))).unwrap();
        let pass = resolver.sweep(&|_| {}).await;
        assert_eq!(rows(&pass.left, id), [(LEDGER, "anchor, held"), (ORDERS, "anchored")]);
        assert!(!pass.is_complete() && !world.orders.prepared().await.is_empty());
        resolver.close().await.unwrap();
        world.ledger.query(&format!("ROLLBACK PREPARED '{somebody}'")).await;
        assert_eq!(recovered(&world, LEDGER, id).await, Outcome::RolledBack);
        world.is_nowhere(600).await;
    }

    /// Answered at the decision, and awaited.
    async fn it_answers_at_the_decision(other) {
        let world = World::new(other).await;
        let mut key = 500;
        for anchor in [LEDGER, ORDERS] {
            let (_, follows) = both(&world, anchor);
            let sections = format!("{}acknowledge = \"decided\"\n", by(anchor));
            let bridge = world.open_with(&sections).await;
            key += 1;
            let rule = follows.proxy.on(follows.words().commit).hold();
            let tx = insert(&bridge, key).await;
            let id = tx.id();
            tx.commit().await.unwrap();
            rule.fired().await;
            assert!(!follows.has(key).await);
            rule.release();
            assert_eq!(bridge.wait_applied(id).await.unwrap(), Outcome::Committed);
            world.is_on_both(key).await;
            bridge.close().await.unwrap();
        }
    }
}
