//! What PostgreSQL alone can do to a branch: its roles, settings, limits and failures.

use futures_util::FutureExt;
use futures_util::future::join;
use handfast::ErrorKind;
use handfast::config::Config;
use handfast::participant::postgres::Postgres;
use handfast::participant::{
    BeginOptions, Branch, Claim, Evidence, Isolation, Participant, Prunable, Question, Registration, Sighted,
};
use handfast::protocol::{Finish, Resolution, Vote};
use handfast::tokio_postgres::error::{ErrorPosition, SqlState};
use handfast::tokio_postgres::{Client, SimpleQueryMessage};
use integration_tests::conformance::{
    Bench, Harness, PostgresHarness, Setup, assert_answer, cases, eventually, lent, postgres_at, reader, registration,
    writer,
};
use integration_tests::proxy::Proxy;
use integration_tests::servers::{self, Flavor, Server};
use std::time::{Duration, Instant};

/// One test on a database of the shared server each.
macro_rules! on_postgres {
    ($($(#[$meta:meta])* async fn $name:ident($harness:ident) $body:block)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn postgres() {
                if servers::is_available(Flavor::Postgres) {
                    servers::runtime().block_on(run());
                }
            }

            $(#[$meta])*
            async fn run() {
                let $harness = PostgresHarness::new().await;
                $body
            }
        }
    )*};
}

/// A server of a test's own. It lives as long as the program: its guardian ends it.
async fn own_server(settings: &[(&str, &str)]) -> &'static Server {
    let options = settings.iter().fold(servers::options(), |options, (name, value)| options.with(name, value));
    Box::leak(Box::new(servers::start_with(Flavor::Postgres, options).await))
}

const ADVISORY: &str = "SELECT count(*)::text FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()";

async fn exec(branch: &dyn Branch, sql: &str) {
    lent(branch).borrow().unwrap().batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
}

async fn value(branch: &dyn Branch, sql: &str) -> String {
    lent(branch).borrow().unwrap().query_one(sql, &[]).await.unwrap().get(0)
}

/// A role that may log in and use the table `data`, and the URL that it goes by.
async fn role(harness: &PostgresHarness, name: &str) -> String {
    harness.sql(&format!("CREATE ROLE {name} LOGIN; GRANT SELECT, INSERT, UPDATE ON data TO {name}")).await;
    harness.url().replace("//postgres@", &format!("//{name}@"))
}

