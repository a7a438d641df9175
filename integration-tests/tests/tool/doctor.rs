//! `handfast doctor`: what is healthy, what is not, and how each ends.

use crate::stage::{Ran, Stage};
use integration_tests::each_pair;
use integration_tests::servers::{self, Flavor};
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
        ran.ended(0).says("checks good").says("0 failed, 0 warnings");
        fits(&ran);
        let ran = stage.tool("doctor --all").await;
        ran.ended(0).says("a branch was prepared, listed and rolled back");
        fits(&ran);
    }
}
