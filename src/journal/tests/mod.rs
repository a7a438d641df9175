//! The journal against disks that lose, tear, lie, fill up and fail.

mod audit;
mod disk;
mod document;
mod files;
mod interleavings;
mod reading;
mod repair;
mod samples;
mod schedules;
mod table;
mod torture;
#[cfg(feature = "torture")]
mod watchers;
