//! `handfast demo`, as far as the other tests do not run it: what it leaves, and what it says when it cannot begin.

use crate::stage::{run_to_end, tool};
use integration_tests::conformance::eventually;
use integration_tests::servers::{self, Flavor};
use integration_tests::{each_pair, each_server};
use std::path::Path;
use std::process::Stdio;
use tokio::process::Command;

each_pair! {
    /// Ctrl-C in the middle ends every process and removes every file.
    async fn interrupted(other) {
        let directory = tempfile::tempdir().unwrap();
        // Servers run as another user if we are root.
        std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        let mut command = tool();
        // In a checkout, initialised data directories are kept there.
        command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        command.args(["demo", "--seconds", "600", "--seed", "7", "--mysql-bin"]).arg(servers::installation(other).server());
        command.env("TMPDIR", directory.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let demo = command.spawn().unwrap();
        eventually("money moves", async || money_moves(directory.path())).await;
        let pid = demo.id().unwrap().to_string();
        let killed = Command::new("kill").args(["-INT", &pid]).status().await.unwrap();
        assert!(killed.success());
        let output = tokio::time::timeout(integration_tests::conformance::PATIENCE * 2, demo.wait_with_output()).await;
        let output = output.expect("it ends").unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(6), "{stderr}");
        assert!(stderr.contains("interrupted; everything was removed"), "{stderr}");
        eventually("nothing runs any more", async || processes_in(directory.path()).is_empty()).await;
        eventually("nothing is left", async || std::fs::read_dir(directory.path()).unwrap().next().is_none()).await;
    }

    /// The shortest of all demos, for programs: one object.
    async fn for_programs(other) {
        let mut command = tool();
        command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        command.args(["demo", "--seconds", "1", "--seed", "7", "--format", "json", "--mysql-bin"]);
        command.arg(servers::installation(other).server());
        let ran = run_to_end(command).await;
        let counted = ran.ended(0).json();
        assert_eq!(counted["seed"], 7, "{counted:#}");
    }
}

each_server! {
    /// A path that leads nowhere is named, with what would help.
    async fn wrong_path(flavor) {
        let option = if flavor == Flavor::Postgres { "--postgres-bin" } else { "--mysql-bin" };
        let mut command = tool();
        command.args(["demo", option, "/nowhere/at/all"]);
        run_to_end(command).await.ended(2).complains(&["/nowhere/at/all", option, "install it"]);
    }
}

/// Whether the demo's application has written down an answer.
fn money_moves(directory: &Path) -> bool {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.filter_map(|path| std::fs::read_to_string(path.join("answers")).ok()).any(|text| text.contains("committed"))
}

/// The processes that were started with something of the directory in their arguments.
fn processes_in(directory: &Path) -> Vec<String> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|process| std::fs::read_to_string(process.path().join("cmdline")).ok());
    lines.filter(|line| line.contains(directory.to_str().unwrap())).collect()
}
