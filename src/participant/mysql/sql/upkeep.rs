//! The statements of the lease, the registry and the pruning.

use super::Sql;
use crate::id::{Incarnation, NodeName, ParticipantName};
use crate::participant::lease::{HOLDER, UNCLAIMED};
use crate::participant::witness::{Kind, LINEAGE_NODE, PAGE};

impl Sql {
    /// Takes a lock, waiting for it so many whole seconds.
    pub(in super::super) fn take_lock(lock: &str, seconds: u64) -> String {
        format!("SELECT GET_LOCK('{lock}', {seconds})")
    }

    /// Whether this session has a lock.
    pub(in super::super) fn lock_is_own(lock: &str) -> String {
        format!("SELECT IS_USED_LOCK('{lock}') = CONNECTION_ID()")
    }

    /// Lets go a lock of this session.
    pub(in super::super) fn release_lock(lock: &str) -> String {
        format!("SELECT RELEASE_LOCK('{lock}')")
    }

    /// Whether this session has the one lock and that connection the lease.
    pub(in super::super) fn is_at_work(lease: &str, holder: u64, work: &str) -> String {
        format!("SELECT IS_USED_LOCK('{lease}') = {holder} AND CONNECTION_ID() = IS_USED_LOCK('{work}')")
    }

    /// Whether nobody has a lock but the connection of a name.
    pub(in super::super) fn is_free_but_for(lock: &str, name: &str) -> String {
        format!(
            "SELECT COALESCE(IS_USED_LOCK('{lock}') <=> IS_USED_LOCK('{name}') OR IS_USED_LOCK('{lock}') IS NULL, 0)"
        )
    }

    /// The connection that has a lock.
    pub(in super::super) fn lock_holder(lock: &str) -> String {
        format!("SELECT IS_USED_LOCK('{lock}')")
    }

    /// From where a connection comes, if the account may see it.
    pub(in super::super) fn address(connection: u64) -> String {
        format!("SELECT HOST FROM information_schema.PROCESSLIST WHERE ID = {connection}")
    }

    /// How many seconds ago an incarnation was opened.
    const AGE: &str = "(UNIX_TIMESTAMP(CURRENT_TIMESTAMP(6)) - UNIX_TIMESTAMP(opened_at)) * 1e0";

    /// The registration of a node that a connection of the resolver goes by, and that it is that one; else the newest.
    pub(in super::super) fn newest(&self, node: &NodeName, participant: ParticipantName, connection: u64) -> String {
        let goes_by = |prefix: &str| {
            let name = format!("CONCAT('{prefix}.', LPAD(LOWER(HEX(incarnation)), 16, '0'), '.{participant}')");
            format!("IS_USED_LOCK({name}) <=> {connection}")
        };
        let (holds, works) = (goes_by(HOLDER), goes_by(UNCLAIMED));
        format!(
            "SELECT incarnation, host, {}, ({holds}) OR ({works}) AS is_holder FROM {} \
             WHERE node = '{node}' ORDER BY is_holder DESC, opened_at DESC LIMIT 1",
            Self::AGE,
            self.incarnation
        )
    }

    /// All registrations but the lineage's.
    pub(in super::super) fn registry(&self) -> String {
        format!(
            "SELECT node, incarnation, participant, decision, journal, host, {} FROM {} WHERE node <> '{LINEAGE_NODE}' \
             ORDER BY node, incarnation, participant",
            Self::AGE,
            self.incarnation
        )
    }

    /// A page of an incarnation's rows under a number, by sequence, of those that a further condition selects.
    ///
    /// A reading that locks nothing: what is not committed is not seen, and so not waited for.
    fn prunable(&self, incarnation: Incarnation, participant: u16, and: &str) -> String {
        format!(
            "SELECT sequence FROM {} WHERE incarnation = {} AND branch = {participant}{and} \
             ORDER BY incarnation, sequence LIMIT {PAGE}",
            self.witness,
            incarnation.to_sql()
        )
    }

    /// A page of witnesses of transactions below a sequence.
    pub(in super::super) fn prunable_witnesses(
        &self,
        incarnation: Incarnation,
        participant: u16,
        below: u64,
    ) -> String {
        let below = i64::try_from(below).unwrap_or(i64::MAX);
        let kinds = Kind::witnesses();
        let and = format!(" AND sequence >= 1 AND sequence < {below} AND kind IN ({kinds})");
        self.prunable(incarnation, participant, &and)
    }

    /// A page of whatever an incarnation left.
    pub(in super::super) fn prunable_settled(&self, incarnation: Incarnation, participant: u16) -> String {
        self.prunable(incarnation, participant, "")
    }

    /// Deletes rows by their whole primary keys: none beside them is locked, nor any gap between.
    pub(in super::super) fn prune(&self, incarnation: Incarnation, participant: u16, sequences: &[i64]) -> String {
        let sequences: Vec<_> = sequences.iter().map(ToString::to_string).collect();
        format!(
            "DELETE FROM {} WHERE incarnation = {} AND branch = {participant} AND sequence IN ({})",
            self.witness,
            incarnation.to_sql(),
            sequences.join(", ")
        )
    }

    /// The node of a registration.
    pub(in super::super) fn node_of(&self, incarnation: Incarnation, participant: u16) -> String {
        format!(
            "SELECT node FROM {} WHERE node <> '{LINEAGE_NODE}' AND incarnation = {} AND participant = {participant}",
            self.incarnation,
            incarnation.to_sql()
        )
    }

    /// Deletes a registration by its whole primary key.
    pub(in super::super) fn unregister(&self, node: &NodeName, incarnation: Incarnation, participant: u16) -> String {
        format!(
            "DELETE FROM {} WHERE node = '{node}' AND incarnation = {} AND participant = {participant}",
            self.incarnation,
            incarnation.to_sql()
        )
    }
}
