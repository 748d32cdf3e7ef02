//! The plot of a run: [panels](dots) of dots, and [curves](lines).
//!
//! Each plot is drawn twice by the same code: as SVG, and as PNG on a [canvas](canvas) with letters
//! of its own, because a machine that measures may have no fonts.

mod canvas;
pub(crate) mod dots;
mod legend;
pub(crate) mod lines;
mod png;

use std::error::Error;
use std::fs;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use self::canvas::Canvas;
use self::dots::Panel;
use self::lines::Chart;

const WIDTH: u32 = 900;
/// SVG takes it divided by 1.24, so its letters are nearly as wide as those of the canvas.
const LETTER_SIZE: i32 = 15;
/// Pixels of a letter, the same for each.
const LETTER_WIDTH: u32 = 7;
const LETTER_HEIGHT: u32 = 16;
/// Of measured values, and of targets.
const MEASURED: RGBColor = RGBColor(31, 95, 170);
const TARGET: RGBColor = RGBColor(200, 40, 30);

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The outcome of drawing on some backend.
type Drawn<B> = std::result::Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

/// A part of a plot; parts stand below each other.
#[derive(Debug)]
pub(crate) enum Part {
    Dots(Panel),
    Curves(Chart),
}

impl Part {
    fn height(&self) -> u32 {
        match self {
            Part::Dots(panel) => panel.height(),
            Part::Curves(chart) => chart.height(),
        }
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Drawn<B> {
        match self {
            Part::Dots(panel) => panel.draw(area),
            Part::Curves(chart) => chart.draw(area),
        }
    }
}

impl From<Panel> for Part {
    fn from(panel: Panel) -> Part {
        Part::Dots(panel)
    }
}

impl From<Chart> for Part {
    fn from(chart: Chart) -> Part {
        Part::Curves(chart)
    }
}

/// Draws `parts` into `stem`.svg and `stem`.png.
pub(crate) fn write(stem: &Path, parts: &[Part]) -> Result<()> {
    let size = (WIDTH, parts.iter().map(Part::height).sum::<u32>().max(1));
    let svg = stem.with_extension("svg");
    draw(SVGBackend::new(&svg, size), parts)?;
    let mut pixels = Vec::new();
    draw(Canvas::new(size, &mut pixels), parts)?;
    Ok(fs::write(stem.with_extension("png"), png::encode(size, &pixels))?)
}

fn draw<B: DrawingBackend>(backend: B, parts: &[Part]) -> Result<()> {
    let root = backend.into_drawing_area();
    draw_all(&root, parts).map_err(|error| error.to_string())?;
    root.present().map_err(|error| error.to_string().into())
}

fn draw_all<B: DrawingBackend>(root: &DrawingArea<B, Shift>, parts: &[Part]) -> Drawn<B> {
    root.fill(&WHITE)?;
    let mut rest = root.clone();
    for part in parts {
        let (area, below) = rest.split_vertically(part.height());
        part.draw(&area)?;
        rest = below;
    }
    Ok(())
}

/// How text is set.
fn letters(horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    TextStyle::from(("monospace", LETTER_SIZE)).pos(Pos::new(horizontal, vertical))
}

/// The title of a part, in bold.
fn title_letters() -> TextStyle<'static> {
    TextStyle::from(("monospace", LETTER_SIZE, FontStyle::Bold))
        .pos(Pos::new(HPos::Left, VPos::Center))
}

/// Pixels that `text` takes.
fn text_width(text: &str) -> i32 {
    pixels(text.chars().count() as f64 * f64::from(LETTER_WIDTH))
}

/// A coordinate in pixels.
fn pixels(at: f64) -> i32 {
    // Plots are far smaller than 2^31 pixels, and a cast of a larger value stops there.
    #[allow(clippy::cast_possible_truncation)]
    let pixels = at.round() as i32;
    pixels
}

#[cfg(test)]
mod tests {
    use super::dots::Row;
    use super::lines::{Curve, Look};
    use super::*;
    use crate::spread::Spread;

    #[test]
    fn a_plot_is_drawn_as_svg_and_as_png() {
        let dir = tempfile::tempdir().unwrap();
        let row = Row {
            value: Spread::over([1.0, 2.0, 4.0].into_iter()),
            later: Some(5.0),
            target: Some(1.5),
            paper: Some((3.0, 0.5)),
            ..Row::named("segue")
        };
        let empty = Row::named("sshfs, failed");
        let panel =
            Panel { later: "on the server", ..Panel::new("untar", "seconds", vec![row, empty]) };
        let curve = Curve::steps("used", Look::Blue, &[Some(1.0), None, Some(2.0)]);
        let chart = Chart {
            levels: vec![("target".into(), 1.5)],
            ..Chart::new("up", ["s", "KB/s"], vec![curve])
        };
        let nothing = Panel::new("nothing", "seconds", Vec::new());
        let stem = dir.path().join("20260101T000000Z-x");
        write(&stem, &[panel.into(), chart.into(), nothing.into()]).unwrap();
        let svg = fs::read_to_string(stem.with_extension("svg")).unwrap();
        for text in ["untar", "sshfs, failed", "seconds", "target", "the paper", "</svg>"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        let png = fs::read(stem.with_extension("png")).unwrap();
        assert!(png.starts_with(b"\x89PNG\r\n") && png.ends_with(b"IEND\xaeB`\x82"));
    }
}
