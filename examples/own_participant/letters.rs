//! A directory of letters as a participant: a letter is there when its transaction committed, and never without.
//!
//! Each branch is one file, named after the branch. Where it lies says how far the branch is, and `rename` takes it there in
//! one step:
//!
//! * `prepared/`: promised. Commit and rollback are both still possible, after any crash.
//! * `sent/`: committed, one of several. `alone/`: committed, and nobody else had a say. The file is the witness.
//! * `never/`: the fence. Recovery has looked for a witness, found none, and told somebody *rolled back*.
//!
//! What a participant has to get right is in few places here: [`Store::prepare`] says yes when the letter is on disk and not
//! before; [`Store::commit`] says done when it has moved; [`Store::ask`] lets fence and prepare exclude each other; and where
//! something failed half way, the answer is *unknown*, never a guess.

use handfast::id::{BranchId, Incarnation, Lineage, ParticipantName, SessionName, TransactionId};
use handfast::participant::witness::{Kind, PAGE, Witnessed};
use handfast::participant::{
    Answer, BeginOptions, BoxFuture, Branch, Evidence, Participant, Question, Registration, Server, Sighted, Sighting,
};
use handfast::protocol::{Finish, Vote};
use handfast::{Error, ErrorKind, Result};
use std::any::Any;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

const PLACES: [&str; 4] = ["prepared", "sent", "alone", "never"];

/// The files.
struct Store {
    root: PathBuf,
    /// Between a look and what is done for what was seen, nothing else happens. No other process is there: `lock` sees to that.
    one_by_one: Mutex<()>,
}

impl Store {
    fn alone(&self) -> MutexGuard<'_, ()> {
        self.one_by_one.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, place: &str, branch: &BranchId) -> PathBuf {
        self.root.join(place).join(branch.to_string())
    }

    /// Puts a file in its place, whole and durable, or not at all. With an error, whether it may be there all the same.
    fn put(&self, place: &str, branch: &BranchId, text: &str) -> Result<(), (io::Error, bool)> {
        let draft = self.root.join(branch.to_string());
        let write = || {
            let mut file = File::create(&draft)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()
        };
        write().map_err(|error| (error, false))?;
        let moved = fs::rename(&draft, self.file(place, branch));
        moved.map_err(|error| (error, false)).and_then(|()| self.sync(place).map_err(|error| (error, true)))
    }

    /// A name is durable when its directory is.
    fn sync(&self, place: &str) -> io::Result<()> {
        File::open(self.root.join(place))?.sync_all()
    }

    fn evidence(&self, branch: &BranchId) -> Evidence {
        let is_in = |place| self.file(place, branch).exists();
        match () {
            () if is_in("sent") => Evidence::Committed,
            () if is_in("alone") => Evidence::CommittedAlone,
            () if is_in("never") => Evidence::Never,
            () => Evidence::Nothing,
        }
    }

    fn prepare(&self, branch: &BranchId, letters: &str) -> Answer<Vote> {
        let _alone = self.alone();
        if self.evidence(branch) == Evidence::Never {
            return Answer::because(Vote::No, trouble("the branch was given up by recovery"));
        }
        match self.put("prepared", branch, letters) {
            Ok(()) => Answer::good(Vote::Prepared),
            Err((error, false)) => Answer::because(Vote::No, trouble("cannot be prepared").because(error)),
            Err((error, true)) => Answer::because(Vote::Unknown, trouble("may be prepared").because(error)),
        }
    }

    fn commit_alone(&self, branch: &BranchId, letters: &str) -> Answer<Finish> {
        let _alone = self.alone();
        if self.evidence(branch) == Evidence::Never {
            return Answer::because(Finish::RolledBack, trouble("the branch was given up by recovery"));
        }
        match self.put("alone", branch, letters) {
            Ok(()) => Answer::good(Finish::Done),
            Err((error, false)) => Answer::because(Finish::RolledBack, trouble("cannot be committed").because(error)),
            Err((error, true)) => Answer::because(Finish::Unknown, trouble("may be committed").because(error)),
        }
    }

    fn commit(&self, branch: &BranchId) -> Answer<Finish> {
        let _alone = self.alone();
        let moved = fs::rename(self.file("prepared", branch), self.file("sent", branch));
        // It may have been moved before, by a commit that was never answered: then it has to be durable now.
        let is_there = moved.is_ok() || self.evidence(branch) == Evidence::Committed;
        match moved.or_else(|error| if is_there { Ok(()) } else { Err(error) }).and_then(|()| self.sync("sent")) {
            Ok(()) => Answer::good(Finish::Done),
            Err(error) => Answer::because(Finish::Unknown, trouble("may be committed").because(error)),
        }
    }

    fn roll_back(&self, branch: &BranchId) -> Answer<Finish> {
        let _alone = self.alone();
        match fs::remove_file(self.file("prepared", branch)).and_then(|()| self.sync("prepared")) {
            Ok(()) => Answer::good(Finish::Done),
            Err(error) => Answer::because(Finish::Unknown, trouble("may be prepared").because(error)),
        }
    }

    fn ask(&self, branch: &BranchId, question: Question) -> Result<Evidence> {
        let _alone = self.alone();
        match (self.evidence(branch), question) {
            (Evidence::Nothing, Question::Fence) if self.file("prepared", branch).exists() => Ok(Evidence::Blocked),
            (Evidence::Nothing, Question::Fence) => {
                self.put("never", branch, "").map_err(|(error, _)| trouble("cannot place the fence").because(error))?;
                Ok(Evidence::Never)
            }
            (evidence, _) => Ok(evidence),
        }
    }

    fn names(&self, place: &str) -> Result<Vec<String>> {
        let read = || fs::read_dir(self.root.join(place))?.map(|entry| Ok(entry?.file_name())).collect();
        let names: io::Result<Vec<_>> = read();
        let names = names.map_err(|error| trouble("cannot read the directory").because(error))?;
        Ok(names.into_iter().map(|name| name.to_string_lossy().into_owned()).collect())
    }

    fn witnessed(&self, participant: u16, incarnations: &[Incarnation], from: u64) -> Result<Vec<Witnessed>> {
        let mut rows = Vec::new();
        for (place, kind) in [("sent", Kind::Decided), ("alone", Kind::OnePhase), ("never", Kind::Fence)] {
            let branches = self.names(place)?.into_iter().filter_map(|name| name.parse::<BranchId>().ok());
            let asked = branches.filter(|branch| branch.participant == participant).map(|branch| branch.transaction);
            let asked = asked.filter(|id| incarnations.contains(&id.incarnation) && id.sequence >= from);
            rows.extend(asked.map(|id| Witnessed { incarnation: id.incarnation, sequence: id.sequence, kind }));
        }
        rows.sort_by_key(|row| (row.incarnation, row.sequence));
        rows.truncate(PAGE);
        Ok(rows)
    }

    /// The identity of what is there, made at first sight.
    fn lineage(&self) -> io::Result<Lineage> {
        let file = self.root.join("lineage");
        if let Ok(text) = fs::read_to_string(&file) {
            let number: i64 = text.trim().parse().map_err(io::Error::other)?;
            return Ok(Lineage::from_sql(number));
        }
        for place in PLACES {
            fs::create_dir_all(self.root.join(place))?;
        }
        let since = std::time::SystemTime::UNIX_EPOCH.elapsed().map_err(io::Error::other)?;
        let number = i64::try_from(since.as_nanos()).map_err(io::Error::other)?;
        fs::write(&file, number.to_string())?;
        File::open(&file)?.sync_all()?;
        File::open(&self.root)?.sync_all()?;
        Ok(Lineage::from_sql(number))
    }

    /// Keeps other processes away for as long as the file is open.
    fn lock(&self) -> io::Result<File> {
        let file = File::create(self.root.join("lock"))?;
        file.try_lock()?;
        Ok(file)
    }
}

