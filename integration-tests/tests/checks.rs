//! What a participant finds out about its server: each prerequisite on a server that lacks it.

use handfast::participant::{self, Finding, Participant, Severity, Sighted};
use handfast::{Bridge, ErrorKind};
use integration_tests::conformance::eventually;
use integration_tests::servers::{self, ConfigBuilder, Flavor, Options, Server};
use integration_tests::{each_mysql, each_server, test_with_servers};
use std::sync::Arc;
use std::time::{Duration, Instant};
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
            let allowed = if ["detach", "prepared branches", "who waits"].contains(&finding.check) { Severity::Note } else { Severity::Good };
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
    is(&bench.found(setting).await, Severity::Failure, &[setting, cure]);
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
        // Before anything is written there.
        let database = servers::fresh_database(bench.server).await;
        let fresh = Bench::at(bench.server, database.clone(), &bench.server.url(&database), "").await;
        assert_eq!(fresh.participant.init().await.err().map(|error| error.kind()), Some(ErrorKind::Setup));
        for bench in [bench, fresh] {
            let before = bench.sql("SHOW TABLES").await;
            assert_eq!(bench.opening("").await.err().map(|error| error.kind()), Some(ErrorKind::Setup));
            assert_eq!(bench.sql("SHOW TABLES").await, before);
            assert_eq!(before.is_empty(), bench.database == database);
        }
    }

    test_with_servers! { mariadb: run(MariaDb) }
    test_with_servers! { mysql: run(MySql) }
}

/// Holds back a row of a prepared branch from somebody who wants it, and one behind him; then lets them go.
mod who_waits {
    use super::*;
    use handfast::participant::Waiting;

    async fn prepare(bench: &Bench, flavor: Flavor, name: &str) {
        bench.sql("CREATE TABLE IF NOT EXISTS t (k int PRIMARY KEY, v int)").await;
        bench.sql("DELETE FROM t").await;
        bench.sql("INSERT INTO t VALUES (1, 0), (2, 0)").await;
        let update = "UPDATE t SET v = 1 WHERE k = 1";
        let statements = match flavor {
            Flavor::Postgres => format!("BEGIN; {update}; PREPARE TRANSACTION '{name}'"),
            _ => format!("XA START '{name}'; {update}; XA END '{name}'; XA PREPARE '{name}'"),
        };
        bench.sql(&statements).await;
    }

