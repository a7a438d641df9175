//! The resolver: settles what coordinators left, at opening and for ever after.
//!
//! Each pass observes, plans and applies. Observing asks every participant for its whole list of prepared branches;
//! planning is [`protocol::recovery::plan`](crate::protocol::recovery::plan), a pure function over a table; applying
//! sends what the plan says, and plans again with what was heard until nothing is left to send. A participant that
//! does not answer holds up nothing but its own branches.
//!
//! The same passes serve a running bridge (in the background), the tool's `recover` (with the journal locked) and its
//! `list` (reading beside a running application, changing nothing).

mod pass;
mod settle;
mod status;
mod store;

pub use pass::{Pass, Seen, View};
pub use settle::{Hindrance, Unsettled};
pub use status::{ParticipantStatus, Status};

use crate::config::{Config, RecoveryConfig};
use crate::engine::{Engine, Member, Standing, jittered, opening};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{BranchId, Lineage, ParticipantName, TransactionId};
use crate::journal::{self, Journal, Verdict};
use crate::participant::{self, Answer, Participant, Question, Sighted};
use crate::protocol::recovery::{
    self, Action, BranchPlan, Evidence, Memory, Observation, Plan, Recalled, Scan, outcome_of, questions,
};
use crate::protocol::{Finish, Outcome, Record, Resolution};
use futures_util::FutureExt;
use futures_util::future::join_all;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use store::Store;

/// How often a pass may plan anew: commit or roll back, then ask, then note. Each round turns work into an answer or
/// loses sight of it; what live coordinators leave meanwhile may be new work, and waits for the next pass.
const ROUNDS: usize = 8;

/// Settles transactions that nobody is at work on.
pub struct Resolver {
    store: Store,
    participants: Vec<Arc<dyn Participant>>,
    settings: RecoveryConfig,
}

impl Resolver {
    /// A resolver of a stopped application: takes the journal's lock.
    ///
    /// # Errors
    /// [`ErrorKind::Config`]; [`ErrorKind::Refused`] when the journal is in use or missing; [`ErrorKind::Corrupt`].
    pub fn open(config: Config) -> Result<Self> {
        let participants = participant::by_name(participant::from_config(&config)?, Vec::new())?;
        let journal = Journal::open(&config.journal, opening(&config, participants.keys().copied())?)?;
        Ok(Self::new(Store::Locked(journal), participants.into_values().collect(), config.recovery))
    }

    /// A resolver that only looks: reads the journal without its lock, beside a running application or without one,
    /// and changes nothing anywhere.
    ///
    /// # Errors
    /// [`ErrorKind::Config`]; [`ErrorKind::Refused`] when the journal is missing; [`ErrorKind::Corrupt`].
    pub fn read(config: Config) -> Result<Self> {
        let participants = participant::by_name(participant::from_config(&config)?, Vec::new())?;
        let offline = journal::read(&config.journal.directory)?;
        if let Verdict::Corrupt(damage) = &offline.verdict {
            return Err(damage.error(&config.journal.directory.display().to_string()));
        }
        Ok(Self::new(Store::Offline(Box::new(offline)), participants.into_values().collect(), config.recovery))
    }

    /// The resolver of a running bridge.
    pub(crate) fn live(engine: Arc<Engine>) -> Self {
        let participants = engine.members.iter().map(|member| member.participant.clone()).collect();
        let settings = engine.recovery.clone();
        Self::new(Store::Live(engine), participants, settings)
    }

    fn new(store: Store, participants: Vec<Arc<dyn Participant>>, settings: RecoveryConfig) -> Self {
        Self { store, participants, settings }
    }

    /// Who holds the journal, when it is only read and somebody does.
    pub fn holder(&self) -> Option<String> {
        match &self.store {
            Store::Offline(offline) if offline.in_use => offline.holder.clone(),
            Store::Offline(_) => None,
            Store::Live(_) | Store::Locked(_) => None,
        }
    }

