//! Names and identifiers, and the only codec of their text.
//!
//! A branch is known to a database by one short text. PostgreSQL takes it whole as the `gid` of
//! `PREPARE TRANSACTION` (under 200 bytes); MySQL and MariaDB take it in two parts, `gtrid` and `bqual`
//! (64 bytes each) under [`FORMAT_ID`]:
//!
//! ```text
//! hf1.orders-api-1.9f3c2a7b11d0e842.1042.0.3
//! |   |            |                |    | session slot
//! |   |            |                |    participant's number in that incarnation
//! |   |            |                sequence
//! |   |            incarnation, 16 hexadecimal digits
//! |   node
//! format
//! gtrid = hf1.orders-api-1.9f3c2a7b11d0e842.1042      bqual = 0.3
//! ```
//!
//! A text is ours only when the *whole* of it parses and prints back to the same bytes: no prefix match, no
//! case folding, no leading zeros. Two texts never name one branch, one text never names two.

use crate::torture::{self, Safeguard};
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// The `formatID` of every XA branch of ours.
///
/// The highest value that all servers take. MySQL's crash recovery loses prepared branches when the binary log
/// holds XIDs of a higher formatID (bug 120125); MariaDB refuses anything from 2^32 - 1 up.
pub const FORMAT_ID: u32 = 2_147_483_647;

fn format_id() -> u32 {
    if torture::is_on(Safeguard::FormatId) { FORMAT_ID } else { 1 }
}

/// The first field of every identifier: the format and its version.
const FORMAT: &str = "hf1";

/// Why a text is not the identifier it was taken for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {expected}")]
pub struct ParseIdError {
    text: String,
    expected: &'static str,
}

impl ParseIdError {
    fn new(text: &str, expected: &'static str) -> Self {
        // A foreign identifier may be long and binary: enough of it to recognise, not more.
        Self { text: text.chars().take(80).collect(), expected }
    }
}

/// A short ASCII name, held inline so that identifiers are `Copy` and cost no allocation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Inline<const N: usize> {
    bytes: [u8; N],
    length: u8,
}

impl<const N: usize> Inline<N> {
    /// A letter first, then letters, digits and `extra`: all lower case.
    fn parse(text: &str, extra: u8) -> Option<Self> {
        let bytes = text.as_bytes();
        let first = *bytes.first()?;
        let tail_is_plain = bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == extra);
        if bytes.len() > N || !first.is_ascii_lowercase() || !tail_is_plain {
            return None;
        }
        let mut inline = Self { bytes: [0; N], length: u8::try_from(bytes.len()).ok()? };
        inline.bytes[..bytes.len()].copy_from_slice(bytes);
        Some(inline)
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.length)]).expect("only ASCII gets in")
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $max:literal, $extra:literal, $expected:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Inline<$max>);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                self.0.as_str()
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                Inline::parse(text, $extra).map(Self).ok_or_else(|| ParseIdError::new(text, $expected))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(self.as_str(), f)
            }
        }
    };
}

name! {
    /// The name of a coordinating program: `[a-z][a-z0-9-]{0,15}`. It is part of every branch id.
    NodeName, 16, b'-', "a node name: a letter, then up to 15 of a-z, 0-9 and '-'"
}

name! {
    /// The name of a participant, a configured database: `[a-z][a-z0-9_]{0,23}`.
    ParticipantName, 24, b'_', "a participant name: a letter, then up to 23 of a-z, 0-9 and '_'"
}

