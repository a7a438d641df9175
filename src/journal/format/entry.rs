//! The content of each type of entry, field by field, in the order of the format document.

use super::wire::{Decoder, Encoder, Malformed};
use super::{FormatVersion, HEADER_END, Header, MAX_KEY, MAX_PAYLOAD};
use crate::id::{Incarnation, JournalId, TransactionId};
use crate::protocol::{
    Absence, CommitRecord, DamageRecord, DamagedBranch, DecidedBranch, IncarnationRecord, ParticipantRecord, Payload,
    Record, Remark, Resolution,
};
use roaring::RoaringTreemap;

/// The kinds of entries, by their number in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum EntryType {
    /// [`Entry::Header`]
    Header = 1,
    /// [`Entry::Mark`]
    Mark = 2,
    /// [`Entry::Next`]
    Next = 3,
    /// [`Record::Incarnation`]
    Incarnation = 16,
    /// [`Record::Participant`]
    Participant = 17,
    /// [`Record::Commit`]
    Commit = 18,
    /// [`Record::Done`]
    Done = 19,
    /// [`Record::OnePhase`]
    OnePhase = 20,
    /// [`Record::Settled`]
    Settled = 21,
    /// [`Record::Damaged`]
    Damaged = 22,
    /// [`Record::Resolved`]
    Resolved = 23,
    /// [`Record::Forgotten`]
    Forgotten = 24,
    /// [`Record::Incomplete`]
    Incomplete = 25,
    /// [`Record::Witnessed`]
    Witnessed = 26,
    /// [`Record::GivenUp`]
    GivenUp = 27,
    /// [`Entry::Outcomes`]
    Outcomes = 32,
    /// [`Entry::Payload`]
    Payload = 33,
}

impl EntryType {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::Header,
        Self::Mark,
        Self::Next,
        Self::Incarnation,
        Self::Participant,
        Self::Commit,
        Self::Done,
        Self::OnePhase,
        Self::Settled,
        Self::Damaged,
        Self::Resolved,
        Self::Forgotten,
        Self::Incomplete,
        Self::Witnessed,
        Self::GivenUp,
        Self::Outcomes,
        Self::Payload,
    ];

    /// The version of its content that this program writes.
    pub const VERSION: u8 = 1;

    pub(super) fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// What a frame holds.
#[derive(Debug, Clone, PartialEq)]
pub enum Entry {
    /// The first of a segment.
    Header(Header),
    /// Nothing but its synced-through.
    Mark,
    /// The last of a segment: another follows, and is missing if it cannot be found.
    Next(u64),
    /// A fact of the protocol.
    Record(Record),
    /// Part of a snapshot: these transactions of an incarnation have committed.
    Outcomes(OutcomeChunk),
    /// Part of a snapshot: the latest committed payload of a key, and whose it was.
    Payload(TransactionId, Payload),
}

/// A piece of an incarnation's outcome history.
#[derive(Debug, Clone, PartialEq)]
pub struct OutcomeChunk {
    /// Whose transactions they are.
    pub incarnation: Incarnation,
    /// What no record means, when nothing of that incarnation can move any more; `None` while something may.
    pub settled: Option<Absence>,
    /// The sequences that have committed.
    pub committed: RoaringTreemap,
}

