//! The reference participant: a database in memory that keeps the contract, and breaks the way real ones do.
//!
//! A [`MemoryServer`] is the database. [`Memory`] is a participant on it; several may share one. The application works
//! through a [`MemorySession`]: numbered rows, locked when written. A wait for a lock ends by the lock timeout or as
//! a deadlock.
//!
//! Tests arm *faults*: the next call of a [`Step`] loses its request or its answer, fails, or hangs.
//! [`MemoryServer::restart`] ends all sessions as a crash does: open transactions are gone, prepared branches, rows and
//! witnesses stay.

use super::witness::{Key, Kind, new_lineage};
use super::{
    Answer, BeginOptions, BoxFuture, Branch, Evidence, Participant, Question, Registration, Server, Sighted, Sighting,
};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{BranchId, Incarnation, JournalId, Lineage, NodeName, ParticipantName, SessionName, TransactionId};
use crate::protocol::{Finish, Mode, Vote};
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
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
}

/// A database in memory.
#[derive(Default)]
pub struct MemoryServer {
    state: Mutex<State>,
    /// Told whenever a lock may have become free.
    changed: Notify,
}

#[derive(Default)]
struct State {
    next: u64,
    rows: BTreeMap<i64, i64>,
    witness: BTreeMap<Key, Kind>,
    lineage: Option<Lineage>,
    incarnations: BTreeMap<(NodeName, Incarnation, u16), JournalId>,
    sessions: BTreeMap<u64, Session>,
    prepared: BTreeMap<String, Work>,
    /// Which transaction holds a row, and which waits for one.
    locks: BTreeMap<i64, u64>,
    waits: BTreeMap<u64, i64>,
    faults: BTreeMap<Step, VecDeque<Fault>>,
}

struct Session {
    name: SessionName,
    work: Option<Work>,
}

/// A transaction's work.
struct Work {
    number: u64,
    /// The branch it was begun for: the guard.
    marker: Option<BranchId>,
    writable: bool,
    failed: bool,
    writes: BTreeMap<i64, i64>,
    witness: Option<(Key, Kind)>,
}

fn lost() -> Error {
    Error::new(ErrorKind::Unavailable, "the session is lost")
}

fn failed() -> Error {
    Error::new(ErrorKind::Statement, "a statement failed: the transaction can only be rolled back")
}

impl State {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn begin(&mut self, session: u64, marker: Option<BranchId>, writable: bool) -> Result<()> {
        let number = self.number();
        let session = self.sessions.get_mut(&session).ok_or_else(lost)?;
        let work = Work { number, marker, writable, failed: false, writes: BTreeMap::new(), witness: None };
        session.work = Some(work);
        Ok(())
    }

    fn work(&mut self, session: u64) -> Result<&mut Work> {
        let none = || Error::new(ErrorKind::Statement, "no transaction is open");
        self.sessions.get_mut(&session).ok_or_else(lost)?.work.as_mut().ok_or_else(none)
    }

    fn take_work(&mut self, session: u64) -> Option<Work> {
        self.sessions.get_mut(&session)?.work.take()
    }

    fn apply(&mut self, work: Work) {
        self.locks.retain(|_, holder| *holder != work.number);
        self.rows.extend(work.writes);
        self.witness.extend(work.witness);
    }

    fn discard(&mut self, work: &Work) {
        self.locks.retain(|_, holder| *holder != work.number);
        self.waits.remove(&work.number);
    }

    fn end_session(&mut self, session: u64) -> bool {
        let Some(ended) = self.sessions.remove(&session) else { return false };
        if let Some(work) = ended.work {
            self.discard(&work);
        }
        true
    }

    /// Whether waiting for a row would close a circle of transactions that wait for each other.
    fn is_deadlock(&self, waiting: u64, row: i64) -> bool {
        let mut seen = BTreeSet::new();
        let mut row = row;
        while let Some(holder) = self.locks.get(&row) {
            if *holder == waiting {
                return true;
            }
            match self.waits.get(holder) {
                Some(next) if seen.insert(*holder) => row = *next,
                _ => return false,
            }
        }
        false
    }

    /// One attempt to write: `None` means wait.
    fn write(&mut self, session: u64, row: i64, value: i64) -> Option<Result<()>> {
        let work = match self.work(session) {
            Ok(work) if work.failed || !work.writable => return Some(self.fail(session, failed())),
            Ok(work) => work.number,
            Err(error) => return Some(Err(error)),
        };
        match self.locks.get(&row) {
            Some(holder) if *holder != work => {
                if self.is_deadlock(work, row) {
                    return Some(self.fail(session, Error::new(ErrorKind::Retry, "deadlock")));
                }
                self.waits.insert(work, row);
                None
            }
            _ => {
                self.waits.remove(&work);
                self.locks.insert(row, work);
                Some(self.work(session).map(|work| {
                    work.writes.insert(row, value);
                }))
            }
        }
    }

