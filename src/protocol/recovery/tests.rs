//! Whole plans, where a single row of the table is not the point.

use super::{
    Action, BranchPlan, Evidence, History, Observation, Plan, Recalled, Scan, Sighting, TransactionPlan, outcome_of,
    plan, questions,
};
use crate::id::{Lineage, ParticipantName, TransactionId};
use crate::protocol::message::{Absence, DamagedBranch, Outcome, Record, Resolution};
use books::{Books, transaction};
use std::collections::BTreeSet;

mod anchor;
pub mod books;

const DATA: Lineage = Lineage(1);
const OTHER: Lineage = Lineage(2);

fn name(text: &str) -> ParticipantName {
    text.parse().unwrap()
}

fn seven() -> TransactionId {
    transaction(1, 7)
}

fn two() -> Books {
    Books::opened(&["ledger", "orders"])
}

/// Transaction 7, decided on both participants.
fn decided() -> Books {
    let mut books = two();
    books.decide(seven(), &["ledger", "orders"]);
    books
}

/// A pass in which these participants list their branch of transaction 7, or do not.
fn pass(books: &Books, lists: &[(&str, bool)]) -> Observation {
    let mut pass = Observation::new(books);
    for (participant, holds) in lists {
        show(books, &mut pass, participant, DATA, *holds);
    }
    pass
}

fn show(books: &Books, pass: &mut Observation, participant: &str, lineage: Lineage, holds: bool) {
    let branches: BTreeSet<_> = holds.then(|| books.branch(seven(), participant).unwrap()).into_iter().collect();
    pass.scanned(name(participant), Scan::Whole { lineage, branches, foreign: BTreeSet::new() });
}

fn only(plan: &Plan) -> &TransactionPlan {
    assert_eq!(plan.transactions.len(), 1, "{plan:?}");
    &plan.transactions[0]
}

fn on<'a>(plan: &'a Plan, participant: &str) -> &'a BranchPlan {
    only(plan).branches.iter().find(|branch| branch.participant == name(participant)).unwrap()
}

/// As the shell does: what is new is written down, forced.
fn remember(books: &mut Books, plan: &Plan) -> usize {
    let new: Vec<_> = plan.damages().collect();
    let count = new.len();
    new.into_iter().for_each(|(id, branches)| books.damage(id, branches));
    count
}

#[test]
fn damage_is_written_once_and_told_until_it_is_forgotten() {
    let mut books = decided();
    let ledger = books.branch(seven(), "ledger").unwrap();
    let mut first = pass(&books, &[("ledger", false), ("orders", true)]);
    first.heard(ledger, Evidence::Never);
    let found = plan(&books, &first);
    assert_eq!((only(&found).action, only(&found).outcome), (Action::Damage, Outcome::Damaged));
    assert_eq!(remember(&mut books, &found), 1);
    assert_eq!(books.damaged[&seven()].branches.iter().map(|one| one.id).collect::<Vec<_>>(), [ledger]);

    // The next runs see less, even nothing at all, and say the same.
    for lists in [vec![("ledger", false), ("orders", true)], vec![("ledger", false)], vec![]] {
        let again = plan(&books, &pass(&books, &lists));
        assert_eq!((only(&again).action, only(&again).outcome), (Action::Damage, Outcome::Damaged));
        assert_eq!(only(&again).damage.as_ref(), Some(&books.damaged[&seven()]));
        assert_eq!(again.damages().count(), 0, "it is remembered already");
        assert_eq!(again.notes().count(), 0, "what is damaged is never done");
    }
    assert_eq!(outcome_of(&books, seven(), &[]), Some(Outcome::Damaged));

    books.forget(seven());
    let clean = plan(&books, &pass(&books, &[("ledger", false), ("orders", false)]));
    assert_eq!(clean.transactions, []);
    assert_eq!(outcome_of(&books, seven(), &[]), Some(Outcome::Damaged), "what it was, it stays");
}

