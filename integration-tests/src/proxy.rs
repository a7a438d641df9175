//! A network between application and server that fails when it is told to.
//!
//! A [`Proxy`] stands before a server on a port of its own and understands as much of both wire protocols as it takes
//! to see where a client's message begins and which statement it carries. Tests arm **rules**: on the n-th message
//! that contains a text, the connection is cut, reset, held or slowed down, either before the message is delivered or
//! after the server has acted on it.
//!
//! ```no_run
//! # use integration_tests::{proxy::Proxy, servers::{self, ConfigBuilder, Flavor}};
//! # async fn example() {
//! let server = servers::shared(Flavor::Postgres).await;
//! let proxy = Proxy::start(server).await;
//! let config = ConfigBuilder::new("/tmp").participant_at("ledger", Flavor::Postgres, &proxy.url("postgres"));
//! let rule = proxy.on("COMMIT PREPARED").cut_answer();
//! // .. open a bridge with `config`, commit ..
//! rule.fired().await;
//! # }
//! ```
//!
//! Statements are known by their text alone: a message that executes a statement prepared earlier has none, and is the one
//! [following](On::following) it. Every message is kept, so that a test can count them ([`Proxy::messages`]).

mod connection;
mod wire;

pub use wire::Message;

use crate::servers::{Flavor, Server};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How long [`Rule::fired`] waits.
const PATIENCE: Duration = Duration::from_secs(30);

/// A proxy before one server. Dropped, it closes every connection.
pub struct Proxy {
    shared: Arc<Shared>,
    port: u16,
    accepting: JoinHandle<()>,
    /// Of no database.
    url: String,
}

/// What its connections share.
struct Shared {
    flavor: Flavor,
    server: SocketAddr,
    rules: Mutex<Vec<Arc<Armed>>>,
    messages: Mutex<Vec<Message>>,
    next_connection: AtomicU32,
    state: watch::Sender<State>,
}

/// What the network as a whole is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    is_down: bool,
    /// Counts the times that every connection was closed.
    severed: u64,
}

/// What happens at a message.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Cut,
    Reset,
    Hold,
    Delay(Duration),
    /// This many bytes of the answer arrive.
    Truncate(usize),
    /// The answer to the first such message is kept, and is what the second one gets.
    Replay,
    /// Another text is delivered in its stead, which the server refuses.
    Refuse,
}

/// Whether it happens before the server sees the message or after it has acted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Before,
    After,
}

/// A rule as the connections see it.
#[derive(Debug)]
struct Armed {
    text: String,
    fault: Fault,
    place: Place,
    stay_down: bool,
    every: bool,
    following: bool,
    /// Matches still to be let pass.
    to_skip: AtomicU32,
    fired: watch::Sender<u32>,
    released: watch::Sender<bool>,
    /// An answer that is to be given once more.
    kept: Mutex<Vec<u8>>,
}

/// A rule in the making: on which message.
#[must_use]
pub struct On {
    shared: Arc<Shared>,
    text: String,
    nth: u32,
    stay_down: bool,
    every: bool,
    following: bool,
}

/// A way to arm a rule, like [`On::cut`]: for tests that try several.
pub type Arm = fn(On) -> Rule;

/// An armed rule.
pub struct Rule {
    armed: Arc<Armed>,
    shared: Arc<Shared>,
}

impl Proxy {
    /// Starts a proxy before a server. It lives in the current runtime.
    ///
    /// # Panics
    /// When no port is to be had.
    pub async fn start(server: &Server) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port on loopback");
        let port = listener.local_addr().expect("a bound listener has an address").port();
        let shared = Arc::new(Shared {
            flavor: server.flavor(),
            server: (Ipv4Addr::LOCALHOST, server.port()).into(),
            rules: Mutex::default(),
            messages: Mutex::default(),
            next_connection: AtomicU32::new(0),
            state: watch::Sender::new(State { is_down: false, severed: 0 }),
        });
        let accepting = tokio::spawn(connection::accept(shared.clone(), listener));
        let url = server.url("").replace(&format!(":{}/", server.port()), &format!(":{port}/"));
        Self { shared, port, accepting, url }
    }

    /// The URL of a database through the proxy, as the server's superuser.
    pub fn url(&self, database: &str) -> String {
        format!("{}{database}", self.url)
    }

    /// The proxy's port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Begins a rule: on the next message that contains this text.
    pub fn on(&self, text: &str) -> On {
        let (shared, text) = (self.shared.clone(), text.to_owned());
        On { shared, text, nth: 1, stay_down: false, every: false, following: false }
    }

    /// Closes every connection and takes no new one until [`up`](Self::up): what is held is lost.
    pub fn down(&self) {
        self.shared.sever(true);
    }

    /// Takes connections again.
    pub fn up(&self) {
        self.shared.state.send_modify(|state| state.is_down = false);
    }

    /// Closes every connection; new ones are taken.
    pub fn sever(&self) {
        self.shared.sever(false);
    }

    /// Every message of every client so far, in the order of arrival, delivered or not.
    pub fn messages(&self) -> Vec<Message> {
        lock(&self.shared.messages).clone()
    }

    /// Forgets the messages so far: for tests that go on for long.
    pub fn forget(&self) {
        lock(&self.shared.messages).clear();
    }

    /// How many messages so far contained this text.
    pub fn count(&self, text: &str) -> usize {
        lock(&self.shared.messages).iter().filter(|message| message.text.contains(text)).count()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.shared.sever(true);
    }
}

impl On {
    /// Not the first such message but the n-th, counted from 1.
    pub fn nth(mut self, n: u32) -> Self {
        assert!(n > 0, "messages are counted from 1");
        self.nth = n;
        self
    }

