//! What the journal says of one transaction, each statement with the place of its record.

use crate::cli::report::{Audit, Chronicle, Moment, Told};
use crate::id::TransactionId;
use crate::journal::format::Entry;
use crate::journal::{Image, Offline, OfflineEntry};
use crate::protocol::{Absence, Record, Remark, Resolution};

/// All that the journal says of a transaction.
pub fn of(found: &Offline, id: TransactionId) -> (Chronicle, Vec<Audit>) {
    let mut history = Chronicle { settled: found.image.is_settled(id.incarnation), ..Chronicle::default() };
    let mut audit = Vec::new();
    for entry in &found.entries {
        if let Entry::Record(Record::Incarnation(opened)) = &entry.entry
            && opened.incarnation == id.incarnation
        {
            history.opened = Some(Moment(opened.opened_at_ms));
        }
        if let Some(what) = told(&entry.entry, id) {
            history.records.push(Told { place: place(entry), durable: entry.durable, what });
        }
        audit.extend(audited(entry, id));
    }
    (history, audit)
}

/// All that an anchor says of a transaction, as far as it is not in the audit of the report.
pub fn on_anchor(image: &Image, id: TransactionId) -> Chronicle {
    let mut history = Chronicle { settled: image.is_settled(id.incarnation), ..Chronicle::default() };
    history.opened = image.incarnation(id.incarnation).map(|opened| Moment(opened.opened_at_ms));
    let told = |place: &str, what: &str| Told { place: place.to_owned(), durable: true, what: what.to_owned() };
    if image.open_decision(id).is_some() {
        history.records.push(told("anchor, decisions", "decided to commit"));
    } else if image.is_committed(id) {
        history.records.push(told("anchor, entries", "committed, in the history of outcomes"));
    }
    history
}

fn place(entry: &OfflineEntry) -> String {
    format!("{}:{}", entry.file, entry.offset)
}

fn told(entry: &Entry, id: TransactionId) -> Option<String> {
    let what = match entry {
        Entry::Record(Record::Incarnation(opened)) if opened.incarnation == id.incarnation => "its opening",
        Entry::Record(Record::Commit(decision)) if decision.transaction == id => "decided to commit",
        Entry::Record(Record::Done(one)) if *one == id => "done: every branch is known to be committed",
        Entry::Record(Record::OnePhase(one)) if *one == id => "committed by its only writer",
        Entry::Record(Record::Witnessed(one)) if *one == id => "committed, as a witness proves",
        Entry::Record(Record::Settled(one, Absence::RolledBack)) if *one == id.incarnation => {
            "its opening is settled: no record means rolled back"
        }
        Entry::Record(Record::Settled(one, Absence::Unproven)) if *one == id.incarnation => {
            "its opening is settled, not all of it proven"
        }
        Entry::Outcomes(chunk) if chunk.incarnation == id.incarnation && chunk.committed.contains(id.sequence) => {
            "committed, in the history of outcomes"
        }
        _ => return None,
    };
    Some(what.to_owned())
}

fn audited(entry: &OfflineEntry, id: TransactionId) -> Option<Audit> {
    let Entry::Record(record) = &entry.entry else { return None };
    let place = place(entry);
    let by_hand = |what, remark: &Remark| Audit {
        place: place.clone(),
        what,
        at: Some(Moment(remark.at_ms)),
        host: Some(remark.host.clone()),
        why: remark.reason.clone(),
    };
    match record {
        Record::Damaged(damage) if damage.transaction == id => {
            let branch = |one: &crate::protocol::DamagedBranch| format!("{}: {}", one.participant, one.why);
            let why = damage.branches.iter().map(branch).collect::<Vec<_>>().join("; ");
            Some(Audit { place, what: "damaged", at: Some(Moment(damage.found_at_ms)), host: None, why })
        }
        Record::Resolved(one, Resolution::Commit, remark) if *one == id => Some(by_hand("resolved_commit", remark)),
        Record::Resolved(one, Resolution::RollBack, remark) if *one == id => {
            Some(by_hand("resolved_roll_back", remark))
        }
        Record::Forgotten(one, remark) if *one == id => Some(by_hand("forgotten", remark)),
        Record::Incomplete(one, remark) if *one == id.incarnation => Some(by_hand("incomplete", remark)),
        Record::GivenUp(one, participant, remark) if *one == id.incarnation => {
            let given_up = by_hand("given_up", remark);
            Some(Audit { why: format!("what its opening left on {participant}: {}", remark.reason), ..given_up })
        }
        _ => None,
    }
}
