//! The fault meets an opening that settles what an earlier one has left.

use super::case::{Case, Decides, Next, Release, Statement};
use super::check::Deed;
use super::play::{is_kept_out, let_go, restart, settings, settles, side_of, the_servers_notice};
use super::words;
use handfast::id::hex;
use handfast::{Bridge, Config, Outcome, TransactionId};
use integration_tests::proxy::Rule;
use integration_tests::servers::{self, Flavor};
use integration_tests::world::{LEDGER, ORDERS, Program, Side, World, deciding, eventually, insert, stop};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// More patient: nobody settles what is to be left.
const PATIENT: &str = "[transaction]\n[recovery]\nstatement_timeout = \"20s\"\nlease_interval = \"10s\"";

pub async fn play(world: &World, case: Case, key: i32) {
    let side = side_of(world, case);
    let (deeds, left) = leave(world, case, key).await;
    let rule = case.fault.arm(words::on(side, case.statement, key));
    let runtime = servers::runtime();
    let mut opening = runtime.spawn(opened(world.config(&settings(case))));
    rule.fired().await;
    let program = match case.next {
        Next::Goes => {
            let_go(&rule, case, Release::Soon);
            let bridge = match timeout(NOTICED, &mut opening).await {
                Ok(bridge) => bridge,
                Err(_) => {
                    if is_kept_out(case) {
                        the_servers_notice(world);
                    }
                    opening.await
                }
            };
            Program::of(runtime, bridge.expect("opening does not panic"))
        }
        Next::Restarts | Next::Recovers => {
            stop(runtime).await;
            // It may have opened by then.
            drop(opening);
            restart(world, case, &rule).await
        }
    };
    settles(world, case, program, &rule, &deeds).await;
    drop(left);
}

/// After so long the servers hear of what was swallowed, where it keeps the very program out that it befell.
const NOTICED: Duration = Duration::from_secs(5);

/// Opens a bridge as an application does that tries until it succeeds.
async fn opened(config: Config) -> Bridge {
    loop {
        match Bridge::open(config.clone()).await {
            Ok(bridge) => return bridge,
            Err(_) => sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Leaves, at the side where the network fails, or at the one for which that decides: a decided branch that is prepared; one that has committed, without anybody having heard of it; and one
/// of which nothing was decided. All three on sessions of which the server has not noticed that they are dead.
async fn leave(world: &World, case: Case, key: i32) -> (Vec<Deed>, Vec<Rule>) {
    let failing = side_of(world, case);
    let side = if case.decides == Decides::Here { world.other(failing) } else { failing };
    let other = world.other(side);
    let program = Program::start(world.config(&deciding(PATIENT, case.anchor()))).await;
    let [decided, heard_of, open] = [0, 1, 2].map(|number| key + number);
    let mut rules = Vec::new();
    let mut ids = Vec::new();
    for (key, is_delivered) in [(decided, false), (heard_of, true)] {
        let bridge = program.bridge.clone();
        let tx = program.spawn(async move { insert(&bridge, key).await }).await.expect("no panic");
        ids.push(tx.id());
        let on = side.proxy.on(&commit_of(side, tx.id()));
        let rule = if is_delivered { on.hold_answer() } else { on.hold() };
        program.spawn(tx.commit());
        rule.fired().await;
        rules.push(rule);
    }
    let last = if case.anchor().is_some() {
        words::on(other, Statement::Decide, open)
    } else {
        other.proxy.on(other.words().prepare)
    };
    let no_vote = last.hold();
    ids.push(program.begin_commit(open).await);
    no_vote.fired().await;
    rules.push(no_vote);
    eventually("two are prepared, one has committed", async || {
        side.prepared().await.len() == 2
            && side.has(heard_of).await
            && other.has(decided).await
            && other.has(heard_of).await
    })
    .await;
    program.crash().await;
    let ends = [Outcome::Committed, Outcome::Committed, Outcome::RolledBack];
    let deed = |((id, key), must)| Deed { id, key, on: vec![LEDGER, ORDERS], said: None, must: Some(must) };
    (ids.into_iter().zip([decided, heard_of, open]).zip(ends).map(deed).collect(), rules)
}

/// How a side's commit of this transaction begins.
fn commit_of(side: &Side, id: TransactionId) -> String {
    match side.flavor() {
        Flavor::Postgres => format!("COMMIT PREPARED '{id}."),
        Flavor::MariaDb | Flavor::MySql => format!("XA COMMIT X'{}'", hex(id.to_string().as_bytes())),
    }
}
