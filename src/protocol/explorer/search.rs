//! Breadth first through all worlds that can be reached. The first broken invariant ends the search, with the
//! shortest story that leads there.

use super::council::Council;
use super::setting::Setting;
use super::step::{Broken, Event};
use super::world::{Key, World};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

/// What a search found.
pub struct Explored {
    pub states: usize,
    pub steps: usize,
    /// How many of the states are quiet.
    pub quiet: usize,
    /// The rows of recovery's table that a plan used.
    pub rows: BTreeSet<&'static str>,
    pub broken: Option<(Broken, Vec<Event>)>,
}

/// Keys are few words that differ in many bits: multiplying mixes them well enough.
#[derive(Default)]
pub struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for eight in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..eight.len()].copy_from_slice(eight);
            self.0 = (self.0.rotate_left(26) ^ u64::from_le_bytes(word)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
    }
}

#[derive(Default)]
struct Search {
    numbers: HashMap<Key, u32, BuildHasherDefault<Mixer>>,
    /// How each state was reached first.
    parents: Vec<(u32, Event)>,
    /// Steps without faults, backwards: from, to.
    fair: Vec<(u32, u32)>,
    quiet: Vec<u32>,
    frontier: VecDeque<World>,
    council: Council,
    steps: usize,
}

pub fn explore(setting: &Setting) -> Explored {
    let mut search = Search::default();
    search.visit(setting, World::new(setting), (0, Event::Begin(0)));
    let mut number = 0;
    while let Some(world) = search.frontier.pop_front() {
        for event in world.events(setting) {
            let mut next = world.clone();
            search.steps += 1;
            let held = next.apply(setting, event, &mut search.council).and_then(|()| next.check(setting));
            if let Err(broken) = held {
                return search.report(Some((broken, number, Some(event))));
            }
            let to = search.visit(setting, next, (number, event));
            if !event.is_fault(&world) && to != number {
                search.fair.push((number, to));
            }
        }
        number += 1;
    }
    let stuck = search.stuck().map(|state| {
        let what = "faults have stopped, and from here it never settles".into();
        (Broken { invariant: "I5", what }, state, None)
    });
    search.report(stuck)
}

impl Search {
    fn visit(&mut self, setting: &Setting, world: World, from: (u32, Event)) -> u32 {
        let next = u32::try_from(self.parents.len()).unwrap();
        let number = *self.numbers.entry(world.key(setting)).or_insert(next);
        if number == next {
            self.parents.push(from);
            if world.is_quiet(setting) {
                self.quiet.push(number);
            }
            self.frontier.push_back(world);
        }
        number
    }

    /// I5: a state from which no quiet one can be reached without faults. In a finite world whose steps are all
    /// taken sooner or later, that it can be reached from everywhere means that it will be.
    fn stuck(&self) -> Option<u32> {
        let mut before: Vec<Vec<u32>> = vec![Vec::new(); self.parents.len()];
        for (from, to) in &self.fair {
            before[*to as usize].push(*from);
        }
        let mut settles = vec![false; self.parents.len()];
        let mut open = self.quiet.clone();
        while let Some(state) = open.pop() {
            if !std::mem::replace(&mut settles[state as usize], true) {
                open.extend(&before[state as usize]);
            }
        }
        settles.iter().position(|settles| !settles).map(|state| u32::try_from(state).unwrap())
    }

    fn report(self, broken: Option<(Broken, u32, Option<Event>)>) -> Explored {
        let broken = broken.map(|(broken, state, last)| (broken, self.story(state, last)));
        let rows = self.council.rows();
        Explored { states: self.parents.len(), steps: self.steps, quiet: self.quiet.len(), rows, broken }
    }

    fn story(&self, mut state: u32, last: Option<Event>) -> Vec<Event> {
        let mut story: Vec<_> = last.into_iter().collect();
        while state != 0 {
            let (before, event) = self.parents[state as usize];
            story.push(event);
            state = before;
        }
        story.reverse();
        story
    }
}
