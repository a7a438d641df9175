//! What can happen next, and what it does: application, coordinator, sessions, servers, journal, process.

use super::bugs::Bug;
use super::copy::Lease;
use super::council::Council;
pub use super::event::{Broken, Delivery, Event, Will, broken};
use super::setting::Setting;
use super::world::{Deal, Line, PROMISED, Past, Reply, Request, Slot, State, Witness, World};
use crate::protocol::coordinator::Phase;
use crate::protocol::recovery::{Action, Evidence};
use crate::protocol::{Finish, Input, Mode, Outcome, Output, Record, Vote};
use std::rc::Rc;

impl World {
    /// All that can happen next.
    pub fn events(&self, setting: &Setting) -> Vec<Event> {
        let mut events = self.all_events(setting);
        if setting.calm {
            events.retain(|event| !event.is_fault(self) && !event.gives_up());
        }
        if self.faults == Some(0) {
            events.retain(|event| !event.is_fault(self));
        }
        events
    }

    fn all_events(&self, setting: &Setting) -> Vec<Event> {
        let mut events = Vec::with_capacity(16);
        for index in self.indices(setting) {
            self.events_of_site(setting, index, &mut events);
        }
        if !self.up {
            let open = self.deals.iter().flat_map(Deal::records);
            let open = open.filter(|slot| slot.is_open()).count();
            events.extend((0..1u8 << open).map(Event::Reopen));
            if self.losses > 0 {
                let durable =
                    self.deals.iter().map(|deal| deal.records().filter(|slot| *slot == Slot::Durable).count());
                let durable = durable.sum::<usize>();
                events.extend((0..(1u8 << durable) - 1).filter(|_| open == 0).map(Event::ReopenWithLoss));
            }
            return events;
        }
        if self.crashes > 0 || self.poisoned {
            events.push(Event::Crash);
        }
        for index in 0..setting.modes.len() {
            self.events_of_deal(setting, index, &mut events);
        }
        self.events_of_resolver(setting, &mut events);
        self.events_of_copy(setting, &mut events);
        events
    }

    fn events_of_deal(&self, setting: &Setting, index: usize, events: &mut Vec<Event>) {
        let deal = &self.deals[index];
        if !deal.begun {
            events.push(Event::Begin(index));
        }
        if deal.begun {
            self.events_of_question(setting, index, events);
        }
        if deal.coordinator.is_none() {
            self.events_of_person(setting, index, events);
            let asked = self.of(setting, index).iter().all(|site| site.wanted);
            if deal.begun && setting.questions && !asked {
                events.push(Event::Ask(index));
            }
            return;
        }
        if self.phase(index) == Some(Phase::Working) {
            events.push(Event::Commit(index));
        }
        events.push(Event::Abort(index));
        if deal.commit == Slot::Pending {
            events.extend([Event::Sync(index), Event::SyncFails(index)]);
        }
        if self.unremembered(index) > 0 {
            events.extend([Event::Remember(index), Event::RememberFails(index)]);
        }
    }

    fn events_of_site(&self, setting: &Setting, index: usize, events: &mut Vec<Event>) {
        let site = &self.sites[index];
        if site.late.is_some() {
            events.extend([Event::Land(index), Event::Drop(index)]);
        }
        if site.stray.is_some() {
            events.extend([Event::LandStray(index), Event::DropStray(index)]);
        }
        let ended = matches!(site.state, State::Committed | State::Ended);
        if (self.returns > 0 && site.past == Past::Promised && ended) || site.state == State::Hidden {
            events.push(Event::Return(index));
        }
        if setting.prunes && self.may_prune(setting, index) {
            events.push(Event::Prune(index));
        }
        if self.operator > 0 && site.state == State::Prepared {
            events.push(Event::Operator(index));
        }
        match site.line {
            Line::Asked(request) => {
                events.extend([Event::Serve(index, Will::Agrees), Event::Cut(index)]);
                let votes = matches!(request, Request::Prepare | Request::EndReadOnly | Request::CommitAlone);
                if votes && site.state == State::Active {
                    events.push(Event::Serve(index, Will::Refuses));
                    let strays = setting.strays && site.mode == Some(Mode::Writer);
                    events.extend(strays.then_some(Event::Serve(index, Will::Strayed)));
                }
            }
            Line::Answered(reply) => {
                let yes = matches!(reply, Reply::Voted(Vote::Prepared | Vote::ReadOnly));
                if !yes || self.may_decide(setting, index / setting.participants()) {
                    events.push(Event::Hear(index));
                }
                let unknown = matches!(reply, Reply::Voted(Vote::Unknown) | Reply::Finished(Finish::Unknown));
                events.extend((!unknown).then_some(Event::Cut(index)));
            }
            Line::Idle if matches!(site.state, State::Active | State::Prepared) => events.push(Event::Cut(index)),
            Line::Idle | Line::Broken | Line::Closed => {}
        }
    }

