//! Every statement that is sent to PostgreSQL as part of the protocol, in one place.
//!
//! Texts are sent whole by the simple query protocol: the server stops at the first error of a text, so nothing
//! behind a failed guard is executed. Extended queries in a pipeline would each run on: after the application's own
//! `COMMIT` the guard fails, and what stands behind it would commit by itself.
//!
//! Identifiers are of `[a-z0-9._-]`, nonces hexadecimal: no literal needs quoting, whatever the application did to
//! `standard_conforming_strings`. Functions and tables are qualified, whatever it did to `search_path`.

mod branch;
mod upkeep;

pub(super) use self::branch::{Begin, END, END_UNBEGUN, LOST, Marker, Question, ROLLBACK, milliseconds};
use crate::id::BranchId;
use crate::participant::witness::{Dialect, INCARNATION_TABLE, Key, Kind, LINEAGE_NODE, PAGE, WITNESS_TABLE};
use crate::torture::{self, Safeguard};
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio_postgres::SimpleQueryMessage;

/// The highest level of durability of those asked for and `on`.
///
/// A role with `synchronous_commit = off` loses answered commits. PREPARE TRANSACTION and COMMIT PREPARED are
/// durable at any setting. <https://www.postgresql.org/docs/current/runtime-config-wal.html>
const DURABLE: &str =
    "CASE pg_catalog.current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END";

/// The statements of a participant.
#[derive(Debug)]
pub(super) struct Sql {
    pub(super) schema: String,
    pub(super) witness: String,
    pub(super) incarnation: String,
    pub(super) witness_on: bool,
    /// Whether an application was met that deallocates what its session has prepared.
    keeps_nothing: AtomicBool,
}

impl Sql {
    pub(super) fn new(schema: String, witness_on: bool) -> Self {
        let dialect = Dialect::Postgres;
        let (witness, incarnation) = (dialect.table(&schema, WITNESS_TABLE), dialect.table(&schema, INCARNATION_TABLE));
        let witness_on = witness_on && torture::is_on(Safeguard::Witness);
        Self { schema, witness, incarnation, witness_on, keeps_nothing: AtomicBool::new(false) }
    }

    pub(super) fn commit_prepared(branch: &BranchId) -> String {
        format!("COMMIT PREPARED '{branch}'")
    }

    pub(super) fn rollback_prepared(branch: &BranchId) -> String {
        format!("ROLLBACK PREPARED '{branch}'")
    }

    /// The rows of this are what a branch left behind after it failed: a branch of its name still prepared, or the kind of
    /// its witness.
    pub(super) fn traces(&self, branch: &BranchId) -> String {
        let prepared = format!("SELECT 'prepared' FROM pg_catalog.pg_prepared_xacts WHERE gid = '{branch}'");
        if self.witness_on { format!("{prepared} UNION ALL {}", self.look(branch)) } else { prepared }
    }

    /// The kind of a branch's witness.
    pub(super) fn look(&self, branch: &BranchId) -> String {
        let Key { incarnation, sequence, branch } = Key::from(branch);
        let table = &self.witness;
        format!(
            "SELECT kind FROM {table} WHERE (incarnation, sequence, branch) = ({incarnation}, {sequence}, {branch})"
        )
    }

    /// The fence, where no row is and a witness was kept. It waits for whoever holds the key, as long as
    /// `lock_timeout` lets it.
    pub(super) fn fence(&self, branch: &BranchId) -> String {
        let Key { incarnation, sequence, branch } = Key::from(branch);
        let (table, kind) = (&self.witness, Kind::Fence);
        format!(
            "INSERT INTO {table} SELECT {incarnation}, {sequence}, {branch}, '{kind}' WHERE NOT EXISTS (SELECT FROM \
             {table} WHERE (incarnation, sequence, branch) = ({incarnation}, 0, {branch})) ON CONFLICT DO NOTHING"
        )
    }

    /// The kind of a branch's witness, or that its incarnation kept none.
    pub(super) fn evidence(&self, branch: &BranchId) -> String {
        let Key { incarnation, sequence, branch } = Key::from(branch);
        format!(
            "SELECT kind FROM {} WHERE (incarnation, branch) = ({incarnation}, {branch}) AND sequence IN (0, {sequence}) \
             ORDER BY sequence = 0 LIMIT 1",
            self.witness
        )
    }

