//! What a resolver remembers: the journal of a running bridge, one opened for recovery, or one only read.

use crate::engine::{Engine, Standing};
use crate::id::{Incarnation, JournalId, Lineage, ParticipantName, TransactionId};
use crate::journal::{Image, Journal, Offline};
use crate::protocol::recovery::{Memory, Recalled};
use crate::protocol::{Absence, CommitRecord, DamageRecord, IncarnationRecord, Outcome};
use std::sync::Arc;

/// Where the memory is.
pub(super) enum Store {
    /// A running bridge's, with transactions at work.
    Live(Arc<Engine>),
    /// Opened for recovery: locked, so nothing is at work.
    Locked(Journal),
    /// Read beside whoever holds it; nothing may be changed.
    Offline(Box<Offline>),
}

impl Store {
    pub fn image<T>(&self, look: impl FnOnce(&Image) -> T) -> T {
        match self {
            Self::Live(engine) => engine.journal.image(look),
            Self::Locked(journal) => journal.image(look),
            Self::Offline(offline) => look(&offline.image),
        }
    }

    /// The journal's identity, where it could be read.
    pub fn id(&self) -> Option<JournalId> {
        match self {
            Self::Live(engine) => Some(engine.journal.id()),
            Self::Locked(journal) => Some(journal.id()),
            Self::Offline(offline) => offline.journal,
        }
    }

    /// The journal, where this resolver may write.
    pub fn journal(&self) -> Option<&Journal> {
        match self {
            Self::Live(engine) => Some(&engine.journal),
            Self::Locked(journal) => Some(journal),
            Self::Offline(_) => None,
        }
    }

    /// The earlier incarnations of which something may still move, where this resolver may write.
    pub fn unsettled(&self) -> Vec<IncarnationRecord> {
        self.journal().map(Journal::unsettled).unwrap_or_default()
    }

    /// The lineage that the journal knows a participant by.
    pub fn lineage(&self, participant: ParticipantName) -> Option<Lineage> {
        self.image(|image| image.participant(participant).map(|known| known.lineage))
    }

    /// What the running incarnation knows of one of its own transactions; `None` of any other.
    pub fn standing(&self, id: TransactionId) -> Option<Standing> {
        match self {
            Self::Live(engine) if engine.id(id.sequence) == id => Some(engine.live.standing(id.sequence)),
            _ => None,
        }
    }
}

/// What the records say of a transaction: what a person did first, since that was the last word.
fn recorded(image: &Image, id: TransactionId) -> Recalled {
    if image.audit().forgotten(id).is_some() {
        return Recalled::Forgotten;
    }
    if let Some((resolution, _)) = image.audit().resolved(id) {
        return Recalled::Resolved(resolution);
    }
    match image.open_decision(id) {
        Some(decision) => Recalled::Decided(decision.clone()),
        None if image.is_committed(id) => Recalled::Finished,
        None => Recalled::Nothing,
    }
}

impl Memory for Store {
    fn incarnation(&self, incarnation: Incarnation) -> Option<IncarnationRecord> {
        self.image(|image| image.incarnation(incarnation).cloned())
    }

    fn is_live(&self, id: TransactionId) -> bool {
        match self {
            Self::Live(_) => self.standing(id) == Some(Standing::Running),
            Self::Locked(_) => false,
            // Whoever holds the journal may be at work on anything of its incarnation.
            Self::Offline(offline) => offline.in_use && offline.latest_incarnation == Some(id.incarnation),
        }
    }

    fn recall(&self, id: TransactionId) -> Recalled {
        let undecided = matches!(self.standing(id), Some(Standing::Unsettled(Outcome::InDoubt)));
        let recalled = self.image(|image| recorded(image, id));
        if recalled == Recalled::Nothing && matches!(self, Self::Offline(offline) if offline.is_in_doubt(id)) {
            return Recalled::Unsure;
        }
        let failed = self.journal().is_some_and(|journal| journal.is_poisoned().is_some());
        // A failed journal may hold the decision that it could not confirm.
        if recalled == Recalled::Nothing && undecided && failed { Recalled::Unsure } else { recalled }
    }

    fn settled(&self, incarnation: Incarnation) -> Option<Absence> {
        self.image(|image| image.settled(incarnation))
    }

    fn open_decisions(&self) -> Vec<CommitRecord> {
        self.image(|image| image.open_decisions().cloned().collect())
    }

    fn damaged(&self) -> Vec<DamageRecord> {
        self.image(|image| image.audit().damaged().cloned().collect())
    }

    fn is_incomplete(&self, incarnation: Incarnation) -> bool {
        self.image(|image| image.audit().incomplete(incarnation).is_some())
    }

    fn is_given_up(&self, incarnation: Incarnation, participant: ParticipantName) -> bool {
        self.image(|image| image.audit().is_given_up(incarnation, participant))
    }
}
