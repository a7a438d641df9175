//! The application is killed: at every point that it passes, whatever it was about to do.

use crate::ground::Ground;
use crate::reach::{self, Stop, is_upkeep};
use crate::script::{Kind, SCRIPTS, Script, UPKEEP};
use crate::trial::{Trial, is_stopped};
use futures_util::future::join_all;
use handfast::Outcome;
use handfast::torture::{Point, Request, Step};
use integration_tests::torture::chosen;
use std::collections::BTreeSet;

/// Where an application is killed.
#[derive(Clone)]
pub struct Case {
    pub script: &'static Script,
    pub stop: Stop,
    /// It has not come as far as to begin anything.
    pub opening: bool,
}

impl Case {
    pub fn name(&self) -> String {
        format!("{}: {}", self.script.name, self.stop)
    }

    /// What has to come of it.
    pub fn outcome(&self) -> Option<Outcome> {
        if self.opening { Some(Outcome::RolledBack) } else { self.script.outcome_at(self.stop.place.point) }
    }

    pub fn trial(&self, ground: &Ground) -> Trial {
        let mut trial = ground.trial(self.name(), self.script);
        trial.expected = self.outcome();
        trial
    }
}

/// A point of changing to another segment.
pub fn is_rotation(point: Point) -> bool {
    use Step::{Compacted, SegmentClosed, SegmentMade, SegmentPublished};
    matches!(point, Point::Step(SegmentMade | SegmentPublished | SegmentClosed | Compacted))
}

fn is_hold(point: Point) -> bool {
    matches!(point, Point::Request(Request::Hold, _))
}

/// Each of the scripts with each stop that it comes to. What is alike in all is tried in one of them.
pub async fn cases(ground: &Ground, scripts: impl Iterator<Item = &'static Script>) -> Vec<Case> {
    let mut cases = Vec::new();
    let passed = join_all(scripts.map(async |script| (script, reach::of_script(ground, script).await))).await;
    for (script, (early, all)) in passed {
        if script.name == SCRIPTS[0].name {
            let opening = reach::stops(&reach::Passed::new(), &early).into_iter();
            cases.extend(opening.map(|stop| Case { script, stop, opening: true }));
        }
        let wanted = |stop: &Stop| match (script.kind, script.name) {
            (Kind::Load, _) => is_rotation(stop.place.point),
            // The lease is confirmed from time to time, and not at the same step each time.
            (_, name) => (name == UPKEEP) == (is_upkeep(stop.place.point) || is_hold(stop.place.point)),
        };
        let later = reach::stops(&early, &all).into_iter().filter(wanted);
        cases.extend(later.map(|stop| Case { script, stop, opening: false }));
    }
    cases
}

/// How what a crash has left is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Recovery {
    /// By a resolver, as the tool does.
    Resolver,
    /// By the next opening of the bridge, in its background.
    Bridge,
}

impl Recovery {
    /// As a program is told.
    pub fn told(self) -> &'static str {
        match self {
            Self::Resolver => "recover",
            Self::Bridge => "open\nsettle",
        }
    }
}

/// Recovery in a new process, undisturbed.
pub async fn recover(ground: &Ground, trial: &mut Trial, how: Recovery) {
    let mut application = ground.start(&trial.life);
    application.tell(&format!("{}{}", trial.known(), how.told())).await;
    application.hang_up();
    let status = application.ended().await;
    if !application.has_said("settled") {
        trial.violated(format!("{how:?} has not settled it: {:?} {}", application.lines(), application.errors()));
    }
    trial.heard(&application, Some(status));
}

/// Runs a script until it is killed: whether it came as far as that.
pub async fn killed(ground: &Ground, case: &Case) -> (Trial, bool) {
    let mut trial = case.trial(ground);
    let mut application = ground.start(&trial.life);
    application.tell(&format!("{}{}", case.stop.armed("abort"), case.script.told(trial.life.first_key))).await;
    application.hang_up();
    let status = application.ended().await;
    trial.heard(&application, Some(status));
    let stopped = is_stopped(status);
    if !stopped {
        // It went another way this time, and what it was told counts all the same.
        trial.expected = None;
    }
    (trial, stopped)
}

/// All of it: the points at which a process was really stopped.
pub async fn all(ground: &Ground) -> BTreeSet<Point> {
    let tally = ground.tally("the application is killed");
    let cases = chosen(cases(ground, SCRIPTS.iter()).await, 2, |case| (case.stop.place.point, case.opening));
    let reached = std::sync::Mutex::new(BTreeSet::new());
    let ways = [Recovery::Resolver, Recovery::Bridge];
    let numbered: Vec<_> = cases.into_iter().zip(ways.into_iter().cycle()).collect();
    let tried = ground
        .all(
            numbered,
            |(case, how)| format!("{}, then {how:?}", case.name()),
            async |(case, how)| {
                let (mut trial, stopped) = killed(ground, &case).await;
                if stopped {
                    reached.lock().expect("nobody panics with it").insert(case.stop.place.point);
                } else {
                    println!("{}: not reached this time", case.name());
                }
                recover(ground, &mut trial, how).await;
                trial
            },
        )
        .await;
    ground.judge(&tally, tried).await;
    tally.finish();
    reached.into_inner().expect("nobody panics with it")
}
