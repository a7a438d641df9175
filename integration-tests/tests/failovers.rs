//! Servers that lose or bring back what they had promised: failovers, restored backups, settings that do not keep. Names
//! begin with the entry of the log of known failures that they try.

use handfast::protocol::recovery::Action;
use handfast::resolver::{Pass, Resolver};
use handfast::{Bridge, Config, ErrorKind, Outcome, TransactionId};
use integration_tests::each_server;
use integration_tests::servers::{self, Flavor, Server};
use integration_tests::world::{Home, Program, Side, World, eventually, insert, try_insert};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Copies a stopped server's data over another stopped server's, as a file-level backup and its restoring do.
fn copy(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(status.success(), "{} to {}", from.display(), to.display());
}

fn data(server: &Server) -> std::path::PathBuf {
    server.directory().join("data")
}

/// The tool with a configuration.
fn tool(config: &str, arguments: &[&str]) -> Command {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), config).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_handfast-tool"));
    command.arg("--config").arg(file.into_temp_path().keep().unwrap()).args(arguments).stdin(Stdio::null());
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// A program that is killed when it has decided, the one side has committed, and this side is still prepared.
async fn decided(world: &World, side: &Side, key: i32) -> TransactionId {
    let rule = side.proxy.on(side.words().commit).and_stay_down().cut();
    let program = Program::start(world.config("")).await;
    let id = program.begin_commit(key).await;
    rule.fired().await;
    eventually("the other side is committed", async || world.other(side).has(key).await).await;
    program.crash().await;
    side.sessions_are_gone().await;
    side.proxy.up();
    assert_eq!(side.prepared().await.len(), 1);
    id
}

async fn swept(config: Config) -> Pass {
    let resolver = Resolver::open(config).unwrap();
    let pass = resolver.sweep(&|_| {}).await;
    assert!(pass.refused.is_none(), "{:?}", pass.refused);
    resolver.close().await.unwrap();
    pass
}

fn is_damaged(pass: &Pass, id: TransactionId) {
    let one = pass.left.transactions.iter().find(|one| one.id == id).expect("it is told");
    assert_eq!((one.outcome, one.action), (Outcome::Damaged, Action::Damage), "{one:#?}");
}

/// An asynchronous standby that was cut off before the prepare is promoted: what was decided is not there and left no
/// witness. Damage, at every run, with exit code 5, until a person has dealt with it.
#[test]
fn d12_a_failover_to_a_standby_that_never_had_the_branch() {
    servers::runtime().block_on(async {
        let world = World::on(Home::own(Flavor::Postgres).await, Home::shared(Flavor::MariaDb).await).await;
        world.open().await.close().await.unwrap();
        let primary = &world.ledger.server;
        let standby = servers::start(Flavor::Postgres).await;
        standby.stop().await.unwrap();
        primary.stop().await.unwrap();
        copy(&data(primary), &data(&standby));
        std::fs::write(data(&standby).join("standby.signal"), "").unwrap();
        standby.set("primary_conninfo", &format!("host=127.0.0.1 port={} user=postgres", primary.port()));
        primary.restart().await.unwrap();
        standby.restart().await.unwrap();
        insert(&world.open().await, 1).await.commit().await.unwrap();
        let database = world.ledger.database.clone();
        let has_first = "SELECT count(*) FROM t WHERE k = 1";
        eventually("the standby follows", async || {
            standby.value(&database, has_first).await.unwrap().as_deref() == Some("1")
        })
        .await;
        standby.stop().await.unwrap();

        let id = decided(&world, &world.ledger, 2).await;
        primary.kill().await.unwrap();
        standby.restart().await.unwrap();
        standby.query(&database, "SELECT pg_promote()").await.unwrap();
        let toml = world.builder("").toml();
        let toml = toml.replace(&format!(":{}/", world.ledger.proxy.port()), &format!(":{}/", standby.port()));
        for _ in 0..2 {
            is_damaged(&swept(Config::from_toml(&toml).unwrap()).await, id);
            let ran = tool(&toml, &["recover"]).output().unwrap();
            assert_eq!(ran.status.code(), Some(5), "{}", said(&ran));
            assert!(said(&ran).contains(&id.to_string()), "{}", said(&ran));
        }
        assert!(world.orders.has(2).await, "what was committed stays");
    });
}

