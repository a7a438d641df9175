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

/// The blocks of a page, each with its language.
fn blocks_of(page: &str) -> Vec<(String, String)> {
    let fences = page.split("\n```").skip(1).step_by(2);
    let block = |(language, code): (&str, &str)| (language.to_owned(), format!("{code}\n"));
    fences.map(|fence| block(fence.split_once('\n').expect("a block has a first line"))).collect()
}

/// The blocks of one language.
fn blocks(language: &str) -> Vec<String> {
    blocks_of(&readme()).into_iter().filter(|block| block.0 == language).map(|block| block.1).collect()
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

/// No block of README or guide is there to be looked at alone. Rust is compiled, and what is to be configured is read, here
/// or where it is followed.
#[test]
fn every_block_is_looked_after() {
    let text = |name: &str| std::fs::read_to_string(root().join(name)).unwrap();
    let doctests = text("src/lib.rs") + &text("integration-tests/src/lib.rs");
    let lock = text("Cargo.lock");
    let guide = std::fs::read_dir(root().join("docs/guide")).unwrap().map(|entry| entry.unwrap().file_name());
    let guide = guide.map(|name| format!("docs/guide/{}", name.to_str().expect("a name in ASCII")));
    let (mut rust, mut toml) = (0, 0);
    for page in guide.chain(["README.md".to_owned()]) {
        let is_run = ["README.md", "docs/guide/start.md"].contains(&&*page);
        for (language, code) in blocks_of(&text(&page)) {
            match &*language {
                "rust" | "rust,no_run" => {
                    assert!(is_run || doctests.contains(&format!("/{page}\")]")), "{page} is not compiled");
                    rust += 1;
                }
                _ if is_run => {}
                // The tool's tests play them again.
                "console" if page == "docs/guide/at-a-glance.md" => {}
                "toml" if code.contains("version") || code.contains("[dependencies]") => {
                    depends_on_what_is_there(&lock, &code);
                    toml += 1;
                }
                "toml" => {
                    let whole = format!("node = \"n\"\n[journal]\ndirectory = \"j\"\n{code}");
                    handfast::Config::from_toml(&whole).unwrap_or_else(|error| panic!("{page}: {}", error.chain()));
                    toml += 1;
                }
                _ => panic!("{page}: who looks after {language:?}?\n{code}"),
            }
        }
    }
    assert!(rust >= 12 && toml >= 4, "{rust} {toml}");
}

/// Each dependency is one with which this workspace is built, in that version.
fn depends_on_what_is_there(lock: &str, code: &str) {
    let mut seen = 0;
    for line in code.lines().filter(|line| line.contains(" = ")) {
        let (name, rest) = line.split_once(" = ").expect("it has one");
        let version = rest.split('"').nth(1).expect("a version");
        let locked = format!("\nname = \"{name}\"\nversion = \"{version}.");
        assert!(lock.contains(&locked), "{line:?} is not what is tested");
        seen += 1;
    }
    assert!(seen > 0, "{code}");
}
