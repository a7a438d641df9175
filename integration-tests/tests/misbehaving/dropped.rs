//! Every future of the application is dropped at every await, on real servers. On a loaded machine a future is polled
//! more often than on an idle one: each is dropped after more polls than the last time, until it comes through. In a full
//! run it is one more each time. D27 among them: a begin that is dropped while it is in flight leaves no session in a
//! transaction.

use crate::whole::{Dropped, agrees, attempt, is_whole, pair};
use futures_util::StreamExt;
use handfast::mysql_async::prelude::Queryable;
use handfast::resolver::Resolver;
use handfast::{Bridge, Config, Error, Outcome, Transaction, TransactionId};
use integration_tests::each_pair;
use integration_tests::torture::{Dice, Tally, chosen, is_full, seed};
use integration_tests::world::{LEDGER, ORDERS, Program, World, eventually, insert, insert_at};
use std::sync::atomic::{AtomicI32, Ordering};

const KIND: &str = "a future of the application is dropped";

/// No future of a case is polled more often.
const MOST: usize = 200;

/// What an application does inside a transaction, to be dropped in the middle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    LedgerBegins,
    OrdersBegins,
    LedgerBatch,
    LedgerExecute,
    LedgerPrepare,
    LedgerStream,
    OrdersQuery,
    OrdersExec,
    OrdersPrep,
    OrdersStream,
    OrdersExecStream,
}

const WORK: [Work; 11] = [
    Work::LedgerBegins,
    Work::OrdersBegins,
    Work::LedgerBatch,
    Work::LedgerExecute,
    Work::LedgerPrepare,
    Work::LedgerStream,
    Work::OrdersQuery,
    Work::OrdersExec,
    Work::OrdersPrep,
    Work::OrdersStream,
    Work::OrdersExecStream,
];

/// How the application goes on afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Then {
    Commits,
    RollsBack,
    Drops,
}

/// Inserts a key of this side alone, in one way or another; a stream is left half read.
async fn work(tx: &Transaction, work: Work, key: i32) -> Result<(), Error> {
    let insert = format!("INSERT INTO t VALUES ({key}, 2)");
    match work {
        Work::LedgerBegins | Work::LedgerBatch => tx.postgres(LEDGER).await?.batch_execute(&insert).await?,
        Work::LedgerExecute => {
            tx.postgres(LEDGER).await?.execute("INSERT INTO t VALUES ($1, 2)", &[&key]).await?;
        }
        Work::LedgerPrepare => {
            let client = tx.postgres(LEDGER).await?;
            let statement = client.prepare("INSERT INTO t VALUES ($1, 2) RETURNING k").await?;
            client.query(&statement, &[&key]).await?;
        }
        Work::LedgerStream => {
            let client = tx.postgres(LEDGER).await?;
            let none: [i32; 0] = [];
            let mut rows = Box::pin(client.query_raw("SELECT generate_series(1, 5000)", none).await?);
            rows.next().await.expect("a row")?;
            // Whoever keeps it waits for itself: the driver reads no further answer before this one was taken.
            drop(rows);
            client.execute("INSERT INTO t VALUES ($1, 2)", &[&key]).await?;
        }
        Work::OrdersBegins | Work::OrdersQuery => tx.mysql(ORDERS).await?.query_drop(insert).await?,
        Work::OrdersExec => tx.mysql(ORDERS).await?.exec_drop("INSERT INTO t VALUES (?, 2)", (key,)).await?,
        Work::OrdersPrep => {
            let mut conn = tx.mysql(ORDERS).await?;
            let statement = conn.prep("INSERT INTO t VALUES (?, 2)").await?;
            conn.exec_drop(&statement, (key,)).await?;
            conn.close(statement).await?;
        }
        Work::OrdersStream => {
            let mut conn = tx.mysql(ORDERS).await?;
            let mut rows = conn.query_stream::<i32, _>("SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3").await?;
            rows.next().await.expect("a row")?;
            drop(rows);
            conn.query_drop(insert).await?;
        }
        Work::OrdersExecStream => {
            let mut conn = tx.mysql(ORDERS).await?;
            let mut rows = conn.exec_stream::<i32, _, _>("SELECT ? UNION ALL SELECT 2", (1,)).await?;
            rows.next().await.expect("a row")?;
            drop(rows);
            conn.exec_drop("INSERT INTO t VALUES (?, 2)", (key,)).await?;
        }
    }
    Ok(())
}

