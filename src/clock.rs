//! The wall clock, for people to read. Nothing is decided by it: it may be wrong, stand still, or jump.

use std::time::{SystemTime, UNIX_EPOCH};

/// Now.
pub(crate) fn now() -> SystemTime {
    crate::torture::shifted(SystemTime::now())
}

/// Now, in milliseconds since 1970. A clock before that may as well say 1970.
pub(crate) fn now_ms() -> u64 {
    let since = now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
