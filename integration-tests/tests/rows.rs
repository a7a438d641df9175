//! Every row of the recovery table, on real servers; and the proof that none was left out.
//!
//! A journal is written by hand with each [`Books`] that it can hold of a transaction; the servers hold each [`At`] that a
//! branch can be left in; the resolver observes, asks and plans. What a program would need a crash at the right moment
//! for, or a person's mistake, is made here by the statements that it comes to: the servers hold the same.

use At::{Alone, Both, Committed, Down, Elsewhere, Fenced, GivenUp, Gone, Held, Prepared};
use Books::{
    Contradicted, Decided, DecidedElsewhere, Finished, Forgotten, Lost, Noted, Nothing, OnePhase, ToCommit, ToRollBack,
    Unnamed,
};
use handfast::id::{BranchId, Incarnation, Lineage};
use handfast::journal::{Journal, Opening};
use handfast::mysql_async::prelude::Queryable;
use handfast::mysql_async::{Conn, Opts};
use handfast::participant::{self, Evidence as Answer, Question};
use handfast::protocol::recovery::{Action, Evidence, History, Plan, Sighting, TABLE, decide};
use handfast::protocol::{
    CommitRecord, DamageRecord, DamagedBranch, DecidedBranch, ParticipantRecord, Record, Remark, Resolution,
};
use handfast::resolver::{Resolver, View};
use handfast::{Config, ErrorKind, Outcome, TransactionId, tokio_postgres};
use integration_tests::servers::Flavor;
use integration_tests::world::{Program, Side, World, eventually, insert_at};
use integration_tests::{each_pair, each_server};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What the journal holds of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Books {
    Decided,
    /// The decision names data that the participant's name does not lead to.
    DecidedElsewhere,
    /// The decision names only the other participant's branch.
    Unnamed,
    Finished,
    /// A single writer has committed, by the record of it.
    Noted,
    /// Nothing, and the other participant's witness says that it committed alone.
    OnePhase,
    Nothing,
    /// Nothing, and records of its incarnation may have been lost.
    Lost,
    /// Nothing, and it was found damaged before.
    Contradicted,
    ToCommit,
    ToRollBack,
    Forgotten,
}

/// How a branch was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum At {
    Prepared,
    /// Prepared, and its witness is there: nothing does that but a table restored from another moment than the rest.
    Both,
    Gone,
    /// Committed as one of several.
    Committed,
    /// Committed as the only writer.
    Alone,
    Fenced,
    /// Somebody holds its place: a row of its witness that is neither committed nor gone.
    Held,
    /// Another participant's server lists it: two URLs were swapped.
    Elsewhere,
    Down,
    /// Its server was given up.
    GivenUp,
}

