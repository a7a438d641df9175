//! What an application's text does to savepoints, as far as its words tell.
//!
//! It is read for one purpose: a failed statement is forgiven when a savepoint set before it is rolled back to. What
//! cannot be read with certainty is never in favour of the branch.

use std::str::SplitWhitespace;

/// What statements begin with that read or write rows.
const ROWS: [&str; 9] = ["SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "SHOW", "WITH", "VALUES", "TABLE"];

/// No statement that is looked at closely has more words: `ROLLBACK WORK TO SAVEPOINT name`.
const WORDS: usize = 5;

/// What a text does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// `SAVEPOINT name`
    Set(String),
    /// `ROLLBACK TO name`
    RollBackTo(String),
    /// `RELEASE SAVEPOINT name`
    Release(String),
    /// Reads or writes rows: nothing that a savepoint or a transaction would feel.
    Plain,
    /// Cannot be seen: it goes by the binary protocol, whose texts the driver keeps to itself.
    Unseen,
    /// Anything else: it may set savepoints of its own, or end the transaction.
    Opaque,
}

impl Action {
    /// Reads a text.
    pub(super) fn read(text: &[u8]) -> Self {
        let Some(words) = std::str::from_utf8(text).ok().and_then(words) else { return Self::Opaque };
        let mut first = words.clone();
        if first.next().is_some_and(|first| ROWS.iter().any(|word| first.eq_ignore_ascii_case(word))) {
            return Self::Plain;
        }
        let words: Vec<&str> = words.take(WORDS + 1).collect();
        let upper: Vec<String> = words.iter().take(4).map(|word| word.to_ascii_uppercase()).collect();
        let upper: Vec<&str> = upper.iter().map(String::as_str).collect();
        let name = |at: usize| if words.len() == at + 1 { unquoted(words[at]) } else { None };
        let action = match upper.as_slice() {
            ["SAVEPOINT", ..] => name(1).map(Self::Set),
            ["RELEASE", "SAVEPOINT", ..] => name(2).map(Self::Release),
            ["ROLLBACK", "WORK", "TO", "SAVEPOINT"] => name(4).map(Self::RollBackTo),
            ["ROLLBACK", "WORK", "TO", ..] => name(3).map(Self::RollBackTo),
            ["ROLLBACK", "TO", "SAVEPOINT", ..] if words.len() > 3 => name(3).map(Self::RollBackTo),
            ["ROLLBACK", "TO", ..] => name(2).map(Self::RollBackTo),
            _ => None,
        };
        action.unwrap_or(Self::Opaque)
    }
}

/// Whether a text may end the transaction: by its words alone, so that it may be wrong on the side of caution.
///
/// What cannot be told is left out: a stored procedure that ends its caller's transaction, and what goes by the binary
/// protocol.
pub(super) fn may_end_transaction(text: &[u8]) -> bool {
    let ends = |word: &[u8]| {
        [&b"XA"[..], b"COMMIT", b"ROLLBACK", b"BEGIN", b"START"].iter().any(|end| word.eq_ignore_ascii_case(end))
    };
    Action::read(text) == Action::Opaque && text.split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_').any(ends)
}

/// The words of one statement; `None` for several statements, and for comments that the server executes or that hide
/// where the words are.
fn words(text: &str) -> Option<SplitWhitespace<'_>> {
    let text = text.trim().trim_end_matches(';').trim_end();
    if text.contains(';') || text.contains("/*") || text.starts_with('#') || text.starts_with("--") {
        return None;
    }
    Some(text.split_whitespace())
}

/// A savepoint's name as the server compares it: without regard to case.
fn unquoted(word: &str) -> Option<String> {
    let inner = match word.as_bytes() {
        [b'`', .., b'`'] if word.len() > 2 => &word[1..word.len() - 1],
        [first, ..] if first.is_ascii_alphanumeric() || matches!(first, b'_' | b'$') => word,
        _ => return None,
    };
    let plain = inner.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$' | b'-' | b'.'));
    plain.then(|| inner.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Action {
        Action::read(text.as_bytes())
    }

    #[test]
    fn savepoints_are_read() {
        assert_eq!(read("SAVEPOINT a"), Action::Set("a".into()));
        assert_eq!(read("  savepoint\n`Before-It` ; "), Action::Set("before-it".into()));
        assert_eq!(read("RELEASE SAVEPOINT A"), Action::Release("a".into()));
        for text in ["ROLLBACK TO a", "rollback to savepoint A;", "ROLLBACK WORK TO a", "ROLLBACK WORK TO SAVEPOINT a"]
        {
            assert_eq!(read(text), Action::RollBackTo("a".into()), "{text}");
        }
        assert_eq!(read("ROLLBACK TO savepoint"), Action::RollBackTo("savepoint".into()));
    }

    #[test]
    fn what_may_end_the_transaction_is_suspect() {
        for text in
            ["xa commit 'x' one phase", "DO 1;COMMIT", "/* now */ Rollback", "begin", "PREPARE s FROM 'XA END x'"]
        {
            assert!(may_end_transaction(text.as_bytes()), "{text}");
        }
        for text in
            ["INSERT INTO log VALUES ('start')", "ROLLBACK TO a", "SAVEPOINT xa", "CALL p()", "SET @xa_1 = 'maxa'"]
        {
            assert!(!may_end_transaction(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn rows_are_plain() {
        for text in ["SELECT 1", "insert into t values (1)", "WITH a AS (SELECT 1) SELECT * FROM a;"] {
            assert_eq!(read(text), Action::Plain, "{text}");
        }
    }

    #[test]
    fn what_is_not_certain_is_opaque() {
        for text in [
            "XA COMMIT 'x' ONE PHASE",
            "COMMIT",
            "ROLLBACK",
            "ROLLBACK WORK",
            "CALL p()",
            "SAVEPOINT a; SAVEPOINT b",
            "INSERT INTO t VALUES (';')",
            "/*! SAVEPOINT a */",
            "SAVEPOINT /* here */ a",
            "# x\nSAVEPOINT a",
            "SAVEPOINT",
            "SAVEPOINT a b",
            "SAVEPOINT `a``b`",
            "SAVEPOINT ä",
            "",
        ] {
            assert_eq!(read(text), Action::Opaque, "{text}");
        }
        assert_eq!(Action::read(b"SELECT '\xff'"), Action::Opaque);
    }
}
