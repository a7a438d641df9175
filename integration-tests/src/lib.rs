//! Handfast against real servers.