    /// Says that the branches of an incarnation leave no witness.
    pub(super) fn off(&self, key: &Key) -> String {
        let Key { incarnation, sequence, branch } = key;
        format!(
            "INSERT INTO {} VALUES ({incarnation}, {sequence}, {branch}, '{}') ON CONFLICT DO NOTHING",
            self.witness,
            Kind::Off
        )
    }

    /// All prepared transactions of this database; other databases' can only be finished there (D28).
    ///
    /// Bytes, not text: one foreign name that is not valid in the client's encoding must not fail the whole list.
    pub(super) const LIST: &str = "SELECT pg_catalog.convert_to(gid, 'SQL_ASCII'), \
         extract(epoch FROM pg_catalog.clock_timestamp() - prepared)::pg_catalog.float8 \
         FROM pg_catalog.pg_prepared_xacts WHERE database = pg_catalog.current_database()";

    /// How many slots for prepared transactions there are, and how many are used by whomever.
    pub(super) const SLOTS: &str = "SELECT pg_catalog.concat(pg_catalog.current_setting('max_prepared_transactions'), \
         ', in use ', (SELECT pg_catalog.count(*) FROM pg_catalog.pg_prepared_xacts))";

    /// How many of them are free.
    pub(super) const ROOM: &str = "SELECT pg_catalog.current_setting('max_prepared_transactions')::pg_catalog.int8 \
         - (SELECT pg_catalog.count(*) FROM pg_catalog.pg_prepared_xacts)";

    /// Ends sessions by name, each awaited up to `$2` milliseconds.
    pub(super) const END_SESSION: &str = "SELECT pg_catalog.pg_terminate_backend(pid, $2) FROM pg_catalog.pg_stat_activity \
         WHERE application_name = $1 AND datname = pg_catalog.current_database() AND pid <> pg_catalog.pg_backend_pid()";

    /// The same of those that are at nothing.
    pub(super) fn end_idle_session() -> String {
        format!("{} AND state <> 'active'", Self::END_SESSION)
    }

    /// The sessions of an incarnation of those in `$1`, by a name that is theirs as a whole: a name that merely begins
    /// so is somebody else's.
    fn named(participant: u16) -> String {
        format!(
            "FROM pg_catalog.pg_stat_activity WHERE application_name ~ \
             '^handfast\\.[0-9a-f]{{16}}\\.{participant}\\.(0|[1-9][0-9]*)$' \
             AND pg_catalog.substr(application_name, 10, 16) = ANY ($1) \
             AND datname = pg_catalog.current_database() AND pid <> pg_catalog.pg_backend_pid()"
        )
    }

    /// Tells those sessions to end: a row for each.
    pub(super) fn end_sessions(participant: u16) -> String {
        format!("SELECT pg_catalog.pg_terminate_backend(pid) {}", Self::named(participant))
    }

    /// Waits for the end of each of them, `$2` milliseconds at most.
    pub(super) fn await_sessions(participant: u16) -> String {
        format!("SELECT pg_catalog.pg_terminate_backend(pid, $2) {}", Self::named(participant))
    }

    /// The names of those that are still there.
    pub(super) fn sessions(participant: u16) -> String {
        format!("SELECT application_name {}", Self::named(participant))
    }

    /// A page of witnesses: of the incarnations in `$1`, under the number `$2`, from the sequence `$3` on.
    pub(super) fn witnessed(&self) -> String {
        format!(
            "SELECT incarnation, sequence, kind FROM {} WHERE incarnation = ANY ($1) AND branch = $2 AND sequence >= $3 \
             ORDER BY incarnation, sequence LIMIT {PAGE}",
            self.witness
        )
    }

    /// How the resolver's own session is set up. Its fences must be as durable as commits, and its role the one that
    /// owns the prepared transactions.
    pub(super) fn control_session(statement_timeout: Duration, lock_timeout: Duration) -> String {
        format!(
            "SET ROLE NONE; SET statement_timeout = {}; SET lock_timeout = {}; \
             SET default_transaction_isolation = 'read committed'; SET default_transaction_read_only = off; \
             SELECT pg_catalog.set_config('synchronous_commit', {DURABLE}, false)",
            milliseconds(statement_timeout),
            milliseconds(lock_timeout)
        )
    }

