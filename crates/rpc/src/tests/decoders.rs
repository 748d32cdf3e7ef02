//! Whatever comes from the network is decoded, or refused: it ends nothing and takes no more memory
//! than its own length accounts for.
//!
//! Examples are changed rather than made up. `PROPTEST_CASES` says how many to try: 256 without
//! it. Heads of messages are read from streams, so they are tried over a connection (`attacks`).

use proptest::prelude::*;
use segue_core::nouns::Outcome;
use segue_core::wire::{Reply, Request};

use super::allocations::most;
use super::mutation::{leb128, mutated};
use crate::identity::{Authority, KeyRequest, MountUrl};

/// Bytes of memory for each byte of a message at most. What takes least on the wire takes most
/// here: a run of empty names, say, is a byte each there and 24 here, and some are there twice
/// while their list grows.
const EXPANSION: usize = 80;
/// And some for any message: what a list of unknown length begins with, and a list in it.
const ALLOWANCE: usize = 4 << 20;

/// Every message of `core/tests/wire.golden`.
fn messages() -> Vec<Vec<u8>> {
    let golden = include_str!("../../../core/tests/wire.golden");
    golden.lines().map(|line| unhex(line.rsplit(' ').next().unwrap())).collect()
}

fn unhex(digits: &str) -> Vec<u8> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.as_bytes().chunks(2).map(byte).collect()
}

/// Decodes as a request and as a reply, asks the usual questions of the message, and checks the
/// memory.
fn decode(bytes: &[u8]) {
    let (request, held) = most(|| Request::decode(bytes));
    assert!(held <= EXPANSION * bytes.len() + ALLOWANCE, "{held} bytes for {}", bytes.len());
    if let Ok(request) = request {
        let _ = (request.class(), request.name());
        assert_eq!(Request::decode(&request.encode().unwrap()).unwrap(), request);
        if let Request::Resume(resume) = request {
            let _ = (resume.held.len(), resume.held.runs());
            assert!(resume.held.iter().take(3).count() <= 3);
        }
    }
    let (reply, held) = most(|| Reply::decode(bytes));
    assert!(held <= EXPANSION * bytes.len() + ALLOWANCE, "{held} bytes for {}", bytes.len());
    if let Ok(reply) = reply {
        assert_eq!(Reply::decode(&reply.encode().unwrap()).unwrap(), reply);
        let (_, held) = most(|| (reply.inodes(), reply.promised()));
        assert!(held <= EXPANSION * bytes.len() + ALLOWANCE, "{held} bytes for {}", bytes.len());
        if let Reply::Applied(applied) = &reply {
            let _ = Outcome::inodes(&applied.outcomes);
        }
    }
}

#[test]
fn every_message_decodes_within_its_memory() {
    let messages = messages();
    assert!(messages.len() > 30, "the examples are not where this test looks");
    for message in messages {
        decode(&message);
    }
}

/// Lists of the shortest elements, wherever a list may stand: the most memory for a message.
#[test]
fn no_list_takes_more_memory_than_its_length_accounts_for() {
    const LONG: usize = 300_000;
    for message in messages() {
        for end in 2..message.len().min(300) {
            for filling in [&[0][..], &[1], &[0, 0, 0, 1], &[1, 0x61, 0, 2]] {
                let count = leb128((LONG / filling.len()) as u64);
                let mut long = [&message[..end], &count].concat();
                // Where the list would be refused at once there is no need of all of it.
                let start = long.len();
                long.extend(filling.iter().cycle().take(LONG));
                decode(&long[..start + 64]);
                decode(&long);
            }
        }
    }
}

proptest! {
    #[test]
    fn changed_messages_decode_or_do_not(bytes in mutated(messages())) {
        decode(&bytes);
    }

    #[test]
    fn changed_urls_are_urls_or_not(
        bytes in mutated(vec![
            b"segue://nas/home".to_vec(),
            b"segue://[fe80::1]:7420/home".to_vec(),
            format!("segue://nas:1/h?invite=c0-de&ca={}", "0123456789abcdef".repeat(4)).into(),
        ]),
    ) {
        let text = String::from_utf8_lossy(&bytes);
        let (url, held) = most(|| text.parse::<MountUrl>());
        prop_assert!(held <= 4 * text.len() + 4096);
        if let Ok(url) = url {
            prop_assert_eq!(url.to_string().parse::<MountUrl>(), Ok(url));
        }
    }
}

/// A stranger's request for a signature.
#[test]
fn changed_signing_requests_are_signed_or_refused() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::open(directory.path()).unwrap();
    let example = KeyRequest::generate().unwrap().request_der;
    proptest!(|(bytes in mutated(vec![example]))| {
        let (signed, held) = most(|| authority.sign(&bytes, "laptop").is_ok());
        // A signature covers all bytes before it.
        let _ = signed;
        prop_assert!(held <= EXPANSION * bytes.len() + (64 << 10), "{held} bytes");
    });
}
