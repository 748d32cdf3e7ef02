//! Requests in the parts that io_uring gives, and bytes that are no requests at all.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use proptest::collection::vec;
use proptest::prelude::*;

use super::decode::{Dialect, Malformed, decode, decode_parts};
use super::{Call, Lock, SetAttr, SetTime};
use crate::abi::{FileLock, InHeader, InitIn, opcode};

#[path = "../../tests/golden/examples.rs"]
mod examples;

use examples::{Example, Field, bytes};

/// The structure in a ring's entry: bytes of earlier requests lie behind it.
fn padded(fixed: &[u8]) -> Vec<u8> {
    let mut padded = fixed.to_vec();
    padded.resize(128, 0xaa);
    padded
}

#[test]
fn every_request_is_decoded_in_parts() {
    for example in examples::examples() {
        let fixed = padded(&example.fixed);
        let rest = [example.rest.as_slice(), &example.extensions].concat();
        let request = decode_parts(example.header(), &fixed, &rest, example.dialect).unwrap();
        assert_eq!(request.header, example.header());
        assert_eq!(request.call, example.call);
        assert_eq!(request.groups, example.groups);
    }
}

#[test]
fn a_rest_that_ends_early_is_malformed() {
    for example in examples::examples() {
        let fixed = padded(&example.fixed);
        let rest = [example.rest.as_slice(), &example.extensions].concat();
        let needed = rest.len().saturating_sub(example.idle);
        for end in 0..needed {
            let cut = decode_parts(example.header(), &fixed, &rest[..end], example.dialect);
            assert!(cut.is_err(), "{:?} after {end} bytes: {cut:?}", example.call);
        }
    }
}

#[test]
fn the_handshake_does_not_come_in_parts() {
    let init = examples::init();
    let fixed = padded(&init.fixed);
    let decoded = decode_parts(init.header(), &fixed, &[], init.dialect);
    assert_eq!(decoded, Err(Malformed::Short));
}

fn any_opcode() -> impl Strategy<Value = u32> {
    prop_oneof![9 => proptest::sample::select(opcode::ALL), 1 => any::<u32>()]
}

fn any_header() -> impl Strategy<Value = InHeader> {
    let lengths = (prop_oneof![Just(u32::MAX), 0..400_u32], prop_oneof![Just(0), any::<u16>()]);
    (any_opcode(), any::<(u64, u64)>(), any::<(u32, u32, u32)>(), lengths).prop_map(
        |(opcode, (unique, nodeid), (uid, gid, pid), (len, total_extlen))| InHeader {
            len,
            opcode,
            unique,
            nodeid,
            uid,
            gid,
            pid,
            total_extlen,
            padding: 0,
        },
    )
}

/// Small numbers where a length might stand, so that it is sometimes nearly right.
fn any_body() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![2 => 0..4_u8, 1 => any::<u8>()], 0..400)
}

fn any_name() -> impl Strategy<Value = Vec<u8>> {
    vec(1..=255_u8, 0..300)
}

fn any_dialect() -> impl Strategy<Value = Dialect> {
    any::<bool>().prop_map(|setxattr_ext| Dialect { setxattr_ext })
}

