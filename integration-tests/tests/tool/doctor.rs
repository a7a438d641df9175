//! `handfast doctor`: what is healthy, what is not, and how each ends.

use crate::stage::{Ran, Stage};
use integration_tests::each_pair;
use integration_tests::servers::{self, Flavor, Server};
use serde_json::Value;

/// The findings of a check.
fn findings<'a>(report: &'a Value, participant: Option<&str>, check: &str) -> Vec<&'a Value> {
    let of = |one: &&Value| one["participant"].as_str() == participant && one["check"] == check;
    report["findings"].as_array().unwrap().iter().filter(of).collect()
}

/// The only finding of a check.
#[track_caller]
fn finding<'a>(report: &'a Value, participant: Option<&str>, check: &str) -> &'a Value {
    let all = findings(report, participant, check);
    assert_eq!(all.len(), 1, "{participant:?} {check} in {report:#}");
    all[0]
}

#[track_caller]
fn is(finding: &Value, severity: &str, texts: &[&str]) {
    assert_eq!(finding["severity"], severity, "{finding:#}");
    for text in texts {
        assert!(finding.to_string().contains(text), "{text:?} in {finding:#}");
    }
}

#[track_caller]
fn fits(ran: &Ran) {
    for line in ran.stdout.lines() {
        assert!(line.chars().count() <= 80, "wider than 80 columns: {line:?}");
    }
}

each_pair! {
    /// Where a database keeps the decisions: its table, who may write it, and whose openings are in it.
    async fn an_anchor(other) {
        for anchor in ["ledger", "orders"] {
            let stage = Stage::new(other).await.with_anchor(anchor);
            is(finding(&stage.json("doctor", 0).await, None, "decisions"), "good", &[anchor]);
            stage.tool("init").await.ended(0);
            is(finding(&stage.json("doctor", 0).await, Some(anchor), "anchor"), "good", &["nothing of", "is in it yet"]);
            // Two programs of one node are no strangers to each other, and what is found is what the anchor knows.
            let mut application = stage.application().await;
            let report = stage.json("doctor", 0).await;
            is(finding(&report, Some(anchor), "anchor"), "good", &["entries of", "read and exchanged"]);
            for participant in ["ledger", "orders"] {
                assert!(findings(&report, Some(participant), "node name").is_empty(), "{report:#}");
                let lineage = finding(&report, Some(participant), "lineage");
                is(lineage, "good", &["the data is lineage"]);
                assert!(!lineage.to_string().contains("new to this"), "{lineage:#}");
            }
            application.end().await;

            let (server, database) =
                if anchor == "ledger" { (stage.postgres, &stage.ledger) } else { (stage.mysql, &stage.orders) };
            server.query(database, "ALTER TABLE handfast_anchor RENAME TO elsewhere").await.unwrap();
            let failed = finding(&stage.json("doctor", 2).await, Some(anchor), "anchor").clone();
            is(&failed, "failure", &["cannot be read or written", "handfast init", "CREATE TABLE"]);
        }
    }

    /// From an empty database to a running application: never a failure, nothing written but by `init`.
    async fn healthy(other) {
        let stage = Stage::new(other).await;
        let before = stage.json("doctor", 0).await;
        assert_eq!(before["status"], "clean");
        is(finding(&before, None, "journal"), "note", &["handfast init"]);
        assert_eq!(finding(&before, Some("ledger"), "tables")["cure"], "handfast init");
        is(finding(&before, Some("ledger"), "probe"), "good", &[]);
        is(finding(&before, Some("orders"), "probe"), "good", &[]);
        let tables = "SELECT count(*) FROM information_schema.tables WHERE table_name LIKE 'handfast%'";
        assert_eq!(stage.postgres.value(&stage.ledger, tables).await.unwrap().as_deref(), Some("0"));

        stage.tool("init").await.ended(0);
        let ran = stage.tool("doctor").await;
        ran.ended(0).says("checks good").says("0 failed");
        fits(&ran);
        let report = stage.json("doctor", 0).await;
        for one in report["findings"].as_array().unwrap().iter().filter(|one| !one["participant"].is_null()) {
            assert!(one["severity"] == "good" || one["check"] == "who waits", "{one:#}");
        }
        let ran = stage.tool("doctor --all").await;
        ran.ended(0).says("a branch was prepared, listed and rolled back");
        fits(&ran);
    }
}