/// An entry to be written, by reference.
#[derive(Debug, Clone, Copy)]
pub enum Content<'a> {
    /// See [`Entry::Header`].
    Header(&'a Header),
    /// See [`Entry::Mark`].
    Mark,
    /// See [`Entry::Next`].
    Next(u64),
    /// See [`Entry::Record`].
    Record(&'a Record),
    /// A decision without its payload, which a snapshot keeps apart.
    Open(&'a CommitRecord),
    /// See [`Entry::Outcomes`].
    Outcomes(&'a OutcomeChunk),
    /// See [`Entry::Payload`]: transaction, key, bytes.
    Payload(TransactionId, &'a [u8], &'a [u8]),
}

impl Content<'_> {
    pub(super) fn kind(&self) -> EntryType {
        match self {
            Self::Header(_) => EntryType::Header,
            Self::Mark => EntryType::Mark,
            Self::Next(_) => EntryType::Next,
            Self::Record(Record::Incarnation(_)) => EntryType::Incarnation,
            Self::Record(Record::Participant(_)) => EntryType::Participant,
            Self::Record(Record::Commit(_)) | Self::Open(_) => EntryType::Commit,
            Self::Record(Record::Done(_)) => EntryType::Done,
            Self::Record(Record::OnePhase(_)) => EntryType::OnePhase,
            Self::Record(Record::Settled(..)) => EntryType::Settled,
            Self::Record(Record::Damaged(_)) => EntryType::Damaged,
            Self::Record(Record::Resolved(..)) => EntryType::Resolved,
            Self::Record(Record::Forgotten(..)) => EntryType::Forgotten,
            Self::Record(Record::Incomplete(..)) => EntryType::Incomplete,
            Self::Record(Record::Witnessed(_)) => EntryType::Witnessed,
            Self::Record(Record::GivenUp(..)) => EntryType::GivenUp,
            Self::Outcomes(_) => EntryType::Outcomes,
            Self::Payload(..) => EntryType::Payload,
        }
    }

    pub(super) fn encode(&self, to: &mut Encoder<'_>) {
        match self {
            Self::Header(header) => encode_header(to, header),
            Self::Mark => {}
            Self::Next(sequence) => to.u64("sequence", *sequence),
            Self::Record(Record::Incarnation(record)) => encode_incarnation(to, record),
            Self::Record(Record::Participant(record)) => encode_participant(to, record),
            Self::Record(Record::Commit(record)) => encode_commit(to, record, record.payload.as_ref()),
            Self::Open(record) => encode_commit(to, record, None),
            Self::Record(Record::Done(id) | Record::OnePhase(id) | Record::Witnessed(id)) => to.transaction(*id),
            Self::Record(Record::Settled(incarnation, absence)) => {
                to.u64("incarnation", incarnation.0);
                to.u8("absence", absence_code(Some(*absence)));
            }
            Self::Record(Record::Damaged(record)) => encode_damaged(to, record),
            Self::Record(Record::Resolved(id, resolution, remark)) => {
                to.transaction(*id);
                to.u8("resolution", resolution_code(*resolution));
                encode_remark(to, remark);
            }
            Self::Record(Record::Forgotten(id, remark)) => {
                to.transaction(*id);
                encode_remark(to, remark);
            }
            Self::Record(Record::Incomplete(incarnation, remark)) => {
                to.u64("incarnation", incarnation.0);
                encode_remark(to, remark);
            }
            Self::Record(Record::GivenUp(incarnation, participant, remark)) => {
                to.u64("incarnation", incarnation.0);
                to.name("participant", participant.as_str());
                encode_remark(to, remark);
            }
            Self::Outcomes(chunk) => encode_outcomes(to, chunk),
            Self::Payload(id, key, bytes) => encode_payload(to, *id, key, bytes),
        }
    }
}

/// Whether a record fits the format.
///
/// # Errors
/// What is too long or does not belong together.
pub fn check(record: &Record) -> Result<(), &'static str> {
    let bounded = |fits: bool, why| if fits { Ok(()) } else { Err(why) };
    let many = usize::from(u16::MAX);
    match record {
        Record::Incarnation(record) => bounded(record.participants.len() <= many, "more than 65535 participants"),
        Record::Participant(record) => bounded(record.reason.len() <= many, "a reason longer than 65535 bytes"),
        Record::Commit(record) => {
            bounded(record.transaction.sequence > 0, "a transaction with sequence 0")?;
            bounded(record.branches.len() <= many, "more than 65535 branches")?;
            let own = record.branches.iter().all(|branch| branch.id.transaction == record.transaction);
            bounded(own, "a decision over another transaction's branch")?;
            let payload = record.payload.as_ref();
            bounded(payload.is_none_or(|p| p.key.len() <= MAX_KEY), "a payload key longer than 255 bytes")?;
            bounded(payload.is_none_or(|p| p.bytes.len() <= MAX_PAYLOAD), "a payload larger than 5 MiB")
        }
        Record::Done(id) | Record::OnePhase(id) | Record::Witnessed(id) => {
            bounded(id.sequence > 0, "a transaction with sequence 0")
        }
        Record::Damaged(record) => {
            bounded(record.transaction.sequence > 0, "a transaction with sequence 0")?;
            bounded(record.branches.len() <= many, "more than 65535 branches")?;
            let own = record.branches.iter().all(|branch| branch.id.transaction == record.transaction);
            bounded(own, "damage to another transaction's branch")?;
            let short = record.branches.iter().all(|branch| branch.why.len() <= many);
            bounded(short, "a description longer than 65535 bytes")?;
            let words: usize = record.branches.iter().map(|branch| branch.why.len()).sum();
            bounded(words <= MAX_PAYLOAD, "descriptions larger than 5 MiB")
        }
        Record::Resolved(id, _, remark) | Record::Forgotten(id, remark) => {
            bounded(id.sequence > 0, "a transaction with sequence 0")?;
            check_remark(remark)
        }
        Record::Incomplete(_, remark) | Record::GivenUp(_, _, remark) => check_remark(remark),
        Record::Settled(..) => Ok(()),
    }
}

fn check_remark(remark: &Remark) -> Result<(), &'static str> {
    let many = usize::from(u16::MAX);
    if remark.host.len() <= many && remark.reason.len() <= many {
        Ok(())
    } else {
        Err("a reason longer than 65535 bytes")
    }
}

