//! Whether the journal is an older copy of the one that decided: asked of every participant before the first rollback.
//!
//! A copy lacks decisions, and what it lacks looks undecided: recovery would roll back branches whose siblings have
//! committed. The servers know better. Two things give a copy away, and both are looked for in what every participant in
//! reach shows, a page at a time:
//!
//! * an opening in a participant's [registry](unknown_opening) that names this journal, and that this journal lacks;
//! * a [witness](unknown_decision) of a decided branch, of an opening that it knows, whose decision it lacks.
//!
//! The rows are read first and the memory after, like scans: a decision is durable before its first branch commits, so a
//! running process never takes its own newest commit for a proof against it.
//!
//! A stale journal resolves nothing. To commit what it does know would be right, but who starts with a copy has a
//! question to answer first: where is the journal.
//!
//! A branch that somebody has committed by hand, before any decision, leaves the same witness. Two may tell the one from
//! the other:
//!
//! * *A person*, who has [resolved](Recalled::Resolved) or [forgotten](Recalled::Forgotten) the transaction.
//! * *The opening that began it.* It alone decides its transactions, and a decision comes before everything that is
//!   written because of it. So when it has written down itself that one of them is damaged, and no decision, there was
//!   none, and no copy of the journal lacks one. While it is at work it is asked itself: its own are no sign.
//!
//! That somebody *else* found the transaction to be damaged does not suffice. A copy may find that, too: its fence may
//! stand before it sees the witness, on a participant that was out of reach. And that whoever wrote it would have refused
//! by now is not so, since it may have seen less than what is seen now.
//!
//! An opening that is marked as incomplete, known otherwise or not, is no sign either: that its records are missing has
//! been said already.
//!
//! WHAT IT CANNOT SEE
//!
//! * **A participant that is out of reach.** What it would say is unknown until it comes back; it is asked then. Up to
//!   there a branch may be rolled back elsewhere whose sibling it has committed.
//! * **Rows that were pruned.** Both journal and servers forget what is over, the servers for good. So the row of the
//!   decision that was made *last* on each participant always stays (the last by time: sequences are decided in any
//!   order): if the copy lacks any decision of that participant, it lacks that one.
//! * **Commits of one writer alone.** Their notes are unforced, so a witness without one proves nothing. A copy that
//!   lacks nothing else is not found out, and where the witness was pruned it calls them rolled back.
//! * **A copy whose original still runs** and has decided nothing since. The lease keeps that one out.

use super::observation::{Memory, Recalled};
use super::table::Evidence;
use crate::id::{BranchId, Incarnation, JournalId, NodeName, TransactionId};
use crate::protocol::message::DamageRecord;
use std::collections::BTreeSet;
use std::fmt;

/// A row of a participant's registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegistryRow {
    /// Which opening.
    pub incarnation: Incarnation,
    /// The journal that opened.
    pub journal: JournalId,
    /// The node name that it used then; another one does not make it another journal.
    pub node: NodeName,
}

/// A row of a participant's witness table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WitnessRow {
    /// Of which opening.
    pub incarnation: Incarnation,
    /// The number that the participant has there.
    pub participant: u16,
    /// The number of the transaction; what is kept under 0 is of none.
    pub sequence: u64,
    /// What it proves.
    pub evidence: Evidence,
}

/// The journal is an older copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stale {
    /// The opening that shows it.
    pub incarnation: Incarnation,
    /// How.
    pub why: Sign,
}

/// What gives an older copy away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// This journal has no record of that opening, which used this node name.
    Opening(NodeName),
    /// This branch has committed as a decided one, and the journal has no decision.
    Decision(BranchId),
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { incarnation, why } = self;
        match why {
            Sign::Opening(node) => {
                write!(f, "it does not know its own opening {incarnation} (node {node}), which is registered there")
            }
            Sign::Decision(branch) => write!(f, "it has no decision that {branch} was committed by"),
        }
    }
}

/// The first opening among these rows that is this journal's, and that it does not know. Which participant they are of
/// makes no difference, nor how many are asked about at once.
pub fn unknown_opening(memory: &dyn Memory, journal: JournalId, rows: &[RegistryRow]) -> Option<Stale> {
    let known = |id| memory.incarnation(id).is_some() || memory.is_incomplete(id) || memory.is_at_work(id);
    let unknown = |row: &&RegistryRow| row.journal == journal && !known(row.incarnation);
    let RegistryRow { incarnation, node, .. } = *rows.iter().find(unknown)?;
    Some(Stale { incarnation, why: Sign::Opening(node) })
}

