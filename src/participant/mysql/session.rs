//! Sessions: their names, their pool, and the ways in which they end.
//!
//! A session goes back to the pool only when the end of its branch was answered positively; everything else closes
//! it. The driver's own pool is not used: it resets whatever it is given, and after COM_RESET_CONNECTION on a prepared
//! branch MariaDB answers *OK* to XA COMMIT and has committed nothing (D02). Here a session is reset only behind its
//! branch's end, and only where its user may have left something (`leftovers.rs`).
//!
//! A session's **name** is a lock of the server (`GET_LOCK`) that it holds for life. Recovery finds by it who holds a
//! branch; connection ids begin anew when the server restarts.

use super::control::{Control, kill_and_wait};
use super::error::{MyError, explain};
use super::leftovers::{Cleaning, Fresh, Leaves};
use super::sql::{Question, Sql};
use super::wire::{Failure, Wire, ask};
use super::work::MOMENT;
use super::{ssl, url};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Lineage, ParticipantName, SessionName};
use crate::participant::access::Access;
use crate::participant::pool::{self, Manner, Slot, Slots};
use crate::participant::witness::wrong_lineage;
use deadpool::managed::{Manager, Metrics, Object, RecycleError, RecycleResult};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Which of the two products a server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Product {
    MySql,
    MariaDb,
}

impl Product {
    pub(super) fn of(version: &str) -> Self {
        if version.to_ascii_lowercase().contains("mariadb") { Self::MariaDb } else { Self::MySql }
    }

    /// As configuration and tool print it.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::MySql => "mysql",
            Self::MariaDb => "mariadb",
        }
    }

    /// All prepared branches of the server.
    pub(super) fn list(self) -> &'static str {
        match self {
            Self::MySql => Sql::LIST_MYSQL,
            Self::MariaDb => Sql::LIST_MARIADB,
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::MySql => "MySQL",
            Self::MariaDb => "MariaDB",
        }
    }
}

/// How to reach the server.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) name: ParticipantName,
    /// Without what is read anew for each connection.
    pub(super) opts: Opts,
    pub(super) access: Arc<Access>,
    pub(super) timeout: Duration,
    pub(super) sql: Arc<Sql>,
    /// Settings to restore beside those that are always restored.
    pub(super) restored: Arc<[String]>,
    /// Known from the first connection on.
    pub(super) product: Arc<OnceLock<Product>>,
}

impl Connector {
    /// Connects, and sets up the new session by `prepare` within the same time limit.
    pub(super) async fn connect<T>(&self, prepare: impl AsyncPrepare<T>) -> Result<(Wire, T)> {
        let work = async {
            let doing = || format!("cannot connect to {}", url::address(&self.opts));
            let opts = self.opts_of_now().await?;
            let conn = Conn::new(opts).await.map_err(|error| explain(self.name, &doing(), error))?;
            let mut wire = Wire::new(conn);
            let prepared = prepare.run(&mut wire).await?;
            Ok((wire, prepared))
        };
        let late = |_| {
            let to = url::address(&self.opts);
            self.unavailable(format!("cannot connect to {to}: no answer within {:?}", self.timeout))
        };
        tokio::time::timeout(self.timeout, work).await.map_err(late)?
    }

    async fn opts_of_now(&self) -> Result<OptsBuilder> {
        let opts = self.opts.clone();
        let unlocked = self.access.unlock(move |keys| {
            let ssl = keys.tls.map(|tls| ssl::options(tls, opts.ip_or_hostname())).transpose()?;
            let with_password = |opts: OptsBuilder| match &keys.password {
                Some(password) => opts.pass(Some(password.reveal())),
                None => opts,
            };
            Ok(with_password(OptsBuilder::from_opts(opts)).ssl_opts(ssl))
        });
        unlocked.await.map_err(|error| error.at(self.name))
    }

    /// Refuses a server that is not the one that was registered with: a name may lead elsewhere after a failover.
    pub(super) async fn check_lineage(&self, conn: &mut Conn, expected: Lineage) -> Result<()> {
        let found = conn.query_first::<i64, _>(self.sql.lineage()).await;
        let found = found.map_err(|error| explain(self.name, "cannot read the lineage", error))?;
        let found = found.map(Lineage::from_sql);
        if found == Some(expected) { Ok(()) } else { Err(wrong_lineage(self.name, expected, found)) }
    }

    /// Remembers what the server is.
    pub(super) fn learn(&self, version: &str) -> Product {
        *self.product.get_or_init(|| Product::of(version))
    }

    pub(super) fn unavailable(&self, message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Unavailable, message).at(self.name)
    }
}

/// What is done on a new connection before anybody gets it. A trait, since the future has to be `Send`.
pub(super) trait AsyncPrepare<T>: Send {
    fn run(self, wire: &mut Wire) -> impl Future<Output = Result<T>> + Send;
}

