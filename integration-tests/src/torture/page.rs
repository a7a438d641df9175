//! The table of `docs/torture.md`: read from the page, renewed with the figures of a run, written back. What was not run
//! this time stays with its date, so that a part can be run alone.

use super::{KINDS, directory};
use std::fs;
use std::path::{Path, PathBuf};

const BEGIN: &str = "<!-- written by scripts/torture: change nothing by hand -->\n";
const END: &str = "<!-- end -->\n";
const HEAD: &str = "| fault | servers | cases | violations | tried |\n|---|---|---:|---:|---|\n";

/// One line of the table. Ordered as the table is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// The kind of fault.
    pub kind: String,
    /// The servers, with their versions.
    pub servers: String,
    /// How many cases were tried.
    pub cases: u64,
    /// What they violated.
    pub violations: u64,
    /// How many of the cases there are, and when.
    pub tried: String,
}

impl Row {
    fn from_figures(text: &str, date: &str) -> Option<Self> {
        let figures: serde_json::Value = serde_json::from_str(text).ok()?;
        let tried = if figures["full"].as_bool()? { "all" } else { "a sample" };
        Some(Self {
            kind: figures["kind"].as_str()?.to_owned(),
            servers: figures["servers"].as_str()?.to_owned(),
            cases: figures["cases"].as_u64()?,
            violations: figures["violations"].as_array()?.len().try_into().ok()?,
            tried: format!("{tried}, {date}"),
        })
    }

    fn from_line(line: &str) -> Option<Self> {
        let cells: Vec<&str> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
        let [kind, servers, cases, violations, tried] = cells.as_slice() else { return None };
        let text = |cell: &str| cell.to_owned();
        let (cases, violations) = (cases.parse().ok()?, violations.parse().ok()?);
        Some(Self { kind: text(kind), servers: text(servers), cases, violations, tried: text(tried) })
    }

    fn line(&self) -> String {
        let Self { kind, servers, cases, violations, tried } = self;
        format!("| {kind} | {servers} | {cases} | {violations} | {tried} |\n")
    }

    /// What it replaces: the same fault on the same servers, whatever their last patch.
    fn place(&self) -> (&str, String) {
        let series = |word: &str| match word.rsplit_once('.') {
            Some((series, patch)) if patch.parse::<u32>().is_ok() => series.to_owned(),
            _ => word.to_owned(),
        };
        (&self.kind, self.servers.split(' ').map(series).collect::<Vec<_>>().join(" "))
    }
}

/// The rows of a page, if its table is as [`renewed`] writes it.
pub fn rows(page: &str) -> Option<Vec<Row>> {
    let table = page.split_once(BEGIN)?.1.split_once(END)?.0;
    let rows: Vec<Row> = table.strip_prefix(HEAD)?.lines().map(Row::from_line).collect::<Option<_>>()?;
    (written(rows.clone()) == table).then_some(rows)
}

fn written(mut rows: Vec<Row>) -> String {
    rows.sort();
    HEAD.chars().chain(rows.iter().map(Row::line).collect::<String>().chars()).collect()
}

/// The page with new rows in place of those that they replace, and without faults that nobody counts any more.
///
/// # Panics
/// When the page has no table.
pub fn renewed(page: &str, new: Vec<Row>) -> String {
    let mut kept = rows(page).expect("the page has a table that was written here");
    kept.retain(|old| new.iter().all(|row| row.place() != old.place()));
    kept.extend(new);
    kept.retain(|row| KINDS.contains(&row.kind.as_str()));
    let (before, rest) = page.split_once(BEGIN).expect("it was found above");
    let (_, after) = rest.split_once(END).expect("it was found above");
    format!("{before}{BEGIN}{}{END}{after}", written(kept))
}

/// The figures that tallies have left.
///
/// # Panics
/// When they cannot be read.
pub fn figures(date: &str) -> Vec<Row> {
    let files = fs::read_dir(directory()).map(|files| files.map(|file| file.expect("a file").path()).collect());
    let files: Vec<PathBuf> = files.unwrap_or_default();
    let read = |file: &PathBuf| {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        Row::from_figures(&text, date).unwrap_or_else(|| panic!("{}: no figures", file.display()))
    };
    files.iter().map(read).collect()
}

/// Where the page is.
pub fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/torture.md")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kind: &str, servers: &str, tried: &str) -> Row {
        Row { kind: kind.into(), servers: servers.into(), cases: 7, violations: 0, tried: tried.into() }
    }

    fn page(rows: &[Row]) -> String {
        format!("before\n{BEGIN}{}{END}after\n", written(rows.to_vec()))
    }

    #[test]
    fn a_run_replaces_its_own_rows_and_keeps_the_others() {
        let old = [
            row(KINDS[0], "A 15.18 + B 10.11.19", "all, then"),
            row(KINDS[0], "A 18.1 + B 11.8.9", "all, then"),
            row("a ghost", "A 15.18 + B 10.11.19", "all, then"),
        ];
        let new = row(KINDS[0], "A 15.19 + B 10.11.19", "a sample, now");
        let page = renewed(&page(&old), vec![new.clone()]);
        assert_eq!(rows(&page), Some(vec![new, old[1].clone()]));
        assert!(page.starts_with("before\n") && page.ends_with("after\n"));
    }

    #[test]
    fn a_table_of_another_form_is_none() {
        let good = page(&[row("a", "x", "all, then"), row("b", "x", "all, then")]);
        assert_eq!(rows(&good).map(|rows| rows.len()), Some(2));
        for (from, to) in
            [("| 7 |", "| seven |"), ("| a |", "| c |"), ("| 7 |", "| 07 |"), (END, ""), ("fault", "kind")]
        {
            assert_eq!(rows(&good.replacen(from, to, 1)), None, "{from} as {to}");
        }
    }

    #[test]
    fn figures_are_read() {
        let text = r#"{"kind":"a kill","servers":"A","cases":7,"violations":[],"full":false}"#;
        assert_eq!(Row::from_figures(text, "now"), Some(row("a kill", "A", "a sample, now")));
        assert_eq!(Row::from_figures("{}", "now"), None);
    }
}
