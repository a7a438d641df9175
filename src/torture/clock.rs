//! A wall clock that jumps.

use std::time::SystemTime;
#[cfg(feature = "torture")]
use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

#[cfg(feature = "torture")]
static SHIFT: AtomicI64 = AtomicI64::new(0);

/// The wall clock of this process is so many seconds ahead from now on, or behind.
#[cfg(feature = "torture")]
pub fn shift_clock(seconds: i64) {
    SHIFT.store(seconds, Ordering::SeqCst);
}

/// What the clock shows: the truth, without the feature.
#[inline]
pub(crate) fn shifted(now: SystemTime) -> SystemTime {
    #[cfg(feature = "torture")]
    {
        let shift = SHIFT.load(Ordering::Relaxed);
        let by = Duration::from_secs(shift.unsigned_abs());
        let moved = if shift < 0 { now.checked_sub(by) } else { now.checked_add(by) };
        moved.unwrap_or(now)
    }
    #[cfg(not(feature = "torture"))]
    now
}
