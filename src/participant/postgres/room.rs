//! How much room there is for prepared transactions: the bound is the whole server's, whoever prepares.

use super::Postgres;
use super::sql::Sql;
use crate::error::Result;
use std::sync::Arc;
use tokio_postgres::Client;

impl Postgres {
    pub(super) async fn do_room(&self) -> Result<Option<u64>> {
        let count = |client: Arc<Client>| async move {
            let rows = client.query_typed(Sql::ROOM, &[]).await?;
            let free: Option<i64> = rows.first().map(|row| row.try_get(0)).transpose()?;
            Ok(free)
        };
        let free = self.control.run("cannot count the prepared transactions", count).await?;
        Ok(free.map(|free| u64::try_from(free).unwrap_or(0)))
    }
}
