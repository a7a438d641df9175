//! Servers with the options of `compose.yaml`, set up by its scripts: Handfast works there as the application's account,
//! the health check says so, and says otherwise when anything is missing.

use crate::compose::{Service, compose};
use crate::{config, path, text};
use handfast::mysql_async::{self, prelude::Queryable};
use handfast::{Bridge, tokio_postgres};
use integration_tests::each_server;
use integration_tests::servers::{self, ConfigBuilder, Flavor, Options, Server};
use tempfile::TempDir;

const PASSWORD: &str = "not-a-secret";

/// A server of a service, and the database that it is for.
struct Container {
    service: Service,
    server: Server,
    participant: String,
    database: String,
    user: String,
}

impl Container {
    /// Started with the service's options, and `more`; set up as its image does.
    async fn run(flavor: Flavor, more: impl FnOnce(Options) -> Options) -> Self {
        let service = compose().services.remove(flavor.as_str()).expect("a service of that name");
        let with = |options: Options, (name, value): &(String, String)| options.with(name, value);
        let options = more(service.settings().iter().fold(servers::options(), with));
        let config = config();
        let at = format!("@{flavor}/");
        let (name, one) = config.participants.iter().find(|(_, one)| one.url.contains(&at)).expect("a participant");
        let (head, database) = one.url.split_once(&at).expect("it was found");
        let user = head.rsplit('/').next().expect("SCHEME://USER");
        let container = Self {
            server: servers::start_with(flavor, options).await,
            service,
            participant: name.to_string(),
            database: database.to_owned(),
            user: user.to_owned(),
        };
        container.create().await;
        container
    }

    /// As root, in an administrator's database.
    async fn administer(&self, sql: &str) {
        let database = if self.server.flavor() == Flavor::Postgres { "postgres" } else { "mysql" };
        self.server.query(database, sql).await.unwrap_or_else(|error| panic!("{}", error.chain()));
    }

    /// What the image does with the service's environment, and PostgreSQL's script.
    async fn create(&self) {
        let prefix = match self.server.flavor() {
            Flavor::Postgres => {
                let script = text(&self.service.mounted("/docker-entrypoint-initdb.d/").expect("a script"));
                let (_, sql) = script.split_once("<<'SQL'\n").expect("SQL in it");
                let sql = sql.trim_end().strip_suffix("SQL").expect("its end");
                let sql = sql.replace(":'password'", &format!("'{PASSWORD}'"));
                // No two in one text: CREATE DATABASE stands alone.
                for statement in sql.split(';').filter(|statement| !statement.trim().is_empty()) {
                    self.administer(statement).await;
                }
                return;
            }
            Flavor::MySql => "MYSQL",
            Flavor::MariaDb => "MARIADB",
        };
        let set = |what: &str| self.service.environment[&format!("{prefix}_{what}")].clone();
        let (database, user) = (set("DATABASE"), set("USER"));
        assert_eq!((&database, &user), (&self.database, &self.user), "compose.yaml and handfast.toml");
        self.administer(&format!(
            "CREATE DATABASE `{database}`; CREATE USER '{user}'@'%' IDENTIFIED BY '{PASSWORD}'; \
             GRANT ALL ON `{database}`.* TO '{user}'@'%'"
        ))
        .await;
    }

    /// The script that MySQL's image runs at the end.
    async fn grant(&self) {
        if self.server.flavor() != Flavor::Postgres
            && let Some(script) = self.service.mounted("/docker-entrypoint-initdb.d/")
        {
            self.administer(&text(&script)).await;
        }
    }

    fn url(&self) -> String {
        let scheme = if self.server.flavor() == Flavor::Postgres { "postgresql" } else { "mysql" };
        let (user, port, database) = (&self.user, self.server.port(), &self.database);
        format!("{scheme}://{user}:{PASSWORD}@127.0.0.1:{port}/{database}")
    }

    /// What the file behind the health check answers the application's account.
    async fn ready(&self) -> Result<String, String> {
        let sql = text(&self.service.mounted("/handfast/ready.sql").expect("the check's file"));
        if self.server.flavor() == Flavor::Postgres {
            let connecting = tokio_postgres::connect(&self.url(), tokio_postgres::NoTls).await;
            let (client, connection) = connecting.map_err(|error| error.to_string())?;
            tokio::spawn(connection);
            let row = client.query_one(&sql, &[]).await.map_err(|error| error.to_string())?;
            return Ok(row.get(0));
        }
        let asked = async {
            let options = mysql_async::Opts::from_url(&self.url())?;
            let mut session = mysql_async::Conn::new(options).await?;
            let mut answers = session.query_iter(sql).await?;
            let _prepared: Vec<mysql_async::Row> = answers.collect().await?;
            let answer: Vec<String> = answers.collect().await?;
            Ok::<_, mysql_async::Error>(answer.concat())
        };
        asked.await.map_err(|error| error.to_string())
    }

