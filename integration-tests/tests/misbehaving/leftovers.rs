//! D49: what one transaction leaves in its session never reaches the next, and undoing it costs nobody a round trip.

use handfast::mysql_async::prelude::Queryable;
use handfast::{Bridge, Transaction};
use integration_tests::each_mysql;
use integration_tests::proxy::Message;
use integration_tests::servers::{self, Flavor};
use integration_tests::torture::{Tally, names};
use integration_tests::world::{LEDGER, ORDERS, World, eventually};

const KIND: &str = "a transaction leaves its session in disorder";

/// One session serves all.
const ONE: &str = "[pool]\nsize = 1\n";

/// COM_RESET_CONNECTION
const RESET: u8 = 0x1f;

/// What a session is like, one line each.
async fn likeness(tx: &Transaction, flavor: Flavor) -> Vec<String> {
    let mut all = Vec::new();
    if flavor == Flavor::Postgres {
        let client = tx.postgres(LEDGER).await.unwrap();
        for query in POSTGRES {
            let row = client.query_one(&format!("SELECT ({query})::text"), &[]).await.unwrap();
            all.push(format!("{query}: {:?}", row.get::<_, Option<String>>(0)));
        }
        return all;
    }
    let isolation: &[&str] = match flavor {
        Flavor::MySql => &["@@transaction_isolation", "@@transaction_read_only", "@@max_execution_time"],
        _ => &["@@tx_isolation", "@@tx_read_only", "@@max_statement_time"],
    };
    let mut conn = tx.mysql(ORDERS).await.unwrap();
    for query in MYSQL.iter().chain(isolation) {
        let value: Option<Option<String>> = conn.query_first(format!("SELECT CAST({query} AS CHAR)")).await.unwrap();
        all.push(format!("{query}: {value:?}"));
    }
    all
}

const POSTGRES: &[&str] = &[
    "pg_backend_pid()",
    "SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) FROM pg_settings WHERE source = 'session' \
     AND name NOT IN ('lock_timeout', 'transaction_isolation', 'transaction_read_only', 'transaction_deferrable')",
    "current_user",
    "session_user",
    "current_setting('search_path')",
    "current_setting('role')",
    "SELECT count(*) FROM pg_listening_channels()",
    "SELECT count(*) FROM pg_cursors",
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
    "SELECT count(*) FROM pg_class WHERE relnamespace = pg_my_temp_schema()",
    "SELECT count(*) FROM pg_type WHERE typnamespace = pg_my_temp_schema()",
    "SELECT count(*) FROM pg_proc WHERE pronamespace = pg_my_temp_schema()",
];

const MYSQL: &[&str] = &[
    "CONNECTION_ID()",
    "DATABASE()",
    "@mine",
    "@@sql_mode",
    "@@time_zone",
    "@@autocommit",
    "@@character_set_client",
    "@@character_set_results",
    "@@collation_connection",
    "@@foreign_key_checks",
    "@@unique_checks",
    "@@sql_safe_updates",
    "@@sql_select_limit",
    "@@group_concat_max_len",
    "@@completion_type",
    "@@lc_time_names",
    "@@innodb_lock_wait_timeout",
    "@@lock_wait_timeout",
    "NOW() > '2020-01-01'",
    "IFNULL(IS_USED_LOCK('mine') = CONNECTION_ID(), 0)",
];

/// A transaction that runs these, caring for no error, and commits.
async fn disturb(bridge: &Bridge, flavor: Flavor, texts: &[&str], is_binary: bool) {
    let tx = bridge.begin().await.unwrap();
    for text in texts {
        if flavor == Flavor::Postgres {
            let _ = tx.postgres(LEDGER).await.unwrap().batch_execute(text).await;
        } else if is_binary {
            let _ = tx.mysql(ORDERS).await.unwrap().exec_drop(*text, ()).await;
        } else {
            let _ = tx.mysql(ORDERS).await.unwrap().query_drop(*text).await;
        }
    }
    // Rolled back where one of them failed: what it did outside the transaction is what counts.
    let _ = tx.commit().await;
}

async fn looks(bridge: &Bridge, flavor: Flavor) -> Vec<String> {
    let tx = bridge.begin().await.unwrap();
    let likeness = likeness(&tx, flavor).await;
    tx.rollback().await.unwrap();
    likeness
}

fn differences(before: &[String], after: &[String]) -> Result<(), String> {
    let changed: Vec<_> =
        before.iter().zip(after).filter(|(a, b)| a != b).map(|(a, b)| format!("{a}, then {b}")).collect();
    if changed.is_empty() { Ok(()) } else { Err(changed.join("; ")) }
}

mod on_postgres {
    use super::*;

