//! One scenario for each safeguard: it holds with all of them on, and is violated with that one off.

use crate::child::{Off, Watched};
use crate::stage::{Stage, Violation, copy_of};
use handfast::Outcome;
use handfast::id::Incarnation;
use handfast::mysql_async::prelude::Queryable;
use integration_tests::conformance::mysql::connect;
use integration_tests::servers::{self, Flavor};
use integration_tests::world::{Home, LEDGER, ORDERS, World, eventually};
use std::time::Duration;

type Held = Result<(), Violation>;

const BOTH: [&str; 2] = [LEDGER, ORDERS];

/// The application ends the branch's transaction and begins another.
pub async fn guard(flavor: Flavor, off: Off) -> Held {
    let stage = Stage::new(flavor).await;
    let mut application = stage.bridge(off).await;
    application.begin(1, &BOTH).await;
    begin_another(flavor, &mut application).await;
    let told = application.commit().await;
    stage.rests().await;
    damaged_or(told, stage.agrees(1, told).await)
}

/// The same of a single writer.
pub async fn guard_alone(flavor: Flavor, off: Off) -> Held {
    let stage = Stage::new(flavor).await;
    let mut application = stage.bridge(off).await;
    application.begin(1, &[stage.side().name]).await;
    begin_another(flavor, &mut application).await;
    let told = application.commit().await;
    damaged_or(told, stage.agrees_alone(1, told).await)
}

async fn begin_another(flavor: Flavor, application: &mut Watched) {
    if flavor == Flavor::Postgres {
        // Read only by default: then the witness could not be written either.
        assert_eq!(application.ask("ledger ROLLBACK; BEGIN READ WRITE").await, "ok");
    } else {
        let xid = application.ask("xid").await;
        let xid = xid.strip_prefix("xid ").unwrap();
        assert_eq!(application.ask(&format!("orders XA ROLLBACK {xid}; XA START {xid}")).await, "ok");
    }
}

/// Where somebody has broken a promise, it is told that one is broken, or nothing is.
fn damaged_or(told: Outcome, held: Held) -> Held {
    if told == Outcome::Damaged { Ok(()) } else { held }
}

/// A begin is refused, and the application's first statement is right behind it.
pub async fn read_only_outside(flavor: Flavor, off: Off) -> Held {
    let stage = Stage::new(flavor).await;
    let mut application = stage.bridge(off).await;
    // The begin on a session that was just heard of is not waited for.
    application.begin(1, &BOTH).await;
    assert_eq!(application.commit().await, Outcome::Committed);
    let rule = stage.side().proxy.on(stage.side().words().begin).refuse();
    application.ask("begin").await;
    for side in BOTH {
        // Whatever comes of it: an application that does not care.
        application.ask(&format!("{side} INSERT INTO t VALUES (2, 1)")).await;
    }
    rule.fired().await;
    let told = application.commit().await;
    stage.rests().await;
    stage.agrees(2, told).await
}

/// Sees to it that the branch has its marker: an answer that is given twice has to be as long as the one that it stands for,
/// and a session that was idle for a moment has begun with the marker.
async fn mark(flavor: Flavor, application: &mut Watched) {
    if flavor != Flavor::Postgres {
        assert_eq!(application.ask("orders SAVEPOINT mine").await, "ok");
    }
}

/// Somebody on the way gives the answer to an earlier prepare once more, and the prepare to nobody.
pub async fn nonce(flavor: Flavor, off: Off) -> Held {
    let stage = Stage::new(flavor).await;
    let rule = stage.side().proxy.on(stage.side().words().prepare).replay();
    let mut application = stage.bridge(off).await;
    application.begin(1, &BOTH).await;
    mark(flavor, &mut application).await;
    let told = application.commit().await;
    assert_eq!(told, Outcome::Committed);
    application.begin(2, &BOTH).await;
    mark(flavor, &mut application).await;
    let told = application.commit().await;
    rule.fired().await;
    stage.rests().await;
    stage.agrees(2, told).await
}

/// The same of a single writer's commit.
pub async fn nonce_alone(flavor: Flavor, off: Off) -> Held {
    let stage = Stage::new(flavor).await;
    let rule = stage.side().proxy.on(stage.side().words().one_phase).replay();
    let mut application = stage.bridge(off).await;
    application.begin(1, &[stage.side().name]).await;
    mark(flavor, &mut application).await;
    assert_eq!(application.commit().await, Outcome::Committed);
    let id = application.begin(2, &[stage.side().name]).await;
    mark(flavor, &mut application).await;
    application.commit().await;
    rule.fired().await;
    application.close().await;
    let told = stage.resolver(off).await.outcome(id).await;
    stage.agrees_alone(2, told).await
}

