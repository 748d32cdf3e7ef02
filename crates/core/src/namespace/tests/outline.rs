//! How a file is cut, against the way in which it was stored.

use proptest::prelude::*;

use super::super::equal::compare;
use super::super::outline::{outline, run};
use super::*;
use crate::delta::Basis;
use crate::wire::{Compare, LeafPart, OUTLINE_MAX, Outline, Outlined};

/// A piece of a file: `None` is a hole, the others are whole chunks, some of them in a leaf.
type Part = Option<u8>;

fn bytes(seed: u8) -> Vec<u8> {
    vec![seed; 50 + usize::from(seed)]
}

fn named(seed: u8) -> (Fingerprint, u32) {
    (crate::chunk::fingerprint(&bytes(seed)), bytes(seed).len() as u32)
}

fn len_of(part: &Part) -> u64 {
    part.map_or(77, |seed| bytes(seed).len() as u64)
}

/// Stores a file of `parts`, of which the runs without holes are leaves where `in_leaves`.
fn filed(txn: &mut MapTxn, tin: &mut Client, parts: &[Part], in_leaves: bool) -> Attr {
    let ino = tin.file(txn, Ino::ROOT, "f");
    fill(txn, tin, ino, parts, in_leaves)
}

fn fill(txn: &mut MapTxn, tin: &mut Client, ino: Ino, parts: &[Part], in_leaves: bool) -> Attr {
    let (mut at, mut pieces) = (0, Vec::new());
    for run in parts.chunk_by(|one, next| one.is_some() && next.is_some()) {
        let chunks: Vec<_> = run.iter().flatten().map(|seed| named(*seed)).collect();
        for seed in run.iter().flatten() {
            tin.proven.insert(arrive(txn, &bytes(*seed)));
        }
        let len: u64 = run.iter().map(len_of).sum();
        if chunks.is_empty() {
            pieces.push(Piece { offset: at, bytes: PieceBytes::Hole { len } });
        } else if in_leaves {
            let leaf = stage(txn, VOLUME, (&chunks, brought_for(&[ino])), &|_, _| true, 0)
                .unwrap()
                .unwrap();
            tin.proven.insert(leaf);
            pieces.push(Piece { offset: at, bytes: PieceBytes::Leaf { leaf, len } });
        } else {
            let mut offset = at;
            for (fingerprint, len) in chunks {
                pieces.push(Piece { offset, bytes: PieceBytes::Chunk { fingerprint, len } });
                offset += u64::from(len);
            }
        }
        at += len;
    }
    let base = version(txn, ino);
    let store = Store { ino, base, cut: Some(0), size: at, pieces, mtime: None, whole: true };
    assert!(matches!(tin.apply(txn, Record::Store(store)), Outcome::Done { .. }));
    attr(txn, ino)
}

fn parts() -> impl Strategy<Value = Vec<Part>> {
    let part = prop_oneof![4 => (1u8..20).prop_map(Some), 1 => Just(None)];
    prop::collection::vec(part, 1..40)
}