/// Keys that no case has used: of each case a hundred.
fn next_key() -> i32 {
    static NEXT: AtomicI32 = AtomicI32::new(0);
    NEXT.fetch_add(100, Ordering::Relaxed)
}

/// One transaction whose work is dropped; whether it was, or came through.
async fn drop_work(world: &World, bridge: &Bridge, what: Work, then: Then, polls: usize) -> bool {
    let key = next_key();
    let tx = bridge.begin().await.unwrap();
    let id = tx.id();
    let is_first = matches!(what, Work::LedgerBegins | Work::OrdersBegins);
    if !is_first {
        tokio::try_join!(insert_at(&tx, LEDGER, key), insert_at(&tx, ORDERS, key)).unwrap();
    }
    let dropped = Dropped::after(polls, work(&tx, what, key + 1)).await;
    if let Some(Err(error)) = &dropped {
        panic!("it fails without being dropped: {}", error.chain());
    }
    if is_first {
        // Begun anew where it was cut off; where the branch was lost in a statement, it says so.
        let _ = tokio::try_join!(insert_at(&tx, LEDGER, key), insert_at(&tx, ORDERS, key));
    }
    let committed = match then {
        Then::Commits => tx.commit().await.map(|_| ()).map_err(|error| {
            assert_eq!(error.outcome(), Outcome::RolledBack, "{}", error.cause().chain());
        }),
        Then::RollsBack => tx.rollback().await.map_err(|error| panic!("{}", error.chain())).and(Err(())),
        Then::Drops => {
            drop(tx);
            Err(())
        }
    };
    let expected = if committed.is_ok() { Outcome::Committed } else { Outcome::RolledBack };
    assert_eq!(agrees(world, bridge, id, key).await, expected);
    if dropped.is_some() {
        assert!(then != Then::Commits || committed.is_ok(), "nothing was dropped");
        let there = (world.ledger.has(key + 1).await, world.orders.has(key + 1).await);
        assert_eq!(there.0 || there.1, committed.is_ok(), "{there:?}");
    } else if committed.is_err() {
        world.is_nowhere(key + 1).await;
    }
    is_whole(world, bridge, key + 2).await;
    dropped.is_none()
}

/// How many polls more the next one is given: one in a full run. Else the first few are tried, and then some.
fn stride(polls: usize, dice: &mut Dice) -> usize {
    if is_full() || polls < 4 { 1 } else { 1 + dice.below(10) }
}

/// Each of them until it comes through.
async fn exhaust<C: std::fmt::Debug + Copy>(tally: &Tally, case: C, one: impl AsyncFn(usize) -> bool) {
    let came_through = std::cell::Cell::new(false);
    let (mut polls, mut dice) = (0, Dice::new(seed()));
    while polls <= MOST {
        let result = attempt(async { came_through.set(!one(polls).await) }).await;
        let failed = result.is_err();
        tally.case(format!("{case:?} dropped after {polls}"), result);
        if failed || came_through.get() {
            return;
        }
        polls += stride(polls, &mut dice);
    }
    tally.case(format!("{case:?}"), Err("it never comes through"));
}

/// The future whose end is asked for, to be dropped in the middle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Commit,
    RollBack,
    OneWriterCommits,
    Closure,
    Outcome,
    WaitApplied,
    CloseAndReopen,
    Reopen,
}

const ENDS: [End; 8] = [
    End::Commit,
    End::RollBack,
    End::OneWriterCommits,
    End::Closure,
    End::Outcome,
    End::WaitApplied,
    End::CloseAndReopen,
    End::Reopen,
];

