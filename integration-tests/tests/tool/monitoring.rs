//! What is left behind, seen by whoever watches: ages, owners, who waits, and the moment for a backup.

use crate::golden::{self, show};
use crate::stage::{Network, Ran, Stage, branch, killed_at, only, run_to_end, tool, values};
use integration_tests::conformance::eventually;
use integration_tests::servers::{self, ConfigBuilder, Flavor, Server};
use integration_tests::{each_pair, test_with_servers};
use serde_json::Value;
use std::process::Stdio;
use tokio::process::Command;

each_pair! {
    /// D24: own, own by the name with an unknown opening, foreign: each with gid, participant, age and decision; a
    /// threshold makes what is old count. Nothing is rolled back by age.
    async fn what_is_left_prepared(other) {
        let stage = golden::stage(other).await;
        let id = killed_at(&stage, Some("COMMIT PREPARED"), Some("XA COMMIT")).await;
        for gid in ["nightly import 7", "hf1.orders-api-1.0123456789abcdef.7.0.0"] {
            stage.postgres.query("ledger", &format!("BEGIN; PREPARE TRANSACTION '{gid}'")).await.unwrap();
        }
        let xid = "X'00ff275c',X'0d0a',7";
        let sql = format!("XA START {xid}; INSERT INTO entry VALUES (7); XA END {xid}; XA PREPARE {xid}");
        stage.mysql.query("orders", &sql).await.unwrap();
        let seen = stage.json("list", 3).await;
        assert_eq!(values(only(&seen), &["id", "decision"]), [&*id, "commit"]);
        assert_eq!(seen["foreign"].as_array().unwrap().len(), 3, "{seen:#}");
        stage.json("recover", 0).await;

        // Of what is not ours nothing is said, unless it is old.
        stage.tool("list --older-than 1h").await.ended(3).says("prepared for longer than 60 min: 1");
        let aged = async || age_of(&stage.json("list", 0).await, "nightly import 7") >= Some(2);
        eventually("two seconds old", aged).await;
        let ran = stage.tool("list --older-than 1s").await;
        // The one on the second server has no age, and is still there a moment later.
        ran.ended(3).says("something has been prepared for too long").says("prepared for longer than 1 s: 3");
        let object = stage.json("list --older-than 1s", 3).await;
        assert_eq!(object["older"], serde_json::json!({"than_seconds": 1, "branches": 3}));
        assert_eq!(stage.prepared_ledger().await.len(), 2, "nothing was touched");

        // One participant that tells every age: old enough or not.
        stage.mysql.query("orders", &format!("XA ROLLBACK {xid}")).await.unwrap();
        stage.tool("list --older-than 1h").await.ended(0).says("nothing has been prepared for longer than 60 min");
    }

    /// D25: left by an XA program on a server that was restarted since; DDL hangs on it. The list says who waits, and
    /// `explain` prints the statement that ends it.
    async fn an_orphan_that_blocks_ddl(other) {
        // Who waits is told by the performance schema there.
        let options = if other == Flavor::MySql { servers::options().with("performance_schema", "ON") } else { servers::options() };
        let (postgres, mysql) = tokio::join!(servers::shared(Flavor::Postgres), servers::start_with(other, options));
        let (ledger, node) = (servers::unique("ledger"), servers::unique("n").replace('_', "-"));
        let stage = Stage::named(postgres, Box::leak(Box::new(mysql)), ledger, "orders".to_owned(), node).await;
        let id = killed_at(&stage, None, Some("XA COMMIT")).await;
        stage.mysql.kill().await.unwrap();
        stage.mysql.restart().await.unwrap();
        let mut rights = String::from("GRANT PROCESS ON *.* TO 'app'@'%'");
        if other == Flavor::MySql {
            rights += "; GRANT SELECT ON performance_schema.* TO 'app'@'%'";
        }
        stage.mysql.query("orders", &rights).await.unwrap();
        let mysql = stage.mysql;
        let hangs = |sql: &'static str| tokio::spawn(async move { mysql.query("orders", sql).await });
        let insert = hangs("SET SESSION innodb_lock_wait_timeout = 100; INSERT INTO entry VALUES (1)");
        let waits = async || {
            // MariaDB tells anew only after a pause.
            tokio::time::sleep(std::time::Duration::from_millis(150)).await;
            let seen = stage.json("list", 3).await;
            let waiting = branch(only(&seen), "orders")["waiting"].clone();
            waiting.as_array().is_some_and(|all| all.iter().any(|one| one.as_str().unwrap().contains("INSERT INTO entry")))
        };
        eventually("the list says who waits", waits).await;
        stage.tool("list").await.ended(3).says("waits for it:").says("INSERT INTO entry");
        stage.tool(&format!("explain {id}")).await.ended(3).says("INSERT INTO entry");
        let alter = hangs("ALTER TABLE entry ADD COLUMN more int");
        let state = "SELECT count(*) FROM information_schema.processlist WHERE state LIKE '%metadata lock%'";
        let hangs = async || stage.mysql.query("orders", state).await.unwrap()[0][0].as_deref() == Some("1");
        eventually("DDL hangs on it", hangs).await;
        let statement = only(&stage.json(&format!("explain {id}"), 3).await)["statements"][0]["statement"].clone();
        let typed = statement.as_str().unwrap().trim_end_matches(';').to_owned();
        eventually("typed by hand", async || stage.mysql.query("orders", &typed).await.is_ok()).await;
        insert.await.unwrap().unwrap_err();
        alter.await.unwrap().unwrap();
        stage.json("recover", 0).await;
        let committed = stage.mysql.query("orders", "SELECT n FROM entry").await.unwrap();
        assert_eq!(committed.len(), 1);
    }

    /// The moment for a backup is waited for, and no longer than was said.
    async fn drained(other) {
        let stage = golden::stage(other).await;
        stage.tool("init").await.ended(0);
        show(&stage, "drained", &["drain"]).await;
        let network = Network::before(&stage).await;
        let mut application = stage.application_behind(&network).await;
        let held = network.postgres.on("COMMIT PREPARED").hold();
        let id = application.write(1).await;
        application.tell("commit").await;
        held.fired().await;
        show(&stage, "not_drained", &["drain --wait 300ms"]).await;
        assert_eq!(only(&stage.json("drain --wait 0s", 3).await)["id"], *id);

        // It ends while somebody waits for it.
        let mut command = tool();
        command.arg("--config").arg(stage.config_path()).args(["drain", "--wait", "60s"]);
        let waits = tokio::spawn(run_to_end(command));
        held.release();
        application.committed().await;
        waits.await.unwrap().ended(0).says("nothing is prepared on any participant");
        application.end().await;

        stage.mysql.kill().await.unwrap();
        stage.tool("drain").await.ended(4).says("not reachable");
        stage.mysql.restart().await.unwrap();
    }

    /// D50: the directory moves to another machine, the name of the machine is nobody's identity.
    async fn moved_to_another_machine(other) {
        let stage = Stage::new(other).await;
        let id = killed_at(&stage, Some("COMMIT PREPARED"), Some("XA COMMIT")).await;
        let (moved, config) = (stage.path("moved"), stage.path("moved.toml"));
        std::fs::rename(stage.journal(), &moved).unwrap();
        let text = stage.config().toml().replace(stage.journal().to_str().unwrap(), moved.to_str().unwrap());
        std::fs::write(&config, text).unwrap();
        elsewhere(&stage, &config, "recover").await.ended(0).says("1 committed");
        stage.assert_rows(&["1"], &["1"]).await;
        stage.assert_nothing_prepared().await;
        let outcome = stage.tool_at(&config, &format!("outcome {id}")).await;
        assert_eq!(outcome.ended(0).stdout, "committed\n");
    }
}

