//! The captures of `docs/guide/at-a-glance.md`: what commands really printed, from a transaction that was killed in the
//! middle. `scripts/captures` writes them into the page; here the page is compared with what is printed today.

use crate::golden::{host, stage, transcript, varying};
use crate::stage::{Network, Stage};
use integration_tests::servers::Flavor;
use integration_tests::test_with_servers;
use regex::Regex;
use std::path::{Path, PathBuf};

/// Set by `scripts/captures`.
const WRITE: &str = "HANDFAST_WRITE_CAPTURES";

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("docs/guide/at-a-glance.md")
}

test_with_servers! { postgres_mariadb: the_page_shows_what_is_printed(MariaDb) }

async fn the_page_shows_what_is_printed(other: Flavor) {
    let stage = stage(other).await;
    let captured = play(&stage).await;
    let text = std::fs::read_to_string(page()).unwrap();
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(page(), with_captures(&text, &captured)).unwrap();
        return;
    }
    let shown: Vec<_> = blocks(&text).collect();
    assert_eq!(shown.len(), captured.len(), "scripts/captures writes them");
    for (shown, captured) in shown.iter().zip(&captured) {
        assert_eq!(compared(&stage, shown), compared(&stage, captured), "scripts/captures writes it anew");
    }
}

/// What somebody sees who sets it up, watches it, and is there when it is killed.
async fn play(stage: &Stage) -> Vec<String> {
    let mut captured = Vec::new();
    stage.tool("init").await.ended(0);
    stage.mysql.query("orders", "SET GLOBAL innodb_flush_log_at_trx_commit = 2").await.unwrap();
    captured.push(capture(stage, "doctor").await);
    stage.mysql.query("orders", "SET GLOBAL innodb_flush_log_at_trx_commit = 1").await.unwrap();
    captured.push(capture(stage, "doctor").await);

    let network = Network::before(stage).await;
    let mut application = stage.application_behind(&network).await;
    let held = [network.postgres.on("COMMIT PREPARED").hold(), network.mysql.on("XA COMMIT").hold()];
    let id = application.write(1).await;
    application.tell("commit").await;
    held[0].fired().await;
    held[1].fired().await;
    captured.push(capture(stage, "watch --count 1").await);
    application.kill().await;
    network.sever();
    captured.push(capture(stage, "list").await);
    captured.push(capture(stage, &format!("explain {id}")).await);
    captured.push(capture(stage, "recover").await);
    captured.push(capture(stage, &format!("explain {id}")).await);
    stage.assert_rows(&["1"], &["1"]).await;
    captured
}

/// What a command prints, without what is this machine's own.
async fn capture(stage: &Stage, command: &str) -> String {
    let ran = stage.tool(command).await;
    let text = transcript(command, &ran).replace(stage.directory.path().to_str().unwrap(), "/var/lib/handfast");
    text.replace(&format!(" on {}", host()), " on app-1").trim_end().to_owned() + "\n"
}

/// The captures on the page.
fn blocks(page: &str) -> impl Iterator<Item = &str> {
    page.split("```console\n").skip(1).map(|rest| rest.split("```").next().unwrap())
}

fn with_captures(page: &str, captured: &[String]) -> String {
    let mut parts = page.split("```console\n");
    let mut text = parts.next().unwrap().to_owned();
    let after: Vec<_> = parts.map(|rest| rest.split_once("```").unwrap().1).collect();
    assert_eq!(after.len(), captured.len(), "the page has a block for each");
    for (capture, after) in captured.iter().zip(after) {
        text += &format!("```console\n{capture}```{after}");
    }
    text
}

/// As words, since versions and hosts of another length break other lines, and without what differs from run to run. Of
/// what `doctor` says: what is wrong with the databases; how much is good is a server's, and the rest is this machine's.
fn compared(stage: &Stage, text: &str) -> Vec<String> {
    let mut text = text.replace(" on app-1", " on HOST");
    for (expression, word) in varying(stage) {
        text = Regex::new(&expression).unwrap().replace_all(&text, word).into_owned();
    }
    if text.starts_with("$ handfast doctor") {
        let databases = &text[text.find("ledger (postgres)").expect("it is a participant")..];
        let wrong = databases.lines().filter(|line| !line.contains(" good") && !line.starts_with("(exit code"));
        text = wrong.collect::<Vec<_>>().join("\n");
    }
    text.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn captures_are_put_where_they_belong() {
    let page = "One:\n\n```console\nold\n```\n\nTwo:\n\n```console\n```\nEnd\n";
    let written = with_captures(page, &["$ a\n1\n".into(), "$ b\n2\n".into()]);
    assert_eq!(written, "One:\n\n```console\n$ a\n1\n```\n\nTwo:\n\n```console\n$ b\n2\n```\nEnd\n");
    assert_eq!(blocks(&written).collect::<Vec<_>>(), ["$ a\n1\n", "$ b\n2\n"]);
}
