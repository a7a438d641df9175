//! Recovery is killed, twice, and the third time settles it. And it panics.

use crate::application::{Case, Recovery, is_rotation, killed, recover};
use crate::ground::Ground;
use crate::reach::{self, COUNT, Passed, Place, Stop, is_upkeep};
use crate::script::named;
use crate::trial::{Trial, is_stopped};
use futures_util::future::join_all;
use handfast::torture::{Moment, Point, Request, Step};
use integration_tests::application::Application;
use integration_tests::torture::{Dice, chosen, seed};
use integration_tests::world::{LEDGER, ORDERS, other_than};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::process::ExitStatus;
use std::sync::Mutex;

/// What a killed application leaves: undecided, decided, partly committed, committed and not written down, by one
/// writer, half rolled back.
fn residues(ground: &Ground) -> Vec<Case> {
    use Moment::{Answered, Before, Sent};
    use Request::{Commit, CommitAnchor, CommitOnePhase, Prepare, RollBack};
    let at = |script, point, side: &str| Case {
        script: named(script),
        stop: Stop { place: Place { point, side: side.to_owned() }, nth: 1 },
        opening: false,
    };
    let request = |script, request, moment, side| at(script, Point::Request(request, moment), side);
    let mut residues = match ground.anchor {
        None => vec![
            request("commit", Prepare, Sent, LEDGER),
            request("commit", Prepare, Sent, ORDERS),
            at("commit", Point::Step(Step::Append), "-"),
            at("commit", Point::Step(Step::Appended), "-"),
            request("commit", Commit, Before, LEDGER),
            request("commit", Commit, Before, ORDERS),
        ],
        Some(anchor) => {
            let other = other_than(anchor);
            vec![
                request("commit", Prepare, Sent, other),
                request("commit", CommitAnchor, Before, anchor),
                request("commit", CommitAnchor, Sent, anchor),
                request("commit", CommitAnchor, Answered, anchor),
                request("commit", Commit, Before, other),
            ]
        }
    };
    residues.extend([
        at("commit", Point::Step(Step::Note), "-"),
        request("ledger alone", CommitOnePhase, Answered, LEDGER),
        request("orders alone", CommitOnePhase, Answered, ORDERS),
        request("rollback", RollBack, Sent, ORDERS),
    ]);
    residues
}

/// Whether it is decided that both commit, and nothing more was done: this one stands for all others where they are alike.
fn is_decided(residue: &Case) -> bool {
    use {Moment::Answered, Request::CommitAnchor};
    matches!(residue.stop.place.point, Point::Step(Step::Appended) | Point::Request(CommitAnchor, Answered))
}

/// How recovery is tried that is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    By(Recovery),
    /// A bridge that is open as long as it takes until it deletes what nobody needs any more.
    Upkeep,
}

impl Way {
    fn told(self) -> String {
        match self {
            Self::By(how) => how.told().to_owned(),
            Self::Upkeep => "open\nsettle\nuntil prune.answered ledger\nuntil prune.answered orders".into(),
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::By(how) => write!(f, "{how:?}"),
            Self::Upkeep => f.write_str("Upkeep"),
        }
    }
}

/// A residue, and where the first and the second recovery are killed.
struct Killed {
    residue: usize,
    way: Way,
    stops: [Stop; 2],
}

impl Killed {
    fn name(&self, residues: &[Case]) -> String {
        let [first, second] = &self.stops;
        format!("{}; {} killed at {first}, then at {second}", residues[self.residue].name(), self.way)
    }
}

/// One attempt to recover: the lines that come first decide how it ends.
async fn attempt(ground: &Ground, trial: &Trial, way: Way, first: &str) -> (Application, ExitStatus) {
    let mut application = ground.start(&trial.life);
    application.tell(&format!("{first}{}{}", trial.known(), way.told())).await;
    application.hang_up();
    let status = application.ended().await;
    (application, status)
}

/// What recovery passes after a residue.
async fn passed_after(ground: &Ground, residue: &Case, way: Way) -> Passed {
    let (trial, _) = killed(ground, residue).await;
    let (application, status) = attempt(ground, &trial, way, COUNT).await;
    assert!(status.success(), "{}: {:?} {}", residue.name(), application.lines(), application.errors());
    reach::counted(&application).1
}

