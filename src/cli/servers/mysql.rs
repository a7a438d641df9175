//! MySQL and MariaDB: their settings, their programs, their administration.

use super::{Flavor, Installation, Options, process};
use crate::error::{Error, ErrorKind, Result};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder, Row, Value};
use std::ffi::OsString;
use std::fmt::Write;
use std::path::Path;

/// The superuser. There is no password: the server listens on the loopback interface only.
pub(super) const ADMIN: &str = "root";

/// The signal of an orderly stop.
pub(super) const STOP: &str = "TERM";

/// Nothing but files is left behind: the hardest end is the quickest.
pub(super) const LAST: &str = "KILL";

/// Where the settings are, in the server's directory.
pub(super) const SETTINGS_FILE: &str = "my.cnf";

/// Run by MySQL when it initialises a data directory: names are not resolved, so `localhost` alone lets nobody in.
/// MariaDB's own program creates this account by itself.
pub(super) const FIRST_SQL: &str = "CREATE USER 'root'@'127.0.0.1';\n\
     GRANT ALL ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;\n";

/// Where [`FIRST_SQL`] is, in the server's directory.
pub(super) const FIRST_FILE: &str = "first.sql";

/// Small, but as durable as a real server.
pub(super) fn settings(installation: &Installation, directory: &Path, port: u16, options: &Options) -> String {
    let place = directory.display();
    let mut text = format!(
        "[mysqld]\n\
         datadir={place}/data\n\
         tmpdir={place}/tmp\n\
         socket={place}/socket\n\
         pid-file={place}/pid\n\
         bind-address=127.0.0.1\n\
         port={port}\n\
         skip-name-resolve\n\
         character-set-server=utf8mb4\n\
         max_connections=200\n\
         performance_schema=OFF\n\
         innodb_buffer_pool_size=32M\n\
         innodb_flush_log_at_trx_commit=1\n\
         innodb_use_native_aio=OFF\n"
    );
    if process::is_root() {
        // Both refuse root unless they are told.
        text.push_str("user=root\n");
    }
    match installation.flavor() {
        Flavor::MySql => {
            text.push_str("mysqlx=OFF\nsecure-file-priv=NULL\ninnodb_redo_log_capacity=16M\n");
            text.push_str(if options.binlog { "log_bin=binlog\nserver_id=1\n" } else { "disable-log-bin\n" });
        }
        _ => {
            text.push_str("innodb_log_file_size=16M\n");
            text.push_str(if options.binlog {
                "log_bin=binlog\nserver_id=1\nsync_binlog=1\n"
            } else {
                "skip-log-bin\n"
            });
        }
    }
    if let Some(root) = installation.root() {
        let usr = root.join("usr");
        let usr = usr.display();
        let share = if installation.flavor() == Flavor::MySql { "mysql" } else { "mariadb" };
        let _ = write!(
            text,
            "basedir={usr}\nlc-messages-dir={usr}/share/{share}\n\
             character-sets-dir={usr}/share/{share}/charsets\nplugin-dir={usr}/lib/mysql/plugin\n"
        );
    }
    for (name, value) in &options.settings {
        let _ = writeln!(text, "{name}={value}");
    }
    text
}

pub(super) fn initialize(installation: &Installation, directory: &Path) -> Vec<OsString> {
    let mut defaults = OsString::from("--defaults-file=");
    defaults.push(directory.join(SETTINGS_FILE));
    let mut words = Vec::new();
    if let Some(initializer) = installation.initializer() {
        words.extend([initializer.into(), defaults]);
        if let Some(root) = installation.root() {
            let mut base = OsString::from("--basedir=");
            base.push(root.join("usr"));
            words.push(base);
        }
        words.extend(
            ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve", "--force"]
                .map(OsString::from),
        );
        if process::is_root() {
            words.push("--user=root".into());
        }
    } else {
        let mut first = OsString::from("--init-file=");
        first.push(directory.join(FIRST_FILE));
        words.extend(installation.command());
        words.extend([defaults, "--initialize-insecure".into(), first]);
    }
    words
}

pub(super) fn serve(installation: &Installation, directory: &Path) -> Vec<OsString> {
    let mut defaults = OsString::from("--defaults-file=");
    defaults.push(directory.join(SETTINGS_FILE));
    let mut words = installation.command();
    words.push(defaults);
    words
}

pub(super) fn url(user: &str, port: u16, database: &str) -> String {
    format!("mysql://{user}@127.0.0.1:{port}/{database}")
}

/// Runs statements by the text protocol, one after the other, and returns the rows of the last one as text.
pub(super) async fn query(url: &str, sql: &str) -> Result<Vec<Vec<Option<String>>>> {
    let unreachable = |error: mysql_async::Error| {
        Error::new(ErrorKind::Unavailable, format!("{url} cannot be reached")).because(error)
    };
    let options = Opts::from_url(url).map_err(|error| unreachable(error.into()))?;
    // The driver would go over to the server's socket, past whatever a test has put between.
    let options = OptsBuilder::from_opts(options).prefer_socket(false);
    let mut session = Conn::new(options).await.map_err(unreachable)?;
    let rows = last_result(&mut session, sql).await;
    let _ = session.disconnect().await;
    let rows = rows.map_err(|error| Error::new(ErrorKind::Statement, format!("{sql} failed")).because(error))?;
    Ok(rows.into_iter().map(|row| row.unwrap_raw().into_iter().map(|value| value.and_then(text)).collect()).collect())
}

async fn last_result(session: &mut Conn, sql: &str) -> std::result::Result<Vec<Row>, mysql_async::Error> {
    let mut results = session.query_iter(sql).await?;
    let mut last = Vec::new();
    while !results.is_empty() {
        last = results.collect::<Row>().await?;
    }
    // A statement that was refused ends the answers: its error comes only now.
    results.drop_result().await?;
    Ok(last)
}

fn text(value: Value) -> Option<String> {
    match value {
        Value::NULL => None,
        Value::Bytes(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        other => Some(other.as_sql(true)),
    }
}

pub(super) fn create_user(user: &str, grants: &[&str]) -> Vec<String> {
    let mut statements = vec![format!("CREATE USER '{user}'@'%'")];
    statements.extend(grants.iter().map(|grant| format!("GRANT {grant} TO '{user}'@'%'")));
    statements
}

/// The statement that tells which data directory a server works on.
pub(super) const WHICH: &str = "SELECT @@datadir";

/// What a server writes when it cannot start *yet*: remains of its predecessor are still ending.
pub(super) const NOT_YET: &[&str] =
    &["Unable to lock", "Can't lock", "Address already in use", "Do you already have another"];
