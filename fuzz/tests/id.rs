//! Arbitrary texts as identifiers: what is taken for one of ours is all of it, and prints back as it was.

use bolero::check;
use handfast::TransactionId;
use handfast::id::{BranchId, FORMAT_ID, Incarnation, JournalId, Lineage, NodeName, ParticipantName};
use handfast_fuzz::edits::{Edit, corpus, edited};
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

fn prints_back<T: FromStr + Display>(text: &str) {
    if let Ok(value) = text.parse::<T>() {
        assert_eq!(value.to_string(), text);
    }
}

fn as_text(text: &str) {
    prints_back::<NodeName>(text);
    prints_back::<ParticipantName>(text);
    prints_back::<Incarnation>(text);
    prints_back::<Lineage>(text);
    prints_back::<JournalId>(text);
    prints_back::<TransactionId>(text);
    prints_back::<BranchId>(text);
    if let Ok(id) = text.parse::<BranchId>() {
        assert!(text.len() < 200, "PostgreSQL takes it");
        let (gtrid, bqual) = (id.gtrid(), id.bqual());
        assert!(gtrid.len() <= 64 && bqual.len() <= 64, "MySQL takes it");
        assert_eq!(BranchId::from_xid(i64::from(FORMAT_ID), gtrid.as_bytes(), bqual.as_bytes()), Some(id));
    }
}

/// The first byte says whether the format is ours, the second where the two parts meet.
fn as_xid(input: &[u8]) {
    let [format, place, rest @ ..] = input else { return };
    let (gtrid, bqual) = rest.split_at(usize::from(*place) % (rest.len() + 1));
    let format = if *format == 0 { i64::from(FORMAT_ID) } else { i64::from(*format) };
    let Some(id) = BranchId::from_xid(format, gtrid, bqual) else { return };
    assert_eq!(format, i64::from(FORMAT_ID), "another format is another's");
    assert_eq!((id.gtrid().as_bytes(), id.bqual().as_bytes()), (gtrid, bqual));
    assert_eq!(id.to_string().parse(), Ok(id));
}

fn examine(input: &[u8]) {
    if let Ok(text) = std::str::from_utf8(input) {
        as_text(text);
    }
    as_xid(input);
}

#[test]
fn id() {
    check!().with_iterations(50_000).with_test_time(Duration::from_secs(5)).for_each(examine);
}

#[test]
fn edited_ids() {
    let sound = corpus("id");
    let bounded = check!().with_iterations(50_000).with_test_time(Duration::from_secs(5));
    bounded.with_type::<(u8, Vec<Edit>)>().for_each(|(which, edits)| {
        examine(&edited(&sound[usize::from(*which) % sound.len()], edits));
    });
}

/// Every id there can be is read back.
#[test]
fn every_id() {
    let names = ["a", "orders-api-1", "n2345678901234-6"];
    let bounded = check!().with_iterations(20_000).with_test_time(Duration::from_secs(5));
    bounded.with_type::<(u8, u64, u64, u16, u32)>().for_each(|(name, incarnation, sequence, participant, slot)| {
        let node = names[usize::from(*name) % names.len()].parse().unwrap();
        let transaction = TransactionId { node, incarnation: Incarnation(*incarnation), sequence: *sequence };
        let id = transaction.branch(*participant, *slot);
        assert_eq!(transaction.to_string().parse(), Ok(transaction));
        assert_eq!(id.to_string().parse(), Ok(id));
        as_text(&id.to_string());
    });
}
