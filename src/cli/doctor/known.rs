//! What is remembered of the participants, by a journal or by an anchor, and whether an anchor can go on remembering.

use crate::Config;
use crate::id::{JournalId, Lineage, NodeName, ParticipantName};
use crate::journal::Image;
use crate::participant::{Finding, Participant, Severity};
use crate::resolver::Resolver;
use std::collections::BTreeMap;

/// What is remembered.
pub struct Known {
    pub id: JournalId,
    /// What people call the one that remembers.
    pub keeper: &'static str,
    lineages: BTreeMap<ParticipantName, Lineage>,
}

impl Known {
    pub fn of(id: JournalId, keeper: &'static str, image: &Image, config: &Config) -> Self {
        let known = |name: &ParticipantName| Some((*name, image.participant(*name)?.lineage));
        Self { id, keeper, lineages: config.participants.keys().filter_map(known).collect() }
    }

    /// What the anchor remembers, if it answers; whether it does is told with its other findings.
    pub async fn of_anchor(config: &Config) -> Option<Self> {
        config.transaction.decision.anchor()?;
        let resolver = Resolver::read(config.clone()).ok()?;
        let read = resolver.remember().await;
        let known = resolver.image(|image| Some(Self::of(resolver.journal()?, "anchor", image, config)));
        // It has only read.
        let closed = resolver.close().await;
        read.and(closed).ok().and(known)
    }

    pub fn lineage(&self, name: ParticipantName) -> Option<Lineage> {
        self.lineages.get(&name).copied()
    }
}

/// Whether the entries of a node can be read, and exchanged.
pub async fn entries(participant: &dyn Participant, node: NodeName) -> Option<Finding> {
    let anchor = participant.anchor()?;
    let check = "anchor";
    // An entry that nobody has is exchanged for another: it takes the right to, and changes nothing.
    let (kept, exchanged) = (anchor.kept(node).await, anchor.keep(node, "doctor", Some(b"none"), b"nothing").await);
    Some(match kept.and_then(|kept| exchanged.map(|_| kept.len())) {
        Ok(0) => Finding::good(check, format!("its table may be written; nothing of {node} is in it yet")),
        Ok(many) => Finding::good(check, format!("{many} entries of {node} can be read and exchanged")),
        Err(error) => {
            let found = format!("its table cannot be read or written: {error}");
            let why = "the decisions of all participants are kept there; without it nothing opens";
            let cure = format!("handfast init, or as an owner:\n{}", anchor.setup_sql().trim_end());
            Finding::of(Severity::Failure, check, found, why).cure(cure)
        }
    })
}
