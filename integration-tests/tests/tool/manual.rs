//! Completions and manual pages: made without servers, a journal or a configuration.

use crate::stage::{run_to_end, tool};

#[tokio::test]
async fn completions_of_every_shell() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let mut command = tool();
        command.args(["completions", shell]);
        let ran = run_to_end(command).await;
        ran.ended(0).says("explain").says("older-than");
        assert!(!ran.stdout.contains("demo-application") && ran.stderr.is_empty(), "{ran}");
    }
    let mut command = tool();
    command.args(["completions", "csh"]);
    run_to_end(command).await.ended(2);
}

#[tokio::test]
async fn a_page_for_every_command() {
    let directory = tempfile::tempdir().unwrap();
    let pages = directory.path().join("man1");
    let mut command = tool();
    command.arg("man").arg("--directory").arg(&pages);
    assert_eq!(run_to_end(command).await.ended(0).stdout, "");
    let mut names: Vec<_> =
        std::fs::read_dir(&pages).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    for name in ["", "-config", "-explain", "-journal", "-recover", "-resolve", "-servers", "-watch"]
        .map(|name| format!("handfast{name}.1"))
    {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    assert!(!names.iter().any(|name| name.contains("demo-application")), "{names:?}");
    let page = std::fs::read_to_string(pages.join("handfast.1")).unwrap();
    assert!(page.contains("a person is needed"), "the exit codes are told: {page}");

    let mut command = tool();
    command.arg("man");
    run_to_end(command).await.ended(0).says(".TH handfast 1");
    let mut command = tool();
    command.args(["man", "--directory", "/dev/null/pages"]);
    let ran = run_to_end(command).await;
    assert!(ran.ended(2).stderr.contains("/dev/null/pages cannot be made"), "{ran}");
}
