//! The server's clock.

use std::time::{SystemTime, UNIX_EPOCH};

use segue_core::nouns::Timestamp;

/// The time by this server's clock.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let secs = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    Timestamp { secs, nanos: since.subsec_nanos() }
}

/// The same, in whole seconds since 1970.
pub(crate) fn now_seconds() -> u64 {
    now().secs.unsigned_abs()
}
