//! Whose time it is that a test takes.

use super::cell::{Cell, Test};
use super::measure::Figures;
use crate::measurement::{self, figures_of};
use crate::spread::Spread;

/// One cell once.
pub(super) type Measurement = measurement::Measurement<Cell, Figures>;

/// Whose time it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Foreground,
    /// The longest of a foreground's passes.
    Slowest,
    Background,
    /// Until the server has everything.
    LogEmpty,
}

impl Part {
    pub(super) const ALL: [Part; 4] =
        [Part::Foreground, Part::Slowest, Part::Background, Part::LogEmpty];

    /// Those that `test` has.
    pub(super) fn of_test(test: Test) -> impl Iterator<Item = Part> {
        Part::ALL.into_iter().filter(move |part| *part != Part::Slowest || test.is_repeated())
    }

    /// What it came to in the runs of `cell` that succeeded.
    pub(super) fn spread(self, measured: &[Measurement], cell: Cell) -> Option<Spread> {
        Spread::over(figures_of(measured, cell).filter_map(|figures| self.of(figures)))
    }

    fn of(self, figures: &Figures) -> Option<f64> {
        match self {
            Part::Foreground => figures.foreground_seconds,
            Part::Slowest => figures.slowest_seconds,
            Part::Background => figures.background_seconds,
            Part::LogEmpty => figures.log_empty_seconds,
        }
    }

    /// What a cell's test does there.
    pub(super) fn activity(self, cell: Cell) -> &'static str {
        match self {
            Part::Foreground => cell.test.foreground.map_or("", |one| one.name()),
            Part::Background => cell.test.background.map_or("", |one| one.name()),
            Part::Slowest => "slowest pass",
            Part::LogEmpty => "log empty",
        }
    }
}
