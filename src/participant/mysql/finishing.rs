//! Branches finished from outside, one or many, and what a positive answer to that is worth.
//!
//! On MariaDB an *OK* may be a lie while the branch's session ends (`letting_go.rs`), and after a reset by somebody else's
//! pool (D02). So there the witness has the last word: after a commit it has to be visible, after a rollback nobody may
//! hold its place.

use super::control::{Control, holder, kill};
use super::error::{self, MyError, XA_UNKNOWN, explain};
use super::letting_go::{AWAIT_END, LET_GO, Staying};
use super::session::Product;
use super::sql::Sql;
use super::{Mysql, is_lock_timeout, sighted};
use crate::error::{Error, ErrorKind, Result};
use crate::id::BranchId;
use crate::participant::witness::{Key, evidence};
use crate::participant::{Answer, Evidence, Hear, Sighted};
use crate::protocol::{Finish, Resolution};
use crate::torture::{self, Safeguard};
use mysql_async::prelude::{FromRow, Queryable};
use mysql_async::{Conn, QueryResult, Row, TextProtocol};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

/// So many branches are finished by one text: enough to hide the network, few enough for one time limit.
const WINDOW: usize = 32;

pub(super) fn statement(branch: &BranchId, resolution: Resolution) -> String {
    match resolution {
        Resolution::Commit => Sql::commit(branch),
        Resolution::RollBack => Sql::roll_back(branch),
    }
}

impl Control {
    pub(super) fn product(&self) -> Product {
        self.connector.product.get().copied().unwrap_or(Product::MariaDb)
    }

    /// Finishes a prepared branch, and ends the session that holds it, if one does.
    ///
    /// On MariaDB, and on MySQL without `xa_detach_on_prepare`, a branch is unknown to everybody else while the session
    /// that prepared it lives; one whose network broke may live for hours (D26).
    ///
    /// Whoever has the session's name may be a new session of the same slot, and the branch free, or finished by its
    /// coordinator a moment ago. The holder is killed only if the branch is still listed and still unknown to us after
    /// the holder was looked up: then it is the one that prepared it, since a session keeps its name to its end.
    async fn finish(
        &self,
        conn: &mut Conn,
        statement: &str,
        branch: &BranchId,
        staying: &Staying,
    ) -> Result<(), MyError> {
        let (session, product) = (branch.session(), self.product());
        if self.may_hold(session) && is_listed(conn, branch, product).await? {
            self.let_go(conn, &BTreeSet::from([session]), staying).await?;
        }
        let answer = conn.query_drop(statement).await;
        if !is_unknown(&answer) {
            return answer;
        }
        let Some(holder) = holder(conn, session).await? else { return answer };
        let answer = conn.query_drop(statement).await;
        if !is_unknown(&answer) || !is_listed(conn, branch, product).await? {
            return answer;
        }
        tracing::info!(%session, "a session that nobody uses any more holds a prepared branch: it is ended");
        kill(conn, holder, session, AWAIT_END).await?;
        tokio::time::sleep(LET_GO).await;
        conn.query_drop(statement).await
    }
}

impl Mysql {
    /// Finishes a branch from outside: only the server's positive answer counts, and MariaDB's with its proof.
    pub(super) async fn finish(&self, branch: &BranchId, resolution: Resolution) -> Answer<Finish> {
        self.finish_one(branch, resolution, &Staying::default()).await
    }

    async fn finish_one(&self, branch: &BranchId, resolution: Resolution, staying: &Staying) -> Answer<Finish> {
        let statement = statement(branch, resolution);
        let doing = format!("{statement} was not answered positively");
        let work = async {
            let mut held = self.control.take().await?;
            let answer = self.control.finish(held.conn(), &statement, branch, staying).await;
            held.keep(&answer);
            answer.map_err(|error| explain(self.name(), &doing, error))
        };
        if let Err(cause) = self.control.within(&doing, work).await {
            return Answer::because(Finish::Unknown, cause);
        }
        if !self.wants_proof() {
            return Answer::good(Finish::Done);
        }
        let work = async {
            let mut held = self.control.take().await?;
            let answer = held.conn().query(self.proof(branch, resolution)).await;
            held.keep(&answer);
            Ok(self.proven(branch, resolution, answer))
        };
        self.control.within(&doing, work).await.unwrap_or_else(|cause| Answer::because(Finish::Unknown, cause))
    }

    /// Whether the server's OK proves nothing.
    fn wants_proof(&self) -> bool {
        self.is_mariadb() && self.sql.witness_on && torture::is_on(Safeguard::Proof)
    }

