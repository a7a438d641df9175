//! The task that commits panics, at every point of it: the transaction is in doubt, the resolver finds out what became
//! of it, and the bridge goes on.

use crate::application::{Case, Recovery, cases, recover};
use crate::ground::Ground;
use crate::reach::{self, Place, Stop};
use crate::script::{Kind, named, short};
use crate::trial::Trial;
use handfast::Outcome;
use handfast::torture::{Point, Request, Step};
use integration_tests::torture::chosen;
use integration_tests::world::eventually;

/// Whether the task that ends a transaction comes there.
fn is_of_the_pump(case: &Case) -> bool {
    use Request::{Commit, CommitAnchor, CommitOnePhase, EndReadOnly, Prepare, RollBack};
    use Step::{Answer, Append, Appended, Ending, Note};
    !case.opening
        && match case.stop.place.point {
            Point::Request(what, _) => {
                [Prepare, EndReadOnly, CommitAnchor, CommitOnePhase, Commit, RollBack].contains(&what)
            }
            Point::Step(step) => [Ending, Append, Appended, Answer, Note].contains(&step),
        }
}

async fn panicked(ground: &Ground, case: Case) -> Trial {
    let mut trial = case.trial(ground);
    let mut application = ground.start(&trial.life);
    let other = ground.life(1).first_key;
    let told = case.script.told(trial.life.first_key);
    application.tell(&format!("{}{told}", case.stop.armed("panic"))).await;
    application.tell(&format!("write {other} ledger orders\ncommit\nwait")).await;
    application.hang_up();
    let status = application.ended().await;
    trial.heard(&application, Some(status));
    let said = application.transactions();
    if said.get(&other).and_then(|said| said.answer) != Some(Outcome::Committed) {
        trial.violated(format!("the bridge does not go on: {:?} {}", application.lines(), application.errors()));
    }
    let answer = said.get(&trial.life.first_key).and_then(|said| said.answer);
    // A rollback was certain before it began; what was noted was answered before.
    let was_told = matches!(case.stop.place.point, Point::Step(Step::Note)) || case.script.kind == Kind::Abort;
    if application.has_said("reached") && !was_told && answer != Some(Outcome::InDoubt) {
        trial.violated(format!("it was answered {answer:?}"));
    }
    recover(ground, &mut trial, Recovery::Resolver).await;
    trial
}

/// All of it.
pub async fn all(ground: &Ground) {
    let tally = ground.tally("the task that commits panics");
    let cases = cases(ground, short()).await.into_iter().filter(is_of_the_pump).collect();
    let cases = chosen(cases, 1, |case: &Case| case.stop.place.point);
    let tried = ground.all(cases, Case::name, async |case| panicked(ground, case).await).await;
    ground.judge(&tally, tried).await;
    tally.finish();
}

/// What keeps the leases, and the tables small, panics: it begins anew, and comes to the same point again.
pub async fn upkeep(ground: &Ground) {
    let tally = ground.tally("upkeep panics");
    let places =
        [("hold.before", "ledger"), ("hold.answered", "orders"), ("prune.before", "orders"), ("prune.sent", "ledger")];
    let tried = ground.all(
        places.to_vec(),
        |place| format!("{place:?}"),
        async |(point, side)| begins_anew(ground, point, side).await,
    );
    ground.judge(&tally, tried.await).await;
    tally.finish();
}

async fn begins_anew(ground: &Ground, point: &str, side: &str) -> Trial {
    let mut trial = ground.trial(format!("{point} at {side}"), named("commit"));
    let place = Place { point: point.parse().expect("a point"), side: side.to_owned() };
    let (opening, _) = reach::of_script(ground, trial.script).await;
    let first = opening.get(&place).map_or(1, |times| times + 1);
    // Whom the one stops, the other does not count.
    let [panics, again] =
        [(first, "panic"), (first, "freeze")].map(|(nth, action)| Stop { place: place.clone(), nth }.armed(action));
    let mut application = ground.start(&trial.life);
    application.tell(&format!("{panics}{again}{}", trial.script.told(trial.life.first_key))).await;
    let times = || application.lines().iter().filter(|line| line.starts_with("reached")).count();
    eventually("it comes there again", async || times() == 2).await;
    application.tell("release").await;
    application.hang_up();
    let status = application.ended().await;
    trial.heard(&application, Some(status));
    trial
}