    pub fn phase(&self, deal: usize) -> Option<Phase> {
        self.deals[deal].coordinator.as_ref().map(|coordinator| coordinator.fingerprint().0)
    }

    fn unremembered(&self, deal: usize) -> u8 {
        self.deals[deal].coordinator.as_ref().map_or(0, |coordinator| coordinator.fingerprint().2)
    }

    pub fn apply(&mut self, setting: &Setting, event: Event, council: &mut Council) -> Result<(), Broken> {
        if event.is_fault(self) {
            self.faults = self.faults.map(|left| left - 1);
        }
        match event {
            Event::Begin(deal) => self.begin(setting, deal),
            Event::Commit(deal) => self.tell(setting, deal, Input::Commit)?,
            Event::Abort(deal) if self.abort_too_late(setting, deal) => self.abort_against_the_decision(setting, deal),
            Event::Abort(deal) => self.tell(setting, deal, Input::Abort)?,
            Event::Serve(index, will) => self.serve(setting, index, will),
            Event::Hear(index) => self.hear(setting, index)?,
            Event::Cut(index) => self.cut(setting, index)?,
            Event::Land(index) => {
                let request = self.sites[index].late.take().expect("the event is enabled");
                self.sites[index].execute(setting, request, Will::Agrees);
                self.sites[index].forsake();
            }
            Event::Drop(index) => {
                self.sites[index].late = None;
                self.sites[index].forsake();
            }
            Event::Sync(deal) => {
                self.deals[deal].commit = Slot::Durable;
                self.deals[deal].decided = true;
                self.tell(setting, deal, Input::Durable)?;
            }
            Event::SyncFails(deal) => {
                self.poisoned = true;
                self.deals[deal].commit = Slot::Limbo;
                self.tell(setting, deal, Input::AppendFailed)?;
            }
            Event::Remember(deal) => {
                self.deals[deal].damage = Slot::Durable;
                self.tell(setting, deal, Input::Remembered)?;
            }
            Event::RememberFails(deal) => {
                self.poisoned = true;
                // What is durable stays so, whatever becomes of its repetition.
                if self.deals[deal].damage == Slot::Pending {
                    self.deals[deal].damage = Slot::Limbo;
                }
                self.tell(setting, deal, Input::Remembered)?;
            }
            Event::Crash => self.crash(setting),
            Event::Reopen(kept) => self.reopen(setting, kept),
            Event::ReopenWithLoss(kept) => self.reopen_with_loss(kept),
            Event::Resolve(deal, resolution) => self.person_resolves(setting, deal, resolution),
            Event::LandStray(index) => {
                let action = self.sites[index].stray.take().expect("the event is enabled");
                self.carry(setting, index, action);
            }
            Event::DropStray(index) => self.sites[index].stray = None,
            Event::Operator(index) => {
                self.operator -= 1;
                self.sites[index].state = State::Ended;
            }
            Event::Ask(deal) => {
                for index in self.indices(setting).filter(|index| index / setting.participants() == deal) {
                    self.sites[index].wanted = true;
                }
            }
            Event::Fence(index, delivery) => self.fence(setting, index, delivery),
            Event::Return(index) => self.bring_back(setting, index)?,
            Event::Prune(index) => self.prune(setting, index),
            Event::Forget(deal) => self.person_forgets(setting, deal),
            Event::Conclude(deal) => self.conclude(setting, deal)?,
            Event::LoseLease(_)
            | Event::RegainLease(_)
            | Event::CopyTakes(_)
            | Event::CopyChecks
            | Event::CopyActs(_)
            | Event::CopyEnds => self.copy(setting, event),
            Event::Scan(_) | Event::ScanFails(_) | Event::Plan | Event::Act(..) => {
                self.resolve(setting, event, council)?;
            }
        }
        self.tidy(setting);
        Ok(())
    }

