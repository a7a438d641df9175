//! The statements of one branch.

use super::{DIALECT, Question, Shows, Sql, Step, insert_witness, look};
use crate::id::BranchId;
use crate::participant::witness::{Key, Kind};
use crate::participant::{BeginOptions, Isolation};
use crate::protocol::Mode;
use crate::torture::{self, Safeguard};
use std::sync::Arc;

/// The statements of one branch.
///
/// A **marker** is a savepoint of a name that nobody guesses. It ends with its transaction: while it can be released, the
/// transaction is the very one that was begun, whatever the application sent in between. It is set before the first text
/// that may do more than read or write rows, and before any savepoint of the application, which would take it along.
pub(in super::super) struct BranchSql {
    sql: Arc<Sql>,
    options: BeginOptions,
    xid: String,
    /// Its number.
    marker: u64,
    key: Key,
}

impl BranchSql {
    pub(in super::super) fn new(sql: Arc<Sql>, branch: &BranchId, options: BeginOptions, marker: u64) -> Self {
        Self { sql, options, xid: branch.xid_sql(), marker, key: branch.into() }
    }

    fn mode(&self) -> Mode {
        self.options.mode
    }

    /// How long a statement waits for a lock, in whole seconds, at least one, and rounded up: InnoDB knows no shorter wait.
    pub(in super::super) fn lock_seconds(&self) -> u64 {
        let seconds = self.options.lock_timeout.as_millis().div_ceil(1000).clamp(1, 1_073_741_824);
        u64::try_from(seconds).expect("it is at most 2^30")
    }

    /// Begins the branch. `anew` undoes what the session's last user may have left; unless it is `set`, its database and
    /// its settings are set again. The session's last question was the end of that user's branch, or one that set it up.
    pub(in super::super) fn begin(&self, anew: Option<Question>, is_set: bool) -> Question {
        let mut question = anew.unwrap_or_else(Question::in_step);
        if !is_set {
            // And no transaction but the ones asked for: where `autocommit` is off by default, the first read begins one,
            // and XA START is refused (D44).
            let settings = format!("SET SESSION innodb_lock_wait_timeout = {}, autocommit = 1", self.lock_seconds());
            question = question
                .then(Step::Setting, ["USE ", &DIALECT.quote(&self.sql.database)])
                .then(Step::Setting, [&settings]);
        }
        let isolation = match self.options.isolation {
            Isolation::Default => None,
            Isolation::ReadCommitted => Some("SET TRANSACTION ISOLATION LEVEL READ COMMITTED"),
            Isolation::RepeatableRead => Some("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"),
            Isolation::Serializable => Some("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"),
        };
        if let Some(level) = isolation {
            question = question.then(Step::Setting, [level]);
        }
        match self.mode() {
            Mode::Writer => question.then(Step::Start, ["XA START ", &self.xid]),
            Mode::ReadOnly => question.then(Step::Start, ["START TRANSACTION READ ONLY"]),
        }
    }

    /// Sets the marker, behind a begin or our own last question.
    pub(in super::super) fn mark(&self, begin: Option<Question>) -> Question {
        let question = begin.unwrap_or_else(Question::in_step);
        question.then(Step::Marker, [&format!("SAVEPOINT `handfast.{:016x}`", self.marker)])
    }

    /// Proves that the transaction is the one that was begun, where it has a marker.
    fn marked(&self, question: Question, is_marked: bool) -> Question {
        if !is_marked || !torture::is_on(Safeguard::Guard) {
            return question;
        }
        question.then(Step::Marker, [&format!("RELEASE SAVEPOINT `handfast.{:016x}`", self.marker)])
    }

    /// The witness's row brings the nonce back, in the packet that says OK to it.
    fn witnessed(&self, nonce: u64, open: Open, kind: &str) -> Question {
        let (begin, is_marked) = match open {
            Open::Never(begin) => (Some(begin), false),
            Open::Unmarked => (None, false),
            Open::Marked => (None, true),
        };
        let question = if self.sql.witness_on {
            // Both servers count ids as far as this; 0 says that there is none.
            let nonce = (nonce & i64::MAX.unsigned_abs()).max(1);
            let insert = insert_witness(&self.sql.witness, &self.key, kind, Some(nonce));
            let question = self.marked(begin.unwrap_or_else(Question::in_step), is_marked);
            question.shown(Step::Witness, &insert, Shows::Id(nonce))
        } else {
            self.marked(begin.unwrap_or_else(|| Question::new(nonce)), is_marked)
        };
        question.then(Step::End, ["XA END ", &self.xid])
    }

    /// Phase one.
    pub(in super::super) fn prepare(&self, nonce: u64, open: Open) -> Question {
        self.witnessed(nonce, open, Kind::Decided.as_str()).then(Step::Last, ["XA PREPARE ", &self.xid])
    }

    /// Phase one and two at once, with a witness of this kind: that of one writer, or the list of those for which it decides.
    pub(in super::super) fn deciding(&self, nonce: u64, open: Open, kind: &str) -> Question {
        self.witnessed(nonce, open, kind).then(Step::Last, ["XA COMMIT ", &self.xid, " ONE PHASE"])
    }

    /// The checked commit of a branch declared read-only.
    pub(in super::super) fn end_read_only(&self, nonce: u64, is_marked: bool) -> Question {
        self.marked(Question::new(nonce), is_marked).then(Step::Last, ["COMMIT"])
    }

    /// Phase two, on the session that has just answered phase one.
    pub(in super::super) fn commit(&self) -> Question {
        Question::in_step().then(Step::Last, ["XA COMMIT ", &self.xid])
    }

