//! Applying: sends what a plan says, and puts what was heard into the observation.

use super::{Progress, Resolver, View};
use crate::error::{Error, ErrorKind};
use crate::id::{BranchId, ParticipantName};
use crate::participant::{Answer, BoxFuture, Participant};
use crate::protocol::recovery::{Action, BranchPlan, Evidence, Plan};
use crate::protocol::{Finish, Resolution};
use crate::torture::{self, Request};
use futures_util::future::join_all;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Who hears how a pass gets on.
pub(super) type Hears<'a> = &'a (dyn Fn(Progress<'_>) + Sync);

impl Resolver {
    /// Sends what the plan says: each participant's in order, all participants at once.
    pub(super) async fn apply(&self, plan: &Plan, view: &mut View, progress: Hears<'_>) {
        let mut work: BTreeMap<ParticipantName, Vec<&BranchPlan>> = BTreeMap::new();
        for branch in plan.work() {
            work.entry(branch.participant).or_default().push(branch);
        }
        progress(Progress::Planned(work.values().map(Vec::len).sum()));
        let sent = work.into_iter().map(|(name, branches)| -> BoxFuture<'_, _> {
            let participant = self.participant(name).expect("only scanned participants get work");
            Box::pin(async move { (name, send(&**participant, &branches, progress).await) })
        });
        for (name, heard) in join_all(sent).await {
            for (id, heard) in heard {
                match heard {
                    Heard::Committed => view.observation.committed(id),
                    Heard::RolledBack => view.observation.rolled_back(id),
                    Heard::Evidence(evidence) => view.observation.heard(id, evidence),
                    Heard::Refused(cause) => view.observation.unclear(id, cause),
                    Heard::Lost(cause) => view.observation.lost_sight(name, cause),
                }
            }
        }
    }
}

/// What came of one branch's action.
enum Heard {
    Committed,
    RolledBack,
    Evidence(Evidence),
    /// Nothing certain about this branch, from a participant that answers.
    Refused(String),
    /// Nothing certain: its participant is to be scanned again.
    Lost(String),
}

impl Heard {
    fn nothing(cause: &Error) -> Self {
        if cause.kind() == ErrorKind::Unavailable { Self::Lost(cause.chain()) } else { Self::Refused(cause.chain()) }
    }

    fn finished(answer: Answer<Finish>, good: Self) -> Self {
        match answer.value {
            Finish::Done => good,
            Finish::RolledBack | Finish::Lost | Finish::Unknown => answer
                .cause
                .map_or_else(|| Self::Refused(String::from("no positive answer")), |cause| Self::nothing(&cause)),
        }
    }
}

/// Finishes what is to be finished, then asks what is to be asked. When the participant is lost, the rest is not sent:
/// it would wait as long for nothing, and all other participants with it.
async fn send(participant: &dyn Participant, branches: &[&BranchPlan], progress: Hears<'_>) -> Vec<(BranchId, Heard)> {
    let (mut ends, mut asks) = (Vec::new(), Vec::new());
    for branch in branches {
        match branch.action {
            Action::Commit => ends.push((*branch, Resolution::Commit)),
            Action::RollBack => ends.push((*branch, Resolution::RollBack)),
            Action::Ask => asks.push(*branch),
            other => unreachable!("{other:?} sends nothing"),
        }
    }
    let mut heard = finish(participant, &ends, progress).await;
    for branch in asks {
        if matches!(heard.last(), Some((_, Heard::Lost(_)))) {
            break;
        }
        let answer = match torture::request(
            Request::Fence,
            participant.name(),
            Resolver::fence(participant, &branch.id),
        )
        .await
        {
            Ok(found) => Heard::Evidence(found.into()),
            Err(error) => Heard::nothing(&error),
        };
        progress(Progress::Done(branch));
        heard.push((branch.id, answer));
    }
    heard
}

async fn finish(
    participant: &dyn Participant,
    ends: &[(&BranchPlan, Resolution)],
    progress: Hears<'_>,
) -> Vec<(BranchId, Heard)> {
    let heard = Mutex::new(Vec::with_capacity(ends.len()));
    let work: Vec<_> = ends.iter().map(|(branch, resolution)| (branch.id, *resolution)).collect();
    let hear = |place: usize, answer: Answer<Finish>| {
        let (branch, resolution) = ends[place];
        let good = match resolution {
            Resolution::Commit => Heard::Committed,
            Resolution::RollBack => Heard::RolledBack,
        };
        progress(Progress::Done(branch));
        heard.lock().unwrap_or_else(PoisonError::into_inner).push((branch.id, Heard::finished(answer, good)));
    };
    if !work.is_empty() {
        torture::request(Request::Finish, participant.name(), participant.finish_all(&work, &hear)).await;
    }
    heard.into_inner().unwrap_or_else(PoisonError::into_inner)
}