on_postgres! {
    async fn a_changed_role_does_not_own_the_branch(harness) {
        let (app, other) = (servers::unique("app"), servers::unique("other"));
        let url = role(&harness, &app).await;
        role(&harness, &other).await;
        harness.sql(&format!("GRANT {other} TO {app}; GRANT CREATE ON SCHEMA public TO {app}")).await;
        for (row, change) in [(1, "SET LOCAL ROLE"), (2, "SET ROLE"), (3, "RESET ROLE; --")] {
            if row == 3 {
                harness.sql(&format!("ALTER ROLE {app} SET role = {other}")).await;
            }
            let bench =
                Bench::registered(&harness, Box::new(postgres_at("bench", &url, "")), registration(0)).await;
            for outside in [false, true] {
                let mut branch = bench.begin().await;
                exec(&*branch, &format!("{change} {other}")).await;
                assert_eq!(value(&*branch, "SELECT current_user::text").await, other);
                harness.write(&*branch, row, 10 + i64::from(outside)).await.unwrap();
                assert_answer(&branch.prepare().await, Vote::Prepared);
                let owner = format!("SELECT owner FROM pg_prepared_xacts WHERE gid = '{}'", branch.id());
                assert_eq!(harness.sql(&owner).await.as_deref(), Some(&*app));
                if outside {
                    let id = branch.id();
                    drop(branch);
                    bench.commit_from_outside(&id).await;
                } else {
                    assert_answer(&branch.commit().await, Finish::Done);
                }
            }
            assert_eq!(harness.value(row).await, Some(11));
        }
    }

    /// D49
    async fn settings_do_not_leak_into_the_next_branch(harness) {
        let bench = Bench::with(&harness, Setup { pool_size: 1, ..Setup::default() }).await;
        let mut branch = bench.begin().await;
        let pid = value(&*branch, "SELECT pg_backend_pid()::text").await;
        let name = value(&*branch, "SELECT current_setting('application_name')").await;
        assert_eq!(name, branch.id().session().to_string());
        exec(&*branch, "SET work_mem = '77kB'; SET search_path = nowhere; SET statement_timeout = 1000").await;
        exec(&*branch, "SELECT pg_catalog.pg_advisory_lock(7); SET application_name = 'stolen'").await;
        assert_answer(&branch.prepare().await, Vote::Prepared);
        assert_answer(&branch.commit().await, Finish::Done);
        drop(branch);
        for _ in 0..50 {
            let mut branch = bench.begin().await;
            assert_eq!(value(&*branch, "SELECT pg_backend_pid()::text").await, pid, "the session was not reused");
            assert_eq!(value(&*branch, "SELECT current_setting('application_name')").await, name);
            assert_ne!(value(&*branch, "SELECT current_setting('work_mem')").await, "77kB");
            assert_eq!(value(&*branch, "SELECT current_setting('statement_timeout')").await, "0");
            assert_eq!(value(&*branch, ADVISORY).await, "0");
            assert_answer(&branch.roll_back().await, Finish::Done);
        }
    }

    /// D43
    async fn what_cannot_be_prepared_is_a_no_with_its_reason(harness) {
        let bench = Bench::new(&harness).await;
        for (statement, reason) in [
            ("CREATE TEMP TABLE t (a int)", "temporary"),
            ("NOTIFY somebody", "NOTIFY"),
            ("DECLARE c CURSOR WITH HOLD FOR SELECT 1", "WITH HOLD"),
        ] {
            let mut branch = bench.begin_and_write(1, 10).await;
            exec(&*branch, statement).await;
            let answer = branch.prepare().await;
            assert_answer(&answer, Vote::No);
            let cause = answer.cause.unwrap();
            assert_eq!(cause.kind(), ErrorKind::Statement);
            assert!(cause.to_string().contains(reason), "{cause}");
        }
        assert_eq!(harness.value(1).await, None);
        assert!(bench.listed().await.is_empty());
    }

    async fn a_deferred_constraint_fails_at_the_end(harness) {
        let bench = Bench::new(&harness).await;
        harness.sql("CREATE TABLE child (parent int8 REFERENCES data DEFERRABLE INITIALLY DEFERRED)").await;
        let mut branch = bench.begin().await;
        exec(&*branch, "INSERT INTO child VALUES (5)").await;
        let answer = branch.prepare().await;
        assert_answer(&answer, Vote::No);
        assert!(answer.cause.unwrap().chain().contains("23503"));
        let mut branch = bench.begin().await;
        exec(&*branch, "INSERT INTO child VALUES (5)").await;
        assert_answer(&branch.commit_one_phase().await, Finish::RolledBack);
        assert_eq!(bench.ask(&branch.id(), Question::Fence).await, Evidence::Never);
    }

    async fn a_serialization_failure_is_to_be_retried(harness) {
        let bench = Bench::new(&harness).await;
        let options = BeginOptions { isolation: Isolation::Serializable, ..writer() };
        for row in [1, 3] {
            let (mut a, mut b) = (bench.begin_with(options).await, bench.begin_with(options).await);
            // Each reads what the other writes: one of them has to go.
            for (branch, written, read) in [(&a, row, row + 1), (&b, row + 1, row)] {
                assert_eq!(harness.read(&**branch, read).await.unwrap(), None);
                harness.write(&**branch, written, 10).await.unwrap();
            }
            assert_answer(&a.prepare().await, Vote::Prepared);
            let cause = if row == 1 {
                let answer = b.prepare().await;
                assert_answer(&answer, Vote::No);
                answer.cause.unwrap()
            } else {
                let answer = b.commit_one_phase().await;
                assert_answer(&answer, Finish::RolledBack);
                answer.cause.unwrap()
            };
            assert_eq!(cause.kind(), ErrorKind::Retry, "{}", cause.chain());
            assert_answer(&a.commit().await, Finish::Done);
        }
    }

    /// A reader that meets a prepared writer is the victim, since the writer cannot be any more.
    async fn a_serializable_reader_may_be_the_victim(harness) {
        let bench = Bench::new(&harness).await;
        let options = BeginOptions { isolation: Isolation::Serializable, ..writer() };
        let mut pivot = bench.begin_with(options).await;
        assert_eq!(harness.read(&*pivot, 1).await.unwrap(), None);
        let mut first = bench.begin_with(options).await;
        harness.write(&*first, 1, 10).await.unwrap();
        assert_answer(&first.commit_one_phase().await, Finish::Done);
        harness.write(&*pivot, 2, 20).await.unwrap();
        assert_answer(&pivot.prepare().await, Vote::Prepared);
        let mut late = bench.begin_with(BeginOptions { isolation: Isolation::Serializable, ..reader() }).await;
        assert_eq!(harness.read(&*late, 2).await.unwrap_err().kind(), ErrorKind::Retry);
        assert_answer(&late.end_read_only().await, Vote::No);
        assert_answer(&pivot.commit().await, Finish::Done);
    }

    async fn a_read_only_branch_made_writable_is_refused(harness) {
        let bench = Bench::new(&harness).await;
        let mut branch = bench.begin_with(reader()).await;
        exec(&*branch, "SET TRANSACTION READ WRITE").await;
        harness.write(&*branch, 1, 10).await.unwrap();
        assert_answer(&branch.end_read_only().await, Vote::No);
        assert_eq!(harness.value(1).await, None);
    }

    async fn a_role_that_reads_only_by_default_writes(harness) {
        let app = servers::unique("app");
        let url = role(&harness, &app).await;
        harness.sql(&format!("GRANT CREATE ON SCHEMA public TO {app}")).await;
        harness.sql(&format!("ALTER ROLE {app} SET default_transaction_read_only = on")).await;
        harness.sql(&format!("ALTER ROLE {app} SET default_transaction_isolation = 'serializable'")).await;
        let bench = Bench::registered(&harness, Box::new(postgres_at("bench", &url, "")), registration(0)).await;
        let mut branch = bench.begin_and_write(1, 10).await;
        assert_answer(&branch.commit_one_phase().await, Finish::Done);
        assert_eq!(bench.ask(&branch.id(), Question::Fence).await, Evidence::CommittedAlone);
    }

    async fn a_role_without_rights_is_told_what_to_run(harness) {
        let app = servers::unique("app");
        let url = role(&harness, &app).await;
        let participant = postgres_at("bench", &url, "");
        let registration = registration(0);
        let error = participant.register(&registration).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Setup, "{}", error.chain());
        assert!(error.to_string().contains("CREATE TABLE IF NOT EXISTS \"public\".\"handfast_witness\""), "{error}");
        assert!(error.to_string().contains(&participant.setup_sql()), "{error}");

        postgres_at("owner", &harness.url(), "").init().await.unwrap();
        harness.sql(&format!("GRANT SELECT ON handfast_witness, handfast_incarnation TO {app}")).await;
        let error = participant.register(&registration).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Setup, "{}", error.chain());

        harness.sql(&participant.setup_sql()).await;
        let bench = Bench::registered(&harness, Box::new(participant), registration).await;
        assert_answer(&bench.begin_and_write(1, 10).await.commit_one_phase().await, Finish::Done);
    }

    async fn tables_live_in_the_schema_asked_for(harness) {
        let participant = postgres_at("bench", &harness.url(), "schema = \"my \\\"own\\\"\"");
        let registration = registration(0);
        let error = participant.register(&registration).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Setup, "{}", error.chain());
        harness.sql(&participant.setup_sql().replace("\"postgres\"", "current_user")).await;
        let bench = Bench::registered(&harness, Box::new(participant), registration).await;
        let mut branch = bench.begin_and_write(1, 10).await;
        assert_answer(&branch.prepare().await, Vote::Prepared);
        assert_answer(&branch.commit().await, Finish::Done);
        assert_eq!(bench.ask(&branch.id(), Question::Look).await, Evidence::Committed);
        let elsewhere = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public' AND tablename LIKE 'handfast%'";
        assert_eq!(harness.sql(elsewhere).await.as_deref(), Some("0"));
    }

    async fn names_that_are_no_text_do_not_spoil_the_list(harness) {
        let bench = Bench::new(&harness).await;
        let sibling = harness.sibling().await;
        sibling.prepare_foreign(&format!("elsewhere {}", bench.registration.incarnation)).await;
        let name = format!("Grüße {}", bench.registration.incarnation);
        harness.prepare_foreign(&name).await;
        let expected = Sighted::Foreign(handfast::id::hex(name.as_bytes()));
        let listed: Vec<_> = bench.participant.list().await.unwrap().into_iter().map(|s| s.branch).collect();
        assert_eq!(listed, [expected], "this database's alone");
        assert!(harness.end_foreign(&name).await);
        assert!(sibling.end_foreign(&format!("elsewhere {}", bench.registration.incarnation)).await);
    }

    /// D32: the server is busy and does not look at its socket.
    async fn a_branch_dropped_in_a_long_statement_frees_its_locks(harness) {
        let bench = Bench::new(&harness).await;
        let branch = bench.begin_and_write(1, 10).await;
        let sleeping = tokio::time::timeout(Duration::from_millis(100), exec(&*branch, "SELECT pg_sleep(600)")).await;
        assert!(sleeping.is_err());
        drop(branch);
        bench.unlocked(1).await;
        eventually("gone", async || harness.sessions(bench.registration.incarnation).await == 0).await;
    }

    /// A handle that outlives its branch reaches no other.
    async fn a_kept_handle_reaches_nothing(harness) {
        let bench = Bench::with(&harness, Setup { pool_size: 1, ..Setup::default() }).await;
        let mut branch = bench.begin_and_write(1, 10).await;
        let handle = lent(&*branch);
        assert_answer(&branch.roll_back().await, Finish::Done);
        assert_eq!(handle.borrow().err().unwrap().kind(), ErrorKind::Closed);

        // Held while the branch ends, at its deadline for example: the session goes, the statement fails.
        let mut branch = bench.begin_and_write(1, 10).await;
        let handle = lent(&*branch);
        let client = handle.borrow().unwrap();
        assert_answer(&branch.roll_back().await, Finish::Done);
        client.execute("INSERT INTO data VALUES (1, 66)", &[]).await.unwrap_err();
        let mut next = bench.begin_and_write(2, 20).await;
        client.execute("INSERT INTO data VALUES (3, 66)", &[]).await.unwrap_err();
        assert_answer(&next.commit_one_phase().await, Finish::Done);
        assert_eq!((harness.value(1).await, harness.value(3).await), (None, None));
    }

    async fn another_lineage_behind_a_known_url_is_refused(harness) {
        let bench = Bench::new(&harness).await;
        let mut branch = bench.begin_and_write(1, 10).await;
        assert_answer(&branch.prepare().await, Vote::Prepared);
        let id = branch.id();
        drop(branch);
        // As after a failover to a copy that was set up anew: the connections are new, too.
        harness.sql("UPDATE handfast_incarnation SET lineage = lineage # 1").await;
        harness.sql(
            "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity \
             WHERE application_name LIKE 'handfast.%' AND datname = current_database()"
        ).await;
        let refused = |kind| kind == ErrorKind::Refused;
        eventually("refused", async || refused(bench.participant.list().await.unwrap_err().kind())).await;
        assert!(refused(bench.participant.begin(bench.transaction(), writer()).await.err().unwrap().kind()));
        let answer = bench.participant.commit(&id).await;
        assert_answer(&answer, Finish::Unknown);
        assert!(refused(answer.cause.unwrap().kind()));
        assert!(harness.finish_by_hand(&id, false).await, "it was touched");
    }

    /// A connection that is lost in the middle of many: what was answered counts, what was under way is lost, and of the
    /// rest nothing is told.
    async fn a_connection_lost_among_many(harness) {
        let server = own_server(&[("max_prepared_transactions", "200")]).await;
        let harness_of_its_own = PostgresHarness::on(server).await;
        drop(harness);
        let harness = harness_of_its_own;
        let dead = Bench::new(&harness).await;
        let mut work = Vec::new();
        for row in 0..130 {
            let mut branch = dead.begin_and_write(row, 10).await;
            assert_answer(&branch.prepare().await, Vote::Prepared);
            work.push((branch.id(), Resolution::Commit));
        }
        let proxy = Proxy::start(server).await;
        let through = postgres_at("bench", &proxy.url(harness.url().rsplit('/').next().unwrap()), "");
        let live = Bench::registered(&harness, Box::new(through), registration(0)).await;
        let rule = proxy.on("COMMIT PREPARED").nth(70).cut();
        let told = std::sync::Mutex::new(Vec::new());
        live.participant.finish_all(&work, &|place, answer| told.lock().unwrap().push((place, answer))).await;
        rule.fired().await;
        let told = told.into_inner().unwrap();
        assert!(told.iter().map(|(place, _)| *place).eq(0..128), "{told:?}");
        for (place, answer) in &told {
            assert_eq!(answer.is_lost(), answer.value == Finish::Unknown, "{place}");
            assert!(*place >= 64 || answer.value == Finish::Done, "{place}");
            assert!(*place < 69 || answer.value == Finish::Unknown, "{place}");
        }
        // The server may still be at what it was sent.
        eventually("finished", async || {
            let listed = dead.listed().await;
            let left: Vec<_> = work.iter().copied().filter(|(id, _)| listed.contains(id)).collect();
            live.participant.finish_all(&left, &|_, _| {}).await;
            listed.is_empty()
        })
        .await;
        for row in 0..130 {
            assert_eq!(harness.value(row).await, Some(10));
        }
    }

    /// A begin that is refused with the application's first statement right behind it: nothing is written, whoever ends the
    /// branch is told, and the session is not used again.
    async fn a_begin_that_is_refused_unheard(harness) {
        let proxy = Proxy::start(servers::shared(Flavor::Postgres).await).await;
        let url = proxy.url(harness.url().rsplit('/').next().unwrap());
        let bench = Bench::registered(&harness, Box::new(postgres_at("bench", &url, "pool_size = 1")), registration(0)).await;
        // What an application sets in its transaction outlasts it; what it may write in outside of one must not.
        for (row, set) in (1..).zip([
            "SELECT 1",
            "SET default_transaction_read_only = off",
            "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
            "SET default_transaction_read_only = off; SET LOCAL default_transaction_read_only = on",
        ]) {
            for end in 0..3 {
                let mut last = bench.begin().await;
                exec(&*last, set).await;
                match row % 2 {
                    0 => assert_answer(&last.commit_one_phase().await, Finish::Done),
                    _ => {
                        assert_answer(&last.prepare().await, Vote::Prepared);
                        assert_answer(&last.commit().await, Finish::Done);
                    }
                }
                let rule = proxy.on("BEGIN READ WRITE").refuse();
                let mut branch = bench.begin().await;
                let error = harness.write(&*branch, row, 10).await.unwrap_err();
                assert!(error.chain().contains("25006"), "{}", error.chain());
                rule.fired().await;
                let cause = match end {
                    0 => {
                        let answer = branch.prepare().await;
                        assert_answer(&answer, Vote::No);
                        answer.cause
                    }
                    1 => {
                        let answer = branch.commit_one_phase().await;
                        assert_answer(&answer, Finish::RolledBack);
                        answer.cause
                    }
                    _ => {
                        let answer = branch.roll_back().await;
                        assert_answer(&answer, Finish::Done);
                        answer.cause
                    }
                };
                let cause = cause.unwrap();
                assert_eq!(cause.kind(), ErrorKind::Retry, "{}", cause.chain());
                assert!(cause.chain().contains("canceling statement"), "{}", cause.chain());
                assert_answer(&branch.roll_back().await, Finish::Done);
                assert_eq!(harness.value(row).await, None);
            }
        }
        assert!(bench.listed().await.is_empty());
    }

    /// A text that goes out behind its begin: what the application gets is the answer to its own statements, whole.
    async fn a_begin_in_the_same_text_is_not_seen(harness) {
        let bench = Bench::new(&harness).await;
        assert_answer(&bench.begin_and_write(1, 10).await.commit_one_phase().await, Finish::Done);
        let text = "SELECT value FROM data; UPDATE data SET value = 11; SELECT value, id FROM data";
        let shape = |messages: &[SimpleQueryMessage]| -> Vec<String> {
            let one = |message: &SimpleQueryMessage| match message {
                SimpleQueryMessage::Row(row) => format!("{:?}", (0..row.len()).map(|i| row.get(i)).collect::<Vec<_>>()),
                SimpleQueryMessage::CommandComplete(rows) => format!("{rows}"),
                SimpleQueryMessage::RowDescription(columns) => format!("{}", columns.len()),
                _ => unreachable!("there is no other"),
            };
            messages.iter().map(one).collect()
        };
        for rides in [true, false] {
            let mut branch = bench.begin().await;
            let lent = lent(&*branch);
            let session = lent.borrow().unwrap();
            let messages = if rides { session.simple_query(text).await } else { Client::simple_query(&session, text).await };
            let rows = |value: &str, more: &str| format!("[Some(\"{value}\"){more}]");
            let expected = ["1", &rows("10", ""), "1", "1", "2", &rows("11", ", Some(\"1\")"), "1"];
            assert_eq!(shape(&messages.unwrap()), expected, "{rides}");
            drop(session);
            assert_answer(&branch.roll_back().await, Finish::Done);
        }
        let branch = bench.begin().await;
        let lent = lent(&*branch);
            let session = lent.borrow().unwrap();
        let (first, second) = join(session.batch_execute("CREATE TEMP TABLE own (v int)"), session.simple_query("SELECT v FROM own")).await;
        assert!(first.is_ok() && second.is_ok(), "texts of several callers keep their order");
    }

    /// The application's own error keeps its code behind a begin, and its branch is aborted by it; a text that the server
    /// cannot read is told of with its own positions.
    async fn errors_behind_a_begin_are_the_applications(harness) {
        let bench = Bench::new(&harness).await;
        assert_answer(&bench.begin().await.commit_one_phase().await, Finish::Done);
        for (text, code, position) in [
            ("SELECT 1/0", "22012", None),
            ("SELECT * FROM nowhere", "42P01", None),
            ("SELEKT 1", "42601", Some(1)),
            ("SELECT 'open", "42601", Some(8)),
            ("SELECT U&'\\zz'", "42601", Some(11)),
        ] {
            let mut branch = bench.begin().await;
            let lent = lent(&*branch);
            let session = lent.borrow().unwrap();
            let error = session.batch_execute(text).await.unwrap_err();
            let error = error.as_db_error().unwrap();
            assert_eq!(error.code().code(), code, "{text}");
            if let Some(position) = position {
                assert_eq!(error.position(), Some(&ErrorPosition::Original(position)), "{text}");
            }
            let next = session.batch_execute("SELECT 1").await.unwrap_err();
            assert_eq!(next.code(), Some(&SqlState::IN_FAILED_SQL_TRANSACTION), "{text}");
            drop(session);
            let answer = branch.prepare().await;
            assert_answer(&answer, Vote::No);
            assert!(answer.cause.unwrap().chain().contains("25P02"));
        }
        let mut branch = bench.begin().await;
        let lent = lent(&*branch);
            let session = lent.borrow().unwrap();
        let error = session.batch_execute("SELECT '\0'").await.unwrap_err();
        assert!(error.as_db_error().is_none(), "nothing was sent: {error}");
        drop(session);
        assert_answer(&branch.commit_one_phase().await, Finish::Done);
    }

    /// A call that is dropped before its answer leaves a branch that can be ended either way.
    async fn a_dropped_first_text_leaves_the_branch_usable(harness) {
        let bench = Bench::new(&harness).await;
        assert_answer(&bench.begin().await.commit_one_phase().await, Finish::Done);
        for (row, ends_well) in [(1, true), (2, false)] {
            let mut branch = bench.begin().await;
            let lent = lent(&*branch);
            let session = lent.borrow().unwrap();
            let insert = format!("INSERT INTO data VALUES ({row}, 5)");
            assert!(session.batch_execute(&insert).now_or_never().is_none());
            drop(session);
            if ends_well {
                assert_answer(&branch.prepare().await, Vote::Prepared);
                assert_answer(&branch.commit().await, Finish::Done);
            } else {
                assert_answer(&branch.roll_back().await, Finish::Done);
            }
            assert_eq!(harness.value(row).await, ends_well.then_some(5));
        }
    }

    /// What nothing was asked of costs the server nothing, and what is asked of it only at the end is proven as any other.
    async fn an_unused_branch_sends_nothing(harness) {
        let proxy = Proxy::start(servers::shared(Flavor::Postgres).await).await;
        let url = proxy.url(harness.url().rsplit('/').next().unwrap());
        let bench = Bench::registered(&harness, Box::new(postgres_at("bench", &url, "pool_size = 1")), registration(0)).await;
        assert_answer(&bench.begin().await.commit_one_phase().await, Finish::Done);
        let before = proxy.messages().len();
        assert_answer(&bench.begin().await.roll_back().await, Finish::Done);
        assert_eq!(proxy.messages().len(), before);
        let mut branch = bench.begin().await;
        assert_answer(&branch.prepare().await, Vote::Prepared);
        assert_answer(&branch.roll_back().await, Finish::Done);
    }

    /// An application may deallocate what its session has prepared: that costs one try, and the next is sent as text.
    async fn deallocated_votes_are_sent_as_text(harness) {
        for end in 0..2 {
            let bench = Bench::new(&harness).await;
            for (try_, expected) in [(0, Vote::No), (1, Vote::Prepared), (2, Vote::Prepared)] {
                let mut branch = bench.begin_and_write(i64::from(end), try_).await;
                exec(&*branch, "DEALLOCATE ALL").await;
                let (is_done, cause) = if end == 0 {
                    let answer = branch.prepare().await;
                    assert_eq!(answer.value, expected);
                    if expected == Vote::Prepared {
                        assert_answer(&branch.commit().await, Finish::Done);
                    }
                    (expected == Vote::Prepared, answer.cause)
                } else {
                    let answer = branch.commit_one_phase().await;
                    (answer.value == Finish::Done, answer.cause)
                };
                assert_eq!(is_done, try_ > 0);
                if let Some(cause) = cause {
                    assert_eq!(cause.kind(), ErrorKind::Retry, "{}", cause.chain());
                    assert!(cause.chain().contains("deallocated"), "{}", cause.chain());
                }
                assert_eq!(harness.value(i64::from(end)).await, is_done.then_some(try_));
            }
        }
    }

    /// One that has done so in a branch that was rolled back: the next begin is refused. Where it is waited for, another session
    /// serves, else that branch is to be run again.
    async fn deallocated_begins_are_sent_as_text(harness) {
        for is_sure in [false, true] {
            let bench = Bench::registered(&harness, Box::new(postgres_at("bench", &harness.url(), "pool_size = 1")), registration(0)).await;
            let mut last = bench.begin().await;
            exec(&*last, "DEALLOCATE ALL").await;
            if !is_sure {
                harness.fail(&*last).await;
            }
            assert_answer(&last.roll_back().await, Finish::Done);
            drop(last);
            let row = i64::from(is_sure);
            let mut branch = bench.begin().await;
            assert_eq!(harness.write(&*branch, row, 1).await.is_err(), is_sure);
            let answer = branch.commit_one_phase().await;
            if is_sure {
                assert_eq!(answer.value, Finish::RolledBack);
                assert_eq!(answer.cause.unwrap().kind(), ErrorKind::Retry);
            } else {
                assert_answer(&answer, Finish::Done);
            }
            drop(branch);
            // From then on nothing is lost, however often it is done.
            for value in 2..5 {
                let mut last = bench.begin().await;
                exec(&*last, "DEALLOCATE ALL").await;
                assert_answer(&last.roll_back().await, Finish::Done);
                drop(last);
                let mut branch = bench.begin().await;
                exec(&*branch, &format!("DELETE FROM data WHERE id = {row}")).await;
                harness.write(&*branch, row, value).await.unwrap();
                assert_answer(&branch.prepare().await, Vote::Prepared);
                assert_answer(&branch.commit().await, Finish::Done);
                assert_eq!(harness.value(row).await, Some(value));
            }
        }
    }

    /// An application that makes its statements write in spite of that is not told that nothing was done.
    async fn a_begin_that_is_refused_and_worked_around(harness) {
        let proxy = Proxy::start(servers::shared(Flavor::Postgres).await).await;
        let url = proxy.url(harness.url().rsplit('/').next().unwrap());
        let bench = Bench::registered(&harness, Box::new(postgres_at("bench", &url, "pool_size = 1")), registration(0)).await;
        assert_answer(&bench.begin().await.commit_one_phase().await, Finish::Done);
        let rule = proxy.on("BEGIN READ WRITE").refuse();
        let mut branch = bench.begin().await;
        exec(&*branch, "SET default_transaction_read_only = off").await;
        harness.write(&*branch, 1, 10).await.unwrap();
        rule.fired().await;
        assert_answer(&branch.prepare().await, Vote::Lost);
        assert_eq!(harness.value(1).await, Some(10));
    }

    /// After a rollback, too, nothing can be written outside, and the begin is not waited for.
    async fn a_begin_that_is_refused_after_a_rollback(harness) {
        let proxy = Proxy::start(servers::shared(Flavor::Postgres).await).await;
        let url = proxy.url(harness.url().rsplit('/').next().unwrap());
        let bench = Bench::registered(&harness, Box::new(postgres_at("bench", &url, "pool_size = 1")), registration(0)).await;
        let mut last = bench.begin().await;
        exec(&*last, "SET default_transaction_read_only = off").await;
        assert_answer(&last.roll_back().await, Finish::Done);
        let rule = proxy.on("BEGIN READ WRITE").refuse();
        let mut branch = bench.begin().await;
        harness.write(&*branch, 1, 10).await.unwrap_err();
        rule.fired().await;
        assert_answer(&branch.prepare().await, Vote::No);
        assert_eq!(harness.value(1).await, None);
    }

    /// An application may have ended its transaction by itself: the next begin on the session is waited for, and one that
    /// is refused costs nobody anything.
    async fn a_begin_on_a_session_in_disorder(harness) {
        let proxy = Proxy::start(servers::shared(Flavor::Postgres).await).await;
        let url = proxy.url(harness.url().rsplit('/').next().unwrap());
        let bench = Bench::registered(&harness, Box::new(postgres_at("bench", &url, "pool_size = 1")), registration(0)).await;
        for (row, disorder) in (1..).zip(["SELECT 1", "ROLLBACK; SET default_transaction_read_only = off; BEGIN"]) {
            let mut last = bench.begin().await;
            exec(&*last, disorder).await;
            harness.fail(&*last).await;
            assert_answer(&last.prepare().await, Vote::No);
            let rule = proxy.on("BEGIN READ WRITE").refuse();
            let mut branch = bench.begin_and_write(row, 10).await;
            rule.fired().await;
            assert_answer(&branch.commit_one_phase().await, Finish::Done);
            assert_eq!(harness.value(row).await, Some(10));
        }
    }

    async fn a_half_open_lease(harness) {
        let server = servers::shared(Flavor::Postgres).await;
        let proxy = Proxy::start(server).await;
        let database = harness.url().rsplit('/').next().unwrap().to_owned();
        let lines = "[recovery]\nstatement_timeout = \"2s\"";
        let through = postgres_at("bench", &proxy.url(&database), lines);
        let rival = postgres_at("bench", &harness.url(), lines);
        cases::a_half_open_lease_is_taken_over(&proxy, "l.pid = pg_catalog.pg_backend_pid() AND l.locktype", &through, &rival).await;
    }

    /// A connection that the server has ended is seen to be gone, without asking.
    async fn a_killed_resolver_has_lost_its_lease(harness) {
        let bench = Bench::new(&harness).await;
        assert!(harness.end_resolver(&*bench.participant, bench.registration.claim()).await);
        eventually("lost", async || !bench.participant.holds()).await;
        bench.participant.hold(bench.registration.claim()).await.unwrap();
        assert!(bench.participant.holds());
    }

    /// An account that may not see other accounts' sessions names the holder all the same.
    async fn an_ordinary_role_names_the_holder(harness) {
        let first = Bench::new(&harness).await;
        let app = servers::unique("app");
        let url = role(&harness, &app).await;
        let second = postgres_at("bench", &url, "");
        harness.sql(&second.setup_sql()).await;
        let claim = first.registration.claim();
        let error = second.hold(Claim { incarnation: registration(0).incarnation, ..claim }).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{}", error.chain());
        assert!(error.chain().contains(&claim.incarnation.to_string()), "{}", error.chain());
    }

    /// Witnesses that are inserted and not prepared yet are neither waited for nor pruned.
    async fn pruning_waits_for_nobody_at_work(harness) {
        let bench = Bench::new(&harness).await;
        let key = |sequence: i64| format!("({}, {sequence}, 0, 'decided')", bench.registration.incarnation.to_sql());
        harness.sql(&format!("INSERT INTO handfast_witness VALUES {}, {}", key(1), key(2))).await;
        let mut at_work = bench.begin().await;
        exec(&*at_work, &format!("INSERT INTO handfast_witness VALUES {}", key(50))).await;
        let Registration { incarnation, participant, .. } = bench.registration;
        let prunable = Prunable::Witnesses { incarnation, participant, below: 100 };
        assert!(!bench.participant.prune(prunable).await.unwrap());
        let count = "SELECT count(*) FROM handfast_witness";
        assert_eq!(harness.sql(count).await.as_deref(), Some("0"));
        assert_answer(&at_work.prepare().await, Vote::Prepared);
        assert!(!bench.participant.prune(prunable).await.unwrap());
        assert_answer(&at_work.commit().await, Finish::Done);
        assert_eq!(harness.sql(count).await.as_deref(), Some("2"), "its own witness and the one by hand");
    }

    async fn a_server_is_described(harness) {
        let server = postgres_at("bench", &harness.url(), "").identify().await.unwrap();
        assert!(server.description.starts_with("PostgreSQL 1"), "{}", server.description);
        assert!(server.description.contains(" at 127.0.0.1:"), "{}", server.description);
        assert_eq!(harness.sql("SELECT count(*) FROM pg_class WHERE relname LIKE 'handfast%'").await.unwrap(), "0");
    }
}