    /// Asks until so many wait, with pauses: MariaDB shows the same to those who ask more often than every 100 ms.
    async fn waiting(bench: &Bench, count: usize) -> Vec<Waiting> {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            tokio::time::sleep(Duration::from_millis(150)).await;
            let waiting = bench.participant.waiting().await.unwrap();
            if waiting.len() == count {
                return waiting;
            }
            assert!(Instant::now() < deadline, "{count} should wait: {waiting:#?}");
        }
    }

    async fn run(flavor: Flavor) {
        let options = servers::options();
        let options = if flavor == Flavor::Postgres { options } else { options.with("performance_schema", "ON") };
        let bench = Bench::own(flavor, options).await;
        for restarted in [false, true] {
            is_told(&bench, flavor, restarted).await;
        }
    }

    /// Also by a server that was restarted after the branch was prepared.
    async fn is_told(bench: &Bench, flavor: Flavor, restarted: bool) {
        let name = servers::unique("import");
        prepare(bench, flavor, &name).await;
        if restarted {
            bench.server.restart().await.unwrap();
        }
        assert_eq!(waiting(bench, 0).await, []);

        let wanted = "UPDATE t SET v = v + 1 /* \n a statement of somebody who has to wait for a prepared branch to end */ WHERE k = 1";
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let (server, database) = (bench.server, bench.database.clone());
                tokio::spawn(async move { server.query(&database, wanted).await })
            })
            .collect();
        for Waiting { branch, who } in waiting(bench, 2).await {
            let expected = (flavor == Flavor::Postgres).then(|| Sighted::Foreign(name.clone()));
            assert_eq!(branch, expected);
            let user = if flavor == Flavor::Postgres { "postgres@127.0.0.1, " } else { "root@127.0.0.1, " };
            assert!(who.starts_with(user), "{who}");
            let (_, text) = who.split_once(" s: ").unwrap_or_else(|| panic!("{who}"));
            assert!(text.starts_with("UPDATE t SET v = v + 1 /* a statement") && text.chars().count() <= 80, "{who}");
        }

        let end = if flavor == Flavor::Postgres { "COMMIT PREPARED" } else { "XA COMMIT" };
        bench.sql(&format!("{end} '{name}'")).await;
        for waiter in waiters {
            waiter.await.unwrap().unwrap();
        }
        assert_eq!(waiting(bench, 0).await, []);
    }

    test_with_servers! { postgres: run(Postgres) }
    test_with_servers! { mariadb: run(MariaDb) }
    test_with_servers! { mysql: run(MySql) }

    /// DDL waits for a table's metadata (D25); and an account that may not see who waits does not say that nobody does.
    async fn is_told_of_ddl(flavor: Flavor) {
        let bench = Bench::own(flavor, servers::options().with("performance_schema", "ON")).await;
        let name = servers::unique("import");
        prepare(&bench, flavor, &name).await;
        let grant = format!("GRANT ALL ON {}.* TO 'plain'@'%'", bench.database);
        bench.sql(&format!("CREATE USER 'plain'@'%'; {grant}")).await;
        let plain = bench.as_user("plain", "").await;
        let (server, database) = (bench.server, &bench.database);
        let hangs = |sql: &'static str| {
            let database = database.clone();
            tokio::spawn(async move { server.query(&database, sql).await })
        };
        // It holds the metadata: MariaDB's DDL does not wait for those of a branch whose session is gone.
        let update = hangs("UPDATE t SET v = 2 WHERE k = 1");
        waiting(&bench, 1).await;
        let alter = hangs("ALTER TABLE t ADD COLUMN w int");
        let all = waiting(&bench, 2).await;
        let who = all.iter().map(|one| &one.who).find(|who| who.contains("ALTER TABLE t")).unwrap();
        assert!(who.starts_with("root@127.0.0.1, "), "{who}");
        assert!(who.ends_with("(for a metadata lock, whosever it is)"), "{who}");
        let unseen = plain.participant.waiting().await.unwrap_err();
        assert_eq!(unseen.kind(), ErrorKind::Setup);
        assert!(unseen.to_string().contains("GRANT PROCESS"), "{}", unseen.chain());
        bench.sql(&format!("XA ROLLBACK '{name}'")).await;
        update.await.unwrap().unwrap();
        alter.await.unwrap().unwrap();
        assert_eq!(waiting(&bench, 0).await, []);
    }

    test_with_servers! { ddl_mariadb: is_told_of_ddl(MariaDb) }
    test_with_servers! { ddl_mysql: is_told_of_ddl(MySql) }
}

each_server! {
    /// What a check that was ended in the middle has left is ended by the next one; what merely looks like it is not.
    async fn leftovers_of_an_earlier_check(flavor) {
        let bench = Bench::own(flavor, servers::options()).await;
        let (left, other) = (probe(0xabc), format!("{}0", probe(0xabc)));
        for name in [&left, &other] {
            match flavor {
                Flavor::Postgres => bench.sql(&format!("BEGIN; CREATE TABLE x{} (); PREPARE TRANSACTION '{name}'", name.len())).await,
                _ => bench.sql(&format!("XA START {0}; INSERT INTO handfast_witness VALUES (7, {1}, 0, 'fence'); XA END {0}; XA PREPARE {0}", xid(name), name.len())).await,
            };
        }
        let names = async || {
            let names = bench.participant.list().await.unwrap().into_iter().map(|one| match one.branch {
                Sighted::Foreign(name) => name.trim_matches('\'').split('\'').next().unwrap().to_owned(),
                Sighted::Ours(id) => id.to_string(),
            });
            let mut names: Vec<_> = names.collect();
            names.sort();
            names
        };
        assert_eq!(names().await, [left.clone(), other.clone()]);
        if flavor == Flavor::Postgres {
            // Too young: it may be that of a check that is at work.
            assert!(bench.check().await.iter().all(|one| one.check != "leftovers"));
            assert_eq!(names().await, [left.clone(), other.clone()]);
            bench.sql(&format!("ROLLBACK PREPARED '{left}'")).await;
        } else {
            is(&bench.found("leftovers").await, Severity::Note, &[&left]);
        }
        assert_eq!(names().await, [other]);
    }
}