/// The entry that a content of that type is.
pub(super) fn decode(kind: EntryType, content: &[u8]) -> Result<Entry, Malformed> {
    let mut from = Decoder(content);
    let entry = match kind {
        EntryType::Header => Entry::Header(decode_header(&mut from)?),
        EntryType::Mark => Entry::Mark,
        EntryType::Next => Entry::Next(from.u64("sequence")?),
        EntryType::Incarnation => Entry::Record(Record::Incarnation(decode_incarnation(&mut from)?)),
        EntryType::Participant => Entry::Record(Record::Participant(decode_participant(&mut from)?)),
        EntryType::Commit => Entry::Record(Record::Commit(decode_commit(&mut from)?)),
        EntryType::Done => Entry::Record(Record::Done(from.transaction()?)),
        EntryType::OnePhase => Entry::Record(Record::OnePhase(from.transaction()?)),
        EntryType::Settled => Entry::Record(decode_settled(&mut from)?),
        EntryType::Damaged => Entry::Record(Record::Damaged(decode_damaged(&mut from)?)),
        EntryType::Resolved => Entry::Record(decode_resolved(&mut from)?),
        EntryType::Forgotten => Entry::Record(Record::Forgotten(from.transaction()?, decode_remark(&mut from)?)),
        EntryType::Incomplete => {
            Entry::Record(Record::Incomplete(from.incarnation("incarnation")?, decode_remark(&mut from)?))
        }
        EntryType::Witnessed => Entry::Record(Record::Witnessed(from.transaction()?)),
        EntryType::GivenUp => {
            let (incarnation, participant) = (from.incarnation("incarnation")?, from.participant("participant")?);
            Entry::Record(Record::GivenUp(incarnation, participant, decode_remark(&mut from)?))
        }
        EntryType::Outcomes => Entry::Outcomes(decode_outcomes(&mut from)?),
        EntryType::Payload => decode_payload(&mut from).map(|(id, payload)| Entry::Payload(id, payload))?,
    };
    from.end()?;
    Ok(entry)
}

fn encode_header(to: &mut Encoder<'_>, header: &Header) {
    to.u32("format_version", header.format as u32);
    to.u64("journal", header.journal.0);
    to.u64("incarnation", header.incarnation.0);
    to.u64("sequence", header.sequence);
    to.u64("previous_end", header.previous_end);
    to.u64("snapshot_end", header.snapshot_end);
}

fn decode_header(from: &mut Decoder<'_>) -> Result<Header, Malformed> {
    let version = from.u32("format_version")?;
    let header = Header {
        format: FormatVersion::from_number(version).ok_or(Malformed { field: "format_version", why: "is unknown" })?,
        journal: JournalId(from.u64("journal")?),
        incarnation: from.incarnation("incarnation")?,
        sequence: from.u64("sequence")?,
        previous_end: from.u64("previous_end")?,
        snapshot_end: from.u64("snapshot_end")?,
    };
    let header_end = HEADER_END as u64;
    match header {
        Header { sequence: 0, .. } => Err(Malformed { field: "sequence", why: "is 0" }),
        Header { snapshot_end, .. } if snapshot_end < header_end => {
            Err(Malformed { field: "snapshot_end", why: "lies within the header" })
        }
        Header { previous_end, .. } if previous_end != 0 && previous_end < header_end => {
            Err(Malformed { field: "previous_end", why: "lies within a header" })
        }
        _ => Ok(header),
    }
}

