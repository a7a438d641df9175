//! Servers for tests, and configurations that name them.

pub use handfast::cli::servers::{Flavor, Installation, Options, Server, is_running};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

/// A runtime for one test: two threads, as many as the smallest machine that runs these has.
///
/// # Panics
/// When there are no threads to be had.
pub fn runtime() -> Runtime {
    crate::torture::switch_off_as_told();
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// Whether tests can run on this product.
///
/// # Panics
/// When a required one is missing: PostgreSQL and MariaDB always, MySQL under `CI=true`.
pub fn is_available(flavor: Flavor) -> bool {
    static BANNER: Once = Once::new();
    let why = match Installation::find(flavor, None) {
        Ok(_) => return true,
        Err(why) => why,
    };
    let in_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(flavor == Flavor::MySql && !in_ci, "required for the tests: {why}");
    BANNER.call_once(|| {
        let line = "=".repeat(78);
        // Past the test harness, which hides what a passing test prints.
        let _ = writeln!(std::io::stderr(), "\n{line}\nSKIPPED: every test on MySQL\n{why}\n{line}");
    });
    false
}

/// The products that tests can run on, PostgreSQL first.
pub fn available_flavors() -> Vec<Flavor> {
    Flavor::ALL.into_iter().filter(|flavor| is_available(*flavor)).collect()
}

/// The installation of a product that [`is_available`].
///
/// # Panics
/// When it is missing.
pub fn installation(flavor: Flavor) -> Installation {
    Installation::find(flavor, None).unwrap_or_else(|error| panic!("{error}"))
}

/// The target directory: where what tests keep belongs.
///
/// # Panics
/// When this package is not below the workspace's root.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a member of the workspace").join("target"),
        PathBuf::from,
    )
}

/// The options of servers for tests: initialised data directories are kept in the target directory.
pub fn options() -> Options {
    Options::default().with_cache(target().join("servers/templates"))
}

/// A server of a test's own, which the test may kill.
///
/// # Panics
/// When it does not start.
pub async fn start(flavor: Flavor) -> Server {
    start_with(flavor, options()).await
}

/// A server of a test's own with options of its own, to be derived from [`options`].
///
/// # Panics
/// When it does not start.
pub async fn start_with(flavor: Flavor, options: Options) -> Server {
    Server::start(&installation(flavor), options).await.unwrap_or_else(|error| panic!("{}", error.chain()))
}

/// The one server of a product that the tests of this program share. It must not be killed, stopped or suspended.
///
/// # Panics
/// When it does not start.
pub async fn shared(flavor: Flavor) -> &'static Server {
    static SERVERS: [OnceCell<Server>; 3] = [const { OnceCell::const_new() }; 3];
    let place = Flavor::ALL.iter().position(|each| *each == flavor).expect("ALL holds every flavor");
    SERVERS[place].get_or_init(|| start(flavor)).await
}

/// A new, empty database on a server; no other test uses its name.
///
/// # Panics
/// When the server refuses.
pub async fn fresh_database(server: &Server) -> String {
    let name = unique("t");
    server.create_database(&name).await.unwrap_or_else(|error| panic!("{}", error.chain()));
    name
}

/// A name that this program has not used before, and another program cannot have on a shared server.
pub fn unique(prefix: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!("{prefix}{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A configuration being put together: `config.toml` and the journal directory below one temporary directory.
#[derive(Debug)]
pub struct ConfigBuilder {
    node: String,
    journal: PathBuf,
    sections: String,
    participants: String,
}

impl ConfigBuilder {
    /// Begins a configuration whose journal is in `journal`, a directory that exists.
    pub fn new(journal: impl Into<PathBuf>) -> Self {
        Self {
            node: String::from("test"),
            journal: journal.into(),
            sections: String::new(),
            participants: String::new(),
        }
    }

    /// Another node name than `test`.
    #[must_use]
    pub fn node(mut self, node: &str) -> Self {
        self.node = node.to_owned();
        self
    }

    /// Adds a participant: a database of a server, as its superuser.
    #[must_use]
    pub fn participant(self, name: &str, server: &Server, database: &str) -> Self {
        self.participant_at(name, server.flavor(), &server.url(database))
    }

    /// Adds a participant by URL: of another user, or through a proxy.
    #[must_use]
    pub fn participant_at(mut self, name: &str, flavor: Flavor, url: &str) -> Self {
        self.participants.push_str(&format!("[participants.{name}]\nkind = \"{}\"\nurl = {url:?}\n", flavor.kind()));
        self
    }

    /// Adds lines to the participant that was added last.
    #[must_use]
    pub fn with(mut self, lines: &str) -> Self {
        self.participants.push_str(lines);
        self.participants.push('\n');
        self
    }

    /// Adds whole sections, like `[transaction]`.
    #[must_use]
    pub fn section(mut self, lines: &str) -> Self {
        self.sections.push_str(lines);
        self.sections.push('\n');
        self
    }

    /// The configuration as TOML.
    pub fn toml(&self) -> String {
        let Self { node, journal, sections, participants } = self;
        format!("node = \"{node}\"\n[journal]\ndirectory = {journal:?}\n{sections}{participants}")
    }

    /// The configuration, parsed.
    ///
    /// # Panics
    /// When it is not a valid one.
    pub fn build(&self) -> handfast::Config {
        handfast::Config::from_toml(&self.toml()).unwrap_or_else(|error| panic!("{}\n{}", error.chain(), self.toml()))
    }

    /// Writes the configuration to a file, for the tool.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn write(&self, path: &Path) {
        std::fs::write(path, self.toml()).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}
