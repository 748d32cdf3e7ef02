//! How much of a link a mount may take, and when: `bwlimit`.
//!
//! One limit for all times, or a timetable of local time, in which each entry holds until the
//! next, over the end of the day and of the week. Pure: the time is an argument.
//!
//! ```text
//!   500K:2M                              bytes a second: to the server, from it
//!   08:00,500K:2M 18:00,off              each day
//!   Mon-08:00,500K Fri-18:00,off         in the week
//! ```

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use segue_core::quantity::parse_size;
use segue_core::wire::LIMIT_MIN;

const DAY: u32 = 24 * 60 * 60;
const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
/// Entries of a timetable: every hour of every day.
const ENTRIES_MAX: usize = 7 * 24;

/// Most bytes a second in each direction, `None`: as many as the link takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// From this host to the server.
    pub up: Option<u64>,
    /// From the server to this host.
    pub down: Option<u64>,
}

/// A moment of the week in local time: seconds since Monday began.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct WeekTime(pub u32);

impl WeekTime {
    /// On a day, counted from Monday as 0, so many seconds after it began.
    pub fn new(day: u32, second: u32) -> WeekTime {
        WeekTime((day % 7) * DAY + second % DAY)
    }
}

/// Which limits hold when.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Timetable {
    /// As it was written.
    text: String,
    /// In the order of the week, each moment once; none: nothing is limited.
    entries: Vec<(WeekTime, Limits)>,
}

/// Why a text is no limit: it names what is wrong, and what would be right.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct LimitError(String);

impl Default for Timetable {
    fn default() -> Timetable {
        Timetable { text: "off".into(), entries: Vec::new() }
    }
}

impl fmt::Display for Timetable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

impl Timetable {
    /// The limits at `now`, and for how long; `None`: for ever.
    pub fn at(&self, now: WeekTime) -> (Limits, Option<Duration>) {
        let next = self.entries.partition_point(|(at, _)| *at <= now);
        // Before the first entry of the week the last one of the week before holds.
        let present = next.checked_sub(1).map_or(self.entries.last(), |at| self.entries.get(at));
        let limits = present.map(|(_, limits)| *limits).unwrap_or_default();
        let later = self.entries.iter().skip(next).find(|(_, other)| *other != limits);
        let change = later.map(|(at, _)| at.0).or_else(|| {
            let again = self.entries.iter().find(|(_, other)| *other != limits);
            again.map(|(at, _)| at.0 + 7 * DAY)
        });
        let seconds = change.map(|at| at - now.0.min(at));
        (limits, seconds.map(|seconds| Duration::from_secs(seconds.into())))
    }
}

impl FromStr for Timetable {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Timetable, LimitError> {
        let text = text.trim_matches('"').trim();
        let entries = match text.contains(',') {
            false => match limits(text)? {
                limits if limits == Limits::default() => Vec::new(),
                limits => vec![(WeekTime(0), limits)],
            },
            true => entries(text)?,
        };
        Ok(Timetable { text: text.into(), entries })
    }
}