/// The application drops a call, whose answer looks like that of a prepare; the prepare meets a fence.
pub async fn torn(flavor: Flavor, off: Off) -> Held {
    let stage = Stage::new(flavor).await;
    let mut application = stage.bridge(off).await;
    let id = application.begin(1, &BOTH).await;
    let call = "DO 0; DO 0; DO 0; DO 0";
    let rule = stage.side().proxy.on(call).hold_answer();
    application.tell(&format!("drop {call}")).await;
    rule.fired().await;
    assert_eq!(application.ask("now").await, "dropped");
    rule.release();
    let (incarnation, sequence) = (id.incarnation.to_sql(), id.sequence);
    stage.side().query(&format!("INSERT INTO handfast_witness VALUES ({incarnation}, {sequence}, 1, 'fence')")).await;
    let told = application.commit().await;
    stage.rests().await;
    stage.agrees(1, told).await
}

/// The application is killed between the decision and phase two, and a person rolls the branch back.
pub async fn witness(flavor: Flavor, off: Off) -> Held {
    let stage = Stage::new(flavor).await;
    let rule = stage.side().proxy.on(stage.side().words().commit).hold();
    let mut application = stage.bridge(off).await;
    let id = application.begin(1, &BOTH).await;
    application.tell("commit").await;
    rule.fired().await;
    stage.can_be_read(stage.other(), 1).await;
    application.kill().await;
    stage.side().proxy.sever();
    assert_eq!(stage.side().roll_back_by_hand().await, 1);
    let mut resolver = stage.resolver(off).await;
    resolver.ask("recover").await;
    let told = resolver.outcome(id).await;
    damaged_or(told, stage.agrees(1, told).await)
}

/// A single writer's commit is on its way when the application is killed, and arrives when its outcome has been told.
pub async fn fence(flavor: Flavor, off: Off) -> Held {
    let stage = Stage::new(flavor).await;
    late_commit(&stage, off, &[]).await
}

/// The same, and the opening has been settled as a whole.
pub async fn sessions_end(flavor: Flavor, off: Off) -> Held {
    let stage = Stage::new(flavor).await;
    late_commit(&stage, off, &["recover"]).await
}

async fn late_commit(stage: &Stage, off: Off, before: &[&str]) -> Held {
    let side = stage.side();
    let rule = side.proxy.on(side.words().one_phase).hold();
    let mut application = stage.bridge(off).await;
    let id = application.begin(1, &[side.name]).await;
    application.tell("commit").await;
    rule.fired().await;
    application.kill().await;
    let mut resolver = stage.resolver(off).await;
    for what in before {
        assert_eq!(resolver.ask(what).await, "recovered complete");
    }
    let told = resolver.outcome(id).await;
    assert_eq!(told, Outcome::RolledBack);
    resolver.close().await;
    rule.release();
    side.sessions_are_gone().await;
    stage.agrees_alone(1, told).await
}

/// A single writer has committed, and the application is killed before it hears of that.
pub async fn settled(flavor: Flavor, off: Off) -> Held {
    let stage = Stage::new(flavor).await;
    let side = stage.side();
    let rule = side.proxy.on(side.words().one_phase).hold_answer();
    let mut application = stage.bridge(off).await;
    let id = application.begin(1, &[side.name]).await;
    application.tell("commit").await;
    rule.fired().await;
    stage.can_be_read(side, 1).await;
    application.kill().await;
    let told = stage.resolver(off).await.outcome(id).await;
    stage.agrees_alone(1, told).await
}

/// Nothing happens to it.
pub async fn same_connection(flavor: Flavor, off: Off) -> Held {
    let stage = Stage::new(flavor).await;
    let mut application = stage.bridge(off).await;
    application.begin(1, &BOTH).await;
    let told = application.commit().await;
    stage.agrees(1, told).await
}

