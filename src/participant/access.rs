//! What a connection needs beside an address: the password, and what encrypts it.
//!
//! Files are read anew for each connection, so what is replaced counts from the next connection on, without a restart.
//! The system's own certificates are read once.

pub(super) mod handshake;
#[cfg(feature = "rustls")]
pub(super) mod rustls;

use super::{Finding, Severity};
use crate::config::{ParticipantConfig, Secret, Tls};
use crate::error::{Error, ErrorKind, Result};
use crate::id::ParticipantName;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a participant is, as far as others can listen on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// A Unix socket: the kernel says who is at the other end, and neither product encrypts it.
    Socket,
    /// An address of this machine alone.
    Loopback,
    Network,
}

impl Place {
    /// The place of a host's name or address.
    pub(super) fn of(host: &str) -> Self {
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        let is_here = host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback());
        if is_here { Self::Loopback } else { Self::Network }
    }
}

/// What the configuration says, checked.
#[derive(Debug, Clone)]
pub(super) struct Access {
    name: ParticipantName,
    place: Place,
    /// The mode in force.
    tls: Tls,
    password: Option<Secret>,
    password_file: Option<PathBuf>,
    ca: Option<PathBuf>,
    identity: Option<(PathBuf, PathBuf)>,
    server_name: Option<String>,
}

/// What one connection is made with.
pub(super) struct Keys {
    pub(super) password: Option<Secret>,
    /// `None`: not encrypted.
    pub(super) tls: Option<TlsKeys>,
}

/// What one connection is encrypted with. Certificates and keys are in PEM.
#[cfg_attr(not(any(feature = "rustls", feature = "native-tls")), allow(dead_code))]
pub(super) struct TlsKeys {
    pub(super) mode: Tls,
    /// `None`: the system's.
    pub(super) ca: Option<Vec<u8>>,
    /// The certificate and its key.
    pub(super) identity: Option<(Vec<u8>, Vec<u8>)>,
    pub(super) server_name: Option<String>,
}

impl Access {
    /// Takes the configuration apart; refuses what contradicts itself.
    pub(super) fn new(name: ParticipantName, config: &ParticipantConfig, place: Place) -> Result<Arc<Self>> {
        let default = if place == Place::Network { Tls::VerifyFull } else { Tls::Disable };
        let access = Self {
            name,
            place,
            tls: config.tls.unwrap_or(default),
            password: config.password.clone(),
            password_file: config.password_file.clone(),
            ca: config.tls_ca.clone(),
            identity: config.tls_certificate.clone().zip(config.tls_key.clone()),
            server_name: config.tls_server_name.clone(),
        };
        access.contradiction(config).map_or(Ok(()), |what| Err(access.wrong(&what)))?;
        Ok(Arc::new(access))
    }

    /// Refuses a URL that says another mode than is in force.
    pub(super) fn agrees_with_url(&self, said: &str, key: &str) -> Result<()> {
        if said == self.tls.as_str() {
            return Ok(());
        }
        Err(self
            .wrong(&format!("url says by {key} how to encrypt, and {} is in force: say it by tls alone", self.mode())))
    }

    /// The mode in force.
    pub(super) fn tls(&self) -> Tls {
        self.tls
    }

    fn mode(&self) -> String {
        format!("tls = \"{}\"", self.tls)
    }

    /// What contradicts what, or cannot be had from this build.
    fn contradiction(&self, config: &ParticipantConfig) -> Option<String> {
        if config.password.is_some() && config.password_file.is_some() {
            return Some("password and password_file are both given: one of them".into());
        }
        if self.tls == Tls::Disable {
            let keys = [
                ("tls_ca", config.tls_ca.is_some()),
                ("tls_certificate", config.tls_certificate.is_some()),
                ("tls_key", config.tls_key.is_some()),
                ("tls_server_name", config.tls_server_name.is_some()),
            ];
            let (key, _) = keys.into_iter().find(|(_, is_given)| *is_given)?;
            return Some(format!("{key} is given, and {}{} is in force", self.mode(), self.whence(config)));
        }
        if self.place == Place::Socket {
            return Some(format!("{} is given for a Unix socket, which is never encrypted: leave it out", self.mode()));
        }
        if !cfg!(any(feature = "rustls", feature = "native-tls")) {
            return Some(format!(
                "{}{} needs Handfast's feature `rustls` or `native-tls`, and this program was built with neither",
                self.mode(),
                self.whence(config)
            ));
        }
        if config.tls_certificate.is_some() != config.tls_key.is_some() {
            return Some("tls_certificate and tls_key go together".into());
        }
        if self.tls == Tls::Require && self.ca.is_some() {
            return Some(
                "tls_ca is given, and tls = \"require\" asks nobody: say \"verify-full\" or \"verify-ca\"".into(),
            );
        }
        None
    }