/// The first witness among these rows that proves a decision which the journal should have, and does not. Rows of
/// other journals, of openings that are settled, and of those whose records were lost prove nothing.
pub fn unknown_decision(memory: &dyn Memory, rows: &[WitnessRow]) -> Option<Stale> {
    let by_its_own = |record: &DamageRecord| record.found_by == record.transaction.incarnation;
    let damaged = memory.damaged().into_iter().filter(by_its_own).map(|record| record.transaction);
    let damaged: BTreeSet<_> = damaged.collect();
    rows.iter().find_map(|row| {
        let WitnessRow { incarnation, participant, sequence, evidence } = *row;
        let opened = memory.incarnation(incarnation).filter(|_| sequence > 0 && evidence == Evidence::Committed)?;
        let is_over = memory.settled(incarnation).is_some() || memory.is_incomplete(incarnation);
        if is_over || memory.is_at_work(incarnation) {
            return None;
        }
        let id = TransactionId { node: opened.node, incarnation, sequence };
        // This order: a transaction that is not live any more has left its record.
        let lacking = !memory.is_live(id) && memory.recall(id) == Recalled::Nothing && !damaged.contains(&id);
        lacking.then(|| Stale { incarnation, why: Sign::Decision(id.branch(participant, 0)) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::message::{Absence, DamagedBranch, Resolution};
    use crate::protocol::recovery::tests::books::{Books, transaction};

    const OURS: JournalId = JournalId(1);

    fn row(incarnation: u64, journal: JournalId) -> RegistryRow {
        RegistryRow { incarnation: Incarnation(incarnation), journal, node: "moved".parse().unwrap() }
    }

    fn witness(sequence: u64, evidence: Evidence) -> WitnessRow {
        WitnessRow { incarnation: Incarnation(1), participant: 1, sequence, evidence }
    }

    fn two() -> Books {
        Books::opened(&["ledger", "orders"])
    }

    #[test]
    fn an_opening_of_this_journal_that_it_does_not_know_gives_it_away() {
        let books = two();
        assert_eq!(unknown_opening(&books, OURS, &[]), None);
        assert_eq!(unknown_opening(&books, OURS, &[row(1, OURS), row(2, JournalId(2))]), None);
        let stale = unknown_opening(&books, OURS, &[row(1, OURS), row(3, OURS)]).unwrap();
        assert_eq!(stale.incarnation, Incarnation(3));
        assert!(stale.to_string().contains("node moved"));
        let mut marked = two();
        marked.incomplete.insert(Incarnation(3));
        assert_eq!(unknown_opening(&marked, OURS, &[row(3, OURS)]), None, "its records are known to be missing");
        // Taken over from a journal that was lost: ours now, whatever the row says.
        assert_eq!(unknown_opening(&books, OURS, &[row(1, JournalId(2))]), None);
    }

    #[test]
    fn a_decision_that_the_journal_lacks_gives_it_away() {
        let mut books = two();
        books.decide(transaction(1, 1), &["ledger", "orders"]);
        books.recalled.insert(transaction(1, 2), Recalled::Finished);
        let known = [witness(1, Evidence::Committed), witness(2, Evidence::Committed)];
        assert_eq!(unknown_decision(&books, &known), None);
        let why = Sign::Decision(transaction(1, 3).branch(1, 0));
        let stale = Some(Stale { incarnation: Incarnation(1), why });
        assert_eq!(unknown_decision(&books, &[known[0], witness(3, Evidence::Committed), known[1]]), stale);
    }

    #[test]
    fn only_a_decision_is_a_sign() {
        let books = two();
        for evidence in Evidence::ALL.into_iter().filter(|evidence| *evidence != Evidence::Committed) {
            assert_eq!(unknown_decision(&books, &[witness(3, evidence)]), None, "{evidence:?}");
        }
        assert_eq!(unknown_decision(&books, &[witness(0, Evidence::Committed)]), None, "of no transaction");
        let other = WitnessRow { incarnation: Incarnation(9), ..witness(3, Evidence::Committed) };
        assert_eq!(unknown_decision(&books, &[other]), None, "of another journal");
    }

    #[test]
    fn what_is_at_work_settled_or_lost_is_no_sign() {
        let rows = [witness(3, Evidence::Committed)];
        let three = transaction(1, 3);
        let change = |change: &dyn Fn(&mut Books)| {
            let mut books = two();
            change(&mut books);
            unknown_decision(&books, &rows)
        };
        assert!(change(&|_| {}).is_some());
        assert_eq!(change(&|books| assert!(books.live.insert(three))), None);
        assert_eq!(change(&|books| books.recall_as(three, Recalled::Unsure)), None);
        assert_eq!(change(&|books| assert!(books.incomplete.insert(Incarnation(1)))), None);
        let settled = |books: &mut Books| books.settled.extend([(Incarnation(1), Absence::RolledBack)]);
        assert_eq!(change(&settled), None);
        assert_eq!(change(&|books| assert!(books.at_work.insert(Incarnation(1)))), None, "asked itself");
        let mut books = two();
        let branch =
            DamagedBranch { id: three.branch(1, 0), participant: "orders".parse().unwrap(), why: String::new() };
        books.damage(three, vec![branch]);
        books.damaged.get_mut(&three).unwrap().found_by = Incarnation(2);
        assert!(unknown_decision(&books, &rows).is_some(), "a copy is damaged, and still a copy");
        books.damaged.get_mut(&three).unwrap().found_by = Incarnation(1);
        assert_eq!(unknown_decision(&books, &rows), None, "who would have decided it says that nobody did");
        let rows = [witness(3, Evidence::Committed), witness(4, Evidence::Committed)];
        assert!(unknown_decision(&books, &rows).is_some(), "of that transaction alone");
        let rows = &rows[..1];
        for dealt_with in
            [Recalled::Resolved(Resolution::Commit), Recalled::Resolved(Resolution::RollBack), Recalled::Forgotten]
        {
            books.recall_as(three, dealt_with);
            assert_eq!(unknown_decision(&books, rows), None, "a person has said what it is");
        }
    }
}
