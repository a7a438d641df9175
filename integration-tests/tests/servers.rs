//! The throwaway servers themselves: they survive crashes with their data, and leave nothing behind.

use integration_tests::servers::{self, Flavor, Options, Server, is_running};
use integration_tests::{each_mysql, each_server};
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What `prepare` leaves must be there after a crash too: this is what all other tests rest on.
const PREPARE: [&str; 2] = [
    "BEGIN; INSERT INTO t VALUES (2); PREPARE TRANSACTION 'p'",
    "XA START 'p'; INSERT INTO t VALUES (2); XA END 'p'; XA PREPARE 'p'",
];

each_server! {
    async fn data_survives_a_kill(flavor) {
        let server = servers::start(flavor).await;
        let database = servers::fresh_database(&server).await;
        let (port, first) = (server.port(), server.pid());
        server.query(&database, "CREATE TABLE t (a INT PRIMARY KEY); INSERT INTO t VALUES (1)").await.unwrap();
        let [postgres, mysql] = PREPARE;
        let prepare = if flavor == Flavor::Postgres { postgres } else { mysql };
        server.query(&database, prepare).await.unwrap();

        server.kill().await.unwrap();
        assert_eq!(server.pid(), None);
        assert!(server.query(&database, "SELECT 1").await.is_err());
        server.restart().await.unwrap();

        assert_eq!(server.port(), port);
        assert_ne!(server.pid(), first);
        assert_eq!(server.value(&database, "SELECT count(*) FROM t").await.unwrap().as_deref(), Some("1"));
        let finish = if flavor == Flavor::Postgres { "COMMIT PREPARED 'p'" } else { "XA COMMIT 'p'" };
        server.query(&database, finish).await.unwrap();
        assert_eq!(server.value(&database, "SELECT count(*) FROM t").await.unwrap().as_deref(), Some("2"));
    }

    async fn a_stopped_server_starts_again_with_new_settings(flavor) {
        let server = servers::start(flavor).await;
        server.stop().await.unwrap();
        server.stop().await.unwrap();
        server.set("max_connections", "57");
        server.restart().await.unwrap();
        let sql = if flavor == Flavor::Postgres { "SHOW max_connections" } else { "SELECT @@max_connections" };
        assert_eq!(server.value(database(flavor), sql).await.unwrap().as_deref(), Some("57"));
    }

    async fn a_suspended_server_answers_when_it_goes_on(flavor) {
        let server = servers::start(flavor).await;
        server.suspend().await.unwrap();
        let silent = tokio::time::timeout(Duration::from_millis(300), server.query(database(flavor), "SELECT 1"));
        assert!(silent.await.is_err());
        server.resume().await.unwrap();
        assert_eq!(server.value(database(flavor), "SELECT 1").await.unwrap().as_deref(), Some("1"));
        // What is suspended when its owner goes is ended all the same.
        server.suspend().await.unwrap();
    }

    async fn nothing_is_left_of_a_dropped_server(flavor) {
        let server = servers::start(flavor).await;
        let (pid, directory) = (server.pid().unwrap(), server.directory().to_owned());
        assert!(directory.join("data").is_dir());
        drop(server);
        assert!(!is_running(pid));
        assert!(!directory.exists());
    }

    async fn a_user_may_do_what_it_was_granted(flavor) {
        let server = servers::shared(flavor).await;
        let database = servers::fresh_database(server).await;
        let user = servers::unique("u");
        server.query(&database, "CREATE TABLE t (a INT)").await.unwrap();
        let grant = if flavor == Flavor::Postgres { "SELECT ON t".into() } else { format!("SELECT ON {database}.t") };
        server.create_user(&database, &user, &[&grant]).await.unwrap();
        let as_user = async |sql: &str| server.query_as(&user, &database, sql).await;
        assert_eq!(as_user("SELECT count(*) FROM t").await.unwrap(), [[Some("0".to_owned())]]);
        assert!(as_user("INSERT INTO t VALUES (1)").await.is_err());
    }

    async fn a_setting_that_is_wrong_is_reported_with_the_log(flavor) {
        let options = servers::options().with("max_connections", "many").with("no_such_setting", "1");
        let error = Server::start(&servers::installation(flavor), options).await.unwrap_err().to_string();
        assert!(error.contains("its log ends:"), "{error}");
        assert!(error.contains("no_such_setting"), "{error}");
    }

    /// A child process starts a server and is killed: neither a process nor a directory remains.
    async fn nothing_is_left_of_a_program_that_was_killed(flavor) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_program_that_will_be_killed", "--nocapture"])
            .env(ROLE, flavor.as_str())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (pid, directory) = read_announcement(child.stdout.take().unwrap());
        assert!(is_running(pid));
        assert!(directory.is_dir());
        child.kill().unwrap();
        child.wait().unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        while is_running(pid) || directory.exists() {
            assert!(Instant::now() < deadline, "process {pid} or {} is still there", directory.display());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

each_mysql! {
    async fn a_binary_log_can_be_had(flavor) {
        let server = servers::start_with(flavor, servers::options().with_binlog()).await;
        let settings = server.query("mysql", "SELECT @@log_bin, @@sync_binlog").await.unwrap();
        assert_eq!(settings, [[Some("1".to_owned()), Some("1".to_owned())]]);
        let plain = servers::shared(flavor).await;
        assert_eq!(plain.value("mysql", "SELECT @@log_bin").await.unwrap().as_deref(), Some("0"));
    }
}

/// A postmaster that was killed leaves a segment of shared memory, and there is room for a few thousand of them.
#[test]
fn no_shared_memory_is_left_of_a_killed_postgres() {
    let segments = || std::fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    servers::runtime().block_on(async {
        let server = servers::start(Flavor::Postgres).await;
        let pids = std::fs::read_to_string(server.directory().join("data/postmaster.pid")).unwrap();
        let segment = pids.lines().nth(6).unwrap().split_whitespace().nth(1).unwrap().to_owned();
        let is_there = |text: String| text.lines().any(|line| line.split_whitespace().nth(1) == Some(&segment));
        server.kill().await.unwrap();
        assert!(is_there(segments()) || segments().is_empty(), "this test looks at the right place");
        drop(server);
        assert!(!is_there(segments()));
    });
}

/// Without a cache of templates the data directory is initialised in place.
#[test]
fn a_server_starts_without_a_cache() {
    servers::runtime().block_on(async {
        let server = Server::start(&servers::installation(Flavor::MariaDb), Options::default()).await.unwrap();
        assert!(server.value("mysql", "SELECT version()").await.unwrap().unwrap().contains("MariaDB"));
    });
}

const ROLE: &str = "HANDFAST_TEST_WILL_BE_KILLED";

/// Not a test by itself: the child of `nothing_is_left_of_a_program_that_was_killed`.
#[test]
fn a_program_that_will_be_killed() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let flavor = Flavor::ALL.into_iter().find(|flavor| flavor.as_str() == role).unwrap();
    let server = servers::runtime().block_on(servers::start(flavor));
    println!("\nserver {} {}", server.pid().unwrap(), server.directory().display());
    // Until the parent kills us, or is gone itself.
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

fn read_announcement(output: impl Read) -> (u32, PathBuf) {
    let lines = BufReader::new(output).lines().map(Result::unwrap);
    let line = lines.into_iter().find_map(|line| line.strip_prefix("server ").map(str::to_owned)).unwrap();
    let (pid, directory) = line.split_once(' ').unwrap();
    (pid.parse().unwrap(), directory.into())
}

fn database(flavor: Flavor) -> &'static str {
    if flavor == Flavor::Postgres { "postgres" } else { "mysql" }
}
