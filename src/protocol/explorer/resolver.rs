//! The resolver's passes: scan after scan, then the real plan, then one action after the other, and the plan again.
//! Any other event may come between any two of these steps.

use super::bugs::Bug;
use super::council::{Council, DECIDED, Verdict, remembered};
use super::setting::Setting;
use super::step::{Broken, Delivery, Event, broken};
use super::world::{Seen, Slot, State, Witness, World};
use crate::protocol::recovery::{Action, Evidence};
use crate::protocol::{Outcome, Resolution};

impl World {
    pub fn events_of_resolver(&self, setting: &Setting, events: &mut Vec<Event>) {
        let mut scanned = true;
        for number in 0..setting.participants() {
            if self.sites[number].seen == Seen::NotYet {
                scanned = false;
                events.extend([Event::Scan(number), Event::ScanFails(number)]);
            }
        }
        let work: Vec<_> = self.indices(setting).filter(|index| self.sites[*index].todo.is_some()).collect();
        for index in &work {
            events.push(Event::Act(*index, Delivery::Answered));
            events.push(Event::Act(*index, Delivery::Unanswered));
            events.push(Event::Act(*index, Delivery::Lost));
            let ends = matches!(self.sites[*index].todo, Some(Action::Commit | Action::RollBack));
            if self.lies > 0 && ends && self.sites[*index].state == State::Prepared {
                events.push(Event::Act(*index, Delivery::Lied));
            }
        }
        if scanned && work.is_empty() {
            events.push(Event::Plan);
        }
    }

    pub fn resolve(&mut self, setting: &Setting, event: Event, council: &mut Council) -> Result<(), Broken> {
        match event {
            Event::Scan(number) => self.scan(setting, number, true),
            Event::ScanFails(number) => self.scan(setting, number, false),
            Event::Plan => return self.plan(setting, council),
            Event::Act(index, delivery) => return self.act(setting, index, delivery),
            other => panic!("{other:?} is not the resolver's"),
        }
        Ok(())
    }

    fn scan(&mut self, setting: &Setting, number: usize, whole: bool) {
        if self.sites.iter().all(|site| site.seen == Seen::NotYet) {
            for deal in 0..setting.modes.len() {
                let all = remembered(self, setting, deal);
                self.deals[deal].memory_before = match setting.bug {
                    Some(Bug::MemoryBeforeScans) => all,
                    _ if all & 7 == DECIDED => DECIDED,
                    _ => 0,
                };
            }
        }
        for index in self.indices(setting).filter(|index| index % setting.participants() == number) {
            let site = &mut self.sites[index];
            site.seen = match (whole, site.state) {
                (false, _) => Seen::Failed,
                (true, State::Prepared) => Seen::Listed,
                (true, _) => Seen::NotListed,
            };
        }
    }

    fn plan(&mut self, setting: &Setting, council: &mut Council) -> Result<(), Broken> {
        let verdict = council.consult(self, setting);
        if verdict.trespasses {
            return broken("I6", "the plan takes somebody else's branch for ours");
        }
        for deal in 0..setting.modes.len() {
            self.hear_outcome(deal, verdict.outcomes[deal])?;
            let remembered = self.deals[deal].damage == Slot::Durable;
            let known = verdict.outcomes[deal] == Some(Outcome::Damaged);
            if remembered && !known && !(self.deals[deal].forgotten && verdict.outcomes[deal].is_none()) {
                return broken("I9", format!("damage is remembered, and {:?} is told", verdict.outcomes[deal]));
            }
            // Forced, before anybody is told.
            if verdict.damaged[deal] && !self.poisoned {
                self.deals[deal].damage = Slot::Durable;
            }
        }
        let mut work = false;
        for index in self.indices(setting) {
            let action = verdict.actions[index];
            if action == Some(Action::Damage) && !setting.strays && setting.operator == 0 {
                return broken("I7", format!("damage at {index}, and nobody did any"));
            }
            self.sites[index].todo = action.filter(|action| action.is_work());
            work |= self.sites[index].todo.is_some();
        }
        if !work {
            self.end_pass(setting, &verdict);
        }
        Ok(())
    }

    /// What recovery says of a transaction may become more certain, never different.
    pub fn hear_outcome(&mut self, deal: usize, outcome: Option<Outcome>) -> Result<(), Broken> {
        let deal = &mut self.deals[deal];
        let sure = outcome.filter(|outcome| matches!(outcome, Outcome::Committed | Outcome::RolledBack));
        let Some(sure) = sure else { return Ok(()) };
        if deal.told.is_some_and(|told| told != sure) {
            return broken("I3", format!("told {:?} before, {sure:?} now", deal.told));
        }
        deal.told = Some(sure);
        Ok(())
    }

