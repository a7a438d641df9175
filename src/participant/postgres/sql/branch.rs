//! The statements of one branch.

use super::super::error::{PgError, is_of};
use super::{DURABLE, Sql, rows};
use crate::id::BranchId;
use crate::participant::witness::{Key, Kind};
use crate::participant::{BeginOptions, Isolation};
use crate::protocol::Mode;
use crate::torture::{self, Safeguard};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::error::SqlState;

/// What the guard's error begins with when the branch's transaction is not the one that was begun.
pub(in super::super) const LOST: &str = "handfast:lost:";

/// What the guard's error begins with when the application has reset the marker: what it was in is seen after a rollback.
const RESET_MARKER: &str = "handfast:reset:";

/// What the guard's error begins with when a branch declared read-only was made a writing one.
const WRITABLE: &str = "handfast:writable:";

/// How a begin begins: a transaction of its own that undoes what the last user of a session left behind outside
/// transactions (D49), in front of the branch's own BEGIN. What stands in front of BEGIN in one text would belong to that.
///
/// Not `DISCARD ALL`: it drops prepared statements, and the driver keeps some of its own.
const RESET: &str = "BEGIN; RESET ALL; CLOSE ALL; UNLISTEN *; DISCARD SEQUENCES; DISCARD TEMP";

/// What transactions are that nobody says anything else of: those that an application's statements get outside of the
/// branch's. They cannot write.
fn outside() -> &'static str {
    if torture::is_on(Safeguard::ReadOnlyOutside) { "on" } else { "off" }
}

/// Ends the transaction that the session is in, and shows what became of the one that was begun for its branch.
pub(in super::super) const END: &str = "ROLLBACK; SELECT pg_catalog.current_setting('handfast.branch', true)";

/// The same after a begin that was refused, whose marker is that of whoever was there before: `idle` where nothing can have
/// been written in place of the branch.
pub(in super::super) const END_UNBEGUN: &str = "ROLLBACK; SELECT CASE pg_catalog.current_setting('default_transaction_read_only') \
     WHEN 'on' THEN 'idle' END";

pub(in super::super) const ROLLBACK: &str = "ROLLBACK";

/// What the marker tells after a rollback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Marker {
    /// As it was before: what was begun has been rolled back.
    Idle,
    /// What was begun has been prepared or committed.
    Ended,
    /// Nothing: the application has changed it for good.
    Gone,
}

impl Marker {
    pub(in super::super) fn of(messages: &[SimpleQueryMessage]) -> Self {
        match rows(messages).next() {
            Some("idle") => Self::Idle,
            Some("ended") => Self::Ended,
            _ => Self::Gone,
        }
    }
}

/// A text that begins a branch.
#[derive(Default)]
pub(in super::super) struct Begin(pub(in super::super) String);

impl Begin {
    /// How many statements each has.
    pub(in super::super) const STATEMENTS: usize = 11;

    /// The text with one of the application's behind it.
    pub(in super::super) fn and(&self, text: &str) -> String {
        [&self.0, "; ", text].concat()
    }
}

/// What a question to the server looks like, and how many statements it must answer.
pub(in super::super) struct Question {
    pub(in super::super) text: String,
    pub(in super::super) nonce: String,
    pub(in super::super) statements: usize,
}

impl Question {
    fn new(nonce: String, statements: &[&str]) -> Self {
        Self { text: statements.join("; "), nonce, statements: statements.len() }
    }
}

/// What a session keeps as prepared statements: parsing it costs more than carrying it out.
///
/// A branch whose application has deallocated them is rolled back, and they are sent as text from then on.
#[derive(Debug, Clone, Copy)]
enum Kept {
    /// Undoes what functions can undo, with a lock timeout, and leaves a session that cannot write.
    Reset,
    /// Shows its nonce in the branch's transaction, and fails in every other. What comes next is by the role that logged in.
    Guard,
    /// The same, in front of a commit that decides: it makes it durable.
    Committing,
    /// The branch's row.
    Witness,
}

