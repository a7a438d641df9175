//! What is left to persons: a disk that has lost records is repaired, and somebody decides what no record does.

use super::bugs::Bug;
use super::council::{LIVE, NOTHING, outcome_now, remembered};
use super::setting::Setting;
use super::step::{Broken, Delivery, Event};
use super::world::{Deal, Slot, State, World};
use crate::protocol::recovery::{Action, Evidence};
use crate::protocol::{Outcome, Resolution};

impl Deal {
    /// All that the journal may hold of it.
    pub fn records(&self) -> impl Iterator<Item = Slot> + use<> {
        [self.commit, self.done, self.alone, self.damage].into_iter()
    }

    pub fn records_mut(&mut self) -> [&mut Slot; 4] {
        [&mut self.commit, &mut self.done, &mut self.alone, &mut self.damage]
    }
}

impl World {
    /// Somebody closes only what is damaged and over. Somebody decides only where a branch is prepared and nothing else decides, and after the sessions have ended: so
    /// that what he sees is all there is. Where a branch has gone one way, the others follow. Where none has, he may be
    /// wrong about what the application was told, and nobody could know better; of damage he knows it.
    pub fn events_of_person(&self, setting: &Setting, deal: usize, events: &mut Vec<Event>) {
        let known = remembered(self, setting, deal);
        let sites = || self.writers(setting, deal);
        let any = |state: State| sites().any(|site| site.state == state);
        let working = self.deals.iter().any(|deal| deal.coordinator.is_some());
        if working || self.poisoned {
            return;
        }
        let busy = sites().any(|site| site.late.is_some() || site.stray.is_some());
        let damaged = self.deals[deal].damage == Slot::Durable && !self.deals[deal].forgotten;
        let may_forget = !busy || setting.bug == Some(Bug::ForgottenBesideSessions);
        if setting.forgets && damaged && may_forget && !any(State::Prepared) {
            events.push(Event::Forget(deal));
        }
        let undecided = known & 7 == NOTHING && (self.incomplete || damaged);
        let may_resolve = !busy || setting.bug == Some(Bug::ResolvedBesideSessions);
        if !undecided || !may_resolve || !any(State::Prepared) {
            return;
        }
        let answer = self.deals[deal].answer.filter(|_| !self.incomplete);
        if !any(State::Ended) && answer != Some(Outcome::RolledBack) {
            events.push(Event::Resolve(deal, Resolution::Commit));
        }
        if !any(State::Committed) && answer != Some(Outcome::Committed) {
            events.push(Event::Resolve(deal, Resolution::RollBack));
        }
    }

    /// Somebody asks for an outcome by id: fence after fence, on every participant, then what the answers say.
    pub fn events_of_question(&self, setting: &Setting, deal: usize, events: &mut Vec<Event>) {
        let known = remembered(self, setting, deal);
        let ours_to_ask = known == NOTHING || (known == LIVE && setting.bug == Some(Bug::LiveIsAsked));
        if !setting.fences || self.poisoned || !ours_to_ask {
            return;
        }
        let first = deal * setting.participants();
        let open =
            (first..first + setting.participants()).find(|index| self.sites[*index].answer == Evidence::NotAsked);
        match open {
            Some(index) => {
                let deliveries = [Delivery::Answered, Delivery::Unanswered, Delivery::Lost];
                events.extend(deliveries.map(|delivery| Event::Fence(index, delivery)));
            }
            None => events.push(Event::Conclude(deal)),
        }
    }

    /// No answer is told as [`Evidence::Nothing`] here, to be told from a question that is still to be put.
    pub fn fence(&mut self, setting: &Setting, index: usize, delivery: Delivery) {
        let answer = match delivery {
            Delivery::Lost => {
                let late = Some(Action::Ask).filter(|_| setting.ghosts);
                self.sites[index].stray = self.sites[index].stray.or(late);
                None
            }
            Delivery::Unanswered => self.carry(setting, index, Action::Ask).and(None),
            Delivery::Answered | Delivery::Lied => self.carry(setting, index, Action::Ask),
        };
        let silence = if setting.bug == Some(Bug::SilenceIsNever) { Evidence::Never } else { Evidence::Nothing };
        self.sites[index].answer = answer.unwrap_or(silence);
    }

    /// The memory is read again, and the answers are thrown away.
    pub fn conclude(&mut self, setting: &Setting, deal: usize) -> Result<(), Broken> {
        let answers: Vec<_> = self.of(setting, deal).iter().map(|site| site.answer).collect();
        let first = deal * setting.participants();
        for site in &mut self.sites[first..first + setting.participants()] {
            site.answer = Evidence::NotAsked;
        }
        let outcome = outcome_now(self, setting, deal, &answers);
        self.hear_outcome(deal, outcome)
    }

    pub fn person_forgets(&mut self, setting: &Setting, deal: usize) {
        self.stop(setting);
        self.deals[deal].forgotten = true;
    }

    /// Nobody decides beside a running application: it is stopped, and started again.
    fn stop(&mut self, setting: &Setting) {
        self.first_life = false;
        self.forget_pass(setting);
        for site in &mut self.sites {
            site.close();
            site.wanted = false;
        }
    }

    pub fn person_resolves(&mut self, setting: &Setting, index: usize, resolution: Resolution) {
        self.stop(setting);
        let shown = self.writers(setting, index).any(|site| matches!(site.state, State::Committed | State::Ended));
        let deal = &mut self.deals[index];
        let agreed = match resolution {
            Resolution::Commit => Outcome::Committed,
            Resolution::RollBack => Outcome::RolledBack,
        };
        deal.against = !shown && deal.answer.is_some_and(|answer| answer != agreed);
        deal.told = deal.told.filter(|told| shown || *told == agreed);
        deal.resolved = Some(resolution);
    }

    /// A damaged journal is repaired: what could not be read is gone, and that this happened is known. Without its
    /// decision no other record of a transaction is kept.
    pub fn reopen_with_loss(&mut self, kept: u8) {
        let mut kept = (0..8).map(|bit| kept >> bit & 1 == 1);
        self.up = true;
        self.losses -= 1;
        self.incomplete = true;
        for deal in &mut self.deals {
            for slot in deal.records_mut() {
                if *slot == Slot::Durable && !kept.next().expect("a bit for each record") {
                    *slot = Slot::Absent;
                }
            }
            if deal.commit == Slot::Absent {
                deal.done = Slot::Absent;
            }
        }
    }
}
