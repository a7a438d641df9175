//! Bring your own: settings of sessions, and the drivers' own options by code.

use handfast::config::ParticipantConfig;
use handfast::mysql_async::prelude::Queryable;
use handfast::{Bridge, Config, ErrorKind, Outcome, Transaction, mysql_async, tokio_postgres};
use integration_tests::each_pair;
use integration_tests::servers;
use integration_tests::world::{LEDGER, ORDERS, World, insert, insert_at};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One session serves all.
const ONE: &str = "[pool]\nsize = 1\n";

fn participant<'a>(config: &'a mut Config, name: &str) -> &'a mut ParticipantConfig {
    config.participants.get_mut(&name.parse().unwrap()).unwrap()
}

fn set(config: &mut Config, name: &str, settings: &[(&str, &str)]) {
    let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    participant(config, name).settings = settings.collect();
}

async fn opened(config: Config) -> Bridge {
    Bridge::open(config).await.unwrap_or_else(|error| panic!("{}", error.chain()))
}

async fn ledger_shows(tx: &Transaction) -> Vec<String> {
    let client = tx.postgres(LEDGER).await.unwrap();
    let mut all = Vec::new();
    for setting in ["statement_timeout", "search_path", "app.tenant", "role"] {
        let row = client.query_one(&format!("SELECT current_setting('{setting}')"), &[]).await;
        all.push(row.unwrap_or_else(|error| panic!("{setting}: {error:?}")).get(0));
    }
    all
}

/// The last of them is one that Handfast would not restore by itself.
async fn orders_shows(tx: &Transaction) -> Vec<String> {
    let mut conn = tx.mysql(ORDERS).await.unwrap();
    let mut all = Vec::new();
    for setting in ["sql_mode", "group_concat_max_len", "max_sort_length"] {
        let value: Option<String> = conn.query_first(format!("SELECT CAST(@@{setting} AS CHAR)")).await.unwrap();
        all.push(value.unwrap());
    }
    all
}

const DISORDER: [&str; 4] = [
    "SET statement_timeout = 12345",
    "RESET ALL",
    "SET search_path = nowhere; SET app.tenant = 'another'",
    "SET ROLE NONE",
];

