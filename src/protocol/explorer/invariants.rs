//! What holds in every state, and what it means that all has settled.

use super::setting::Setting;
use super::step::{Broken, broken};
use super::world::{Line, Past, Seen, Site, Slot, State, World};
use crate::protocol::{Outcome, Resolution};

impl World {
    /// I1, I3, I4, I8. The steps check I2, I6 and I7 themselves, the search I5.
    pub fn check(&self, setting: &Setting) -> Result<(), Broken> {
        for deal in 0..setting.modes.len() {
            self.check_atomicity(setting, deal)?;
            self.check_answers(setting, deal)?;
            self.check_records(setting, deal)?;
        }
        Ok(())
    }

    /// A branch of its that had committed is to commit once more.
    fn is_set_back(&self, setting: &Setting, deal: usize) -> bool {
        let set_back =
            |site: &Site| site.past == Past::WasCommitted && matches!(site.state, State::Prepared | State::Hidden);
        self.writers(setting, deal).any(set_back)
    }

    fn count(&self, setting: &Setting, deal: usize, state: State) -> usize {
        self.writers(setting, deal).filter(|site| site.state == state).count()
    }

    fn check_atomicity(&self, setting: &Setting, deal: usize) -> Result<(), Broken> {
        let meddled = self.operator < setting.operator;
        let committed = self.count(setting, deal, State::Committed);
        if self.deals[deal].begun && !meddled && committed > 0 && self.count(setting, deal, State::Ended) > 0 {
            return broken("I1", "one branch committed, another rolled back");
        }
        let taken_back = |site: &Site| site.past == Past::WasCommitted && site.state == State::Ended;
        if self.writers(setting, deal).any(taken_back) {
            return broken("I1", "a branch had committed, came back, and was rolled back");
        }
        Ok(())
    }

    fn check_answers(&self, setting: &Setting, index: usize) -> Result<(), Broken> {
        let deal = &self.deals[index];
        let committed = self.count(setting, index, State::Committed);
        let writers = self.writers(setting, index).count();
        let alone = !setting.payload && (writers == 0 || (writers == 1 && committed == 1));
        let by_hand = deal.against || deal.resolved == Some(Resolution::Commit);
        let decided = deal.commit == Slot::Durable || (self.incomplete && deal.decided) || alone || by_hand;
        let undone = (deal.commit == Slot::Absent && committed == 0) || deal.against;
        if setting.calm && deal.begun && deal.coordinator.is_none() && deal.answer != Some(Outcome::Committed) {
            return broken("I8", format!("nobody refused, and the answer is {:?}", deal.answer));
        }
        for (who, said) in [("the application", deal.answer), ("whoever asked", deal.told)] {
            let holds = match said {
                Some(Outcome::Committed) => decided,
                Some(Outcome::RolledBack) => undone,
                Some(Outcome::Damaged) => setting.strays,
                Some(Outcome::InDoubt) | None => true,
            };
            if !holds {
                return broken(
                    "I3",
                    format!("{who} was told {said:?}, {committed} committed, record {:?}", deal.commit),
                );
            }
        }
        Ok(())
    }

    fn check_records(&self, setting: &Setting, index: usize) -> Result<(), Broken> {
        let deal = &self.deals[index];
        let writers = self.writers(setting, index).count();
        let all = self.count(setting, index, State::Committed) == writers || self.is_set_back(setting, index);
        if deal.done != Slot::Absent && !(all && (deal.commit == Slot::Durable || self.incomplete)) {
            return broken("I4", "noted as done, and not every branch committed");
        }
        if deal.alone != Slot::Absent && !(all && writers == 1) {
            return broken("I4", "noted as committed by its only writer, and it is not");
        }
        let over = deal.begun && deal.coordinator.is_none();
        if self.first_life && over && setting.witness && deal.commit == Slot::Absent {
            let lost = |site: &&Site| site.state == State::Prepared && site.past != Past::WasGone && !site.wanted;
            if self.writers(setting, index).any(|site| lost(&site)) {
                return broken("I4", "finished, and a branch is prepared that nobody has on his list");
            }
        }
        Ok(())
    }

    /// Nothing of ours is left anywhere, and nobody is at work.
    pub fn is_quiet(&self, setting: &Setting) -> bool {
        let site = |index: usize| {
            let site = &self.sites[index];
            let ended = !matches!(site.state, State::Active | State::Prepared | State::Hidden);
            ended
                && site.late.is_none()
                && site.stray.is_none()
                && site.line == Line::Closed
                && site.seen == Seen::NotYet
                && !site.wanted
        };
        let deal = |index: usize| {
            let deal = &self.deals[index];
            let damaged = self.operator < setting.operator || deal.damage != Slot::Absent;
            let open = deal.commit == Slot::Durable && deal.done == Slot::Absent;
            deal.begun && deal.coordinator.is_none() && (!open || damaged)
        };
        self.up && !self.poisoned && self.indices(setting).all(site) && (0..setting.modes.len()).all(deal)
    }
}