fn trouble(message: &str) -> Error {
    Error::new(ErrorKind::Unavailable, message)
}

/// The participant.
pub struct Letters {
    name: ParticipantName,
    store: Arc<Store>,
    /// Its number in branch ids, once it is registered.
    number: OnceLock<u16>,
    /// From then on until it is closed.
    lock: Mutex<Option<File>>,
}

impl Letters {
    pub fn new(name: ParticipantName, root: &Path) -> Self {
        let store = Arc::new(Store { root: root.to_owned(), one_by_one: Mutex::default() });
        Self { name, store, number: OnceLock::new(), lock: Mutex::default() }
    }

    /// Disks make wait: not the tasks that run on this thread.
    fn apart<T: Send + 'static>(&self, work: impl FnOnce(&Store) -> T + Send + 'static) -> BoxFuture<'_, T> {
        apart(&self.store, work)
    }

    fn lock(&self) -> MutexGuard<'_, Option<File>> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seen(&self, error: io::Error) -> Error {
        trouble("cannot use the directory of letters").at(self.name).because(error)
    }
}

fn apart<'a, T: Send + 'static>(
    store: &Arc<Store>,
    work: impl FnOnce(&Store) -> T + Send + 'static,
) -> BoxFuture<'a, T> {
    let store = store.clone();
    Box::pin(async move {
        let done = tokio::task::spawn_blocking(move || work(&store)).await;
        done.expect("no work here panics, and none is cancelled")
    })
}

impl Participant for Letters {
    fn name(&self) -> ParticipantName {
        self.name
    }

