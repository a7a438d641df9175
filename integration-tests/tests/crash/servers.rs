//! Servers are killed while applications stand at every point, each at its own: one restart serves many.

use crate::application::{Case, Recovery, cases, recover};
use crate::ground::{Ground, Room};
use crate::script::short;
use crate::trial::Trial;
use futures_util::future::join_all;
use integration_tests::application::Application;
use integration_tests::servers::Flavor;
use integration_tests::torture::{Tally, chosen};
use integration_tests::world::Side;
use std::collections::BTreeMap;

/// So many stand at their points at once: the servers take 200 connections, and each has up to two at each.
const BATCH: usize = 40;

/// Who is killed, and with whom.
struct Victims {
    kind: &'static str,
    sides: &'static [&'static str],
    application: bool,
}

const VICTIMS: [Victims; 6] = [
    Victims { kind: "a server is killed", sides: &["ledger"], application: false },
    Victims { kind: "a server is killed", sides: &["orders"], application: false },
    Victims { kind: "both servers are killed", sides: &["ledger", "orders"], application: false },
    Victims { kind: "application and server are killed", sides: &["ledger"], application: true },
    Victims { kind: "application and server are killed", sides: &["orders"], application: true },
    Victims { kind: "application and server are killed", sides: &["ledger", "orders"], application: true },
];

/// An application that stands somewhere, or has gone another way and is done.
struct Standing {
    trial: Trial,
    application: Application,
}

async fn stand(ground: &Ground, case: Case, victims: &Victims) -> Standing {
    let _place = Room::take().await;
    let mut trial = case.trial(ground);
    trial.name = format!("{} and {:?} killed", trial.name, victims.sides);
    // What becomes of it after a server has died is as open as it is then.
    trial.expected = trial.expected.filter(|_| victims.application);
    let mut application = ground.start(&trial.life);
    let told = case.script.told(trial.life.first_key);
    application.tell(&format!("{}{told}", case.stop.armed("freeze"))).await;
    if !application.has_come_to_any(&["reached", "settled", "unsettled", "failed"]).await {
        trial.violated(format!("it has ended: {:?} {}", application.lines(), application.errors()));
    }
    Standing { trial, application }
}

impl Standing {
    /// Lets it go on, and waits for its end.
    async fn goes_on(&mut self) {
        self.application.tell("release").await;
        self.application.hang_up();
        let status = self.application.ended().await;
        // Whoever opens while a server dies may be told that it cannot be reached.
        let was_refused = self.application.has_said("failed Unavailable");
        self.trial.heard(&self.application, Some(status).filter(|_| !was_refused));
    }
}

async fn batch(ground: &Ground, cases: Vec<Case>, victims: &Victims) -> Vec<Trial> {
    let mut all = join_all(cases.into_iter().map(|case| stand(ground, case, victims))).await;
    if victims.application {
        for one in &mut all {
            one.application.kill().await;
            one.trial.heard(&one.application, None);
        }
    }
    let dead = || ground.sides().into_iter().filter(|side| victims.sides.contains(&side.name));
    join_all(dead().map(|side| async { side.server.kill().await.expect("it is killed") })).await;
    // Some go on while it is down, the others when it is back.
    let (mut early, mut late): (Vec<_>, Vec<_>) = all.into_iter().enumerate().partition(|(number, _)| number % 2 == 0);
    let ends = async |some: &mut Vec<(usize, Standing)>| {
        if !victims.application {
            join_all(some.iter_mut().map(|(_, one)| one.goes_on())).await;
        }
    };
    let restart = async {
        join_all(dead().map(restarted)).await;
        ends(&mut late).await;
    };
    tokio::join!(ends(&mut early), restart);
    let trials = early.into_iter().chain(late).map(|(number, one)| recovered(ground, number, one.trial));
    join_all(trials).await
}

async fn restarted(side: &Side) {
    side.server.restart().await.unwrap_or_else(|error| panic!("{}", error.chain()));
}

async fn recovered(ground: &Ground, number: usize, mut trial: Trial) -> Trial {
    let _place = Room::take().await;
    // Not by the same parity as above.
    let how = if (number / 2).is_multiple_of(2) { Recovery::Resolver } else { Recovery::Bridge };
    recover(ground, &mut trial, how).await;
    trial
}

/// All of it.
pub async fn all(other: Flavor) {
    attack(&Ground::own(other).await, &VICTIMS).await;
}

/// The same with a participant that decides: it is the one that is killed.
pub async fn all_anchored(other: Flavor, anchor: &'static str) {
    let is_it = |victims: &&Victims| victims.sides == [anchor];
    let victims = VICTIMS.iter().filter(is_it);
    attack(&Ground::own(other).await.anchored(anchor), victims).await;
}

async fn attack(ground: &Ground, victims: impl IntoIterator<Item = &'static Victims>) {
    let mut tallies = BTreeMap::new();
    let all = cases(ground, short()).await;
    for victims in victims {
        let mut all = chosen(all.clone(), 1, |case: &Case| case.stop.place.point);
        let tally = &*tallies.entry(victims.kind).or_insert_with(|| ground.tally(victims.kind));
        while !all.is_empty() {
            let rest = all.split_off(all.len().min(BATCH));
            let trials = batch(ground, std::mem::replace(&mut all, rest), victims).await;
            ground.judge(tally, (trials, Vec::new())).await;
        }
    }
    tallies.into_values().for_each(Tally::finish);
}
