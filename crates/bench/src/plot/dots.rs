//! Dots on an axis: a row for each system, with the range of its runs, its target and the paper's
//! figure.
//!
//! The axis is logarithmic where values differ much. So it has no bars, whose lengths would mean
//! nothing there.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::legend::{self, Mark};
use super::{Drawn, LETTER_WIDTH, Part, WIDTH, letters, pixels, text_width, title_letters};
use crate::spread::Spread;

const ROW_HEIGHT: u32 = 22;
/// Title and legend above the rows, the axis below them.
const ABOVE: u32 = 52;
const BELOW: u32 = 48;
const MARGIN: i32 = 30;
const GAP: i32 = 10;
/// The longest part of a label that is shown, in letters.
const LABEL_MAX: usize = 52;
/// Values that differ by more stand on a logarithmic axis.
const LINEAR_TIMES: f64 = 15.0;
/// Room beside the outermost values.
const ROOM: f64 = 1.12;

/// Rows on one axis.
#[derive(Debug)]
pub(crate) struct Panel {
    pub(crate) title: String,
    /// The axis's name and unit.
    pub(crate) axis: &'static str,
    /// The meaning of a row's second value.
    pub(crate) later: &'static str,
    pub(crate) rows: Vec<Row>,
}

/// One row; without a value, only its label.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) label: String,
    pub(crate) value: Option<Spread>,
    /// A second value, as a ring.
    pub(crate) later: Option<f64>,
    /// The value that is asked for.
    pub(crate) target: Option<f64>,
    /// The paper's mean and standard deviation.
    pub(crate) paper: Option<(f64, f64)>,
}

impl Row {
    /// A row without values.
    pub(crate) fn named(label: impl Into<String>) -> Row {
        Row { label: label.into(), value: None, later: None, target: None, paper: None }
    }

    fn values(&self) -> impl Iterator<Item = f64> {
        let range = self.value.iter().flat_map(|spread| [spread.least(), spread.greatest()]);
        range.chain(self.later).chain(self.target).chain(self.paper.map(|(mean, _)| mean))
    }
}

impl Panel {
    /// A panel whose rows have one value each.
    pub(crate) fn new(title: impl Into<String>, axis: &'static str, rows: Vec<Row>) -> Panel {
        Panel { title: title.into(), axis, later: "", rows }
    }

    /// As parts of a plot.
    pub(crate) fn parts(panels: Vec<Panel>) -> Vec<Part> {
        panels.into_iter().map(Part::Dots).collect()
    }

    pub(super) fn height(&self) -> u32 {
        ABOVE + BELOW + ROW_HEIGHT * u32::try_from(self.rows.len()).unwrap_or(0)
    }

    pub(super) fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Drawn<B> {
        let scale = Scale::of(self.rows.iter().flat_map(Row::values));
        let widest = self.rows.iter().map(|row| label(row).chars().count()).max().unwrap_or(0);
        let widest = u32::try_from(widest).unwrap_or(0) * LETTER_WIDTH;
        let (left, right) = (MARGIN + widest.cast_signed() + GAP, WIDTH.cast_signed() - MARGIN);
        let at = |value: f64| left + pixels(scale.share(value) * f64::from(right - left));
        area.draw_text(&self.title, &title_letters(), (MARGIN, 18))?;
        legend::draw(area, &self.legend(), (left, 38))?;

        let top = ABOVE.cast_signed();
        let bottom = (self.height() - BELOW).cast_signed();
        let line = |from, to, style| area.draw(&PathElement::new(vec![from, to], style));
        for (value, text) in scale.ticks() {
            let x = at(value);
            line((x, top), (x, bottom), BLACK.mix(0.15).stroke_width(1))?;
            area.draw_text(&text, &letters(HPos::Center, VPos::Top), (x, bottom + 4))?;
        }
        line((left, bottom), (right, bottom), BLACK.stroke_width(1))?;
        let middle = (left + right) / 2;
        area.draw_text(self.axis, &letters(HPos::Center, VPos::Top), (middle, bottom + 24))?;

        let step = ROW_HEIGHT.cast_signed();
        for (row, number) in self.rows.iter().zip(0..) {
            let y = top + step * number + step / 2;
            area.draw_text(&label(row), &letters(HPos::Right, VPos::Center), (left - GAP, y))?;
            draw_row(area, row, y, at)?;
        }
        Ok(())
    }

    fn legend(&self) -> Vec<(Mark, &str)> {
        let has = |is: &dyn Fn(&Row) -> bool| self.rows.iter().any(is);
        let runs = self.rows.iter().filter_map(|row| row.value.as_ref()).map(Spread::runs).max();
        let value = match runs {
            Some(3..) => "median",
            Some(2) => "mean of 2 runs",
            _ => "1 run",
        };
        let marks = [
            (has(&|row| row.value.is_some()), Mark::Dot, value),
            (runs > Some(1), Mark::Range, "least to greatest"),
            (has(&|row| row.later.is_some()), Mark::Ring, self.later),
            (has(&|row| row.target.is_some()), Mark::Stroke, "target"),
            (has(&|row| row.paper.is_some()), Mark::Cross, "the paper's"),
        ];
        marks.into_iter().filter(|(is, ..)| *is).map(|(_, mark, text)| (mark, text)).collect()
    }
}

