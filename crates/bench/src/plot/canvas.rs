//! Pixels that plotters draws on, with letters that are linked into the program.

use std::convert::Infallible;

use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster};
use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{
    BackendColor, BackendCoord, BackendTextStyle, DrawingBackend, DrawingErrorKind, FontStyle,
};

use super::{LETTER_HEIGHT, text_width};

/// Steps between nothing and a full colour: fewer make smaller files, and nobody sees more.
const SHADES: f64 = 8.0;

type Result<T> = std::result::Result<T, DrawingErrorKind<Infallible>>;

/// A picture, white at first.
#[derive(Debug)]
pub(super) struct Canvas<'a> {
    width: u32,
    height: u32,
    /// Red, green and blue of each pixel, row by row.
    pixels: &'a mut Vec<u8>,
}

impl Canvas<'_> {
    pub(super) fn new((width, height): (u32, u32), pixels: &mut Vec<u8>) -> Canvas<'_> {
        *pixels = vec![255; 3 * width as usize * height as usize];
        Canvas { width, height, pixels }
    }

    fn pixel(&mut self, (x, y): BackendCoord) -> Option<&mut [u8]> {
        let (x, y) = (u32::try_from(x).ok()?, u32::try_from(y).ok()?);
        let start = 3 * (y as usize * self.width as usize + x as usize);
        let is_inside = x < self.width && y < self.height;
        is_inside.then(|| self.pixels.get_mut(start..start + 3))?
    }
}

impl DrawingBackend for Canvas<'_> {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        (self.width, self.height)
    }

    fn ensure_prepared(&mut self) -> Result<()> {
        Ok(())
    }

    fn present(&mut self) -> Result<()> {
        Ok(())
    }

    /// Outside of the picture nothing is drawn.
    fn draw_pixel(&mut self, point: BackendCoord, color: BackendColor) -> Result<()> {
        let (red, green, blue) = color.rgb;
        let Some(pixel) = self.pixel(point) else { return Ok(()) };
        let alpha = (color.alpha * SHADES).round() / SHADES;
        for (old, new) in pixel.iter_mut().zip([red, green, blue]) {
            let mixed = f64::from(*old) * (1.0 - alpha) + f64::from(new) * alpha;
            // Between 0 and 255, as both are.
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let mixed = mixed.round() as u8;
            *old = mixed;
        }
        Ok(())
    }

    fn draw_text<S: BackendTextStyle>(
        &mut self,
        text: &str,
        style: &S,
        (x, y): BackendCoord,
    ) -> Result<()> {
        let weight = match style.style() {
            FontStyle::Bold => FontWeight::Bold,
            _ => FontWeight::Regular,
        };
        let left = match style.anchor().h_pos {
            HPos::Left => 0,
            HPos::Center => -text_width(text) / 2,
            HPos::Right => -text_width(text),
        };
        let top = match style.anchor().v_pos {
            VPos::Top => 0,
            VPos::Center => -(LETTER_HEIGHT.cast_signed() / 2),
            VPos::Bottom => -LETTER_HEIGHT.cast_signed(),
        };
        let (transform, color) = (style.transform(), style.color());
        for (letter, place) in text.chars().zip((0..).map(|number| number * text_width("x"))) {
            let raster = get_raster(letter, weight, RasterHeight::Size16)
                .or_else(|| get_raster('?', weight, RasterHeight::Size16));
            for (row, line) in raster.iter().flat_map(|raster| raster.rows()).zip(0..) {
                for (share, column) in row.iter().zip(0..) {
                    let (dx, dy) = transform.transform(left + place + column, top + line);
                    let alpha = color.alpha * f64::from(*share) / 255.0;
                    self.draw_pixel((x + dx, y + dy), BackendColor { alpha, ..color })?;
                }
            }
        }
        Ok(())
    }

    fn estimate_text_size<S: BackendTextStyle>(&self, text: &str, _: &S) -> Result<(u32, u32)> {
        Ok((text_width(text).cast_unsigned(), LETTER_HEIGHT))
    }
}

#[cfg(test)]
mod tests {
    use noto_sans_mono_bitmap::get_raster_width;

    use super::*;
    use crate::plot::LETTER_WIDTH;

    #[test]
    fn letters_are_as_wide_as_the_layout_takes_them_to_be() {
        for weight in [FontWeight::Regular, FontWeight::Bold] {
            assert_eq!(get_raster_width(weight, RasterHeight::Size16), LETTER_WIDTH as usize);
        }
    }

    #[test]
    fn colours_mix_and_what_is_outside_is_left_out() {
        let mut pixels = Vec::new();
        let mut canvas = Canvas::new((2, 1), &mut pixels);
        let red = BackendColor { alpha: 0.5, rgb: (255, 0, 0) };
        for point in [(1, 0), (2, 0), (0, 1), (-1, 0)] {
            canvas.draw_pixel(point, red).unwrap();
        }
        assert_eq!(pixels, [255, 255, 255, 255, 128, 128]);
    }
}
