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

mod entry;
pub(crate) mod wire;

pub use entry::{Content, Entry, EntryType, OutcomeChunk, check};
pub use wire::Malformed;

use crate::id::{Incarnation, JournalId};
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
        let (frame, length, checksum) = Self::split(segment, offset)?;
        let body = &segment[offset + TYPE_AT..][..frame.content.len() + MIN_BODY];
        // The search behind a damaged frame asks at every byte: this comes after the cheap checks.
        if binding.checksum(frame.offset, length, body) != checksum {
            return None;
        }
        assert!(frame.end > frame.offset && frame.end <= segment.len() as u64, "a frame lies within its segment");
        Some(frame)
    }

    /// Whether the bytes at `offset` look like a frame, whatever their checksum.
    pub(super) fn is_likely(segment: &'a [u8], offset: usize) -> bool {
        Self::split(segment, offset).is_some_and(|(frame, ..)| EntryType::from_number(frame.kind).is_some())
    }

    /// Takes bytes for a frame: its parts, its length and its checksum, which is yet to be compared.
    fn split(segment: &'a [u8], offset: usize) -> Option<(Self, [u8; 4], u32)> {
        let bytes = segment.get(offset..)?;
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (checksum, rest) = rest.split_first_chunk::<4>()?;
        let body = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        if !(MIN_BODY..=MAX_BODY).contains(&body) {
            return None;
        }
        let (&[kind, version, 0, 0], rest) = rest.get(..body)?.split_first_chunk::<4>()? else { return None };
        let (synced, content) = rest.split_first_chunk::<8>()?;
        let (synced, offset) = (u64::from_le_bytes(*synced), u64::try_from(offset).ok()?);
        let end = offset + (TYPE_AT + body) as u64;
        let frame = Self { offset, end, synced, kind, version, content };
        (synced <= offset).then_some((frame, *length, u32::from_le_bytes(*checksum)))
    }

    /// What it holds.
    ///
    /// # Errors
    /// [`Undecodable`].
    pub fn decode(&self) -> Result<Entry, Undecodable> {
        let unknown = Undecodable::Unknown { kind: self.kind, version: self.version };
        let kind = EntryType::from_number(self.kind).filter(|_| self.version == EntryType::VERSION).ok_or(unknown)?;
        Ok(entry::decode(kind, self.content)?)
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
