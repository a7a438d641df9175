//! What an *anchor* keeps besides its own branches: the decisions of others, and all else that a journal would hold.
//!
//! A decision is the witness row of the anchor's own branch. It lists the branches that it decides for, by number and
//! session slot, in its column `kind`: `anchor 0.3 1.17`. The branch's own commit makes it durable, so that deciding costs
//! no forced write of its own.
//!
//! **`handfast_anchor`** holds the rest: entries under a node and a name each, in the bytes of the journal's format. Those
//! of a name are only ever exchanged for others by who knows the present ones: several programs may share an anchor.

use super::BoxFuture;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Incarnation, NodeName};
use crate::protocol::CommitRecord;
use std::collections::BTreeSet;

/// The table of an anchor's entries.
pub const ANCHOR_TABLE: &str = "handfast_anchor";

/// What a witness that decides begins with.
const DECIDES: &str = "anchor";

/// So much fits into the column `kind` of MySQL.
const LONGEST: usize = 255;

/// So many participants can have an anchor: a list of all of their branches has to fit into one row.
pub const MOST_PARTICIPANTS: usize = 24;

/// The highest number of a session slot in such a list.
pub const HIGHEST_SLOT: u32 = 9_999;

/// An entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Its name.
    pub part: String,
    /// What it says, in the journal's format.
    pub bytes: Vec<u8>,
}

/// A decision, as its row has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecisionRow {
    /// Whose transaction it is of.
    pub incarnation: Incarnation,
    /// The transaction's number.
    pub sequence: u64,
    /// The branches that commit, the anchor's own among them: participant's number and session slot.
    pub branches: Vec<(u16, u32)>,
}

/// A participant that can keep the decisions of others, too.
pub trait Anchor: Send + Sync {
    /// The SQL that creates the table of entries, and the grants needed, as `handfast init --print` shows it.
    fn setup_sql(&self) -> String;

    /// Creates the table of entries where it is missing.
    fn set_up(&self) -> BoxFuture<'_, Result<()>>;

    /// All entries of a node; none where the table is missing.
    fn kept(&self, node: NodeName) -> BoxFuture<'_, Result<Vec<Kept>>>;

    /// Writes an entry where the name has these bytes, or has none: whether it did. Durable when it has answered so.
    fn keep<'a>(
        &'a self,
        node: NodeName,
        part: &'a str,
        known: Option<&'a [u8]>,
        new: &'a [u8],
    ) -> BoxFuture<'a, Result<bool>>;

    /// The decisions that these incarnations have left here under this participant's number.
    fn decisions<'a>(
        &'a self,
        participant: u16,
        incarnations: &'a [Incarnation],
    ) -> BoxFuture<'a, Result<Vec<DecisionRow>>>;

    /// Deletes the decisions over these transactions of an incarnation.
    fn clear<'a>(
        &'a self,
        participant: u16,
        incarnation: Incarnation,
        sequences: &'a [u64],
    ) -> BoxFuture<'a, Result<()>>;

    /// Those of these incarnations whose lease here is held.
    fn held<'a>(
        &'a self,
        node: NodeName,
        incarnations: &'a [Incarnation],
    ) -> BoxFuture<'a, Result<BTreeSet<Incarnation>>>;
}

/// A decision as the column `kind` has it.
///
/// # Panics
/// On one that does not fit: the bridge opens with no more participants and slots than do.
pub(super) fn listing(decision: &CommitRecord) -> String {
    let mut text = String::from(DECIDES);
    for branch in &decision.branches {
        text.push_str(&format!(" {}.{}", branch.id.participant, branch.id.slot));
    }
    assert!(text.len() <= LONGEST, "a decision of {} bytes does not fit into its row", text.len());
    text
}

/// Whether a row of this kind decides for others.
pub(super) fn decides(kind: &str) -> bool {
    kind == DECIDES || kind.strip_prefix(DECIDES).is_some_and(|rest| rest.starts_with(' '))
}

impl DecisionRow {
    /// All of them, as the columns `incarnation`, `sequence` and `kind` have them.
    pub(super) fn all(rows: &[(i64, i64, String)]) -> Result<Vec<Self>> {
        rows.iter().map(|(incarnation, sequence, kind)| Self::of(*incarnation, *sequence, kind)).collect()
    }

    /// A row as the table has it.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] for one that no version known here has written.
    pub(super) fn of(incarnation: i64, sequence: i64, kind: &str) -> Result<Self> {
        let strange =
            || Error::new(ErrorKind::Refused, format!("a decision is written as {kind:?}: a newer version did"));
        let list = kind.strip_prefix(DECIDES).ok_or_else(strange)?;
        let one = |text: &str| {
            let (participant, slot) = text.split_once('.')?;
            Some((participant.parse().ok()?, slot.parse().ok()?))
        };
        let branches: Option<Vec<_>> = list.split_ascii_whitespace().map(one).collect();
        let branches = branches.filter(|branches| !branches.is_empty()).ok_or_else(strange)?;
        Ok(Self { incarnation: Incarnation::from_sql(incarnation), sequence: sequence.cast_unsigned(), branches })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Lineage, TransactionId};
    use crate::protocol::DecidedBranch;

    fn decision(branches: impl Iterator<Item = (u16, u32)>) -> CommitRecord {
        let transaction = TransactionId { node: "n".parse().unwrap(), incarnation: Incarnation(7), sequence: 9 };
        let decided = |(participant, slot)| DecidedBranch {
            id: transaction.branch(participant, slot),
            participant: "ledger".parse().unwrap(),
            lineage: Lineage(1),
        };
        CommitRecord { transaction, branches: branches.map(decided).collect(), payload: None }
    }

    #[test]
    fn a_decision_survives_the_round_trip_and_the_largest_fits() {
        let all: Vec<_> = (0..u16::try_from(MOST_PARTICIPANTS).unwrap()).map(|one| (one, HIGHEST_SLOT)).collect();
        let text = listing(&decision(all.iter().copied()));
        assert!(decides(&text) && text.len() <= LONGEST);
        let row = DecisionRow::of(7, 9, &text).unwrap();
        assert_eq!(row, DecisionRow { incarnation: Incarnation(7), sequence: 9, branches: all });
    }

    #[test]
    fn what_nobody_wrote_is_refused() {
        for text in ["", "anchor", "anchor 1", "anchor 0.x", "anchor 0.1;", "anchors 0.1", "decided"] {
            assert_eq!(DecisionRow::of(7, 9, text).unwrap_err().kind(), ErrorKind::Refused, "{text:?}");
        }
        assert!(!decides("anchors 0.1") && !decides("decided"));
    }
}
