//! Where decisions are kept.

use crate::id::{ParseIdError, ParticipantName};
use serde::Deserialize;
use serde::de::{self, Deserializer};
use std::fmt;
use std::str::FromStr;

/// Where the decision over a transaction of several writers is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Decision {
    /// In the journal, on this machine's disk.
    #[default]
    Journal,
    /// In a row of this participant, its *anchor*, which its own plain commit makes durable: nothing is on this machine.
    Anchor(ParticipantName),
}

impl Decision {
    /// The anchor, where there is one.
    pub fn anchor(self) -> Option<ParticipantName> {
        match self {
            Self::Journal => None,
            Self::Anchor(name) => Some(name),
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Journal => f.write_str("journal"),
            Self::Anchor(name) => name.fmt(f),
        }
    }
}

/// As the configuration has it.
impl FromStr for Decision {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        if text == "journal" { Ok(Self::Journal) } else { text.parse().map(Self::Anchor) }
    }
}

impl<'de> Deserialize<'de> for Decision {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let neither = |_| de::Error::custom(format!("{text:?} is neither \"journal\" nor the name of a participant"));
        text.parse().map_err(neither)
    }
}
