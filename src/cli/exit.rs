//! How a command ended, as an exit code and as a word.

use crate::error::{Error, ErrorKind};
use serde::Serialize;
use std::process::ExitCode;

/// How things stand when a command ends, the least pressing first. The highest that applies wins; the number is the
/// exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Exit {
    /// Nothing is left to be done.
    #[default]
    Clean = 0,
    /// Arguments, configuration or the set-up of a participant are wrong: the message says what to correct. The report's
    /// word for it is `refused`, as nothing was looked at; the code tells the two apart.
    #[serde(rename = "refused")]
    Usage = 2,
    /// Something is in doubt, or prepared and not finished: run `handfast recover`, or again later.
    InDoubt = 3,
    /// A participant could not be reached or did not give its whole list: what it holds is not known.
    Unreachable = 4,
    /// The facts contradict each other: a person is needed.
    Damaged = 5,
    /// Refused in order not to do harm: the journal is in use, a server is another than the journal knows.
    Refused = 6,
    /// The journal holds bytes that it cannot have written.
    Corrupt = 7,
}

impl Exit {
    /// All of them, in order.
    pub const ALL: [Self; 7] =
        [Self::Clean, Self::Usage, Self::InDoubt, Self::Unreachable, Self::Damaged, Self::Refused, Self::Corrupt];

    /// What an error means for the command that met it.
    pub fn of(error: &Error) -> Self {
        match error.kind() {
            // An id that this journal never gave out is a wrong argument, or the wrong configuration.
            ErrorKind::Config | ErrorKind::Setup | ErrorKind::Unknown => Self::Usage,
            // What the journal could not take is as open as before.
            ErrorKind::InDoubt | ErrorKind::Journal => Self::InDoubt,
            ErrorKind::Unavailable | ErrorKind::Statement | ErrorKind::Retry | ErrorKind::TimedOut => Self::Unreachable,
            ErrorKind::Damaged => Self::Damaged,
            ErrorKind::Refused | ErrorKind::Closed => Self::Refused,
            ErrorKind::Corrupt => Self::Corrupt,
        }
    }

    /// The number.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The word, as in the report's `status`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::InDoubt => "in_doubt",
            Self::Unreachable => "unreachable",
            Self::Damaged => "damaged",
            Self::Usage | Self::Refused => "refused",
            Self::Corrupt => "corrupt",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_are_those_of_the_contract_and_grow_with_the_order() {
        assert_eq!(Exit::ALL.map(Exit::code), [0, 2, 3, 4, 5, 6, 7]);
        assert!(Exit::ALL.is_sorted());
        assert_eq!(Exit::ALL.into_iter().max(), Some(Exit::Corrupt));
    }

    #[test]
    fn the_words_are_those_of_the_contract() {
        for exit in Exit::ALL {
            assert_eq!(serde_json::to_value(exit).unwrap(), exit.as_str());
        }
    }

    #[test]
    fn an_error_says_how_the_command_ends() {
        let of = |kind| Exit::of(&Error::new(kind, "x")).code();
        assert_eq!(of(ErrorKind::Config), 2);
        assert_eq!(of(ErrorKind::Setup), 2);
        assert_eq!(of(ErrorKind::Unavailable), 4);
        assert_eq!(of(ErrorKind::Refused), 6);
        assert_eq!(of(ErrorKind::Corrupt), 7);
    }
}
