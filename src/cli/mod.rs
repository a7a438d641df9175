//! The recovery tool.
