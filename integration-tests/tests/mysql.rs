//! What only MySQL and MariaDB do, beside the conformance suite. Numbers (D1 to D50) are of failures of other systems.

use futures_util::TryStreamExt;
use handfast::id::{BranchId, Incarnation};
use handfast::mysql_async::prelude::Queryable;
use handfast::mysql_async::{Conn, Row};
use handfast::participant::mysql::{Mysql, MysqlBranch};
use handfast::participant::{
    BeginOptions, Branch, Evidence, Isolation, Participant, Prunable, Question, Registration, Sighted,
};
use handfast::protocol::{Finish, Mode, Resolution, Vote};
use handfast::{Error, ErrorKind};
use integration_tests::conformance::mysql::{connect, database, lent, try_mysql};
use integration_tests::conformance::{assert_answer, cases, eventually, registration, writer};
use integration_tests::each_mysql;
use integration_tests::proxy::Proxy;
use integration_tests::servers::{self, Flavor, Server};
use std::cell::Cell;
use std::time::Duration;

/// A registered participant on a database of its own.
struct Bench {
    url: String,
    mysql: Mysql,
    registration: Registration,
    next: Cell<u64>,
}

impl Bench {
    /// On the server that all tests share.
    async fn shared(flavor: Flavor) -> Self {
        Self::on(servers::shared(flavor).await).await
    }

    async fn on(server: &Server) -> Self {
        Self::with(server, "pool_size = 1").await
    }

    async fn with(server: &Server, lines: &str) -> Self {
        Self::at(server.url(&database(server).await), lines, registration(0)).await
    }

    async fn at(url: String, lines: &str, registration: Registration) -> Self {
        let mysql = try_mysql("orders", &url, lines).unwrap();
        mysql.register(&registration).await.unwrap_or_else(|error| panic!("{}", error.chain()));
        Self { url, mysql, registration, next: Cell::new(1) }
    }

    async fn begin(&self) -> Box<dyn Branch> {
        self.begin_with(writer()).await
    }

    async fn begin_with(&self, options: BeginOptions) -> Box<dyn Branch> {
        self.try_begin(options).await.unwrap_or_else(|error| panic!("{}", error.chain()))
    }

    async fn try_begin(&self, options: BeginOptions) -> handfast::Result<Box<dyn Branch>> {
        let sequence = self.next.replace(self.next.get() + 1);
        let Registration { node, incarnation, .. } = self.registration;
        self.mysql.begin(handfast::id::TransactionId { node, incarnation, sequence }, options).await
    }

    async fn admin(&self) -> Conn {
        connect(&self.url).await
    }

    async fn numbers(&self, query: &str) -> Vec<i64> {
        self.admin().await.query(query).await.unwrap_or_else(|error| panic!("{query}: {error}"))
    }

    /// The committed rows.
    async fn rows(&self) -> Vec<i64> {
        self.numbers("SELECT id FROM data ORDER BY id").await
    }

    async fn listed(&self) -> Vec<Sighted> {
        let listed = self.mysql.list().await.unwrap_or_else(|error| panic!("{}", error.chain()));
        listed.into_iter().map(|sighting| sighting.branch).collect()
    }

    async fn is_listed(&self, id: &BranchId) -> bool {
        self.listed().await.contains(&Sighted::Ours(*id))
    }

    async fn ask(&self, id: &BranchId, question: Question) -> Evidence {
        self.mysql.ask(id, question).await.unwrap_or_else(|error| panic!("{}", error.chain()))
    }
}

async fn insert(branch: &dyn Branch, row: i64) -> Result<(), handfast::mysql_async::Error> {
    lent(branch).await.exec_drop("INSERT INTO data VALUES (?, 0)", (row,)).await
}

async fn connection_id(branch: &dyn Branch) -> u64 {
    lent(branch).await.query_first("SELECT CONNECTION_ID()").await.unwrap().unwrap()
}

/// Prepares by hand, on a session of its own that stays.
async fn prepare_by_hand(bench: &Bench, xid: &str, statements: &[&str]) -> Conn {
    let mut conn = bench.admin().await;
    conn.query_drop(format!("XA START {xid}")).await.unwrap();
    for statement in statements {
        conn.query_drop(*statement).await.unwrap();
    }
    conn.query_drop(format!("XA END {xid}")).await.unwrap();
    conn.query_drop(format!("XA PREPARE {xid}")).await.unwrap();
    conn
}

