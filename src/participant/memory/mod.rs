//! The reference participant: a database in memory that keeps the contract, and breaks the way real ones do.
//!
//! A [`MemoryServer`] is the database. [`Memory`] is a participant on it; several may share one. The application works
//! through a [`MemorySession`]: numbered rows, locked when written. A wait for a lock ends by the lock timeout or as
//! a deadlock.
//!
//! Tests arm *faults*: the next call of a [`Step`] loses its request or its answer, fails, or hangs.
//! [`MemoryServer::restart`] ends all sessions as a crash does: open transactions are gone, prepared branches, rows and
//! witnesses stay.

mod anchor;
mod branch;
mod session;
mod state;

use self::branch::MemoryBranch;
pub use self::session::MemorySession;
use self::state::{Row, Session, State, Work, lost};
use super::anchor::Anchor;
use super::lease::Claimed;
use super::pool::refuse_running;
use super::witness::{Key, Kind, Witnessed, new_lineage};
use super::{
    Answer, BeginOptions, BoxFuture, Branch, Claim, Evidence, Finding, Participant, Prunable, Question, Registered,
    Registration, Server, Sighted, Sighting,
};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{BranchId, Incarnation, Lineage, ParticipantName, SessionName, TransactionId};
use crate::protocol::{Finish, Mode, Resolution};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;
use tokio::sync::Notify;

/// A call that a fault can be armed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// [`Participant::identify`]
    Identify,
    /// [`Participant::register`] and [`Participant::init`]
    Register,
    /// [`Participant::begin`]
    Begin,
    /// [`Branch::prepare`]
    Prepare,
    /// [`Branch::end_read_only`]
    EndReadOnly,
    /// [`Branch::commit_one_phase`]
    CommitOnePhase,
    /// [`Branch::commit`]
    Commit,
    /// [`Branch::roll_back`]
    RollBack,
    /// [`Participant::list`]
    List,
    /// [`Participant::commit`]
    CommitFromOutside,
    /// [`Participant::roll_back`]
    RollBackFromOutside,
    /// [`Participant::ask`]
    Ask,
    /// [`Participant::end_sessions`]
    EndSessions,
    /// [`Participant::witnessed`]
    Witnessed,
    /// [`Participant::hold`]
    Hold,
    /// [`Participant::registry`]
    Registry,
    /// [`Participant::prune`], and [`Anchor::clear`]
    Prune,
    /// [`Branch::commit_anchor`]
    CommitAnchor,
    /// [`Anchor::kept`]
    Kept,
    /// [`Anchor::keep`]
    Keep,
    /// [`Anchor::decisions`]
    Decisions,
    /// [`Anchor::held`]
    Held,
}

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// It never reaches the server, and its session is lost.
    LoseRequest,
    /// The server acts, but the answer and the session are lost.
    LoseAnswer,
    /// The server refuses it: a vote is `No`.
    Refuse,
    /// It does not act and never answers.
    Hang,
    /// A bug in the participant: it panics, before the server hears of it.
    Panic,
}

/// A database in memory.
#[derive(Default)]
pub struct MemoryServer {
    state: Mutex<State>,
    /// Told whenever a lock may have become free.
    changed: Notify,
}

