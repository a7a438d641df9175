//! Every statement that is sent to MySQL and MariaDB as part of the protocol, in one place.
//!
//! All of it goes by the text protocol: MySQL refuses XA statements as prepared ones (1295). Several statements in
//! one text cost one round trip; the server stops at the first that fails, so nothing behind a failed step is done.
//!
//! Identifiers are hexadecimal literals, nonces and markers hexadecimal digits: nothing needs quoting, whatever the
//! application did to `sql_mode`. Tables are qualified and backquoted, whatever it did by `USE`.

mod branch;
mod question;
mod session;
mod upkeep;

pub(super) use self::branch::{BranchSql, Open};
pub(super) use self::question::{Question, Shows, Step};
pub(super) use self::session::set;
use crate::id::{BranchId, Incarnation, Lineage, SessionName};
use crate::participant::Registration;
use crate::participant::witness::{Dialect, INCARNATION_TABLE, Key, Kind, LINEAGE_NODE, PAGE};
use crate::torture::{self, Safeguard};
use std::fmt::Write;
use std::time::Duration;

const DIALECT: Dialect = Dialect::MySql;

/// The statements of a participant.
#[derive(Debug)]
pub(super) struct Sql {
    /// The database that the application works in.
    pub(super) database: String,
    /// The database that holds the tables.
    pub(super) schema: String,
    pub(super) witness: String,
    pub(super) incarnation: String,
    pub(super) witness_on: bool,
}

impl Sql {
    /// The errors of the statement before, whose answer was read by the application alone.
    pub(super) const SHOW_ERRORS: &str = "SHOW ERRORS";

    /// All prepared branches of the server. `CONVERT XID` is MySQL's: its column is text, which binary ids break.
    pub(super) const LIST_MYSQL: &str = "XA RECOVER CONVERT XID";

    /// MariaDB's column is binary.
    pub(super) const LIST_MARIADB: &str = "XA RECOVER";

    pub(super) const VERSION: &str = "SELECT VERSION()";

    pub(super) const CURRENT_USER: &str = "SELECT CURRENT_USER()";

    pub(super) fn new(database: String, schema: String, witness_on: bool) -> Self {
        let witness = DIALECT.table(&schema, crate::participant::witness::WITNESS_TABLE);
        let incarnation = DIALECT.table(&schema, INCARNATION_TABLE);
        let witness_on = witness_on && torture::is_on(Safeguard::Witness);
        Self { database, schema, witness, incarnation, witness_on }
    }

    /// Takes a session's name, waiting for it so many whole seconds, and shows the server: one row.
    pub(super) fn name_session(session: &SessionName, wait: Duration) -> String {
        format!("SELECT GET_LOCK('{session}', {}), VERSION()", wait.as_millis().div_ceil(1000))
    }

    pub(super) fn session_holder(session: &SessionName) -> String {
        format!("SELECT IS_USED_LOCK('{session}')")
    }

    /// The connection that goes by a name, if it is at nothing: what an account's own sessions are at it may always see.
    pub(super) fn idle(session: &SessionName) -> String {
        format!(
            "SELECT ID FROM information_schema.PROCESSLIST WHERE ID = IS_USED_LOCK('{session}') AND COMMAND = 'Sleep'"
        )
    }

