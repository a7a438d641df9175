//! Checksums put right behind a fuzzer's back: most of what reads a journal begins behind them.
//!
//! Written from `docs/journal-format.md` and not with the library's encoder, as a second opinion.

use handfast::journal::format::{CHECKSUM_AT, CONTENT_AT, HEADER_AT, HEADER_END, MAGIC, TYPE_AT};

fn checksum(binding: u32, offset: usize, length: &[u8], body: &[u8]) -> u32 {
    let bound = crc32c::crc32c_append(binding, &(offset as u64).to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(bound, length), body)
}

/// Gives every frame of a segment the checksum that belongs to it, from the header on, as far as lengths lead.
pub fn seal(segment: &mut [u8]) {
    if segment.len() < HEADER_END || segment[..HEADER_AT] != MAGIC {
        return;
    }
    let journal_incarnation_sequence = HEADER_AT + CONTENT_AT + 4;
    let binding = crc32c::crc32c(&segment[journal_incarnation_sequence..][..24]);
    let mut offset = HEADER_AT;
    while let Some((length, rest)) = segment[offset..].split_first_chunk::<CHECKSUM_AT>() {
        let body = u32::from_le_bytes(*length) as usize;
        let Some(body) = rest.get(TYPE_AT - CHECKSUM_AT..).and_then(|rest| rest.get(..body)) else { return };
        if body.is_empty() {
            return;
        }
        let (end, of) = (offset + TYPE_AT + body.len(), if offset == HEADER_AT { 0 } else { binding });
        let checksum = checksum(of, offset, length, body).to_le_bytes();
        segment[offset + CHECKSUM_AT..][..checksum.len()].copy_from_slice(&checksum);
        offset = end;
    }
}