    /// The query whose answer proves that a branch was finished.
    fn proof(&self, branch: &BranchId, resolution: Resolution) -> String {
        match resolution {
            Resolution::Commit => self.sql.evidence(branch),
            Resolution::RollBack => self.sql.try_lock(branch),
        }
    }

    fn proven(
        &self,
        branch: &BranchId,
        resolution: Resolution,
        answer: Result<Vec<String>, MyError>,
    ) -> Answer<Finish> {
        // Of this branch alone: the participant is there and answers.
        let lie = |what: &str| {
            let message = format!("{} was answered positively, but {what}", statement(branch, resolution));
            Answer::because(Finish::Unknown, Error::new(ErrorKind::InDoubt, message).at(self.name()))
        };
        let kinds = match (answer, resolution) {
            (Ok(_), Resolution::RollBack) => return Answer::good(Finish::Done),
            (Err(error), Resolution::RollBack) if is_lock_timeout(&error) => {
                return lie("somebody still holds the place of its witness");
            }
            (Ok(kinds), Resolution::Commit) => kinds,
            (Err(error), _) => {
                return Answer::because(Finish::Unknown, explain(self.name(), "cannot ask for the witness", error));
            }
        };
        match evidence(kinds.first().map(String::as_str)) {
            Ok(Evidence::Committed | Evidence::CommittedAlone) => Answer::good(Finish::Done),
            Ok(_) => lie("its witness is not there"),
            Err(cause) => Answer::because(Finish::Unknown, cause.at(self.name())),
        }
    }

    /// Several by one text; one that is refused is finished by itself, since a living session may hold it.
    pub(super) async fn do_finish_all(&self, work: &[(BranchId, Resolution)], hear: Hear<'_>) {
        let (mut next, staying) = (0, Staying::default());
        while next < work.len() {
            let window = &work[next..work.len().min(next + WINDOW)];
            let told = AtomicUsize::new(0);
            let came = self.finish_window(window, &staying, &told, &|place, answer| hear(next + place, answer)).await;
            next += told.into_inner();
            match came {
                Came::Through => {}
                Came::Lost => return,
                Came::Alone => {
                    let (branch, resolution) = &work[next];
                    let answer = self.finish_one(branch, *resolution, &staying).await;
                    let is_lost = answer.is_lost();
                    hear(next, answer);
                    if is_lost {
                        return;
                    }
                    next += 1;
                }
            }
        }
    }

    async fn finish_window(
        &self,
        window: &[(BranchId, Resolution)],
        staying: &Staying,
        told: &AtomicUsize,
        hear: Hear<'_>,
    ) -> Came {
        let doing = "finishing prepared branches was not answered";
        let sessions = window.iter().map(|(branch, _)| branch.session()).collect();
        let sent = AtomicUsize::new(0);
        let work = async {
            let mut held = self.control.take().await?;
            let answer = match self.control.let_go(held.conn(), &sessions, staying).await {
                Ok(()) => self.send_window(held.conn(), window, &sent, told, hear).await,
                Err(error) => Err(error),
            };
            held.keep(&answer);
            answer.map_err(|error| explain(self.name(), doing, error))
        };
        let cause = match self.control.within(doing, work).await {
            Ok(came) => return came,
            Err(cause) => cause,
        };
        let (first, sent) = (told.load(Ordering::Relaxed), sent.into_inner());
        if sent == 0 {
            hear(first, Answer::because(Finish::Unknown, cause));
            return Came::Lost;
        }
        let said = cause.chain();
        for place in first..sent {
            let lost = Error::new(ErrorKind::Unavailable, said.clone()).at(self.name());
            hear(place, Answer::because(Finish::Unknown, lost));
        }
        Came::Lost
    }

    /// Sends one text. The server stops at the first statement that it refuses: those in front of it are done, it and
    /// those behind it are not.
    async fn send_window(
        &self,
        conn: &mut Conn,
        window: &[(BranchId, Resolution)],
        sent: &AtomicUsize,
        told: &AtomicUsize,
        hear: Hear<'_>,
    ) -> Result<Came, MyError> {
        let steps = window.iter().map(|(branch, resolution)| statement(branch, *resolution));
        let text = steps.collect::<Vec<_>>().join("; ");
        sent.store(window.len(), Ordering::Relaxed);
        let mut answers = match conn.query_iter(text).await {
            Err(error) if is_refusal(&error) => return Ok(Came::Alone),
            answers => answers?,
        };
        let mut done = 0;
        while done < window.len() && next::<Row>(&mut answers).await?.is_ok() {
            done += 1;
        }
        drop(answers);
        let hear = |answer| hear(told.fetch_add(1, Ordering::Relaxed), answer);
        if self.wants_proof() {
            self.prove(conn, &window[..done], &hear).await?;
        } else {
            (0..done).for_each(|_| hear(Answer::good(Finish::Done)));
        }
        Ok(if done < window.len() { Came::Alone } else { Came::Through })
    }