    /// Prepared statements stay, on purpose: the driver has some of its own.
    const DISORDER: &[&[&str]] = &[
        &["SET work_mem = '77kB'"],
        &["SET search_path = nowhere"],
        &["SET statement_timeout = 100000"],
        &["SET client_encoding = 'LATIN1'"],
        &["SET default_transaction_isolation = 'serializable'", "SET default_transaction_read_only = on"],
        &["SET ROLE pg_monitor"],
        &["SET SESSION AUTHORIZATION pg_monitor"],
        &["SET mine.own = 'x'"],
        &["LISTEN mine"],
        &["CREATE TEMP TABLE mine (a int)"],
        // The server prepares both, once there is a schema for them.
        &["DO $$ BEGIN EXECUTE format('CREATE DOMAIN %s.mine AS int', pg_my_temp_schema()::regnamespace); END $$"],
        &["DO $$ BEGIN EXECUTE format('CREATE FUNCTION %s.mine() RETURNS int LANGUAGE sql AS $f$SELECT 1$f$', \
            pg_my_temp_schema()::regnamespace); END $$"],
        &["DECLARE c CURSOR WITH HOLD FOR SELECT 1"],
        &["SELECT pg_advisory_lock(7)"],
        &["SET application_name = 'mine'"],
        &["SET lock_timeout = 77"],
    ];

    #[test]
    fn postgres() {
        servers::runtime().block_on(async {
            let tally = Tally::new(KIND, names(&[Flavor::Postgres]));
            let world = World::new(Flavor::MariaDb).await;
            let bridge = world.open_with(ONE).await;
            looks(&bridge, Flavor::Postgres).await;
            let before = looks(&bridge, Flavor::Postgres).await;
            for texts in DISORDER {
                disturb(&bridge, Flavor::Postgres, texts, false).await;
                let after = looks(&bridge, Flavor::Postgres).await;
                tally.case(format!("{texts:?}"), differences(&before, &after));
            }
            let sent = world.ledger.proxy.messages().len();
            looks(&bridge, Flavor::Postgres).await;
            let messages = world.ledger.proxy.messages().split_off(sent);
            let begin = messages.iter().find(|message| message.text.contains("BEGIN READ WRITE")).unwrap();
            assert!(begin.text.contains("RESET ALL"), "a reset and a begin in one: {messages:#?}");
            bridge.close().await.unwrap();
            tally.finish();
        });
    }
}

/// Counts a begin that had a round trip of its own with what it was for: by the binary protocol it always has, and where the
/// session was idle for more than a moment.
fn begun_with(messages: impl Iterator<Item = Message>) -> Vec<Message> {
    let mut all: Vec<Message> = Vec::new();
    for mut message in messages {
        let is_begin = |last: &mut Message| {
            last.text.split("; ").last().is_some_and(|end| end.starts_with("SAVEPOINT `handfast."))
        };
        if let Some(begin) = all.pop_if(is_begin) {
            message.text = format!("{}; {}", begin.text, message.text);
        }
        all.push(message);
    }
    all
}

/// What is seen by its text.
const DISORDER: &[&[&str]] = &[
    &["SET @mine = 1"],
    &["SELECT @mine := 2"],
    &["SELECT 3 INTO @mine"],
    &["SET SESSION sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'"],
    &["SET time_zone = '+07:00'"],
    &["SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE"],
    &["SET SESSION TRANSACTION READ ONLY"],
    &["SET autocommit = 0"],
    &["SET NAMES latin1"],
    &["SET foreign_key_checks = 0, unique_checks = 0, sql_safe_updates = 1, sql_select_limit = 7"],
    &["SET group_concat_max_len = 77, lc_time_names = 'de_DE'"],
    &["SET completion_type = 'CHAIN'"],
    &["SET timestamp = 86400"],
    &["SET lock_wait_timeout = 7, innodb_lock_wait_timeout = 7"],
    &["USE information_schema"],
    &["SELECT GET_LOCK('mine', 0)"],
];

/// What is not, and yet is undone: all but user variables, temporary tables and statements of SQL's own PREPARE.
fn unseen() -> impl Iterator<Item = &'static [&'static str]> {
    DISORDER.iter().copied().filter(|texts| !texts[0].contains('@'))
}