impl MemoryServer {
    /// An empty database.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A test that panicked while it held the lock has failed already.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let result = act(&mut self.state());
        self.changed.notify_waiters();
        result
    }

    /// Arms a fault for the next call of a step that has none yet.
    pub fn arm(&self, step: Step, fault: Fault) {
        self.state().faults.entry(step).or_default().push_back(fault);
    }

    /// Takes back the faults of a step that have not happened.
    pub fn disarm(&self, step: Step) {
        self.state().faults.remove(&step);
    }

    /// How often a step was called.
    pub fn calls(&self, step: Step) -> u64 {
        self.state().calls.get(&step).copied().unwrap_or(0)
    }

    fn fault(&self, step: Step) -> Option<Fault> {
        let mut state = self.state();
        *state.calls.entry(step).or_default() += 1;
        state.faults.get_mut(&step)?.pop_front()
    }

    /// Ends every session as a crash does.
    pub fn restart(&self) {
        self.change(|state| {
            let sessions: Vec<_> = state.sessions.keys().copied().collect();
            for session in sessions {
                state.end_session(session);
            }
            state.leases.clear();
        });
    }

    /// Ends the connections of all resolvers: every lease is free for whoever asks first.
    pub fn end_resolvers(&self) {
        self.state().leases.clear();
    }

    /// Ends the sessions of one name; whether there was one.
    pub fn end_session(&self, name: SessionName) -> bool {
        self.change(|state| {
            let named = |(number, session): (&u64, &Session)| (session.name == name).then_some(*number);
            let sessions: Vec<_> = state.sessions.iter().filter_map(named).collect();
            sessions.into_iter().fold(false, |any, session| state.end_session(session) | any)
        })
    }

    /// The committed value of a row.
    pub fn value(&self, row: i64) -> Option<i64> {
        self.state().rows.get(&row).copied()
    }

    /// Whether a transaction, open or prepared, holds a row.
    pub fn is_locked(&self, row: i64) -> bool {
        self.state().locks.contains_key(&row)
    }

    /// The prepared transactions, by name.
    pub fn prepared_names(&self) -> Vec<String> {
        self.state().prepared.keys().cloned().collect()
    }

    /// How many witnesses and fences there are.
    pub fn witnesses(&self) -> usize {
        self.state().witness.len()
    }

    /// How many sessions of an incarnation there are.
    pub fn sessions(&self, incarnation: Incarnation) -> usize {
        self.state().sessions.values().filter(|session| session.name.incarnation == incarnation).count()
    }

    /// Prepares a transaction of another program, which writes nothing.
    pub fn prepare_foreign(&self, name: &str) {
        let mut state = self.state();
        let number = state.number();
        let work = Work { number, marker: None, writable: true, failed: false, writes: BTreeMap::new(), witness: None };
        state.prepared.insert(name.to_owned(), work);
    }

    /// Rolls back a prepared transaction by its name; whether it was there.
    pub fn roll_back_by_hand(&self, name: &str) -> bool {
        self.change(|state| state.roll_back_prepared(name).is_ok())
    }

    /// Commits a prepared transaction by its name; whether it was there.
    pub fn commit_by_hand(&self, name: &str) -> bool {
        self.change(|state| state.commit_prepared(name).is_ok())
    }
}

/// A participant on a [`MemoryServer`].
pub struct Memory {
    name: ParticipantName,
    server: Arc<MemoryServer>,
    witness: bool,
    registered: OnceLock<SessionName>,
    slots: Mutex<u32>,
    closed: AtomicBool,
    /// Tells its resolver from others.
    number: u64,
    claimed: Claimed,
}

impl Memory {
    /// A participant under a name; with `witness` false it keeps no proof of commits.
    pub fn new(name: ParticipantName, server: Arc<MemoryServer>, witness: bool) -> Self {
        let number = server.state().number();
        Self {
            name,
            server,
            witness,
            registered: OnceLock::new(),
            slots: Mutex::new(0),
            closed: AtomicBool::new(false),
            number,
            claimed: Claimed::default(),
        }
    }

    /// A call of the resolver: of nobody who has made a claim and does not hold the lease.
    async fn control<T>(&self, step: Step, act: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        let claimed = |state: &mut State| {
            self.claimed.get().map_or(Ok(()), |claim| state.hold(self.name, claim, self.number))?;
            act(state)
        };
        self.call(step, claimed).await
    }

    fn do_lease(&self) -> Option<u64> {
        let state = self.server.state();
        let ours = state.leases.values().find(|holder| holder.resolver == self.number);
        ours.map(|holder| holder.taken)
    }

    fn let_go(&self) {
        self.claimed.give_up();
        self.server.state().leases.retain(|_, holder| holder.resolver != self.number);
    }

