//! Stopping: what is armed at a point, and what happens there.

use super::Point;
use crate::id::ParticipantName;
#[cfg(feature = "torture")]
pub(super) use armed::is_any_armed;
#[cfg(feature = "torture")]
pub use armed::{Action, Gate, Place, Stop, arm, arrived};

/// Stops here where that was armed.
#[inline]
pub(crate) async fn pass(point: Point, at: Option<ParticipantName>) {
    #[cfg(feature = "torture")]
    armed::pass(point, at).await;
    #[cfg(not(feature = "torture"))]
    let _ = (point, at);
}

/// The same on a thread that may block.
#[inline]
pub(crate) fn pass_blocking(point: Point) {
    #[cfg(feature = "torture")]
    armed::pass_blocking(point);
    #[cfg(not(feature = "torture"))]
    let _ = point;
}

#[cfg(feature = "torture")]
mod armed;