/// True for the beginning of a timetable that was cut at a comma, as a list of options is: it ends
/// with what is meant for a time.
pub(crate) fn is_cut(text: &str) -> bool {
    let last = text.trim_start_matches('"').split_whitespace().next_back().unwrap_or_default();
    let time = last.split_once('-').map_or(last, |(_, time)| time);
    let is_number = |part: &str, lengths: std::ops::RangeInclusive<usize>| {
        lengths.contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    let parts = time.split_once(':');
    parts.is_some_and(|(hour, minute)| is_number(hour, 1..=2) && is_number(minute, 2..=2))
}

fn entries(text: &str) -> Result<Vec<(WeekTime, Limits)>, LimitError> {
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.len() > ENTRIES_MAX {
        return Err(LimitError(format!("a timetable has at most {ENTRIES_MAX} entries")));
    }
    let mut daily = Vec::new();
    let mut weekly = Vec::new();
    for word in words {
        let (at, limit) = word.split_once(',').ok_or_else(|| wrong(word))?;
        let limits = limits(limit)?;
        let moments = moments(at).ok_or_else(|| wrong(word))?;
        let into = if moments.len() == 1 { &mut weekly } else { &mut daily };
        if moments.iter().any(|moment| into.iter().any(|(other, _)| other == moment)) {
            return Err(LimitError(format!("'{word}': the time {at} occurs twice")));
        }
        into.extend(moments.into_iter().map(|moment| (moment, limits)));
    }
    // What is said of one day goes before what is said of all.
    daily.retain(|(moment, _)| !weekly.iter().any(|(other, _)| other == moment));
    let mut entries = [daily, weekly].concat();
    entries.sort_by_key(|(at, _)| *at);
    Ok(entries)
}

/// When `HH:MM` or `DAY-HH:MM` is in a week.
fn moments(text: &str) -> Option<Vec<WeekTime>> {
    let (day, time) = match text.split_once('-') {
        Some((day, time)) => (Some(day), time),
        None => (None, text),
    };
    let (hour, minute) = time.split_once(':')?;
    let two_digits = |part: &str| match part.as_bytes() {
        [b'0'..=b'9', b'0'..=b'9'] => part.parse::<u32>().ok(),
        _ => None,
    };
    let (hour, minute) = (two_digits(hour)?, two_digits(minute)?);
    if hour > 23 || minute > 59 {
        return None;
    }
    let second = (hour * 60 + minute) * 60;
    match day {
        None => Some((0..7).map(|day| WeekTime::new(day, second)).collect()),
        Some(name) => {
            let day = DAYS.iter().position(|day| day.eq_ignore_ascii_case(name))?;
            Some(vec![WeekTime::new(u32::try_from(day).ok()?, second)])
        }
    }
}

/// `UP:DOWN`, one rate for both directions, or `off`.
fn limits(text: &str) -> Result<Limits, LimitError> {
    match text.split_once(':') {
        Some((up, down)) => Ok(Limits { up: rate(up, text)?, down: rate(down, text)? }),
        None => rate(text, text).map(|both| Limits { up: both, down: both }),
    }
}

fn rate(text: &str, all: &str) -> Result<Option<u64>, LimitError> {
    match text {
        "off" | "0" => return Ok(None),
        _ => {}
    }
    match parse_size(text) {
        Err(_) => Err(wrong(all)),
        Ok(bytes) if bytes < LIMIT_MIN => {
            let words = format!("'{text}' is less than 1K a second; write a limit such as 500K");
            Err(LimitError(words))
        }
        Ok(bytes) => Ok(Some(bytes)),
    }
}

fn wrong(text: &str) -> LimitError {
    LimitError(format!(
        "'{text}' is not UP:DOWN in bytes a second such as 500K:2M, off:2M or off, nor an entry of \
         a timetable such as \"08:00,500K:2M 18:00,off\" or \"Mon-08:00,500K:2M Fri-18:00,off\""
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MINUTE: u32 = 60;
    const HOUR: u32 = 60 * MINUTE;

    fn both(up: u64, down: u64) -> Limits {
        let some = |rate| (rate > 0).then_some(rate << 10);
        Limits { up: some(up), down: some(down) }
    }

    /// The limits on a day at an hour, and hours until they change.
    fn at(text: &str, day: u32, hour: u32) -> (Limits, Option<u64>) {
        let table: Timetable = text.parse().unwrap();
        let (limits, time) = table.at(WeekTime::new(day, hour * HOUR));
        (limits, time.map(|time| time.as_secs() / u64::from(HOUR)))
    }

    #[test]
    fn one_limit_holds_for_ever() {
        for (text, expected) in [
            ("500K:2M", both(500, 2048)),
            ("\"500K:2M\"", both(500, 2048)),
            ("off:2M", both(0, 2048)),
            ("1KiB:0", both(1, 0)),
            ("64K", both(64, 64)),
            ("off", both(0, 0)),
            ("0", both(0, 0)),
            ("0:off", both(0, 0)),
        ] {
            assert_eq!(at(text, 3, 17), (expected, None), "{text}");
        }
    }

    #[test]
    fn an_entry_holds_until_the_next_over_midnight() {
        let table = "08:00,500K:2M 18:00,off";
        assert_eq!(at(table, 0, 8), (both(500, 2048), Some(10)));
        assert_eq!(at(table, 4, 17), (both(500, 2048), Some(1)));
        assert_eq!(at(table, 4, 18), (both(0, 0), Some(14)));
        assert_eq!(at(table, 0, 0), (both(0, 0), Some(8)), "of the week before");
        assert_eq!(at(table, 6, 23), (both(0, 0), Some(9)), "into the next week");
        // In whatever order they are written.
        assert_eq!(at("18:00,off 08:00,500K:2M", 4, 17), (both(500, 2048), Some(1)));
    }

    #[test]
    fn days_have_names_and_go_before_what_is_daily() {
        let table = "Mon-08:00,64K fri-18:00,off";
        assert_eq!(at(table, 0, 7), (both(0, 0), Some(1)));
        assert_eq!(at(table, 3, 0), (both(64, 64), Some(42)));
        assert_eq!(at(table, 6, 0), (both(0, 0), Some(32)));
        let table = "08:00,64K Sat-08:00,off 20:00,32K";
        assert_eq!(at(table, 4, 8), (both(64, 64), Some(12)));
        assert_eq!(at(table, 5, 8), (both(0, 0), Some(12)));
    }

    #[test]
    fn entries_that_change_nothing_end_nothing() {
        assert_eq!(at("08:00,64K 12:00,64K 20:00,off", 0, 9), (both(64, 64), Some(11)));
        assert_eq!(at("08:00,64K 20:00,64K", 0, 9), (both(64, 64), None));
    }

    #[test]
    fn mistakes_are_named_with_what_would_be_right() {
        for (text, named) in [
            ("", "''"),
            ("fast", "'fast'"),
            ("5X:1M", "'5X:1M'"),
            ("1M:", "'1M:'"),
            ("1M:1M:1M", "'1M:1M:1M'"),
            ("-1:1M", "'-1:1M'"),
            ("500:2000K", "'500:2000K'"),
            ("500B:2000K", "'500B' is less than 1K"),
            ("8:00,1M", "'8:00,1M'"),
            ("24:00,1M", "'24:00,1M'"),
            ("08:00,1M 18:00", "'18:00'"),
            ("Mo-08:00,1M", "'Mo-08:00,1M'"),
            ("08:00,1M 08:00,2M", "the time 08:00 occurs twice"),
            ("08:00,fast", "'fast'"),
        ] {
            let error = text.parse::<Timetable>().unwrap_err().to_string();
            assert!(error.contains(named) && error.contains("500K") | error.contains("twice"));
        }
        let many = "08:00,1M ".repeat(ENTRIES_MAX + 1);
        assert!(many.parse::<Timetable>().is_err());
    }

    #[test]
    fn a_timetable_that_is_cut_at_a_comma_is_known() {
        for cut in ["08:00", "08:00,64K 18:00", "Mon-08:00", "\"08:00", "8:00", "1:00,2K 25:00"] {
            assert!(is_cut(cut), "{cut}");
        }
        for whole in ["", "500K:2M", "2048:4096", "08:00,64K", "08:00,64K 18:00,off", "64K"] {
            assert!(!is_cut(whole), "{whole}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_timetable_or_an_error(text in "[0-9a-zKM:,\" -]{0,40}") {
            let _ = text.parse::<Timetable>();
            let _ = is_cut(&text);
        }

        /// What is said to hold until a moment holds at each moment before it and not then.
        #[test]
        fn limits_hold_for_as_long_as_is_said(
            hours in prop::collection::btree_map(0..24u32, 1..4u64, 1..5),
            now in 0..7 * DAY,
            part in 0.0..1.0f64,
        ) {
            let words = hours.iter().map(|(hour, rate)| format!("{hour:02}:00,{rate}K"));
            let table: Timetable = words.collect::<Vec<_>>().join(" ").parse().unwrap();
            let later = |time: Duration| {
                WeekTime((now + u32::try_from(time.as_secs()).unwrap()) % (7 * DAY))
            };
            let (limits, time) = table.at(WeekTime(now));
            let Some(time) = time else { return Ok(()) };
            prop_assert!(time > Duration::ZERO && time <= Duration::from_secs((7 * DAY).into()));
            prop_assert_eq!(table.at(later(time.mul_f64(part))).0, limits);
            prop_assert_ne!(table.at(later(time)).0, limits);
        }
    }
}