/// Decodes a request that is laid out of these parts, in both forms, to the same.
fn both_ways(opcode: u32, fixed: Vec<u8>, rest: Vec<u8>, check: impl Fn(&Call<'_>)) {
    let idle = Call::Unknown;
    let dialect = Dialect { setxattr_ext: true };
    let (extensions, groups) = (Vec::new(), Vec::new());
    let request = Example { opcode, fixed, rest, extensions, dialect, call: idle, groups, idle: 0 };
    check(&decode(&request.whole(), dialect).unwrap().call);
    let fixed = padded(&request.fixed);
    check(&decode_parts(request.header(), &fixed, &request.rest, dialect).unwrap().call);
}

fn text(name: &[u8]) -> &OsStr {
    OsStr::from_bytes(name)
}

fn terminated(name: &[u8]) -> Vec<u8> {
    [name, &[0]].concat()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn no_bytes_make_it_panic(
        header in any_header(), body in any_body(), dialect in any_dialect(), at in 0..8_usize,
    ) {
        let mut whole = vec![0; at];
        whole.extend_from_slice(zerocopy::IntoBytes::as_bytes(&header));
        whole.extend_from_slice(&body);
        let decoded = decode(&whole[at..], dialect);
        if header.len as usize > 40 + body.len() {
            prop_assert_eq!(decoded, Err(Malformed::Short));
        }
        decode(&body, dialect).ok();
        let (fixed, rest) = body.split_at(body.len() / 2);
        decode_parts(header, fixed, rest, dialect).ok();
        decode_parts(header, &padded(fixed), rest, dialect).ok();
    }

    #[test]
    fn a_changed_byte_does_not_make_it_panic(
        which in any::<proptest::sample::Index>(),
        place in any::<proptest::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let examples = examples::examples();
        let example = which.get(&examples);
        let mut bytes = example.whole();
        *place.get_mut(&mut bytes) = byte;
        decode(&bytes, example.dialect).ok();
    }

    #[test]
    fn names_and_data_come_through(
        names in (any_name(), any_name()), data in vec(any::<u8>(), 0..2000), number: u64,
        half: u32,
    ) {
        let (one, two) = (terminated(&names.0), terminated(&names.1));
        let (first, second) = (text(&names.0), text(&names.1));
        both_ways(1, bytes![], one.clone(), |call| {
            assert_eq!(*call, Call::Lookup { name: first });
        });
        let pair = [one.clone(), two].concat();
        both_ways(45, bytes![number, half, 0_u32], pair.clone(), |call| {
            let (new_parent, flags) = (number, half);
            assert_eq!(*call, Call::Rename { name: first, new_parent, new_name: second, flags });
        });
        both_ways(6, bytes![], pair, |call| {
            assert_eq!(*call, Call::Symlink { name: first, target: second });
        });
        let size = u32::try_from(data.len()).unwrap();
        let write = bytes![number, !number, size, 0_u32, 0_u64, half, 0_u32];
        both_ways(16, write, data.clone(), |call| {
            let (handle, offset, flags, data) = (number, !number, half, data.as_slice());
            let (from_cache, kill_suidgid) = (false, false);
            let written = Call::Write { handle, offset, data, flags, from_cache, kill_suidgid };
            assert_eq!(*call, written);
        });
        let value = [one, data.clone()].concat();
        both_ways(21, bytes![size, half, 0_u32, 0_u32], value, |call| {
            let (name, value, flags) = (first, data.as_slice(), half);
            assert_eq!(*call, Call::SetXattr { name, value, flags, kill_sgid: false });
        });
    }

    #[test]
    fn what_setattr_sets_comes_through(
        valid in 0..1_u32 << 12, words in any::<[u64; 6]>(), halves in any::<[u32; 6]>(),
    ) {
        let [handle, size, lock_owner, atime, mtime, ctime] = words;
        let [atime_ns, mtime_ns, ctime_ns, mode, uid, gid] = halves;
        let fixed = bytes![
            [valid, 0], [handle, size, lock_owner, atime, mtime, ctime],
            [atime_ns, mtime_ns, ctime_ns, mode, 0, uid, gid, 0]
        ];
        let has = |bit: u32| valid & 1 << bit != 0;
        let time = |secs: u64, nanos| SetTime::At(secs.cast_signed(), nanos);
        let wanted = SetAttr {
            mode: has(0).then_some(mode),
            uid: has(1).then_some(uid),
            gid: has(2).then_some(gid),
            size: has(3).then_some(size),
            atime: if has(7) { Some(SetTime::Now) } else { has(4).then(|| time(atime, atime_ns)) },
            mtime: if has(8) { Some(SetTime::Now) } else { has(5).then(|| time(mtime, mtime_ns)) },
            ctime: has(10).then(|| time(ctime, ctime_ns)),
            handle: has(6).then_some(handle),
            kill_suidgid: has(11),
        };
        both_ways(4, fixed, bytes![], |call| assert_eq!(*call, Call::SetAttr(wanted)));
    }

    #[test]
    fn locks_and_forgets_come_through(
        words in any::<[u64; 4]>(), kind in 0..3_u32, pid: u32, is_flock: bool, wait: bool,
        nodes in vec(any::<(u64, u64)>(), 0..100),
    ) {
        let [handle, owner, start, end] = words;
        let fixed = bytes![[handle, owner, start, end], [kind, pid, u32::from(is_flock), 0]];
        let lock = Lock { handle, owner, lock: FileLock { start, end, kind, pid }, is_flock };
        both_ways(if wait { 33 } else { 32 }, fixed, bytes![], |call| {
            assert_eq!(*call, Call::SetLock { lock, wait });
        });
        let mut rest = Vec::new();
        nodes.iter().for_each(|(node, lookups)| [*node, *lookups].put(&mut rest));
        let count = u32::try_from(nodes.len()).unwrap();
        both_ways(42, bytes![count, 0_u32], rest, |call| {
            assert_eq!(*call, Call::Forget(nodes.clone()));
        });
    }

    #[test]
    fn groups_come_through(groups in vec(any::<u32>(), 0..200), name in any_name()) {
        let count = u32::try_from(groups.len()).unwrap();
        let mut extensions = Vec::new();
        let size = (12 + 4 * count).next_multiple_of(8);
        [size, 32, count].put(&mut extensions);
        groups.iter().for_each(|group| group.put(&mut extensions));
        extensions.resize(size as usize, 0);
        let made = Example {
            opcode: opcode::MKDIR,
            fixed: bytes![0o755_u32, 0_u32],
            rest: terminated(&name),
            extensions,
            dialect: Dialect::default(),
            call: Call::Unknown,
            groups: Vec::new(),
            idle: 0,
        };
        let whole = made.whole();
        let request = decode(&whole, made.dialect).unwrap();
        prop_assert_eq!(&request.groups, &groups);
        prop_assert_eq!(request.call, Call::MkDir { name: text(&name), mode: 0o755, umask: 0 });
    }

    #[test]
    fn the_handshake_comes_through(words in any::<[u32; 16]>()) {
        let [major, minor, max_readahead, flags, flags2, unused @ ..] = words;
        let init = Example { fixed: bytes![words], ..examples::init() };
        let offer = InitIn { major, minor, max_readahead, flags, flags2, unused };
        let whole = init.whole();
        prop_assert_eq!(decode(&whole, init.dialect).unwrap().call, Call::Init(offer));
    }
}
