//! One atomic transaction over PostgreSQL and MySQL/MariaDB, with a durable journal and automatic recovery.

#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
pub mod config;
pub mod error;
pub mod id;
pub mod journal;
pub mod participant;
pub mod protocol;

pub use config::Config;
pub use error::{Error, ErrorKind, Result};
pub use mysql_async;
pub use tokio_postgres;
