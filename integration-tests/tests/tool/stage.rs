//! What the tests are played on: two databases, a journal, an application that can be killed, and the tool.

use integration_tests::conformance::eventually;
use integration_tests::proxy::Proxy;
use integration_tests::servers::{self, ConfigBuilder, Flavor, Server};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::timeout;

/// How long a program may take to do or say something.
const PATIENCE: Duration = Duration::from_secs(60);
/// In every URL, and never to be seen in any output.
pub const PASSWORD: &str = "pa55-that-nobody-may-see";
/// The user behind the password.
const USER: &str = "app";

/// Two databases with a table `entry`, and a directory for the rest.
pub struct Stage {
    pub postgres: &'static Server,
    pub mysql: &'static Server,
    pub ledger: String,
    pub orders: String,
    pub node: String,
    pub directory: TempDir,
    /// Who decides, where that is not the journal.
    anchor: Option<&'static str>,
}

/// A program that has ended.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Stage {
    /// On the servers that all tests share: other tests' branches may be prepared there.
    pub async fn new(flavor: Flavor) -> Self {
        let (postgres, mysql) = tokio::join!(servers::shared(Flavor::Postgres), servers::shared(flavor));
        Self::on(postgres, mysql).await
    }

    /// With a second server of its own, which may be killed.
    pub async fn with_own_mysql(flavor: Flavor) -> Self {
        let (postgres, mysql) = tokio::join!(servers::shared(Flavor::Postgres), servers::start(flavor));
        Self::on(postgres, Box::leak(Box::new(mysql))).await
    }

    async fn on(postgres: &'static Server, mysql: &'static Server) -> Self {
        let (ledger, orders) = (servers::unique("ledger"), servers::unique("orders"));
        Self::named(postgres, mysql, ledger, orders, servers::unique("n").replace('_', "-")).await
    }

    /// With names of one's own.
    pub async fn named(
        postgres: &'static Server,
        mysql: &'static Server,
        ledger: String,
        orders: String,
        node: String,
    ) -> Self {
        postgres.create_database(&ledger).await.unwrap();
        mysql.create_database(&orders).await.unwrap();
        let directory = TempDir::new().unwrap();
        std::fs::create_dir(directory.path().join("journal")).unwrap();
        let stage = Self { postgres, mysql, ledger, orders, node, directory, anchor: None };
        stage.postgres.query(&stage.ledger, "CREATE TABLE entry (n bigint PRIMARY KEY)").await.unwrap();
        stage.create_user(USER, true).await;
        stage.mysql.query(&stage.orders, "CREATE TABLE entry (n bigint PRIMARY KEY) ENGINE=InnoDB").await.unwrap();
        stage.config().write(&stage.config_path());
        stage
    }

    /// The same with the decisions in a participant's rows.
    pub fn with_anchor(mut self, anchor: &'static str) -> Self {
        self.anchor = Some(anchor);
        self.config().write(&self.config_path());
        self
    }

    /// A user of the second server with rights on its database.
    pub async fn create_user(&self, user: &str, may_recover: bool) {
        let mut sql = format!(
            "CREATE USER IF NOT EXISTS '{user}'@'%' IDENTIFIED BY '{PASSWORD}'; \
             GRANT ALL ON `{}`.* TO '{user}'@'%'",
            self.orders
        );
        if may_recover && self.mysql.flavor() == Flavor::MySql {
            sql += &format!("; GRANT XA_RECOVER_ADMIN ON *.* TO '{user}'@'%'");
        }
        self.mysql.query(&self.orders, &sql).await.unwrap();
    }

    /// The configuration, participants and all.
    pub fn config(&self) -> ConfigBuilder {
        self.config_at(self.postgres.port(), self.mysql.port())
    }

    /// The same through proxies.
    pub fn config_at(&self, postgres: u16, mysql: u16) -> ConfigBuilder {
        self.participants(self.bare_config(), postgres, mysql)
    }

    fn participants(&self, config: ConfigBuilder, postgres: u16, mysql: u16) -> ConfigBuilder {
        config.participant_at("ledger", Flavor::Postgres, &self.ledger_url(postgres)).participant_at(
            "orders",
            self.mysql.flavor(),
            &self.orders_url(USER, mysql),
        )
    }

    /// The configuration with a journal elsewhere.
    pub fn config_with_journal(&self, journal: &Path) -> ConfigBuilder {
        let ports = (self.postgres.port(), self.mysql.port());
        self.participants(self.bare_config_at(journal), ports.0, ports.1)
    }

    /// The configuration without participants.
    pub fn bare_config(&self) -> ConfigBuilder {
        self.bare_config_at(&self.journal())
    }

    fn bare_config_at(&self, journal: &Path) -> ConfigBuilder {
        let decision = self.anchor.unwrap_or("journal");
        ConfigBuilder::new(journal).node(&self.node).section(&format!(
            "segment_bytes = 65536\n[transaction]\ndecision = {decision:?}\ntimeout = \"100s\"\napply_wait = \"90s\"\n\
             [recovery]\nopen_wait = \"5s\"\nstatement_timeout = \"50s\"\n[pool]\nsize = 4",
        ))
    }

    pub fn ledger_url(&self, port: u16) -> String {
        format!("postgresql://postgres:{PASSWORD}@127.0.0.1:{port}/{}", self.ledger)
    }

    pub fn orders_url(&self, user: &str, port: u16) -> String {
        format!("mysql://{user}:{PASSWORD}@127.0.0.1:{port}/{}", self.orders)
    }

    pub fn journal(&self) -> PathBuf {
        self.path("journal")
    }

    pub fn config_path(&self) -> PathBuf {
        self.path("handfast.toml")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs the tool.
    pub async fn tool(&self, arguments: &str) -> Ran {
        self.tool_at(&self.config_path(), arguments).await
    }

    /// Runs the tool with another configuration.
    pub async fn tool_at(&self, config: &Path, arguments: &str) -> Ran {
        let mut command = tool();
        command.arg("--config").arg(config).args(arguments.split_whitespace());
        run_to_end(command).await
    }

    /// Runs the tool with arguments that hold blanks.
    pub async fn tool_with(&self, arguments: &[&str]) -> Ran {
        let mut command = tool();
        command.arg("--config").arg(self.config_path()).args(arguments);
        run_to_end(command).await
    }

    /// Runs the tool, which must end with this code, and reads the one object that it prints.
    pub async fn json(&self, arguments: &str, code: i32) -> Value {
        let ran = self.tool(&format!("--format json {arguments}")).await;
        ran.ended(code);
        ran.json()
    }

    /// Starts an application.
    pub async fn application(&self) -> Application {
        Application::start(&self.config_path(), self.path("application.log")).await
    }

    /// Starts an application behind proxies.
    pub async fn application_behind(&self, network: &Network) -> Application {
        let path = self.path("through-proxies.toml");
        self.config_at(network.postgres.port(), network.mysql.port()).write(&path);
        Application::start(&path, self.path("application.log")).await
    }

    /// The prepared transactions of the first database.
    pub async fn prepared_ledger(&self) -> Vec<String> {
        let sql = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() ORDER BY gid";
        first_column(self.postgres.query(&self.ledger, sql).await.unwrap())
    }

    /// The prepared branches of this node on the second server, as the server writes them.
    pub async fn prepared_orders(&self) -> Vec<String> {
        let rows = self.mysql.query(&self.orders, "XA RECOVER").await.unwrap();
        let data = rows.into_iter().map(|mut row| row.pop().flatten().unwrap_or_default());
        data.filter(|data| data.contains(&format!("hf1.{}.", self.node))).collect()
    }

    /// The rows that both databases hold.
    pub async fn rows(&self) -> (Vec<String>, Vec<String>) {
        let sql = "SELECT n FROM entry ORDER BY n";
        let ledger = first_column(self.postgres.query(&self.ledger, sql).await.unwrap());
        let orders = first_column(self.mysql.query(&self.orders, sql).await.unwrap());
        (ledger, orders)
    }

    /// Asserts the rows of both databases.
    pub async fn assert_rows(&self, ledger: &[&str], orders: &[&str]) {
        let (in_ledger, in_orders) = self.rows().await;
        assert_eq!((in_ledger, in_orders), (owned(ledger), owned(orders)), "rows in ledger and orders");
    }

    /// Asserts that nothing of ours is prepared anywhere.
    pub async fn assert_nothing_prepared(&self) {
        assert_eq!((self.prepared_ledger().await, self.prepared_orders().await), (vec![], vec![]));
    }
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}

