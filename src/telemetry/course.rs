//! The course of one transaction: its span, a span for each phase, and events where an operator is needed.

use super::Timer;
use crate::error::Error;
use crate::id::{ParticipantName, TransactionId};
use crate::protocol::{Outcome, Output};
use std::fmt;
use tracing::field::{self, Empty};
use tracing::{Span, debug_span};

/// A part of a transaction's life. All branches go through one at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// A branch begins, waiting for a session included.
    Begin,
    /// Phase one.
    Prepare,
    /// The decision becomes durable.
    Decide,
    /// Phase two.
    Apply,
    /// Both phases at once, of the only writer.
    Alone,
    /// The end of what does not commit.
    RollBack,
}

impl Phase {
    /// Its name as a label.
    #[cfg(feature = "metrics")]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Begin => "begin",
            Self::Prepare => "prepare",
            Self::Decide => "decide",
            Self::Apply => "apply",
            Self::Alone => "one_phase",
            Self::RollBack => "roll_back",
        }
    }

    /// The phase to which a request of a coordinator belongs.
    fn of(output: &Output) -> Option<Self> {
        match output {
            Output::Prepare(_) | Output::EndReadOnly(_) => Some(Self::Prepare),
            Output::Append(_) | Output::CommitAnchor(..) => Some(Self::Decide),
            Output::Commit(_) => Some(Self::Apply),
            Output::CommitOnePhase(_) => Some(Self::Alone),
            Output::RollBack(_) => Some(Self::RollBack),
            _ => None,
        }
    }

    /// A span of it, with the participant where it is about one.
    pub fn span(self, parent: &Span, participant: Option<ParticipantName>) -> Span {
        let participant = participant.map(field::display);
        match self {
            Self::Begin => debug_span!(target: TARGET, parent: parent, "begin", participant),
            Self::Prepare => debug_span!(target: TARGET, parent: parent, "prepare", participant),
            Self::Decide => debug_span!(target: TARGET, parent: parent, "decide", participant),
            Self::Apply => debug_span!(target: TARGET, parent: parent, "apply", participant),
            Self::Alone => debug_span!(target: TARGET, parent: parent, "one_phase", participant),
            Self::RollBack => debug_span!(target: TARGET, parent: parent, "roll_back", participant),
        }
    }
}

/// What filters know all of this by.
const TARGET: &str = "handfast::transaction";

/// The span of a transaction, a child of the span that its application is in when it begins.
pub(crate) fn span(id: TransactionId) -> Span {
    tracing::info_span!(target: TARGET, "transaction", %id, branches = Empty, outcome = Empty, pending = Empty, cause = Empty)
}

/// Where a transaction is on its way to its end.
pub(crate) struct Course {
    id: TransactionId,
    span: Span,
    phase: Option<(Phase, Span, Timer)>,
}

impl Course {
    /// Of a transaction that ends now.
    pub fn new(id: TransactionId, span: Span, branches: impl Iterator<Item = ParticipantName>) -> Self {
        if !span.is_disabled() {
            span.record("branches", List(branches.collect()).to_string());
        }
        Self { id, span, phase: None }
    }

    /// Enters the phase of what is asked for next, where it is another.
    pub fn enter(&mut self, output: &Output) {
        let Some(next) = Phase::of(output) else { return };
        if self.phase.as_ref().is_none_or(|(phase, ..)| *phase != next) {
            self.leave();
            self.phase = Some((next, next.span(&self.span, None), Timer::start()));
        }
    }

    /// The present phase is over.
    pub fn leave(&mut self) {
        if let Some((phase, _, timer)) = self.phase.take() {
            super::phase(phase, timer);
        }
    }

    /// The span of what is asked of a participant, or of the journal.
    pub fn request(&self, participant: Option<ParticipantName>) -> Span {
        match (&self.phase, participant) {
            (None, _) => self.span.clone(),
            (Some((_, span, _)), None) => span.clone(),
            (Some((phase, span, _)), _) => phase.span(span, participant),
        }
    }

    /// Its outcome is certain, whether or not anybody waits for it.
    pub fn certain(&self, outcome: Outcome) {
        if !self.span.is_disabled() {
            self.span.record("outcome", outcome.as_str());
        }
    }

    /// The application hears how it ended.
    pub fn answered(&self, outcome: Outcome, cause: Option<&Error>, pending: &[ParticipantName]) {
        let (span, id) = (&self.span, self.id);
        if !span.is_disabled() {
            if let Some(cause) = cause {
                span.record("cause", cause.chain());
            }
            if !pending.is_empty() {
                span.record("pending", List(pending.to_vec()).to_string());
            }
        }
        let cause = cause.map(|cause| field::display(Chain(cause)));
        match outcome {
            Outcome::Committed if pending.is_empty() => {}
            Outcome::Committed => {
                let pending = List(pending.to_vec());
                tracing::info!(target: TARGET, parent: span, %id, %pending, "committed, and not applied everywhere yet: that goes on in the background");
            }
            Outcome::RolledBack => tracing::debug!(target: TARGET, parent: span, %id, cause, "rolled back"),
            Outcome::InDoubt => {
                tracing::warn!(target: TARGET, parent: span, %id, cause, "in doubt: the resolver finds out, and `outcome` tells");
            }
            Outcome::Damaged => {
                tracing::error!(target: TARGET, parent: span, %id, cause, "damaged: a person is needed, `handfast explain` tells what happened");
            }
        }
    }
}

impl Drop for Course {
    fn drop(&mut self) {
        self.leave();
    }
}

/// An error with its causes, written only for those who read it.
struct Chain<'a>(&'a Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.chain())
    }
}

/// Participants, as one word.
struct List(Vec<ParticipantName>);

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, name) in self.0.iter().enumerate() {
            write!(f, "{}{name}", if place == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}
