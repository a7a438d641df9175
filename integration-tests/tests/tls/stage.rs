//! Servers that encrypt, their users, and what connects to them.

use crate::authority::{Authority, Identity};
use handfast::config::{Kind, ParticipantConfig};
use handfast::participant::{Participant, mysql::Mysql, postgres::Postgres};
use handfast::{Config, Error};
use integration_tests::servers::{self, ConfigBuilder, Flavor, Options, Server};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use tempfile::TempDir;
use tokio::sync::OnceCell;

/// What nobody may see.
pub const PASSWORD: &str = "pa55-that-nobody-may-see";
/// May come with a password, encrypted or not.
pub const APP: &str = "app";
/// May come encrypted only.
pub const STRICT: &str = "strict";
/// Has to show a certificate.
pub const CERTIFIED: &str = "certified";
/// The names in the servers' certificate; connections go to 127.0.0.1.
const NAMES: &[&str] = &["localhost", NAME];
pub const NAME: &str = "db.example";

/// The authority of servers and clients, another one, and files of both.
pub struct Pki {
    pub authority: Authority,
    pub files: TempDir,
}

pub static PKI: LazyLock<Pki> = LazyLock::new(|| {
    let (authority, files) = (Authority::new("Handfast's tests"), TempDir::new().unwrap());
    let pki = Pki { authority, files };
    pki.keep("ca.pem", &pki.authority.pem());
    let other = Authority::new("somebody else");
    pki.keep("other-ca.pem", &other.pem());
    for (name, by) in [("client", &pki.authority), ("other-client", &other)] {
        let Identity { certificate, key } = by.client(CERTIFIED);
        pki.keep(&format!("{name}.pem"), &certificate);
        pki.keep(&format!("{name}-key.pem"), &key);
    }
    pki
});

impl Pki {
    pub fn file(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    fn keep(&self, name: &str, text: &str) {
        std::fs::write(self.file(name), text).unwrap();
    }

    /// The line that trusts an authority.
    pub fn trusting(&self, file: &str) -> String {
        format!("tls_ca = {:?}", self.file(file))
    }

    /// The lines that show a certificate.
    pub fn showing(&self, name: &str) -> String {
        let (certificate, key) = (self.file(&format!("{name}.pem")), self.file(&format!("{name}-key.pem")));
        format!("{}\ntls_certificate = {certificate:?}\ntls_key = {key:?}", self.trusting("ca.pem"))
    }
}

/// Who may come in, in PostgreSQL's words.
const ACCESS: &str = "local all all trust\n\
     host all postgres 127.0.0.1/32 trust\n\
     hostssl all certified 127.0.0.1/32 cert\n\
     hostnossl all strict 127.0.0.1/32 reject\n\
     host all all 127.0.0.1/32 scram-sha-256\n";

/// A server that shows this certificate.
pub async fn encrypting(flavor: Flavor, identity: Identity) -> Server {
    let options = servers::options()
        .with_file("server.pem", identity.certificate)
        .with_file("key.pem", identity.key)
        .with_file("ca.pem", PKI.authority.pem());
    let server = servers::start_with(flavor, settings(flavor, options)).await;
    let users: &[String] = &match flavor {
        Flavor::Postgres => {
            [APP, STRICT, CERTIFIED].map(|user| format!("CREATE ROLE {user} LOGIN PASSWORD '{PASSWORD}'"))
        }
        Flavor::MariaDb | Flavor::MySql => [(APP, ""), (STRICT, "REQUIRE SSL"), (CERTIFIED, "REQUIRE X509")]
            .map(|(user, needs)| format!("CREATE USER '{user}'@'%' IDENTIFIED BY '{PASSWORD}' {needs}")),
    };
    for user in users {
        server.query(database(flavor), user).await.unwrap();
    }
    if flavor != Flavor::Postgres {
        let all = [APP, STRICT, CERTIFIED].map(|user| format!("'{user}'@'%'")).join(", ");
        server.query(database(flavor), &format!("GRANT SELECT ON mysql.* TO {all}")).await.unwrap();
    }
    server
}

fn settings(flavor: Flavor, options: Options) -> Options {
    match flavor {
        Flavor::Postgres => options
            .with("ssl", "on")
            .with("ssl_cert_file", "../server.pem")
            .with("ssl_key_file", "../key.pem")
            .with("ssl_ca_file", "../ca.pem")
            .with_file("data/pg_hba.conf", ACCESS),
        Flavor::MariaDb | Flavor::MySql => {
            options.with("ssl-cert", "../server.pem").with("ssl-key", "../key.pem").with("ssl-ca", "../ca.pem")
        }
    }
}

/// A database that every server has.
pub fn database(flavor: Flavor) -> &'static str {
    if flavor == Flavor::Postgres { "postgres" } else { "mysql" }
}