    /// What the answers of a window are worth: one question for all that were committed, one text for all that were rolled
    /// back. What that leaves open, since somebody holds one of the places, is asked for one by one.
    async fn prove(
        &self,
        conn: &mut Conn,
        done: &[(BranchId, Resolution)],
        hear: &(dyn Fn(Answer<Finish>) + Sync),
    ) -> Result<(), MyError> {
        let committed = done.iter().filter(|(_, resolution)| *resolution == Resolution::Commit);
        let committed: Vec<Key> = committed.map(|(branch, _)| branch.into()).collect();
        let kinds = match committed.is_empty() {
            true => Ok(BTreeMap::new()),
            false => refused(conn.query(self.sql.kinds(&committed)).await)?.map(by_key),
        };
        let mut free = self.free(conn, done).await?;
        for (branch, resolution) in done {
            let kind = |kinds: &BTreeMap<Key, String>| kinds.get(&branch.into()).cloned().into_iter().collect();
            let known: Option<Vec<String>> = match resolution {
                Resolution::Commit => kinds.as_ref().ok().map(kind),
                Resolution::RollBack => free.next(),
            };
            let answer = match known {
                Some(known) => Ok(known),
                None => refused(conn.query(self.proof(branch, *resolution)).await)?,
            };
            hear(self.proven(branch, *resolution, answer));
        }
        Ok(())
    }

    /// What is in the places of those that were rolled back, as far as nobody holds them: not one locking read for all of
    /// them, which would meet the locks of others between them.
    async fn free(
        &self,
        conn: &mut Conn,
        done: &[(BranchId, Resolution)],
    ) -> Result<std::vec::IntoIter<Vec<String>>, MyError> {
        let rolled_back = done.iter().filter(|(_, resolution)| *resolution == Resolution::RollBack);
        let locks: Vec<String> = rolled_back.map(|(branch, _)| self.sql.try_lock(branch)).collect();
        let mut free = Vec::new();
        if !locks.is_empty() {
            // The server stops at the first that is held.
            let Ok(mut answers) = refused(conn.query_iter(locks.join("; ")).await)? else {
                return Ok(free.into_iter());
            };
            while free.len() < locks.len()
                && let Ok(rows) = next::<String>(&mut answers).await?
            {
                free.push(rows);
            }
        }
        Ok(free.into_iter())
    }
}

/// The witnesses' kinds, as [`Sql::kinds`] lists them.
fn by_key(rows: Vec<(i64, i64, i32, String)>) -> BTreeMap<Key, String> {
    let row = |(incarnation, sequence, branch, kind)| (Key { incarnation, sequence, branch }, kind);
    rows.into_iter().map(row).collect()
}

/// Tells the server's refusal, which is an answer, from everything that ends the session.
fn refused<T>(answer: Result<T, MyError>) -> Result<Result<T, MyError>, MyError> {
    match answer {
        Err(error) if !is_refusal(&error) => Err(error),
        answer => Ok(answer),
    }
}

/// How a window was dealt with, as far as was told.
enum Came {
    /// What was not told was not done: it comes next.
    Through,
    /// The next one needs a closer look.
    Alone,
    /// The connection is lost: nothing comes next.
    Lost,
}

/// Whether the server refused a statement, on a session that lives on.
fn is_refusal(error: &MyError) -> bool {
    error::code(error).is_some_and(|code| !error::ends_session(code))
}

/// The next answer of a text: rows, or the refusal at which the server stopped.
async fn next<T: FromRow + Send + 'static>(
    answers: &mut QueryResult<'_, '_, TextProtocol>,
) -> Result<Result<Vec<T>, MyError>, MyError> {
    // A statement that was refused announces no columns either, and `collect` then has the refusal.
    let announced = answers.columns().is_some();
    match answers.collect::<T>().await {
        Ok(rows) if announced => Ok(Ok(rows)),
        Ok(_) => Err(MyError::Other("the server's answer is not one to what was asked".into())),
        Err(error) if is_refusal(&error) => Ok(Err(error)),
        Err(error) => Err(error),
    }
}

fn is_unknown(answer: &Result<(), MyError>) -> bool {
    answer.as_ref().is_err_and(|error| error::code(error) == Some(XA_UNKNOWN))
}

async fn is_listed(conn: &mut Conn, branch: &BranchId, product: Product) -> Result<bool, MyError> {
    let rows = conn.query::<Row, _>(product.list()).await?;
    Ok(rows.iter().any(|row| sighted(row, product) == Sighted::Ours(*branch)))
}
