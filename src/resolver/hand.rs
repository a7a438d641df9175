//! What a person does by hand: decide where the journal cannot, close what was damaged, accept another server.
//!
//! Each is refused where recovery can do it, or has done it, by itself. Each is durable in the journal, with the reason
//! given, before anything is sent.

use super::store::Store;
use super::{Pass, Resolver, View, unknown, write_damage};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Incarnation, Lineage, ParticipantName, TransactionId};
use crate::journal::{self, Journal, remark};
use crate::protocol::recovery::{Action, History, Memory, Plan, Sighting, TransactionPlan};
use crate::protocol::{ParticipantRecord, Record, Remark, Resolution};
use std::collections::BTreeSet;

/// Stands for the lineage where there is none.
const NO_DATA: Lineage = Lineage(0);

/// What was written down when a participant's data was accepted or given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adoption {
    /// Which.
    pub participant: ParticipantName,
    /// The data that the journal knew it by.
    pub before: Option<Lineage>,
    /// The data that was accepted; `None` when the old one was given up and no other took its place.
    pub accepted: Option<Lineage>,
    /// The incarnations whose branches there are out of reach for good.
    pub given_up: Vec<Incarnation>,
    /// Decided transactions of which it cannot be known any more whether they committed there: they are damaged.
    pub unproven: Vec<TransactionId>,
}

impl Resolver {
    /// Decides a transaction in a person's name, and carries it out as far as that can be done now; the rest is done
    /// whenever its participants come back. The decision is durable before anything is sent.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] where the journal has a decision, where recovery will roll back by itself, where somebody
    /// is at work on it, and on a resolver that only [`read`](Self::read)s; [`ErrorKind::Unknown`] for an id that
    /// neither the journal nor a participant knows; [`ErrorKind::Journal`].
    ///
    /// # Cancel safety
    /// Dropped after the decision was written, a later pass carries it out.
    pub async fn resolve(&self, id: TransactionId, resolution: Resolution, reason: &str) -> Result<Pass> {
        let journal = self.hand_on()?;
        self.claim().await?;
        let remark = remark(reason)?;
        let mut view = self.observe().await;
        if self.store.incarnation(id.incarnation).is_none() {
            self.take_over(journal, id, &view, &remark).await?;
            view = self.observe().await;
        }
        if let Some(stale) = view.stale() {
            return Err(stale);
        }
        let plan = self.look_into(&mut view, id).await.ok_or_else(|| unknown(id))?;
        if plan.history != History::Stale {
            self.vet().await?;
        }
        may_be_resolved(&plan, resolution)?;
        self.silence(id).await?;
        // What was under way on those sessions may have changed what there is to decide.
        let mut view = self.observe().await;
        let plan = self.look_into(&mut view, id).await.ok_or_else(|| unknown(id))?;
        may_be_resolved(&plan, resolution)?;
        if plan.action == Action::Damage && plan.damage.is_none() {
            // Only what is damaged or incomplete is resolved; and from here on the journal knows of it.
            write_damage(journal, &Plan { transactions: vec![plan], ..Plan::default() }).await?;
        }
        journal.append(Record::Resolved(id, resolution, remark)).await?;
        Ok(self.sweep_branches(&|_| {}).await)
    }

