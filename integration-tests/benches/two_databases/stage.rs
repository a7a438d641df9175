//! The servers and what is on them.

use crate::plan::Plan;
use integration_tests::servers::{self, Flavor, Options, Server};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The database on each server.
pub const DATABASE: &str = "bench";
/// Rows of each worker: it comes back to the first only when the last transaction on it is long over.
const ROWS: usize = 64;

/// PostgreSQL, MariaDB or MySQL, and a directory for journals on the disk that the servers use.
pub struct Stage {
    pub postgres: Server,
    pub mysql: Server,
    pub binlog: bool,
    workers: usize,
    directory: TempDir,
}

/// How large a stage is.
#[derive(Clone, Copy)]
pub struct Size {
    /// Who works at once: each has rows of its own.
    pub workers: usize,
    /// Sessions on each server.
    pub connections: usize,
    /// Prepared transactions on PostgreSQL.
    pub prepared: usize,
}

/// How those who work get to the databases: directly, or through something that counts.
#[derive(Clone)]
pub struct Access {
    pub postgres: String,
    pub mysql: String,
    pub flavor: Flavor,
    pub workers: usize,
    /// For journals.
    pub directory: PathBuf,
}

impl Size {
    /// Room for every variant of the plan to keep its own sessions.
    pub fn of(plan: &Plan) -> Self {
        let workers = plan.most();
        Self { workers, connections: 6 * workers + 50, prepared: 2 * workers + 50 }
    }
}

impl Stage {
    /// Starts the servers, as durable as real ones, with a row for every transaction that can be under way.
    pub async fn set(other: Flavor, binlog: bool, size: Size) -> Self {
        let (postgres, mysql) = tokio::join!(start(Flavor::Postgres, binlog, size), start(other, binlog, size));
        let directory = TempDir::with_prefix("handfast-bench-").expect("a temporary directory");
        let stage = Self { postgres, mysql, binlog, workers: size.workers, directory };
        for server in [&stage.postgres, &stage.mysql] {
            furnish(server, DATABASE, size.workers).await;
        }
        stage
    }

    pub fn access(&self) -> Access {
        Access {
            postgres: self.postgres.url(DATABASE),
            mysql: self.mysql.url(DATABASE),
            flavor: self.mysql.flavor(),
            workers: self.workers,
            directory: self.path().to_owned(),
        }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn describe(&self) -> String {
        let name = |server: &Server| format!("{} {}", server.flavor().product(), server.installation().version());
        let log = if self.binlog { ", binary log on" } else { "" };
        format!("{} and {}{log}", name(&self.postgres), name(&self.mysql))
    }

    /// Nothing may be left prepared by what was measured.
    pub async fn check(&self) {
        let left = self.postgres.query(DATABASE, "SELECT gid FROM pg_prepared_xacts").await.expect("a list");
        assert!(left.is_empty(), "left on PostgreSQL: {left:?}");
        let left = self.mysql.query(DATABASE, "XA RECOVER").await.expect("a list");
        assert!(left.is_empty(), "left on {}: {left:?}", self.mysql.flavor().product());
    }
}

/// Throwaway servers have logs so small that they stop for checkpoints all the time; these have some room.
async fn start(flavor: Flavor, binlog: bool, size: Size) -> Server {
    let roomy: &[(&str, &str)] = match flavor {
        Flavor::Postgres => &[("shared_buffers", "128MB"), ("min_wal_size", "512MB")],
        Flavor::MariaDb => &[("innodb_buffer_pool_size", "128M"), ("innodb_log_file_size", "256M")],
        Flavor::MySql => &[("innodb_buffer_pool_size", "128M"), ("innodb_redo_log_capacity", "256M")],
    };
    let options = roomy.iter().fold(servers::options(), |options, (name, value)| options.with(name, value));
    let options = options.with("max_connections", &size.connections.to_string());
    let options = match flavor {
        Flavor::Postgres => options.with("max_prepared_transactions", &size.prepared.to_string()),
        // It does not wait for clients that come by the hundred.
        Flavor::MariaDb | Flavor::MySql => options.with("back_log", "1000"),
    };
    servers::start_with(flavor, if binlog { Options::with_binlog(options) } else { options }).await
}

/// A database with a row for each transaction of so many workers.
pub async fn furnish(server: &Server, database: &str, workers: usize) {
    let rows: Vec<String> = (0..workers * ROWS).map(|id| format!("({id}, 0)")).collect();
    server.create_database(database).await.expect("a database");
    for statement in [
        "CREATE TABLE account (id INT PRIMARY KEY, cents INT NOT NULL)",
        &format!("INSERT INTO account VALUES {}", rows.join(", ")),
        // What the hand-written commit leaves as its proof: of the shape of Handfast's witness.
        "CREATE TABLE proof (incarnation BIGINT NOT NULL, sequence BIGINT NOT NULL, branch INT NOT NULL, \
         kind VARCHAR(255) NOT NULL, PRIMARY KEY (incarnation, sequence, branch))",
    ] {
        server.query(database, statement).await.expect("the statement is accepted");
    }
}

/// The row of a worker's transaction.
fn row(worker: usize, number: usize) -> usize {
    worker * ROWS + number % ROWS
}

/// The work: the same text for every variant, sent as text.
pub fn update(worker: usize, number: usize) -> String {
    format!("UPDATE account SET cents = cents + 1 WHERE id = {}", row(worker, number))
}

/// The work of a branch that only reads.
pub fn select(worker: usize, number: usize) -> String {
    format!("SELECT cents FROM account WHERE id = {}", row(worker, number))
}
