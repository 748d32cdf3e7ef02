//! Every answer's bytes, and what is answered where the file system has no say.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use segue_fuse::abi::{Attr, FileLock, StatFs, StatX, SxTime};
use segue_fuse::{
    Answer, Call, Entry, Errno, FileSystem, Listing, Open, Outcome, Reply, Request, Wishes,
};

use crate::examples::{Field, UNIQUE, bytes, examples};
use crate::kernel::Kernel;

/// Answers with what it was given, and drops the reply where it was given nothing.
#[derive(Default)]
struct Says(Mutex<Option<Outcome>>);

impl FileSystem for Says {
    fn call(&self, request: Request<'_>, reply: Reply) {
        assert_ne!(request.call, Call::Destroy);
        if let Some(outcome) = self.0.lock().unwrap().take() {
            reply.send(outcome);
        }
    }
}

fn attr() -> Attr {
    Attr {
        ino: 77,
        size: 4097,
        blocks: 16,
        atime: 10,
        mtime: (-11_i64).cast_unsigned(),
        ctime: 12,
        atimensec: 100,
        mtimensec: 110,
        ctimensec: 120,
        mode: 0o100_644,
        nlink: 2,
        uid: 1000,
        gid: 1001,
        rdev: 0x501,
        blksize: 4096,
        flags: 0,
    }
}

fn attr_bytes() -> Vec<u8> {
    bytes![
        77_u64,
        4097_u64,
        16_u64,
        10_u64,
        -11_i64,
        12_u64,
        100_u32,
        110_u32,
        120_u32,
        0o100_644_u32,
        2_u32,
        1000_u32,
        1001_u32,
        0x501_u32,
        4096_u32,
        0_u32
    ]
}

fn entry() -> Entry {
    Entry {
        node: 77,
        generation: 3,
        name_ttl: Duration::new(5, 50),
        attr_ttl: Duration::new(6, 60),
        attr: attr(),
    }
}

fn entry_bytes() -> Vec<u8> {
    let head = bytes![77_u64, 3_u64, 5_u64, 6_u64, 50_u32, 60_u32];
    [head, attr_bytes()].concat()
}

fn statx() -> (StatX, Vec<u8>) {
    let time = |tv_sec, tv_nsec| SxTime { tv_sec, tv_nsec, reserved: 0 };
    let stat = StatX {
        mask: 0xfff,
        blksize: 4096,
        attributes: 0x10,
        nlink: 2,
        uid: 1000,
        gid: 1001,
        mode: 0o644,
        ino: 77,
        size: 4097,
        blocks: 16,
        attributes_mask: 0x30,
        atime: time(10, 100),
        btime: time(-9, 90),
        ctime: time(12, 120),
        mtime: time(-11, 110),
        rdev_major: 5,
        rdev_minor: 1,
        dev_major: 8,
        dev_minor: 2,
        ..StatX::default()
    };
    let bytes = bytes![
        [0xfff_u32, 4096],
        0x10_u64,
        [2_u32, 1000, 1001],
        [0o644_u16, 0],
        [77_u64, 4097, 16, 0x30],
        10_i64,
        [100_u32, 0],
        -9_i64,
        [90_u32, 0],
        12_i64,
        [120_u32, 0],
        -11_i64,
        [110_u32, 0],
        [5_u32, 1, 8, 2],
        [0_u64; 14]
    ];
    (stat, bytes)
}

/// Answers with their bytes behind the header.
fn answers() -> Vec<(Answer, Vec<u8>)> {
    let open = Open { handle: 5, flags: 0b101, backing: None };
    let open_bytes = bytes![5_u64, 5_u32, 0_i32];
    let space = StatFs {
        blocks: 1,
        bfree: 2,
        bavail: 3,
        files: 4,
        ffree: 5,
        bsize: 6,
        namelen: 7,
        frsize: 8,
        ..StatFs::default()
    };
    let space_bytes = bytes![[1_u64, 2, 3, 4, 5], [6_u32, 7, 8, 0], [0_u32; 6]];
    let lock = FileLock { start: 100, end: 199, kind: 1, pid: 42 };
    let (stat, stat_bytes) = statx();
    let held_for = Duration::new(6, 60);
    let stat_head = bytes![6_u64, 60_u32, 0_u32, [0_u64; 2]];
    vec![
        (Answer::Empty, bytes![]),
        (Answer::Entry(entry()), entry_bytes()),
        (Answer::Entry(Entry::default()), vec![0; 128]),
        (Answer::Attr(attr(), held_for), [bytes![6_u64, 60_u32, 0_u32], attr_bytes()].concat()),
        (Answer::StatX(stat, held_for), [stat_head, stat_bytes].concat()),
        (Answer::Open(open), open_bytes.clone()),
        (Answer::Created(entry(), open), [entry_bytes(), open_bytes].concat()),
        (Answer::Data(b"da\0ta".to_vec()), bytes![b"da\0ta"]),
        (Answer::Data(Vec::new()), bytes![]),
        (Answer::Written(3), bytes![3_u32, 0_u32]),
        (Answer::StatFs(space), space_bytes),
        (Answer::XattrSize(9), bytes![9_u32, 0_u32]),
        (Answer::Lock(lock), bytes![100_u64, 199_u64, 1_u32, 42_u32]),
        (Answer::IoCtl(-2, b"out".to_vec()), bytes![-2_i32, [0_u32; 3], b"out"]),
        (Answer::Poll(0x41), bytes![0x41_u32, 0_u32]),
        (Answer::Offset(1 << 40), bytes![1_u64 << 40]),
        (Answer::Copied(1 << 40), bytes![1_u64 << 40]),
        (Answer::Block(7), bytes![7_u64]),
        (listing(), listing_bytes()),
        (listing_plus(), listing_plus_bytes()),
    ]
}