fn encode_incarnation(to: &mut Encoder<'_>, record: &IncarnationRecord) {
    to.name("node", record.node.as_str());
    to.u64("incarnation", record.incarnation.0);
    to.u64("opened_at_ms", record.opened_at_ms);
    to.u16("participants.count", u16::try_from(record.participants.len()).expect("checked against its limit"));
    for participant in &record.participants {
        to.name("participants[]", participant.as_str());
    }
}

fn decode_incarnation(from: &mut Decoder<'_>) -> Result<IncarnationRecord, Malformed> {
    let node = from.node("node")?;
    let incarnation = from.incarnation("incarnation")?;
    let opened_at_ms = from.u64("opened_at_ms")?;
    let count = from.u16("participants.count")?;
    let participants = (0..count).map(|_| from.participant("participants[]")).collect::<Result<_, _>>()?;
    Ok(IncarnationRecord { node, incarnation, opened_at_ms, participants })
}

fn encode_participant(to: &mut Encoder<'_>, record: &ParticipantRecord) {
    to.name("name", record.name.as_str());
    to.u64("lineage", record.lineage.0);
    to.text16("reason", &record.reason);
}

fn decode_participant(from: &mut Decoder<'_>) -> Result<ParticipantRecord, Malformed> {
    Ok(ParticipantRecord {
        name: from.participant("name")?,
        lineage: from.lineage("lineage")?,
        reason: from.text16("reason")?.to_owned(),
    })
}

fn encode_commit(to: &mut Encoder<'_>, record: &CommitRecord, payload: Option<&Payload>) {
    to.transaction(record.transaction);
    to.u16("branches.count", u16::try_from(record.branches.len()).expect("checked against its limit"));
    for branch in &record.branches {
        assert_eq!(branch.id.transaction, record.transaction, "a decision is over its own branches");
        to.u16("branches[].number", branch.id.participant);
        to.u32("branches[].slot", branch.id.slot);
        to.name("branches[].participant", branch.participant.as_str());
        to.u64("branches[].lineage", branch.lineage.0);
    }
    to.u8("payload.present", u8::from(payload.is_some()));
    if let Some(payload) = payload {
        to.bytes8("payload.key", &payload.key);
        to.bytes32("payload.bytes", &payload.bytes);
    }
}

fn decode_commit(from: &mut Decoder<'_>) -> Result<CommitRecord, Malformed> {
    let transaction = from.transaction()?;
    let count = from.u16("branches.count")?;
    let branches = (0..count).map(|_| decode_branch(from, transaction)).collect::<Result<_, _>>()?;
    let payload = match from.flag("payload.present")? {
        true => Some(decode_key_and_bytes(from)?),
        false => None,
    };
    Ok(CommitRecord { transaction, branches, payload })
}

fn decode_branch(from: &mut Decoder<'_>, transaction: TransactionId) -> Result<DecidedBranch, Malformed> {
    let id = transaction.branch(from.u16("branches[].number")?, from.u32("branches[].slot")?);
    let participant = from.participant("branches[].participant")?;
    Ok(DecidedBranch { id, participant, lineage: from.lineage("branches[].lineage")? })
}

fn decode_settled(from: &mut Decoder<'_>) -> Result<Record, Malformed> {
    let incarnation = from.incarnation("incarnation")?;
    let absence = decode_absence(from, "absence")?.ok_or(Malformed { field: "absence", why: "is 0" })?;
    Ok(Record::Settled(incarnation, absence))
}

fn absence_code(absence: Option<Absence>) -> u8 {
    match absence {
        None => 0,
        Some(Absence::RolledBack) => 1,
        Some(Absence::Unproven) => 2,
    }
}

fn decode_absence(from: &mut Decoder<'_>, field: &'static str) -> Result<Option<Absence>, Malformed> {
    match from.u8(field)? {
        0 => Ok(None),
        1 => Ok(Some(Absence::RolledBack)),
        2 => Ok(Some(Absence::Unproven)),
        _ => Err(Malformed { field, why: "is more than 2" }),
    }
}