    /// Asks every participant for its prepared branches, all at once. Changes nothing.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn observe(&self) -> View {
        // Before the first scan: of what is decided later, the scans say nothing.
        let mut observation = Observation::new(&self.store);
        let participants = join_all(self.participants.iter().map(|one| self.look(&**one))).await;
        for (seen, scan) in &participants {
            observation.scanned(seen.name, scan.clone());
        }
        View { observation, participants: participants.into_iter().map(|(seen, _)| seen).collect() }
    }

    async fn look(&self, participant: &dyn Participant) -> (Seen, Scan) {
        let mut seen = Seen {
            name: participant.name(),
            kind: participant.kind(),
            server: None,
            sightings: Vec::new(),
            trouble: None,
        };
        let scan = match self.scan(participant, &mut seen).await {
            Ok(scan) => scan,
            Err(error) => {
                let error = error.at(seen.name);
                let cause = error.chain();
                seen.trouble = Some(error);
                Scan::Failed { cause }
            }
        };
        // MySQL and MariaDB are told apart on connection.
        seen.kind = participant.kind();
        (seen, scan)
    }

    async fn scan(&self, participant: &dyn Participant, seen: &mut Seen) -> Result<Scan> {
        let lineage = self.identified(participant, &mut seen.server).await?;
        seen.sightings = participant.list().await?;
        let (mut branches, mut foreign) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
        for sighting in &seen.sightings {
            match &sighting.branch {
                Sighted::Ours(id) => branches.insert(*id),
                Sighted::Foreign(text) => foreign.insert(text.clone()),
            };
        }
        Ok(Scan::Whole { lineage, branches, foreign })
    }

    /// The lineage of the data behind a participant's name, which has to be the one that the journal knows.
    async fn identified(&self, participant: &dyn Participant, server: &mut Option<String>) -> Result<Lineage> {
        if let Some((engine, member)) = self.member(participant.name()) {
            // Also registers this incarnation with a participant that could not be reached before.
            engine.ready(member).await?;
        }
        let found = participant.identify().await?;
        *server = Some(found.description.clone());
        match (self.store.lineage(participant.name()), found.lineage) {
            (Some(expected), found) if found != Some(expected) => {
                let found =
                    found.map_or_else(|| "no tables of Handfast".to_owned(), |other| format!("lineage {other}"));
                let message = format!(
                    "this is another server than the journal knows: it has {found}, the journal expects lineage \
                     {expected}; correct participants.{}.url, or bring the right server back",
                    participant.name()
                );
                Err(Error::new(ErrorKind::Refused, message))
            }
            // Without a lineage nothing of ours was ever decided there.
            (_, found) => Ok(found.unwrap_or(Lineage(0))),
        }
    }

    fn member(&self, name: ParticipantName) -> Option<(&Arc<Engine>, &Member)> {
        let Store::Live(engine) = &self.store else { return None };
        engine.members.iter().find(|member| member.name == name).map(|member| (engine, member))
    }

    /// Reads the witnesses of branches that recovery would ask about, and plans with what they say. Inserts no fence
    /// and changes nothing: where no witness is visible, recovery still has to ask.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn examine(&self, view: &mut View) -> Plan {
        let plan = self.plan(&view.observation);
        let asked = plan.branches().filter(|branch| branch.action == Action::Ask).map(|branch| async move {
            let participant = self.participant(branch.participant)?;
            let found = participant.ask(&branch.id, Question::Look).await.ok()?;
            Some((branch.id, evidence(found)))
        });
        for (id, evidence) in join_all(asked).await.into_iter().flatten() {
            view.observation.heard(id, evidence);
        }
        self.plan(&view.observation)
    }

    /// What is to be done about what was seen.
    pub fn plan(&self, observation: &Observation) -> Plan {
        recovery::plan(&self.store, observation)
    }

    /// One pass: observes, plans and applies until nothing is left to send, and writes down what was settled; then tries
    /// to settle the earlier incarnations as a whole. `progress` hears of each branch when it has been dealt with.
    ///
    /// # Panics
    /// On a resolver that only [`read`](Self::read)s.
    ///
    /// # Cancel safety
    /// May be dropped at any point: the next pass finds what is left.
    pub async fn sweep(&self, progress: &(dyn Fn(&BranchPlan) + Sync)) -> Pass {
        let _alone = self.alone().await;
        let mut pass = self.pass(progress).await;
        pass.unsettled = self.settle_earlier(&mut pass.view, &pass.left).await;
        if pass.unsettled.iter().any(|one| one.hindrance == Hindrance::Contradiction) {
            pass.left = self.plan(&pass.view.observation);
            if let Store::Live(engine) = &self.store {
                pass::remember(engine, &pass.left, &pass.view);
            }
        }
        pass
    }

    /// A pass that settles branches, and leaves the question of earlier incarnations to others.
    ///
    /// # Panics
    /// As [`sweep`](Self::sweep).
    pub(crate) async fn sweep_branches(&self, progress: &(dyn Fn(&BranchPlan) + Sync)) -> Pass {
        let _alone = self.alone().await;
        self.pass(progress).await
    }

    /// A bridge makes one pass at a time.
    async fn alone(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        match &self.store {
            Store::Live(engine) => Some(engine.passing.lock().await),
            Store::Locked(_) | Store::Offline(_) => None,
        }
    }

    async fn pass(&self, progress: &(dyn Fn(&BranchPlan) + Sync)) -> Pass {
        let journal = self.store.journal().expect("a resolver that only reads settles nothing");
        let mut view = self.observe().await;
        self.want_unsettled(&mut view.observation);
        let found = self.plan(&view.observation);
        let mut plan = found.clone();
        for _ in 0..ROUNDS {
            if plan.work().next().is_none() {
                break;
            }
            self.apply(&plan, &mut view, progress).await;
            plan = self.plan(&view.observation);
        }
        for note in plan.notes() {
            journal.note(note.clone());
        }
        if let Store::Live(engine) = &self.store {
            settle(engine, &plan);
            pass::remember(engine, &plan, &view);
        }
        Pass { view, found, left: plan, unsettled: Vec::new() }
    }

    /// Asks for what this incarnation's coordinators could not find out: a single writer's lost answer, and whether a
    /// prepare without an answer is still to come.
    fn want_unsettled(&self, observation: &mut Observation) {
        let Store::Live(engine) = &self.store else { return };
        for branch in engine.live.left() {
            observation.want(branch);
        }
        for (sequence, _) in engine.live.in_doubt() {
            for (_, branch) in questions(&self.store, engine.id(sequence)) {
                observation.want(branch);
            }
        }
    }

    /// Sends what the plan says: each participant's in order, all participants at once.
    async fn apply(&self, plan: &Plan, view: &mut View, progress: &(dyn Fn(&BranchPlan) + Sync)) {
        let mut work: BTreeMap<ParticipantName, Vec<&BranchPlan>> = BTreeMap::new();
        for branch in plan.work() {
            work.entry(branch.participant).or_default().push(branch);
        }
        let sent = work.into_iter().map(|(name, branches)| async move {
            let participant = self.participant(name).expect("only scanned participants get work");
            let mut heard = Vec::with_capacity(branches.len());
            for branch in branches {
                let answer = send(&**participant, branch).await;
                progress(branch);
                let is_lost = matches!(answer, Heard::Lost(_));
                heard.push((branch.id, answer));
                if is_lost {
                    // The next one would wait as long for nothing, and all other participants with it.
                    break;
                }
            }
            (name, heard)
        });
        for (name, heard) in join_all(sent).await {
            for (id, heard) in heard {
                match heard {
                    Heard::Committed => view.observation.committed(id),
                    Heard::RolledBack => view.observation.gone(id),
                    Heard::Evidence(evidence) => view.observation.heard(id, evidence),
                    Heard::Refused(cause) => view.observation.unclear(id, cause),
                    Heard::Lost(cause) => view.observation.lost_sight(name, cause),
                }
            }
        }
    }

    fn participant(&self, name: ParticipantName) -> Option<&Arc<dyn Participant>> {
        self.participants.iter().find(|participant| participant.name() == name)
    }

    /// How a transaction ended. A resolver that only reads inserts no fence: what it cannot read off is in doubt.
    ///
    /// # Errors
    /// [`ErrorKind::Unknown`] when this journal never gave out that id.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn outcome(&self, id: TransactionId) -> Result<Outcome> {
        match self.store.standing(id) {
            Some(Standing::Future) => return Err(unknown(id)),
            Some(Standing::Running) => return Ok(Outcome::InDoubt),
            Some(Standing::Unsettled(outcome)) => return Ok(outcome),
            // Nothing but this incarnation could have decided it, and it remembers.
            Some(Standing::Ended) if self.store.recall(id) == Recalled::Nothing => {
                return Ok(Outcome::RolledBack);
            }
            Some(Standing::Ended) | None => {}
        }
        match self.store.recall(id) {
            Recalled::Decided(_) => return Ok(self.outcome_of_decided(id).await),
            // Beside a running program its transactions may be at work, but what is recorded is certain.
            Recalled::Finished | Recalled::OnePhase => return Ok(Outcome::Committed),
            Recalled::Resolved(Resolution::Commit) => return Ok(Outcome::Committed),
            Recalled::Resolved(Resolution::RollBack) => return Ok(Outcome::RolledBack),
            Recalled::Forgotten => return Ok(Outcome::Damaged),
            Recalled::Unsure | Recalled::Nothing => {}
        }
        let (mut answers, mut held) = self.ask_all(id).await;
        if held && self.store.journal().is_some() {
            // Still prepared: a pass rolls it back, since no decision exists.
            let pass = self.sweep_branches(&|_| {}).await;
            if let (Store::Live(engine), false) = (&self.store, pass.is_complete()) {
                engine.kick_resolver();
            }
            (answers, held) = self.ask_all(id).await;
        }
        tracing::debug!(%id, ?answers, held, "participants were asked for the outcome");
        outcome_of(&self.store, id, &answers).ok_or_else(|| unknown(id))
    }

    /// A decision is a commit, unless a branch was ended against it. What would need a fence is in doubt to who only
    /// reads.
    async fn outcome_of_decided(&self, id: TransactionId) -> Outcome {
        let plan = match &self.store {
            Store::Live(engine) if engine.found.last().damaged.contains(&id) => return Outcome::Damaged,
            Store::Live(_) => return Outcome::Committed,
            Store::Locked(_) => self.sweep_branches(&|_| {}).await.left,
            Store::Offline(_) => self.examine(&mut self.observe().await).await,
        };
        match plan.transactions.into_iter().find(|transaction| transaction.id == id) {
            Some(one) if one.outcome == Outcome::Damaged => Outcome::Damaged,
            Some(one) if one.branches.iter().any(|branch| branch.action == Action::Ask) => Outcome::InDoubt,
            Some(_) | None => Outcome::Committed,
        }
    }

    /// Puts the fence question to every participant of a transaction's incarnation: the answers, and whether one of
    /// them has to wait for a branch that is still held.
    async fn ask_all(&self, id: TransactionId) -> (Vec<Evidence>, bool) {
        let asked = questions(&self.store, id).into_iter().map(|(name, branch)| self.ask(name, branch));
        let answers = join_all(asked).await;
        let held = answers.contains(&Evidence::Blocked);
        (answers, held)
    }

    async fn ask(&self, name: ParticipantName, branch: BranchId) -> Evidence {
        let Some(participant) = self.participant(name) else { return Evidence::NotAsked };
        // A fence on another server than the journal's would say *never* of what it never saw.
        if self.identified(&**participant, &mut None).await.is_err() {
            return Evidence::NotAsked;
        }
        let question = if self.store.journal().is_some() { Question::Fence } else { Question::Look };
        participant.ask(&branch, question).await.map_or(Evidence::NotAsked, evidence)
    }

    /// Passes for ever: at once when something was left, with growing pauses while something is pending, else at
    /// the configured interval.
    pub(crate) async fn run(self) {
        let Store::Live(engine) = &self.store else { panic!("only a bridge's resolver runs in the background") };
        let mut pause = self.settings.backoff_min;
        let mut pending = true;
        // Opening has looked at the branches just now, and left the rest to this.
        let mut at_once = !self.store.unsettled().is_empty();
        loop {
            let wait = match (std::mem::take(&mut at_once), pending) {
                (true, _) => Duration::ZERO,
                (false, true) => jittered(pause),
                (false, false) => self.settings.interval,
            };
            tokio::select! {
                () = engine.work.notified() => pause = self.settings.backoff_min,
                () = tokio::time::sleep(wait) => pause = next_pause(pause, self.settings.backoff_max),
            }
            // A bug that one pass meets must not end recovery for good: passes remember nothing of each other.
            pending = match AssertUnwindSafe(self.sweep(&|_| {})).catch_unwind().await {
                Ok(pass) => !pass.is_complete(),
                Err(_) => {
                    tracing::error!("a pass of the resolver has met a bug; the next one begins anew");
                    true
                }
            };
        }
    }

    /// Closes the connections, and the journal where it was opened for recovery.
    ///
    /// # Errors
    /// [`ErrorKind::Journal`] when the journal's last write failed.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn close(self) -> Result<()> {
        join_all(self.participants.iter().map(|participant| participant.close())).await;
        match self.store {
            Store::Locked(journal) => journal.close(),
            Store::Live(_) | Store::Offline(_) => Ok(()),
        }
    }
}

