//! The table of `docs/torture.md` is what the tests found, whole and without a violation.

use integration_tests::torture::{KINDS, page};
use std::collections::BTreeSet;

#[test]
fn the_page_has_every_kind_of_fault_and_no_violation() {
    let text = std::fs::read_to_string(page::path()).unwrap();
    let rows = page::rows(&text).expect("docs/torture.md has a table as scripts/torture writes it");
    let shown: BTreeSet<&str> = rows.iter().map(|row| row.kind.as_str()).collect();
    let known: BTreeSet<&str> = KINDS.iter().copied().collect();
    assert_eq!(shown, known, "on the page, and in the tests: scripts/torture brings them together");
    for row in &rows {
        assert!(row.violations == 0 && row.cases > 0, "{row:?}");
    }
}
