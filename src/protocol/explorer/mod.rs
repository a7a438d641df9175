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
//! * servers that take back what they said, and the pruning of witnesses: see [`setback`];
//! * a copy of the journal beside its original: see [`copy`];
//! * persons: roll a prepared branch back, ask for an outcome, put a fence in its way, decide where no record does, close
//!   what is damaged;
//! * the resolver: passes without end, beside the live coordinators: a scan of each participant, in any order, which
//!   may fail; the real plan; each action, whose answer may be lost, or which may be carried out later.
//!
//! Worlds that differ only in the order of alike participants or transactions are one world. Nothing else is left out,
//! so the number of states is finite without bounds on the length of a schedule; only crashes are counted, and where
//! several transactions or several kinds of fault meet, the faults. `HANDFAST_TORTURE=full` allows more of these.
//!
//! I5 is checked on the finished graph: quiet must be reachable from every state by steps that are not faults. As the
//! graph is finite, every schedule that leaves out no step for ever then gets there.
//!
//! That the explorer can find anything is tested by [`bugs`]: it has to find each.

mod bugs;
mod copy;
mod council;
mod event;
mod invariants;
mod person;
mod resolver;
mod search;
mod server;
mod setback;
mod setting;
mod step;
mod world;

use crate::protocol::{Acknowledge, Mode};
use bugs::Bug;
use search::{Explored, explore};
use setting::{Remains, Setting};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

const W: Option<Mode> = Some(Mode::Writer);
const R: Option<Mode> = Some(Mode::ReadOnly);
/// No branch.
const N: Option<Mode> = None;

fn setting(modes: &[&[Option<Mode>]]) -> Setting {
    Setting {
        modes: modes.iter().map(|modes| modes.to_vec()).collect(),
        remains: None,
        crashes: 1,
        faults: None,
        witness: true,
        ghosts: false,
        pinned: false,
        strays: false,
        operator: 0,
        losses: 0,
        returns: 0,
        lies: 0,
        prunes: false,
        forgets: false,
        copy: false,
        fences: false,
        questions: false,
        payload: false,
        calm: false,
        acknowledge: Acknowledge::Applied,
        bug: None,
    }
}

fn is_full() -> bool {
    std::env::var("HANDFAST_TORTURE").is_ok_and(|value| value == "full")
}

/// Where there is time for more, the second.
fn more(everyday: u8, full: u8) -> u8 {
    if is_full() { full } else { everyday }
}

/// Adds to the figures for `docs/torture.md`, in the form of `integration_tests::torture::Tally`.
fn tell_the_page(explored: &Explored) {
    static TOLD: Mutex<(usize, usize)> = Mutex::new((0, 0));
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    *told = (told.0 + explored.states, told.1 + usize::from(explored.broken.is_some()));
    let (states, violations) = (told.0, vec!["\"see the test\""; told.1].join(","));
    let figures = format!(
        r#"{{"kind":"every schedule of a small world","servers":"none: the model","cases":{states},"violations":[{violations}],"full":{}}}"#,
        is_full()
    );
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(target).join("torture");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("every-schedule-of-a-small-world-none--the-model.json"), figures).unwrap();
}

/// Explores, says how much there was, and gives the rows of recovery's table that were used.
fn holds(name: &str, setting: &Setting) -> BTreeSet<&'static str> {
    let explored = explore(setting);
    println!("{name}: {} states, {} steps, {} of them quiet", explored.states, explored.steps, explored.quiet);
    tell_the_page(&explored);
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

/// Transactions that share participants, sessions' pools, the journal and the passes of the resolver. What each does is
/// explored above with every fault; here few of them, at every moment of the others.
#[test]
fn several_transactions() {
    let few = |faults: u8, modes: &[&[Option<Mode>]]| Setting { faults: Some(faults), ..setting(modes) };
    holds("two of one writer", &few(more(1, 2), &[&[W], &[W]]));
    holds("three of one writer", &Setting { crashes: 0, ..few(more(1, 2), &[&[W], &[W], &[W]]) });
    holds("two writers beside one", &few(more(1, 2), &[&[W, W], &[N, W]]));
    holds("two writers beside a reader", &few(more(1, 2), &[&[W, W], &[N, R]]));
    holds("two of two writers", &few(more(0, 1), &[&[W, W], &[W, W]]));
    holds("two of two writers that share a participant", &few(more(0, 1), &[&[W, W, N], &[N, W, W]]));
}

