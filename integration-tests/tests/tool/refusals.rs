//! What is wrong is refused: one clear message that names the thing and the cure, the right exit code, and nothing
//! was touched.

use crate::stage::{PASSWORD, Ran, Stage, killed_at, run_to_end, tool};
use handfast::{Bridge, Error, ErrorKind};
use integration_tests::servers::{self, Flavor};
use integration_tests::{each_mysql, each_pair, test_with_servers};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

const COMMANDS: [&str; 5] = ["list", "recover", "recover --dry-run", "journal verify", "journal dump"];

each_pair! {
    async fn a_participant_that_is_not_configured(other) {
        let stage = Stage::new(other).await;
        let bridge = Bridge::open(stage.config().build()).await.unwrap();
        let tx = bridge.begin().await.unwrap();
        let Err(error) = tx.postgres("ledgre").await else { panic!("there is no ledgre") };
        assert_says(&error, ErrorKind::Config, &["\"ledgre\"", "ledger, orders"]);
        let Err(error) = tx.mysql("ledger").await else { panic!("the ledger is PostgreSQL") };
        assert_says(&error, ErrorKind::Config, &["ledger"]);
        drop(tx);
        let options = handfast::Options::new().read_only("oders");
        let Err(error) = bridge.begin_with(options).await else { panic!("there are no oders") };
        assert_says(&error, ErrorKind::Config, &["\"oders\"", "ledger, orders"]);
        bridge.close().await.unwrap();
    }

    async fn a_configuration_that_is_wrong(other) {
        let stage = Stage::new(other).await;
        let good = stage.config().toml();
        let with = |from: &str, to: &str| good.replacen(from, to, 1);
        let wrong = [
            (with("timeout = \"100s\"", "timeuot = \"100s\""), vec!["timeuot is unknown: did you mean transaction.timeout?"]),
            (with("timeout = \"100s\"", "timeout = \"soon\""), vec!["timeout"]),
            (with("size = 4", "size = 0"), vec!["pool of size 0"]),
            (with("node = \"", "node = \"No "), vec!["No n"]),
            (with("[participants.orders]", "[participants.Orders]"), vec!["Orders"]),
            (with("kind = \"mysql\"", "kind = \"oracle\""), vec!["oracle"]),
            (with("url = \"mysql://", "url = \"mysqlx//"), vec!["participants.orders.url", "mysql://USER@HOST:PORT/DATABASE"]),
            (with("url = \"postgresql://", "url = \"nonsense:"), vec!["participants.ledger.url", "postgresql://USER@HOST:PORT/DATABASE"]),
            (format!("{good}password_file = \"/nowhere/secret\"\n"), vec!["orders", "password_file /nowhere/secret"]),
            (good.replacen("[participants.orders]", "[participants.orders", 1), vec!["wrong.toml", "line "]),
            // Parsers quote the line that they stumble over.
            (with("url = \"mysql://", "url = mysql://"), vec!["wrong.toml", "line "]),
            (with("url = \"mysql://", "url = [\"mysql://"), vec!["wrong.toml", "line "]),
        ];
        let path = stage.path("wrong.toml");
        for (text, names) in wrong {
            std::fs::write(&path, text).unwrap();
            stage.tool_at(&path, "list").await.ended(2).complains(&names);
            stage.tool_at(&path, "recover").await.ended(2).complains(&names);
        }
        let missing = stage.path("missing.toml");
        stage.tool_at(&missing, "list").await.ended(2).complains(&["missing.toml", "not found"]);
        assert!(std::fs::read_dir(stage.journal()).unwrap().next().is_none(), "nothing was made");
    }

    async fn arguments_that_are_wrong(other) {
        let stage = Stage::new(other).await;
        for (arguments, says) in [
            ("", "Usage: handfast"),
            ("lsit", "similar subcommand exists: 'list'"),
            ("outcome", "<ID>"),
            ("outcome x", "\"x\" is not a transaction id"),
            ("list --format yaml", "possible values: text, json"),
            ("recover --dryrun", "--dry-run"),
        ] {
            let ran = stage.tool(arguments).await;
            ran.ended(2);
            assert!(ran.stderr.contains(says) && ran.stdout.is_empty(), "{says:?}: {ran}");
        }
        stage.tool("init").await.ended(0);
        let ran = stage.tool("outcome hf1.somebody.0123456789abcdef.1").await;
        assert_eq!(ran.ended(2).stdout, "unknown\n");
        assert!(ran.stderr.contains("is not this journal's"), "{ran}");
    }

    async fn a_journal_directory_that_is_wrong(other) {
        let stage = Stage::new(other).await;
        let at = |directory: &Path| {
            let text = stage.config().toml();
            let path = stage.path("elsewhere.toml");
            std::fs::write(&path, text.replace(stage.journal().to_str().unwrap(), directory.to_str().unwrap())).unwrap();
            path
        };
        for command in COMMANDS {
            let missing = at(&stage.path("nowhere"));
            stage.tool_at(&missing, command).await.ended(2).complains(&["nowhere does not exist", "handfast init"]);
            let file = at(&stage.config_path());
            stage.tool_at(&file, command).await.ended(2).complains(&["handfast.toml is not a directory"]);
        }
        for command in ["list", "journal verify", "journal dump"] {
            stage.tool(command).await.ended(2).complains(&["there is no journal in", "handfast init"]);
        }
        let error = open_error(&stage, &at(&stage.path("nowhere"))).await;
        assert_says(&error, ErrorKind::Config, &["nowhere does not exist"]);
        assert!(!stage.path("nowhere").exists());
    }

    /// Permission bits do not bind root, so the tool runs as somebody else.
    async fn a_journal_that_may_only_be_read(other) {
        let stage = Stage::new(other).await;
        let id = killed_at(&stage, Some("COMMIT PREPARED"), Some("XA COMMIT")).await;
        let program = as_nobody(&stage, "recover").await;
        let Some(ran) = program else { return };
        ran.ended(2).complains(&["cannot be written", "let this user write there, or name another directory"]);
        let listed = as_nobody(&stage, "list").await.unwrap();
        listed.ended(3).says("decided to commit");
        assert_eq!(stage.prepared_ledger().await.len(), 1, "nothing was touched");
        stage.tool("recover").await.ended(0);
        assert_eq!(stage.tool(&format!("outcome {id}")).await.ended(0).stdout, "committed\n");
    }

    async fn a_journal_in_use(other) {
        let stage = Stage::new(other).await;
        let mut application = stage.application().await;
        let pid = format!("process {} on", application.pid());
        stage.tool("recover").await.ended(6).complains(&["is in use by", &pid, "stop it"]);
        // The same directory by another name is the same journal.
        let link = stage.path("link");
        std::os::unix::fs::symlink(stage.journal(), &link).unwrap();
        let path = stage.path("link.toml");
        std::fs::write(&path, stage.config().toml().replace(stage.journal().to_str().unwrap(), link.to_str().unwrap())).unwrap();
        let error = open_error(&stage, &path).await;
        assert_says(&error, ErrorKind::Refused, &["is in use by", &pid]);
        // Killed, it holds nothing: no lock is left behind.
        application.kill().await;
        stage.tool("recover").await.ended(0);
    }

    async fn a_journal_that_is_corrupt(other) {
        let stage = Stage::new(other).await;
        let mut application = stage.application().await;
        let mut ids = Vec::new();
        for row in 1..=20 {
            ids.push(application.write(row).await);
            application.tell("commit").await;
            application.committed().await;
        }
        application.end().await;
        stage.tool("journal repair --reason none --yes").await.ended(6).complains(&["nothing to repair"]);
        let whole = stage.tool("journal dump").await;
        let entries = |ran: &Ran| ran.stdout.lines().filter(|line| line.starts_with("segment-")).count();
        let damaged = overwrite_the_middle(&stage.journal());

        let (file, offset) = (damaged.0.as_str(), damaged.1.to_string());
        for command in ["list", "recover", "recover --dry-run"] {
            stage.tool(command).await.ended(7).complains(&["is corrupt in", file, "no branch was touched", "handfast journal dump"]);
        }
        let verify = stage.tool("journal verify").await;
        verify.ended(7).says("corrupt:").says(file).says("may concern").says("docs/recovery.md");
        let dump = stage.tool("journal dump").await;
        dump.ended(7).says("salvaged").says(file);
        let (before, after) = (entries(&whole), entries(&dump));
        assert!(after >= before - 8 && after < before, "{after} of {before} entries, damaged at {offset}");
        assert_eq!(stage.json("journal verify", 7).await["status"], "corrupt");
        assert_eq!(stage.json("list", 7).await["status"], "corrupt");
        let error = open_error(&stage, &stage.config_path()).await;
        assert_says(&error, ErrorKind::Corrupt, &["is corrupt in", file]);
        assert_eq!(stage.tool("journal dump").await.stdout, dump.stdout, "nothing was changed");
        repaired(&stage, &ids, file, &dump).await;
    }
}

