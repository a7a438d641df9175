//! `docs/journal-format.md` against the code, and the code against journals that earlier versions wrote.

use super::disk::Disk;
use super::samples::{commit, decision, done, id, name, opening, participant};
use crate::id::{Incarnation, JournalId, Lineage};
use crate::journal::format::wire::trace;
use crate::journal::format::{self, Binding, Content, Entry, EntryType, FormatVersion, Frame, Header, OutcomeChunk};
use crate::journal::writer::{Writer, snapshot};
use crate::journal::{Image, Storage, Verdict, lockfile, read_from};
use crate::protocol::{
    Absence, CommitRecord, DamageRecord, DamagedBranch, ParticipantRecord, Payload, Record, Remark, Resolution,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const DOCUMENT: &str = include_str!("../../../docs/journal-format.md");

/// The lines of the document's section with that heading.
fn section(heading: &str) -> Vec<&'static str> {
    let mut lines = DOCUMENT.lines().skip_while(|line| *line != heading);
    assert_eq!(lines.next(), Some(heading), "the document has the section");
    lines.take_while(|line| !line.starts_with('#')).collect()
}

/// The rows of a section's first table, without its head.
fn table(heading: &str) -> Vec<Vec<&'static str>> {
    let lines = section(heading).into_iter().skip_while(|line| !line.starts_with('|'));
    let rows = lines.take_while(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// One entry of each type, with one of everything that may repeat or be absent.
fn samples() -> Vec<Entry> {
    let transaction = id(7, 1042);
    let payload = Payload { key: b"key".to_vec(), bytes: b"bytes".to_vec() };
    let mut branches = decision(transaction, None).branches;
    branches.truncate(1);
    let mut incarnation = opening(7).record();
    incarnation.participants.truncate(1);
    vec![
        Entry::Header(header()),
        Entry::Mark,
        Entry::Next(4),
        Entry::Record(Record::Incarnation(incarnation)),
        Entry::Record(Record::Participant(ParticipantRecord {
            name: name("ledger"),
            lineage: Lineage(9),
            reason: "restored from a backup".into(),
        })),
        Entry::Record(Record::Commit(CommitRecord { transaction, branches, payload: Some(payload.clone()) })),
        Entry::Record(Record::Done(transaction)),
        Entry::Record(Record::OnePhase(transaction)),
        Entry::Record(Record::Settled(Incarnation(7), Absence::Unproven)),
        Entry::Record(Record::Damaged(DamageRecord {
            transaction,
            branches: vec![DamagedBranch {
                id: transaction.branch(1, 3),
                participant: name("orders"),
                why: "rolled back by somebody else".into(),
            }],
            found_at_ms: 1_700_000_000_000,
            found_by: Incarnation(9),
        })),
        Entry::Record(Record::Resolved(transaction, Resolution::RollBack, remark())),
        Entry::Record(Record::Forgotten(transaction, remark())),
        Entry::Record(Record::Incomplete(Incarnation(7), remark())),
        Entry::Record(Record::Witnessed(transaction)),
        Entry::Record(Record::GivenUp(Incarnation(7), name("ledger"), remark())),
        Entry::Outcomes(OutcomeChunk {
            incarnation: Incarnation(7),
            settled: Some(Absence::RolledBack),
            committed: [1, 2, 3, 70_000, 1 << 40].into_iter().collect(),
        }),
        Entry::Payload(transaction, payload),
    ]
}

fn remark() -> Remark {
    Remark { at_ms: 1_700_000_000_000, host: "db-console".into(), reason: "ticket 4711".into() }
}

fn content(entry: &Entry) -> Content<'_> {
    match entry {
        Entry::Header(header) => Content::Header(header),
        Entry::Mark => Content::Mark,
        Entry::Next(sequence) => Content::Next(*sequence),
        Entry::Record(record) => Content::Record(record),
        Entry::Outcomes(chunk) => Content::Outcomes(chunk),
        Entry::Payload(id, payload) => Content::Payload(*id, &payload.key, &payload.bytes),
    }
}

fn header() -> Header {
    Header {
        format: FormatVersion::DecisionsAndOutcomes,
        journal: JournalId(0x0011_2233_4455_6677),
        incarnation: Incarnation(0x8899_aabb_ccdd_eeff),
        sequence: 3,
        previous_end: 0,
        snapshot_end: 72,
    }
}

