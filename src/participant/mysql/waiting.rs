//! Who waits for prepared branches to end.
//!
//! Neither server says which XA transaction an InnoDB transaction is, only that no session has it: then it is a prepared
//! one. One that its session still holds cannot be told from one that is at work, and is left out.
//!
//! DDL waits for a table's metadata (D25), and the servers do not say for whom: it is told as somebody who may wait.
//!
//! MariaDB renews what it shows only when nobody has asked for 100 ms: asked more often, it shows the same for ever.

use super::check_sql::grant_process;
use super::error::{self, MyError};
use super::session::Product;
use super::sql::{self, Sql};
use super::{Mysql, explain};
use crate::error::{Error, ErrorKind, Result};
use crate::participant::{Waiting, checkup};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use std::time::Duration;

type Row = (Option<String>, Option<String>, Option<i64>, Option<String>, u64);

/// What an account is shown of those who wait.
pub(super) enum Shown {
    /// All of them, for people.
    All(Vec<String>),
    /// It may not see all; these it has seen, and what would show it the rest.
    Some(Vec<String>, String),
}

/// Those who wait, as far as this account may see.
pub(super) async fn waiters(conn: &mut Conn, product: Product) -> Result<Shown, MyError> {
    // What this shows of others' sessions takes the same right as what follows.
    let ddl: Vec<Row> = conn.query(Sql::WAITING_FOR_METADATA).await?;
    let mut all: Vec<_> =
        ddl.into_iter().map(|row| format!("{} (for a metadata lock, whosever it is)", who(row))).collect();
    let query = match product {
        Product::MySql => Sql::WAITING_MYSQL,
        Product::MariaDb => Sql::WAITING_MARIADB,
    };
    match conn.query::<Row, _>(query).await {
        // What tells of locks is empty then.
        Ok(_) if product == Product::MySql && !keeps_performance_schema(conn).await? => {
            Ok(Shown::Some(all, "performance_schema = ON in the server's configuration, and restart it".into()))
        }
        Ok(rows) => {
            all.extend(rows.into_iter().map(who));
            Ok(Shown::All(all))
        }
        Err(error) if is_forbidden(&error) => {
            let account: Option<String> = conn.query_first(Sql::CURRENT_USER).await?;
            let account = sql::account_of(&account.unwrap_or_default());
            let mut cure = grant_process(&account);
            if product == Product::MySql {
                cure += &format!("; GRANT SELECT ON performance_schema.* TO {account}");
            }
            Ok(Shown::Some(all, cure))
        }
        Err(error) => Err(error),
    }
}

/// Whether MySQL tells of locks at all.
async fn keeps_performance_schema(conn: &mut Conn) -> Result<bool, MyError> {
    Ok(conn.query_first::<bool, _>("SELECT @@GLOBAL.performance_schema").await? == Some(true))
}

fn who((user, address, seconds, text, _): Row) -> String {
    let waiting = Duration::from_secs(u64::try_from(seconds.unwrap_or_default()).unwrap_or_default());
    let address = address.as_deref().map(|address| address.split(':').next().unwrap_or_default());
    checkup::waits(user.as_deref(), address, waiting, text.as_deref().unwrap_or_default())
}

/// Whether the account lacks a right for a question: to a table, or in general.
pub(super) fn is_forbidden(error: &MyError) -> bool {
    matches!(error::code(error), Some(1044 | 1142 | 1143 | 1227))
}

impl Mysql {
    pub(super) async fn do_waiting(&self) -> Result<Vec<Waiting>> {
        let doing = "cannot ask who waits for prepared branches";
        let (product, _) = self.setup().server().await?;
        let work = async {
            let mut held = self.control.take().await?;
            let answer = waiters(held.conn(), product).await;
            held.keep(&answer);
            answer.map_err(|error| explain(self.name(), doing, error))
        };
        match self.control.within(doing, work).await? {
            // It sees nobody: that is not to say that nobody waits.
            Shown::Some(seen, cure) if seen.is_empty() => {
                let message = format!("who waits for prepared branches is not shown to this account; {cure}");
                Err(Error::new(ErrorKind::Setup, message).at(self.name()))
            }
            Shown::All(seen) | Shown::Some(seen, _) => {
                Ok(seen.into_iter().map(|who| Waiting { branch: None, who }).collect())
            }
        }
    }
}