each_mysql! {
    /// A check whose branch is prepared, and that still has its session, is left alone.
    async fn the_branch_of_a_check_at_work(flavor) {
        let bench = Bench::own(flavor, servers::options()).await;
        let name = probe(0xdef);
        let mut session = handfast::mysql_async::Conn::from_url(format!("{}?prefer_socket=false", bench.server.url(&bench.database))).await.unwrap();
        use handfast::mysql_async::prelude::Queryable;
        for statement in [
            format!("SELECT GET_LOCK('{name}', 0)"),
            format!("XA START {}", xid(&name)),
            "INSERT INTO handfast_witness VALUES (7, 1, 0, 'fence')".into(),
            format!("XA END {}", xid(&name)),
            format!("XA PREPARE {}", xid(&name)),
        ] {
            session.query_drop(statement).await.unwrap();
        }
        let all = bench.check().await;
        assert!(all.iter().all(|one| one.check != "leftovers"), "{all:#?}");
        assert_eq!(bench.participant.list().await.unwrap().len(), 1);
        drop(session);
        eventually("the session is gone", async || bench.check().await.iter().any(|one| one.check == "leftovers")).await;
        assert_eq!(bench.participant.list().await.unwrap(), []);
    }

    /// Rows that stay when a transaction rolls back: some tables are named, all are counted.
    async fn tables_of_other_engines(flavor) {
        let bench = Bench::on(servers::shared(flavor).await).await;
        is(&bench.found("other tables").await, Severity::Good, &[]);
        for (table, engine) in [("a", "MyISAM"), ("b", "MEMORY"), ("c", "MyISAM"), ("d", "MyISAM"), ("e", "MyISAM"), ("f", "MyISAM")] {
            bench.sql(&format!("CREATE TABLE {table} (k int PRIMARY KEY) ENGINE={engine}")).await;
        }
        let found = bench.found("other tables").await;
        is(&found, Severity::Warning, &["6 table(s)", "a (MyISAM), b (MEMORY)", "e (MyISAM) and 1 more", "ENGINE=InnoDB"]);
    }

    /// Tables of ours that prove nothing.
    async fn witnesses_outside_innodb(flavor) {
        let bench = Bench::on(servers::shared(flavor).await).await;
        bench.sql("ALTER TABLE handfast_witness ENGINE=MyISAM").await;
        is(&bench.found("tables").await, Severity::Failure, &["handfast_witness", "MyISAM", "ENGINE=InnoDB"]);
        bench.sql("ALTER TABLE handfast_witness ENGINE=InnoDB, DROP PRIMARY KEY").await;
        is(&bench.found("tables").await, Severity::Failure, &["ADD PRIMARY KEY (incarnation, sequence, branch)"]);
        bench.sql("ALTER TABLE handfast_witness ADD PRIMARY KEY (incarnation, sequence, branch), MODIFY kind varchar(9), ADD x int").await;
        is(&bench.found("tables").await, Severity::Warning, &["x int", "handfast init --print"]);
    }

    async fn a_read_only_server(flavor) {
        let bench = Bench::own(flavor, servers::options()).await;
        bench.sql("SET GLOBAL read_only = ON").await;
        is(&bench.found("primary").await, Severity::Failure, &["read_only", "point the URL to the primary"]);
        is(&bench.found("probe").await, Severity::Note, &["no branch was prepared"]);
        assert_eq!(bench.opening("").await.err().map(|error| error.kind()), Some(ErrorKind::Setup));
    }

    async fn timeouts_that_come_too_early(flavor) {
        let bench = Bench::own(flavor, servers::options()).await;
        bench.sql("SET GLOBAL wait_timeout = 20").await;
        is(&bench.found("timeouts").await, Severity::Warning, &["wait_timeout is 20s", "SET GLOBAL wait_timeout = 60"]);
        bench.sql("SET GLOBAL wait_timeout = 45").await;
        is(&bench.found("timeouts").await, Severity::Note, &["the resolver's session", "SET GLOBAL wait_timeout = 120"]);
    }
}