    /// Has the server end this session when the other end has given no sign of life for so long. Without effect on a
    /// Unix socket, whose other end cannot be gone unnoticed.
    /// <https://www.postgresql.org/docs/15/runtime-config-connection.html#RUNTIME-CONFIG-TCP>
    pub(super) fn mortal(silence: Duration) -> String {
        let seconds = (silence.as_secs() / 4).clamp(1, 30_000);
        format!(
            "SET tcp_keepalives_idle = {seconds}; SET tcp_keepalives_interval = {seconds}; SET tcp_keepalives_count = 3; \
             SET tcp_user_timeout = {}",
            milliseconds(silence)
        )
    }

    /// The lineage of the data here.
    pub(super) fn lineage(&self) -> String {
        format!(
            "SELECT lineage FROM {} WHERE node = '{LINEAGE_NODE}' AND incarnation = 0 AND participant = 0",
            self.incarnation
        )
    }

    /// Whether the lineage can be asked for at all.
    pub(super) fn tables_exist(&self) -> String {
        let exists = |table: &str| {
            format!(
                "EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
                 WHERE c.relname = '{table}' AND n.nspname = $1)"
            )
        };
        format!("SELECT {} AND {}", exists(WITNESS_TABLE), exists(INCARNATION_TABLE))
    }

    /// Creates what is missing, as one transaction; the lock keeps two that open at once from colliding in the catalog.
    pub(super) fn create(&self, lineage: i64) -> String {
        let [witness, incarnation] = Dialect::Postgres.create_tables(&self.schema);
        format!(
            "SELECT pg_catalog.pg_advisory_xact_lock(4641530982773310825); {witness}; {incarnation}; {}",
            self.insert_lineage(lineage)
        )
    }

    /// The row that holds the lineage, where none is.
    pub(super) fn insert_lineage(&self, lineage: i64) -> String {
        format!(
            "INSERT INTO {} (node, incarnation, participant, lineage, decision, journal, host, session_slots) \
             VALUES ('{LINEAGE_NODE}', 0, 0, {lineage}, '', 0, '', 0) ON CONFLICT DO NOTHING",
            self.incarnation
        )
    }

    /// The row of an incarnation, where none is.
    pub(super) fn register(&self) -> String {
        format!(
            "INSERT INTO {} (node, incarnation, participant, lineage, decision, journal, host, session_slots) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING",
            self.incarnation
        )
    }

    /// Which journal an incarnation belongs to.
    pub(super) fn registered(&self) -> String {
        format!(
            "SELECT journal, lineage FROM {} WHERE node = $1 AND incarnation = $2 AND participant = $3",
            self.incarnation
        )
    }

    /// For people: how to create the tables and let `role` use them.
    pub(super) fn setup(&self, role: &str) -> String {
        let [witness, incarnation] = Dialect::Postgres.create_tables(&self.schema);
        let schema = quote(&self.schema);
        let own_schema =
            if self.schema == "public" { String::new() } else { format!("CREATE SCHEMA IF NOT EXISTS {schema};\n") };
        format!("{own_schema}{witness};\n{incarnation};\n{}", self.grants(role))
    }

    /// The rights on the tables that `role` needs.
    pub(super) fn grants(&self, role: &str) -> String {
        let (schema, role) = (quote(&self.schema), quote(role));
        format!(
            "GRANT USAGE ON SCHEMA {schema} TO {role};\nGRANT SELECT, INSERT, DELETE ON {}, {} TO {role};\n",
            self.witness, self.incarnation
        )
    }

    /// The rights that work on existing tables needs.
    pub(super) fn rights(&self) -> String {
        let has = |table: &str, right: &str| {
            format!("pg_catalog.has_table_privilege('{}', '{right}')", table.replace('\'', "''"))
        };
        let all: Vec<_> = [&self.witness, &self.incarnation]
            .into_iter()
            .flat_map(|table| ["SELECT", "INSERT", "DELETE"].map(|right| has(table, right)))
            .collect();
        format!("SELECT {}", all.join(" AND "))
    }
}

/// A question that must not fail because the session was given another role, by the application or by default.
pub(super) fn as_login_role(select: &str) -> String {
    format!("BEGIN READ ONLY; SET LOCAL ROLE NONE; {select}; COMMIT")
}

/// The first column of each row.
pub(super) fn rows(messages: &[SimpleQueryMessage]) -> impl Iterator<Item = &str> {
    messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.try_get(0).ok().flatten(),
        _ => None,
    })
}

/// A name as PostgreSQL quotes it.
pub(super) fn quote(name: &str) -> String {
    Dialect::Postgres.quote(name)
}
