//! The anchor of a bridge or a resolver: a participant whose rows are the decisions, in place of a journal.

use super::{Engine, Enlisted, Job};
use crate::config::{Config, Decision};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Incarnation, JournalId, NodeName, ParticipantName, TransactionId};
use crate::journal::{Answering, Journal, Opening, Row, Rows};
use crate::participant::anchor::{Anchor, HIGHEST_SLOT, MOST_PARTICIPANTS};
use crate::participant::{BeginOptions, Capability, Claim, Isolation, Participant};
use crate::protocol::{self, Acknowledge, Coordinator, Mode};
use crate::torture::{self, Request};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The rows of a node on a participant.
struct NodeRows {
    participant: Arc<dyn Participant>,
    node: NodeName,
}

impl NodeRows {
    fn anchor(&self) -> &dyn Anchor {
        self.participant.anchor().expect("looked at before the journal was made")
    }
}

impl Rows for NodeRows {
    fn kept(&self) -> Answering<'_, BTreeMap<String, Vec<u8>>> {
        Box::pin(async {
            let kept = self.anchor().kept(self.node).await?;
            Ok(kept.into_iter().map(|kept| (kept.part, kept.bytes)).collect())
        })
    }

    fn keep<'a>(&'a self, part: &'a str, known: Option<&'a [u8]>, new: &'a [u8]) -> Answering<'a, bool> {
        let keeping = self.anchor().keep(self.node, part, known, new);
        Box::pin(torture::request(Request::Keep, self.participant.name(), keeping))
    }

    fn decisions<'a>(&'a self, number: u16, of: &'a [Incarnation]) -> Answering<'a, Vec<Row>> {
        Box::pin(async move {
            let rows = self.anchor().decisions(number, of).await?;
            let row = |row: crate::participant::anchor::DecisionRow| Row {
                incarnation: row.incarnation,
                sequence: row.sequence,
                branches: row.branches,
            };
            Ok(rows.into_iter().map(row).collect())
        })
    }

    fn clear<'a>(&'a self, number: u16, of: Incarnation, sequences: &'a [u64]) -> Answering<'a, ()> {
        let clearing = self.anchor().clear(number, of, sequences);
        Box::pin(torture::request(Request::Clear, self.participant.name(), clearing))
    }

    fn held<'a>(&'a self, of: &'a [Incarnation]) -> Answering<'a, BTreeSet<Incarnation>> {
        self.anchor().held(self.node, of)
    }
}

/// The participant that is to be the anchor, if one is: it has to be there, and able to.
pub(crate) fn find<'a>(
    config: &Config,
    participants: &'a BTreeMap<ParticipantName, Arc<dyn Participant>>,
) -> Result<Option<&'a Arc<dyn Participant>>> {
    let Some(name) = config.transaction.decision.anchor() else { return Ok(None) };
    let wrong = |why: String| Err(Error::new(ErrorKind::Config, format!("transaction.decision is {name}, and {why}")));
    let Some(anchor) = participants.get(&name) else {
        let known: Vec<_> = participants.keys().map(ToString::to_string).collect();
        return wrong(format!("no participant has that name; there are: {}", known.join(", ")));
    };
    if anchor.anchor().is_none() {
        return wrong(format!("a participant of kind {} cannot decide for others", anchor.kind()));
    }
    if participants.len() > MOST_PARTICIPANTS {
        return wrong(format!(
            "there are more than {MOST_PARTICIPANTS} participants: their list does not fit into its row"
        ));
    }
    let sizes = config.participants.values().map(|one| one.pool_size.unwrap_or(config.pool.size));
    if sizes.max().is_some_and(|size| size > HIGHEST_SLOT as usize / 2) {
        return wrong(format!(
            "a pool is larger than {} sessions: their numbers do not fit into its row",
            HIGHEST_SLOT / 2
        ));
    }
    if let Some(last) = participants.values().find(|one| one.name() != name && one.capability() == Capability::LastOnly)
    {
        return wrong(format!("{} cannot prepare, so that it would have to decide", last.name()));
    }
    Ok(Some(anchor))
}

