//! The figures of several runs: their median, the least and the greatest.
//!
//! The median of fewer than three runs would mean nothing. Of one run a table shows the figure, of
//! two runs both figures; where there is place for one number only, it is their mean.

use std::fmt;

/// The figures of some runs; never none.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Spread {
    /// In ascending order.
    values: Vec<f64>,
}

impl Spread {
    /// Of no values there is none.
    pub(crate) fn over(values: impl Iterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        (!values.is_empty()).then_some(Spread { values })
    }

    /// The middle value; of an even number, the mean of the two in the middle.
    pub(crate) fn median(&self) -> f64 {
        median(self.values.iter().copied()).unwrap_or(f64::NAN)
    }

    pub(crate) fn least(&self) -> f64 {
        self.values.first().copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn greatest(&self) -> f64 {
        self.values.last().copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn runs(&self) -> usize {
        self.values.len()
    }

    /// A cell of a table, with so many digits behind the point.
    pub(crate) fn cell(&self, digits: usize) -> String {
        let shown = |value| grouped(value, digits);
        match self.values.as_slice() {
            [only] => shown(*only),
            [one, other] => format!("{} / {}", shown(*one), shown(*other)),
            _ => {
                let [median, least, greatest] =
                    [self.median(), self.least(), self.greatest()].map(shown);
                format!("{median} ({least}-{greatest})")
            }
        }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cell(if self.median() < 1.0 { 3 } else { 1 }))
    }
}

/// The sentence by which a table of so many runs explains its figures.
pub(crate) fn caption(runs: usize) -> String {
    match runs {
        0 => "No run has succeeded.".into(),
        1 => "1 run.".into(),
        2 => "2 runs: both figures, or their mean where one stands alone.".into(),
        _ => format!("Medians of {runs} runs; in brackets the least and the greatest."),
    }
}

/// A figure that is counted or measured.
pub(crate) trait Figure: PartialOrd + Copy {
    /// Half way to `other`, which is not less; of whole numbers, the whole number below.
    fn halfway(self, other: Self) -> Self;
}

impl Figure for f64 {
    fn halfway(self, other: f64) -> f64 {
        f64::midpoint(self, other)
    }
}

impl Figure for u64 {
    fn halfway(self, other: u64) -> u64 {
        u64::midpoint(self, other)
    }
}

impl Figure for usize {
    fn halfway(self, other: usize) -> usize {
        usize::midpoint(self, other)
    }
}

/// The middle value; of an even number, the mean of the two in the middle.
pub(crate) fn median<T: Figure>(values: impl Iterator<Item = T>) -> Option<T> {
    let mut values: Vec<T> = values.collect();
    values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    let upper = *values.get(values.len() / 2)?;
    let lower = *values.get(values.len().checked_sub(1)? / 2)?;
    Some(lower.halfway(upper))
}

/// How many times `other` one is, by their medians.
pub(crate) fn times(one: Option<&Spread>, other: Option<&Spread>) -> Option<f64> {
    Some(one?.median() / other?.median())
}

/// A cell of a table.
pub(crate) fn shown(figure: Option<impl fmt::Display>) -> String {
    figure.map_or("-".into(), |figure| figure.to_string())
}

/// A figure with a comma before each three digits of its whole part.
pub(crate) fn grouped(figure: f64, digits: usize) -> String {
    let plain = format!("{figure:.digits$}");
    let whole = plain.split('.').next().unwrap_or_default();
    let mut text = String::new();
    for (at, digit) in plain.chars().enumerate() {
        let left = whole.len().saturating_sub(at);
        let follows_digit = text.ends_with(|last: char| last.is_ascii_digit());
        if follows_digit && left > 0 && left.is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(values: &[f64]) -> Option<Spread> {
        Spread::over(values.iter().copied())
    }

    #[test]
    fn the_median_of_an_even_number_is_the_mean_of_the_two_in_the_middle() {
        let of = |values: &[f64]| median(values.iter().copied());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[7.0]), Some(7.0));
        assert_eq!(of(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(of(&[9.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(of(&[4.0, 2.0]), Some(3.0));
        assert_eq!(median([1u64, 2].into_iter()), Some(1));
        assert_eq!(median([1usize, 3, 8].into_iter()), Some(3));
    }

    #[test]
    fn a_cell_has_the_range_of_three_runs_and_each_figure_of_fewer() {
        assert_eq!(over(&[]), None);
        assert_eq!(shown(over(&[])), "-");
        assert_eq!(shown(over(&[2.0])), "2.0");
        assert_eq!(shown(over(&[3.0, 1.0])), "1.0 / 3.0");
        assert_eq!(shown(over(&[5.0, 1.0, 2.0])), "2.0 (1.0-5.0)");
        assert_eq!(shown(over(&[0.04, 0.06])), "0.040 / 0.060");
        assert_eq!(over(&[1234.0, 5.0, 99_999.6]).unwrap().cell(0), "1,234 (5-100,000)");
    }

    #[test]
    fn a_caption_says_how_many_runs_there_are() {
        assert_eq!(caption(1), "1 run.");
        assert!(caption(2).starts_with("2 runs: both figures"));
        assert!(caption(3).starts_with("Medians of 3 runs"));
        assert!(!caption(2).contains("edian"));
    }

    #[test]
    fn ratios_are_of_medians() {
        let (one, other) = (over(&[1.0, 3.0, 8.0]), over(&[2.0]));
        assert_eq!(times(one.as_ref(), other.as_ref()), Some(1.5));
        assert_eq!(times(one.as_ref(), None), None);
    }

    #[test]
    fn digits_stand_in_groups_of_three() {
        let texts = [(-1234.5, 1), (999.0, 0), (1_000_000.0, 0), (1000.25, 2), (-100.0, 0)]
            .map(|(figure, digits)| grouped(figure, digits));
        assert_eq!(texts, ["-1,234.5", "999", "1,000,000", "1,000.25", "-100"]);
    }
}