/// The row, how it comes about, and whether the participant is asked first; where it is not, the same situation meets
/// another row after the question.
const CASES: &[(&str, Books, At, Ask)] = &[
    ("forgotten", Forgotten, Gone, Ask::Want),
    ("forgotten, back", Forgotten, Prepared, Ask::No),
    ("decided, there", Decided, Prepared, Ask::No),
    ("decided, both", Decided, Both, Ask::Yes),
    ("decided, gone", Decided, Gone, Ask::No),
    ("decided, proven", Decided, Committed, Ask::Yes),
    ("decided, against", Decided, Gone, Ask::Yes),
    ("decided, against", Decided, Alone, Ask::Yes),
    ("decided, held", Decided, Held, Ask::Yes),
    ("decided, unseen", Decided, Down, Ask::No),
    ("decided, elsewhere", DecidedElsewhere, Prepared, Ask::No),
    ("decided, given up", Decided, GivenUp, Ask::No),
    ("unnamed, there", Unnamed, Prepared, Ask::No),
    ("unnamed, committed", Unnamed, Committed, Ask::Yes),
    ("unnamed, gone", Unnamed, Gone, Ask::Want),
    ("unnamed, given up", Unnamed, GivenUp, Ask::Want),
    ("unnamed, unseen", Unnamed, Down, Ask::Want),
    ("finished, back", Finished, Prepared, Ask::No),
    ("finished, both", Finished, Both, Ask::Yes),
    ("finished, against", Finished, Fenced, Ask::Yes),
    ("finished", Finished, Committed, Ask::Yes),
    ("finished", Noted, Alone, Ask::Yes),
    ("finished, unseen", Finished, Down, Ask::Want),
    ("finished, elsewhere", Finished, Elsewhere, Ask::No),
    ("one phase, there", OnePhase, Prepared, Ask::No),
    ("one phase", OnePhase, Gone, Ask::Want),
    ("one phase", Nothing, Alone, Ask::Yes),
    ("one phase, unseen", OnePhase, Down, Ask::Want),
    ("one phase, elsewhere", OnePhase, Elsewhere, Ask::No),
    ("undecided, there", Nothing, Prepared, Ask::No),
    ("undecided, asked", Nothing, Gone, Ask::Want),
    ("undecided, held", Nothing, Held, Ask::Yes),
    ("undecided, gone", Nothing, Gone, Ask::Yes),
    ("undecided, unseen", Nothing, Down, Ask::Want),
    ("undecided, given up", Nothing, GivenUp, Ask::Want),
    ("lost, there", Lost, Prepared, Ask::No),
    ("lost, both", Lost, Both, Ask::Yes),
    ("lost, asked", Lost, Gone, Ask::Want),
    ("lost, held", Lost, Held, Ask::Yes),
    ("lost, gone", Lost, Committed, Ask::Yes),
    ("lost, unseen", Lost, Down, Ask::Want),
    ("lost, given up", Lost, GivenUp, Ask::Want),
    ("contradicted, there", Contradicted, Prepared, Ask::No),
    ("contradicted, committed", Contradicted, Alone, Ask::Yes),
    ("contradicted, asked", Contradicted, Gone, Ask::Want),
    ("contradicted, held", Contradicted, Held, Ask::Yes),
    ("contradicted, gone", Contradicted, Gone, Ask::Yes),
    ("contradicted, unseen", Contradicted, Down, Ask::Want),
    ("contradicted, given up", Contradicted, GivenUp, Ask::Want),
    ("resolved, to commit", ToCommit, Prepared, Ask::No),
    ("resolved, to roll back", ToRollBack, Prepared, Ask::No),
    ("resolved, both", ToCommit, Both, Ask::Yes),
    ("resolved, both", ToRollBack, Both, Ask::Yes),
    ("resolved, never", ToCommit, Fenced, Ask::Yes),
    ("resolved, committed", ToRollBack, Committed, Ask::Yes),
    ("resolved to commit, gone", ToCommit, Committed, Ask::Yes),
    ("resolved to roll back, gone", ToRollBack, Gone, Ask::Yes),
    ("resolved, unseen", ToCommit, Down, Ask::Want),
    ("resolved, given up", ToRollBack, GivenUp, Ask::Want),
];

/// Whether its participant is asked about a branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ask {
    No,
    /// Somebody wants to know, and nobody has asked yet.
    Want,
    /// By the fence.
    Yes,
}

/// The openings of the journal that is written: ordinary; with the branches' server given up; with records lost; both.
const PLAIN: Incarnation = Incarnation(0x11);
const ABANDONED: Incarnation = Incarnation(0x12);
const LOST: Incarnation = Incarnation(0x13);
const LOST_AND_ABANDONED: Incarnation = Incarnation(0x14);
const LAST: Incarnation = Incarnation(0x15);

fn incarnation(books: Books, at: At) -> Incarnation {
    match (books == Lost, at == GivenUp) {
        (false, false) => PLAIN,
        (false, true) => ABANDONED,
        (true, false) => LOST,
        (true, true) => LOST_AND_ABANDONED,
    }
}

/// The participants' numbers: they go by their names' order.
const LEDGER: u16 = 0;
const ORDERS: u16 = 1;