/// A decided branch is prepared on a session that somebody else's pool has reset.
pub async fn proof(flavor: Flavor, off: Off) -> Held {
    let stage = Stage::new(flavor).await;
    let side = stage.side();
    let rule = side.proxy.on(side.words().commit).hold();
    let mut application = stage.bridge(off).await;
    let id = application.begin(1, &BOTH).await;
    application.tell("commit").await;
    rule.fired().await;
    stage.can_be_read(stage.other(), 1).await;
    application.kill().await;
    side.proxy.sever();
    side.sessions_are_gone().await;
    let [branch] = side.prepared_ids().await[..] else { panic!("one is prepared") };
    side.roll_back_by_hand().await;

    let mut session = connect(&side.server.url(&side.database)).await;
    let (incarnation, sequence, xid) = (id.incarnation.to_sql(), id.sequence, branch.xid_sql());
    for statement in [
        format!("XA START {xid}"),
        "INSERT INTO t VALUES (1, 1)".into(),
        format!("INSERT INTO handfast_witness VALUES ({incarnation}, {sequence}, 1, 'decided')"),
        format!("XA END {xid}"),
        format!("XA PREPARE {xid}"),
    ] {
        session.query_drop(statement).await.unwrap();
    }
    session.reset().await.unwrap();
    let said = stage.resolver(off).await.ask("pass").await;
    let is_told_too_early = said == "recovered complete" && !side.has(1).await;
    if is_told_too_early { Err("recovery is complete, and it is not there".into()) } else { Ok(()) }
}

/// Another program of the same server uses a higher formatID, and the server crashes between the phases.
pub async fn format_id(flavor: Flavor, off: Off) -> Held {
    let server = servers::start_with(flavor, servers::options().with_binlog()).await;
    let world = World::on(Home::shared(Flavor::Postgres).await, Home::Own(Box::new(server))).await;
    let stage = Stage { world, flavor };
    let side = stage.side();
    let xid = "'foreign','b',2147483647";
    let others = "INSERT INTO t VALUES (100, 0)";
    side.query(&format!("XA START {xid}; {others}; XA END {xid}; XA PREPARE {xid}; XA COMMIT {xid}")).await;
    let rule = side.proxy.on(side.words().commit).hold();
    let mut application = stage.bridge(off).await;
    application.begin(1, &BOTH).await;
    application.tell("commit").await;
    rule.fired().await;
    side.server.kill().await.unwrap();
    side.server.restart().await.unwrap();
    rule.release();
    let told = application.told().await;
    stage.rests().await;
    stage.agrees(1, told).await
}

/// Another program has the same name for its node and a journal of its own.
pub async fn ownership(flavor: Flavor, off: Off) -> Held {
    let stage = Stage::new(flavor).await;
    let mut application = stage.bridge(off).await;
    let mut theirs = application.begin(1, &BOTH).await;
    assert_eq!(application.commit().await, Outcome::Committed);
    application.close().await;
    theirs.incarnation = Incarnation(0x7e15);
    let number = if flavor == Flavor::Postgres { 0 } else { 1 };
    let theirs = theirs.branch(number, 0);
    let insert = "INSERT INTO t VALUES (2, 1)";
    let xid = theirs.xid_sql();
    stage
        .side()
        .query(&match flavor {
            Flavor::Postgres => format!("BEGIN; {insert}; PREPARE TRANSACTION '{theirs}'"),
            Flavor::MariaDb | Flavor::MySql => format!("XA START {xid}; {insert}; XA END {xid}; XA PREPARE {xid}"),
        })
        .await;
    stage.side().sessions_are_gone().await;
    let mut resolver = stage.resolver(off).await;
    assert_eq!(resolver.ask("recover").await, "recovered complete");
    let left = stage.side().roll_back_by_hand().await;
    if left == 1 { Ok(()) } else { Err("somebody else's branch was rolled back".into()) }
}

/// A copy of the journal is at work beside the original, which is about to decide.
pub async fn lease(flavor: Flavor, off: Off) -> Held {
    let stage = Stage::new(flavor).await;
    let vote = stage.other().proxy.on(stage.other().words().prepare).hold_answer();
    let mut application = stage.bridge(off).await;
    application.begin(1, &BOTH).await;
    application.tell("commit").await;
    vote.fired().await;
    for side in stage.world.sides() {
        eventually("it is prepared", async || side.prepared().await.len() == 1).await;
    }
    let copy = copy_of(stage.world.journal.path());
    if let Ok(mut resolver) = stage.resolver_at(copy.path(), off).await {
        resolver.ask("recover").await;
        resolver.close().await;
    }
    vote.release();
    let told = application.told().await;
    stage.rests().await;
    stage.agrees(1, told).await
}

/// The lease is lost between the last vote and the decision, and a copy of the journal settles what is prepared.
pub async fn under_lease(flavor: Flavor, off: Off) -> Held {
    let stage = Stage::new(flavor).await;
    let mut application = stage.bridge_with("[recovery]\nlease_interval = \"100ms\"\n", off).await;
    application.begin(1, &BOTH).await;
    assert_eq!(application.ask("freeze prepare.answered ledger").await, "armed");
    application.tell("commit").await;
    assert_eq!(application.ask("frozen").await, "frozen");
    for side in stage.world.sides() {
        eventually("it is prepared", async || side.prepared().await.len() == 1).await;
    }
    let copy = copy_of(stage.world.journal.path());
    stage.take_the_lease_away().await;
    let mut direct = stage.world.builder_at(copy.path(), "").toml();
    for side in stage.world.sides() {
        direct = direct.replace(&side.proxy.url(&side.database), &side.server.url(&side.database));
    }
    let mut resolver = stage.resolver_with(&direct, &[]).await;
    eventually("the copy has recovered", async || resolver.ask("recover").await == "recovered complete").await;
    resolver.close().await;
    application.tell("open").await;
    let told = application.told().await;
    stage.agrees(1, told).await
}

