//! What an application may send to PostgreSQL inside a branch, and what becomes of the transaction: as a branch of two,
//! and as the only writer.

use crate::whole::{attempt, is_whole};
use handfast::{Bridge, ErrorKind, Outcome};
use integration_tests::servers::{self, Flavor};
use integration_tests::torture::Tally;
use integration_tests::world::{LEDGER, ORDERS, World, eventually, insert_at, settled};

/// One text or more, in which `$` stands for a key that nobody else uses.
struct Case {
    texts: &'static [&'static str],
    /// Of both sides, and of this side alone.
    ends: (Outcome, Outcome),
    /// What the cause of a rollback says.
    says: &'static str,
}

const C: Outcome = Outcome::Committed;
const R: Outcome = Outcome::RolledBack;
const D: Outcome = Outcome::Damaged;

const fn case(texts: &'static [&'static str], ends: (Outcome, Outcome), says: &'static str) -> Case {
    Case { texts, ends, says }
}

/// D43 among them: what PREPARE TRANSACTION refuses, a plain COMMIT takes.
const CASES: &[Case] = &[
    // The application ends the transaction by itself. Its work may be committed, so nobody says that it is not.
    case(&["COMMIT"], (D, D), ""),
    case(&["ROLLBACK"], (D, D), ""),
    case(&["COMMIT; BEGIN"], (D, D), ""),
    case(&["COMMIT", "BEGIN", "INSERT INTO t VALUES ($, 3)"], (D, D), ""),
    case(&["COMMIT AND CHAIN"], (D, D), ""),
    case(&["ROLLBACK AND CHAIN"], (D, D), ""),
    case(&["ROLLBACK", "INSERT INTO t VALUES ($, 3)"], (D, D), ""),
    // In an aborted transaction no guard is evaluated: the marker tells afterwards.
    case(&["COMMIT; BEGIN", "SELECT 1/0"], (D, D), ""),
    case(&["COMMIT AND CHAIN", "SELECT 1/0"], (D, D), ""),
    case(&["RESET ALL", "COMMIT; BEGIN", "SELECT 1/0"], (D, D), ""),
    case(&["COMMIT; BEGIN", "RESET ALL"], (D, D), ""),
    case(&["SET handfast.branch = 'mine'"], (D, D), ""),
    case(&["ROLLBACK; BEGIN", "SELECT 1/0"], (R, R), "aborted"),
    // The marker is gone, and the transaction is the one that was begun.
    case(&["RESET ALL"], (R, R), "handfast:reset"),
    case(&["RESET handfast.branch"], (R, R), "handfast:reset"),
    // What a transaction can hold.
    case(&["BEGIN"], (C, C), ""),
    case(&["SAVEPOINT s", "INSERT INTO t VALUES ($, 3)", "ROLLBACK TO s"], (C, C), ""),
    case(&["SAVEPOINT s", "SELECT 1/0", "ROLLBACK TO s"], (C, C), ""),
    case(&["SAVEPOINT s", "RELEASE s"], (C, C), ""),
    case(&["CREATE TABLE more (a int)", "INSERT INTO more VALUES (1)", "DROP TABLE more"], (C, C), ""),
    case(&["DECLARE c CURSOR FOR SELECT 1", "FETCH c"], (C, C), ""),
    case(&["SELECT pg_advisory_lock(7)"], (C, C), ""),
    case(&["SELECT pg_advisory_xact_lock(8)"], (C, C), ""),
    case(&["SET ROLE pg_monitor"], (C, C), ""),
    case(&["SET LOCAL ROLE pg_monitor"], (C, C), ""),
    case(&["SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"], (C, C), ""),
    case(&["SET search_path = nowhere"], (C, C), ""),
    case(&["SET standard_conforming_strings = off"], (C, C), ""),
    case(&["SET client_encoding = 'LATIN1'"], (C, C), ""),
    case(&["SET default_transaction_read_only = on"], (C, C), ""),
    case(&["SET synchronous_commit = off"], (C, C), ""),
    case(&["SET application_name = 'mine'"], (C, C), ""),
    case(&["PREPARE mine$ AS SELECT 1", "EXECUTE mine$"], (C, C), ""),
    case(&["LOCK TABLE t IN ACCESS EXCLUSIVE MODE"], (C, C), ""),
    case(&["DISCARD PLANS"], (C, C), ""),
    case(&["DISCARD SEQUENCES"], (C, C), ""),
    case(&["INSERT INTO t VALUES ($, 3); DELETE FROM t WHERE v = 3"], (C, C), ""),
    case(&["SET CONSTRAINTS ALL DEFERRED"], (C, C), ""),
    // Who has never listened need not be told.
    case(&["UNLISTEN mine"], (C, C), ""),
    // What it cannot.
    case(&["SELECT 1/0"], (R, R), "aborted"),
    case(&["INSERT INTO t VALUES ($, 3); SELECT 1/0"], (R, R), "aborted"),
    case(&["VACUUM t"], (R, R), "aborted"),
    case(&["CREATE INDEX CONCURRENTLY i ON t (v)"], (R, R), "aborted"),
    case(&["DISCARD ALL"], (R, R), "aborted"),
    case(&["SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"], (R, R), "aborted"),
    case(&["SET TRANSACTION READ ONLY"], (R, R), "read-only"),
    case(&["SET SESSION AUTHORIZATION pg_monitor"], (R, R), "permission denied"),
    case(&["SELECT pg_terminate_backend(pg_backend_pid())"], (R, R), ""),
    case(&["DO $do$ BEGIN COMMIT; END $do$"], (R, R), "aborted"),
    // What PREPARE TRANSACTION cannot.
    case(&["CREATE TEMP TABLE mine (a int)"], (R, C), "temporary"),
    case(&["CREATE TEMP TABLE mine (a int)", "DROP TABLE mine"], (R, C), "temporary"),
    case(&["LISTEN mine"], (R, C), "LISTEN"),
    case(&["NOTIFY mine"], (R, C), "NOTIFY"),
    case(&["DECLARE c CURSOR WITH HOLD FOR SELECT 1"], (R, C), "WITH HOLD"),
    case(&["SELECT pg_advisory_lock(9), pg_advisory_xact_lock(9)"], (R, C), "same object"),
];

