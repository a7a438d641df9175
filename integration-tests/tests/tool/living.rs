//! The tool beside what lives: a running application, and other programs' prepared transactions.

use crate::stage::{Network, PASSWORD, Stage, branch, only, run_to_end, values};
use integration_tests::each_pair;
use integration_tests::servers::Flavor;

each_pair! {
    /// The list may be looked at any time; recovery is for what has ended, and says whom it waits for.
    async fn beside_a_running_application(other) {
        let stage = Stage::new(other).await;
        let network = Network::before(&stage).await;
        let mut application = stage.application_behind(&network).await;
        stage.json("list", 0).await;
        let held = network.postgres.on("COMMIT PREPARED").hold();
        let id = application.write(1).await;
        let ran = stage.tool(&format!("outcome {id}")).await;
        assert_eq!(ran.ended(3).stdout, "in_doubt\n");
        assert!(ran.stderr.contains("may be at work on it"), "{ran}");
        application.tell("commit").await;
        held.fired().await;

        let pid = application.pid().to_string();
        let seen = stage.json("list", 0).await;
        assert!(seen["in_use_by"].as_str().unwrap().contains(&pid), "{seen:#}");
        assert_eq!(seen["status"], "clean");
        assert_eq!(values(only(&seen), &["id", "decision", "outcome", "action"]), [&*id, "live", "in_doubt", "leave"]);
        assert_eq!(values(branch(only(&seen), "ledger"), &["state", "action"]), ["prepared", "leave"]);
        stage.tool("list").await.ended(0).says(&format!("the journal is in use by process {pid} on")).says("left alone");

        stage.tool("recover").await.ended(6).complains(&["is in use by process", &pid, "stop it"]);
        let refused = stage.json("recover", 6).await;
        assert_eq!(refused["status"], "refused");
        assert!(refused["error"].as_str().unwrap().contains(&pid), "{refused:#}");
        // Decided is as good as committed.
        assert_eq!(stage.tool(&format!("outcome {id}")).await.ended(0).stdout, "committed\n");
        stage.tool("journal verify").await.ended(0);
        stage.tool("journal dump").await.ended(0).says(&format!("commit {id}"));
        stage.tool("init").await.ended(0);
        assert_eq!(stage.prepared_ledger().await.len(), 1, "nothing was touched");

        held.release();
        assert_eq!(application.committed().await, id);
        assert_eq!(stage.tool(&format!("outcome {id}")).await.ended(0).stdout, "committed\n");
        application.end().await;
        stage.json("list", 0).await;
        stage.assert_rows(&["1"], &["1"]).await;
    }

    /// What others prepared is shown, binary names and lookalikes of ours as well, and never touched.
    async fn beside_foreign_branches(other) {
        let stage = Stage::new(other).await;
        stage.tool("init").await.ended(0);
        // A name is used once on a server, whatever the database.
        let odd = format!("their own {}; \"quoted\"", stage.node);
        let lookalike = format!("hf1.{}.0123456789abcdef.7.0.0", stage.node);
        for (row, gid) in [(1, &*odd), (2, &*lookalike)] {
            let sql = format!("BEGIN; INSERT INTO entry VALUES ({row}); PREPARE TRANSACTION '{gid}'");
            stage.postgres.query(&stage.ledger, &sql).await.unwrap();
        }
        let binary = format!("X'00ff275c1b{:08x}',X'0d0a',7", std::process::id());
        let sql = format!("XA START {binary}; INSERT INTO entry VALUES (1); XA END {binary}; XA PREPARE {binary}");
        stage.mysql.query(&stage.orders, &sql).await.unwrap();

        for command in ["list", "recover", "recover --dry-run", "recover"] {
            let report = stage.json(command, 0).await;
            let foreign = report["foreign"].as_array().unwrap();
            let is_shown = |participant: &str, gid: &str| {
                foreign.iter().any(|one| one["participant"] == participant && one["gid"] == *gid)
            };
            assert!(is_shown("ledger", &odd) && is_shown("ledger", &lookalike), "{report:#}");
            assert!(is_shown("orders", &binary), "{report:#}");
            let ran = stage.tool(command).await;
            ran.ended(0).says("never touched").says(&lookalike).says(&binary);
        }
        let listed = stage.mysql.query(&stage.orders, "XA RECOVER").await.unwrap();
        assert!(listed.iter().any(|row| row[0].as_deref() == Some("7")), "{listed:?}");
        assert_eq!(stage.prepared_ledger().await.len(), 2);

        for gid in stage.prepared_ledger().await {
            stage.postgres.query(&stage.ledger, &format!("ROLLBACK PREPARED '{gid}'")).await.unwrap();
        }
        stage.mysql.query(&stage.orders, &format!("XA ROLLBACK {binary}")).await.unwrap();
    }

    /// Another server under a known name is left alone; the others go on.
    async fn another_server_under_a_known_name(other) {
        let stage = Stage::new(other).await;
        let id = crate::stage::killed_at(&stage, Some("COMMIT PREPARED"), Some("XA COMMIT")).await;
        let elsewhere = Stage::new(other).await;
        elsewhere.tool("init").await.ended(0);
        let wrong = stage.path("wrong.toml");
        let bare = stage.bare_config().participant_at("ledger", Flavor::Postgres, &stage.ledger_url(stage.postgres.port()));
        let url = stage.orders_url("app", stage.mysql.port()).replace(&stage.orders, &elsewhere.orders);
        bare.participant_at("orders", other, &url).write(&wrong);

        stage.tool_at(&wrong, "list").await.ended(6).says("another server than the journal knows");
        let ran = stage.tool_at(&wrong, "recover").await;
        ran.ended(6).says("correct participants.orders.url, or bring the right server back");
        let report = stage.tool_at(&wrong, "recover --format json").await.ended(6).json();
        assert_eq!(values(only(&report), &["outcome", "action"]), ["committed", "wait"]);
        assert!(stage.prepared_ledger().await.is_empty(), "the right one goes on");
        assert_eq!(stage.prepared_orders().await.len(), 1, "the other is left alone");
        assert_eq!(elsewhere.rows().await.1, Vec::<String>::new());

        stage.json("recover", 0).await;
        stage.json(&format!("outcome {id}"), 0).await;
        stage.assert_rows(&["1"], &["1"]).await;
        stage.assert_nothing_prepared().await;
    }

    /// The configuration is found by option, by environment, or where it usually is, in this order; and a variable of
    /// the environment lies over the file.
    async fn the_configuration_is_found(other) {
        let stage = Stage::new(other).await;
        stage.tool("init").await.ended(0);
        std::fs::create_dir(stage.path("config")).unwrap();
        std::fs::copy(stage.config_path(), stage.path("config/handfast.toml")).unwrap();
        let usual = || {
            let mut list = crate::stage::tool();
            list.current_dir(stage.directory.path()).arg("list");
            list
        };
        run_to_end(usual()).await.ended(0);
        let mut told = usual();
        told.env("HANDFAST_CONFIG", "/nowhere.toml");
        run_to_end(told).await.ended(2).complains(&["/nowhere.toml"]);
        let mut option = usual();
        option.env("HANDFAST_CONFIG", "/nowhere.toml").arg("--config").arg(stage.config_path());
        run_to_end(option).await.ended(0);
        let mut over = usual();
        over.env("HANDFAST__PARTICIPANTS__ORDERS__URL", format!("mysql://app:{PASSWORD}@127.0.0.1:1/orders"));
        run_to_end(over).await.ended(4).says("cannot connect to 127.0.0.1:1");
    }

    /// For programs, every command prints one object with a status, whatever happens.
    async fn programs_get_one_object(other) {
        let stage = Stage::new(other).await;
        let nowhere = stage.path("nowhere.toml");
        for command in ["list", "recover", "journal verify", "journal dump", "init", "init --print"] {
            let wrong = stage.tool_at(&nowhere, &format!("{command} --format json")).await.ended(2).json();
            assert_eq!(wrong["status"], "refused");
            assert!(wrong["error"].as_str().unwrap().contains("nowhere.toml"), "{wrong:#}");
        }
        let shown = stage.json("init --print", 0).await;
        assert!(shown["participants"][0]["sql"].as_str().unwrap().contains("CREATE TABLE"), "{shown:#}");
        let made = stage.json("init", 0).await;
        assert!(made["participants"][1]["lineage"].is_string() && made["journal"]["id"].is_string(), "{made:#}");
        for command in ["list", "recover", "recover --dry-run", "journal verify", "journal dump"] {
            assert_eq!(stage.json(command, 0).await["status"], "clean");
        }
    }

    /// One server down does not keep the other from being made ready.
    async fn init_with_a_server_down(other) {
        let stage = Stage::new(other).await;
        let path = stage.path("down.toml");
        stage.config_at(stage.postgres.port(), 1).write(&path);
        let ran = stage.tool_at(&path, "init").await;
        ran.ended(4).says("ledger (postgres): ready");
        assert!(ran.stderr.contains("orders: cannot connect to 127.0.0.1:1"), "{ran}");
        stage.tool("init").await.ended(0).says("ledger (postgres): ready").says("orders (");
    }
}
