//! One transaction out of work on several databases: PostgreSQL and MySQL/MariaDB commit together, or not at all.
//!
//! ```no_run
//! use handfast::mysql_async::prelude::Queryable;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let bridge = handfast::Bridge::open(handfast::Config::load("config/handfast.toml")?).await?;
//!
//! let tx = bridge.begin().await?;
//! tx.postgres("ledger").await?.execute("UPDATE account SET cents = cents - $1 WHERE id = $2", &[&700i64, &1i32]).await?;
//! tx.mysql("orders").await?.exec_drop("INSERT INTO payment (account, cents) VALUES (?, ?)", (1, 700)).await?;
//! let committed = tx.commit().await?; // Committed { id, pending: [] }
//!
//! // the same with retries of serialization failures and deadlocks, rollback on Err
//! bridge.transaction(async |tx| {
//!     tx.postgres("ledger").await?.execute("UPDATE account SET cents = cents - 300 WHERE id = 1", &[]).await?;
//!     tx.mysql("orders").await?.query_drop("INSERT INTO payment (account, cents) VALUES (1, 300)").await?;
//!     Ok::<_, handfast::Error>(())
//! }).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What is promised
//!
//! 1. **Atomicity.** All branches commit or all roll back, under any sequence of crashes of application and servers.
//! 2. **No answer lies.** `Ok` from [`Transaction::commit`] means that the commit is durable. An error says
//!    [`Outcome::RolledBack`] only when that is certain, else [`Outcome::InDoubt`].
//! 3. **Every outcome can be asked for by id**, after any crash, without an age limit: [`Bridge::outcome`].
//! 4. **Nothing is left behind.** Every branch of ours is settled without a person, unless the facts contradict each
//!    other; then nothing is touched and the contradiction is reported.
//! 5. **Nothing foreign is touched.**
//!
//! Isolation is each database's own: a reader can see one database's commit before the other's. What the promises rest
//! on, and where they end, is in `docs/guarantees.md`.
//!
//! # Where to begin
//!
//! [`Config`] says which databases, [`Bridge`] opens them and settles what a crash left, [`Transaction`] is what an
//! application holds. [`participant`] lets others add databases. Inside, [`protocol`] decides and touches nothing,
//! [`journal`] remembers, and the [`resolver`] settles what coordinators left.
//!
//! # Features
//!
//! | feature | default | brings |
//! |---|---|---|
//! | `rustls` | yes | encrypted connections by [rustls](https://docs.rs/rustls), with *ring*: it needs a C compiler to build, no OpenSSL and no cmake |
//! | `native-tls` | no | the same by what the system has (OpenSSL, SChannel, Secure Transport). In place of `rustls`, with which the MySQL driver cannot be built together: `docs/guide/production.md` has what to write in `Cargo.toml` |
//! | `metrics` | no | figures for Prometheus and the like, through the facade [metrics](https://docs.rs/metrics): `docs/metrics.md` has their names |
//! | `cli` | no | the recovery tool, the program `handfast`, and what it alone needs. It adds nothing to the library's interface |
//! | `torture` | no | for Handfast's own tests: points at which the process is stopped, switches for what keeps the promises. Never for production |
//!
//! Without the first two, connections are not encrypted. Features only add: whatever is switched on elsewhere, what an application uses stays.
//!
//! # Versions
//!
//! Versions follow [Semantic Versioning](https://semver.org/); which parts that covers, and which compiler is enough, is
//! in `docs/versions.md`. The drivers [`tokio_postgres`] and [`mysql_async`] are part of the interface: their types are
//! lent, so use them through these re-exports.

mod bridge;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
mod clock;
pub mod config;
mod engine;
pub mod error;
pub mod id;
pub mod journal;
pub mod participant;
pub mod protocol;
pub mod resolver;
#[cfg(any(feature = "metrics", feature = "cli"))]
pub mod telemetry;
#[cfg(not(any(feature = "metrics", feature = "cli")))]
mod telemetry;
#[cfg(feature = "torture")]
#[doc(hidden)]
pub mod torture;
#[cfg(not(feature = "torture"))]
mod torture;
pub mod transaction;

pub use bridge::Bridge;
pub use config::Config;
pub use error::{Error, ErrorKind, Result};
pub use id::TransactionId;
pub use protocol::Outcome;
pub use resolver::{ParticipantStatus, Status};
pub use transaction::{CommitError, Committed, Options, Transaction};
// The drivers, in the versions whose types are lent.
pub use mysql_async;
pub use tokio_postgres;

/// The guide's examples are compiled with the documentation's.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../docs/guide/start.md")]
    mod start {}
    #[doc = include_str!("../docs/guide/isolation.md")]
    mod isolation {}
    #[doc = include_str!("../docs/guide/choosing.md")]
    mod choosing {}
    #[doc = include_str!("../docs/guide/production.md")]
    mod production {}
    #[doc = include_str!("../docs/guide/when-not.md")]
    mod when_not {}
}
