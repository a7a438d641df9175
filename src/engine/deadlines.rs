//! The deadlines of all open transactions, kept by one task: a task and a timer for each of them would cost every
//! transaction more than the few cost that come to theirs.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

/// What has a deadline.
pub(crate) trait Overdue: Send + Sync {
    /// It has passed. Must not block.
    fn expire(self: Arc<Self>);
}

/// All that have one, and the task that waits for them, which ends with this.
pub(crate) struct Deadlines {
    shared: Arc<Shared>,
    keeper: AbortHandle,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    earlier: Notify,
}

#[derive(Default)]
struct State {
    open: BTreeMap<(Instant, u64), Weak<dyn Overdue>>,
    /// When the keeper looks again without being told. Never later than the first deadline.
    looks_at: Option<Instant>,
}

impl Deadlines {
    /// None yet; they are kept on that runtime.
    pub fn new(runtime: &Handle) -> Self {
        let shared = Arc::new(Shared::default());
        let keeper = runtime.spawn(keep(shared.clone())).abort_handle();
        Self { shared, keeper }
    }

    /// One more, under a number of its own.
    pub fn add(&self, at: Instant, number: u64, overdue: Weak<dyn Overdue>) {
        let mut state = self.shared.state();
        state.open.insert((at, number), overdue);
        // Most come later than those before them: the keeper is seldom woken.
        let is_earlier = state.looks_at.is_none_or(|looks_at| at < looks_at);
        if is_earlier {
            state.looks_at = Some(at);
        }
        drop(state);
        if is_earlier {
            self.shared.earlier.notify_one();
        }
    }

    /// It has ended in time, or is ending.
    pub fn remove(&self, at: Instant, number: u64) {
        self.shared.state().open.remove(&(at, number));
    }
}

impl Drop for Deadlines {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // What is done under the lock is one step each.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what is overdue, and tells when to look again.
    fn due(&self, now: Instant) -> (Vec<Weak<dyn Overdue>>, Option<Instant>) {
        let mut state = self.state();
        let mut due = Vec::new();
        while let Some(first) = state.open.first_entry().filter(|first| first.key().0 <= now) {
            due.push(first.remove());
        }
        state.looks_at = state.open.keys().next().map(|(at, _)| *at);
        (due, state.looks_at)
    }
}

async fn keep(shared: Arc<Shared>) {
    loop {
        let (due, looks_at) = shared.due(Instant::now());
        for overdue in due.iter().filter_map(Weak::upgrade) {
            // A bug that one of them meets is not the others' end.
            if catch_unwind(AssertUnwindSafe(|| overdue.expire())).is_err() {
                tracing::error!("a transaction could not be ended at its deadline: this is a bug");
            }
        }
        match looks_at {
            None => shared.earlier.notified().await,
            Some(at) => {
                tokio::select! {
                    () = shared.earlier.notified() => {}
                    () = sleep_until(at) => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::sync::mpsc;

    struct Told(u64, mpsc::UnboundedSender<u64>);

    impl Overdue for Told {
        fn expire(self: Arc<Self>) {
            self.1.send(self.0).unwrap();
            assert_ne!(self.0, 7, "the one with the bug");
        }
    }

    /// Adds one that is due so many milliseconds after the beginning.
    fn add(
        deadlines: &Deadlines,
        began: Instant,
        number: u64,
        millis: u64,
        to: &mpsc::UnboundedSender<u64>,
    ) -> Arc<Told> {
        let told = Arc::new(Told(number, to.clone()));
        let overdue: Arc<dyn Overdue> = told.clone();
        deadlines.add(began + Duration::from_millis(millis), number, Arc::downgrade(&overdue));
        told
    }

    #[tokio::test(start_paused = true)]
    async fn each_is_told_at_its_own_time_whoever_came_first() {
        let deadlines = Deadlines::new(&Handle::current());
        let (to, mut told) = mpsc::unbounded_channel();
        let began = Instant::now();
        let _late = add(&deadlines, began, 1, 300, &to);
        tokio::task::yield_now().await;
        let _bug = add(&deadlines, began, 7, 50, &to);
        let _early = add(&deadlines, began, 2, 100, &to);
        let _same = add(&deadlines, began, 3, 100, &to);
        let _removed = add(&deadlines, began, 4, 200, &to);
        deadlines.remove(began + Duration::from_millis(200), 4);
        drop(add(&deadlines, began, 5, 250, &to));
        for (number, millis) in [(7, 50), (2, 100), (3, 100), (1, 300)] {
            assert_eq!(told.recv().await, Some(number));
            assert_eq!(began.elapsed().as_millis(), millis);
        }
        // After a time without any, too.
        let _last = add(&deadlines, began, 6, 400, &to);
        assert_eq!(told.recv().await, Some(6));
        assert_eq!(began.elapsed().as_millis(), 400);
    }

    #[tokio::test]
    async fn the_task_ends_with_them() {
        let deadlines = Deadlines::new(&Handle::current());
        let shared = Arc::downgrade(&deadlines.shared);
        drop(deadlines);
        while shared.strong_count() > 0 {
            tokio::task::yield_now().await;
        }
    }
}