impl Kept {
    fn name(self) -> &'static str {
        match self {
            Self::Reset => "handfast_reset",
            Self::Guard => "handfast_guard",
            Self::Committing => "handfast_committing",
            Self::Witness => "handfast_witness",
        }
    }

    fn types(self) -> &'static str {
        match self {
            Self::Reset => "text",
            Self::Guard | Self::Committing => "text, text",
            Self::Witness => "int8, int8, int4, text",
        }
    }

    fn places(self) -> &'static [&'static str] {
        match self {
            Self::Reset => &["$1"],
            Self::Guard | Self::Committing => &["$1", "$2"],
            Self::Witness => &["$1", "$2", "$3", "$4"],
        }
    }
}

/// Shows the nonce in the transaction that was begun for this branch, and fails in any other: `SET LOCAL` ends with its
/// transaction.
/// After `RESET ALL` it fails as a statement does, and a rollback tells.
///
/// In an aborted transaction it fails with 25P02 as any statement does; that is what makes it a proof, since
/// PREPARE TRANSACTION and COMMIT then answer *success*, do a rollback, and the driver hides the tag. The
/// process id keeps the cast from being evaluated when the statement is planned.
///
/// The end of the transaction leaves a session on which nothing can be written outside of one: it goes with the same
/// statement, since whatever the application set in its transaction stays when that is committed.
fn guard(nonce: &str, branch: &str, mode: Mode) -> String {
    let outside = format!("pg_catalog.set_config('default_transaction_read_only', '{}', false) IS NOT NULL", outside());
    if !torture::is_on(Safeguard::Guard) {
        return format!("SELECT {nonce} WHERE {outside}");
    }
    let fail =
        |text: &str| format!("pg_catalog.concat('{text}', {nonce}, ':', pg_catalog.pg_backend_pid())::pg_catalog.bool");
    let writable = match mode {
        Mode::Writer => String::new(),
        Mode::ReadOnly => format!(
            " WHEN pg_catalog.current_setting('transaction_read_only') IS DISTINCT FROM 'on' THEN {}",
            fail(WRITABLE)
        ),
    };
    format!(
        "SELECT {nonce} WHERE CASE WHEN {marker} = '' THEN {reset} WHEN {marker} IS DISTINCT FROM {branch} \
         THEN {lost}{writable} ELSE {outside} END",
        marker = "pg_catalog.current_setting('handfast.branch', true)",
        reset = fail(RESET_MARKER),
        lost = fail(LOST)
    )
}

/// `SET ROLE NONE`, not `LOCAL`: the prepared transaction then belongs to the role that logged in, and this session is that
/// role when it finishes it, whatever role the application had set.
const LOGIN_ROLE: &str = "pg_catalog.set_config('role', 'none', false) IS NOT NULL";

/// Undoes what functions can undo. Without a value `set_config` is RESET, which for a role is not `none` but its default.
fn reset(lock_timeout: &str) -> String {
    let set = |name: &str, value: &str| format!("pg_catalog.set_config('{name}', {value}, false)");
    let all = [
        set("session_authorization", "NULL"),
        set("role", "NULL"),
        "pg_catalog.pg_advisory_unlock_all()".into(),
        set("handfast.branch", "'idle'"),
        set("default_transaction_read_only", &format!("'{}'", outside())),
        set("lock_timeout", lock_timeout),
    ];
    format!("SELECT {}", all.join(", "))
}