/// D40 and D41: prepared transactions disabled, and too few of them.
mod the_limit_of_prepared_transactions {
    use super::*;

    #[test]
    fn postgres() {
        servers::runtime().block_on(async {
            let server = own_server(&[("max_prepared_transactions", "1")]).await;
            let harness = PostgresHarness::on(server).await;
            let bench = Bench::new(&harness).await;
            let (mut a, mut b) = (bench.begin_and_write(1, 10).await, bench.begin_and_write(2, 20).await);
            assert_answer(&a.prepare().await, Vote::Prepared);
            let answer = b.prepare().await;
            assert_answer(&answer, Vote::No);
            let cause = answer.cause.unwrap().chain();
            assert!(cause.contains("max_prepared_transactions 1, in use 1"), "{cause}");
            assert_answer(&a.commit().await, Finish::Done);

            server.set("max_prepared_transactions", "0");
            server.restart().await.unwrap();
            let mut branch = bench.begin_and_write(3, 30).await;
            let answer = branch.prepare().await;
            assert_answer(&answer, Vote::No);
            assert_eq!(answer.cause.unwrap().kind(), ErrorKind::Setup);
            let participant = harness.participant("bench", Setup::default());
            let error = participant.register(&registration(0)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Setup);
            let text = error.to_string();
            assert!(text.contains("max_prepared_transactions is 0") && text.contains("restart"), "{text}");
        });
    }
}

