//! The pump between one [`Coordinator`] and the world: carries out what it asks for, tells it what came of it.
//!
//! It runs in a task of its own, so that nothing an application does with its future stops a commit in the middle.
//! All that a coordinator asks for runs at once on this task; there is no order to keep here, since a coordinator
//! never asks for what depends on an answer that it has not heard.

mod unfinished;

use self::unfinished::Unfinished;
use super::{Engine, Taking, after, anchor, now_ms};
use crate::error::{Error, ErrorKind};
use crate::id::{BranchId, ParticipantName, TransactionId};
use crate::journal::PATIENCE;
use crate::participant::{Answer, BoxFuture, Branch};
use crate::protocol::{
    self, Acknowledge, CommitRecord, Coordinator, DamageRecord, DamagedBranch, Finish, Input, Outcome, Output, Record,
    Vote,
};
use crate::telemetry::Course;
use crate::torture::{self, Point, Request, Step};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, Sleep, sleep_until};
use tracing::{Instrument, Span};

/// A branch that takes part, and the session it works on.
pub(crate) struct Enlisted {
    pub info: protocol::Branch,
    pub branch: Box<dyn Branch>,
}

/// What the application is told.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub outcome: Outcome,
    /// The first thing that went wrong.
    pub cause: Option<Error>,
    /// What went wrong after it.
    pub cleanup: Vec<Error>,
    /// Committed, but not yet known to be applied here.
    pub pending: Vec<ParticipantName>,
}

/// What a transaction's end needs to know.
pub(crate) struct Job {
    pub engine: Arc<Engine>,
    pub id: TransactionId,
    pub enlisted: Vec<Enlisted>,
    pub acknowledge: Acknowledge,
    /// From then on only a decision already made commits it.
    pub deadline: Instant,
    /// The transaction's, wherever it began.
    pub span: Span,
}

/// A branch as the pump sees it.
struct Place {
    id: BranchId,
    participant: ParticipantName,
    session: Session,
    /// It was decided, and is not known to be committed yet.
    is_pending: bool,
}

impl Place {
    fn new(enlisted: Enlisted) -> Self {
        let Enlisted { info, branch } = enlisted;
        Self { id: info.id, participant: info.participant, session: Session::Idle(branch), is_pending: false }
    }
}

