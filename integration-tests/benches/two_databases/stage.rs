//! The servers and what is on them.

use integration_tests::servers::{self, Flavor, Server};
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
    pub workers: usize,
    directory: TempDir,
}

impl Stage {
    /// Starts the servers, as durable as real ones, with a row for every transaction that can be under way.
    pub async fn set(other: Flavor, workers: usize) -> Self {
        let (postgres, mysql) = tokio::join!(start(Flavor::Postgres), start(other));
        let directory = TempDir::with_prefix("handfast-bench-").expect("a temporary directory");
        let stage = Self { postgres, mysql, workers, directory };
        let rows: Vec<String> = (0..workers * ROWS).map(|id| format!("({id}, 0)")).collect();
        for server in [&stage.postgres, &stage.mysql] {
            server.create_database(DATABASE).await.expect("a database");
            for statement in [
                "CREATE TABLE account (id INT PRIMARY KEY, cents INT NOT NULL)",
                &format!("INSERT INTO account VALUES {}", rows.join(", ")),
                // What the hand-written commit leaves as its proof: of the shape of Handfast's witness.
                "CREATE TABLE proof (incarnation BIGINT NOT NULL, sequence BIGINT NOT NULL, branch INT NOT NULL, \
                 kind VARCHAR(255) NOT NULL, PRIMARY KEY (incarnation, sequence, branch))",
            ] {
                server.query(DATABASE, statement).await.expect(statement);
            }
        }
        stage
    }

    /// A new directory for a journal.
    pub fn directory(&self, name: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::create_dir(&path).expect("a directory");
        path
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn describe(&self) -> String {
        let name = |server: &Server| format!("{} {}", server.flavor().product(), server.installation().version());
        format!("{} and {}", name(&self.postgres), name(&self.mysql))
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
async fn start(flavor: Flavor) -> Server {
    let roomy: &[(&str, &str)] = match flavor {
        Flavor::Postgres => &[("shared_buffers", "128MB"), ("min_wal_size", "512MB")],
        Flavor::MariaDb => &[("innodb_buffer_pool_size", "128M"), ("innodb_log_file_size", "256M")],
        Flavor::MySql => &[("innodb_buffer_pool_size", "128M"), ("innodb_redo_log_capacity", "256M")],
    };
    let options = roomy.iter().fold(servers::options(), |options, (name, value)| options.with(name, value));
    servers::start_with(flavor, options).await
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