/// A session of the pool.
pub(super) struct Session {
    /// Away while it is at work, or cleaned.
    wire: Option<Wire>,
    cleaning: Option<Cleaning>,
    fresh: Fresh,
    /// Its last user may have left what statements can undo.
    is_worn: bool,
    set: Set,
    slot: Slot,
    used: bool,
}

/// Makes and keeps the sessions of one incarnation.
pub(super) struct Sessions {
    pub(super) connector: Connector,
    /// The slot in it is not used.
    pub(super) named: SessionName,
    pub(super) lineage: Lineage,
    pub(super) slots: Arc<Slots>,
    /// For ending a session from outside.
    pub(super) control: Arc<Control>,
}

/// Names a new session by the first slot whose lock is free, and checks whom it is talking to.
struct Naming<'a>(&'a Sessions);

impl AsyncPrepare<(Slot, Fresh)> for Naming<'_> {
    async fn run(self, wire: &mut Wire) -> Result<(Slot, Fresh)> {
        let Sessions { connector, lineage, slots, .. } = self.0;
        // A closing or half-open session may hold the lock of a slot that was given back: the next one serves. When
        // there is no next one, the first of them has had its time.
        let mut held = VecDeque::new();
        loop {
            let slot = match slots.take() {
                Some(slot) => slot,
                None => match held.pop_front() {
                    Some(slot) => self.free(wire, slot).await?,
                    None => slots.wait().await,
                },
            };
            let (taken, version) = self.try_name(wire, &slot, Duration::ZERO).await?;
            let product = connector.learn(&version);
            if taken {
                connector.check_lineage(wire.conn(), *lineage).await?;
                let fresh = self.fresh(wire, &slot, product).await?;
                return Ok((slot, fresh));
            }
            held.push_back(slot);
        }
    }
}

impl Naming<'_> {
    fn name(&self, slot: &Slot) -> SessionName {
        SessionName { slot: slot.number, ..self.0.named }
    }

    /// Takes the slot's name, if it is free within the wait, and asks for the server's version.
    async fn try_name(&self, wire: &mut Wire, slot: &Slot, wait: Duration) -> Result<(bool, String)> {
        let connector = &self.0.connector;
        let row = wire.conn().query_first::<(Option<i64>, String), _>(Sql::name_session(&self.name(slot), wait)).await;
        let row = row.map_err(|error| explain(connector.name, "cannot name the session", error))?;
        let (taken, version) = row.ok_or_else(|| connector.unavailable("GET_LOCK gave no answer"))?;
        Ok((taken == Some(1), version))
    }

    /// Remembers what a new session is like.
    async fn fresh(&self, wire: &mut Wire, slot: &Slot, product: Product) -> Result<Fresh> {
        let connector = &self.0.connector;
        let restoring = wire.conn().query_first::<String, _>(Sql::restoring(product, &connector.restored)).await;
        let restoring =
            restoring.map_err(|error| explain(connector.name, "cannot read the session's settings", error))?;
        let restoring = restoring.ok_or_else(|| connector.unavailable("the session shows no settings"))?;
        Ok(Fresh { name: self.name(slot), restoring })
    }

    /// Waits a moment for what remains of an old session, then ends it: nobody works on it any more.
    async fn free(&self, wire: &mut Wire, slot: Slot) -> Result<Slot> {
        let (taken, _) = self.try_name(wire, &slot, Duration::from_secs(1)).await?;
        if !taken {
            let ended = kill_and_wait(wire.conn(), self.name(&slot), self.0.connector.timeout).await;
            ended.map_err(|error| explain(self.0.connector.name, "cannot end an old session", error))?;
        }
        Ok(slot)
    }
}

impl Manager for Sessions {
    type Type = Session;
    type Error = Error;

    async fn create(&self) -> Result<Session> {
        // Each future that might have to connect has room for all of it; few do.
        let (wire, (slot, fresh)) = Box::pin(self.connector.connect(Naming(self))).await?;
        let set = Set { since: Instant::now(), lock_seconds: None };
        Ok(Session { wire: Some(wire), cleaning: None, fresh, is_worn: false, set, slot, used: false })
    }

    async fn recycle(&self, session: &mut Session, _: &Metrics) -> RecycleResult<Error> {
        if let Some(cleaning) = &mut session.cleaning {
            session.wire = cleaning.cleaned().await;
            session.cleaning = None;
        }
        if session.wire.as_ref().is_none_or(Wire::is_broken) {
            return Err(RecycleError::message("the connection was lost while idle"));
        }
        session.used = true;
        Ok(())
    }
}

/// A session's place in the pool, which can be taken back while somebody still holds its connection.
pub(super) struct Place(Mutex<Option<Object<Sessions>>>);

