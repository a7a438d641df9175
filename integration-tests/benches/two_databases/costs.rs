//! What is not one transaction after the other: begins, memory, many participants, recovery.

pub mod begin;
pub mod memory;
pub mod participants;
pub mod recovery;