/// Who asks by id puts fences in the way of what may still come, and every answer may be lost or late.
#[test]
fn fences_race_late_prepares() {
    let asked = |modes: &[&[Option<Mode>]]| Setting { fences: true, ghosts: true, ..setting(modes) };
    holds("a writer, fenced off at any moment", &Setting { crashes: 2, ..asked(&[&[W]]) });
    holds("two writers, fenced off at any moment", &Setting { faults: Some(more(2, 4)), ..asked(&[&[W, W]]) });
    holds(
        "two writers beside one, all fenced off",
        &Setting { crashes: 0, faults: Some(more(0, 1)), ..asked(&[&[W, W], &[N, W]]) },
    );
    holds("two writers, asked about in peace", &Setting { calm: true, ..asked(&[&[W, W]]) });
}

/// Branches that come back from a backup, or from where MariaDB had hidden them.
#[test]
fn servers_that_take_back_what_they_said() {
    let mut rows = BTreeSet::new();
    let two = || Setting { faults: Some(more(3, 5)), prunes: true, ..setting(&[&[W, W]]) };
    for (name, setting) in [
        ("two writers, one restored", Setting { returns: 1, ..two() }),
        ("two writers, both restored", Setting { returns: 2, crashes: 2, ..two() }),
        ("two writers, restored and asked about", Setting { returns: 1, fences: true, prunes: false, ..two() }),
        ("two writers, hidden", Setting { lies: 2, questions: true, ..two() }),
        ("two writers, hidden and restored", Setting { lies: 1, returns: 1, ..two() }),
        ("a writer whose witness is pruned", Setting { fences: true, prunes: true, ghosts: true, ..setting(&[&[W]]) }),
    ] {
        rows.extend(holds(name, &setting));
    }
    assert!(rows.contains("finished, back") && rows.contains("decided, held"));
}

/// A person decides, closes, and repairs what the disk has lost, beside other transactions.
#[test]
fn persons_at_any_moment() {
    let mut rows = BTreeSet::new();
    let two = || Setting { faults: Some(more(4, 6)), crashes: 2, ..setting(&[&[W, W]]) };
    let beside = || Setting { faults: Some(more(1, 2)), ..setting(&[&[W, W], &[N, W]]) };
    let payloads = || Setting { faults: Some(more(3, 4)), payload: true, ..setting(&[&[W], &[W]]) };
    for (name, setting) in [
        ("two writers that stray, and are forgotten", Setting { strays: true, forgets: true, ..two() }),
        ("two writers whose records are lost, and stray", Setting { losses: 1, strays: true, forgets: true, ..two() }),
        ("an operator and who forgets it", Setting { operator: 1, forgets: true, questions: true, ..two() }),
        ("a stray beside another", Setting { strays: true, forgets: true, ..beside() }),
        ("lost records beside another", Setting { losses: 1, ..payloads() }),
        ("an operator beside another", Setting { operator: 1, forgets: true, ..beside() }),
    ] {
        rows.extend(holds(name, &setting));
    }
    assert!(rows.contains("forgotten"));
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
    let payloads = || Setting { payload: true, faults: Some(1), crashes: 0, ..setting(&[&[W], &[W]]) };
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
        (Bug::ForgottenIsUndecided,        "I9", Setting { strays: true, forgets: true, questions: true, ..two() }),
        (Bug::ForgottenBesideSessions,     "I5", Setting { strays: true, forgets: true, ..two() }),
        // Several transactions.
        (Bug::AnswerOfAnother,             "I2", payloads()),
        (Bug::PoisonIsForgotten,           "I2", payloads()),
        (Bug::LiveIsAsked,                 "I8", Setting { fences: true, calm: true, ..two() }),
        // Servers that take back what they said.
        (Bug::DoneIsForgotten,             "I3", Setting { returns: 1, ..two() }),
        (Bug::FinishedIsLeft,              "I5", Setting { returns: 1, ..two() }),
        (Bug::OkIsProof,                   "I4", Setting { lies: 1, ..two() }),
        (Bug::SessionIsReset,              "I4", two()),
        (Bug::PrunedBeforeTheNote,         "I7", Setting { prunes: true, ..two() }),
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
