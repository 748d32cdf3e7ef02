//! Bytes that are almost right. Random ones hardly pass a tag; these go deep into a decoder.

use proptest::prelude::*;

/// Bytes that often make a decoder err.
const TELLING: [u8; 8] = [0, 1, 2, 0x7f, 0x80, 0xfe, 0xff, b'/'];

/// One thing that happens to bytes.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// One bit is turned.
    Flip(prop::sample::Index, u8),
    /// One byte is another one.
    Set(prop::sample::Index, u8),
    /// The bytes end there.
    Cut(prop::sample::Index),
    /// So many bytes are missing.
    Remove(prop::sample::Index, usize),
    /// So many bytes are there once more.
    Repeat(prop::sample::Index, usize),
    /// A number, as messages have them (LEB128), stands in the place of a byte.
    Number(prop::sample::Index, u64),
    /// From there on it is the other example.
    Splice(prop::sample::Index, prop::sample::Index),
    /// Any bytes follow.
    Append(Vec<u8>),
}

fn change() -> impl Strategy<Value = Change> {
    let at = any::<prop::sample::Index>;
    let byte = prop_oneof![prop::sample::select(&TELLING[..]), any::<u8>()];
    let number = prop_oneof![
        (0..64_u32, any::<u8>()).prop_map(|(bits, less)| (1_u64 << bits).wrapping_sub(less.into())),
        any::<u64>(),
    ];
    prop_oneof![
        (at(), 0..8_u8).prop_map(|(at, bit)| Change::Flip(at, bit)),
        (at(), byte).prop_map(|(at, byte)| Change::Set(at, byte)),
        at().prop_map(Change::Cut),
        (at(), 1..40_usize).prop_map(|(at, bytes)| Change::Remove(at, bytes)),
        (at(), 1..40_usize).prop_map(|(at, bytes)| Change::Repeat(at, bytes)),
        (at(), number).prop_map(|(at, number)| Change::Number(at, number)),
        (at(), at()).prop_map(|(at, other)| Change::Splice(at, other)),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(Change::Append),
    ]
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>, other: &[u8]) {
        let place = |at: &prop::sample::Index, bytes: &[u8]| at.index(bytes.len() + 1);
        match self {
            Change::Flip(at, bit) => {
                let at = place(at, bytes);
                bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << bit);
            }
            Change::Set(at, new) => {
                let at = place(at, bytes);
                bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = *new);
            }
            Change::Cut(at) => bytes.truncate(place(at, bytes)),
            Change::Remove(at, count) => {
                let at = place(at, bytes);
                bytes.drain(at..bytes.len().min(at + count));
            }
            Change::Repeat(at, count) => {
                let at = place(at, bytes);
                let again = bytes[at..bytes.len().min(at + count)].to_vec();
                bytes.splice(at..at, again);
            }
            Change::Number(at, number) => {
                let at = place(at, bytes);
                bytes.splice(at..bytes.len().min(at + 1), leb128(*number));
            }
            Change::Splice(at, from) => {
                bytes.truncate(place(at, bytes));
                bytes.extend_from_slice(&other[place(from, other)..]);
            }
            Change::Append(more) => bytes.extend_from_slice(more),
        }
    }
}

/// A number as messages have it.
pub(crate) fn leb128(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let seven = u8::try_from(number & 0x7f).unwrap();
        number >>= 7;
        if number == 0 {
            bytes.push(seven);
            return bytes;
        }
        bytes.push(seven | 0x80);
    }
}

/// One of `examples`, changed a few times, or not at all.
pub(crate) fn mutated(examples: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let example = prop::sample::select(examples);
    let changes = prop::collection::vec(change(), 0..5);
    (example.clone(), example, changes).prop_map(|(mut bytes, other, changes)| {
        changes.iter().for_each(|change| change.apply(&mut bytes, &other));
        bytes
    })
}