/// The tool on a machine of another name, where this machine can play one: in a namespace of its own.
async fn elsewhere(stage: &Stage, config: &std::path::Path, arguments: &str) -> Ran {
    let script = "hostname another-machine && exec \"$@\"";
    let playable = Command::new("unshare")
        .args(["--uts", "sh", "-c", "hostname another-machine && hostname"])
        .stderr(Stdio::null())
        .output()
        .await;
    if !playable.is_ok_and(|output| output.stdout == b"another-machine\n") {
        return stage.tool_at(config, arguments).await;
    }
    let mut command = Command::new("unshare");
    command.args(["--uts", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_handfast-tool"), "--config"]);
    command.arg(config).args(arguments.split(' ')).stdin(Stdio::null()).kill_on_drop(true);
    run_to_end(command).await
}

fn age_of(report: &Value, gid: &str) -> Option<u64> {
    report["foreign"].as_array().unwrap().iter().find(|one| one["gid"] == *gid)?["age_seconds"].as_u64()
}

mod two_databases_on_one_server {
    use super::*;
    use integration_tests::proxy::Proxy;
    use integration_tests::world::Program;

    /// D28: a branch is settled through its own database only. While that is not configured, its transaction is in
    /// doubt, and says why; the other database's branch goes on.
    async fn run(flavor: Flavor) {
        let server = servers::shared(flavor).await;
        let (one, two) = (servers::fresh_database(server).await, servers::fresh_database(server).await);
        for database in [&one, &two] {
            server.query(database, "CREATE TABLE entry (n bigint PRIMARY KEY)").await.unwrap();
        }
        let directory = tempfile::tempdir().unwrap();
        let node = servers::unique("n").replace('_', "-");
        let proxy = Proxy::start(server).await;
        let config = |names: &[(&str, &str, u16)]| {
            let base = ConfigBuilder::new(directory.path()).node(&node).section("[recovery]\nopen_wait = \"5s\"\n");
            names.iter().fold(base, |config, (name, database, port)| {
                config.participant_at(name, flavor, &format!("postgresql://postgres@127.0.0.1:{port}/{database}"))
            })
        };
        let both = config(&[("one", &one, proxy.port()), ("two", &two, proxy.port())]);
        let program = Program::start(both.build()).await;
        let bridge = program.bridge.clone();
        let begun = program.spawn(async move {
            let tx = bridge.begin().await.unwrap();
            for name in ["one", "two"] {
                tx.postgres(name).await.unwrap().execute("INSERT INTO entry VALUES (1)", &[]).await.unwrap();
            }
            tx
        });
        let tx = begun.await.unwrap();
        let held = proxy.on("COMMIT PREPARED").hold();
        let id = tx.id();
        program.spawn(tx.commit());
        held.fired().await;
        program.crash().await;
        proxy.sever();

        let path = directory.path().join("handfast.toml");
        let run = async |names: &[(&str, &str, u16)], arguments: &str| {
            config(names).write(&path);
            let mut command = tool();
            command.arg("--config").arg(&path).args(arguments.split(' '));
            run_to_end(command).await
        };
        let port = server.port();
        let ran = run(&[("one", &one, port)], "recover").await;
        assert!(ran.code >= 3, "{ran}");
        ran.says("two is not configured").says(&id.to_string());
        assert_eq!(count(server, &one).await, 1, "the other goes on: {ran}");
        run(&[("one", &one, port), ("two", &two, port)], "recover").await.ended(0);
        assert_eq!((count(server, &one).await, count(server, &two).await), (1, 1));
    }

    async fn count(server: &Server, database: &str) -> usize {
        server.query(database, "SELECT n FROM entry").await.unwrap().len()
    }

    test_with_servers! { postgres: run(Postgres) }
}

mod all_slots_in_use {
    use super::*;
    use handfast::{Bridge, Outcome};

    /// D41: a prepare that finds no slot is a clean no, which names the limit; the list shows who has the slots.
    async fn run(flavor: Flavor) {
        let options = servers::options().with("max_prepared_transactions", "3");
        let server = servers::start_with(flavor, options).await;
        let (one, two) = (servers::fresh_database(&server).await, servers::fresh_database(&server).await);
        for database in [&one, &two] {
            server.query(database, "CREATE TABLE entry (n bigint PRIMARY KEY)").await.unwrap();
        }
        let directory = tempfile::tempdir().unwrap();
        let config =
            ConfigBuilder::new(directory.path()).participant("one", &server, &one).participant("two", &server, &two);
        let bridge = Bridge::open(config.build()).await.unwrap();
        for slot in 0..2 {
            server.query(&one, &format!("BEGIN; PREPARE TRANSACTION 'orphan {slot}'")).await.unwrap();
        }
        let tx = bridge.begin().await.unwrap();
        for name in ["one", "two"] {
            tx.postgres(name).await.unwrap().execute("INSERT INTO entry VALUES (1)", &[]).await.unwrap();
        }
        let error = tx.commit().await.unwrap_err();
        let text = error.cause().chain();
        assert_eq!(error.outcome(), Outcome::RolledBack, "{text}");
        assert!(text.contains("max_prepared_transactions") || text.contains("maximum number of prepared"), "{text}");
        bridge.close().await.unwrap();

        let path = directory.path().join("handfast.toml");
        config.write(&path);
        let mut list = tool();
        list.arg("--config").arg(&path).arg("list");
        run_to_end(list).await.ended(0).says("orphan 0").says("orphan 1");
        for database in [&one, &two] {
            assert!(server.query(database, "SELECT n FROM entry").await.unwrap().is_empty());
        }
    }

    test_with_servers! { postgres: run(Postgres) }
}

/// Colours on a terminal, and there alone; not with `NO_COLOR`.
mod on_a_terminal {
    use super::*;

    async fn run(flavor: Flavor) {
        let server = servers::shared(flavor).await;
        let database = servers::fresh_database(server).await;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("handfast.toml");
        ConfigBuilder::new(directory.path()).participant("one", server, &database).write(&path);
        let program = env!("CARGO_BIN_EXE_handfast-tool");
        let mut init = tool();
        init.arg("--config").arg(&path).arg("init");
        run_to_end(init).await.ended(0);
        for (no_color, coloured) in [("", true), ("1", false)] {
            let mut script = Command::new("script");
            let line = format!("{program} --config {} list", path.display());
            script.args(["-qec", &line, "/dev/null"]).env("NO_COLOR", no_color).stdin(Stdio::null());
            let output = script.output().await.unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(text.contains("nothing is left to be done"), "{text}");
            assert_eq!(text.contains("\x1b[32mclean\x1b[0m"), coloured, "{text}");
        }
    }

    test_with_servers! { postgres: run(Postgres) }
}
