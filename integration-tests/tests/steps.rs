//! What a commit costs and leaves: how many round trips, which of them at once, which rows of witness. Proven by a
//! proxy that holds messages and counts them.

use handfast::config::Acknowledge;
use handfast::mysql_async::prelude::Queryable;
use handfast::{Options, Outcome};
use integration_tests::each_pair;
use integration_tests::proxy::{Message, On, Rule};
use integration_tests::servers::Flavor;
use integration_tests::world::{LEDGER, ORDERS, Program, Side, World, eventually, insert, insert_at, settled};
use std::sync::atomic::{AtomicU32, Ordering};

/// What a side has been asked since the first so many messages, on the sessions of branches: the resolver has its own.
fn questions(side: &Side, since: usize) -> Vec<Message> {
    let sessions = side.branch_connections();
    let messages = side.proxy.messages().split_off(since).into_iter();
    messages.filter(|one| one.is_question(side.flavor()) && sessions.contains(&one.connection)).collect()
}

/// Of MySQL and MariaDB: the same, where the session was used a moment ago. One that was idle for longer, on a busy machine
/// say, is begun with before it is lent, which is no business of the transaction's.
fn without_idle(mut asked: Vec<Message>) -> Vec<Message> {
    asked.retain(|message| !message.text.contains("; SAVEPOINT `handfast."));
    asked
}

fn texts(messages: &[Message]) -> Vec<&str> {
    messages.iter().map(|message| message.text.as_str()).collect()
}

