//! Failures in phase two: the decision is made, and somebody does not hear of it or cannot answer. Names begin with
//! the entry of the log of known failures that they try.

use handfast::protocol::recovery::Action;
use handfast::resolver::Resolver;
use handfast::{ErrorKind, Outcome};
use integration_tests::application::Application;
use integration_tests::each_pair;
use integration_tests::proxy::{Arm, On, Rule};
use integration_tests::servers::Flavor;
use integration_tests::world::{
    Home, ORDERS, Program, Side, World, eventually, eventually_or, insert, insert_at, settled,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Every bit of phase two gets its own way to fail, and commit() says *committed* each time.
async fn fails_and_commits(world: &World, sections: &str, faults: &[(&str, Arm)]) {
    let bridge = world.open_with(sections).await;
    let mut key = 0;
    for side in world.sides() {
        for (name, fault) in faults {
            key += 1;
            let tx = insert(&bridge, key).await;
            let rule = fault(side.proxy.on(side.words().commit));
            let committed = tx.commit().await.unwrap_or_else(|error| panic!("{name}: {error}"));
            rule.fired().await;
            assert!(committed.pending.iter().all(|pending| pending.as_str() == side.name), "{name}: {committed:?}");
            world.is_on_both(key).await;
            assert_eq!(bridge.outcome(committed.id).await.unwrap(), Outcome::Committed);
            eventually("nothing is in doubt", async || bridge.status().in_doubt == 0).await;
            assert_eq!(bridge.status().damaged, 0, "{name}");
        }
    }
    bridge.close().await.unwrap();
    let pass = world.recover().await;
    assert!(pass.found.work().next().is_none(), "all was settled and written down: {:#?}", pass.found);
}

/// Ends the sessions of a side's participant, as an administrator does.
async fn end_sessions(side: &Side) {
    if side.flavor() == Flavor::Postgres {
        let others = "datname = current_database() AND pid <> pg_backend_pid()";
        side.query(&format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")).await;
        return;
    }
    let sql = format!(
        "SELECT id FROM information_schema.processlist WHERE db = '{}' AND id <> CONNECTION_ID()",
        side.database
    );
    for row in side.query(&sql).await {
        // One that is gone by itself is an error here, and as good.
        let _ = side.server.query(&side.database, &format!("KILL {}", row[0].as_deref().unwrap())).await;
    }
}

each_pair! {
    async fn d05_a_lost_connection_is_no_failure(other) {
        let world = World::new(other).await;
        fails_and_commits(&world, "", &[
            ("cut", On::cut),
            ("answer cut", On::cut_answer),
            ("reset", On::reset),
            ("answer reset", On::reset_answer),
        ]).await;
    }

    /// The network swallows everything and closes nothing.
    async fn d05_a_black_hole_is_no_failure(other) {
        let world = World::new(other).await;
        let sections = "[recovery]\nstatement_timeout = \"1500ms\"\n";
        fails_and_commits(&world, sections, &[("hole", On::hold), ("answer's hole", On::hold_answer)]).await;
    }

    /// The session is ended by hand: 57P01, 1927, 2013.
    async fn d05_an_ended_session_is_no_failure(other) {
        let world = World::new(other).await;
        let bridge = world.open().await;
        let mut key = 0;
        for side in world.sides() {
            for delivered in [false, true] {
                key += 1;
                let tx = insert(&bridge, key).await;
                let on = side.proxy.on(side.words().commit);
                let rule = if delivered { on.hold_answer() } else { on.hold() };
                let commit = tokio::spawn(tx.commit());
                rule.fired().await;
                if delivered {
                    eventually("it is committed there", async || side.has(key).await).await;
                }
                end_sessions(side).await;
                rule.release();
                commit.await.unwrap().unwrap();
                world.is_on_both(key).await;
                eventually("nothing is in doubt", async || bridge.status().in_doubt == 0).await;
            }
        }
        assert_eq!(bridge.status().damaged, 0);
    }

    /// The server restarts, in good order or not.
    async fn d05_a_restarted_server_is_no_failure(other) {
        let world = World::on(Home::own(Flavor::Postgres).await, Home::own(other).await).await;
        let bridge = world.open().await;
        let mut key = 0;
        for side in world.sides() {
            for (delivered, crash) in [(false, false), (true, true), (false, true), (true, false)] {
                key += 1;
                let tx = insert(&bridge, key).await;
                let on = side.proxy.on(side.words().commit);
                let rule = if delivered { on.hold_answer() } else { on.hold() };
                let commit = tokio::spawn(tx.commit());
                rule.fired().await;
                if delivered {
                    eventually("it is committed there", async || side.has(key).await).await;
                }
                if crash {
                    side.server.kill().await.unwrap();
                }
                side.server.restart().await.unwrap();
                rule.release();
                commit.await.unwrap().unwrap();
                world.is_on_both(key).await;
                eventually("nothing is in doubt", async || bridge.status().in_doubt == 0).await;
            }
        }
        assert_eq!(bridge.status().damaged, 0);
        assert_eq!((world.ledger.keys().await.len(), world.orders.keys().await.len()), (8, 8));
    }

    /// A prepared branch is finished on its own connection, which serves nobody in between and is never reset.
    async fn d02_phase_two_runs_on_the_same_connection(other) {
        let world = World::on(Home::shared(Flavor::Postgres).await, Home::own(other).await).await;
        let bridge = world.open_with("[pool]\nsize = 1\n").await;
        insert(&bridge, 1).await.commit().await.unwrap();
        for side in world.sides() {
            let words = side.words();
            let connection = |word: &str| {
                let messages = side.proxy.messages();
                messages.iter().rfind(|message| message.text.contains(word)).unwrap().connection
            };
            assert_eq!(connection(words.prepare), connection(words.commit), "{}", side.name);
        }

        // With one connection in the pool, the next branch begins after the prepared one is finished.
        let rule = world.orders.proxy.on("XA COMMIT").hold();
        let first = tokio::spawn(insert(&bridge, 2).await.commit());
        rule.fired().await;
        let next = bridge.begin().await.unwrap();
        let begun = world.orders.proxy.count("XA START");
        let mut beginning = Box::pin(insert_at(&next, ORDERS, 3));
        // Polled: it waits for the pool, and would send its XA START at once.
        assert!(futures_util::poll!(&mut beginning).is_pending());
        world.ledger.query("SELECT 1").await;
        assert!(futures_util::poll!(&mut beginning).is_pending());
        assert_eq!(world.orders.proxy.count("XA START"), begun);
        rule.release();
        first.await.unwrap().unwrap();
        beginning.await.unwrap();
        next.commit().await.unwrap();

        // One whose end is unknown is closed: the next branch begins on another connection.
        let rule = world.orders.proxy.on("XA COMMIT").cut();
        insert(&bridge, 4).await.commit().await.unwrap();
        rule.fired().await;
        let mut before = world.orders.branch_connections();
        insert(&bridge, 5).await.commit().await.unwrap();
        let after = world.orders.branch_connections().split_off(before.len());
        assert!(!before.split_off(before.len() - 1).contains(&after[0]));

        // COM_CHANGE_USER and COM_RESET_CONNECTION.
        assert!(world.orders.proxy.messages().iter().all(|message| !matches!(message.kind, 0x11 | 0x1f)));
        let visible = [(&world.ledger, vec![1, 2, 4, 5]), (&world.orders, vec![1, 2, 3, 4, 5])];
        for (side, keys) in &visible {
            eventually("all is committed", async || side.keys().await == *keys).await;
        }
        world.nothing_is_prepared().await;
        let threadless = "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = 0";
        assert_eq!(world.orders.value(threadless).await.as_deref(), Some("0"));
        bridge.close().await.unwrap();
        world.orders.server.kill().await.unwrap();
        world.orders.server.restart().await.unwrap();
        world.nothing_is_prepared().await;
        assert_eq!(world.orders.keys().await, [1, 2, 3, 4, 5]);
    }

    /// Run A: the commit was delivered, the answer lost, the coordinator killed. *Not found* is no damage then.
    async fn d03_a_branch_that_was_committed_is_finished(other) {
        let world = World::new(other).await;
        let mut key = 0;
        for side in world.sides() {
            for delivered in [true, false] {
                key += 1;
                let on = side.proxy.on(side.words().commit).and_stay_down();
                let rule = if delivered { on.cut_answer() } else { on.cut() };
                let program = env!("CARGO_BIN_EXE_test-application");
                let mut application = Application::load(program, &world.builder(""), key, 1, 1).await;
                rule.fired().await;
                let other = world.other(side);
                eventually("the other side is committed", async || other.has(key).await).await;
                application.kill().await;
                side.proxy.up();
                assert_eq!(side.has(key).await, delivered);
                assert_eq!(side.prepared().await.len(), usize::from(!delivered));
                let id = application.transactions()[&key].id;

                let pass = world.recover().await;
                assert!(pass.is_complete(), "{:#?}", pass.left);
                let found = pass.found.transactions.iter().find(|one| one.id == id).unwrap();
                assert_eq!(found.outcome, Outcome::Committed);
                assert!(matches!(found.action, Action::Ask | Action::Commit), "{found:?}");
                world.is_on_both(key).await;
                assert!(world.recover().await.found.transactions.is_empty(), "it is written down as done");
            }
        }
    }

    /// Run B: somebody rolled the branch back by hand. Every run tells, and touches nothing.
    async fn d03_d21_a_branch_that_was_rolled_back_by_hand_is_damage(other) {
        for of_ledger in [true, false] {
            let world = World::new(other).await;
            let side = world.sides()[usize::from(!of_ledger)];
            let rule = side.proxy.on(side.words().commit).and_stay_down().cut();
            let program = Program::start(world.config("")).await;
            let id = program.begin_commit(1).await;
            rule.fired().await;
            eventually("the other side is committed", async || world.other(side).has(1).await).await;
            program.crash().await;
            side.proxy.up();
            assert_eq!(side.roll_back_by_hand().await, 1);

            for _ in 0..2 {
                let pass = world.recover().await;
                let found = pass.left.transactions.iter().find(|one| one.id == id).unwrap();
                assert_eq!((found.outcome, found.action), (Outcome::Damaged, Action::Damage));
                let wrong: Vec<_> = found.branches.iter().filter(|one| one.action == Action::Damage).collect();
                assert_eq!(wrong.len(), 1);
                assert_eq!(wrong[0].participant.as_str(), side.name);
                assert_eq!(found.branches.len(), 2, "both gids are named");
            }
            let bridge = world.open().await;
            eventually("a bridge finds it too", async || bridge.status().damaged == 1).await;
            // And goes on with other work.
            insert(&bridge, 2).await.commit().await.unwrap();
            world.is_on_both(2).await;
            assert_eq!((world.other(side).has(1).await, side.has(1).await), (true, false));
        }
    }

    /// A resolver beside a living bridge is refused; the bridge's own passes leave what is at work alone.
    async fn d04_d46_recovery_leaves_live_transactions_alone(other) {
        let world = World::new(other).await;
        let bridge = world.open_with("[recovery]\ninterval = \"1ms\"\n[pool]\nsize = 8\n").await;
        let refused = Resolver::open(world.config("")).err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::Refused);
        assert!(refused.chain().contains(&std::process::id().to_string()), "it names the holder: {}", refused.chain());
        let lists = || world.sides().map(|side| side.proxy.count(side.words().list));
        let before = lists();
        let enough = move |now: [usize; 2]| now[0] >= before[0] + 20 && now[1] >= before[1] + 20;
        let stop = Arc::new(AtomicBool::new(false));
        let workers: Vec<_> = (0..8).map(|worker| {
            let (bridge, stop) = (bridge.clone(), stop.clone());
            tokio::spawn(async move {
                let mut rounds = 0;
                while rounds < 25 || !stop.load(Ordering::Relaxed) {
                    let committed = insert(&bridge, worker * 100_000 + rounds).await.commit().await.unwrap();
                    assert!(committed.pending.is_empty(), "{committed:?}");
                    rounds += 1;
                }
                rounds
            })
        }).collect();
        eventually("twenty passes ran meanwhile", async || {
            enough(lists()) || workers.iter().any(tokio::task::JoinHandle::is_finished)
        }).await;
        stop.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for (worker, task) in (0..).zip(workers) {
            all.extend((0..task.await.unwrap()).map(|round| worker * 100_000 + round));
        }
        assert!(enough(lists()) && all.len() >= 200);
        let status = bridge.status();
        assert_eq!((status.damaged, status.running), (0, 0));
        assert_eq!((world.ledger.keys().await, world.orders.keys().await), (all.clone(), all));
        world.nothing_is_prepared().await;
        // What only looks may look, and finds nothing to do.
        let reader = Resolver::read(world.config("")).unwrap();
        assert!(reader.holder().is_some());
        let view = reader.observe().await;
        let plan = reader.plan(&view.observation);
        assert!(plan.work().next().is_none(), "{plan:#?}");
        reader.close().await.unwrap();
    }

    /// While phase two is slow, passes see the branch prepared and decided, and leave it to its coordinator.
    async fn d46_a_slow_phase_two_is_not_interfered_with(other) {
        let world = World::new(other).await;
        let bridge = world.open_with("[recovery]\ninterval = \"1ms\"\n").await;
        let rules = world.sides().map(|side| side.proxy.on(side.words().commit).hold());
        let commit = tokio::spawn(insert(&bridge, 1).await.commit());
        for (side, rule) in world.sides().iter().zip(&rules) {
            rule.fired().await;
            let seen = side.proxy.count(side.words().list);
            eventually("passes see it", async || side.proxy.count(side.words().list) > seen + 2).await;
            assert_eq!(side.prepared().await.len(), 1);
            assert_eq!(side.proxy.count(side.words().commit), 1, "the coordinator's own");
        }
        rules.iter().for_each(Rule::release);
        assert!(commit.await.unwrap().unwrap().pending.is_empty());
        world.is_on_both(1).await;
        assert_eq!((bridge.status().damaged, bridge.status().in_doubt), (0, 0));
    }

    /// The coordinator is gone and its server has not noticed: on MariaDB the branch stays with the dead session, and
    /// is unknown to everybody else, until that session is ended.
    async fn d26_a_half_open_session_is_ended(other) {
        let world = World::new(other).await;
        let mut key = 0;
        for side in world.sides() {
            let words = side.words();
            for (text, expected) in [(words.commit, Outcome::Committed), (words.roll_back, Outcome::RolledBack)] {
                key += 1;
                // Held for good: what the program closes stays open at the server.
                let rule = side.proxy.on(text).hold();
                let no = world.other(side).proxy.on(world.other(side).words().prepare);
                let no = (expected == Outcome::RolledBack).then(|| no.cut());
                let program = Program::start(world.config("")).await;
                let id = program.begin_commit(key).await;
                if expected == Outcome::RolledBack {
                    no.unwrap().fired().await;
                }
                rule.fired().await;
                program.crash().await;
                assert_eq!(side.prepared().await.len(), 1);
                let pass = world.recover().await;
                assert!(pass.is_complete());
                assert_eq!(pass.found.transactions.iter().find(|one| one.id == id).unwrap().outcome, expected);
                world.agrees(key, expected).await;
            }
        }
    }

    /// A scan that fails, hangs or is cut is no empty list: nothing is presumed of what it did not show.
    async fn d20_a_failed_scan_is_not_an_empty_list(other) {
        let faults: [(&str, Arm); 4] = [
            ("cut", On::cut),
            ("answer cut", On::cut_answer),
            ("hangs", On::hold_answer),
            ("cut short", |on| on.truncate_answer(20)),
        ];
        for (name, fault) in faults {
            let world = World::new(other).await;
            for side in world.sides() {
                // One decided, not applied at this side; one prepared there, not decided.
                let first = i32::from(side.name == ORDERS) * 2;
                let (decided, undecided) = (first + 1, first + 2);
                let program = Program::start(world.config("")).await;
                let no_commit = side.proxy.on(side.words().commit).every().cut();
                let committed = program.begin_commit(decided).await;
                no_commit.fired().await;
                eventually("the other side is committed", async || world.other(side).has(decided).await).await;
                let no_vote = world.other(side).proxy.on(world.other(side).words().prepare).hold();
                let rolled_back = program.begin_commit(undecided).await;
                no_vote.fired().await;
                eventually("both are prepared", async || side.prepared().await.len() == 2).await;
                program.crash().await;
                no_commit.disarm();
                world.sides().into_iter().for_each(|side| side.proxy.sever());
                let before = side.prepared().await;
                assert_eq!(before.len(), 2);

                let no_scan = fault(side.proxy.on(side.words().list).every());
                let bridge = world.open_with("[recovery]\nstatement_timeout = \"1100ms\"\n").await;
                no_scan.fired().await;
                eventually("it is told", async || {
                    bridge.status().participants.iter().any(|one| one.name.as_str() == side.name && !one.reachable)
                }).await;
                assert_eq!(side.prepared().await, before, "{name}: nothing was presumed");
                assert_eq!(bridge.outcome(committed).await.unwrap(), Outcome::Committed);
                no_scan.disarm();
                no_scan.release();
                assert_eq!(settled(&bridge, committed).await, Outcome::Committed);
                assert_eq!(settled(&bridge, rolled_back).await, Outcome::RolledBack);
                world.is_on_both(decided).await;
                world.is_nowhere(undecided).await;
                let is_well = || {
                    let status = bridge.status();
                    status.in_doubt == 0 && status.participants.iter().all(|one| one.reachable)
                };
                let what = format!("{name} at {}: all is well", side.name);
                eventually_or(&what, async || is_well(), || format!("{:#?}", bridge.status())).await;
                assert_eq!(bridge.status().damaged, 0);
                bridge.close().await.unwrap();
            }
        }
    }

    /// The caller goes away in the middle of commit(): it ends whole, as the decision says.
    async fn d23_a_dropped_commit_ends_whole(other) {
        let world = World::new(other).await;
        let bridge = world.open().await;
        let mut key = 0;
        for side in world.sides() {
            let (prepare, commit) = (side.words().prepare, side.words().commit);
            for (text, answered, expected) in [
                (prepare, false, Outcome::Committed),
                (prepare, true, Outcome::Committed),
                (commit, false, Outcome::Committed),
                (commit, true, Outcome::Committed),
            ] {
                key += 1;
                let tx = insert(&bridge, key).await;
                let id = tx.id();
                let on = side.proxy.on(text);
                let rule = if answered { on.hold_answer() } else { on.hold() };
                {
                    let commit = tx.commit();
                    tokio::pin!(commit);
                    tokio::select! {
                        answer = &mut commit => panic!("it was answered: {answer:?}"),
                        () = rule.fired() => {}
                    }
                }
                rule.release();
                assert_eq!(settled(&bridge, id).await, expected);
                world.is_on_both(key).await;
            }
        }
        // Dropped after so many polls, down to none at all.
        for polls in 0..4 {
            key += 1;
            let tx = insert(&bridge, key).await;
            let id = tx.id();
            {
                let commit = tx.commit();
                tokio::pin!(commit);
                for _ in 0..polls {
                    if futures_util::poll!(&mut commit).is_ready() {
                        break;
                    }
                    tokio::task::yield_now().await;
                }
            }
            let outcome = settled(&bridge, id).await;
            assert!(polls == 0 || outcome == Outcome::Committed, "polled once, it goes its way");
            assert!(polls > 0 || outcome == Outcome::RolledBack, "never polled, it was not asked for");
            world.agrees(key, outcome).await;
        }
    }
}
