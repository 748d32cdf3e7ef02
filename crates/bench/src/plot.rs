//! The plot of a run: panels of bars, each on a logarithmic axis, or [curves](lines) over time.
//!
//! SVG only: a bitmap would need fonts, which are not on every machine that measures.

pub(crate) mod lines;

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

const WIDTH: u32 = 900;
const ROW_HEIGHT: u32 = 24;
const PANEL_HEIGHT: u32 = 90;
const LABEL_WIDTH: u32 = 240;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Bars on one axis.
#[derive(Debug)]
pub(crate) struct Panel {
    pub(crate) title: String,
    /// What the axis says.
    pub(crate) axis: &'static str,
    pub(crate) bars: Vec<Bar>,
}

/// One bar; without a value, only its label.
#[derive(Debug)]
pub(crate) struct Bar {
    pub(crate) label: String,
    pub(crate) value: Option<f64>,
    /// A light bar behind it.
    pub(crate) behind: Option<f64>,
}

/// Draws `panels` into the SVG file `path`.
pub(crate) fn write(path: &Path, panels: &[Panel]) -> Result<()> {
    let heights: Vec<u32> = panels.iter().map(height).collect();
    let total = heights.iter().sum::<u32>().max(1);
    let root = SVGBackend::new(path, (WIDTH, total)).into_drawing_area();
    root.fill(&WHITE).map_err(|error| error.to_string())?;
    let mut rest = root.clone();
    for (contents, height) in panels.iter().zip(&heights) {
        let (panel, below) = rest.split_vertically(*height);
        draw_panel(&panel, contents).map_err(|error| error.to_string())?;
        rest = below;
    }
    root.present().map_err(|error| error.to_string().into())
}

fn height(panel: &Panel) -> u32 {
    PANEL_HEIGHT + ROW_HEIGHT * u32::try_from(panel.bars.len()).unwrap_or(0)
}

fn draw_panel<B: DrawingBackend>(
    panel: &DrawingArea<B, plotters::coord::Shift>,
    contents: &Panel,
) -> std::result::Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let (low, high) = range(&contents.bars);
    let count = contents.bars.len() as f64;
    let mut chart = ChartBuilder::on(panel)
        .caption(&contents.title, ("sans-serif", 18))
        .margin_right(30)
        .x_label_area_size(36)
        .y_label_area_size(LABEL_WIDTH)
        .build_cartesian_2d((low..high).log_scale(), 0.0..count)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .x_desc(contents.axis)
        .x_label_formatter(&|value| format!("{value}"))
        .draw()?;
    let right = TextStyle::from(("sans-serif", 13)).pos(plotters::style::text_anchor::Pos::new(
        plotters::style::text_anchor::HPos::Right,
        plotters::style::text_anchor::VPos::Center,
    ));
    for (index, bar) in contents.bars.iter().enumerate() {
        let top = count - index as f64;
        let place = chart.backend_coord(&(low, top - 0.5));
        panel_text(panel, &bar.label, &right, place)?;
        let drawn = |value: f64, style| {
            Rectangle::new([(low, top - 0.2), (value.max(low), top - 0.8)], style)
        };
        chart.draw_series(bar.behind.map(|value| drawn(value, BLUE.mix(0.25).filled())))?;
        chart.draw_series(bar.value.map(|value| drawn(value, BLUE.mix(0.8).filled())))?;
    }
    Ok(())
}

fn panel_text<B: DrawingBackend>(
    panel: &DrawingArea<B, plotters::coord::Shift>,
    text: &str,
    style: &TextStyle<'_>,
    (x, y): (i32, i32),
) -> std::result::Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let (left, top) = panel.get_base_pixel();
    panel.draw_text(text, style, (x - left - 8, y - top))
}

/// Powers of ten around all values.
fn range(bars: &[Bar]) -> (f64, f64) {
    let values = bars.iter().flat_map(|bar| [bar.value, bar.behind]).flatten();
    let values: Vec<f64> = values.filter(|value| *value > 0.0).collect();
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let low = if low.is_finite() { low } else { 1.0 };
    let high = values.iter().copied().fold(low, f64::max);
    (10f64.powf(low.log10().floor()), 10f64.powf((high * 1.01).log10().ceil()))
}
