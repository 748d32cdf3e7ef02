//! The names of conflict copies: `NAME.conflict-HOST-TIME`, with the time of the change in UTC,
//! from the second one on with `-NUMBER`. NAME is cut where all of it would be too long.
//!
//! HOST is made so that the last `.conflict-` of a copy's name is where NAME ends.

use crate::nouns::{NAME_MAX, Name, Timestamp};
use crate::refusal::Refusal;

/// Between the two.
const MARK: &str = ".conflict-";
/// Longest part of a host's name that goes into the name of a copy, in bytes.
const HOST_MAX: usize = 64;
/// Where a name is cut these go at most of a character that would be cut.
const PART_MAX: usize = 3;

/// What copy `number` of `name` is called that `host` makes, which is a [`host_name`].
pub(super) fn copy_name(
    name: &Name,
    host: &str,
    time: Timestamp,
    number: u32,
) -> Result<Name, Refusal> {
    let mut suffix = format!("{MARK}{host}-{}", utc(time.secs));
    if number > 1 {
        suffix.push_str(&format!("-{number}"));
    }
    let room = NAME_MAX.saturating_sub(suffix.len());
    let mut bytes = shortened(name.as_bytes(), room).to_vec();
    bytes.extend_from_slice(suffix.as_bytes());
    Ok(Name::new(bytes)?)
}

/// The name beside which a conflict copy called `copy` stands; `None` if that is no copy's name, or
/// one so long that it may have been cut.
pub fn original_name(copy: &[u8]) -> Option<&[u8]> {
    let at = copy.windows(MARK.len()).rposition(|bytes| bytes == MARK.as_bytes())?;
    let (name, suffix) = copy.split_at_checked(at)?;
    let suffix = str::from_utf8(suffix.get(MARK.len()..)?).ok()?;
    let is_whole = copy.len() < NAME_MAX - PART_MAX && !name.is_empty();
    (is_whole && is_host_and_time(suffix)).then_some(name)
}

/// `HOST-YYYYMMDD-HHMMSS`, or that with `-NUMBER`.
fn is_host_and_time(text: &str) -> bool {
    let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let ends = |text: &str| {
        let (rest, time) = text.rsplit_once('-')?;
        let (host, date) = rest.rsplit_once('-')?;
        let is_time = (date.len(), time.len()) == (8, 6) && is_digits(date) && is_digits(time);
        Some(is_time && !host.is_empty())
    };
    let numbered = || text.rsplit_once('-').filter(|(_, number)| is_digits(number));
    ends(text) == Some(true) || numbered().and_then(|(rest, _)| ends(rest)) == Some(true)
}

/// The first `room` bytes, fewer where a character of UTF-8 would be cut.
fn shortened(name: &[u8], room: usize) -> &[u8] {
    let begins = |at: &usize| name.get(*at).is_none_or(|byte| byte & 0xC0 != 0x80);
    let ends = (room.saturating_sub(PART_MAX)..=room).rev().find(begins);
    // What is no UTF-8 has no such place.
    name.get(..ends.unwrap_or(room)).unwrap_or(name)
}

/// A host's name as part of a file's.
pub(super) fn host_name(host: &str) -> String {
    let fit = |c: &char| c.is_ascii_alphanumeric() || "._-".contains(*c);
    let name: String = host.chars().filter(fit).take(HOST_MAX).collect();
    let name = name.replace(".conflict", "_conflict");
    if name.trim_matches('.').is_empty() { "host".to_owned() } else { name }
}

/// `20261121-083959`: a time in UTC, by the proleptic Gregorian calendar.
pub fn utc(secs: i64) -> String {
    let (days, second) = (secs.div_euclid(86_400), secs.rem_euclid(86_400));
    // Days since 0000-03-01, in eras of 400 years, so that leap days end a year.
    let since = days + 719_468;
    let (era, day) = (since.div_euclid(146_097), since.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + next;
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Proves S9.3.
    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(utc(0), "19700101-000000");
        assert_eq!(utc(-1), "19691231-235959");
        assert_eq!(utc(951_782_400), "20000229-000000");
        assert_eq!(utc(1_795_250_399), "20261121-083959");
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        let name = Name::new("ä".repeat(127)).unwrap();
        let copy = copy_name(&name, "tin", Timestamp::default(), 2).unwrap();
        let copy = String::from_utf8(copy.as_bytes().to_vec()).unwrap();
        assert!(copy.starts_with("ää") && copy.ends_with("ä.conflict-tin-19700101-000000-2"));
        assert!(copy.len() <= NAME_MAX && copy.len() >= NAME_MAX - 1);
    }

    #[test]
    fn any_host_name_makes_a_name() {
        assert_eq!(host_name("../a b/ü"), "..ab");
        assert_eq!(host_name(".."), "host");
        assert_eq!(host_name(""), "host");
        assert_eq!(host_name(&"x".repeat(300)).len(), HOST_MAX);
    }

    #[test]
    fn other_names_are_no_copies() {
        let time = "20261123-101500";
        let known = |name: &str| original_name(name.as_bytes()).is_some();
        assert!(
            known(&format!("a.conflict-tin-{time}")) && known(&format!("a.conflict-t-{time}-2"))
        );
        for other in [
            "a".to_owned(),
            "a.conflict-tin".to_owned(),
            "a.conflict-tin-1-2".to_owned(),
            format!(".conflict-tin-{time}"),
            format!("a.conflict-{time}"),
            format!("a.conflict-{time}-2"),
            format!("a.conflict-tin-{time}-x"),
            format!("a.conflict-tin-{time}.txt"),
            "a.conflict-tin-2026112x-101500".to_owned(),
        ] {
            assert!(!known(&other), "{other}");
        }
    }

    /// Bytes that make names which are hard to tell from others.
    fn part() -> impl Strategy<Value = Vec<u8>> {
        let texts =
            [".conflict-", ".conflict", "-20261123-101500", "tin", ".", "-", "7", "ä", "漢"];
        let texts = texts.map(|text| text.as_bytes().to_vec()).to_vec();
        prop_oneof![4 => prop::sample::select(texts), 1 => (0x80_u8..).prop_map(|byte| vec![byte])]
    }

    proptest! {
        #[test]
        fn a_copy_says_what_it_stands_beside_unless_that_was_cut(
            parts in prop::collection::vec(part(), 1..80),
            host in prop::collection::vec(part(), 0..20),
            secs in -60_000_000_000_i64..250_000_000_000,
            number in 1_u32..10_000,
        ) {
            let mut bytes = parts.concat();
            bytes.truncate(NAME_MAX);
            let Ok(name) = Name::new(bytes) else { return Ok(()) };
            let host = host_name(&String::from_utf8_lossy(&host.concat()));
            let copy = copy_name(&name, &host, Timestamp { secs, nanos: 0 }, number).unwrap();
            let suffix = format!(".conflict-{host}-{}", utc(secs));
            let whole = [name.as_bytes(), suffix.as_bytes()].concat();
            let copy = copy.as_bytes();
            match original_name(copy) {
                Some(original) => prop_assert_eq!(original, name.as_bytes()),
                None => {
                    prop_assert!(!copy.starts_with(&whole) || copy.len() >= NAME_MAX - PART_MAX);
                }
            }
        }
    }
}
