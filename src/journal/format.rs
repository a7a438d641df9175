//! The bytes of the journal, each defined once. Pure: bytes in, values out, and back.
//!
//! `docs/journal-format.md` gives the layout; a test holds it equal to this file. In short: a segment is [`MAGIC`],
//! then frames without gaps, then zeros up to the preallocated length. A frame is a length, a checksum and a body;
//! the first frame is the [`Header`].
//!
//! The checksum covers more than the frame: it begins with the segment's [`Binding`] and the frame's own offset. So
//! bytes that were a frame elsewhere (in another segment, in a deleted file whose blocks came back, in a payload
//! that happens to hold a copy of a journal) are not a frame here. That matters because the reader looks for frames
//! behind a damaged one.

pub(crate) mod wire;
pub use wire::Malformed;

use crate::id::{Incarnation, JournalId, TransactionId};
use crate::protocol::{CommitRecord, DecidedBranch, IncarnationRecord, ParticipantRecord, Payload, Record};
use roaring::RoaringTreemap;
use wire::{Decoder, Encoder};

/// The first bytes of a segment, in the manner of PNG: a byte that no text has, letters, and line ends that a
/// newline translation would break.
pub const MAGIC: [u8; 8] = *b"\x89HFJ\r\n\x1a\n";

/// Where a frame's length is: the bytes of its body, little-endian. 0 is no frame.
pub const LENGTH_AT: usize = 0;
/// Where a frame's checksum is: CRC-32C over binding, offset, length and body.
pub const CHECKSUM_AT: usize = LENGTH_AT + 4;
/// Where a frame's body begins, with the type of its entry.
pub const TYPE_AT: usize = CHECKSUM_AT + 4;
/// Where the version of the entry's content is.
pub const VERSION_AT: usize = TYPE_AT + 1;
/// Two bytes of zero.
pub const RESERVED_AT: usize = VERSION_AT + 1;
/// Where the offset is through which the segment was known durable when the frame was written.
pub const SYNCED_AT: usize = RESERVED_AT + 2;
/// Where the entry's content begins.
pub const CONTENT_AT: usize = SYNCED_AT + 8;

/// The length of a body without content.
pub const MIN_BODY: usize = CONTENT_AT - TYPE_AT;
/// No body is longer: room for the largest payload and the longest list of branches.
pub const MAX_BODY: usize = 8 << 20;
/// The largest payload.
pub const MAX_PAYLOAD: usize = 5 << 20;
/// The largest key of a payload.
pub const MAX_KEY: usize = 255;

/// Where the first frame, the header, begins.
pub const HEADER_AT: usize = MAGIC.len();
/// Where the header ends and the first entry may begin.
pub const HEADER_END: usize = HEADER_AT + CONTENT_AT + 4 + 5 * 8;
/// The length of a frame without content.
pub const MARK_LENGTH: usize = CONTENT_AT;
/// The length of the frame that closes a segment; so much is always kept free.
pub const NEXT_LENGTH: usize = CONTENT_AT + 8;

/// The versions of the format, named by what they can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum FormatVersion {
    /// The first: decisions with payloads, snapshots with outcome histories.
    DecisionsAndOutcomes = 1,
}

impl FormatVersion {
    fn from_number(number: u32) -> Option<Self> {
        (number == Self::DecisionsAndOutcomes as u32).then_some(Self::DecisionsAndOutcomes)
    }
}

/// What a segment says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The version of all that follows.
    pub format: FormatVersion,
    /// Which journal it belongs to.
    pub journal: JournalId,
    /// The opening that made it; 0 for the one that `init` made.
    pub incarnation: Incarnation,
    /// Its number, counted from 1 without gaps.
    pub sequence: u64,
    /// The length of the segment before it, all of which was durable before this one got its name; 0 if it stands
    /// for all earlier ones.
    pub previous_end: u64,
    /// Up to where it was durable before it got its name: the end of the snapshot, or of this header.
    pub snapshot_end: u64,
}

impl Header {
    /// Whether it begins with a snapshot, so that no earlier segment is needed.
    pub fn is_base(&self) -> bool {
        self.previous_end == 0
    }

    /// What frames of this segment are bound to.
    pub fn binding(&self) -> Binding {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.journal.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.incarnation.0.to_le_bytes());
        bytes[16..].copy_from_slice(&self.sequence.to_le_bytes());
        Binding(crc32c::crc32c(&bytes))
    }
}

/// The part of a checksum that ties a frame to its segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binding(u32);

impl Binding {
    /// The header's own: it is what says where it belongs.
    pub const HEADER: Self = Self(0);

