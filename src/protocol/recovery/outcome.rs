//! The outcome of one transaction, asked for by its id.

use super::observation::{Memory, Recalled};
use super::table::Evidence;
use crate::id::{BranchId, ParticipantName, TransactionId};
use crate::protocol::message::{Absence, Outcome, Resolution};

/// The branches to put a fence question about before [`outcome_of`] can say more than *in doubt*: one for each
/// participant of the transaction's incarnation, since no record says which took part. A witness is found by
/// participant, so the slot is 0. Empty when memory alone has the answer, or will have it.
pub fn questions(memory: &dyn Memory, transaction: TransactionId) -> Vec<(ParticipantName, BranchId)> {
    let Some(opened) = memory.incarnation(transaction.incarnation).filter(|opened| opened.node == transaction.node)
    else {
        return Vec::new();
    };
    if memory.is_live(transaction) || memory.recall(transaction) != Recalled::Nothing {
        return Vec::new();
    }
    if memory.settled(transaction.incarnation).is_some() || is_damaged(memory, transaction) {
        return Vec::new();
    }
    let number = |index: usize| u16::try_from(index).expect("participants are numbered by u16 in every branch id");
    let question = |(index, name): (usize, ParticipantName)| (name, transaction.branch(number(index), 0));
    opened.participants.into_iter().enumerate().map(question).collect()
}

/// How a transaction ended, from what is remembered and what every participant of its incarnation answered to
/// [`questions`]; a participant that did not answer is [`Evidence::NotAsked`]. `None`: this journal does not know
/// the incarnation.
///
/// Ask the memory for the [`questions`], then the participants, then this: the memory is read again here, so that
/// a transaction that was still live before is not taken for one without a record.
pub fn outcome_of(memory: &dyn Memory, transaction: TransactionId, answers: &[Evidence]) -> Option<Outcome> {
    let opened = memory.incarnation(transaction.incarnation).filter(|opened| opened.node == transaction.node)?;
    if memory.is_live(transaction) {
        return Some(Outcome::InDoubt);
    }
    let recalled = memory.recall(transaction);
    if is_damaged(memory, transaction) {
        return Some(Outcome::Damaged);
    }
    Some(match recalled {
        Recalled::Unsure => Outcome::InDoubt,
        Recalled::Decided(_) | Recalled::Finished | Recalled::OnePhase => Outcome::Committed,
        Recalled::Resolved(Resolution::Commit) => Outcome::Committed,
        Recalled::Resolved(Resolution::RollBack) => Outcome::RolledBack,
        Recalled::Forgotten => Outcome::Damaged,
        Recalled::Nothing if memory.is_incomplete(transaction.incarnation) => {
            let proven = answers.iter().any(|answer| answer.is_commit());
            if proven { Outcome::Committed } else { Outcome::InDoubt }
        }
        Recalled::Nothing => match memory.settled(transaction.incarnation) {
            None => match memory.anchor(transaction.incarnation) {
                Some(anchor) => at_the_anchor(answers, usize::from(anchor), opened.participants.len()),
                None => without_a_record(answers, opened.participants.len()),
            },
            Some(absence) => settled(absence),
        },
    })
}

/// Damage is for a person to end, whatever is recorded or found out about its transaction besides.
fn is_damaged(memory: &dyn Memory, transaction: TransactionId) -> bool {
    memory.damaged().iter().any(|record| record.transaction == transaction)
}

/// What no record means once nothing can move any more.
pub(super) fn settled(absence: Absence) -> Outcome {
    match absence {
        Absence::RolledBack => Outcome::RolledBack,
        Absence::Unproven => Outcome::InDoubt,
    }
}

/// The anchor's row is the decision. Until it is found, or the fence in its place, another's witness of a decision
/// contradicts nothing.
fn at_the_anchor(answers: &[Evidence], anchor: usize, participants: usize) -> Outcome {
    match answers.get(anchor) {
        Some(Evidence::Committed) => Outcome::Committed,
        Some(Evidence::Never | Evidence::CommittedAlone) => without_a_record(answers, participants),
        _ if answers.contains(&Evidence::Committed) => Outcome::InDoubt,
        _ => without_a_record(answers, participants),
    }
}

/// Rolled back needs every participant's word. A single writer's witness is as good as a record; the witness of a
/// decision that no record holds is a contradiction.
pub(super) fn without_a_record(answers: &[Evidence], participants: usize) -> Outcome {
    assert!(answers.len() <= participants, "more answers than participants");
    let any = |wanted: Evidence| answers.contains(&wanted);
    let alone = answers.iter().filter(|answer| **answer == Evidence::CommittedAlone).count();
    if any(Evidence::Committed) || alone > 1 {
        Outcome::Damaged
    } else if alone == 1 {
        Outcome::Committed
    } else if participants > 0
        && answers.len() == participants
        && answers.iter().all(|answer| *answer == Evidence::Never)
    {
        Outcome::RolledBack
    } else {
        Outcome::InDoubt
    }
}
