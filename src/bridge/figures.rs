//! How things stand, for whoever scrapes: as of the resolver's last pass, told again and again.

use crate::engine::Engine;
use crate::participant::BoxFuture;
use crate::resolver::Status;
use crate::telemetry::{Gauges, names};
use futures_util::future::join_all;

/// Tells it for ever, as often as the leases are looked after.
pub(super) fn keep(engine: &Engine) -> BoxFuture<'_, ()> {
    Box::pin(async move {
        let gauges = Gauges::of(engine.registration.node);
        loop {
            tell(&gauges, &Status::of(engine));
            join_all(engine.members.iter().map(|member| async {
                // One that does not answer is told as unreachable; how much room it has is then not known.
                let room = member.participant.room();
                if let Ok(Ok(Some(free))) = tokio::time::timeout(engine.recovery.statement_timeout, room).await {
                    gauges.set_at(names::PREPARED_ROOM, member.name, free as f64);
                }
            }))
            .await;
            tokio::time::sleep(engine.recovery.lease_interval).await;
        }
    })
}

/// What a status says.
fn tell(gauges: &Gauges, status: &Status) {
    gauges.set(names::RUNNING, status.running as f64);
    gauges.set(names::IN_DOUBT, status.in_doubt as f64);
    gauges.set(names::OLDEST_IN_DOUBT, status.oldest_in_doubt.unwrap_or_default().as_secs_f64());
    gauges.set(names::DAMAGED, status.damaged as f64);
    gauges.set(names::UNSETTLED, status.unsettled as f64);
    gauges.set(names::JOURNAL_FAILED, if status.journal_failed.is_some() { 1.0 } else { 0.0 });
    for participant in &status.participants {
        gauges.set_at(names::REACHABLE, participant.name, if participant.reachable { 1.0 } else { 0.0 });
    }
}