    fn checksum(self, offset: u64, length: [u8; 4], body: &[u8]) -> u32 {
        let bound = crc32c::crc32c_append(self.0, &offset.to_le_bytes());
        crc32c::crc32c_append(crc32c::crc32c_append(bound, &length), body)
    }
}

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
    /// [`Entry::Outcomes`]
    Outcomes = 32,
    /// [`Entry::Payload`]
    Payload = 33,
}

impl EntryType {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Header,
        Self::Mark,
        Self::Next,
        Self::Incarnation,
        Self::Participant,
        Self::Commit,
        Self::Done,
        Self::OnePhase,
        Self::Outcomes,
        Self::Payload,
    ];

    /// The version of its content that this program writes.
    pub const VERSION: u8 = 1;

    fn from_number(number: u8) -> Option<Self> {
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
    /// Whether nothing of that incarnation can move any more. Reserved: this version writes `false`.
    pub settled: bool,
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
    fn kind(&self) -> EntryType {
        match self {
            Self::Header(_) => EntryType::Header,
            Self::Mark => EntryType::Mark,
            Self::Next(_) => EntryType::Next,
            Self::Record(Record::Incarnation(_)) => EntryType::Incarnation,
            Self::Record(Record::Participant(_)) => EntryType::Participant,
            Self::Record(Record::Commit(_)) | Self::Open(_) => EntryType::Commit,
            Self::Record(Record::Done(_)) => EntryType::Done,
            Self::Record(Record::OnePhase(_)) => EntryType::OnePhase,
            Self::Outcomes(_) => EntryType::Outcomes,
            Self::Payload(..) => EntryType::Payload,
        }
    }

    fn encode(&self, to: &mut Encoder<'_>) {
        match self {
            Self::Header(header) => encode_header(to, header),
            Self::Mark => {}
            Self::Next(sequence) => to.u64("sequence", *sequence),
            Self::Record(Record::Incarnation(record)) => encode_incarnation(to, record),
            Self::Record(Record::Participant(record)) => encode_participant(to, record),
            Self::Record(Record::Commit(record)) => encode_commit(to, record, record.payload.as_ref()),
            Self::Open(record) => encode_commit(to, record, None),
            Self::Record(Record::Done(id) | Record::OnePhase(id)) => to.transaction(*id),
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
        Record::Done(id) | Record::OnePhase(id) => bounded(id.sequence > 0, "a transaction with sequence 0"),
    }
}

/// Appends the frame of `content` to `buffer`, for the place `offset` of the segment that `binding` names, and
/// returns the frame's length.
///
/// # Panics
/// On content that [`check`] refuses, and on a mark beyond the frame itself.
pub fn encode(buffer: &mut Vec<u8>, binding: Binding, offset: u64, synced: u64, content: Content<'_>) -> usize {
    assert!(synced <= offset, "a frame cannot be known durable before it is written");
    let start = buffer.len();
    buffer.extend_from_slice(&[0; TYPE_AT]);
    buffer.extend_from_slice(&[content.kind() as u8, EntryType::VERSION, 0, 0]);
    buffer.extend_from_slice(&synced.to_le_bytes());
    content.encode(&mut Encoder(buffer));
    let body = buffer.len() - start - TYPE_AT;
    assert!((MIN_BODY..=MAX_BODY).contains(&body), "a body of {body} bytes");
    let length = u32::try_from(body).expect("at most MAX_BODY").to_le_bytes();
    let checksum = binding.checksum(offset, length, &buffer[start + TYPE_AT..]);
    buffer[start + LENGTH_AT..start + CHECKSUM_AT].copy_from_slice(&length);
    buffer[start + CHECKSUM_AT..start + TYPE_AT].copy_from_slice(&checksum.to_le_bytes());
    buffer.len() - start
}

/// Magic and header: how a segment begins.
pub fn encode_beginning(buffer: &mut Vec<u8>, header: &Header) {
    assert!(buffer.is_empty() && header.sequence > 0, "a segment begins with its header");
    assert!(header.snapshot_end >= HEADER_END as u64, "the header is durable before it is used");
    buffer.extend_from_slice(&MAGIC);
    encode(buffer, Binding::HEADER, HEADER_AT as u64, 0, Content::Header(header));
    assert_eq!(buffer.len(), HEADER_END, "the header's length is part of the format");
}

/// A frame whose checksum is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Where it begins in its segment.
    pub offset: u64,
    /// Where it ends.
    pub end: u64,
    /// Through where the segment was known durable when it was written.
    pub synced: u64,
    kind: u8,
    version: u8,
    content: &'a [u8],
}

/// Why a frame with a good checksum cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Undecodable {
    /// A later version wrote it.
    #[error("an entry of type {kind}, version {version}, which this version of Handfast does not know")]
    Unknown {
        /// The type's number.
        kind: u8,
        /// The version of the content.
        version: u8,
    },
    /// No version wrote it.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

