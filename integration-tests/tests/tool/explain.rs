//! `handfast explain`: all about one transaction, in each situation in which somebody will ask.

use crate::golden::{self, clear, roll_back_by_hand, show};
use crate::stage::{Network, branch, killed_at, only, values};
use handfast::id::{BranchId, hex};
use integration_tests::conformance::eventually;
use integration_tests::each_pair;

each_pair! {
    /// The ledger has committed, the orders have not heard of it: what happened, what will be done and why, how to do it
    /// by hand; in less than 25 lines of 80 columns. And by whatever name somebody has of it.
    async fn half_committed(other) {
        let stage = golden::stage(other).await;
        let id = killed_at(&stage, None, Some("XA COMMIT")).await;
        let ran = stage.tool(&format!("explain {id}")).await;
        ran.ended(3);
        assert!(ran.stdout.lines().count() < 25, "{ran}");
        show(&stage, "explain_half_committed", &[&format!("explain {id}"), &format!("--format json explain {id}")]).await;

        let orders: BranchId = format!("{id}.1.0").parse().unwrap();
        let joined = format!("{}{}", orders.gtrid(), orders.bqual());
        let hexed = format!("0x{}", hex(joined.as_bytes()).to_uppercase());
        for name in [format!("{id}.0.0"), orders.to_string(), orders.xid_sql(), joined, hexed] {
            let again = stage.tool(&format!("explain {name}")).await;
            assert_eq!(without_ages(&again.ended(3).stdout), without_ages(&ran.stdout), "by {name}");
        }

        // The statement is exact: it does what it says.
        let explained = only(&stage.json(&format!("explain {id}"), 3).await).clone();
        let statements = explained["statements"].as_array().unwrap();
        assert_eq!(statements.len(), 1, "{explained:#}");
        assert_eq!(values(&statements[0], &["participant", "resolution"]), ["orders", "commit"]);
        let statement = statements[0]["statement"].as_str().unwrap();
        assert!(ran.stdout.lines().any(|line| line == statement), "{statement:?} as it is: {ran}");
        let typed = statement.trim_end_matches(';');
        eventually("typed by hand", async || stage.mysql.query(&stage.orders, typed).await.is_ok()).await;
        stage.assert_rows(&["1"], &["1"]).await;
        stage.json("recover", 0).await;
        show(&stage, "explain_committed", &[&format!("explain {id}")]).await;
    }

    async fn rolled_back(other) {
        let stage = golden::stage(other).await;
        let id = killed_at(&stage, None, Some("XA PREPARE")).await;
        show(&stage, "explain_undecided", &[&format!("explain {id}")]).await;
        stage.json("recover", 0).await;
        show(&stage, "explain_rolled_back", &[&format!("explain {id}")]).await;
        assert_eq!(only(&stage.json(&format!("explain {id}"), 0).await)["outcome"], "rolled_back");
    }

    /// What nobody knows, what is others', and what may be two.
    async fn not_ours(other) {
        let stage = golden::stage(other).await;
        stage.tool("init").await.ended(0);
        stage.postgres.query("ledger", "BEGIN; PREPARE TRANSACTION 'nightly import 7'").await.unwrap();
        let xid = "X'00ff275c',X'0d0a',7";
        let sql = format!("XA START {xid}; INSERT INTO entry VALUES (7); XA END {xid}; XA PREPARE {xid}");
        stage.mysql.query("orders", &sql).await.unwrap();
        let nobody = "hf1.somebody.0123456789abcdef.1";
        show(&stage, "explain_not_ours", &[&format!("explain {nobody}"), &format!("explain {xid}"), "explain x",
            "explain hf1.orders-api-1.0123456789abcdef.12341.0"]).await;
        let ran = stage.tool_with(&["explain", "nightly import 7"]).await;
        ran.ended(0).says("not this journal's, never touched").says("ROLLBACK PREPARED 'nightly import 7';");
        let object = stage.json(&format!("explain {nobody}"), 2).await;
        assert_eq!(values(only(&object), &["id", "outcome"]), [nobody, "unknown"]);
        assert_eq!(stage.json(&format!("explain {xid}"), 0).await["foreign"][0]["gid"], xid);

        // The statement for the owner is exact as well.
        let shown = stage.tool(&format!("explain {xid}")).await;
        let roll_back = shown.stdout.lines().find(|line| line.starts_with("XA ROLLBACK")).unwrap().trim_end_matches(';');
        eventually("rolled back by its owner", async || stage.mysql.query("orders", roll_back).await.is_ok()).await;
    }

    /// Beside an application that is at work on it, and with a server down.
    async fn at_work_and_out_of_reach(other) {
        let stage = golden::stage(other).await;
        let network = Network::before(&stage).await;
        let mut application = stage.application_behind(&network).await;
        let held = [network.postgres.on("COMMIT PREPARED").hold(), network.mysql.on("XA COMMIT").hold()];
        let id = application.write(2).await;
        application.tell("commit").await;
        held[0].fired().await;
        held[1].fired().await;
        show(&stage, "explain_live", &[&format!("explain {id}")]).await;
        application.kill().await;
        network.sever();
        stage.mysql.kill().await.unwrap();
        show(&stage, "explain_server_down", &[&format!("explain {id}")]).await;
        let explained = stage.json(&format!("explain {id}"), 4).await;
        assert_eq!(branch(only(&explained), "orders")["state"], "not_scanned");
        assert!(branch(only(&explained), "orders")["waiting"].is_null(), "{explained:#}");
        stage.mysql.restart().await.unwrap();
        stage.json("recover", 0).await;
    }

    /// A branch was rolled back by hand against the decision (D21): told until a person has dealt with it, and to be
    /// read in the journal ever after.
    async fn damaged_and_forgotten(other) {
        let stage = golden::stage(other).await;
        let id = killed_at(&stage, Some("COMMIT PREPARED"), Some("XA COMMIT")).await;
        roll_back_by_hand(&stage, &id).await;
        stage.tool("recover").await.ended(5);
        let (explain, forget) = (format!("explain {id}"), format!("forget {id} --reason=payment_booked_again --yes"));
        let resolve = format!("resolve {id} --rollback --reason=try");
        show(&stage, "damaged_and_forgotten", &[&explain, &resolve, &forget, &explain, "list", &format!("outcome {id}")]).await;
        stage.tool("journal dump").await.ended(0).says("forgotten").says("payment booked again");
        let audit = only(&stage.json(&explain, 0).await)["audit"].clone();
        assert_eq!(values(&audit[0], &["what"]), ["damaged"], "{audit:#}");
        assert_eq!(values(&audit[1], &["what", "why"]), ["forgotten", "payment booked again"], "{audit:#}");
        stage.json("recover", 0).await;
        clear(&stage).await;

        // Not damaged, so not to be forgotten.
        let id = killed_at(&stage, None, Some("XA PREPARE")).await;
        let ran = stage.tool_with(&["forget", &id, "--reason", "tidy", "--yes"]).await;
        assert!(ran.ended(6).stderr.contains("it is not damaged"), "{ran}");
        let refused = stage.json(&format!("forget {id} --reason tidy --yes"), 6).await;
        assert_eq!(refused["status"], "refused");
        assert!(refused["error"].as_str().unwrap().contains("it is not damaged"), "{refused:#}");
    }

    /// The journal was lost, the branches were not (D11): listed with evidence, resolved by a person.
    async fn orphans_of_a_lost_journal(other) {
        let stage = golden::stage(other).await;
        let id = killed_at(&stage, None, Some("XA COMMIT")).await;
        std::fs::remove_dir_all(stage.journal()).unwrap();
        std::fs::create_dir(stage.journal()).unwrap();
        stage.tool("init").await.ended(0);
        let resolve = format!("resolve {id} --commit --reason=the_ledger_has_it");
        let explain = format!("explain {id}");
        show(&stage, "orphans", &["list", "recover", &explain, &resolve, &explain]).await;
        stage.assert_rows(&["1"], &["1"]).await;
        stage.assert_nothing_prepared().await;
        stage.tool("journal dump").await.ended(0).says("the ledger has it");
        stage.json("recover", 0).await;
        stage.json("list", 0).await;
        assert_eq!(stage.tool(&format!("outcome {id}")).await.ended(0).stdout, "committed\n");
    }
}

fn without_ages(text: &str) -> String {
    let age = |word: &&str| word.parse::<u64>().is_err();
    text.split_whitespace().filter(age).collect::<Vec<_>>().join(" ")
}
