//! What each command prints, word for word, in the situations in which somebody will read it. Names that change from
//! run to run are replaced: ids, ports, ages, versions, paths.

use crate::stage::{Network, Ran, Stage, killed_at};
use insta::Settings;
use integration_tests::conformance::eventually;
use integration_tests::each_pair;
use integration_tests::servers::{self, Flavor, Server};
use serde_json::json;

each_pair! {
    async fn output(other) {
        let stage = stage(other).await;

        show(&stage, "before_init", &["list", "init --print", "init"]).await;
        show(&stage, "clean", &["list", "recover", "journal verify"]).await;

        killed_at(&stage, None, Some("XA PREPARE")).await;
        show(&stage, "undecided", &["list", "recover", "recover"]).await;

        stage.postgres.query("ledger", "DELETE FROM entry").await.unwrap();
        let id = killed_at(&stage, Some("COMMIT PREPARED"), Some("XA COMMIT")).await;
        stage.postgres.query("ledger", "BEGIN; PREPARE TRANSACTION 'nightly import 7'").await.unwrap();
        show(&stage, "decided", &["list", "journal dump"]).await;
        stage.mysql.kill().await.unwrap();
        show(&stage, "server_down", &["recover", &format!("outcome {id}")]).await;
        stage.mysql.restart().await.unwrap();
        beside_an_application(&stage).await;

        clear(&stage).await;
        killed_at(&stage, Some("COMMIT PREPARED"), Some("XA COMMIT")).await;
        show(&stage, "recovered", &["recover"]).await;

        clear(&stage).await;
        let id = killed_at(&stage, Some("COMMIT PREPARED"), Some("XA COMMIT")).await;
        roll_back_by_hand(&stage, &id).await;
        show(&stage, "damaged", &["list", "recover", "list", &format!("outcome {id}")]).await;
    }
}

each_pair! {
    /// The same tool where a database keeps the decisions.
    async fn output_with_an_anchor(other) {
        let stage = stage(other).await.with_anchor("ledger");
        show(&stage, "anchor_before", &["list", "init", "list"]).await;

        // Prepared, and the anchor has not decided: never.
        killed_at(&stage, Some("'anchor "), None).await;
        show(&stage, "anchor_undecided", &["list", "recover", "recover"]).await;

        // The anchor has decided, and the other one has not heard of it.
        let id = killed_at(&stage, None, Some("XA COMMIT")).await;
        let (list, explain) = ("list", format!("explain {id}"));
        show(&stage, "anchor_decided", &[list, &explain, "recover", &format!("outcome {id}")]).await;

        clear(&stage).await;
        let id = killed_at(&stage, None, Some("XA COMMIT")).await;
        stage.mysql.kill().await.unwrap();
        show(&stage, "anchor_server_down", &["recover", &format!("outcome {id}")]).await;
        stage.mysql.restart().await.unwrap();
        stage.tool("recover").await.ended(0);
    }
}

/// Servers and names of its own, so that no other test shows in the output.
pub async fn stage(other: Flavor) -> Stage {
    let (postgres, mysql) = tokio::join!(own(Flavor::Postgres), own(other));
    let [ledger, orders, node] = ["ledger", "orders", "orders-api-1"].map(str::to_owned);
    Stage::named(postgres, mysql, ledger, orders, node).await
}

/// With a transaction in phase two.
async fn beside_an_application(stage: &Stage) {
    let network = Network::before(stage).await;
    let mut application = stage.application_behind(&network).await;
    // What it settled at its start is written down a moment later.
    let open = async || stage.tool("journal verify --format json").await.json()["open_decisions"] == json!([]);
    eventually("nothing is open", open).await;
    let held = [network.postgres.on("COMMIT PREPARED").hold(), network.mysql.on("XA COMMIT").hold()];
    let id = application.write(2).await;
    application.tell("commit").await;
    held[0].fired().await;
    held[1].fired().await;
    show(stage, "application_running", &["list", "recover", &format!("outcome {id}")]).await;
    for rule in &held {
        rule.release();
    }
    application.committed().await;
    application.end().await;
}

async fn own(flavor: Flavor) -> &'static Server {
    Box::leak(Box::new(servers::start(flavor).await))
}

pub async fn clear(stage: &Stage) {
    stage.postgres.query(&stage.ledger, "DELETE FROM entry").await.unwrap();
    stage.mysql.query(&stage.orders, "DELETE FROM entry").await.unwrap();
}

pub async fn roll_back_by_hand(stage: &Stage, id: &str) {
    let listed = stage.tool("list --format json").await.json();
    let branches = listed["transactions"][0]["branches"].as_array().unwrap();
    let gid = branches.iter().find(|branch| branch["participant"] == "orders").unwrap()["gid"].as_str().unwrap();
    assert!(gid.starts_with(id));
    let roll_back = format!("XA ROLLBACK {}", gid.parse::<handfast::id::BranchId>().unwrap().xid_sql());
    eventually("rolled back by hand", async || stage.mysql.query(&stage.orders, &roll_back).await.is_ok()).await;
}

