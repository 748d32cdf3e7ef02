//! Curves on common axes, and the targets that they are held against.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::legend::{self, Mark};
use super::{Drawn, Part, TARGET, WIDTH, letters, title_letters};
use crate::spread::grouped;

/// Title and legend.
const ABOVE: u32 = 52;
const MARGIN: i32 = 30;
const X_AXIS: u32 = 50;
const Y_AXIS: u32 = 80;
/// Room above the highest point.
const HEADROOM: f64 = 1.1;
/// The greatest value on a linear axis, in least ones.
const LINEAR_TIMES: f64 = 100.0;
/// Curves of at most so many points show them.
const POINTS_SHOWN: usize = 12;

/// Curves on the same axes.
#[derive(Debug)]
pub(crate) struct Chart {
    pub(crate) title: String,
    /// The names and units of the axes.
    pub(crate) axes: [&'static str; 2],
    pub(crate) curves: Vec<Curve>,
    /// Lines across the chart: targets, or figures of the paper. The legend leaves out a line
    /// without a name.
    pub(crate) levels: Vec<(String, f64)>,
    /// Whether the upright axis is logarithmic; no value is 0 then.
    pub(crate) is_logarithmic: bool,
    /// Pixels between the axes.
    pub(crate) depth: u32,
}

/// One of them; between its pieces nothing is drawn.
#[derive(Debug)]
pub(crate) struct Curve {
    pub(crate) name: &'static str,
    pub(crate) look: Look,
    pub(crate) pieces: Vec<Vec<(f64, f64)>>,
}

/// How a curve is drawn: the later one is narrower, so that it covers none before it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Look {
    /// The given bounds, or the base of a comparison.
    Grey,
    /// The first measured curve.
    Blue,
    /// The second one.
    Dark,
}

impl Look {
    fn style(self) -> ShapeStyle {
        match self {
            Look::Grey => BLACK.mix(0.25).stroke_width(5),
            Look::Blue => super::MEASURED.stroke_width(3),
            Look::Dark => BLACK.stroke_width(1),
        }
    }
}

impl Curve {
    /// A value for each second, as steps; nothing where there is none.
    pub(crate) fn steps(name: &'static str, look: Look, values: &[Option<f64>]) -> Curve {
        let mut pieces: Vec<Vec<(f64, f64)>> = Vec::new();
        let mut is_open = false;
        for (second, value) in values.iter().enumerate() {
            let start = second as f64;
            match (value, is_open, pieces.last_mut()) {
                (Some(value), true, Some(piece)) => {
                    piece.extend([(start, *value), (start + 1.0, *value)])
                }
                (Some(value), ..) => pieces.push(vec![(start, *value), (start + 1.0, *value)]),
                (None, ..) => {}
            }
            is_open = value.is_some();
        }
        Curve { name, look, pieces }
    }

    /// The share of `whole` that `part` is in each second, as steps.
    pub(crate) fn share(name: &'static str, part: &[f64], whole: &[f64]) -> Curve {
        let share = |(part, whole): (&f64, &f64)| (*whole > 0.0).then(|| part / whole);
        let shares: Vec<_> = part.iter().zip(whole).map(share).collect();
        Curve::steps(name, Look::Blue, &shares)
    }

    fn points(&self) -> impl Iterator<Item = &(f64, f64)> {
        self.pieces.iter().flatten()
    }
}

