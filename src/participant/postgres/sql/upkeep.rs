//! The statements of the lease, the registry and the pruning.

use super::Sql;
use crate::id::Incarnation;
use crate::participant::witness::{Kind, LINEAGE_NODE, PAGE};

impl Sql {
    /// A lock, for this session: whether it was free, or this session's already.
    pub(in super::super) fn try_lock(key: u64) -> String {
        format!("SELECT pg_catalog.pg_try_advisory_lock('{}'::pg_catalog.int8)", key.cast_signed())
    }

    /// Waits for it.
    pub(in super::super) fn lock(key: u64) -> String {
        format!("SELECT pg_catalog.pg_advisory_lock('{}'::pg_catalog.int8)", key.cast_signed())
    }

    /// Lets it go.
    pub(in super::super) fn unlock(key: u64) -> String {
        format!("SELECT pg_catalog.pg_advisory_unlock('{}'::pg_catalog.int8)", key.cast_signed())
    }

    /// The row of `pg_locks` of that lock.
    fn locked(key: u64) -> String {
        format!(
            "l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.classid = '{}'::pg_catalog.oid \
             AND l.objid = '{}'::pg_catalog.oid AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d \
             WHERE d.datname = pg_catalog.current_database())",
            key >> 32,
            key & 0xffff_ffff
        )
    }

    /// Whether this session has the lease.
    pub(in super::super) fn lease_is_held(lease: u64) -> String {
        format!(
            "SELECT EXISTS (SELECT FROM pg_catalog.pg_locks l WHERE l.pid = pg_catalog.pg_backend_pid() AND {})",
            Self::locked(lease)
        )
    }

    /// Whether this session has the one lock and the process `$1` the lease.
    pub(in super::super) fn is_at_work(lease: u64, work: u64) -> String {
        format!(
            "SELECT EXISTS (SELECT FROM pg_catalog.pg_locks l WHERE l.pid = $1 AND {}) AND EXISTS (SELECT FROM \
             pg_catalog.pg_locks l WHERE {} AND l.pid = pg_catalog.pg_backend_pid())",
            Self::locked(lease),
            Self::locked(work)
        )
    }

    /// Who has it: process, name, and address where this role may see that.
    pub(in super::super) fn lock_holder(key: u64) -> String {
        format!(
            "SELECT l.pid, a.application_name, pg_catalog.host(a.client_addr) FROM pg_catalog.pg_locks l \
             LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid WHERE {}",
            Self::locked(key)
        )
    }

    /// Ends the process `$1` if it still goes by the name `$2`, and waits for that up to `$3` milliseconds.
    pub(in super::super) const END_PREDECESSOR: &str = "SELECT pg_catalog.pg_terminate_backend(pid, $3) \
         FROM pg_catalog.pg_stat_activity WHERE pid = $1 AND application_name = $2 \
         AND datname = pg_catalog.current_database() AND pid <> pg_catalog.pg_backend_pid()";

    /// How many seconds ago an incarnation was opened.
    const AGE: &str = "extract(epoch FROM pg_catalog.clock_timestamp() - opened_at)::pg_catalog.float8";

    /// The registration of the incarnation `$2`, else the newest, of the node `$1`.
    pub(in super::super) fn newest(&self) -> String {
        format!(
            "SELECT incarnation, host, {} FROM {} WHERE node = $1 ORDER BY (incarnation = $2) DESC, opened_at DESC LIMIT 1",
            Self::AGE,
            self.incarnation
        )
    }

    /// All registrations but the lineage's.
    pub(in super::super) fn registry(&self) -> String {
        format!(
            "SELECT node, incarnation, participant, decision, journal, host, {} FROM {} WHERE node <> '{LINEAGE_NODE}' \
             ORDER BY node, incarnation, participant",
            Self::AGE,
            self.incarnation
        )
    }

    /// Deletes a page of an incarnation's rows under a number, of those that a further condition selects.
    ///
    /// What is not committed is not seen, and so not waited for.
    fn prune(&self, incarnation: Incarnation, participant: u16, and: &str) -> String {
        let (table, incarnation) = (&self.witness, incarnation.to_sql());
        format!(
            "DELETE FROM {table} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {table} WHERE incarnation = '{incarnation}' \
             AND branch = {participant}{and} ORDER BY incarnation, sequence LIMIT {PAGE}))"
        )
    }

    /// Deletes a page of witnesses of transactions below a sequence.
    pub(in super::super) fn prune_witnesses(&self, incarnation: Incarnation, participant: u16, below: u64) -> String {
        let below = i64::try_from(below).unwrap_or(i64::MAX);
        let kinds = Kind::witnesses();
        self.prune(
            incarnation,
            participant,
            &format!(" AND sequence >= 1 AND sequence < {below} AND kind IN ({kinds})"),
        )
    }

    /// Deletes a page of whatever an incarnation left.
    pub(in super::super) fn prune_settled(&self, incarnation: Incarnation, participant: u16) -> String {
        self.prune(incarnation, participant, "")
    }

    /// Deletes a registration.
    pub(in super::super) fn unregister(&self, incarnation: Incarnation, participant: u16) -> String {
        format!(
            "DELETE FROM {} WHERE node <> '{LINEAGE_NODE}' AND incarnation = '{}' AND participant = {participant}",
            self.incarnation,
            incarnation.to_sql()
        )
    }
}
