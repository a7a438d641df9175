//! The resolver: settles what coordinators left, at opening and for ever after.
//!
//! Each pass observes, plans and applies. Observing asks every participant for its whole list of prepared branches;
//! planning is [`protocol::recovery::plan`](crate::protocol::recovery::plan), a pure function over a table; applying
//! sends what the plan says, and plans again with what was heard until nothing is left to send. A participant that
//! does not answer holds up nothing but its own branches.
//!
//! The same passes serve a running bridge (in the background), the tool's `recover` (with the journal locked) and its
//! `list` (reading beside a running application, changing nothing).

mod apply;
mod background;
mod copy;
mod foreign;
mod hand;
mod look;
mod outcome;
mod pass;
mod settle;
mod status;
mod store;
mod vet;

pub use copy::Lacking;
pub use foreign::Foreigner;
pub use hand::Adoption;
pub use pass::{Pass, Progress, Seen, View};
pub use settle::{Hindrance, Unsettled};
pub use status::{ParticipantStatus, Status};

use crate::config::{Config, RecoveryConfig};
use crate::engine::{Engine, anchor, now_ms, opening};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Incarnation, JournalId, NodeName, ParticipantName, TransactionId};
use crate::journal::{self, Journal, Verdict};
use crate::participant::{self, BoxFuture, Participant};
use crate::protocol::recovery::{self, Action, BranchPlan, Memory, Observation, Plan, Recalled, questions};
use crate::protocol::{DamageRecord, Outcome, Record};
use crate::torture::{self, Point, Step};
use apply::Hears;
use futures_util::future::join_all;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use store::Store;

/// How often a pass may plan anew: commit or roll back, then ask, then note. Each round turns work into an answer or
/// loses sight of it; what live coordinators leave meanwhile may be new work, and waits for the next pass.
const ROUNDS: usize = 8;

/// Settles transactions that nobody is at work on.
pub struct Resolver {
    store: Store,
    /// In whose name it settles.
    node: NodeName,
    participants: Vec<Arc<dyn Participant>>,
    settings: RecoveryConfig,
    /// The participants that nothing speaks against, as far as they were asked without a bridge.
    vetted: Mutex<BTreeSet<ParticipantName>>,
    /// Held by a pass over a journal that was opened for recovery. A bridge has its own.
    passing: tokio::sync::Mutex<()>,
}

impl Resolver {
    /// A resolver of a stopped application: takes the journal's lock.
    ///
    /// # Errors
    /// [`ErrorKind::Config`]; [`ErrorKind::Refused`] when the journal is in use or missing; [`ErrorKind::Corrupt`].
    pub fn open(config: Config) -> Result<Self> {
        Self::open_with(config, Vec::new())
    }

    /// [`open`](Self::open) with participants of kinds that the configuration does not know.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`ErrorKind::Config`] also when two participants have one name.
    pub fn open_with(config: Config, others: Vec<Arc<dyn Participant>>) -> Result<Self> {
        let participants = participant::by_name(participant::from_config(&config)?, others)?;
        let opening = opening(&config, participants.keys().copied())?;
        let journal = match anchor::find(&config, &participants)? {
            None => Journal::open(&config.journal, opening)?,
            Some(one) => anchor::journal(one, config.node, opening.incarnation),
        };
        Ok(Self::new(Store::Locked(journal), config.node, participants.into_values().collect(), config.recovery))
    }

