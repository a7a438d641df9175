//! Planted bugs: each is a way in which somebody has got this wrong, and the explorer has to find it.

use super::setting::Setting;
use super::world::{Line, Request, Slot, State, World};
use crate::protocol::coordinator::Phase;
use crate::protocol::recovery::Action;
use crate::protocol::{Finish, Input, Mode, Outcome, Output, Record, Vote};

/// What is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    // The coordinator.
    UnknownVoteIsYes,
    AnswerBeforeDurable,
    AbortAfterTheDecision,
    FailedAppendRollsBack,
    UnknownFinishIsDone,
    UnknownOnePhaseIsRolledBack,
    PreparedAreForgotten,
    DoneBeforePhaseTwo,
    WriterBesideReaders,
    AlwaysNo,
    // The driver.
    LeftSessionsStayOpen,
    MemoryBeforeScans,
    LiveIsForgotten,
    LiveUntilTheDecision,
    LookingIsProof,
    FailedScanIsEmpty,
    // The journal.
    DurableTooSoon,
    ActsOnThePageCache,
    FailedAppendIsForgotten,
    OpenDecisionsAreForgotten,
    // The table.
    UndecidedCommits,
    DecidedRollsBack,
    GoneIsDamage,
    NotListedIsCommitted,
    AbsenceIsTrusted,
    // Damage, and persons.
    DamageIsToldFirst,
    DamageIsForgotten,
    LostMeansUndecided,
    SilenceIsNever,
    ResolvedBesideSessions,
    ForgottenIsUndecided,
    ForgottenBesideSessions,
    // Several transactions.
    AnswerOfAnother,
    PoisonIsForgotten,
    LiveIsAsked,
    // Servers that take back what they said.
    DoneIsForgotten,
    FinishedIsLeft,
    OkIsProof,
    SessionIsReset,
    PrunedBeforeTheNote,
    // Beside a copy of the journal; the last one is no bug, but the moment that nothing closes.
    NoLease,
    RegainedIsAsGood,
    NoStaleCheck,
    LeaseLostBehindTheDecision,
}

impl Bug {
    pub const COUNT: usize = Self::LeaseLostBehindTheDecision as usize + 1;
}

/// The plan's action, or what a wrong row of the table would say.
pub fn bend_row(setting: &Setting, row: &str, action: Action) -> Action {
    match (setting.bug, row) {
        (Some(Bug::UndecidedCommits), "undecided, there") => Action::Commit,
        (Some(Bug::DecidedRollsBack), "decided, there") => Action::RollBack,
        (Some(Bug::GoneIsDamage), "decided, gone") => Action::Damage,
        (Some(Bug::NotListedIsCommitted), "decided, gone") => Action::Finish,
        (Some(Bug::FinishedIsLeft), "finished, back") => Action::Nothing,
        _ => action,
    }
}

impl World {
    pub fn bend_input(&self, setting: &Setting, deal: usize, input: Input) -> Input {
        let alone = self.phase(deal) == Some(Phase::Alone);
        let deciding = self.deals[deal].commit != Slot::Absent;
        match (setting.bug, input) {
            (Some(Bug::UnknownVoteIsYes), Input::Voted(id, Vote::Unknown)) => {
                let writer = self.sites[setting.site(id).unwrap()].mode == Some(Mode::Writer);
                Input::Voted(id, if writer { Vote::Prepared } else { Vote::ReadOnly })
            }
            (Some(Bug::UnknownFinishIsDone), Input::Finished(id, Finish::Unknown)) if deciding => {
                Input::Finished(id, Finish::Done)
            }
            (Some(Bug::UnknownOnePhaseIsRolledBack), Input::Finished(id, Finish::Unknown)) if alone => {
                Input::Finished(id, Finish::RolledBack)
            }
            (Some(Bug::AlwaysNo), Input::Voted(id, _)) => Input::Voted(id, Vote::No),
            (_, input) => input,
        }
    }

    pub fn bend_outputs(&mut self, setting: &Setting, deal: usize, mut outputs: Vec<Output>) -> Vec<Output> {
        let id = setting.id(deal);
        match setting.bug {
            Some(Bug::AnswerBeforeDurable) => {
                outputs.retain(|output| !matches!(output, Output::Answer(_)) || self.deals[deal].answer.is_none());
                if outputs.iter().any(|output| matches!(output, Output::Append(_))) {
                    outputs.push(Output::Answer(Outcome::Committed));
                }
            }
            Some(Bug::FailedAppendRollsBack) if self.deals[deal].commit == Slot::Limbo => {
                for output in &mut outputs {
                    *output = match *output {
                        Output::Leave(id) => Output::RollBack(id),
                        _ => Output::Answer(Outcome::RolledBack),
                    };
                }
            }
            Some(Bug::PreparedAreForgotten) => {
                outputs.retain(|output| match output {
                    Output::RollBack(id) => self.sites[setting.site(*id).unwrap()].state != State::Prepared,
                    _ => true,
                });
            }
            Some(Bug::DamageIsToldFirst) => {
                outputs.retain(|output| *output != Output::Answer(Outcome::Damaged));
                let tells = outputs.iter().any(|output| matches!(output, Output::Damage(_)));
                if tells && self.deals[deal].answer.is_none() {
                    outputs.insert(0, Output::Answer(Outcome::Damaged));
                }
            }
            Some(Bug::DoneBeforePhaseTwo) if outputs.iter().any(|output| matches!(output, Output::Commit(_))) => {
                outputs.push(Output::Note(Record::Done(id)));
            }
            Some(Bug::WriterBesideReaders) if outputs.iter().any(|o| matches!(o, Output::EndReadOnly(_))) => {
                for index in self.indices(setting).filter(|index| index / setting.participants() == deal) {
                    if self.sites[index].mode == Some(Mode::Writer) {
                        self.sites[index].late = Some(Request::CommitAlone);
                    }
                }
            }
            _ => {}
        }
        outputs
    }

    pub fn abort_too_late(&self, setting: &Setting, deal: usize) -> bool {
        setting.bug == Some(Bug::AbortAfterTheDecision) && self.phase(deal) == Some(Phase::Deciding)
    }

    pub fn abort_against_the_decision(&mut self, setting: &Setting, deal: usize) {
        self.deals[deal].coordinator = None;
        self.deals[deal].answer = Some(Outcome::RolledBack);
        for index in self.indices(setting).filter(|index| index / setting.participants() == deal) {
            if self.sites[index].line == Line::Idle {
                self.send(index, Request::RollBack);
            }
        }
    }

    /// The session goes back to its pool with the answer unread, and another transaction reads it.
    pub fn mix_up(&mut self, setting: &Setting, index: usize) {
        let place = |other: &usize| other % setting.participants() == index % setting.participants();
        let asked = |other: &usize| self.sites[*other].line == Line::Asked(Request::Prepare);
        if let Some(other) = self.indices(setting).filter(place).find(asked) {
            self.sites[other].line = self.sites[index].line;
            self.sites[other].late = Some(Request::Prepare);
        }
    }
}
