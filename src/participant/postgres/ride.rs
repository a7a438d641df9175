//! The application's first statement, in one text with its branch's begin.

use super::error::{PgError, is_refusal};
use super::sql::Begin;
use super::unheard::{Beginning, Unheard};
use futures_util::TryStreamExt;
use std::future::poll_fn;
use std::sync::Arc;
use tokio_postgres::SimpleQueryMessage;

/// Such a text, on its way. Dropped before the begin is answered, it leaves that answer to whoever looks for it.
pub(super) struct Ride {
    /// `None` once the begin is answered.
    beginning: Option<Beginning>,
    begin: Begin,
    unheard: Arc<Unheard>,
}

/// What is to be done for the application's text, which was not carried out.
pub(super) enum Unbegun {
    /// It goes out anew, the begin in front in a text of its own.
    Again(Begin),
    /// It goes out anew, to be told what comes of it behind a begin that has failed.
    Failed,
}

impl Ride {
    pub(super) fn new(beginning: Beginning, begin: Begin, unheard: Arc<Unheard>) -> Self {
        Self { beginning: Some(beginning), begin, unheard }
    }

    /// Waits for the begin and for what is answered to the text behind it.
    ///
    /// # Errors
    /// Outside, of the begin. The server reads a text as a whole before it carries out any of it, and refuses the begin
    /// along with an application's part that it cannot read.
    pub(super) async fn arrive(mut self) -> Result<Result<Vec<SimpleQueryMessage>, PgError>, Unbegun> {
        let begun = match &mut self.beginning {
            Some(beginning) => poll_fn(|cx| beginning.poll_begun(cx)).await,
            None => Ok(()),
        };
        // Answered: there is nothing left for others to look for.
        let mut beginning = self.beginning.take().expect("only this takes it, once");
        match begun {
            Ok(()) => Ok(beginning.rest().try_collect().await),
            Err(error) if beginning.has_not_started() && is_unreadable(&error) => {
                Err(Unbegun::Again(std::mem::take(&mut self.begin)))
            }
            Err(error) => {
                self.unheard.expect(Err(error));
                Err(Unbegun::Failed)
            }
        }
    }
}

impl Drop for Ride {
    fn drop(&mut self) {
        if let Some(beginning) = self.beginning.take() {
            self.unheard.expect(Ok(beginning));
        }
    }
}

/// Whether a text was refused for what it says (classes 42 and 22): it will be again.
fn is_unreadable(error: &PgError) -> bool {
    let is_of = |class| error.code().is_some_and(|code| code.code().starts_with(class));
    is_refusal(error) && (is_of("42") || is_of("22"))
}
