//! What decided for this node before, where that was elsewhere: a journal, when an anchor decides now, or another anchor.
//!
//! Every participant's registry says of each opening where its decisions are. Each such place gets a resolver of its own,
//! with connections of its own, that knows the openings of that place alone: so nothing is ever settled by a memory that
//! did not decide it. It makes its passes before this bridge begins anything, and goes on in the background until nothing is
//! left; then it only answers who asks for an outcome.

use crate::config::{Config, Decision};
use crate::engine::jittered;
use crate::error::{Error, ErrorKind, Result};
use crate::id::TransactionId;
use crate::participant::BoxFuture;
use crate::protocol::Outcome;
use crate::resolver::Resolver;
use futures_util::future::join_all;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The resolvers of other places.
pub(super) struct Elsewhere {
    places: Vec<Place>,
    backoff: (Duration, Duration),
}

struct Place {
    decision: Decision,
    /// `None` once it was closed. Not locked while it works: who asks for an outcome does not wait for a pass.
    resolver: Mutex<Option<Arc<Resolver>>>,
}

impl Elsewhere {
    /// Opens a resolver for each place. One that is out of reach is told, and what was decided there is left as it is.
    pub(super) fn find(config: &Config, before: BTreeSet<Decision>) -> Result<Self> {
        let mut places = Vec::new();
        for decision in before {
            if let Some(resolver) = open(config, decision)? {
                let resolver = Mutex::new(Some(Arc::new(resolver)));
                places.push(Place { decision, resolver });
            }
        }
        Ok(Self { places, backoff: (config.recovery.backoff_min, config.recovery.backoff_max) })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// One pass after another of each, until it is complete, something is in the way, or the time is over.
    pub(super) async fn settle(&self, wait: Duration) {
        let passes = self.places.iter().map(|place| async move {
            let until = tokio::time::Instant::now() + wait;
            let mut pause = self.backoff.0;
            loop {
                match tokio::time::timeout_at(until, place.pass()).await {
                    Ok(Ok(true)) | Err(_) => return,
                    Ok(Ok(false)) => {}
                    Ok(Err(error)) => {
                        tracing::warn!(decision = %place.decision, error = %error.chain(), "what was decided there waits");
                        return;
                    }
                }
                tokio::time::sleep_until(until.min(tokio::time::Instant::now() + jittered(pause))).await;
                pause = (pause * 2).min(self.backoff.1);
            }
        });
        join_all(passes).await;
    }

    /// Goes on until nothing is left anywhere.
    pub(super) fn keep_settling(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.settle_all())
    }

    async fn settle_all(&self) {
        let each = self.places.iter().map(|place| async move {
            let mut pause = self.backoff.0;
            while !matches!(place.pass().await, Ok(true)) {
                tokio::time::sleep(jittered(pause)).await;
                pause = (pause * 2).min(self.backoff.1);
            }
            tracing::info!(decision = %place.decision, "all that was decided there is settled");
        });
        join_all(each).await;
    }

    /// How a transaction ended that this bridge's own memory does not know.
    pub(super) async fn outcome(&self, id: TransactionId, unknown: Error) -> Result<Outcome> {
        for place in &self.places {
            let Some(resolver) = place.resolver() else { continue };
            match resolver.outcome(id).await {
                Err(error) if error.kind() == ErrorKind::Unknown => {}
                outcome => return outcome,
            }
        }
        Err(unknown)
    }

    /// Closes the connections, and the journal where there is one.
    pub(super) async fn close(&self) {
        for place in &self.places {
            let open = place.lock().take();
            if let Some(resolver) = open
                && let Err(error) = resolver.shut().await
            {
                tracing::warn!(decision = %place.decision, error = %error.chain(), "cannot be closed well");
            }
        }
    }
}

impl Place {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<Resolver>>> {
        // What is done under the lock cannot panic.
        self.resolver.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn resolver(&self) -> Option<Arc<Resolver>> {
        self.lock().clone()
    }

    /// One pass: whether nothing is left.
    async fn pass(&self) -> Result<bool> {
        // Closed: nothing more is done.
        let Some(resolver) = self.resolver() else { return Ok(true) };
        let pass = resolver.sweep(&|_| {}).await;
        match pass.refused {
            Some(refused) => Err(refused),
            None => Ok(pass.is_complete()),
        }
    }
}

/// A resolver of another place, if it can be found: an anchor that is still a participant, a journal whose directory is
/// still named.
fn open(config: &Config, decision: Decision) -> Result<Option<Resolver>> {
    let there = match decision {
        Decision::Journal => config.journal.is_set() && is_there(config),
        Decision::Anchor(name) => config.participants.contains_key(&name),
    };
    if !there {
        let place = match decision {
            Decision::Journal => String::from("a journal that journal.directory does not lead to"),
            Decision::Anchor(name) => format!("{name}, which is no participant any more"),
        };
        tracing::warn!(
            node = %config.node,
            "decisions of earlier openings are in {place}: what they left is not touched"
        );
        return Ok(None);
    }
    let mut before = config.clone();
    before.transaction.decision = decision;
    match Resolver::open(before) {
        // Whoever has that journal settles what was decided there.
        Err(error) if error.kind() == ErrorKind::Refused => {
            tracing::warn!(%decision, error = %error.chain(), "what was decided there is not touched");
            Ok(None)
        }
        opened => opened.map(Some),
    }
}

/// Whether there is anything in the journal's directory.
fn is_there(config: &Config) -> bool {
    std::fs::read_dir(&config.journal.directory).is_ok_and(|mut names| names.next().is_some())
}
