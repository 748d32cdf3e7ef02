use proptest::prelude::*;

use super::*;
use crate::tests::allocations::most;
use crate::tests::mutation::mutated;

/// Blocks of `bytes`, which arrive in pieces of `piece` bytes.
fn cut_all(bytes: &[u8], piece: usize) -> Result<Vec<Bytes>, CodecError> {
    let mut cutter = Cutter::default();
    let mut blocks = Vec::new();
    for piece in bytes.chunks(piece) {
        cutter.bytes.extend_from_slice(piece);
        while let Some(block) = cutter.cut()? {
            blocks.push(decompress(block.raw_len, block.stored)?);
        }
    }
    if cutter.bytes.is_empty() { Ok(blocks) } else { Err(CodecError::Short) }
}

fn header(raw_len: u32, wire_len: u32) -> Vec<u8> {
    [raw_len.to_le_bytes(), wire_len.to_le_bytes()].concat()
}

/// Bytes that do not compress.
fn noise(length: usize) -> Vec<u8> {
    let mut noise = vec![0; length];
    blake3::Hasher::new().finalize_xof().fill(&mut noise);
    noise
}

#[test]
fn text_is_compressed_and_noise_is_not() {
    let text = b"the same words again and again. ".repeat(1000);
    assert!(encode_block(&text).len() < text.len() / 10);
    let noise = noise(100_000);
    let block = encode_block(&noise);
    assert_eq!(block, [header(100_000, 100_000), noise].concat());
}

#[test]
fn stored_chunk_passes_through() {
    let text = b"chunk ".repeat(500);
    let stored = compress(&text).unwrap();
    assert_eq!(block_from_stored(text.len(), &stored), encode_block(&text));
}

#[test]
fn nothing_is_a_block_too() {
    assert_eq!(cut_all(&encode_block(b""), 3).unwrap(), [Bytes::new()]);
}

#[test]
fn impossible_lengths_are_refused() {
    let over = u32::try_from(BLOCK_MAX).unwrap() + 1;
    for (raw_len, wire_len) in [(over, 10), (over, over), (10, 11), (10, 0), (u32::MAX, 5)] {
        let block = [header(raw_len, wire_len), vec![0; 16]].concat();
        assert!(matches!(cut_all(&block, 100), Err(CodecError::Lengths { .. })));
    }
}

#[test]
fn block_that_decompresses_to_more_than_it_says_is_refused() {
    let bomb = zstd::bulk::compress(&vec![0; 64 << 20], LEVEL).unwrap();
    let wire_len = u32::try_from(bomb.len()).unwrap();
    for raw_len in [wire_len + 1, 1 << 20] {
        let block = [header(raw_len, wire_len), bomb.clone()].concat();
        assert!(matches!(cut_all(&block, 4096), Err(CodecError::Damaged)));
    }
}

#[test]
fn block_that_decompresses_to_less_than_it_says_is_refused() {
    let stored = zstd::bulk::compress(&[7; 1000], LEVEL).unwrap();
    let block = [header(2000, u32::try_from(stored.len()).unwrap()), stored].concat();
    assert!(matches!(cut_all(&block, 4096), Err(CodecError::Damaged)));
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..5000),
        (any::<u8>(), 0..5000usize).prop_map(|(byte, length)| vec![byte; length]),
    ]
}

proptest! {
    #[test]
    fn blocks_roundtrip_in_any_pieces(
        contents in prop::collection::vec(content(), 0..5),
        piece in 1..7000usize,
    ) {
        let bytes: Vec<u8> = contents.iter().flat_map(|raw| encode_block(raw)).collect();
        prop_assert_eq!(cut_all(&bytes, piece).unwrap(), contents);
    }

    #[test]
    fn cut_blocks_are_short(raw in content(), missing in 1..100usize) {
        let block = encode_block(&raw);
        let cut = block.len().saturating_sub(missing);
        prop_assume!(cut > 0);
        prop_assert!(matches!(cut_all(&block[..cut], 1000), Err(CodecError::Short)));
    }

    /// A block takes the memory of its own length and its announced length, whatever comes.
    #[test]
    fn changed_blocks_take_no_more_memory_than_blocks(
        bytes in mutated(vec![
            encode_block(&[7; 20_000]),
            encode_block(&b"the same words again. ".repeat(90)),
            encode_block(&noise(300)),
            [encode_block(b""), encode_block(b"short"), encode_block(&[1; 70])].concat(),
        ]),
        piece in 1..7000usize,
    ) {
        let (_, held) = most(|| cut_all(&bytes, piece));
        prop_assert!(held <= 2 * BLOCK_MAX + 4 * bytes.len() + (1 << 20), "{} bytes", held);
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..2000),
        raw_len in 0..3000u32,
        wire_len in 0..3000u32,
    ) {
        let _ = cut_all(&bytes, 100);
        let _ = cut_all(&[header(raw_len, wire_len), bytes].concat(), 100);
    }
}

#[test]
fn a_difference_is_as_long_as_what_differs_wherever_it_stands() {
    let base = noise(4 << 20);
    for at in [0, 1_000_000, (4 << 20) - 600_000] {
        let inserted =
            [&base[at..at + 300_000], b"new", &base[at + 300_000..at + 600_000]].concat();
        let stored = difference(&inserted, &base).unwrap();
        assert!(stored.len() < 200, "{} at {at}", stored.len());
        assert_eq!(undifference(inserted.len(), &stored, &base).unwrap(), inserted);
    }
    assert_eq!(difference(&base[..200_000], &base[300_000..]), None, "nothing is alike");
}

/// Two bytes at the beginning of a dictionary say that it is one of zstd's own; not here.
#[test]
fn any_bytes_are_a_dictionary() {
    let base = [&[0x37, 0xa4, 0x30, 0xec], &noise(100_000)[..]].concat();
    let stored = difference(&base[..90_000], &base).unwrap();
    assert_eq!(undifference(90_000, &stored, &base).unwrap(), &base[..90_000]);
}

#[test]
fn a_difference_makes_no_more_than_it_is_told_to() {
    let base = noise(100_000);
    let bomb = zstd::bulk::compress(&vec![0; 64 << 20], LEVEL).unwrap();
    let (made, taken) = most(|| undifference(10_000, &bomb, &base));
    assert!(made.is_err() && taken < 1 << 20, "{taken} bytes");
    let stored = difference(&base[..50_000], &base).unwrap();
    for len in [0, 49_999, 50_001, BLOCK_MAX, BLOCK_MAX + 1] {
        assert!(undifference(len, &stored, &base).is_err(), "{len}");
    }
}

proptest! {
    #[test]
    fn damaged_differences_never_panic(
        at in any::<prop::sample::Index>(),
        bit in 0..8u32,
        cut in any::<prop::sample::Index>(),
    ) {
        let base = vec![7; 30_000];
        let mut stored = difference(&[&base[..], b"and more"].concat(), &base).unwrap();
        let at = at.index(stored.len());
        stored[at] ^= 1 << bit;
        let _ = undifference(30_008, &stored, &base);
        stored.truncate(cut.index(stored.len()));
        prop_assert!(undifference(30_008, &stored, &base).is_err());
    }
}
