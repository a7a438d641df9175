//! The rows of an anchor that several programs read and write, and that any of them may leave half written.

use super::samples::{commit, done, id, opening, participant, wait};
use crate::ErrorKind;
use crate::error::{Error, Result};
use crate::id::{Incarnation, JournalId};
use crate::journal::table::{Answering, Row, Rows, Table};
use crate::protocol::{Absence, IncarnationRecord, Record};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// What the anchor has, and what it refuses.
#[derive(Default)]
struct Held {
    entries: BTreeMap<String, Vec<u8>>,
    rows: Vec<Row>,
    /// No entry is written whose name begins so.
    refuses: Option<&'static str>,
    /// What another program does before the decisions are read.
    meanwhile: Option<Answering<'static, ()>>,
}

#[derive(Clone, Default)]
struct Anchor(Arc<Mutex<Held>>);

impl Anchor {
    /// A program of its own.
    fn program(&self, own: u64) -> Table {
        let anchor = "ledger".parse().unwrap();
        Table::new(Box::new(self.clone()), anchor, JournalId(1), Incarnation(own))
    }

    /// With a program that is gone, and has left a decision.
    fn with_a_decision() -> Self {
        let anchor = Self::default();
        let gone = anchor.program(1);
        let opened: IncarnationRecord = opening(1).record();
        let records = [Record::Incarnation(opened), participant("ledger", 7), participant("orders", 8)];
        records.into_iter().for_each(|record| wait(gone.append(record)).unwrap());
        let row = Row { incarnation: Incarnation(1), sequence: 5, branches: vec![(0, 3), (1, 3)] };
        anchor.0.lock().unwrap().rows.push(row);
        anchor
    }
}

impl Rows for Anchor {
    fn kept(&self) -> Answering<'_, BTreeMap<String, Vec<u8>>> {
        Box::pin(async { Ok(self.0.lock().unwrap().entries.clone()) })
    }

    fn keep<'a>(&'a self, part: &'a str, known: Option<&'a [u8]>, new: &'a [u8]) -> Answering<'a, bool> {
        Box::pin(async move {
            let mut held = self.0.lock().unwrap();
            if held.refuses.is_some_and(|prefix| part.starts_with(prefix)) {
                return Err(Error::new(ErrorKind::Unavailable, "not now"));
            }
            let same = held.entries.get(part).map(Vec::as_slice) == known;
            if same {
                held.entries.insert(part.to_owned(), new.to_vec());
            }
            Ok(same)
        })
    }

    fn decisions<'a>(&'a self, _: u16, of: &'a [Incarnation]) -> Answering<'a, Vec<Row>> {
        Box::pin(async move {
            let meanwhile = self.0.lock().unwrap().meanwhile.take();
            if let Some(meanwhile) = meanwhile {
                meanwhile.await?;
            }
            let held = self.0.lock().unwrap();
            Ok(held.rows.iter().filter(|row| of.contains(&row.incarnation)).cloned().collect())
        })
    }

    fn clear<'a>(&'a self, _: u16, of: Incarnation, sequences: &'a [u64]) -> Answering<'a, ()> {
        Box::pin(async move {
            let mut held = self.0.lock().unwrap();
            held.rows.retain(|row| row.incarnation != of || !sequences.contains(&row.sequence));
            Ok(())
        })
    }

    fn held<'a>(&'a self, _: &'a [Incarnation]) -> Answering<'a, BTreeSet<Incarnation>> {
        Box::pin(async { Ok(BTreeSet::new()) })
    }
}

fn read(program: &Table) -> Result<()> {
    wait(program.refresh(&BTreeSet::new()))
}

/// Of an opening that is settled, what is not known to have committed is told to be rolled back.
#[test]
fn an_opening_is_settled_behind_its_outcomes() {
    let anchor = Anchor::with_a_decision();
    let program = anchor.program(2);
    read(&program).unwrap();
    assert!(program.image(|image| image.open_decision(id(1, 5)).is_some()));
    program.note(&done(1, 5));
    let settled = Record::Settled(Incarnation(1), Absence::RolledBack);
    anchor.0.lock().unwrap().refuses = Some("outcomes.");
    wait(program.append(settled.clone())).unwrap_err();
    let mut names: Vec<_> = anchor.0.lock().unwrap().entries.keys().cloned().collect();
    names.retain(|name| name.starts_with("settled."));
    assert_eq!(names, Vec::<String>::new());

    anchor.0.lock().unwrap().refuses = None;
    wait(program.append(settled)).unwrap();
    // The program dies here, and its notes with it.
    let next = anchor.program(3);
    read(&next).unwrap();
    assert!(next.image(|image| image.is_settled(Incarnation(1)) && image.is_committed(id(1, 5))));
}

/// Entries, then decisions: between them another program writes the one and deletes the other.
#[test]
fn what_is_folded_while_it_is_read_is_known() {
    let anchor = Anchor::with_a_decision();
    let program = anchor.program(2);
    let other = anchor.program(3);
    read(&other).unwrap();
    other.note(&done(1, 5));
    anchor.0.lock().unwrap().meanwhile = Some(Box::pin(async move { other.fold().await }));
    read(&program).unwrap();
    assert!(anchor.0.lock().unwrap().rows.is_empty(), "the other one has deleted it meanwhile");
    assert!(program.image(|image| image.is_committed(id(1, 5)) && image.open_decision(id(1, 5)).is_none()));
}

/// A fold that was cut short has left the row behind: it is not carried out once more, and goes with the next fold.
#[test]
fn a_row_beside_its_outcome_is_over() {
    let anchor = Anchor::with_a_decision();
    let program = anchor.program(2);
    read(&program).unwrap();
    let rows = anchor.0.lock().unwrap().rows.clone();
    program.note(&done(1, 5));
    wait(program.fold()).unwrap();
    anchor.0.lock().unwrap().rows = rows;
    let next = anchor.program(3);
    read(&next).unwrap();
    assert!(next.image(|image| image.open_decision(id(1, 5)).is_none() && image.is_committed(id(1, 5))));
    wait(next.fold()).unwrap();
    assert!(anchor.0.lock().unwrap().rows.is_empty());
    let Record::Commit(decision) = commit(1, 5) else { unreachable!() };
    next.decided(&decision);
    assert!(next.image(|image| image.open_decision(id(1, 5)).is_none()), "what is over is not open again");
}
