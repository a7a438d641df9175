//! What somebody may have at hand of a transaction: its id, a branch's id, or what a server lists.

use crate::id::{BranchId, FORMAT_ID, TransactionId};

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// This transaction.
    Transaction(TransactionId),
    /// A branch as `XA RECOVER` lists it, its two parts joined without anything between: one of these.
    Joined(Vec<BranchId>),
    /// Something else, as a server may list it.
    Other(String),
}

impl Asked {
    /// Understands an id, or what a server lists: a `gid`, the data of `XA RECOVER` as text or as hexadecimal digits, an
    /// XID as an `XA` statement takes it.
    pub fn parse(text: &str) -> Self {
        let text = text.trim();
        if let Ok(branch) = text.parse::<BranchId>() {
            return Self::Transaction(branch.transaction);
        }
        if let Ok(id) = text.parse() {
            return Self::Transaction(id);
        }
        if let Some(branch) = xid(text) {
            return Self::Transaction(branch.transaction);
        }
        if let Some(listed) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).and_then(unhex) {
            return match String::from_utf8(listed) {
                Ok(listed) if listed.starts_with("hf1.") => Self::parse(&listed),
                _ => Self::Other(text.to_owned()),
            };
        }
        match joined(text) {
            candidates if candidates.is_empty() => Self::Other(text.to_owned()),
            candidates => Self::Joined(candidates),
        }
    }
}

/// The branch behind an XID as an `XA` statement takes it.
fn xid(text: &str) -> Option<BranchId> {
    let mut parts = text.split(',').map(str::trim);
    let (gtrid, bqual) = (literal(parts.next()?)?, literal(parts.next()?)?);
    let format_id = parts.next()?.parse().ok()?;
    parts.next().is_none().then(|| BranchId::from_xid(format_id, &gtrid, &bqual)).flatten()
}

/// The bytes of `X'..'`, or of `'..'` without anything in it that would have to be escaped.
fn literal(text: &str) -> Option<Vec<u8>> {
    let quoted = |text: &str| Some(text.strip_prefix('\'')?.strip_suffix('\'')?.to_owned());
    match text.strip_prefix(['X', 'x']) {
        Some(digits) => unhex(&quoted(digits)?),
        None => quoted(text).map(String::into_bytes),
    }
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let whole = digits.len().is_multiple_of(2) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    whole.then(|| digits.as_bytes().chunks(2).map(byte).collect()).flatten()
}

/// `hf1.node.incarnation.sequence` and `participant.slot` without anything between: every way to part them that gives an id.
fn joined(text: &str) -> Vec<BranchId> {
    let Some((head, slot)) = text.rsplit_once('.') else { return Vec::new() };
    let Some(digits) = head.rsplit('.').next() else { return Vec::new() };
    let part = |at: usize| {
        let (sequence, participant) = head.split_at_checked(head.len() - at)?;
        format!("{sequence}.{participant}.{slot}").parse().ok()
    };
    (1..digits.len()).filter_map(part).collect()
}

/// The XID of a foreign branch as its server's statements take it, from how this tool shows it; `None` for what is not one.
pub fn is_foreign_xid(text: &str) -> bool {
    let mut parts = text.split(',');
    let whole = |part: Option<&str>| part.is_some_and(|part| literal(part).is_some());
    let ours = format!(",{FORMAT_ID}");
    whole(parts.next()) && whole(parts.next()) && parts.next().is_some() && !text.ends_with(&ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "hf1.orders-api-1.9f3c2a7b11d0e842.1042";

    #[test]
    fn whatever_a_server_lists_leads_to_the_transaction() {
        let (id, branch) = (ID.parse::<TransactionId>().unwrap(), format!("{ID}.1.3").parse::<BranchId>().unwrap());
        let text = format!("'{ID}','1.3',2147483647");
        for asked in [ID, &branch.to_string(), &branch.xid_sql(), &text, &format!(" {ID} ")] {
            assert_eq!(Asked::parse(asked), Asked::Transaction(id), "{asked}");
        }
    }

    #[test]
    fn joined_parts_are_taken_apart_in_every_way() {
        let text = format!("{ID}1.3");
        let hexed = format!("0x{}", crate::id::hex(text.as_bytes()));
        for asked in [text, hexed.to_uppercase().replacen("0X", "0x", 1)] {
            let Asked::Joined(candidates) = Asked::parse(&asked) else { panic!("{asked}") };
            let texts: Vec<_> = candidates.iter().map(ToString::to_string).collect();
            assert!(texts.contains(&format!("{ID}.1.3")), "{texts:?}");
            // A participant's number has no leading zero: 1.04210 is none.
            assert_eq!(texts.len(), 3, "{texts:?}");
        }
    }

    #[test]
    fn the_rest_is_somebody_elses() {
        for text in ["nightly import 7", "", "X'00ff',X'0d',7", "0x00ff", "hf1.Orders.9f3c2a7b11d0e842.1042", "a.b"] {
            assert_eq!(Asked::parse(text), Asked::Other(text.to_owned()));
        }
        assert!(is_foreign_xid("X'00ff',X'0d',7") && !is_foreign_xid("nightly import 7"));
    }
}
