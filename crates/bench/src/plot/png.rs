//! A picture as a PNG file [PNG 1.2]: 8 bits for each of red, green and blue.

use miniz_oxide::deflate::compress_to_vec_zlib;

const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";
/// Before each row: its bytes are the colours themselves, which compress best where areas are even.
const NO_FILTER: u8 = 0;
/// How hard the compressor tries, of 10.
const EFFORT: u8 = 9;

/// The file of a picture of this width and height; `pixels` has 3 bytes for each, row by row.
pub(super) fn encode((width, height): (u32, u32), pixels: &[u8]) -> Vec<u8> {
    let row_bytes = 3 * width as usize;
    let mut rows = Vec::with_capacity(pixels.len() + height as usize);
    for row in pixels.chunks_exact(row_bytes.max(1)) {
        rows.push(NO_FILTER);
        rows.extend(row);
    }
    // Bits, colour, compression, filter, no interlacing.
    let mut header = [width.to_be_bytes(), height.to_be_bytes()].concat();
    header.extend([8, 2, 0, 0, 0]);
    let mut file = SIGNATURE.to_vec();
    chunk(&mut file, b"IHDR", &header);
    chunk(&mut file, b"IDAT", &compress_to_vec_zlib(&rows, EFFORT));
    chunk(&mut file, b"IEND", &[]);
    file
}

/// Appends a chunk: its length, name and data, and their checksum.
fn chunk(file: &mut Vec<u8>, name: &[u8; 4], data: &[u8]) {
    file.extend(u32::try_from(data.len()).unwrap_or(u32::MAX).to_be_bytes());
    let start = file.len();
    file.extend(name);
    file.extend(data);
    let sum = crc32(file.get(start..).unwrap_or_default());
    file.extend(sum.to_be_bytes());
}

/// The checksum of [PNG 1.2, 3.4].
fn crc32(bytes: &[u8]) -> u32 {
    let step = |sum: u32, byte: &u8| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            if sum & 1 == 1 { 0xedb8_8320 ^ (sum >> 1) } else { sum >> 1 }
        })
    };
    !bytes.iter().fold(u32::MAX, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_checksums_that_the_format_names() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        let file = encode((2, 1), &[255, 0, 0, 0, 0, 255]);
        assert_eq!(&file[..16], b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR");
        assert_eq!(&file[16..24], [0, 0, 0, 2, 0, 0, 0, 1]);
        // The end of each PNG file.
        assert!(file.ends_with(b"\0\0\0\0IEND\xaeB`\x82"));
    }
}
