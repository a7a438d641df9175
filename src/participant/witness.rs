//! What every participant keeps in its own database: the witness and the incarnations.
//!
//! **`handfast_witness`** holds one row for each writing branch, inserted by the branch's own transaction: it becomes
//! visible with the branch's work or not at all, so it is the proof of commit. Recovery can take the place of that row
//! with a *fence*: whoever inserts first wins, the primary key is the referee. An incarnation whose branches leave no
//! witness says so in a row of its own, under sequence 0: a later one, for which the witness was switched on, would
//! otherwise take its commits for rolled back.
//!
//! **`handfast_incarnation`** holds one row for each opening of a bridge and participant, written before first use. Its row
//! with the empty node and incarnation 0 holds the participant's *lineage*, the identity of the data.
//!
//! Both are the same in PostgreSQL, MySQL and MariaDB but for the words of the dialect; the statements that read and
//! write them live with each database.

use super::Evidence;
use super::anchor::{ANCHOR_TABLE, decides};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{BranchId, Incarnation, Lineage, ParticipantName};
use crate::protocol::recovery;
use std::fmt;

/// The table of witnesses.
pub const WITNESS_TABLE: &str = "handfast_witness";

/// The table of incarnations, and of the lineage.
pub const INCARNATION_TABLE: &str = "handfast_incarnation";

/// The `node` of the row that holds the lineage; its `incarnation` and `participant` are 0. No node is named so.
pub const LINEAGE_NODE: &str = "";

/// What a row of the witness table proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Written by a prepared branch: visible when it was committed.
    Decided,
    /// Written by a branch that decided alone.
    OnePhase,
    /// Written by a branch that decided for others, too: the row lists them.
    Anchor,
    /// Written by recovery: the branch never commits.
    Fence,
    /// Written at registration: the branches of this incarnation leave no witness.
    Off,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Decided, Self::OnePhase, Self::Anchor, Self::Fence, Self::Off];

    /// As the column `kind` has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Decided => "decided",
            Self::OnePhase => "one_phase",
            Self::Anchor => "anchor",
            Self::Fence => "fence",
            Self::Off => "off",
        }
    }

    /// What the row says of its branch.
    pub fn evidence(self) -> Evidence {
        match self {
            Self::Decided | Self::Anchor => Evidence::Committed,
            Self::OnePhase => Evidence::CommittedAlone,
            Self::Fence => Evidence::Never,
            Self::Off => Evidence::Off,
        }
    }

    /// The kinds that prove a commit, as a list for `IN`.
    pub(super) fn witnesses() -> String {
        [Self::Decided, Self::OnePhase, Self::Anchor].map(|kind| format!("'{kind}'")).join(", ")
    }

    fn parse(text: &str) -> Option<Self> {
        if decides(text) {
            return Some(Self::Anchor);
        }
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// So many rows are read at once: [`Participant::witnessed`](super::Participant::witnessed).
pub const PAGE: usize = 1000;

/// A row of the witness table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Witnessed {
    /// Whose branch it is of.
    pub incarnation: Incarnation,
    /// The number of its transaction; 0 for [`Kind::Off`].
    pub sequence: u64,
    /// What it proves.
    pub kind: Kind,
}

/// The participants' word for it in the protocol's.
impl From<Evidence> for recovery::Evidence {
    fn from(found: Evidence) -> Self {
        match found {
            Evidence::Committed => Self::Committed,
            Evidence::CommittedAlone => Self::CommittedAlone,
            Evidence::Never => Self::Never,
            Evidence::Nothing => Self::Nothing,
            Evidence::Blocked => Self::Blocked,
            Evidence::Off => Self::Off,
        }
    }
}

impl Witnessed {
    /// A row as the table has it.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] for a kind that this version does not know.
    pub fn of(incarnation: i64, sequence: i64, kind: &str) -> Result<Self> {
        let kind = known(kind)?;
        Ok(Self { incarnation: Incarnation::from_sql(incarnation), sequence: sequence.cast_unsigned(), kind })
    }
}

/// What a row found under a branch's key says, or its absence.
///
/// # Errors
/// [`ErrorKind::Refused`] for a kind that this version does not know: a newer one wrote it, and guessing may do harm.
pub fn evidence(kind: Option<&str>) -> Result<Evidence> {
    kind.map_or(Ok(Evidence::Nothing), |kind| known(kind).map(Kind::evidence))
}

fn known(kind: &str) -> Result<Kind> {
    let unknown = || format!("{WITNESS_TABLE} has a row of the unknown kind {kind:?}: a newer version wrote it");
    Kind::parse(kind).ok_or_else(|| Error::new(ErrorKind::Refused, unknown()))
}

/// The primary key of a branch's witness. Two participants may share a database, so the participant's number is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The incarnation's bits, signed.
    pub incarnation: i64,
    /// The sequence, signed.
    pub sequence: i64,
    /// The participant's number.
    pub branch: i32,
}

impl Key {
    /// Where an incarnation says that its branches leave no witness: sequences begin at 1.
    pub fn of_incarnation(incarnation: Incarnation, participant: u16) -> Self {
        Self { incarnation: incarnation.to_sql(), sequence: 0, branch: i32::from(participant) }
    }
}

