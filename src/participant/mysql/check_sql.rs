//! Every statement by which a database is looked over; none of it is part of the protocol.

use super::sql::{Sql, insert_witness};
use crate::id::{FORMAT_ID, hex};
use crate::participant::checkup::ProbeName;
use crate::participant::witness::{INCARNATION_TABLE, Key, Kind, WITNESS_TABLE};

impl Sql {
    /// What the promise rests on, as `name`, `value`; variables that a server does not know are not listed.
    pub(super) const SETTINGS: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('wsrep_on', 'read_only', \
         'xa_detach_on_prepare', 'innodb_flush_log_at_trx_commit', 'innodb_flush_method', 'innodb_doublewrite', \
         'sync_binlog', 'log_bin', 'rpl_semi_sync_source_enabled', 'rpl_semi_sync_master_enabled')";

    /// As above, what changes by itself.
    pub(super) const STATUS: &str =
        "SHOW GLOBAL STATUS WHERE Variable_name IN ('Innodb_redo_log_enabled', 'Slaves_connected')";

    /// As above, for the session that asks: what a new one is given.
    pub(super) const SESSION: &str = "SHOW SESSION VARIABLES WHERE Variable_name IN ('version', 'wait_timeout', \
         'idle_transaction_timeout', 'idle_write_transaction_timeout', 'max_statement_time', 'max_execution_time', \
         'binlog_format')";

    /// What encrypts the session that asks, as `name`, `value`.
    pub(super) const ENCRYPTION: &str = "SHOW SESSION STATUS WHERE Variable_name IN ('Ssl_version', 'Ssl_cipher')";

    pub(super) const CLOCK: &str = "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) AS CHAR)";

    /// The seconds for which those transactions have run that no session has: prepared ones.
    pub(super) const DETACHED: &str = "SELECT TIMESTAMPDIFF(SECOND, trx_started, NOW()) \
         FROM information_schema.INNODB_TRX WHERE trx_mysql_thread_id = 0 AND trx_started IS NOT NULL";

    /// Who waits for a transaction that no session has: user, address, seconds, statement.
    pub(super) const WAITING_MYSQL: &str = "SELECT DISTINCT t.PROCESSLIST_USER, t.PROCESSLIST_HOST, t.PROCESSLIST_TIME, \
         LEFT(t.PROCESSLIST_INFO, 400), t.THREAD_ID FROM performance_schema.data_lock_waits AS w \
         JOIN information_schema.INNODB_TRX AS b ON b.trx_id = w.BLOCKING_ENGINE_TRANSACTION_ID \
         JOIN performance_schema.threads AS t ON t.THREAD_ID = w.REQUESTING_THREAD_ID \
         WHERE b.trx_mysql_thread_id = 0";

    /// As above.
    pub(super) const WAITING_MARIADB: &str = "SELECT DISTINCT p.USER, p.HOST, \
         TIMESTAMPDIFF(SECOND, r.trx_wait_started, NOW()), LEFT(r.trx_query, 400), r.trx_mysql_thread_id \
         FROM information_schema.INNODB_LOCK_WAITS AS w \
         JOIN information_schema.INNODB_TRX AS b ON b.trx_id = w.blocking_trx_id \
         JOIN information_schema.INNODB_TRX AS r ON r.trx_id = w.requesting_trx_id \
         LEFT JOIN information_schema.PROCESSLIST AS p ON p.ID = r.trx_mysql_thread_id \
         WHERE b.trx_mysql_thread_id = 0";

    /// Who waits for the metadata of a table: user, address, seconds, statement. Without PROCESS, the account's own
    /// sessions. Neither server says for whom.
    pub(super) const WAITING_FOR_METADATA: &str = "SELECT p.USER, p.HOST, CAST(p.TIME AS SIGNED), LEFT(p.INFO, 400), \
         p.ID FROM information_schema.PROCESSLIST AS p WHERE p.STATE LIKE 'Waiting for % metadata lock'";

    /// Our tables as they are: name, columns, primary key.
    pub(super) fn table_columns(&self) -> String {
        format!(
            "SELECT TABLE_NAME, GROUP_CONCAT(CONCAT(COLUMN_NAME, ' ', DATA_TYPE) ORDER BY ORDINAL_POSITION \
             SEPARATOR ', '), GROUP_CONCAT(CASE COLUMN_KEY WHEN 'PRI' THEN COLUMN_NAME END ORDER BY ORDINAL_POSITION \
             SEPARATOR ', ') FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = '{}' AND TABLE_NAME IN \
             ('{}', '{INCARNATION_TABLE}') GROUP BY TABLE_NAME ORDER BY TABLE_NAME",
            self.schema.replace('\'', "''"),
            WITNESS_TABLE,
        )
    }

    /// The columns and the primary key that one of our tables should have.
    pub(super) fn columns(table: &str) -> (&'static str, &'static str) {
        if table.eq_ignore_ascii_case(WITNESS_TABLE) {
            ("incarnation bigint, sequence bigint, branch int, kind varchar", "incarnation, sequence, branch")
        } else {
            (
                "node varchar, incarnation bigint, participant int, lineage bigint, decision varchar, journal bigint, \
                 host varchar, session_slots int, opened_at timestamp",
                "node, incarnation, participant",
            )
        }
    }

    /// Tables of the participant's databases whose engine cannot take part in a prepared transaction: name and engine.
    pub(super) fn other_engines(&self) -> String {
        let quoted = |name: &str| name.replace('\'', "''");
        format!(
            "SELECT t.TABLE_NAME, t.ENGINE FROM information_schema.TABLES AS t \
             LEFT JOIN information_schema.ENGINES AS e ON e.ENGINE = t.ENGINE \
             WHERE t.TABLE_SCHEMA IN ('{}', '{}') AND t.TABLE_TYPE = 'BASE TABLE' AND t.ENGINE IS NOT NULL \
             AND COALESCE(e.XA, 'NO') <> 'YES' AND t.TABLE_NAME NOT IN ('{}', '{INCARNATION_TABLE}') \
             ORDER BY t.TABLE_NAME",
            quoted(&self.database),
            quoted(&self.schema),
            WITNESS_TABLE,
        )
    }

    /// A check's branch: what is sent up to its prepare. It writes a row of nobody's, or nothing where there is no table.
    pub(super) fn probe(&self, name: ProbeName, tables: bool) -> Vec<String> {
        let xid = probe_xid(name);
        let mut statements = vec![format!("XA START {xid}")];
        if tables {
            let key = Key { incarnation: name.incarnation(), sequence: 1, branch: 0 };
            statements.push(insert_witness(&self.witness, &key, Kind::Fence.as_str(), None));
        }
        statements.extend([format!("XA END {xid}"), format!("XA PREPARE {xid}")]);
        statements
    }

    /// Tries the rights on the table of incarnations, in the same way.
    pub(super) fn try_registry_rights(&self) -> [String; 2] {
        let table = &self.incarnation;
        [format!("INSERT INTO {table} SELECT * FROM {table} WHERE 1 = 0"), format!("DELETE FROM {table} WHERE 1 = 0")]
    }
}

/// The privilege to see who is at work.
pub(super) fn grant_process(account: &str) -> String {
    format!("GRANT PROCESS ON *.* TO {account}")
}

/// A check's branch as XA statements take it.
pub(super) fn probe_xid(name: ProbeName) -> String {
    format!("X'{}',X'',{FORMAT_ID}", hex(name.to_string().as_bytes()))
}
