//! How an incarnation makes itself known to a participant, and what it claims there.

use super::witness;
use crate::config::Decision;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Incarnation, JournalId, Lineage, NodeName};
use std::time::Duration;

/// An incarnation as it registers itself with a participant before first use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// The node name in its branch ids.
    pub node: NodeName,
    /// Its 64 random bits.
    pub incarnation: Incarnation,
    /// The journal that holds its decisions, or the anchor's number in its place.
    pub journal: JournalId,
    /// Where that is.
    pub decision: Decision,
    /// The participant's number in this incarnation.
    pub participant: u16,
    /// This machine's name, for people.
    pub host: String,
    /// The lineage that the journal knows this participant by; `None` at first sight.
    pub expected: Option<Lineage>,
}

/// Who asks for the lease of a participant.
///
/// A journal may be copied, and both copies opened. So while a bridge or a recovery is open, it holds a lock of each
/// server on its node's name there: whoever comes second is refused, and told who was first. This narrows the race of a
/// copied journal and cannot close it: a lock that a server has lost says nothing to whoever held it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// The node in whose name branches are decided and settled.
    pub node: NodeName,
    /// The opening that does so.
    pub incarnation: Incarnation,
    /// Whether others may do so, too, each by a lease of its own: where an anchor decides, it is the referee.
    pub shared: bool,
}

impl Registration {
    /// The lease that goes with it.
    pub fn claim(&self) -> Claim {
        Claim { node: self.node, incarnation: self.incarnation, shared: self.decision != Decision::Journal }
    }
}

/// An incarnation as a participant's own table has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    /// The node name in its branch ids.
    pub node: NodeName,
    /// Which.
    pub incarnation: Incarnation,
    /// The number that the participant has in its branch ids.
    pub participant: u16,
    /// The journal that holds its decisions, or the anchor's number in its place.
    pub journal: JournalId,
    /// Where that is; `None` where a version wrote it that is not known here.
    pub decision: Option<Decision>,
    /// The machine that it ran on.
    pub host: String,
    /// How long ago it was opened, by the database's clock.
    pub age: Duration,
}

impl Registered {
    /// A row as the table has it.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] for one that no version known here has written.
    pub(super) fn of(
        node: &str,
        incarnation: i64,
        participant: i64,
        (decision, journal): (&str, i64),
        host: String,
        age: f64,
    ) -> Result<Self> {
        let strange = || {
            let message = format!("{} has a row of the strange node {node:?}", witness::INCARNATION_TABLE);
            Error::new(ErrorKind::Refused, message)
        };
        Ok(Self {
            node: node.parse().map_err(|error| strange().because(error))?,
            incarnation: Incarnation::from_sql(incarnation),
            participant: participant.try_into().map_err(|error| strange().because(error))?,
            journal: JournalId::from_sql(journal),
            decision: decision.parse().ok(),
            host,
            age: Duration::try_from_secs_f64(age.max(0.0)).map_err(|error| strange().because(error))?,
        })
    }
}
