//! Throwaway database servers, from what is installed on this machine: for `handfast demo` and for the tests.
//!
//! [`Installation::find`] looks for the programs, [`Server::start`] runs one server in a temporary directory of its
//! own, on a free port of the loopback interface. The servers are small but as durable as real ones, since the point
//! of them is to be killed: [`Server::kill`] is a crash, [`Server::restart`] brings the server back on the same port
//! with the same data.
//!
//! Nothing outlives the program that started it. Each server is the child of a guardian (see `guardian.rs`), which
//! ends it and removes its directory as soon as the program is gone, however it went.
//!
//! Root is refused by PostgreSQL: as root we run it as the user `postgres`, else `nobody`. Everything else runs as we
//! do.

mod data;
mod flavor;
mod guardian;
mod installation;
mod launch;
mod mysql;
mod postgres;
mod process;
mod server;
mod state;

pub use flavor::{Flavor, Options};
pub use installation::Installation;
pub use process::is_running;
pub use server::Server;

use std::time::Duration;

/// How long a server may take to start, to stop, or to recover from a crash.
const PATIENCE: Duration = Duration::from_secs(90);

/// How often a condition is looked at while we wait for it.
const GLANCE: Duration = Duration::from_millis(25);