    fn fail(&mut self, session: u64, error: Error) -> Result<()> {
        let work = self.work(session)?;
        work.failed = true;
        let number = work.number;
        self.waits.remove(&number);
        Err(error)
    }

    /// Takes the branch's transaction off its session, when it is still the one that was begun and unharmed.
    fn guarded(&mut self, session: u64, branch: &BranchId) -> Result<Work, Vote> {
        if !self.sessions.contains_key(&session) {
            return Err(Vote::Unknown);
        }
        let Some(work) = self.take_work(session) else { return Err(Vote::Lost) };
        let vote = match work.marker {
            Some(marker) if marker == *branch && !work.failed => return Ok(work),
            Some(marker) if marker == *branch => Vote::No,
            _ => Vote::Lost,
        };
        self.discard(&work);
        Err(vote)
    }

    /// Gives the work its witness, unless a fence or another's witness is in its place.
    fn attest(&mut self, mut work: Work, branch: &BranchId, kind: Kind, on: bool) -> Result<Work, Vote> {
        if !work.writable || self.witness.contains_key(&Key::from(branch)) {
            self.discard(&work);
            return Err(Vote::No);
        }
        work.witness = on.then(|| (Key::from(branch), kind));
        Ok(work)
    }

    fn prepare(&mut self, session: u64, branch: &BranchId, witness: bool) -> Result<(), Vote> {
        let work = self.guarded(session, branch)?;
        let work = self.attest(work, branch, Kind::Decided, witness)?;
        self.prepared.insert(branch.to_string(), work);
        Ok(())
    }

    fn commit_one_phase(&mut self, session: u64, branch: &BranchId, witness: bool) -> Result<(), Vote> {
        let work = self.guarded(session, branch)?;
        let work = self.attest(work, branch, Kind::OnePhase, witness)?;
        self.apply(work);
        Ok(())
    }

    fn commit_prepared(&mut self, name: &str) -> Result<()> {
        let work = self.prepared.remove(name).ok_or_else(|| unknown(name))?;
        self.apply(work);
        Ok(())
    }

    fn roll_back_prepared(&mut self, name: &str) -> Result<()> {
        let work = self.prepared.remove(name).ok_or_else(|| unknown(name))?;
        self.discard(&work);
        Ok(())
    }

    fn ask(&mut self, branch: &BranchId, question: Question) -> Evidence {
        let key = Key::from(branch);
        if let Some(kind) = self.witness.get(&key) {
            return kind.evidence();
        }
        let held = self.prepared.values().any(|work| work.witness.is_some_and(|(held, _)| held == key));
        match question {
            Question::Look => Evidence::Nothing,
            Question::Fence if held => Evidence::Blocked,
            Question::Fence => {
                self.witness.insert(key, Kind::Fence);
                Evidence::Never
            }
        }
    }
}

