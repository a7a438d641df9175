//! Sessions: their names, their pool, and the ways in which they end.
//!
//! A session goes back to the pool only when its last step was answered positively and nobody else holds its handle;
//! everything else closes it. Closing means aborting the task that drives the connection, so the socket closes at
//! once, with what was queued and not yet sent. A server that is busy with a statement does not look at its socket:
//! it is told by a cancel request.

use super::control::Control;
use super::error::{PgError, explain};
use super::sql::{self, Begin, Sql};
use super::transport::Transport;
use super::unheard::Unheard;
use super::url;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Lineage, ParticipantName, SessionName};
use crate::participant::access::Access;
use crate::participant::pool::{self, Manner, Slot, Slots};
use crate::participant::witness::wrong_lineage;
use deadpool::managed::{Manager, Metrics, Object, RecycleError, RecycleResult};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::AbortHandle;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, CancelToken, Client, Config, Connection, NoTls, Socket};

/// How to reach the server.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) name: ParticipantName,
    /// Without a password.
    pub(super) config: Config,
    pub(super) access: Arc<Access>,
    pub(super) timeout: Duration,
    pub(super) sql: Arc<Sql>,
}

/// A connection and the task that drives it; dropping it closes the socket.
pub(super) struct Link {
    pub(super) client: Arc<Client>,
    unheard: Arc<Unheard>,
    transport: Transport,
    driver: AbortHandle,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Link {
    /// What a cancel request needs: it goes the way that the connection went.
    fn reach(&self) -> (CancelToken, Transport) {
        (self.client.cancel_token(), self.transport.clone())
    }
}

impl Connector {
    /// Connects under a name.
    pub(super) async fn connect(&self, application_name: &str) -> Result<Link> {
        let mut config = self.config.clone();
        config.application_name(application_name);
        let to = url::address(&self.config);
        let work = async {
            let name = self.name;
            let unlocked = self.access.unlock(move |keys| Ok((keys.password, Transport::new(name, keys.tls)?)));
            let (password, transport) = unlocked.await?;
            if let Some(password) = password {
                config.password(password.reveal());
            }
            let unheard = Arc::new(Unheard::default());
            let connected = match &transport {
                Transport::Plain => self.start(&config, NoTls, unheard.clone()).await,
                Transport::Encrypted(connector) => self.start(&config, connector.clone(), unheard.clone()).await,
            };
            let connected = connected.map_err(|error| explain(self.name, &format!("cannot connect to {to}"), error));
            let (client, driver) = connected?;
            Ok(Link { client: Arc::new(client), unheard, transport, driver })
        };
        let late = |_| self.unavailable(format!("cannot connect to {to}: no answer within {:?}", self.timeout));
        tokio::time::timeout(self.timeout, work).await.map_err(late)?
    }

    async fn start<T>(&self, config: &Config, tls: T, unheard: Arc<Unheard>) -> Result<(Client, AbortHandle), PgError>
    where
        T: MakeTlsConnect<Socket, Stream: Send + 'static>,
    {
        let (client, connection) = config.connect(tls).await?;
        Ok((client, tokio::spawn(drive(self.name, connection, unheard)).abort_handle()))
    }

    /// Refuses a server that is not the one that was registered with: a name may lead elsewhere after a failover.
    pub(super) async fn check_lineage(&self, client: &Client, expected: Lineage) -> Result<()> {
        self.introduce(client, &sql::as_login_role(&self.sql.lineage()), expected).await
    }

    /// Asks what shows the lineage first.
    async fn introduce(&self, client: &Client, text: &str, expected: Lineage) -> Result<()> {
        let messages = client.simple_query(text).await;
        let messages = messages.map_err(|error| explain(self.name, "cannot read the lineage", error))?;
        let found = sql::rows(&messages).next().and_then(|text| text.parse().ok()).map(Lineage::from_sql);
        if found == Some(expected) { Ok(()) } else { Err(wrong_lineage(self.name, expected, found)) }
    }

    pub(super) fn unavailable(&self, message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Unavailable, message).at(self.name)
    }
}

/// Runs a connection until it ends; what the server says in passing is logged.
async fn drive<S>(name: ParticipantName, mut connection: Connection<Socket, S>, unheard: Arc<Unheard>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut next = std::future::poll_fn(|cx| {
        let message = connection.poll_message(cx);
        unheard.take_in(cx);
        message
    });
    while let Some(message) = (&mut next).await {
        match message {
            // Such as *committed locally, but might not have been replicated* (D12).
            Ok(AsyncMessage::Notice(notice)) if notice.severity() == "WARNING" => {
                tracing::warn!(participant = %name, code = notice.code().code(), "{}", notice.message());
            }
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(participant = %name, %error, "connection lost");
                return;
            }
        }
    }
}

/// A session of the pool.
pub(super) struct Session {
    link: Link,
    used: bool,
    /// When it was last asked something that it has answered. `None` where it might write outside of a transaction.
    sure: Option<Instant>,
    slot: Slot,
}

/// So long after what it was asked, and answered, a session is taken for alive: its begin is not waited for. One that died in the pool and
/// is not known to have costs the application an error then, and not a second try at the begin; beyond a moment, what is
/// saved is not worth that.
const MOMENT: Duration = Duration::from_secs(3);

/// Makes and keeps the sessions of one incarnation.
pub(super) struct Sessions {
    pub(super) connector: Connector,
    /// The slot in it is not used.
    pub(super) named: SessionName,
    pub(super) lineage: Lineage,
    pub(super) slots: Arc<Slots>,
    /// For seeing a session out.
    pub(super) control: Arc<Control>,
}