/// Two names; the third does not fit any more.
fn listing() -> Answer {
    let mut listing = Listing::new(24 + 8 + 24 + 16 + 31);
    assert!(listing.add(77, 1, 0o040_755, b"abc"));
    assert!(listing.add(78, 2, 0o100_644, b"eightplus"));
    assert!(!listing.add(79, 3, 0o100_644, b"z"));
    listing.finish()
}

fn listing_bytes() -> Vec<u8> {
    bytes![
        77_u64,
        1_u64,
        3_u32,
        4_u32,
        b"abc\0\0\0\0\0",
        78_u64,
        2_u64,
        9_u32,
        8_u32,
        b"eightplus\0\0\0\0\0\0\0"
    ]
}

fn listing_plus() -> Answer {
    let mut listing = Listing::new(4096);
    assert!(listing.add_plus(&entry(), 9, b"name"));
    listing.finish()
}

fn listing_plus_bytes() -> Vec<u8> {
    let dirent = bytes![77_u64, 9_u64, 4_u32, 8_u32, b"name\0\0\0\0"];
    [entry_bytes(), dirent].concat()
}

fn headed(error: i32, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(16 + body.len()).unwrap();
    [bytes![len, error, UNIQUE], body.to_vec()].concat()
}

#[test]
fn every_answer_is_encoded() {
    let files = Arc::new(Says::default());
    let kernel = Kernel::new(Arc::clone(&files), Wishes::default());
    let asked = examples().into_iter().find(|example| example.opcode == 17).unwrap();
    for (answer, bytes) in answers() {
        *files.0.lock().unwrap() = Some(Ok(answer.clone()));
        kernel.ask(&asked);
        assert_eq!(kernel.receive(), headed(0, &bytes), "{answer:?}");
    }
    kernel.end();
}

#[test]
fn errors_are_numbers_that_the_kernel_takes() {
    let files = Arc::new(Says::default());
    let kernel = Kernel::new(Arc::clone(&files), Wishes::default());
    let asked = examples().into_iter().find(|example| example.opcode == 17).unwrap();
    let sent = [(2, -2), (511, -511), (512, -5), (0, -5), (-2, -5), (i32::MIN, -5)];
    for (errno, number) in sent {
        *files.0.lock().unwrap() = Some(Err(Errno::new(errno)));
        kernel.ask(&asked);
        assert_eq!(kernel.receive(), headed(number, &[]), "{errno}");
    }
    kernel.end();
}

/// Each request gets exactly one answer, also where nobody gave one.
#[test]
fn every_request_is_answered_once() {
    let unanswered = [2, 36, 41, 42];
    let kernel = Kernel::new(Arc::new(Says::default()), Wishes::default());
    for example in examples().into_iter().filter(|asked| !asked.dialect.setxattr_ext) {
        kernel.ask(&example);
        let error = match example.call {
            Call::Destroy => 0,
            Call::Unknown => -libc::ENOSYS,
            _ => -libc::EIO,
        };
        if !unanswered.contains(&example.opcode) {
            assert_eq!(kernel.receive(), headed(error, &[]), "{:?}", example.call);
        }
    }
    // Had one been answered twice, that would come now.
    let last = examples().into_iter().find(|example| example.opcode == 4095).unwrap();
    kernel.ask(&last);
    assert_eq!(kernel.receive(), headed(-libc::ENOSYS, &[]));
    kernel.end();
}

#[test]
fn what_cannot_be_decoded_is_answered_with_an_error() {
    let kernel = Kernel::new(Arc::new(Says::default()), Wishes::default());
    for example in examples().into_iter().filter(|asked| !asked.dialect.setxattr_ext) {
        let bytes = example.whole();
        kernel.send(&bytes[..bytes.len() - 1]);
        assert_eq!(kernel.receive(), headed(-libc::EIO, &[]), "{:?}", example.call);
    }
    kernel.end();
}

/// What `Wishes::default` makes of the handshake.
#[test]
fn the_handshake_is_answered() {
    let kernel = Kernel::new(Arc::new(Says::default()), Wishes::default());
    let body = bytes![
        [7_u32, 45, 131_072, 0x4000_0000],
        [64_u16, 48],
        [1_u32 << 20, 1],
        [256_u16, 0],
        [0_u32, 0],
        [0_u16; 12]
    ];
    assert_eq!(kernel.handshake, headed(0, &body));
    assert_eq!((kernel.agreement.minor, kernel.agreement.write_max), (45, 1 << 20));
    kernel.end();
}
