//! A page as steps: what it says to type, to write into a file, or to run in a database, in its order.

/// One thing that a reader does.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// Commands in a terminal, each with what it prints.
    Terminal(Vec<Command>),
    /// Text for a file, whose name stands before it.
    File { name: String, text: String },
    /// Statements for a participant, whose name stands before them.
    Sql { participant: String, statements: String },
}

#[derive(Debug, PartialEq)]
pub struct Command {
    pub line: String,
    /// What it prints, where `...` stands for any lines.
    pub prints: Vec<String>,
    pub exit_code: i32,
}

/// The steps of a page in Markdown.
pub fn steps(page: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut before = String::new();
    for (number, part) in page.split("\n```").enumerate() {
        if number % 2 == 0 {
            before.push_str(part);
            continue;
        }
        let (language, text) = part.split_once('\n').expect("a block has a first line");
        let text = format!("{text}\n");
        // Of the sentences since the last block, the word in backticks that says where it belongs.
        let named = |fits: &dyn Fn(&str) -> bool| {
            let words = before.split('`').skip(1).step_by(2).filter(|word| fits(word));
            words.last().unwrap_or_else(|| panic!("where does this belong?\n{text}")).to_owned()
        };
        steps.push(match language {
            "console" => Step::Terminal(commands(&text)),
            "sql" => Step::Sql { participant: named(&|word| ["ledger", "orders"].contains(&word)), statements: text },
            "toml" | "rust,no_run" => Step::File { name: named(&is_a_file), text },
            _ => panic!("what is to be done with {language:?}?"),
        });
        before.clear();
    }
    steps
}

fn is_a_file(word: &str) -> bool {
    word.ends_with(".toml") || word.ends_with(".rs")
}

fn commands(block: &str) -> Vec<Command> {
    let mut commands: Vec<Command> = Vec::new();
    for line in block.lines() {
        if let Some(line) = line.strip_prefix("$ ") {
            commands.push(Command { line: line.to_owned(), prints: Vec::new(), exit_code: 0 });
            continue;
        }
        let command = commands.last_mut().expect("a block begins with a command");
        match line.strip_prefix("(exit code ").and_then(|rest| rest.strip_suffix(')')) {
            Some(code) => command.exit_code = code.parse().expect("a number"),
            None => command.prints.push(line.to_owned()),
        }
    }
    commands
}

/// Whether a program printed what the page shows.
pub fn shows(page: &[String], printed: &str) -> bool {
    let printed: Vec<_> = printed.lines().map(words).collect();
    let page: Vec<_> = page.iter().map(|line| words(line)).collect();
    fits(&page, &printed)
}

fn fits(page: &[Vec<String>], printed: &[Vec<String>]) -> bool {
    match (page, printed) {
        ([], printed) => printed.is_empty(),
        ([any, rest @ ..], _) if any[..] == ["..."] => (0..=printed.len()).any(|skip| fits(rest, &printed[skip..])),
        ([line, page @ ..], [other, printed @ ..]) => {
            let is_same = match line.split_last() {
                Some((last, start)) if last == "..." => {
                    other.get(..start.len()).is_some_and(|other| same(start, other))
                }
                _ => same(line, other),
            };
            is_same && fits(page, printed)
        }
        _ => false,
    }
}

/// Word by word, where N is any number.
fn same(page: &[String], printed: &[String]) -> bool {
    let is = |(page, printed): (&String, &String)| page == printed || page == "N" && is_number(printed);
    page.len() == printed.len() && page.iter().zip(printed).all(is)
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// The words of a line, without what differs from run to run.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut after_product) = (Vec::new(), false);
    for word in line.split_whitespace() {
        let word = word.replace("MariaDB", "MySQL").replace("mariadb", "mysql");
        let is_version = after_product && word.starts_with(|c: char| c.is_ascii_digit());
        after_product = word == "PostgreSQL" || word == "MySQL";
        words.push(if is_version { "VERSION".into() } else { without_numbers(&word) });
    }
    words
}

/// Sixteen hexadecimal digits as x, a port as PORT, the number behind an opening as N.
fn without_numbers(word: &str) -> String {
    let is_hex = |part: &str| part.len() == 16 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    if let Some((host, rest)) = word.split_once("127.0.0.1:") {
        let path = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c.is_ascii_uppercase());
        return format!("{host}127.0.0.1:PORT{path}");
    }
    let mut parts = Vec::new();
    for part in word.split('.') {
        let is_behind = parts.last().is_some_and(|last| last == X);
        parts.push(match part {
            part if is_hex(part) => X.to_owned(),
            part if is_behind && is_number(part) => "N".to_owned(),
            part => part.to_owned(),
        });
    }
    parts.join(".")
}

const X: &str = "xxxxxxxxxxxxxxxx";

#[test]
fn a_page_is_understood() {
    let page = "Type:\n\n```console\n$ a b\none\n...\n$ c\n(exit code 3)\n```\n\nIn `x.toml`:\n\n```toml\nk = 1\n```\n\nIn `orders`\n\n```sql\nSELECT 1;\n```\n";
    let command = |line: &str, prints: &[&str], exit_code| Command {
        line: line.into(),
        prints: prints.iter().map(|line| (*line).to_owned()).collect(),
        exit_code,
    };
    let expected = [
        Step::Terminal(vec![command("a b", &["one", "..."], 0), command("c", &[], 3)]),
        Step::File { name: "x.toml".into(), text: "k = 1\n".into() },
        Step::Sql { participant: "orders".into(), statements: "SELECT 1;\n".into() },
    ];
    assert_eq!(steps(page), expected);
}

#[test]
fn what_differs_is_no_difference() {
    let page = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
    let shown = page(&[
        "MySQL VERSION at 127.0.0.1:PORT/shop",
        "N left, 0 lost",
        "hf1.start.xxxxxxxxxxxxxxxx.N is committed",
        "...",
        "0 failed, ...",
    ]);
    let printed = "MariaDB 10.11.19 at 127.0.0.1:4711/shop\n0 left, 0 lost\nhf1.start.0123456789abcdef.17 is committed\n0 failed, 3 notes\n";
    assert!(shows(&shown, printed));
    assert!(shows(&shown, &printed.replace("0 failed", "more\n\n0 failed")));
    for other in ["127.0.0.1:4711/shop", "committed", "0 lost"] {
        let changed = printed.replace(other, "otherwise");
        assert!(!shows(&shown, &changed), "{changed}");
    }
    assert!(!shows(&page(&["clean"]), "clean\nand more"));
    assert!(!shows(&page(&["clean", "and more"]), "clean"));
}