each_mysql! {
    /// D2: what is committed is there at once and after a crash; no session is reset while it holds a branch.
    async fn committed_branches_survive_a_crash(flavor) {
        let server = servers::start(flavor).await;
        let bench = Bench::on(&server).await;
        let mut connections = Vec::new();
        for row in 1..=20 {
            let mut branch = bench.begin().await;
            connections.push(connection_id(&*branch).await);
            insert(&*branch, row).await.unwrap();
            assert_answer(&branch.prepare().await, Vote::Prepared);
            assert_answer(&branch.commit().await, Finish::Done);
            assert_eq!(bench.rows().await, (1..=row).collect::<Vec<_>>());
        }
        assert!(connections.iter().all(|id| *id == connections[0]), "one session served them all: {connections:?}");
        let headless = "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = 0";
        assert_eq!(bench.numbers(headless).await, [0]);
        server.kill().await.unwrap();
        server.restart().await.unwrap();
        assert!(bench.listed().await.is_empty());
        assert_eq!(bench.rows().await, (1..=20).collect::<Vec<_>>());
        let mut branch = bench.begin().await;
        insert(&*branch, 21).await.unwrap();
        assert_answer(&branch.commit_one_phase().await, Finish::Done);
    }

    /// A prepared branch outlives the crash of its server: it is listed, and its commit from outside can be proven.
    async fn prepared_branches_survive_a_crash(flavor) {
        let server = servers::start_with(flavor, servers::options().with_binlog()).await;
        let bench = Bench::with(&server, "pool_size = 3").await;
        let mut ids = Vec::new();
        for row in [1, 2] {
            let mut branch = bench.begin().await;
            insert(&*branch, row).await.unwrap();
            assert_answer(&branch.prepare().await, Vote::Prepared);
            ids.push(branch);
        }
        // D14: what a binary log with other programs' identifiers does to ours.
        let mut foreign = prepare_by_hand(&bench, "'a','b',2147483646", &["INSERT INTO data VALUES (3, 0)"]).await;
        foreign.query_drop("XA COMMIT 'a','b',2147483646").await.unwrap();
        server.kill().await.unwrap();
        server.restart().await.unwrap();
        let [mut commit, mut roll_back] = <[_; 2]>::try_from(ids).ok().unwrap();
        assert_answer(&commit.commit().await, Finish::Unknown);
        assert_answer(&roll_back.roll_back().await, Finish::Unknown);
        for branch in [&commit, &roll_back] {
            assert!(bench.is_listed(&branch.id()).await);
            assert_eq!(bench.ask(&branch.id(), Question::Fence).await, Evidence::Blocked);
        }
        assert_answer(&bench.mysql.commit(&commit.id()).await, Finish::Done);
        assert_answer(&bench.mysql.roll_back(&roll_back.id()).await, Finish::Done);
        assert!(bench.listed().await.is_empty());
        assert_eq!(bench.ask(&commit.id(), Question::Look).await, Evidence::Committed);
        assert_eq!(bench.ask(&roll_back.id(), Question::Fence).await, Evidence::Never);
        assert_eq!(bench.rows().await, [1, 3]);
    }

    /// D15: a failed statement that the application ignores dooms the branch, and is named.
    async fn an_ignored_failure_dooms_the_branch(flavor) {
        let bench = Bench::shared(flavor).await;
        let mut branch = bench.begin().await;
        insert(&*branch, 1).await.unwrap();
        insert(&*branch, 1).await.unwrap_err();
        insert(&*branch, 2).await.unwrap();
        lent(&*branch).await.query_drop("SELECT * FROM nowhere").await.unwrap_err();
        let answer = branch.prepare().await;
        assert_answer(&answer, Vote::No);
        let cause = answer.cause.unwrap();
        assert_eq!(cause.kind(), ErrorKind::Statement);
        assert!(cause.chain().contains("1062") && cause.chain().contains("orders"), "{}", cause.chain());
        assert_answer(&branch.roll_back().await, Finish::Done);

        let mut holder = bench.admin().await;
        holder.query_drop("BEGIN").await.unwrap();
        holder.query_drop("INSERT INTO data VALUES (9, 0)").await.unwrap();
        let mut branch = bench.begin_with(BeginOptions { lock_timeout: Duration::from_millis(100), ..writer() }).await;
        insert(&*branch, 3).await.unwrap();
        assert_eq!(Error::from(insert(&*branch, 9).await.unwrap_err()).kind(), ErrorKind::Retry);
        let answer = branch.commit_one_phase().await;
        assert_answer(&answer, Finish::RolledBack);
        assert_eq!(answer.cause.unwrap().kind(), ErrorKind::Retry);
        drop(holder);
        assert_eq!(bench.rows().await, [0; 0]);
    }

    /// D15: a failure is forgiven when a savepoint set before it is rolled back to, and not otherwise.
    async fn a_savepoint_forgives(flavor) {
        let bench = Bench::shared(flavor).await;
        let forgiven: &[&[&str]] = &[
            &["SAVEPOINT a", "FAIL", "ROLLBACK TO SAVEPOINT a"],
            &["SAVEPOINT a", "SAVEPOINT b", "FAIL", "FAIL", "rollback to `A`", "RELEASE SAVEPOINT a"],
            &["SAVEPOINT a", "FAIL", "SELECT 1", "ROLLBACK WORK TO a", "FAIL", "ROLLBACK TO a"],
        ];
        for (row, texts) in (1i64..).zip(forgiven) {
            let mut branch = bench.begin().await;
            insert(&*branch, row).await.unwrap();
            run_all(&*branch, texts).await;
            assert_answer(&branch.prepare().await, Vote::Prepared);
            assert_answer(&branch.commit().await, Finish::Done);
        }
        assert_eq!(bench.rows().await, [1, 2, 3]);
        let doomed: &[&[&str]] = &[
            &["FAIL", "SAVEPOINT a", "ROLLBACK TO a"],
            &["SAVEPOINT a", "FAIL", "SAVEPOINT a", "ROLLBACK TO a"],
            &["SAVEPOINT a", "FAIL", "SAVEPOINT b", "ROLLBACK TO b"],
            &["SAVEPOINT a", "RELEASE SAVEPOINT a", "FAIL", "SAVEPOINT a", "ROLLBACK TO a"],
            &["FAIL", "SAVEPOINT a", "FAIL", "ROLLBACK TO a"],
            &["SAVEPOINT a", "FAIL", "DO 1", "ROLLBACK TO a"],
        ];
        for texts in doomed {
            let mut branch = bench.begin().await;
            insert(&*branch, 4).await.unwrap();
            run_all(&*branch, texts).await;
            assert_answer(&branch.prepare().await, Vote::No);
        }
        assert_eq!(bench.rows().await, [1, 2, 3]);
    }

    /// D15: an error behind the first rows, which the application reads by itself and ignores, is found all the same.
    async fn a_failure_read_by_the_application_alone_is_found(flavor) {
        let bench = Bench::shared(flavor).await;
        for more in [false, true] {
            let mut branch = bench.begin().await;
            insert(&*branch, 1).await.unwrap();
            let mut session = lent(&*branch).await;
            let mut result = session.query_iter("SELECT 1; INSERT INTO data VALUES (1, 0)").await.unwrap();
            result.collect::<Row>().await.unwrap();
            result.collect::<Row>().await.unwrap_err();
            drop(result);
            if more {
                session.query_drop("INSERT INTO data VALUES (2, 0)").await.unwrap();
            }
            drop(session);
            let answer = branch.prepare().await;
            assert_answer(&answer, Vote::No);
            assert!(answer.cause.unwrap().chain().contains("1062"));
        }
        // Not read at all: the driver hands the error to whoever comes next.
        let mut branch = bench.begin().await;
        insert(&*branch, 1).await.unwrap();
        drop(lent(&*branch).await.query_iter("SELECT 1; INSERT INTO data VALUES (1, 0)").await.unwrap());
        assert_answer(&branch.prepare().await, Vote::No);
        // Nothing failed: nothing is found.
        let mut branch = bench.begin().await;
        drop(lent(&*branch).await.query_iter("SELECT 1; INSERT INTO data VALUES (1, 0)").await.unwrap());
        assert_answer(&branch.prepare().await, Vote::Prepared);
        assert_answer(&branch.commit().await, Finish::Done);
        assert_eq!(bench.rows().await, [1]);
    }

    /// D37: the victim of a deadlock is rolled back, XA END or not, and its session serves a hundred more.
    async fn a_victim_keeps_its_session(flavor) {
        let bench = Bench::shared(flavor).await;
        let mut admin = bench.admin().await;
        admin.query_drop("INSERT INTO data VALUES (1, 0), (2, 0), (3, 0)").await.unwrap();
        let mut branch = bench.begin().await;
        let session = connection_id(&*branch).await;
        lent(&*branch).await.query_drop("SELECT * FROM data WHERE id = 1 FOR UPDATE").await.unwrap();
        // The heavier transaction survives.
        admin.query_drop("BEGIN").await.unwrap();
        admin.query_drop("UPDATE data SET value = 1 WHERE id IN (2, 3)").await.unwrap();
        let (theirs, ours) = tokio::join!(
            admin.query_drop("UPDATE data SET value = 2 WHERE id = 1"),
            async { lent(&*branch).await.query_drop("SELECT * FROM data WHERE id = 2 FOR UPDATE").await }
        );
        theirs.unwrap();
        assert_eq!(Error::from(ours.unwrap_err()).kind(), ErrorKind::Retry);
        // No savepoint brings it back.
        lent(&*branch).await.query_drop("SAVEPOINT a").await.ok();
        lent(&*branch).await.query_drop("ROLLBACK TO a").await.ok();
        let answer = branch.prepare().await;
        assert_answer(&answer, Vote::No);
        let cause = answer.cause.unwrap();
        assert_eq!(cause.kind(), ErrorKind::Retry);
        assert!(cause.chain().contains("1213"), "{}", cause.chain());
        assert_answer(&branch.roll_back().await, Finish::Done);
        admin.query_drop("ROLLBACK").await.unwrap();
        for row in 10..110 {
            let mut branch = bench.begin().await;
            assert_eq!(connection_id(&*branch).await, session);
            insert(&*branch, row).await.unwrap();
            assert_answer(&branch.prepare().await, Vote::Prepared);
            assert_answer(&branch.commit().await, Finish::Done);
        }
        assert_eq!(bench.rows().await.len(), 103);
    }

    /// D39: other programs' identifiers are shown as they are, in hexadecimal where they are not text, and left alone.
    async fn foreign_identifiers_are_shown(flavor) {
        let server = servers::start(flavor).await;
        let bench = Bench::on(&server).await;
        let odd = "X'00ff275c',X'f1',7";
        let like_ours = "'hf1.orders.9f3c2a7b11d0e842.1','0.01',2147483647";
        for xid in [odd, like_ours, "'plain'"] {
            drop(prepare_by_hand(&bench, xid, &[]).await);
        }
        let mut branch = bench.begin().await;
        assert_answer(&branch.prepare().await, Vote::Prepared);
        let listed = bench.listed().await;
        for expected in [
            Sighted::Foreign(odd.into()),
            Sighted::Foreign(like_ours.into()),
            Sighted::Foreign("plain".into()),
            Sighted::Ours(branch.id()),
        ] {
            assert!(listed.contains(&expected), "{expected:?} in {listed:?}");
        }
        assert_eq!(listed.len(), 4);
        assert_answer(&branch.roll_back().await, Finish::Done);
        assert_eq!(bench.listed().await.len(), 3);
    }

    /// D48: a branch that is there before it was begun is not this program's work: refused, and never adopted.
    async fn a_duplicate_is_refused(flavor) {
        let bench = Bench::shared(flavor).await;
        let mut branch = bench.begin().await;
        let id = branch.id();
        assert_answer(&branch.roll_back().await, Finish::Done);
        let next = handfast::id::TransactionId { sequence: id.transaction.sequence + 1, ..id.transaction };
        let stolen = next.branch(id.participant, id.slot);
        let conn = prepare_by_hand(&bench, &stolen.xid_sql(), &["INSERT INTO data VALUES (1, 0)"]).await;
        // A session that was idle is begun with at once, another one with its first call.
        let error = match bench.try_begin(writer()).await {
            Err(error) => error,
            Ok(branch) => Error::from(insert(&*branch, 2).await.unwrap_err()),
        };
        assert_eq!(error.kind(), ErrorKind::Refused, "{}", error.chain());
        assert!(error.chain().contains(&stolen.to_string()), "{}", error.chain());
        assert!(bench.is_listed(&stolen).await, "and not rolled back in its stead");
        conn.disconnect().await.unwrap();
        let mut branch = bench.begin().await;
        assert_answer(&branch.commit_one_phase().await, Finish::Done);
        eventually("rolled back", async || bench.mysql.roll_back(&stolen).await.value == Finish::Done).await;
    }

    /// A begin rides with the first text: what the application gets is the answer to its own statement, whole.
    async fn a_begin_that_rides_is_not_seen(flavor) {
        let bench = Bench::shared(flavor).await;
        let mut admin = bench.admin().await;
        admin.query_drop("CREATE TABLE counted (id BIGINT AUTO_INCREMENT PRIMARY KEY, v TINYINT UNIQUE) AUTO_INCREMENT 70").await.unwrap();
        let mut branch = bench.begin().await;
        let mut session = lent(&*branch).await;
        let answer = session.query_iter("INSERT INTO counted (v) VALUES (1), (2)").await.unwrap();
        assert_eq!((answer.affected_rows(), answer.last_insert_id(), answer.warnings()), (2, Some(70), 0));
        assert!(answer.info().contains("Records: 2") && answer.is_empty(), "{answer:?}");
        drop(answer);
        drop(session);
        assert_answer(&branch.commit_one_phase().await, Finish::Done);
        for number in 0..6 {
            let branch = bench.begin().await;
            let mut session = lent(&*branch).await;
            let query = "SELECT v FROM counted ORDER BY v;";
            let rows: Vec<i64> = match number {
                0 => session.query(query).await.unwrap(),
                1 => session.query_map(query, |v: i64| v).await.unwrap(),
                2 => session.query_fold(query, Vec::new(), |mut all, v: i64| { all.push(v); all }).await.unwrap(),
                3 => session.query_iter(query).await.unwrap().collect_and_drop().await.unwrap(),
                4 => session.query_stream::<i64, _>(query).await.unwrap().try_collect().await.unwrap(),
                _ => {
                    assert_eq!(session.query_first::<i64, _>(query).await.unwrap(), Some(1));
                    assert_eq!(session.query_first::<i64, _>("SELECT v FROM counted WHERE v = 9").await.unwrap(), None);
                    session.query(query).await.unwrap()
                }
            };
            assert_eq!(rows, [1, 2], "{number}");
            // And no more than these.
            assert_eq!(session.query::<i64, _>("SELECT 7").await.unwrap(), [7], "{number}");
        }
    }

    /// The application's own error keeps its code when the begin rode with it, and a savepoint set before it forgives.
    async fn errors_behind_a_begin_are_the_applications(flavor) {
        let bench = Bench::shared(flavor).await;
        for number in 0..4 {
            let mut branch = bench.begin().await;
            let mut session = lent(&*branch).await;
            let error = match number {
                0 => session.query_drop("SELECT * FROM nowhere").await.err(),
                1 => session.query_iter("SELECT * FROM nowhere").await.err(),
                2 => session.query_first::<i64, _>("SELECT * FROM nowhere").await.err(),
                _ => session.query_stream::<i64, _>("SELECT * FROM nowhere").await.err(),
            };
            let error = error.unwrap();
            assert!(matches!(&error, handfast::mysql_async::Error::Server(server) if server.code == 1146), "{error}");
            drop(session);
            let answer = branch.prepare().await;
            assert_answer(&answer, Vote::No);
            assert!(answer.cause.unwrap().chain().contains("1146"));
        }
        // Rows first, then what has to have the marker in front of it, lest it be rolled back with the savepoint.
        let mut branch = bench.begin().await;
        run_all(&*branch, &["INSERT INTO data VALUES (1, 0)", "SAVEPOINT a", "FAIL", "DO 1", "ROLLBACK TO a"]).await;
        assert_answer(&branch.prepare().await, Vote::No);
        let mut branch = bench.begin().await;
        run_all(&*branch, &["INSERT INTO data VALUES (1, 0)", "SAVEPOINT a", "DO 1", "FAIL", "ROLLBACK TO a"]).await;
        assert_answer(&branch.prepare().await, Vote::Prepared);
        assert_answer(&branch.commit().await, Finish::Done);
        assert_eq!(bench.rows().await, [1]);
    }

    /// A branch that was asked for and never used: it begins with its prepare, and has its proof like any other.
    async fn an_unused_branch_has_its_proof(flavor) {
        let bench = Bench::shared(flavor).await;
        let mut branch = bench.begin().await;
        assert_answer(&branch.prepare().await, Vote::Prepared);
        assert!(bench.is_listed(&branch.id()).await);
        assert_answer(&branch.commit().await, Finish::Done);
        assert_eq!(bench.ask(&branch.id(), Question::Look).await, Evidence::Committed);
        let mut branch = bench.begin().await;
        assert_answer(&branch.commit_one_phase().await, Finish::Done);
        assert_eq!(bench.ask(&branch.id(), Question::Fence).await, Evidence::CommittedAlone);
        // Fenced before it began: refused, and the session is whole.
        let mut branch = bench.begin().await;
        assert_eq!(bench.ask(&branch.id(), Question::Fence).await, Evidence::Never);
        let answer = branch.commit_one_phase().await;
        assert_answer(&answer, Finish::RolledBack);
        assert!(answer.cause.unwrap().chain().contains("fenced"));
        let mut branch = bench.begin().await;
        assert_answer(&branch.roll_back().await, Finish::Done);
        let mut branch = bench.begin_with(BeginOptions { mode: Mode::ReadOnly, ..writer() }).await;
        assert_answer(&branch.end_read_only().await, Vote::ReadOnly);
        assert!(bench.listed().await.is_empty());
    }

    /// What is certain to do no more than read or write rows has no marker behind it, since nothing that it calls can end a
    /// transaction: no function or trigger is made that could.
    async fn no_function_ends_a_transaction(flavor) {
        let bench = Bench::shared(flavor).await;
        let mut admin = bench.admin().await;
        admin.query_drop("SET GLOBAL log_bin_trust_function_creators = 1").await.unwrap();
        let makes = async |name: &str, text: &str| {
            let function = format!("CREATE FUNCTION {name}() RETURNS INT BEGIN {text}; RETURN 1; END");
            bench.admin().await.query_drop(function).await.is_ok()
        };
        assert!(makes("harmless", "DO 1").await);
        let statements =
            ["COMMIT", "ROLLBACK", "START TRANSACTION", "CREATE TABLE t2 (a INT)", "XA END 'x'", "XA COMMIT 'x' ONE PHASE", "CALL ends()"];
        for (number, text) in statements.iter().enumerate() {
            // Made or not, it must not be able to do it.
            let name = format!("f{number}");
            if *text == "CALL ends()" {
                let mine = "CREATE PROCEDURE ends() BEGIN COMMIT; END";
                admin.query_drop(mine).await.unwrap();
            }
            if !makes(&name, text).await {
                continue;
            }
            let mut branch = bench.begin().await;
            lent(&*branch).await.query_drop("INSERT INTO data VALUES (1, 0)").await.unwrap();
            let error = lent(&*branch).await.query_drop(format!("SELECT {name}()")).await.unwrap_err();
            println!("{flavor:?}: {text}: {error}");
            assert_answer(&branch.prepare().await, Vote::No);
            assert_eq!(bench.rows().await, [0; 0], "{text}");
        }
    }

    /// A lock's time limit of one transaction is not the next one's.
    async fn each_branch_has_its_own_lock_timeout(flavor) {
        let bench = Bench::shared(flavor).await;
        for seconds in [7, 7, 3, 7] {
            let branch = bench.begin_with(BeginOptions { lock_timeout: Duration::from_secs(seconds), ..writer() }).await;
            let found: Option<u64> = lent(&*branch).await.query_first("SELECT @@innodb_lock_wait_timeout").await.unwrap();
            assert_eq!(found, Some(seconds));
        }
    }

    /// D27: a call that is dropped half way: the branch is of no more use, nothing of it stays, no answer is mixed up.
    async fn a_dropped_call_poisons_the_branch(flavor) {
        let bench = Bench::shared(flavor).await;
        for text in ["SELECT SLEEP(20)", "INSERT INTO data SELECT 2, SLEEP(20)"] {
            let mut branch = bench.begin().await;
            insert(&*branch, 1).await.unwrap();
            let mut session = lent(&*branch).await;
            let call = session.query_drop(text);
            assert!(tokio::time::timeout(Duration::from_millis(100), call).await.is_err());
            let error = Error::from(session.query_drop("SELECT 1").await.unwrap_err());
            assert_eq!(error.kind(), ErrorKind::Statement, "{}", error.chain());
            assert!(error.chain().contains("dropped half way"), "{}", error.chain());
            drop(session);
            let answer = branch.prepare().await;
            assert_answer(&answer, Vote::No);
            assert!(answer.cause.is_some());
            assert_ne!(branch.roll_back().await.value, Finish::RolledBack);
            // The only place in the pool is free again, and row 1 too: well before the sleep is over.
            let mut next = bench.begin().await;
            insert(&*next, 1).await.unwrap();
            assert_answer(&next.roll_back().await, Finish::Done);
        }
        assert_eq!(bench.rows().await, [0; 0]);
    }

    /// Raw XA statements of the application, in ways that no name of the transaction gives away.
    async fn raw_statements_are_found(flavor) {
        let bench = Bench::shared(flavor).await;
        let begin = async |row: i64| {
            let branch = bench.begin().await;
            insert(&*branch, row).await.unwrap();
            let xid = branch.id().xid_sql();
            (branch, xid)
        };
        // Everything in one text, ending in a transaction of the same identifier.
        let (mut branch, xid) = begin(1).await;
        let swap = format!("XA END {xid}; XA COMMIT {xid} ONE PHASE; XA START {xid}");
        lent(&*branch).await.query_drop(swap).await.unwrap();
        insert(&*branch, 2).await.unwrap();
        assert_answer(&branch.prepare().await, Vote::Lost);
        assert!(!bench.is_listed(&branch.id()).await);
        assert_eq!(bench.rows().await, [1]);
        // Ended and not committed: it may be anything.
        let (mut branch, xid) = begin(3).await;
        lent(&*branch).await.query_drop(format!("XA END {xid}")).await.unwrap();
        let vote = branch.prepare().await.value;
        assert!(matches!(vote, Vote::Lost | Vote::No), "{vote:?}");
        // Prepared by the application.
        let (mut branch, xid) = begin(4).await;
        lent(&*branch).await.query_drop(format!("XA END {xid}; XA PREPARE {xid}")).await.unwrap();
        let vote = branch.prepare().await.value;
        assert!(matches!(vote, Vote::Lost | Vote::No | Vote::Unknown), "{vote:?}");
        let id = branch.id();
        drop(branch);
        if vote != Vote::No {
            eventually("rolled back", async || bench.mysql.roll_back(&id).await.value == Finish::Done).await;
        }
        assert_eq!(bench.rows().await, [1]);
        // A commit that the server refuses is a failed statement like any other.
        let (mut branch, _) = begin(5).await;
        let error = lent(&*branch).await.query_drop("COMMIT").await.unwrap_err();
        assert!(error.to_string().contains("1399"), "{error}");
        assert_answer(&branch.prepare().await, Vote::No);
        assert_eq!(bench.rows().await, [1]);
    }

    /// While the session that prepared lives, MariaDB lets nobody else finish its branch, so it is ended; MySQL does.
    async fn a_held_branch_from_outside(flavor) {
        let bench = Bench::shared(flavor).await;
        let mut branch = bench.begin().await;
        insert(&*branch, 1).await.unwrap();
        assert_answer(&branch.prepare().await, Vote::Prepared);
        let id = branch.id();
        assert_eq!(bench.ask(&id, Question::Fence).await, Evidence::Blocked);
        let answer = bench.mysql.commit(&id).await;
        if flavor == Flavor::MySql {
            assert_answer(&answer, Finish::Done);
            assert_answer(&branch.commit().await, Finish::Unknown);
        } else {
            assert_answer(&answer, Finish::Done);
            assert!(!bench.mysql.end_session(id.session()).await.unwrap(), "it is gone");
            assert_answer(&branch.commit().await, Finish::Unknown);
        }
        assert_eq!(bench.ask(&id, Question::Look).await, Evidence::Committed);
        assert_eq!(bench.rows().await, [1]);
    }

    /// D2: after a reset by somebody else's pool MariaDB says OK to a commit and commits nothing: the witness tells.
    async fn an_ok_without_a_witness_is_no_commit(flavor) {
        let server = servers::start(flavor).await;
        let bench = Bench::on(&server).await;
        let Registration { node, incarnation, .. } = bench.registration;
        let id = handfast::id::TransactionId { node, incarnation, sequence: 77 }.branch(0, 0);
        let witness = format!("INSERT INTO handfast_witness VALUES ({}, 77, 0, 'decided')", incarnation.to_sql());
        let mut conn = prepare_by_hand(&bench, &id.xid_sql(), &["INSERT INTO data VALUES (1, 0)", &witness]).await;
        conn.reset().await.unwrap();
        let answer = bench.mysql.commit(&id).await;
        if flavor == Flavor::MySql {
            assert_answer(&answer, Finish::Done);
        } else {
            assert_answer(&answer, Finish::Unknown);
            assert!(answer.cause.unwrap().chain().contains("witness"));
            assert_eq!(bench.ask(&id, Question::Fence).await, Evidence::Blocked);
            server.kill().await.unwrap();
            server.restart().await.unwrap();
            assert!(bench.is_listed(&id).await, "it comes back");
            assert_answer(&bench.mysql.commit(&id).await, Finish::Done);
        }
        assert_eq!(bench.ask(&id, Question::Look).await, Evidence::Committed);
        assert_eq!(bench.rows().await, [1]);
    }

    /// D2: the same lie as the answer to a rollback: who still holds the place of the witness is not gone.
    async fn an_ok_with_a_held_witness_is_no_rollback(flavor) {
        let server = servers::start(flavor).await;
        let bench = Bench::on(&server).await;
        let Registration { node, incarnation, .. } = bench.registration;
        let id = handfast::id::TransactionId { node, incarnation, sequence: 77 }.branch(0, 0);
        let witness = format!("INSERT INTO handfast_witness VALUES ({}, 77, 0, 'decided')", incarnation.to_sql());
        let mut conn = prepare_by_hand(&bench, &id.xid_sql(), &["INSERT INTO data VALUES (1, 0)", &witness]).await;
        conn.reset().await.unwrap();
        let answers = std::sync::Mutex::new(Vec::new());
        bench.mysql.finish_all(&[(id, Resolution::RollBack)], &|_, answer| answers.lock().unwrap().push(answer)).await;
        let answer = answers.into_inner().unwrap().pop().unwrap();
        if flavor == Flavor::MySql {
            assert_answer(&answer, Finish::Done);
        } else {
            assert_answer(&answer, Finish::Unknown);
            assert!(answer.cause.unwrap().chain().contains("witness"));
            assert_eq!(bench.ask(&id, Question::Fence).await, Evidence::Blocked);
            server.kill().await.unwrap();
            server.restart().await.unwrap();
            assert!(bench.is_listed(&id).await, "it comes back");
            assert_answer(&bench.mysql.roll_back(&id).await, Finish::Done);
        }
        assert_eq!(bench.ask(&id, Question::Fence).await, Evidence::Never);
        assert_eq!(bench.rows().await, [0; 0]);
    }

    /// A recovery of many branches costs no question per branch, and on MariaDB no wait per branch.
    async fn many_branches_cost_few_round_trips(flavor) {
        const BRANCHES: usize = 100;
        let server = servers::shared(flavor).await;
        let dead = Bench::with(server, "pool_size = 4").await;
        let mut work = Vec::new();
        for row in 0..BRANCHES {
            let mut branch = dead.begin().await;
            insert(&*branch, row.try_into().unwrap()).await.unwrap();
            assert_answer(&branch.prepare().await, Vote::Prepared);
            let resolution = if row % 2 == 0 { Resolution::Commit } else { Resolution::RollBack };
            work.push((branch.id(), resolution));
        }
        let proxy = Proxy::start(server).await;
        let url = proxy.url(dead.url.rsplit('/').next().unwrap());
        let live = Bench::at(url, "pool_size = 1", registration(0)).await;
        assert!(live.mysql.end_sessions(0, &[dead.registration.incarnation]).await.unwrap() <= 8);
        let before = proxy.messages().len();
        let since = std::time::Instant::now();
        live.mysql.finish_all(&work, &|_, answer| assert_answer(&answer, Finish::Done)).await;
        let messages = proxy.messages().split_off(before);
        println!("{flavor:?}: {} messages, {:?}", messages.len(), since.elapsed());
        let texts: Vec<_> = messages.iter().map(|message| &*message.text).filter(|text| !text.is_empty()).collect();
        let statements: usize = texts.iter().map(|text| text.split("; ").count()).sum();
        // MariaDB's answers are proven by two texts more for each window: one question for all that were committed, and one
        // for each that was not.
        let windows = BRANCHES.div_ceil(32);
        let (texts_each, proofs) = if flavor == Flavor::MySql { (1, 0) } else { (3, windows + BRANCHES / 2) };
        assert_eq!((texts.len(), statements), (windows * texts_each, BRANCHES + proofs));
        assert_eq!(live.rows().await.len(), BRANCHES / 2);
    }

    /// D29: MySQL demands a privilege to see prepared branches, MariaDB does not: the message has the statement.
    async fn the_right_to_recover_is_checked(flavor) {
        let server = servers::shared(flavor).await;
        let database = database(server).await;
        let user = servers::unique("u");
        server.create_user(&database, &user, &[&format!("ALL ON {database}.*")]).await.unwrap();
        let mysql = try_mysql("orders", &server.url_as(&user, &database), "").unwrap();
        let registered = mysql.register(&registration(0)).await;
        if flavor == Flavor::MariaDb {
            registered.unwrap();
            return;
        }
        let error = registered.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Setup);
        let grant = format!("GRANT XA_RECOVER_ADMIN ON *.* TO '{user}'@'%'");
        assert!(error.to_string().contains(&grant), "{error}");
        assert!(mysql.list().await.is_err(), "never an empty list");
        server.query(&database, &grant).await.unwrap();
        // Privileges of that kind count from the next connection on.
        mysql.close().await;
        mysql.register(&registration(0)).await.unwrap();
    }

    /// Where the account may not create the tables, the message has what an administrator runs.
    async fn missing_tables_are_explained(flavor) {
        let server = servers::shared(flavor).await;
        let database = database(server).await;
        let user = servers::unique("u");
        let mut grants = vec![format!("SELECT, INSERT, UPDATE, DELETE ON {database}.data")];
        if flavor == Flavor::MySql {
            grants.push("XA_RECOVER_ADMIN ON *.*".into());
        }
        let grants: Vec<&str> = grants.iter().map(String::as_str).collect();
        server.create_user(&database, &user, &grants).await.unwrap();
        let url = server.url_as(&user, &database);
        let mysql = try_mysql("orders", &url, "").unwrap();
        let error = mysql.register(&registration(0)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Setup, "{}", error.chain());
        let (_, sql) = error.to_string().split_once("administrator:\n").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        assert_eq!(sql, mysql.setup_sql());
        connect(&server.url(&database)).await.query_drop(sql).await.unwrap();
        let mut branch = Bench::at(url, "", registration(0)).await.begin().await;
        insert(&*branch, 1).await.unwrap();
        assert_answer(&branch.prepare().await, Vote::Prepared);
        assert_answer(&branch.commit().await, Finish::Done);
    }

    /// A slot whose name a half-open session still holds is passed over.
    async fn a_held_slot_is_passed_over(flavor) {
        let bench = Bench::shared(flavor).await;
        let Registration { incarnation, .. } = bench.registration;
        let name = handfast::id::SessionName { incarnation, participant: 0, slot: 0 };
        let mut other = bench.admin().await;
        other.query_drop(format!("SELECT GET_LOCK('{name}', 0)")).await.unwrap();
        let mut branch = bench.begin().await;
        assert_eq!(branch.id().slot, 1);
        assert!(bench.mysql.end_session(name).await.unwrap());
        assert_answer(&branch.commit_one_phase().await, Finish::Done);
    }

    /// When every slot's name is held by what remains of old sessions, they are ended: with a pool of one there are two.
    async fn old_sessions_are_ended_for_their_slots(flavor) {
        let bench = Bench::shared(flavor).await;
        let Registration { incarnation, .. } = bench.registration;
        let mut remains = Vec::new();
        for slot in 0..2 {
            let name = handfast::id::SessionName { incarnation, participant: 0, slot };
            let mut other = bench.admin().await;
            other.query_drop(format!("SELECT GET_LOCK('{name}', 0)")).await.unwrap();
            remains.push(other);
        }
        let mut branch = bench.begin().await;
        assert_eq!(branch.id().slot, 0);
        assert!(remains[0].query_drop("SELECT 1").await.is_err());
        assert!(remains[1].query_drop("SELECT 1").await.is_ok());
        assert_answer(&branch.commit_one_phase().await, Finish::Done);
    }

    /// What is lent and still in somebody's hand when the branch ends reaches nothing any more, and holds nothing up.
    async fn a_kept_loan_reaches_nothing(flavor) {
        let server = servers::shared(flavor).await;
        let bench = Bench::on(server).await;
        let branch = bench.begin().await;
        insert(&*branch, 1).await.unwrap();
        let mut kept = lent(&*branch).await;
        drop(branch);
        let error = Error::from(kept.query_drop("INSERT INTO data VALUES (2, 0)").await.unwrap_err());
        assert_eq!(error.kind(), ErrorKind::Closed, "{}", error.chain());
        let mut branch = bench.begin().await;
        insert(&*branch, 1).await.unwrap();
        assert_answer(&branch.roll_back().await, Finish::Done);
        let mut after = lent(&*branch).await;
        let error = Error::from(after.query_drop("INSERT INTO data VALUES (2, 0)").await.unwrap_err());
        assert_eq!(error.kind(), ErrorKind::Closed);
        assert_eq!(bench.rows().await, [0; 0]);
    }

    /// A prepare waits for what is still lent, and goes on when it is let go of.
    async fn a_prepare_waits_for_the_loan(flavor) {
        let bench = Bench::shared(flavor).await;
        let mut branch = bench.begin().await;
        let mut kept = lent(&*branch).await;
        kept.query_drop("INSERT INTO data VALUES (1, 0)").await.unwrap();
        let mut prepare = branch.prepare();
        let waited = tokio::time::timeout(Duration::from_millis(50), &mut prepare).await;
        assert!(waited.is_err());
        let error = Error::from(kept.query_drop("INSERT INTO data VALUES (2, 0)").await.unwrap_err());
        assert_eq!(error.kind(), ErrorKind::Closed);
        drop(kept);
        assert_answer(&prepare.await, Vote::Prepared);
        assert_answer(&branch.commit().await, Finish::Done);
        assert_eq!(bench.rows().await, [1]);
    }

    /// A server that does not answer costs a bounded time, and what it did is found out later.
    async fn a_silent_server_is_left(flavor) {
        let server = servers::start(flavor).await;
        let bench = Bench::with(&server, "pool_size = 4\n[recovery]\nstatement_timeout = \"1s\"").await;
        let mut branches = Vec::new();
        for row in 1..=3 {
            let branch = bench.begin().await;
            insert(&*branch, row).await.unwrap();
            branches.push(branch);
        }
        let [mut commit, mut roll_back, mut open] = <[_; 3]>::try_from(branches).ok().unwrap();
        assert_answer(&commit.prepare().await, Vote::Prepared);
        assert_answer(&roll_back.prepare().await, Vote::Prepared);
        server.suspend().await.unwrap();
        assert_answer(&commit.commit().await, Finish::Unknown);
        assert_answer(&roll_back.roll_back().await, Finish::Unknown);
        assert_answer(&open.roll_back().await, Finish::Unknown);
        assert_eq!(bench.mysql.list().await.unwrap_err().kind(), ErrorKind::Unavailable);
        assert_answer(&bench.mysql.commit(&commit.id()).await, Finish::Unknown);
        assert!(bench.mysql.ask(&commit.id(), Question::Fence).await.is_err());
        assert!(bench.mysql.end_session(commit.id().session()).await.is_err());
        server.resume().await.unwrap();
        eventually("settled", async || {
            if bench.mysql.list().await.is_ok_and(|listed| listed.is_empty()) {
                return true;
            }
            bench.mysql.commit(&commit.id()).await;
            bench.mysql.roll_back(&roll_back.id()).await;
            false
        })
        .await;
        assert_eq!(bench.ask(&commit.id(), Question::Look).await, Evidence::Committed);
        assert_eq!(bench.ask(&roll_back.id(), Question::Fence).await, Evidence::Never);
        assert_eq!(bench.rows().await, [1]);
    }

    /// Two who borrow one branch take turns.
    async fn borrowers_take_turns(flavor) {
        let bench = Bench::shared(flavor).await;
        let mut branch = bench.begin().await;
        let work = async |first: i64| {
            for row in first..first + 20 {
                insert(&*branch, row).await.unwrap();
            }
        };
        tokio::join!(work(0), work(100), work(200));
        assert_answer(&branch.prepare().await, Vote::Prepared);
        assert_answer(&branch.commit().await, Finish::Done);
        assert_eq!(bench.rows().await.len(), 60);
    }

    /// Raw XA statements by the binary protocol: MySQL refuses them, MariaDB does them, and the marker is gone.
    async fn raw_prepared_statements_are_found(flavor) {
        let bench = Bench::shared(flavor).await;
        let mut branch = bench.begin().await;
        insert(&*branch, 1).await.unwrap();
        let xid = branch.id().xid_sql();
        let mut session = lent(&*branch).await;
        let mut results = Vec::new();
        for text in [format!("XA END {xid}"), format!("XA COMMIT {xid} ONE PHASE"), format!("XA START {xid}")] {
            results.push(session.exec_drop(text, ()).await);
        }
        drop(session);
        let expected = if flavor == Flavor::MySql { Vote::No } else { Vote::Lost };
        assert_answer(&branch.prepare().await, expected);
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), if flavor == Flavor::MySql { 0 } else { 3 });
        assert_eq!(bench.rows().await.len(), usize::from(flavor == Flavor::MariaDb));
    }

    /// A session that is lost after the application may have ended its transaction is no rollback.
    async fn a_suspect_that_is_lost_is_no_rollback(flavor) {
        let bench = Bench::shared(flavor).await;
        for (commits, expected) in [(true, Vote::Lost), (false, Vote::No)] {
            let mut branch = bench.begin().await;
            insert(&*branch, 1).await.unwrap();
            let xid = branch.id().xid_sql();
            let mut session = lent(&*branch).await;
            if commits {
                session.query_drop(format!("XA END {xid}; XA COMMIT {xid} ONE PHASE")).await.unwrap();
            } else {
                // Refused, so nothing was ended.
                session.query_drop("COMMIT").await.unwrap_err();
            }
            let call = session.query_drop("SELECT SLEEP(20)");
            assert!(tokio::time::timeout(Duration::from_millis(50), call).await.is_err());
            drop(session);
            assert_answer(&branch.prepare().await, expected);
            drop(branch);
            bench.admin().await.query_drop("DELETE FROM data").await.unwrap();
        }
    }

    /// What one user of a session leaves behind does not lead the next one to another database.
    async fn the_next_user_finds_its_database(flavor) {
        let bench = Bench::shared(flavor).await;
        let mut branch = bench.begin().await;
        lent(&*branch).await.query_drop("USE information_schema").await.unwrap();
        assert_answer(&branch.roll_back().await, Finish::Done);
        let mut branch = bench.begin().await;
        insert(&*branch, 1).await.unwrap();
        lent(&*branch).await.query_drop("USE information_schema").await.unwrap();
        assert_answer(&branch.prepare().await, Vote::Prepared);
        assert_answer(&branch.commit().await, Finish::Done);
        assert_eq!(bench.rows().await, [1]);
    }

    /// The isolation that was asked for is in force, and for that branch alone.
    async fn isolation_is_as_asked_for(flavor) {
        let bench = Bench::shared(flavor).await;
        let mut admin = bench.admin().await;
        for (row, (isolation, sees)) in (1i64..).zip([
            (Isolation::ReadCommitted, true),
            (Isolation::RepeatableRead, false),
            (Isolation::ReadCommitted, true),
            (Isolation::Default, false),
        ]) {
            let mut branch = bench.begin_with(BeginOptions { isolation, ..writer() }).await;
            let count = async |mut session: MysqlBranch<'static>| {
                session.query_first::<i64, _>("SELECT COUNT(*) FROM data").await.unwrap().unwrap()
            };
            let before = count(lent(&*branch).await).await;
            admin.query_drop(format!("INSERT INTO data VALUES ({row}, 0)")).await.unwrap();
            let after = count(lent(&*branch).await).await;
            assert_eq!(after - before, i64::from(sees), "{isolation:?}");
            assert_answer(&branch.roll_back().await, Finish::Done);
        }
        let serializable = BeginOptions { isolation: Isolation::Serializable, ..writer() };
        let mut branch = bench.begin_with(serializable).await;
        lent(&*branch).await.query_drop("SELECT * FROM data WHERE id = 1").await.unwrap();
        let nowait = "SELECT * FROM data WHERE id = 1 FOR UPDATE NOWAIT";
        assert!(admin.query_drop(nowait).await.is_err(), "its reads lock");
        assert_answer(&branch.roll_back().await, Finish::Done);
        admin.query_drop(nowait).await.unwrap();
    }

    /// A server is told by its version, and shown with its place.
    async fn the_server_is_told(flavor) {
        let server = servers::shared(flavor).await;
        let bench = Bench::on(server).await;
        let fresh = try_mysql("orders", &bench.url, "").unwrap();
        assert_eq!(fresh.kind(), "mysql");
        let shown = fresh.identify().await.unwrap().description;
        let (kind, title) = if flavor == Flavor::MySql { ("mysql", "MySQL") } else { ("mariadb", "MariaDB") };
        assert_eq!(fresh.kind(), kind);
        let place = format!("at 127.0.0.1:{}/", server.port());
        assert!(shown.starts_with(title) && shown.contains(&place), "{shown}");
        assert!(shown.contains(&format!("{title} {} ", server.installation().version())), "{shown}");
    }

    /// A black hole in the network of the resolver's connection.
    async fn a_half_open_lease(flavor) {
        let server = servers::shared(flavor).await;
        let proxy = Proxy::start(server).await;
        let database = database(server).await;
        let lines = "[recovery]\nstatement_timeout = \"3s\"";
        let through = try_mysql("orders", &proxy.url(&database), lines).unwrap();
        let rival = try_mysql("orders", &server.url(&database), lines).unwrap();
        cases::a_half_open_lease_is_taken_over(&proxy, "') = CONNECTION_ID()", &through, &rival).await;
    }

    /// Witnesses that are inserted and not prepared yet are neither waited for nor pruned.
    async fn pruning_waits_for_nobody_at_work(flavor) {
        let bench = Bench::shared(flavor).await;
        let Registration { incarnation, participant, .. } = bench.registration;
        let key = |sequence: i64| format!("({}, {sequence}, 0, 'decided')", incarnation.to_sql());
        let mut admin = bench.admin().await;
        admin.query_drop(format!("INSERT INTO handfast_witness VALUES {}, {}", key(1), key(2))).await.unwrap();
        let mut at_work = bench.begin().await;
        lent(&*at_work).await.query_drop(format!("INSERT INTO handfast_witness VALUES {}", key(50))).await.unwrap();
        let prunable = Prunable::Witnesses { incarnation, participant, below: 100 };
        assert!(!bench.mysql.prune(prunable).await.unwrap());
        let count = "SELECT COUNT(*) FROM handfast_witness";
        assert_eq!(bench.numbers(count).await, [0]);
        assert_answer(&at_work.prepare().await, Vote::Prepared);
        assert!(!bench.mysql.prune(prunable).await.unwrap());
        assert_answer(&at_work.commit().await, Finish::Done);
        assert_eq!(bench.numbers(count).await, [2], "its own witness and the one by hand");
    }

    /// Nobody who inserts at the right edge, or between, waits for a pruning that is under way.
    async fn pruning_holds_nobody_up(flavor) {
        let bench = Bench::shared(flavor).await;
        let Registration { incarnation, participant, .. } = bench.registration;
        let key = |sequence: i64| format!("({}, {sequence}, 0, 'decided')", incarnation.to_sql());
        let mut admin = bench.admin().await;
        let rows: Vec<_> = [101, 103, 105].map(key).into();
        admin.query_drop(format!("INSERT INTO handfast_witness VALUES {}", rows.join(", "))).await.unwrap();
        admin.query_drop("BEGIN").await.unwrap();
        let whole_key = |sequence: i64| {
            let of = incarnation.to_sql();
            format!("SELECT * FROM handfast_witness WHERE (incarnation, sequence, branch) = ({of}, {sequence}, 0) FOR UPDATE")
        };
        admin.query_drop(whole_key(105)).await.unwrap();
        let mut other = bench.admin().await;
        other.query_drop("SET SESSION innodb_lock_wait_timeout = 30").await.unwrap();
        let pruning = bench.mysql.prune(Prunable::Witnesses { incarnation, participant, below: 1000 });
        let inserting = async {
            // It has locked the first and waits for the last.
            eventually("under way", async || {
                bench.admin().await.query_drop(format!("{} NOWAIT", whole_key(101))).await.is_err()
            })
            .await;
            for sequence in [106, 104, 102, 100, 2000] {
                other.query_drop(format!("INSERT INTO handfast_witness VALUES {}", key(sequence))).await.unwrap();
            }
        };
        tokio::select! {
            biased;
            () = inserting => {}
            pruned = pruning => panic!("{pruned:?} before others could insert"),
        }
        admin.query_drop("ROLLBACK").await.unwrap();
    }

    /// Statements that an XA transaction cannot hold fail with the server's own words (D44).
    async fn refused_statements_are_quoted(flavor) {
        let bench = Bench::shared(flavor).await;
        for text in ["CREATE TABLE more (a int)", "LOCK TABLES data READ", "BEGIN", "SET autocommit = 1; COMMIT"] {
            let mut branch = bench.begin().await;
            insert(&*branch, 1).await.unwrap();
            lent(&*branch).await.query_drop(text).await.unwrap_err();
            let answer = branch.prepare().await;
            assert_answer(&answer, Vote::No);
            assert!(answer.cause.unwrap().chain().contains("1399"), "{text}");
        }
        assert_eq!(bench.rows().await, [0; 0]);
    }
}