/// A role with `synchronous_commit = off` loses no answered commit, no fence and no registration.
mod answered_commits_survive_a_crash {
    use super::*;

    #[test]
    fn postgres() {
        servers::runtime().block_on(async {
            let server = own_server(&[("synchronous_commit", "off"), ("wal_writer_delay", "10s")]).await;
            let harness = PostgresHarness::on(server).await;
            server.query("postgres", "CHECKPOINT").await.unwrap();
            let bench = Bench::new(&harness).await;
            for row in 0..9 {
                let mut branch = bench.begin_and_write(100 + row, row).await;
                let id = branch.id();
                // What is durable takes everything before it to the disk: each gets its turn to be the last.
                match row % 3 {
                    0 => {
                        assert_answer(&branch.commit_one_phase().await, Finish::Done);
                    }
                    1 => {
                        drop(branch);
                        assert_eq!(bench.ask(&id, Question::Fence).await, Evidence::Never);
                    }
                    _ => assert_answer(&branch.prepare().await, Vote::Prepared),
                }
                server.kill().await.unwrap();
                server.restart().await.unwrap();
                let expected = [Evidence::CommittedAlone, Evidence::Never, Evidence::Nothing];
                assert_eq!(bench.ask(&id, Question::Look).await, expected[usize::try_from(row % 3).unwrap()]);
                assert_eq!(harness.value(100 + row).await, (row % 3 == 0).then_some(row));
                if row % 3 == 2 {
                    assert_eq!(bench.listed().await, [id]);
                    bench.commit_from_outside(&id).await;
                    server.kill().await.unwrap();
                    server.restart().await.unwrap();
                    assert_eq!(bench.ask(&id, Question::Look).await, Evidence::Committed);
                }
            }
        });
    }
}