    /// Lets an armed fault have its way with a call that is not bound to a session.
    async fn call<T>(&self, step: Step, act: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        let fault = self.server.fault(step);
        let lost = || Err(lost().at(self.name));
        match fault {
            None => self.server.change(act).map_err(|error| error.at(self.name)),
            Some(Fault::LoseAnswer) => self.server.change(act).and_then(|_| lost()),
            Some(Fault::LoseRequest) => lost(),
            Some(Fault::Refuse) => Err(Error::new(ErrorKind::Setup, "refused, as armed").at(self.name)),
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::Panic) => panic!("{}: a bug in {step:?}, as armed", self.name),
        }
    }

    async fn finish(&self, step: Step, act: impl FnOnce(&mut State) -> Result<()>) -> Answer<Finish> {
        match self.control(step, act).await {
            Ok(()) => Answer::good(Finish::Done),
            Err(cause) => Answer::because(Finish::Unknown, cause),
        }
    }

    async fn do_init(&self) -> Result<Lineage> {
        let fresh = new_lineage()?;
        self.control(Step::Register, |state| Ok(*state.lineage.get_or_insert(fresh))).await
    }

    async fn do_register(&self, registration: &Registration) -> Result<Lineage> {
        let refused = |message: String| Err(Error::new(ErrorKind::Refused, message));
        let Registration { node, incarnation, journal, decision, participant, expected, host } = registration.clone();
        self.claimed.claim(self.name, registration.claim())?;
        let fresh = new_lineage()?;
        let act = |state: &mut State| {
            if expected.is_some() && expected != state.lineage {
                return refused(format!(
                    "the server is of lineage {:?}, the journal knows {expected:?}",
                    state.lineage
                ));
            }
            let lineage = *state.lineage.get_or_insert(fresh);
            let row = Row { journal, decision, host, opened: Instant::now() };
            let known = state.incarnations.entry((node, incarnation, participant)).or_insert(row).journal;
            if !self.witness {
                state.witness.insert(Key::of_incarnation(incarnation, participant), Kind::Off);
            }
            if known == journal { Ok(lineage) } else { refused(format!("{incarnation} is of journal {known}")) }
        };
        let lineage = self.control(Step::Register, act).await?;
        let name = *self.registered.get_or_init(|| SessionName { incarnation, participant, slot: 0 });
        if (name.incarnation, name.participant) != (incarnation, participant) {
            return refused(format!("this participant works for incarnation {} already", name.incarnation));
        }
        Ok(lineage)
    }

    async fn do_begin(&self, transaction: TransactionId, options: BeginOptions) -> Result<Box<dyn Branch>> {
        let registered = self.registered.get().filter(|name| name.incarnation == transaction.incarnation);
        let Some(registered) = registered.copied() else {
            let message = format!("incarnation {} is not registered here", transaction.incarnation);
            return Err(Error::new(ErrorKind::Refused, message).at(self.name));
        };
        if self.closed.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Closed, "the participant is closed").at(self.name));
        }
        let slot = {
            let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            *slots = slots.wrapping_add(1);
            *slots
        };
        let id = transaction.branch(registered.participant, slot);
        let act = |state: &mut State| {
            let number = state.number();
            state.sessions.insert(number, Session { name: id.session(), work: None });
            state.begin(number, Some(id), options.mode == Mode::Writer).map(|()| number)
        };
        let number = self.call(Step::Begin, act).await?;
        let (server, lock_timeout) = (self.server.clone(), options.lock_timeout);
        let session = Arc::new(MemorySession { server, number, lock_timeout });
        Ok(Box::new(MemoryBranch::new(id, options.mode, session, self.witness)))
    }
}

impl Participant for Memory {
    fn name(&self) -> ParticipantName {
        self.name
    }