/// With `xa_detach_on_prepare` off MySQL holds a branch to its session as MariaDB does.
#[test]
fn mysql_without_detach() {
    if !servers::is_available(Flavor::MySql) {
        return;
    }
    servers::runtime().block_on(async {
        let options = servers::options().with("xa_detach_on_prepare", "OFF");
        let server = servers::start_with(Flavor::MySql, options).await;
        let bench = Bench::with(&server, "pool_size = 2").await;
        let (mut commit, mut held) = (bench.begin().await, bench.begin().await);
        insert(&*commit, 1).await.unwrap();
        insert(&*held, 2).await.unwrap();
        assert_answer(&commit.prepare().await, Vote::Prepared);
        assert_answer(&held.prepare().await, Vote::Prepared);
        assert_answer(&commit.commit().await, Finish::Done);
        let id = held.id();
        assert_eq!(bench.ask(&id, Question::Fence).await, Evidence::Blocked);
        assert_answer(&bench.mysql.roll_back(&id).await, Finish::Done);
        assert!(!bench.mysql.end_session(id.session()).await.unwrap(), "it was ended");
        assert_eq!(bench.rows().await, [1]);
    });
}

/// Runs the texts; `FAIL` is one that fails.
async fn run_all(branch: &dyn Branch, texts: &[&str]) {
    for text in texts {
        let mut session = lent(branch).await;
        if *text == "FAIL" {
            session.query_drop("SELECT * FROM nowhere").await.unwrap_err();
        } else {
            session.query_drop(*text).await.unwrap_or_else(|error| panic!("{text}: {error}"));
        }
    }
}

