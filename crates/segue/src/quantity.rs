//! Times and sizes as text with units: `1h`, `30s`, `12.5 MB`.

use std::time::Duration;

/// Bytes of one MB in all texts of this program.
pub(crate) const MB: u64 = 1 << 20;

/// Reads a time with its unit: `500ms`, `30s`, `10m`, `1h`, `7d`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err("a time needs a unit: 500ms, 30s, 10m, 1h or 7d".to_owned()),
    };
    let count: u64 = number
        .parse()
        .map_err(|_| "a time is a whole number with a unit, such as 30s".to_owned())?;
    count.checked_mul(millis).map(Duration::from_millis).ok_or("the time is too long".to_owned())
}

/// Reads a size with its unit: `500K`, `10M`, `20G`, `2T`, or bytes without one.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong = || "a size is a number with a unit: 500K, 10M, 20G or 2T".to_owned();
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let shift = match unit.to_ascii_uppercase().trim_end_matches('B') {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(wrong()),
    };
    let count: u64 = number.parse().map_err(|_| wrong())?;
    count.checked_mul(1 << shift).ok_or("the size is too large".to_owned())
}

/// `1.5 MB`; 1 KB is 1,024 bytes, as in the measurements.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KB", "MB", "GB", "TB", "PB"];
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
pub(crate) fn age(time: Duration) -> String {
    match time.as_secs() {
        s @ 0..60 => format!("{s} s"),
        s @ 60..3_600 => format!("{} min", s / 60),
        s @ 3_600..86_400 => format!("{} h", s / 3_600),
        s => format!("{} d", s / 86_400),
    }
}

/// `1 record`, `2 records`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_need_a_unit() {
        assert_eq!(parse_duration("1h"), Ok(Duration::from_secs(3_600)));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        for wrong in ["", "5", "s", "5x", "-5s", "1.5h", "99999999999999999999s"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_read_with_their_units() {
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert_eq!(parse_bytes("500K"), Ok(500 << 10));
        assert_eq!(parse_bytes("20GB"), Ok(20 << 30));
        for wrong in ["", "M", "1.5G", "-1", "10X", "99999999999T"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_keep_one_digit() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1_023), "1023 B");
        assert_eq!(bytes(1_536), "1.5 KB");
        assert_eq!(bytes(20 << 30), "20.0 GB");
        assert_eq!(bytes(u64::MAX), "16383.9 PB");
    }

    #[test]
    fn one_is_singular() {
        assert_eq!(count(1, "record"), "1 record");
        assert_eq!(count(0, "record"), "0 records");
    }
}