fn draw_row<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    row: &Row,
    y: i32,
    at: impl Fn(f64) -> i32,
) -> Drawn<B> {
    let between = |least: f64, greatest: f64, style: ShapeStyle| {
        area.draw(&PathElement::new(vec![(at(least), y), (at(greatest), y)], style))
    };
    if let Some(target) = row.target {
        Mark::Stroke.draw(area, (at(target), y))?;
    }
    if let Some((mean, deviation)) = row.paper {
        between(mean - deviation, mean + deviation, BLACK.mix(0.4).stroke_width(1))?;
        Mark::Cross.draw(area, (at(mean), y))?;
    }
    if let Some(value) = &row.value {
        between(value.least(), value.greatest(), legend::range_style())?;
    }
    if let Some(later) = row.later {
        Mark::Ring.draw(area, (at(later), y))?;
    }
    match &row.value {
        Some(value) => Mark::Dot.draw(area, (at(value.median()), y)),
        None => Ok(()),
    }
}

fn label(row: &Row) -> String {
    row.label.chars().take(LABEL_MAX).collect()
}

/// From values to places between 0 and 1.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Scale {
    low: f64,
    high: f64,
    is_logarithmic: bool,
}

impl Scale {
    /// The scale on which all of these stand.
    fn of(values: impl Iterator<Item = f64>) -> Scale {
        let values: Vec<f64> = values.filter(|value| value.is_finite() && *value >= 0.0).collect();
        let high = values.iter().copied().fold(0.0, f64::max);
        let above_0 = || values.iter().copied().filter(|value| *value > 0.0);
        let low = above_0().fold(high, f64::min);
        if high == 0.0 {
            Scale { low: 0.0, high: 1.0, is_logarithmic: false }
        } else if high / low > LINEAR_TIMES {
            Scale { low: low / ROOM, high: high * ROOM, is_logarithmic: true }
        } else {
            Scale { low: 0.0, high: high * ROOM, is_logarithmic: false }
        }
    }

    fn share(self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        if self.is_logarithmic {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        }
    }

    /// The values that the axis names.
    fn ticks(self) -> Vec<(f64, String)> {
        let mut ticks = if self.is_logarithmic { self.powers() } else { self.steps() };
        // Those whose text would touch the text before are left out.
        let mut end = f64::NEG_INFINITY;
        ticks.retain(|(value, text)| {
            let half = f64::from(text_width(text)) / f64::from(WIDTH);
            let at = self.share(*value);
            let fits = at - half > end;
            end = if fits { at + half } else { end };
            fits
        });
        ticks
    }

    /// 1, 2 and 5 of each power of ten; of many powers, only 1.
    fn powers(self) -> Vec<(f64, String)> {
        let (first, last) = (pixels(self.low.log10().floor()), pixels(self.high.log10().ceil()));
        let factors: &[f64] = if last - first > 4 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let all = (first..=last).flat_map(|power| {
            factors.iter().map(move |factor| (power, factor * 10f64.powi(power)))
        });
        let inside = all.filter(|(_, value)| (self.low..=self.high).contains(value));
        inside.map(|(power, value)| (value, named(value, power))).collect()
    }

    /// Some four to eight multiples of 1, 2 or 5.
    fn steps(self) -> Vec<(f64, String)> {
        let rough = self.high / 8.0;
        let power = pixels(rough.log10().floor());
        let ten = 10f64.powi(power);
        let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * ten >= rough);
        let (step, power) = factor.map_or((10.0 * ten, power + 1), |factor| (factor * ten, power));
        let values = (0..=10).map(|number| f64::from(number) * step);
        let inside = values.take_while(|value| *value <= self.high);
        inside.map(|value| (value, named(value, power))).collect()
    }
}

/// A value with the digits that a step of this power of ten needs.
fn named(value: f64, power: i32) -> String {
    let digits = usize::try_from(-power).unwrap_or(0);
    crate::spread::grouped(value, digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(scale: Scale) -> Vec<String> {
        scale.ticks().into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn values_of_one_size_stand_on_a_linear_axis_from_zero() {
        let scale = Scale::of([1.0, 3.0].into_iter());
        assert!(!scale.is_logarithmic);
        assert_eq!(names(scale), ["0.0", "0.5", "1.0", "1.5", "2.0", "2.5", "3.0"]);
        assert_eq!(scale.share(0.0), 0.0);
    }

    #[test]
    fn values_of_many_sizes_stand_on_a_logarithmic_axis() {
        let scale = Scale::of([0.0, 0.02, 5000.0].into_iter());
        assert!(scale.is_logarithmic);
        assert_eq!(names(scale), ["0.1", "1", "10", "100", "1,000"]);
        assert_eq!(names(Scale::of([0.2, 4.0].into_iter())), ["0.2", "0.5", "1", "2"]);
        // Not below the axis.
        assert_eq!(scale.share(0.0), 0.0);
    }

    #[test]
    fn a_legend_names_the_marks_that_are_there() {
        let row =
            |values: &[f64]| Row { value: Spread::over(values.iter().copied()), ..Row::named("x") };
        let texts = |rows| {
            let panel = Panel::new("t", "seconds", rows);
            panel.legend().into_iter().map(|(_, text)| text.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(texts(vec![row(&[1.0])]), ["1 run"]);
        assert_eq!(texts(vec![row(&[1.0, 2.0])]), ["mean of 2 runs", "least to greatest"]);
        let target = Row { target: Some(1.0), ..row(&[1.0, 2.0, 3.0]) };
        assert_eq!(texts(vec![target]), ["median", "least to greatest", "target"]);
        assert_eq!(texts(vec![row(&[])]), [""; 0]);
    }
}