fn first_column(rows: Vec<Vec<Option<String>>>) -> Vec<String> {
    rows.into_iter().map(|row| row.into_iter().next().flatten().unwrap_or_default()).collect()
}

/// The tool, with nothing of this program's environment that it would listen to.
pub fn tool() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_handfast-tool"));
    command.arg0("handfast").stdin(Stdio::null()).kill_on_drop(true);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("HANDFAST_") && !text.ends_with("_ROOT") {
            command.env_remove(&name);
        }
    }
    command
}

/// Runs a program to its end; it must come, and no password may be seen.
pub async fn run_to_end(mut command: Command) -> Ran {
    let output = timeout(PATIENCE, command.output()).await.unwrap_or_else(|_| panic!("endless: {command:?}")).unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let ran =
        Ran { code: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) };
    assert!(!format!("{ran:?}").contains(PASSWORD), "{command:?} shows the password: {ran}");
    for line in ran.stdout.lines().filter(|_| !ran.stdout.starts_with('{')) {
        assert!(!line.contains('\x1b'), "colours off a terminal: {line:?}");
    }
    ran
}

impl std::fmt::Display for Ran {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "exit code {}\n{}\n{}", self.code, self.stdout, self.stderr)
    }
}

impl Ran {
    /// Asserts the exit code.
    #[track_caller]
    pub fn ended(&self, code: i32) -> &Self {
        assert_eq!(self.code, code, "{self}");
        self
    }

