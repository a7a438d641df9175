//! A journal that is an older copy of itself, and all there is: what it lacks, and how it goes on.
//!
//! The participants show that something is missing, and not all that is: a decision may be lost of which no branch has
//! committed yet. So once the journal is known to be a copy, every opening of which something may still move is marked as
//! incomplete, whether a witness contradicts it or not, and those that it does not know are taken over from the
//! participants' registries, marked alike. From then on no record means nothing: what witnesses prove is taken from them,
//! and the rest is for a person to resolve.

use super::{Resolver, View};
use crate::engine::{unknown_decision, unknown_opening};
use crate::error::{Error, ErrorKind, Result};
use crate::id::Incarnation;
use crate::journal::remark;
use crate::participant::Registered;
use crate::protocol::recovery::unknown_decision as judge;
use crate::protocol::{IncarnationRecord, Record};
use std::collections::{BTreeMap, BTreeSet};

/// What an older copy of a journal lacks, as far as the participants tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lacking {
    /// What gives it away, for people: at least one.
    pub signs: Vec<String>,
    /// Openings that it does not know, with their participants.
    pub unknown: Vec<IncarnationRecord>,
    /// Openings that it knows, of which records may be missing: all that are not settled, and not marked before. Those
    /// whose witnesses give it away come last.
    pub unsettled: Vec<Incarnation>,
}

impl Resolver {
    /// What the journal lacks, if it is an older copy. Every participant has to answer: one that does not may know of
    /// more. Changes nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] when nothing shows that it is a copy, or somebody is at work with it; those of a participant
    /// that does not answer, or is another server than the journal knows.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn lacking(&self) -> Result<Lacking> {
        if let Some(holder) = self.holder() {
            let message = format!("the journal is in use by {holder}: what is read of it now is no copy");
            return Err(Error::new(ErrorKind::Refused, message));
        }
        let view = self.observe().await;
        if let Some(trouble) = view.participants.iter().find_map(|seen| seen.trouble.as_ref()) {
            let message = format!("{}: every participant has to tell what it knows of the journal", trouble.chain());
            return Err(Error::new(trouble.kind(), message));
        }
        let (mut signs, unknown) = self.unknown_openings(&view);
        let unsettled: Vec<IncarnationRecord> = self.image(|image| {
            let whole = |one: &&IncarnationRecord| image.audit().incomplete(one.incarnation).is_none();
            image.unsettled().filter(whole).cloned().collect()
        });
        let mut shown = BTreeSet::new();
        for participant in self.participants() {
            let stale = unknown_decision(&**participant, &unsettled, |rows| judge(&self.store, rows)).await;
            let stale = stale.map_err(|error| error.at(participant.name()))?;
            if let Some(stale) = stale {
                signs.push(format!("{}: {stale}", participant.name()));
                shown.insert(stale.incarnation);
            }
        }
        if signs.is_empty() {
            let message = "the journal is sound, and no participant shows that it is an older copy: nothing to repair";
            return Err(Error::new(ErrorKind::Refused, message));
        }
        let own = self.store.journal().map(crate::journal::Journal::incarnation);
        let unsettled = unsettled.into_iter().map(|one| one.incarnation).filter(|one| Some(*one) != own);
        let (last, mut unsettled): (Vec<_>, Vec<_>) = unsettled.partition(|one| shown.contains(one));
        unsettled.extend(last);
        Ok(Lacking { signs, unknown, unsettled })
    }

    /// Makes an older copy of the journal one that can be gone on with: what it lacks is taken over and marked as
    /// incomplete. For a journal of which nothing younger is left. Tells what was done; done again it finds nothing.
    ///
    /// # Errors
    /// As [`lacking`](Self::lacking); [`ErrorKind::Refused`] also where the original is at work, and on a resolver that only
    /// [`read`](Self::read)s; [`ErrorKind::Journal`].
    ///
    /// # Cancel safety
    /// May be dropped at any point and done again.
    pub async fn complete_copy(&self, reason: &str) -> Result<Lacking> {
        let journal = self.hand_on()?;
        let remark = remark(reason)?;
        self.claim().await?;
        let lacking = self.lacking().await?;
        // What gives it away comes last: cut short, it is a copy as before, and refuses to settle the rest.
        for incarnation in &lacking.unsettled {
            journal.append(Record::Incomplete(*incarnation, remark.clone())).await?;
        }
        for opened in &lacking.unknown {
            journal.take_over(opened.clone(), remark.clone()).await?;
        }
        tracing::warn!(reason = remark.reason, "an older copy of the journal is gone on with: records are lost");
        Ok(lacking)
    }

    /// The openings of this journal in the participants' registries that it does not know, and what they give away.
    fn unknown_openings(&self, view: &View) -> (Vec<String>, Vec<IncarnationRecord>) {
        let (mut signs, mut unknown) = (Vec::new(), BTreeMap::new());
        let Some(journal) = self.store.id() else { return (signs, Vec::new()) };
        let is_unknown = |row: &Registered| unknown_opening(&self.store, journal, std::slice::from_ref(row)).is_some();
        for (name, rows) in &view.registries {
            for row in rows.iter().filter(|row| is_unknown(row)) {
                if let Some(opened) = view.incarnation(row.node, row.incarnation) {
                    let host = if row.host.is_empty() { "an unnamed machine" } else { &row.host };
                    signs.push(format!("{name}: opening {} of this journal, on {host}", row.incarnation));
                    unknown.insert(row.incarnation, opened);
                }
            }
        }
        (signs, unknown.into_values().collect())
    }
}