/// Ids of others by which MySQL loses branches in a crash (bug 120125); whoever may, is told since when they are there.
mod a_high_format {
    use super::*;

    async fn run(flavor: Flavor) {
        let bench = Bench::own(flavor, servers::options()).await;
        // MariaDB takes no such number.
        let xid = if flavor == Flavor::MySql { "'other','',3000000000" } else { "'other','',7" };
        let insert = "INSERT INTO handfast_witness VALUES (7, 1, 0, 'fence')";
        bench.sql(&format!("XA START {xid}; {insert}; XA END {xid}; XA PREPARE {xid}")).await;
        is(&bench.found("prepared branches").await, Severity::Good, &["1 on the server, none seen"]);
        let all = bench.check().await;
        let high = all.iter().find(|one| one.check == "formatID");
        if flavor == Flavor::MySql {
            is(high.expect("it is warned of"), Severity::Warning, &["3000000000", "another server"]);
        } else {
            assert_eq!(high, None);
        }
        let user = servers::unique("u");
        let rights = format!("ALL ON {}.*", bench.database);
        let grants: &[&str] = if flavor == Flavor::MySql { &[&rights, "XA_RECOVER_ADMIN ON *.*"] } else { &[&rights] };
        bench.server.create_user(&bench.database, &user, grants).await.unwrap();
        let found = bench.as_user(&user, "").await.found("prepared branches").await;
        is(&found, Severity::Note, &["1 on the server; since when, this account may not see", "GRANT PROCESS ON *.*"]);
    }

    test_with_servers! { mariadb: run(MariaDb) }
    test_with_servers! { mysql: run(MySql) }
}

/// D29: the exact GRANT, which is all that is missing.
mod without_xa_recover_admin {
    use super::*;

    async fn run(flavor: Flavor) {
        let bench = Bench::on(servers::shared(flavor).await).await;
        let user = servers::unique("u");
        bench.server.create_user(&bench.database, &user, &[&format!("ALL ON {}.*", bench.database)]).await.unwrap();
        let weak = bench.as_user(&user, "").await;
        let found = weak.found("privileges").await;
        let grant = format!("GRANT XA_RECOVER_ADMIN ON *.* TO '{user}'@'%';");
        assert_eq!((found.severity, found.cure.as_deref()), (Severity::Failure, Some(&*grant)), "{found:#?}");
        is(&weak.found("probe").await, Severity::Note, &["no branch was prepared"]);
        bench.sql(&grant).await;
        is(&weak.found("privileges").await, Severity::Good, &[]);
        is(&weak.found("probe").await, Severity::Good, &[]);
    }

    test_with_servers! { mysql: run(MySql) }
}

mod postgres_alone {
    use super::*;

    /// What `ALTER ROLE` sets for a role's sessions.
    async fn the_roles_own_settings(flavor: Flavor) {
        let bench = Bench::on(servers::shared(flavor).await).await;
        let (user, group) = (servers::unique("u"), servers::unique("g"));
        bench.server.create_user(&bench.database, &user, &[]).await.unwrap();
        bench.sql(&format!("CREATE ROLE {group}; GRANT {group} TO {user}; ALTER ROLE {user} SET role = {group}")).await;
        bench.sql(&format!("GRANT SELECT, INSERT, DELETE ON handfast_witness, handfast_incarnation TO {user}")).await;
        bench.sql(&format!("ALTER ROLE {user} SET synchronous_commit = off")).await;
        let other = bench.as_user(&user, "").await;
        is(&other.found("role").await, Severity::Note, &[&format!("sessions of {user} begin with the role {group}")]);
        is(&other.found("synchronous_commit").await, Severity::Note, &["off for this role"]);
        is(&other.found("rights").await, Severity::Good, &[]);
        is(&other.found("probe").await, Severity::Good, &[]);
        is(&other.found("timeouts").await, Severity::Good, &[]);
        for (setting, severity) in
            [("idle_in_transaction_session_timeout", Severity::Warning), ("statement_timeout", Severity::Note)]
        {
            bench.sql(&format!("ALTER ROLE {user} SET {setting} = '20s'")).await;
            is(&other.found("timeouts").await, severity, &[&format!("{setting} is 20s"), "= '60000ms'"]);
            bench.sql(&format!("ALTER ROLE {user} RESET {setting}")).await;
        }
        bench.sql(&format!("ALTER ROLE {user} SET idle_session_timeout = '40s'")).await;
        is(
            &other.found("timeouts").await,
            Severity::Warning,
            &["idle_session_timeout is 40s", "the resolver's session"],
        );
    }

