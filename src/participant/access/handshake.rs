//! What a failed handshake says, and what mends it. The drivers hide the cause some layers down.

use std::error::Error as StdError;

type Cause = dyn StdError + 'static;

/// What is wrong, with its cure, where an error comes of encryption: a person mends that, and trying again does not.
pub(in crate::participant) fn problem(error: &Cause) -> Option<String> {
    layers(error).find_map(said)
}

/// The server has no TLS.
pub(in crate::participant) const NOT_THERE: &str =
    "the server does not offer TLS; turn it on there, or say tls = \"disable\"";

#[cfg(any(feature = "rustls", feature = "native-tls"))]
mod cure {
    pub(super) const ISSUER: &str = "tls_ca is the file with the certificate of the authority that signed the server's";
    pub(super) const NAME: &str = "tls_server_name is the name to expect, where it is not the URL's host";
    pub(super) const EXPIRED: &str = "the server needs a new certificate, or this machine's clock is wrong";
    pub(super) const IDENTITY: &str = "the server asks for a certificate that it trusts: tls_certificate and tls_key";
    pub(super) const OTHER: &str = "client and server do not agree on how to encrypt";
}

/// An error and its causes.
fn layers(error: &Cause) -> impl Iterator<Item = &Cause> {
    std::iter::successors(Some(error), |&error| {
        // The cause that an I/O error names is that of the error inside, which is passed over.
        let inside = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        inside.map(|inside| inside as &Cause).or_else(|| error.source())
    })
}

#[cfg(feature = "rustls")]
fn said(error: &Cause) -> Option<String> {
    use rustls::{AlertDescription as Alert, CertificateError, Error};
    let error = error.downcast_ref::<Error>()?;
    let cure = match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => cure::ISSUER,
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => cure::NAME,
        Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => cure::EXPIRED,
        Error::InvalidCertificate(_) => "the server needs another certificate",
        Error::AlertReceived(
            Alert::CertificateRequired
            | Alert::BadCertificate
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA,
        ) => cure::IDENTITY,
        _ => cure::OTHER,
    };
    Some(format!("{error}; {cure}"))
}

#[cfg(all(feature = "native-tls", not(feature = "rustls")))]
fn said(error: &Cause) -> Option<String> {
    let text = error.downcast_ref::<native_tls::Error>()?.to_string();
    let cure = cure_by_words(&text);
    Some(format!("{text}; {cure}"))
}

/// The system's library has no kinds of error, only words. These are OpenSSL's; where others say it otherwise, a cure less
/// is told.
#[cfg(all(feature = "native-tls", not(feature = "rustls")))]
fn cure_by_words(text: &str) -> &'static str {
    let text = text.to_ascii_lowercase();
    // Alerts come first: they are what the server says of our certificate, in words that also stand for its own.
    let cures: [(&[&str], &str); 4] = [
        (&["alert"], cure::IDENTITY),
        (&["mismatch"], cure::NAME),
        (&["expired"], cure::EXPIRED),
        (&["issuer", "self-signed", "self signed", "unable to verify"], cure::ISSUER),
    ];
    let found = cures.iter().find(|(words, _)| words.iter().any(|word| text.contains(word)));
    found.map_or(cure::OTHER, |(_, cure)| cure)
}

#[cfg(not(any(feature = "rustls", feature = "native-tls")))]
fn said(_: &Cause) -> Option<String> {
    None
}
