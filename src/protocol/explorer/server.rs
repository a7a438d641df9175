//! The servers: what a branch's session carries, and what its database makes of it.

use super::bugs::Bug;
use super::setting::Setting;
use super::step::Will;
use super::world::{Line, Past, Reply, Request, Seen, Site, State, Witness};
use crate::protocol::recovery::Evidence;
use crate::protocol::{Finish, Input, Vote};

impl Request {
    /// What the coordinator hears of it when nothing is heard.
    pub fn unknown(self) -> Reply {
        match self {
            Self::Prepare | Self::EndReadOnly => Reply::Voted(Vote::Unknown),
            Self::CommitAlone | Self::Commit | Self::RollBack => Reply::Finished(Finish::Unknown),
        }
    }
}

impl Reply {
    pub fn input(self, setting: &Setting, index: usize) -> Input {
        match self {
            Self::Voted(vote) => Input::Voted(setting.branch(index), vote),
            Self::Finished(finish) => Input::Finished(setting.branch(index), finish),
        }
    }
}

impl Site {
    /// The session is closed from the process's side.
    pub fn close(&mut self) {
        if let Line::Asked(request) = self.line {
            self.late = Some(request);
        }
        self.line = Line::Closed;
        if self.late.is_none() {
            self.forsake();
        }
    }

    /// The server has noticed that the session is gone: what was not prepared is rolled back.
    pub fn forsake(&mut self) {
        if self.state == State::Active {
            self.state = State::Ended;
        }
    }

    /// The server carries a request of the branch's own session out.
    pub fn execute(&mut self, setting: &Setting, request: Request, will: Will) -> Reply {
        let fenced = self.witness == Witness::Fence;
        match (request, self.state, will) {
            (Request::Prepare, State::Active, Will::Agrees) if fenced => Reply::Voted(Vote::No),
            (Request::Prepare, State::Active, Will::Agrees) => {
                self.state = State::Prepared;
                if setting.returns > 0 {
                    self.past = Past::Promised;
                }
                Reply::Voted(Vote::Prepared)
            }
            (Request::EndReadOnly, State::Active, Will::Agrees) => {
                self.state = State::Ended;
                Reply::Voted(Vote::ReadOnly)
            }
            (Request::Prepare | Request::EndReadOnly, State::Active, Will::Refuses) => Reply::Voted(Vote::No),
            (Request::Prepare, State::Active, Will::Strayed) => {
                self.state = State::Strayed;
                Reply::Voted(Vote::Lost)
            }
            (Request::CommitAlone, State::Active, Will::Agrees) if !fenced => {
                self.commit(setting, Witness::Alone);
                Reply::Finished(Finish::Done)
            }
            (Request::CommitAlone, State::Active, Will::Agrees | Will::Refuses) => {
                self.state = State::Ended;
                Reply::Finished(Finish::RolledBack)
            }
            (Request::CommitAlone, State::Active, Will::Strayed) => {
                self.state = State::Strayed;
                Reply::Finished(Finish::Lost)
            }
            (Request::Commit, State::Prepared, _) if setting.bug == Some(Bug::SessionIsReset) => {
                self.state = State::Hidden;
                Reply::Finished(Finish::Done)
            }
            (Request::Commit, State::Prepared, _) => {
                self.commit(setting, Witness::Decided);
                Reply::Finished(Finish::Done)
            }
            (Request::RollBack, State::Active | State::Prepared | State::Ended, _) => {
                self.state = State::Ended;
                Reply::Finished(Finish::Done)
            }
            // Unknown branch, or one that has ended otherwise.
            _ => request.unknown(),
        }
    }

    pub fn commit(&mut self, setting: &Setting, witness: Witness) {
        assert!(matches!(self.state, State::Active | State::Prepared));
        self.state = State::Committed;
        if setting.witness {
            self.witness = witness;
        }
    }

    pub fn forget(&mut self) {
        self.seen = Seen::NotYet;
        self.evidence = Evidence::NotAsked;
        self.todo = None;
    }
}