fn next_pause(pause: Duration, max: Duration) -> Duration {
    (pause * 2).min(max)
}

fn unknown(id: TransactionId) -> Error {
    Error::new(ErrorKind::Unknown, format!("transaction {id} is not this journal's: it was begun elsewhere or never"))
}

/// What came of one branch's action.
enum Heard {
    Committed,
    RolledBack,
    Evidence(Evidence),
    /// Nothing certain about this branch, from a participant that answers.
    Refused(String),
    /// Nothing certain: its participant is to be scanned again.
    Lost(String),
}

impl Heard {
    fn nothing(cause: &Error) -> Self {
        if cause.kind() == ErrorKind::Unavailable { Self::Lost(cause.chain()) } else { Self::Refused(cause.chain()) }
    }
}

async fn send(participant: &dyn Participant, branch: &BranchPlan) -> Heard {
    let id = &branch.id;
    match branch.action {
        Action::Commit => finished(participant.commit(id).await, Heard::Committed),
        Action::RollBack => finished(participant.roll_back(id).await, Heard::RolledBack),
        Action::Ask => match participant.ask(id, Question::Fence).await {
            Ok(found) => Heard::Evidence(evidence(found)),
            Err(error) => Heard::nothing(&error),
        },
        other => unreachable!("{other:?} sends nothing"),
    }
}

