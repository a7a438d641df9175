//! What must hold of a directory, whatever its files hold.

use crate::directory::Directory;
use handfast::ErrorKind;
use handfast::id::Incarnation;
use handfast::journal::format::{self, Content, Entry, Frame};
use handfast::journal::{Journal, Offline, Opening, Verdict, read_from, repair_on};
use handfast::protocol::{Record, Remark};
use std::sync::Arc;

/// Long enough for every header, short enough that openings are quick.
const SEGMENT_BYTES: u64 = 4096;

/// Whoever opens next.
pub fn opening(incarnation: u64) -> Opening {
    Opening {
        node: "orders-api-1".parse().expect("a node name"),
        incarnation: Incarnation(incarnation),
        opened_at_ms: 1_700_000_000_000,
        participants: ["ledger", "orders"].map(|name| name.parse().expect("a participant name")).to_vec(),
    }
}

/// Reads a directory, opens it, repairs it, and compares what these say of it with each other.
///
/// # Panics
/// When they contradict each other, or an entry that was read is not what its bytes say.
pub fn examine(directory: &Directory) {
    let before = directory.files();
    let offline = read_from(directory);
    assert_eq!(directory.files(), before, "reading writes");
    if let Ok(offline) = &offline {
        offline.entries.iter().for_each(|found| is_what_its_bytes_say(&before, found));
    }
    open(&directory.copy(), &offline);
    repair(&directory.copy());
}

fn is_what_its_bytes_say(files: &std::collections::BTreeMap<String, Vec<u8>>, found: &handfast::journal::OfflineEntry) {
    let bytes = &files[&found.file];
    // A segment whose header is damaged is read by what its frames say of it: there is nothing to bind them to here.
    let Ok(header) = format::decode_beginning(bytes) else { return };
    let content = match &found.entry {
        Entry::Header(header) => Content::Header(header),
        Entry::Mark => Content::Mark,
        Entry::Next(sequence) => Content::Next(*sequence),
        Entry::Record(record) => Content::Record(record),
        Entry::Outcomes(chunk) => Content::Outcomes(chunk),
        Entry::Payload(id, payload) => Content::Payload(*id, &payload.key, &payload.bytes),
    };
    let mut written = Vec::new();
    format::encode(&mut written, header.binding(), found.offset, found.synced, content);
    let place = usize::try_from(found.offset).expect("it is in memory");
    let read = &bytes[place..][..usize::try_from(found.length).expect("it is in memory")];
    // The bitmap's own format can say the same in several ways, as an array or as runs, and says twice where its parts
    // are: with a checksum put right, other bytes may be the same outcomes.
    if matches!(found.entry, Entry::Outcomes(_)) && written != read {
        let segment = [&bytes[..place], &written[..]].concat();
        let again = Frame::at(&segment, place, header.binding()).expect("it was just written").decode();
        return assert_eq!(again.as_ref(), Ok(&found.entry), "{}", found.file);
    }
    assert_eq!(written, read, "{:?} at {} of {} has other bytes", found.entry, found.offset, found.file);
}

/// Opening refuses what reading calls corrupt, takes what it calls sound, and then knows every commit in it.
fn open(directory: &Directory, offline: &handfast::Result<Offline>) {
    let opened = Journal::open_on(directory.clone(), SEGMENT_BYTES, opening(0x0f0f));
    let journal = match (&opened, offline) {
        (Err(error), Ok(Offline { verdict: Verdict::Corrupt(damage), .. })) => {
            return assert_eq!(error.kind(), ErrorKind::Corrupt, "{damage}: {}", error.chain());
        }
        (Ok(_), Ok(Offline { verdict: Verdict::Corrupt(damage), .. })) => panic!("opened in spite of {damage}"),
        // One who opens with an incarnation that is there already is refused.
        (Err(error), Ok(_)) => return assert_eq!(error.kind(), ErrorKind::Refused, "{}", error.chain()),
        // No journal: a new one.
        (Ok(_), Err(error)) if error.kind() == ErrorKind::Config => return,
        (Ok(_), Err(error)) => panic!("opened in spite of {}", error.chain()),
        (Err(error), Err(read)) => return assert_eq!(error.kind(), read.kind(), "{}", error.chain()),
        (Ok(journal), Ok(_)) => journal,
    };
    let read = offline.as_ref().expect("just matched");
    journal.close().expect("memory does not fail");
    let again = read_from(directory).expect("what was opened can be read");
    assert_eq!(again.verdict, Verdict::Clean);
    assert!(again.in_doubt.is_empty(), "what was opened is durable: {:?}", again.in_doubt);
    let records = read.entries.iter().filter_map(|found| match &found.entry {
        Entry::Record(record) => Some(record),
        _ => None,
    });
    for record in records {
        let (Record::OnePhase(id) | Record::Witnessed(id)) = record else {
            let Record::Commit(decision) = record else { continue };
            assert!(again.image.is_committed(decision.transaction), "{} was lost", decision.transaction);
            continue;
        };
        assert!(again.image.is_committed(*id), "{id} was lost");
    }
}

/// What was repaired can be opened.
fn repair(directory: &Directory) {
    let remark = Remark { at_ms: 1_700_000_000_000, host: "here".into(), reason: "fuzzed".into() };
    if repair_on(Arc::new(directory.clone()), SEGMENT_BYTES, &remark).is_ok() {
        let opened = Journal::open_on(directory.clone(), SEGMENT_BYTES, opening(0xf0f0));
        opened.unwrap_or_else(|error| panic!("a repaired journal is refused: {}", error.chain()));
    }
}
