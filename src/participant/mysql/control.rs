//! The resolver's own connection: one session beside the pool, made anew when it is lost. What holds the lease is another
//! one (`holding.rs`), and without the lease this one does nothing.

use super::error::{self, MyError, NO_SUCH_THREAD, explain};
use super::holding::Holding;
use super::lease::{Lease, give_up};
use super::letting_go::Freed;
use super::session::{AsyncPrepare, Connector};
use super::sql::Sql;
use super::wire::Wire;
use crate::error::Result;
use crate::id::{Incarnation, Lineage, SessionName};
use crate::participant::Claim;
use crate::participant::lease::Claimed;
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use std::sync::OnceLock;
use std::time::Duration;
use tokio::sync::{Mutex, MutexGuard};

/// A connection, and the claim that it works under.
struct Link {
    wire: Wire,
    claim: Option<Claim>,
}

/// The connection, where there is one.
pub(super) struct Control {
    pub(super) connector: Connector,
    place: Mutex<Option<Link>>,
    limit: Duration,
    /// After so long without a sign of life the server is to end the connection.
    silence: Duration,
    /// Set by registration: from then on no other server is talked to.
    expected: OnceLock<Lineage>,
    /// Once made, nothing is done without the lease.
    claimed: Claimed,
    holding: Holding,
    pub(super) freed: Freed,
}

/// The connection, taken for one operation.
///
/// It is put back only after an operation that ran to an answer: one that is dropped or times out takes its connection
/// with it, so that no answer of one can be taken for the answer to another.
pub(super) struct Held<'a> {
    place: MutexGuard<'a, Option<Link>>,
    link: Option<Link>,
}

impl Held<'_> {
    pub(super) fn conn(&mut self) -> &mut Conn {
        self.link.as_mut().expect("only keep and drop take it, and each ends the hold").wire.conn()
    }

    /// Puts the connection back if this last answer is one.
    pub(super) fn keep<T>(mut self, answer: &Result<T, MyError>) {
        let is_alive = match answer {
            Ok(_) => true,
            Err(error) => error::code(error).is_some_and(|code| !error::ends_session(code)),
        };
        if is_alive {
            *self.place = self.link.take();
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(link) = self.link.take() {
            link.wire.sever();
        }
    }
}

/// Sets up a new connection that claims nothing.
struct SettingUp<'a>(&'a Control);

impl AsyncPrepare<()> for SettingUp<'_> {
    async fn run(self, wire: &mut Wire) -> Result<()> {
        let Control { connector, limit, silence, expected, .. } = self.0;
        let failed = |error| explain(connector.name, "cannot set up the resolver's session", error);
        let version: Option<String> = wire.conn().query_first(Sql::VERSION).await.map_err(failed)?;
        connector.learn(&version.ok_or_else(|| connector.unavailable("VERSION() gave no answer"))?);
        wire.conn().query_drop(Sql::control_session(*limit)).await.map_err(failed)?;
        wire.conn().query_drop(Sql::mortal(*silence)).await.map_err(failed)?;
        match expected.get() {
            Some(expected) => connector.check_lineage(wire.conn(), *expected).await,
            None => Ok(()),
        }
    }
}

/// One that takes the lease: its number.
struct Taking<'a>(&'a Control, Claim);

impl AsyncPrepare<u64> for Taking<'_> {
    async fn run(self, wire: &mut Wire) -> Result<u64> {
        let Self(control, claim) = self;
        SettingUp(control).run(wire).await?;
        control.lease(claim).take(wire.conn()).await
    }
}

/// One that goes to work under the lease, where that is still held.
struct GoingToWork<'a>(&'a Control, Claim);

impl AsyncPrepare<()> for GoingToWork<'_> {
    async fn run(self, wire: &mut Wire) -> Result<()> {
        let Self(control, claim) = self;
        SettingUp(control).run(wire).await?;
        let lost = || control.connector.unavailable("the lease is not held any more");
        let holder = control.holding.connection().ok_or_else(lost)?;
        if control.lease(claim).go_to_work(wire.conn(), holder).await? {
            return Ok(());
        }
        // Nobody has told: what is next takes it again.
        control.holding.lost(holder).await;
        Err(lost())
    }
}

impl Control {
    pub(super) fn new(connector: Connector, limit: Duration, silence: Duration) -> Self {
        let (expected, claimed, holding) = (OnceLock::new(), Claimed::default(), Holding::default());
        let (place, freed) = (Mutex::default(), Freed::default());
        Self { connector, place, limit, silence, expected, claimed, holding, freed }
    }