/// Inserts a key, sends what is to be sent, and commits.
async fn run(world: &World, bridge: &Bridge, case: &Case, alone: bool, key: i32) {
    let tx = bridge.begin().await.unwrap();
    let id = tx.id();
    insert_at(&tx, LEDGER, key).await.unwrap();
    if !alone {
        insert_at(&tx, ORDERS, key).await.unwrap();
    }
    let mine = (key + 1).to_string();
    let client = tx.postgres(LEDGER).await.unwrap();
    for text in case.texts {
        let text = if text.contains("$do$") { (*text).to_owned() } else { text.replace('$', &mine) };
        // An application that does not care.
        let _ = client.batch_execute(&text).await;
    }
    drop(client);
    let (expected, answer) = (if alone { case.ends.1 } else { case.ends.0 }, tx.commit().await);
    let answered = answer.as_ref().map_or_else(|error| error.outcome(), |_| C);
    let said = answer.as_ref().err().map(|error| error.cause().chain()).unwrap_or_default();
    let is_told = answered == expected || (alone && answered == Outcome::InDoubt && case.says.is_empty());
    assert!(is_told, "{answered:?}, not {expected:?}: {said}");
    assert_eq!(settled(bridge, id).await, expected, "asked later");
    if let (R, Err(error)) = (expected, &answer) {
        assert!(said.contains(case.says), "{said}");
        assert!(
            matches!(
                error.kind(),
                ErrorKind::Statement | ErrorKind::Setup | ErrorKind::Unavailable | ErrorKind::InDoubt
            ),
            "{said}"
        );
    }
    world.nothing_is_prepared().await;
    if expected == D {
        assert!(!world.orders.has(key).await);
        let committed = case.texts.iter().any(|text| text.contains("COMMIT"));
        assert_eq!(world.ledger.has(key).await, committed);
    } else if alone {
        assert_eq!(world.ledger.has(key).await, expected == C);
    } else {
        world.agrees(key, expected).await;
    }
    for side in world.sides() {
        eventually("nobody holds the key", async || !side.is_locked(key).await).await;
    }
    is_whole(world, bridge, key + 2).await;
}

mod statements {
    use super::*;

    #[test]
    fn postgres() {
        servers::runtime().block_on(async {
            let tally = Tally::new("the application misbehaves", "PostgreSQL: statements");
            let world = World::new(Flavor::MariaDb).await;
            let bridge = world.open().await;
            for (number, case) in CASES.iter().enumerate() {
                for alone in [false, true] {
                    let key = i32::try_from(number * 20 + usize::from(alone) * 10).unwrap();
                    let result = attempt(run(&world, &bridge, case, alone, key)).await;
                    tally.case(format!("{:?}, alone: {alone}", case.texts), result);
                }
            }
            bridge.close().await.unwrap();
            tally.finish();
        });
    }
}

mod a_transaction_that_the_application_prepares {
    use super::*;

    /// It is another program's transaction from then on: damage is told, and it is not touched.
    #[test]
    fn postgres() {
        servers::runtime().block_on(async {
            let world = World::new(Flavor::MariaDb).await;
            let bridge = world.open().await;
            let tx = bridge.begin().await.unwrap();
            tokio::try_join!(insert_at(&tx, LEDGER, 1), insert_at(&tx, ORDERS, 1)).unwrap();
            let name = servers::unique("mine");
            tx.postgres(LEDGER).await.unwrap().batch_execute(&format!("PREPARE TRANSACTION '{name}'")).await.unwrap();
            let error = tx.commit().await.unwrap_err();
            assert_eq!(error.outcome(), Outcome::Damaged, "{}", error.cause().chain());
            eventually("the other side is free", async || !world.orders.is_locked(1).await).await;
            world.ledger.query(&format!("COMMIT PREPARED '{name}'")).await;
            assert_eq!((world.ledger.has(1).await, world.orders.has(1).await), (true, false));
            is_whole(&world, &bridge, 2).await;
        });
    }
}

mod a_copy_left_half_done {
    use super::*;

    /// The driver tells the server that the copy failed: so has the transaction.
    #[test]
    fn postgres() {
        servers::runtime().block_on(async {
            let world = World::new(Flavor::MariaDb).await;
            let bridge = world.open().await;
            let tx = bridge.begin().await.unwrap();
            tokio::try_join!(insert_at(&tx, LEDGER, 1), insert_at(&tx, ORDERS, 1)).unwrap();
            let client = tx.postgres(LEDGER).await.unwrap();
            let sink = client.copy_in::<_, std::io::Cursor<Vec<u8>>>("COPY t FROM STDIN").await.unwrap();
            drop((sink, client));
            let error = tx.commit().await.unwrap_err();
            assert_eq!(error.outcome(), Outcome::RolledBack, "{}", error.cause().chain());
            world.is_nowhere(1).await;
            is_whole(&world, &bridge, 2).await;
        });
    }
}