/// What the anchor has in place of a journal, of which nothing is read yet.
pub(crate) fn journal(anchor: &Arc<dyn Participant>, node: NodeName, own: Incarnation) -> Journal {
    let rows = NodeRows { participant: anchor.clone(), node };
    Journal::on_anchor(Box::new(rows), anchor.name(), number(node, anchor.name()), own)
}

/// What stands for the journal's identity: the same for all who work in the node's name by that anchor. So openings that
/// are registered elsewhere, and that the anchor does not know, give away that it was emptied or put back.
fn number(node: NodeName, anchor: ParticipantName) -> JournalId {
    let bytes = node.as_str().bytes().chain([0xff]).chain(anchor.as_str().bytes());
    let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    JournalId(bytes.fold(0xcbf2_9ce4_8422_2325, hash))
}

/// Opens on the anchor: takes this opening's lease there, reads what is there, and writes the opening down. Nothing can be
/// decided without it, so what cannot be reached is an error here.
pub(crate) async fn open(anchor: &Arc<dyn Participant>, opening: Opening) -> Result<Journal> {
    let claim = Claim { node: opening.node, incarnation: opening.incarnation, shared: true };
    let name = anchor.name();
    let opened = async {
        torture::request(Request::Hold, name, anchor.hold(claim)).await?;
        anchor.anchor().expect("the caller has looked").set_up().await?;
        let journal = journal(anchor, opening.node, opening.incarnation);
        journal.refresh(&BTreeSet::new()).await?;
        journal.register(opening).await?;
        Ok(journal)
    };
    opened.await.map_err(|error: Error| error.at(name))
}

impl Engine {
    /// The number of the anchor, where there is one.
    pub fn anchor(&self) -> Option<u16> {
        let Decision::Anchor(name) = self.transaction.decision else { return None };
        self.members.iter().find(|member| member.name == name).map(|member| member.number)
    }
}

/// Has the anchor decide, where there is something to decide for several writers: one that did not take part so far begins
/// a branch for that alone.
pub(super) async fn enlist(job: &mut Job) -> Result<()> {
    let Some(number) = job.engine.anchor() else { return Ok(()) };
    let writers = job.enlisted.iter().filter(|one| one.info.mode == Mode::Writer).count();
    let found = job.enlisted.iter().find(|one| one.info.id.participant == number).map(|one| one.info.mode);
    match found {
        Some(Mode::Writer) => return Ok(()),
        _ if writers < 2 => return Ok(()),
        Some(Mode::ReadOnly) => {
            let message = "the anchor was declared read-only, and has to decide for several writers";
            return Err(Error::new(ErrorKind::Config, message));
        }
        None => {}
    }
    let member = &job.engine.members[usize::from(number)];
    let beginning = async {
        let lineage = job.engine.ready(member).await?;
        job.engine.leased(member).await?;
        let options = BeginOptions {
            mode: Mode::Writer,
            isolation: Isolation::Default,
            lock_timeout: job.engine.transaction.effective_lock_timeout(),
        };
        let branch = torture::request(Request::Begin, member.name, member.participant.begin(job.id, options)).await?;
        let info = protocol::Branch { id: branch.id(), participant: member.name, lineage, mode: Mode::Writer };
        Ok(Enlisted { info, branch })
    };
    let late = |_| Err(Error::new(ErrorKind::TimedOut, "the anchor did not begin its branch before the deadline"));
    let begun = Box::pin(tokio::time::timeout_at(job.deadline, beginning)).await.unwrap_or_else(late);
    job.enlisted.push(begun.map_err(|error: Error| error.at(member.name))?);
    Ok(())
}

/// The coordinator of a transaction, with the decision where it belongs.
pub(super) fn coordinator(
    engine: &Engine,
    id: TransactionId,
    enlisted: Vec<protocol::Branch>,
    acknowledge: Acknowledge,
) -> Coordinator {
    let decides = |one: &&protocol::Branch| Some(one.id.participant) == engine.anchor() && one.mode == Mode::Writer;
    let anchor = enlisted.iter().find(decides).map(|one| one.id);
    let coordinator = Coordinator::new(id, enlisted, acknowledge, None);
    match anchor {
        Some(anchor) => coordinator.anchored(anchor),
        None => coordinator,
    }
}
