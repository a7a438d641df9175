//! The recovery tool.

pub mod servers;