/// All of an outline from `offset` on.
fn outlined(txn: &mut MapTxn, attr: &Attr, offset: u64) -> Outlined {
    let (ino, version) = (attr.ino, attr.data_version);
    outline(txn, VOLUME, &Outline { ino, version, offset }).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    /// What a host makes of an outline is what the server makes of that: any file, however it was
    /// changed.
    #[test]
    fn runs_lead_to_the_chunks_that_were_found(
        parts in parts(),
        in_leaves in any::<bool>(),
        new in prop::collection::vec(1u8..25, 1..40),
        keep in any::<bool>(),
        splice in (0u64..1500, 1u8..255),
    ) {
        let mut txn = store();
        let mut tin = Client::new(&mut txn, 1, OWNER);
        let mut file = filed(&mut txn, &mut tin, &parts, in_leaves);
        if splice.0 < file.size {
            // Something small is written over a part of a chunk, or of a hole.
            let base = version(&mut txn, file.ino);
            let over = self::splice(file.ino, base, splice.0, &[splice.1], file.size);
            tin.apply(&mut txn, over);
            file = attr(&mut txn, file.ino);
        }
        let mut basis = Basis::new(file.ino, file.data_version);
        let mut next = Some(0);
        while let Some(offset) = next {
            next = basis.learn(&outlined(&mut txn, &file, offset));
        }
        let kept = parts.iter().flatten().copied();
        let new: Vec<u8> = if keep { new.into_iter().chain(kept).collect() } else { new };
        let mut at = 0;
        let found: Vec<_> = new.iter().map(|seed| {
            let (name, len) = named(*seed);
            let found = basis.find(at, &name, len);
            at += u64::from(len);
            (name, len, found)
        }).collect();
        let mut chunks = Vec::new();
        for part in basis.parts(&found) {
            match part {
                LeafPart::Chunk(name, len) => chunks.push((name, len)),
                LeafPart::Run { ino, version, range } => {
                    chunks.extend(run(&mut txn, VOLUME, (ino, version), &range).unwrap().unwrap());
                }
            }
        }
        let expected: Vec<_> = new.iter().map(|seed| named(*seed)).collect();
        prop_assert_eq!(chunks, expected);
    }

    /// An outline from anywhere is the end of the whole one, and begins no later than asked for.
    #[test]
    fn an_outline_from_anywhere_is_a_part_of_the_whole(
        parts in parts(),
        in_leaves in any::<bool>(),
        offset in 0u64..2500,
    ) {
        let mut txn = store();
        let mut tin = Client::new(&mut txn, 1, OWNER);
        let file = filed(&mut txn, &mut tin, &parts, in_leaves);
        let all = outlined(&mut txn, &file, 0);
        let told: Vec<u64> = all.parts.iter().map(|(len, _)| *len).collect();
        let some = outlined(&mut txn, &file, offset);
        prop_assert!(some.start <= offset);
        let mut at = 0;
        let behind = told.iter().filter(|len| { at += **len; at > offset }).count();
        prop_assert_eq!(some.parts.len(), behind);
        let names = |outlined: &Outlined| -> Vec<_> {
            outlined.parts.iter().rev().take(behind).filter_map(|(_, brief)| *brief).collect()
        };
        prop_assert_eq!(names(&some), names(&all));
    }

    /// No range makes more of it than a leaf has, whatever is asked for.
    #[test]
    fn any_range_is_answered(
        parts in parts(),
        in_leaves in any::<bool>(),
        range in (any::<u64>(), any::<u64>()),
        near in any::<bool>(),
    ) {
        let mut txn = store();
        let mut tin = Client::new(&mut txn, 1, OWNER);
        let file = filed(&mut txn, &mut tin, &parts, in_leaves);
        let (from, to) = if near { (range.0 % 2000, range.1 % 2000) } else { range };
        let of = (file.ino, file.data_version);
        if let Some(chunks) = run(&mut txn, VOLUME, of, &(from..to)).unwrap() {
            let len: u64 = chunks.iter().map(|(_, len)| u64::from(*len)).sum();
            prop_assert_eq!(len, to - from);
        }
        prop_assert!(outlined(&mut txn, &file, range.0).parts.len() <= OUTLINE_MAX);
    }

    /// Two files are the same if their bytes are, however they were stored.
    #[test]
    fn files_are_compared_by_what_they_are(
        one in parts(),
        two in parts(),
        alike in any::<bool>(),
        in_leaves in any::<[bool; 2]>(),
    ) {
        let two = if alike { one.clone() } else { two };
        let mut txn = store();
        let mut tin = Client::new(&mut txn, 1, OWNER);
        let f = filed(&mut txn, &mut tin, &one, in_leaves[0]);
        let g = tin.file(&mut txn, Ino::ROOT, "g");
        let g = fill(&mut txn, &mut tin, g, &two, in_leaves[1]);
        let mut ask = Compare { one: (f.ino, f.data_version), other: (g.ino, g.data_version) };
        prop_assert_eq!(compare(&mut txn, VOLUME, &ask).unwrap(), one == two);
        ask.other.1.counter += 1;
        let refused = compare(&mut txn, VOLUME, &ask);
        prop_assert!(matches!(refused, Err(Stop::Refused(Refusal::Changed))));
    }
}
