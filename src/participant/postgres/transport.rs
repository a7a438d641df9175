//! How bytes go to the server: in the clear, or encrypted by what this build has.

use super::error::PgError;
use crate::error::Result;
#[cfg(not(feature = "rustls"))]
use crate::error::{Error, ErrorKind};
use crate::id::ParticipantName;
use crate::participant::access::TlsKeys;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{CancelToken, NoTls};

#[cfg(all(feature = "native-tls", not(feature = "rustls")))]
use postgres_native_tls::MakeTlsConnector as Secure;
#[cfg(not(any(feature = "rustls", feature = "native-tls")))]
use tokio_postgres::NoTls as Secure;
#[cfg(feature = "rustls")]
use tokio_postgres_rustls::MakeRustlsConnect as Secure;

/// What one connection goes by, and the cancel requests for it.
#[derive(Clone)]
pub(super) enum Transport {
    Plain,
    Encrypted(Named<Secure>),
}

/// A connector that asks for a certificate of a name of its own, if it has one.
#[derive(Clone)]
pub(super) struct Named<M> {
    connector: M,
    name: Option<String>,
}

impl<S, M: MakeTlsConnect<S>> MakeTlsConnect<S> for Named<M> {
    type Stream = M::Stream;
    type TlsConnect = M::TlsConnect;
    type Error = M::Error;

    fn make_tls_connect(&mut self, host: &str) -> Result<Self::TlsConnect, Self::Error> {
        self.connector.make_tls_connect(self.name.as_deref().unwrap_or(host))
    }
}

impl Transport {
    pub(super) fn new(name: ParticipantName, keys: Option<TlsKeys>) -> Result<Self> {
        let Some(keys) = keys else { return Ok(Self::Plain) };
        Ok(Self::Encrypted(Named { connector: secure(name, &keys)?, name: keys.server_name }))
    }

    /// Asks the server to cancel what a session is at.
    pub(super) async fn cancel(self, token: &CancelToken) -> Result<(), PgError> {
        match self {
            Self::Plain => token.cancel_query(NoTls).await,
            Self::Encrypted(connector) => token.cancel_query(connector).await,
        }
    }
}

#[cfg(feature = "rustls")]
fn secure(name: ParticipantName, keys: &TlsKeys) -> Result<Secure> {
    crate::participant::access::rustls::client(keys).map(Secure::new).map_err(|error| error.at(name))
}

#[cfg(all(feature = "native-tls", not(feature = "rustls")))]
fn secure(name: ParticipantName, keys: &TlsKeys) -> Result<Secure> {
    use crate::config::Tls;
    use native_tls::{Certificate, Identity, TlsConnector};
    let failed = |what: &'static str| {
        move |error: native_tls::Error| Error::new(ErrorKind::Config, what).at(name).because(error)
    };
    let mut builder = TlsConnector::builder();
    if let Some(pem) = &keys.ca {
        for certificate in Certificate::stack_from_pem(pem).map_err(failed("tls_ca holds no certificates in PEM"))? {
            builder.add_root_certificate(certificate);
        }
        builder.disable_built_in_roots(true);
    }
    if let Some((certificate, key)) = &keys.identity {
        let identity = Identity::from_pkcs8(certificate, key);
        builder.identity(
            identity.map_err(failed("tls_certificate and tls_key are no certificate and key in PEM, PKCS#8"))?,
        );
    }
    builder.danger_accept_invalid_hostnames(keys.mode != Tls::VerifyFull);
    builder.danger_accept_invalid_certs(keys.mode == Tls::Require);
    builder.build().map(Secure::new).map_err(failed("TLS cannot be set up"))
}

#[cfg(not(any(feature = "rustls", feature = "native-tls")))]
fn secure(name: ParticipantName, _: &TlsKeys) -> Result<Secure> {
    Err(Error::new(ErrorKind::Config, "this program was built without TLS").at(name))
}
