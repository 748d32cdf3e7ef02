//! The plot of a run: for each workload the medians as bars, seconds on a logarithmic axis.
//!
//! A full bar is what the user waits for, the light one behind it the time until the server has
//! everything. SVG only: a bitmap would need fonts, which are not on every machine that measures.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

use crate::report::Row;

const WIDTH: u32 = 900;
const ROW_HEIGHT: u32 = 24;
const PANEL_HEIGHT: u32 = 90;
const LABEL_WIDTH: u32 = 240;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Draws `rows` into the SVG file `path`.
pub(crate) fn write(path: &Path, rows: &[Row]) -> Result<()> {
    let panels: Vec<&[Row]> = rows.chunk_by(|a, b| a.workload == b.workload).collect();
    let heights: Vec<u32> = panels.iter().map(|rows| height(rows)).collect();
    let total = heights.iter().sum::<u32>().max(1);
    let root = SVGBackend::new(path, (WIDTH, total)).into_drawing_area();
    root.fill(&WHITE).map_err(|error| error.to_string())?;
    let mut rest = root.clone();
    for (rows, height) in panels.iter().zip(&heights) {
        let (panel, below) = rest.split_vertically(*height);
        draw_panel(&panel, rows).map_err(|error| error.to_string())?;
        rest = below;
    }
    root.present().map_err(|error| error.to_string().into())
}

fn height(rows: &[Row]) -> u32 {
    PANEL_HEIGHT + ROW_HEIGHT * u32::try_from(rows.len()).unwrap_or(0)
}

fn draw_panel<B: DrawingBackend>(
    panel: &DrawingArea<B, plotters::coord::Shift>,
    rows: &[Row],
) -> std::result::Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let (low, high) = range(rows);
    let count = rows.len() as f64;
    let title = rows.first().map_or("", |row| row.workload);
    let mut chart = ChartBuilder::on(panel)
        .caption(title, ("sans-serif", 18))
        .margin_right(30)
        .x_label_area_size(36)
        .y_label_area_size(LABEL_WIDTH)
        .build_cartesian_2d((low..high).log_scale(), 0.0..count)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .x_desc("seconds")
        .x_label_formatter(&|seconds| format!("{seconds}"))
        .draw()?;
    let right = TextStyle::from(("sans-serif", 13)).pos(plotters::style::text_anchor::Pos::new(
        plotters::style::text_anchor::HPos::Right,
        plotters::style::text_anchor::VPos::Center,
    ));
    for (index, row) in rows.iter().enumerate() {
        let top = count - index as f64;
        let place = chart.backend_coord(&(low, top - 0.5));
        let failed = if row.median.is_none() { ", failed" } else { "" };
        let what = format!("{} {}{failed}", row.file_system, row.link);
        panel_text(panel, &what, &right, place)?;
        let Some(figures) = row.median else { continue };
        let bar = |seconds: f64, style| {
            Rectangle::new([(low, top - 0.2), (seconds.max(low), top - 0.8)], style)
        };
        let until = figures.until_server_seconds;
        let light = until.map(|seconds| bar(seconds, BLUE.mix(0.25).filled()));
        chart.draw_series(light)?;
        chart.draw_series([bar(figures.seconds, BLUE.mix(0.8).filled())])?;
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

/// Powers of ten around all medians.
fn range(rows: &[Row]) -> (f64, f64) {
    let figures = rows.iter().filter_map(|row| row.median);
    let seconds = figures.flat_map(|f| [Some(f.seconds), f.until_server_seconds]).flatten();
    let seconds: Vec<f64> = seconds.filter(|seconds| *seconds > 0.0).collect();
    let low = seconds.iter().copied().fold(1.0, f64::min);
    let high = seconds.iter().copied().fold(low, f64::max);
    (10f64.powf(low.log10().floor()), 10f64.powf((high * 1.01).log10().ceil()))
}