/// A server that answers nothing: every call of the resolver ends in time, and goes on when the server does.
mod a_silent_server_costs_bounded_time {
    use super::*;

    #[test]
    fn postgres() {
        servers::runtime().block_on(async {
            let server = own_server(&[]).await;
            let harness = PostgresHarness::on(server).await;
            let participant = impatient(&harness.url());
            let bench = Bench::registered(&harness, Box::new(participant), registration(0)).await;
            let mut branch = bench.begin_and_write(1, 10).await;
            assert_answer(&branch.prepare().await, Vote::Prepared);
            let id = branch.id();
            drop(branch);
            server.suspend().await.unwrap();
            let since = Instant::now();
            assert_eq!(bench.participant.list().await.unwrap_err().kind(), ErrorKind::Unavailable);
            assert_eq!(bench.participant.identify().await.unwrap_err().kind(), ErrorKind::Unavailable);
            assert_answer(&bench.participant.commit(&id).await, Finish::Unknown);
            bench.participant.ask(&id, Question::Fence).await.unwrap_err();
            bench.participant.end_session(id.session()).await.unwrap_err();
            assert!(since.elapsed() < Duration::from_secs(60), "{:?}", since.elapsed());
            server.resume().await.unwrap();
            eventually("finished", async || {
                bench.participant.commit(&id).await;
                bench.ask(&id, Question::Look).await == Evidence::Committed
            })
            .await;
            assert_eq!(harness.value(1).await, Some(10));
        });
    }
}