/// The way out (D47): shown first, done with `--yes`; nothing that can be read is lost, and the files are kept.
async fn repaired(stage: &Stage, ids: &[String], file: &str, dump: &Ran) {
    let plan = stage.tool("journal repair --reason disk").await;
    plan.ended(0).says(file).says("can be kept:").says("incomplete: opening").says("nothing was changed");
    assert_eq!(stage.tool("journal dump").await.stdout, dump.stdout, "nothing was changed");
    let planned = stage.json("journal repair --reason disk", 0).await;
    assert!(planned["repaired"] == false && planned["copy"].is_null(), "{planned:#}");
    let damaged = std::fs::read(stage.journal().join(file)).unwrap();
    let done = stage.json("journal repair --reason disk --yes", 0).await;
    assert!(done["repaired"] == true && done["kept"] == planned["kept"], "{done:#}");
    assert_eq!(std::fs::read(Path::new(done["copy"].as_str().unwrap()).join(file)).unwrap(), damaged);
    stage.tool("journal verify").await.ended(0).says("clean");
    stage.tool("journal dump").await.ended(0).says("may have been lost").says(": disk");
    // What can be read is as certain as before; what cannot is in doubt, and never said to be rolled back.
    let mut committed = 0;
    for id in ids {
        let outcome = stage.tool(&format!("outcome {id}")).await.stdout;
        committed += usize::from(outcome.trim() == "committed");
        assert_ne!(outcome.trim(), "rolled_back", "{id}");
    }
    assert!(committed >= ids.len() - 4, "{committed} of {}", ids.len());
    let mut application = stage.application().await;
    application.write(100).await;
    application.tell("commit").await;
    application.committed().await;
    application.end().await;
}