impl From<&BranchId> for Key {
    fn from(id: &BranchId) -> Self {
        Self {
            incarnation: id.transaction.incarnation.to_sql(),
            sequence: id.transaction.sequence.cast_signed(),
            branch: i32::from(id.participant),
        }
    }
}

/// A new lineage.
///
/// # Errors
/// [`ErrorKind::Unavailable`] when the system has no random numbers.
pub fn new_lineage() -> Result<Lineage> {
    random().map(Lineage)
}

/// The error for another server, or an emptied one, under a known name.
pub(super) fn wrong_lineage(name: ParticipantName, expected: Lineage, found: Option<Lineage>) -> Error {
    let found = found.map_or_else(|| "none".into(), |lineage| lineage.to_string());
    let message = format!(
        "the server is of lineage {found}, the journal knows {expected}: the URL leads to another server or database, \
         it was created anew, or it was restored from elsewhere; nothing there was touched"
    );
    Error::new(ErrorKind::Refused, message).at(name)
}

/// 64 random bits.
pub(crate) fn random() -> Result<u64> {
    getrandom::u64()
        .map_err(|error| Error::new(ErrorKind::Unavailable, "the system gives no random numbers").because(error))
}

/// Whose words a statement is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// PostgreSQL.
    Postgres,
    /// MySQL and MariaDB.
    MySql,
}

impl Dialect {
    /// A name as the dialect quotes it.
    pub fn quote(self, name: &str) -> String {
        match self {
            Self::Postgres => format!("\"{}\"", name.replace('"', "\"\"")),
            Self::MySql => format!("`{}`", name.replace('`', "``")),
        }
    }

    /// A table of ours, always with its schema: no `search_path` and no current database can lead astray.
    pub fn table(self, schema: &str, table: &str) -> String {
        format!("{}.{}", self.quote(schema), self.quote(table))
    }

    /// The statement that creates the table of an anchor where it is missing, without semicolon.
    pub fn create_anchor(self, schema: &str) -> String {
        let (text, bytes, engine) = match self {
            Self::Postgres => ("text", "bytea", ""),
            Self::MySql => ("VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin", "MEDIUMBLOB", " ENGINE=InnoDB"),
        };
        format!(
            "CREATE TABLE IF NOT EXISTS {table} (\n  node {text} NOT NULL,\n  part {text} NOT NULL,\n  \
             entry {bytes} NOT NULL,\n  PRIMARY KEY (node, part)\n){engine}",
            table = self.table(schema, ANCHOR_TABLE),
        )
    }

    /// The statements that create both tables where they are missing, without semicolons.
    pub fn create_tables(self, schema: &str) -> [String; 2] {
        let (text, timestamp, now, engine) = match self {
            Self::Postgres => ("text", "timestamptz", "pg_catalog.now()", ""),
            Self::MySql => (
                "VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin",
                "TIMESTAMP(6)",
                "CURRENT_TIMESTAMP(6)",
                " ENGINE=InnoDB",
            ),
        };
        let witness = format!(
            "CREATE TABLE IF NOT EXISTS {table} (\n  incarnation bigint NOT NULL,\n  sequence bigint NOT NULL,\n  \
             branch int NOT NULL,\n  kind {text} NOT NULL,\n  PRIMARY KEY (incarnation, sequence, branch)\n){engine}",
            table = self.table(schema, WITNESS_TABLE),
        );
        let incarnation = format!(
            "CREATE TABLE IF NOT EXISTS {table} (\n  node {text} NOT NULL,\n  incarnation bigint NOT NULL,\n  \
             participant int NOT NULL,\n  lineage bigint NOT NULL,\n  decision {text} NOT NULL,\n  \
             journal bigint NOT NULL,\n  host {text} NOT NULL,\n  session_slots int NOT NULL,\n  \
             opened_at {timestamp} NOT NULL DEFAULT {now},\n  PRIMARY KEY (node, incarnation, participant)\n){engine}",
            table = self.table(schema, INCARNATION_TABLE),
        );
        [witness, incarnation]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_survive_the_round_trip_and_others_are_refused() {
        for kind in Kind::ALL {
            assert_eq!(Kind::parse(kind.as_str()), Some(kind));
            assert_eq!(evidence(Some(kind.as_str())).unwrap(), kind.evidence());
        }
        assert_eq!(evidence(None).unwrap(), Evidence::Nothing);
        assert_eq!(evidence(Some("Fence")).unwrap_err().kind(), ErrorKind::Refused);
    }

    #[test]
    fn names_are_quoted_in_each_dialect() {
        assert_eq!(Dialect::Postgres.table("a\"b", WITNESS_TABLE), "\"a\"\"b\".\"handfast_witness\"");
        assert_eq!(Dialect::MySql.table("a`b", WITNESS_TABLE), "`a``b`.`handfast_witness`");
    }

    #[test]
    fn a_key_keeps_all_bits() {
        let id: BranchId = "hf1.n.ffffffffffffffff.18446744073709551615.65535.0".parse().unwrap();
        assert_eq!(Key::from(&id), Key { incarnation: -1, sequence: -1, branch: 65535 });
    }
}
