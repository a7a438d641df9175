//! Forced writes as the servers count them themselves.

use crate::stage::{DATABASE, Stage};
use integration_tests::servers::{Flavor, Server};
use integration_tests::world::eventually;

/// Syncs so far, of PostgreSQL and of the other server, where it counts them.
#[derive(Debug, Clone, Copy)]
pub struct Counters {
    pub postgres: u64,
    /// The redo log alone: neither MariaDB nor MySQL has a figure for the syncs of the binary log.
    pub mysql: Option<u64>,
}

/// Reads them. A session of PostgreSQL may tell what it did when it ends, and not before: all must have ended.
pub async fn read(stage: &Stage) -> Counters {
    eventually("every session on PostgreSQL has ended", async || {
        let others = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' \
                      AND pid <> pg_backend_pid()";
        stage.postgres.value(DATABASE, others).await.expect("a number").as_deref() == Some("0")
    })
    .await;
    Counters { postgres: postgres(&stage.postgres).await, mysql: mysql(&stage.mysql).await }
}

async fn postgres(server: &Server) -> u64 {
    // PostgreSQL 18 counts them elsewhere.
    let earlier = server.value(DATABASE, "SELECT wal_sync FROM pg_stat_wal").await;
    let text = match earlier {
        Ok(text) => text,
        Err(_) => server
            .value(DATABASE, "SELECT sum(fsyncs)::bigint FROM pg_stat_io WHERE object = 'wal'")
            .await
            .expect("one of the two is there"),
    };
    text.expect("a number").parse().expect("a number")
}

async fn mysql(server: &Server) -> Option<u64> {
    assert_ne!(server.flavor(), Flavor::Postgres, "the other server");
    let rows = server.query(DATABASE, "SHOW GLOBAL STATUS LIKE 'Innodb_os_log_fsyncs'").await.expect("the status");
    rows.first()?.get(1)?.as_deref()?.parse().ok()
}