/// The data behind each participant's name; tables are made where there are none.
async fn lineages(config: &Config) -> Vec<Lineage> {
    let mut lineages = Vec::new();
    for one in participant::from_config(config).unwrap() {
        lineages.push(one.init().await.unwrap_or_else(|error| panic!("{}", error.chain())));
        one.close().await;
    }
    lineages
}

fn remark() -> Remark {
    Remark { at_ms: 0, host: "here".into(), reason: "to see the row".into() }
}

/// Opens the journal once for each incarnation, and writes what belongs to it.
async fn write(config: &Config, incarnation: Incarnation, records: Vec<Record>) {
    let participants = vec!["ledger".parse().unwrap(), "orders".parse().unwrap()];
    let opening = Opening { node: config.node, incarnation, opened_at_ms: 0, participants };
    let journal = Journal::open(&config.journal, opening).unwrap();
    for record in records {
        journal.append(record).await.unwrap();
    }
    journal.close().unwrap();
}

fn decision(branches: &[(BranchId, Lineage)]) -> Record {
    let names = ["ledger", "orders"];
    let branches = branches.iter().map(|(id, lineage)| DecidedBranch {
        id: *id,
        participant: names[usize::from(id.participant)].parse().unwrap(),
        lineage: *lineage,
    });
    let branches: Vec<_> = branches.collect();
    Record::Commit(CommitRecord { transaction: branches[0].id.transaction, branches, payload: None })
}

/// The records of one transaction.
fn records(books: Books, branch: BranchId, lineages: &[Lineage]) -> Vec<Record> {
    let (id, lineage) = (branch.transaction, lineages[usize::from(branch.participant)]);
    let other = 1 - branch.participant;
    let damaged = || {
        let why = "it was found so".into();
        let participant = if branch.participant == LEDGER { "ledger" } else { "orders" }.parse().unwrap();
        let branches = vec![DamagedBranch { id: branch, participant, why }];
        Record::Damaged(DamageRecord { transaction: id, branches, found_at_ms: 0, found_by: LAST })
    };
    match books {
        Decided => vec![decision(&[(branch, lineage)])],
        DecidedElsewhere => vec![decision(&[(branch, Lineage(!lineage.0))])],
        Unnamed => vec![decision(&[(id.branch(other, 0), lineages[usize::from(other)])])],
        Finished => vec![decision(&[(branch, lineage)]), Record::Done(id)],
        Noted => vec![Record::OnePhase(id)],
        Nothing | OnePhase | Lost => vec![],
        Contradicted => vec![damaged()],
        ToCommit => vec![Record::Resolved(id, Resolution::Commit, remark())],
        ToRollBack => vec![Record::Resolved(id, Resolution::RollBack, remark())],
        Forgotten => vec![damaged(), Record::Forgotten(id, remark())],
    }
}

/// The row of the witness table.
fn witness(branch: BranchId, kind: &str) -> String {
    let TransactionId { incarnation, sequence, .. } = branch.transaction;
    let key = format!("{}, {sequence}, {}", incarnation.to_sql(), branch.participant);
    format!("INSERT INTO handfast_witness (incarnation, sequence, branch, kind) VALUES ({key}, '{kind}')")
}

/// A branch's work.
fn work(branch: BranchId) -> String {
    format!("INSERT INTO t VALUES ({}, 1)", key(branch))
}

/// Another for each branch of a transaction: one database may get both.
fn key(branch: BranchId) -> i32 {
    let TransactionId { incarnation, sequence, .. } = branch.transaction;
    i32::try_from(sequence * 1000 + incarnation.0 * 10).unwrap() + i32::from(branch.participant)
}

/// Prepares a branch on a side; its session is closed.
async fn prepare(side: &Side, branch: BranchId, statements: &str) {
    let sql = if side.flavor() == Flavor::Postgres {
        format!("BEGIN; {statements}; PREPARE TRANSACTION '{branch}'")
    } else {
        let xid = branch.xid_sql();
        format!("XA START {xid}; {statements}; XA END {xid}; XA PREPARE {xid}")
    };
    side.query(&sql).await;
}