/// Compares what commands print, as text and as JSON, with what they printed when somebody last read it. A reason is
/// given as `--reason=..`, with `_` for each blank.
pub async fn show(stage: &Stage, name: &str, commands: &[&str]) {
    let mut text = String::new();
    for command in commands {
        let (command, reason) = command.split_once("--reason=").map_or((*command, None), |(head, tail)| {
            let (reason, rest) = tail.split_once(' ').unwrap_or((tail, ""));
            (head, Some((reason.replace('_', " "), rest)))
        });
        let mut arguments: Vec<_> = command.split_whitespace().collect();
        if let Some((reason, rest)) = &reason {
            arguments.extend(["--reason", reason].into_iter().chain(rest.split_whitespace()));
        }
        let ran = stage.tool_with(&arguments).await;
        let command = match &reason {
            Some((reason, rest)) => format!("{command}--reason '{reason}' {rest}"),
            None => command.to_owned(),
        };
        for line in ran.stdout.lines().filter(|_| !command.starts_with("journal") && !command.starts_with("init")) {
            // A statement is to be copied whole.
            let statement = ran.stdout.starts_with('{') || line.starts_with("XA ") || line.contains(" PREPARED ");
            assert!(line.chars().count() <= 80 || statement, "wider than 80 columns: {line:?}");
        }
        text += &transcript(command.trim_end(), &ran);
    }
    let json = if name == "decided" { stage.tool("list --format json").await.stdout } else { String::new() };
    settings(stage).bind(|| {
        insta::assert_snapshot!(name, text);
        if !json.is_empty() {
            insta::assert_snapshot!(format!("{name}_json"), json);
        }
    });
}

pub fn transcript(command: &str, ran: &Ran) -> String {
    let mut text = format!("$ handfast {command}\n{}", ran.stdout);
    if !ran.stderr.is_empty() {
        text += &format!("(stderr) {}", ran.stderr);
    }
    text + &format!("(exit code {})\n\n", ran.code)
}

pub fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned()
}

/// What changes from run to run, as expressions and what stands for it in the same number of columns where a table depends
/// on it.
pub fn varying(stage: &Stage) -> Vec<(String, &'static str)> {
    let fixed = VARYING.iter().map(|(expression, word)| ((*expression).to_owned(), *word));
    let directory = stage.directory.path().to_str().unwrap().to_owned();
    // Before the expressions for what is left of a line when these are replaced.
    let mut all = vec![(directory, "/tmp/stage"), (format!(r"\bon {}\b", host()), "on HOST")];
    all.extend(fixed);
    all
}

const VARYING: &[(&str, &str)] = &[
    ("mariadb ", "mysql   "),
    ("mariadb", "mysql"),
    (r"PostgreSQL [0-9.]+", "PostgreSQL VERSION"),
    (r"(MariaDB|MySQL) [0-9.]+", "MySQL VERSION"),
    (r"127\.0\.0\.1:[0-9]+", "127.0.0.1:PORT"),
    (r"localhost:[0-9]+", "localhost:PORT"),
    (r"for [0-9]+ s\b", "for N s"),
    (r"opened [0-9]+ s ago", "opened N s ago"),
    (r#""age_(at_most_)?seconds": [0-9]+"#, r#""age_${1}seconds": N"#),
    // An application at work may have settled them by now, or not yet.
    (r"\nearlier openings that the next opening, or `handfast recover`, asks about: [0-9]+\n", ""),
    (r"(offset|known durable up to) [0-9]+", "$1 N"),
    (r"repair-[0-9TZ]+", "repair-TIME"),
    // What is logged as well.
    (r"\(stderr\) [0-9T:.-]+Z +WARN [^\n]*\n", ""),
    (r#""host": "[^"]*""#, r#""host": "HOST""#),
    (r#""unsettled": \[[^\]]*\]"#, r#""unsettled": [..]"#),
    (r"process [0-9]+ on [^ ]+ since [0-9T:.-]+Z", "process PID on HOST since TIME"),
    (r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z", "TIME"),
    (r"hf1\.orders-api-1\.[0-9a-f]{16}", "hf1.orders-api-1.xxxxxxxxxxxxxxxx"),
    (r"\b[0-9a-f]{16}\b", "xxxxxxxxxxxxxxxx"),
    (r"X'[0-9a-f]+'", "X'HEX'"),
    (r"\(segment-[0-9]{8}:[0-9]+\)", "(segment-N:OFFSET)"),
    (r"segment-[0-9]{8}:[0-9]+ *", "segment-N:OFFSET "),
    // An application settles what was before it in the background, sooner or later.
    (r"segment-N:OFFSET (\S+|in doubt) +(settled [^\n]*|outcomes of [^\n]*: 0 commits)\n", ""),
    (r"[1-9] records? beyond the last synced mark[^\n]*\n", ""),
    (r"kept: [3-9] records", "kept: 3 records"),
    (r"segment-N:OFFSET durable +mark\n", ""),
    (r"( x{16}\n)+", " xxxxxxxxxxxxxxxx\n"),
];

fn settings(stage: &Stage) -> Settings {
    let mut settings = Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    for (expression, word) in varying(stage) {
        settings.add_filter(&expression, word);
    }
    settings
}
