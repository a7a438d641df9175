//! What a participant finds out about its server: each prerequisite on a server that lacks it.

use handfast::participant::{self, Finding, Participant, Severity, Sighted};
use handfast::{Bridge, ErrorKind};
use integration_tests::conformance::eventually;
use integration_tests::servers::{self, ConfigBuilder, Flavor, Options, Server};
use integration_tests::{each_mysql, each_server, test_with_servers};
use std::sync::Arc;
use tempfile::TempDir;

/// A participant `bench` on a database of its own, its tables created.
struct Bench {
    server: &'static Server,
    database: String,
    journal: TempDir,
    participant: Arc<dyn Participant>,
}

impl Bench {
    async fn on(server: &'static Server) -> Self {
        let database = servers::fresh_database(server).await;
        let url = server.url(&database);
        let bench = Self::at(server, database, &url, "").await;
        bench.participant.init().await.unwrap();
        bench
    }

    async fn own(flavor: Flavor, options: Options) -> Self {
        Self::on(Box::leak(Box::new(servers::start_with(flavor, options).await))).await
    }

    async fn at(server: &'static Server, database: String, url: &str, lines: &str) -> Self {
        let journal = TempDir::new().unwrap();
        let config = Self::config(&journal, server.flavor(), url, lines);
        let participant = participant::from_config(&config.build()).unwrap().remove(0);
        Self { server, database, journal, participant }
    }

    fn config(journal: &TempDir, flavor: Flavor, url: &str, lines: &str) -> ConfigBuilder {
        ConfigBuilder::new(journal.path()).participant_at("bench", flavor, url).with(lines)
    }

    /// The same database as another user, with lines added to the participant's configuration.
    async fn as_user(&self, user: &str, lines: &str) -> Self {
        Self::at(self.server, self.database.clone(), &self.server.url_as(user, &self.database), lines).await
    }

    async fn sql(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        self.server.query(&self.database, sql).await.unwrap()
    }

    async fn check(&self) -> Vec<Finding> {
        self.participant.check().await.unwrap_or_else(|error| panic!("{}", error.chain()))
    }

    /// The only finding of a check.
    async fn found(&self, check: &str) -> Finding {
        let all = self.check().await;
        let mut of: Vec<_> = all.iter().filter(|one| one.check == check).cloned().collect();
        assert_eq!(of.len(), 1, "{check} in {all:#?}");
        of.remove(0)
    }

    async fn opening(&self, lines: &str) -> handfast::Result<Bridge> {
        let url = self.server.url(&self.database);
        Bridge::open(Self::config(&self.journal, self.server.flavor(), &url, lines).build()).await
    }
}

#[track_caller]
fn is(finding: &Finding, severity: Severity, texts: &[&str]) {
    assert_eq!(finding.severity, severity, "{finding:#?}");
    for text in texts {
        assert!(finding.sentence().contains(text), "{text:?} in {finding:#?}");
    }
}

/// A name as a check gives it to its branch.
fn probe(number: u64) -> String {
    format!("handfast-doctor.{number:016x}")
}

