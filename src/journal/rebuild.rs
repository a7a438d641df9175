//! An image from what was salvaged.
//!
//! What lies before the first gap counts as ever. Behind it, what a record says is still true: a decision was made, a
//! witness was seen, a person decided. What the *absence* of records says is not: so no incarnation becomes settled
//! behind a gap, and every one that is not settled before it is marked as incomplete. A record that needs one that is
//! lost is followed where it proves as much by itself (`Done` proves the commit), and is left out and reported else.

use super::chain::Damage;
use super::format::{Entry, OutcomeChunk};
use super::outcomes::Image;
use super::salvage::{Found, Salvage};
use crate::id::{Incarnation, JournalId, NodeName, ParticipantName, TransactionId};
use crate::protocol::{IncarnationRecord, Record, Remark};
use std::collections::{BTreeMap, BTreeSet};

/// A record that was read and cannot count.
#[derive(Debug, Clone, PartialEq)]
pub struct LeftOut {
    /// The segment's file.
    pub file: String,
    /// Where in it.
    pub offset: u64,
    /// What it holds.
    pub entry: Entry,
    /// Why it does not count.
    pub why: String,
}

/// An image and what it is made of.
#[derive(Debug)]
pub struct Rebuilt {
    /// The state to go on with.
    pub image: Image,
    /// How many records are in it, the parts of snapshots included.
    pub kept: usize,
    /// Those that are not.
    pub left_out: Vec<LeftOut>,
    /// The incarnations whose own record is lost, put together from what others say of their participants.
    pub guessed: BTreeSet<Incarnation>,
}

/// What the records behind a gap say of an incarnation.
#[derive(Default)]
struct Named {
    node: Option<NodeName>,
    participants: BTreeMap<u16, ParticipantName>,
}

/// Puts together what was salvaged, and notes the places where it contradicts itself.
pub fn rebuild(journal: JournalId, salvage: &Salvage, remark: &Remark) -> (Rebuilt, Vec<Damage>) {
    let mut rebuilt = Rebuilt { image: Image::new(journal), kept: 0, left_out: Vec::new(), guessed: BTreeSet::new() };
    let mut gaps = salvage.gaps.clone();
    let contradicts = salvage.whole.iter().position(|found| {
        let applied = rebuilt.image.apply_entry(&found.placed.entry);
        rebuilt.kept += usize::from(applied.is_ok() && is_record(&found.placed.entry));
        applied.is_err_and(|why| {
            gaps.push(Damage::new(&found.file, found.placed.offset, why.to_string()));
            true
        })
    });
    let rest = &salvage.whole[contradicts.unwrap_or(salvage.whole.len())..];
    let loose: Vec<_> = rest.iter().chain(&salvage.loose).filter(|found| is_record(&found.placed.entry)).collect();
    rebuilt.open_all(&loose, remark);
    loose.into_iter().for_each(|found| rebuilt.follow(found));
    (rebuilt, gaps)
}

fn is_record(entry: &Entry) -> bool {
    matches!(entry, Entry::Record(_) | Entry::Outcomes(_) | Entry::Payload(..))
}

impl Rebuilt {
    /// Makes every incarnation known that can be, and marks each that is not settled as incomplete.
    fn open_all(&mut self, loose: &[&Found], remark: &Remark) {
        let records = || {
            loose.iter().filter_map(|found| match &found.placed.entry {
                Entry::Record(record) => Some(record),
                _ => None,
            })
        };
        // An earlier mark says more of what happened than this one.
        for record in records().filter(|record| matches!(record, Record::Incomplete(..))) {
            let _ = self.image.apply(record);
        }
        let unsettled: Vec<_> = self.image.unsettled().map(|opened| opened.incarnation).collect();
        unsettled.into_iter().for_each(|incarnation| self.mark(incarnation, remark));
        for record in records() {
            if let Record::Incarnation(opened) = record
                && !self.image.knows(opened.incarnation)
            {
                self.mark(opened.incarnation, remark);
                let _ = self.image.apply(record);
            }
        }
        for (incarnation, named) in named(loose.iter().map(|found| &found.placed.entry)) {
            if !self.image.knows(incarnation) {
                self.mark(incarnation, remark);
                self.guess(incarnation, named);
            }
        }
    }

    fn mark(&mut self, incarnation: Incarnation, remark: &Remark) {
        if !self.image.is_settled(incarnation) {
            self.image.apply(&Record::Incomplete(incarnation, remark.clone())).expect("it is not settled");
        }
    }