#[test]
fn the_document_lists_the_fields_of_every_entry() {
    let samples = samples();
    assert_eq!(samples.len(), EntryType::ALL.len());
    for (kind, entry) in EntryType::ALL.into_iter().zip(&samples) {
        let heading = format!("### {kind:?} (type {})", kind as u8);
        let documented: Vec<_> = table(&heading).into_iter().map(|row| (row[0], row[1])).collect();
        let mut bytes = Vec::new();
        trace::take();
        format::encode(&mut bytes, header().binding(), 0, 0, content(entry));
        assert_eq!(trace::take(), documented, "{heading}: written");
        let decoded = Frame::at(&bytes, 0, header().binding()).unwrap().decode().unwrap();
        assert_eq!(trace::take(), documented, "{heading}: read");
        assert_eq!(&decoded, entry);
    }
    let headings = DOCUMENT.lines().filter(|line| line.starts_with("### ") && line.contains("(type ")).count();
    assert_eq!(headings, EntryType::ALL.len(), "the document has no entry that the code lacks");
}

#[test]
fn the_document_places_every_byte_of_frame_segment_and_lock() {
    let frame: Vec<_> = table("## Frame").into_iter().map(|row| (row[0], row[1], row[2])).collect();
    let places = [
        (format::LENGTH_AT, "4", "length"),
        (format::CHECKSUM_AT, "4", "checksum"),
        (format::TYPE_AT, "1", "type"),
        (format::VERSION_AT, "1", "version"),
        (format::RESERVED_AT, "2", "reserved"),
        (format::SYNCED_AT, "8", "synced_through"),
        (format::CONTENT_AT, "length - 12", "content"),
    ]
    .map(|(offset, bytes, field)| (offset.to_string(), bytes, field));
    assert_eq!(frame, places.each_ref().map(|(offset, bytes, field)| (offset.as_str(), *bytes, *field)));
    let limits = format!("{} to {}; 0 is no frame", format::MIN_BODY, format::MAX_BODY);
    assert!(table("## Frame")[0][3].ends_with(&limits), "{limits}");

    let segment: Vec<_> = table("## Segment").into_iter().map(|row| (row[0], row[1])).collect();
    let header_length = (format::HEADER_END - format::HEADER_AT).to_string();
    let (header_at, header_end) = (format::HEADER_AT.to_string(), format::HEADER_END.to_string());
    assert_eq!(segment, [("0", "8"), (header_at.as_str(), header_length.as_str()), (header_end.as_str(), "")]);
    let magic: Vec<_> = format::MAGIC.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(table("## Segment")[0][2], format!("magic: `{}`", magic.join(" ")));

    let lock: Vec<_> = table("### The lock file").into_iter().map(|row| (row[0], row[1])).collect();
    let (promise, rest) = (lockfile::PROMISE.to_string(), (lockfile::LENGTH - lockfile::PROMISE).to_string());
    assert_eq!(lock, [("0", promise.as_str()), (promise.as_str(), rest.as_str())]);
}

fn dump(bytes: &[u8]) -> String {
    let line = |(index, line): (usize, &[u8])| {
        let hex: Vec<_> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{:04x}  {}\n", index * 16, hex.join(" "))
    };
    bytes.chunks(16).enumerate().map(line).collect()
}

#[test]
fn the_examples_in_the_document_are_what_the_code_writes() {
    let mut beginning = Vec::new();
    format::encode_beginning(&mut beginning, &header());
    let mut done = Vec::new();
    let transaction = "hf1.orders-api-1.8899aabbccddeeff.1042".parse().unwrap();
    format::encode(&mut done, header().binding(), 72, 72, Content::Record(&Record::Done(transaction)));
    for (fence, bytes) in [("example-header", beginning), ("example-done", done)] {
        let written = format!("```{fence}\n{}```", dump(&bytes));
        assert!(DOCUMENT.contains(&written), "the document should have\n{written}");
    }
}

/// What makes a frame one of its place: in another segment, of another opening, or elsewhere, it is none.
#[test]
fn a_frame_is_bound_to_its_place() {
    let mut bytes = Vec::new();
    format::encode(&mut bytes, header().binding(), 0, 0, Content::Record(&done(7, 1)));
    assert!(Frame::at(&bytes, 0, header().binding()).is_some());
    for other in [
        Header { journal: JournalId(1), ..header() },
        Header { incarnation: Incarnation(1), ..header() },
        Header { sequence: 4, ..header() },
    ] {
        assert_eq!(Frame::at(&bytes, 0, other.binding()), None);
    }
    assert_eq!(Frame::at(&bytes, 0, Binding::HEADER), None);
    let moved = [&[0; 5], bytes.as_slice()].concat();
    assert_eq!(Frame::at(&moved, 5, header().binding()), None);
}

