//! Arbitrary bytes and texts for what Handfast reads: journals, identifiers, configurations.
//!
//! The targets are the tests of this package: each runs the checked-in corpus, then a bounded number of random inputs.
//! `cargo bolero test` drives the same tests with coverage guidance for as long as one likes; CONTRIBUTING.md says how.

pub mod directory;
pub mod edits;
pub mod journals;
pub mod seal;