    /// The connections that go by these names, one a column.
    pub(super) fn session_holders<'a>(sessions: impl Iterator<Item = &'a SessionName>) -> String {
        let holders: Vec<_> = sessions.map(|session| format!("IS_USED_LOCK('{session}')")).collect();
        format!("SELECT {}", holders.join(", "))
    }

    /// Waits until the session of that name is gone, at least a second: both servers count in seconds here.
    pub(super) fn await_session(session: &SessionName, wait: Duration) -> String {
        format!("SELECT GET_LOCK('{session}', {})", wait.as_secs().max(1))
    }

    pub(super) fn release_session(session: &SessionName) -> String {
        format!("SELECT RELEASE_LOCK('{session}')")
    }

    pub(super) fn kill(connection: u64) -> String {
        format!("KILL {connection}")
    }

    /// The most session slots that any of these incarnations registered under this number; NULL where none did.
    pub(super) fn most_slots(&self, participant: u16, incarnations: &[Incarnation]) -> String {
        let (table, of) = (&self.incarnation, list(incarnations));
        format!("SELECT MAX(session_slots) FROM {table} WHERE participant = {participant} AND incarnation IN ({of})")
    }

    /// The sessions of these incarnations under this number: whose, slot, and the connection that goes by that name.
    ///
    /// The slots are counted out by joining as many decimal digits as `most` has: neither server has a table of numbers
    /// for everybody, and recursion is bounded by a setting.
    pub(super) fn held(&self, participant: u16, incarnations: &[Incarnation], most: i64) -> String {
        let (table, of) = (&self.incarnation, list(incarnations));
        let places = most.max(1).to_string().len();
        let digit = |place: usize| {
            let digits = (1..10).map(|n| format!(" UNION ALL SELECT {n}")).collect::<String>();
            format!("(SELECT 0 AS n{digits}) AS d{place}")
        };
        let digits: Vec<_> = (0..places).map(digit).collect();
        let number: Vec<_> = (0..places).map(|place| format!("d{place}.n * {}", 10_u64.pow(place as u32))).collect();
        let name = format!("CONCAT('handfast.', LPAD(LOWER(HEX(i.incarnation)), 16, '0'), '.{participant}.', s.slot)");
        format!(
            "SELECT i.incarnation, s.slot, IS_USED_LOCK({name}) FROM {table} AS i JOIN (SELECT {} AS slot FROM {}) AS s \
             ON s.slot < i.session_slots WHERE i.participant = {participant} AND i.incarnation IN ({of}) \
             AND IS_USED_LOCK({name}) IS NOT NULL",
            number.join(" + "),
            digits.join(" CROSS JOIN "),
        )
    }

    /// A page of witnesses of these incarnations under this number, from a sequence on.
    pub(super) fn witnessed(&self, participant: u16, incarnations: &[Incarnation], from: u64) -> String {
        let (table, of, from) = (&self.witness, list(incarnations), from.cast_signed());
        format!(
            "SELECT incarnation, sequence, kind FROM {table} WHERE incarnation IN ({of}) AND branch = {participant} \
             AND sequence >= {from} ORDER BY incarnation, sequence LIMIT {PAGE}"
        )
    }

    /// The resolver's session: rows as they are committed now, and no long wait for the locks of others.
    pub(super) fn control_session(limit: Duration) -> String {
        let seconds = limit.as_secs().max(1);
        format!(
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
             SET SESSION innodb_lock_wait_timeout = 1, autocommit = 1, lock_wait_timeout = {seconds}"
        )
    }

    /// Has the server end this session when nothing was asked on it for so long: whoever holds the lease confirms it more
    /// often, and keepalives of TCP are not a session's to set.
    /// <https://dev.mysql.com/doc/refman/9.7/en/server-system-variables.html#sysvar_wait_timeout>
    pub(super) fn mortal(silence: Duration) -> String {
        format!("SET SESSION wait_timeout = {}", silence.as_secs().clamp(1, 2_147_483))
    }

    pub(super) fn commit(branch: &BranchId) -> String {
        format!("XA COMMIT {}", branch.xid_sql())
    }

    pub(super) fn roll_back(branch: &BranchId) -> String {
        format!("XA ROLLBACK {}", branch.xid_sql())
    }

    pub(super) fn fence(&self, branch: &BranchId) -> String {
        insert_witness(&self.witness, &branch.into(), Kind::Fence.as_str(), None)
    }

    /// Fails at once when somebody is at work on the witness.
    pub(super) fn try_lock(&self, branch: &BranchId) -> String {
        format!("{} FOR UPDATE NOWAIT", look(&self.witness, &branch.into()))
    }

    /// The witnesses of several branches, with their keys.
    pub(super) fn kinds(&self, keys: &[Key]) -> String {
        format!("SELECT incarnation, sequence, branch, kind FROM {} WHERE {}", self.witness, any_of(keys))
    }

    /// The kind of a branch's witness, or that its incarnation kept none.
    pub(super) fn evidence(&self, branch: &BranchId) -> String {
        let Key { incarnation, sequence, branch } = branch.into();
        format!(
            "SELECT kind FROM {} WHERE incarnation = {incarnation} AND branch = {branch} \
             AND sequence IN (0, {sequence}) ORDER BY sequence = 0 LIMIT 1",
            self.witness
        )
    }

    /// Says that the branches of an incarnation leave no witness.
    pub(super) fn off(&self, registration: &Registration) -> String {
        let key = Key::of_incarnation(registration.incarnation, registration.participant);
        insert_witness(&self.witness, &key, Kind::Off.as_str(), None)
    }

    pub(super) fn lineage(&self) -> String {
        format!(
            "SELECT lineage FROM {} WHERE node = '{LINEAGE_NODE}' AND incarnation = 0 AND participant = 0",
            self.incarnation
        )
    }

    /// Our tables as the account sees them: name and engine.
    pub(super) fn tables(&self) -> String {
        format!(
            "SELECT TABLE_NAME, ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = '{}' AND TABLE_NAME IN \
             ('{}', '{INCARNATION_TABLE}')",
            self.schema.replace('\'', "''"),
            crate::participant::witness::WITNESS_TABLE,
        )
    }

    pub(super) fn create_tables(&self) -> [String; 2] {
        DIALECT.create_tables(&self.schema)
    }

    /// The lineage, once and for all: a second one meets the primary key.
    pub(super) fn insert_lineage(&self, lineage: Lineage) -> String {
        format!(
            "INSERT INTO {} (node, incarnation, participant, lineage, decision, journal, host, session_slots) \
             VALUES ('{LINEAGE_NODE}', 0, 0, {}, '', 0, '', 0)",
            self.incarnation,
            lineage.to_sql()
        )
    }

    /// The incarnation's row, the host apart: it is the one text that comes from outside.
    pub(super) fn register(&self, registration: &Registration, lineage: Lineage, slots: u32) -> String {
        format!(
            "INSERT INTO {} (node, incarnation, participant, lineage, decision, journal, host, session_slots) \
             VALUES ('{}', {}, {}, {}, '{}', {}, ?, {slots})",
            self.incarnation,
            registration.node,
            registration.incarnation.to_sql(),
            registration.participant,
            lineage.to_sql(),
            registration.decision,
            registration.journal.to_sql(),
        )
    }

    pub(super) fn registered(&self, registration: &Registration) -> String {
        format!(
            "SELECT journal, lineage FROM {} WHERE node = '{}' AND incarnation = {} AND participant = {}",
            self.incarnation,
            registration.node,
            registration.incarnation.to_sql(),
            registration.participant
        )
    }

    /// Tries the rights on the witness table, without a row: programs that open at the same moment would wait for each
    /// other's, or meet in a deadlock.
    pub(super) fn try_rights(&self) -> [String; 2] {
        let table = &self.witness;
        [format!("INSERT INTO {table} SELECT * FROM {table} WHERE 1 = 0"), format!("DELETE FROM {table} WHERE 1 = 0")]
    }

    /// What an administrator runs where the account may not.
    pub(super) fn setup(&self, account: &str) -> String {
        let [witness, incarnation] = self.create_tables();
        let (grants, recover) = (self.grants(account), grant_recover(account));
        format!("{witness};\n{incarnation};\n{grants}/*!80000 {recover} */;\n")
    }

    /// The rights on the tables that an account needs.
    pub(super) fn grants(&self, account: &str) -> String {
        let grant = |table: &str| format!("GRANT SELECT, INSERT, DELETE ON {table} TO {account};\n");
        grant(&self.witness) + &grant(&self.incarnation)
    }
}

