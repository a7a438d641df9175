//! Many prepared transactions finished at once.

use super::Postgres;
use super::error::{explain, is_refusal};
use super::sql::Sql;
use crate::error::{Error, ErrorKind};
use crate::id::BranchId;
use crate::participant::{Answer, Hear};
use crate::protocol::{Finish, Resolution};
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio_postgres::Client;

/// So many statements are on their way at once: enough to hide the network, few enough for one time limit.
const WINDOW: usize = 64;

pub(super) fn statement(branch: &BranchId, resolution: Resolution) -> String {
    match resolution {
        Resolution::Commit => Sql::commit_prepared(branch),
        Resolution::RollBack => Sql::rollback_prepared(branch),
    }
}

impl Postgres {
    pub(super) async fn do_finish_all(&self, work: &[(BranchId, Resolution)], hear: Hear<'_>) {
        for (number, window) in work.chunks(WINDOW).enumerate() {
            let first = number * WINDOW;
            if !self.finish_window(window, &|place, answer| hear(first + place, answer)).await {
                return;
            }
        }
    }

    /// Sends a window at once, each statement by itself: one that is refused leaves the others alone. Whether the
    /// connection has survived.
    async fn finish_window(&self, window: &[(BranchId, Resolution)], hear: Hear<'_>) -> bool {
        let (sent, told) = (AtomicBool::new(false), AtomicUsize::new(0));
        let (was_sent, heard) = (&sent, &told);
        let run = |client: Arc<Client>| async move {
            was_sent.store(true, Ordering::Relaxed);
            let send = |(branch, resolution): &(BranchId, Resolution)| {
                let (client, statement) = (client.clone(), statement(branch, *resolution));
                async move { (client.batch_execute(&statement).await, statement) }
            };
            let mut answers: FuturesOrdered<_> = window.iter().map(send).collect();
            while let Some((answer, statement)) = answers.next().await {
                let answer = match answer {
                    Ok(()) => Answer::good(Finish::Done),
                    Err(error) if is_refusal(&error) => {
                        let doing = format!("{statement} was not answered positively");
                        Answer::because(Finish::Unknown, explain(self.name(), &doing, error))
                    }
                    Err(error) => return Err(error),
                };
                hear(heard.fetch_add(1, Ordering::Relaxed), answer);
            }
            Ok(())
        };
        let Err(cause) = self.control.run("finishing prepared transactions was not answered", run).await else {
            return true;
        };
        let first = told.into_inner();
        if !sent.into_inner() {
            hear(first, Answer::because(Finish::Unknown, cause));
            return false;
        }
        let said = cause.chain();
        for place in first..window.len() {
            let lost = Error::new(ErrorKind::Unavailable, said.clone()).at(self.name());
            hear(place, Answer::because(Finish::Unknown, lost));
        }
        false
    }
}