async fn insert_both(tx: &Transaction, key: i32) -> Result<(), Error> {
    tokio::try_join!(insert_at(tx, LEDGER, key), insert_at(tx, ORDERS, key)).map(|_| ())
}

async fn drop_end(world: &World, what: End, polls: usize) -> bool {
    // A lease that was being confirmed when its bridge closed is free only when the server has noticed.
    let bridge = opened(world.config("")).await;
    let key = next_key();
    let (id, dropped) = drop_on(world, &bridge, what, key, polls).await;
    if what == End::CloseAndReopen {
        if dropped {
            let refused = bridge.begin().await.map(|_| ());
            assert!(refused.is_err() || polls == 0, "closing, it begins nothing new");
        }
        bridge.close().await.unwrap();
        drop(bridge);
        let bridge = world.open().await;
        agrees(world, &bridge, id, key).await;
        is_whole(world, &bridge, key + 2).await;
        bridge.close().await.unwrap();
        return dropped;
    }
    if what == End::OneWriterCommits {
        let outcome = integration_tests::world::settled(&bridge, id).await;
        assert_eq!(world.ledger.has(key).await, outcome == Outcome::Committed);
    } else {
        agrees(world, &bridge, id, key).await;
    }
    is_whole(world, &bridge, key + 2).await;
    bridge.close().await.unwrap();
    dropped
}

/// The id of a transaction with that key on both sides or neither, and whether the future was dropped.
async fn drop_on(world: &World, bridge: &Bridge, what: End, key: i32, polls: usize) -> (TransactionId, bool) {
    let tx = bridge.begin().await.unwrap();
    let id = tx.id();
    let dropped = match what {
        End::Commit => {
            insert_both(&tx, key).await.unwrap();
            Dropped::after(polls, tx.commit()).await.map(|answer| drop(answer.unwrap())).is_none()
        }
        End::RollBack => {
            insert_both(&tx, key).await.unwrap();
            Dropped::after(polls, tx.rollback()).await.map(|answer| answer.unwrap()).is_none()
        }
        End::OneWriterCommits => {
            insert_at(&tx, LEDGER, key).await.unwrap();
            Dropped::after(polls, tx.commit()).await.map(|answer| drop(answer.unwrap())).is_none()
        }
        End::Closure => {
            tx.rollback().await.unwrap();
            let began = std::cell::Cell::new(id);
            let whole = bridge.transaction(async |tx| {
                began.set(tx.id());
                insert_both(tx, key).await
            });
            let dropped = Dropped::after(polls, whole).await.map(|answer| answer.unwrap()).is_none();
            return (began.get(), dropped);
        }
        End::Outcome | End::WaitApplied => {
            insert_both(&tx, key).await.unwrap();
            // Asked while it commits, and while a fence may be on its way.
            let committing = tokio::spawn(tx.commit());
            let dropped = if what == End::Outcome {
                Dropped::after(polls, bridge.outcome(id)).await.map(|answer| answer.unwrap()).is_none()
            } else {
                let answer = Dropped::after(polls, bridge.wait_applied(id)).await;
                answer.map(|answer| assert_eq!(answer.unwrap(), Outcome::Committed)).is_none()
            };
            committing.await.unwrap().unwrap();
            dropped
        }
        End::CloseAndReopen => {
            insert_both(&tx, key).await.unwrap();
            drop(tokio::spawn(tx.commit()));
            Dropped::after(polls, bridge.close()).await.map(|answer| answer.unwrap()).is_none()
        }
        End::Reopen => {
            insert_both(&tx, key).await.unwrap();
            tx.commit().await.unwrap();
            // Beside the bridge, which has the lock of its own journal: another node with another journal.
            let journal = tempfile::TempDir::new().unwrap();
            let open = || Bridge::open(world.builder_at(journal.path(), "").node("other").build());
            let dropped = Dropped::after(polls, open()).await.map(|answer| answer.unwrap());
            let is_dropped = dropped.is_none();
            if let Some(opened) = dropped {
                opened.close().await.unwrap();
            }
            let opened = opened(world.builder_at(journal.path(), "").node("other").build()).await;
            insert(&opened, key + 5).await.commit().await.unwrap();
            opened.close().await.unwrap();
            is_dropped
        }
    };
    (id, dropped)
}