fn unknown(name: &str) -> Error {
    Error::new(ErrorKind::Statement, format!("prepared branch {name} does not exist"))
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

    fn fault(&self, step: Step) -> Option<Fault> {
        self.state().faults.get_mut(&step)?.pop_front()
    }

    /// Ends every session as a crash does.
    pub fn restart(&self) {
        self.change(|state| {
            let sessions: Vec<_> = state.sessions.keys().copied().collect();
            for session in sessions {
                state.end_session(session);
            }
        });
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

/// What the application works through.
pub struct MemorySession {
    server: Arc<MemoryServer>,
    number: u64,
    lock_timeout: Duration,
}

impl MemorySession {
    /// Writes a row, waiting for its lock.
    ///
    /// # Errors
    /// [`ErrorKind::Retry`] for a deadlock or a lock that was not given in time, [`ErrorKind::Statement`] in a failed
    /// or read-only transaction; all of them doom the transaction.
    ///
    /// # Cancel safety
    /// Dropped while it waits, it has written nothing.
    pub async fn write(&self, row: i64, value: i64) -> Result<()> {
        let attempts = async {
            loop {
                let changed = self.server.changed.notified();
                let mut changed = std::pin::pin!(changed);
                changed.as_mut().enable();
                if let Some(result) = self.server.state().write(self.number, row, value) {
                    return result;
                }
                changed.await;
            }
        };
        let late = |_| self.server.state().fail(self.number, Error::new(ErrorKind::Retry, "lock timeout"));
        let result = tokio::time::timeout(self.lock_timeout, attempts).await.unwrap_or_else(late);
        self.server.changed.notify_waiters();
        result
    }

    /// Reads a row as its transaction sees it.
    ///
    /// # Errors
    /// [`ErrorKind::Statement`] in a failed transaction or outside any.
    pub fn read(&self, row: i64) -> Result<Option<i64>> {
        let mut state = self.server.state();
        let work = state.work(self.number)?;
        if work.failed {
            return Err(failed());
        }
        let own = work.writes.get(&row).copied();
        Ok(own.or_else(|| state.rows.get(&row).copied()))
    }

    /// A statement that fails and dooms its transaction.
    ///
    /// # Errors
    /// Always.
    pub fn fail(&self) -> Result<()> {
        self.server.state().fail(self.number, failed())
    }

    /// Ends the transaction behind the bridge's back.
    ///
    /// # Errors
    /// When no transaction is open.
    pub fn end(&self, commit: bool) -> Result<()> {
        self.server.change(|state| {
            state.work(self.number)?;
            match state.take_work(self.number) {
                Some(work) if commit && !work.failed => state.apply(work),
                Some(work) => state.discard(&work),
                None => {}
            }
            Ok(())
        })
    }

    /// Begins another transaction behind the bridge's back.
    ///
    /// # Errors
    /// When the session is lost.
    pub fn begin(&self) -> Result<()> {
        self.server.state().begin(self.number, None, true)
    }
}

/// A participant on a [`MemoryServer`].
pub struct Memory {
    name: ParticipantName,
    server: Arc<MemoryServer>,
    witness: bool,
    registered: OnceLock<SessionName>,
    slots: Mutex<u32>,
}

impl Memory {
    /// A participant under a name; with `witness` false it keeps no proof of commits.
    pub fn new(name: ParticipantName, server: Arc<MemoryServer>, witness: bool) -> Self {
        Self { name, server, witness, registered: OnceLock::new(), slots: Mutex::new(0) }
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
        }
    }

    async fn finish(&self, step: Step, act: impl FnOnce(&mut State) -> Result<()>) -> Answer<Finish> {
        match self.call(step, act).await {
            Ok(()) => Answer::good(Finish::Done),
            Err(cause) => Answer::because(Finish::Unknown, cause),
        }
    }

    async fn do_init(&self) -> Result<Lineage> {
        let fresh = new_lineage()?;
        self.call(Step::Register, |state| Ok(*state.lineage.get_or_insert(fresh))).await
    }

    async fn do_register(&self, registration: &Registration) -> Result<Lineage> {
        let refused = |message: String| Err(Error::new(ErrorKind::Refused, message));
        let Registration { node, incarnation, journal, participant, expected, .. } = registration.clone();
        let fresh = new_lineage()?;
        let act = |state: &mut State| {
            if expected.is_some() && expected != state.lineage {
                return refused(format!(
                    "the server is of lineage {:?}, the journal knows {expected:?}",
                    state.lineage
                ));
            }
            let lineage = *state.lineage.get_or_insert(fresh);
            let known = *state.incarnations.entry((node, incarnation, participant)).or_insert(journal);
            if known == journal { Ok(lineage) } else { refused(format!("{incarnation} is of journal {known}")) }
        };
        let lineage = self.call(Step::Register, act).await?;
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
        Ok(Box::new(MemoryBranch { id, session, witness: self.witness, asked: false, rolled_back: false }))
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
        Box::pin(self.call(Step::Identify, describe))
    }

    fn register<'a>(&'a self, registration: &'a Registration) -> BoxFuture<'a, Result<Lineage>> {
        Box::pin(self.do_register(registration))
    }

    fn setup_sql(&self) -> String {
        String::new()
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
        Box::pin(self.call(Step::List, list))
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
        Box::pin(self.call(Step::Ask, ask))
    }

    fn end_session<'a>(&'a self, session: SessionName) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move { Ok(self.server.end_session(session)) })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

struct MemoryBranch {
    id: BranchId,
    session: Arc<MemorySession>,
    witness: bool,
    /// It was asked to prepare.
    asked: bool,
    /// Proven to be, by a vote or an answer.
    rolled_back: bool,
}

impl MemoryBranch {
    /// Lets an armed fault have its way with a call on the session: `None` where the answer is lost.
    async fn call<T>(&self, step: Step, act: impl FnOnce(&mut State) -> T, refused: T) -> Option<T> {
        let server = &self.session.server;
        let end_session = |state: &mut State| state.end_session(self.session.number);
        match server.fault(step) {
            None => Some(server.change(act)),
            Some(Fault::LoseAnswer) => {
                server.change(act);
                server.change(end_session);
                None
            }
            Some(Fault::LoseRequest) => {
                server.change(end_session);
                None
            }
            Some(Fault::Refuse) => {
                server.change(|state| {
                    if let Some(work) = state.take_work(self.session.number) {
                        state.discard(&work);
                    }
                });
                Some(refused)
            }
            Some(Fault::Hang) => std::future::pending().await,
        }
    }

