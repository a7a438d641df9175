//! Group commit: one thread writes, and all that wait together share one sync.
//!
//! Callers put their records into a queue; the thread takes the whole queue as a batch, writes it, syncs once, adds
//! the batch to the image and only then answers. While it syncs, the next batch gathers: the busier the journal, the
//! fewer syncs a decision costs.
//!
//! A *forced* record is answered when it is durable and counts in the image from then on. A *noted* one counts at
//! once, since losing it costs work and not truth, and rides with the next batch.

use super::format::{self, Content};
use super::in_flight::InFlight;
use super::outcomes::Image;
use super::sync::{Builder, Condvar, Instant, JoinHandle, Mutex, MutexGuard};
use super::writer::{Writer, snapshot};
use crate::error::{Error, ErrorKind, Result};
use crate::protocol::Record;
use crate::telemetry::{self, Timer};
use std::io;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// How long a noted record may wait for company.
const NOTE_DELAY: Duration = Duration::from_millis(20);
/// How long to wait before the next segment is prepared again after a failure.
const SPACE_RETRY: Duration = Duration::from_millis(500);
/// How long the disk may take for one batch: then nothing more is begun, and nobody waits any longer for a decision.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// A record on its way to the disk.
struct Request {
    /// None where somebody only waits for all that came before.
    record: Option<Arc<Record>>,
    /// Who waits for it; nobody for a noted one, whose record is in the image already.
    waiter: Option<oneshot::Sender<bool>>,
}

impl Request {
    /// The record that the image does not know yet.
    fn forced(&self) -> Option<&Arc<Record>> {
        self.record.as_ref().filter(|_| self.waiter.is_some())
    }
}

struct State {
    queue: Vec<Request>,
    /// How many in the queue are waited for.
    forced: usize,
    /// The records that are waited for: the image does not know them yet.
    in_flight: InFlight,
    /// When the first noted record in the queue came.
    noted_at: Option<Instant>,
    image: Image,
    failure: Option<String>,
    /// Why the next segment could not be prepared, and whether somebody wants another attempt.
    no_space: Option<String>,
    retry_space: bool,
    /// When the batch was taken that the thread is at work on.
    working_since: Option<Instant>,
    closing: bool,
}

impl State {
    /// Whether a record can follow those in the image and those on their way.
    fn check(&self, record: &Record, noted: bool) -> Result<(), String> {
        self.in_flight.check(&self.image, record, noted).map_err(|impossible| impossible.to_string())
    }

    fn push(&mut self, record: Option<Arc<Record>>) -> oneshot::Receiver<bool> {
        let (waiter, answer) = oneshot::channel();
        self.queue.push(Request { record, waiter: Some(waiter) });
        self.forced += 1;
        answer
    }
}

/// What callers and the thread share.
pub struct Shared {
    name: String,
    state: Mutex<State>,
    wake: Condvar,
}

enum Work {
    Batch(Vec<Request>),
    Space,
}

