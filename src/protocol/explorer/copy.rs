//! A copy of the journal, opened beside its original: it knows of no transaction that was begun since, and takes each
//! for one that was never decided.
//!
//! Two things hold it back. A lease on each participant, that one of the two can hold at a time: the copy touches
//! nothing without it. And the question whether its journal is stale, asked when it has the lease and before it rolls
//! back. A server may forget a lease that the original holds; the original is then not to decide, not even when it has
//! it again: the copy may have been there meanwhile.
//!
//! One moment is left out, since nothing closes it: between the decision and the first branch's commit the lease may
//! be lost, and the copy find no witness yet. [`Bug::LeaseLostBehindTheDecision`] shows it.

use super::bugs::Bug;
use super::setting::Setting;
use super::step::Event;
use super::world::{Slot, State, Witness, World};
use crate::id::{Incarnation, ParticipantName, TransactionId};
use crate::protocol::recovery::tests::books::Books;
use crate::protocol::recovery::{Action, Evidence, History, Sighting, WitnessRow, decide, unknown_decision};

/// Who holds a participant's lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lease {
    Original,
    Nobody,
    Copy,
}

/// How far the copy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Twin {
    Opened,
    /// Nothing has shown that it is stale.
    Trusted,
    Refused,
}

impl World {
    pub fn events_of_copy(&self, setting: &Setting, events: &mut Vec<Event>) {
        if !setting.copy {
            return;
        }
        for participant in 0..setting.participants() {
            match self.leases[participant] {
                Lease::Original if self.may_lose_lease(setting) => events.push(Event::LoseLease(participant)),
                Lease::Original => {}
                Lease::Nobody => {
                    events.push(Event::RegainLease(participant));
                    events.extend((self.twin != Twin::Refused).then_some(Event::CopyTakes(participant)));
                }
                Lease::Copy => events.push(Event::CopyEnds),
            }
        }
        let leased = |participant: usize| self.leases[participant] == Lease::Copy;
        if self.twin == Twin::Opened && (0..setting.participants()).any(leased) {
            events.push(Event::CopyChecks);
        }
        if self.twin == Twin::Trusted {
            let there = |index: &usize| self.sites[*index].state == State::Prepared;
            let held = |index: &usize| leased(index % setting.participants());
            events.extend(self.indices(setting).filter(there).filter(held).map(Event::CopyActs));
        }
    }

    /// Everywhere but in the moment that nothing closes.
    fn may_lose_lease(&self, setting: &Setting) -> bool {
        let open = |deal: usize| {
            let shown = self.writers(setting, deal).any(|site| site.witness == Witness::Decided);
            self.deals[deal].commit != Slot::Absent && !shown
        };
        setting.bug == Some(Bug::LeaseLostBehindTheDecision) || !(0..setting.modes.len()).any(open)
    }

    /// Whether the shell lets a coordinator hear a yes, which may be the last one.
    pub fn may_decide(&self, setting: &Setting, deal: usize) -> bool {
        let held = || self.leases[..setting.participants()].iter().all(|lease| *lease == Lease::Original);
        match setting.bug {
            Some(Bug::NoLease) => true,
            Some(Bug::RegainedIsAsGood) => held(),
            _ => held() && !self.deals[deal].unguarded,
        }
    }

    pub fn copy(&mut self, setting: &Setting, event: Event) {
        match event {
            Event::LoseLease(participant) => {
                self.leases[participant] = Lease::Nobody;
                for deal in self.deals.iter_mut().filter(|deal| deal.coordinator.is_some()) {
                    deal.unguarded = true;
                }
            }
            Event::RegainLease(participant) => self.leases[participant] = Lease::Original,
            Event::CopyTakes(participant) => self.leases[participant] = Lease::Copy,
            Event::CopyEnds => {
                let taken = self.leases.iter_mut().filter(|lease| **lease == Lease::Copy);
                taken.for_each(|lease| *lease = Lease::Nobody);
                self.twin = Twin::Opened;
            }
            Event::CopyChecks => {
                let sound = setting.bug == Some(Bug::NoStaleCheck) || !self.is_stale(setting);
                self.twin = if sound { Twin::Trusted } else { Twin::Refused };
            }
            Event::CopyActs(index) => {
                let row = decide(History::Undecided, Sighting::Listed, Evidence::NotAsked);
                assert_eq!(row.action, Action::RollBack, "no record means abort, and it has none");
                self.sites[index].state = State::Ended;
            }
            other => panic!("{other:?} is not the copy's"),
        }
    }

    /// The real question, put to the copy's memory: it knows the opening, and no transaction of it.
    fn is_stale(&self, setting: &Setting) -> bool {
        let names: Vec<ParticipantName> =
            (0..setting.participants()).map(|number| setting.participant(number)).collect();
        let books = Books::opened(&names.iter().map(ParticipantName::as_str).collect::<Vec<_>>());
        let row = |index: usize| {
            let TransactionId { incarnation, sequence, .. } = setting.branch(index).transaction;
            assert_eq!(incarnation, Incarnation(1));
            let evidence = match self.sites[index].witness {
                Witness::None => Evidence::Nothing,
                Witness::Decided => Evidence::Committed,
                Witness::Alone => Evidence::CommittedAlone,
                Witness::Fence => Evidence::Never,
            };
            WitnessRow { incarnation, participant: setting.branch(index).participant, sequence, evidence }
        };
        unknown_decision(&books, &self.indices(setting).map(row).collect::<Vec<_>>()).is_some()
    }
}
