//! The URL of a participant: what the driver takes of it, and what is said elsewhere.

use super::{sql, ssl};
use crate::config::{Driver, ParticipantConfig, Tls};
use crate::error::{Error, ErrorKind, Result};
use crate::id::ParticipantName;
use crate::participant::access::{Access, Place};
use mysql_async::{Opts, OptsBuilder, SslOpts};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long a connection may be silent before the system asks whether its other end is still there.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// What the driver knows of encryption by a URL.
const SWITCHES: &[&str] = &["require_ssl", "verify_ca", "verify_identity", "built_in_roots"];

/// What a URL and the keys beside it come to.
pub(super) struct Read {
    pub(super) opts: Opts,
    pub(super) database: String,
    pub(super) access: Arc<Access>,
}

/// The driver's options, and what a connection needs beside them. What the URL holds is never shown: it may be a password.
pub(super) fn read(name: ParticipantName, config: &ParticipantConfig) -> Result<Read> {
    let wrong = |what: &str| Error::new(ErrorKind::Config, format!("participants.{name}.url {what}")).at(name);
    let opts = match &config.driver {
        Some(Driver::Mysql(opts)) if opts.ssl_opts().is_some() => {
            return Err(wrong("comes from options that say how to encrypt: say it by tls and the keys beside it"));
        }
        Some(Driver::Mysql(opts)) => opts.clone(),
        Some(Driver::Postgres(_)) => {
            return Err(wrong("comes from options of PostgreSQL's driver, and kind is \"mysql\""));
        }
        None => {
            Opts::from_url(&config.url).map_err(|_| wrong("is not a URL of MySQL: mysql://USER@HOST:PORT/DATABASE"))?
        }
    };
    let database = opts.db_name().filter(|database| !database.is_empty());
    let database = database.ok_or_else(|| wrong("names no database"))?.to_owned();
    if opts.user().is_none_or(str::is_empty) {
        return Err(wrong("names no user"));
    }
    let place = if opts.socket().is_some() { Place::Socket } else { Place::of(opts.ip_or_hostname()) };
    let access = Access::new(name, config, place)?;
    if let Some(switch) = switch(&config.url).filter(|_| config.driver.is_none()) {
        access.agrees_with_url(said(&opts).as_str(), switch)?;
    }
    ssl::check(access.tls()).map_err(|error| error.at(name))?;
    // Files are read anew for each connection; what is wrong with them by now is said by now.
    if let Some(tls) = access.read_keys()?.tls {
        ssl::options(tls, opts.ip_or_hostname()).map_err(|error| error.at(name))?;
    }
    // The driver would move to a socket file that the server names, past every proxy on the way.
    let opts = OptsBuilder::from_opts(opts).ssl_opts(None::<SslOpts>).prefer_socket(false);
    Ok(Read { opts: opts.tcp_keepalive(Some(KEEPALIVE)).into(), database, access })
}

/// The same with settings that a session begins with, and gets again behind each reset.
pub(super) fn with_settings(opts: &Opts, settings: &BTreeMap<String, String>) -> Opts {
    if settings.is_empty() {
        return opts.clone();
    }
    let mut setup = opts.setup().to_vec();
    // The driver begins at the end of the list: what code has put there lies over this.
    setup.push(sql::set(settings));
    OptsBuilder::from_opts(opts.clone()).setup(setup).into()
}

/// The first of the driver's switches in a URL.
fn switch(url: &str) -> Option<&'static str> {
    let query = url.split_once('?')?.1;
    let keys = || query.split('&').filter_map(|pair| pair.split('=').next());
    SWITCHES.iter().copied().find(|switch| keys().any(|key| key == *switch))
}

/// The mode that the switches come to.
fn said(opts: &Opts) -> Tls {
    match opts.ssl_opts() {
        None => Tls::Disable,
        Some(ssl) if ssl.accept_invalid_certs() => Tls::Require,
        Some(ssl) if ssl.skip_domain_validation() => Tls::VerifyCa,
        Some(_) => Tls::VerifyFull,
    }
}

