//! Exhaustive exploration.

mod bugs;
mod council;
mod invariants;
mod resolver;
mod search;
mod step;
mod world;

use crate::protocol::{Acknowledge, Mode};
use search::explore;
use world::Setting;

const W: Mode = Mode::Writer;
const R: Mode = Mode::ReadOnly;

fn setting(modes: &[&[Mode]]) -> Setting {
    Setting {
        modes: modes.iter().map(|modes| modes.to_vec()).collect(),
        crashes: 1,
        witness: true,
        strays: false,
        operator: 0,
        questions: false,
        acknowledge: Acknowledge::Applied,
        bug: None,
    }
}

fn holds(name: &str, setting: &Setting) {
    let start = std::time::Instant::now();
    let explored = explore(setting);
    println!("{name}: {} states, {} steps, {} quiet {:?}", explored.states, explored.steps, explored.quiet, start.elapsed());
    if let Some((broken, story)) = explored.broken {
        panic!("{name}: {broken:?} after {story:#?}");
    }
}

#[test]
fn sizes() {
    holds("one writer", &setting(&[&[W]]));
    holds("one reader", &setting(&[&[R]]));
    holds("writer and reader", &setting(&[&[W, R]]));
    holds("two writers", &setting(&[&[W, W]]));
    holds("two writers, reader", &setting(&[&[W, W, R]]));
    holds("two writers, no witness", &Setting {witness: false, .. setting(&[&[W, W]])});
    holds("two writers, decided, strays", &Setting {strays: true, acknowledge: Acknowledge::Decided, .. setting(&[&[W, W]])});
    holds("two writers, operator", &Setting {operator: 1, .. setting(&[&[W, W]])});
    holds("two writers, 2 crashes, questions", &Setting {crashes: 2, questions: true, .. setting(&[&[W, W]])});
    holds("three writers", &setting(&[&[W, W, W]]));
}
