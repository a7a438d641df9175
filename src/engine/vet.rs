//! Whether this journal is the one to settle what a participant holds: looked at before anything is written or sent there.
//!
//! Three things may be wrong, and each participant's own tables tell:
//!
//! * *Somebody else is at work.* A copy of the journal, beside the original: the lease is held.
//! * *The journal is stale*: an older copy of itself. Openings of it are registered that it does not know, or branches of
//!   its earlier openings have committed by decisions that it does not hold. Presumed abort would roll back what was
//!   decided, so it settles nothing at all. The registration of the copy's own opening would make the original look
//!   stale in turn: so this is looked at before anybody is registered anywhere.
//! * *A journal was lost*: what is prepared here was begun in our node's name by openings of another journal. A new
//!   journal that began work beside it would hide that.

use crate::error::{Error, ErrorKind, Result};
use crate::id::{Incarnation, JournalId, NodeName};
use crate::journal::Journal;
use crate::participant::witness::{PAGE, Witnessed};
use crate::participant::{Claim, Participant, Registered, Sighted};
use crate::protocol::IncarnationRecord;
use crate::protocol::recovery::{self, Memory, RegistryRow, Sign, Stale, WitnessRow};
use crate::torture::{self, Request, Safeguard};
use std::collections::{BTreeMap, BTreeSet};

/// Why a participant is not to be used.
pub(crate) enum Objection {
    /// The journal is an older copy: nothing is to be settled anywhere.
    Stale(Error),
    /// The participant alone is not to be used, or cannot be.
    Other(Error),
}

impl From<Error> for Objection {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

/// Takes the lease and looks for objections: the openings that are registered there, where it is the right server.
pub(crate) async fn vet(
    participant: &dyn Participant,
    journal: &Journal,
    claim: Claim,
) -> Result<Vec<Registered>, Objection> {
    torture::request(Request::Hold, participant.name(), participant.hold(claim)).await?;
    let known = journal.image(|image| image.participant(participant.name()).map(|known| known.lineage));
    let Some(found) = participant.identify().await?.lineage else { return Ok(Vec::new()) };
    if known.is_some_and(|known| known != found) {
        // Another server: whoever works there is refused, and it says nothing of this journal.
        return Ok(Vec::new());
    }
    let registered = participant.registry().await?;
    if !torture::is_on(Safeguard::OlderCopy) {
        return Ok(registered);
    }
    if let Some(stale) = unregistered(journal, &registered).await? {
        return Err(Objection::Stale(stale.at(participant.name())));
    }
    // What others decide on an anchor is not known here, and nobody's copy is older.
    if journal.is_on_anchor() {
        return Ok(registered);
    }
    let judge = |rows: &[WitnessRow]| journal.image(|image| recovery::unknown_decision(image, rows));
    match unknown_decision(participant, &journal.unsettled(), judge).await? {
        Some(stale) => Err(Objection::Stale(older_copy(&stale).at(participant.name()))),
        None => Ok(registered),
    }
}

/// The same, of a journal: an anchor may have others that have opened since it was read.
async fn unregistered(journal: &Journal, registered: &[Registered]) -> Result<Option<Error>> {
    let look = || journal.image(|image| unknown_opening(image, journal.id(), registered));
    if journal.is_on_anchor() && look().is_some() {
        journal.refresh(&BTreeSet::new()).await?;
    }
    Ok(look())
}

/// An opening of this journal, in a participant's table, that it does not know.
pub(crate) fn unknown_opening(memory: &dyn Memory, journal: JournalId, registered: &[Registered]) -> Option<Error> {
    let row = |row: &Registered| RegistryRow { incarnation: row.incarnation, journal: row.journal, node: row.node };
    let rows: Vec<_> = registered.iter().map(row).collect();
    recovery::unknown_opening(memory, journal, &rows).map(|stale| older_copy(&stale))
}

/// Nothing is settled by an older copy.
pub(crate) fn older_copy(stale: &Stale) -> Error {
    let by_hand = match stale.why {
        Sign::Opening(_) => String::new(),
        Sign::Decision(branch) => format!(
            "if somebody committed that branch by hand, and no other journal exists, `handfast resolve {}`; ",
            branch.transaction
        ),
    };
    let message = format!(
        "the journal is an older copy: {stale}; nothing was touched: bring the latest journal back; {by_hand}if this copy \
         is all there is, `handfast journal repair` says what is missing"
    );
    Error::new(ErrorKind::Refused, message)
}

/// Refuses a participant that this journal sees for the first time while branches of a lost one are prepared there.
pub(crate) async fn orphans(
    participant: &dyn Participant,
    journal: &Journal,
    node: NodeName,
    registered: &[Registered],
) -> Result<()> {
    if journal.image(|image| image.participant(participant.name()).is_some()) {
        return Ok(());
    }
    let journal = journal.id();
    let lost: BTreeMap<_, _> = registered
        .iter()
        .filter(|row| row.node == node && row.journal != journal)
        .map(|row| (row.incarnation, row.journal))
        .collect();
    if lost.is_empty() {
        return Ok(());
    }
    let orphan = participant.list().await?.into_iter().find_map(|sighting| match sighting.branch {
        Sighted::Ours(id) if id.transaction.node == node => {
            lost.get(&id.transaction.incarnation).map(|other| (id, *other))
        }
        _ => None,
    });
    let Some((id, other)) = orphan else { return Ok(()) };
    let message = format!(
        "{id} is prepared there, in this node's name and by a decision of journal {other}, while this journal ({journal}) \
         is new: bring that journal back; if it is lost, `handfast list` shows what is known of its branches and \
         `handfast resolve` ends each; if it is another program's, give this one another node name"
    );
    Err(Error::new(ErrorKind::Refused, message).at(participant.name()))
}

/// The witness of a decision that the journal does not hold, of one of these openings. What the rows say is judged a page
/// at a time, when they have been read.
pub(crate) async fn unknown_decision(
    participant: &dyn Participant,
    openings: &[IncarnationRecord],
    judge: impl Fn(&[WitnessRow]) -> Option<Stale>,
) -> Result<Option<Stale>> {
    let mut numbers: BTreeMap<u16, Vec<Incarnation>> = BTreeMap::new();
    for opened in openings {
        for (_, number) in opened.participants.iter().zip(0..).filter(|(name, _)| **name == participant.name()) {
            numbers.entry(number).or_default().push(opened.incarnation);
        }
    }
    for (number, incarnations) in numbers {
        // Incarnations that fill a page together are halved, one that does so alone is read on.
        let mut to_read: Vec<_> = incarnations.chunks(PAGE).map(|some| (some.to_vec(), 0)).collect();
        while let Some((mut of, from)) = to_read.pop() {
            let page = participant.witnessed(number, &of, from).await?;
            let rows: Vec<_> = page.iter().map(|row| witness(number, row)).collect();
            let stale = judge(&rows);
            if stale.is_some() {
                return Ok(stale);
            }
            match page.last() {
                Some(last) if page.len() >= PAGE && of.len() == 1 => to_read.push((of, last.sequence + 1)),
                Some(_) if page.len() >= PAGE => {
                    let half = of.split_off(of.len() / 2);
                    to_read.extend([(half, 0), (of, 0)]);
                }
                _ => {}
            }
        }
    }
    Ok(None)
}

fn witness(participant: u16, row: &Witnessed) -> WitnessRow {
    let Witnessed { incarnation, sequence, kind } = *row;
    WitnessRow { incarnation, participant, sequence, evidence: kind.evidence().into() }
}