    /// The health check itself, with the client that is here: what the shell makes of it.
    fn is_healthy(&self) -> bool {
        let check = &self.service.healthcheck.as_ref().expect("a health check").test;
        let [kind, command] = check.as_slice() else { panic!("CMD-SHELL and a command, not {check:?}") };
        assert_eq!(kind, "CMD-SHELL");
        assert!(command.contains("-h 127.0.0.1 "), "{command}: not before the image is done");
        let secret = TempDir::new().unwrap();
        std::fs::write(secret.path().join("app_password"), PASSWORD).unwrap();
        let ready = path(&self.service.mounted("/handfast/ready.sql").expect("the check's file"));
        let command = command
            .replace("$$", "$")
            .replace("/run/secrets", secret.path().to_str().unwrap())
            .replace("/handfast/ready.sql", ready.to_str().unwrap());
        let mut shell = std::process::Command::new("sh");
        // Both clients take the port from here.
        let port = self.server.port().to_string();
        let shell = shell.args(["-c", &command]).env("PGPORT", &port).env("MYSQL_TCP_PORT", &port);
        shell.status().expect("a shell").success()
    }

    /// Whether there is a client of that product here: MySQL's is not installed with its server's core.
    fn has_client(&self) -> bool {
        self.server.flavor() != Flavor::MySql
    }
}

/// `handfast doctor` finds nothing that has to be set up, nor anything of the server's settings to warn of.
fn is_fit(config: &std::path::Path) {
    let mut doctor = std::process::Command::new(env!("CARGO_BIN_EXE_handfast-tool"));
    let ran = doctor.arg("--config").arg(config).args(["--format", "json", "doctor"]).output().expect("the tool");
    let said: serde_json::Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    assert!(ran.status.success(), "{said:#}");
    let findings = said["findings"].as_array().expect("findings");
    let bad = |finding: &&serde_json::Value| {
        let severity = finding["severity"].as_str();
        finding["participant"].is_string() && !matches!(severity, Some("good" | "note"))
    };
    assert!(findings.iter().find(bad).is_none(), "{said:#}");
}

each_server! {
    /// With nothing but what `docker/` sets, grants and creates.
    async fn handfast_works_there(flavor) {
        let container = Container::run(flavor, |options| options).await;
        if flavor == Flavor::MySql {
            let refused = container.ready().await.expect_err("without the grant it is not ready");
            assert!(refused.contains("1401"), "{refused}");
        }
        container.grant().await;
        assert_eq!(container.ready().await.as_deref(), Ok("ready"));
        assert!(!container.has_client() || container.is_healthy());

        let directory = TempDir::new().unwrap();
        // A volume of its own has this at its root.
        std::fs::create_dir(directory.path().join("lost+found")).unwrap();
        let config = ConfigBuilder::new(directory.path()).participant_at(&container.participant, flavor, &container.url());
        let file = directory.path().join("handfast.toml");
        config.write(&file);
        is_fit(&file);
        let bridge = Bridge::open(config.build()).await.unwrap_or_else(|error| panic!("{}", error.chain()));
        let tx = bridge.begin().await.unwrap();
        let insert = "INSERT INTO t VALUES (1)";
        // By the application's account, in the application's database.
        if flavor == Flavor::Postgres {
            let ledger = tx.postgres(&container.participant).await.unwrap();
            ledger.batch_execute(&format!("CREATE TABLE t (k INT PRIMARY KEY); {insert}")).await.unwrap();
        } else {
            container.server.query(&container.database, "CREATE TABLE t (k INT PRIMARY KEY)").await.unwrap();
            tx.mysql(&container.participant).await.unwrap().query_drop(insert).await.unwrap();
        }
        tx.commit().await.unwrap();
        bridge.close().await.unwrap();
        let value = container.server.value(&container.database, "SELECT k FROM t").await.unwrap();
        assert_eq!(value.as_deref(), Some("1"));
    }

    /// Every setting that it checks, turned off.
    async fn the_health_check_tells_what_is_missing(flavor) {
        let broken: &[(&str, &str)] = if flavor == Flavor::Postgres {
            &[("max_prepared_transactions", "0"), ("fsync", "off"), ("full_page_writes", "off")]
        } else {
            &[("innodb_flush_log_at_trx_commit", "2"), ("sync_binlog", "0")]
        };
        let container = Container::run(flavor, |options| {
            broken.iter().fold(options.with_binlog(), |options, (name, value)| options.with(name, value))
        })
        .await;
        container.grant().await;
        if flavor != Flavor::Postgres {
            container.administer("SET GLOBAL read_only = 1").await;
        }
        let answer = container.ready().await.unwrap();
        assert!(broken.iter().all(|(name, _)| answer.contains(name)), "{answer}");
        assert_eq!(answer.contains("read-only"), flavor != Flavor::Postgres, "{answer}");
        assert!(!container.has_client() || !container.is_healthy());
        // What the check asks about is what compose.yaml sets.
        for (name, _) in broken {
            assert!(container.service.settings().iter().any(|(set, _)| set == name), "{name}");
        }
    }
}
