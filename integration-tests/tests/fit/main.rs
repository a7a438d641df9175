//! What people who bring their own databases, options and habits expect, on real servers.

mod kinds;
mod options;
mod own;
mod restarts;
mod statements;