impl Place {
    fn take(&self) -> Option<Object<Sessions>> {
        // What is done under the lock cannot panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Gives up the session of somebody who may never let go of it: it is ended from outside, and the pool is whole.
    pub(super) fn give_up(&self) {
        if let Some(object) = self.take() {
            see_out(object, Manner::AtOnce);
        }
    }
}

/// A session in use. Dropped, it is closed; only [`release`](Self::release) gives it back.
pub(super) struct Lease {
    place: Arc<Place>,
    /// `None` once it was released or closed.
    wire: Option<Wire>,
    slot: u32,
    is_used: bool,
    /// What its next question begins with.
    anew: Option<Question>,
    set: Set,
    /// When its last question was sent: it was alive then, however late the answer was read.
    asked: Instant,
}

/// What is known of a session.
#[derive(Debug, Clone, Copy)]
struct Set {
    /// When it was asked last, or made.
    since: Instant,
    /// How long its statements wait for a lock, where nobody has changed that, or its database, since.
    lock_seconds: Option<u64>,
}

impl Lease {
    pub(super) fn new(mut session: Object<Sessions>) -> Self {
        let anew = std::mem::take(&mut session.is_worn).then(|| session.fresh.question());
        let (wire, slot, is_used) = (session.wire.take(), session.slot.number, session.used);
        let set = session.set;
        Self { place: Arc::new(Place(Mutex::new(Some(session)))), wire, slot, is_used, anew, set, asked: set.since }
    }

    pub(super) fn place(&self) -> Arc<Place> {
        self.place.clone()
    }

    pub(super) fn slot(&self) -> u32 {
        self.slot
    }

    pub(super) fn wire(&mut self) -> &mut Wire {
        self.wire.as_mut().expect("only release, close and drop take it, and each ends the lease")
    }

    /// Whether the session comes from the pool: its connection may have died there.
    pub(super) fn is_used(&self) -> bool {
        self.is_used
    }

    pub(super) async fn ask(&mut self, question: &Question) -> Result<(), Failure> {
        if self.wire().is_broken() {
            return Err(Failure::Broken(MyError::Driver(mysql_async::DriverError::ConnectionClosed)));
        }
        self.asked = Instant::now();
        ask(self.wire().conn(), question).await
    }

    /// What its first question begins with, where its last user may have left what statements can undo.
    pub(super) fn anew(&mut self) -> Option<Question> {
        self.anew.take()
    }

    /// Whether it was used a moment ago, and is alive then.
    pub(super) fn is_warm(&self) -> bool {
        self.set.since.elapsed() <= MOMENT
    }

    /// Whether it has its database, and this time limit for locks.
    pub(super) fn is_set(&self, lock_seconds: u64) -> bool {
        self.set.lock_seconds == Some(lock_seconds)
    }

    /// Sees to it that this is remembered of it.
    pub(super) fn set(&mut self, lock_seconds: u64) {
        self.set.lock_seconds = Some(lock_seconds);
    }

    /// Gives the session back: the end of its branch was answered positively.
    pub(super) fn release(mut self, leaves: Leaves) {
        let (Some(wire), Some(mut session)) = (self.wire.take(), self.place.take()) else { return };
        session.is_worn = leaves == Leaves::Unseen || self.anew.is_some();
        let lock_seconds = self.set.lock_seconds.filter(|_| leaves == Leaves::Nothing);
        session.set = Set { since: self.asked, lock_seconds };
        if leaves != Leaves::Something {
            session.wire = Some(wire);
        } else if let Some(pool) = Object::pool(&session) {
            session.cleaning = Cleaning::start(wire, session.fresh.clone(), &pool.manager().connector);
        }
    }

    /// Closes the session without disturbing what it does: a commit in progress is better finished than killed.
    pub(super) fn close(mut self) {
        if let Some(wire) = self.wire.take() {
            wire.sever();
        }
        if let Some(object) = self.place.take() {
            see_out(object, Manner::Idle);
        }
    }
}

impl Drop for Lease {
    /// Closes the session, and kills it if it may be in a statement: a server that is busy, or waits for a lock, does
    /// not look at its socket.
    fn drop(&mut self) {
        let Some(wire) = self.wire.take() else { return };
        let is_torn = wire.is_broken();
        wire.sever();
        if let Some(object) = self.place.take() {
            see_out(object, if is_torn { Manner::AtOnce } else { Manner::Idle });
        }
    }
}

/// Closes a session, and sees to it that its server ends it: what the network has swallowed, its closing included, would
/// keep its locks for as long as the server takes for alive who is gone.
fn see_out(object: Object<Sessions>, manner: Manner) {
    let pool = Object::pool(&object);
    let Session { wire, slot, .. } = Object::take(object);
    if let Some(wire) = wire {
        wire.sever();
    }
    // Without a runtime the closed socket has to do: the server sees it when its statement ends.
    let (Some(pool), Ok(runtime)) = (pool, tokio::runtime::Handle::try_current()) else { return };
    runtime.spawn(async move {
        let Sessions { named, control, .. } = pool.manager();
        let name = SessionName { slot: slot.number, ..*named };
        pool::see_out(|| control.claimed().is_some(), || Box::pin(control.see_out(name, manner))).await;
        // Until here nobody else goes by its name.
        drop(slot);
    });
}
