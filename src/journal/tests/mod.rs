//! The journal against disks that lose, tear, lie, fill up and fail.

mod disk;
mod files;
mod samples;
mod torture;
