//! What a resolver remembers: the journal of a running bridge, one opened for recovery, or one only read.

use crate::engine::{Engine, Standing};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Incarnation, JournalId, Lineage, ParticipantName, TransactionId};
use crate::journal::{Image, Journal, Offline};
use crate::protocol::recovery::{Memory, Recalled};
use crate::protocol::{Absence, CommitRecord, DamageRecord, IncarnationRecord, Outcome};
use crate::torture::{self, Safeguard};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Where the memory is.
pub(super) enum Store {
    /// A running bridge's, with transactions at work.
    Live(Arc<Engine>),
    /// Opened for recovery: locked, so nothing is at work.
    Locked(Journal),
    /// Read beside whoever holds it; nothing may be changed.
    Offline(Box<Offline>),
    /// An anchor's rows, read beside whoever works there; nothing may be changed.
    Read(Journal),
}

impl Store {
    pub fn image<T>(&self, look: impl FnOnce(&Image) -> T) -> T {
        match self {
            Self::Live(engine) => engine.journal.image(look),
            Self::Locked(journal) => journal.image(look),
            Self::Offline(offline) => look(&offline.image),
            Self::Read(journal) => journal.image(look),
        }
    }

    /// What is kept by an anchor, if it is.
    pub fn anchored(&self) -> Option<&Journal> {
        let journal = match self {
            Self::Live(engine) => &engine.journal,
            Self::Locked(journal) | Self::Read(journal) => journal,
            Self::Offline(_) => return None,
        };
        journal.is_on_anchor().then_some(journal)
    }

    /// Reads again what the anchor has, if one decides: what is remembered there is others' work, too.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn refresh(&self) -> Result<()> {
        let Some(journal) = self.anchored() else { return Ok(()) };
        let in_doubt = match self {
            Self::Live(engine) => engine.live.in_doubt().into_iter().map(|(sequence, _)| sequence).collect(),
            _ => BTreeSet::new(),
        };
        journal.refresh(&in_doubt).await?;
        match self {
            Self::Live(engine) if journal.image(|image| image.is_settled(journal.incarnation())) => {
                Err(engine.halt(taken_for_dead()))
            }
            _ => Ok(()),
        }
    }

    /// The journal's identity, where it could be read.
    pub fn id(&self) -> Option<JournalId> {
        match self {
            Self::Live(engine) => Some(engine.journal.id()),
            Self::Locked(journal) => Some(journal.id()),
            Self::Offline(offline) => offline.journal,
            Self::Read(journal) => Some(journal.id()),
        }
    }

    /// The journal, where this resolver may write.
    pub fn journal(&self) -> Option<&Journal> {
        match self {
            Self::Live(engine) => Some(&engine.journal),
            Self::Locked(journal) => Some(journal),
            Self::Offline(_) | Self::Read(_) => None,
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

impl Memory for Store {
    fn incarnation(&self, incarnation: Incarnation) -> Option<IncarnationRecord> {
        let known = self.image(|image| Memory::incarnation(image, incarnation));
        if torture::is_on(Safeguard::Ownership) {
            return known;
        }
        let any = self.image(|image| image.incarnations().last().cloned());
        known.or(any.map(|opened| IncarnationRecord { incarnation, ..opened }))
    }

    fn anchor(&self, incarnation: Incarnation) -> Option<u16> {
        self.anchored()?.anchor_of(incarnation)
    }

    fn is_live(&self, id: TransactionId) -> bool {
        match self {
            Self::Live(engine) if engine.registration.incarnation == id.incarnation => {
                self.standing(id) == Some(Standing::Running)
            }
            Self::Live(engine) => engine.journal.is_held(id.incarnation),
            Self::Locked(journal) | Self::Read(journal) => journal.is_held(id.incarnation),
            // Whoever holds the journal may be at work on anything of its incarnation.
            Self::Offline(offline) => offline.in_use && offline.latest_incarnation == Some(id.incarnation),
        }
    }

    fn recall(&self, id: TransactionId) -> Recalled {
        let undecided = matches!(self.standing(id), Some(Standing::Unsettled(Outcome::InDoubt)));
        let recalled = self.image(|image| image.recall(id));
        if recalled == Recalled::Nothing && matches!(self, Self::Offline(offline) if offline.is_in_doubt(id)) {
            return Recalled::Unsure;
        }
        let failed = self.journal().is_some_and(|journal| journal.is_poisoned().is_some());
        // A failed journal may hold the decision that it could not confirm.
        if recalled == Recalled::Nothing && undecided && failed { Recalled::Unsure } else { recalled }
    }

    fn settled(&self, incarnation: Incarnation) -> Option<Absence> {
        if !torture::is_on(Safeguard::Settled) && !self.is_at_work(incarnation) {
            return Some(Absence::RolledBack);
        }
        self.image(|image| Memory::settled(image, incarnation))
    }

    fn open_decisions(&self) -> Vec<CommitRecord> {
        self.image(Memory::open_decisions)
    }

    fn damaged(&self) -> Vec<DamageRecord> {
        self.image(Memory::damaged)
    }

    fn is_incomplete(&self, incarnation: Incarnation) -> bool {
        self.image(|image| image.is_incomplete(incarnation))
    }

    fn is_at_work(&self, incarnation: Incarnation) -> bool {
        match self {
            Self::Live(engine) => engine.registration.incarnation == incarnation || engine.journal.is_held(incarnation),
            Self::Locked(journal) | Self::Read(journal) => journal.is_held(incarnation),
            // Of the last opening not even its own record may be known to be durable yet.
            Self::Offline(offline) => {
                offline.latest_incarnation == Some(incarnation) && (offline.in_use || !offline.image.knows(incarnation))
            }
        }
    }

    fn is_given_up(&self, incarnation: Incarnation, participant: ParticipantName) -> bool {
        self.image(|image| image.is_given_up(incarnation, participant))
    }
}

/// Its lease was lost, and nobody waited.
fn taken_for_dead() -> Error {
    let message = "another program has taken this one for dead, since its lease on the anchor was lost, and has settled what \
                   it left: nothing more begins; open another bridge";
    Error::new(ErrorKind::Refused, message)
}

/// What the records say, where nobody is at work.
impl Memory for Image {
    fn incarnation(&self, incarnation: Incarnation) -> Option<IncarnationRecord> {
        self.incarnation(incarnation).cloned()
    }

    fn is_live(&self, _: TransactionId) -> bool {
        false
    }

    /// What a person did first, since that was the last word.
    fn recall(&self, id: TransactionId) -> Recalled {
        if self.audit().forgotten(id).is_some() {
            return Recalled::Forgotten;
        }
        if let Some((resolution, _)) = self.audit().resolved(id) {
            return Recalled::Resolved(resolution);
        }
        match self.open_decision(id) {
            Some(decision) => Recalled::Decided(decision.clone()),
            None if self.is_committed(id) => Recalled::Finished,
            None => Recalled::Nothing,
        }
    }

    fn settled(&self, incarnation: Incarnation) -> Option<Absence> {
        self.settled(incarnation)
    }

    fn open_decisions(&self) -> Vec<CommitRecord> {
        self.open_decisions().cloned().collect()
    }

    fn damaged(&self) -> Vec<DamageRecord> {
        self.audit().damaged().cloned().collect()
    }

    fn is_incomplete(&self, incarnation: Incarnation) -> bool {
        self.audit().incomplete(incarnation).is_some()
    }

    fn is_at_work(&self, _: Incarnation) -> bool {
        false
    }

    fn is_given_up(&self, incarnation: Incarnation, participant: ParticipantName) -> bool {
        self.audit().is_given_up(incarnation, participant)
    }
}
