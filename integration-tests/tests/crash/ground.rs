//! Two servers, and what all cases on them share.

use crate::script::Script;
use crate::trial::{Seen, Trial};
use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt};
use integration_tests::application::Application;
use integration_tests::servers::{self, ConfigBuilder, Flavor};
use integration_tests::torture::{Tally, pair};
use integration_tests::world::{Home, LEDGER, ORDERS, Side, deciding};
use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};
use tempfile::TempDir;
use tokio::sync::{Semaphore, SemaphorePermit};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_test-application");

/// How many cases run at once, in all tests of this program: some of them wait, and most of them work.
const AT_ONCE: usize = 8;
static ROOM: Semaphore = Semaphore::const_new(AT_ONCE);

/// A place among those that run at once.
pub struct Room(#[allow(dead_code)] SemaphorePermit<'static>);

impl Room {
    /// Waits for one.
    pub async fn take() -> Self {
        Self(ROOM.acquire().await.expect("it is never closed"))
    }
}

/// What has nothing to do with the case gets as long as a machine under load may take. Small segments, so that they
/// are changed often.
const SECTIONS: &str = "segment_bytes = 65536\n\
     [transaction]\ntimeout = \"300s\"\nlock_timeout = \"20s\"\napply_wait = \"10s\"\n\
     [recovery]\nbackoff_min = \"5ms\"\nbackoff_max = \"100ms\"\nstatement_timeout = \"10s\"\nopen_wait = \"60s\"\n\
     lease_interval = \"500ms\"\n[pool]\nsize = 8\n";

/// Two databases.
pub struct Ground {
    pub ledger: Side,
    pub orders: Side,
    next: AtomicI32,
    /// What decides, where it is not the journal.
    pub anchor: Option<&'static str>,
}

/// What is one application's own, through all its processes.
pub struct Life {
    pub node: String,
    _journal: TempDir,
    pub config: ConfigBuilder,
    pub first_key: i32,
}

impl Ground {
    /// On the servers that all tests share: for those that kill none.
    pub async fn shared(other: Flavor) -> Self {
        Self::on(Home::shared(Flavor::Postgres).await, Home::shared(other).await).await
    }

    /// On servers of its own.
    pub async fn own(other: Flavor) -> Self {
        let (ledger, orders) = tokio::join!(Home::own(Flavor::Postgres), Home::own(other));
        Self::on(ledger, orders).await
    }

    /// The same, with a participant that decides.
    pub fn anchored(self, anchor: &'static str) -> Self {
        Self { anchor: Some(anchor), ..self }
    }

    async fn on(ledger: Home, orders: Home) -> Self {
        let (ledger, orders) = tokio::join!(Side::new(LEDGER, ledger, "all"), Side::new(ORDERS, orders, "all"));
        ledger.query("CREATE TABLE looked_at_late (k INT UNIQUE DEFERRABLE INITIALLY DEFERRED)").await;
        Self { ledger, orders, next: AtomicI32::new(1), anchor: None }
    }

    pub fn sides(&self) -> [&Side; 2] {
        [&self.ledger, &self.orders]
    }

    pub fn tally(&self, kind: &'static str) -> Tally {
        let decides = self.anchor.map(|anchor| format!(", {anchor} decides")).unwrap_or_default();
        Tally::new(kind, pair(self.orders.flavor()) + &decides)
    }

    /// A new application's.
    pub fn life(&self, keys: i32) -> Life {
        let node = servers::unique("c").replace('_', "-");
        let journal = TempDir::new().expect("a directory");
        let config = self.config(&node, journal.path());
        Life { node, _journal: journal, config, first_key: self.next.fetch_add(keys, Ordering::Relaxed) }
    }

    fn config(&self, node: &str, journal: &Path) -> ConfigBuilder {
        let with = |builder: ConfigBuilder, side: &Side| builder.participant(side.name, &side.server, &side.database);
        let builder = ConfigBuilder::new(journal).node(node).section(&deciding(SECTIONS, self.anchor));
        with(with(builder, &self.ledger), &self.orders)
    }

    /// A new trial of a script.
    pub fn trial(&self, name: String, script: &'static Script) -> Trial {
        Trial::new(name, script, self.life(script.keys))
    }

    /// Runs something for each case, a few at once. What panics there is a violation, too.
    pub async fn all<C, F: Future<Output = Trial>>(
        &self,
        cases: Vec<C>,
        name: impl Fn(&C) -> String,
        run: impl Fn(C) -> F,
    ) -> (Vec<Trial>, Vec<(String, String)>) {
        let (name, run) = (&name, &run);
        let each = cases.into_iter().map(|case| async move {
            let _place = Room::take().await;
            let name = name(&case);
            AssertUnwindSafe(run(case)).catch_unwind().await.map_err(|cause| (name, text(&*cause)))
        });
        let (mut trials, mut broken) = (Vec::new(), Vec::new());
        for result in stream::iter(each).buffer_unordered(AT_ONCE).collect::<Vec<_>>().await {
            match result {
                Ok(trial) => trials.push(trial),
                Err(cause) => broken.push(cause),
            }
        }
        (trials, broken)
    }

    /// Looks at both databases, and judges.
    pub async fn judge(&self, tally: &Tally, (trials, broken): (Vec<Trial>, Vec<(String, String)>)) {
        let seen = Seen {
            keys: [self.ledger.keys().await, self.orders.keys().await].map(BTreeSet::from_iter),
            prepared: [self.ledger.prepared_of_all().await, self.orders.prepared_of_all().await],
            locked: [self.locked(&self.ledger, &trials).await, self.locked(&self.orders, &trials).await],
        };
        for trial in trials {
            tally.case(trial.name.clone(), trial.judge(&seen));
        }
        for (name, cause) in broken {
            tally.case(name, Err(cause));
        }
    }

    /// The keys that somebody still holds, of those that are not there. Most often there is none, and one statement says
    /// so.
    async fn locked(&self, side: &Side, trials: &[Trial]) -> BTreeSet<i32> {
        let there: BTreeSet<i32> = BTreeSet::from_iter(side.keys().await);
        let absent: Vec<i32> = trials.iter().flat_map(Trial::keys).filter(|key| !there.contains(key)).collect();
        let mut locked = BTreeSet::new();
        if !absent.is_empty() && side.is_any_locked(&absent).await {
            for key in absent {
                if side.is_locked(key).await {
                    locked.insert(key);
                }
            }
        }
        locked
    }

    /// Starts an application.
    pub fn start(&self, life: &Life) -> Application {
        Application::start(PROGRAM, &life.config)
    }
}

fn text(cause: &(dyn std::any::Any + Send)) -> String {
    let text = cause.downcast_ref::<String>().cloned();
    text.or_else(|| cause.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_else(|| "a panic".into())
}
