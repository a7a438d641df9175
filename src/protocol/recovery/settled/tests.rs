//! Every schedule of what a dead process left and of what is found out about it: nothing moves behind a verdict.

use super::*;
use crate::protocol::message::DamagedBranch;
use crate::protocol::recovery::tests::books::Books;
use std::collections::BTreeMap;

const DEAD: Incarnation = Incarnation(1);

fn name(number: usize) -> ParticipantName {
    ["ledger", "orders"][number].parse().unwrap()
}

fn opened(participants: usize) -> IncarnationRecord {
    let participants = (0..participants).map(name).collect();
    IncarnationRecord { node: "node".parse().unwrap(), incarnation: DEAD, opened_at_ms: 0, participants }
}

fn id(sequence: u64) -> TransactionId {
    TransactionId { node: "node".parse().unwrap(), incarnation: DEAD, sequence }
}

/// The journal that holds these sequences as committed.
fn books(committed: impl IntoIterator<Item = u64>) -> Books {
    let mut books = Books::opened(&["ledger", "orders"]);
    committed.into_iter().for_each(|sequence| drop(books.recalled.insert(id(sequence), Recalled::Finished)));
    books
}

/// A request on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Late {
    Prepare,
    OnePhase,
}

/// The branch that participant `n` has of transaction `n + 1`, or of a decided one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Site {
    session: bool,
    late: Option<Late>,
    prepared: bool,
    /// The visible witness: of a one-phase commit?
    witness: Option<bool>,
    ended: bool,
    listed: bool,
    read: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct World {
    sites: [Site; 2],
    /// Sequences that the journal holds.
    books: BTreeSet<u64>,
    settling: Shadow,
}

/// `Settling`, to be ordered: how it was told is all that it is.
type Shadow = Vec<Told>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    Silent(usize),
    Listed(usize, bool),
    Witness(usize, bool),
    Read(usize),
}

/// What is broken, for the test of this test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    None,
    /// A session is said to be gone and is not.
    SessionsLinger,
    /// The list is from before the sessions ended.
    OldList,
    /// The witnesses are from before the list.
    OldWitnesses,
    /// Witnesses are not read.
    NoWitnesses,
    /// Only the first participant is asked.
    OneIsEnough,
}

impl World {
    fn settling(&self, bug: Bug) -> Settling {
        let mut settling = Settling::new(&Books::default(), &opened(2));
        let mut books = books([]);
        if bug == Bug::OneIsEnough {
            settling.unused(name(1));
        }
        for told in &self.settling {
            match *told {
                Told::Silent(at) => settling.silent(name(at)),
                Told::Listed(at, held) => {
                    let branch = id(at as u64 + 1).branch(u16::try_from(at).unwrap(), 0);
                    settling.listed(name(at), &held.then_some(branch).into_iter().collect());
                }
                Told::Witness(at, alone) => {
                    let evidence = if alone { Evidence::CommittedAlone } else { Evidence::Committed };
                    settling.witness(&books, u16::try_from(at).unwrap(), at as u64 + 1, evidence);
                    settling.take_lost().for_each(|record| books.note(&record));
                }
                Told::Read(at) => settling.read(name(at), true),
            }
        }
        settling
    }

    /// What the dead process, its servers and people may do.
    fn moves(&self) -> Vec<Self> {
        let mut next = Vec::new();
        for at in 0..2 {
            let mut change = |act: &dyn Fn(&mut Site)| {
                let mut world = self.clone();
                act(&mut world.sites[at]);
                next.push(world);
            };
            let site = self.sites[at];
            if let (true, Some(late)) = (site.session, site.late) {
                change(&|site| {
                    site.late = None;
                    match late {
                        Late::Prepare => site.prepared = true,
                        Late::OnePhase => site.witness = Some(true),
                    }
                });
            }
            if site.prepared {
                change(&|site| site.prepared = false);
                change(&|site| (site.prepared, site.witness) = (false, Some(false)));
            }
        }
        next
    }

