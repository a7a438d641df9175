use super::*;
use crate::id::ParticipantName;
use crate::participant::{Registered, Sighted, Sighting};
use crate::protocol::recovery::{BranchPlan, Plan, Sighting as Seen, TransactionPlan};
use crate::resolver::Foreigner;
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
    Plan { transactions: vec![transaction], foreign: Vec::new(), unscanned: Vec::new() }
}

fn foreigner(gid: &str) -> Foreigner {
    Foreigner {
        participant: "ledger".parse().unwrap(),
        gid: gid.into(),
        age: Some(Duration::from_secs(90_000)),
        registered: None,
        orphan: false,
        evidence: Vec::new(),
    }
}

/// A branch that a lost journal left behind.
fn orphan() -> Foreigner {
    let registered = Registered {
        node: "orders-api-1".parse().unwrap(),
        incarnation: "0123456789abcdef".parse().unwrap(),
        participant: 1,
        journal: "fedcba9876543210".parse().unwrap(),
        decision: Some(crate::config::Decision::Journal),
        host: "db-host-7".into(),
        age: Duration::from_secs(7_200),
    };
    Foreigner {
        participant: "orders".parse().unwrap(),
        age: None,
        registered: Some(registered),
        orphan: true,
        evidence: vec![
            ("ledger".parse().unwrap(), Evidence::Committed),
            ("orders".parse().unwrap(), Evidence::Nothing),
        ],
        ..foreigner("hf1.orders-api-1.0123456789abcdef.7.1.0")
    }
}

fn facts() -> Facts {
    let mut facts = Facts::default();
    let name: ParticipantName = "ledger".parse().unwrap();
    let sighting = |branch, seconds| Sighting { branch, age: Some(Duration::from_secs(seconds)) };
    let ours = "hf1.orders-api-1.9f3c2a7b11d0e842.1042.0.3".parse().unwrap();
    facts.add(name, &[sighting(Sighted::Ours(ours), 12)]);
    facts
}

/// Reports live as long as what they are made from.
fn with_report<T>(look: impl FnOnce(Report<'_>) -> T) -> T {
    let (plan, foreigners, facts) = (plan(), [foreigner("their\x1b[2Jown"), orphan()], facts());
    look(Report::of_plan(vec![ledger(), orders()], &plan, &foreigners, &facts))
}

fn text(report: &Report<'_>) -> String {
    styled(report, Style::default())
}

fn styled(report: &Report<'_>, style: Style) -> String {
    let mut out = Vec::new();
    report.write_text(style, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn people_read_text() {
    insta::assert_snapshot!(with_report(|report| text(&report)));
}

#[test]
fn programs_read_one_object() {
    let mut out = Vec::new();
    with_report(|report| report.write_json(&mut out).unwrap());
    insta::assert_snapshot!(String::from_utf8(out).unwrap());
}

#[test]
fn a_clean_report_says_so() {
    let report = Report::new(vec![ledger()], Rows::none(), Rows::none());
    assert_eq!(report.status, Exit::Clean);
    insta::assert_snapshot!(text(&report));
}

#[test]
fn text_fits_80_columns_with_the_longest_names() {
    let long: ParticipantName = "abcdefghijklmnopqrstuvwx".parse().unwrap();
    let (mut plan, facts) = (plan(), facts());
    let branch = &mut plan.transactions[0].branches[0];
    branch.participant = long;
    branch.id =
        format!("hf1.abcdefghijklmnop.{:016x}.{}.{}.{}", u64::MAX, u64::MAX, u16::MAX, u32::MAX).parse().unwrap();
    let ledger = Participant { name: long.to_string(), ..ledger() };
    let orders = Participant { cause: Some("no answer ".repeat(40)), ..orders() };
    for line in text(&Report::of_plan(vec![ledger, orders], &plan, &[], &facts)).lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn foreign_names_do_not_steer_the_terminal() {
    assert!(!with_report(|report| text(&report)).contains('\x1b'));
}

#[test]
fn colours_change_nothing_but_colours() {
    let (mut plan, facts) = (plan(), facts());
    plan.transactions[0].action = Action::Damage;
    plan.transactions[0].outcome = Outcome::Damaged;
    let report = Report::of_plan(vec![ledger()], &plan, &[], &facts);
    let (plain, coloured) = (text(&report), styled(&report, Style { colour: true }));
    assert!(coloured.starts_with("\x1b[1;31mdamaged\x1b[0m: ") && coloured.contains(" \x1b[1;31mDAMAGED\x1b[0m\n"));
    let without = coloured.replace("\x1b[1;31m", "").replace("\x1b[0m", "");
    assert_eq!(without, plain);
}

/// Ten thousand of them are no text for people; what is damaged among them must be.
#[test]
fn text_stays_useful_however_much_there_is() {
    let (mut plan, facts) = (plan(), facts());
    let one = plan.transactions[0].clone();
    plan.transactions = (1..=10_000)
        .map(|sequence| TransactionPlan { id: crate::id::TransactionId { sequence, ..one.id }, ..one.clone() })
        .collect();
    plan.transactions[9_000].outcome = Outcome::Damaged;
    let foreigners: Vec<_> = (0..200).map(|n| foreigner(&format!("x{n}"))).collect();
    let report = Report::of_plan(vec![ledger()], &plan, &foreigners, &facts);
    let text = text(&report);
    assert_eq!(text.matches("\ntransaction ").count(), 50);
    assert_eq!(text.find("\ntransaction "), text.find("\ntransaction hf1.orders-api-1.9f3c2a7b11d0e842.9001\n"));
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        flat.contains("the first 50 of 10000 transactions are shown; of all, 9999 wait and 1 are damaged"),
        "{flat}"
    );
    assert!(text.contains("\n and 150 more\n"), "{text}");
    let mut json = Vec::new();
    report.write_json(&mut json).unwrap();
    let object: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(object["transactions"].as_array().unwrap().len(), 10_000);
    assert_eq!(object["foreign"].as_array().unwrap().len(), 200);
}

#[test]
fn the_most_pressing_wins() {
    let clean = || Report::new(vec![ledger()], Rows::none(), Rows::none());
    let of = with_report(|report| report.status);
    assert_eq!(of, Exit::Unreachable);
    assert_eq!(clean().at_least(Exit::Refused).status, Exit::Refused);
    assert_eq!(with_report(|report| report.at_least(Exit::InDoubt).status), Exit::Unreachable);
    assert_eq!(clean().and_older(Duration::from_secs(60), 0).status, Exit::Clean);
    assert_eq!(clean().and_older(Duration::from_secs(60), 1).status, Exit::InDoubt);
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
