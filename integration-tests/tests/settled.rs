//! Earlier incarnations on real servers: what a dead process has left on its way, at servers that have not noticed its
//! death, is ended; what it has committed and not written down is found; and nobody else is disturbed.

use handfast::id::Incarnation;
use handfast::journal::{Journal, Opening};
use handfast::resolver::{Hindrance, Resolver};
use handfast::{Bridge, Outcome};
use integration_tests::each_pair;
use integration_tests::world::{Program, World, eventually, insert, insert_at};
use tempfile::TempDir;

async fn all_settled(bridge: &Bridge) {
    eventually("earlier incarnations are settled", async || bridge.status().unsettled == 0).await;
}

each_pair! {
    /// A PREPARE that the network keeps, until its sender is dead and another has opened the journal: it meets nobody,
    /// and the locks of its session are gone.
    async fn a_late_prepare_meets_nobody(other) {
        let world = World::new(other).await;
        let mut key = 0;
        for side in world.sides() {
            for given_up in [false, true] {
                key += 1;
                let rule = side.proxy.on(side.words().prepare).hold();
                let timeout = if given_up { "[transaction]\ntimeout = \"1s\"\nlock_timeout = \"500ms\"\n" } else { "" };
                let program = Program::start(world.config(timeout)).await;
                let id = program.begin_commit(key).await;
                rule.fired().await;
                if given_up {
                    let bridge = &program.bridge;
                    eventually("it is given up", async || bridge.status().running == 0).await;
                }
                program.crash().await;

                let bridge = world.open().await;
                all_settled(&bridge).await;
                assert!(!side.is_locked(key).await, "its session is gone");
                let fences = side.proxy.count("'fence'");
                assert_eq!(bridge.outcome(id).await.unwrap(), Outcome::RolledBack);
                assert_eq!(side.proxy.count("'fence'"), fences, "nobody need be asked");
                rule.release();
                world.is_nowhere(key).await;
                assert_eq!((bridge.status().damaged, bridge.status().in_doubt), (0, 0));
                bridge.close().await.unwrap();
            }
        }
    }

    /// The same of a commit in one phase.
    async fn a_late_one_phase_commit_meets_nobody(other) {
        let world = World::new(other).await;
        for side in world.sides() {
            let rule = side.proxy.on(side.words().one_phase).hold();
            let program = Program::start(world.config("")).await;
            let id = commit_alone(&program, side.name).await;
            rule.fired().await;
            program.crash().await;
            let bridge = world.open().await;
            all_settled(&bridge).await;
            assert_eq!(bridge.outcome(id).await.unwrap(), Outcome::RolledBack);
            rule.release();
            world.is_nowhere(1).await;
            assert!(side.witnesses(id).await.is_empty(), "no fence was needed");
            bridge.close().await.unwrap();
        }
    }

    /// It was carried out, the answer and with it the note are lost with the process: the witness tells.
    async fn a_commit_that_nobody_wrote_down_is_found(other) {
        let world = World::new(other).await;
        for side in world.sides() {
            let rule = side.proxy.on(side.words().one_phase).hold_answer();
            let program = Program::start(world.config("")).await;
            let id = commit_alone(&program, side.name).await;
            rule.fired().await;
            eventually("it is committed", async || side.has(1).await).await;
            program.crash().await;
            let bridge = world.open().await;
            all_settled(&bridge).await;
            assert_eq!(bridge.outcome(id).await.unwrap(), Outcome::Committed);
            assert_eq!(side.witnesses(id).await, ["one_phase"]);
            assert!(world.other(side).witnesses(id).await.is_empty(), "no fence was needed");
            let never = handfast::TransactionId { sequence: 1_000_000, ..id };
            assert_eq!(bridge.outcome(never).await.unwrap(), Outcome::RolledBack);
            bridge.close().await.unwrap();
            // It is written down: the next opening asks nobody.
            let bridge = world.open().await;
            assert_eq!(bridge.outcome(id).await.unwrap(), Outcome::Committed);
            bridge.close().await.unwrap();
        }
    }

    /// Sessions of another journal's bridge in the same databases, and of the one that settles, are not touched.
    async fn nobody_elses_sessions_are_touched(other) {
        let world = World::new(other).await;
        let elsewhere = TempDir::new().unwrap();
        let neighbour = world.builder_at(elsewhere.path(), "").node("neighbour").build();
        let neighbour = Bridge::open(neighbour).await.unwrap();
        let theirs = insert(&neighbour, 1).await;
        let rules = world.sides().map(|side| side.proxy.on(side.words().prepare).hold());
        let program = Program::start(world.config("")).await;
        program.begin_commit(2).await;
        for rule in &rules {
            rule.fired().await;
        }
        program.crash().await;

        let bridge = world.open().await;
        let ours = insert(&bridge, 3).await;
        all_settled(&bridge).await;
        // Both of the dead one's are gone, on both sides.
        insert(&bridge, 2).await.commit().await.unwrap();
        assert_eq!(theirs.commit().await.unwrap().pending, []);
        assert_eq!(ours.commit().await.unwrap().pending, []);
        rules.iter().for_each(integration_tests::proxy::Rule::release);
        for key in [1, 2, 3] {
            world.is_on_both(key).await;
        }
        assert_eq!(bridge.status().damaged + neighbour.status().damaged, 0);
    }

    /// Many restarts while nobody settled anything: one question of each kind answers for all of them.
    async fn many_restarts_cost_one_question(other) {
        const RESTARTS: u64 = 200;
        let world = World::new(other).await;
        world.open().await.close().await.unwrap();
        let config = world.config("");
        let mut rows = Vec::new();
        for number in 1..=RESTARTS {
            let incarnation = Incarnation(number << 56 | number);
            let participants = config.participants.keys().copied().collect();
            let opening = Opening { node: config.node, incarnation, opened_at_ms: 0, participants };
            Journal::open(&config.journal, opening).unwrap().close().unwrap();
            rows.push(incarnation.to_sql());
        }
        for (number, side) in world.sides().into_iter().enumerate() {
            let rows = rows.iter().map(|row| format!("('{}', {row}, {number}, 0, 'journal', 0, '', 32)", config.node));
            side.query(&format!(
                "INSERT INTO handfast_incarnation (node, incarnation, participant, lineage, decision, journal, host, \
                 session_slots) VALUES {}",
                rows.collect::<Vec<_>>().join(", ")
            ))
            .await;
        }
        let questions = |text: &str| world.sides().map(|side| side.proxy.count(text)).iter().sum::<usize>();
        let (sessions, witnesses) = (["IS_USED_LOCK(CONCAT", "pg_terminate_backend(pid) FROM"], "SELECT incarnation, sequence, kind");
        let before = (sessions.map(questions), questions(witnesses));
        let bridge = world.open().await;
        all_settled(&bridge).await;
        assert_eq!(sessions.map(questions), before.0.map(|count| count + 1));
        // Once before anything is registered or rolled back, for decisions that the journal may lack, and once when
        // nothing moves any more.
        assert_eq!(questions(witnesses), before.1 + 4);
        bridge.close().await.unwrap();
    }

    /// A participant that is down delays it, and recovery says so.
    async fn a_participant_that_is_down_delays_it(other) {
        let world = World::new(other).await;
        Program::start(world.config("")).await.crash().await;
        for side in world.sides() {
            side.proxy.down();
            let resolver = Resolver::open(world.config("")).unwrap();
            let pass = resolver.sweep(&|_| {}).await;
            assert!(!pass.is_complete());
            assert!(!pass.unsettled.is_empty());
            assert!(pass.unsettled.iter().all(|one| one.hindrance == Hindrance::OutOfReach), "{:?}", pass.unsettled);
            resolver.close().await.unwrap();
            let bridge = world.open().await;
            assert!(bridge.status().unsettled >= 2, "{:?}", bridge.status());
            side.proxy.up();
            all_settled(&bridge).await;
            bridge.close().await.unwrap();
        }
        let pass = world.recover().await;
        assert_eq!(pass.unsettled, []);
    }
}

/// Inserts key 1 on one side and begins to commit.
async fn commit_alone(program: &Program, side: &'static str) -> handfast::TransactionId {
    let bridge = program.bridge.clone();
    let begun = program.spawn(async move {
        let tx = bridge.begin().await.unwrap();
        insert_at(&tx, side, 1).await.unwrap();
        tx
    });
    let tx = begun.await.unwrap();
    let id = tx.id();
    program.spawn(tx.commit());
    id
}