/// No synchronous standby answers, and the wait is cancelled: the server warns that it has committed locally. That is a
/// commit here, and is logged.
#[test]
fn d12_committed_locally_is_committed_and_logged() {
    servers::runtime().block_on(async {
        let world = World::on(Home::own(Flavor::Postgres).await, Home::shared(Flavor::MariaDb).await).await;
        decided(&world, &world.ledger, 1).await;
        world.ledger.query("ALTER SYSTEM SET synchronous_standby_names = 'nobody'").await;
        world.ledger.query("SELECT pg_reload_conf()").await;
        let shown = async || world.ledger.value("SHOW synchronous_standby_names").await;
        eventually("it is set", async || shown().await.as_deref() == Some("nobody")).await;
        let toml = world.builder("[recovery]\nstatement_timeout = \"30s\"\n").toml();
        let mut command = tool(&toml, &["recover"]);
        let running = tokio::task::spawn_blocking(move || command.output().unwrap());
        let cancel = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        eventually("it ends when nothing waits", async || {
            world.ledger.query(cancel).await;
            running.is_finished()
        })
        .await;
        let ran = running.await.unwrap();
        assert_eq!(ran.status.code(), Some(0), "{}", said(&ran));
        assert!(said(&ran).contains("01000"), "{}", said(&ran));
        world.is_on_both(1).await;
    });
}

each_server! {
    /// A server is restored from a backup made before the prepare: the branch is lost. And from one made while it was
    /// prepared: it is back, and gets its outcome.
    async fn d12_a_restored_server(flavor) {
        let home = Home::own(flavor).await;
        let world = if flavor == Flavor::Postgres {
            World::on(home, Home::shared(Flavor::MariaDb).await).await
        } else {
            World::on(Home::shared(Flavor::Postgres).await, home).await
        };
        let side = if flavor == Flavor::Postgres { &world.ledger } else { &world.orders };
        let backup = tempfile::TempDir::new().unwrap();
        let backup = backup.path().join("backup");
        let restore = async || {
            side.server.stop().await.unwrap();
            copy(&backup, &data(&side.server));
            side.server.restart().await.unwrap();
        };
        decided(&world, side, 1).await;
        side.server.stop().await.unwrap();
        copy(&data(&side.server), &backup);
        side.server.restart().await.unwrap();
        assert!(world.recover().await.is_complete());
        world.is_on_both(1).await;

        restore().await;
        assert_eq!((side.prepared().await.len(), side.has(1).await), (1, false), "it is back");
        assert!(world.recover().await.is_complete());
        world.is_on_both(1).await;

        let lost = decided(&world, side, 2).await;
        restore().await;
        for _ in 0..2 {
            is_damaged(&swept(world.config("")).await, lost);
        }
        assert_eq!((side.has(2).await, world.other(side).has(2).await), (false, true));
        // The first one was brought back once more, and is carried out once more.
        world.is_on_both(1).await;
    }
}

