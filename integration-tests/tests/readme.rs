//! README says what is so: its example is a whole program that needs nothing else, and its commands exist.

use integration_tests::each_pair;
use integration_tests::servers::{self, Flavor, Server};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;
use tokio::sync::OnceCell;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a member of the workspace")
}

fn readme() -> String {
    std::fs::read_to_string(root().join("README.md")).unwrap()
}

/// The blocks of one language.
fn blocks(language: &str) -> Vec<String> {
    let readme = readme();
    let fences = readme.split("\n```").skip(1).step_by(2);
    fences.filter_map(|block| block.strip_prefix(language)?.split_once('\n')).map(|(_, code)| code.to_owned()).collect()
}

/// The example as a program of its own, outside the workspace, compiled once.
async fn program() -> &'static Path {
    static PROGRAM: OnceCell<(TempDir, PathBuf)> = OnceCell::const_new();
    let (_, program) = PROGRAM.get_or_init(async || tokio::task::spawn_blocking(compile).await.unwrap()).await;
    program
}

fn compile() -> (TempDir, PathBuf) {
    let project = TempDir::new().unwrap();
    let manifest = format!(
        "[package]\nname = \"example\"\nedition = \"2024\"\n\n[dependencies]\nhandfast = {{ path = {:?} }}\n\
         tokio = {{ version = \"1\", features = [\"full\"] }}\n\n[workspace]\n",
        root()
    );
    std::fs::write(project.path().join("Cargo.toml"), manifest).unwrap();
    // The versions that the workspace was built with are there: nothing has to be fetched.
    std::fs::copy(root().join("Cargo.lock"), project.path().join("Cargo.lock")).unwrap();
    std::fs::create_dir(project.path().join("src")).unwrap();
    std::fs::write(project.path().join("src/main.rs"), &blocks("rust")[0]).unwrap();
    let target = integration_tests::servers::target().join("readme");
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--offline", "--quiet"]).current_dir(project.path()).env("CARGO_TARGET_DIR", &target);
    succeeded(build.output().unwrap());
    (project, target.join("debug/example"))
}

fn succeeded(output: Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

each_pair! {
    /// It commits on both databases, and says so.
    async fn the_example_works(other) {
        let (postgres, mysql) = tokio::join!(servers::shared(Flavor::Postgres), servers::shared(other));
        let (ledger, orders) = (servers::fresh_database(postgres).await, servers::fresh_database(mysql).await);
        let account = "CREATE TABLE account (id int PRIMARY KEY, cents bigint NOT NULL); INSERT INTO account VALUES (1, 5000)";
        postgres.query(&ledger, account).await.unwrap();
        mysql.query(&orders, "CREATE TABLE payment (account int, cents bigint) ENGINE=InnoDB").await.unwrap();
        let program = program().await;

        let here = TempDir::new().unwrap();
        std::fs::create_dir_all(here.path().join("config")).unwrap();
        std::fs::create_dir_all(here.path().join("journal")).unwrap();
        servers::ConfigBuilder::new(here.path().join("journal"))
            .participant("ledger", postgres, &ledger)
            .participant("orders", mysql, &orders)
            .write(&here.path().join("config/handfast.toml"));
        let mut run = tokio::process::Command::new(program);
        let run = run.current_dir(here.path()).kill_on_drop(true).output();
        let ran = tokio::time::timeout(std::time::Duration::from_secs(60), run).await.expect("it ends").unwrap();
        let said = succeeded(ran);
        assert!(said.starts_with("hf1.test.") && said.contains("is committed on both"), "{said}");

        assert_eq!(value(postgres, &ledger, "SELECT cents FROM account").await, "4000");
        assert_eq!(value(mysql, &orders, "SELECT CONCAT(COUNT(*), ':', SUM(cents)) FROM payment").await, "2:1000");
    }
}

async fn value(server: &Server, database: &str, sql: &str) -> String {
    server.value(database, sql).await.unwrap().expect("one row")
}

#[test]
fn the_commands_exist() {
    let makefile = std::fs::read_to_string(root().join("Makefile")).unwrap();
    let mut seen = 0;
    for line in blocks("sh").iter().flat_map(|block| block.lines()).map(str::trim).filter(|line| !line.is_empty()) {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["make", target, ..] => assert!(makefile.contains(&format!("\n{target}:")), "make has no {target}"),
            ["cargo", "install", "handfast", "--features", feature] => assert_eq!(feature, "cli"),
            [path, ..] if path.contains('/') => assert!(root().join(path).exists(), "there is no {path}"),
            ["handfast", ..] => {}
            _ => panic!("README shows {line:?}: say here how it can be known to exist"),
        }
        seen += 1;
    }
    assert!(seen >= 2, "{seen}");
}

/// Whatever README, the guide or a container's page calls a command of the tool is one.
#[test]
fn the_tool_has_its_commands() {
    let guide = std::fs::read_dir(root().join("docs/guide")).unwrap().map(|entry| entry.unwrap().path());
    let pages = guide.chain(["README.md", "docker/README.md", "docs/versions.md"].map(|page| root().join(page)));
    let text: String = pages.map(|page| std::fs::read_to_string(page).unwrap()).collect();
    let named = text.split("`handfast ").skip(1).filter_map(|rest| rest.split('`').next());
    let mut seen = 0;
    for command in named {
        let words = command.split_whitespace().take_while(|word| word.chars().all(|c| c.is_ascii_lowercase()));
        let words: Vec<_> = words.collect();
        let help = Command::new(env!("CARGO_BIN_EXE_handfast-tool")).args(&words).arg("--help").output().unwrap();
        let help = succeeded(help);
        let options = command.split(|c: char| " []|\\".contains(c)).filter(|word| word.starts_with("--"));
        for option in options {
            assert!(help.contains(option), "`handfast {command}`: no {option}\n{help}");
        }
        seen += 1;
    }
    assert!(seen >= 14, "only {seen} commands are named");
}