    fn begin(&mut self, setting: &Setting, deal: usize) {
        self.deals[deal].begun = true;
        self.deals[deal].unguarded = self.leases.contains(&Lease::Nobody) || self.leases.contains(&Lease::Copy);
        self.deals[deal].coordinator = Some(Rc::new(setting.coordinator(deal)));
        for index in self.indices(setting).filter(|index| index / setting.participants() == deal) {
            if self.sites[index].mode.is_some() {
                self.sites[index].state = State::Active;
                self.sites[index].line = Line::Idle;
            }
        }
    }

    /// The shell: an input goes in, the outputs are carried out in order.
    pub fn tell(&mut self, setting: &Setting, deal: usize, input: Input) -> Result<(), Broken> {
        let input = self.bend_input(setting, deal, input);
        let mut coordinator = self.deals[deal].coordinator.take().expect("only live transactions are told anything");
        let machine = Rc::make_mut(&mut coordinator);
        machine.handle(input);
        let outputs: Vec<_> = std::iter::from_fn(|| machine.poll()).collect();
        let finished = machine.is_finished();
        self.deals[deal].coordinator = Some(coordinator);
        for output in self.bend_outputs(setting, deal, outputs) {
            self.carry_out(setting, deal, output)?;
        }
        if finished {
            self.deals[deal].coordinator = None;
        }
        // A poisoned journal takes nothing more, and says so at once.
        if self.poisoned && self.deals[deal].commit == Slot::Pending {
            if setting.bug == Some(Bug::PoisonIsForgotten) {
                self.deals[deal].commit = Slot::Cached;
                return self.tell(setting, deal, Input::Durable);
            }
            self.deals[deal].commit = Slot::Limbo;
            return self.tell(setting, deal, Input::AppendFailed);
        }
        if self.poisoned && self.unremembered(deal) > 0 {
            if self.deals[deal].damage == Slot::Pending {
                self.deals[deal].damage = Slot::Limbo;
            }
            return self.tell(setting, deal, Input::Remembered);
        }
        if setting.bug == Some(Bug::DurableTooSoon) && self.deals[deal].commit == Slot::Pending {
            self.deals[deal].commit = Slot::Cached;
            return self.tell(setting, deal, Input::Durable);
        }
        Ok(())
    }

    fn carry_out(&mut self, setting: &Setting, deal: usize, output: Output) -> Result<(), Broken> {
        match output {
            Output::Prepare(id) => self.send(setting.site(id).unwrap(), Request::Prepare),
            Output::EndReadOnly(id) => self.send(setting.site(id).unwrap(), Request::EndReadOnly),
            Output::CommitOnePhase(id) => self.send(setting.site(id).unwrap(), Request::CommitAlone),
            Output::RollBack(id) => self.send(setting.site(id).unwrap(), Request::RollBack),
            Output::Commit(id) => {
                if self.deals[deal].commit != Slot::Durable {
                    return broken("I2", format!("{id} is told to commit and the record is not durable"));
                }
                self.send(setting.site(id).unwrap(), Request::Commit);
            }
            Output::Leave(id) => self.leave(setting, deal, setting.site(id).unwrap()),
            Output::Append(_) => {
                let meddled = self.operator < setting.operator;
                if !meddled && self.writers(setting, deal).any(|site| site.state != State::Prepared) {
                    return broken("I2", "decided, and not every branch has promised");
                }
                self.deals[deal].commit = Slot::Pending;
            }
            Output::Damage(_) if self.deals[deal].damage == Slot::Absent => self.deals[deal].damage = Slot::Pending,
            Output::Damage(_) => {}
            Output::Note(_) if self.poisoned => {}
            Output::Note(Record::Done(_)) => self.deals[deal].done = Slot::Cached,
            Output::Note(_) => self.deals[deal].alone = Slot::Cached,
            Output::Answer(outcome) => {
                let remembered = self.deals[deal].damage == Slot::Durable || self.poisoned;
                if outcome == Outcome::Damaged && !remembered {
                    return broken("I9", "the application is told of damage that nobody will remember");
                }
                assert_eq!(self.deals[deal].answer, None, "two answers");
                self.deals[deal].answer = Some(outcome);
            }
        }
        Ok(())
    }

    pub fn send(&mut self, index: usize, request: Request) {
        let site = &mut self.sites[index];
        site.line = match site.line {
            Line::Idle => Line::Asked(request),
            Line::Broken => Line::Answered(request.unknown()),
            busy => panic!("{request:?} on a session that is {busy:?}"),
        };
    }