    /// Takes the lease, or makes sure that it is still held.
    pub(super) async fn hold(&self, claim: Claim) -> Result<()> {
        self.claimed.claim(self.connector.name, claim)?;
        self.within("cannot hold the node's lease", self.take_lease(claim)).await?;
        self.recheck(claim).await;
        Ok(())
    }

    async fn take_lease(&self, claim: Claim) -> Result<()> {
        self.holding.hold(&self.lease(claim), self.connector.connect(Taking(self, claim))).await
    }

    /// Gives up a connection that is idle and may not work any more: a pooler has handed its session to somebody else.
    /// One that may is a sign of life: the server ends it after so long without.
    async fn recheck(&self, claim: Claim) {
        let Ok(mut place) = self.place.try_lock() else { return };
        let Some(link) = place.take() else { return };
        let mut held = Held { place, link: Some(link) };
        let Some(holder) = self.holding.connection() else { return };
        let lease = self.lease(claim);
        let is_under = held.link.as_ref().is_some_and(|link| link.claim == Some(claim));
        let check = tokio::time::timeout(self.limit / 4, lease.is_at_work(held.conn(), holder)).await;
        if is_under && let Ok(answer @ Ok(true)) = check {
            held.keep(&answer);
        }
    }

    /// The incarnation that works here, if one does.
    pub(super) fn claimed(&self) -> Option<Claim> {
        self.claimed.get()
    }

    /// Which taking of the lease was in force when its connection was last heard of, if one was.
    pub(super) fn lease_number(&self) -> Option<u64> {
        self.holding.number()
    }

    fn lease(&self, claim: Claim) -> Lease<'_> {
        // It has to fit into what a new connection may take.
        let wait = self.limit.min(self.connector.timeout) / 2;
        Lease { name: self.connector.name, claim, sql: &self.connector.sql, wait, silence: self.silence }
    }

    /// From now on only a server of this lineage is talked to.
    pub(super) fn expect(&self, lineage: Lineage) {
        self.expected.get_or_init(|| lineage);
    }

    /// How long one call may take.
    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// Bounds an operation in time, waiting for the connection included.
    pub(super) async fn within<T>(&self, doing: &str, operation: impl Future<Output = Result<T>>) -> Result<T> {
        let late = |_| self.connector.unavailable(format!("{doing}: no answer within {:?}", self.limit));
        tokio::time::timeout(self.limit, operation).await.map_err(late)?
    }

    /// Takes the connection, making it anew where it is missing or does not answer any more.
    pub(super) async fn take(&self) -> Result<Held<'_>> {
        let mut held = Held { place: self.place.lock().await, link: None };
        let claim = self.claimed.get();
        if let Some(claim) = claim
            && self.holding.connection().is_none()
        {
            self.take_lease(claim).await?;
        }
        held.link = held.place.take();
        // The server may have been restarted since the last call, which nobody notices on an idle connection.
        let is_alive = match &mut held.link {
            Some(link) => link.claim == claim && !link.wire.is_broken() && link.wire.conn().ping().await.is_ok(),
            None => false,
        };
        if !is_alive {
            if let Some(dead) = held.link.take() {
                dead.wire.sever();
            }
            let (wire, ()) = match claim {
                Some(claim) => {
                    // What has ended this connection may have ended the lease's, and nobody has told.
                    self.take_lease(claim).await?;
                    self.connector.connect(GoingToWork(self, claim)).await?
                }
                None => self.connector.connect(SettingUp(self)).await?,
            };
            held.link = Some(Link { wire, claim });
        }
        Ok(held)
    }

    /// Runs a statement that returns nothing.
    pub(super) async fn run(&self, doing: &str, statement: &str) -> Result<Result<(), MyError>> {
        let work = async {
            let mut held = self.take().await?;
            let answer = held.conn().query_drop(statement).await;
            held.keep(&answer);
            Ok(answer)
        };
        self.within(doing, work).await
    }

    /// Runs a query to its last row.
    pub(super) async fn rows<T>(&self, doing: &str, query: &str) -> Result<Vec<T>>
    where
        T: mysql_async::prelude::FromRow + Send + 'static,
    {
        let work = async {
            let mut held = self.take().await?;
            let answer = held.conn().query(query).await;
            held.keep(&answer);
            answer.map_err(|error| explain(self.connector.name, doing, error))
        };
        self.within(doing, work).await
    }

    /// The first row of a query.
    pub(super) async fn row<T>(&self, doing: &str, query: &str) -> Result<Option<T>>
    where
        T: mysql_async::prelude::FromRow + Send + 'static,
    {
        Ok(self.rows(doing, query).await?.into_iter().next())
    }

    /// Ends a session by its name and waits until it is gone, its locks with it: `true` when there was one.
    pub(super) async fn end_session(&self, session: SessionName) -> Result<bool> {
        let doing = "cannot end the session";
        let work = async {
            let mut held = self.take().await?;
            let answer = kill_and_wait(held.conn(), session, self.limit / 2).await;
            held.keep(&answer);
            answer.map_err(|error| explain(self.connector.name, doing, error))
        };
        match self.within(doing, work).await? {
            Ended::WasNotThere => Ok(false),
            Ended::Gone => Ok(true),
            Ended::Lingers => Err(self.connector.unavailable(format!("session {session} was told to end and has not"))),
        }
    }

    /// Ends the sessions that a query lists by incarnation, slot and connection, and waits until the query lists none.
    pub(super) async fn end_sessions(
        &self,
        participant: u16,
        incarnations: &[Incarnation],
        query: &str,
    ) -> Result<usize> {
        let doing = "cannot end the sessions of an earlier incarnation";
        let work = async {
            let mut held = self.take().await?;
            let answer = end_all(held.conn(), participant, query, self.limit / 2).await;
            held.keep(&answer);
            answer.map_err(|error| explain(self.connector.name, doing, error))
        };
        let (ended, left) = self.within(doing, work).await?;
        match left {
            None => {
                self.remember_free(incarnations.iter().map(|incarnation| (*incarnation, participant, None))).await;
                Ok(ended)
            }
            Some(session) => Err(self.connector.unavailable(format!("session {session} was told to end and has not"))),
        }
    }

    /// Closes the connections; a later call opens another, and claims nothing. What they hold is given up by word: a server
    /// that has much to do notices late that a socket was closed, and whoever comes next would be refused.
    pub(super) async fn close(&self) {
        self.claimed.give_up();
        if let Some(mut link) = self.place.lock().await.take() {
            give_up(link.wire.conn(), self.limit).await;
        }
        self.holding.close(self.limit).await;
    }
}

