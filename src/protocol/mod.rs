//! Two-phase commit as values.

pub mod coordinator;
pub mod message;
pub mod recovery;

pub use coordinator::Coordinator;
pub use message::*;

#[cfg(test)]
mod transcripts;

#[cfg(test)]
mod explorer;