    /// Prepared by one role, this program works as another: it could not finish the branch.
    async fn branches_of_another_role(flavor: Flavor) {
        let bench = Bench::own(flavor, servers::options()).await;
        bench.sql("BEGIN; PREPARE TRANSACTION 'hf1.n.00000000000000ff.1.0.0'").await;
        bench.server.create_user(&bench.database, "weak", &[]).await.unwrap();
        is(&bench.found("prepared branches").await, Severity::Good, &["1 on the server"]);
        let found = bench.as_user("weak", "").await.found("prepared branches").await;
        is(&found, Severity::Warning, &["hf1.n.00000000000000ff.1.0.0 of postgres", "only the role that prepared one"]);
    }

    async fn tables_that_forget(flavor: Flavor) {
        let bench = Bench::on(servers::shared(flavor).await).await;
        bench.sql("CREATE UNLOGGED TABLE cart (k int)").await;
        is(&bench.found("other tables").await, Severity::Warning, &["1 unlogged table(s): public.cart"]);
        bench.sql("ALTER TABLE handfast_witness SET UNLOGGED").await;
        is(&bench.found("tables").await, Severity::Failure, &["handfast_witness is unlogged", "SET LOGGED"]);
    }

    /// 0 slots, too few, and too few left (D40, D41).
    async fn slots(flavor: Flavor) {
        let bench = Bench::own(flavor, servers::options().with("max_prepared_transactions", "0")).await;
        is(
            &bench.found("prepared slots").await,
            Severity::Failure,
            &["is 0", "max_prepared_transactions = 16", "restart"],
        );
        is(&bench.found("probe").await, Severity::Note, &[]);
        bench.server.set("max_prepared_transactions", "16");
        bench.server.restart().await.unwrap();
        is(&bench.found("prepared slots").await, Severity::Good, &["is 16, 0 in use"]);
        bench.sql("BEGIN; PREPARE TRANSACTION 'somebody'").await;
        let found = bench.found("prepared slots").await;
        is(&found, Severity::Warning, &["is 16, 1 in use by whomever", "= 17", "the pool has 16 sessions"]);
    }

    async fn a_standby(flavor: Flavor) {
        let bench = Bench::own(flavor, servers::options()).await;
        bench.server.stop().await.unwrap();
        std::fs::write(bench.server.directory().join("data/standby.signal"), "").unwrap();
        bench.server.restart().await.unwrap();
        is(&bench.found("primary").await, Severity::Failure, &["in recovery", "point the URL to the primary"]);
        is(&bench.found("probe").await, Severity::Note, &[]);
        assert_eq!(bench.opening("").await.err().map(|error| error.kind()), Some(ErrorKind::Setup));
    }

    mod roles {
        test_with_servers! { postgres: run(Postgres) }
        use super::{super::test_with_servers, the_roles_own_settings as run};
    }
    mod owners {
        test_with_servers! { postgres: run(Postgres) }
        use super::{super::test_with_servers, branches_of_another_role as run};
    }
    mod unlogged {
        test_with_servers! { postgres: run(Postgres) }
        use super::{super::test_with_servers, tables_that_forget as run};
    }
    mod too_few_slots {
        test_with_servers! { postgres: run(Postgres) }
        use super::{super::test_with_servers, slots as run};
    }
    mod standby {
        test_with_servers! { postgres: run(Postgres) }
        use super::{super::test_with_servers, a_standby as run};
    }
}
