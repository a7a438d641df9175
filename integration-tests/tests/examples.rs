//! The examples do what they say, on real servers. They check their own results: here it is enough that they end well
//! and say what a reader is told to expect.

use integration_tests::each_pair;
use integration_tests::servers::{self, Flavor};
use std::process::{Output, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;

/// How long an example may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// An example, run on PostgreSQL, this other product, and whatever third one there is.
async fn command(program: &str, other: Flavor, third: bool) -> Command {
    let mut flavors = vec![Flavor::Postgres, other];
    if third {
        let more = servers::available_flavors().into_iter().filter(|one| ![Flavor::Postgres, other].contains(one));
        flavors.extend(more);
    }
    let mut command = Command::new(program);
    for flavor in flavors {
        command.arg(servers::shared(flavor).await.admin_url());
    }
    command.kill_on_drop(true);
    command
}

/// What it printed.
async fn output_of(program: &str, other: Flavor, third: bool) -> String {
    let mut command = command(program, other, third).await;
    let output = command.output();
    succeeded(tokio::time::timeout(PATIENCE, output).await.expect("it ends").expect("it runs"))
}

fn succeeded(output: Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

fn says(said: &str, expected: &[&str]) {
    for expected in expected {
        assert!(said.contains(expected), "{expected:?} in:\n{said}");
    }
}

each_pair! {
    async fn transfer(other) {
        let said = output_of(env!("CARGO_BIN_EXE_example-transfer"), other, false).await;
        says(&said, &["is committed on both", "not enough: rolled back", "refused, and rolled back on both", "[4300, 5000]"]);
    }

    async fn retries(other) {
        let said = output_of(env!("CARGO_BIN_EXE_example-retries"), other, false).await;
        says(&said, &["both are sold", "there is no shelf 3): ran 1 time", "2 sales in the ledger, [7, 7]"]);
    }

    async fn reading_an_outcome(other) {
        let said = output_of(env!("CARGO_BIN_EXE_example-reading-an-outcome"), other, false).await;
        says(&said, &["commits were not answered", "every answer agrees with both databases"]);
    }

    async fn three_participants(other) {
        let said = output_of(env!("CARGO_BIN_EXE_example-three-participants"), other, true).await;
        says(&said, &["committed on three", "committed nowhere", "having read the third", "pieces left [0, 5]"]);
    }

    async fn three_databases_on_two_servers(other) {
        let said = output_of(env!("CARGO_BIN_EXE_example-three-participants"), other, false).await;
        says(&said, &["committed on three", "pieces left [0, 5]"]);
    }

    async fn own_participant(other) {
        let said = output_of(env!("CARGO_BIN_EXE_example-own-participant"), other, false).await;
        says(&said, &["committed on three", "letters [1, 3]", "was killed after", "every letter its rows"]);
    }

    async fn embedding_recovery(other) {
        let said = output_of(env!("CARGO_BIN_EXE_example-embedding-recovery"), other, false).await;
        says(&said, &["What is there now:\n  ledger: 0 prepared\n  orders: 0 prepared\n", "complaints: []", "the same ones"]);
    }

    async fn order_and_payment(other) {
        let said = output_of(env!("CARGO_BIN_EXE_example-order-and-payment"), other, false).await;
        says(&said, &["customer_credit_check", "4 orders, 4 payments, 4 receipts to send", "pieces [99, 0]"]);
    }

    /// Ended as whoever tries it ends it. `service` is the test of what it is for.
    async fn axum_service(other) {
        let mut command = command(env!("CARGO_BIN_EXE_example-axum-service"), other, false).await;
        command.env("LISTEN", "127.0.0.1:0").env("NOTICE_MS", "0").stdout(Stdio::piped());
        let mut child = command.spawn().expect("it runs");
        let mut lines = BufReader::new(child.stdout.take().expect("it was piped")).lines();
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.expect("it says where").unwrap().unwrap();
        let address = line.strip_prefix("listening on http://").unwrap_or_else(|| panic!("{line:?}"));

        let order = r#"{"key":"k1","account":1,"wallet":2,"cents":700}"#;
        let first = ask(address, "POST /transfers", order).await;
        says(&first, &["200 OK", r#""outcome":"committed""#, r#""id":"hf1.example."#]);
        assert_eq!(last_line(&ask(address, "POST /transfers", order).await), last_line(&first), "done once");
        let id = first.split(r#""id":""#).nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        says(&ask(address, &format!("GET /transactions/{id}"), "").await, &["200 OK", "committed"]);
        let unknown = "GET /transactions/hf1.example.0123456789abcdef.1";
        says(&ask(address, unknown, "").await, &["404 Not Found", "unknown"]);
        let too_much = r#"{"key":"k2","account":1,"wallet":2,"cents":70000}"#;
        says(&ask(address, "POST /transfers", too_much).await, &["422 ", "rolled_back", "not enough"]);
        let nowhere = r#"{"key":"k2","account":1,"wallet":9,"cents":700}"#;
        says(&ask(address, "POST /transfers", nowhere).await, &["422 ", "rolled_back", "no such wallet"]);
        says(&ask(address, "GET /ready", "").await, &["200 OK", "ready; in doubt: 0, damaged: 0"]);

        let pid = child.id().expect("it runs").to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().await.unwrap().success());
        let mut said = Vec::new();
        while let Some(line) = tokio::time::timeout(PATIENCE, lines.next_line()).await.expect("it ends").unwrap() {
            said.push(line);
        }
        assert!(child.wait().await.unwrap().success());
        assert_eq!(said, ["leaving", "closed", "accounts hold [4300, 5000] cents, wallets [0, 700]"]);
    }
}

#[cfg(feature = "metrics")]
mod with_metrics {
    use super::*;

    each_pair! {
        async fn observability(other) {
            let said = output_of(env!("CARGO_BIN_EXE_example-observability"), other, false).await;
            says(&said, &["request{number=1}:transaction{id=hf1.example.", "}:decide: handfast::transaction: close"]);
            says(&said, &["entered on both", r#"outcome="rolled_back"}: handfast::transaction: close"#]);
            says(&said, &[r#"handfast_transactions_total{outcome="committed"} 3"#, "handfast_prepared_slots_free"]);
        }
    }
}

/// The whole answer to a request on a connection of its own.
async fn ask(address: &str, what: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = "Host: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length";
    let request = format!("{what} HTTP/1.1\r\n{head}: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(PATIENCE, stream.read_to_string(&mut answer)).await.expect("it answers").unwrap();
    answer
}

fn last_line(text: &str) -> &str {
    text.lines().last().expect("a line")
}

/// Each file of the folder is run above.
#[test]
fn none_is_forgotten() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a member of the workspace");
    let here = std::fs::read_to_string(root.join("integration-tests/tests/examples.rs")).unwrap();
    let mut seen = 0;
    for entry in std::fs::read_dir(root.join("examples")).unwrap() {
        let path = entry.unwrap().path();
        let Some(name) = path.file_name().unwrap().to_str().unwrap().strip_suffix(".rs").map(str::to_owned) else {
            continue;
        };
        assert!(here.contains(&format!("CARGO_BIN_EXE_example-{}\"", name.replace('_', "-"))), "{name} is not run");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("//! ") && text.contains(&format!("--example {name} -- ")), "{name}");
        seen += 1;
    }
    assert!(seen >= 8, "{seen}");
}
