//! Every statement by which a database is looked over; none of it is part of the protocol.

use super::sql::Sql;
use crate::participant::checkup::ProbeName;
use crate::participant::witness::{INCARNATION_TABLE, Kind, WITNESS_TABLE};

impl Sql {
    /// What the promise rests on and what comes in its way, as `name`, `value`; times in milliseconds. Standbys are counted
    /// for everybody.
    pub(super) const SETTINGS: &str = "SELECT name, setting FROM pg_catalog.pg_settings WHERE name IN \
         ('server_version_num', 'max_prepared_transactions', 'fsync', 'full_page_writes', 'synchronous_commit', \
         'synchronous_standby_names', 'idle_in_transaction_session_timeout', 'idle_session_timeout', \
         'statement_timeout', 'transaction_timeout') \
         UNION ALL SELECT 'in_recovery', pg_catalog.pg_is_in_recovery()::pg_catalog.text \
         UNION ALL SELECT 'prepared_in_use', pg_catalog.count(*)::pg_catalog.text FROM pg_catalog.pg_prepared_xacts \
         UNION ALL SELECT 'standbys', pg_catalog.count(*)::pg_catalog.text FROM pg_catalog.pg_stat_replication";

    /// Who logged in, who that session is, and where.
    pub(super) const WHO: &str = "SELECT session_user::pg_catalog.text, current_user::pg_catalog.text, \
         pg_catalog.current_database()::pg_catalog.text";

    /// Whether this role may create tables in the schema `$1`.
    pub(super) const MAY_CREATE: &str = "SELECT coalesce((SELECT pg_catalog.has_schema_privilege(oid, 'CREATE') \
         FROM pg_catalog.pg_namespace WHERE nspname = $1), false)";

    /// What encrypts the session that asks.
    pub(super) const ENCRYPTION: &str =
        "SELECT version, cipher FROM pg_catalog.pg_stat_ssl WHERE ssl AND pid = pg_catalog.pg_backend_pid()";

    pub(super) const CLOCK: &str = "SELECT extract(epoch FROM pg_catalog.clock_timestamp())::pg_catalog.float8";

    /// All prepared transactions of the server: name, age in seconds, owner, database, whether that is this one, and
    /// whether this role can finish it.
    pub(super) const PREPARED: &str = "SELECT pg_catalog.convert_to(gid, 'SQL_ASCII'), \
         extract(epoch FROM pg_catalog.clock_timestamp() - prepared)::pg_catalog.float8, owner::pg_catalog.text, \
         database::pg_catalog.text, database = pg_catalog.current_database(), owner = session_user OR EXISTS \
         (SELECT FROM pg_catalog.pg_roles WHERE rolname = session_user AND rolsuper) FROM pg_catalog.pg_prepared_xacts";

    /// Tables of this database that lose their rows in a crash, or are somewhere else.
    pub(super) const OTHER_TABLES: &str = "SELECT pg_catalog.concat(n.nspname, '.', c.relname), \
         CASE c.relkind WHEN 'f' THEN 'foreign' ELSE 'unlogged' END \
         FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
         WHERE n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' \
         AND c.relname NOT IN ('handfast_witness', 'handfast_incarnation') \
         AND (c.relkind = 'f' OR c.relkind IN ('r', 'p') AND c.relpersistence = 'u') ORDER BY 1";

    /// Locks that somebody waits for and a prepared transaction of this database has: its name, the process that waits,
    /// the mode wanted, the mode held. The two need not conflict.
    pub(super) const HELD_UP: &str = "SELECT pg_catalog.convert_to(p.gid, 'SQL_ASCII'), w.pid, w.mode, h.mode \
         FROM pg_catalog.pg_prepared_xacts p \
         JOIN pg_catalog.pg_locks x ON x.locktype = 'transactionid' AND x.transactionid = p.transaction \
         AND x.granted AND x.pid IS NULL \
         JOIN pg_catalog.pg_locks h ON h.virtualtransaction = x.virtualtransaction AND h.granted AND h.pid IS NULL \
         JOIN pg_catalog.pg_locks w ON NOT w.granted AND w.pid IS NOT NULL AND w.locktype = h.locktype \
         AND ROW(w.database, w.relation, w.page, w.tuple, w.virtualxid, w.transactionid, w.classid, w.objid, w.objsubid) \
         IS NOT DISTINCT FROM \
         ROW(h.database, h.relation, h.page, h.tuple, h.virtualxid, h.transactionid, h.classid, h.objid, h.objsubid) \
         WHERE p.database = pg_catalog.current_database()";

