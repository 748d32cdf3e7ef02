//! What several runs of the same came to.

use std::fmt;

/// Mean and standard deviation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) mean: f64,
    pub(crate) deviation: f64,
}

impl Spread {
    /// Of no values there is none.
    pub(crate) fn over(values: impl Iterator<Item = f64>) -> Option<Spread> {
        let values: Vec<f64> = values.collect();
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        // Of a sample: of one value there is none.
        let deviation = (squares / (count - 1.0).max(1.0)).sqrt();
        (!values.is_empty()).then_some(Spread { mean, deviation })
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = if self.mean < 1.0 { 3 } else { 1 };
        write!(f, "{:.digits$} ({:.digits$})", self.mean, self.deviation)
    }
}

/// How many times `other` one is.
pub(crate) fn times(one: Option<Spread>, other: Option<Spread>) -> Option<f64> {
    Some(one?.mean / other?.mean)
}

/// A cell of a table.
pub(crate) fn shown(figure: Option<impl fmt::Display>) -> String {
    figure.map_or("-".into(), |figure| figure.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_mean_and_deviation() {
        let over = |values: &[f64]| Spread::over(values.iter().copied());
        assert_eq!(over(&[]), None);
        assert_eq!(shown(over(&[2.0])), "2.0 (0.0)");
        assert_eq!(shown(over(&[1.0, 2.0, 3.0])), "2.0 (1.0)");
        assert_eq!(shown(over(&[0.04, 0.06])), "0.050 (0.014)");
        assert_eq!(shown(times(over(&[3.0]), None)), "-");
    }
}
