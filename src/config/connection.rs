//! What is said of a connection beside its address.

use serde::{Deserialize, Serialize, Serializer};
use std::fmt;

/// Encryption of a connection, in PostgreSQL's words. There is no `prefer` and no `allow`: both let whoever is between
/// decide that there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tls {
    /// Encrypted, with a certificate that a trusted authority has signed for the very host that was asked for.
    VerifyFull,
    /// Encrypted, with a certificate that a trusted authority has signed, for whomever.
    VerifyCa,
    /// Encrypted, with anybody: safe from those who listen, not from those who answer in the server's place.
    Require,
    /// None: for networks that are private by other means.
    Disable,
}

impl Tls {
    /// As the configuration says it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::VerifyFull => "verify-full",
            Self::VerifyCa => "verify-ca",
            Self::Require => "require",
            Self::Disable => "disable",
        }
    }
}

impl fmt::Display for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Text that is never printed.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// The text, for whom it is meant.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

/// It serializes as its `Debug`.
impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("(hidden)")
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}
