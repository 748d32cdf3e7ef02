use proptest::prelude::*;

use super::*;
use crate::chunk::fingerprint;

const VERSION: Version = Version { epoch: 1, counter: 7 };

/// A chunk that is told from others by its seed.
fn chunk(seed: u8) -> (Fingerprint, u32) {
    (fingerprint(&[seed]), 1000 + u32::from(seed))
}

fn len_of(chunks: &[(Fingerprint, u32)]) -> u64 {
    chunks.iter().map(|(_, len)| u64::from(*len)).sum()
}

/// A file of these chunks, as the server outlines it.
fn basis(chunks: &[(Fingerprint, u32)]) -> Basis {
    let part = |(name, len): &(Fingerprint, u32)| (u64::from(*len), Some(Brief::from(name)));
    let parts = chunks.iter().map(part).collect();
    let mut basis = Basis::new(Ino(9), VERSION);
    assert_eq!(basis.learn(&Outlined { size: len_of(chunks), start: 0, parts }), None);
    basis
}

/// What of `chunks` the basis has, each at its offset.
fn found(basis: &mut Basis, chunks: &[(Fingerprint, u32)]) -> Vec<MatchedChunk> {
    let mut at = 0;
    let find = |(name, len): &(Fingerprint, u32)| {
        let found = basis.find(at, name, *len);
        at += u64::from(*len);
        (*name, *len, found)
    };
    chunks.iter().map(find).collect()
}

/// What parts of a leaf come to where the basis is cut as `base`.
fn resolved(parts: &[LeafPart], base: &[(Fingerprint, u32)]) -> Vec<(Fingerprint, u32)> {
    let mut chunks = Vec::new();
    for part in parts {
        match part {
            LeafPart::Chunk(name, len) => chunks.push((*name, *len)),
            LeafPart::Run { ino, version, range } => {
                assert_eq!((*ino, *version), (Ino(9), VERSION));
                let mut at = 0;
                let within = |chunk: &&(Fingerprint, u32)| {
                    let start = at;
                    at += u64::from(chunk.1);
                    start >= range.start && at <= range.end
                };
                let run: Vec<_> = base.iter().filter(within).copied().collect();
                assert_eq!(len_of(&run), range.end - range.start, "a run is of whole chunks");
                chunks.extend(run);
            }
        }
    }
    chunks
}

#[test]
fn a_byte_at_the_front_costs_one_chunk_and_one_run() {
    let base: Vec<_> = (0..200).map(chunk).collect();
    let mut new = base.clone();
    new[0] = (fingerprint(b"new"), 1001);
    let mut basis = basis(&base);
    let found = found(&mut basis, &new);
    let end = len_of(&base);
    let run = LeafPart::Run { ino: Ino(9), version: VERSION, range: 1000..end };
    assert_eq!(basis.parts(&found), [LeafPart::Chunk(new[0].0, 1001), run]);
    assert_eq!(basis.dictionary(&(0..1001)), Some(0..1000));
}

#[test]
fn a_dictionary_is_what_the_runs_leave_open_or_what_lies_as_far_from_one() {
    let mb = 1 << 20;
    let base: Vec<_> = (0..64).map(|seed| (fingerprint(&[seed]), mb)).collect();
    let mut basis = basis(&base);
    let mb = u64::from(mb);
    let mut find = |new: u64, old: usize| {
        basis.find(new, &base[old].0, base[old].1).unwrap();
    };
    // Behind 10 MB of the basis 20 are left out, and 2 are new.
    (0..10).for_each(|n| find(n * mb, n as usize));
    (30..64).for_each(|n| find(n * mb - 18 * mb, n as usize));
    let dictionary = basis.dictionary(&(10 * mb..12 * mb)).unwrap();
    assert_eq!(dictionary, 10 * mb..12 * mb + 2 * SLACK);
    assert_eq!(basis.dictionary(&(46 * mb..47 * mb)), None, "nothing is left behind the last");
    let mut basis = self::basis(&base);
    basis.find(3 * mb, &base[40].0, base[40].1).unwrap();
    let before = basis.dictionary(&(2 * mb..3 * mb)).unwrap();
    assert_eq!(before, 39 * mb - 2 * SLACK..40 * mb);
}

#[test]
fn a_file_near_a_limit_is_cut_as_it_was() {
    let mut basis = Basis::new(Ino(9), VERSION);
    let size = (64 << 20) - 1;
    basis.learn(&Outlined { size, start: 0, parts: vec![(size, None)] });
    assert!(basis.is_empty());
    assert_eq!([64 << 20, 9].map(|new| basis.cut_size(new)), [size; 2]);
    assert_eq!(basis.cut_size(256 << 20), 256 << 20);
}

#[test]
fn what_does_not_move_on_is_not_asked_for_again() {
    let mut basis = Basis::new(Ino(9), VERSION);
    let part = |start, len| Outlined { size: 100, start, parts: vec![(len, None)] };
    assert_eq!(basis.learn(&part(0, 60)), Some(60));
    assert_eq!(basis.learn(&part(60, u64::MAX)), None);
    let nothing = Outlined { size: u64::MAX, start: 100, parts: Vec::new() };
    assert_eq!(basis.learn(&nothing), None);
}

proptest! {
    /// Whatever was done to a list, what is told of it comes to the list as it is.
    #[test]
    fn parts_come_to_the_list_that_was_cut(
        base in prop::collection::vec(0u8..40, 1..60),
        edits in prop::collection::vec(
            (any::<prop::sample::Index>(), 0usize..8, prop::collection::vec(0u8..80, 0..6)),
            0..5,
        ),
    ) {
        let base: Vec<_> = base.into_iter().map(chunk).collect();
        let mut new = base.clone();
        for (at, gone, came) in edits {
            let at = at.index(new.len() + 1);
            let end = new.len().min(at + gone);
            new.splice(at..end, came.into_iter().map(chunk));
        }
        let mut basis = basis(&base);
        let found = found(&mut basis, &new);
        let is_known = |chunk: &(Fingerprint, u32)| base.contains(chunk);
        for (chunk, found) in new.iter().zip(&found) {
            prop_assert_eq!(is_known(chunk), found.2.is_some());
        }
        prop_assert_eq!(resolved(&basis.parts(&found), &base), new);
    }

    /// A server may say what it likes: nothing overflows, and no dictionary is longer than it may
    /// be or beyond the file's end.
    #[test]
    fn any_outline_is_borne(
        answers in prop::collection::vec(
            (any::<u64>(), any::<u64>(), prop::collection::vec((any::<u64>(), 0u8..4), 0..9)),
            1..4,
        ),
        finds in prop::collection::vec((0u64..1 << 40, 0u8..4), 0..9),
        range in (0u64..1 << 40, 1u64..4 << 20),
    ) {
        let mut basis = Basis::new(Ino(9), VERSION);
        let longest = answers.iter().map(|(size, ..)| *size).max();
        for (size, start, parts) in answers {
            let part = |(len, seed): (u64, u8)| {
                let len = if seed == 0 { len } else { len % 2000 };
                (len, Some(Brief::from(&fingerprint(&[seed]))))
            };
            let parts = parts.into_iter().map(part).collect();
            basis.learn(&Outlined { size, start, parts });
            for (offset, seed) in &finds {
                for len in [0, 1, 1999] {
                    basis.find(*offset, &fingerprint(&[*seed]), len);
                }
            }
            if let Some(dictionary) = basis.dictionary(&(range.0..range.0 + range.1)) {
                prop_assert!(dictionary.end - dictionary.start <= DICTIONARY_MAX);
                prop_assert!(Some(dictionary.end) <= longest);
            }
        }
    }
}