    /// Where a mode comes from that nobody wrote down.
    fn whence(&self, config: &ParticipantConfig) -> &'static str {
        match (config.tls, self.place) {
            (Some(_), _) => "",
            (None, Place::Socket) => " (a Unix socket is never encrypted)",
            (None, Place::Loopback) => " (the default for loopback)",
            (None, Place::Network) => " (the default)",
        }
    }

    fn wrong(&self, what: &str) -> Error {
        let name = self.name;
        Error::new(ErrorKind::Config, format!("participants.{name}: {what}")).at(name)
    }

    /// Reads what the next connection is made with, and makes of it what the driver needs.
    pub(super) async fn unlock<T: Send + 'static>(
        self: &Arc<Self>,
        make: impl FnOnce(Keys) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let access = self.clone();
        // Files, and at first the system's certificates: hundreds.
        let making = tokio::task::spawn_blocking(move || access.read_keys().and_then(make)).await;
        let failed = || Error::new(ErrorKind::Unavailable, "cannot connect").at(self.name);
        // It was checked when it was configured; what is wrong with it now may be put right while we run.
        making.map_err(|cause| failed().because(cause))?.map_err(|error| failed().because(error))
    }

    /// Reads what a connection is made with.
    pub(super) fn read_keys(&self) -> Result<Keys> {
        let password = match &self.password_file {
            Some(file) => Some(self.first_line(file)?),
            None => self.password.clone(),
        };
        if self.tls == Tls::Disable {
            return Ok(Keys { password, tls: None });
        }
        let ca = self.ca.as_deref().map(|file| self.read("tls_ca", file)).transpose()?;
        let identity = match &self.identity {
            Some((certificate, key)) => Some((self.read("tls_certificate", certificate)?, self.read("tls_key", key)?)),
            None => None,
        };
        let tls = TlsKeys { mode: self.tls, ca, identity, server_name: self.server_name.clone() };
        Ok(Keys { password, tls: Some(tls) })
    }

    fn first_line(&self, file: &Path) -> Result<Secret> {
        let text = self.read("password_file", file)?;
        // What is in the file is in no error.
        let text = String::from_utf8(text);
        let text = text.map_err(|_| self.wrong(&format!("password_file {} is not text", file.display())))?;
        Ok(text.lines().next().unwrap_or_default().into())
    }

    fn read(&self, key: &str, file: &Path) -> Result<Vec<u8>> {
        std::fs::read(file).map_err(|error| {
            let message = format!("{key} {} cannot be read", file.display());
            Error::new(ErrorKind::Config, message).at(self.name).because(error)
        })
    }

    /// What a check says of a connection that has, or has not, this version and cipher.
    pub(super) fn finding(&self, cipher: Option<(String, String)>) -> Finding {
        let check = "encryption";
        let Some((version, cipher)) = cipher else {
            return match self.place {
                Place::Socket => Finding::good(check, "not encrypted: a Unix socket"),
                Place::Loopback => Finding::good(check, "not encrypted: loopback"),
                Place::Network => {
                    let why = "whoever is on the way reads everything, and can put statements of its own in between";
                    Finding::of(Severity::Warning, check, "not encrypted (tls = \"disable\")", why)
                        .cure("turn TLS on at the server, and say tls = \"verify-full\"")
                }
            };
        };
        let found = format!("{version}, {cipher}, {}", self.mode());
        let why = match self.tls {
            Tls::VerifyFull | Tls::Disable => return Finding::good(check, found),
            Tls::VerifyCa => "any server that has a certificate of that authority can answer in this one's place",
            Tls::Require => "nobody's certificate is checked: anybody can answer in the server's place",
        };
        let severity = if self.tls == Tls::Require { Severity::Warning } else { Severity::Note };
        Finding::of(severity, check, found, why).cure("say tls = \"verify-full\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn access(place: Place, lines: &str) -> Result<Arc<Access>> {
        let toml = format!(
            "node = \"n\"\njournal.directory = \"/j\"\n[participants.ledger]\nkind = \"postgres\"\nurl = \"u\"\n{lines}"
        );
        let config = Config::from_toml(&toml).unwrap();
        let (name, config) = config.participants.iter().next().unwrap();
        Access::new(*name, config, place)
    }

    #[test]
    fn what_stays_on_this_machine_is_told_apart() {
        for host in ["localhost", "LocalHost", "127.0.0.1", "127.9.9.9", "::1", "[::1]"] {
            assert_eq!(Place::of(host), Place::Loopback, "{host}");
        }
        for host in ["db1", "10.0.0.1", "localhost.example", "127.0.0.1.example", "0.0.0.0", "::", ""] {
            assert_eq!(Place::of(host), Place::Network, "{host}");
        }
    }

    #[test]
    fn files_are_read_anew() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("password");
        std::fs::write(&file, "first\nnot this\n").unwrap();
        let access = access(Place::Socket, &format!("password_file = {file:?}")).unwrap();
        assert_eq!(access.read_keys().unwrap().password, Some("first".into()));
        std::fs::write(&file, "second\r\n").unwrap();
        assert_eq!(access.read_keys().unwrap().password, Some("second".into()));
        std::fs::remove_file(&file).unwrap();
        let error = access.read_keys().map(|_| ()).unwrap_err();
        assert!(error.chain().contains("password_file"), "{}", error.chain());
    }

    fn refused(place: Place, lines: &str, why: &str) {
        let read = access(place, lines).and_then(|access| access.read_keys());
        let error = read.map(|_| ()).expect_err(lines);
        assert_eq!(error.kind(), ErrorKind::Config, "{lines}");
        assert!(error.chain().contains(why), "{lines}: {}", error.chain());
    }

    #[test]
    fn contradictions_are_refused() {
        refused(Place::Loopback, "password = \"a\"\npassword_file = \"/b\"", "one of them");
        refused(Place::Loopback, "password_file = \"/nowhere\"", "password_file /nowhere cannot be read");
        refused(
            Place::Loopback,
            "tls_ca = \"/a\"",
            "tls_ca is given, and tls = \"disable\" (the default for loopback)",
        );
        refused(Place::Network, "tls = \"disable\"\ntls_server_name = \"a\"", "tls_server_name");
        refused(Place::Socket, "tls = \"verify-full\"", "Unix socket, which is never encrypted");
        refused(Place::Socket, "tls_key = \"/a\"", "(a Unix socket is never encrypted)");
    }

    #[cfg(any(feature = "rustls", feature = "native-tls"))]
    #[test]
    fn contradictions_in_what_encrypts_are_refused() {
        refused(Place::Network, "tls_certificate = \"/a\"", "go together");
        refused(Place::Network, "tls = \"require\"\ntls_ca = \"/a\"", "asks nobody");
        refused(Place::Loopback, "tls = \"verify-ca\"\ntls_ca = \"/nowhere\"", "tls_ca /nowhere cannot be read");
    }

    #[cfg(not(any(feature = "rustls", feature = "native-tls")))]
    #[test]
    fn without_tls_the_feature_is_named() {
        refused(Place::Network, "", "tls = \"verify-full\" (the default) needs Handfast's feature `rustls`");
        refused(Place::Loopback, "tls = \"require\"", "`native-tls`");
        assert_eq!(access(Place::Network, "tls = \"disable\"").unwrap().tls(), Tls::Disable);
    }

    #[test]
    fn nothing_secret_is_printed() {
        let access = access(Place::Loopback, "password = \"secret\"").unwrap();
        assert!(!format!("{access:?}").contains("secret"));
        assert_eq!(access.read_keys().unwrap().password.unwrap().reveal(), "secret");
    }
}
