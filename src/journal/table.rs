//! What a journal knows, kept by an anchor: a participant whose rows are the decisions.
//!
//! Nothing is on this machine. The image is read from the anchor, and read again before each pass of the resolver, since
//! other programs of the same node decide there, too:
//!
//! * **Entries**, in the bytes of the journal's format and under a name each: the openings, the participants, the outcomes
//!   of what is over, what was found damaged, what persons decided. An entry takes the place of one that was read, and of
//!   no other: who comes second reads it first.
//! * **Decisions**: the rows that the anchor's branches leave. One is open until every branch is known to be committed. Then
//!   its outcome goes into an entry, durably, and only then the row goes. What is found in both is over.
//! * **Leases**: an opening whose lease is held is at work, whatever else is known of it. What cannot be asked is held.
//!
//! Notes count at once and are written with the next [`fold`](Table::fold): a crash before it costs work, not truth, since
//! the row of the decision is still there.

use super::format::{self, Binding, Content, Entry, Frame, OutcomeChunk};
use super::outcomes::Image;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Incarnation, JournalId, ParticipantName, TransactionId};
use crate::protocol::{CommitRecord, DecidedBranch, IncarnationRecord, Record};
use roaring::RoaringTreemap;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// So many sequences go into one entry of outcomes: 128 KiB at worst.
const CHUNK: u64 = 1 << 20;
/// How often an entry that others write at the same time is read anew.
const ATTEMPTS: usize = 8;

/// What an anchor answers, some time.
pub type Answering<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// A decision as its row has it: participant's number and session slot of each branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Whose transaction it is of.
    pub incarnation: Incarnation,
    /// The transaction's number.
    pub sequence: u64,
    /// The branches that commit.
    pub branches: Vec<(u16, u32)>,
}

/// The anchor, as far as a journal needs it: the rows of one node.
pub trait Rows: Send + Sync + 'static {
    /// All entries, by name.
    fn kept(&self) -> Answering<'_, BTreeMap<String, Vec<u8>>>;

    /// Writes an entry in place of the known one: whether it was that. Durable when answered so.
    fn keep<'a>(&'a self, part: &'a str, known: Option<&'a [u8]>, new: &'a [u8]) -> Answering<'a, bool>;

    /// The decisions of these openings, in which the anchor has that number.
    fn decisions<'a>(&'a self, number: u16, of: &'a [Incarnation]) -> Answering<'a, Vec<Row>>;

    /// Deletes decisions.
    fn clear<'a>(&'a self, number: u16, of: Incarnation, sequences: &'a [u64]) -> Answering<'a, ()>;

    /// Those of these openings that are at work.
    fn held<'a>(&'a self, of: &'a [Incarnation]) -> Answering<'a, BTreeSet<Incarnation>>;
}

/// Transactions by opening.
type Sequences = BTreeMap<Incarnation, RoaringTreemap>;

struct State {
    image: Image,
    /// The entries as they were last read or written.
    seen: BTreeMap<String, Vec<u8>>,
    /// The openings that were seen not to be at work.
    free: BTreeSet<Incarnation>,
    /// Known to have committed, everywhere, and in no entry yet.
    to_fold: Sequences,
    /// Decisions whose rows are of no use once that is in an entry.
    to_clear: Sequences,
}

/// A journal in the rows of an anchor.
pub struct Table {
    rows: Box<dyn Rows>,
    anchor: ParticipantName,
    own: Incarnation,
    state: Mutex<State>,
    /// Held while the anchor is read or written as a whole.
    turn: tokio::sync::Mutex<()>,
}

