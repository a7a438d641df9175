//! What the driver is to encrypt with. It sets up TLS by itself, from certificates and switches.

use crate::config::Tls;
use crate::error::{Error, ErrorKind, Result};
use crate::participant::access::TlsKeys;
use mysql_async::SslOpts;

/// For `verify-ca` the driver has a switch that lets a wrong name pass. With rustls it does not work, since the driver
/// looks for this word in the text of the error, which has no such word any more, but has the name that was expected
/// (<https://github.com/blackbeam/mysql_async/issues/404>). So this is the name to expect. Where that is mended the switch
/// does its work, and the name does not matter.
const ANY_NAME: &str = "NotValidForName";

/// Whether the driver was built with TLS, by us or by somebody else: its features are not ours to see. A method of the
/// type itself comes before a trait's, so this one is called only where the driver has none.
#[allow(dead_code)]
trait Without: Sized {
    fn client_identity(&self) -> NoTls {
        NoTls
    }
}

impl Without for SslOpts {}

#[allow(dead_code)]
struct NoTls;

trait Known {
    fn has_tls(&self) -> bool;
}

impl Known for NoTls {
    fn has_tls(&self) -> bool {
        false
    }
}

impl<T> Known for Option<T> {
    fn has_tls(&self) -> bool {
        true
    }
}

/// Whether the driver can encrypt at all.
pub(super) fn driver_has_tls() -> bool {
    SslOpts::default().client_identity().has_tls()
}

/// What a connection to a host is encrypted with.
pub(super) fn options(keys: TlsKeys, host: &str) -> Result<SslOpts> {
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let name = match keys.mode {
        Tls::VerifyCa if cfg!(feature = "rustls") => ANY_NAME.to_owned(),
        _ => keys.server_name.clone().unwrap_or_else(|| host.to_owned()),
    };
    let ssl = SslOpts::default()
        .with_danger_tls_hostname_override(Some(name))
        .with_danger_skip_domain_validation(keys.mode != Tls::VerifyFull)
        .with_danger_accept_invalid_certs(keys.mode == Tls::Require);
    with_certificates(ssl, keys)
}

#[cfg(feature = "rustls")]
fn with_certificates(mut ssl: SslOpts, keys: TlsKeys) -> Result<SslOpts> {
    use crate::participant::access::rustls;
    use mysql_async::ClientIdentity;
    // Says what is wrong with certificates and keys as for PostgreSQL, and chooses the cryptography for the driver.
    rustls::client(&keys)?;
    if keys.mode != Tls::Require {
        let roots = rustls::trusted(&keys)?.into_iter().map(|der| der.as_ref().to_vec().into());
        ssl = ssl.with_root_certs(roots.collect()).with_disable_built_in_roots(true);
    }
    let identity = keys.identity.map(|(chain, key)| ClientIdentity::new(chain.into(), key.into()));
    Ok(ssl.with_client_identity(identity))
}

#[cfg(not(feature = "rustls"))]
fn with_certificates(mut ssl: SslOpts, keys: TlsKeys) -> Result<SslOpts> {
    if keys.identity.is_some() {
        let what = "tls_certificate and tls_key need the feature `rustls` for MySQL";
        return Err(Error::new(ErrorKind::Config, what));
    }
    if let Some(pem) = keys.ca {
        ssl = ssl.with_root_certs(vec![pem.into()]).with_disable_built_in_roots(true);
    }
    Ok(ssl)
}

/// Refuses what the driver would panic of.
pub(super) fn check(tls: Tls) -> Result<()> {
    if tls == Tls::Disable || driver_has_tls() {
        return Ok(());
    }
    let what = "this program's mysql_async was built without TLS: turn on Handfast's feature `rustls`, or \
                `native-tls-tls` of mysql_async in the program's own Cargo.toml";
    Err(Error::new(ErrorKind::Config, what))
}
