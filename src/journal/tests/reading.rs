//! How a segment ends: every explanation of bytes that are no frame.

use super::samples::{commit, decision, done, id};
use crate::id::{Incarnation, JournalId};
use crate::journal::format::{self, Content, FormatVersion, HEADER_END, Header, Undecodable};
use crate::journal::reader::{End, Segment, Step};
use crate::protocol::Record;

fn header() -> Header {
    Header {
        format: FormatVersion::DecisionsAndOutcomes,
        journal: JournalId(1),
        incarnation: Incarnation(1),
        sequence: 1,
        previous_end: 0,
        snapshot_end: HEADER_END as u64,
    }
}

/// A segment of 4096 bytes with frames that know only the header durable, except for the given marks: the index
/// of a frame, and the index of the frame at whose beginning its synced-through lies.
fn segment(records: &[Record], marks: &[(usize, usize)]) -> (Vec<u8>, Vec<usize>) {
    let mut bytes = Vec::new();
    format::encode_beginning(&mut bytes, &header());
    let mut offsets = vec![];
    for (index, record) in records.iter().enumerate() {
        offsets.push(bytes.len());
        let mark = marks.iter().find(|(frame, _)| *frame == index);
        let synced = mark.map_or(HEADER_END, |(_, through)| offsets[*through]);
        let offset = bytes.len() as u64;
        format::encode(&mut bytes, header().binding(), offset, synced as u64, Content::Record(record));
    }
    offsets.push(bytes.len());
    bytes.resize(4096, 0);
    (bytes, offsets)
}

fn records(count: u64) -> Vec<Record> {
    (1..=count).map(|sequence| commit(1, sequence)).collect()
}

/// How many entries there are, and how the segment ends.
fn read(bytes: &[u8], sealed_at: Option<usize>) -> (usize, End) {
    let segment = Segment::read(bytes).unwrap().unwrap();
    let steps: Vec<_> = segment.steps(sealed_at.map(|end| end as u64)).collect();
    let (Some(Step::End(end)), count) = (steps.last(), steps.len() - 1) else { panic!("{steps:?}") };
    (count, end.clone())
}

#[test]
fn zeros_are_a_clean_end_and_anything_else_is_torn() {
    let (mut bytes, offsets) = segment(&records(3), &[]);
    let end = offsets[3];
    assert_eq!(read(&bytes, None), (3, End::Clean(end as u64)));
    for garbage in [end, end + 1, end + 500, 4095] {
        bytes[garbage] = 1;
        assert_eq!(read(&bytes, None), (3, End::Torn(end as u64)), "a byte at {garbage}");
        bytes[garbage] = 0;
    }
    // Cut short, within the zeros or at the very end.
    assert_eq!(read(&bytes[..end + 3], None), (3, End::Clean(end as u64)));
    assert_eq!(read(&bytes[..end], None), (3, End::Clean(end as u64)));
}

/// D08: of an unsynced batch any part may survive. What follows the hole does not count.
#[test]
fn d08_frames_behind_a_hole_are_torn_if_no_mark_vouches_for_it() {
    for lost in 0..5 {
        let (mut bytes, offsets) = segment(&records(5), &[]);
        bytes[offsets[lost]..offsets[lost + 1]].fill(0);
        let place = offsets[lost] as u64;
        let end = if lost == 4 { End::Clean(place) } else { End::Torn(place) };
        assert_eq!(read(&bytes, None), (lost, end));
    }
}

/// J4: the last of five says how far the segment is durable. A hole below that is corruption, one above is torn.
#[test]
fn a_mark_behind_the_hole_decides() {
    for through in 0..5 {
        for lost in 0..4 {
            let (mut bytes, offsets) = segment(&records(5), &[(4, through)]);
            bytes[offsets[lost] + 9] ^= 0x40;
            let (count, end) = read(&bytes, None);
            assert_eq!(count, lost);
            let place = offsets[lost] as u64;
            match end {
                End::Corrupt(at, why) => assert!(lost < through && at == place, "{lost} of {through}: {why}"),
                other => assert!(lost >= through && other == End::Torn(place), "{lost} of {through}: {other:?}"),
            }
        }
    }
}

/// J4: a segment that another follows was durable up to its end, and nothing behind that counts.
#[test]
fn a_sealed_segment_is_whole_or_corrupt() {
    let (bytes, offsets) = segment(&records(5), &[]);
    assert_eq!(read(&bytes, Some(offsets[5])), (5, End::Clean(offsets[5] as u64)));
    assert_eq!(read(&bytes, Some(offsets[3])), (3, End::Clean(offsets[3] as u64)));
    assert!(matches!(read(&bytes, Some(offsets[5] + 100)), (5, End::Corrupt(..))), "zeros where entries were");
    assert!(matches!(read(&bytes, Some(offsets[3] + 1)), (3, End::Corrupt(..))), "an entry across the end");
    assert!(matches!(read(&bytes[..offsets[4]], Some(offsets[5])), (4, End::Corrupt(..))), "cut short");
}

/// J8: a torn decision whose payload holds a copy of a journal, marks and all, is torn and nothing else.
#[test]
fn a_copy_of_a_journal_in_a_payload_vouches_for_nothing() {
    let (copy, _) = segment(&records(5), &[(4, 4)]);
    let (first, second) = (commit(1, 6), Record::Commit(decision(id(1, 7), Some((b"copy", &copy[..1500])))));
    let (mut bytes, offsets) = segment(&[first, second], &[]);
    bytes[offsets[1]] ^= 1;
    assert_eq!(read(&bytes, None), (1, End::Torn(offsets[1] as u64)));
    let found = Segment::parse(bytes).unwrap().salvage(0);
    assert_eq!(found.len(), 1, "the copies are not entries of this segment");
}

/// A good checksum over a type of a later version is neither torn nor corrupt.
#[test]
fn an_entry_of_a_later_version_is_named() {
    let (mut bytes, offsets) = segment(&[commit(1, 1), done(1, 1)], &[]);
    let frame = offsets[1]..offsets[2];
    let (kind, version) = (200, 3);
    bytes[frame.start + format::TYPE_AT] = kind;
    bytes[frame.start + format::VERSION_AT] = version;
    let mut sealed = [1_u64, 1, 1, frame.start as u64].map(u64::to_le_bytes).concat();
    sealed.extend_from_slice(&bytes[frame.start..frame.start + format::CHECKSUM_AT]);
    sealed.extend_from_slice(&bytes[frame.start + format::TYPE_AT..frame.end]);
    let checksum = crc32c::crc32c(&sealed).to_le_bytes();
    bytes[frame.start + format::CHECKSUM_AT..frame.start + format::TYPE_AT].copy_from_slice(&checksum);
    let unknown = Undecodable::Unknown { kind, version };
    assert_eq!(read(&bytes, None), (1, End::Unknown(frame.start as u64, unknown)));
}

/// The search behind a damaged frame stays fast on a large segment of bytes that look like lengths.
#[test]
fn a_large_damaged_segment_is_read_to_its_end() {
    let (mut bytes, offsets) = segment(&records(3), &[]);
    bytes.resize(1 << 20, 0x11);
    assert_eq!(read(&bytes, None), (3, End::Torn(offsets[3] as u64)));
}