/// The address of a server, for people.
pub(super) fn address(opts: &Opts) -> String {
    match opts.socket() {
        Some(socket) => socket.to_owned(),
        None => format!("{}:{}", opts.ip_or_hostname(), opts.tcp_port()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str, lines: &str) -> Result<Read> {
        let toml = format!(
            "node = \"n\"\njournal.directory = \"/j\"\n[participants.orders]\nkind = \"mysql\"\nurl = {url:?}\n{lines}"
        );
        let config = crate::Config::from_toml(&toml).unwrap();
        let (name, config) = config.participants.iter().next().unwrap();
        super::read(*name, config)
    }

    #[test]
    fn a_url_that_contradicts_is_refused() {
        for (url, lines) in [
            ("mysql://app@db2/orders?require_ssl=false", ""),
            ("mysql://app@db2/orders?require_ssl=true", "tls = \"disable\""),
            ("mysql://app@127.0.0.1/orders?require_ssl=true&verify_ca=false", ""),
            ("mysql://app@db2/orders?verify_identity=false", ""),
        ] {
            // Without TLS in this build the default is refused before its contradiction.
            let error = read(url, lines).map(|_| ()).expect_err(url);
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(!ssl::driver_has_tls() || error.to_string().contains("say it by tls alone"), "{url}: {error}");
        }
    }

    #[test]
    fn options_by_code_are_kept_but_for_encryption() {
        let read = |driver: OptsBuilder| {
            let driver = driver.ip_or_hostname("localhost").user(Some("app")).db_name(Some("orders"));
            super::read("orders".parse().unwrap(), &ParticipantConfig::mysql(driver))
        };
        let Read { opts, database, .. } = read(OptsBuilder::default().setup(vec!["SET @tenant = 7"])).unwrap();
        let settings = [("sql_mode".to_owned(), "ANSI".to_owned())].into();
        assert_eq!((database.as_str(), opts.setup()), ("orders", &["SET @tenant = 7".to_owned()][..]));
        let set = "SET SESSION sql_mode = 'ANSI'".to_owned();
        assert_eq!(with_settings(&opts, &settings).setup(), ["SET @tenant = 7".to_owned(), set]);
        let error = read(OptsBuilder::default().ssl_opts(SslOpts::default())).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("say it by tls"), "{error}");
    }

    #[test]
    fn an_explicit_socket_is_used_and_never_encrypted() {
        let Read { opts, access, .. } =
            read("mysql://app@localhost/orders?socket=/run/mysqld/mysqld.sock", "").unwrap();
        assert_eq!((opts.socket(), access.tls()), (Some("/run/mysqld/mysqld.sock"), Tls::Disable));
        assert_eq!(address(&opts), "/run/mysqld/mysqld.sock");
        let error = read("mysql://app@db2/orders?socket=/s", "tls = \"verify-full\"").map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("Unix socket"), "{error}");
        // The driver would move to one by itself: prefer_socket is refused its effect.
        assert!(!read("mysql://app@127.0.0.1/orders?prefer_socket=true", "").unwrap().opts.prefer_socket());
    }

    #[cfg(feature = "rustls")]
    #[test]
    fn all_else_is_encrypted() {
        let mode = |url: &str, lines: &str| read(url, lines).unwrap().access.tls();
        assert!(ssl::driver_has_tls());
        assert_eq!(mode("mysql://app@db2/orders", ""), Tls::VerifyFull);
        assert_eq!(mode("mysql://app@db2/orders?require_ssl=true", ""), Tls::VerifyFull);
        assert_eq!(mode("mysql://app@db2/orders?require_ssl=true&verify_ca=false", "tls = \"require\""), Tls::Require);
        assert_eq!(mode("mysql://app@127.0.0.1/orders", ""), Tls::Disable);
        assert_eq!(mode("mysql://app@[::1]/orders", ""), Tls::Disable);
    }
}
