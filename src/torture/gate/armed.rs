//! What is armed, and who stands at it.

use super::{ParticipantName, Point};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// What happens at a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The process ends at once, as by `kill -9`: nothing is flushed, nobody is told.
    Abort,
    /// It waits there until its gate is opened. Whoever waits for its future may drop that meanwhile.
    Freeze,
    /// The task there panics.
    Panic,
}

/// Where to stop, and how.
#[derive(Debug, Clone, Copy)]
pub struct Stop {
    /// The point.
    pub point: Point,
    /// Only there; any participant without it.
    pub at: Option<ParticipantName>,
    /// The first time it is passed is 1.
    pub nth: u32,
    /// What happens.
    pub action: Action,
}

/// A stop that was armed.
#[derive(Debug)]
pub struct Gate {
    stop: Stop,
    state: Mutex<State>,
    changed: Condvar,
    notify: Notify,
}

/// A point, and whose request it is.
pub type Place = (Point, Option<ParticipantName>);

#[derive(Debug, Default)]
struct State {
    passed: u32,
    reached: bool,
    open: bool,
}

static ANY: AtomicBool = AtomicBool::new(false);
static GATES: Mutex<Vec<Arc<Gate>>> = Mutex::new(Vec::new());
static ARRIVED: Mutex<BTreeMap<Place, u64>> = Mutex::new(BTreeMap::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Arms a stop. From the first one on, what is passed is counted.
pub fn arm(stop: Stop) -> Arc<Gate> {
    let gate = Gate { stop, state: Mutex::default(), changed: Condvar::new(), notify: Notify::new() };
    let gate = Arc::new(gate);
    lock(&GATES).push(gate.clone());
    ANY.store(true, Ordering::SeqCst);
    gate
}

/// How often each place was passed or stopped at.
pub fn arrived() -> BTreeMap<Place, u64> {
    lock(&ARRIVED).clone()
}

impl Gate {
    /// Waits until somebody stands at it.
    pub async fn reached(&self) {
        self.wait_for(|state| state.reached).await;
    }

    /// Lets through whoever stands at it.
    pub fn open(&self) {
        lock(&self.state).open = true;
        self.tell();
    }

    fn tell(&self) {
        self.changed.notify_all();
        self.notify.notify_waiters();
    }

    async fn wait_for(&self, true_of: fn(&State) -> bool) {
        loop {
            let told = self.notify.notified();
            tokio::pin!(told);
            told.as_mut().enable();
            if true_of(&lock(&self.state)) {
                return;
            }
            told.await;
        }
    }

    /// Whether it stops who comes along now.
    fn stops(&self, point: Point, at: Option<ParticipantName>) -> bool {
        if self.stop.point != point || self.stop.at.is_some_and(|only| Some(only) != at) {
            return false;
        }
        let mut state = lock(&self.state);
        state.passed += 1;
        state.reached |= state.passed == self.stop.nth;
        state.passed == self.stop.nth
    }

    /// Does what is armed, but for freezing.
    fn act(&self) {
        match self.stop.action {
            Action::Abort => std::process::abort(),
            Action::Panic => {
                self.tell();
                panic!("armed at {}", self.stop.point);
            }
            Action::Freeze => self.tell(),
        }
    }
}

pub fn is_any_armed() -> bool {
    ANY.load(Ordering::Relaxed)
}

fn arrive(point: Point, at: Option<ParticipantName>) -> Option<Arc<Gate>> {
    if !is_any_armed() {
        return None;
    }
    *lock(&ARRIVED).entry((point, at)).or_default() += 1;
    let gates = lock(&GATES).clone();
    gates.into_iter().find(|gate| gate.stops(point, at))
}

pub async fn pass(point: Point, at: Option<ParticipantName>) {
    if let Some(gate) = arrive(point, at) {
        gate.act();
        gate.wait_for(|state| state.open).await;
    }
}

pub fn pass_blocking(point: Point) {
    if let Some(gate) = arrive(point, None) {
        gate.act();
        let state = lock(&gate.state);
        let open = gate.changed.wait_while(state, |state| !state.open);
        drop(open.unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Moment, Request, Step};
    use super::*;

    #[tokio::test]
    async fn it_stops_who_comes_as_the_nth_to_its_participant_and_nobody_else() {
        let ledger: ParticipantName = "gate_here".parse().unwrap();
        let other: ParticipantName = "gate_there".parse().unwrap();
        let point = Point::Request(Request::Hold, Moment::Sent);
        let gate = arm(Stop { point, at: Some(ledger), nth: 2, action: Action::Freeze });
        pass(point, Some(other)).await;
        pass(point, Some(ledger)).await;
        let stopped = tokio::spawn(pass(point, Some(ledger)));
        gate.reached().await;
        assert!(!stopped.is_finished());
        gate.open();
        stopped.await.unwrap();
        pass(point, Some(ledger)).await;
        assert_eq!((arrived()[&(point, Some(ledger))], arrived()[&(point, Some(other))]), (3, 1));
    }

    #[tokio::test]
    async fn it_stops_a_thread() {
        let point = Point::Step(Step::Compacted);
        let gate = arm(Stop { point, at: None, nth: 1, action: Action::Freeze });
        let stopped = std::thread::spawn(move || pass_blocking(point));
        gate.reached().await;
        assert!(!stopped.is_finished());
        gate.open();
        stopped.join().unwrap();
    }
}
