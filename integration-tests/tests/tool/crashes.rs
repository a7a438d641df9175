//! An application is killed in the middle of a commit; then the tool is asked, and asked to mend it.

use crate::stage::{Network, Stage, branch, killed_at, only, values};
use integration_tests::conformance::eventually;
use integration_tests::each_pair;

each_pair! {
    /// Killed between prepare and decision: nothing was promised, everything is rolled back.
    async fn between_prepare_and_decision(other) {
        let stage = Stage::new(other).await;
        let id = killed_at(&stage, None, Some("XA PREPARE")).await;
        let gid = stage.prepared_ledger().await.pop().unwrap();

        let seen = stage.json("list", 3).await;
        let one = only(&seen);
        assert_eq!(values(one, &["id", "decision", "outcome", "action"]), [&*id, "none", "rolled_back", "roll_back"]);
        let ledger = branch(one, "ledger");
        assert_eq!(values(ledger, &["gid", "state", "evidence", "action"]), [&*gid, "prepared", "not_asked", "roll_back"]);
        assert!(ledger["age_seconds"].is_u64(), "{ledger:#}");
        assert_eq!(seen["status"], "in_doubt");
        assert_eq!(seen["participants"][0]["prepared"], 1);
        stage.tool("list").await.ended(3).says(&gid).says("to be rolled back").says("run `handfast recover`");

        let planned = stage.json("recover --dry-run", 3).await;
        assert_eq!(only(&planned)["action"], "roll_back");
        assert_eq!(stage.prepared_ledger().await, [&*gid], "a dry run changes nothing");

        let recovered = stage.json("recover", 0).await;
        let one = only(&recovered);
        assert_eq!((&one["outcome"], &one["done"]), (&"rolled_back".into(), &true.into()), "{recovered:#}");
        assert_eq!(branch(one, "ledger")["done"], true);
        assert_eq!(recovered["participants"][0]["prepared"], 0);
        settled(&stage, &[&id, &gid], "rolled_back", &[]).await;
    }

    /// Killed when all had prepared and the last answer was not in: still nothing was promised.
    async fn all_prepared_and_no_decision(other) {
        let stage = Stage::new(other).await;
        let network = Network::before(&stage).await;
        let mut application = stage.application_behind(&network).await;
        let id = application.write(1).await;
        let answer = network.mysql.on("XA PREPARE").hold_answer();
        application.tell("commit").await;
        answer.fired().await;
        let both = async || (stage.prepared_ledger().await.len(), stage.prepared_orders().await.len()) == (1, 1);
        eventually("both are prepared", both).await;
        application.kill().await;
        network.sever();

        let seen = stage.json("list", 3).await;
        for participant in ["ledger", "orders"] {
            assert_eq!(values(branch(only(&seen), participant), &["state", "action"]), ["prepared", "roll_back"]);
        }
        stage.tool("recover").await.ended(0).says("0 committed, 1 rolled back");
        settled(&stage, &[&id], "rolled_back", &[]).await;
    }

    /// Killed between decision and phase two: the commit was decided, so it is carried out.
    async fn between_decision_and_phase_two(other) {
        let stage = Stage::new(other).await;
        let id = killed_at(&stage, Some("COMMIT PREPARED"), Some("XA COMMIT")).await;
        let gid = stage.prepared_ledger().await.pop().unwrap();

        let seen = stage.json("list", 3).await;
        let one = only(&seen);
        assert_eq!(values(one, &["id", "decision", "outcome", "action"]), [&*id, "commit", "committed", "commit"]);
        for participant in ["ledger", "orders"] {
            let branch = branch(one, participant);
            assert_eq!(values(branch, &["state", "evidence", "action"]), ["prepared", "not_asked", "commit"]);
        }
        stage.tool("list").await.ended(3).says("decided to commit").says("to be committed");
        stage.tool("recover --dry-run").await.ended(3).says("to be committed");
        stage.assert_rows(&[], &[]).await;

        let ran = stage.tool("recover").await;
        ran.ended(0).says("recovered: 1 committed, 0 rolled back; left: 0 waiting, 0 damaged");
        settled(&stage, &[&id, &gid], "committed", &["1"]).await;
    }

    /// Killed when one side had committed and the other had not heard of it.
    async fn in_the_middle_of_phase_two(other) {
        let stage = Stage::new(other).await;
        let id = killed_at(&stage, Some("COMMIT PREPARED"), None).await;

        let seen = stage.json("list", 3).await;
        let one = only(&seen);
        assert_eq!(values(branch(one, "ledger"), &["state", "action"]), ["prepared", "commit"]);
        // Not found is not committed: the witness says that it is.
        let orders = values(branch(one, "orders"), &["state", "evidence", "action"]);
        assert_eq!(orders, ["not_prepared", "committed", "finish"]);

        let recovered = stage.json("recover", 0).await;
        assert_eq!(values(only(&recovered), &["outcome", "action"]), ["committed", "commit"]);
        settled(&stage, &[&id], "committed", &["1"]).await;
    }

    /// A decision that reached the file, and of which nobody can say whether it reached the disk: the list does not
    /// know it for certain, recovery makes it so.
    async fn decided_a_moment_ago(other) {
        let stage = Stage::new(other).await;
        let id = killed_at(&stage, Some("COMMIT PREPARED"), Some("XA COMMIT")).await;
        erase_last_mark(&stage).await;

        let seen = stage.json("list", 3).await;
        // row: unsure
        assert_eq!(values(only(&seen), &["decision", "outcome", "action"]), ["unsure", "in_doubt", "wait"]);
        let ran = stage.tool("recover --dry-run").await;
        ran.ended(3).says("decision not known to be durable").says("makes it so and commits").says("run `handfast recover`");
        stage.tool("journal verify").await.ended(0).says("1 record beyond the last synced mark");

        stage.tool("recover").await.ended(0).says("1 committed");
        settled(&stage, &[&id], "committed", &["1"]).await;
    }

    /// The network fails under the recovery itself: what was not answered is looked at again.
    async fn a_recovery_that_loses_answers(other) {
        let stage = Stage::new(other).await;
        let network = Network::before(&stage).await;
        let path = stage.path("behind-proxies-of-its-own.toml");
        stage.config_at(network.postgres.port(), network.mysql.port()).write(&path);

        let undecided = killed_at(&stage, None, Some("XA PREPARE")).await;
        let lost = network.postgres.on("ROLLBACK PREPARED").cut();
        stage.tool_at(&path, "recover").await.ended(0).says("1 rolled back");
        assert_eq!((lost.times(), network.postgres.count("ROLLBACK PREPARED")), (1, 2));
        settled(&stage, &[&undecided], "rolled_back", &[]).await;

        let decided = killed_at(&stage, Some("COMMIT PREPARED"), Some("XA COMMIT")).await;
        let lost = [network.postgres.on("COMMIT PREPARED").cut_answer(), network.mysql.on("XA COMMIT").cut_answer()];
        stage.tool_at(&path, "recover").await.ended(0).says("1 committed");
        assert_eq!(lost.each_ref().map(integration_tests::proxy::Rule::times), [1, 1]);
        settled(&stage, &[&decided], "committed", &["1"]).await;
    }

    /// A server that takes connections and answers nothing: no command waits for ever.
    async fn with_a_server_that_hangs(other) {
        let stage = Stage::with_own_mysql(other).await;
        let id = killed_at(&stage, Some("COMMIT PREPARED"), Some("XA COMMIT")).await;
        stage.mysql.suspend().await.unwrap();
        stage.tool("list").await.ended(4).says("no answer within 5s");
        stage.tool("recover").await.ended(4).says("has to wait");
        assert!(stage.prepared_ledger().await.is_empty(), "settled where it can be");
        stage.mysql.resume().await.unwrap();
        stage.json("recover", 0).await;
        settled(&stage, &[&id], "committed", &["1"]).await;
    }

    /// An outcome is found out without a recovery before it, and the question settles the transaction.
    async fn outcome_asked_for_first(other) {
        let stage = Stage::new(other).await;
        let id = killed_at(&stage, None, Some("XA PREPARE")).await;
        settled(&stage, &[&id], "rolled_back", &[]).await;
    }

    /// The application itself does what `recover` does, when it is started again.
    async fn a_restarted_application_recovers(other) {
        let stage = Stage::new(other).await;
        let id = killed_at(&stage, Some("COMMIT PREPARED"), Some("XA COMMIT")).await;
        let mut application = stage.application().await;
        stage.tool("list").await.ended(0);
        application.end().await;
        settled(&stage, &[&id], "committed", &["1"]).await;
    }

    /// One server is down: the other's branches are settled, the rest waits for it.
    async fn with_a_server_down(other) {
        let stage = Stage::with_own_mysql(other).await;
        let network = Network::before(&stage).await;
        let mut application = stage.application_behind(&network).await;

        let held = [network.postgres.on("COMMIT PREPARED").hold(), network.mysql.on("XA COMMIT").hold()];
        let decided = application.write(1).await;
        application.tell("commit").await;
        held[0].fired().await;
        held[1].fired().await;
        let prepare = network.mysql.on("XA PREPARE").hold();
        let undecided = application.write(2).await;
        application.tell("commit").await;
        prepare.fired().await;
        eventually("both are prepared in the ledger", async || stage.prepared_ledger().await.len() == 2).await;
        application.kill().await;
        network.sever();
        stage.mysql.kill().await.unwrap();

        let seen = stage.json("list", 4).await;
        let orders = &seen["participants"][1];
        assert_eq!((&orders["name"], &orders["reachable"]), (&"orders".into(), &false.into()));
        assert!(orders["prepared"].is_null() && orders["cause"].as_str().unwrap().contains("refused"), "{orders:#}");
        assert_eq!(seen["status"], "unreachable");

        let recovered = stage.json("recover", 4).await;
        let all = recovered["transactions"].as_array().unwrap();
        let one = |id: &str| all.iter().find(|one| one["id"] == *id).unwrap_or_else(|| panic!("{recovered:#}"));
        assert_eq!(values(one(&decided), &["decision", "outcome", "action"]), ["commit", "committed", "wait"]);
        assert_eq!(branch(one(&decided), "ledger")["done"], true);
        assert_eq!(branch(one(&decided), "orders")["action"], "wait");
        assert_eq!(values(one(&undecided), &["outcome", "action"]), ["rolled_back", "roll_back"]);
        assert!(stage.prepared_ledger().await.is_empty(), "settled where it can be");
        stage.tool("recover").await.ended(4).says("has to wait").says("mend what orders reports above");
        stage.json(&format!("outcome {decided}"), 0).await;

        stage.mysql.restart().await.unwrap();
        stage.json("recover", 0).await;
        settled(&stage, &[&decided], "committed", &["1"]).await;
        settled(&stage, &[&undecided], "rolled_back", &["1"]).await;
    }

    /// Somebody rolled a branch back after the decision: said every time, and touched never.
    async fn rolled_back_by_hand(other) {
        let stage = Stage::new(other).await;
        let id = killed_at(&stage, Some("COMMIT PREPARED"), Some("XA COMMIT")).await;
        let listed = stage.json("list", 3).await;
        let gids = ["ledger", "orders"].map(|name| branch(only(&listed), name)["gid"].as_str().unwrap().to_owned());
        let xid = gids[1].parse::<handfast::id::BranchId>().unwrap().xid_sql();
        // On MariaDB nobody can before the dead application's session is gone.
        let roll_back = format!("XA ROLLBACK {xid}");
        eventually("rolled back by hand", async || stage.mysql.query(&stage.orders, &roll_back).await.is_ok()).await;

        // Before anybody asked, the list cannot know whether it committed.
        let seen = stage.json("list", 3).await;
        assert_eq!(values(branch(only(&seen), "orders"), &["state", "evidence", "action"]), ["not_prepared", "nothing", "ask"]);
        for command in ["recover", "recover", "list", "recover --dry-run"] {
            assert_eq!(stage.tool(&format!("outcome {}", gids[1])).await.ended(5).stdout, "damaged\n");
            let ran = stage.tool(command).await;
            ran.ended(5).says(&gids[0]).says(&gids[1]).says("DAMAGED").says("a person has to compare");
            let report = stage.json(command, 5).await;
            assert_eq!(values(only(&report), &["id", "decision", "outcome", "action"]), [&*id, "commit", "damaged", "damage"]);
            assert_eq!(branch(only(&report), "orders")["evidence"], "never_committed");
        }
        stage.assert_nothing_prepared().await;
        stage.assert_rows(&["1"], &[]).await;
    }
}

