//! Every schedule, not some: from a setting (which transactions, which faults) all worlds that can be reached are
//! visited, and the invariants of [`protocol`](super) are checked in each.
//!
//! What is real: the [`Coordinator`](super::Coordinator), and recovery's [`plan`](super::recovery::plan) with its table.
//! What is modelled, in steps that any other step may come between:
//!
//! * the application: begins, commits, gives up at any moment (which is the deadline as well), may end a branch itself;
//! * sessions: a request is under way, carried out, answered; a session may be lost at any of these points, and what
//!   it carried may still be carried out, at any later time or never. A server's restart is the loss of its sessions,
//!   so it needs no step of its own;
//! * servers: a branch is active, prepared, committed or rolled back; a witness row is written with the commit, and
//!   the fence is refused, blocked or inserted accordingly;
//! * the journal: a record is handed over, then synced, or failed, after which a crash may keep it or lose it; notes
//!   are unforced and may be lost; a failed journal takes nothing until it is opened again;
//! * the process: dies anywhere, and comes back knowing only the journal;
//! * the disk: loses durable records, in some settings, and the journal is repaired: that it happened is known;
//! * a copy of the journal beside its original: see [`copy`];
//! * persons: roll a prepared branch back, ask for an outcome, decide where no record does;
//! * the resolver: passes without end, beside the live coordinators: a scan of each participant, in any order, which
//!   may fail; the real plan; each action, whose answer may be lost, or which may be carried out later.
//!
//! Worlds that differ only in the order of alike participants are one world. Nothing else is left out, so the number
//! of states is finite without bounds on the length of a schedule; only crashes are counted.
//!
//! I5 is checked on the finished graph: quiet must be reachable from every state by steps that are not faults. As the
//! graph is finite, every schedule that leaves out no step for ever then gets there.
//!
//! That the explorer can find anything is tested by [`bugs`]: it has to find each.

mod bugs;
mod copy;
mod council;
mod invariants;
mod person;
mod resolver;
mod search;
mod server;
mod step;
mod world;

use crate::protocol::{Acknowledge, Mode};
use bugs::Bug;
use search::explore;
use std::collections::BTreeSet;
use world::{Remains, Setting};

const W: Mode = Mode::Writer;
const R: Mode = Mode::ReadOnly;

fn setting(modes: &[&[Mode]]) -> Setting {
    Setting {
        modes: modes.iter().map(|modes| modes.to_vec()).collect(),
        remains: None,
        crashes: 1,
        witness: true,
        ghosts: false,
        pinned: false,
        strays: false,
        operator: 0,
        losses: 0,
        copy: false,
        fences: false,
        questions: false,
        payload: false,
        calm: false,
        acknowledge: Acknowledge::Applied,
        bug: None,
    }
}

/// Explores, says how much there was, and gives the rows of recovery's table that were used.
fn holds(name: &str, setting: &Setting) -> BTreeSet<&'static str> {
    let explored = explore(setting);
    println!("{name}: {} states, {} steps, {} of them quiet", explored.states, explored.steps, explored.quiet);
    if let Some((broken, story)) = explored.broken {
        panic!("{name}: {} is broken: {}, after {story:?}", broken.invariant, broken.what);
    }
    assert!(explored.quiet > 0);
    explored.rows
}

#[test]
fn one_branch() {
    holds("a writer", &Setting { ghosts: true, questions: true, crashes: 2, ..setting(&[&[W]]) });
    holds("a writer, fenced off by a question", &Setting { fences: true, ..setting(&[&[W]]) });
    holds("a writer without witness", &Setting { ghosts: true, witness: false, ..setting(&[&[W]]) });
    holds("a writer that may stray", &Setting { strays: true, ..setting(&[&[W]]) });
    holds("a reader", &Setting { crashes: 2, ..setting(&[&[R]]) });
    holds("a writer with a payload", &Setting { payload: true, ghosts: true, ..setting(&[&[W]]) });
    holds("a reader with a payload", &Setting { payload: true, ..setting(&[&[R]]) });
}

#[test]
fn two_branches() {
    let two = || setting(&[&[W, W]]);
    let mut rows = BTreeSet::new();
    for (name, setting) in [
        ("two readers", setting(&[&[R, R]])),
        ("a writer and a reader", Setting { ghosts: true, ..setting(&[&[W, R]]) }),
        ("a writer and a reader, asked about", Setting { questions: true, ..setting(&[&[W, R]]) }),
        ("two writers, two crashes", Setting { crashes: 2, questions: true, ..two() }),
        ("two writers, answered at the decision", Setting { acknowledge: Acknowledge::Decided, ..two() }),
        ("two writers, late words of the resolver", Setting { ghosts: true, ..two() }),
        ("two writers, pinned to their sessions", Setting { pinned: true, ghosts: true, ..two() }),
        ("two writers that may stray", Setting { strays: true, ..two() }),
        ("two writers and an operator", Setting { operator: 1, ..two() }),
        ("two writers, fenced off by a question", Setting { fences: true, ..two() }),
        ("two writers whose records are lost", Setting { losses: 1, ..two() }),
        ("two writers whose records are lost, asked about", Setting { losses: 1, questions: true, ..two() }),
        ("two writers without witness", Setting { witness: false, ghosts: true, ..two() }),
    ] {
        rows.extend(holds(name, &setting));
    }
    // The other rows need another journal, other data under a known name, or a server that takes back what it said.
    for row in [
        "live",
        "unsure",
        "decided, there",
        "decided, gone",
        "decided, proven",
        "decided, against",
        "decided, unprovable",
        "decided, unseen",
        "finished",
        "one phase",
        "undecided, there",
        "undecided, asked",
        "undecided, held",
        "undecided, gone",
        "undecided, unseen",
        "contradicted, there",
        "contradicted, asked",
        "contradicted, gone",
        "lost, there",
        "lost, asked",
        "lost, gone",
        "resolved, to commit",
        "resolved, to roll back",
    ] {
        assert!(rows.contains(row), "no schedule used {row:?}");
    }
}