    /// What the resolver may do, in the order that `Settling` demands or a bug gets around.
    fn steps(&self, bug: Bug) -> Vec<Self> {
        let settling = self.settling(bug);
        let mut next = Vec::new();
        for at in 0..2 {
            let site = self.sites[at];
            if bug == Bug::OneIsEnough && at == 1 {
                continue;
            }
            let mut world = self.clone();
            let change = &mut world.sites[at];
            if !site.ended {
                change.ended = true;
                change.session &= bug == Bug::SessionsLinger;
                world.settling.push(Told::Silent(at));
                if bug == Bug::OldList {
                    change.listed = true;
                    world.settling.push(Told::Listed(at, site.prepared));
                }
                // The old list was made first; then the request arrived, then its session ended.
                if let (Bug::OldList, Some(Late::Prepare)) = (bug, site.late) {
                    let mut late = world.clone();
                    (late.sites[at].late, late.sites[at].prepared) = (None, true);
                    next.push(late);
                }
            } else if !site.listed {
                change.listed = true;
                world.settling.push(Told::Listed(at, site.prepared));
                // The old witnesses were read first; then the branch was committed by hand, then the list was made.
                if bug == Bug::OldWitnesses && site.prepared {
                    let mut late = self.clone();
                    let change = &mut late.sites[at];
                    (change.listed, change.read, change.prepared, change.witness) = (true, true, false, Some(false));
                    late.settling.push(Told::Listed(at, false));
                    late.settling.push(Told::Read(at));
                    next.push(late);
                }
            } else if settling.is_read_next(name(at)) && !site.read {
                change.read = true;
                if let (Some(alone), true) = (site.witness, bug != Bug::NoWitnesses) {
                    world.settling.push(Told::Witness(at, alone));
                    if alone {
                        world.books.insert(at as u64 + 1);
                    }
                }
                world.settling.push(Told::Read(at));
            } else {
                continue;
            }
            next.push(world);
        }
        next
    }

    /// Settled, every commit is in the books and nothing can move.
    fn is_wrong(&self, bug: Bug) -> bool {
        let Verdict::Settled(_) = self.settling(bug).verdict() else { return false };
        let unknown = (0..2).any(|at| self.sites[at].witness.is_some() && !self.books.contains(&(at as u64 + 1)));
        unknown || !self.moves().is_empty()
    }
}

/// How many worlds were seen, and whether one of them was wrong, and one settled.
fn explore(bug: Bug) -> (usize, bool, bool) {
    let starts = [None, Some(Late::Prepare), Some(Late::OnePhase)];
    let site =
        |late| Site { session: true, late, prepared: false, witness: None, ended: false, listed: false, read: false };
    let begin = |a, b| World { sites: [site(a), site(b)], books: BTreeSet::new(), settling: Vec::new() };
    let mut open: Vec<_> = starts.iter().flat_map(|a| starts.iter().map(move |b| begin(*a, *b))).collect();
    let mut seen = BTreeSet::new();
    let (mut wrong, mut settled) = (false, false);
    while let Some(world) = open.pop() {
        if !seen.insert(world.clone()) {
            continue;
        }
        wrong |= world.is_wrong(bug);
        settled |= matches!(world.settling(bug).verdict(), Verdict::Settled(Absence::RolledBack));
        open.extend(world.moves());
        open.extend(world.steps(bug));
    }
    (seen.len(), wrong, settled)
}

#[test]
fn nothing_moves_behind_a_verdict() {
    let (seen, wrong, settled) = explore(Bug::None);
    assert!(seen > 1_000, "{seen} worlds");
    assert!(!wrong && settled);
}

#[test]
fn each_condition_is_needed() {
    for bug in [Bug::SessionsLinger, Bug::OldList, Bug::OldWitnesses, Bug::NoWitnesses, Bug::OneIsEnough] {
        let (_, wrong, _) = explore(bug);
        assert!(wrong, "{bug:?} is not found");
    }
}

fn silent_and_empty(settling: &mut Settling, number: usize) {
    settling.silent(name(number));
    settling.listed(name(number), &BTreeSet::new());
}

#[test]
fn what_each_participant_shows_decides() {
    let books = books([1]);
    let mut settling = Settling::new(&Books::default(), &opened(2));
    assert!(matches!(settling.verdict(), Verdict::Waits(first, Why::OutOfReach(_)) if first == name(0)));
    settling.unused(name(1));
    silent_and_empty(&mut settling, 0);
    assert!(settling.is_read_next(name(0)) && !settling.is_read_next(name(1)));
    settling.witness(&books, 0, 1, Evidence::Committed);
    settling.witness(&books, 0, 2, Evidence::CommittedAlone);
    settling.witness(&books, 0, 3, Evidence::Never);
    assert_eq!(settling.take_lost().collect::<Vec<_>>(), [Record::OnePhase(id(2))]);
    let mut unproven = settling.clone();
    unproven.read(name(0), false);
    assert_eq!(unproven.verdict(), Verdict::Settled(Absence::Unproven));
    let mut lost = settling.clone();
    lost.out_of_reach(name(0), "reset".into());
    assert_eq!(lost.verdict(), Verdict::Waits(name(0), Why::OutOfReach("reset".into())));
    let mut stale = settling.clone();
    stale.witness(&books, 0, 4, Evidence::Committed);
    assert_eq!(stale.verdict(), Verdict::Contradicted([id(4).branch(0, 0)].into_iter().collect()));
    assert!(!stale.is_read_next(name(0)), "what contradicts is not read on");
    settling.read(name(0), true);
    assert_eq!(settling.verdict(), Verdict::Settled(Absence::RolledBack));
}

