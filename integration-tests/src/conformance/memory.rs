//! The harness of the reference participant.

use super::{Harness, Setup, Which};
use handfast::Result;
use handfast::id::{BranchId, Incarnation, SessionName};
use handfast::participant::memory::{Memory, MemoryServer, MemorySession};
use handfast::participant::{Branch, Claim, Participant};
use std::sync::Arc;

/// A database in memory.
pub struct MemoryHarness {
    server: Arc<MemoryServer>,
}

fn session(branch: &dyn Branch) -> Arc<MemorySession> {
    branch.handle().downcast().expect("the handle of a branch in memory")
}

impl Harness for MemoryHarness {
    const APPLICATION_CAN_END: bool = true;

    async fn new() -> Self {
        Self { server: MemoryServer::new() }
    }

    async fn sibling(&self) -> Self {
        Self::new().await
    }

    fn participant(&self, name: &str, setup: Setup) -> Box<dyn Participant> {
        Box::new(Memory::new(name.parse().unwrap(), self.server.clone(), setup.witness))
    }

    async fn write(&self, branch: &dyn Branch, row: i64, value: i64) -> Result<()> {
        session(branch).write(row, value).await
    }

    async fn read(&self, branch: &dyn Branch, row: i64) -> Result<Option<i64>> {
        session(branch).read(row)
    }

    async fn fail(&self, branch: &dyn Branch) {
        session(branch).fail().unwrap_err();
    }

    async fn end(&self, branch: &dyn Branch, commit: bool, then_begin: bool) {
        session(branch).end(commit).unwrap();
        if then_begin {
            session(branch).begin().unwrap();
        }
    }

    async fn value(&self, row: i64) -> Option<i64> {
        self.server.value(row)
    }

    async fn is_locked(&self, row: i64) -> bool {
        self.server.is_locked(row)
    }

    async fn kill(&self, session: SessionName) -> bool {
        self.server.end_session(session)
    }

    async fn sessions(&self, incarnation: Incarnation) -> usize {
        self.server.sessions(incarnation)
    }

    async fn end_resolver(&self, participant: &dyn Participant, _claim: Claim) -> bool {
        let was_held = participant.holds();
        self.server.end_resolvers();
        was_held
    }

    async fn end_connection(&self, which: Which, participant: &dyn Participant, claim: Claim) -> bool {
        // Its resolver has no connection to lose.
        which == Which::Lease && self.end_resolver(participant, claim).await
    }

    async fn prepare_foreign(&self, name: &str) {
        self.server.prepare_foreign(name);
    }

    async fn end_foreign(&self, name: &str) -> bool {
        self.server.roll_back_by_hand(name)
    }

    async fn type_in(&self, statement: &str) -> bool {
        match statement.split_once(' ') {
            Some(("COMMIT", name)) => self.server.commit_by_hand(name),
            Some(("ROLLBACK", name)) => self.server.roll_back_by_hand(name),
            _ => false,
        }
    }

    async fn finish_by_hand(&self, branch: &BranchId, commit: bool) -> bool {
        let name = branch.to_string();
        if commit { self.server.commit_by_hand(&name) } else { self.server.roll_back_by_hand(&name) }
    }
}