#[test]
fn what_does_not_fit_the_format_is_refused_before_it_is_written() {
    let with = |key: &[u8], bytes: &[u8]| Record::Commit(decision(id(1, 1), Some((key, bytes))));
    assert_eq!(format::check(&with(&[0; 255], &vec![0; 5 << 20])), Ok(()));
    assert!(format::check(&with(&[0; 256], &[])).is_err());
    assert!(format::check(&with(&[], &vec![0; (5 << 20) + 1])).is_err());
    assert!(format::check(&commit(1, 0)).is_err() && format::check(&done(1, 0)).is_err());
    let mut foreign = decision(id(1, 1), None);
    foreign.branches[0].id.transaction = id(1, 2);
    assert!(format::check(&Record::Commit(foreign)).is_err());
    // The longest that passes fits a frame: 65535 branches with the longest names, and the largest payload.
    let branch = 2 + 4 + (1 + 24) + 8;
    assert!(65_535 * branch + (1 + 255) + (4 + format::MAX_PAYLOAD) + 100 < format::MAX_BODY);
}

fn fixture(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/journal/fixtures/v1").join(file)
}

/// The journal of the fixture: a compaction, a rotation, everything that can be in it.
fn write_fixture() -> Disk {
    let disk = Disk::default();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let mut image = Image::new(JournalId(0x0011_2233_4455_6677));
    image.apply(&Record::Incarnation(opening(7).record())).unwrap();
    image.apply(&participant("ledger", 1)).unwrap();
    (1..=100).for_each(|sequence| image.apply(&Record::OnePhase(id(7, sequence))).unwrap());
    image.apply(&Record::Commit(decision(id(7, 101), Some((b"offsets", b"1"))))).unwrap();
    image.apply(&Record::Incarnation(opening(8).record())).unwrap();
    let beginning = snapshot(&image, Incarnation(8), 3);
    let mut writer = Writer::begin(storage, 1024, &beginning, Vec::new()).unwrap();
    let batch = |writer: &mut Writer, records: &[Record]| {
        records.iter().for_each(|record| writer.put(Content::Record(record)).unwrap());
        writer.flush().unwrap();
    };
    batch(&mut writer, &[commit(8, 1), Record::Commit(decision(id(8, 2), Some((b"offsets", b"2"))))]);
    writer.mark().unwrap();
    writer.rotate(100).unwrap();
    batch(&mut writer, &[done(8, 1), participant("orders", 2), Record::OnePhase(id(8, 3))]);
    writer.finish().unwrap();
    let mut lock = match disk.lock().unwrap() {
        crate::journal::Locked::Held(lock) => lock,
        crate::journal::Locked::Busy => panic!("nobody else has it"),
    };
    lockfile::write_promise(&mut *lock, JournalId(0x0011_2233_4455_6677)).unwrap();
    drop(lock);
    disk
}

/// A journal of format version 1 stays readable. `HANDFAST_WRITE_FIXTURE=1` wrote it, once.
#[test]
fn the_fixture_of_version_1_can_be_read() {
    if std::env::var_os("HANDFAST_WRITE_FIXTURE").is_some() {
        let disk = write_fixture();
        for file in disk.names() {
            std::fs::write(fixture(&file), disk.contents(&file)).unwrap();
        }
    }
    let disk = write_fixture();
    assert_eq!(disk.names(), ["lock", "segment-00000003", "segment-00000004"]);
    for file in disk.names() {
        disk.replace(&file, std::fs::read(fixture(&file)).unwrap());
    }
    let found = read_from(&disk).unwrap();
    assert_eq!((found.verdict, found.in_doubt), (Verdict::Clean, Vec::new()));
    let image = found.image;
    assert_eq!(image.journal(), JournalId(0x0011_2233_4455_6677));
    assert!((1..=101).all(|sequence| image.is_committed(id(7, sequence))) && image.committed_count() == 104);
    let open: Vec<_> = image.open_decisions().map(|decision| decision.transaction).collect();
    assert_eq!(open, [id(7, 101), id(8, 2)]);
    assert_eq!(image.open_decision(id(7, 101)), Some(&decision(id(7, 101), None)));
    assert_eq!(image.payload(b"offsets"), Some((id(8, 2), b"2".as_slice())));
    let lineages: Vec<_> = image.participants().map(|record| (record.name, record.lineage)).collect();
    assert_eq!(lineages, [(name("ledger"), Lineage(1)), (name("orders"), Lineage(2))]);
    assert_eq!(image.incarnation(Incarnation(8)), Some(&opening(8).record()));
}
