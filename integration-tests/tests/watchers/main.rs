//! Who watches the watchers: each safeguard is switched off, and a scenario that holds with it is violated.
//!
//! What is attacked runs as a child, since a switch counts for its whole process. The journal's safeguards are tried on a
//! disk that lies, by the journal's own tests (`src/journal/tests/watchers.rs`).

#![cfg(feature = "torture")]

mod child;
mod scenarios;
mod stage;

use child::{Off, names};
use futures_util::future::LocalBoxFuture;
use futures_util::stream::{self, StreamExt};
use handfast::torture::Safeguard;
use integration_tests::each_server;
use integration_tests::servers::Flavor::{self, MariaDb, MySql, Postgres};
use integration_tests::torture::{self, Tally};
use stage::Violation;
use std::path::Path;

type Scenario = fn(Flavor, Off) -> LocalBoxFuture<'static, Result<(), Violation>>;

/// What is switched off, and the servers on which it is missed.
struct Case {
    name: &'static str,
    off: Off,
    on: &'static [Flavor],
    scenario: Scenario,
}

macro_rules! cases {
    ($($(#[$why:meta])* $name:ident: [$($off:ident),+] on $on:expr,)+) => {
        &[$($(#[$why])* Case {
            name: stringify!($name),
            off: &[$(Safeguard::$off),+],
            on: &$on,
            scenario: |flavor, off| Box::pin(scenarios::$name(flavor, off)),
        }),+]
    };
}

const ALL: [Flavor; 3] = [Postgres, MariaDb, MySql];
const XA: [Flavor; 2] = [MariaDb, MySql];

const CASES: &[Case] = cases! {
    guard: [Guard] on ALL,
    guard_alone: [Guard] on ALL,
    // Nobody else begins without waiting for the answer.
    read_only_outside: [ReadOnlyOutside] on [Postgres],
    nonce: [Nonce] on ALL,
    nonce_alone: [Nonce] on ALL,
    // Each is the other's second line: one of them is enough. PostgreSQL's driver reads what was left over by itself.
    torn: [Torn, Nonce] on XA,
    witness: [Witness] on ALL,
    fence: [Fence] on ALL,
    settled: [Settled] on ALL,
    // The others let any session finish a branch, and a reset leaves it alone.
    same_connection: [SameConnection] on [MariaDb],
    // MySQL does not lie.
    proof: [Proof] on [MariaDb],
    // Bug 120125 is MySQL's.
    format_id: [FormatId] on [MySql],
    ownership: [Ownership] on ALL,
    // Both databases of a pair are without it at once.
    lease: [Lease] on XA,
    under_lease: [UnderLease] on XA,
    // Any database of a MySQL or MariaDB server lists and finishes the branches of all.
    lineage: [Lineage] on [Postgres],
    older_copy: [OlderCopy] on ALL,
    older_opening: [OlderCopy] on ALL,
    sessions_end: [SessionsEnd] on ALL,
    note_before_pruning: [NoteBeforePruning] on ALL,
};

impl Case {
    /// With everything on, and where two stand for each other with one of them off; then without.
    fn ways(&self) -> Vec<(Off, bool)> {
        let alone = self.off.chunks(1).filter(|_| self.off.len() > 1).map(|one| (one, true));
        [(&[] as Off, true)].into_iter().chain(alone).chain([(self.off, false)]).collect()
    }
}

/// So many scenarios at once: each is two or three programs that mostly wait.
const AT_ONCE: usize = 4;

each_server! {
    async fn each_safeguard_is_missed(flavor) {
        let tally = Tally::new(torture::WATCHED, torture::names(&[flavor]));
        let cases = CASES.iter().filter(|case| case.on.contains(&flavor));
        let played = cases.flat_map(|case| case.ways().into_iter().map(move |way| (case, way)));
        let played = played.map(|(case, (off, holds))| async move {
            let name = format!("{} without {}", case.name, if off.is_empty() { "nothing".into() } else { names(off) });
            (name, holds, (case.scenario)(flavor, off).await)
        });
        let mut played = stream::iter(played).buffer_unordered(AT_ONCE);
        while let Some((name, holds, result)) = played.next().await {
            match (holds, result) {
                (true, held) => tally.case(name, held),
                (false, Ok(())) => tally.case(name, Err("nobody misses it")),
                (false, Err(violation)) => {
                    println!("{name}: {violation}");
                    tally.cases(1);
                }
            }
        }
        tally.finish();
    }
}

/// What has no scenario here has one among the journal's own tests.
#[test]
fn each_safeguard_has_a_scenario() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let journal = std::fs::read_to_string(root.join("src/journal/tests/watchers.rs")).unwrap();
    for safeguard in Safeguard::ALL {
        let here = CASES.iter().any(|case| case.off.contains(&safeguard));
        let there = journal.contains(&format!("(Safeguard::{safeguard:?}, "));
        assert!(here || there, "{}", safeguard.name());
    }
}