#[test]
fn the_other_branches_of_a_damaged_decision_are_committed() {
    let mut books = decided();
    let (ledger, orders) = (books.branch(seven(), "ledger").unwrap(), books.branch(seven(), "orders").unwrap());
    books.damage(seven(), vec![DamagedBranch { id: ledger, participant: name("ledger"), why: "rolled back".into() }]);
    let mut pass = pass(&books, &[("ledger", false), ("orders", true)]);
    let before = plan(&books, &pass);
    assert_eq!(on(&before, "orders").action, Action::Commit);
    assert!(before.work().any(|branch| branch.id == orders));
    pass.committed(orders);
    pass.heard(ledger, Evidence::Committed);
    let after = plan(&books, &pass);
    assert!(only(&after).branches.iter().all(|branch| branch.action == Action::Finish));
    assert_eq!(after.notes().count(), 0, "even with all proven: a person has to have seen it");
}

/// The evidence of a contradiction is gone with its pass; that it was there holds the siblings.
#[test]
fn what_is_damaged_without_a_decision_waits_for_a_person() {
    let mut books = two();
    let ledger = books.branch(seven(), "ledger").unwrap();
    let mut first = pass(&books, &[("ledger", false), ("orders", true)]);
    first.heard(ledger, Evidence::Committed);
    let found = plan(&books, &first);
    assert_eq!(only(&found).history, History::Stale);
    assert_eq!(remember(&mut books, &found), 1);
    assert_eq!(books.damaged[&seven()].branches.len(), 2);

    let again = plan(&books, &pass(&books, &[("ledger", false), ("orders", true)]));
    assert_eq!(only(&again).history, History::Contradicted);
    assert_eq!(on(&again, "orders").action, Action::Resolve, "rolled back it would be, by a pass that forgot");
    assert_eq!(again.work().count(), 0);
    assert!(questions(&books, seven()).is_empty(), "the answer is known");

    for (resolution, action) in [(Resolution::Commit, Action::Commit), (Resolution::RollBack, Action::RollBack)] {
        let mut resolved = books.clone();
        resolved.recalled.insert(seven(), Recalled::Resolved(resolution));
        let then = plan(&resolved, &pass(&resolved, &[("ledger", false), ("orders", true)]));
        assert_eq!(on(&then, "orders").action, action);
        assert_eq!(only(&then).outcome, Outcome::Damaged, "until it is forgotten");
    }
}

#[test]
fn two_single_writers_of_one_transaction_contradict_each_other() {
    let books = two();
    let mut pass = pass(&books, &[("ledger", false), ("orders", false)]);
    for participant in ["ledger", "orders"] {
        pass.heard(books.branch(seven(), participant).unwrap(), Evidence::CommittedAlone);
    }
    let found = plan(&books, &pass);
    assert_eq!((only(&found).action, only(&found).outcome), (Action::Damage, Outcome::Damaged));
    assert_eq!(found.notes().count(), 0);
}

#[test]
fn what_was_forgotten_and_comes_back_is_for_a_person() {
    let mut books = two();
    books.recalled.insert(seven(), Recalled::Forgotten);
    let back = plan(&books, &pass(&books, &[("ledger", true)]));
    assert_eq!((only(&back).action, only(&back).outcome), (Action::Resolve, Outcome::Damaged));
    assert_eq!(back.damages().count(), 0);
    // A coordinator's left branch is not asked about for ever.
    let mut pass = pass(&books, &[("ledger", false)]);
    pass.want(books.branch(seven(), "ledger").unwrap());
    assert!(on(&plan(&books, &pass), "ledger").action.is_final());
}

