//! Two-phase commit as values.
pub mod message;
pub use message::*;