/// The privilege that MySQL demands to see prepared branches; MariaDB shows them to everybody and does not know it.
pub(super) fn grant_recover(account: &str) -> String {
    format!("GRANT XA_RECOVER_ADMIN ON *.* TO {account}")
}

/// An account as `CURRENT_USER()` has it, as GRANT takes it.
pub(super) fn account_of(current_user: &str) -> String {
    let (user, host) = current_user.rsplit_once('@').unwrap_or((current_user, "%"));
    account(user, host)
}

/// An account as GRANT takes it.
pub(super) fn account(user: &str, host: &str) -> String {
    format!("'{}'@'{}'", user.replace('\'', "''"), host.replace('\'', "''"))
}

/// Incarnations as a list for `IN`, which is never empty.
fn list(incarnations: &[Incarnation]) -> String {
    assert!(!incarnations.is_empty(), "nobody is asked about nothing");
    incarnations.iter().map(|incarnation| incarnation.to_sql().to_string()).collect::<Vec<_>>().join(", ")
}

fn look(table: &str, key: &Key) -> String {
    format!("SELECT kind FROM {table} WHERE {}", is_of(key))
}

fn is_of(Key { incarnation, sequence, branch }: &Key) -> String {
    format!("incarnation = {incarnation} AND sequence = {sequence} AND branch = {branch}")
}

/// Of several keys, which are looked up one by one: MariaDB would read all rows for a list of tuples.
fn any_of(keys: &[Key]) -> String {
    keys.iter().map(|key| format!("({})", is_of(key))).collect::<Vec<_>>().join(" OR ")
}

/// With a nonce, the OK to it says that this is the last inserted id.
pub(super) fn insert_witness(table: &str, key: &Key, kind: &str, nonce: Option<u64>) -> String {
    let Key { incarnation, sequence, branch } = key;
    let mut sql = String::with_capacity(256);
    let told = write!(
        sql,
        "INSERT INTO {table} (incarnation, sequence, branch, kind) VALUES ({incarnation}, {sequence}, {branch}"
    );
    let told = told.and_then(|()| nonce.map_or(Ok(()), |nonce| write!(sql, " + 0 * LAST_INSERT_ID({nonce})")));
    told.and_then(|()| write!(sql, ", '{kind}')")).expect("writing to a String cannot fail");
    sql
}