#[test]
fn a_decision_on_a_server_that_was_given_up_is_damage() {
    let mut books = decided();
    books.given_up.insert((seven().incarnation, name("orders")));
    // The server is gone, or its name leads to other data, or there is no answer.
    let mut adopted = pass(&books, &[("ledger", true)]);
    show(&books, &mut adopted, "orders", OTHER, false);
    let mut down = pass(&books, &[("ledger", true)]);
    down.scanned(name("orders"), Scan::Failed { cause: "refused".into() });
    for pass in [pass(&books, &[("ledger", true)]), adopted, down] {
        let plan = plan(&books, &pass);
        let orders = on(&plan, "orders");
        assert_eq!((orders.sighting, orders.action), (Sighting::GivenUp, Action::Damage));
        assert_eq!(on(&plan, "ledger").action, Action::Commit, "what can be committed is");
        assert_eq!(plan.damages().count(), 1);
    }
}

#[test]
fn what_was_given_up_and_is_seen_all_the_same_gets_its_outcome() {
    let mut books = decided();
    books.given_up.insert((seven().incarnation, name("orders")));
    let orders = books.branch(seven(), "orders").unwrap();
    let mut seen = pass(&books, &[("ledger", false)]);
    show(&books, &mut seen, "orders", OTHER, true);
    assert_eq!(on(&plan(&books, &seen), "orders").action, Action::Commit, "on the data that took the old one's place");

    // Its commit had no answer: it is there, and no damage is told of what will be asked again.
    let mut lost = seen.clone();
    lost.lost_sight(name("orders"), "reset".into());
    seen.unclear(orders, "permission denied".into());
    for pass in [seen, lost] {
        let plan = plan(&books, &pass);
        assert_eq!((on(&plan, "orders").sighting, on(&plan, "orders").action), (Sighting::NotScanned, Action::Wait));
    }

    // Another name leads to the same server: it lists the branch, so the branch is not gone with the name.
    let mut elsewhere = Observation::new(&books);
    let branches = [orders].into_iter().collect();
    elsewhere.scanned(name("ledger"), Scan::Whole { lineage: DATA, branches, foreign: BTreeSet::new() });
    assert_eq!(on(&plan(&books, &elsewhere), "orders").sighting, Sighting::OtherData);
}

#[test]
fn what_nobody_decided_rests_with_its_server() {
    let mut books = two();
    books.given_up.insert((seven().incarnation, name("orders")));
    let mut pass = pass(&books, &[("ledger", true)]);
    pass.want(books.branch(seven(), "orders").unwrap());
    let plan = plan(&books, &pass);
    assert_eq!((on(&plan, "orders").action, on(&plan, "ledger").action), (Action::Nothing, Action::RollBack));
    assert_eq!(plan.damages().count(), 0);
}

#[test]
fn where_records_were_lost_no_record_means_nothing() {
    let mut books = two();
    books.incomplete.insert(seven().incarnation);
    let (ledger, orders) = (books.branch(seven(), "ledger").unwrap(), books.branch(seven(), "orders").unwrap());
    let mut pass_ = pass(&books, &[("ledger", false), ("orders", true)]);
    pass_.want(ledger);
    let found = plan(&books, &pass_);
    assert_eq!((only(&found).action, only(&found).outcome), (Action::Resolve, Outcome::InDoubt));
    assert_eq!((on(&found, "ledger").action, on(&found, "orders").action), (Action::Ask, Action::Resolve));

    // A witness proves the outcome, and still a person has to act: a branch may have been committed by hand.
    pass_.heard(ledger, Evidence::Committed);
    let proven = plan(&books, &pass_);
    assert_eq!((only(&proven).action, only(&proven).outcome), (Action::Resolve, Outcome::Committed));
    assert_eq!((proven.notes().count(), proven.damages().count()), (0, 0), "a lost record is no contradiction");

    // With nothing left to be done, the witness is taken for the record.
    pass_.gone(orders);
    assert_eq!(plan(&books, &pass_).notes().collect::<Vec<_>>(), [&Record::Witnessed(seven())]);
    books.note(&Record::Witnessed(seven()));
    let back = plan(&books, &pass(&books, &[("orders", true)]));
    assert_eq!(on(&back, "orders").action, Action::Commit);

    // Once nothing can move, it is as before: all fences together prove nothing, a witness may have been pruned.
    let mut books = two();
    books.incomplete.insert(seven().incarnation);
    assert_eq!(outcome_of(&books, seven(), &[Evidence::Never; 2]), Some(Outcome::InDoubt));
    books.settled.insert(seven().incarnation, Absence::Unproven);
    let back = plan(&books, &pass(&books, &[("orders", true)]));
    assert_eq!(on(&back, "orders").action, Action::Resolve);
    assert_eq!(outcome_of(&books, seven(), &[]), Some(Outcome::InDoubt));
}