each_mysql! {
    /// Without the privilege everything would work until the first crash (D29). MariaDB has none.
    async fn an_account_that_may_not_list(flavor) {
        let stage = Stage::new(flavor).await;
        let user = servers::unique("weak");
        stage.create_user(&user, false).await;
        let path = stage.path("weak.toml");
        let config = stage.bare_config().participant_at("orders", flavor, &stage.orders_url(&user, stage.mysql.port()));
        config.write(&path);
        let opened = Bridge::open(config.build()).await;
        if flavor == Flavor::MariaDb {
            opened.unwrap().close().await.unwrap();
            stage.tool_at(&path, "list").await.ended(0);
            return;
        }
        let Err(error) = opened else { panic!("it may not recover") };
        let grant = format!("GRANT XA_RECOVER_ADMIN ON *.* TO '{user}'@'%';");
        assert_says(&error, ErrorKind::Setup, &["orders", "XA RECOVER", &grant]);
        for command in ["list", "recover"] {
            let ran = stage.tool_at(&path, command).await;
            ran.ended(4).says(&grant).says(" ? ");
        }
        stage.mysql.query(&stage.orders, &grant).await.unwrap();
        stage.tool_at(&path, "recover").await.ended(0);
    }

    async fn a_wrong_password(flavor) {
        let stage = Stage::new(flavor).await;
        let path = stage.path("wrong.toml");
        let secret = stage.path("secret");
        std::fs::write(&secret, format!("not-{PASSWORD}\n")).unwrap();
        let lines = format!("password_file = {secret:?}");
        let config = stage.bare_config().participant_at("orders", flavor, &stage.orders_url("app", stage.mysql.port()));
        config.with(&lines).write(&path);
        stage.tool_at(&path, "init").await.ended(2);
        stage.tool_at(&path, "list").await.ended(4).says("Access denied");
        std::fs::write(&secret, format!("{PASSWORD}\nsecond line\n")).unwrap();
        stage.tool_at(&path, "list").await.ended(0);
    }
}