/// A session that has something open.
enum Session {
    Postgres(#[allow(dead_code, reason = "it is held open")] tokio_postgres::Client),
    Mysql(#[allow(dead_code, reason = "it is held open")] Conn),
}

async fn hold(side: &Side, statement: &str) -> Session {
    let url = side.server.url(&side.database);
    if side.flavor() == Flavor::Postgres {
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute(&format!("BEGIN; {statement}")).await.unwrap();
        return Session::Postgres(client);
    }
    let mut conn = Conn::new(Opts::from_url(&url).unwrap()).await.unwrap();
    conn.query_drop("BEGIN").await.unwrap();
    conn.query_drop(statement).await.unwrap();
    Session::Mysql(conn)
}

/// Leaves a branch in a state.
async fn leave(world: &World, side: &Side, branch: BranchId, at: At) -> Option<Session> {
    let committed = |kind| format!("BEGIN; {}; {}; COMMIT", work(branch), witness(branch, kind));
    match at {
        Prepared => prepare(side, branch, &format!("{}; {}", work(branch), witness(branch, "decided"))).await,
        Both => {
            side.query(&witness(branch, "decided")).await;
            prepare(side, branch, &work(branch)).await;
        }
        Committed => drop(side.query(&committed("decided")).await),
        Alone => drop(side.query(&committed("one_phase")).await),
        Fenced => drop(side.query(&witness(branch, "fence")).await),
        Held => return Some(hold(side, &witness(branch, "decided")).await),
        Elsewhere => prepare(world.other(side), branch, &work(branch)).await,
        Gone | Down | GivenUp => {}
    }
    None
}

/// What a participant says of a branch, by its fence.
async fn ask(resolver: &Resolver, view: &mut View, branch: BranchId) {
    let name = if branch.participant == LEDGER { "ledger" } else { "orders" };
    let asked = resolver.participants().iter().find(|one| one.name().as_str() == name).unwrap();
    let answer = asked.ask(&branch, Question::Fence).await.unwrap_or_else(|error| panic!("{}", error.chain()));
    let heard = match answer {
        Answer::Committed => Evidence::Committed,
        Answer::CommittedAlone => Evidence::CommittedAlone,
        Answer::Never => Evidence::Never,
        Answer::Nothing => Evidence::Nothing,
        Answer::Blocked => Evidence::Blocked,
        Answer::Off => Evidence::Off,
    };
    view.observation.heard(branch, heard);
}

fn row_of(plan: &Plan, branch: BranchId) -> Option<&'static str> {
    plan.branches().find(|one| one.id == branch).map(|one| one.row)
}

each_server! {
    /// The whole table: what the journal holds, times how the branch was left, is the row; and what the row says is then
    /// done, and nothing else.
    async fn every_row(flavor) {
        let other = if flavor == Flavor::Postgres { Flavor::MariaDb } else { flavor };
        let world = World::new(other).await;
        let config = world.config("");
        let (side, number) = if flavor == Flavor::Postgres { (&world.ledger, LEDGER) } else { (&world.orders, ORDERS) };
        let lineages = lineages(&config).await;
        let cases: Vec<_> = CASES.iter().zip(1..).map(|(case, sequence)| {
            let id = TransactionId { node: config.node, incarnation: incarnation(case.1, case.2), sequence };
            (case, id.branch(number, 0))
        }).collect();

        let name = side.name.parse().unwrap();
        for opened in [PLAIN, ABANDONED, LOST, LOST_AND_ABANDONED] {
            let known = ["ledger", "orders"].into_iter().zip(&lineages).map(|(name, lineage)| {
                let reason = "first seen".into();
                Record::Participant(ParticipantRecord { name: name.parse().unwrap(), lineage: *lineage, reason })
            });
            let mut written: Vec<_> = if opened == PLAIN { known.collect() } else { vec![] };
            let ours = cases.iter().filter(|(_, branch)| branch.transaction.incarnation == opened);
            written.extend(ours.flat_map(|((_, books, ..), branch)| records(*books, *branch, &lineages)));
            write(&config, opened, written).await;
        }
        // Only what is over is given up or without its records.
        let lost = [LOST, LOST_AND_ABANDONED].map(|opened| Record::Incomplete(opened, remark()));
        let given_up = [ABANDONED, LOST_AND_ABANDONED].map(|opened| Record::GivenUp(opened, name, remark()));
        write(&config, LAST, lost.into_iter().chain(given_up).collect()).await;
        let mut sessions = Vec::new();
        let alone = |branch: BranchId| branch.transaction.branch(1 - number, 0);
        for ((_, books, at, _), branch) in &cases {
            sessions.extend(leave(&world, side, *branch, *at).await);
            if *books == OnePhase {
                leave(&world, world.other(side), alone(*branch), Alone).await;
            }
        }
        // MariaDB lists a branch whose session it has not quite ended as well, and finishes it in nobody else's hands.
        side.sessions_are_gone_but(sessions.len()).await;

        let resolver = Resolver::open(config.clone()).unwrap();
        let mut wrong = Vec::new();
        for down in [false, true] {
            if down {
                side.proxy.down();
            }
            let mut view = resolver.observe().await;
            let looked: Vec<_> = cases.iter().filter(|((_, _, at, _), _)| (*at == Down) == down).collect();
            for ((_, books, _, how), branch) in &looked {
                if *books == OnePhase {
                    ask(&resolver, &mut view, alone(*branch)).await;
                }
                match how {
                    Ask::No => {}
                    Ask::Want => view.observation.want(*branch),
                    Ask::Yes => ask(&resolver, &mut view, *branch).await,
                }
            }
            let plan = resolver.plan(&view.observation);
            for (case, branch) in looked {
                let row = row_of(&plan, *branch);
                if row != Some(case.0) {
                    wrong.push(format!("{case:?}: {row:?}"));
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");

        side.proxy.up();
        drop(sessions);
        eventually("what is to be done is done", async || {
            let pass = resolver.sweep(&|_| {}).await;
            assert!(pass.refused.is_none(), "{:?}", pass.refused);
            pass.left.unscanned.is_empty() && pass.left.work().next().is_none()
        }).await;
        let prepared: BTreeSet<_> = side.prepared_ids().await.into_iter().collect();
        for ((label, books, at, _), branch) in cases {
            if *books == OnePhase || *at == Both {
                // A pass asks nobody about what is listed; these rows are for who looks into one transaction.
                continue;
            }
            let action = TABLE.iter().find(|row| row.label == *label).unwrap().action;
            let is_there = (prepared.contains(&branch), side.has(key(branch)).await);
            match (at, action) {
                (Prepared, Action::Commit) => assert_eq!(is_there, (false, true), "{label}"),
                (Prepared, Action::RollBack) => assert_eq!(is_there, (false, false), "{label}"),
                (Prepared, _) => assert_eq!(is_there, (true, false), "{label}: not touched"),
                (Committed | Alone, _) => assert_eq!(is_there, (false, true), "{label}: not touched"),
                (Both | Gone | Fenced | Held | Elsewhere | Down | GivenUp, _) => assert_eq!(is_there, (false, false), "{label}"),
            }
        }
        resolver.close().await.unwrap();
        for side in world.sides() {
            side.roll_back_by_hand().await;
        }
    }

    /// A participant without witnesses: nothing proves that what is gone has committed.
    async fn without_a_witness(flavor) {
        let other = if flavor == Flavor::Postgres { Flavor::MariaDb } else { flavor };
        let world = World::new(other).await;
        let (side, number) = if flavor == Flavor::Postgres { (&world.ledger, LEDGER) } else { (&world.orders, ORDERS) };
        let toml = world.builder("").toml();
        let without = format!("[participants.{}]\nwitness = false", side.name);
        let toml = toml.replace(&format!("[participants.{}]", side.name), &without);
        let config = Config::from_toml(&toml).unwrap();
        let lineages = lineages(&config).await;
        let branch = TransactionId { node: config.node, incarnation: PLAIN, sequence: 1 }.branch(number, 0);
        write(&config, PLAIN, vec![decision(&[(branch, lineages[usize::from(number)])])]).await;
        let resolver = Resolver::open(config).unwrap();
        let pass = resolver.sweep(&|_| {}).await;
        assert_eq!(row_of(&pass.left, branch), Some("decided, unprovable"));
        resolver.close().await.unwrap();
    }
}

each_pair! {
    /// A witness of a decision that the journal lacks: an older copy, which settles nothing.
    async fn an_older_copy(other) {
        let world = World::new(other).await;
        let config = world.config("");
        lineages(&config).await;
        let id = TransactionId { node: config.node, incarnation: PLAIN, sequence: 1 };
        write(&config, PLAIN, vec![]).await;
        leave(&world, &world.ledger, id.branch(LEDGER, 0), Committed).await;
        leave(&world, &world.orders, id.branch(ORDERS, 0), Prepared).await;
        let resolver = Resolver::open(config).unwrap();
        let mut view = resolver.observe().await;
        let plan = resolver.look_into(&mut view, id).await.unwrap();
        assert!(plan.branches.iter().all(|branch| branch.row == "stale"), "{plan:#?}");
        let refused = resolver.sweep(&|_| {}).await.refused.unwrap();
        assert_eq!(refused.kind(), ErrorKind::Refused);
        resolver.close().await.unwrap();
        assert_eq!(world.orders.roll_back_by_hand().await, 1, "it was not touched");
    }

    /// A single writer's commit, written down and looked at again: its witness contradicts nothing.
    async fn a_single_writer(other) {
        let world = World::new(other).await;
        for side in world.sides() {
            let bridge = world.open().await;
            let tx = bridge.begin().await.unwrap();
            insert_at(&tx, side.name, 1).await.unwrap();
            let id = tx.commit().await.unwrap().id;
            bridge.close().await.unwrap();
            let reader = Resolver::read(world.config("")).unwrap();
            let plan = reader.look_into(&mut reader.observe().await, id).await.unwrap();
            assert_eq!((plan.outcome, plan.action), (Outcome::Committed, Action::Nothing), "{plan:#?}");
            reader.close().await.unwrap();
        }
    }

    /// Of another node's branch nothing is known, and beside a running program all of its own is left to it.
    async fn somebody_elses(other) {
        let world = World::new(other).await;
        let theirs = TransactionId { node: "somebody-else".parse().unwrap(), incarnation: PLAIN, sequence: 1 };
        let theirs = theirs.branch(ORDERS, u32::from(std::process::id() as u16));
        let rule = world.orders.proxy.on(world.orders.words().prepare).hold();
        let program = Program::start(world.config("")).await;
        let id = program.begin_commit(1).await;
        rule.fired().await;
        eventually("the other is prepared", async || world.ledger.prepared().await.len() == 1).await;
        prepare(&world.ledger, theirs, &work(theirs)).await;
        let reader = Resolver::read(world.config("")).unwrap();
        let plan = reader.plan(&reader.observe().await.observation);
        assert_eq!(row_of(&plan, id.branch(LEDGER, 0)), Some("live"));
        // row: foreign
        assert!(plan.foreign.iter().any(|one| one.gid == theirs.to_string()), "{:?}", plan.foreign);
        assert_eq!(row_of(&plan, theirs), None);
        reader.close().await.unwrap();
        rule.release();
        world.is_on_both(1).await;
        program.crash().await;
        world.ledger.query(&format!("ROLLBACK PREPARED '{theirs}'")).await;
    }
}

/// Where a row is shown.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Shown {
    /// `real`, `memory`, `pure`, with the reason for the latter two.
    how: String,
    file: PathBuf,
    test: String,
}

/// Each row has a test that meets it on a real server, or says why it cannot.
///
/// A test declares a row by its label: in [`CASES`], as what a row has to be equal to, or in a comment `row: LABEL`, which
/// may go on with `(memory: REASON)` or `(pure: REASON)`.
#[test]
fn every_row_is_shown() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut shown: BTreeMap<&str, BTreeSet<Shown>> = BTreeMap::new();
    for file in sources(&[root.join("integration-tests/tests"), root.join("src")]) {
        let text = std::fs::read_to_string(&file).unwrap();
        let name = file.strip_prefix(root).unwrap().to_owned();
        let mut test = String::new();
        for line in text.lines() {
            if let Some((_, rest)) = line.split_once("fn ") {
                test = rest.split(['(', '<']).next().unwrap().to_owned();
            }
            let declared = declaration(line).map(|(label, how)| (label.to_owned(), how));
            let asserted = name.ends_with("rows.rs").then(|| labels_in(line)).into_iter().flatten();
            for (label, how) in declared.into_iter().chain(asserted.map(|label| (label, "real".to_owned()))) {
                let row = TABLE.iter().find(|row| row.label == label).unwrap_or_else(|| panic!("{name:?}: {line}"));
                let test = if line.starts_with("    (\"") { "every_row".to_owned() } else { test.clone() };
                shown.entry(row.label).or_default().insert(Shown { how, file: name.clone(), test });
            }
        }
    }
    for row in TABLE {
        for Shown { how, file, test } in shown.get(row.label).into_iter().flatten() {
            println!("{:<28} {test} in {}: {how}", row.label, file.display());
        }
    }
    let missing: Vec<_> = TABLE.iter().map(|row| row.label).filter(|label| !shown.contains_key(label)).collect();
    assert!(missing.is_empty(), "rows that no test shows: {missing:?}");
    let reasons = shown.values().flatten().filter(|one| one.how != "real");
    assert!(reasons.clone().all(|one| one.how.split_once(": ").is_some_and(|(_, why)| why.len() > 20)), "{shown:#?}");
}

/// `row: LABEL` in a comment.
fn declaration(line: &str) -> Option<(&str, String)> {
    let text = line.trim_start().strip_prefix("// row: ")?;
    Some(
        text.split_once(" (")
            .map_or((text, "real".to_owned()), |(label, how)| (label, how.trim_end_matches(')').into())),
    )
}

/// The labels that a line of this file compares with: a case, or `Some("label")`, or `== "label"`.
fn labels_in(line: &str) -> Vec<String> {
    let after = ["    (\"", "Some(\"", "row == \""].into_iter();
    let found = after.filter_map(|start| line.split_once(start).map(|(_, rest)| rest.split('"').next().unwrap()));
    found.filter(|label| TABLE.iter().any(|row| row.label == *label)).map(str::to_owned).collect()
}

fn sources(folders: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap()) {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&[path]));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// What the table answers to cases that no plan holds.
#[test]
fn rows_that_no_plan_reaches() {
    // row: one phase, decided (pure: the witness of a decision without a record makes the history stale, and a record of a
    // single writer's commit is kept as one bit, which makes it finished)
    assert_eq!(decide(History::OnePhase, Sighting::NotListed, Evidence::Committed).action, Action::Damage);
    // row: undecided, committed (pure: a witness without a record makes the history stale, one phase or contradicted, so
    // that an undecided one never meets it; the row is there for the table to be whole)
    for sighting in [Sighting::Listed, Sighting::NotListed] {
        for evidence in [Evidence::Committed, Evidence::CommittedAlone] {
            assert_eq!(decide(History::Undecided, sighting, evidence).action, Action::Damage);
        }
    }
}
