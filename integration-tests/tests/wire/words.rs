//! The words by which the proxy knows each statement.

use super::case::Statement;
use integration_tests::proxy::On;
use integration_tests::servers::Flavor;
use integration_tests::world::Side;

/// The next such statement on a side; `key` is the row that the application writes.
pub fn on(side: &Side, statement: Statement, key: i32) -> On {
    let words = side.words();
    let is_postgres = side.flavor() == Flavor::Postgres;
    let either = |postgres, mysql| if is_postgres { postgres } else { mysql };
    let text = match statement {
        Statement::Begin => words.begin,
        Statement::Work => return side.proxy.on(&format!("VALUES ({key}, 1)")),
        Statement::Prepare => words.prepare,
        Statement::Commit | Statement::Finish => words.commit,
        // Not that of a prepared one, nor the one in front of it.
        Statement::RollBack => either("ROLLBACK; SELECT", words.roll_back),
        Statement::RollBackPrepared | Statement::FinishBack => words.roll_back,
        Statement::OnePhase => words.one_phase,
        Statement::EndReadOnly => either("'transaction_read_only'", "; COMMIT"),
        Statement::Decide => "'anchor ",
        Statement::ConfirmLease => either("l.pid = pg_catalog.pg_backend_pid() AND l.locktype", "') = CONNECTION_ID()"),
        Statement::TakeLease => either("pg_try_advisory_lock", "GET_LOCK('handfast.lease."),
        // The lease is taken first.
        Statement::GoToWork if is_postgres => return side.proxy.on("pg_try_advisory_lock").nth(2),
        Statement::GoToWork => "GET_LOCK('handfast.work.",
        // The host goes apart from it: on MySQL as a statement that was prepared before.
        Statement::Register if is_postgres => "VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        Statement::Register => return side.proxy.on("'journal', ").following(),
        Statement::Registry => "WHERE node <> ''",
        Statement::List => words.list,
        Statement::Look => "sequence IN (0, ",
        Statement::Fence | Statement::FenceInDoubt => "'fence'",
        Statement::EndSessions => either("pg_terminate_backend(pid) FROM", "AS s ON s.slot < i.session_slots"),
        Statement::Witnesses => "SELECT incarnation, sequence, kind",
        Statement::Entries => "SELECT part, entry FROM",
        Statement::WriteEntry if is_postgres => "VALUES ($1, $2, $3) ON CONFLICT DO NOTHING RETURNING 1",
        Statement::WriteEntry => "(node, part, entry) VALUES",
        Statement::Held => either("SELECT (l.classid", "') IS NOT NULL"),
        Statement::Decisions => "LIKE 'anchor%.%'",
    };
    side.proxy.on(text)
}
