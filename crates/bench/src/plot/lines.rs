//! Curves over time.

use std::path::Path;

use plotters::prelude::*;

use super::{Result, WIDTH};

const HEIGHT: u32 = 280;
/// Room above the highest point.
const HEADROOM: f64 = 1.1;

/// Curves on the same axes.
#[derive(Debug)]
pub(crate) struct Chart {
    pub(crate) title: String,
    /// What the axes say.
    pub(crate) axes: [&'static str; 2],
    pub(crate) curves: Vec<Curve>,
}

/// One of them; between its pieces nothing is drawn.
#[derive(Debug)]
pub(crate) struct Curve {
    pub(crate) name: &'static str,
    pub(crate) look: Look,
    pub(crate) pieces: Vec<Vec<(f64, f64)>>,
}

/// How a curve is drawn.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Look {
    /// What is given.
    Grey,
    /// What was measured.
    Blue,
    /// Beside it, and thick.
    Dark,
}

impl Look {
    fn style(self) -> ShapeStyle {
        match self {
            Look::Grey => BLACK.mix(0.4).stroke_width(1),
            Look::Blue => BLUE.mix(0.8).stroke_width(1),
            Look::Dark => BLACK.stroke_width(3),
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

    fn points(&self) -> impl Iterator<Item = &(f64, f64)> {
        self.pieces.iter().flatten()
    }
}

/// Draws `charts` below each other into the SVG file `path`.
pub(crate) fn write(path: &Path, charts: &[Chart]) -> Result<()> {
    let count = u32::try_from(charts.len()).unwrap_or(1).max(1);
    let root = SVGBackend::new(path, (WIDTH, HEIGHT * count)).into_drawing_area();
    root.fill(&WHITE).map_err(|error| error.to_string())?;
    let areas = root.split_evenly((count as usize, 1));
    for (chart, area) in charts.iter().zip(&areas) {
        draw(area, chart).map_err(|error| error.to_string())?;
    }
    root.present().map_err(|error| error.to_string().into())
}

fn draw<B: DrawingBackend>(
    area: &DrawingArea<B, plotters::coord::Shift>,
    contents: &Chart,
) -> std::result::Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let most = |axis: fn(&(f64, f64)) -> f64| {
        contents.curves.iter().flat_map(Curve::points).map(axis).fold(1.0, f64::max)
    };
    let names: Vec<&str> = contents.curves.iter().map(|curve| curve.name).collect();
    let [x, y] = contents.axes;
    let mut chart = ChartBuilder::on(area)
        .caption(format!("{} ({})", contents.title, names.join(", ")), ("sans-serif", 15))
        .margin_right(30)
        .x_label_area_size(36)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..most(|point| point.0), 0.0..most(|point| point.1) * HEADROOM)?;
    chart.configure_mesh().x_desc(x).y_desc(y).light_line_style(TRANSPARENT).draw()?;
    for curve in &contents.curves {
        let style = curve.look.style();
        chart
            .draw_series(curve.pieces.iter().map(|piece| PathElement::new(piece.clone(), style)))?;
    }
    Ok(())
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
}
