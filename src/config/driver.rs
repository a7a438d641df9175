//! A driver's own options, by code, in the place of a URL.

use super::participant::{Kind, ParticipantConfig};
use mysql_async::Opts;
use std::collections::BTreeMap;
use tokio_postgres::config::{Config, Host};

/// What code has made for a driver.
#[derive(Clone)]
pub(crate) enum Driver {
    Postgres(Box<Config>),
    Mysql(Opts),
}

impl ParticipantConfig {
    /// A PostgreSQL participant by the driver's own configuration, for what a URL cannot say. All else is at its default,
    /// encryption included, which is said by [`tls`](Self::tls) as ever.
    ///
    /// Its `application_name` and `connect_timeout` are Handfast's. What its `options` set (`-c search_path=app`) is in force
    /// at the start of each transaction, whatever the one before did; so is [`settings`](Self::settings), which is shorter.
    ///
    /// ```
    /// # use handfast::config::ParticipantConfig;
    /// # let mut config = handfast::Config::from_toml("node = 'a'\njournal.directory = '/j'").unwrap();
    /// let mut driver = handfast::tokio_postgres::Config::new();
    /// driver.host("db1").user("app").dbname("ledger").tcp_user_timeout(std::time::Duration::from_secs(20));
    /// config.participants.insert("ledger".parse().unwrap(), ParticipantConfig::postgres(driver));
    /// ```
    pub fn postgres(driver: Config) -> Self {
        Self::by_code(Kind::Postgres, postgres_url(&driver), Driver::Postgres(Box::new(driver)))
    }

    /// A MySQL or MariaDB participant by the driver's own options, for what a URL cannot say. All else is at its default,
    /// encryption included, which is said by [`tls`](Self::tls) as ever.
    ///
    /// Its `after_connect` and `init` run once on each new connection, the resolver's included, and before Handfast has
    /// named it; its `setup` runs there as well and again behind each reset of the connection. The driver runs the statements
    /// of each list from the last to the first. What goes with the driver's own pool (`pool_opts`, `conn_ttl`) has no
    /// effect, since that pool is not used.
    ///
    /// ```
    /// # use handfast::config::ParticipantConfig;
    /// # let mut config = handfast::Config::from_toml("node = 'a'\njournal.directory = '/j'").unwrap();
    /// let driver = handfast::mysql_async::OptsBuilder::default().ip_or_hostname("db2").user(Some("app"))
    ///     .db_name(Some("orders")).setup(vec!["SET @tenant = 7"]);
    /// config.participants.insert("orders".parse().unwrap(), ParticipantConfig::mysql(driver));
    /// ```
    pub fn mysql(driver: impl Into<Opts>) -> Self {
        let driver = driver.into();
        Self::by_code(Kind::Mysql, mysql_url(&driver), Driver::Mysql(driver))
    }

    fn by_code(kind: Kind, url: String, driver: Driver) -> Self {
        Self {
            kind,
            url,
            password: None,
            password_file: None,
            tls: None,
            tls_ca: None,
            tls_certificate: None,
            tls_key: None,
            tls_server_name: None,
            witness: true,
            schema: None,
            pool_size: None,
            allow_unsafe: false,
            settings: BTreeMap::new(),
            driver: Some(driver),
        }
    }
}

/// For people: where it leads.
fn postgres_url(driver: &Config) -> String {
    let host = match driver.get_hosts().first() {
        Some(Host::Tcp(host)) => host.clone(),
        #[cfg(unix)]
        Some(Host::Unix(path)) => path.display().to_string(),
        None => driver.get_hostaddrs().first().map(ToString::to_string).unwrap_or_default(),
    };
    let port = driver.get_ports().first().copied().unwrap_or(5432);
    let (user, database) = (driver.get_user().unwrap_or_default(), driver.get_dbname().unwrap_or_default());
    format!("postgresql://{user}@{host}:{port}/{database}")
}

/// For people: where it leads.
fn mysql_url(driver: &Opts) -> String {
    let (user, database) = (driver.user().unwrap_or_default(), driver.db_name().unwrap_or_default());
    match driver.socket() {
        Some(socket) => format!("mysql://{user}@localhost/{database}?socket={socket}"),
        None => format!("mysql://{user}@{}:{}/{database}", driver.ip_or_hostname(), driver.tcp_port()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_see_where_it_leads_and_no_password() {
        let mut driver = Config::new();
        driver.host("db1").user("app").dbname("ledger").password("hush");
        let ledger = ParticipantConfig::postgres(driver);
        assert_eq!(ledger.url, "postgresql://app@db1:5432/ledger");
        let driver = mysql_async::OptsBuilder::default().ip_or_hostname("db2").user(Some("app"));
        let orders = ParticipantConfig::mysql(driver.pass(Some("hush")).db_name(Some("orders")));
        assert_eq!(orders.url, "mysql://app@db2:3306/orders");
        assert!(!format!("{ledger:?}{orders:?}").contains("hush"));
    }
}