fn hexadecimal(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn xid(name: &str) -> String {
    format!("X'{}',X'',2147483647", hexadecimal(name))
}

each_server! {
    /// Everything is as it should be, the check has prepared a branch of its own, and nothing is left of it.
    async fn a_healthy_server(flavor) {
        let bench = Bench::on(servers::shared(flavor).await).await;
        let all = bench.check().await;
        for finding in &all {
            let allowed = if finding.check == "detach" || finding.check == "prepared branches" { Severity::Note } else { Severity::Good };
            assert!(finding.severity <= allowed, "{finding:#?}");
            assert_eq!(finding.severity == Severity::Good, finding.why.is_empty(), "{finding:#?}");
        }
        for check in ["version", "primary", "timeouts", "replication", "role", "tables", "rights", "witness", "clock", "probe"] {
            assert!(all.iter().any(|one| one.check == check), "{check} in {all:#?}");
        }
        assert_eq!(bench.sql("SELECT count(*) FROM handfast_witness").await, [[Some("0".into())]]);
        let listed = bench.participant.list().await.unwrap();
        let is_left = |one: &participant::Sighting| matches!(&one.branch, Sighted::Foreign(name) if name.contains("handfast-doctor"));
        // Other tests' checks are at work on the same MySQL; on PostgreSQL the list is this database's.
        if flavor == Flavor::Postgres {
            assert!(!listed.iter().any(is_left), "{listed:#?}");
        }
    }

    /// Before `handfast init`, the check creates nothing, and prepares a branch that writes nothing.
    async fn without_tables(flavor) {
        let server = servers::shared(flavor).await;
        let database = servers::fresh_database(server).await;
        let url = server.url(&database);
        let bench = Bench::at(server, database, &url, "").await;
        let tables = bench.found("tables").await;
        assert!(matches!(tables.severity, Severity::Note | Severity::Warning), "{tables:#?}");
        assert_eq!(tables.cure.as_deref(), Some("handfast init"));
        is(&bench.found("probe").await, Severity::Good, &[]);
        assert_eq!(bench.participant.identify().await.unwrap().lineage, None);
    }

    /// A server that cannot be reached is an error, not a finding.
    async fn an_unreachable_server(flavor) {
        let server = servers::shared(flavor).await;
        let url = server.url("nothing").replace(&format!(":{}/", server.port()), ":1/");
        let bench = Bench::at(server, "nothing".into(), &url, "").await;
        assert_eq!(bench.participant.check().await.unwrap_err().kind(), ErrorKind::Unavailable);
    }

    /// A user without rights on the tables is told which grant is missing.
    async fn a_user_without_rights(flavor) {
        let bench = Bench::on(servers::shared(flavor).await).await;
        let user = servers::unique("u");
        // To connect to the database at all, and to see that there are tables.
        let grants: &[&str] = match flavor {
            Flavor::Postgres => &[],
            Flavor::MariaDb => &["SELECT ON *.*"],
            Flavor::MySql => &["SELECT ON *.*", "XA_RECOVER_ADMIN ON *.*"],
        };
        bench.server.create_user(&bench.database, &user, grants).await.unwrap();
        let weak = bench.as_user(&user, "").await;
        let rights = weak.found("rights").await;
        is(&rights, Severity::Failure, &["GRANT SELECT, INSERT, DELETE ON", &user]);
        is(&weak.found("probe").await, Severity::Note, &["no branch was prepared"]);
        for statement in rights.cure.unwrap().lines() {
            bench.sql(statement.trim_end_matches(';')).await;
        }
        is(&weak.found("rights").await, Severity::Good, &[]);
        is(&weak.found("probe").await, Severity::Good, &[]);
    }

    async fn without_a_witness(flavor) {
        let bench = Bench::on(servers::shared(flavor).await).await;
        let url = bench.server.url(&bench.database);
        let off = Bench::at(bench.server, bench.database.clone(), &url, "witness = false").await;
        is(&off.found("witness").await, Severity::Warning, &["witness = false"]);
    }
}

/// `fsync = off` and the like: refused at opening, unless it was accepted (D13).
async fn is_refused_unless_accepted(bench: &Bench, setting: &'static str, cure: &str) {
    is(&bench.found(setting).await, Severity::Failure, &[setting, "D13", cure]);
    let Err(error) = bench.opening("").await else { panic!("opened with {setting}") };
    assert_eq!(error.kind(), ErrorKind::Setup, "{}", error.chain());
    for text in ["bench", setting, cure] {
        assert!(error.chain().contains(text), "{text:?} in {}", error.chain());
    }
    let url = bench.server.url(&bench.database);
    let accepted = Bench::at(bench.server, bench.database.clone(), &url, "allow_unsafe = true").await;
    is(&accepted.found(setting).await, Severity::Warning, &["allow_unsafe = true"]);
    let bridge = accepted.opening("allow_unsafe = true").await.unwrap_or_else(|error| panic!("{}", error.chain()));
    bridge.close().await.unwrap();
}

mod unsafe_settings {
    use super::*;

    async fn run(flavor: Flavor) {
        let options = servers::options();
        let cases: &[(&str, &str, &'static str, &str)] = match flavor {
            Flavor::Postgres => &[
                ("fsync", "off", "fsync", "ALTER SYSTEM SET fsync = on"),
                ("full_page_writes", "off", "full_page_writes", "ALTER SYSTEM SET full_page_writes = on"),
            ],
            Flavor::MariaDb | Flavor::MySql => &[
                (
                    "innodb_flush_log_at_trx_commit",
                    "0",
                    "innodb_flush_log_at_trx_commit",
                    "innodb_flush_log_at_trx_commit = 1",
                ),
                ("sync_binlog", "0", "sync_binlog", "sync_binlog = 1"),
            ],
        };
        let options = if flavor == Flavor::Postgres { options } else { options.with_binlog() };
        let bench = Bench::own(flavor, options).await;
        for (setting, value, check, cure) in cases {
            let good = bench.found(check).await;
            is(&good, Severity::Good, &[]);
            if flavor == Flavor::Postgres {
                bench.sql(&format!("ALTER SYSTEM SET {setting} = {value}")).await;
                bench.sql("SELECT pg_reload_conf()").await;
                eventually("the setting holds", async || bench.found(check).await.severity == Severity::Failure).await;
            } else {
                bench.sql(&format!("SET GLOBAL {setting} = {value}")).await;
            }
            is_refused_unless_accepted(&bench, check, cure).await;
            if flavor == Flavor::Postgres {
                bench.sql(&format!("ALTER SYSTEM RESET {setting}")).await;
                bench.sql("SELECT pg_reload_conf()").await;
                eventually("the setting holds", async || bench.found(check).await.severity == Severity::Good).await;
            } else {
                bench.sql(&format!("SET GLOBAL {setting} = 1")).await;
            }
        }
    }

    test_with_servers! { postgres: run(Postgres) }
    test_with_servers! { mariadb: run(MariaDb) }
    test_with_servers! { mysql: run(MySql) }
}

/// InnoDB without its redo log, as after a bulk load that nobody ended.
mod a_disabled_redo_log {
    use super::*;

    async fn run(flavor: Flavor) {
        let bench = Bench::own(flavor, servers::options()).await;
        bench.sql("ALTER INSTANCE DISABLE INNODB REDO_LOG").await;
        is_refused_unless_accepted(&bench, "redo log", "ALTER INSTANCE ENABLE INNODB REDO_LOG").await;
    }

    test_with_servers! { mysql: run(MySql) }
}

/// The resolver writes in READ COMMITTED, which InnoDB refuses when statements are logged.
mod statements_in_the_binary_log {
    use super::*;

    async fn run(flavor: Flavor) {
        let bench = Bench::own(flavor, servers::options().with_binlog()).await;
        is(&bench.found("binlog_format").await, Severity::Good, &[]);
        bench.sql("SET GLOBAL binlog_format = 'STATEMENT'").await;
        is(&bench.found("binlog_format").await, Severity::Failure, &["1665", "binlog_format = 'ROW'"]);
        let refused = bench.found("rights").await;
        is(&refused, Severity::Note, &["1665"]);
        assert_eq!(bench.opening("").await.err().map(|error| error.kind()), Some(ErrorKind::Setup));
    }

    test_with_servers! { mariadb: run(MariaDb) }
    test_with_servers! { mysql: run(MySql) }
}