    /// As many participants as records name. What lies between two of them is taken from an opening that has the same
    /// names at the same numbers, since the configuration seldom changes. The participants' registries know the rest.
    fn guess(&mut self, incarnation: Incarnation, named: Named) {
        let nodes: BTreeSet<_> = self.image.incarnations().map(|opened| opened.node).collect();
        let only = nodes.first().copied().filter(|_| nodes.len() == 1);
        let Some(node) = named.node.or(only) else { return };
        let names = named.participants;
        let count = names.last_key_value().map_or(0, |(number, _)| usize::from(*number) + 1);
        let agrees =
            |list: &&[ParticipantName]| names.iter().all(|(number, name)| list.get(usize::from(*number)) == Some(name));
        let contiguous = || names.iter().zip(0_u16..).take_while(|((number, _), index)| *number == index);
        let mut participants: Vec<_> = contiguous().map(|((_, name), _)| *name).collect();
        if participants.len() < count {
            let mut lists = self.image.incarnations().filter_map(|opened| opened.participants.get(..count));
            participants = lists.find(agrees).map_or(participants, <[_]>::to_vec);
        }
        let opened = IncarnationRecord { node, incarnation, opened_at_ms: 0, participants };
        self.image.apply(&Record::Incarnation(opened)).expect("it was not known");
        self.guessed.insert(incarnation);
    }

    /// Lets a record count that lies behind a gap, as far as it can.
    fn follow(&mut self, found: &Found) {
        let entry = &found.placed.entry;
        let done = match entry {
            // The same is said again, or was said before it came to its end.
            Entry::Record(Record::Incarnation(_) | Record::Incomplete(..)) => Ok(()),
            Entry::Record(Record::Commit(decision)) if self.image.is_committed(decision.transaction) => {
                match &decision.payload {
                    Some(payload) => self.image.apply_entry(&Entry::Payload(decision.transaction, payload.clone())),
                    None => Ok(()),
                }
                .map_err(|why| why.to_string())
            }
            Entry::Record(Record::Settled(incarnation, _)) if !self.image.is_settled(*incarnation) => {
                Err(String::from("records of the incarnation may have been lost before it was settled"))
            }
            Entry::Record(Record::Done(id)) => self.committed(*id).and_then(|()| self.apply(entry)),
            Entry::Payload(id, _) => self.committed(*id).and_then(|()| self.apply(entry)),
            Entry::Outcomes(chunk) => self.apply(&Entry::Outcomes(OutcomeChunk { settled: None, ..chunk.clone() })),
            other => self.apply(other),
        };
        match done {
            Ok(()) => self.kept += 1,
            Err(why) => {
                let (file, offset) = (found.file.clone(), found.placed.offset);
                self.left_out.push(LeftOut { file, offset, entry: entry.clone(), why });
            }
        }
    }

    fn apply(&mut self, entry: &Entry) -> Result<(), String> {
        self.image.apply_entry(entry).map_err(|why| why.to_string())
    }

    /// What was done everywhere, or brought a payload, has committed, even where the decision is lost.
    fn committed(&mut self, id: TransactionId) -> Result<(), String> {
        match self.image.is_committed(id) {
            true => Ok(()),
            false => self.apply(&Entry::Record(Record::Witnessed(id))),
        }
    }
}

/// The incarnations that records speak of, with what they say of each.
fn named<'a>(entries: impl Iterator<Item = &'a Entry>) -> BTreeMap<Incarnation, Named> {
    let mut all: BTreeMap<Incarnation, Named> = BTreeMap::new();
    let mut of = |id: TransactionId, participants: Vec<(u16, ParticipantName)>| {
        let named = all.entry(id.incarnation).or_default();
        named.node = Some(id.node);
        named.participants.extend(participants);
    };
    let mut alone = BTreeSet::new();
    for entry in entries {
        match entry {
            Entry::Record(Record::Commit(decision)) => {
                let branches = decision.branches.iter().map(|branch| (branch.id.participant, branch.participant));
                of(decision.transaction, branches.collect());
            }
            Entry::Record(Record::Damaged(damage)) => {
                let branches = damage.branches.iter().map(|branch| (branch.id.participant, branch.participant));
                of(damage.transaction, branches.collect());
            }
            Entry::Record(
                Record::Done(id)
                | Record::OnePhase(id)
                | Record::Witnessed(id)
                | Record::Resolved(id, ..)
                | Record::Forgotten(id, _),
            )
            | Entry::Payload(id, _) => of(*id, Vec::new()),
            Entry::Record(
                Record::Settled(incarnation, _) | Record::Incomplete(incarnation, _) | Record::GivenUp(incarnation, ..),
            ) => drop(alone.insert(*incarnation)),
            Entry::Outcomes(chunk) => drop(alone.insert(chunk.incarnation)),
            Entry::Record(Record::Incarnation(_) | Record::Participant(_))
            | Entry::Header(_)
            | Entry::Mark
            | Entry::Next(_) => {}
        }
    }
    for incarnation in alone {
        all.entry(incarnation).or_default();
    }
    all
}