/// The one server of a product whose certificate is as it should be.
pub async fn shared(flavor: Flavor) -> &'static Server {
    static SERVERS: [OnceCell<Server>; 3] = [const { OnceCell::const_new() }; 3];
    let place = Flavor::ALL.iter().position(|each| *each == flavor).unwrap();
    SERVERS[place].get_or_init(|| encrypting(flavor, PKI.authority.server(NAMES))).await
}

/// A new database that the users own.
pub async fn fresh_database(server: &Server) -> String {
    let name = servers::fresh_database(server).await;
    let grants = match server.flavor() {
        Flavor::Postgres => vec![
            format!("GRANT {APP} TO {STRICT}, {CERTIFIED}"),
            format!("ALTER DATABASE {name} OWNER TO {APP}"),
            format!("GRANT ALL ON SCHEMA public TO {APP}, {STRICT}, {CERTIFIED}"),
        ],
        flavor => {
            let all = [APP, STRICT, CERTIFIED].map(|user| format!("'{user}'@'%'")).join(", ");
            let recover = (flavor == Flavor::MySql).then(|| format!("GRANT XA_RECOVER_ADMIN ON *.* TO {all}"));
            [Some(format!("GRANT ALL ON {name}.* TO {all}")), recover].into_iter().flatten().collect()
        }
    };
    for grant in grants {
        server.query(&name, &grant).await.unwrap();
    }
    name
}

/// The URL of a database, for a user with a password.
pub fn url(server: &Server, user: &str, password: &str, host: &str, database: &str) -> String {
    let scheme = if server.flavor() == Flavor::Postgres { "postgresql" } else { "mysql" };
    let secret = if password.is_empty() { String::new() } else { format!(":{password}") };
    format!("{scheme}://{user}{secret}@{host}:{}/{database}", server.port())
}

/// One participant, its URL and its other lines.
pub fn participant(flavor: Flavor, url: &str, lines: &str) -> Result<Box<dyn Participant>, Error> {
    let config = ConfigBuilder::new("/nowhere").participant_at("it", flavor, url).with(lines).build();
    made(&config)
}

fn made(config: &Config) -> Result<Box<dyn Participant>, Error> {
    let (name, one): (_, &ParticipantConfig) = config.participants.iter().next().unwrap();
    Ok(match one.kind {
        Kind::Postgres => Box::new(Postgres::new(*name, one, &config.pool, &config.recovery)?),
        Kind::Mysql => Box::new(Mysql::new(*name, one, &config.pool, &config.recovery)?),
    })
}

/// Connects once, as the resolver does.
pub async fn connect(flavor: Flavor, url: &str, lines: &str) -> Result<String, Error> {
    let participant = participant(flavor, url, lines)?;
    let server = participant.identify().await.map(|server| server.description);
    participant.close().await;
    server
}

/// Runs the tool.
pub async fn tool(config: &Path, arguments: &str) -> (i32, String) {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_handfast-tool"));
    command.arg("--config").arg(config).args(arguments.split_whitespace()).kill_on_drop(true);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("HANDFAST_")) {
        command.env_remove(name);
    }
    command.env("HANDFAST_LOG", "trace").env("RUST_LOG", "trace");
    let output = command.output().await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout) + &text(&output.stderr))
}
