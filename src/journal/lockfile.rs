//! The text of the lock file: whether the directory was initialised, and who holds the lock.
//!
//! The first line is a promise and is written once, after the first segment and the directory were synced: from
//! then on a directory without segments has lost them. The rest is for people and is written at each opening. Both
//! lie within one disk sector, so that no power loss leaves the promise half overwritten.

use super::storage::StorageFile;
use crate::clock;
use crate::error::{Error, ErrorKind, Result};
use crate::id::JournalId;
use crate::protocol::Remark;
use std::io;

/// The length of the first line.
pub const PROMISE: usize = 64;
/// The length of the file.
pub const LENGTH: usize = 512;
const PREFIX: &str = "handfast journal ";
const SUFFIX: &str = " initialised";

/// What a lock file says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LockText {
    /// The journal that was initialised here.
    pub initialised: Option<JournalId>,
    /// Who took the lock last: `process 123 on host since 2026-01-31T12:00:00Z`.
    pub holder: Option<String>,
}

impl LockText {
    /// Reads what can be read.
    pub fn parse(bytes: &[u8]) -> Self {
        let text = |part: Option<&[u8]>| {
            part.and_then(|part| std::str::from_utf8(part).ok()).unwrap_or("").trim_end().to_owned()
        };
        let promise = text(bytes.get(..PROMISE));
        let id = promise.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX));
        let holder = text(bytes.get(PROMISE..));
        Self {
            initialised: id.and_then(|id| id.parse().ok()),
            holder: (!holder.is_empty()).then(|| holder.trim().to_owned()),
        }
    }

    /// The holder, or words for an unknown one.
    pub fn holder(&self) -> &str {
        self.holder.as_deref().unwrap_or("an unknown process")
    }
}

fn padded(text: &str, length: usize) -> Vec<u8> {
    // The text is shortened rather than the line lengthened: it is the promise's place that counts.
    let text: String = text.chars().filter(char::is_ascii).take(length - 1).collect();
    format!("{text:<width$}\n", width = length - 1).into_bytes()
}

/// Writes who holds the lock.
///
/// # Errors
/// The storage's.
pub fn write_holder(file: &mut dyn StorageFile) -> io::Result<()> {
    let since = humantime_serde::re::humantime::format_rfc3339_seconds(clock::now());
    let text = format!("process {} on {} since {since}", std::process::id(), host());
    let line = padded(&text, LENGTH - PROMISE);
    assert_eq!(line.len(), LENGTH - PROMISE, "one sector holds promise and holder");
    file.write_at(PROMISE as u64, &line)
}

/// Writes that the directory is initialised, durably.
///
/// # Errors
/// The storage's.
pub fn write_promise(file: &mut dyn StorageFile, journal: JournalId) -> io::Result<()> {
    let line = padded(&format!("{PREFIX}{journal}{SUFFIX}"), PROMISE);
    assert_eq!(LockText::parse(&line).initialised, Some(journal), "the promise can be read back");
    file.write_at(0, &line)?;
    file.sync()
}

/// What is done by hand is done now, here, and for a reason.
///
/// # Errors
/// [`ErrorKind::Config`] without a reason.
pub(crate) fn remark(reason: &str) -> Result<Remark> {
    let reason = reason.trim().to_owned();
    if reason.is_empty() {
        return Err(Error::new(ErrorKind::Config, "what is done by hand needs a reason: it is kept in the journal"));
    }
    Ok(Remark { at_ms: clock::now_ms(), host: host(), reason })
}

/// This machine's name, for people.
pub(crate) fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = name.or_else(|| std::env::var("HOSTNAME").ok()).or_else(|| std::env::var("COMPUTERNAME").ok());
    name.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).unwrap_or_else(|| "an unnamed host".into())
}
