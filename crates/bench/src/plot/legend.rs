//! The marks of a plot, and the line that explains them.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::{Drawn, MEASURED, TARGET, letters, text_width};

/// Half the height of a mark.
const HALF: i32 = 4;
/// Between a mark and its text, and behind the text.
const GAP: i32 = 12;

/// How a value is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Mark {
    /// A filled dot.
    Dot,
    /// A line between two values.
    Range,
    /// A ring.
    Ring,
    /// An upright stroke.
    Stroke,
    /// A cross.
    Cross,
    /// A piece of a curve.
    Curve(ShapeStyle),
    /// A line across a chart.
    Level,
}

impl Mark {
    /// Draws the mark around a point.
    pub(super) fn draw<B: DrawingBackend>(
        self,
        area: &DrawingArea<B, Shift>,
        (x, y): (i32, i32),
    ) -> Drawn<B> {
        let line = |from: (i32, i32), to: (i32, i32), style: ShapeStyle| {
            area.draw(&PathElement::new(
                vec![(x + from.0, y + from.1), (x + to.0, y + to.1)],
                style,
            ))
        };
        match self {
            Mark::Dot => area.draw(&Circle::new((x, y), HALF, MEASURED.filled())),
            Mark::Range => line((-10, 0), (10, 0), range_style()),
            Mark::Ring => area.draw(&Circle::new((x, y), HALF, MEASURED.stroke_width(1))),
            Mark::Stroke => line((0, -8), (0, 8), TARGET.stroke_width(2)),
            Mark::Cross => {
                line((-HALF, -HALF), (HALF, HALF), BLACK.stroke_width(1))?;
                line((-HALF, HALF), (HALF, -HALF), BLACK.stroke_width(1))
            }
            Mark::Curve(style) => line((-10, 0), (10, 0), style),
            Mark::Level => line((-10, 0), (10, 0), level_style()),
        }
    }

    /// Pixels left and right of its point.
    fn half_width(self) -> i32 {
        match self {
            Mark::Range | Mark::Curve(_) | Mark::Level => 10,
            _ => HALF,
        }
    }
}

/// The line from the least to the greatest value.
pub(super) fn range_style() -> ShapeStyle {
    MEASURED.mix(0.5).stroke_width(2)
}

/// The line of a target across a chart.
pub(super) fn level_style() -> ShapeStyle {
    TARGET.stroke_width(1)
}

/// Draws marks and their meanings, from left to right.
pub(super) fn draw<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    entries: &[(Mark, &str)],
    (mut x, y): (i32, i32),
) -> Drawn<B> {
    for (mark, text) in entries {
        x += mark.half_width();
        mark.draw(area, (x, y))?;
        x += mark.half_width() + GAP / 2;
        area.draw_text(text, &letters(HPos::Left, VPos::Center), (x, y))?;
        x += text_width(text) + GAP;
    }
    Ok(())
}