each_mysql! {
    async fn in_sessions(flavor) {
        let tally = Tally::new(KIND, names(&[flavor]));
        let world = World::new(flavor).await;
        let bridge = world.open_with(ONE).await;
        looks(&bridge, flavor).await;
        let before = looks(&bridge, flavor).await;
        for (texts, is_binary) in DISORDER.iter().map(|texts| (*texts, false)).chain(unseen().map(|texts| (texts, true))) {
            disturb(&bridge, flavor, texts, is_binary).await;
            let after = looks(&bridge, flavor).await;
            tally.case(format!("{texts:?}, unseen: {is_binary}"), differences(&before, &after));
        }
        bridge.close().await.unwrap();
        tally.finish();
    }

    /// Prepared by SQL, and on MariaDB a temporary table: the next transaction may use the name.
    async fn names_are_free_again(flavor) {
        let world = World::new(flavor).await;
        let bridge = world.open_with(ONE).await;
        disturb(&bridge, flavor, &["PREPARE mine FROM 'SELECT 1'", "CREATE TEMPORARY TABLE mine (a INT)"], false).await;
        let tx = bridge.begin().await.unwrap();
        let mut conn = tx.mysql(ORDERS).await.unwrap();
        let error = conn.query_drop("EXECUTE mine").await.unwrap_err();
        assert!(error.to_string().contains("Unknown prepared statement"), "{error}");
        let error = conn.query_drop("SELECT * FROM mine").await.unwrap_err();
        assert!(error.to_string().contains("doesn't exist"), "{error}");
        drop(conn);
        tx.rollback().await.unwrap();
    }

    /// The session keeps its name, by which recovery would find it, through resets and restorings.
    async fn a_session_keeps_its_name(flavor) {
        let world = World::new(flavor).await;
        let bridge = world.open_with(ONE).await;
        for (texts, is_binary) in [(["SET @mine = 1"], false), (["SELECT 1"], true), (["SELECT GET_LOCK('mine', 0)"], true)] {
            disturb(&bridge, flavor, &texts, is_binary).await;
            let tx = bridge.begin().await.unwrap();
            let mut conn = tx.mysql(ORDERS).await.unwrap();
            let names: Vec<_> = (0..2).map(|slot| format!("IFNULL(IS_USED_LOCK('handfast.{}.1.{slot}') = CONNECTION_ID(), 0)", tx.id().incarnation)).collect();
            let held: Option<i64> = conn.query_first(format!("SELECT {}", names.join(" + "))).await.unwrap();
            assert_eq!(held, Some(1), "{texts:?}");
            drop(conn);
            tx.rollback().await.unwrap();
        }
    }

    /// Statements that the driver has prepared survive, unless a text made a reset necessary.
    async fn what_it_costs(flavor) {
        let world = World::new(flavor).await;
        let bridge = world.open_with(ONE).await;
        let since = async |texts: &[&str], is_binary: bool| -> Vec<Message> {
            // Whatever was behind the last end is over.
            disturb(&bridge, flavor, &["SELECT 1"], false).await;
            let before = world.orders.proxy.messages().len();
            disturb(&bridge, flavor, texts, is_binary).await;
            let tx = bridge.begin().await.unwrap();
            tx.mysql(ORDERS).await.unwrap().query_drop("SELECT 2").await.unwrap();
            let sessions = world.orders.branch_connections();
            let sent = world.orders.proxy.messages().split_off(before);
            tx.rollback().await.unwrap();
            begun_with(sent.into_iter().filter(|message| message.is_question(flavor) && sessions.contains(&message.connection)))
        };
        // The statement and both phases at once, then the next.
        let rows = since(&["INSERT INTO t VALUES (1, 1)"], false).await;
        assert_eq!(rows.len(), 3, "{rows:#?}");
        assert!(rows[2].text.contains("XA START") && !rows[2].text.contains("RELEASE_ALL_LOCKS"), "{rows:#?}");
        // Nothing more is asked: the restoring goes with the begin. The statement is prepared once.
        for (number, expected) in [(2, 4), (3, 3)] {
            let unseen = since(&["INSERT INTO t SELECT MAX(k) + 1, 1 FROM t AS others"], true).await;
            assert_eq!(unseen.len(), expected, "{number}: {unseen:#?}");
            assert!(unseen[expected - 1].text.contains("RELEASE_ALL_LOCKS"), "{unseen:#?}");
        }
        // Two more, both behind the end of the transaction: a reset, and what names the session again.
        let reset = since(&["SET @mine = 1"], false).await;
        assert_eq!(reset.len(), 5, "{reset:#?}");
        assert_eq!(reset[2].kind, RESET);
        assert!(reset[3].text.contains("GET_LOCK") && reset[4].text.contains("XA START"), "{reset:#?}");
        assert!(!reset[4].text.contains("GET_LOCK"), "{reset:#?}");
    }

    /// Behind the end: the answer to the application does not wait for the reset.
    async fn nobody_waits_for_a_reset(flavor) {
        let world = World::new(flavor).await;
        let bridge = world.open_with(ONE).await;
        let rule = world.orders.proxy.on("RELEASE_ALL_LOCKS").hold();
        disturb(&bridge, flavor, &["SET @mine = 1", "INSERT INTO t VALUES (1, 1)"], false).await;
        assert!(world.orders.has(1).await, "answered");
        rule.fired().await;
        // Whoever wants the session waits for it, and has it clean.
        let next = tokio::spawn({
            let bridge = bridge.clone();
            async move { looks(&bridge, flavor).await }
        });
        eventually("it is waited for", async || bridge.status().running == 1).await;
        assert!(!next.is_finished());
        rule.release();
        assert!(next.await.unwrap().contains(&"@mine: Some(None)".to_owned()));
    }
}
