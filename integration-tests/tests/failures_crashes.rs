//! Crashes at random moments, and deadlines that meet a commit at every one. Names begin with the entry of the log of
//! known failures that they try.

use handfast::{ErrorKind, Options, Outcome, Transaction};
use integration_tests::application::Application;
use integration_tests::each_pair;
use integration_tests::world::{LEDGER, ORDERS, World, eventually, insert, insert_at, settled};
use std::collections::BTreeMap;
use std::time::Duration;

/// Random enough, and the same again for the same seed.
struct Dice(u64);

impl Dice {
    fn new() -> Self {
        let seed = std::env::var("HANDFAST_TEST_SEED").ok().and_then(|text| text.parse().ok());
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let seed = seed.unwrap_or_else(|| u64::from(now.subsec_nanos()) + 1);
        println!("HANDFAST_TEST_SEED={seed}");
        Self(seed)
    }

    /// Below `end`.
    fn roll(&mut self, end: u64) -> u64 {
        // xorshift64, https://doi.org/10.18637/jss.v008.i14
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

each_pair! {
    /// An application is killed under load, again and again; the next one recovers what it left. In the end every
    /// answer that was given holds, both databases agree, and nothing is left.
    async fn d31_an_application_is_killed_at_any_moment(other) {
        let world = World::new(other).await;
        let mut dice = Dice::new();
        let mut told = BTreeMap::new();
        for round in 0..15 {
            let program = env!("CARGO_BIN_EXE_test-application");
            let config = world.builder("[pool]\nsize = 8\n");
            let mut application = Application::load(program, &config, round * 100_000, 8, 0).await;
            let enough = 1 + dice.roll(60);
            eventually("it has worked enough", async || {
                let lines = application.lines();
                assert!(!lines.iter().any(|line| line.starts_with("Damaged")), "{lines:#?}");
                u64::try_from(lines.len()).unwrap() > enough
            }).await;
            // Where exactly in the middle of things is the scheduler's and the dice's.
            let moment = Duration::from_micros(dice.roll(5_000));
            tokio::time::sleep(moment).await;
            application.kill().await;
            let said = application.transactions();
            assert!(!said.is_empty(), "{}", application.errors());
            told.extend(said);
        }
        // A prepare may be under way at a server when its program is gone already.
        for side in world.sides() {
            side.sessions_are_gone().await;
        }
        let pass = world.recover().await;
        assert!(pass.is_complete(), "{:#?}", pass.left);
        for side in world.sides() {
            assert!(side.prepared().await.is_empty(), "at {}", side.name);
        }
        let (ledger, orders) = (world.ledger.keys().await, world.orders.keys().await);
        assert_eq!(ledger, orders);
        assert!(ledger.iter().all(|key| told.contains_key(key)), "nobody began what is there");
        let bridge = world.open().await;
        for (key, said) in &told {
            let is_there = ledger.binary_search(key).is_ok();
            match said.answer {
                Some(Outcome::Committed) => assert!(is_there, "{key} was answered committed"),
                Some(Outcome::RolledBack) => assert!(!is_there, "{key} was answered rolled back"),
                _ => {}
            }
            if said.answer.is_none() {
                let outcome = settled(&bridge, said.id).await;
                assert_eq!(outcome == Outcome::Committed, is_there, "{key}: {outcome:?}");
            }
        }
        assert_eq!((bridge.status().damaged, bridge.status().in_doubt), (0, 0));
    }

    /// (a) and (b): the deadline passes before the decision, while the application sleeps or a prepare is under way.
    async fn d18_a_deadline_before_the_decision_rolls_back(other) {
        let world = World::new(other).await;
        let bridge = world.open().await;
        let begin = async |key: i32| -> Transaction {
            let options = Options::new().timeout(Duration::from_millis(1500));
            let tx = bridge.begin_with(options).await.unwrap();
            tokio::try_join!(insert_at(&tx, LEDGER, key), insert_at(&tx, ORDERS, key)).unwrap();
            tx
        };
        let tx = begin(1).await;
        for side in world.sides() {
            eventually("the locks are gone without the application's help", async || !side.is_locked(1).await).await;
        }
        let error = insert_at(&tx, LEDGER, 1).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let error = tx.commit().await.unwrap_err();
        assert_eq!((error.outcome(), error.kind()), (Outcome::RolledBack, ErrorKind::TimedOut));
        world.is_nowhere(1).await;

        let mut key = 1;
        for side in world.sides() {
            for answered in [false, true] {
                key += 1;
                let tx = begin(key).await;
                let on = side.proxy.on(side.words().prepare);
                let rule = if answered { on.hold_answer() } else { on.hold() };
                let error = tx.commit().await.unwrap_err();
                assert_eq!((error.outcome(), error.kind()), (Outcome::RolledBack, ErrorKind::TimedOut));
                rule.release();
                world.is_nowhere(key).await;
            }
        }
    }

    /// (d) and (e): after the decision a deadline means nothing.
    async fn d18_a_deadline_after_the_decision_means_nothing(other) {
        let world = World::new(other).await;
        let bridge = world.open().await;
        let mut key = 0;
        for side in world.sides() {
            key += 1;
            let timeout = Duration::from_millis(1500);
            let deadline = tokio::time::Instant::now() + timeout;
            let tx = bridge.begin_with(Options::new().timeout(timeout)).await.unwrap();
            tokio::try_join!(insert_at(&tx, LEDGER, key), insert_at(&tx, ORDERS, key)).unwrap();
            let rule = side.proxy.on(side.words().commit).hold();
            let id = tx.id();
            let commit = tokio::spawn(tx.commit());
            rule.fired().await;
            tokio::time::sleep_until(deadline).await;
            // Time enough for a deadline to do harm: a whole other transaction.
            insert(&bridge, key + 100).await.rollback().await.unwrap();
            assert_eq!(side.prepared().await.len(), 1);
            rule.release();
            assert_eq!(commit.await.unwrap().unwrap().id, id);
            world.is_on_both(key).await;
        }
    }

    /// (a) to (e) as the dice fall: deadlines about as long as a commit takes, and answers that are slow.
    async fn d18_a_deadline_at_any_moment_leaves_nothing_mixed(other) {
        let world = World::new(other).await;
        let bridge = world.open_with("[pool]\nsize = 8\n").await;
        let mut dice = Dice::new();
        let mut outcomes = BTreeMap::new();
        for round in 0..10 {
            // Six at once, so that delays and deadlines meet in other orders, too.
            for side in world.sides() {
                let delay = Duration::from_millis(dice.roll(20));
                let text = if dice.roll(2) == 0 { side.words().prepare } else { side.words().commit };
                let on = side.proxy.on(text);
                if dice.roll(2) == 0 { on.delay(delay) } else { on.delay_answer(delay) };
            }
            let running: Vec<_> = (0..6).map(|number| {
                let (bridge, key) = (bridge.clone(), round * 6 + number);
                let timeout = Duration::from_millis(5 + dice.roll(40));
                tokio::spawn(async move {
                    let tx = bridge.begin_with(Options::new().timeout(timeout)).await.unwrap();
                    let id = tx.id();
                    let work = tokio::try_join!(insert_at(&tx, LEDGER, key), insert_at(&tx, ORDERS, key));
                    let answer = match work {
                        Ok(_) => tx.commit().await.map_or_else(|error| error.outcome(), |_| Outcome::Committed),
                        Err(_) => {
                            drop(tx);
                            Outcome::RolledBack
                        }
                    };
                    (key, id, answer)
                })
            }).collect();
            for task in running {
                let (key, id, answer) = task.await.unwrap();
                outcomes.insert(key, (id, answer));
            }
        }
        for (key, (id, answer)) in &outcomes {
            let outcome = settled(&bridge, *id).await;
            assert!(*answer == outcome || *answer == Outcome::InDoubt, "{key}: {answer:?}, then {outcome:?}");
        }
        world.nothing_is_prepared().await;
        eventually("nothing is in doubt", async || bridge.status().in_doubt == 0 && bridge.status().running == 0).await;
        let (ledger, orders) = (world.ledger.keys().await, world.orders.keys().await);
        assert_eq!(ledger, orders);
        let committed: Vec<i32> =
            outcomes.iter().filter(|(_, (_, answer))| *answer == Outcome::Committed).map(|(key, _)| *key).collect();
        assert_eq!(ledger, committed);
        println!("{} of {} committed", committed.len(), outcomes.len());
        assert_eq!(bridge.status().damaged, 0);
        // The sessions that were cut off have left no lock.
        for side in world.sides() {
            eventually("no lock is left", async || !side.is_locked(*outcomes.keys().next_back().unwrap()).await).await;
        }
    }
}