impl<'a> Frame<'a> {
    /// The frame that begins at `offset` of a segment's bytes; `None` if there is none.
    pub fn at(segment: &'a [u8], offset: usize, binding: Binding) -> Option<Self> {
        let bytes = segment.get(offset..)?;
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (checksum, rest) = rest.split_first_chunk::<4>()?;
        let body = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        if !(MIN_BODY..=MAX_BODY).contains(&body) {
            return None;
        }
        let body = rest.get(..body)?;
        let (&[kind, version, 0, 0], rest) = body.split_first_chunk::<4>()? else { return None };
        let (synced, content) = rest.split_first_chunk::<8>()?;
        let (synced, offset) = (u64::from_le_bytes(*synced), u64::try_from(offset).ok()?);
        // The cheap checks come first: the search behind a damaged frame asks at every byte.
        if synced > offset || binding.checksum(offset, *length, body) != u32::from_le_bytes(*checksum) {
            return None;
        }
        let end = offset + (TYPE_AT + body.len()) as u64;
        assert!(end > offset && end <= segment.len() as u64, "a frame lies within its segment");
        Some(Self { offset, end, synced, kind, version, content })
    }

    /// What it holds.
    ///
    /// # Errors
    /// [`Undecodable`].
    pub fn decode(&self) -> Result<Entry, Undecodable> {
        let unknown = Undecodable::Unknown { kind: self.kind, version: self.version };
        let kind = EntryType::from_number(self.kind).filter(|_| self.version == EntryType::VERSION).ok_or(unknown)?;
        let mut from = Decoder(self.content);
        let entry = match kind {
            EntryType::Header => Entry::Header(decode_header(&mut from)?),
            EntryType::Mark => Entry::Mark,
            EntryType::Next => Entry::Next(from.u64("sequence")?),
            EntryType::Incarnation => Entry::Record(Record::Incarnation(decode_incarnation(&mut from)?)),
            EntryType::Participant => Entry::Record(Record::Participant(decode_participant(&mut from)?)),
            EntryType::Commit => Entry::Record(Record::Commit(decode_commit(&mut from)?)),
            EntryType::Done => Entry::Record(Record::Done(from.transaction()?)),
            EntryType::OnePhase => Entry::Record(Record::OnePhase(from.transaction()?)),
            EntryType::Outcomes => Entry::Outcomes(decode_outcomes(&mut from)?),
            EntryType::Payload => decode_payload(&mut from).map(|(id, payload)| Entry::Payload(id, payload))?,
        };
        from.end()?;
        Ok(entry)
    }
}

/// Why a segment's beginning is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadBeginning {
    /// It has no bytes at all.
    #[error("the file is empty")]
    Empty,
    /// Its first bytes are others.
    #[error("the file does not begin as a segment does")]
    Magic,
    /// Its header is damaged or cut.
    #[error("the segment's header is damaged")]
    Header,
    /// A later version wrote it.
    #[error("the segment has format version {0}, which this version of Handfast does not know")]
    Version(u32),
}

/// The header of a segment.
///
/// # Errors
/// [`BadBeginning`].
pub fn decode_beginning(segment: &[u8]) -> Result<Header, BadBeginning> {
    match segment.get(..HEADER_AT) {
        _ if segment.is_empty() => return Err(BadBeginning::Empty),
        Some(magic) if magic == MAGIC => {}
        _ => return Err(BadBeginning::Magic),
    }
    let frame = Frame::at(segment, HEADER_AT, Binding::HEADER).ok_or(BadBeginning::Header)?;
    // The header frame keeps this layout in all versions, so that each can name the other.
    let version = Decoder(frame.content).u32("format_version").map_err(|_| BadBeginning::Header)?;
    FormatVersion::from_number(version).ok_or(BadBeginning::Version(version))?;
    match frame.decode() {
        Ok(Entry::Header(header)) if frame.end == HEADER_END as u64 => Ok(header),
        _ => Err(BadBeginning::Header),
    }
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

fn encode_outcomes(to: &mut Encoder<'_>, chunk: &OutcomeChunk) {
    let mut bytes = Vec::with_capacity(chunk.committed.serialized_size());
    chunk.committed.serialize_into(&mut bytes).expect("writing to a Vec cannot fail");
    to.u64("incarnation", chunk.incarnation.0);
    to.u8("settled", u8::from(chunk.settled));
    to.bytes32("committed", &bytes);
}

fn decode_outcomes(from: &mut Decoder<'_>) -> Result<OutcomeChunk, Malformed> {
    let incarnation = from.incarnation("incarnation")?;
    let settled = from.flag("settled")?;
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
