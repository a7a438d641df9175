//! The settings of a MySQL or MariaDB server that the promise rests on, and what speaks against each.

use super::error::MyError;
use super::session::Product;
use super::setup::numbers;
use super::sql::Sql;
use crate::participant::checkup::too_short;
use crate::participant::{Finding, Severity};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use std::collections::BTreeMap;
use std::time::Duration;

/// What the checks compare with.
pub(super) struct Expected {
    /// How long a transaction may take.
    pub(super) deadline: Duration,
    /// How long the resolver's connection may be idle.
    pub(super) interval: Duration,
    pub(super) allow_unsafe: bool,
}

/// The settings that the promise rests on, and what a new session is given, by name.
pub(super) struct Settings(BTreeMap<String, String>);

impl Settings {
    /// Reads them on a session that nobody has changed anything of that counts here.
    pub(super) async fn read(conn: &mut Conn) -> Result<Self, MyError> {
        let mut all = BTreeMap::new();
        // The session's own come last: they are the ones that hold.
        for query in [Sql::SETTINGS, Sql::STATUS, Sql::SESSION] {
            let rows: Vec<(String, String)> = conn.query(query).await?;
            all.extend(rows.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)));
        }
        Ok(Self(all))
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn is(&self, name: &str, value: &str) -> bool {
        self.text(name).is_some_and(|set| set.eq_ignore_ascii_case(value))
    }

    pub(super) fn version(&self) -> &str {
        self.text("version").unwrap_or_default()
    }

    pub(super) fn product(&self) -> Product {
        Product::of(self.version())
    }

    /// What opening refuses, or warns of (D13).
    pub(super) fn findings(&self, expected: &Expected) -> Vec<Finding> {
        let mut all = vec![self.supported(), self.writable(), self.cluster()];
        all.extend(self.durability(expected.allow_unsafe));
        all.push(self.binlog_format());
        if self.is("xa_detach_on_prepare", "OFF") {
            let found = "xa_detach_on_prepare is OFF";
            let why = "recovery has to end a dead program's session before its branch";
            all.push(Finding::of(Severity::Note, "detach", found, why).cure("SET PERSIST xa_detach_on_prepare = ON"));
        }
        all
    }

    fn supported(&self) -> Finding {
        let (product, version) = (self.product(), self.version());
        let (needed, text) = match product {
            Product::MySql => ((8, 0, 29), "8.0.29"),
            Product::MariaDb => ((10, 5, 0), "10.5"),
        };
        if numbers(version) >= needed {
            return Finding::good("version", format!("{} {version}", product.title()));
        }
        let found = format!("{} {text} or later is needed, this is {version}", product.title());
        let why = "earlier ones lose prepared branches";
        Finding::of(Severity::Failure, "version", found, why).cure("upgrade the server")
    }

    fn writable(&self) -> Finding {
        match self.text("read_only") {
            None | Some("OFF" | "0") => Finding::good("primary", "the server may be written to"),
            Some(_) => {
                let found = "the server is read-only (read_only)";
                let why = "nothing can be written there, and nothing prepared";
                Finding::of(Severity::Failure, "primary", found, why).cure("point the URL to the primary")
            }
        }
    }

    fn cluster(&self) -> Finding {
        if !self.is("wsrep_on", "ON") {
            return Finding::good("cluster", "no Galera cluster");
        }
        let found = "the server is a node of a Galera cluster (wsrep_on)";
        Finding::of(Severity::Failure, "cluster", found, "it cannot keep a prepared branch")
            .cure("use a server that is replicated by its binary log")
    }

    /// Each setting by which a server may forget what it has answered.
    fn durability(&self, allow_unsafe: bool) -> Vec<Finding> {
        let lost = "a crash of the server or its machine can lose what it has answered";
        let breaks = |name: &'static str, needed: &str| {
            let found = format!("{name} is {}, not {needed}", self.text(name).unwrap_or_default());
            Finding::breaks_promise(name, allow_unsafe, found, lost)
        };
        let set = |name: &str, value: &str| match self.product() {
            Product::MySql => format!("SET PERSIST {name} = {value}"),
            Product::MariaDb => format!("SET GLOBAL {name} = {value}, and the same in the server's configuration"),
        };
        let restart =
            |name: &str, value: &str| format!("{name} = {value} in the server's configuration, and restart it");
        let mut all = Vec::new();

        let name = "innodb_flush_log_at_trx_commit";
        // MariaDB's 3 syncs as often as 1 does, and once more.
        let is_synced = self.is(name, "1") || (self.product() == Product::MariaDb && self.is(name, "3"));
        all.push(match is_synced {
            true => Finding::good(name, "InnoDB's log is synced at each commit"),
            false => breaks(name, "1").cure(set(name, "1")),
        });
        let name = "sync_binlog";
        all.push(match (self.is("log_bin", "ON"), self.is(name, "1")) {
            (false, _) => Finding::good(name, "no binary log"),
            (true, true) => Finding::good(name, "the binary log is synced at each commit"),
            (true, false) => breaks(name, "1").cure(set(name, "1")),
        });
        let name = "innodb_flush_method";
        if self.text(name).is_some_and(|method| ["nosync", "littlesync"].contains(&&*method.to_ascii_lowercase())) {
            all.push(breaks(name, "fsync or O_DIRECT").cure(restart(name, "fsync")));
        }
        if self.is("innodb_redo_log_enabled", "OFF") {
            let found = "InnoDB's redo log is disabled";
            let finding = Finding::breaks_promise("redo log", allow_unsafe, found, lost);
            all.push(finding.cure("ALTER INSTANCE ENABLE INNODB REDO_LOG"));
        }
        let name = "innodb_doublewrite";
        let weak = self.text(name).filter(|value| !["on", "1", "fast"].contains(&&*value.to_ascii_lowercase()));
        all.push(match weak {
            None => Finding::good(name, "InnoDB's pages are written twice"),
            Some(value) => {
                let why = "a page that a power loss cuts in two is lost, unless the file system writes it whole (ZFS)";
                Finding::of(Severity::Warning, name, format!("{name} is {value}"), why).cure(restart(name, "ON"))
            }
        });
        all
    }

    /// InnoDB refuses to write in READ COMMITTED, as the resolver does, when statements are logged.
    fn binlog_format(&self) -> Finding {
        let name = "binlog_format";
        if !self.is("log_bin", "ON") || !self.is(name, "STATEMENT") {
            return Finding::good(name, "rows are logged, or nothing is");
        }
        let why = "the server refuses what recovery writes (error 1665): branches would stay in doubt";
        let cure = "SET GLOBAL binlog_format = 'ROW', and the same in the server's configuration";
        Finding::of(Severity::Failure, name, "binlog_format is STATEMENT", why).cure(cure)
    }

    /// A time limit in a unit of so many milliseconds; zero is none.
    fn limit(&self, name: &str, unit: f64) -> Option<Duration> {
        let value: f64 = self.text(name)?.parse().ok()?;
        Duration::try_from_secs_f64(value * unit / 1000.0).ok().filter(|limit| !limit.is_zero())
    }

    /// What ends a session, or what it is at, before Handfast would.
    pub(super) fn timeouts(&self, expected: &Expected) -> Vec<Finding> {
        let Expected { deadline, interval, .. } = *expected;
        let idle = format!(
            "the server ends a session that is idle, and its branch with it, within the {deadline:?} that a transaction \
             may take (transaction.timeout)"
        );
        let resolver =
            format!("the server ends the resolver's session, which is idle for {interval:?}, and the pool's");
        let slow = format!("the server ends a statement within the {deadline:?} that a transaction may take");
        let (warning, note) = (Severity::Warning, Severity::Note);
        let limits = [
            ("wait_timeout", 1000.0, deadline, warning, &idle),
            ("wait_timeout", 1000.0, interval, note, &resolver),
            ("idle_transaction_timeout", 1000.0, deadline, warning, &idle),
            ("idle_write_transaction_timeout", 1000.0, deadline, warning, &idle),
            ("max_statement_time", 1000.0, deadline, note, &slow),
            ("max_execution_time", 1.0, deadline, note, &slow),
        ];
        let mut all: Vec<Finding> = Vec::new();
        for (name, unit, needed, severity, why) in limits {
            let Some(limit) = too_short(self.limit(name, unit), needed) else { continue };
            let found = format!("{name} is {limit:?}");
            if all.iter().any(|other| other.found == found) {
                continue;
            }
            let value = needed.saturating_add(needed).as_millis() as f64 / unit;
            let cure = format!("SET GLOBAL {name} = {value:.0}");
            all.push(Finding::of(severity, "timeouts", found, why.as_str()).cure(cure));
        }
        if all.is_empty() {
            all.push(Finding::good("timeouts", "no timeout of the server comes before Handfast's own"));
        }
        all
    }

    /// Whether what is answered is on another server as well, as far as this account may see.
    pub(super) fn replication(&self) -> Finding {
        let check = "replication";
        let waits = ["rpl_semi_sync_source_enabled", "rpl_semi_sync_master_enabled"].iter().any(|on| self.is(on, "ON"));
        match (self.is("log_bin", "ON"), waits, self.text("slaves_connected")) {
            (false, ..) => Finding::good(check, "no binary log, so no replica"),
            (_, true, _) => Finding::good(check, "commits wait for a replica (semi-synchronous)"),
            (_, _, Some("0")) => Finding::good(check, "no replica is connected"),
            (_, _, replicas) => {
                let (severity, found) = match replicas {
                    Some(replicas) => {
                        (Severity::Warning, format!("{replicas} replica(s) connected, none semi-synchronous"))
                    }
                    None => {
                        (Severity::Note, "whether replicas are connected is not shown; none is semi-synchronous".into())
                    }
                };
                let why = "after a failover, a prepared branch or a commit that was answered may be missing";
                Finding::of(severity, check, found, why)
                    .cure("semi-synchronous replication, or never promote a replica that has not received everything")
            }
        }
    }
}
