//! The names of `journal::sync` as shuttle has them, over a clock that goes on when somebody waits for it.

use shuttle::sync;
pub use shuttle::thread::{Builder, JoinHandle};
use std::cell::Cell;
use std::ops::{Add, Deref, DerefMut};
use std::sync::{LockResult, PoisonError};
use std::time::Duration;

thread_local! {
    static CLOCK: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    /// A bug to be noticed: nobody is woken.
    static DEAF: Cell<bool> = const { Cell::new(false) };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(Duration);

impl Instant {
    pub fn now() -> Self {
        Self(CLOCK.get())
    }

    pub fn saturating_duration_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, wait: Duration) -> Self {
        Self(self.0 + wait)
    }
}

pub fn go_on(time: Duration) {
    CLOCK.set(CLOCK.get() + time);
}

/// From now on nobody is woken, or everybody again.
pub fn set_deaf(deaf: bool) {
    DEAF.set(deaf);
}

/// A mutex whose guard knows it, so that a condition's wait can be left.
#[derive(Debug)]
pub struct Mutex<T>(sync::Mutex<T>);

#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    guard: sync::MutexGuard<'a, T>,
}

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        self.guarded(self.0.lock())
    }

    fn guarded<'a>(&'a self, locked: LockResult<sync::MutexGuard<'a, T>>) -> LockResult<MutexGuard<'a, T>> {
        let guarded = |guard| MutexGuard { mutex: self, guard };
        locked.map(guarded).map_err(|poisoned| PoisonError::new(guarded(poisoned.into_inner())))
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

#[derive(Debug)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    pub fn new() -> Self {
        Self(sync::Condvar::new())
    }

    pub fn notify_one(&self) {
        if !DEAF.get() {
            self.0.notify_one();
        }
    }

    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        let MutexGuard { mutex, guard } = guard;
        mutex.guarded(self.0.wait(guard))
    }

    /// Others get their turn, or do not; then the time is over. That a wake-up may come earlier adds nothing: whoever
    /// waits looks at everything again.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        wait: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, bool)> {
        let mutex = guard.mutex;
        drop(guard);
        shuttle::thread::yield_now();
        go_on(wait);
        let timed_out = |guard| (guard, true);
        mutex.lock().map(timed_out).map_err(|poisoned| PoisonError::new(timed_out(poisoned.into_inner())))
    }
}