each_pair! {
    /// The begin and the work one question, prepare one, commit one: on each side. Whoever adds one has to change this test.
    async fn a_commit_costs_three_round_trips(other) {
        let world = World::new(other).await;
        let bridge = world.open().await;
        // Connects, and is the session's first user.
        insert(&bridge, 1).await.commit().await.unwrap();
        let (mut key, mut before) = (1, [0, 0]);
        // In front of a session that was idle for more than a moment, its begin has a trip of its own.
        eventually("the begin rides with the first text", async || {
            key += 1;
            before = world.sides().map(|side| side.proxy.messages().len());
            let tx = bridge.begin().await.unwrap();
            let insert = format!("INSERT INTO t VALUES ({key}, 1)");
            tx.mysql(ORDERS).await.unwrap().query_drop(&insert).await.unwrap();
            tx.postgres(LEDGER).await.unwrap().batch_execute(&insert).await.unwrap();
            tx.commit().await.unwrap();
            questions(&world.orders, before[1]).len() == 3
        })
        .await;

        let asked = questions(&world.ledger, before[0]);
        let [work, prepare, commit] = &asked[..] else { panic!("{:#?}", texts(&asked)) };
        assert!(work.text.contains("RESET ALL") && work.text.contains("BEGIN READ WRITE"), "{work:?}");
        assert!(work.text.contains("; INSERT INTO t"), "{work:?}");
        assert_eq!(work.text.split("; ").count(), 12, "{work:?}");
        assert!(prepare.text.contains("EXECUTE handfast_witness(") && prepare.text.contains("PREPARE TRANSACTION"), "{prepare:?}");
        assert_eq!(prepare.text.split("; ").count(), 3, "{prepare:?}");
        assert!(commit.text.starts_with("COMMIT PREPARED"), "{commit:?}");

        let asked = questions(&world.orders, before[1]);
        let [work, prepare, commit] = &asked[..] else { panic!("{:#?}", texts(&asked)) };
        // Six statements, as by hand: nothing was left in the session that would have to be undone, and rows alone need no
        // marker.
        assert!(work.text.starts_with("XA START") && work.text.contains("; INSERT INTO t"), "{work:?}");
        assert_eq!(work.text.split("; ").count(), 2, "{work:?}");
        assert!(prepare.text.starts_with("INSERT INTO") && prepare.text.contains("XA PREPARE"), "{prepare:?}");
        assert_eq!(prepare.text.split("; ").count(), 3, "{prepare:?}");
        assert!(commit.text.starts_with("XA COMMIT") && !commit.text.contains(';'), "{commit:?}");
        world.is_on_both(key).await;
    }

    /// One writer alone, or beside a declared reader: begin one, commit one.
    async fn one_writer_costs_two_round_trips(other) {
        let world = World::new(other).await;
        let bridge = world.open().await;
        insert(&bridge, 1).await.commit().await.unwrap();
        for side in world.sides() {
            let before = side.proxy.messages().len();
            let tx = bridge.begin().await.unwrap();
            if side.flavor() == Flavor::Postgres {
                tx.postgres(LEDGER).await.unwrap().batch_execute("INSERT INTO t VALUES (2, 1)").await.unwrap();
            } else {
                tx.mysql(ORDERS).await.unwrap().query_drop("INSERT INTO t VALUES (2, 1)").await.unwrap();
            }
            tx.commit().await.unwrap();
            let asked = without_idle(questions(side, before));
            assert_eq!(asked.len(), 2, "{:#?}", texts(&asked));
            assert!(asked[1].text.contains(side.words().one_phase));
        }
        let before = world.sides().map(|side| side.proxy.messages().len());
        let tx = bridge.begin_with(Options::new().read_only(LEDGER)).await.unwrap();
        tx.postgres(LEDGER).await.unwrap().batch_execute("SELECT 1").await.unwrap();
        tx.mysql(ORDERS).await.unwrap().query_drop("INSERT INTO t VALUES (3, 1)").await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(questions(&world.ledger, before[0]).len(), 2);
        assert_eq!(without_idle(questions(&world.orders, before[1])).len(), 2);
        world.nothing_is_prepared().await;
    }

    /// The begin of a session that was just heard of is not waited for: the first statement is on its way before the answer.
    /// A new session, like one that was idle, is heard first.
    async fn a_begin_rides_with_the_first_statement(other) {
        let world = World::new(other).await;
        let bridge = world.open_with("[pool]\nsize = 1\n").await;
        for (key, rides) in [(1, false), (2, true)] {
            let rule = world.ledger.proxy.on("BEGIN READ WRITE").hold_answer();
            let working = tokio::spawn({
                let bridge = bridge.clone();
                async move { insert(&bridge, key).await.commit().await }
            });
            rule.fired().await;
            let first = format!("VALUES ({key}, 1)");
            eventually("the other side works", async || world.orders.proxy.count(&first) == 1).await;
            if rides {
                eventually("this side works", async || world.ledger.proxy.count(&first) == 1).await;
            } else {
                assert_eq!(world.ledger.proxy.count(&first), 0);
            }
            assert!(!working.is_finished());
            rule.release();
            working.await.unwrap().unwrap();
            world.is_on_both(key).await;
        }
    }

    /// A begin that was not waited for and fails: the first statement fails for it, nothing is done, and a closure is run again.
    async fn a_begin_that_fails_unheard_is_tried_again(other) {
        let world = World::new(other).await;
        let bridge = world.open_with("[pool]\nsize = 1\n").await;
        let fail: [fn(On) -> Rule; 4] = [On::refuse, On::cut, On::cut_answer, |on| on.truncate_answer(4)];
        for (key, fail) in (1..).zip(fail) {
            insert(&bridge, 100 + key).await.commit().await.unwrap();
            let rule = fail(world.ledger.proxy.on("BEGIN READ WRITE"));
            let runs = AtomicU32::new(0);
            let done = bridge.transaction(async |tx| {
                runs.fetch_add(1, Ordering::Relaxed);
                tokio::try_join!(insert_at(tx, LEDGER, key), insert_at(tx, ORDERS, key)).map(drop)
            });
            done.await.unwrap_or_else(|error| panic!("{key}: {}", error.chain()));
            rule.fired().await;
            assert_eq!(runs.into_inner(), 2, "{key}");
            world.is_on_both(key).await;
        }
    }

    /// Both prepares are under way before either is answered, and so are both commits.
    async fn each_phase_runs_on_all_branches_at_once(other) {
        let world = World::new(other).await;
        let bridge = world.open().await;
        let hold = |text: fn(&Side) -> &'static str| world.sides().map(|side| side.proxy.on(text(side)).hold());
        let prepares = hold(|side| side.words().prepare);
        let commits = hold(|side| side.words().commit);
        let commit = tokio::spawn(insert(&bridge, 1).await.commit());
        for rule in &prepares {
            rule.fired().await;
        }
        assert!(commits.iter().all(|rule| rule.times() == 0));
        prepares[0].release();
        eventually("one is prepared", async || world.ledger.prepared().await.len() == 1).await;
        assert!(commits.iter().all(|rule| rule.times() == 0), "nothing is decided before all have voted");
        prepares[1].release();
        for rule in &commits {
            rule.fired().await;
        }
        assert_eq!((world.ledger.has(1).await, world.orders.has(1).await), (false, false));
        assert!(!commit.is_finished());
        commits.iter().for_each(Rule::release);
        assert!(commit.await.unwrap().unwrap().pending.is_empty());
        world.is_on_both(1).await;
    }

    /// Every writing branch leaves its witness, no other one does.
    async fn a_witness_is_written_by_every_writing_branch(other) {
        let world = World::new(other).await;
        let bridge = world.open().await;
        let both = insert(&bridge, 1).await.commit().await.unwrap().id;
        let nobody = insert(&bridge, 2).await;
        let none = nobody.id();
        nobody.rollback().await.unwrap();
        for side in world.sides() {
            assert_eq!(side.witnesses(both).await, ["decided"]);
            assert!(side.witnesses(none).await.is_empty());
            let tx = bridge.begin_with(Options::new().read_only(world.other(side).name)).await.unwrap();
            insert_at(&tx, side.name, 3).await.unwrap();
            if side.name == ORDERS {
                tx.postgres(LEDGER).await.unwrap().batch_execute("SELECT 1").await.unwrap();
            } else {
                tx.mysql(ORDERS).await.unwrap().query_drop("SELECT 1").await.unwrap();
            }
            let alone = tx.commit().await.unwrap().id;
            assert_eq!(side.witnesses(alone).await, ["one_phase"]);
            assert!(world.other(side).witnesses(alone).await.is_empty());
        }
    }

    /// Of a branch that left no trace the fence says *never*, for good: the outcome is certain on every later day.
    async fn a_fence_settles_a_missing_branch(other) {
        let world = World::new(other).await;
        let program = Program::start(world.config("")).await;
        // It dies before anything is prepared.
        let rules = world.sides().map(|side| side.proxy.on(side.words().prepare).hold());
        let id = program.begin_commit(1).await;
        for rule in &rules {
            rule.fired().await;
        }
        program.crash().await;
        for side in world.sides() {
            side.proxy.sever();
        }
        for _ in 0..2 {
            let bridge = world.open().await;
            assert_eq!(settled(&bridge, id).await, Outcome::RolledBack);
            bridge.close().await.unwrap();
        }
        for side in world.sides() {
            assert_eq!(side.witnesses(id).await, ["fence"]);
        }
        world.is_nowhere(1).await;
    }

    /// A prepare that arrives after the fence cannot succeed: the fence has its place.
    async fn a_late_prepare_meets_the_fence(other) {
        let world = World::new(other).await;
        let program = Program::start(world.config("")).await;
        let rules = world.sides().map(|side| side.proxy.on(side.words().prepare).hold());
        let id = program.begin_commit(1).await;
        for rule in &rules {
            rule.fired().await;
        }
        program.crash().await;
        // The network still has the prepares: the sessions live on at the servers, and hold their locks.
        let bridge = world.open().await;
        assert_eq!(settled(&bridge, id).await, Outcome::RolledBack);
        rules.iter().for_each(Rule::release);
        // They have arrived when their sessions, which nobody is at the other end of, are gone.
        world.is_nowhere(1).await;
        assert_eq!(bridge.outcome(id).await.unwrap(), Outcome::RolledBack);
        for side in world.sides() {
            assert_eq!(side.witnesses(id).await, ["fence"]);
        }
        assert_eq!((bridge.status().damaged, bridge.status().in_doubt), (0, 0));
    }

    /// Answered at the decision, and read when that has been waited for.
    async fn ones_own_writes_are_read_after_waiting_for_them(other) {
        let world = World::new(other).await;
        let bridge = world.open().await;
        let rules = world.sides().map(|side| side.proxy.on(side.words().commit).hold());
        let tx = bridge.begin_with(Options::new().acknowledge(Acknowledge::Decided)).await.unwrap();
        tokio::try_join!(insert_at(&tx, LEDGER, 1), insert_at(&tx, ORDERS, 1)).unwrap();
        let committed = tx.commit().await.unwrap();
        assert_eq!(committed.pending.len(), 2);
        for rule in &rules {
            rule.fired().await;
        }
        assert_eq!((world.ledger.has(1).await, world.orders.has(1).await), (false, false));
        let waiting = tokio::spawn({
            let bridge = bridge.clone();
            async move { bridge.wait_applied(committed.id).await }
        });
        rules[0].release();
        eventually("one side can be read", async || world.ledger.has(1).await).await;
        assert!(!waiting.is_finished(), "the other side cannot be read yet");
        rules[1].release();
        assert_eq!(waiting.await.unwrap().unwrap(), Outcome::Committed);
        assert_eq!((world.ledger.has(1).await, world.orders.has(1).await), (true, true));
    }
}