/// What recovery passes, for each residue and way.
async fn passed(ground: &Ground, residues: &[Case]) -> BTreeMap<(usize, Way), Passed> {
    let ways = [Way::By(Recovery::Resolver), Way::By(Recovery::Bridge), Way::Upkeep];
    let pairs = residues.iter().enumerate().flat_map(|residue| ways.map(|way| (residue, way)));
    // What is deleted is alike after all of them.
    let some = pairs.filter(|((_, residue), way)| *way != Way::Upkeep || is_decided(residue));
    let passed = some.map(async |((number, residue), way)| ((number, way), passed_after(ground, residue, way).await));
    join_all(passed).await.into_iter().collect()
}

/// Whether opening comes there in the same state, whatever was left.
fn is_alike(point: Point) -> bool {
    is_rotation(point) || matches!(point, Point::Request(Request::Register | Request::Hold, _))
}

fn cases(residues: &[Case], passed: &BTreeMap<(usize, Way), Passed>) -> Vec<Killed> {
    let mut dice = Dice::new(seed());
    let mut cases = Vec::new();
    for ((residue, way), all) in passed {
        let stops = reach::stops(&Passed::new(), all);
        let wanted = |stop: &&Stop| {
            let point = stop.place.point;
            (*way == Way::Upkeep) == is_upkeep(point) && (is_decided(&residues[*residue]) || !is_alike(point))
        };
        for stop in stops.iter().filter(wanted) {
            let second = stops[dice.below(stops.len())].clone();
            cases.push(Killed { residue: *residue, way: *way, stops: [stop.clone(), second] });
        }
    }
    cases
}

/// All of it: the points at which a process was really stopped.
pub async fn all(ground: &Ground) -> BTreeSet<Point> {
    let tally = ground.tally("recovery is killed");
    let residues = residues(ground);
    let cases = cases(&residues, &passed(ground, &residues).await);
    let cases = chosen(cases, 1, |case| (case.stops[0].place.point, case.way));
    let reached = Mutex::new(BTreeSet::new());
    let residues = &residues;
    let run = async |case: Killed| {
        let (mut trial, _) = killed(ground, &residues[case.residue]).await;
        trial.name = case.name(residues);
        for stop in &case.stops {
            let (application, status) = attempt(ground, &trial, case.way, &stop.armed("abort")).await;
            trial.heard(&application, Some(status));
            if is_stopped(status) {
                reached.lock().expect("nobody panics with it").insert(stop.place.point);
            }
        }
        recover(ground, &mut trial, Recovery::Resolver).await;
        recover(ground, &mut trial, Recovery::Bridge).await;
        trial
    };
    let tried = ground.all(cases, |case| case.name(residues), run).await;
    ground.judge(&tally, tried).await;
    tally.finish();
    reached.into_inner().expect("nobody panics with it")
}

/// Whether a panic there is one of the thread that writes the journal: nothing goes on without that.
fn is_of_the_journal(point: Point) -> bool {
    is_rotation(point) || matches!(point, Point::Step(Step::Written | Step::Synced))
}

/// A pass of recovery panics: the next one begins anew. Where that was the opening itself, the next opening does.
pub async fn panics(ground: &Ground) {
    let tally = ground.tally("recovery panics");
    let way = Way::By(Recovery::Bridge);
    let residues = residues(ground);
    let passed = join_all(residues.iter().map(|residue| passed_after(ground, residue, way))).await;
    let cases = residues.iter().zip(&passed).flat_map(|(residue, passed)| {
        let stops = reach::stops(&Passed::new(), passed).into_iter();
        stops.filter(|stop| !is_of_the_journal(stop.place.point)).map(move |stop| (residue, stop))
    });
    let cases = chosen(cases.collect(), 1, |(_, stop)| stop.place.point);
    let name = |(residue, stop): &(&Case, Stop)| format!("{}; recovery panics at {stop}", residue.name());
    let run = async |(residue, stop): (&Case, Stop)| {
        let (mut trial, _) = killed(ground, residue).await;
        let (application, status) = attempt(ground, &trial, way, &stop.armed("panic")).await;
        trial.name = name(&(residue, stop));
        let was_open = application.has_said("open");
        // What an anchor has in place of the journal's thread is written by whoever closes the bridge, too.
        let was_closing = ground.anchor.is_some() && application.has_said("settled");
        trial.heard(&application, (was_open && !was_closing).then_some(status));
        if was_open && !application.has_said("settled") {
            trial.violated(format!("it has not gone on: {:?} {}", application.lines(), application.errors()));
        }
        recover(ground, &mut trial, Recovery::Resolver).await;
        trial
    };
    let tried = ground.all(cases, name, run).await;
    ground.judge(&tally, tried).await;
    tally.finish();
}
