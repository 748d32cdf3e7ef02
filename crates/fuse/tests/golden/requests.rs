//! Requests in one piece. Over io_uring they come in parts: that is tested beside the decoder.

use std::collections::BTreeSet;

use segue_fuse::abi::{InitIn, opcode};
use segue_fuse::{Call, Dialect, Malformed, decode};

use crate::examples::{Example, Field, bytes, examples, init};

#[test]
fn every_request_is_decoded() {
    for example in examples().into_iter().chain([init()]) {
        let mut bytes = example.whole();
        // What an earlier request left in the buffer.
        bytes.extend_from_slice(&[0xaa; 300]);
        let request = decode(&bytes, example.dialect).unwrap();
        assert_eq!(request.header, example.header());
        assert_eq!(request.call, example.call);
        assert_eq!(request.groups, example.groups);
    }
}

#[test]
fn there_is_an_example_of_every_request() {
    let shown: BTreeSet<u32> =
        examples().iter().chain([&init()]).map(|example| example.opcode).collect();
    let missing: Vec<_> =
        opcode::ALL.iter().filter(|opcode| !shown.contains(opcode)).copied().collect();
    assert_eq!(missing.into_iter().map(opcode::name).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn a_request_that_is_shorter_than_it_says_is_malformed() {
    for example in examples().into_iter().chain([init()]) {
        let bytes = example.whole();
        for end in 0..bytes.len() {
            let cut = decode(&bytes[..end], example.dialect);
            assert_eq!(cut, Err(Malformed::Short), "{:?} after {end} bytes", example.call);
        }
    }
}

/// Cut off, with a length that agrees: nothing of what it says may be guessed.
#[test]
fn a_request_that_ends_early_is_malformed() {
    for example in examples() {
        let bytes = example.whole();
        let needed = bytes.len() - example.idle;
        for end in 40..bytes.len() {
            let mut cut = bytes[..end].to_vec();
            cut[..4].copy_from_slice(&u32::try_from(end).unwrap().to_ne_bytes());
            let decoded = decode(&cut, example.dialect).map(|request| request.call);
            if end < needed {
                assert!(decoded.is_err(), "{:?} after {end} bytes: {decoded:?}", example.call);
            } else {
                assert_eq!(decoded.unwrap(), example.call);
            }
        }
    }
}

#[test]
fn a_length_below_the_header_is_malformed() {
    let example = &examples()[0];
    for len in 0..40_u32 {
        let mut bytes = example.whole();
        bytes[..4].copy_from_slice(&len.to_ne_bytes());
        assert_eq!(decode(&bytes, example.dialect), Err(Malformed::Short));
    }
}

#[test]
fn the_handshake_of_an_older_kernel_ends_after_its_flags() {
    let whole = init();
    let short = Example { fixed: whole.fixed[..16].to_vec(), ..whole.clone() };
    let bytes = short.whole();
    let Call::Init(offer) = whole.call else { panic!() };
    let known = InitIn { flags2: 0, ..offer };
    assert_eq!(decode(&bytes, short.dialect).unwrap().call, Call::Init(known));
    let shorter = Example { fixed: whole.fixed[..12].to_vec(), ..whole };
    assert_eq!(decode(&shorter.whole(), shorter.dialect), Err(Malformed::Short));
}

/// What stands behind a name begins anywhere: nothing aligns it.
#[test]
fn groups_are_found_behind_names_of_any_length() {
    for length in 1..=16 {
        let mut rest = vec![b'n'; length];
        rest.push(0);
        let extensions = bytes![24_u32, 32_u32, 3_u32, 50_u32, 51_u32, 52_u32];
        let mut example = examples().into_iter().find(|example| example.opcode == 35).unwrap();
        (example.rest, example.extensions) = (rest, extensions);
        let bytes = example.whole();
        let request = decode(&bytes, example.dialect).unwrap();
        assert_eq!(request.groups, [50, 51, 52], "behind a name of {length} bytes");
        assert!(matches!(request.call, Call::Create { name, .. } if name.len() == length));
    }
}

/// The reader's buffer may begin anywhere.
#[test]
fn requests_are_decoded_wherever_they_lie() {
    for example in examples() {
        for at in 0..8 {
            let mut bytes = vec![0; at];
            bytes.extend_from_slice(&example.whole());
            let request = decode(&bytes[at..], example.dialect).unwrap();
            assert_eq!(request.call, example.call);
            assert_eq!(request.groups, example.groups);
        }
    }
}

#[test]
fn extensions_that_lie_about_their_length_are_malformed() {
    let lies = [
        bytes![0_u32, 32_u32, 1_u32, 50_u32],
        bytes![4_u32, 32_u32, 1_u32, 50_u32],
        bytes![8_u32, 32_u32, 1_u32, 50_u32],
        bytes![24_u32, 32_u32, 1_u32, 50_u32],
        bytes![u32::MAX, 1_u32, 1_u32, 50_u32],
        bytes![16_u32, 32_u32, 2_u32, 50_u32],
        bytes![16_u32, 32_u32, u32::MAX, 50_u32],
    ];
    for extensions in lies {
        let example = examples().into_iter().find(|example| example.opcode == 9).unwrap();
        let example = Example { extensions: extensions.clone(), ..example };
        let decoded = decode(&example.whole(), Dialect::default()).map(|request| request.groups);
        assert_eq!(decoded, Err(Malformed::Short), "{extensions:?}");
    }
    let mut longer = examples().into_iter().find(|example| example.opcode == 9).unwrap().whole();
    longer[36..38].copy_from_slice(&u16::MAX.to_ne_bytes());
    assert_eq!(decode(&longer, Dialect::default()), Err(Malformed::Short));
}