fn impatient(url: &str) -> Postgres {
    let text = format!(
        "node = \"bench\"\n[journal]\ndirectory = \"/nowhere\"\n[recovery]\nstatement_timeout = \"1s\"\n\
         [pool]\nconnect_timeout = \"1s\"\n[participants.bench]\nkind = \"postgres\"\nurl = \"{url}\"\n"
    );
    let config = Config::from_toml(&text).unwrap();
    let (name, participant) = config.participants.iter().next().unwrap();
    Postgres::new(*name, participant, &config.pool, &config.recovery).unwrap()
}

/// D35: PREPARE TRANSACTION waits for a standby that is not there, and no timeout of the server ends that.
mod a_prepare_that_waits_for_a_standby {
    use super::*;

    #[test]
    fn postgres() {
        servers::runtime().block_on(async {
            let server = own_server(&[]).await;
            let harness = PostgresHarness::on(server).await;
            let bench = Bench::registered(&harness, Box::new(impatient(&harness.url())), registration(0)).await;
            let mut branch = bench.begin_and_write(1, 10).await;
            let id = branch.id();
            harness.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'").await;
            harness.sql("SELECT pg_reload_conf()").await;
            let shown = "SELECT current_setting('synchronous_standby_names')";
            eventually("reloaded", async || harness.sql(shown).await.as_deref() == Some("nobody")).await;
            // Long enough for the prepare to be durable and to hang.
            let listed = async {
                eventually("listed", async || harness.sql(LISTED).await.as_deref() == Some("1")).await;
            };
            tokio::select! {
                vote = branch.prepare() => panic!("{vote:?}"),
                () = listed => {}
            }
            drop(branch);
            eventually("rolled back, whatever was answered", async || {
                let answer = bench.participant.roll_back(&id).await;
                answer.value == Finish::Done || bench.listed().await.is_empty()
            })
            .await;
            assert!(bench.listed().await.is_empty());
            bench.unlocked(1).await;
        });
    }

