use super::build::Ages;
use super::*;
use crate::id::ParticipantName;
use crate::participant::{Sighted, Sighting};
use crate::protocol::recovery::{BranchPlan, ForeignBranch, Plan, Sighting as Seen, TransactionPlan};
use std::time::Duration;

fn ledger() -> Participant {
    Participant {
        name: "ledger".into(),
        kind: "postgres".into(),
        reachable: true,
        server: Some("PostgreSQL 15.18 at 127.0.0.1:5432/ledger".into()),
        prepared: Some(2),
        cause: None,
        exit: Exit::Clean,
    }
}

fn orders() -> Participant {
    Participant {
        name: "orders".into(),
        kind: "mysql".into(),
        reachable: false,
        server: None,
        prepared: None,
        cause: Some("cannot connect to mysql://app@db2/orders: Connection refused (os error 111)".into()),
        exit: Exit::Unreachable,
    }
}

fn plan() -> Plan {
    let id = "hf1.orders-api-1.9f3c2a7b11d0e842.1042".parse().unwrap();
    let branch = |participant: &str, number, sighting, action, why: &str| BranchPlan {
        id: crate::id::TransactionId::branch(id, number, 3),
        participant: participant.parse().unwrap(),
        sighting,
        evidence: Evidence::NotAsked,
        action,
        row: "a row",
        why: why.into(),
    };
    let branches = vec![
        branch("ledger", 0, Seen::Listed, Action::Commit, "its transaction was decided, and it is prepared"),
        branch("orders", 1, Seen::NotScanned, Action::Wait, "its participant could not be scanned: Connection refused"),
    ];
    let transaction = TransactionPlan {
        id,
        history: History::Decided,
        outcome: Outcome::Committed,
        action: Action::Wait,
        branches,
        damage: None,
        note: None,
    };
    let foreign = vec![ForeignBranch { participant: "ledger".parse().unwrap(), gid: "their\x1b[2Jown".into() }];
    Plan { transactions: vec![transaction], foreign, unscanned: Vec::new() }
}

fn report() -> Report {
    let mut ages = Ages::default();
    let name: ParticipantName = "ledger".parse().unwrap();
    let sighting = |branch, seconds| Sighting { branch, age: Some(Duration::from_secs(seconds)) };
    let ours = "hf1.orders-api-1.9f3c2a7b11d0e842.1042.0.3".parse().unwrap();
    ages.add(name, &[sighting(Sighted::Ours(ours), 12), sighting(Sighted::Foreign("their\x1b[2Jown".into()), 90_000)]);
    Report::of_plan(vec![ledger(), orders()], &plan(), &ages)
}

fn text(report: &Report) -> String {
    let mut out = Vec::new();
    report.write_text(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn people_read_text() {
    insta::assert_snapshot!(text(&report()));
}

#[test]
fn programs_read_one_object() {
    let mut out = Vec::new();
    report().write_json(&mut out).unwrap();
    insta::assert_snapshot!(String::from_utf8(out).unwrap());
}

#[test]
fn a_clean_report_says_so() {
    let report = Report::new(vec![ledger()], Vec::new(), Vec::new());
    assert_eq!(report.status, Exit::Clean);
    insta::assert_snapshot!(text(&report));
}

#[test]
fn text_fits_80_columns_with_the_longest_names() {
    let mut report = report();
    let long = "abcdefghijklmnopqrstuvwx";
    report.participants[0].name = long.into();
    report.participants[1].cause = Some("no answer ".repeat(40));
    let gid = format!("hf1.abcdefghijklmnop.{:016x}.{}.{}.{}", u64::MAX, u64::MAX, u16::MAX, u32::MAX);
    report.transactions[0].branches[0].participant = long.into();
    report.transactions[0].branches[0].gid = gid;
    for line in text(&report).lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn foreign_names_do_not_steer_the_terminal() {
    assert!(!text(&report()).contains('\x1b'));
}

#[test]
fn the_most_pressing_wins() {
    let clean = Report::new(vec![ledger()], Vec::new(), Vec::new());
    assert_eq!(report().status, Exit::Unreachable);
    assert_eq!(clean.clone().at_least(Exit::Refused).status, Exit::Refused);
    assert_eq!(report().at_least(Exit::InDoubt).status, Exit::Unreachable);
    assert_eq!(Report::without_a_look(Exit::Corrupt, None).status, Exit::Corrupt);
}

#[test]
fn a_transaction_is_clean_when_it_is_certain_and_at_rest() {
    use Outcome::{Committed, Damaged, InDoubt, RolledBack};
    for (outcome, action, exit) in [
        (Committed, Action::Finish, Exit::Clean),
        (Committed, Action::FinishUnproven, Exit::Clean),
        (RolledBack, Action::Nothing, Exit::Clean),
        (Committed, Action::Commit, Exit::InDoubt),
        (RolledBack, Action::RollBack, Exit::InDoubt),
        (InDoubt, Action::Nothing, Exit::InDoubt),
        // A running application is at work on it.
        (InDoubt, Action::Leave, Exit::Clean),
        (Committed, Action::Damage, Exit::Damaged),
        (Damaged, Action::Nothing, Exit::Damaged),
    ] {
        assert_eq!(exit_of(outcome, action), exit, "{outcome:?} {action:?}");
    }
}