    fn leave(&mut self, setting: &Setting, deal: usize, index: usize) {
        if setting.bug == Some(Bug::LeftSessionsStayOpen) {
            return;
        }
        // An answer that was under way changes nothing any more: the real coordinator is asked.
        if let (Line::Answered(reply), Some(coordinator)) = (self.sites[index].line, &self.deals[deal].coordinator) {
            let mut machine = (**coordinator).clone();
            machine.handle(reply.input(setting, index));
            assert_eq!(machine, **coordinator, "a branch that was left has a say");
        }
        if setting.bug == Some(Bug::AnswerOfAnother) && self.sites[index].line == PROMISED {
            self.mix_up(setting, index);
        }
        self.sites[index].close();
        self.sites[index].wanted = true;
    }

    fn serve(&mut self, setting: &Setting, index: usize, will: Will) {
        let Line::Asked(request) = self.sites[index].line else { panic!("nothing was asked") };
        let reply = self.sites[index].execute(setting, request, will);
        self.sites[index].line = Line::Answered(reply);
    }

    fn hear(&mut self, setting: &Setting, index: usize) -> Result<(), Broken> {
        let Line::Answered(reply) = self.sites[index].line else { panic!("nothing was answered") };
        self.sites[index].line = Line::Idle;
        if setting.bug == Some(Bug::LeftSessionsStayOpen)
            && self.deals[index / setting.participants()].coordinator.is_none()
        {
            return Ok(());
        }
        self.tell(setting, index / setting.participants(), reply.input(setting, index))
    }

    pub fn cut(&mut self, setting: &Setting, index: usize) -> Result<(), Broken> {
        let site = &mut self.sites[index];
        let reply = match site.line {
            Line::Asked(request) => {
                site.late = Some(request);
                request.unknown()
            }
            Line::Answered(Reply::Voted(_)) => Reply::Voted(Vote::Unknown),
            Line::Answered(Reply::Finished(_)) => Reply::Finished(Finish::Unknown),
            Line::Idle => {
                site.forsake();
                site.line = Line::Broken;
                return Ok(());
            }
            Line::Broken | Line::Closed => panic!("nothing to cut"),
        };
        site.line = Line::Broken;
        self.tell(setting, index / setting.participants(), reply.input(setting, index))
    }

    fn crash(&mut self, setting: &Setting) {
        if !self.poisoned {
            self.crashes -= 1;
        }
        self.up = false;
        self.first_life = false;
        self.poisoned = false;
        self.forget_pass(setting);
        for deal in &mut self.deals {
            deal.coordinator = None;
        }
        for site in &mut self.sites {
            site.close();
            site.wanted = false;
            site.answer = Evidence::NotAsked;
        }
    }

    fn reopen(&mut self, setting: &Setting, kept: u8) {
        let mut kept = (0..8).map(|bit| kept >> bit & 1 == 1);
        self.up = true;
        for deal in &mut self.deals {
            for slot in deal.records_mut() {
                if slot.is_open() {
                    let kept = kept.next().expect("a bit for each open record");
                    *slot = match (kept, setting.bug) {
                        (false, _) => Slot::Absent,
                        (true, Some(Bug::ActsOnThePageCache)) => Slot::Cached,
                        (true, _) => Slot::Durable,
                    };
                }
            }
            deal.decided |= deal.commit == Slot::Durable;
        }
    }

    /// What no longer makes a difference is forgotten, so that worlds that are alike look alike.
    fn tidy(&mut self, setting: &Setting) {
        for index in self.indices(setting) {
            let over = self.deals[index / setting.participants()].coordinator.is_none();
            let site = &mut self.sites[index];
            if over && site.line != Line::Closed && setting.bug != Some(Bug::LeftSessionsStayOpen) {
                site.close();
            }
            let idle = match site.late {
                Some(Request::Prepare | Request::EndReadOnly | Request::CommitAlone) => site.state != State::Active,
                Some(Request::Commit) => site.state != State::Prepared,
                Some(Request::RollBack) => !matches!(site.state, State::Active | State::Prepared),
                None => false,
            };
            if idle {
                site.late = None;
            }
            let idle = match site.stray {
                Some(Action::Commit | Action::RollBack) => site.state != State::Prepared,
                Some(_) => site.witness != Witness::None && !setting.prunes,
                None => false,
            };
            if idle {
                site.stray = None;
            }
        }
    }
}
