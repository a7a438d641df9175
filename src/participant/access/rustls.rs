//! What rustls needs: whom to trust, what to show, and how much of a server's certificate is asked for.

use super::TlsKeys;
use crate::config::Tls;
use crate::error::{Error, ErrorKind, Result};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::sync::{Arc, OnceLock};

fn wrong(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Config, what)
}

/// The process's choice of cryptography, ring where nobody has chosen.
///
/// The MySQL driver asks for the process's own, and rustls panics when none is chosen and an application's other
/// dependencies bring a second one to choose from.
fn provider() -> Arc<CryptoProvider> {
    if CryptoProvider::get_default().is_none() {
        // Whoever was quicker has chosen as well.
        let _ = ring::default_provider().install_default();
    }
    CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(ring::default_provider()))
}

/// The certificates that are trusted, each in DER.
pub(in crate::participant) fn trusted(keys: &TlsKeys) -> Result<Vec<CertificateDer<'static>>> {
    match &keys.ca {
        Some(pem) => certificates("tls_ca", pem),
        None => system().map(<[_]>::to_vec),
    }
}

/// The system's certificates, those of them that rustls can use.
fn system() -> Result<&'static [CertificateDer<'static>]> {
    static SYSTEM: OnceLock<Vec<CertificateDer<'static>>> = OnceLock::new();
    if let Some(certificates) = SYSTEM.get() {
        return Ok(certificates);
    }
    let loaded = rustls_native_certs::load_native_certs();
    let is_usable = |certificate: &CertificateDer<'_>| RootCertStore::empty().add(certificate.clone()).is_ok();
    let usable: Vec<_> = loaded.certs.into_iter().filter(is_usable).collect();
    if usable.is_empty() {
        let error = wrong("the system has no certificates to trust: install ca-certificates, or name a file by tls_ca");
        return Err(loaded.errors.into_iter().next().map_or(error, |cause| {
            wrong("the system's certificates cannot be read: name a file by tls_ca").because(cause)
        }));
    }
    Ok(SYSTEM.get_or_init(|| usable))
}

fn certificates(key: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let unread = |cause| wrong(format!("{key} cannot be read as PEM")).because(cause);
    let all: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(unread)?;
    if all.is_empty() { Err(wrong(format!("{key} holds no certificate in PEM"))) } else { Ok(all) }
}

/// A client's configuration.
pub(in crate::participant) fn client(keys: &TlsKeys) -> Result<ClientConfig> {
    let failed = |cause: rustls::Error| wrong("TLS cannot be set up").because(cause);
    let provider = provider();
    let verifier = Verifier {
        chain: match keys.mode {
            Tls::Require | Tls::Disable => None,
            Tls::VerifyFull | Tls::VerifyCa => Some(chain(keys, provider.clone())?),
        },
        is_for_any_name: keys.mode != Tls::VerifyFull,
        algorithms: provider.signature_verification_algorithms,
    };
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(failed)?;
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    let Some((certificate, key)) = &keys.identity else { return Ok(builder.with_no_client_auth()) };
    let chain = certificates("tls_certificate", certificate)?;
    let key = PrivateKeyDer::from_pem_slice(key);
    // The cause would quote nothing of the key, and says nothing that this does not.
    let key = key.map_err(|_| wrong("tls_key holds no private key in PEM, or an encrypted one"))?;
    let unfit = |cause| wrong("tls_certificate and tls_key do not go together").because(cause);
    builder.with_client_auth_cert(chain, key).map_err(unfit)
}

fn chain(keys: &TlsKeys, provider: Arc<CryptoProvider>) -> Result<Arc<WebPkiServerVerifier>> {
    let mut roots = RootCertStore::empty();
    for certificate in trusted(keys)? {
        roots.add(certificate).map_err(|cause| wrong("tls_ca holds what is no certificate").because(cause))?;
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    verifier.map_err(|cause| wrong("nobody is trusted to sign certificates").because(cause))
}

/// Asks as much of a server's certificate as the mode says. That the server has the certificate's key is asked always.
#[derive(Debug)]
struct Verifier {
    /// `None`: anybody's will do.
    chain: Option<Arc<WebPkiServerVerifier>>,
    is_for_any_name: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        match chain.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            // The name is looked at last: all else is as it should be.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.is_for_any_name => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
