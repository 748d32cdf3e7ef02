//! [MFS table 2]: seconds at 1,024 KB/s, means and deviations of ten runs.

use super::cell::Test;
use super::part::Part;
use segue_bed::peer::system::CONFIGURATIONS;

/// The rate that the table is of.
pub(super) const RATE: u64 = 1024;

/// The figures of its columns, which are our configurations.
type Row = (&'static str, Part, [(f64, f64); 6]);

const ROWS: [Row; 8] = [
    (
        "GC",
        Part::Foreground,
        [(2.9, 0.2), (3.4, 0.4), (3.2, 0.5), (3.1, 0.4), (3.3, 0.5), (3.1, 0.4)],
    ),
    (
        "GC",
        Part::Background,
        [(63.6, 1.0), (63.0, 0.9), (54.4, 11.7), (48.1, 16.9), (60.7, 0.8), (52.6, 11.4)],
    ),
    (
        "GW",
        Part::Foreground,
        [(9.2, 0.5), (8.9, 1.0), (8.4, 0.2), (8.5, 0.2), (8.5, 0.4), (8.1, 0.1)],
    ),
    (
        "GW",
        Part::Background,
        [(10.7, 0.5), (10.8, 0.6), (1.7, 0.5), (1.6, 0.4), (1.7, 0.2), (1.6, 0.2)],
    ),
    (
        "RC",
        Part::Foreground,
        [(19.2, 0.8), (19.5, 0.9), (20.1, 0.8), (20.1, 1.4), (20.3, 1.1), (19.8, 0.7)],
    ),
    (
        "RC",
        Part::Background,
        [(75.7, 1.4), (78.7, 2.3), (65.0, 12.5), (66.0, 11.8), (71.9, 1.3), (68.0, 1.2)],
    ),
    (
        "RW",
        Part::Foreground,
        [(34.7, 1.4), (21.3, 1.4), (35.0, 1.3), (22.3, 1.3), (35.4, 1.7), (21.4, 1.3)],
    ),
    (
        "RW",
        Part::Background,
        [(23.8, 1.2), (40.3, 1.5), (3.4, 0.4), (3.0, 0.1), (3.7, 0.7), (3.1, 0.2)],
    ),
];

/// The paper's mean and standard deviation for this part of this test in this configuration.
pub(super) fn figure(test: &str, part: Part, configuration: &str) -> Option<(f64, f64)> {
    let (.., figures) = ROWS.iter().find(|(name, of, _)| *name == test && *of == part)?;
    let column = CONFIGURATIONS.iter().position(|one| one.name == configuration)?;
    figures.get(column).copied()
}

/// The same where the paper says how much was done: not of grep, which it executes "several times"
/// in a time. Shares of its times still compare.
pub(super) fn comparable(test: Test, part: Part, configuration: &str) -> Option<(f64, f64)> {
    let is_told = part != Part::Foreground || !test.is_repeated();
    figure(test.name, part, configuration).filter(|_| is_told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_and_write_back_do_in_the_paper_what_it_says() {
        let of = |part, configuration| figure("RW", part, configuration).map(|(mean, _)| mean);
        let read = |configuration| of(Part::Foreground, configuration);
        let saved = 1.0 - read("close-priorities").unwrap() / read("close-uniform").unwrap();
        assert!((0.38..0.39).contains(&saved), "{saved}");
        assert_eq!(of(Part::Background, "async-priorities"), Some(3.1));
        assert_eq!(of(Part::LogEmpty, "close-uniform"), None);
        assert_eq!(read("segue"), None);
        let compared = |name| {
            comparable(Test::named(name).unwrap(), Part::Foreground, "close-uniform").is_some()
        };
        assert!(compared("RW") && !compared("GW"), "nobody knows how many greps");
    }
}
