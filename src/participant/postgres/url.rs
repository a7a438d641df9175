//! The URL of a participant: what the driver takes of it, and what is said elsewhere.

use super::transport::Transport;
use crate::config::{Driver, ParticipantConfig, Tls};
use crate::error::{Error, ErrorKind, Result};
use crate::id::ParticipantName;
use crate::participant::access::{Access, Place};
use std::collections::BTreeMap;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::config::{Config, Host, SslMode};

/// The driver's configuration, and what a connection needs beside it. What the URL holds is never shown: it may be a
/// password, in pieces if it is not quoted.
pub(super) fn read(
    name: ParticipantName,
    config: &ParticipantConfig,
    connect_timeout: Duration,
) -> Result<(Config, Arc<Access>)> {
    let wrong = |what: &str| Error::new(ErrorKind::Config, format!("participants.{name}.url {what}")).at(name);
    let said = if config.driver.is_none() { sslmode(&config.url) } else { None };
    let mut driver = match &config.driver {
        Some(Driver::Postgres(driver)) => Config::clone(driver),
        Some(Driver::Mysql(_)) => return Err(wrong("comes from options of MySQL's driver, and kind is \"postgres\"")),
        None => Config::from_str(&for_the_driver(&config.url, said.clone()))
            .map_err(|_| wrong("is not a URL of PostgreSQL: postgresql://USER@HOST:PORT/DATABASE"))?,
    };
    if driver.get_hosts().is_empty() && driver.get_hostaddrs().is_empty() {
        return Err(wrong("names no host"));
    }
    if driver.get_user().is_none_or(str::is_empty) {
        return Err(wrong("names no user"));
    }
    let place = place(&driver).ok_or_else(|| wrong("names sockets and addresses: either"))?;
    let access = Access::new(name, config, place)?;
    if let Some(said) = said {
        access.agrees_with_url(&config.url[said], "sslmode")?;
    }
    if config.driver.is_some() && driver.get_ssl_mode() == SslMode::Disable {
        access.agrees_with_url(Tls::Disable.as_str(), "ssl_mode")?;
    }
    if access.tls() != Tls::Disable && driver.get_hosts().is_empty() {
        return Err(wrong("names no host beside hostaddr: encryption needs one"));
    }
    // Files are read anew for each connection; what is wrong with them by now is said by now.
    Transport::new(name, access.read_keys()?.tls)?;
    driver.ssl_mode(if access.tls() == Tls::Disable { SslMode::Disable } else { SslMode::Require });
    driver.connect_timeout(connect_timeout);
    Ok((driver, access))
}

/// The same with settings that a session begins with and comes back to by `RESET ALL`, as its startup options.
pub(super) fn with_settings(driver: &Config, settings: &BTreeMap<String, String>) -> Config {
    let mut driver = driver.clone();
    let mut options = driver.get_options().unwrap_or_default().to_owned();
    for (name, value) in settings {
        options += &format!(" -c {name}=");
        for c in value.chars() {
            if c == '\\' || c.is_ascii_whitespace() {
                options.push('\\');
            }
            options.push(c);
        }
    }
    if !options.is_empty() {
        driver.options(options);
    }
    driver
}

/// Where all of its hosts are; `None` for sockets among addresses.
fn place(driver: &Config) -> Option<Place> {
    let hosts = driver.get_hosts().iter().map(|host| match host {
        Host::Tcp(host) => Place::of(host),
        #[cfg(unix)]
        Host::Unix(_) => Place::Socket,
    });
    let addresses = driver.get_hostaddrs().iter().map(|address| Place::of(&address.to_string()));
    let all: Vec<_> = hosts.chain(addresses).collect();
    match all.iter().filter(|place| **place == Place::Socket).count() {
        0 if all.contains(&Place::Network) => Some(Place::Network),
        0 => Some(Place::Loopback),
        sockets if sockets == all.len() => Some(Place::Socket),
        _ => None,
    }
}

/// Where the value of `sslmode` is, in a URL or in a string of keys and values.
fn sslmode(url: &str) -> Option<Range<usize>> {
    const KEY: &str = "sslmode";
    let is_key = |at: &usize| {
        url[..*at].chars().next_back().is_none_or(|before| matches!(before, '?' | '&') || before.is_whitespace())
    };
    let (at, _) = url.match_indices(KEY).find(|(at, _)| is_key(at))?;
    let value = url[at + KEY.len()..].trim_start().strip_prefix('=')?.trim_start().trim_start_matches('\'');
    let end = value.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_' | '%'));
    let start = url.len() - value.len();
    Some(start..end.map_or(url.len(), |end| start + end))
}

/// The driver does not know the two modes that verify, which are not its own doing.
fn for_the_driver(url: &str, said: Option<Range<usize>>) -> String {
    let mut url = url.to_owned();
    if let Some(said) = said
        && [Tls::VerifyFull, Tls::VerifyCa].iter().any(|mode| mode.as_str() == &url[said.clone()])
    {
        url.replace_range(said, Tls::Require.as_str());
    }
    url
}