/// A pass of recovery that is dropped in the middle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Recovery {
    Sweep,
    Observe,
    LookInto,
    Opening,
}

async fn opened(config: Config) -> Bridge {
    let opened = std::cell::Cell::new(None);
    eventually("it opens again", async || {
        opened.set(Bridge::open(config.clone()).await.ok());
        let bridge = opened.take();
        let is_open = bridge.is_some();
        opened.set(bridge);
        is_open
    })
    .await;
    opened.into_inner().expect("it was opened")
}

/// A program dies with one decision half carried out and one transaction undecided; recovery is dropped, then made again.
async fn drop_recovery(world: &World, what: Recovery, polls: usize) -> bool {
    let key = next_key();
    let program = Program::start(world.config("")).await;
    let rule = world.orders.proxy.on("XA COMMIT").hold();
    let decided = program.begin_commit(key).await;
    rule.fired().await;
    let undecided = program.bridge.begin().await.unwrap();
    let (open, bridge) = (undecided.id(), program.bridge.clone());
    program.spawn(async move {
        insert_both(&undecided, key + 1).await.unwrap();
        std::future::pending::<()>().await;
    });
    eventually("both are at work", async || world.ledger.is_locked(key + 1).await).await;
    drop(bridge);
    program.crash().await;
    rule.release();
    let dropped = match what {
        Recovery::Opening => {
            Dropped::after(polls, Bridge::open(world.config(""))).await.map(|bridge| bridge.unwrap()).is_none()
        }
        Recovery::Sweep | Recovery::Observe | Recovery::LookInto => {
            let resolver = Resolver::open(world.config("")).unwrap_or_else(|error| panic!("{}", error.chain()));
            let dropped = match what {
                Recovery::Sweep => Dropped::after(polls, resolver.sweep(&|_| {})).await.is_none(),
                Recovery::Observe => Dropped::after(polls, resolver.observe()).await.is_none(),
                _ => {
                    let mut view = resolver.observe().await;
                    Dropped::after(polls, resolver.look_into(&mut view, decided)).await.is_none()
                }
            };
            resolver.close().await.unwrap();
            dropped
        }
    };
    // Of a bridge that is merely dropped, the tasks take a moment to let go.
    let bridge = opened(world.config("")).await;
    assert_eq!(agrees(world, &bridge, decided, key).await, Outcome::Committed);
    assert_eq!(agrees(world, &bridge, open, key + 1).await, Outcome::RolledBack);
    is_whole(world, &bridge, key + 2).await;
    bridge.close().await.unwrap();
    dropped
}

each_pair! {
    async fn d27_work_inside_a_transaction(other) {
        let tally = Tally::new(KIND, format!("{}: in a transaction", pair(other)));
        let world = World::new(other).await;
        let bridge = world.open().await;
        let thens = [Then::Commits, Then::RollsBack, Then::Drops];
        let cases = WORK.iter().flat_map(|work| thens.map(|then| (*work, then))).collect();
        for case in chosen(cases, 1, |(work, _)| *work) {
            exhaust(&tally, case, async |polls| drop_work(&world, &bridge, case.0, case.1, polls).await).await;
        }
        bridge.close().await.unwrap();
        tally.finish();
    }

    async fn the_end_of_a_transaction(other) {
        let tally = Tally::new(KIND, format!("{}: at its end", pair(other)));
        let world = World::new(other).await;
        for case in ENDS {
            exhaust(&tally, case, async |polls| drop_end(&world, case, polls).await).await;
        }
        tally.finish();
    }

    async fn recovery(other) {
        let tally = Tally::new(KIND, format!("{}: in recovery", pair(other)));
        let world = World::new(other).await;
        for case in [Recovery::Sweep, Recovery::Observe, Recovery::LookInto, Recovery::Opening] {
            exhaust(&tally, case, async |polls| drop_recovery(&world, case, polls).await).await;
        }
        tally.finish();
    }
}
