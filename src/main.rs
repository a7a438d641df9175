//! The recovery tool `handfast`: arguments in, exit code out.

use std::process::ExitCode;

fn main() -> ExitCode {
    handfast::cli::main()
}