macro_rules! random64 {
    ($(#[$doc:meta])* $name:ident, $expected:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl $name {
            /// The bits as the signed integer that SQL tables hold.
            pub fn to_sql(self) -> i64 {
                self.0.cast_signed()
            }

            /// The inverse of [`to_sql`](Self::to_sql).
            pub fn from_sql(value: i64) -> Self {
                Self(value.cast_unsigned())
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                parse_hex16(text).map(Self).ok_or_else(|| ParseIdError::new(text, $expected))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:016x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

random64! {
    /// One opening of a bridge: 64 random bits, registered in the journal and in each participant before first use.
    Incarnation, "an incarnation: 16 hexadecimal digits"
}

random64! {
    /// The identity of a participant's data: 64 random bits in its own tables. A server that was created anew, or
    /// another server under a known name, has another lineage.
    Lineage, "a lineage: 16 hexadecimal digits"
}

random64! {
    /// The identity of a journal: 64 random bits in the header of each of its segments.
    JournalId, "a journal id: 16 hexadecimal digits"
}

fn parse_hex16(text: &str) -> Option<u64> {
    let canonical = text.len() == 16 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    canonical.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

/// A decimal number without sign or leading zeros: the one text of its value.
fn parse_decimal<T: FromStr>(text: &str) -> Option<T> {
    let canonical = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    canonical.then(|| text.parse().ok()).flatten()
}

/// One global transaction.
///
/// Prints as `hf1.<node>.<incarnation>.<sequence>`, which is also the `gtrid` of its XA branches. Ids of one
/// journal never repeat: the incarnation is new at each opening, the sequence counts within it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TransactionId {
    /// The program that coordinates it.
    pub node: NodeName,
    /// The opening of the bridge that began it.
    pub incarnation: Incarnation,
    /// Its number within the incarnation, from 1.
    pub sequence: u64,
}

impl TransactionId {
    const EXPECTED: &str = "a transaction id: hf1.<node>.<16 hexadecimal digits>.<sequence>";

    /// The id of this transaction's branch on a participant.
    pub fn branch(self, participant: u16, slot: u32) -> BranchId {
        BranchId { transaction: self, participant, slot }
    }

    fn line(&self) -> Line {
        let line = Line::default().text(FORMAT).text(".").text(self.node.as_str());
        line.text(".").hex16(self.incarnation.0).text(".").decimal(self.sequence)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split('.');
        let format = fields.next()?;
        let id = Self {
            node: fields.next()?.parse().ok()?,
            incarnation: fields.next()?.parse().ok()?,
            sequence: parse_decimal(fields.next()?)?,
        };
        (format == FORMAT && fields.next().is_none()).then_some(id)
    }
}

/// By node, incarnation and sequence.
impl Ord for TransactionId {
    fn cmp(&self, other: &Self) -> Ordering {
        // Most that are compared are of one opening, and to see that costs less than to put two names in order.
        let (ours, theirs) = ((self.node, self.incarnation), (other.node, other.incarnation));
        if ours == theirs { self.sequence.cmp(&other.sequence) } else { ours.cmp(&theirs) }
    }
}

impl PartialOrd for TransactionId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl FromStr for TransactionId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        Self::parse(text).ok_or_else(|| ParseIdError::new(text, Self::EXPECTED))
    }
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.line().as_str())
    }
}

impl fmt::Debug for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One branch: a transaction's part on one participant. Prints as PostgreSQL's `gid`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BranchId {
    /// The transaction it belongs to.
    pub transaction: TransactionId,
    /// The participant's number in the transaction's incarnation.
    pub participant: u16,
    /// The slot of the session that works on it: who may hold the branch, should it be found busy.
    pub slot: u32,
}

impl BranchId {
    const EXPECTED: &str = "a branch id: hf1.<node>.<16 hexadecimal digits>.<sequence>.<participant>.<slot>";

    /// The global part of the XA identifier.
    pub fn gtrid(&self) -> String {
        self.transaction.to_string()
    }

    /// The branch qualifier of the XA identifier.
    pub fn bqual(&self) -> String {
        self.qualifier(Line::default()).as_str().to_owned()
    }

    fn qualifier(&self, line: Line) -> Line {
        line.decimal(self.participant.into()).text(".").decimal(self.slot.into())
    }

    /// The XA identifier as SQL text, in hexadecimal so that nothing has to be quoted.
    pub fn xid_sql(&self) -> String {
        let (gtrid, bqual) = (self.transaction.line(), self.qualifier(Line::default()));
        let mut sql = Vec::with_capacity(2 * (gtrid.length + bqual.length) + "X'',X'',".len() + 10);
        sql.extend_from_slice(b"X'");
        push_hex(&mut sql, gtrid.as_bytes());
        sql.extend_from_slice(b"',X'");
        push_hex(&mut sql, bqual.as_bytes());
        sql.extend_from_slice(b"',");
        sql.extend_from_slice(Line::default().decimal(format_id().into()).as_bytes());
        String::from_utf8(sql).expect("only ASCII gets in")
    }

    /// The branch behind an XA identifier as a server lists it; `None` for a foreign one.
    pub fn from_xid(format_id: i64, gtrid: &[u8], bqual: &[u8]) -> Option<Self> {
        if format_id != i64::from(self::format_id()) {
            return None;
        }
        let transaction = TransactionId::parse(std::str::from_utf8(gtrid).ok()?)?;
        let (participant, slot) = std::str::from_utf8(bqual).ok()?.split_once('.')?;
        Some(transaction.branch(parse_decimal(participant)?, parse_decimal(slot)?))
    }