fn encode_damaged(to: &mut Encoder<'_>, record: &DamageRecord) {
    to.transaction(record.transaction);
    to.u64("found_at_ms", record.found_at_ms);
    to.u64("found_by", record.found_by.0);
    to.u16("branches.count", u16::try_from(record.branches.len()).expect("checked against its limit"));
    for branch in &record.branches {
        to.u16("branches[].number", branch.id.participant);
        to.u32("branches[].slot", branch.id.slot);
        to.name("branches[].participant", branch.participant.as_str());
        to.text16("branches[].why", &branch.why);
    }
}

fn decode_damaged(from: &mut Decoder<'_>) -> Result<DamageRecord, Malformed> {
    let transaction = from.transaction()?;
    let found_at_ms = from.u64("found_at_ms")?;
    let found_by = from.incarnation("found_by")?;
    let count = from.u16("branches.count")?;
    let branch = |from: &mut Decoder<'_>| {
        let id = transaction.branch(from.u16("branches[].number")?, from.u32("branches[].slot")?);
        let participant = from.participant("branches[].participant")?;
        Ok(DamagedBranch { id, participant, why: from.text16("branches[].why")?.to_owned() })
    };
    let branches = (0..count).map(|_| branch(from)).collect::<Result<_, _>>()?;
    Ok(DamageRecord { transaction, branches, found_at_ms, found_by })
}

fn resolution_code(resolution: Resolution) -> u8 {
    match resolution {
        Resolution::Commit => 1,
        Resolution::RollBack => 2,
    }
}

fn decode_resolved(from: &mut Decoder<'_>) -> Result<Record, Malformed> {
    let id = from.transaction()?;
    let resolution = match from.u8("resolution")? {
        1 => Resolution::Commit,
        2 => Resolution::RollBack,
        _ => return Err(Malformed { field: "resolution", why: "is neither 1 nor 2" }),
    };
    Ok(Record::Resolved(id, resolution, decode_remark(from)?))
}

fn encode_remark(to: &mut Encoder<'_>, remark: &Remark) {
    to.u64("at_ms", remark.at_ms);
    to.text16("host", &remark.host);
    to.text16("reason", &remark.reason);
}

fn decode_remark(from: &mut Decoder<'_>) -> Result<Remark, Malformed> {
    Ok(Remark {
        at_ms: from.u64("at_ms")?,
        host: from.text16("host")?.to_owned(),
        reason: from.text16("reason")?.to_owned(),
    })
}

fn encode_outcomes(to: &mut Encoder<'_>, chunk: &OutcomeChunk) {
    let mut bytes = Vec::with_capacity(chunk.committed.serialized_size());
    chunk.committed.serialize_into(&mut bytes).expect("writing to a Vec cannot fail");
    to.u64("incarnation", chunk.incarnation.0);
    to.u8("settled", absence_code(chunk.settled));
    to.bytes32("committed", &bytes);
}

fn decode_outcomes(from: &mut Decoder<'_>) -> Result<OutcomeChunk, Malformed> {
    let incarnation = from.incarnation("incarnation")?;
    let settled = decode_absence(from, "settled")?;
    let committed = RoaringTreemap::deserialize_from(from.bytes32("committed")?)
        .map_err(|_| Malformed { field: "committed", why: "is not a Roaring bitmap" })?;
    Ok(OutcomeChunk { incarnation, settled, committed })
}

fn encode_payload(to: &mut Encoder<'_>, id: TransactionId, key: &[u8], bytes: &[u8]) {
    to.transaction(id);
    to.bytes8("payload.key", key);
    to.bytes32("payload.bytes", bytes);
}

fn decode_payload(from: &mut Decoder<'_>) -> Result<(TransactionId, Payload), Malformed> {
    Ok((from.transaction()?, decode_key_and_bytes(from)?))
}

fn decode_key_and_bytes(from: &mut Decoder<'_>) -> Result<Payload, Malformed> {
    Ok(Payload { key: from.bytes8("payload.key")?.to_vec(), bytes: from.bytes32("payload.bytes")?.to_vec() })
}
