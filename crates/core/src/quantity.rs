//! Sizes and times as people write and read them: `1.5G`, `20GiB`, `10min`, `12.5 MiB`.
//!
//! As in the GNU core utilities, `K` and `KiB` are 1,024 bytes and `KB` is 1,000; so with M, G, T
//! and P. A number without a unit means something else to each reader, and is refused.

use std::borrow::Cow;
use std::time::Duration;

use bytesize::ByteSize;

/// Reads a time with its unit: `500ms`, `30s`, `10min` or `10m`, `1h 30m`, `7d`.
///
/// # Errors
/// What a time looks like, if `text` is none.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|_| "a time is a number with a unit: 500ms, 30s, 10min, 1h or 7d".to_owned())
}

/// Reads a size with its unit, or a rate in bytes per second: `500K`, `10M`, `1.5G`, `20GiB`,
/// `2TB`. 0 needs no unit.
///
/// # Errors
/// What a size looks like, if `text` is none, or that it is larger than any disk.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || {
        "a size is a number with a unit: 512B, 500K, 10M, 1.5G or 20GiB (K is 1,024 bytes, KB is \
         1,000)"
            .to_owned()
    };
    let number = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let size: ByteSize = match number.trim_start() {
        "" if text != "0" => return Err(wrong()),
        "K" | "k" | "M" | "m" | "G" | "g" | "T" | "t" | "P" | "p" => Cow::from(format!("{text}iB")),
        _ => Cow::from(text),
    }
    .parse()
    .map_err(|_| wrong())?;
    match size.as_u64() {
        u64::MAX => Err("the size is too large".to_owned()),
        bytes => Ok(bytes),
    }
}

/// `1.5 MiB`, rounded down to one digit.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut unit = 0;
    let mut scale = 1_u64;
    while unit + 1 < UNITS.len() && count / scale >= 1024 {
        scale *= 1024;
        unit += 1;
    }
    let name = UNITS.get(unit).unwrap_or(&"B");
    if unit == 0 {
        return format!("{count} {name}");
    }
    let tenths = u128::from(count) * 10 / u128::from(scale);
    format!("{}.{} {name}", tenths / 10, tenths % 10)
}

/// `3 s`, `5 min`, `2 h`, `4 d`: a time, rounded down to one unit.
pub fn age(time: Duration) -> String {
    match time.as_secs() {
        s @ 0..60 => format!("{s} s"),
        s @ 60..3_600 => format!("{} min", s / 60),
        s @ 3_600..86_400 => format!("{} h", s / 3_600),
        s => format!("{} d", s / 86_400),
    }
}

/// `1 record`, `2 records`.
pub fn count(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_need_a_unit() {
        for (text, seconds) in
            [("1h", 3_600), ("10m", 600), ("10min", 600), ("1h 30m", 5_400), ("1.5h", 5_400)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        for wrong in ["", "5", "s", "5x", "-5s", "99999999999999999999s", "99999999999999y"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_need_a_unit() {
        for (text, bytes) in [
            ("0", 0),
            ("4096B", 4096),
            ("500K", 500 << 10),
            ("500k", 500 << 10),
            ("20GiB", 20 << 30),
            ("20 GiB", 20 << 30),
            ("20GB", 20_000_000_000),
            ("1.5G", 3 << 29),
            ("2T", 2 << 40),
            ("8M", 8 << 20),
            ("8mb", 8_000_000),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        let wrong = [
            "",
            "M",
            "4096",
            "1.5",
            "-1",
            "-1M",
            "10X",
            "1..5M",
            "+1M",
            "1e3M",
            "infM",
            "10MM",
            "99999999999T",
            "18446744073709551615B",
            "K0",
            "1 2M",
            "١M",
        ];
        for wrong in wrong {
            assert!(parse_size(wrong).is_err(), "{wrong}: {:?}", parse_size(wrong));
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_size_and_a_time_or_refused(text in ".{0,12}") {
            parse_size(&text).ok();
            parse_duration(&text).ok();
        }
    }

    #[test]
    fn sizes_keep_one_digit() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1_023), "1023 B");
        assert_eq!(bytes(1_536), "1.5 KiB");
        assert_eq!(bytes(20 << 30), "20.0 GiB");
        assert_eq!(bytes(u64::MAX), "16383.9 PiB");
    }

    #[test]
    fn one_is_singular() {
        assert_eq!(count(1, "record"), "1 record");
        assert_eq!(count(0, "record"), "0 records");
    }
}
