//! The network between a program and its servers at its worst: each statement of the protocol is cut, reset, held, swallowed
//! or robbed of its answer, on either side. Then the same bridge goes on and settles by itself, or the program is killed and
//! the next opening does.
//!
//! Of each case: what the application was answered, what `outcome` says, and both databases agree; nothing is prepared,
//! nothing is locked, and what the network had held comes too late to change anything.

mod case;
mod check;
mod play;
mod recovery;
mod words;

use case::Case;
use futures_util::FutureExt;
use integration_tests::each_pair;
use integration_tests::servers::{self, Flavor};
use integration_tests::torture::{self, Tally};
use integration_tests::world::World;
use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Mutex;

/// Cases that are tried at once, each in a world of its own.
const WORLDS: usize = 8;

/// Cases of each stratum in an everyday run.
const EACH: usize = 1;

each_pair! {
    async fn the_network_fails_at_each_statement(other) {
        let queue = Mutex::new(cases());
        let version = |flavor: Flavor| format!("{} {}", flavor.product(), servers::installation(flavor).version());
        let pair = format!("{} + {}", version(Flavor::Postgres), version(other));
        let tally = Tally::new("the network cuts, holds, drops or swallows a statement", pair);
        futures_util::future::join_all((0..WORLDS).map(|_| work(other, &queue, &tally))).await;
        tally.finish();
    }
}

/// The cases to try; where `HANDFAST_CASE` is set, those whose names contain it.
fn cases() -> Vec<Case> {
    match std::env::var("HANDFAST_CASE") {
        Ok(part) => Case::all().into_iter().filter(|case| case.to_string().contains(&part)).collect(),
        Err(_) => torture::chosen(Case::all(), EACH, Case::stratum),
    }
}

/// Plays cases until none is left, in one world as long as that is whole.
async fn work(other: Flavor, queue: &Mutex<Vec<Case>>, tally: &Tally) {
    let mut world = World::new(other).await;
    let mut keys = (1..).step_by(10);
    loop {
        let Some(case) = queue.lock().expect("nobody panics with it").pop() else { return };
        let key = keys.next().expect("there are more than cases");
        let played = AssertUnwindSafe(play::play(&world, case, key)).catch_unwind().await;
        let result = played.map_err(|panic| said(&*panic));
        if result.is_err() {
            world = World::new(other).await;
        }
        tally.case(case, result);
    }
}

/// What a failed assertion says.
fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_else(|| "a panic".into())
}
