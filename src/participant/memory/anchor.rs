//! The reference participant as the anchor.

use super::{Memory, Step};
use crate::error::Result;
use crate::id::{Incarnation, NodeName};
use crate::participant::BoxFuture;
use crate::participant::anchor::{Anchor, DecisionRow, Kept};
use crate::participant::witness::Key;
use std::collections::BTreeSet;

impl Anchor for Memory {
    fn setup_sql(&self) -> String {
        String::new()
    }

    fn set_up(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn kept(&self, node: NodeName) -> BoxFuture<'_, Result<Vec<Kept>>> {
        Box::pin(self.control(Step::Kept, move |state| {
            let ours = state.kept.iter().filter(|((of, _), _)| *of == node);
            Ok(ours.map(|((_, part), bytes)| Kept { part: part.clone(), bytes: bytes.clone() }).collect())
        }))
    }

    fn keep<'a>(
        &'a self,
        node: NodeName,
        part: &'a str,
        known: Option<&'a [u8]>,
        new: &'a [u8],
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.control(Step::Keep, move |state| {
            let key = (node, part.to_owned());
            let same = state.kept.get(&key).map(Vec::as_slice) == known;
            if same {
                state.kept.insert(key, new.to_vec());
            }
            Ok(same)
        }))
    }

    fn decisions<'a>(
        &'a self,
        participant: u16,
        incarnations: &'a [Incarnation],
    ) -> BoxFuture<'a, Result<Vec<DecisionRow>>> {
        Box::pin(self.control(Step::Decisions, move |state| {
            let wanted = |key: &Key| {
                key.branch == i32::from(participant) && incarnations.contains(&Incarnation::from_sql(key.incarnation))
            };
            let ours = state.decisions.iter().filter(|(key, _)| wanted(key) && state.witness.contains_key(key));
            ours.map(|(key, text)| DecisionRow::of(key.incarnation, key.sequence, text)).collect()
        }))
    }

    fn clear<'a>(
        &'a self,
        participant: u16,
        incarnation: Incarnation,
        sequences: &'a [u64],
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.control(Step::Prune, move |state| {
            for sequence in sequences {
                let key = Key {
                    incarnation: incarnation.to_sql(),
                    sequence: sequence.cast_signed(),
                    branch: i32::from(participant),
                };
                state.witness.remove(&key);
                state.decisions.remove(&key);
            }
            Ok(())
        }))
    }

    fn held<'a>(
        &'a self,
        node: NodeName,
        incarnations: &'a [Incarnation],
    ) -> BoxFuture<'a, Result<BTreeSet<Incarnation>>> {
        Box::pin(self.control(Step::Held, move |state| {
            let held = |one: &Incarnation| state.leases.contains_key(&(node, self.name, Some(*one)));
            Ok(incarnations.iter().copied().filter(held).collect())
        }))
    }
}