#[test]
fn only_its_own_branches_count() {
    let mut settling = Settling::new(&Books::default(), &opened(1));
    settling.silent(name(0));
    let other = TransactionId { incarnation: Incarnation(2), ..id(1) }.branch(0, 0);
    let another = TransactionId { node: "other".parse().unwrap(), ..id(1) }.branch(0, 0);
    let elsewhere = id(1).branch(7, 3);
    let mut holds = settling.clone();
    settling.listed(name(0), &[other, another].into_iter().collect());
    assert!(settling.awaits_witnesses());
    holds.listed(name(0), &[other, elsewhere].into_iter().collect());
    assert_eq!(holds.verdict(), Verdict::Waits(name(0), Why::Holds([elsewhere].into_iter().collect())));
}

#[test]
fn the_order_is_asserted() {
    type Wrong = fn(&mut Settling);
    let wrong: [Wrong; 4] = [
        |settling| settling.listed(name(0), &BTreeSet::new()),
        |settling| settling.read(name(0), true),
        |settling| settling.witness(&Books::default(), 0, 1, Evidence::Never),
        |settling| {
            silent_and_empty(settling, 0);
            settling.silent(name(0));
        },
    ];
    let known: BTreeMap<_, _> = wrong.iter().enumerate().collect();
    for (number, wrong) in known {
        let panics = std::panic::catch_unwind(|| wrong(&mut Settling::new(&Books::default(), &opened(1))));
        assert!(panics.is_err(), "{number}");
    }
}

#[test]
fn what_was_given_up_is_not_waited_for() {
    let mut books = books([]);
    books.given_up.insert((DEAD, name(1)));
    let mut settling = Settling::new(&books, &opened(2));
    silent_and_empty(&mut settling, 0);
    assert!(settling.is_read_next(name(0)) && !settling.is_read_next(name(1)));
    settling.read(name(0), true);
    assert_eq!(settling.verdict(), Verdict::Settled(Absence::Unproven));
    // Whatever the data says that took its place: it is not what was there.
    settling.out_of_reach(name(1), "down".into());
    settling.unused(name(1));
    silent_and_empty(&mut settling, 1);
    assert!(!settling.is_read_next(name(1)));
    assert_eq!(settling.verdict(), Verdict::Settled(Absence::Unproven));
}

#[test]
fn a_lost_record_is_replaced_by_its_witness() {
    let mut books = books([1]);
    books.incomplete.insert(DEAD);
    let mut settling = Settling::new(&books, &opened(1));
    silent_and_empty(&mut settling, 0);
    for (sequence, evidence) in [
        (1, Evidence::Committed),
        (2, Evidence::Committed),
        (3, Evidence::CommittedAlone),
        (4, Evidence::Never),
        (0, Evidence::Off),
    ] {
        settling.witness(&books, 0, sequence, evidence);
    }
    let found: Vec<_> = settling.take_lost().collect();
    assert_eq!(found, [Record::Witnessed(id(2)), Record::OnePhase(id(3))]);
    settling.read(name(0), true);
    assert_eq!(
        settling.verdict(),
        Verdict::Settled(Absence::Unproven),
        "4 may have been pruned, and asked about since"
    );
}

#[test]
fn a_witness_against_a_person_is_remembered_before_the_verdict() {
    let mut books = books([]);
    books.incomplete.insert(DEAD);
    books.recalled.insert(id(1), Recalled::Resolved(Resolution::RollBack));
    books.recalled.insert(id(2), Recalled::Resolved(Resolution::Commit));
    books.recalled.insert(id(3), Recalled::Forgotten);
    let read = |books: &Books| {
        let mut settling = Settling::new(books, &opened(1));
        silent_and_empty(&mut settling, 0);
        (1..=3).for_each(|sequence| settling.witness(books, 0, sequence, Evidence::Committed));
        assert_eq!(settling.take_lost().count(), 0, "a person has the last word, not the witness");
        if settling.is_read_next(name(0)) {
            settling.read(name(0), true);
        }
        settling.verdict()
    };
    let branch = id(1).branch(0, 0);
    assert_eq!(read(&books), Verdict::Refuted([branch].into_iter().collect()));
    books.damage(id(1), vec![DamagedBranch { id: branch, participant: name(0), why: "it committed".into() }]);
    assert_eq!(read(&books), Verdict::Settled(Absence::Unproven));
}