/// What became of a session that was to end.
pub(super) enum Ended {
    WasNotThere,
    Gone,
    Lingers,
}

/// Kills a session by its name and waits until it is gone.
pub(super) async fn kill_and_wait(conn: &mut Conn, session: SessionName, wait: Duration) -> Result<Ended, MyError> {
    match holder(conn, session).await? {
        Some(holder) => kill(conn, holder, session, wait).await,
        None => Ok(Ended::WasNotThere),
    }
}

/// The connection that goes by a session's name.
pub(super) async fn holder(conn: &mut Conn, session: SessionName) -> Result<Option<u64>, MyError> {
    Ok(conn.query_first::<Option<u64>, _>(Sql::session_holder(&session)).await?.flatten())
}

pub(super) async fn kill(conn: &mut Conn, holder: u64, session: SessionName, wait: Duration) -> Result<Ended, MyError> {
    tell_to_end(conn, holder).await?;
    // The server frees a session's named locks after it has ended its transaction.
    Ok(if await_end(conn, session, wait).await? { Ended::Gone } else { Ended::Lingers })
}

pub(super) async fn tell_to_end(conn: &mut Conn, holder: u64) -> Result<(), MyError> {
    match conn.query_drop(Sql::kill(holder)).await {
        Err(error) if error::code(&error) != Some(NO_SUCH_THREAD) => Err(error),
        // Killed, or gone by itself.
        _ => Ok(()),
    }
}

/// Kills all sessions that a query lists, then waits for each: how many there were, and one that is there still.
async fn end_all(
    conn: &mut Conn,
    participant: u16,
    query: &str,
    wait: Duration,
) -> Result<(usize, Option<SessionName>), MyError> {
    type Row = (i64, u32, Option<u64>);
    let name = |(incarnation, slot, _): &Row| SessionName {
        incarnation: Incarnation::from_sql(*incarnation),
        participant,
        slot: *slot,
    };
    let listed: Vec<Row> = conn.query(query).await?;
    for holder in listed.iter().filter_map(|(_, _, holder)| *holder) {
        tell_to_end(conn, holder).await?;
    }
    for row in &listed {
        await_end(conn, name(row), wait).await?;
    }
    if listed.is_empty() {
        return Ok((0, None));
    }
    let left: Vec<Row> = conn.query(query).await?;
    Ok((listed.len(), left.first().map(name)))
}

/// Waits until nobody goes by a session's name: whether that came true.
pub(super) async fn await_end(conn: &mut Conn, session: SessionName, wait: Duration) -> Result<bool, MyError> {
    let gone = conn.query_first::<Option<i64>, _>(Sql::await_session(&session, wait)).await?.flatten() == Some(1);
    if gone {
        conn.query_drop(Sql::release_session(&session)).await?;
    }
    Ok(gone)
}
