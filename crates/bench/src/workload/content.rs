//! File contents from a seed.

use segue_bed::Rng;

const WORDS: [&str; 32] = [
    "static", "return", "buffer", "length", "struct", "offset", "inode", "if", "else", "while",
    "error", "cache", "client", "server", "record", "size_t", "void", "const", "char", "unsigned",
    "(", ")", "{", "}", ";", "=", "->", "&", "*", "0", "1", "NULL",
];

/// Bytes that no compressor makes smaller.
pub(crate) fn noise(rng: &mut Rng, bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    rng.fill(&mut data);
    data
}

/// Bytes about as compressible as program text, three to four times.
pub(crate) fn text(rng: &mut Rng, bytes: usize) -> Vec<u8> {
    let mut data = Vec::with_capacity(bytes + 16);
    while data.len() < bytes {
        let draw = rng.next_u64();
        data.extend_from_slice(WORDS[(draw % 32) as usize].as_bytes());
        data.push(if draw & 0xe000 == 0 { b'\n' } else { b' ' });
    }
    data.truncate(bytes);
    data
}