/// The first address of a configuration, for people.
pub(super) fn address(config: &Config) -> String {
    let port = config.get_ports().first().copied().unwrap_or(5432);
    match config.get_hosts().first() {
        Some(Host::Tcp(host)) => format!("{host}:{port}"),
        #[cfg(unix)]
        Some(Host::Unix(path)) => format!("{}:{port}", path.display()),
        None => config.get_hostaddrs().first().map_or_else(String::new, |address| format!("{address}:{port}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str, lines: &str) -> Result<Config> {
        let toml = format!(
            "node = \"n\"\njournal.directory = \"/j\"\n[participants.ledger]\nkind = \"postgres\"\nurl = {url:?}\n{lines}"
        );
        let config = crate::Config::from_toml(&toml).unwrap();
        let (name, config) = config.participants.iter().next().unwrap();
        super::read(*name, config, Duration::from_secs(1)).map(|(driver, _)| driver)
    }

    #[test]
    fn sslmode_is_found_wherever_it_may_be() {
        for (url, mode) in [
            ("postgresql://app@db1/ledger?sslmode=verify-full", Some("verify-full")),
            ("postgresql://app@db1/ledger?a=b&sslmode=require&c=d", Some("require")),
            ("host=db1 sslmode = 'disable' user=app", Some("disable")),
            ("sslmode=prefer host=db1", Some("prefer")),
            ("postgresql://app@db1/ledger?xsslmode=require", None),
            ("postgresql://app@db1/sslmode", None),
        ] {
            assert_eq!(sslmode(url).map(|at| &url[at]), mode, "{url}");
        }
    }

    #[test]
    fn settings_are_startup_options_behind_those_of_the_url() {
        let driver = read("postgresql://app@localhost/ledger?options=-c%20work_mem%3D77kB", "").unwrap();
        let settings = [("app.tenant", "a 'b' \\ c"), ("search_path", "app, public")];
        let settings = settings.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let expected = r"-c work_mem=77kB -c app.tenant=a\ 'b'\ \\\ c -c search_path=app,\ public";
        assert_eq!(with_settings(&driver, &settings).get_options(), Some(expected));
        assert_eq!(with_settings(&Config::new(), &BTreeMap::new()).get_options(), None);
    }

    #[test]
    fn options_by_code_agree_with_what_is_said_of_encryption() {
        let read = |mode: SslMode, tls: Option<Tls>| {
            let mut driver = Config::new();
            driver.host("db1").user("app").dbname("ledger").ssl_mode(mode);
            let config = ParticipantConfig { tls, ..ParticipantConfig::postgres(driver) };
            super::read("ledger".parse().unwrap(), &config, Duration::from_secs(1)).map(|(driver, _)| driver)
        };
        let error = read(SslMode::Disable, Some(Tls::Require)).unwrap_err();
        assert!(error.to_string().contains("say it by tls alone") || !cfg!(feature = "rustls"), "{error}");
        assert_eq!(read(SslMode::Prefer, Some(Tls::Disable)).unwrap().get_ssl_mode(), SslMode::Disable);
        #[cfg(feature = "rustls")]
        assert_eq!(read(SslMode::Prefer, None).unwrap().get_ssl_mode(), SslMode::Require);
    }

    #[test]
    fn a_url_that_contradicts_is_refused() {
        for (url, lines) in [
            ("postgresql://app@db1/ledger?sslmode=disable", ""),
            ("postgresql://app@db1/ledger?sslmode=prefer", "tls = \"disable\""),
            ("postgresql://app@db1/ledger?sslmode=require", "tls = \"disable\""),
            ("postgresql://app@127.0.0.1/ledger?sslmode=require", ""),
            ("host=db1 user=app sslmode=require", "tls = \"disable\""),
        ] {
            let error = read(url, lines).expect_err(url);
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains("say it by tls alone"), "{url}: {error}");
        }
        assert_eq!(
            read("postgresql://app@db1/l?sslmode=disable", "tls = \"disable\"").unwrap().get_ssl_mode(),
            SslMode::Disable
        );
        let error = read("host=/run/a,db1 user=app", "").unwrap_err();
        assert!(error.to_string().contains("sockets and addresses"), "{error}");
    }

    #[test]
    fn what_stays_on_this_machine_is_not_encrypted_unasked() {
        for url in
            ["postgresql://app@127.0.0.1/l", "postgresql://app@localhost/l", "postgresql:///l?host=/run/pg&user=app"]
        {
            assert_eq!(read(url, "").unwrap().get_ssl_mode(), SslMode::Disable, "{url}");
        }
        let error = read("postgresql:///l?host=/run/pg&user=app", "tls = \"require\"").unwrap_err();
        assert!(error.to_string().contains("Unix socket"), "{error}");
    }

    #[cfg(any(feature = "rustls", feature = "native-tls"))]
    #[test]
    fn all_else_is_encrypted() {
        for (url, lines) in [
            ("postgresql://app@db1/l", ""),
            ("postgresql://app@127.0.0.1,db1/l", ""),
            ("host=localhost hostaddr=10.0.0.1 user=app", ""),
            ("postgresql://app@db1/l?sslmode=verify-full", ""),
            ("postgresql://app@db1/l?sslmode=verify-ca", "tls = \"verify-ca\""),
            ("postgresql://app@127.0.0.1/l", "tls = \"require\""),
        ] {
            assert_eq!(read(url, lines).unwrap().get_ssl_mode(), SslMode::Require, "{url}");
        }
        let error = read("hostaddr=10.0.0.1 user=app", "").unwrap_err();
        assert!(error.to_string().contains("names no host beside hostaddr"), "{error}");
    }
}