impl Table {
    /// The rows of an anchor, of which nothing was read yet.
    pub fn new(rows: Box<dyn Rows>, anchor: ParticipantName, journal: JournalId, own: Incarnation) -> Self {
        let state = State {
            image: Image::new(journal),
            seen: BTreeMap::new(),
            free: BTreeSet::new(),
            to_fold: Sequences::new(),
            to_clear: Sequences::new(),
        };
        Self { rows, anchor, own, state: Mutex::new(state), turn: tokio::sync::Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // It is only ever changed by complete steps.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks `f` about what was read and noted.
    pub fn image<T>(&self, f: impl FnOnce(&Image) -> T) -> T {
        f(&self.state().image)
    }

    /// The anchor's number in the branch ids of an opening, if it has one there.
    pub fn number(&self, opened: &IncarnationRecord) -> Option<u16> {
        let place = opened.participants.iter().position(|name| *name == self.anchor)?;
        u16::try_from(place).ok()
    }

    /// Whether an opening may be at work.
    pub fn is_held(&self, incarnation: Incarnation) -> bool {
        let state = self.state();
        incarnation == self.own || !(state.free.contains(&incarnation) || state.image.is_settled(incarnation))
    }

    /// The earlier openings that are not at work and of which something may still move.
    pub fn unsettled(&self) -> Vec<IncarnationRecord> {
        let state = self.state();
        let free = |opened: &&IncarnationRecord| state.free.contains(&opened.incarnation);
        state.image.unsettled().filter(free).cloned().collect()
    }

    /// Reads it all again: entries, then who is at work, then the decisions of those who are not, and those of this opening's
    /// transactions that are in doubt.
    ///
    /// In this order: who is not at work decides nothing that is not in its row by then, but for a commit that is just
    /// arriving. That one is found by the fence. The entries once more at last: a row that another program has just deleted
    /// is in none of them but those that it wrote before.
    pub async fn refresh(&self, in_doubt: &BTreeSet<u64>) -> Result<()> {
        let _alone = self.turn.lock().await;
        self.read_entries().await?;
        let others: Vec<_> = self.image(|image| {
            let others = image.unsettled().filter(|opened| opened.incarnation != self.own);
            others.map(|opened| opened.incarnation).collect()
        });
        let held = self.rows.held(&others).await?;
        let free: BTreeSet<_> = others.into_iter().filter(|one| !held.contains(one)).collect();
        self.state().free.clone_from(&free);
        if free.is_empty() && in_doubt.is_empty() {
            return Ok(());
        }
        self.read_decisions(&free, in_doubt).await?;
        self.read_entries().await
    }

    async fn read_entries(&self) -> Result<()> {
        let found = self.rows.kept().await?;
        let mut entries = Vec::new();
        {
            let state = self.state();
            for (part, bytes) in &found {
                if state.seen.get(part) != Some(bytes) {
                    entries.push((decode(part, bytes)?, part.clone(), bytes.clone()));
                }
            }
        }
        entries.sort_by_key(|(entry, ..)| order(entry));
        let mut state = self.state();
        for (entry, part, bytes) in entries {
            state.take(&entry).map_err(|why| strange(&part, &why))?;
            state.seen.insert(part, bytes);
        }
        Ok(())
    }

    async fn read_decisions(&self, of: &BTreeSet<Incarnation>, own: &BTreeSet<u64>) -> Result<()> {
        let mut numbers: BTreeMap<u16, Vec<Incarnation>> = BTreeMap::new();
        self.image(|image| {
            let wanted = |one: &&IncarnationRecord| {
                of.contains(&one.incarnation) || (one.incarnation == self.own && !own.is_empty())
            };
            for opened in image.incarnations().filter(wanted) {
                if let Some(number) = self.number(opened) {
                    numbers.entry(number).or_default().push(opened.incarnation);
                }
            }
        });
        for (number, incarnations) in numbers {
            let rows = self.rows.decisions(number, &incarnations).await?;
            let mut state = self.state();
            for row in rows.iter().filter(|row| row.incarnation != self.own || own.contains(&row.sequence)) {
                state.decide(row);
            }
        }
        Ok(())
    }

    /// A decision of this opening is durable on the anchor.
    pub fn decided(&self, record: &CommitRecord) {
        let applied = self.state().image.apply(&Record::Commit(record.clone()));
        if let Err(why) = applied {
            // A pass of the resolver was quicker: it has read the row.
            tracing::debug!(id = %record.transaction, %why, "the decision was known");
        }
    }

    /// What counts at once, and is written by the next [`fold`](Self::fold).
    ///
    /// # Panics
    /// On a record that is none of outcomes.
    pub fn note(&self, record: &Record) {
        let mut state = self.state();
        let (Record::Done(id) | Record::OnePhase(id) | Record::Witnessed(id)) = record else {
            panic!("{record:?} is never noted")
        };
        if let Err(why) = state.image.apply(record) {
            // Somebody else took this opening for dead, and settled it: the witness still tells.
            tracing::error!(%id, %why, "what is over cannot be noted");
            return;
        }
        state.is_over(*id, matches!(record, Record::Done(_)));
    }

    /// Makes a record durable. Of an opening that is settled what was noted is durable before: from then on what is not
    /// known was rolled back.
    pub async fn append(&self, record: Record) -> Result<()> {
        let refused = |why: String| Error::new(ErrorKind::Refused, why);
        format::check(&record).map_err(|why| refused(why.to_owned()))?;
        let _alone = self.turn.lock().await;
        if let Record::Settled(incarnation, _) = &record {
            self.fold_outcomes(|of| of == *incarnation).await?;
        }
        let part = part(&record);
        let bytes = encode(Content::Record(&record));
        for _ in 0..ATTEMPTS {
            let known = {
                let state = self.state();
                state.image.check(&record).map_err(|why| refused(why.to_string()))?;
                state.seen.get(&part).cloned()
            };
            if known.as_ref() == Some(&bytes) || (known.is_some() && is_said_once(&record)) {
                return Ok(());
            }
            if self.rows.keep(&part, known.as_deref(), &bytes).await? {
                let mut state = self.state();
                state.image.apply(&record).map_err(|why| refused(why.to_string()))?;
                state.seen.insert(part, bytes);
                return Ok(());
            }
            // Somebody else has written it, or an earlier attempt of ours whose answer was lost.
            self.read_entries().await?;
            self.is_same_data(&record)?;
        }
        Err(Error::new(ErrorKind::Unavailable, format!("the anchor's entry {part} is written by others all the time")))
    }

    /// Refuses a participant that another program has just taken for other data.
    fn is_same_data(&self, record: &Record) -> Result<()> {
        let Record::Participant(new) = record else { return Ok(()) };
        match self.image(|image| image.participant(new.name).map(|known| known.lineage)) {
            Some(known) if known != new.lineage => {
                let message = format!("{} is lineage {known} to another program of this node", new.name);
                Err(Error::new(ErrorKind::Refused, message))
            }
            _ => Ok(()),
        }
    }

    /// Writes what was noted, and deletes the rows of decisions that are over.
    pub async fn fold(&self) -> Result<()> {
        let _alone = self.turn.lock().await;
        // Before the outcomes are looked at: what is to be cleared is among those, or in an entry already.
        let to_clear = self.state().to_clear.clone();
        self.fold_outcomes(|_| true).await?;
        for (incarnation, sequences) in &to_clear {
            let number = self.image(|image| image.incarnation(*incarnation).and_then(|opened| self.number(opened)));
            if let Some(number) = number {
                let sequences: Vec<_> = sequences.iter().collect();
                for some in sequences.chunks(1000) {
                    self.rows.clear(number, *incarnation, some).await?;
                }
            }
            subtract(&mut self.state().to_clear, *incarnation, sequences);
        }
        Ok(())
    }

    /// Writes what was noted of these openings.
    async fn fold_outcomes(&self, of: impl Fn(Incarnation) -> bool) -> Result<()> {
        let mut to_fold = self.state().to_fold.clone();
        to_fold.retain(|incarnation, _| of(*incarnation));
        for (incarnation, sequences) in &to_fold {
            for chunk in chunks(sequences) {
                self.fold_chunk(*incarnation, chunk).await?;
            }
            subtract(&mut self.state().to_fold, *incarnation, sequences);
        }
        Ok(())
    }

    async fn fold_chunk(&self, incarnation: Incarnation, sequences: RoaringTreemap) -> Result<()> {
        let number = sequences.min().map_or(0, |first| first / CHUNK);
        let part = format!("outcomes.{incarnation}.{number}");
        for _ in 0..ATTEMPTS {
            let known = self.state().seen.get(&part).cloned();
            let mut committed = match known.as_deref().map(|bytes| decode(&part, bytes)).transpose()? {
                Some(Entry::Outcomes(chunk)) => chunk.committed,
                Some(_) => return Err(strange(&part, "it holds no outcomes")),
                None => RoaringTreemap::new(),
            };
            committed |= &sequences;
            let bytes = encode(Content::Outcomes(&OutcomeChunk { incarnation, settled: None, committed }));
            if known.as_ref() == Some(&bytes) || self.rows.keep(&part, known.as_deref(), &bytes).await? {
                self.state().seen.insert(part, bytes);
                return Ok(());
            }
            self.read_entries().await?;
        }
        Err(Error::new(ErrorKind::Unavailable, format!("the anchor's entry {part} is written by others all the time")))
    }
}

impl State {
    /// Takes an entry over that was read.
    fn take(&mut self, entry: &Entry) -> Result<(), String> {
        if let Entry::Outcomes(chunk) = entry {
            let over =
                |id: &TransactionId| id.incarnation == chunk.incarnation && chunk.committed.contains(id.sequence);
            let done: Vec<_> = self.image.open_decisions().map(|open| open.transaction).filter(over).collect();
            for id in done {
                self.image.apply(&Record::Done(id)).map_err(|why| why.to_string())?;
            }
        }
        self.image.apply_entry(entry).map_err(|why| why.to_string())
    }

    /// Takes a decision over that was read: one that is over already is left behind by a fold that was cut short.
    fn decide(&mut self, row: &Row) {
        let Some(opened) = self.image.incarnation(row.incarnation).cloned() else { return };
        let transaction = TransactionId { node: opened.node, incarnation: row.incarnation, sequence: row.sequence };
        if self.image.open_decision(transaction).is_some() {
            return;
        }
        if self.image.is_committed(transaction) {
            self.to_clear.entry(row.incarnation).or_default().insert(row.sequence);
            return;
        }
        let decided = |(number, slot): &(u16, u32)| {
            let participant = *opened.participants.get(usize::from(*number))?;
            let lineage = self.image.participant(participant)?.lineage;
            Some(DecidedBranch { id: transaction.branch(*number, *slot), participant, lineage })
        };
        let branches: Option<Vec<_>> = row.branches.iter().map(decided).collect();
        let applied = branches
            .ok_or_else(|| "it names a participant that its opening does not have".to_owned())
            .and_then(|branches| {
                let record = CommitRecord { transaction, branches, payload: None };
                self.image.apply(&Record::Commit(record)).map_err(|why| why.to_string())
            });
        if let Err(why) = applied {
            tracing::error!(%transaction, why, "a decision on the anchor contradicts what else is there");
        }
    }

    fn is_over(&mut self, id: TransactionId, had_a_row: bool) {
        self.to_fold.entry(id.incarnation).or_default().insert(id.sequence);
        if had_a_row {
            self.to_clear.entry(id.incarnation).or_default().insert(id.sequence);
        }
    }
}

/// Whether who comes second has nothing to add.
fn is_said_once(record: &Record) -> bool {
    matches!(record, Record::Settled(..) | Record::Damaged(_) | Record::Incomplete(..) | Record::GivenUp(..))
}

/// The name of a record's entry.
fn part(record: &Record) -> String {
    let of = |kind: &str, id: &TransactionId| format!("{kind}.{}.{}", id.incarnation, id.sequence);
    match record {
        Record::Incarnation(opened) => format!("opened.{}", opened.incarnation),
        Record::Participant(known) => format!("participant.{}", known.name),
        Record::Settled(incarnation, _) => format!("settled.{incarnation}"),
        Record::Incomplete(incarnation, _) => format!("incomplete.{incarnation}"),
        Record::GivenUp(incarnation, name, _) => format!("given_up.{incarnation}.{name}"),
        Record::Damaged(damage) => of("damaged", &damage.transaction),
        Record::Resolved(id, ..) => of("resolved", id),
        Record::Forgotten(id, _) => of("forgotten", id),
        Record::Commit(_) | Record::Done(_) | Record::OnePhase(_) | Record::Witnessed(_) => {
            unreachable!("decisions are rows, and outcomes are folded")
        }
    }
}

/// What has to be known before what.
fn order(entry: &Entry) -> u8 {
    match entry {
        Entry::Record(Record::Incomplete(..)) => 0,
        Entry::Record(Record::Incarnation(_)) => 1,
        Entry::Record(Record::Participant(_)) => 2,
        Entry::Outcomes(_) => 3,
        Entry::Record(Record::Settled(..)) => 5,
        _ => 4,
    }
}

/// One frame, as in a journal, at no place in particular.
fn encode(content: Content<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    format::encode(&mut bytes, Binding::HEADER, 0, 0, content);
    bytes
}

fn decode(part: &str, bytes: &[u8]) -> Result<Entry> {
    let frame = Frame::at(bytes, 0, Binding::HEADER).ok_or_else(|| strange(part, "its checksum is wrong"))?;
    frame.decode().map_err(|why| strange(part, &why.to_string()))
}

fn strange(part: &str, why: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("the anchor's entry {part}: {why}"))
}

/// The pieces of a set that go into an entry each.
fn chunks(sequences: &RoaringTreemap) -> Vec<RoaringTreemap> {
    let mut pieces: BTreeMap<u64, RoaringTreemap> = BTreeMap::new();
    for sequence in sequences {
        pieces.entry(sequence / CHUNK).or_default().insert(sequence);
    }
    pieces.into_values().collect()
}

fn subtract(from: &mut Sequences, incarnation: Incarnation, sequences: &RoaringTreemap) {
    if let Some(left) = from.get_mut(&incarnation) {
        *left -= sequences;
        if left.is_empty() {
            from.remove(&incarnation);
        }
    }
}