impl Chart {
    /// A chart without targets.
    pub(crate) fn new(
        title: impl Into<String>,
        axes: [&'static str; 2],
        curves: Vec<Curve>,
    ) -> Chart {
        let (title, levels) = (title.into(), Vec::new());
        Chart { title, axes, curves, levels, is_logarithmic: false, depth: 200 }
    }

    /// A low chart for curves that would lie on each other in the one above it: how they compare.
    pub(crate) fn beside(
        title: impl Into<String>,
        axes: [&'static str; 2],
        curves: Vec<Curve>,
    ) -> Chart {
        Chart { depth: 110, ..Chart::new(title, axes, curves) }
    }

    /// The same with a logarithmic axis, if its values differ so much that small ones would lie on
    /// each other.
    pub(crate) fn logarithmic_if_needed(self) -> Chart {
        let values = || self.curves.iter().flat_map(Curve::points).map(|point| point.1);
        let least = values().fold(f64::INFINITY, f64::min);
        let is_logarithmic = least > 0.0 && values().fold(0.0, f64::max) > least * LINEAR_TIMES;
        Chart { is_logarithmic, ..self }
    }

    /// As parts of a plot.
    pub(crate) fn parts(charts: Vec<Chart>) -> Vec<Part> {
        charts.into_iter().map(Part::Curves).collect()
    }

    pub(super) fn height(&self) -> u32 {
        ABOVE + self.depth + X_AXIS
    }

    pub(super) fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Drawn<B> {
        let points = || self.curves.iter().flat_map(Curve::points);
        let right = points().map(|point| point.0).fold(1.0, f64::max);
        let levels = self.levels.iter().map(|(_, level)| *level);
        let highest = points().map(|point| point.1).chain(levels).fold(0.0, f64::max);
        let top = if highest > 0.0 { highest * HEADROOM } else { 1.0 };
        area.draw_text(&self.title, &title_letters(), (MARGIN, 18))?;
        let left = Y_AXIS.cast_signed() + 10;
        legend::draw(area, &self.legend(), (left, 38))?;

        self.draw_y_name(area)?;
        let (_, below) = area.split_vertically(ABOVE);
        let mut builder = ChartBuilder::on(&below);
        builder
            .margin_left(10)
            .margin_right(MARGIN)
            .x_label_area_size(X_AXIS)
            .y_label_area_size(Y_AXIS);
        if self.is_logarithmic {
            let least = points().map(|point| point.1).fold(highest, f64::min) / HEADROOM;
            let mut chart = builder.build_cartesian_2d(0.0..right, (least..top).log_scale())?;
            self.fill(&mut chart, [right, top])
        } else {
            let mut chart = builder.build_cartesian_2d(0.0..right, 0.0..top)?;
            self.fill(&mut chart, [right, top])
        }
    }

    /// Draws the axes, the levels and the curves; the axes end at `right` and `top`.
    fn fill<B: DrawingBackend, Y>(
        &self,
        chart: &mut ChartContext<'_, B, Cartesian2d<RangedCoordf64, Y>>,
        [right, top]: [f64; 2],
    ) -> Drawn<B>
    where
        Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let [x, _] = self.axes;
        let digits = |most: f64| if most >= 8.0 { 0 } else { 1 + usize::from(most < 0.8) };
        chart
            .configure_mesh()
            .x_labels((WIDTH / 80) as usize)
            .y_labels((self.depth / 25) as usize)
            .x_label_formatter(&|value| grouped(*value, digits(right)))
            .y_label_formatter(&|value| grouped(*value, digits(top)))
            .x_desc(x)
            .label_style(("monospace", super::LETTER_SIZE))
            .axis_desc_style(letters(HPos::Center, VPos::Top))
            .bold_line_style(BLACK.mix(0.12))
            .light_line_style(TRANSPARENT)
            .draw()?;
        for (_, level) in &self.levels {
            let line = vec![(0.0, *level), (right, *level)];
            chart.draw_series([PathElement::new(line, TARGET.stroke_width(1))])?;
        }
        for curve in &self.curves {
            let style = curve.look.style();
            let pieces = curve.pieces.iter().map(|piece| PathElement::new(piece.clone(), style));
            chart.draw_series(pieces)?;
            if curve.points().count() <= POINTS_SHOWN {
                let dot = |point: &(f64, f64)| Circle::new(*point, 3, style.filled());
                chart.draw_series(curve.points().map(dot))?;
            }
        }
        Ok(())
    }

    /// The name of the upright axis, in the middle of its height.
    fn draw_y_name<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Drawn<B> {
        let [_, name] = self.axes;
        let upright = letters(HPos::Center, VPos::Top).transform(FontTransform::Rotate270);
        let middle = (ABOVE + self.depth / 2).cast_signed();
        area.draw_text(name, &upright, (4, middle))
    }

    fn legend(&self) -> Vec<(Mark, &str)> {
        let curves = self.curves.iter().map(|curve| (Mark::Curve(curve.look.style()), curve.name));
        let named = self.levels.iter().filter(|(name, _)| !name.is_empty());
        let levels = named.map(|(name, _)| (Mark::Level, name.as_str()));
        curves.chain(levels).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_of_seconds_has_gaps_where_nothing_is_known() {
        let curve = Curve::steps("c", Look::Blue, &[Some(1.0), Some(2.0), None, Some(3.0)]);
        let expected =
            [vec![(0.0, 1.0), (1.0, 1.0), (1.0, 2.0), (2.0, 2.0)], vec![(3.0, 3.0), (4.0, 3.0)]];
        assert_eq!(curve.pieces, expected);
    }

    #[test]
    fn values_of_many_sizes_have_a_logarithmic_axis() {
        let chart = |values: &[f64]| {
            let values: Vec<_> = values.iter().copied().map(Some).collect();
            let curve = Curve::steps("c", Look::Blue, &values);
            Chart::new("t", ["s", "times"], vec![curve]).logarithmic_if_needed()
        };
        assert!(chart(&[1.0, 2000.0]).is_logarithmic);
        assert!(!chart(&[1.0, 20.0]).is_logarithmic);
        assert!(!chart(&[0.0, 2000.0]).is_logarithmic);
        assert!(!chart(&[]).is_logarithmic);
    }

    #[test]
    fn a_share_of_nothing_is_not_drawn() {
        let curve = Curve::share("used", &[50.0, 0.0, 100.0], &[100.0, 0.0, 100.0]);
        assert_eq!(curve.pieces, [[(0.0, 0.5), (1.0, 0.5)], [(2.0, 1.0), (3.0, 1.0)]]);
    }
}