    /// Closes a damaged transaction that a person has dealt with: it is not reported any more, and its outcome stays
    /// [`Damaged`](crate::Outcome::Damaged).
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] when it is not damaged, when a branch of it is still prepared or cannot be seen, and on a
    /// resolver that only [`read`](Self::read)s; [`ErrorKind::Unknown`]; [`ErrorKind::Journal`].
    ///
    /// # Cancel safety
    /// Dropped before it is ready, it is done or not; it may be done again.
    pub async fn forget(&self, id: TransactionId, reason: &str) -> Result<()> {
        let journal = self.hand_on()?;
        self.claim().await?;
        let remark = remark(reason)?;
        if journal.image(|image| image.audit().forgotten(id).is_some()) {
            return Ok(());
        }
        // What is under way on a session would come behind the person's word, and nobody would end it any more.
        self.silence(id).await?;
        // What is found to be damaged only now is written down by this pass.
        let Pass { mut view, refused, .. } = self.sweep_branches(&|_| {}).await;
        if let Some(refused) = refused {
            return Err(refused);
        }
        let plan = self.look_into(&mut view, id).await.ok_or_else(|| unknown(id))?;
        may_be_forgotten(&plan)?;
        journal.append(Record::Forgotten(id, remark)).await
    }

    /// Accepts the data that a participant's name leads to now: a server of another lineage than the journal knows,
    /// after a failover without its standby's data or a restore from elsewhere. Creates the tables where there are none.
    /// What earlier incarnations left on the old server is given up.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] when the data there is what the journal knows, when the journal knows none, and on a
    /// resolver that only [`read`](Self::read)s; [`ErrorKind::Config`] when no such participant is configured; any of
    /// its own when it cannot be reached; [`ErrorKind::Journal`].
    ///
    /// # Cancel safety
    /// May be dropped at any point and done again.
    pub async fn adopt(&self, participant: ParticipantName, reason: &str) -> Result<Adoption> {
        let journal = self.hand_on()?;
        let remark = remark(reason)?;
        let there = self.participant(participant).ok_or_else(|| {
            let cure = "add it to the configuration, or give up what is lost with it by `handfast adopt --gone`";
            Error::new(ErrorKind::Config, format!("no participant {participant} is configured: {cure}"))
        })?;
        let Some(before) = self.store.lineage(participant) else {
            let message = format!("the journal knows no server as {participant} yet: the next opening accepts any");
            return Err(Error::new(ErrorKind::Refused, message).at(participant));
        };
        self.claim_of(&**there).await?;
        let found = there.identify().await.map_err(|error| error.at(participant))?.lineage;
        if found == Some(before) {
            let message =
                format!("it is the server that the journal knows, lineage {before}: there is nothing to adopt");
            return Err(Error::new(ErrorKind::Refused, message).at(participant));
        }
        let accepted = match found {
            Some(lineage) => lineage,
            None => there.init().await.map_err(|error| error.at(participant))?,
        };
        let mut adoption = self.write_off(journal, participant, &remark).await?;
        let record = ParticipantRecord { name: participant, lineage: accepted, reason: remark.reason };
        journal.append(Record::Participant(record)).await?;
        adoption.accepted = Some(accepted);
        Ok(adoption)
    }

    /// Gives up what earlier incarnations left on a participant whose server is gone for good, or which was taken out of
    /// the configuration. From then on the journal knows no server by that name, so that later openings, which cannot
    /// have left anything there, wait for none: where the participant is still configured, the next data that is seen
    /// under its name is accepted.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] when the server that the journal knows answers under that name, when nothing is left to
    /// give up, and on a resolver that only [`read`](Self::read)s; [`ErrorKind::Unknown`] when no incarnation ever worked
    /// there; [`ErrorKind::Journal`].
    ///
    /// # Cancel safety
    /// May be dropped at any point and done again.
    pub async fn give_up(&self, participant: ParticipantName, reason: &str) -> Result<Adoption> {
        let journal = self.hand_on()?;
        let remark = remark(reason)?;
        let ever = |image: &journal::Image| image.incarnations().any(|one| one.participants.contains(&participant));
        if !self.store.image(ever) {
            let message = format!("no opening of this journal ever worked on {participant}");
            return Err(Error::new(ErrorKind::Unknown, message));
        }
        let known = self.store.lineage(participant);
        if let (Some(there), Some(known)) = (self.participant(participant), known)
            && there.identify().await.is_ok_and(|found| found.lineage == Some(known))
        {
            let message = "the server that the journal knows answers under this name: recovery settles what it holds";
            return Err(Error::new(ErrorKind::Refused, message).at(participant));
        }
        let adoption = self.write_off(journal, participant, &remark).await?;
        if adoption.given_up.is_empty() {
            let message = "nothing of an earlier opening is left there to be given up";
            return Err(Error::new(ErrorKind::Refused, message).at(participant));
        }
        if known.is_some() {
            // Behind what was given up: an opening that this journal knows no data for has left nothing there.
            let reason = format!("given up: {}", remark.reason);
            journal
                .append(Record::Participant(ParticipantRecord { name: participant, lineage: NO_DATA, reason }))
                .await?;
        }
        tracing::warn!(%participant, reason = remark.reason, count = adoption.given_up.len(), "given up by hand");
        Ok(adoption)
    }

    /// Writes down that what earlier incarnations left on a participant is out of reach: of those that are not settled,
    /// or have decisions to be carried out there.
    async fn write_off(&self, journal: &Journal, participant: ParticipantName, remark: &Remark) -> Result<Adoption> {
        let before = self.store.lineage(participant);
        let (given_up, unproven) = journal.image(|image| {
            let on_it = image
                .open_decisions()
                .filter(|decision| decision.branches.iter().any(|branch| branch.participant == participant));
            let unproven: Vec<_> = on_it.map(|decision| decision.transaction).collect();
            let open: BTreeSet<_> = unproven.iter().map(|id| id.incarnation).collect();
            let lost = image.incarnations().filter(|one| {
                let moves = !image.is_settled(one.incarnation) || open.contains(&one.incarnation);
                let known = image.audit().is_given_up(one.incarnation, participant);
                moves && !known && one.incarnation != journal.incarnation() && one.participants.contains(&participant)
            });
            (lost.map(|one| one.incarnation).collect::<Vec<_>>(), unproven)
        });
        for incarnation in &given_up {
            journal.append(Record::GivenUp(*incarnation, participant, remark.clone())).await?;
        }
        Ok(Adoption { participant, before, accepted: None, given_up, unproven })
    }

    /// Ends what sessions the transaction's opening still has: a commit or prepare that is under way on one would come
    /// after the person's decision, and against it. What cannot be reached is ended when the opening is settled.
    async fn silence(&self, id: TransactionId) -> Result<()> {
        let Some(opened) = self.store.incarnation(id.incarnation) else { return Ok(()) };
        for (name, number) in opened.participants.into_iter().zip(0..) {
            let Some(participant) = self.participant(name) else { continue };
            match participant.end_sessions(number, &[id.incarnation]).await {
                Err(error) if error.kind() != ErrorKind::Unavailable => return Err(error.at(name)),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Takes the incarnation of an orphan over from the journal that is lost: from now on it is ours, with nothing known.
    async fn take_over(&self, journal: &Journal, id: TransactionId, view: &View, remark: &Remark) -> Result<()> {
        let branch = |one: &super::Foreigner| one.branch().is_some_and(|branch| branch.transaction == id);
        if !view.foreigners().iter().any(|one| one.orphan && branch(one)) {
            return Err(unknown(id));
        }
        let opened = view.incarnation(id.node, id.incarnation).ok_or_else(|| unknown(id))?;
        let lost = format!("taken over from a lost journal: {}", remark.reason);
        journal.take_over(opened, Remark { reason: lost, ..remark.clone() }).await
    }

    /// The journal of a resolver in a person's hand.
    pub(super) fn hand_on(&self) -> Result<&Journal> {
        match &self.store {
            Store::Locked(journal) => Ok(journal),
            Store::Live(_) | Store::Offline(_) | Store::Read(_) => {
                let message = "nothing is decided by hand without the journal's lock: stop the application first";
                Err(Error::new(ErrorKind::Refused, message))
            }
        }
    }
}

/// Only what nobody but a person can decide.
fn may_be_resolved(plan: &TransactionPlan, resolution: Resolution) -> Result<()> {
    let id = plan.id;
    let refused =
        |why: &str| Err(Error::new(ErrorKind::Refused, format!("transaction {id} is not resolved by hand: {why}")));
    match plan.history {
        History::Incomplete | History::Stale | History::Contradicted => Ok(()),
        History::Undecided if plan.action == Action::Damage => Ok(()),
        History::Anchor | History::Anchored if plan.action == Action::Resolve => Ok(()),
        History::ResolvedCommit if resolution == Resolution::Commit => Ok(()),
        History::ResolvedRollBack if resolution == Resolution::RollBack => Ok(()),
        History::ResolvedCommit => refused("it was resolved before, to commit"),
        History::ResolvedRollBack => refused("it was resolved before, to roll back"),
        History::Decided | History::Unnamed if plan.action == Action::Damage => refused(
            "the journal says that it was decided to commit. Recovery commits what is still prepared of it; what was ended \
             against the decision, or is lost, is for you to make good: then `handfast forget` closes it",
        ),
        History::Decided | History::Unnamed => {
            refused("the journal says that it was decided to commit; recovery commits it")
        }
        History::Finished | History::OnePhase => refused("the journal says that it has committed"),
        History::Undecided => {
            refused("the journal says that it was never decided; recovery rolls back what is left of it")
        }
        History::Anchor | History::Anchored => refused("its anchor has to be asked first"),
        History::Live | History::Unsure => refused("somebody may be at work on it"),
        History::Forgotten => refused("it was damaged, and a person has dealt with it"),
        History::Foreign => refused("it is not this journal's"),
    }
}

/// Only what is damaged, and over.
fn may_be_forgotten(plan: &TransactionPlan) -> Result<()> {
    let refused = |why: String| {
        Err(Error::new(ErrorKind::Refused, format!("transaction {} cannot be forgotten: {why}", plan.id)))
    };
    if plan.damage.is_none() {
        return refused(format!("it is not damaged but {}", plan.outcome.as_str().replace('_', " ")));
    }
    let in_the_way = plan.branches.iter().find_map(|branch| match branch.sighting {
        Sighting::Listed => Some(format!("{} is still prepared on {}", branch.id, branch.participant)),
        Sighting::NotScanned | Sighting::OtherData => {
            Some(format!("{} cannot be seen on {}: {}", branch.id, branch.participant, branch.why))
        }
        Sighting::NotListed | Sighting::GivenUp => None,
    });
    in_the_way.map_or(Ok(()), refused)
}
