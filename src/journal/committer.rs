//! Group commit: one thread writes, and all that wait together share one sync.
//!
//! Callers put their records into a queue; the thread takes the whole queue as a batch, writes it, syncs once, adds
//! the batch to the image and only then answers. While it syncs, the next batch gathers: the busier the journal, the
//! fewer syncs a decision costs.
//!
//! A *forced* record is answered when it is durable and counts in the image from then on. A *noted* one counts at
//! once, since losing it costs work and not truth, and rides with the next batch.

#[path = "committer/thread.rs"]
mod thread;

use super::format;
use super::in_flight::InFlight;
use super::outcomes::Image;
use super::sync::{Builder, Condvar, Instant, JoinHandle, Mutex, MutexGuard};
use super::writer::{Spare, Writer};
use crate::error::{Error, ErrorKind, Result};
use crate::protocol::Record;
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

/// Whether the thread has to be woken for something. To wake who is awake costs a system call, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sleep {
    /// It looks at everything before it sleeps.
    Awake,
    /// It comes by itself, in time for a note.
    Light,
    /// It does not come by itself.
    Deep,
}

struct State {
    queue: Vec<Request>,
    /// How many in the queue are waited for.
    forced: usize,
    /// The records that are waited for: the image does not know them yet.
    in_flight: InFlight,
    /// When the first noted record in the queue came.
    noted_at: Option<Instant>,
    sleep: Sleep,
    image: Image,
    failure: Option<String>,
    /// Why the next segment could not be prepared, and whether somebody wants another attempt.
    no_space: Option<String>,
    retry_space: bool,
    /// What came of it, when the next segment was prepared on a thread of its own.
    made: Option<io::Result<Spare>>,
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
            sleep: Sleep::Awake,
            image,
            failure: None,
            no_space: None,
            retry_space: false,
            made: None,
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
        self.rouse(state);
        Ok(answer)
    }

    /// Lets the thread write what is queued, and tell when that is durable.
    pub fn flush(&self) -> Result<oneshot::Receiver<bool>> {
        let mut state = self.writable()?;
        let answer = state.push(None);
        self.rouse(state);
        Ok(answer)
    }

    /// Wakes the thread, unless it is awake.
    fn rouse(&self, mut state: MutexGuard<'_, State>) {
        let before = std::mem::replace(&mut state.sleep, Sleep::Awake);
        drop(state);
        if before != Sleep::Awake {
            self.wake.notify_one();
        }
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
        state.queue.push(Request { record: Some(Arc::new(record)), waiter: None });
        state.noted_at.get_or_insert_with(Instant::now);
        if state.sleep == Sleep::Deep {
            self.rouse(state);
        }
    }

    /// The next segment was prepared, or could not be.
    fn made(&self, made: io::Result<Spare>) {
        let mut state = self.state();
        state.no_space = made.as_ref().err().map(ToString::to_string);
        state.made = Some(made);
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
        self.rouse(state);
        Err(Error::new(ErrorKind::Refused, text))
    }

    /// Lets the thread write what is queued and end.
    pub fn close(&self) {
        let mut state = self.state();
        state.closing = true;
        self.rouse(state);
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
        // Behind a batch come the notes of what it decided. To be woken for each would cost more than to look once more.
        let mut expects_notes = true;
        loop {
            state.sleep = Sleep::Awake;
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
            let looks_at = note_due.or_else(|| std::mem::take(&mut expects_notes).then(|| now + NOTE_DELAY));
            state = match looks_at {
                None => {
                    state.sleep = Sleep::Deep;
                    self.wake.wait(state).unwrap_or_else(PoisonError::into_inner)
                }
                Some(looks_at) => {
                    state.sleep = Sleep::Light;
                    let left = looks_at.saturating_duration_since(now);
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

/// Starts the thread.
///
/// # Errors
/// [`ErrorKind::Journal`] if the operating system has none to give.
pub fn spawn(shared: Arc<Shared>, writer: Writer) -> Result<JoinHandle<()>> {
    let builder = Builder::new().name("handfast-journal".into());
    builder
        .spawn(move || thread::run(shared, writer))
        .map_err(|error| Error::new(ErrorKind::Journal, "the journal's thread cannot be started").because(error))
}