    fn vote(&mut self, answer: Option<Result<(), Vote>>, good: Vote) -> Answer<Vote> {
        let (vote, cause) = match answer {
            Some(Ok(())) => return Answer::good(good),
            Some(Err(vote)) => (vote, failed()),
            None => (Vote::Unknown, lost()),
        };
        self.rolled_back = vote == Vote::No;
        Answer::because(vote, cause)
    }

    async fn do_prepare(&mut self) -> Answer<Vote> {
        let (session, id, witness) = (self.session.number, self.id, self.witness);
        self.asked = true;
        let answer = self.call(Step::Prepare, |state| state.prepare(session, &id, witness), Err(Vote::No)).await;
        self.vote(answer, Vote::Prepared)
    }

    async fn do_end_read_only(&mut self) -> Answer<Vote> {
        let (session, id) = (self.session.number, self.id);
        let act = |state: &mut State| state.guarded(session, &id).map(|work| state.discard(&work));
        let answer = self.call(Step::EndReadOnly, act, Err(Vote::No)).await;
        self.vote(answer, Vote::ReadOnly)
    }

    async fn do_commit_one_phase(&mut self) -> Answer<Finish> {
        let (session, id, witness) = (self.session.number, self.id, self.witness);
        let act = |state: &mut State| state.commit_one_phase(session, &id, witness);
        let answer = self.call(Step::CommitOnePhase, act, Err(Vote::No)).await;
        let answer = self.vote(answer, Vote::Prepared);
        let finish = match answer.value {
            Vote::Prepared => Finish::Done,
            Vote::No => Finish::RolledBack,
            Vote::Lost => Finish::Lost,
            Vote::Unknown | Vote::ReadOnly => Finish::Unknown,
        };
        Answer { value: finish, cause: answer.cause }
    }

    fn finish(answer: Option<Result<()>>) -> Answer<Finish> {
        match answer {
            Some(Ok(())) => Answer::good(Finish::Done),
            Some(Err(cause)) => Answer::because(Finish::Unknown, cause),
            None => Answer::because(Finish::Unknown, lost()),
        }
    }

    async fn do_commit(&mut self) -> Answer<Finish> {
        let (session, name) = (self.session.number, self.id.to_string());
        let act = |state: &mut State| {
            if state.sessions.contains_key(&session) { state.commit_prepared(&name) } else { Err(lost()) }
        };
        Self::finish(self.call(Step::Commit, act, Err(failed())).await)
    }

    async fn do_roll_back(&mut self) -> Answer<Finish> {
        if self.rolled_back {
            return Answer::good(Finish::Done);
        }
        let (session, id, asked) = (self.session.number, self.id, self.asked);
        let act = |state: &mut State| roll_back(state, session, &id, asked);
        let answer = Self::finish(self.call(Step::RollBack, act, Err(failed())).await);
        self.rolled_back = answer.value == Finish::Done;
        answer
    }
}

/// Rolls back what is prepared, else what is open and still the branch's.
///
/// Nothing there after it was asked to prepare is a branch that somebody else ended, or that never was prepared;
/// nothing there before is a transaction that the application ended.
fn roll_back(state: &mut State, session: u64, branch: &BranchId, asked: bool) -> Result<()> {
    if !state.sessions.contains_key(&session) {
        return Err(lost());
    }
    if state.roll_back_prepared(&branch.to_string()).is_ok() {
        return Ok(());
    }
    match state.take_work(session) {
        Some(work) if work.marker == Some(*branch) => {
            state.discard(&work);
            Ok(())
        }
        Some(work) => {
            state.discard(&work);
            Err(failed())
        }
        None if asked && state.ask(branch, Question::Look) != Evidence::Committed => Ok(()),
        None => Err(failed()),
    }
}

impl Branch for MemoryBranch {
    fn id(&self) -> BranchId {
        self.id
    }

    fn handle(&self) -> Arc<dyn Any + Send + Sync> {
        self.session.clone()
    }

    fn prepare(&mut self) -> BoxFuture<'_, Answer<Vote>> {
        Box::pin(self.do_prepare())
    }

    fn end_read_only(&mut self) -> BoxFuture<'_, Answer<Vote>> {
        Box::pin(self.do_end_read_only())
    }

    fn commit_one_phase(&mut self) -> BoxFuture<'_, Answer<Finish>> {
        Box::pin(self.do_commit_one_phase())
    }

    fn commit(&mut self) -> BoxFuture<'_, Answer<Finish>> {
        Box::pin(self.do_commit())
    }

    fn roll_back(&mut self) -> BoxFuture<'_, Answer<Finish>> {
        Box::pin(self.do_roll_back())
    }
}

impl Drop for MemoryBranch {
    fn drop(&mut self) {
        self.session.server.change(|state| state.end_session(self.session.number));
    }
}