    fn kind(&self) -> &'static str {
        "memory"
    }

    fn identify(&self) -> BoxFuture<'_, Result<Server>> {
        let describe = |state: &mut State| Ok(Server { description: "memory".into(), lineage: state.lineage });
        Box::pin(self.control(Step::Identify, describe))
    }

    fn register<'a>(&'a self, registration: &'a Registration) -> BoxFuture<'a, Result<Lineage>> {
        Box::pin(self.do_register(registration))
    }

    fn setup_sql(&self) -> String {
        String::new()
    }

    /// It has no settings: that it answers is all there is to find out.
    fn check(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        Box::pin(async {
            self.identify().await?;
            Ok(vec![Finding::good("server", "a database in memory needs nothing")])
        })
    }

    fn init(&self) -> BoxFuture<'_, Result<Lineage>> {
        Box::pin(self.do_init())
    }

    fn begin<'a>(
        &'a self,
        transaction: TransactionId,
        options: BeginOptions,
    ) -> BoxFuture<'a, Result<Box<dyn Branch>>> {
        Box::pin(self.do_begin(transaction, options))
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Sighting>>> {
        let sighted = |name: &String| name.parse().map_or_else(|_| Sighted::Foreign(name.clone()), Sighted::Ours);
        let list = move |state: &mut State| {
            Ok(state.prepared.keys().map(|name| Sighting { branch: sighted(name), age: None }).collect())
        };
        Box::pin(self.control(Step::List, list))
    }

    fn commit<'a>(&'a self, branch: &'a BranchId) -> BoxFuture<'a, Answer<Finish>> {
        Box::pin(self.finish(Step::CommitFromOutside, |state| state.commit_prepared(&branch.to_string())))
    }

    fn roll_back<'a>(&'a self, branch: &'a BranchId) -> BoxFuture<'a, Answer<Finish>> {
        Box::pin(self.finish(Step::RollBackFromOutside, |state| state.roll_back_prepared(&branch.to_string())))
    }

    fn ask<'a>(&'a self, branch: &'a BranchId, question: Question) -> BoxFuture<'a, Result<Evidence>> {
        let witness = self.witness;
        let ask = move |state: &mut State| Ok(if witness { state.ask(branch, question) } else { Evidence::Off });
        Box::pin(self.control(Step::Ask, ask))
    }

    fn end_session<'a>(&'a self, session: SessionName) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move { Ok(self.server.end_session(session)) })
    }

    fn end_sessions<'a>(&'a self, participant: u16, incarnations: &'a [Incarnation]) -> BoxFuture<'a, Result<usize>> {
        Box::pin(self.control(Step::EndSessions, move |state| Ok(state.end_sessions(participant, incarnations))))
    }

    fn witnessed<'a>(
        &'a self,
        participant: u16,
        incarnations: &'a [Incarnation],
        from: u64,
    ) -> BoxFuture<'a, Result<Vec<Witnessed>>> {
        Box::pin(self.control(Step::Witnessed, move |state| Ok(state.witnessed(participant, incarnations, from))))
    }

    fn hold(&self, claim: Claim) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.claimed.claim(self.name, claim)?;
            self.control(Step::Hold, |_| Ok(())).await
        })
    }

    fn lease(&self) -> Option<u64> {
        self.do_lease()
    }

    fn anchor(&self) -> Option<&dyn Anchor> {
        Some(self)
    }

    fn registry(&self) -> BoxFuture<'_, Result<Vec<Registered>>> {
        Box::pin(self.control(Step::Registry, |state| Ok(state.registry())))
    }

    fn prune(&self, what: Prunable) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            if let Prunable::Settled { incarnation, .. } = what {
                refuse_running(self.name, self.claimed.get(), incarnation)?;
            }
            self.control(Step::Prune, move |state| Ok(state.prune(what))).await
        })
    }

    fn statement(&self, branch: &BranchId, resolution: Resolution) -> Option<String> {
        let verb = match resolution {
            Resolution::Commit => "COMMIT",
            Resolution::RollBack => "ROLLBACK",
        };
        Some(format!("{verb} {branch}"))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.closed.store(true, Ordering::Relaxed);
        self.let_go();
        Box::pin(async {})
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.let_go();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::JournalId;
    use crate::protocol::Vote;
    use std::time::Duration;

    const TRANSACTION: &str = "hf1.n.0000000000000001.1";

    async fn begun(server: &Arc<MemoryServer>) -> (Memory, Box<dyn Branch>) {
        let memory = Memory::new("m".parse().unwrap(), server.clone(), true);
        let registration = Registration {
            node: "n".parse().unwrap(),
            incarnation: Incarnation(1),
            journal: JournalId(1),
            decision: crate::config::Decision::Journal,
            participant: 0,
            host: "h".into(),
            expected: None,
        };
        memory.register(&registration).await.unwrap();
        let options = BeginOptions {
            mode: Mode::Writer,
            isolation: crate::participant::Isolation::Default,
            lock_timeout: Duration::from_secs(1),
        };
        let branch = memory.begin(TRANSACTION.parse().unwrap(), options).await.unwrap();
        branch.handle().downcast::<MemorySession>().ok().unwrap().write(1, 10).await.unwrap();
        (memory, branch)
    }

    #[tokio::test]
    async fn a_lost_answer_leaves_a_prepared_branch_a_lost_request_none() {
        for (fault, listed) in [(Fault::LoseAnswer, 1), (Fault::LoseRequest, 0)] {
            let server = MemoryServer::new();
            let (memory, mut branch) = begun(&server).await;
            server.arm(Step::Prepare, fault);
            assert_eq!(branch.prepare().await.value, Vote::Unknown);
            assert_eq!(branch.roll_back().await.value, Finish::Unknown);
            assert_eq!(memory.list().await.unwrap().len(), listed);
            assert_eq!(server.is_locked(1), listed == 1);
        }
    }

    #[tokio::test]
    async fn a_refused_prepare_is_a_no_and_a_hanging_one_never_answers() {
        let server = MemoryServer::new();
        let (_memory, mut branch) = begun(&server).await;
        server.arm(Step::Prepare, Fault::Refuse);
        assert_eq!(branch.prepare().await.value, Vote::No);
        assert!(!server.is_locked(1));
        drop(branch);
        let (_memory, mut branch) = begun(&server).await;
        server.arm(Step::Prepare, Fault::Hang);
        assert!(futures_util::FutureExt::now_or_never(branch.prepare()).is_none());
        assert_eq!(branch.roll_back().await.value, Finish::Done);
    }

    #[tokio::test]
    async fn a_restart_keeps_what_is_prepared_and_loses_what_is_open() {
        let server = MemoryServer::new();
        let (memory, mut prepared) = begun(&server).await;
        assert_eq!(prepared.prepare().await.value, Vote::Prepared);
        server.restart();
        assert_eq!(prepared.commit().await.value, Finish::Unknown);
        assert_eq!(memory.list().await.unwrap().len(), 1);
        server.arm(Step::List, Fault::LoseAnswer);
        memory.list().await.unwrap_err();
        assert_eq!(memory.commit(&prepared.id()).await.value, Finish::Done);
        assert_eq!(server.value(1), Some(10));

        let (memory, mut open) = begun(&server).await;
        server.restart();
        assert_eq!(open.prepare().await.value, Vote::Unknown);
        assert!(memory.list().await.unwrap().is_empty());
        assert!(!server.is_locked(1));
    }
}
