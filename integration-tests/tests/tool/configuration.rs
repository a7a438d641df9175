//! `handfast config`: what is in force, without servers, a journal or secrets.

use crate::stage::{run_to_end, tool};
use handfast::Config;
use std::path::PathBuf;
use tempfile::TempDir;
use tokio::process::Command;

const FILE: &str = r#"
node = "orders-api-1"
journal.directory = "/var/lib/handfast"
transaction.timeout = "20s"
pool.size = 8

[participants.ledger]
kind = "postgres"
url = "postgresql://app:pa55@db1/ledger?application_name=x"

[participants.orders]
kind = "mysql"
url = "mysql://app@db2/orders"
pool_size = 32
settings = { sql_mode = "ANSI_QUOTES", max_execution_time = 5000 }
"#;

const SHOWN: &str = r#"# In force, by FILE and the environment. Secrets are not shown.
node = "orders-api-1"                    # file

[journal]
directory = "/var/lib/handfast"          # file
segment_bytes = "1 MiB"                  # environment

[transaction]
timeout = "20s"                          # file
decision = "journal"                     # default
acknowledge = "applied"                  # default
apply_wait = "5s"                        # default
lock_timeout = "10s"                     # default
retries = 5                              # default

[recovery]
interval = "1m"                          # default
backoff_min = "100ms"                    # default
backoff_max = "30s"                      # default
statement_timeout = "10s"                # default
lease_interval = "5s"                    # default
open_wait = "10s"                        # default

[pool]
size = 8                                 # file
connect_timeout = "5s"                   # default

[participants.ledger]
kind = "postgres"                        # file
url = "postgresql://app@db1/ledger"      # file, without password and parameters
# password = "(hidden)"                  # environment
witness = true                           # default
pool_size = 8                            # default
allow_unsafe = false                     # default

[participants.orders]
kind = "mysql"                           # file
url = "mysql://app@db2/orders"           # file
witness = true                           # default
pool_size = 32                           # file
allow_unsafe = false                     # default
settings = { "max_execution_time" = "5000", "sql_mode" = "ANSI_QUOTES" } # file
"#;

fn file(text: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("handfast.toml");
    std::fs::write(&path, text).unwrap();
    (directory, path)
}

fn asked(path: &PathBuf, arguments: &[&str]) -> Command {
    let mut command = tool();
    command.arg("--config").arg(path).arg("config").args(arguments);
    command.env("HANDFAST__JOURNAL__SEGMENT_BYTES", "1 MiB");
    command.env("HANDFAST__PARTICIPANTS__LEDGER__PASSWORD", "hush");
    command
}

#[tokio::test]
async fn what_is_in_force_is_told_with_its_source() {
    let (_directory, path) = file(FILE);
    let ran = run_to_end(asked(&path, &[])).await;
    assert_eq!(ran.ended(0).stdout.replace(path.to_str().unwrap(), "FILE"), SHOWN);

    let again = Config::from_toml(&ran.stdout).unwrap();
    assert_eq!((again.journal.segment_bytes, again.pool.size), (1 << 20, 8));
    let of = |config: &Config| config.participants[&"orders".parse().unwrap()].settings.clone();
    assert_eq!(of(&again), of(&Config::from_toml(FILE).unwrap()));
    assert_eq!(again.options(), Config::from_toml(FILE).unwrap().options());
}

#[tokio::test]
async fn programs_read_the_same() {
    let (_directory, path) = file(FILE);
    let ran = run_to_end(asked(&path, &["--format", "json"])).await;
    let json = ran.ended(0).json();
    assert_eq!((&json["schema"], &json["status"]), (&1.into(), &"clean".into()));
    let config = &json["config"];
    assert_eq!(config["transaction"]["timeout"], "20s");
    assert_eq!(config["participants"]["ledger"]["password"], "(hidden)");
    assert_eq!(config["participants"]["orders"]["pool_size"], 32);
    assert_eq!(config["participants"]["orders"]["settings"]["max_execution_time"], "5000");
    assert!(config["participants"]["ledger"]["settings"].is_null());
    let sources = &json["sources"];
    assert_eq!(sources["transaction.timeout"], "file");
    assert_eq!(sources["transaction.retries"], "default");
    assert_eq!(sources["journal.segment_bytes"], "environment");
    assert!(!ran.stdout.contains("hush") && !ran.stdout.contains("pa55"), "{ran}");
}

#[tokio::test]
async fn what_is_misspelt_ends_with_2() {
    let (_directory, path) = file(&FILE.replace("pool.size", "pool.siez"));
    run_to_end(asked(&path, &[])).await.ended(2).complains(&["pool.siez is unknown: did you mean pool.size?"]);
    let (_directory, path) = file(FILE);
    let mut command = asked(&path, &[]);
    command.env("HANDFAST__PARTICIPANTS__LEDGER__PASWORD", "hush");
    let ran = run_to_end(command).await;
    ran.ended(2).complains(&["did you mean HANDFAST__PARTICIPANTS__LEDGER__PASSWORD?"]);
    assert!(!ran.stderr.contains("hush"), "{ran}");
}