impl Sql {
    /// A clean session, and BEGIN with what was asked for. A writer says so: what does not, cannot write.
    ///
    /// The application's first statement may be on its way before this is answered. Should BEGIN alone be refused, by a
    /// request to cancel that comes late for example, that statement has a transaction of its own, which reads only.
    ///
    /// The **marker** tells at any later time what became of this transaction: within it, it is the branch's name; when
    /// it was committed it is `ended`, since SET lasts; when it was rolled back it is `idle`, as before. No query could
    /// ask for the transaction's own number here: it would fix the snapshot before the application's first statement.
    pub(in super::super) fn begin(&self, branch: &BranchId, options: &BeginOptions) -> Begin {
        let isolation = match options.isolation {
            Isolation::Default => "",
            Isolation::ReadCommitted => " ISOLATION LEVEL READ COMMITTED",
            Isolation::RepeatableRead => " ISOLATION LEVEL REPEATABLE READ",
            Isolation::Serializable => " ISOLATION LEVEL SERIALIZABLE",
        };
        let access = match options.mode {
            Mode::Writer => " READ WRITE",
            Mode::ReadOnly => " READ ONLY",
        };
        let reset = self.say(Kept::Reset, &[&format!("'{}'", milliseconds(options.lock_timeout))]);
        Begin(format!(
            "{RESET}; {reset}; COMMIT; \
             BEGIN{isolation}{access}; SET handfast.branch = 'ended'; SET LOCAL handfast.branch = '{branch}'"
        ))
    }

    /// The guard of a branch that is not to be committed, as a statement that shows the nonce.
    pub(in super::super) fn guard(branch: &BranchId, nonce: &str, mode: Mode) -> String {
        guard(&format!("'{nonce}'"), &format!("'{branch}'"), mode)
    }

    /// A statement with its values, or with the places for them.
    fn text(&self, kept: Kept, values: &[&str]) -> String {
        match kept {
            Kept::Reset => reset(values[0]),
            Kept::Guard => format!("{} AND {LOGIN_ROLE}", guard(values[0], values[1], Mode::Writer)),
            Kept::Committing => {
                let guard = self.text(Kept::Guard, values);
                format!("{guard} AND pg_catalog.set_config('synchronous_commit', {DURABLE}, true) IS NOT NULL")
            }
            Kept::Witness => format!("INSERT INTO {} VALUES ({})", self.witness, values.join(", ")),
        }
    }

    /// Prepares what a session keeps.
    pub(in super::super) fn keep(&self) -> String {
        let witness = self.witness_on.then_some(Kept::Witness);
        let kept = [Kept::Reset, Kept::Guard, Kept::Committing].into_iter().chain(witness);
        let prepare =
            |kept: Kept| format!("PREPARE {} ({}) AS {}", kept.name(), kept.types(), self.text(kept, kept.places()));
        kept.map(prepare).collect::<Vec<_>>().join("; ")
    }

    /// From now on that is sent as text.
    fn keep_nothing(&self) {
        self.keeps_nothing.store(true, Ordering::Relaxed);
    }

    /// Whether a session was refused for having kept nothing: there are applications that deallocate what a session has
    /// prepared. Takes note of it.
    pub(in super::super) fn has_kept_nothing(&self, refused: &PgError) -> bool {
        let is_deallocated = is_of(refused, &SqlState::INVALID_SQL_STATEMENT_NAME);
        if is_deallocated {
            self.keep_nothing();
        }
        is_deallocated
    }

    fn say(&self, kept: Kept, values: &[&str]) -> String {
        if self.keeps_nothing.load(Ordering::Relaxed) {
            return self.text(kept, values);
        }
        format!("EXECUTE {}({})", kept.name(), values.join(", "))
    }

    fn question(&self, branch: &BranchId, nonce: u64, guard: Kept, kind: &str, last: &str) -> Question {
        let nonce = format!("{nonce:016x}");
        let guard = self.say(guard, &[&format!("'{nonce}'"), &format!("'{branch}'")]);
        if !self.witness_on {
            return Question::new(nonce, &[&guard, last]);
        }
        let Key { incarnation, sequence, branch } = Key::from(branch);
        let key = [incarnation, sequence, i64::from(branch)].map(|number| format!("'{number}'"));
        let [incarnation, sequence, branch] = &key;
        let witness = self.say(Kept::Witness, &[incarnation, sequence, branch, &format!("'{kind}'")]);
        Question::new(nonce, &[&guard, &witness, last])
    }

    /// Phase one.
    pub(in super::super) fn prepare(&self, branch: &BranchId, nonce: u64) -> Question {
        let prepare = format!("PREPARE TRANSACTION '{branch}'");
        self.question(branch, nonce, Kept::Guard, Kind::Decided.as_str(), &prepare)
    }

