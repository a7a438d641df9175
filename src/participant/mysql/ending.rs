//! How a branch ends that is not to commit, and what is certain of it then.

use super::branch::{State, XaBranch};
use super::error::{self, DUPLICATE_KEY, XA_UNKNOWN};
use super::notes::Notes;
use super::sql::Step;
use super::wire::Failure;
use super::work::{Begun, Work};
use crate::error::{Error, ErrorKind};
use crate::protocol::{Finish, Mode, Vote};
use mysql_async::ServerError;

/// How a branch went that was not prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gone {
    /// Rolled back, by a positive answer.
    RolledBack,
    /// Its session is closed and nothing was prepared: it cannot commit.
    Closed,
    /// The application ended its transaction by itself.
    Lost,
    /// Not known.
    Unclear,
}

impl Gone {
    pub(super) fn vote(self) -> Vote {
        match self {
            Self::RolledBack | Self::Closed => Vote::No,
            Self::Lost => Vote::Lost,
            Self::Unclear => Vote::Unknown,
        }
    }

    pub(super) fn finish(self) -> Finish {
        match self {
            Self::RolledBack | Self::Closed => Finish::RolledBack,
            Self::Lost => Finish::Lost,
            Self::Unclear => Finish::Unknown,
        }
    }
}

/// The cause of [`Gone::Lost`].
pub(super) const LOST: &str =
    "the application ended, or may have ended, the branch's transaction by itself: its work may be committed";

impl XaBranch {
    /// Why the branch cannot go on, as far as is known before anything is sent.
    pub(super) async fn doomed(&mut self) -> Option<Error> {
        let name = self.common.name;
        let Some(Work { lease: Some(lease), notes, .. }) = &mut self.work else {
            return Some(self.error(ErrorKind::Closed, "the branch's session is gone"));
        };
        if !notes.is_torn() && !lease.wire().is_broken() {
            // An error here is noted like any other.
            let _ = notes.look_for_unseen(lease.wire().conn()).await;
        }
        if let Some(failure) = notes.failure() {
            return Some(failure.at(name));
        }
        if notes.is_torn() || lease.wire().is_broken() {
            let torn = "a call of the application was dropped half way, or the connection was lost in it";
            return Some(self.error(ErrorKind::Statement, torn));
        }
        None
    }

    /// The cause to tell of, which is the first one unless a worse thing came to light.
    pub(super) fn told(&self, gone: Gone, cause: Error) -> Error {
        match gone {
            Gone::Lost => self.error(ErrorKind::Statement, LOST).because(cause),
            Gone::RolledBack | Gone::Closed | Gone::Unclear => cause,
        }
    }

    /// Rolls back what was never asked to prepare.
    pub(super) async fn abort(&mut self) -> Gone {
        match self.begun() {
            // Nobody has used it.
            Some(Begun::Not) if !self.is_broken() => return self.rolled_back(),
            // The name may be another's: nothing is asked for by it.
            Some(Begun::Asked) => return self.closed(),
            _ => {}
        }
        let question = self.sql.roll_back_open(self.common.nonce(), self.is_marked());
        match self.ask(&question).await {
            Ok(()) => self.rolled_back(),
            Err(Failure::Refused(Step::Marker, _)) => self.abort_unmarked(true).await,
            // The marker was there, so what is refused is the end of the very transaction (D37).
            Err(Failure::Refused(Step::End, _)) => self.abort_ended().await,
            Err(_) => self.closed(),
        }
    }

    /// The marker is gone. The server took it if it rolled the transaction back by itself, after a deadlock say.
    ///
    /// Not `certain`, it is only if what is asked next is answered: then the refusal was the answer to its question.
    async fn abort_unmarked(&mut self, certain: bool) -> Gone {
        let by_server = match self.mode {
            Mode::Writer => {
                let end = self.sql.end(self.common.nonce());
                match self.ask(&end).await {
                    Err(Failure::Broken(_) | Failure::Misunderstood) if !certain => return self.unclear(),
                    Err(Failure::Refused(Step::End, error)) => error::is_rollback_only(&error),
                    _ => false,
                }
            }
            Mode::ReadOnly => self.notes().is_some_and(|notes| notes.rolled_back),
        };
        if by_server && !self.is_suspect() {
            return self.abort_ended().await;
        }
        self.leave();
        Gone::Lost
    }

