//! The recovery tool `handfast`: arguments in, exit code out.

fn main() {}
