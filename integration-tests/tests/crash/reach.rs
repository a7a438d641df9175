//! Where processes come along: found out by letting one run, with everything counted and nothing stopped.

use crate::ground::Ground;
use handfast::torture::{Point, Request, Step};
use integration_tests::application::Application;
use std::collections::BTreeMap;
use std::fmt;

/// A point, and the participant of whose request it is one, or `-`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub point: Point,
    pub side: String,
}

/// How often each place was passed.
pub type Passed = BTreeMap<Place, u32>;

/// Where to stop.
#[derive(Debug, Clone)]
pub struct Stop {
    pub place: Place,
    pub nth: u32,
}

/// Arms nothing that could be reached, so that all is counted.
pub const COUNT: &str = "arm answer - 0 freeze\n";

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { point, side } = self;
        if side == "-" { write!(f, "{point}") } else { write!(f, "{point} at {side}") }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, time {}", self.place, self.nth)
    }
}

impl Stop {
    /// As the application is told.
    pub fn armed(&self, action: &str) -> String {
        format!("arm {} {} {} {action}\n", self.place.point, self.place.side, self.nth)
    }
}

/// What was counted: until it was asked for the first time, and until the end.
pub fn counted(application: &Application) -> (Passed, Passed) {
    let (mut early, mut all) = (Passed::new(), Passed::new());
    for line in application.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["so", "far"] if early.is_empty() => early = std::mem::take(&mut all),
            ["arrived", point, side, times] => {
                let place = Place { point: point.parse().expect("a point"), side: (*side).to_owned() };
                all.insert(place, times.parse().expect("a number"));
            }
            _ => {}
        }
    }
    (early, all)
}

/// So many passings of one place are tried: the journal writes again and again, and each time something else.
fn enough(point: Point) -> u32 {
    match point {
        Point::Step(Step::Written | Step::Synced) => 4,
        _ => 2,
    }
}

/// The stops among those passings that came after `early`.
pub fn stops(early: &Passed, all: &Passed) -> Vec<Stop> {
    let mut stops = Vec::new();
    for (place, times) in all {
        let before = early.get(place).copied().unwrap_or(0);
        let last = (*times).min(before + enough(place.point));
        stops.extend((before + 1..=last).map(|nth| Stop { place: place.clone(), nth }));
    }
    stops
}

/// Lets a script run to its end: what it passes until it is open, and all in all.
pub async fn of_script(ground: &Ground, script: &'static crate::script::Script) -> (Passed, Passed) {
    let life = ground.life(script.keys);
    let mut application = ground.start(&life);
    let told = script.told(life.first_key).replacen("open", "open\narrived", 1);
    application.tell(&format!("{COUNT}{told}")).await;
    application.end().await;
    counted(&application)
}

/// Whether a point belongs to what keeps the tables small: that begins some seconds after opening.
pub fn is_upkeep(point: Point) -> bool {
    matches!(point, Point::Request(Request::Prune, _))
}