    /// The branch is in shared memory before its prepare returns, and listed only once it is valid.
    const LISTED: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
}

/// The connections of pool and resolver died with the server: neither costs anybody an error.
mod a_restart_between_transactions_goes_unnoticed {
    use super::*;

    #[test]
    fn postgres() {
        servers::runtime().block_on(async {
            let server = own_server(&[]).await;
            let harness = PostgresHarness::on(server).await;
            let bench = Bench::new(&harness).await;
            for round in 1..=3 {
                let mut branches = Vec::new();
                for row in 1..=4 {
                    branches.push(bench.begin_and_write(row, round).await);
                }
                for branch in &mut branches {
                    assert_answer(&branch.commit_one_phase().await, Finish::Done);
                }
                server.kill().await.unwrap();
                bench.participant.list().await.unwrap_err();
                // Until a session's end was heard of, a begin on it is not waited for.
                eventually("all sessions are known to be gone", async || {
                    bench.participant.begin(bench.transaction(), writer()).await.is_err()
                })
                .await;
                server.restart().await.unwrap();
                assert!(bench.listed().await.is_empty());
            }
            assert_eq!(harness.value(4).await, Some(3));
        });
    }
}

/// D12: a standby is refused, also behind a URL that led to a primary before; once promoted it serves.
mod a_standby_is_refused {
    use super::*;

