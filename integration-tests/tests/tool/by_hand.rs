//! What a person does when recovery cannot: another server is accepted, a corrupt journal repaired, a lost decision made.

use crate::golden::{self, show};
use crate::stage::{PASSWORD, Stage, killed_at, only, values};
use integration_tests::each_pair;
use integration_tests::servers::{self, Flavor, Server};

each_pair! {
    /// D12: the server is gone with what it held, and another is there under its name. Refused, then adopted; what was
    /// decided and cannot be known is damage, once and for all.
    async fn another_server_is_adopted(other) {
        let stage = golden::stage(other).await;
        let id = killed_at(&stage, Some("COMMIT PREPARED"), Some("XA COMMIT")).await;
        stage.mysql.kill().await.unwrap();
        let successor = successor(other).await;
        stage.config_at(stage.postgres.port(), successor.port()).write(&stage.config_path());

        let refused = stage.json("list", 6).await;
        assert_eq!(refused["status"], "refused");
        let adopt = "adopt orders --reason=failover_to_the_standby";
        show(&stage, "adopted", &["list", adopt, adopt, &format!("explain {id}"), "recover"]).await;
        assert!(stage.prepared_ledger().await.is_empty(), "the other is settled");
        assert_eq!(stage.tool(&format!("outcome {id}")).await.ended(5).stdout, "damaged\n");
        stage.tool("journal dump").await.ended(0).says("failover to the standby");
        stage.tool_with(&["forget", &id, "--reason", "paid by hand", "--yes"]).await.ended(0);
        stage.json("recover", 0).await;
    }

    /// A participant was taken out of the configuration for good.
    async fn a_server_that_is_gone(other) {
        let stage = golden::stage(other).await;
        let id = killed_at(&stage, None, Some("XA PREPARE")).await;
        stage.mysql.kill().await.unwrap();
        stage.tool("recover").await.ended(4);
        // Out of the configuration first: else the tool's own opening goes by it as well.
        let ledger = stage.ledger_url(stage.postgres.port());
        stage.bare_config().participant_at("ledger", Flavor::Postgres, &ledger).write(&stage.config_path());
        let ran = stage.tool("recover").await;
        ran.ended(4).says("orders is not configured any more");
        let ran = stage.tool_with(&["adopt", "orders", "--gone", "--reason", "the machine burnt down"]).await;
        ran.ended(0).says("given up: what the former server of orders held").says("no decided transaction is lost");
        let ran = stage.tool_with(&["adopt", "nobody", "--gone", "--reason", "tidy"]).await;
        assert!(ran.ended(2).stderr.contains("ever worked on nobody"), "{ran}");
        stage.json("recover", 0).await;
        // Whether it committed there alone, nobody can tell any more.
        assert_eq!(stage.tool(&format!("outcome {id}")).await.ended(3).stdout, "in_doubt\n");
    }

    /// D47: a corrupt journal stops everything, and says how to go on: repaired, the lost decision is a person's.
    async fn a_corrupt_journal_is_repaired(other) {
        let stage = golden::stage(other).await;
        let id = killed_at(&stage, None, Some("XA COMMIT")).await;
        destroy_decision(&stage).await;
        let repair = "journal repair --reason=disk_replaced";
        show(&stage, "corrupt", &["recover", "list", repair, &format!("{repair} --yes")]).await;
        let (explain, resolve) =
            (format!("explain {id}"), format!("resolve {id} --commit --reason=the_ledger_has_it"));
        show(&stage, "resolved", &["recover", &explain, &resolve, &explain]).await;
        stage.assert_rows(&["1"], &["1"]).await;
        stage.assert_nothing_prepared().await;
        let audit = only(&stage.json(&explain, 0).await)["audit"].clone();
        let resolved = audit.as_array().unwrap().iter().find(|one| one["what"] == "resolved_commit").unwrap();
        assert_eq!(values(resolved, &["why"]), ["the ledger has it"]);
        stage.json("recover", 0).await;
        assert_eq!(stage.tool(&format!("outcome {id}")).await.ended(0).stdout, "committed\n");
    }
}

/// A server of the same kind, with the same names, and nothing of the former in it.
async fn successor(flavor: Flavor) -> Server {
    let server = servers::start(flavor).await;
    server.create_database("orders").await.unwrap();
    let mut sql = format!(
        "CREATE USER 'app'@'%' IDENTIFIED BY '{PASSWORD}'; GRANT ALL ON orders.* TO 'app'@'%'; \
         CREATE TABLE orders.entry (n bigint PRIMARY KEY) ENGINE=InnoDB"
    );
    if flavor == Flavor::MySql {
        sql += "; GRANT XA_RECOVER_ADMIN ON *.* TO 'app'@'%'";
    }
    server.query("orders", &sql).await.unwrap();
    server
}

/// Overwrites the record of the one decision.
async fn destroy_decision(stage: &Stage) {
    use std::os::unix::fs::FileExt;
    let dump = stage.json("journal dump", 0).await;
    let decision = |entry: &&serde_json::Value| entry["entry"].as_str().unwrap().starts_with("commit ");
    let entry = dump["entries"].as_array().unwrap().iter().find(decision).unwrap();
    let path = stage.journal().join(entry["file"].as_str().unwrap());
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&[0xa5; 20], entry["offset"].as_u64().unwrap() + 24).unwrap();
}