/// The participant's name leads to another database for a while.
pub async fn lineage(flavor: Flavor, off: Off) -> Held {
    let stage = Stage::new(flavor).await;
    let elsewhere = Stage::new(flavor).await;
    elsewhere.bridge(&[]).await.close().await;
    let rule = stage.side().proxy.on(stage.side().words().commit).hold();
    let mut application = stage.bridge(off).await;
    let id = application.begin(1, &BOTH).await;
    application.tell("commit").await;
    rule.fired().await;
    stage.can_be_read(stage.other(), 1).await;
    application.kill().await;
    stage.side().proxy.sever();

    let there = stage.world.builder("");
    let (right, wrong) = (&stage.side().database, &elsewhere.side().database);
    let wrong = there.toml().replace(&stage.side().proxy.url(right), &elsewhere.side().proxy.url(wrong));
    let mut resolver = stage.resolver_with(&wrong, off).await;
    resolver.ask("pass").await;
    resolver.close().await;
    let mut resolver = stage.resolver(off).await;
    resolver.ask("recover").await;
    let told = resolver.outcome(id).await;
    stage.agrees(1, told).await
}

/// The journal is restored from a copy that lacks a decision.
pub async fn older_copy(flavor: Flavor, off: Off) -> Held {
    let stage = Stage::new(flavor).await;
    let rule = stage.side().proxy.on(stage.side().words().commit).hold();
    let mut application = stage.bridge(off).await;
    application.begin(1, &BOTH).await;
    let copy = copy_of(stage.world.journal.path());
    application.tell("commit").await;
    rule.fired().await;
    stage.can_be_read(stage.other(), 1).await;
    application.kill().await;
    stage.side().proxy.sever();
    stage.side().sessions_are_gone().await;
    if let Ok(mut resolver) = stage.resolver_at(copy.path(), off).await {
        resolver.ask("recover").await;
        resolver.close().await;
    }
    let mut resolver = stage.resolver(&[]).await;
    resolver.ask("recover").await;
    stage.agrees(1, Outcome::Committed).await
}

/// The journal is restored from a copy that lacks a whole opening, and the application begins work with it.
pub async fn older_opening(flavor: Flavor, off: Off) -> Held {
    let stage = Stage::new(flavor).await;
    stage.bridge(off).await.close().await;
    let copy = copy_of(stage.world.journal.path());
    let rule = stage.side().proxy.on(stage.side().words().commit).hold();
    let mut application = stage.bridge(off).await;
    application.begin(1, &BOTH).await;
    application.tell("commit").await;
    rule.fired().await;
    stage.can_be_read(stage.other(), 1).await;
    application.kill().await;
    stage.side().proxy.sever();
    stage.side().sessions_are_gone().await;
    if let Ok(application) = stage.bridge_at(copy.path(), off).await {
        application.close().await;
    }
    // Whoever was registered since makes the original look old.
    let mut resolver = stage.resolver(&[]).await;
    resolver.ask("recover").await;
    stage.agrees(1, Outcome::Committed).await
}

/// The journal is slow: a round of pruning comes, and the application is killed, before a single writer's note is written.
pub async fn note_before_pruning(flavor: Flavor, off: Off) -> Held {
    let stage = Stage::new(flavor).await;
    let side = stage.side();
    let mut application = stage.bridge(off).await;
    assert_eq!(application.ask("freeze written").await, "armed");
    application.begin(1, &[side.name]).await;
    assert_eq!(application.commit().await, Outcome::Committed);
    // Its note has gone as far as the disk, and those that come now no further than the queue.
    assert_eq!(application.ask("frozen").await, "frozen");
    let id = application.begin(2, &[side.name]).await;
    assert_eq!(application.commit().await, Outcome::Committed);
    let pruned = async {
        while !side.witnesses(id).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    // A round comes every five seconds, and deletes nothing while the journal does not answer.
    let _ = tokio::time::timeout(Duration::from_secs(8), pruned).await;
    application.kill().await;
    let told = stage.resolver(off).await.outcome(id).await;
    stage.agrees_alone(2, told).await
}