impl Sessions {
    async fn connect(&self, name: SessionName) -> Result<Link> {
        let link = self.connector.connect(&name.to_string()).await?;
        let sql = &self.connector.sql;
        let text = sql::as_login_role(&format!("{}; {}", sql.lineage(), sql.keep()));
        let checking = self.connector.introduce(&link.client, &text, self.lineage);
        let checked = tokio::time::timeout(self.connector.timeout, checking).await;
        checked.map_err(|_| self.connector.unavailable("connected, but no answer"))??;
        Ok(link)
    }
}

impl Manager for Sessions {
    type Type = Session;
    type Error = Error;

    async fn create(&self) -> Result<Session> {
        // A session that is being seen out has its slot until it is gone.
        let slot = match self.slots.take() {
            Some(slot) => slot,
            None => self.slots.wait().await,
        };
        // Each future that might have to connect has room for all of it; few do.
        let link = Box::pin(self.connect(SessionName { slot: slot.number, ..self.named })).await?;
        Ok(Session { link, used: false, sure: None, slot })
    }

    async fn recycle(&self, session: &mut Session, _: &Metrics) -> RecycleResult<Error> {
        if session.link.client.is_closed() {
            return Err(RecycleError::message("the connection was lost while idle"));
        }
        // The proof of a clean session is the answer to the next begin, which resets it first.
        session.used = true;
        Ok(())
    }
}

/// A session in use. Dropped, it is closed; only [`release`](Self::release) gives it back.
pub(super) struct Lease(Option<Object<Sessions>>);

impl Lease {
    pub(super) fn new(session: Object<Sessions>) -> Self {
        Self(Some(session))
    }

    fn session(&self) -> &Session {
        self.0.as_ref().expect("only release, close and drop take it, and each ends the lease")
    }

    pub(super) fn slot(&self) -> u32 {
        self.session().slot.number
    }

    pub(super) fn client(&self) -> &Arc<Client> {
        &self.session().link.client
    }

    /// Whether the session comes from the pool: its connection may have died there.
    pub(super) fn is_used(&self) -> bool {
        self.session().used
    }

    /// Begins a branch, or gives the begin back: to be sent with the application's first statement.
    ///
    /// It is where it is sure that whatever runs outside of the transaction cannot write. Should the begin be refused, that
    /// statement is, too (or reads), and so is the commit ([`unheard`](Self::unheard) tells why).
    pub(super) async fn begin(&self, begin: Begin) -> Result<Option<Begin>, PgError> {
        if self.sure().is_some_and(|asked| asked.elapsed() < MOMENT) {
            return Ok(Some(begin));
        }
        self.client().batch_execute(&begin.0).await?;
        Ok(None)
    }

    /// When it was last asked something that it has answered, and proved with that to be one on which nothing can be
    /// written outside of a transaction.
    pub(super) fn sure(&self) -> Option<Instant> {
        self.session().sure
    }

    /// What comes of a begin that was not waited for.
    pub(super) fn unheard(&self) -> &Arc<Unheard> {
        &self.session().link.unheard
    }

    /// Gives the session back, its last step having been answered positively, [`sure`](Self::sure) or not.
    ///
    /// Whoever still holds the client could send statements into the next transaction, or commit them one by one in
    /// between: the session is closed then. Nobody can get hold of it any more, since the handle was revoked.
    pub(super) fn release(mut self, sure: Option<Instant>) {
        let Some(mut object) = self.0.take() else { return };
        object.sure = sure;
        if Arc::strong_count(&object.link.client) > 1 {
            tracing::debug!("a session is closed rather than reused: its client is still held");
            drop(Object::take(object));
        }
    }

    /// Tells the server to give up the statement that the session is at.
    pub(super) async fn cancel(&self) {
        cancel(self.session().link.reach()).await;
    }

    /// Closes the session without disturbing what it does: a commit in progress is better finished than cancelled.
    pub(super) fn close(mut self) {
        if let Some(object) = self.0.take() {
            see_out(object, Manner::Idle);
        }
    }
}

impl Drop for Lease {
    /// Closes the session and cancels what it may be doing.
    fn drop(&mut self) {
        if let Some(object) = self.0.take() {
            see_out(object, Manner::AtOnce);
        }
    }
}

/// Closes a session, and sees to it that its server ends it: what the network has swallowed, its closing included, would
/// keep its locks for as long as the server takes for alive who is gone.
fn see_out(object: Object<Sessions>, manner: Manner) {
    let pool = Object::pool(&object);
    let Session { link, slot, .. } = Object::take(object);
    let reach = link.reach();
    drop(link);
    // Without a runtime the closed socket has to do: the server sees it when its statement ends.
    let (Some(pool), Ok(runtime)) = (pool, tokio::runtime::Handle::try_current()) else { return };
    runtime.spawn(async move {
        if manner == Manner::AtOnce {
            cancel(reach).await;
        }
        let Sessions { named, control, .. } = pool.manager();
        let name = SessionName { slot: slot.number, ..*named };
        pool::see_out(|| control.claimed().is_some(), || Box::pin(control.see_out(name, manner))).await;
        // Until here nobody else goes by its name.
        drop(slot);
    });
}

async fn cancel((token, transport): (CancelToken, Transport)) {
    // A cancel request has no answer; one that fails leaves things as they are.
    let _ = tokio::time::timeout(CANCEL_TIMEOUT, transport.cancel(&token)).await;
}

/// How long a cancel request may take to connect.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);
