//! How a case is played.

use super::case::{Case, Next, Release, Statement};
use super::check::{Deed, all_is_well};
use super::{recovery, words};
use handfast::mysql_async::prelude::Queryable;
use handfast::transaction::Options;
use handfast::{Bridge, ErrorKind, Outcome, Result, Transaction};
use integration_tests::proxy::Rule;
use integration_tests::world::{LEDGER, ORDERS, PATIENCE, Program, Side, World, deciding, insert_at};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// Impatient, so that what is swallowed is given up soon.
const SETTINGS: &str = "[transaction]\ntimeout = \"2s\"\nlock_timeout = \"1s\"\napply_wait = \"1s\"\n\
     [recovery]\nstatement_timeout = \"1s\"\nlease_interval = \"200ms\"\nopen_wait = \"3s\"\n\
     [pool]\nsize = 2\nconnect_timeout = \"2s\"";

/// The settings of a case.
pub fn settings(case: Case) -> String {
    deciding(SETTINGS, case.anchor())
}

/// Plays a case, with ten keys from `key` on.
pub async fn play(world: &World, case: Case, key: i32) {
    if case.statement.is_of_recovery() {
        recovery::play(world, case, key).await;
    } else {
        transaction(world, case, key).await;
    }
}

pub fn side_of(world: &World, case: Case) -> &Side {
    if case.side == LEDGER { &world.ledger } else { &world.orders }
}

/// The fault meets a transaction of a running program.
async fn transaction(world: &World, case: Case, key: i32) {
    let side = side_of(world, case);
    let program = Program::start(world.config(&settings(case))).await;
    let decided = if case.anchor().is_some() { Statement::Decide } else { Statement::OnePhase };
    let lost = (case.statement == Statement::FenceInDoubt).then(|| words::on(side, decided, key).cut());
    let rule = case.fault.arm(words::on(side, case.statement, key));
    let (mut deed, answer) = begin(&program, world, case, key).await;
    rule.fired().await;
    if let Some(lost) = lost {
        assert_eq!(lost.times(), 1);
    }
    let program = match case.next {
        Next::Goes => {
            deed.said = Some(timeout(PATIENCE, answer).await.expect("the application is answered").expect("no panic"));
            let_go(&rule, case, Release::Soon);
            program
        }
        Next::Restarts | Next::Recovers => {
            program.crash().await;
            deed.said = answer.await.ok();
            restart(world, case, &rule).await
        }
    };
    settles(world, case, program, &rule, &[deed]).await;
}

/// Begins what the application does; its answer comes later.
async fn begin(program: &Program, world: &World, case: Case, key: i32) -> (Deed, JoinHandle<Outcome>) {
    let Case { statement, side, .. } = case;
    let other = world.other(side_of(world, case)).name;
    let (options, on) = match statement {
        Statement::OnePhase => (Options::new(), vec![side]),
        Statement::FenceInDoubt if case.anchor().is_none() => (Options::new(), vec![side]),
        Statement::EndReadOnly => (Options::new().read_only(side), vec![other]),
        _ => (Options::new(), vec![LEDGER, ORDERS]),
    };
    let must = match statement {
        Statement::Commit => Some(Outcome::Committed),
        Statement::RollBack | Statement::RollBackPrepared => Some(Outcome::RolledBack),
        _ => None,
    };
    let tx = program.bridge.begin_with(options).await.expect("it begins");
    let deed = Deed { id: tx.id(), key, on: on.clone(), said: None, must };
    let answer = program.spawn(async move {
        let worked = work(&tx, statement, side, other, &on, key).await;
        if worked.is_err() || statement == Statement::RollBack {
            tx.rollback().await.expect("it has no error");
            return Outcome::RolledBack;
        }
        tx.commit().await.map_or_else(|error| error.outcome(), |_| Outcome::Committed)
    });
    (deed, answer)
}

async fn work(
    tx: &Transaction,
    statement: Statement,
    side: &str,
    other: &str,
    on: &[&'static str],
    key: i32,
) -> Result<()> {
    for name in on {
        insert_at(tx, name, key).await?;
    }
    match statement {
        Statement::EndReadOnly => run(tx, side, "SELECT count(*) FROM t").await,
        Statement::RollBackPrepared => {
            // The application does not care: its vote is a no.
            let _ = run(tx, other, "SELECT * FROM nowhere").await;
            Ok(())
        }
        _ => Ok(()),
    }
}

async fn run(tx: &Transaction, side: &str, statement: &str) -> Result<()> {
    if side == LEDGER {
        tx.postgres(side).await?.batch_execute(statement).await?;
    } else {
        tx.mysql(side).await?.query_drop(statement).await?;
    }
    Ok(())
}

/// Lets go what is held, if it is the time.
pub fn let_go(rule: &Rule, case: Case, now: Release) {
    if case.fault.release() == Some(now) {
        rule.release();
    }
}

/// The next program, after one that was killed.
pub async fn restart(world: &World, case: Case, rule: &Rule) -> Program {
    let_go(rule, case, Release::Soon);
    if case.next == Next::Recovers {
        if is_kept_out(case) {
            the_servers_notice(world);
        }
        world.recover_with(&settings(case)).await;
    }
    open(world, case).await
}

/// Whether a dead program may keep others out until its servers have noticed.
pub fn is_kept_out(case: Case) -> bool {
    case.statement.keeps_others_out() && case.fault.release().is_some()
}

/// Opens a bridge. Of what the network has swallowed the servers hear at last, where it keeps others out.
pub async fn open(world: &World, case: Case) -> Program {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match Program::try_start(world.config(&settings(case))).await {
            Ok(program) => {
                let status = program.bridge.status();
                if is_kept_out(case) && status.participants.iter().any(|one| !one.reachable) {
                    the_servers_notice(world);
                }
                return program;
            }
            Err(error) => {
                // A server may take its time to notice that a program was killed, or to answer at all.
                let waits = matches!(error.kind(), ErrorKind::Refused | ErrorKind::Unavailable);
                assert!(waits && Instant::now() < deadline, "it does not open: {}", error.chain());
                if is_kept_out(case) {
                    the_servers_notice(world);
                }
                sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

pub fn the_servers_notice(world: &World) {
    world.sides().into_iter().for_each(|side| side.proxy.sever());
}

/// A program settles all that there is; what comes late changes nothing.
pub async fn settles(world: &World, case: Case, program: Program, rule: &Rule, deeds: &[Deed]) {
    let bridge = program.bridge.clone();
    let mut ends = Vec::new();
    for deed in deeds {
        deed.is_settled(world, &bridge).await;
        ends.push(outcome(&bridge, deed).await);
    }
    all_is_well(world, &bridge, deeds[0].key + 8).await;
    let_go(rule, case, Release::Late);
    all_is_well(world, &bridge, deeds[0].key + 9).await;
    for (deed, end) in deeds.iter().zip(&ends) {
        assert_eq!(outcome(&bridge, deed).await, *end);
    }
    bridge.close().await.expect("it closes");
    drop(bridge);
    program.crash().await;
    rule.disarm();
    if case.fault.release() == Some(Release::Never) || case.statement.is_of_recovery() {
        the_servers_notice(world);
    }
    for side in world.sides() {
        // All that was ever sent has been done.
        side.sessions_are_gone().await;
        assert_eq!(side.prepared().await, Vec::<String>::new());
    }
    for (deed, end) in deeds.iter().zip(ends) {
        deed.shows(world, end).await;
    }
}

async fn outcome(bridge: &Bridge, deed: &Deed) -> Outcome {
    bridge.outcome(deed.id).await.unwrap_or_else(|error| panic!("{}", error.chain()))
}