/// A server that does not force its log: refused; accepted all the same, and then it loses a branch: damage, no success.
#[test]
fn d13_a_setting_that_loses_branches() {
    servers::runtime().block_on(async {
        let options =
            servers::options().with("innodb_flush_log_at_trx_commit", "0").with("innodb_flush_log_at_timeout", "2700");
        let server = servers::start_with(Flavor::MariaDb, options).await;
        let world = World::on(Home::shared(Flavor::Postgres).await, Home::Own(Box::new(server))).await;
        let error = Bridge::open(world.config("")).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Setup);
        assert!(error.chain().contains("innodb_flush_log_at_trx_commit"), "{}", error.chain());

        let config = world.builder("").with("allow_unsafe = true").build();
        let bridge = Bridge::open(config.clone()).await.unwrap();
        // What is there so far is to be on disk.
        world.orders.query("SET GLOBAL innodb_flush_log_at_trx_commit = 1").await;
        insert(&bridge, 1).await.commit().await.unwrap();
        world.orders.query("SET GLOBAL innodb_flush_log_at_trx_commit = 0").await;
        let rule = world.orders.proxy.on("XA COMMIT").hold();
        let tx = insert(&bridge, 2).await;
        let id = tx.id();
        let commit = tokio::spawn(tx.commit());
        rule.fired().await;
        world.orders.server.kill().await.unwrap();
        world.orders.server.restart().await.unwrap();
        rule.release();
        let answer = commit.await.unwrap();
        assert!(answer.is_ok_and(|committed| !committed.pending.is_empty()), "decided, and not applied there");
        assert!(!world.orders.has(2).await && world.orders.prepared().await.is_empty(), "the server has lost it");
        eventually("it is found out", async || bridge.status().damaged == 1).await;
        assert_eq!(bridge.outcome(id).await.unwrap(), Outcome::Damaged);
        bridge.close().await.unwrap();
        is_damaged(&swept(config).await, id);
    });
}

/// All slots taken by others: every commit is refused cleanly, with the limit and what is in use.
#[test]
fn d41_all_slots_are_in_use() {
    servers::runtime().block_on(async {
        let options = servers::options().with("max_prepared_transactions", "5");
        let server = servers::start_with(Flavor::Postgres, options).await;
        let world = World::on(Home::Own(Box::new(server)), Home::shared(Flavor::MariaDb).await).await;
        let bridge = world.open_with("[pool]\nsize = 8\n").await;
        for n in 0..5 {
            world.ledger.query(&format!("BEGIN; PREPARE TRANSACTION 'orphan-{n}'")).await;
        }
        let commits = (0..50).map(|key| {
            let bridge = bridge.clone();
            tokio::spawn(async move { try_insert(&bridge, key).await.unwrap().commit().await })
        });
        for commit in commits.collect::<Vec<_>>() {
            let error = commit.await.unwrap().unwrap_err();
            assert_eq!(error.outcome(), Outcome::RolledBack, "{error:?}");
            let text = handfast::Error::from(error).chain();
            assert!(text.contains("max_prepared_transactions 5, in use 5"), "{text}");
        }
        world.nothing_is_prepared().await;
        assert_eq!((world.ledger.keys().await, world.orders.keys().await), (vec![], vec![]));
        for n in 0..5 {
            world.ledger.query(&format!("ROLLBACK PREPARED 'orphan-{n}'")).await;
        }
        insert(&bridge, 1).await.commit().await.unwrap();
        world.is_on_both(1).await;
    });
}

/// One side refuses to prepare, and the other's rollback fails: what is told is why it was rolled back.
#[test]
fn d36_what_fails_in_cleaning_up_does_not_hide_the_cause() {
    servers::runtime().block_on(async {
        let world = World::new(Flavor::MariaDb).await;
        let bridge = world.open().await;
        let tx = insert(&bridge, 1).await;
        tx.postgres("ledger").await.unwrap().batch_execute("CREATE TEMPORARY TABLE x (n int)").await.unwrap();
        let rule = world.orders.proxy.on("XA ROLLBACK").and_stay_down().cut();
        let error = tx.commit().await.unwrap_err();
        rule.fired().await;
        assert_eq!(error.outcome(), Outcome::RolledBack);
        let text = handfast::Error::from(error).chain();
        assert!(text.contains("ledger") && text.contains("temporary"), "{text}");
        world.orders.proxy.up();
        world.is_nowhere(1).await;
    });
}