/// The session of a branch: at hand, lent to a request, or closed.
enum Session {
    Idle(Box<dyn Branch>),
    /// Dropped, the request is given up, and the session with it closed.
    Busy(BoxFuture<'static, Event>),
    Closed,
}

/// What came of a request. A session that did not come back is closed.
enum Event {
    Voted(BranchId, Option<Box<dyn Branch>>, Answer<Vote>),
    Finished(BranchId, Option<Box<dyn Branch>>, Answer<Finish>),
    Appended(Result<(), Error>),
    /// Damage was written down, or could not be.
    Remembered(Result<(), Error>),
}

/// What came of asking a branch to end. One that did not answer in time has a session that nobody uses any more.
fn finished(
    id: BranchId,
    branch: Box<dyn Branch>,
    patience: Duration,
    answer: Result<Answer<Finish>, Elapsed>,
) -> Event {
    match answer {
        Ok(answer) => Event::Finished(id, Some(branch), answer),
        Err(_) => {
            let silent = Error::new(ErrorKind::Unavailable, format!("no answer within {patience:?}"));
            Event::Finished(id, None, Answer::because(Finish::Unknown, silent))
        }
    }
}

/// A request within its span, where anybody listens to that.
fn traced(request: impl Future<Output = Event> + Send + 'static, span: Span) -> BoxFuture<'static, Event> {
    if span.is_disabled() { Box::pin(request) } else { Box::pin(request.instrument(span)) }
}

struct Pump {
    engine: Arc<Engine>,
    id: TransactionId,
    coordinator: Coordinator,
    /// All branches, with what is asked of them. There are few: to look at each is cheaper than to be told by which.
    places: Vec<Place>,
    /// What is asked of the journal.
    records: Vec<BoxFuture<'static, Event>>,
    /// Under which the branches are asked for their votes, by the numbers of their participants.
    leases: Vec<(u16, Option<Taking>)>,
    answer: Option<oneshot::Sender<Verdict>>,
    outcome: Option<Outcome>,
    causes: Vec<Error>,
    left: Vec<BranchId>,
    /// When to abort, before the decision; when to stop waiting for the journal, and then for phase two, after it.
    timer: Option<Instant>,
    /// The decision that the anchor was asked to commit, until it has answered.
    deciding: Option<CommitRecord>,
    /// The decision is durable.
    decided: bool,
    course: Course,
    /// The last to be dropped: should the pump meet a bug, its sessions are closed first.
    unfinished: Unfinished,
}

/// Ends a transaction: commits it, or rolls it back when `input` says so. Answers through `answer` as soon as the
/// outcome is certain, and goes on until every branch is finished or left to the resolver.
pub(crate) async fn run(mut job: Job, mut input: Input, answer: oneshot::Sender<Verdict>) {
    let unfinished = Unfinished::new(&job);
    let mut causes = Vec::new();
    if input == Input::Commit
        && let Err(error) = anchor::enlist(&mut job).await
    {
        causes.push(error);
        input = Input::Abort;
    }
    // Rings at the timer's time or before. It is moved only where it would ring too late, since hardly any commit waits for it.
    let mut alarm = pin!(sleep_until(job.deadline.min(after(PATIENCE))));
    let mut pump = Pump::new(job, &input, causes, answer, unfinished);
    torture::pass(Point::Step(Step::Ending), None).await;
    match input {
        Input::Commit => pump.tell_under_lease(input),
        _ => pump.tell(input),
    }
    while let Some(event) = poll_fn(|cx| pump.poll_next(alarm.as_mut(), cx)).await {
        pump.hear(event);
    }
    pump.end();
}

impl Pump {
    fn new(
        job: Job,
        input: &Input,
        causes: Vec<Error>,
        answer: oneshot::Sender<Verdict>,
        unfinished: Unfinished,
    ) -> Self {
        let Job { engine, id, enlisted, acknowledge, deadline, span } = job;
        let infos: Vec<_> = enlisted.iter().map(|enlisted| enlisted.info).collect();
        let leases = infos.iter().map(|info| (info.id.participant, engine.taking(info.id.participant))).collect();
        Self {
            course: Course::new(id, span, infos.iter().map(|info| info.participant)),
            coordinator: anchor::coordinator(&engine, id, infos, acknowledge),
            engine,
            id,
            places: enlisted.into_iter().map(Place::new).collect(),
            records: Vec::new(),
            leases,
            answer: Some(answer),
            outcome: None,
            causes,
            left: Vec::new(),
            timer: (*input == Input::Commit).then_some(deadline),
            deciding: None,
            decided: false,
            unfinished,
        }
    }

    fn place(&mut self, id: BranchId) -> &mut Place {
        let place = self.places.iter_mut().find(|place| place.id == id);
        place.expect("a coordinator, and a request, know its own branches alone")
    }

    /// Whether a decision was handed out that is not known to be carried out everywhere.
    fn is_pending(&self) -> bool {
        self.places.iter().any(|place| place.is_pending)
    }

    /// These branches are decided.
    fn set_pending(&mut self, decision: &CommitRecord, but: Option<BranchId>) {
        let decided = decision.branches.iter().map(|branch| branch.id);
        decided.filter(|id| Some(*id) != but).for_each(|id| self.place(id).is_pending = true);
    }

    /// Tells the coordinator, unless it is not the time for it any more: what is prepared under a lease is decided under
    /// the same one or not at all.
    fn tell_under_lease(&mut self, input: Input) {
        if self.outcome.is_none()
            && !self.is_pending()
            && let Some(cause) = self.engine.interrupted(&self.leases)
        {
            self.causes.push(cause);
            // Once is enough.
            self.leases.clear();
            self.tell(Input::Abort);
            if input == Input::Commit {
                return;
            }
        }
        self.tell(input);
    }

    /// The next event; `None` when nothing is under way any more.
    fn poll_next(&mut self, mut alarm: Pin<&mut Sleep>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        loop {
            if let Poll::Ready(event) = self.poll_requests(cx) {
                return Poll::Ready(event);
            }
            let Some(timer) = self.timer else { return Poll::Pending };
            if timer < alarm.deadline() || alarm.is_elapsed() {
                alarm.as_mut().reset(timer);
            }
            ready!(alarm.as_mut().poll(cx));
            if timer <= Instant::now() {
                self.time_is_up();
            }
        }
    }

    /// What comes first of all that is under way. A request that has ended is not asked again: its event takes it away.
    fn poll_requests(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        let mut is_idle = self.records.is_empty();
        for place in &mut self.places {
            let Session::Busy(request) = &mut place.session else { continue };
            is_idle = false;
            if let Poll::Ready(event) = request.as_mut().poll(cx) {
                return Poll::Ready(Some(event));
            }
        }
        for index in 0..self.records.len() {
            if let Poll::Ready(event) = self.records[index].as_mut().poll(cx) {
                drop(self.records.swap_remove(index));
                return Poll::Ready(Some(event));
            }
        }
        if is_idle { Poll::Ready(None) } else { Poll::Pending }
    }

    fn time_is_up(&mut self) {
        self.timer = None;
        if !self.is_pending() {
            self.causes
                .push(Error::new(ErrorKind::TimedOut, "the transaction's deadline passed before it was decided"));
            self.tell(Input::Abort);
        } else if self.decided {
            // The outcome cannot change, only the wait for it to be readable everywhere ends.
            self.answer(Outcome::Committed);
        } else {
            self.stop_waiting_for_the_journal();
        }
    }

    /// The decision is with the disk, which does not answer. It commits the transaction when it is durable, and nobody can
    /// say whether it will be: the application hears just that, and the coordinator goes on waiting.
    fn stop_waiting_for_the_journal(&mut self) {
        tracing::warn!(id = %self.id, wait = ?PATIENCE, "the journal does not answer: the application is told that the transaction is in doubt");
        let Some(answer) = self.answer.take() else { return };
        let text =
            format!("the journal has not answered within {PATIENCE:?}: see to its disk; the decision is on its way");
        let cause = Some(Error::new(ErrorKind::Journal, text));
        let verdict = Verdict { outcome: Outcome::InDoubt, cause, cleanup: Vec::new(), pending: Vec::new() };
        let _ = answer.send(verdict);
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::Voted(id, branch, answer) => {
                self.returned(id, branch, answer.cause);
                self.tell_under_lease(Input::Voted(id, answer.value));
            }
            Event::Finished(id, branch, answer) => {
                self.returned(id, branch, answer.cause);
                if answer.value == Finish::Done {
                    self.place(id).is_pending = false;
                }
                if let Some(decision) = self.deciding.take() {
                    self.anchor_answered(id, decision, answer.value);
                }
                self.tell(Input::Finished(id, answer.value));
            }
            Event::Appended(Ok(())) => self.decided(),
            Event::Appended(Err(error)) => {
                self.causes.push(error);
                self.tell(Input::AppendFailed);
            }
            Event::Remembered(written) => {
                self.causes.extend(written.err());
                self.tell(Input::Remembered);
            }
        }
    }

    /// A request has ended, and its session came back or was closed.
    fn returned(&mut self, id: BranchId, branch: Option<Box<dyn Branch>>, cause: Option<Error>) {
        let place = self.place(id);
        place.session = branch.map_or(Session::Closed, Session::Idle);
        let participant = place.participant;
        self.causes.extend(cause.map(|cause| cause.at(participant)));
    }

    fn decided(&mut self) {
        self.mark_decided();
        self.tell(Input::Durable);
    }

    /// From now on only the wait for it to be readable everywhere can end.
    fn mark_decided(&mut self) {
        self.decided = true;
        self.timer = Some(after(self.engine.transaction.apply_wait));
        for place in self.places.iter().filter(|place| place.is_pending) {
            self.engine.members[usize::from(place.id.participant)].decided(self.id.sequence);
        }
    }

    fn tell(&mut self, input: Input) {
        self.coordinator.handle(input);
        while let Some(output) = self.coordinator.poll() {
            self.carry_out(output);
        }
    }

    fn carry_out(&mut self, output: Output) {
        self.course.enter(&output);
        match output {
            Output::Prepare(id) => self.vote(id, Request::Prepare, |branch| branch.prepare()),
            Output::EndReadOnly(id) => self.vote(id, Request::EndReadOnly, |branch| branch.end_read_only()),
            Output::CommitAnchor(id, decision) => self.commit_anchor(id, decision),
            Output::CommitOnePhase(id) => {
                // Sent, it cannot be called back: its own answer decides, not the clock.
                self.timer = None;
                self.finish(id, Request::CommitOnePhase, |branch| branch.commit_one_phase());
            }
            Output::Commit(id) => self.finish(id, Request::Commit, |branch| branch.commit()),
            Output::RollBack(id) => self.finish(id, Request::RollBack, |branch| branch.roll_back()),
            Output::Append(record) => self.append(record),
            Output::Damage(branch) => self.remember(branch),
            Output::Note(record) => self.engine.journal.note(record),
            Output::Leave(id) => self.leave(id),
            Output::Answer(outcome) => self.answer(outcome),
        }
    }

    /// Starts a request on a branch's session.
    fn request<F, W>(&mut self, id: BranchId, work: W)
    where
        F: Future<Output = Event> + Send + 'static,
        W: FnOnce(ParticipantName, Box<dyn Branch>) -> F,
    {
        let place = self.place(id);
        let name = place.participant;
        let Session::Idle(branch) = std::mem::replace(&mut place.session, Session::Closed) else {
            panic!("a coordinator asks a session for one thing at a time: {id}");
        };
        let request = traced(work(name, branch), self.course.request(Some(name)));
        self.place(id).session = Session::Busy(request);
    }

    fn vote(&mut self, id: BranchId, what: Request, how: fn(&mut dyn Branch) -> BoxFuture<'_, Answer<Vote>>) {
        self.request(id, move |name, mut branch| async move {
            let answer = torture::request(what, name, how(&mut *branch)).await;
            Event::Voted(id, Some(branch), answer)
        });
    }

    /// Starts the end of a branch. One that does not answer within the resolver's patience is the resolver's, which
    /// has other connections.
    fn finish(&mut self, id: BranchId, what: Request, how: fn(&mut dyn Branch) -> BoxFuture<'_, Answer<Finish>>) {
        let patience = self.engine.recovery.statement_timeout;
        self.request(id, move |name, mut branch| async move {
            let answer = torture::request(what, name, tokio::time::timeout(patience, how(&mut *branch))).await;
            finished(id, branch, patience, answer)
        });
    }

    /// The anchor's commit is the decision. Sent, it cannot be called back, like that of a single writer.
    fn commit_anchor(&mut self, id: BranchId, decision: CommitRecord) {
        self.timer = None;
        self.deciding = Some(decision.clone());
        let patience = self.engine.recovery.statement_timeout;
        self.request(id, move |name, mut branch| async move {
            let committing = tokio::time::timeout(patience, branch.commit_anchor(&decision));
            let answer = torture::request(Request::CommitAnchor, name, committing).await;
            finished(id, branch, patience, answer)
        });
    }

    /// What the anchor has committed is decided, durably: it counts before a branch hears of it.
    fn anchor_answered(&mut self, anchor: BranchId, decision: CommitRecord, answer: Finish) {
        if answer != Finish::Done {
            return;
        }
        self.engine.journal.decided(&decision);
        self.set_pending(&decision, Some(anchor));
        self.mark_decided();
    }

    fn append(&mut self, record: Record) {
        let Record::Commit(decision) = &record else { panic!("only decisions are forced by a coordinator") };
        self.set_pending(decision, None);
        // From here on nothing can abort.
        self.timer = Some(after(PATIENCE));
        self.unfinished.handed_out = true;
        let engine = self.engine.clone();
        let writing = async move {
            torture::pass(Point::Step(Step::Append), None).await;
            let written = engine.journal.append(record).await;
            torture::pass(Point::Step(Step::Appended), None).await;
            Event::Appended(written)
        };
        self.records.push(traced(writing, self.course.request(None)));
    }

    fn remember(&mut self, branch: DamagedBranch) {
        let record = DamageRecord {
            transaction: self.id,
            branches: vec![branch],
            found_at_ms: now_ms(),
            found_by: self.id.incarnation,
        };
        let engine = self.engine.clone();
        self.records
            .push(Box::pin(async move { Event::Remembered(engine.journal.append(Record::Damaged(record)).await) }));
    }

    fn leave(&mut self, id: BranchId) {
        self.place(id).session = Session::Closed;
        self.left.push(id);
    }

    fn answer(&mut self, outcome: Outcome) {
        assert!(self.outcome.is_none_or(|before| before == outcome), "a transaction has one outcome");
        self.outcome = Some(outcome);
        self.course.certain(outcome);
        let Some(answer) = self.answer.take() else { return };
        let mut causes = std::mem::take(&mut self.causes).into_iter();
        let verdict = Verdict {
            outcome,
            cause: causes.next(),
            cleanup: causes.collect(),
            pending: self.places.iter().filter(|place| place.is_pending).map(|place| place.participant).collect(),
        };
        self.course.answered(outcome, verdict.cause.as_ref(), &verdict.pending);
        torture::pass_blocking(Point::Step(Step::Answer));
        // The application may have dropped its future: the outcome can be asked for by id.
        let _ = answer.send(verdict);
    }

    fn end(mut self) {
        self.unfinished.is_over = true;
        self.course.leave();
        assert!(self.coordinator.is_finished(), "{}: nothing is under way, yet the coordinator waits", self.id);
        let outcome = self.outcome.expect("a finished coordinator has answered");
        let left_some = !self.left.is_empty();
        self.engine.live.end(self.id.sequence, outcome, self.left);
        if left_some {
            self.engine.kick_resolver();
        }
    }
}
