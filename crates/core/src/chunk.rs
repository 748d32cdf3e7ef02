//! Chunks: where a file is cut, what a piece is called, and how to show that one has it.
//!
//! Cuts depend on content (FastCDC), so that bytes inserted in the middle of a file move the
//! cuts after them along and most chunks stay what they were. A chunk's name is its BLAKE3-256:
//! both ends compute it from the bytes and neither believes the other. Knowing a name is not
//! having the chunk: whoever says that it has one proves it with a hash keyed by a nonce that
//! the other side chose.
//!
//! Sizes follow the file's, because a large file in small chunks costs more index than it saves
//! bytes. Cut points are part of what is stored for ever: a test keeps them as they are.

use fastcdc::v2020;

use crate::nouns::Fingerprint;

/// Longest chunk of any file, in bytes.
pub const CHUNK_MAX: usize = 4 << 20;

/// Finds the cuts of one file.
#[derive(Clone, Copy, Debug)]
pub struct Cutter {
    average: usize,
    mask_short: u64,
    mask_long: u64,
}

impl Cutter {
    /// A cutter for a file of `size` bytes.
    pub fn for_file(size: u64) -> Cutter {
        let average = match size {
            0..0x400_0000 => 64 << 10,
            0x400_0000..0x4000_0000 => 256 << 10,
            _ => 1 << 20,
        };
        Cutter::of_average(average)
    }

    /// A cutter of chunks of `average` bytes, a power of two of at least 8.
    pub fn of_average(average: usize) -> Cutter {
        let (mask_short, mask_long) = v2020::select_masks(average, v2020::Normalization::Level1);
        Cutter { average, mask_short, mask_long }
    }

    /// Longest chunk of this file: a window of so many bytes always holds a cut.
    pub fn longest(&self) -> usize {
        self.average * 4
    }

    /// Length of the chunk that `window` starts with.
    ///
    /// `None` asks for a longer window: one of [`Cutter::longest`] bytes, or with `last` one
    /// that ends where the file (or the run of new bytes) does. Only an empty last window has
    /// no chunk.
    pub fn first(&self, window: &[u8], last: bool) -> Option<usize> {
        if window.is_empty() || (!last && window.len() < self.longest()) {
            return None;
        }
        let (_, len) = v2020::cut(
            window,
            self.average / 4,
            self.average,
            self.longest(),
            self.mask_short,
            self.mask_long,
            self.mask_short << 1,
            self.mask_long << 1,
        );
        Some(len)
    }

    /// The chunks of `bytes`, which are a whole file or a whole run of new bytes.
    pub fn cut<'a>(&self, bytes: &'a [u8]) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let cutter = *self;
        let mut rest = bytes;
        std::iter::from_fn(move || {
            let (chunk, after) = rest.split_at(cutter.first(rest, true)?);
            rest = after;
            Some(chunk)
        })
    }
}

/// The name of a chunk.
pub fn fingerprint(chunk: &[u8]) -> Fingerprint {
    Fingerprint(*blake3::hash(chunk).as_bytes())
}

/// Shows to whoever chose `nonce`, and has the chunk too, that this side has it.
pub fn possession_proof(nonce: &[u8; 32], chunk: &[u8]) -> Fingerprint {
    Fingerprint(*blake3::keyed_hash(nonce, chunk).as_bytes())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same bytes for ever, without a generator's crate in between.
    fn noise(len: usize, seed: u64) -> Vec<u8> {
        let mut state = seed | 1;
        let step = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        };
        (0..len).map(step).collect()
    }

    fn lengths(cutter: Cutter, bytes: &[u8]) -> Vec<usize> {
        cutter.cut(bytes).map(<[u8]>::len).collect()
    }

    #[test]
    fn cut_points_stay_what_they_are() {
        let bytes = noise(400_000, 7);
        let cuts = lengths(Cutter::for_file(400_000), &bytes);
        assert_eq!(cuts, GOLDEN);
        assert_eq!(fingerprint(&bytes[..GOLDEN[0]]).to_string(), GOLDEN_FIRST,);
    }

    #[test]
    fn sizes_follow_the_file() {
        let longest = |size| Cutter::for_file(size).longest();
        assert_eq!(longest((64 << 20) - 1), 256 << 10);
        assert_eq!(longest(64 << 20), 1 << 20);
        assert_eq!(longest((1 << 30) - 1), 1 << 20);
        assert_eq!(longest(1 << 30), CHUNK_MAX);
    }

    #[test]
    fn an_insertion_leaves_most_chunks_as_they_were() {
        let before = noise(4 << 20, 11);
        let mut after = before.clone();
        after.splice(1_000_000..1_000_000, noise(1024, 13));
        let cutter = Cutter::for_file(before.len() as u64);
        let old: std::collections::BTreeSet<_> = cutter.cut(&before).map(fingerprint).collect();
        let new = cutter.cut(&after).filter(|chunk| !old.contains(&fingerprint(chunk))).count();
        assert!(new <= 3, "{new} of {} chunks are new", old.len());
    }

    #[test]
    fn a_proof_depends_on_the_nonce_and_on_the_bytes() {
        assert_ne!(possession_proof(&[1; 32], b"a"), possession_proof(&[2; 32], b"a"));
        assert_ne!(possession_proof(&[1; 32], b"a"), possession_proof(&[1; 32], b"b"));
        assert_ne!(possession_proof(&[1; 32], b"a"), fingerprint(b"a"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn windows_cut_where_the_whole_does(
            len in 0usize..600_000,
            seed in any::<u64>(),
            more in 0usize..50_000,
        ) {
            let bytes = noise(len, seed);
            let cutter = Cutter::for_file(len as u64);
            let (mut cuts, mut at) = (Vec::new(), 0);
            while at < len {
                let end = (at + cutter.longest() + more).min(len);
                let cut = cutter.first(&bytes[at..end], end == len).unwrap();
                cuts.push(cut);
                at += cut;
            }
            prop_assert_eq!(cuts.iter().sum::<usize>(), len);
            prop_assert_eq!(cuts, lengths(cutter, &bytes));
        }
    }

    const GOLDEN: [usize; 7] = [68473, 61863, 33232, 80885, 79693, 74196, 1658];
    const GOLDEN_FIRST: &str = "cc8178128e629fe380612449fea2905f6b52653e89fbefc92a4673c47424f560";
}