    fn end_pass(&mut self, setting: &Setting, verdict: &Verdict) {
        for deal in 0..setting.modes.len() {
            if verdict.done[deal] && !self.poisoned {
                self.deals[deal].done = Slot::Cached;
            }
            if verdict.alone[deal] && !self.poisoned {
                self.deals[deal].alone = Slot::Cached;
            }
        }
        for index in self.indices(setting) {
            if verdict.actions[index].is_some_and(Action::is_final) {
                self.sites[index].wanted = false;
            }
        }
        self.forget_pass(setting);
    }

    pub fn forget_pass(&mut self, setting: &Setting) {
        for index in self.indices(setting) {
            self.sites[index].forget();
        }
        for deal in &mut self.deals {
            deal.memory_before = 0;
        }
    }

    fn act(&mut self, setting: &Setting, index: usize, delivery: Delivery) -> Result<(), Broken> {
        let deal = &self.deals[index / setting.participants()];
        let action = self.sites[index].todo.take().expect("the event is enabled");
        if deal.coordinator.is_some() {
            return broken("I6", format!("{action:?} at {index} of a live transaction"));
        }
        let decided = deal.commit == Slot::Durable || deal.resolved == Some(Resolution::Commit);
        let lost = self.incomplete && deal.done != Slot::Absent;
        if action == Action::Commit && !decided && !lost {
            return broken("I2", format!("recovery commits {index} and no record is durable"));
        }
        let heard = match delivery {
            Delivery::Lost => {
                self.sites[index].stray = Some(action).filter(|_| setting.ghosts);
                None
            }
            Delivery::Answered => self.carry(setting, index, action),
            Delivery::Lied => {
                self.lies -= 1;
                self.sites[index].state = State::Hidden;
                Some(if action == Action::Commit { Evidence::Committed } else { Evidence::NotAsked })
            }
            Delivery::Unanswered => {
                self.carry(setting, index, action);
                None
            }
        };
        match heard {
            // Where servers lie a positive answer is none, and the witness is asked for.
            Some(_) if setting.lies > 0 && action != Action::Ask && setting.bug != Some(Bug::OkIsProof) => {
                self.sites[index].seen = Seen::NotListed;
            }
            Some(evidence) => {
                self.sites[index].evidence = evidence;
                self.sites[index].seen = Seen::NotListed;
            }
            // As [`Observation::unclear`](crate::protocol::recovery::Observation::unclear).
            None if delivery == Delivery::Answered => self.sites[index].seen = Seen::Unclear,
            None => self.lose_sight(setting, index % setting.participants()),
        }
        Ok(())
    }

    /// As [`Observation::lost_sight`](crate::protocol::recovery::Observation::lost_sight): what the participant
    /// listed holds no longer, and what was still to be done there is planned again.
    fn lose_sight(&mut self, setting: &Setting, number: usize) {
        for index in self.indices(setting).filter(|index| index % setting.participants() == number) {
            self.sites[index].seen = Seen::Failed;
            self.sites[index].todo = None;
        }
    }

    /// The participant's side of an action; `None` is no positive answer.
    pub fn carry(&mut self, setting: &Setting, index: usize, action: Action) -> Option<Evidence> {
        let site = &mut self.sites[index];
        match (action, site.state) {
            (Action::Commit | Action::RollBack, State::Prepared) if setting.pinned && site.late.is_some() => None,
            (Action::Commit, State::Prepared) => {
                site.commit(setting, Witness::Decided);
                Some(Evidence::Committed)
            }
            (Action::RollBack, State::Prepared) => {
                site.state = State::Ended;
                Some(Evidence::NotAsked)
            }
            (Action::Ask, _) if !setting.witness => Some(Evidence::Off),
            (Action::Ask, state) => Some(match (site.witness, state) {
                (Witness::Decided, _) => Evidence::Committed,
                (Witness::Alone, _) => Evidence::CommittedAlone,
                (Witness::Fence, _) => Evidence::Never,
                (Witness::None, State::Prepared | State::Hidden) => Evidence::Blocked,
                (Witness::None, _) if setting.bug == Some(Bug::LookingIsProof) => Evidence::Never,
                (Witness::None, _) => {
                    site.witness = Witness::Fence;
                    Evidence::Never
                }
            }),
            _ => None,
        }
    }
}