/// Nothing is left: not on the servers, not for the tool, and the outcome is known by every id.
async fn settled(stage: &Stage, ids: &[&str], outcome: &str, rows: &[&str]) {
    for id in ids {
        let ran = stage.tool(&format!("outcome {id}")).await;
        assert_eq!((ran.code, &*ran.stdout), (0, &*format!("{outcome}\n")), "{ran}");
        assert_eq!(only(&stage.json(&format!("outcome {id}"), 0).await)["outcome"], outcome);
    }
    stage.assert_nothing_prepared().await;
    stage.assert_rows(rows, rows).await;
    for command in ["recover", "list"] {
        let report = stage.json(command, 0).await;
        assert_eq!(
            (&report["status"], &report["transactions"]),
            (&"clean".into(), &serde_json::json!([])),
            "{report:#}"
        );
    }
    stage.tool("journal verify").await.ended(0).says("clean");
}

/// Leaves the journal as it is when a program dies right between the sync of a decision and the mark that says so.
async fn erase_last_mark(stage: &Stage) {
    use std::os::unix::fs::FileExt;
    let dump = stage.json("journal dump", 0).await;
    let last = dump["entries"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["entry"], &last["standing"]), (&"mark".into(), &"-".into()));
    let path = stage.journal().join(last["file"].as_str().unwrap());
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    let length = usize::try_from(last["length"].as_u64().unwrap()).unwrap();
    file.write_all_at(&vec![0; length], last["offset"].as_u64().unwrap()).unwrap();
}
