//! Plans where the decision is a row on a participant.

use super::*;

const WHY: Outcome = Outcome::InDoubt;

/// Transaction 7 of an incarnation whose decisions are rows of the ledger, with its other branch prepared.
fn anchored() -> Books {
    let mut books = two();
    books.anchors.insert(seven().incarnation, 0);
    books
}

/// A pass in which `orders` lists its branch, and the ledger shows this.
fn seen(books: &Books, ledger: Option<Scan>, evidence: Option<Evidence>) -> Observation {
    let mut pass = pass(books, &[("orders", true)]);
    if let Some(scan) = ledger {
        pass.scanned(name("ledger"), scan);
    }
    if let Some(evidence) = evidence {
        pass.heard(books.branch(seven(), "ledger").unwrap(), evidence);
    }
    pass
}

fn whole(branches: BTreeSet<crate::id::BranchId>) -> Option<Scan> {
    Some(Scan::Whole { lineage: DATA, branches, foreign: BTreeSet::new() })
}

/// Whatever the anchor shows but a row or a fence, nothing that is prepared is touched.
#[test]
fn nothing_moves_before_the_anchor_has_said() {
    let mut books = anchored();
    let there = BTreeSet::from([books.branch(seven(), "ledger").unwrap()]);
    let down = || Some(Scan::Failed { cause: "connection refused".into() });
    let empty = || whole(BTreeSet::new());
    let mut cases = vec![
        ("anchor, asked", empty(), None, WHY),
        ("anchor, held", empty(), Some(Evidence::Blocked), WHY),
        // row: anchor, answered (pure: its row is read before anything is planned with it)
        ("anchor, answered", empty(), Some(Evidence::Committed), WHY),
        // row: anchor, silent (pure: who keeps no witness is refused as an anchor)
        ("anchor, silent", empty(), Some(Evidence::Off), WHY),
        ("anchor, there", whole(there), None, Outcome::Damaged),
        ("anchor, unseen", down(), None, WHY),
        ("anchor, unseen", None, None, WHY),
    ];
    for given_up in [false, true] {
        for (label, ledger, evidence, outcome) in std::mem::take(&mut cases) {
            let plan = plan(&books, &seen(&books, ledger, evidence));
            assert_eq!((on(&plan, "ledger").row, only(&plan).outcome), (label, outcome));
            assert_eq!((on(&plan, "orders").row, on(&plan, "orders").action), ("anchored", Action::Wait), "{label}");
            assert_eq!(plan.notes().count(), 0);
        }
        if !given_up {
            books.given_up.insert((seven().incarnation, name("ledger")));
            // row: anchor, given up (pure: what says so would be kept by that very anchor)
            cases.push(("anchor, given up", down(), None, WHY));
        }
    }
}

/// The fence rolls back, the row commits, and neither needs a journal.
#[test]
fn the_fence_or_the_row_decides() {
    let mut books = anchored();
    let fenced = plan(&books, &seen(&books, whole(BTreeSet::new()), Some(Evidence::Never)));
    assert_eq!((on(&fenced, "orders").action, only(&fenced).outcome), (Action::RollBack, Outcome::RolledBack));
    // Once that was done, what is left to see is the fence: it still is the outcome.
    let mut observed = seen(&books, whole(BTreeSet::new()), Some(Evidence::Never));
    observed.rolled_back(books.branch(seven(), "orders").unwrap());
    let undone = plan(&books, &observed);
    assert_eq!((only(&undone).action, only(&undone).outcome), (Action::Nothing, Outcome::RolledBack));
    // Known before the scan: what is not listed has ended, and the row is done with when all of it is proven.
    books.decide(seven(), &["ledger", "orders"]);
    let mut observed = seen(&books, whole(BTreeSet::new()), Some(Evidence::Committed));
    let decided = plan(&books, &observed);
    assert_eq!((on(&decided, "orders").action, only(&decided).outcome), (Action::Commit, Outcome::Committed));
    assert_eq!(decided.notes().count(), 0, "the row stays until every participant has answered");
    observed.committed(books.branch(seven(), "orders").unwrap());
    assert_eq!(plan(&books, &observed).notes().collect::<Vec<_>>(), [&Record::Done(seven())]);
}

/// A branch whose server was given up holds up nobody, and decides nothing.
#[test]
fn a_branch_that_was_given_up_waits_for_no_anchor() {
    let mut books = anchored();
    books.given_up.insert((seven().incarnation, name("orders")));
    let mut observed = pass(&books, &[("ledger", false)]);
    observed.want(books.branch(seven(), "orders").unwrap());
    let plan = plan(&books, &observed);
    // row: anchored, given up (pure: a branch that no server shows is wanted by its own coordinator alone)
    assert_eq!((on(&plan, "orders").row, on(&plan, "ledger").action), ("anchored, given up", Action::Ask));
}

/// Without the anchor's word nobody is told that it was rolled back, or that anything contradicts.
#[test]
fn an_outcome_waits_for_the_anchor() {
    use Evidence::{Blocked, Committed, CommittedAlone, Never, NotAsked};
    let books = anchored();
    let cases = [
        ([Committed, Never], Outcome::Committed),
        ([Never, Never], Outcome::RolledBack),
        ([Never, Committed], Outcome::Damaged),
        ([Never, CommittedAlone], Outcome::Committed),
        ([CommittedAlone, Never], Outcome::Committed),
        ([CommittedAlone, Committed], Outcome::Damaged),
        ([NotAsked, Never], Outcome::InDoubt),
        ([NotAsked, Committed], Outcome::InDoubt),
        ([Blocked, Committed], Outcome::InDoubt),
        ([Blocked, CommittedAlone], Outcome::Committed),
    ];
    for (answers, outcome) in cases {
        assert_eq!(outcome_of(&books, seven(), &answers), Some(outcome), "{answers:?}");
    }
}
