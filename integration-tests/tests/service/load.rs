//! Clients that move money through whichever replica serves, as one behind a load balancer does: on one connection for as
//! long as the server keeps it, to the next replica when a connection is refused or the server says that it is leaving.

use crate::http::{Connection, Reply};
use handfast::TransactionId;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;

/// After so many requests a client looks whether another replica is ready.
const STAY: u32 = 10;

/// Before a replica is asked again.
const PAUSE: Duration = Duration::from_millis(10);

/// What the clients were answered.
#[derive(Default)]
pub struct Seen {
    /// The transaction of each key that is committed.
    pub committed: BTreeMap<String, TransactionId>,
    /// Connections that were refused.
    pub refused: usize,
    /// Whatever else came in place of a commit.
    pub errors: Vec<String>,
}

impl Seen {
    /// The openings that have committed something: a replica has a new one with every start.
    pub fn openings(&self) -> BTreeSet<String> {
        let opening = |id: &TransactionId| format!("{}.{}", id.node, id.incarnation);
        self.committed.values().map(opening).collect()
    }
}

/// Clients at work.
pub struct Load {
    seen: Arc<Mutex<Seen>>,
    is_over: Arc<AtomicBool>,
    clients: JoinSet<()>,
}

impl Load {
    pub fn start(replicas: &[SocketAddr], clients: u32) -> Self {
        let (seen, is_over) = (Arc::new(Mutex::default()), Arc::new(AtomicBool::new(false)));
        let client = |number: u32| Client {
            number,
            at: number as usize % replicas.len(),
            replicas: replicas.to_vec(),
            seen: Arc::clone(&seen),
            is_over: Arc::clone(&is_over),
        };
        let clients = (0..clients).map(|number| client(number).work()).collect();
        Self { seen, is_over, clients }
    }

    pub fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the clients, each of which ends after the answer that it waits for, or when there is no server any more.
    pub async fn end(mut self, at_once: bool) -> Seen {
        self.is_over.store(at_once, Ordering::Relaxed);
        while let Some(ended) = self.clients.join_next().await {
            ended.expect("a client does not panic");
        }
        std::mem::take(&mut *self.seen())
    }
}

struct Client {
    number: u32,
    /// The replica to ask next.
    at: usize,
    replicas: Vec<SocketAddr>,
    seen: Arc<Mutex<Seen>>,
    is_over: Arc<AtomicBool>,
}

impl Client {
    async fn work(mut self) {
        let mut connection = None;
        for request in 0.. {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            if request % STAY == 0 {
                self.at = (self.at + 1) % self.replicas.len();
                connection = self.ready_one().await.or(connection);
            }
            if connection.is_none() {
                connection = self.next_one().await;
            }
            let Some(mut open) = connection.take() else { return };
            if !self.moves_money(&mut open, request).await {
                connection = Some(open);
            }
        }
    }

    /// The next replica that is ready, if there is one. `None` when there is one replica alone and it has gone.
    async fn next_one(&mut self) -> Option<Connection> {
        loop {
            if let Some(open) = self.ready_one().await {
                return Some(open);
            }
            if self.replicas.len() == 1 {
                self.see_it_go().await;
                return None;
            }
            self.at = (self.at + 1) % self.replicas.len();
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// A connection to this replica, where it says that it is ready. Asking that is no request: nothing is lost with it.
    async fn ready_one(&self) -> Option<Connection> {
        match Connection::open(self.replicas[self.at]).await {
            Ok(mut open) => {
                let reply = open.ask("GET /ready", "").await.ok()?;
                (reply.status == 200 && !reply.is_last).then_some(open)
            }
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                self.see(|seen| seen.refused += 1);
                None
            }
            Err(error) => {
                self.see(|seen| seen.errors.push(format!("connecting: {error}")));
                None
            }
        }
    }

    /// Waits until the only replica refuses connections.
    async fn see_it_go(&self) {
        while Connection::open(self.replicas[self.at]).await.is_ok() {
            tokio::time::sleep(PAUSE).await;
        }
        self.see(|seen| seen.refused += 1);
    }

    /// One transfer. Answers whether the connection is over.
    async fn moves_money(&self, open: &mut Connection, request: u32) -> bool {
        let key = format!("{}-{request}", self.number);
        // Rows that others want, too.
        let (account, wallet) = ((self.number + request) % 10 + 1, request % 7 + 1);
        let body = format!(r#"{{"key":"{key}","account":{account},"wallet":{wallet},"cents":3}}"#);
        let reply = open.ask("POST /transfers", &body).await;
        let is_last = reply.as_ref().map_or(true, |reply| reply.is_last);
        match committed(&reply) {
            Some(id) => self.see(|seen| assert_eq!(seen.committed.insert(key, id), None, "a key is used once")),
            None => self.see(|seen| seen.errors.push(format!("{key}: {reply:?}"))),
        }
        is_last
    }

    fn see(&self, what: impl FnOnce(&mut Seen)) {
        what(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// The transaction that a reply calls committed.
fn committed(reply: &std::io::Result<Reply>) -> Option<TransactionId> {
    let reply = reply.as_ref().ok().filter(|reply| reply.status == 200)?;
    let told: serde_json::Value = serde_json::from_str(&reply.body).ok()?;
    (told["outcome"] == "committed").then(|| told["id"].as_str()?.parse().ok())?
}
