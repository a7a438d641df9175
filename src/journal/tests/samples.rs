//! Records to write, and a way to wait for them.

use crate::id::{Incarnation, Lineage, ParticipantName, TransactionId};
use crate::journal::Opening;
use crate::protocol::{CommitRecord, DecidedBranch, ParticipantRecord, Payload, Record, Remark};

pub fn opening(incarnation: u64) -> Opening {
    Opening {
        node: "orders-api-1".parse().unwrap(),
        incarnation: Incarnation(incarnation),
        opened_at_ms: 1_700_000_000_000,
        participants: vec![name("ledger"), name("orders")],
    }
}

pub fn name(text: &str) -> ParticipantName {
    text.parse().unwrap()
}

pub fn id(incarnation: u64, sequence: u64) -> TransactionId {
    TransactionId { node: "orders-api-1".parse().unwrap(), incarnation: Incarnation(incarnation), sequence }
}

pub fn decision(id: TransactionId, payload: Option<(&[u8], &[u8])>) -> CommitRecord {
    let branch = |number, participant| DecidedBranch {
        id: id.branch(number, 3),
        participant: name(participant),
        lineage: Lineage(0xabcd_0000 + u64::from(number)),
    };
    CommitRecord {
        transaction: id,
        branches: vec![branch(0, "ledger"), branch(1, "orders")],
        payload: payload.map(|(key, bytes)| Payload { key: key.to_vec(), bytes: bytes.to_vec() }),
    }
}

pub fn commit(incarnation: u64, sequence: u64) -> Record {
    Record::Commit(decision(id(incarnation, sequence), None))
}

pub fn done(incarnation: u64, sequence: u64) -> Record {
    Record::Done(id(incarnation, sequence))
}

pub fn participant(text: &str, lineage: u64) -> Record {
    Record::Participant(ParticipantRecord { name: name(text), lineage: Lineage(lineage), reason: String::new() })
}

pub fn remark(reason: &str) -> Remark {
    Remark { at_ms: 1_700_000_000_000, host: "db-console".into(), reason: reason.into() }
}

pub fn incomplete(incarnation: u64) -> Record {
    Record::Incomplete(Incarnation(incarnation), remark("records were lost"))
}

/// Waits for a future on this thread. The journal's own thread is what moves it.
pub fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}