    /// A resolver that only looks: reads the journal without its lock, beside a running application or without one,
    /// and changes nothing anywhere.
    ///
    /// ```no_run
    /// # async fn example(config: handfast::Config) -> handfast::Result<()> {
    /// let resolver = handfast::resolver::Resolver::read(config)?;
    /// let mut seen = resolver.observe().await;
    /// for transaction in resolver.examine(&mut seen).await.transactions {
    ///     println!("{}: {}", transaction.id, transaction.outcome.as_str());
    /// }
    /// resolver.close().await
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Config`]; [`ErrorKind::Refused`] when the journal is missing; [`ErrorKind::Corrupt`].
    pub fn read(config: Config) -> Result<Self> {
        let participants = participant::by_name(participant::from_config(&config)?, Vec::new())?;
        if let Some(one) = anchor::find(&config, &participants)? {
            let own = opening(&config, std::iter::empty())?.incarnation;
            let journal = anchor::journal(one, config.node, own);
            return Ok(Self::new(
                Store::Read(journal),
                config.node,
                participants.into_values().collect(),
                config.recovery,
            ));
        }
        let offline = journal::read(&config.journal.directory)?;
        if let Verdict::Corrupt(damage) = &offline.verdict {
            return Err(damage.error(&config.journal.directory.display().to_string()));
        }
        Ok(Self::new(
            Store::Offline(Box::new(offline)),
            config.node,
            participants.into_values().collect(),
            config.recovery,
        ))
    }

    /// The resolver of a running bridge.
    pub(crate) fn live(engine: Arc<Engine>) -> Self {
        let participants = engine.members.iter().map(|member| member.participant.clone()).collect();
        let settings = engine.recovery.clone();
        let node = engine.registration.node;
        Self::new(Store::Live(engine), node, participants, settings)
    }

    fn new(store: Store, node: NodeName, participants: Vec<Arc<dyn Participant>>, settings: RecoveryConfig) -> Self {
        Self { store, node, participants, settings, vetted: Mutex::default(), passing: tokio::sync::Mutex::default() }
    }

    /// Asks about what the journal holds. Nothing is written to it while `look` runs: it should be short.
    pub fn image<T>(&self, look: impl FnOnce(&journal::Image) -> T) -> T {
        self.store.image(look)
    }

    /// The number of the journal; of an anchor it is made of its name and the node's.
    pub fn journal(&self) -> Option<JournalId> {
        self.store.id()
    }

    /// Reads what an anchor remembers, for [`image`](Self::image); a pass does so by itself. Of a journal all is read when it
    /// is opened.
    ///
    /// # Errors
    /// When the anchor cannot be read.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn remember(&self) -> Result<()> {
        self.store.refresh().await
    }

    /// The configured participants, in the order of their names.
    pub fn participants(&self) -> &[Arc<dyn Participant>] {
        &self.participants
    }

    /// Who holds the journal, when it is only read and somebody does.
    pub fn holder(&self) -> Option<String> {
        match &self.store {
            Store::Offline(offline) if offline.in_use => offline.holder.clone(),
            Store::Offline(_) | Store::Live(_) | Store::Locked(_) | Store::Read(_) => None,
        }
    }

    /// Whether an opening may be at work: what it decides may be younger than what is remembered.
    pub fn is_at_work(&self, incarnation: Incarnation) -> bool {
        Memory::is_at_work(&self.store, incarnation)
    }

    /// What is to be done about what was seen.
    pub fn plan(&self, observation: &Observation) -> Plan {
        recovery::plan(&self.store, observation)
    }

    /// One pass: observes, plans and applies until nothing is left to send, and writes down what was settled; then tries
    /// to settle the earlier incarnations as a whole. `progress` hears how much there is to do, and of each branch when it
    /// has been dealt with.
    ///
    /// # Panics
    /// On a resolver that only [`read`](Self::read)s.
    ///
    /// # Cancel safety
    /// May be dropped at any point: the next pass finds what is left.
    pub async fn sweep(&self, progress: Hears<'_>) -> Pass {
        let _alone = self.alone().await;
        let mut pass = self.pass(progress).await;
        if pass.refused.is_none() {
            self.settle_openings(&mut pass).await;
        }
        self.tell();
        pass
    }

    async fn settle_openings(&self, pass: &mut Pass) {
        pass.unsettled = self.settle_earlier(&mut pass.view, &pass.left).await;
        if pass.unsettled.iter().any(|one| one.hindrance == Hindrance::Contradiction) {
            pass.left = self.plan(&pass.view.observation);
            pass.refused = self.fresh(&pass.view, &pass.left).err();
            if let Store::Live(engine) = &self.store {
                pass::remember(engine, &pass.left, &pass.view);
            }
        }
    }

    /// A pass that settles branches, and leaves the question of earlier incarnations to others.
    ///
    /// # Panics
    /// As [`sweep`](Self::sweep).
    pub(crate) fn sweep_branches<'a>(&'a self, progress: Hears<'a>) -> crate::participant::BoxFuture<'a, Pass> {
        Box::pin(async move {
            let _alone = self.alone().await;
            let pass = self.pass(progress).await;
            self.tell();
            pass
        })
    }

    /// Wakes who waits for what a pass finds out.
    fn tell(&self) {
        if let Store::Live(engine) = &self.store {
            engine.passed.notify_waiters();
            engine.live.changed().notify_waiters();
        }
    }

    /// One pass is made at a time.
    async fn alone(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        match &self.store {
            Store::Live(engine) => Some(engine.passing.lock().await),
            Store::Locked(_) => Some(self.passing.lock().await),
            Store::Offline(_) | Store::Read(_) => None,
        }
    }

    /// Boxed, so that whoever waits for one can be spawned.
    fn pass<'a>(&'a self, progress: Hears<'a>) -> BoxFuture<'a, Pass> {
        Box::pin(self.do_pass(progress))
    }

    async fn do_pass(&self, progress: Hears<'_>) -> Pass {
        let journal = self.store.journal().expect("a resolver that only reads settles nothing");
        let vetted = match self.store.refresh().await {
            Ok(()) => self.vet().await,
            // What is known is carried out, and the rest waits for the anchor.
            Err(error) if matches!(self.store, Store::Live(_)) && error.kind() != ErrorKind::Refused => {
                tracing::warn!(error = %error.chain(), "the anchor cannot be read");
                self.vet().await
            }
            Err(error) => Err(error),
        };
        let mut view = self.observe().await;
        self.want_unsettled(&mut view.observation);
        let found = self.plan(&view.observation);
        let mut plan = found.clone();
        let mut refused = vetted.and_then(|()| self.fresh(&view, &plan)).err();
        for _ in 0..ROUNDS {
            if refused.is_some() || plan.work().next().is_none() {
                break;
            }
            torture::pass(Point::Step(Step::Planned), None).await;
            self.apply(&plan, &mut view, progress).await;
            torture::pass(Point::Step(Step::Applied), None).await;
            self.read_decided(&plan).await;
            plan = self.plan(&view.observation);
            refused = self.fresh(&view, &plan).err();
        }
        if refused.is_none() {
            match write_damage(journal, &plan).await {
                Ok(true) => plan = self.plan(&view.observation),
                Ok(false) => {}
                Err(error) => {
                    tracing::error!(error = %error.chain(), "damage is not written down: the next pass tries")
                }
            }
            plan.notes().for_each(|note| journal.note(note.clone()));
        }
        if let Store::Live(engine) = &self.store {
            settle(engine, &plan);
            pass::remember(engine, &plan, &view);
        }
        Pass { view, found, left: plan, unsettled: Vec::new(), refused }
    }

    /// Where an anchor was asked, its row may have been found: it is read before anything is planned with it.
    async fn read_decided(&self, plan: &Plan) {
        let asked = |branch: &BranchPlan| {
            branch.action == Action::Ask
                && self.store.anchor(branch.id.transaction.incarnation) == Some(branch.id.participant)
        };
        if plan.branches().any(asked)
            && let Err(error) = self.store.refresh().await
        {
            tracing::warn!(error = %error.chain(), "the anchor has answered, and cannot be read: the next pass tries");
        }
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

    fn participant(&self, name: ParticipantName) -> Option<&Arc<dyn Participant>> {
        self.participants.iter().find(|participant| participant.name() == name)
    }

    /// Closes the connections, and the journal where it was opened for recovery.
    ///
    /// # Errors
    /// [`ErrorKind::Journal`] when the journal's last write failed.
    ///
    /// # Cancel safety
    /// May be dropped at any point.
    pub async fn close(self) -> Result<()> {
        self.shut().await
    }

    /// [`close`](Self::close), while others may still hold it: what they ask for from then on fails.
    pub(crate) async fn shut(&self) -> Result<()> {
        // What was noted is on the anchor before its connection is closed; what is not costs the next one work.
        let noted = match &self.store {
            Store::Locked(journal) if journal.is_on_anchor() => journal.flush().await,
            _ => Ok(()),
        };
        join_all(self.participants.iter().map(|participant| participant.close())).await;
        noted?;
        match &self.store {
            Store::Locked(journal) => journal.close(),
            Store::Live(_) | Store::Offline(_) | Store::Read(_) => Ok(()),
        }
    }
}

fn unknown(id: TransactionId) -> Error {
    Error::new(ErrorKind::Unknown, format!("transaction {id} is not this journal's: it was begun elsewhere or never"))
}

/// Makes durable what was found to be damaged: every later pass repeats it, until a person has dealt with it. Whether
/// there was anything new.
async fn write_damage(journal: &Journal, plan: &Plan) -> Result<bool> {
    let (found_at_ms, found_by) = (now_ms(), journal.incarnation());
    let record =
        |(transaction, branches)| Record::Damaged(DamageRecord { transaction, branches, found_at_ms, found_by });
    let written = join_all(plan.damages().map(|damage| journal.append(record(damage)))).await;
    let any = !written.is_empty();
    written.into_iter().collect::<Result<()>>().map(|()| any)
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
    // Written down before the task that ends it was gone, and so no work for any plan.
    for (sequence, _) in engine.live.in_doubt() {
        let recalled = engine.journal.image(|image| Memory::recall(image, engine.id(sequence)));
        if matches!(recalled, Recalled::Finished | Recalled::OnePhase) {
            engine.live.settle(sequence);
        }
    }
    // What waits for a person, waits in the journal and on its server.
    for branch in plan.branches().filter(|branch| branch.action.is_final() || branch.action == Action::Resolve) {
        engine.live.found(&branch.id);
    }
}