    /// Rolls back what is open, the marker having been proven.
    pub(in super::super) fn roll_back_open(&self, nonce: u64, is_marked: bool) -> Question {
        let marked = self.marked(Question::new(nonce), is_marked);
        match self.mode() {
            Mode::Writer => {
                marked.then(Step::End, ["XA END ", &self.xid]).then(Step::Last, ["XA ROLLBACK ", &self.xid])
            }
            Mode::ReadOnly => marked.then(Step::Last, ["ROLLBACK"]),
        }
    }

    /// Rolls back what has ended its work, prepared or not.
    pub(in super::super) fn roll_back_ended(&self, nonce: u64) -> Question {
        let question = Question::new(nonce);
        match self.mode() {
            Mode::Writer => question.then(Step::Last, ["XA ROLLBACK ", &self.xid]),
            Mode::ReadOnly => question.then(Step::Last, ["ROLLBACK"]),
        }
    }

    /// Reads the witness as it is once nobody is at work on it; `None` without one.
    pub(in super::super) fn look_locking(&self) -> Option<String> {
        let look = || format!("{} LOCK IN SHARE MODE", look(&self.sql.witness, &self.key));
        self.sql.witness_on.then(look)
    }

    /// `XA END` alone: its refusal tells of a transaction that the server has rolled back by itself.
    pub(in super::super) fn end(&self, nonce: u64) -> Question {
        Question::new(nonce).then(Step::End, ["XA END ", &self.xid])
    }
}

/// What is open when a branch is to end.
pub(in super::super) enum Open {
    /// Nothing was asked of it: it begins by this, and ends at once.
    Never(Question),
    /// Nothing but rows were read and written in it.
    Unmarked,
    /// It has its marker.
    Marked,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Incarnation, TransactionId};
    use std::time::Duration;

    const XID: &str = "X'6866312e6e2e303030303030303030303030303030372e33',X'302e31',2147483647";

    fn branch(witness: bool, mode: Mode) -> BranchSql {
        let id = TransactionId { node: "n".parse().unwrap(), incarnation: Incarnation(7), sequence: 3 };
        let lock_timeout = Duration::from_millis(1500);
        let options = BeginOptions { mode, isolation: Isolation::Default, lock_timeout };
        let sql = Arc::new(Sql::new("shop".into(), "shop".into(), witness));
        BranchSql::new(sql, &id.branch(0, 1), options, 255)
    }

    /// Of a session that was used for rows only, no more is asked than by hand.
    #[test]
    fn rows_cost_what_they_cost_by_hand() {
        let branch = branch(true, Mode::Writer);
        assert_eq!(branch.begin(None, true).text(), format!("XA START {XID}"));
        let prepare = branch.prepare(9, Open::Unmarked);
        let witness = "INSERT INTO `shop`.`handfast_witness` (incarnation, sequence, branch, kind) \
                       VALUES (7, 3, 0 + 0 * LAST_INSERT_ID(9), 'decided')";
        assert_eq!(prepare.text(), format!("{witness}; XA END {XID}; XA PREPARE {XID}"));
        assert_eq!(prepare.last(), format!("XA PREPARE {XID}"));
        let steps = [(Step::Witness, Some(Shows::Id(9))), (Step::End, None), (Step::Last, None)];
        assert_eq!(prepare.steps(), steps);
        assert_eq!(branch.commit().text(), format!("XA COMMIT {XID}"));
    }

    #[test]
    fn what_may_be_another_session_s_is_set_again() {
        let set = format!("USE `shop`; SET SESSION innodb_lock_wait_timeout = 2, autocommit = 1; XA START {XID}");
        assert_eq!(branch(true, Mode::Writer).begin(None, false).text(), set);
        let read = branch(true, Mode::ReadOnly);
        assert_eq!(read.begin(None, true).text(), "START TRANSACTION READ ONLY");
    }

    /// Whatever is asked at the end has a nonce, and no nonce is 0 or beyond what a server counts.
    #[test]
    fn every_end_has_a_nonce() {
        for witness in [true, false] {
            for open in [
                |_: &BranchSql| Open::Unmarked,
                |_: &BranchSql| Open::Marked,
                |branch: &BranchSql| Open::Never(branch.begin(None, true)),
            ] {
                for nonce in [0, 1 << 63, u64::MAX] {
                    let branch = branch(witness, Mode::Writer);
                    for question in
                        [branch.prepare(nonce, open(&branch)), branch.deciding(nonce, open(&branch), "one_phase")]
                    {
                        let never = question.text().starts_with("XA START");
                        let shows: Vec<_> = question.steps().iter().filter_map(|(_, shows)| shows.as_ref()).collect();
                        // Without a witness and unused: nothing can be unread on a session that nobody has worked on.
                        assert_eq!(shows.len(), usize::from(witness || !never), "{}", question.text());
                        let is_counted =
                            |shows: &&Shows| !matches!(shows, Shows::Id(id) if *id == 0 || *id > i64::MAX as u64);
                        assert!(shows.iter().all(is_counted));
                    }
                }
            }
        }
    }

    #[test]
    fn a_marker_is_proven_first() {
        let branch = branch(true, Mode::Writer);
        let marked = branch.mark(Some(branch.begin(None, true)));
        assert_eq!(marked.text(), format!("XA START {XID}; SAVEPOINT `handfast.00000000000000ff`"));
        let prepare = branch.deciding(9, Open::Marked, "one_phase");
        assert!(prepare.text().starts_with("RELEASE SAVEPOINT `handfast.00000000000000ff`; INSERT INTO"));
        assert_eq!(prepare.last(), format!("XA COMMIT {XID} ONE PHASE"));
    }
}
