//! Several statements in one round trip, each with an answer of its own.

use mysql_async::Row;

/// What a statement of a question is for: which one failed decides what its failure proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Step {
    /// Shows that the answer is one to this question, and does nothing else.
    Nonce,
    /// Sets up the session for its next branch.
    Setting,
    /// Begins the branch.
    Start,
    /// Sets the marker, or proves that it is still there.
    Marker,
    /// Inserts the witness.
    Witness,
    /// `XA END`
    End,
    /// The step that all others are there for, always the last.
    Last,
}

/// What the answer to a step must show, to be one to this question.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) enum Shows {
    /// The first value of its only row.
    Row(String),
    /// What the server calls the last inserted id, in the very packet that says OK: a row would cost more than any other
    /// step in front of the last.
    Id(u64),
}

impl Shows {
    /// Whether an answer shows it, by the id that the packet says and its rows.
    pub(in super::super) fn is_in(&self, id: Option<u64>, rows: &[Row]) -> bool {
        match self {
            Self::Id(nonce) => id == Some(*nonce) && rows.is_empty(),
            Self::Row(nonce) => {
                let found = rows.first().and_then(|row| row.get_opt::<String, _>(0)?.ok());
                rows.len() == 1 && found.as_ref() == Some(nonce)
            }
        }
    }
}

/// Statements that go in one round trip and have to be answered one by one.
///
/// A **nonce** is in it wherever something unread may be on the wire: after the application's calls, and after a question
/// without a clear answer. Where the question before was ours and was answered whole, there is nothing to mistake for an
/// answer.
pub(in super::super) struct Question {
    text: String,
    /// Where the last statement begins in it.
    last: usize,
    steps: Vec<(Step, Option<Shows>)>,
}

impl Question {
    /// Shows first that what follows is the answer to it.
    pub(super) fn new(nonce: u64) -> Self {
        let nonce = format!("{nonce:016x}");
        let ask = format!("SELECT '{nonce}', CONNECTION_ID()");
        Self::in_step().shown(Step::Nonce, &ask, Shows::Row(nonce))
    }

    /// On a session whose last question was ours and was answered whole.
    pub(super) fn in_step() -> Self {
        Self { text: String::with_capacity(512), last: 0, steps: Vec::with_capacity(6) }
    }

    /// With a statement, given in parts.
    pub(in super::super) fn then<const N: usize>(self, step: Step, statement: [&str; N]) -> Self {
        self.with(step, &statement, None)
    }

    /// With a statement whose answer shows something.
    pub(super) fn shown(self, step: Step, statement: &str, shows: Shows) -> Self {
        self.with(step, &[statement], Some(shows))
    }

    fn with(mut self, step: Step, statement: &[&str], shows: Option<Shows>) -> Self {
        if !self.text.is_empty() {
            self.text.push_str("; ");
        }
        self.last = self.text.len();
        statement.iter().for_each(|part| self.text.push_str(part));
        self.steps.push((step, shows));
        self
    }

    /// The statements as one text.
    pub(in super::super) fn text(&self) -> &str {
        &self.text
    }

    /// The statement that it is there for.
    pub(in super::super) fn last(&self) -> &str {
        &self.text[self.last..]
    }

    /// What each statement is for, and what its answer shows.
    pub(in super::super) fn steps(&self) -> &[(Step, Option<Shows>)] {
        &self.steps
    }
}