each_pair! {
    async fn settings_are_in_force_in_every_transaction(other) {
        let world = World::new(other).await;
        let role = servers::unique("own_");
        for sql in [format!("CREATE ROLE {role}"), format!("GRANT ALL ON t TO {role}")] {
            world.ledger.query(&sql).await;
        }
        let mut config = world.config(ONE);
        let tenant = r"a 'b' \ c";
        let ledger = [("statement_timeout", "77s"), ("search_path", "app, public"), ("app.tenant", tenant), ("role", &role)];
        set(&mut config, LEDGER, &ledger);
        set(&mut config, ORDERS, &[("sql_mode", "ANSI_QUOTES"), ("group_concat_max_len", "777"), ("max_sort_length", "77")]);
        let bridge = opened(config).await;
        let expected = ["77s", "app, public", tenant, &role].map(str::to_owned);
        let key = &mut 0;
        let mut check = async || {
            let tx = bridge.begin().await.unwrap();
            assert_eq!(ledger_shows(&tx).await, expected);
            assert_eq!(orders_shows(&tx).await, ["ANSI_QUOTES", "777", "77"]);
            *key += 1;
            tokio::try_join!(insert_at(&tx, LEDGER, *key), insert_at(&tx, ORDERS, *key)).unwrap();
            // What proves and prepares is the business of who logged in, whatever role the application works in.
            tx.commit().await.unwrap_or_else(|error| panic!("{}", error.cause().chain()));
            world.is_on_both(*key).await;
        };
        check().await;
        for text in DISORDER {
            let tx = bridge.begin().await.unwrap();
            tx.postgres(LEDGER).await.unwrap().batch_execute(text).await.unwrap();
            // RESET ALL takes the marker along: it rolls back.
            let _ = tx.commit().await;
            check().await;
        }
        for text in ["SET SESSION sql_mode = '', max_sort_length = 1024", "SET group_concat_max_len = 1024"] {
            for is_binary in [false, true] {
                let tx = bridge.begin().await.unwrap();
                let mut conn = tx.mysql(ORDERS).await.unwrap();
                if is_binary { conn.exec_drop(text, ()).await.unwrap() } else { conn.query_drop(text).await.unwrap() }
                drop(conn);
                tx.commit().await.unwrap();
                check().await;
            }
        }
        bridge.close().await.unwrap();
        world.ledger.query(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
    }

    /// Nobody waits for what has to work at night: the resolver has no settings, and goes on.
    async fn a_setting_that_does_not_exist_is_named(other) {
        let world = World::new(other).await;
        for (side, setting) in [(LEDGER, "statement_timeuot"), (ORDERS, "sql_moed")] {
            let mut config = world.config("");
            set(&mut config, side, &[(setting, "1")]);
            let bridge = opened(config).await;
            let tx = bridge.begin().await.unwrap();
            let error = insert_at(&tx, side, 1).await.expect_err(setting);
            assert!(error.chain().contains(setting), "{}", error.chain());
            tx.rollback().await.unwrap();
            bridge.close().await.unwrap();
        }
        world.is_nowhere(1).await;
    }

    async fn the_drivers_own_options_are_taken_from_code(other) {
        let world = World::new(other).await;
        let connected = Arc::new(AtomicUsize::new(0));
        let config = || {
            let mut config = world.config(ONE);
            let mut ledger: tokio_postgres::Config = participant(&mut config, LEDGER).url.parse().unwrap();
            ledger.options("-c work_mem=77kB");
            *participant(&mut config, LEDGER) = ParticipantConfig::postgres(ledger);
            let orders = mysql_async::Opts::from_url(&participant(&mut config, ORDERS).url).unwrap();
            let connected = connected.clone();
            let orders = mysql_async::OptsBuilder::from_opts(orders).setup(vec!["SET @tenant = 7"]).after_connect(move |conn| {
                connected.fetch_add(1, Ordering::Relaxed);
                Box::pin(async move { conn.query_drop("DO 1").await })
            });
            *participant(&mut config, ORDERS) = ParticipantConfig::mysql(orders);
            config
        };
        let bridge = opened(config()).await;
        for key in 1..4 {
            let tx = insert(&bridge, key).await;
            let ledger = tx.postgres(LEDGER).await.unwrap();
            let work_mem: String = ledger.query_one("SHOW work_mem", &[]).await.unwrap().get(0);
            let mut orders = tx.mysql(ORDERS).await.unwrap();
            let tenant: Option<i64> = orders.query_first("SELECT @tenant").await.unwrap();
            assert_eq!((work_mem.as_str(), tenant), ("77kB", Some(7)), "the same session, set up again behind each reset");
            ledger.batch_execute("SET work_mem = '99kB'").await.unwrap();
            orders.query_drop("SET @tenant = 8").await.unwrap();
            drop((ledger, orders));
            let id = tx.commit().await.unwrap().id;
            world.is_on_both(key).await;
            assert_eq!(bridge.outcome(id).await.unwrap(), Outcome::Committed);
        }
        assert!(connected.load(Ordering::Relaxed) >= 2, "the pool's and the resolver's");
        // The next opening, with recovery, reaches the same databases by the same options.
        bridge.close().await.unwrap();
        let bridge = opened(config()).await;
        assert!(bridge.status().participants.iter().all(|participant| participant.reachable));
        bridge.close().await.unwrap();
    }

    /// What code has put into a configuration is checked like what a file says.
    async fn what_code_has_changed_is_checked(other) {
        let world = World::new(other).await;
        let mut config = world.config("");
        set(&mut config, ORDERS, &[("autocommit", "0")]);
        let error = Bridge::open(config).await.map(|_| ()).expect_err("it is ours to set");
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.chain().contains("participants.orders: settings.autocommit"), "{}", error.chain());
    }
}