#[test]
fn what_a_person_decided_is_carried_out_when_its_participant_comes_back() {
    for (resolution, action, outcome) in [
        (Resolution::Commit, Action::Commit, Outcome::Committed),
        (Resolution::RollBack, Action::RollBack, Outcome::RolledBack),
    ] {
        let mut books = two();
        books.incomplete.insert(seven().incarnation);
        books.recalled.insert(seven(), Recalled::Resolved(resolution));
        let orders = books.branch(seven(), "orders").unwrap();
        let mut down = pass(&books, &[("ledger", true)]);
        down.scanned(name("orders"), Scan::Failed { cause: "refused".into() });
        down.want(orders);
        let waiting = plan(&books, &down);
        assert_eq!((on(&waiting, "ledger").action, on(&waiting, "orders").action), (action, Action::Wait));
        assert_eq!(only(&waiting).outcome, outcome);
        let mut back = pass(&books, &[("ledger", false), ("orders", true)]);
        assert_eq!(on(&plan(&books, &back), "orders").action, action);
        back.gone(orders);
        assert_eq!(plan(&books, &back).transactions, [], "nothing is left to be said");
        assert_eq!(outcome_of(&books, seven(), &[]), Some(outcome));
    }
}

#[test]
fn what_contradicts_a_person_is_damage() {
    for (resolution, evidence) in [
        (Resolution::Commit, Evidence::Never),
        (Resolution::RollBack, Evidence::Committed),
        (Resolution::RollBack, Evidence::CommittedAlone),
    ] {
        let mut books = two();
        books.incomplete.insert(seven().incarnation);
        books.recalled.insert(seven(), Recalled::Resolved(resolution));
        let mut pass = pass(&books, &[("ledger", false), ("orders", true)]);
        pass.heard(books.branch(seven(), "ledger").unwrap(), evidence);
        let found = plan(&books, &pass);
        assert_eq!((only(&found).outcome, found.damages().count()), (Outcome::Damaged, 1));
        assert!(on(&found, "orders").action.is_work(), "what was decided is carried out all the same");
    }
}

/// Each branch is looked up once in an index: a plan of 20,000 takes as long as it takes to print.
#[test]
fn a_plan_is_made_in_one_go() {
    let mut books = two();
    let ids: Vec<_> = (1..=10_000).map(|sequence| transaction(1, sequence)).collect();
    ids.iter().for_each(|id| books.decide(*id, &["ledger", "orders"]));
    let mut pass = Observation::new(&books);
    // The one lists what the other one does not: all have to be looked for in both.
    let branches = ids.iter().map(|id| books.branch(*id, "orders").unwrap()).collect();
    pass.scanned(name("ledger"), Scan::Whole { lineage: DATA, branches: BTreeSet::new(), foreign: BTreeSet::new() });
    pass.scanned(name("orders"), Scan::Whole { lineage: DATA, branches, foreign: BTreeSet::new() });
    let plan = plan(&books, &pass);
    let count = |action: Action| plan.branches().filter(|branch| branch.action == action).count();
    assert_eq!((count(Action::Ask), count(Action::Commit)), (10_000, 10_000));
}
