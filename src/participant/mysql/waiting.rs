//! Who waits for prepared branches to end.
//!
//! Neither server says which XA transaction an InnoDB transaction is, only that no session has it: then it is a prepared
//! one. One that its session still holds cannot be told from one that is at work, and is left out.
//!
//! MariaDB renews what it shows only when nobody has asked for 100 ms: asked more often, it shows the same for ever.

use super::error::{self, MyError};
use super::session::Product;
use super::sql::Sql;
use super::{Mysql, explain};
use crate::error::Result;
use crate::participant::{Waiting, checkup};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use std::time::Duration;

type Row = (Option<String>, Option<String>, Option<i64>, Option<String>, u64);

/// Those who wait, for people, as far as this account may see.
pub(super) async fn waiters(conn: &mut Conn, product: Product) -> Result<Vec<String>, MyError> {
    let query = match product {
        Product::MySql => Sql::WAITING_MYSQL,
        Product::MariaDb => Sql::WAITING_MARIADB,
    };
    let rows: Vec<Row> = conn.query(query).await?;
    let who = |(user, address, seconds, text, _): Row| {
        let waiting = Duration::from_secs(u64::try_from(seconds.unwrap_or_default()).unwrap_or_default());
        let address = address.as_deref().map(|address| address.split(':').next().unwrap_or_default());
        checkup::waits(user.as_deref(), address, waiting, text.as_deref().unwrap_or_default())
    };
    Ok(rows.into_iter().map(who).collect())
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
            Ok(answer)
        };
        match self.control.within(doing, work).await? {
            Ok(waiters) => Ok(waiters.into_iter().map(|who| Waiting { branch: None, who }).collect()),
            // It sees nobody: a check says which right is missing.
            Err(error) if is_forbidden(&error) => Ok(Vec::new()),
            Err(error) => Err(explain(self.name(), doing, error)),
        }
    }
}