    fn kind(&self) -> &'static str {
        "letters"
    }

    fn identify(&self) -> BoxFuture<'_, Result<Server>> {
        let lineage = fs::read_to_string(self.store.root.join("lineage")).ok();
        let lineage = lineage.and_then(|text| text.trim().parse().ok()).map(Lineage::from_sql);
        let description = format!("letters in {}", self.store.root.display());
        Box::pin(async move { Ok(Server { description, lineage }) })
    }

    fn register<'a>(&'a self, registration: &'a Registration) -> BoxFuture<'a, Result<Lineage>> {
        Box::pin(async move {
            let lineage = self.init().await?;
            if registration.expected.is_some_and(|expected| expected != lineage) {
                return Err(Error::new(ErrorKind::Refused, "these are other letters than before").at(self.name));
            }
            let mut lock = self.lock();
            if lock.is_none() {
                *lock = Some(self.store.lock().map_err(|error| self.seen(error))?);
            }
            self.number.get_or_init(|| registration.participant);
            Ok(lineage)
        })
    }

    fn setup_sql(&self) -> String {
        String::new()
    }

    fn init(&self) -> BoxFuture<'_, Result<Lineage>> {
        Box::pin(async { self.apart(Store::lineage).await.map_err(|error| self.seen(error)) })
    }

    fn begin<'a>(&'a self, id: TransactionId, _: BeginOptions) -> BoxFuture<'a, Result<Box<dyn Branch>>> {
        Box::pin(async move {
            let number = self.number.get();
            let number = number.ok_or_else(|| trouble("no branch begins before it is registered"))?;
            // There are no sessions that could be left hanging: one number serves for all.
            let id = id.branch(*number, 0);
            let desk = Arc::new(Desk(Mutex::new(Some(String::new()))));
            Ok(Box::new(Draft { id, store: self.store.clone(), desk }) as Box<dyn Branch>)
        })
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Sighting>>> {
        self.apart(|store| {
            let sighted = |name: String| name.parse().map_or(Sighted::Foreign(name), Sighted::Ours);
            Ok(store.names("prepared")?.into_iter().map(|name| Sighting { branch: sighted(name), age: None }).collect())
        })
    }

    fn commit<'a>(&'a self, branch: &'a BranchId) -> BoxFuture<'a, Answer<Finish>> {
        let branch = *branch;
        self.apart(move |store| store.commit(&branch))
    }

    fn roll_back<'a>(&'a self, branch: &'a BranchId) -> BoxFuture<'a, Answer<Finish>> {
        let branch = *branch;
        self.apart(move |store| store.roll_back(&branch))
    }

    fn ask<'a>(&'a self, branch: &'a BranchId, question: Question) -> BoxFuture<'a, Result<Evidence>> {
        let branch = *branch;
        self.apart(move |store| store.ask(&branch, question))
    }

    /// What an earlier process had not prepared has ended with it.
    fn end_session<'a>(&'a self, _: SessionName) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async { Ok(false) })
    }

    fn end_sessions<'a>(&'a self, _: u16, _: &'a [Incarnation]) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async { Ok(0) })
    }

    fn witnessed<'a>(
        &'a self,
        participant: u16,
        incarnations: &'a [Incarnation],
        from: u64,
    ) -> BoxFuture<'a, Result<Vec<Witnessed>>> {
        let incarnations = incarnations.to_vec();
        self.apart(move |store| store.witnessed(participant, &incarnations, from))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        *self.lock() = None;
        Box::pin(async {})
    }
}

/// What an application works through: [`Transaction::branch`](handfast::Transaction::branch) hands it out. Empty once the
/// branch has ended: a handle that somebody keeps reaches nothing.
pub struct Desk(Mutex<Option<String>>);

impl Desk {
    pub fn write(&self, letter: &str) -> Result<()> {
        let mut letters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let letters = letters.as_mut().ok_or_else(|| Error::new(ErrorKind::Closed, "the branch has ended"))?;
        letters.push_str(letter);
        letters.push('\n');
        Ok(())
    }

    fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A branch: until it is prepared, its letters are nowhere but here.
struct Draft {
    id: BranchId,
    store: Arc<Store>,
    desk: Arc<Desk>,
}

impl Branch for Draft {
    fn id(&self) -> BranchId {
        self.id
    }

    fn handle(&self) -> Arc<dyn Any + Send + Sync> {
        self.desk.clone()
    }

    fn prepare(&mut self) -> BoxFuture<'_, Answer<Vote>> {
        let (id, letters) = (self.id, self.desk.take().unwrap_or_default());
        apart(&self.store, move |store| store.prepare(&id, &letters))
    }

    fn end_read_only(&mut self) -> BoxFuture<'_, Answer<Vote>> {
        let is_read_only = self.desk.take().is_none_or(|letters| letters.is_empty());
        let wrote = || Answer::because(Vote::No, Error::new(ErrorKind::Statement, "it was declared read-only"));
        Box::pin(async move { if is_read_only { Answer::good(Vote::ReadOnly) } else { wrote() } })
    }

    fn commit_one_phase(&mut self) -> BoxFuture<'_, Answer<Finish>> {
        let (id, letters) = (self.id, self.desk.take().unwrap_or_default());
        apart(&self.store, move |store| store.commit_alone(&id, &letters))
    }

    fn commit(&mut self) -> BoxFuture<'_, Answer<Finish>> {
        let id = self.id;
        apart(&self.store, move |store| store.commit(&id))
    }

    fn roll_back(&mut self) -> BoxFuture<'_, Answer<Finish>> {
        let (id, was_open) = (self.id, self.desk.take().is_some());
        apart(&self.store, move |store| if was_open { Answer::good(Finish::Done) } else { store.roll_back(&id) })
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        self.desk.take();
    }
}
