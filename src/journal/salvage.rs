//! What a person may still want to see of a segment whose header is damaged.
//!
//! Frames are bound to journal, segment and opening by their checksums, and the header says which. The journal is
//! named by the lock file, the segment by its file. The opening is named by the entry that registers it, which is
//! near the beginning: so every eight bytes there are tried, until some frame says that they are right. Nothing that
//! is found in this way counts for anything.

use super::format::{FormatVersion, Frame, HEADER_AT, HEADER_END, Header};
use super::reader::Segment;
use crate::id::{Incarnation, JournalId};

/// How far from the beginning the opening is looked for.
const WINDOW: usize = 16 << 10;
/// How many likely frames are asked.
const WITNESSES: usize = 8;

/// The segment behind a damaged header.
pub fn without_header(bytes: Vec<u8>, journal: JournalId, sequence: u64) -> Option<Segment> {
    let start = &bytes[..bytes.len().min(WINDOW)];
    let likely: Vec<_> = (HEADER_AT + 1..start.len()).filter(|offset| Frame::is_likely(&bytes, *offset)).collect();
    let witnesses = &likely[..likely.len().min(WITNESSES)];
    let incarnation =
        start.windows(8).map(|eight| Incarnation(u64::from_le_bytes(eight.try_into().expect("eight bytes"))));
    let headers = incarnation.map(|incarnation| Header {
        format: FormatVersion::DecisionsAndOutcomes,
        journal,
        incarnation,
        sequence,
        previous_end: 0,
        snapshot_end: HEADER_END as u64,
    });
    let is_right = |header: &Header| {
        let binding = header.binding();
        witnesses.iter().any(|offset| Frame::at(&bytes, *offset, binding).is_some())
    };
    let header = headers.into_iter().find(is_right)?;
    Some(Segment::guessed(header, bytes))
}
