//! Prepared branches that are not this journal's, and what the participants know of them.
//!
//! Whose a branch is, its text alone does not tell: each participant's own table has the incarnations that have worked
//! there, with the journals that hold their decisions. A branch in our node's name, of an incarnation that is there
//! under another journal, is an *orphan*: that journal was lost, or another program goes by our name. Nobody but a
//! person can tell, so it is shown with all that is known, and left alone.

use super::Resolver;
use super::look::Look;
use super::store::Store;
use crate::config::Decision;
use crate::id::{BranchId, ParticipantName};
use crate::participant::{Registered, Sighted, Sighting};
use crate::protocol::recovery::{Evidence, Memory};
use std::collections::BTreeMap;
use std::time::Duration;

/// A prepared branch that is not this journal's. Nothing is done about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foreigner {
    /// Where it is prepared.
    pub participant: ParticipantName,
    /// What its server calls it.
    pub gid: String,
    /// How long it has been prepared, by the database's clock, where the database tells.
    pub age: Option<Duration>,
    /// Its incarnation, as a participant's own table has it.
    pub registered: Option<Registered>,
    /// Whether it is of our node and of another journal: the journal that knew its decision is lost, or belongs to
    /// another program of the same name.
    pub orphan: bool,
    /// What the witnesses of an orphan's transaction say, on the participants that know its incarnation. Empty of any
    /// other branch, and in a running bridge's own passes.
    pub evidence: Vec<(ParticipantName, Evidence)>,
}

impl Foreigner {
    /// The branch, where its text is one of ours.
    pub fn branch(&self) -> Option<BranchId> {
        // What a server lists under a formatID of its own was turned into text that is none of ours.
        self.registered.as_ref().and_then(|_| self.gid.parse().ok())
    }
}

/// An incarnation in the table of a participant: by the participant's name and what its row says.
type Rows<'a> = BTreeMap<u64, Vec<(ParticipantName, &'a Registered)>>;

impl Resolver {
    /// The foreign branches that a look at every participant showed.
    pub(super) async fn foreigners(&self, looks: &[Look]) -> Vec<Foreigner> {
        let mut rows = Rows::new();
        for look in looks {
            for row in &look.registered {
                rows.entry(row.incarnation.0).or_default().push((look.seen.name, row));
            }
        }
        let mut found = Vec::new();
        for Look { seen, .. } in looks {
            found.extend(seen.sightings.iter().filter_map(|sighting| self.foreigner(seen.name, sighting, &rows)));
        }
        let mut foreigners = Vec::new();
        for foreigner in found {
            foreigners.push(self.with_evidence(foreigner, &rows).await);
        }
        foreigners
    }

    fn foreigner(&self, participant: ParticipantName, sighting: &Sighting, rows: &Rows<'_>) -> Option<Foreigner> {
        let (gid, id) = match &sighting.branch {
            Sighted::Foreign(text) => (text.clone(), None),
            Sighted::Ours(id) if self.is_at_home(*id) => return None,
            Sighted::Ours(id) => (id.to_string(), Some(*id)),
        };
        let row = id.and_then(|id| {
            let same = |(_, row): &&(ParticipantName, &Registered)| row.node == id.transaction.node;
            rows.get(&id.transaction.incarnation.0)?.iter().find(same).map(|(_, row)| (*row).clone())
        });
        // What an anchor decided is there to be asked for, by who has it as the anchor.
        let elsewhere = |row: &Registered| matches!(row.decision, Some(Decision::Anchor(_)));
        let orphan = row
            .as_ref()
            .is_some_and(|row| row.node == self.node && Some(row.journal) != self.store.id() && !elsewhere(row));
        Some(Foreigner { participant, gid, age: sighting.age, registered: row, orphan, evidence: Vec::new() })
    }

    /// Whether a branch is of an incarnation of this journal, on a participant that the incarnation had.
    fn is_at_home(&self, id: BranchId) -> bool {
        let opened = self.store.incarnation(id.transaction.incarnation);
        opened.is_some_and(|opened| {
            opened.node == id.transaction.node && usize::from(id.participant) < opened.participants.len()
        })
    }

    /// Reads the witnesses of an orphan's transaction wherever its incarnation is known.
    async fn with_evidence(&self, mut foreigner: Foreigner, rows: &Rows<'_>) -> Foreigner {
        let branch = foreigner.branch().filter(|_| foreigner.orphan && !matches!(self.store, Store::Live(_)));
        let Some(branch) = branch else { return foreigner };
        let known = rows.get(&branch.transaction.incarnation.0).map_or(&[][..], Vec::as_slice);
        for (name, row) in known.iter().filter(|(_, row)| row.node == branch.transaction.node) {
            let id = branch.transaction.branch(row.participant, 0);
            let found = self.read_witness(*name, id).await;
            foreigner.evidence.extend(found.map(|found| (*name, found)));
        }
        foreigner
    }
}
