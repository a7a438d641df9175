//! The findings for people, 80 columns: the worst first, and the good ones in one line.

use super::Patient;
use crate::participant::{Finding, Severity};

/// The columns of a page.
const WIDTH: usize = 80;

/// How far what belongs to a finding stands in.
const INDENT: usize = 10;

/// The whole report; with `all`, what is good is shown one by one.
pub fn report(machine: &[Finding], patients: &[Patient], all: bool) -> String {
    let mut text = String::new();
    let mut counts = [0_usize; 4];
    let groups = std::iter::once((String::from("this machine"), machine));
    let groups = groups.chain(patients.iter().map(|one| (title(one), one.findings.as_slice())));
    for (title, findings) in groups {
        text += &wrapped(&title, 0);
        group(findings, all, &mut text);
        text.push('\n');
        for one in findings {
            counts[place(one.severity)] += 1;
        }
    }
    let [good, notes, warnings, failures] = counts;
    text + &format!("{failures} failed, {warnings} warnings, {notes} notes, {good} good\n")
}

fn place(severity: Severity) -> usize {
    match severity {
        Severity::Good => 0,
        Severity::Note => 1,
        Severity::Warning => 2,
        Severity::Failure => 3,
    }
}

fn title(patient: &Patient) -> String {
    let server = patient.server.as_deref().unwrap_or("not reached");
    format!("{} ({}): {server}", patient.name, patient.kind)
}

fn group(findings: &[Finding], all: bool, text: &mut String) {
    let mut sorted: Vec<_> = findings.iter().collect();
    // Stable: within one severity as they were checked.
    sorted.sort_by_key(|one| std::cmp::Reverse(one.severity));
    let mut good = 0;
    for one in sorted {
        if one.severity == Severity::Good && !all {
            good += 1;
            continue;
        }
        let word = one.severity.as_str();
        let word = if one.severity == Severity::Failure { word.to_uppercase() } else { word.to_owned() };
        let first = wrapped(&format!("{}: {}", one.check, one.found), INDENT);
        *text += &format!("  {word:<width$}{}", first.trim_start(), width = INDENT - 2);
        if !one.why.is_empty() {
            *text += &wrapped(&one.why, INDENT);
        }
        for (number, line) in one.cure.iter().flat_map(|cure| cure.lines()).enumerate() {
            let label = if number == 0 { "-> " } else { "   " };
            let lines = wrapped(line, INDENT + label.len());
            *text += &format!("{:INDENT$}{label}{}", "", lines.trim_start());
        }
    }
    if good > 0 {
        *text += &format!("  {good} checks good\n");
    }
}

/// Lines of words, each standing in. What a server says may not steer a terminal.
fn wrapped(text: &str, indent: usize) -> String {
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let (mut lines, mut line) = (String::new(), String::new());
    for word in clean.split_whitespace() {
        if !line.is_empty() && indent + line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines += &format!("{:indent$}{line}\n", "");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines + &format!("{:indent$}{line}\n", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_comes_first_and_the_good_are_counted() {
        let findings = [
            Finding::good("version", "PostgreSQL 15"),
            Finding::of(Severity::Note, "clock", "7 s \x1b[31mahead", "logs"),
            Finding::of(Severity::Failure, "fsync", "fsync is off", "lost ".repeat(30)).cure("line 1\nline 2"),
        ];
        let text = report(&findings, &[], false);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH && !line.contains('\x1b')), "{text}");
        let order = ["FAILURE fsync", "-> line 1\n             line 2\n", "note    clock", "1 checks good"];
        let places: Vec<_> =
            order.iter().map(|part| text.find(part).unwrap_or_else(|| panic!("{part:?} in {text}"))).collect();
        assert!(places.is_sorted(), "{text}");
        assert!(text.ends_with("1 failed, 0 warnings, 1 notes, 1 good\n"), "{text}");
        assert!(report(&findings, &[], true).contains("good    version: PostgreSQL 15\n"));
    }
}
