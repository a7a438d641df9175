//! The journal against disks that lose, tear, lie, fill up and fail.

mod files;
mod samples;
