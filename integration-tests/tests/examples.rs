//! The examples do what they say, on real servers. They check their own results: here it is enough that they end well
//! and say what a reader is told to expect.

use integration_tests::each_pair;
use integration_tests::servers::{self, Flavor};
use std::time::Duration;
use tokio::process::Command;

/// How long an example may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// What an example printed, run on PostgreSQL, this other product, and whatever third one there is.
async fn output_of(program: &str, other: Flavor, third: bool) -> String {
    let mut flavors = vec![Flavor::Postgres, other];
    if third {
        let more = servers::available_flavors().into_iter().filter(|one| ![Flavor::Postgres, other].contains(one));
        flavors.extend(more);
    }
    let mut command = Command::new(program);
    for flavor in flavors {
        command.arg(servers::shared(flavor).await.admin_url());
    }
    let output = command.kill_on_drop(true).output();
    let output = tokio::time::timeout(PATIENCE, output).await.expect("it ends").expect("it runs");
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

    async fn embedding_recovery(other) {
        let said = output_of(env!("CARGO_BIN_EXE_example-embedding-recovery"), other, false).await;
        says(&said, &["What is there now:\n  ledger: 0 prepared\n  orders: 0 prepared\n", "complaints: []", "the same ones"]);
    }
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
        assert!(text.starts_with("//! ") && text.contains(&format!("cargo run --example {name} -- ")), "{name}");
        seen += 1;
    }
    assert!(seen >= 5, "{seen}");
}