    async fn abort_ended(&mut self) -> Gone {
        let question = self.sql.roll_back_ended(self.common.nonce());
        match self.ask(&question).await {
            Ok(()) => self.rolled_back(),
            Err(_) => self.closed(),
        }
    }

    fn rolled_back(&mut self) -> Gone {
        self.release(State::RolledBack);
        Gone::RolledBack
    }

    /// Closes the session of a branch that was never asked to prepare.
    fn closed(&mut self) -> Gone {
        let suspect = self.is_suspect();
        self.state = State::Left;
        self.work = None;
        if suspect { Gone::Lost } else { Gone::Closed }
    }

    /// Closes the session of a branch that may have done what it was asked for.
    fn unclear(&mut self) -> Gone {
        let suspect = self.is_suspect();
        self.leave();
        if suspect { Gone::Lost } else { Gone::Unclear }
    }

    fn is_broken(&mut self) -> bool {
        match &mut self.work {
            Some(Work { lease: Some(lease), .. }) => lease.wire().is_broken(),
            _ => true,
        }
    }

    fn notes(&self) -> Option<&Notes> {
        self.work.as_ref().map(|work| &work.notes)
    }

    /// Whether the application may have ended the transaction by itself. Without notes, nobody knows.
    fn is_suspect(&self) -> bool {
        self.notes().is_none_or(Notes::is_suspect)
    }

    /// After the step that counts was refused: only the answer to a rollback tells.
    async fn abort_asked(&mut self, refusal: &ServerError) -> Gone {
        let question = self.sql.roll_back_ended(self.common.nonce());
        match self.ask(&question).await {
            Ok(()) => self.rolled_back(),
            // *Rolled back* at prepare leaves nothing behind that could be rolled back again.
            Err(Failure::Refused(Step::Last, error))
                if error.code == XA_UNKNOWN && error::is_rollback_only(refusal) =>
            {
                self.rolled_back()
            }
            Err(_) => {
                self.leave();
                Gone::Unclear
            }
        }
    }

    /// What a failed question leaves, and the error to tell of it.
    pub(super) async fn give_up(&mut self, doing: &str, failure: Failure) -> (Gone, Error) {
        let gone = match &failure {
            // It never began: nothing is asked for by a name that may be another's.
            Failure::Refused(Step::Start | Step::Setting, _) | Failure::Doubted(Step::Start | Step::Setting, _) => {
                self.closed()
            }
            Failure::Refused(Step::Marker, _) => self.abort_unmarked(true).await,
            Failure::Doubted(Step::Marker, _) => self.abort_unmarked(false).await,
            Failure::Refused(Step::Last, refusal) => {
                let refusal = refusal.clone();
                self.abort_asked(&refusal).await
            }
            // The witness's key is taken: a fence. Or the server had given the transaction up already.
            Failure::Refused(..) => self.abort_refused(true).await,
            Failure::Doubted(..) => self.abort_refused(false).await,
            Failure::Broken(_) | Failure::Misunderstood => self.unclear(),
        };
        let cause = match gone {
            Gone::Lost => self.error(ErrorKind::Statement, LOST).because(failure.into_error()),
            _ => self.explain(doing_unless_fenced(doing, &failure), failure.into_error()),
        };
        (gone, cause)
    }

    /// Rolls back after the marker was proven, and used up. `certain` as above.
    async fn abort_refused(&mut self, certain: bool) -> Gone {
        if self.mode == Mode::Writer {
            let end = self.sql.end(self.common.nonce());
            if let Err(Failure::Broken(_) | Failure::Misunderstood) = self.ask(&end).await {
                return if certain { self.closed() } else { self.unclear() };
            }
        }
        self.abort_ended().await
    }
}

/// The witness's key is taken when recovery has given the branch up.
fn doing_unless_fenced<'a>(doing: &'a str, failure: &Failure) -> &'a str {
    match failure {
        Failure::Refused(Step::Witness, error) | Failure::Doubted(Step::Witness, error)
            if error.code == DUPLICATE_KEY =>
        {
            "recovery has fenced the branch off"
        }
        _ => doing,
    }
}
