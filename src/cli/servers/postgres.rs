//! PostgreSQL: its settings, its programs, its administration.

use super::{Installation, Options};
use crate::error::{Error, ErrorKind, Result};
use std::ffi::OsString;
use std::path::Path;
use tokio_postgres::{NoTls, SimpleQueryMessage};

/// The superuser. There is no password: the server listens on the loopback interface only.
pub(super) const ADMIN: &str = "postgres";

/// The signal of an orderly stop that does not wait for clients: a fast shutdown.
pub(super) const STOP: &str = "INT";

/// The signal of an immediate shutdown, after which no shared memory is left.
pub(super) const LAST: &str = "QUIT";

/// Small, but as durable as a real server: what decides about durability stays at its default.
pub(super) fn settings(port: u16, options: &Options) -> String {
    let mut text = format!(
        "listen_addresses = '127.0.0.1'\n\
         port = {port}\n\
         unix_socket_directories = ''\n\
         shared_buffers = 16MB\n\
         max_connections = 200\n\
         max_prepared_transactions = 100\n\
         min_wal_size = 32MB\n\
         dynamic_shared_memory_type = mmap\n\
         lc_messages = 'C'\n\
         log_line_prefix = '%m [%p] %a '\n"
    );
    for (name, value) in &options.settings {
        text.push_str(&format!("{name} = '{}'\n", value.replace('\'', "''")));
    }
    text
}

/// Where the settings are, in the server's directory.
pub(super) const SETTINGS_FILE: &str = "data/postgresql.conf";

pub(super) fn initialize(installation: &Installation, directory: &Path) -> Vec<OsString> {
    let initdb = installation.initializer().map_or_else(|| "initdb".into(), |program| program.as_os_str().to_owned());
    let mut words = vec![initdb, "-D".into(), directory.join("data").into()];
    words.extend(
        ["--username", ADMIN, "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"].map(OsString::from),
    );
    words
}

pub(super) fn serve(installation: &Installation, directory: &Path) -> Vec<OsString> {
    let mut words = installation.command();
    words.extend(["-D".into(), directory.join("data").into()]);
    words
}

pub(super) fn url(user: &str, port: u16, database: &str) -> String {
    format!("postgresql://{user}@127.0.0.1:{port}/{database}")
}

/// Runs statements by the simple protocol and returns the rows of the last one as text.
pub(super) async fn query(url: &str, sql: &str) -> Result<Vec<Vec<Option<String>>>> {
    let wrong = |error| Error::new(ErrorKind::Statement, format!("{sql} failed")).because(error);
    let (client, connection) = tokio_postgres::connect(url, NoTls)
        .await
        .map_err(|error| Error::new(ErrorKind::Unavailable, format!("{url} cannot be reached")).because(error))?;
    let work = async move {
        let messages = client.simple_query(sql).await?;
        drop(client);
        Ok::<_, tokio_postgres::Error>(messages)
    };
    // The connection ends once the client is dropped: both are awaited, so that no session outlives the call.
    let (messages, _) = tokio::join!(work, connection);
    Ok(rows(messages.map_err(wrong)?))
}

fn rows(messages: Vec<SimpleQueryMessage>) -> Vec<Vec<Option<String>>> {
    let mut rows = Vec::new();
    for message in messages {
        match message {
            SimpleQueryMessage::RowDescription(_) => rows.clear(),
            SimpleQueryMessage::Row(row) => {
                rows.push((0..row.len()).map(|column| row.get(column).map(str::to_owned)).collect());
            }
            _ => {}
        }
    }
    rows
}

pub(super) fn create_user(user: &str, grants: &[&str]) -> Vec<String> {
    let mut statements = vec![format!("CREATE ROLE \"{user}\" LOGIN")];
    statements.extend(grants.iter().map(|grant| format!("GRANT {grant} TO \"{user}\"")));
    statements
}

/// The statement that tells which data directory a server works on.
pub(super) const WHICH: &str = "SHOW data_directory";

/// What a server writes when it cannot start *yet*: remains of its predecessor are still ending.
pub(super) const NOT_YET: &[&str] =
    &["pre-existing shared memory block", "is another postmaster", "already exists", "Address already in use"];

/// The user to run as when we are root, which PostgreSQL refuses.
pub(super) const USERS: &[&str] = &["postgres", "nobody"];
