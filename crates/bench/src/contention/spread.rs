//! What the runs of one cell came to.

use std::fmt;

use super::cell::Cell;
use super::measure::Figures;
use crate::measurement::{self, figures_of};

/// One cell once.
pub(super) type Measurement = measurement::Measurement<Cell, Figures>;

/// Whose time it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Foreground,
    Background,
    /// Until the server has everything.
    LogEmpty,
}

impl Part {
    pub(super) const ALL: [Part; 3] = [Part::Foreground, Part::Background, Part::LogEmpty];

    fn of(self, figures: &Figures) -> Option<f64> {
        match self {
            Part::Foreground => figures.foreground_seconds,
            Part::Background => figures.background_seconds,
            Part::LogEmpty => figures.log_empty_seconds,
        }
    }

    /// What a cell's test does there.
    pub(super) fn activity(self, cell: Cell) -> &'static str {
        match self {
            Part::Foreground => cell.test.foreground.map_or("", |one| one.name()),
            Part::Background => cell.test.background.map_or("", |one| one.name()),
            Part::LogEmpty => "log empty",
        }
    }
}

/// Mean and standard deviation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    pub(super) mean: f64,
    pub(super) deviation: f64,
}

impl Spread {
    /// Of the runs that succeeded.
    pub(super) fn of(measured: &[Measurement], cell: Cell, part: Part) -> Option<Spread> {
        let seconds = figures_of(measured, cell).filter_map(|figures| part.of(figures));
        Spread::over(&seconds.collect::<Vec<_>>())
    }

    fn over(values: &[f64]) -> Option<Spread> {
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
pub(super) fn times(one: Option<Spread>, other: Option<Spread>) -> Option<f64> {
    Some(one?.mean / other?.mean)
}

/// A cell of a table.
pub(super) fn shown(figure: Option<impl fmt::Display>) -> String {
    figure.map_or("-".into(), |figure| figure.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_mean_and_deviation() {
        assert_eq!(Spread::over(&[]), None);
        assert_eq!(shown(Spread::over(&[2.0])), "2.0 (0.0)");
        assert_eq!(shown(Spread::over(&[1.0, 2.0, 3.0])), "2.0 (1.0)");
        assert_eq!(shown(Spread::over(&[0.04, 0.06])), "0.050 (0.014)");
        assert_eq!(shown(times(Spread::over(&[3.0]), None)), "-");
    }
}