    /// The name that the branch's session goes by on its server: PostgreSQL's `application_name`, the lock
    /// that a MySQL session holds.
    pub fn session(&self) -> SessionName {
        SessionName { incarnation: self.transaction.incarnation, participant: self.participant, slot: self.slot }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.rsplitn(3, '.');
        let slot = parse_decimal(fields.next()?)?;
        let participant = parse_decimal(fields.next()?)?;
        Some(TransactionId::parse(fields.next()?)?.branch(participant, slot))
    }
}

impl FromStr for BranchId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        Self::parse(text).ok_or_else(|| ParseIdError::new(text, Self::EXPECTED))
    }
}

impl fmt::Display for BranchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.qualifier(self.transaction.line().text(".")).as_str())
    }
}

impl fmt::Debug for BranchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A session of an incarnation on a participant, by the slot it occupies; at most 44 characters as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionName {
    /// Whose session it is.
    pub incarnation: Incarnation,
    /// The participant's number in that incarnation.
    pub participant: u16,
    /// The slot among the incarnation's sessions there.
    pub slot: u32,
}

impl fmt::Display for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "handfast.{}.{}.{}", self.incarnation, self.participant, self.slot)
    }
}

/// Bytes as lower-case hexadecimal digits: XA literals, and foreign identifiers shown to people.
pub fn hex(bytes: &[u8]) -> String {
    let mut digits = Vec::with_capacity(bytes.len() * 2);
    push_hex(&mut digits, bytes);
    String::from_utf8(digits).expect("only digits get in")
}

fn push_hex(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend(bytes.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]));
}

const DIGITS: [u8; 16] = *b"0123456789abcdef";

/// The text of an identifier as it is put together. Each transaction needs its own a dozen times, and what formats texts
/// in general would cost it more than all else that is done with them.
struct Line {
    bytes: [u8; LONGEST],
    length: usize,
}

/// What a branch id takes at most: format, node, incarnation, sequence, participant, slot, and the dots between them.
const LONGEST: usize = FORMAT.len() + 16 + 16 + 20 + 5 + 10 + 5;

impl Default for Line {
    fn default() -> Self {
        Self { bytes: [0; LONGEST], length: 0 }
    }
}

impl Line {
    fn text(mut self, text: &str) -> Self {
        self.bytes[self.length..][..text.len()].copy_from_slice(text.as_bytes());
        self.length += text.len();
        self
    }

    /// 16 hexadecimal digits.
    fn hex16(mut self, bits: u64) -> Self {
        for place in (0..16).rev() {
            self.bytes[self.length] = DIGITS[(bits >> (4 * place) & 15) as usize];
            self.length += 1;
        }
        self
    }

    fn decimal(mut self, number: u64) -> Self {
        let digits = number.checked_ilog10().map_or(1, |highest| highest as usize + 1);
        let mut left = number;
        for place in self.bytes[self.length..][..digits].iter_mut().rev() {
            *place = DIGITS[(left % 10) as usize];
            left /= 10;
        }
        self.length += digits;
        self
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).expect("only ASCII gets in")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id() -> TransactionId {
        "hf1.orders-api-1.9f3c2a7b11d0e842.1042".parse().unwrap()
    }

    #[test]
    fn a_branch_has_one_text_for_each_server() {
        let branch = id().branch(0, 3);
        assert_eq!(branch.to_string(), "hf1.orders-api-1.9f3c2a7b11d0e842.1042.0.3");
        assert_eq!(branch.gtrid(), "hf1.orders-api-1.9f3c2a7b11d0e842.1042");
        assert_eq!(branch.bqual(), "0.3");
        assert_eq!(
            branch.xid_sql(),
            "X'6866312e6f72646572732d6170692d312e396633633261376231316430653834322e31303432',X'302e33',2147483647"
        );
        assert_eq!(branch.session().to_string(), "handfast.9f3c2a7b11d0e842.0.3");
    }