/// What is wrong with a configuration is named, and no password is shown.
#[test]
fn wrong_urls_are_named() {
    for url in [
        "mysql://app:secret@127.0.0.1",
        "mysql://127.0.0.1/orders",
        "nonsense:secret",
        "mysql://app:secret@h/d?x=secret",
    ] {
        let error = try_mysql("orders", url, "").err().expect(url);
        assert_eq!(error.kind(), ErrorKind::Config);
        let text = error.chain();
        assert!(text.contains("participants.orders.url") && !text.contains("secret"), "{text}");
    }
    let error = try_mysql("orders", "mysql://app@h/d", "password_file = \"/nowhere/password\"").err().unwrap();
    assert!(error.kind() == ErrorKind::Config && error.chain().contains("/nowhere/password"), "{}", error.chain());
}

/// Nobody there is an error of the time, not of the configuration.
#[test]
fn an_unreachable_server_is_unavailable() {
    servers::runtime().block_on(async {
        let mysql = try_mysql("orders", "mysql://app@127.0.0.1:1/orders", "").unwrap();
        let error = mysql.register(&registration(0)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.chain());
        assert!(mysql.list().await.is_err());
        let id = handfast::id::TransactionId { node: "n".parse().unwrap(), incarnation: Incarnation(1), sequence: 1 };
        assert_answer(&mysql.commit(&id.branch(0, 0)).await, Finish::Unknown);
    });
}
