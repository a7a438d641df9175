//! The application misbehaves: it drops futures wherever it likes, ends transactions by itself, panics, sleeps, leaves
//! settings behind. Whatever it does, every answer is true, both databases agree with it, and nothing is left: nothing
//! prepared, no lock, no session short in the pool.

mod contention;
mod dropped;
mod dropped_in_memory;
mod idle;
mod leftovers;
mod on_mysql;
mod on_postgres;
mod promises;
mod tasks;
mod whole;