    /// Every such message until the rule is [disarmed](Rule::disarm), not only one.
    pub fn every(mut self) -> Self {
        self.every = true;
        self
    }

    /// Not that message but the next question on its connection: the one that executes the statement that was prepared.
    pub fn following(mut self) -> Self {
        self.following = true;
        self
    }

    /// When it fires the whole proxy goes [down](Proxy::down).
    pub fn and_stay_down(mut self) -> Self {
        self.stay_down = true;
        self
    }

    /// Closes the connection; the message is not delivered.
    pub fn cut(self) -> Rule {
        self.arm(Fault::Cut, Place::Before)
    }

    /// Delivers the message, waits until the server has acted on it and the session is over, and closes the
    /// connection without an answer.
    pub fn cut_answer(self) -> Rule {
        self.arm(Fault::Cut, Place::After)
    }

    /// As [`cut`](Self::cut), with a TCP reset.
    pub fn reset(self) -> Rule {
        self.arm(Fault::Reset, Place::Before)
    }

    /// As [`cut_answer`](Self::cut_answer), with a TCP reset.
    pub fn reset_answer(self) -> Rule {
        self.arm(Fault::Reset, Place::After)
    }

    /// A black hole: the connection stays open, nothing is delivered in either direction until
    /// [`Rule::release`]; then the message is, even if its client has gone.
    pub fn hold(self) -> Rule {
        self.arm(Fault::Hold, Place::Before)
    }

    /// Delivers the message and what follows it, but no answer until [`Rule::release`]. Fires when it is delivered,
    /// which is before the server has acted.
    pub fn hold_answer(self) -> Rule {
        self.arm(Fault::Hold, Place::After)
    }

    /// Delivers the message later.
    pub fn delay(self, delay: Duration) -> Rule {
        self.arm(Fault::Delay(delay), Place::Before)
    }

    /// Delivers the answer later.
    pub fn delay_answer(self, delay: Duration) -> Rule {
        self.arm(Fault::Delay(delay), Place::After)
    }

    /// Delivers the message and the first bytes of its answer, then closes the connection.
    pub fn truncate_answer(self, bytes: usize) -> Rule {
        self.arm(Fault::Truncate(bytes), Place::After)
    }

    /// Delivers the message and keeps its answer. The next such message, of whatever connection, is not delivered and gets
    /// that answer. Fires then.
    pub fn replay(self) -> Rule {
        self.every().arm(Fault::Replay, Place::Before)
    }

    /// Delivers what fails in the message's stead: the server refuses it, as it refuses one that was cancelled, and goes on
    /// with what comes behind it.
    pub fn refuse(self) -> Rule {
        self.arm(Fault::Refuse, Place::Before)
    }

    fn arm(self, fault: Fault, place: Place) -> Rule {
        let armed = Arc::new(Armed {
            text: self.text,
            fault,
            place,
            stay_down: self.stay_down,
            every: self.every,
            following: self.following,
            to_skip: AtomicU32::new(self.nth - 1),
            fired: watch::Sender::new(0),
            released: watch::Sender::new(false),
            kept: Mutex::default(),
        });
        lock(&self.shared.rules).push(armed.clone());
        Rule { armed, shared: self.shared }
    }
}

impl Rule {
    /// Waits until it has fired.
    ///
    /// # Panics
    /// After 30 seconds, with the messages that came instead.
    pub async fn fired(&self) {
        let mut fired = self.armed.fired.subscribe();
        let waited = tokio::time::timeout(PATIENCE, fired.wait_for(|times| *times > 0)).await;
        assert!(waited.is_ok(), "no message with {:?} came; the last ones:\n{}", self.armed.text, self.shared.tail());
    }

    /// How often it has fired.
    pub fn times(&self) -> u32 {
        *self.armed.fired.borrow()
    }

    /// Lets go what it holds, and what it would hold from now on.
    pub fn release(&self) {
        self.armed.released.send_replace(true);
    }

    /// It does not fire any more; what it holds stays held.
    pub fn disarm(&self) {
        lock(&self.shared.rules).retain(|armed| !Arc::ptr_eq(armed, &self.armed));
    }
}

impl Shared {
    fn sever(&self, is_down: bool) {
        self.state.send_modify(|state| *state = State { is_down, severed: state.severed + 1 });
    }

    /// The last messages, for people.
    fn tail(&self) -> String {
        let messages = lock(&self.messages);
        let last = messages.iter().rev().filter(|message| !message.text.is_empty()).take(20);
        let lines: Vec<_> = last.map(|message| format!("{}: {}", message.connection, message.text)).collect();
        lines.join("\n")
    }

    /// The first rule whose turn it is at this message. Each counts for itself.
    fn rule_for(&self, message: &Message) -> Option<Arc<Armed>> {
        let mut rules = lock(&self.rules);
        let due = |rule: &Arc<Armed>| message.text.contains(&rule.text) && !rule.skips();
        let met = rules.iter().map(due).collect::<Vec<_>>().iter().position(|due| *due)?;
        Some(if rules[met].every { rules[met].clone() } else { rules.remove(met) })
    }
}

impl Armed {
    /// Whether it waits for the question that the message is a part of, or that comes behind it: the server acts on what
    /// PostgreSQL calls an extended query when it is told to, at its end.
    fn waits(&self, is_question: bool) -> bool {
        self.following || (self.place == Place::After && !is_question)
    }

    fn skips(&self) -> bool {
        // Under the lock of the rules: nobody else counts.
        let left = self.to_skip.load(Ordering::Relaxed);
        self.to_skip.store(left.saturating_sub(1), Ordering::Relaxed);
        left > 0
    }

    fn fire(&self, shared: &Shared) {
        if self.stay_down {
            shared.sever(true);
        }
        self.fired.send_modify(|times| *times += 1);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
