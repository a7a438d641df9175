//! The thread that writes: takes what is queued as a batch, makes it durable, answers.

use super::super::format::Content;
use super::super::sync::{Builder, Instant, JoinHandle};
use super::super::writer::{Writer, snapshot};
use super::{Request, SPACE_RETRY, Shared, Work, answer};
use crate::telemetry::{self, Timer};
use std::io;
use std::sync::Arc;

/// Ends all waiting should the thread panic.
struct Guard<'a>(&'a Shared);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail("its thread has met a bug");
        }
    }
}

/// The thread's body: writes until the journal is closed or fails.
pub fn run(shared: Arc<Shared>, writer: Writer) {
    let shared = &shared;
    let _guard = Guard(shared);
    let mut committer = Committer { shared, writer, space_after: Instant::now(), making: None };
    if let Err(error) = committer.run() {
        let failure = committer.writer.failure().map_or_else(|| error.to_string(), str::to_owned);
        tracing::error!(journal = shared.name, failure, "the journal cannot be written any more");
        shared.fail(&failure);
    }
}

struct Committer<'a> {
    shared: &'a Arc<Shared>,
    writer: Writer,
    /// When the next attempt to prepare a segment may be made.
    space_after: Instant,
    /// The thread that prepares one.
    making: Option<JoinHandle<()>>,
}

impl Drop for Committer<'_> {
    /// Nothing is done in the directory any more when its lock goes.
    fn drop(&mut self) {
        self.await_spare();
    }
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
        self.await_spare();
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
        if self.making.is_some() && !self.fetch_spare() {
            return;
        }
        let known = self.shared.state().no_space.is_some();
        if !self.writer.wants_spare() {
            if known {
                self.shared.state().no_space = None;
            }
            return;
        }
        if known && Instant::now() < self.space_after {
            return;
        }
        let making = self.writer.next_segment();
        if making.is_slow() {
            // Its zeros and their sync take as long as many decisions.
            let shared = Arc::clone(self.shared);
            let thread = Builder::new().name("handfast-segment".into());
            self.making = thread.spawn(move || shared.made(making.make())).ok();
            // Without a thread, the next batch tries again, and a rotation does it itself.
        } else {
            self.shared.made(making.make());
            self.fetch_spare();
        }
    }

    /// Takes what was prepared, if that is over.
    fn fetch_spare(&mut self) -> bool {
        let Some(made) = self.shared.state().made.take() else { return false };
        self.making = None;
        match made {
            Ok(spare) => self.writer.take_spare(spare),
            Err(error) => {
                tracing::warn!(%error, "the next journal segment cannot be prepared: begins are refused");
                self.space_after = Instant::now() + SPACE_RETRY;
            }
        }
        true
    }

    /// Waits until nothing is prepared any more.
    fn await_spare(&mut self) {
        if let Some(thread) = self.making.take() {
            // Should it have met a bug, there is no spare.
            let _ = thread.join();
            self.fetch_spare();
        }
    }
}
