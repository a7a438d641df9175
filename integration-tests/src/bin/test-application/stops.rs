//! Where this process is to stop.

#[cfg(feature = "torture")]
pub use armed::{arm, passed, release, tell};

#[cfg(feature = "torture")]
mod armed {
    use crate::{GLANCE, say};
    use handfast::id::ParticipantName;
    use handfast::torture::{self, Action, Gate, Point, Stop};
    use integration_tests::world::PATIENCE;
    use std::sync::{Arc, Mutex, PoisonError};
    use tokio::runtime::Handle;
    use tokio::time::{Instant, sleep};

    static GATES: Mutex<Vec<Arc<Gate>>> = Mutex::new(Vec::new());

    fn side(text: &str) -> Option<ParticipantName> {
        (text != "-").then(|| text.parse().expect("a participant"))
    }

    /// `POINT SIDE NTH ACTION`
    pub fn arm(stop: &str, runtime: &Handle) {
        let words: Vec<&str> = stop.split(' ').collect();
        let [point, at, nth, action] = words.as_slice() else { panic!("what is {stop:?}?") };
        let action = match *action {
            "abort" => Action::Abort,
            "freeze" => Action::Freeze,
            "panic" => Action::Panic,
            other => panic!("what is {other:?}?"),
        };
        let point: Point = point.parse().unwrap_or_else(|error| panic!("{error}"));
        let nth = nth.parse().expect("a number");
        let gate = torture::arm(Stop { point, at: side(at), nth, action });
        GATES.lock().unwrap_or_else(PoisonError::into_inner).push(gate.clone());
        let runtime = runtime.clone();
        std::thread::spawn(move || {
            runtime.block_on(gate.reached());
            say(&format!("reached {point}"));
        });
    }

    pub fn release() {
        GATES.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|gate| gate.open());
    }

    /// Waits until a point was passed.
    pub async fn passed(point: &str, at: &str) {
        let place = (point.parse().unwrap_or_else(|error: String| panic!("{error}")), side(at));
        let deadline = Instant::now() + PATIENCE;
        while !torture::arrived().contains_key(&place) {
            assert!(Instant::now() < deadline, "nobody came to {point}");
            sleep(GLANCE).await;
        }
    }

    pub fn tell() {
        for ((point, at), times) in torture::arrived() {
            say(&format!("arrived {point} {} {times}", at.map_or_else(|| "-".into(), |at| at.to_string())));
        }
    }
}

#[cfg(not(feature = "torture"))]
mod unarmed {
    const MISSING: &str = "this was built without the feature `torture`";

    pub fn arm(_: &str, _: &tokio::runtime::Handle) {
        panic!("{MISSING}");
    }

    pub fn release() {}

    pub async fn passed(_: &str, _: &str) {
        panic!("{MISSING}");
    }

    pub fn tell() {}
}
#[cfg(not(feature = "torture"))]
pub use unarmed::{arm, passed, release, tell};