    /// Phase one and two at once.
    pub(in super::super) fn one_phase(&self, branch: &BranchId, nonce: u64) -> Question {
        self.question(branch, nonce, Kept::Committing, Kind::OnePhase.as_str(), "COMMIT")
    }

    /// The same, with a witness that decides for others, too: its kind is their list.
    pub(in super::super) fn anchor_commit(&self, branch: &BranchId, nonce: u64, listing: &str) -> Question {
        self.question(branch, nonce, Kept::Committing, listing, "COMMIT")
    }

    /// The checked commit of a branch declared read-only.
    pub(in super::super) fn end_read_only(branch: &BranchId, nonce: u64) -> Question {
        let nonce = format!("{nonce:016x}");
        let guard = Self::guard(branch, &nonce, Mode::ReadOnly);
        Question::new(nonce, &[&guard, "COMMIT"])
    }
}

/// PostgreSQL's zero means *no limit*, and it counts in an `int4`.
pub(in super::super) fn milliseconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn branch() -> BranchId {
        "hf1.orders.9f3c2a7b11d0e842.1042.0.3".parse().unwrap()
    }

    fn statements(text: &str) -> usize {
        text.split("; ").count()
    }

    #[test]
    fn a_prepare_is_one_text_in_the_order_that_proves_it() {
        let sql = Sql::new("public".into(), true);
        let question = sql.prepare(&branch(), 7);
        let guard = "EXECUTE handfast_guard('0000000000000007', 'hf1.orders.9f3c2a7b11d0e842.1042.0.3')";
        let witness = "EXECUTE handfast_witness('-6972651415008122814', '1042', '0', 'decided')";
        let last = "PREPARE TRANSACTION 'hf1.orders.9f3c2a7b11d0e842.1042.0.3'";
        assert_eq!(question.text, [guard, witness, last].join("; "));
        assert_eq!(question.statements, 3);
        let alone = sql.one_phase(&branch(), 7).text;
        assert!(
            alone.starts_with("EXECUTE handfast_committing(") && alone.ends_with("'one_phase'); COMMIT"),
            "{alone}"
        );
        assert_eq!(Sql::new("public".into(), false).prepare(&branch(), 7).statements, 2);
    }

    /// What is sent where sessions keep nothing is what they would have kept.
    #[test]
    fn as_text_it_is_the_same_question() {
        let sql = Sql::new("public".into(), true);
        let kept = sql.keep();
        sql.keep_nothing();
        let question = sql.prepare(&branch(), 7);
        assert_eq!(question.statements, statements(&question.text));
        let guard = ["'0000000000000007'", &format!("'{}'", branch())];
        let witness = ["'-6972651415008122814'", "'1042'", "'0'", "'decided'"];
        for (place, said, values) in [(1, 0, &guard[..]), (3, 1, &witness[..])] {
            let kept = kept.split("; ").nth(place).unwrap().split_once(" AS ").unwrap().1;
            let filled = (1..)
                .zip(values)
                .fold(kept.to_owned(), |text, (place, value)| text.replace(&format!("${place}"), value));
            assert_eq!(question.text.split("; ").nth(said), Some(&*filled));
        }
    }

    #[test]
    fn a_begin_has_as_many_statements_as_are_counted() {
        let options = BeginOptions {
            mode: Mode::Writer,
            isolation: Isolation::Serializable,
            lock_timeout: Duration::from_secs(1),
        };
        let sql = Sql::new("public".into(), true);
        for _ in 0..2 {
            assert_eq!(statements(&sql.begin(&branch(), &options).0), Begin::STATEMENTS);
            sql.keep_nothing();
        }
    }

    #[test]
    fn no_timeout_becomes_none_at_all() {
        assert_eq!(milliseconds(Duration::ZERO), 1);
        assert_eq!(milliseconds(Duration::from_micros(10)), 1);
        assert_eq!(milliseconds(Duration::MAX), i32::MAX);
    }
}
