//! One atomic transaction over PostgreSQL and MySQL/MariaDB, with a durable journal and automatic recovery.

mod bridge;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
pub mod config;
pub mod error;
pub mod id;
pub mod journal;
pub mod participant;
pub mod protocol;
pub mod resolver;
pub mod transaction;

pub use bridge::Bridge;
pub use config::Config;
pub use error::{Error, ErrorKind, Result};
pub use id::TransactionId;
pub use mysql_async;
pub use protocol::Outcome;
pub use resolver::{ParticipantStatus, Status};
pub use tokio_postgres;
pub use transaction::{CommitError, Committed, Options, Transaction};