fn finished(answer: Answer<Finish>, good: Heard) -> Heard {
    match answer.value {
        Finish::Done => good,
        Finish::RolledBack | Finish::Lost | Finish::Unknown => answer
            .cause
            .map_or_else(|| Heard::Refused(String::from("no positive answer")), |cause| Heard::nothing(&cause)),
    }
}

/// The participants' word for it in the protocol's.
fn evidence(found: participant::Evidence) -> Evidence {
    match found {
        participant::Evidence::Committed => Evidence::Committed,
        participant::Evidence::CommittedAlone => Evidence::CommittedAlone,
        participant::Evidence::Never => Evidence::Never,
        participant::Evidence::Nothing => Evidence::Nothing,
        participant::Evidence::Blocked => Evidence::Blocked,
        participant::Evidence::Off => Evidence::Off,
    }
}

/// Tells the bridge what became of its own transactions in doubt.
fn settle(engine: &Engine, plan: &Plan) {
    for transaction in &plan.transactions {
        let ours = engine.id(transaction.id.sequence) == transaction.id;
        let settled = matches!(transaction.outcome, Outcome::Committed | Outcome::RolledBack);
        let recorded = matches!(&transaction.note, Some(Record::Done(_) | Record::OnePhase(_)));
        if ours && settled && (recorded || transaction.outcome == Outcome::RolledBack) {
            engine.live.settle(transaction.id.sequence);
        }
    }
    for branch in plan.branches().filter(|branch| branch.action.is_final()) {
        engine.live.found(&branch.id);
    }
}