mod prepared_transactions_that_are_disabled {
    use super::*;

    /// PostgreSQL's default: refused before the first transaction, not at its commit (D40).
    async fn run(flavor: Flavor) {
        let server = servers::start_with(flavor, servers::options().with("max_prepared_transactions", "0")).await;
        let database = servers::fresh_database(&server).await;
        let directory = tempfile::tempdir().unwrap();
        let config = servers::ConfigBuilder::new(directory.path()).participant("ledger", &server, &database);
        let Err(error) = Bridge::open(config.build()).await else { panic!("nothing could be prepared") };
        let cure = "ALTER SYSTEM SET max_prepared_transactions = 16";
        assert_says(&error, ErrorKind::Setup, &["ledger", "max_prepared_transactions is 0", cure, "restart"]);
        let path = directory.path().join("handfast.toml");
        config.write(&path);
        let mut list = tool();
        list.arg("--config").arg(path).arg("list");
        run_to_end(list).await.ended(0);
    }

    test_with_servers! { postgres: run(Postgres) }
}

#[track_caller]
fn assert_says(error: &Error, kind: ErrorKind, texts: &[&str]) {
    let chain = error.chain();
    assert_eq!(error.kind(), kind, "{chain}");
    for text in texts {
        assert!(chain.contains(text), "{text:?} is missing: {chain}");
    }
    assert!(!chain.contains(PASSWORD), "{chain}");
}

async fn open_error(stage: &Stage, config: &Path) -> Error {
    let before = stage.rows().await;
    let Err(error) = Bridge::open(handfast::Config::load(config).unwrap()).await else { panic!("it opened") };
    assert_eq!(stage.rows().await, before);
    error
}

/// Runs the tool as the user `nobody`, who may read everything of the stage and write nothing; `None` unless we are
/// root.
async fn as_nobody(stage: &Stage, arguments: &str) -> Option<Ran> {
    const NOBODY: u32 = 65_534;
    if chown(stage.config_path(), Some(NOBODY), None).is_err() {
        return None;
    }
    let everything = [stage.directory.path().to_owned(), stage.journal()];
    for directory in everything {
        std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o755)).unwrap();
        for file in std::fs::read_dir(&directory).unwrap().map(Result::unwrap).filter(|file| file.path().is_file()) {
            std::fs::set_permissions(file.path(), PermissionsExt::from_mode(0o644)).unwrap();
        }
    }
    let mut command = tool();
    command.uid(NOBODY).gid(NOBODY).arg("--config").arg(stage.config_path()).args(arguments.split(' '));
    Some(run_to_end(command).await)
}

/// Overwrites 100 bytes in the middle of what the last segment holds; tells where.
fn overwrite_the_middle(journal: &Path) -> (String, u64) {
    use std::os::unix::fs::FileExt;
    let names = std::fs::read_dir(journal).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let name = names.filter(|name| name.starts_with("segment-") && !name.ends_with(".new")).max().unwrap();
    let path = journal.join(&name);
    let bytes = std::fs::read(&path).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() as u64 + 1;
    let offset = used / 2;
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&[0xa5; 100], offset).unwrap();
    (name, offset)
}