impl Shared {
    /// A journal at rest.
    pub fn new(name: String, image: Image) -> Self {
        let state = State {
            queue: Vec::new(),
            forced: 0,
            in_flight: InFlight::default(),
            noted_at: None,
            image,
            failure: None,
            no_space: None,
            retry_space: false,
            working_since: None,
            closing: false,
        };
        Self { name, state: Mutex::new(state), wake: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic of a caller's closure leaves the state whole: it is only ever changed by complete steps.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks `f` about what is durable so far.
    pub fn image<T>(&self, f: impl FnOnce(&Image) -> T) -> T {
        f(&self.state().image)
    }

    /// Why nothing can be written any more.
    pub fn failure(&self) -> Option<String> {
        self.state().failure.clone()
    }

    /// Whether all went well.
    pub fn outcome(&self) -> Result<()> {
        match &self.state().failure {
            Some(cause) => Err(self.failed(cause)),
            None => Ok(()),
        }
    }

    fn failed(&self, cause: &str) -> Error {
        let text = format!(
            "journal {}: {cause}: nothing more is written; whether what was being written is durable is known when the journal is opened again",
            self.name
        );
        Error::new(ErrorKind::Journal, text)
    }

    /// Queues a record that is waited for.
    pub fn append(&self, record: Record) -> Result<oneshot::Receiver<bool>> {
        format::check(&record)
            .map_err(|why| Error::new(ErrorKind::Refused, format!("journal {}: {why}", self.name)))?;
        let mut state = self.writable()?;
        if let Err(why) = state.check(&record, false) {
            drop(state);
            panic!("a record contradicts the journal: {why}");
        }
        let record = Arc::new(record);
        state.in_flight.add(&record);
        let answer = state.push(Some(record));
        drop(state);
        self.wake.notify_one();
        Ok(answer)
    }

    /// Lets the thread write what is queued, and tell when that is durable.
    pub fn flush(&self) -> Result<oneshot::Receiver<bool>> {
        let answer = self.writable()?.push(None);
        self.wake.notify_one();
        Ok(answer)
    }

    fn writable(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.state();
        if let Some(cause) = &state.failure {
            return Err(self.failed(cause));
        }
        if state.closing {
            return Err(Error::new(ErrorKind::Closed, format!("journal {} is closed", self.name)));
        }
        Ok(state)
    }

    /// Waits for the answer to an append or a flush.
    pub async fn answer(&self, answer: oneshot::Receiver<bool>) -> Result<()> {
        match answer.await {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            // The thread is about to say so itself. Until it has, nobody may take the record for missing.
            Err(_) => self.fail("its thread has ended"),
        }
        let cause = self.failure().expect("whoever answers no has told the failure before");
        Err(self.failed(&cause))
    }

    /// Queues a record that nobody waits for; it counts at once.
    pub fn note(&self, record: Record) {
        assert_eq!(format::check(&record), Ok(()), "a noted record fits the format");
        let mut state = self.state();
        if let Err(why) = state.check(&record, true) {
            drop(state);
            panic!("a noted record contradicts the journal: {why}");
        }
        state.image.apply(&record).expect("checked just now");
        if state.failure.is_some() {
            return;
        }
        let alone = state.queue.is_empty();
        state.queue.push(Request { record: Some(Arc::new(record)), waiter: None });
        state.noted_at.get_or_insert_with(Instant::now);
        drop(state);
        if alone {
            self.wake.notify_one();
        }
    }

    /// Whether a decision that is begun now will find space, and a disk that answers.
    pub fn check_space(&self) -> Result<()> {
        let mut state = self.state();
        if let Some(cause) = &state.failure {
            return Err(self.failed(cause));
        }
        let waiting = state.working_since.map(|since| Instant::now().saturating_duration_since(since));
        if let Some(waiting) = waiting.filter(|waiting| *waiting >= PATIENCE) {
            let text = format!("journal {}: its disk has not answered for {} s", self.name, waiting.as_secs());
            return Err(Error::new(ErrorKind::Refused, text + ": see to it"));
        }
        let Some(cause) = &state.no_space else { return Ok(()) };
        let text = format!("journal {}: no space for the next segment ({cause}): free space on its disk", self.name);
        state.retry_space = true;
        drop(state);
        self.wake.notify_one();
        Err(Error::new(ErrorKind::Refused, text))
    }

    /// Lets the thread write what is queued and end.
    pub fn close(&self) {
        self.state().closing = true;
        self.wake.notify_one();
    }

    /// Ends all waiting with the failure.
    fn fail(&self, cause: &str) {
        let mut state = self.state();
        state.failure.get_or_insert_with(|| cause.to_owned());
        state.forced = 0;
        state.in_flight.clear();
        let abandoned = std::mem::take(&mut state.queue);
        drop(state);
        answer(abandoned, false);
    }

    /// Waits for something to do; `None` when the journal is closed and all is written.
    fn wait(&self, space_after: Instant) -> Option<Work> {
        let mut state = self.state();
        state.working_since = None;
        loop {
            assert!(state.forced <= state.queue.len(), "the waiting are in the queue");
            let now = Instant::now();
            let note_due = state.noted_at.map(|noted_at| noted_at + NOTE_DELAY);
            let due = state.forced > 0 || state.closing || note_due.is_some_and(|due| due <= now);
            if due && !state.queue.is_empty() {
                state.forced = 0;
                state.noted_at = None;
                state.working_since = Some(now);
                return Some(Work::Batch(std::mem::take(&mut state.queue)));
            }
            if state.closing {
                return None;
            }
            if std::mem::take(&mut state.retry_space) && space_after <= now {
                return Some(Work::Space);
            }
            state = match note_due {
                None => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(due) => {
                    let left = due.saturating_duration_since(now);
                    self.wake.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

fn answer(requests: Vec<Request>, durable: bool) {
    for waiter in requests.into_iter().filter_map(|request| request.waiter) {
        // Who dropped the future does not want to know.
        let _ = waiter.send(durable);
    }
}

/// Ends all waiting should the thread panic.
struct Guard<'a>(&'a Shared);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail("its thread has met a bug");
        }
    }
}

/// Starts the thread.
///
/// # Errors
/// [`ErrorKind::Journal`] if the operating system has none to give.
pub fn spawn(shared: Arc<Shared>, writer: Writer) -> Result<JoinHandle<()>> {
    let thread = Builder::new().name("handfast-journal".into());
    thread
        .spawn(move || run(&shared, writer))
        .map_err(|error| Error::new(ErrorKind::Journal, "the journal's thread cannot be started").because(error))
}

/// The thread's body: writes until the journal is closed or fails.
fn run(shared: &Shared, writer: Writer) {
    let _guard = Guard(shared);
    let mut committer = Committer { shared, writer, space_after: Instant::now() };
    if let Err(error) = committer.run() {
        let failure = committer.writer.failure().map_or_else(|| error.to_string(), str::to_owned);
        tracing::error!(journal = shared.name, failure, "the journal cannot be written any more");
        shared.fail(&failure);
    }
}

struct Committer<'a> {
    shared: &'a Shared,
    writer: Writer,
    /// When the next attempt to prepare a segment may be made.
    space_after: Instant,
}

impl Committer<'_> {
    fn run(&mut self) -> io::Result<()> {
        while let Some(work) = self.shared.wait(self.space_after) {
            match work {
                Work::Batch(batch) => self.commit(batch)?,
                Work::Space => {}
            }
            self.prepare_spare();
        }
        self.writer.finish()
    }

    /// Makes a batch durable, in as many segments as it takes, and answers.
    fn commit(&mut self, mut batch: Vec<Request>) -> io::Result<()> {
        while !batch.is_empty() {
            let (fitting, full) = self.fill(&batch);
            assert!(fitting == batch.len() || full.is_some(), "what does not fit says so");
            let rest = batch.split_off(fitting);
            if let Err(error) = self.settle(batch) {
                answer(rest, false);
                return Err(error);
            }
            batch = rest;
            if let Some(room) = full
                && let Err(error) = self.make_room(room, &mut batch)
            {
                answer(batch, false);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Puts what fits into the writer's buffer: how many, and the length of the one that did not.
    fn fill(&mut self, batch: &[Request]) -> (usize, Option<usize>) {
        for (index, request) in batch.iter().enumerate() {
            let Some(record) = &request.record else { continue };
            if let Err(length) = self.writer.put(Content::Record(record)) {
                return (index, Some(length));
            }
        }
        (batch.len(), None)
    }

    /// Makes the buffer durable and answers those whose records are in it.
    fn settle(&mut self, batch: Vec<Request>) -> io::Result<()> {
        // Who waits for others alone waits for what is durable already.
        if batch.iter().all(|request| request.record.is_none()) {
            answer(batch, true);
            return Ok(());
        }
        let timer = Timer::start();
        let flushed = self.writer.flush();
        if let Err(error) = self.told(flushed) {
            answer(batch, false);
            return Err(error);
        }
        telemetry::synced(batch.iter().filter(|request| request.record.is_some()).count(), timer);
        let mut state = self.shared.state();
        for record in batch.iter().filter_map(Request::forced) {
            state.image.apply(record).expect("checked when it was queued");
            state.in_flight.arrived(record);
        }
        let others_wait = state.forced > 0;
        drop(state);
        // Before anybody acts on the answer: whoever reads the journal of a program that was killed right then finds
        // that the decision was known to be durable. A batch that waits already will say so by itself.
        let marked = if others_wait { Ok(()) } else { self.writer.mark() };
        let marked = self.told(marked);
        answer(batch, true);
        marked
    }

    /// Tells a failure to all who ask, before anybody is answered because of it.
    fn told(&self, result: io::Result<()>) -> io::Result<()> {
        if let Err(error) = &result {
            self.shared.fail(&error.to_string());
        }
        result
    }

    /// Goes on in another segment. Where that begins with a snapshot, the noted records that it holds are dropped.
    fn make_room(&mut self, room: usize, batch: &mut Vec<Request>) -> io::Result<()> {
        let result = if self.writer.wants_compaction() { self.compact(room, batch) } else { self.writer.rotate(room) };
        self.told(result)
    }

    fn compact(&mut self, room: usize, batch: &mut Vec<Request>) -> io::Result<()> {
        let state = self.shared.state();
        let snapshot = snapshot(&state.image, self.writer.incarnation(), self.writer.next_sequence());
        let queued = state.queue.len();
        drop(state);
        if let Err(error) = self.writer.prepare_compaction(&snapshot, room) {
            // The snapshot finds no space: go on as long as there are segments.
            tracing::warn!(%error, "the journal cannot be compacted");
            return self.writer.rotate(room);
        }
        self.writer.compact(&snapshot, room)?;
        // The image held every noted record that had come before it was written, and is durable now.
        let mut state = self.shared.state();
        let later = state.queue.split_off(queued);
        state.queue.retain(|request| request.waiter.is_some());
        state.noted_at = state.noted_at.filter(|_| later.iter().any(|request| request.waiter.is_none()));
        state.queue.extend(later);
        batch.retain(|request| request.waiter.is_some());
        Ok(())
    }

    /// Prepares the next segment ahead of time. Failure is told to those who want to begin something.
    fn prepare_spare(&mut self) {
        let known = self.shared.state().no_space.is_some();
        if !self.writer.wants_spare() {
            if known {
                self.shared.state().no_space = None;
            }
            return;
        }
        let now = Instant::now();
        if known && now < self.space_after {
            return;
        }
        let failure = self.writer.prepare_spare().err().map(|error| error.to_string());
        if let Some(error) = &failure {
            tracing::warn!(error, "the next journal segment cannot be prepared: begins are refused");
            self.space_after = now + SPACE_RETRY;
        }
        self.shared.state().no_space = failure;
    }
}