async fn own(flavor: Flavor) -> &'static Server {
    Box::leak(Box::new(servers::start(flavor).await))
}

/// What is printed of the participants; what the journal of this test lies on is the machine's.
fn of_participants(ran: &Ran) -> String {
    let from = ran.stdout.find("ledger (postgres)").unwrap_or_else(|| panic!("{ran}"));
    let to = ran.stdout.rfind("\n\n").unwrap_or_else(|| panic!("{ran}"));
    ran.stdout[from..=to].to_owned()
}

/// Compares with what was printed when somebody last read it; what changes from run to run is replaced.
fn golden(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.add_filter(r"PostgreSQL [0-9.]+", "PostgreSQL VERSION");
    settings.add_filter(r"(MariaDB|MySQL) [0-9][^ \n]*", "$1 VERSION");
    settings.add_filter(r"127\.0\.0\.1:[0-9]+", "127.0.0.1:PORT");
    settings.add_filter(r"\b[0-9a-f]{16}\b", "xxxxxxxxxxxxxxxx");
    settings.bind(|| insta::assert_snapshot!(name, text));
}

each_pair! {
    /// Word for word: all that is good, and what is not.
    async fn output(other) {
        let (postgres, mysql) = tokio::join!(own(Flavor::Postgres), own(other));
        let [ledger, orders, node] = ["ledger", "orders", "orders-api-1"].map(str::to_owned);
        let stage = Stage::named(postgres, mysql, ledger, orders, node).await;
        stage.tool("init").await.ended(0);
        let ran = stage.tool("doctor --all").await;
        fits(&ran);
        golden(&format!("doctor_healthy_{other}"), &of_participants(ran.ended(0)));

        stage.postgres.query("ledger", "BEGIN; PREPARE TRANSACTION 'nightly import 7'").await.unwrap();
        stage.postgres.query("ledger", "CREATE UNLOGGED TABLE cart (n int)").await.unwrap();
        stage.postgres.query("ledger", "ALTER TABLE handfast_witness SET UNLOGGED").await.unwrap();
        stage.mysql.query("orders", "SET GLOBAL innodb_flush_log_at_trx_commit = 2").await.unwrap();
        stage.mysql.query("orders", "SET GLOBAL wait_timeout = 10").await.unwrap();
        stage.mysql.query("orders", "CREATE TABLE log (n int) ENGINE=MyISAM").await.unwrap();
        stage.mysql.query("orders", "REVOKE ALL ON orders.* FROM app; GRANT SELECT ON orders.* TO app").await.unwrap();
        let ran = stage.tool("doctor").await;
        fits(&ran);
        golden(&format!("doctor_sick_{other}"), &of_participants(ran.ended(2)));
    }

    /// With an application that runs: its journal is in use, which is as it should be, and it is not disturbed.
    async fn beside_an_application(other) {
        let stage = Stage::new(other).await;
        let mut application = stage.application().await;
        let id = application.write(1).await;
        let report = stage.json("doctor", 0).await;
        is(finding(&report, None, "lock"), "note", &["in use by process", "running application"]);
        for participant in ["ledger", "orders"] {
            is(finding(&report, Some(participant), "probe"), "good", &[]);
            is(finding(&report, Some(participant), "lineage"), "good", &["the data is lineage"]);
        }
        application.tell("commit").await;
        assert_eq!(application.committed().await, id);
        application.end().await;
        stage.assert_rows(&["1"], &["1"]).await;
        stage.assert_nothing_prepared().await;
    }

    /// One server cannot be reached: the other is checked all the same.
    async fn a_server_is_down(other) {
        let stage = Stage::with_own_mysql(other).await;
        stage.tool("init").await.ended(0);
        stage.mysql.kill().await.unwrap();
        let report = stage.json("doctor", 4).await;
        assert_eq!((&report["status"], &report["participants"][1]["reachable"]), (&"unreachable".into(), &false.into()));
        is(finding(&report, Some("orders"), "connection"), "failure", &["cannot connect to 127.0.0.1"]);
        is(finding(&report, Some("ledger"), "probe"), "good", &[]);
        let ran = stage.tool("doctor").await;
        ran.ended(4).says("FAILURE connection: cannot connect").says("1 failed");
        fits(&ran);
    }

    /// A server that takes connections and answers nothing.
    async fn a_server_hangs(other) {
        let stage = Stage::with_own_mysql(other).await;
        stage.mysql.suspend().await.unwrap();
        stage.tool("doctor").await.ended(4).says("no answer within 5s");
        stage.mysql.resume().await.unwrap();
        stage.tool("doctor").await.ended(0);
    }

    /// Other data under a known name, and two names for one database.
    async fn the_wrong_data(other) {
        let stage = Stage::new(other).await;
        stage.application().await.end().await;
        let tables = ["handfast_incarnation", "handfast_witness"];
        for table in tables {
            stage.mysql.query(&stage.orders, &format!("DROP TABLE {table}")).await.unwrap();
        }
        let report = stage.json("doctor", 6).await;
        is(finding(&report, Some("orders"), "lineage"), "failure", &["no tables of Handfast", "handfast adopt"]);
        stage.tool("doctor").await.ended(6).says("another server than the journal knows");

        let twice = stage.path("twice.toml");
        let twin = stage.orders_url("app", stage.mysql.port());
        stage.config().participant_at("twin", stage.mysql.flavor(), &twin).write(&twice);
        stage.tool_at(&twice, "init").await.ended(0);
        let ran = stage.tool_at(&twice, "--format json doctor").await;
        ran.ended(6);
        is(finding(&ran.json(), Some("orders"), "same database"), "note", &["twin has the same tables"]);
        is(finding(&ran.json(), Some("twin"), "same database"), "note", &["orders has the same tables"]);
    }

    /// What is in the way on both servers: named with its cure, each for itself, and the worst says how it ends.
    async fn what_is_missing(other) {
        let stage = Stage::with_own_mysql(other).await;
        stage.tool("init").await.ended(0);
        stage.mysql.query(&stage.orders, "CREATE TABLE log (n int) ENGINE=MyISAM").await.unwrap();
        stage.mysql.query(&stage.orders, "SET GLOBAL innodb_flush_log_at_trx_commit = 0").await.unwrap();
        let report = stage.json("doctor", 2).await;
        assert_eq!(report["status"], "refused");
        let flush = finding(&report, Some("orders"), "innodb_flush_log_at_trx_commit");
        is(flush, "failure", &["innodb_flush_log_at_trx_commit is 0, not 1", "innodb_flush_log_at_trx_commit = 1"]);
        is(finding(&report, Some("orders"), "other tables"), "warning", &["log (MyISAM)"]);
        let ran = stage.tool("doctor").await;
        ran.ended(2).says("FAILURE innodb_flush_log_at_trx_commit").says("warning other tables: 1 table(s)");
        fits(&ran);
        let accepted = stage.path("accepted.toml");
        stage.config().with("allow_unsafe = true").write(&accepted);
        stage.tool_at(&accepted, "doctor").await.ended(0).says("accepted by allow_unsafe = true");
    }

    /// Where the journal lies, and whether it can be read.
    async fn the_journal(other) {
        let stage = Stage::new(other).await;
        stage.tool("init").await.ended(0);
        let path = stage.path("elsewhere.toml");
        let at = |directory: &std::path::Path| stage.config_with_journal(directory).write(&path);
        at(&stage.path("nowhere"));
        let ran = stage.tool_at(&path, "--format json doctor").await;
        ran.ended(2);
        is(finding(&ran.json(), None, "journal directory"), "failure", &["nowhere is no directory", "handfast init"]);
        is(finding(&ran.json(), Some("ledger"), "probe"), "good", &[]);

        let memory = std::path::Path::new("/dev/shm");
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        assert!(mounts.contains(" /dev/shm tmpfs "), "this test needs /dev/shm to be what it is on every Linux");
        let directory = tempfile::tempdir_in(memory).unwrap();
        at(directory.path());
        let ran = stage.tool_at(&path, "--format json doctor").await;
        ran.ended(2);
        is(finding(&ran.json(), None, "file system"), "failure", &["the journal is on tmpfs", "move the directory to a disk"]);

        let segments = std::fs::read_dir(stage.journal()).unwrap().map(|entry| entry.unwrap().path());
        let segment = segments.filter(|path| path.to_string_lossy().contains("segment-")).min().unwrap();
        std::fs::write(&segment, vec![b'x'; 4096]).unwrap();
        let report = stage.json("doctor", 7).await;
        assert_eq!(report["status"], "corrupt");
        is(finding(&report, None, "journal"), "failure", &["corrupt: segment-", "handfast journal verify"]);
    }
}
