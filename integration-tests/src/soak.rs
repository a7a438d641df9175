//! Everything at once, at random: clients that move money, faults of all kinds, and one question at the end.
//!
//! Two clients, each a process with a journal and a node name of its own, work on the same two databases. Meanwhile
//! [`chaos`] kills, freezes and cuts. A run has rounds: after each, what was broken is mended, recovery runs, and
//! [`audit`] holds every answer that any client was ever given against both databases. The data, the journals and
//! some foreign branches stay from round to round.
//!
//! A round's seed decides its faults, their order and their pauses, and what each client wants to do next. It does not
//! decide who is quicker: how far a client is when a fault strikes, which lock it waits for, and what a server that is
//! killed had written differ from run to run. The same seed is the same attack, not the same battle.

pub mod audit;
pub mod chaos;
pub mod client;
pub mod foreign;
pub mod schedule;
pub mod stage;
pub mod teller;

use crate::servers::Flavor;
use crate::torture::{self, Tally};
use chaos::Chaos;
use stage::{Decided, Stage};
use std::time::Duration;
use tokio::time::Instant;

/// How long faults are made in one round.
const ROUND: Duration = Duration::from_secs(12);

/// How long a run takes for each pair of servers, from `HANDFAST_SOAK_SECONDS`.
///
/// # Panics
/// When that is no number.
pub fn length() -> Duration {
    let seconds = match std::env::var("HANDFAST_SOAK_SECONDS") {
        Ok(text) => text.parse().unwrap_or_else(|error| panic!("HANDFAST_SOAK_SECONDS={text}: {error}")),
        Err(_) if torture::is_full() => 120,
        Err(_) => 10,
    };
    Duration::from_secs(seconds)
}

/// One run. `program` is the client: `env!("CARGO_BIN_EXE_soak-client")`.
///
/// # Panics
/// With every violation.
pub async fn run(program: &str, other: Flavor, decided: Decided) {
    let decides = match decided {
        Decided::ByJournals => "",
        Decided::ByParticipants => ", they decide",
    };
    let tally = Tally::new(torture::SOAK, torture::pair(other) + decides);
    tally.tried(format!("{} s from seed {}", length().as_secs(), torture::seed()));
    let end = Instant::now() + length();
    let mut stage = Stage::set(program, other, decided).await;
    let mut seed = torture::seed();
    loop {
        let violations = round(&mut stage, seed, (end - Instant::now()).min(ROUND), &tally).await;
        if violations > 0 {
            let place = stage.keep();
            println!(
                "HANDFAST_SEED={seed} begins with this round; journals and answers are kept in {}",
                place.display()
            );
            break;
        }
        if Instant::now() >= end {
            break;
        }
        seed = seed.wrapping_add(1);
    }
    tally.finish();
}

/// One round: the number of violations.
async fn round(stage: &mut Stage, seed: u64, length: Duration, tally: &Tally) -> usize {
    println!("HANDFAST_SEED={seed}: {} s on {}", length.as_secs(), torture::pair(stage.orders.flavor()));
    let mut chaos = Chaos::new(stage, seed);
    chaos.run(length).await;
    let done = chaos.end().await;
    let mut violations = done.violations;
    let audit = audit::audit(stage).await;
    println!("{}; {}", done.summary, audit.summary);
    violations.extend(audit.violations);
    tally.cases(audit.judged);
    for violation in &violations {
        tally.case(format!("seed {seed}"), Err(violation));
    }
    if !violations.is_empty() || std::env::var("HANDFAST_SOAK_LOG").is_ok() {
        println!("what was done in this round:\n{}", done.log.join("\n"));
    }
    violations.len()
}
