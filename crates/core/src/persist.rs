//! How soon a change must be with the server: the first time of a file's volatility specification
//! [MBFS 4.2], one field instead of modes.
//!
//! ```text
//!   async       nothing waits, all goes as soon as the link allows
//!   delay:30s   a file's data go when the oldest of them is so old [SPRITE 5.4]; names go at once
//!   log:1s      everything waits for company, and goes in batches that are as old as that
//!   close       close(2) waits
//!   sync        every change waits
//! ```
//!
//! A file or directory says it with an extended attribute, [`ATTRIBUTE`]; who says nothing is as
//! the directory it is in, and the volume's root as it is mounted.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::quantity::parse_duration;

use serde::{Deserialize, Serialize};

/// Name of the extended attribute.
pub const ATTRIBUTE: &[u8] = b"user.segue.persist";
/// Longest time that changes wait on purpose.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// How soon changes must be with the server: the LM time (local memory) of [MBFS 4.2].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Lm {
    /// As soon as bandwidth allows; nothing waits.
    #[default]
    Async,
    /// The data of a file when its oldest change is so old.
    Delay(Duration),
    /// Everything, in batches of so long.
    Log(Duration),
    /// Before close(2) returns.
    Close,
    /// Before any change returns.
    Sync,
}

impl Lm {
    /// True if a close waits until the server has the file.
    pub fn closes(self) -> bool {
        self.waits(true)
    }

    /// True if who makes a change waits for its commit; `counts`: others go by its having
    /// succeeded.
    pub fn waits(self, counts: bool) -> bool {
        match self {
            Lm::Async | Lm::Delay(_) | Lm::Log(_) => false,
            Lm::Close => counts,
            Lm::Sync => true,
        }
    }

    /// How old data become before they go by themselves.
    pub fn delay(self) -> Option<Duration> {
        if let Lm::Delay(delay) = self { Some(delay) } else { None }
    }

    /// What an extended attribute says.
    pub fn of_attribute(value: &[u8]) -> Option<Lm> {
        std::str::from_utf8(value).ok()?.parse().ok()
    }
}

/// Why a text is no [`Lm`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LmError {
    /// Something else.
    #[error("'{0}' is not async, delay:T, log:T, close or sync, with a time such as 30s")]
    Unknown(String),
    /// Too long, or no time at all.
    #[error("'{0}' has a time that is not from 1ms to 24h")]
    OutOfRange(String),
}

impl FromStr for Lm {
    type Err = LmError;

    fn from_str(text: &str) -> Result<Lm, LmError> {
        let time = |time: &str| {
            let time = parse_duration(time).map_err(|_| LmError::Unknown(text.to_owned()))?;
            match (Duration::from_millis(1)..=LONGEST).contains(&time) {
                true => Ok(time),
                false => Err(LmError::OutOfRange(text.to_owned())),
            }
        };
        match text.split_once(':') {
            None if text == "async" => Ok(Lm::Async),
            None if text == "close" => Ok(Lm::Close),
            None if text == "sync" => Ok(Lm::Sync),
            Some(("delay", after)) => time(after).map(Lm::Delay),
            Some(("log", every)) => time(every).map(Lm::Log),
            _ => Err(LmError::Unknown(text.to_owned())),
        }
    }
}

impl fmt::Display for Lm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lm::Async => f.write_str("async"),
            Lm::Delay(time) => write!(f, "delay:{}", Units(*time)),
            Lm::Log(time) => write!(f, "log:{}", Units(*time)),
            Lm::Close => f.write_str("close"),
            Lm::Sync => f.write_str("sync"),
        }
    }
}

/// Units of time in milliseconds, longest first.
const UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1)];

/// A time in the largest unit of which it is a multiple.
struct Units(Duration);

impl fmt::Display for Units {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        let fits = |(_, each): &&(&str, u64)| millis > 0 && millis.is_multiple_of(*each);
        let (unit, each) = UNITS.iter().find(fits).unwrap_or(&("ms", 1));
        write!(f, "{}{unit}", millis / each)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves S4.5, S4.9, S4.10, S4.11, S4.12.
    #[test]
    fn who_waits_and_who_does_not() {
        let time = Duration::from_secs(1);
        let levels = [Lm::Async, Lm::Delay(time), Lm::Log(time), Lm::Close, Lm::Sync];
        assert_eq!(levels.map(|lm| lm.waits(false)), [false, false, false, false, true]);
        assert_eq!(levels.map(|lm| lm.waits(true)), [false, false, false, true, true]);
        assert_eq!(levels.map(Lm::closes), [false, false, false, true, true]);
    }

    #[test]
    fn what_it_says_is_what_it_takes() {
        let texts = ["async", "delay:30s", "log:1s", "close", "sync", "delay:1500ms", "log:2min"];
        for text in texts {
            assert_eq!(text.parse::<Lm>().unwrap().to_string(), text);
        }
        assert_eq!("delay:60s".parse::<Lm>().unwrap().to_string(), "delay:1min");
        assert_eq!("delay:24h".parse(), Ok(Lm::Delay(LONGEST)));
        for wrong in ["", "delay", "delay:", "delay:30", "Sync", "log:1s:2", "sync:1s", "delay:-1s"]
        {
            assert_eq!(wrong.parse::<Lm>(), Err(LmError::Unknown(wrong.into())));
        }
        for wrong in ["log:0s", "delay:25h", "delay:2d"] {
            assert_eq!(wrong.parse::<Lm>(), Err(LmError::OutOfRange(wrong.into())));
        }
        assert_eq!(Lm::of_attribute(b"\xff"), None);
        assert_eq!(Lm::of_attribute(b"close"), Some(Lm::Close));
    }
}
