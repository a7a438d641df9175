//! What is going on, for people and health checks: as of the resolver's last pass.

use crate::engine::{Engine, Standing};
use crate::id::{ParticipantName, TransactionId};
use std::time::{Duration, Instant};

/// What a bridge has to say about itself, from [`Bridge::status`](crate::Bridge::status).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// Transactions at work.
    pub running: usize,
    /// Transactions whose outcome, or whose application on some participant, is not settled yet.
    pub in_doubt: usize,
    /// How long the oldest of them has been known to be.
    pub oldest_in_doubt: Option<Duration>,
    /// Transactions that a person has to look at.
    pub damaged: usize,
    /// Earlier incarnations of this journal of which something may still move: each is found out about in the background
    /// as soon as all of its participants can be reached.
    pub unsettled: usize,
    /// Why the journal takes no more decisions, if it does not.
    pub journal_failed: Option<String>,
    /// The participants, by name.
    pub participants: Vec<ParticipantStatus>,
}

/// A participant in a [`Status`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ParticipantStatus {
    /// Its configured name.
    pub name: ParticipantName,
    /// Its kind: `postgres`, `mysql`, `mariadb`.
    pub kind: &'static str,
    /// Whether it may be used, its lease is held, and it answered the resolver's last pass.
    pub reachable: bool,
    /// Why not.
    pub cause: Option<String>,
}

impl Status {
    pub(crate) fn of(engine: &Engine) -> Self {
        // First: what ends in doubt meanwhile is counted twice rather than not at all.
        let running = engine.live.running().len();
        let last = engine.found.last();
        let mut in_doubt = last.in_doubt.clone();
        // What ended since the last pass.
        for (sequence, since) in engine.live.in_doubt() {
            in_doubt.entry(engine.id(sequence)).or_insert(since);
        }
        let mut damaged = last.damaged.clone();
        damaged.extend(engine.live.damaged().into_iter().map(|sequence| engine.id(sequence)));
        engine.journal.image(|image| damaged.extend(image.audit().damaged().map(|record| record.transaction)));
        for id in left_decisions(engine).filter(|id| !damaged.contains(id)) {
            in_doubt.entry(id).or_insert_with(Instant::now);
        }
        let participants = engine.members.iter().map(|member| {
            let unready = member.trouble().map(|(_, cause)| cause.to_string());
            let lost = member.lease_lost().map(|(_, cause)| cause);
            let cause = unready.or(lost).or_else(|| last.unscanned.get(&member.name).cloned());
            ParticipantStatus { name: member.name, kind: member.participant.kind(), reachable: cause.is_none(), cause }
        });
        Self {
            running,
            in_doubt: in_doubt.len(),
            oldest_in_doubt: in_doubt.values().min().map(Instant::elapsed),
            damaged: damaged.len(),
            unsettled: engine.journal.unsettled().len(),
            journal_failed: engine.journal.is_poisoned(),
            participants: participants.collect(),
        }
    }
}

/// Decisions that are not carried out everywhere and whose coordinators have ended.
fn left_decisions(engine: &Engine) -> impl Iterator<Item = TransactionId> {
    let open: Vec<_> =
        engine.journal.image(|image| image.open_decisions().map(|decision| decision.transaction).collect());
    // Looked at again, since one that is not live any more may have been done before it ended.
    open.into_iter().filter(|id| {
        let is_live = engine.id(id.sequence) == *id && engine.live.standing(id.sequence) == Standing::Running;
        !is_live && engine.journal.image(|image| image.open_decision(*id).is_some())
    })
}