#[test]
fn three_branches_with_two_writers() {
    holds("two writers and a reader", &setting(&[&[W, W, R]]));
}

#[test]
fn three_branches() {
    holds("three writers", &setting(&[&[W, W, W]]));
    holds("a writer and two readers", &setting(&[&[W, R, R]]));
}

/// A process begins its own transaction while its resolver clears away what its predecessor left.
#[test]
fn recovery_beside_a_live_transaction() {
    for remains in [Remains::HalfPrepared, Remains::HalfCommitted] {
        let name = format!("two writers beside a transaction that is {remains:?}");
        holds(&name, &Setting { crashes: 0, remains: Some(remains), ..setting(&[&[W, W], &[W, W]]) });
    }
}

/// It loses leases, and is refused or finds nothing decided.
#[test]
fn a_copy_of_the_journal() {
    holds("two writers and a copy", &Setting { crashes: 0, copy: true, ..setting(&[&[W, W]]) });
}

/// Who always says no is safe, and no use: when everybody agrees, all commits.
#[test]
fn when_nothing_fails_all_commits() {
    for modes in [&[W][..], &[R], &[W, W], &[W, R], &[R, R], &[W, W, W], &[W, W, R], &[W, R, R]] {
        for payload in [false, true] {
            holds(&format!("{modes:?}, calm"), &Setting { calm: true, payload, ..setting(&[modes]) });
        }
    }
}

/// Every way of getting it wrong is found, and by the invariant that forbids it.
#[test]
fn planted_bugs_are_caught() {
    let (one, two) = (|| setting(&[&[W]]), || setting(&[&[W, W]]));
    #[rustfmt::skip]
    let rows = [
        // The coordinator.
        (Bug::UnknownVoteIsYes,            "I2", two()),
        (Bug::AnswerBeforeDurable,         "I3", two()),
        (Bug::AbortAfterTheDecision,       "I3", two()),
        (Bug::FailedAppendRollsBack,       "I3", two()),
        (Bug::UnknownFinishIsDone,         "I4", two()),
        (Bug::UnknownOnePhaseIsRolledBack, "I3", one()),
        (Bug::PreparedAreForgotten,        "I5", two()),
        (Bug::DoneBeforePhaseTwo,          "I4", two()),
        (Bug::WriterBesideReaders,         "I3", setting(&[&[W, R]])),
        (Bug::AlwaysNo,                    "I8", Setting { calm: true, ..two() }),
        // The driver.
        (Bug::LeftSessionsStayOpen,        "I4", two()),
        (Bug::MemoryBeforeScans,           "I6", two()),
        (Bug::LiveIsForgotten,             "I6", two()),
        (Bug::LiveUntilTheDecision,        "I3", two()),
        (Bug::LookingIsProof,              "I3", one()),
        (Bug::FailedScanIsEmpty,           "I4", Setting { witness: false, ..two() }),
        // The journal.
        (Bug::DurableTooSoon,              "I2", two()),
        (Bug::ActsOnThePageCache,          "I3", Setting { crashes: 2, ..two() }),
        (Bug::FailedAppendIsForgotten,     "I3", two()),
        (Bug::OpenDecisionsAreForgotten,   "I5", two()),
        // Recovery and its table.
        (Bug::UndecidedCommits,            "I2", two()),
        (Bug::DecidedRollsBack,            "I1", two()),
        (Bug::GoneIsDamage,                "I7", two()),
        (Bug::NotListedIsCommitted,        "I4", Setting { operator: 1, ..two() }),
        (Bug::AbsenceIsTrusted,            "I4", Setting { witness: false, ..two() }),
        // Damage, and persons.
        (Bug::DamageIsToldFirst,           "I9", Setting { strays: true, ..two() }),
        (Bug::DamageIsForgotten,           "I9", Setting { strays: true, ..two() }),
        (Bug::LostMeansUndecided,          "I3", Setting { losses: 1, ..two() }),
        (Bug::SilenceIsNever,              "I3", Setting { fences: true, ..one() }),
        (Bug::ResolvedBesideSessions,      "I3", Setting { losses: 1, ..two() }),
        // Beside a copy of the journal.
        (Bug::NoLease,                     "I2", Setting { copy: true, crashes: 0, ..two() }),
        (Bug::RegainedIsAsGood,            "I2", Setting { copy: true, crashes: 0, ..two() }),
        (Bug::NoStaleCheck,                "I1", Setting { copy: true, crashes: 0, ..two() }),
        (Bug::LeaseLostBehindTheDecision,  "I1", Setting { copy: true, crashes: 0, ..two() }),
    ];
    assert_eq!(rows.len(), Bug::COUNT);
    let mut sound: Vec<Setting> = Vec::new();
    for (bug, invariant, setting) in rows {
        if !sound.contains(&setting) {
            assert!(explore(&setting).broken.is_none(), "without the bug all is well");
            sound.push(setting.clone());
        }
        let explored = explore(&Setting { bug: Some(bug), ..setting });
        let (broken, story) = explored.broken.unwrap_or_else(|| panic!("{bug:?} was not found"));
        println!("{bug:?}: {} after {} steps: {}", broken.invariant, story.len(), broken.what);
        assert_eq!(broken.invariant, invariant, "{bug:?}: {} after {story:?}", broken.what);
    }
}