    /// D38, D14: the longest id fits every server's limits.
    #[test]
    fn the_longest_id_fits_every_server() {
        let longest = TransactionId {
            node: "abcdefghijklmnop".parse().unwrap(),
            incarnation: Incarnation(u64::MAX),
            sequence: u64::MAX,
        }
        .branch(u16::MAX, u32::MAX);
        assert!(longest.to_string().len() < 200);
        assert!(longest.gtrid().len() <= 64);
        assert!(longest.bqual().len() <= 64);
        assert!(longest.session().to_string().len() < 64, "application_name and GET_LOCK cut or refuse more");
        assert_eq!(longest.to_string().parse(), Ok(longest));
    }

    #[test]
    fn only_the_whole_canonical_text_is_ours() {
        for foreign in [
            "",
            "hf1",
            "hf2.orders-api-1.9f3c2a7b11d0e842.1042.0.3",
            "hf1.Orders.9f3c2a7b11d0e842.1042.0.3",
            "hf1.orders.9F3C2A7B11D0E842.1042.0.3",
            "hf1.orders.9f3c2a7b11d0e84.1042.0.3",
            "hf1.orders.9f3c2a7b11d0e842.01042.0.3",
            "hf1.orders.9f3c2a7b11d0e842.+1042.0.3",
            "hf1.orders.9f3c2a7b11d0e842.1042.0.3 ",
            "hf1.orders.9f3c2a7b11d0e842.1042.0.3.4",
            "hf1.orders.9f3c2a7b11d0e842.1042.0",
            "hf1.orders.9f3c2a7b11d0e842.1042.65536.3",
            "hf1.orders.9f3c2a7b11d0e842..0.3",
            "x.hf1.orders.9f3c2a7b11d0e842.1042.0.3",
        ] {
            assert!(foreign.parse::<BranchId>().is_err(), "{foreign:?}");
        }
        let branch = id().branch(1, 2);
        let (gtrid, bqual) = (branch.gtrid(), branch.bqual());
        assert_eq!(BranchId::from_xid(2_147_483_647, gtrid.as_bytes(), bqual.as_bytes()), Some(branch));
        assert_eq!(BranchId::from_xid(1, gtrid.as_bytes(), bqual.as_bytes()), None);
        assert_eq!(BranchId::from_xid(2_147_483_647, b"\x00\xff'\\", bqual.as_bytes()), None);
        assert_eq!(BranchId::from_xid(2_147_483_647, gtrid.as_bytes(), b"1.2.3"), None);
    }

    #[test]
    fn names_say_what_they_take() {
        assert!("ledger_2".parse::<ParticipantName>().is_ok());
        for bad in ["", "Ledger", "2ledger", "led-ger", "abcdefghijklmnopqrstuvwxy"] {
            let error = bad.parse::<ParticipantName>().unwrap_err().to_string();
            assert!(error.contains("up to 23"), "{error}");
        }
        assert!("a-1".parse::<NodeName>().is_ok());
        assert!("a_1".parse::<NodeName>().is_err());
    }

    proptest! {
        #[test]
        fn ids_are_ordered_by_node_incarnation_and_sequence(of in proptest::collection::vec(("[a-c]{1,2}", 0..3u64, 0..3u64), 2)) {
            let id = |(node, incarnation, sequence): &(String, u64, u64)| TransactionId {
                node: node.parse().unwrap(), incarnation: Incarnation(*incarnation), sequence: *sequence,
            };
            prop_assert_eq!(id(&of[0]).cmp(&id(&of[1])), of[0].cmp(&of[1]));
        }

        #[test]
        fn every_branch_survives_the_round_trip(
            node in "[a-z][a-z0-9-]{0,15}", incarnation: u64, sequence: u64, participant: u16, slot: u32,
        ) {
            let transaction = TransactionId {
                node: node.parse().unwrap(), incarnation: Incarnation(incarnation), sequence,
            };
            prop_assert_eq!(transaction.to_string(), format!("hf1.{node}.{incarnation:016x}.{sequence}"));
            let branch = transaction.branch(participant, slot);
            prop_assert_eq!(branch.to_string().parse(), Ok(branch));
            prop_assert_eq!(transaction.to_string().parse(), Ok(transaction));
            let found = BranchId::from_xid(i64::from(FORMAT_ID), branch.gtrid().as_bytes(), branch.bqual().as_bytes());
            prop_assert_eq!(found, Some(branch));
        }

        #[test]
        fn what_parses_prints_back_the_same(text in "[a-z0-9.+ -]{0,60}") {
            if let Ok(branch) = text.parse::<BranchId>() {
                prop_assert_eq!(branch.to_string(), text);
            }
        }
    }
}