    #[test]
    fn postgres() {
        servers::runtime().block_on(async {
            let server = own_server(&[]).await;
            let harness = PostgresHarness::on(server).await;
            let bench = Bench::new(&harness).await;
            assert_answer(&bench.begin_and_write(1, 10).await.commit_one_phase().await, Finish::Done);
            server.stop().await.unwrap();
            std::fs::write(server.directory().join("data/standby.signal"), "").unwrap();
            server.restart().await.unwrap();
            let error = harness.participant("bench", Setup::default()).register(&registration(0)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Setup);
            assert!(error.to_string().contains("standby"), "{error}");
            assert!(bench.participant.begin(bench.transaction(), writer()).await.is_err());
            let reading = bench.begin_with(reader()).await;
            assert_eq!(harness.read(&*reading, 1).await.unwrap(), Some(10));
            harness.sql("SELECT pg_promote()").await;
            let participant = harness.participant("bench", Setup::default());
            assert_eq!(Bench::registered(&harness, participant, registration(0)).await.lineage, bench.lineage);
            assert_answer(&bench.begin_and_write(1, 11).await.commit_one_phase().await, Finish::Done);
        });
    }
}

/// A connection that died in the pool and was not seen to: where its begin is waited for, another session is taken. Elsewhere
/// the first statement fails (`steps.rs`).
mod a_session_that_died_unseen_is_replaced {
    use super::*;

    #[test]
    fn postgres() {
        // On one thread: nobody looks at the sockets while it is blocked.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let harness = PostgresHarness::new().await;
            let bench = Bench::new(&harness).await;
            for round in 1..=3 {
                let mut branch = bench.begin().await;
                let session = branch.id().session();
                harness.fail(&*branch).await;
                assert_answer(&branch.roll_back().await, Finish::Done);
                std::thread::scope(|scope| {
                    let kill = || servers::runtime().block_on(harness.kill(session));
                    assert!(scope.spawn(kill).join().unwrap());
                });
                let mut branch = bench.begin_and_write(1, round).await;
                assert_answer(&branch.commit_one_phase().await, Finish::Done);
            }
        });
    }
}

/// No error about a URL shows what is in it.
mod passwords_are_not_shown {
    use super::*;

    #[test]
    fn postgres() {
        for url in ["postgresql://app:s3cret@/x?port=many", "s3cret", "postgresql://:s3cret@h"] {
            let text = format!(
                "node = \"bench\"\n[journal]\ndirectory = \"/nowhere\"\n[participants.bench]\nkind = \"postgres\"\nurl = \"{url}\"\n"
            );
            let config = Config::from_toml(&text).unwrap();
            let (name, participant) = config.participants.iter().next().unwrap();
            let error = Postgres::new(*name, participant, &config.pool, &config.recovery).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Config);
            let text = format!("{error:?} {}", error.chain());
            assert!(text.contains("participants.bench.url"), "{text}");
            assert!(!text.contains("cret"), "{text}");
        }
    }
}
