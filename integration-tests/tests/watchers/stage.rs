//! What a scenario is played on, and when it has been violated.

use crate::child::{Off, Role, Watched};
use handfast::Outcome;
use integration_tests::servers::Flavor;
use integration_tests::world::{Side, World, eventually};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// What was promised and is not so.
pub type Violation = String;

/// Two databases, of which one is attacked.
pub struct Stage {
    pub world: World,
    /// Whose safeguard it is.
    pub flavor: Flavor,
}

impl Stage {
    pub async fn new(flavor: Flavor) -> Self {
        let other = if flavor == Flavor::Postgres { Flavor::MariaDb } else { flavor };
        Self { world: World::new(other).await, flavor }
    }

    /// The side that is attacked.
    pub fn side(&self) -> &Side {
        if self.flavor == Flavor::Postgres { &self.world.ledger } else { &self.world.orders }
    }

    pub fn other(&self) -> &Side {
        self.world.other(self.side())
    }

    pub async fn bridge(&self, off: Off) -> Watched {
        self.bridge_with("", off).await
    }

    /// A bridge with sections added to its configuration.
    pub async fn bridge_with(&self, sections: &str, off: Off) -> Watched {
        Watched::start(Role::Bridge, &self.world.builder(sections).toml(), off).await
    }

    /// A bridge with another journal, which may be refused.
    pub async fn bridge_at(&self, journal: &Path, off: Off) -> Result<Watched, String> {
        Watched::try_start(Role::Bridge, &self.world.builder_at(journal, "").toml(), off).await
    }

    pub async fn resolver(&self, off: Off) -> Watched {
        Watched::start(Role::Resolver, &self.world.builder("").toml(), off).await
    }

    /// A resolver with another journal, which may be refused.
    pub async fn resolver_at(&self, journal: &Path, off: Off) -> Result<Watched, String> {
        Watched::try_start(Role::Resolver, &self.world.builder_at(journal, "").toml(), off).await
    }

    /// A resolver of another configuration.
    pub async fn resolver_with(&self, toml: &str, off: Off) -> Watched {
        Watched::start(Role::Resolver, toml, off).await
    }

    /// Whether what was told of a key that was inserted on both sides is so. What is certain does not change, so there is
    /// nothing to be waited for but branches.
    pub async fn agrees(&self, key: i32, told: Outcome) -> Result<(), Violation> {
        let is_there = [self.world.ledger.has(key).await, self.world.orders.has(key).await];
        let so = match told {
            Outcome::Committed => is_there == [true, true],
            Outcome::RolledBack => is_there == [false, false],
            Outcome::InDoubt | Outcome::Damaged => false,
        };
        if so { Ok(()) } else { Err(format!("told {told:?}, and [ledger, orders] have it: {is_there:?}")) }
    }

    /// The same of a key that was inserted on the attacked side alone.
    pub async fn agrees_alone(&self, key: i32, told: Outcome) -> Result<(), Violation> {
        match (self.side().has(key).await, told) {
            (true, Outcome::Committed) | (false, Outcome::RolledBack) => Ok(()),
            (is_there, told) => Err(format!("told {told:?}, and {} has it: {is_there}", self.side().name)),
        }
    }

    /// Waits until nothing is prepared any more, but no longer than recovery may take.
    pub async fn rests(&self) {
        let looking = self.world.nothing_is_prepared();
        let _ = tokio::time::timeout(Duration::from_secs(5), looking).await;
    }

    /// Takes a program's lease from it on every side, and all that works under it, and lets it take none any more. What its
    /// branches have is left to it.
    pub async fn take_the_lease_away(&self) {
        for side in self.world.sides() {
            let (lock, name) = match side.flavor() {
                Flavor::Postgres => ("advisory", ""),
                Flavor::MariaDb | Flavor::MySql => ("handfast.lease", "GET_LOCK('handfast."),
            };
            side.proxy.on(lock).every().cut();
            let names = side.proxy.messages().into_iter().filter(|message| message.text.contains(name));
            let names: BTreeSet<_> =
                names.filter_map(|message| Some(message.text.split('\'').nth(1)?.to_owned())).collect();
            let names =
                names.iter().filter(|name| ["lease", "work"].contains(&name.split('.').nth(1).unwrap_or_default()));
            let holders: Vec<_> = names.map(|name| format!("SELECT IS_USED_LOCK('{name}')")).collect();
            let ended = async || match side.flavor() {
                Flavor::Postgres => side.query(END_RESOLVERS).await.is_empty(),
                Flavor::MariaDb | Flavor::MySql => {
                    let mut are_gone = true;
                    for holder in &holders {
                        if let Some(holder) = side.value(holder).await {
                            are_gone = false;
                            // It may be gone by now.
                            let _ = side.server.query(&side.database, &format!("KILL {holder}")).await;
                        }
                    }
                    are_gone
                }
            };
            eventually("its resolver has no connection", ended).await;
        }
    }

    /// Waits until a key can be read on a side.
    pub async fn can_be_read(&self, side: &Side, key: i32) {
        eventually(&format!("{key} is at {}", side.name), async || side.has(key).await).await;
    }
}

/// Ends the sessions of ours that are no branches'.
const END_RESOLVERS: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() \
     AND application_name LIKE 'handfast.%' AND application_name !~ '^handfast\\.[0-9a-f]{16}\\.'";

/// A copy of a journal's directory, as somebody makes it who restores a backup.
pub fn copy_of(journal: &Path) -> tempfile::TempDir {
    let copy = tempfile::TempDir::new().unwrap();
    for entry in std::fs::read_dir(journal).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}
