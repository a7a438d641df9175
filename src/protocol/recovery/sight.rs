//! What the scans of a pass show of a branch.

use super::observation::{Observation, Scan};
use super::table::Sighting;
use crate::id::{BranchId, Lineage, ParticipantName};
use std::collections::BTreeMap;

/// The scans of an observation, with an index: a plan looks thousands of branches up.
pub(super) struct Sights<'a> {
    observation: &'a Observation,
    /// The first participant that lists a branch.
    listed: BTreeMap<BranchId, ParticipantName>,
}

/// What is looked for.
pub(super) struct Wanted {
    pub id: BranchId,
    /// Whose branch it is.
    pub participant: ParticipantName,
    /// The data that it belongs to, where a decision says so.
    pub lineage: Option<Lineage>,
    /// Whether what its incarnation left on its participant is out of reach for good.
    pub given_up: bool,
    /// Whether it is of a decision, and that was not there before the first scan.
    pub too_early: bool,
}

impl<'a> Sights<'a> {
    pub fn new(observation: &'a Observation) -> Self {
        let mut listed = BTreeMap::new();
        for (participant, id) in listed_by_each(observation) {
            listed.entry(id).or_insert(participant);
        }
        Self { observation, listed }
    }

    /// What the scan of its own participant shows of a branch, and why not more. A server lists the branches of all
    /// its databases, so another participant's list may hold it too: that one is no help.
    pub fn of(&self, wanted: &Wanted) -> (Sighting, Option<String>) {
        let Wanted { id, participant, given_up, .. } = *wanted;
        // An action on it was refused, so it was there: given up or not, it is looked for again.
        if let Some(cause) = self.observation.unclear.get(&id) {
            return (Sighting::NotScanned, Some(cause.clone()));
        }
        let listed = self.listed.get(&id);
        let scan = self.observation.scans.get(&participant);
        // Data that was accepted in place of what was given up may hold the branch, and is as good as the old.
        let lineage = wanted.lineage.filter(|_| !given_up);
        match (scan, listed) {
            (Some(Scan::Whole { lineage: found, .. }), _) if lineage.is_some_and(|expected| expected != *found) => {
                let expected = lineage.expect("the guard has looked");
                (Sighting::OtherData, Some(format!("{participant} is lineage {found}, not {expected}")))
            }
            (Some(Scan::Whole { branches, .. }), _) if branches.contains(&id) => (Sighting::Listed, None),
            // What has answered in this pass, and has now stopped to, may hold the branch and will be asked again.
            (Some(Scan::Failed { cause }), _) if !given_up || self.observation.answered.contains(&participant) => {
                (Sighting::NotScanned, Some(cause.clone()))
            }
            (None, _) if !given_up => {
                (Sighting::NotScanned, Some(format!("{participant} is not configured, or was not asked")))
            }
            (_, Some(elsewhere)) => {
                (Sighting::OtherData, Some(format!("{elsewhere} lists it, {participant} does not")))
            }
            (_, None) if given_up => (Sighting::GivenUp, None),
            // A branch that was prepared after the scan, and decided since, is not listed and not gone.
            (_, None) if wanted.too_early => {
                (Sighting::NotScanned, Some("it was looked for before the decision".to_owned()))
            }
            (_, None) => (Sighting::NotListed, None),
        }
    }
}

/// Every branch of every complete list.
pub(super) fn listed_by_each(observation: &Observation) -> impl Iterator<Item = (ParticipantName, BranchId)> {
    observation.scans.iter().flat_map(|(participant, scan)| {
        let branches = match scan {
            Scan::Whole { branches, .. } => Some(branches),
            Scan::Failed { .. } => None,
        };
        branches.into_iter().flatten().map(|id| (*participant, *id))
    })
}