    /// Asserts that it says so on stdout.
    #[track_caller]
    pub fn says(&self, text: &str) -> &Self {
        // Tables break lines; what is said stays the same.
        let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat(&self.stdout).contains(&flat(text)), "{text:?} is missing on stdout: {self}");
        self
    }

    /// Asserts one message on stderr that holds all these, and nothing on stdout.
    #[track_caller]
    pub fn complains(&self, texts: &[&str]) -> &Self {
        assert_eq!(self.stdout, "", "{self}");
        assert_eq!(self.stderr.matches("handfast: ").count(), 1, "one message: {self}");
        for text in texts {
            assert!(self.stderr.contains(text), "{text:?} is missing on stderr: {self}");
        }
        self
    }

    /// The object on stdout.
    #[track_caller]
    pub fn json(&self) -> Value {
        let object: Value = serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self}"));
        assert_eq!(object["schema"], 1);
        object
    }
}

/// Proxies before both servers.
pub struct Network {
    pub postgres: Proxy,
    pub mysql: Proxy,
}

impl Network {
    pub async fn before(stage: &Stage) -> Self {
        Self { postgres: Proxy::start(stage.postgres).await, mysql: Proxy::start(stage.mysql).await }
    }

    /// Closes every connection: what is held is lost, as it is when a machine dies.
    pub fn sever(&self) {
        self.postgres.sever();
        self.mysql.sever();
    }
}

/// A running application that writes rows into the tables of a stage.
pub struct Application(integration_tests::application::Application);

impl std::ops::Deref for Application {
    type Target = integration_tests::application::Application;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl std::ops::DerefMut for Application {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl Application {
    async fn start(config: &Path, log: PathBuf) -> Self {
        let program = env!("CARGO_BIN_EXE_test-application");
        let mut application = Self(integration_tests::application::Application::start_at(program, config, log));
        application.tell("open").await;
        application.says("open").await;
        application
    }

    /// Begins a transaction that writes a row on both sides; returns its id.
    pub async fn write(&mut self, row: u32) -> String {
        self.tell(&format!("entry {row}")).await;
        self.says(&format!("begun {row} ")).await
    }

    /// Waits until it says that a transaction is committed; returns its id.
    pub async fn committed(&mut self) -> String {
        let said = self.says("Committed ").await;
        said.split_once(' ').expect("a row and an id").1.to_owned()
    }
}

/// Kills an application right between two steps: the statement that carries `held` is with neither server yet when
/// the network and the process die. Returns the transaction's id.
pub async fn killed_at(stage: &Stage, held_ledger: Option<&str>, held_orders: Option<&str>) -> String {
    let network = Network::before(stage).await;
    let mut application = stage.application_behind(&network).await;
    let id = application.write(1).await;
    let rules: Vec<_> = [(&network.postgres, held_ledger), (&network.mysql, held_orders)]
        .into_iter()
        .filter_map(|(proxy, held)| held.map(|held| proxy.on(held).hold()))
        .collect();
    application.tell("commit").await;
    for rule in &rules {
        rule.fired().await;
    }
    if held_orders == Some("XA PREPARE") {
        eventually("the ledger has prepared", async || !stage.prepared_ledger().await.is_empty()).await;
    }
    if held_orders.is_none() && stage.anchor.is_none() {
        eventually("the orders have committed", async || stage.rows().await.1 == ["1"]).await;
    }
    if held_ledger.is_none() && held_orders == Some("XA COMMIT") {
        eventually("the ledger has committed", async || stage.rows().await.0.contains(&"1".to_owned())).await;
    }
    application.kill().await;
    network.sever();
    id
}

/// The one transaction in a report.
#[track_caller]
pub fn only(report: &Value) -> &Value {
    let all = report["transactions"].as_array().unwrap();
    assert_eq!(all.len(), 1, "{report:#}");
    &all[0]
}

/// A transaction's branch on a participant.
#[track_caller]
pub fn branch<'a>(transaction: &'a Value, participant: &str) -> &'a Value {
    let branches = transaction["branches"].as_array().unwrap();
    let found = branches.iter().find(|branch| branch["participant"] == participant);
    found.unwrap_or_else(|| panic!("no branch on {participant}: {transaction:#}"))
}

/// Some values of an object, to be compared at once.
pub fn values<'a>(object: &'a Value, keys: &[&str]) -> Vec<&'a str> {
    keys.iter().map(|key| object[key].as_str().unwrap_or("(no text)")).collect()
}
