//! Attacks from inside, for the tests: named points at which the process is stopped, and safeguards that are switched
//! off to see that the tests notice.
//!
//! Compiled in with the feature `torture` only. Without it every call here is nothing, and every safeguard is on. What
//! is armed counts for the whole process, so the tests run what they attack as a child process.

mod clock;
mod disk;
mod gate;
mod point;
mod safeguard;

#[cfg(feature = "torture")]
pub use clock::shift_clock;
pub use disk::DiskOperation;
#[cfg(feature = "torture")]
pub use disk::{Failing, Fault, FaultyDisk, watch_disk};
#[cfg(feature = "torture")]
pub use gate::{Action, Gate, Place, Stop, arm, arrived};
#[cfg(feature = "torture")]
pub use point::Moment;
pub use point::{Point, Request, Step};
pub use safeguard::Safeguard;
#[cfg(feature = "torture")]
pub use safeguard::switch_off;

pub(crate) use clock::shifted;
pub(crate) use disk::disk;
pub(crate) use gate::{pass, pass_blocking};
pub(crate) use safeguard::is_on;

use crate::id::ParticipantName;

/// Carries out a request to a server, and stops where that was armed: before it is sent, once it is on its way, and
/// when its answer is there.
#[cfg(feature = "torture")]
pub(crate) async fn request<T>(what: Request, of: ParticipantName, work: impl Future<Output = T>) -> T {
    if !gate::is_any_armed() {
        return work.await;
    }
    let at = |moment| pass(Point::Request(what, moment), Some(of));
    at(Moment::Before).await;
    let mut work = std::pin::pin!(work);
    // The drivers send in tasks of their own: they get their turn, and whatever the server has made of it is right.
    for _ in 0..TURNS {
        if let std::task::Poll::Ready(answer) = futures_util::poll!(work.as_mut()) {
            at(Moment::Sent).await;
            at(Moment::Answered).await;
            return answer;
        }
        tokio::task::yield_now().await;
    }
    at(Moment::Sent).await;
    let answer = work.await;
    at(Moment::Answered).await;
    answer
}

/// There is nowhere to stop: no future around the request that would be room for nothing.
#[cfg(not(feature = "torture"))]
pub(crate) fn request<T>(_: Request, _: ParticipantName, work: impl Future<Output = T>) -> impl Future<Output = T> {
    work
}

/// How often what was asked for is given a turn until it counts as sent.
#[cfg(feature = "torture")]
const TURNS: u32 = 8;
