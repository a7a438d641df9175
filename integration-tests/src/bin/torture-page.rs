//! Writes the figures of the latest run into `docs/torture.md`: `torture-page DATE`. `scripts/torture` runs it.

use integration_tests::torture::page;

fn main() {
    let date = std::env::args().nth(1).expect("the argument is the date of the run");
    let figures = page::figures(&date);
    assert!(!figures.is_empty(), "nothing was run");
    let old = std::fs::read_to_string(page::path()).expect("the page");
    let new = page::renewed(&old, figures);
    std::fs::write(page::path(), new).expect("the page can be written");
}