    /// All who wait for a lock: process, user, address, seconds, statement, and the processes in front of it.
    pub(super) const WAITERS: &str = "SELECT a.pid, a.usename::pg_catalog.text, \
         coalesce(pg_catalog.host(a.client_addr), CASE WHEN a.query <> '<insufficient privilege>' THEN 'local' END), \
         extract(epoch FROM pg_catalog.clock_timestamp() - coalesce((SELECT pg_catalog.min(l.waitstart) \
         FROM pg_catalog.pg_locks l WHERE l.pid = a.pid AND NOT l.granted), a.query_start))::pg_catalog.float8, \
         pg_catalog.left(nullif(a.query, '<insufficient privilege>'), 400), pg_catalog.pg_blocking_pids(a.pid) \
         FROM pg_catalog.pg_stat_activity a \
         WHERE a.pid IN (SELECT pid FROM pg_catalog.pg_locks WHERE NOT granted)";

    /// Our tables as they are: name, persistence, whether rows may be hidden, columns, primary key.
    pub(super) fn tables(&self) -> String {
        format!(
            "SELECT c.relname::pg_catalog.text, c.relpersistence::pg_catalog.text, c.relrowsecurity, \
             (SELECT pg_catalog.string_agg(pg_catalog.concat(a.attname, ' ', \
             pg_catalog.format_type(a.atttypid, a.atttypmod)), ', ' ORDER BY a.attnum) FROM pg_catalog.pg_attribute a \
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped), \
             (SELECT pg_catalog.string_agg(a.attname::pg_catalog.text, ', ' ORDER BY k.place) \
             FROM pg_catalog.pg_index i, pg_catalog.unnest(i.indkey) WITH ORDINALITY AS k (number, place), \
             pg_catalog.pg_attribute a \
             WHERE i.indrelid = c.oid AND i.indisprimary AND a.attrelid = c.oid AND a.attnum = k.number) \
             FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
             WHERE n.nspname = '{}' AND c.relname IN ('{WITNESS_TABLE}', '{INCARNATION_TABLE}') ORDER BY 1",
            self.schema.replace('\'', "''")
        )
    }

    /// The columns and the primary key that one of our tables should have.
    pub(super) fn columns(table: &str) -> (&'static str, &'static str) {
        if table == WITNESS_TABLE {
            ("incarnation bigint, sequence bigint, branch integer, kind text", "incarnation, sequence, branch")
        } else {
            (
                "node text, incarnation bigint, participant integer, lineage bigint, decision text, journal bigint, \
                 host text, session_slots integer, opened_at timestamp with time zone",
                "node, incarnation, participant",
            )
        }
    }

    /// Prepares a branch that writes a row of nobody's, or nothing where there is no table for it.
    pub(super) fn probe(&self, name: ProbeName, tables: bool) -> String {
        let (incarnation, kind) = (name.incarnation(), Kind::Fence);
        let write = match tables {
            true => format!("INSERT INTO {} VALUES ({incarnation}, 1, 0, '{kind}')", self.witness),
            false => "SELECT pg_catalog.pg_current_xact_id()".into(),
        };
        format!("BEGIN READ WRITE; {write}; PREPARE TRANSACTION '{name}'")
    }

    pub(super) fn end_probe(name: ProbeName) -> String {
        format!("ROLLBACK PREPARED '{name}'")
    }
}
