//! Every request as the kernel lays it out, byte by byte after `linux/fuse.h`, and the call that
//! it is.
//!
//! Nothing of the crate's own layouts is used here: numbers are the header's, and fields stand
//! in its order. Unit tests of the decoder include this file too, for the form that io_uring
//! gives requests.

use std::ffi::OsStr;

use super::{Call, Dialect, FileLock, InHeader, InitIn, Lock, SetAttr, SetTime};

/// Something that is laid out: numbers in the host's order, text with a NUL behind it.
pub(crate) trait Field {
    fn put(&self, bytes: &mut Vec<u8>);
}

macro_rules! numbers {
    ($($kind:ty)*) => {
        $(impl Field for $kind {
            fn put(&self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_ne_bytes());
            }
        })*
    };
}

numbers! { u16 i32 u32 i64 u64 }

impl Field for &str {
    fn put(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self.as_bytes());
        bytes.push(0);
    }
}

impl<const N: usize> Field for &[u8; N] {
    fn put(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(*self);
    }
}

impl<T: Field, const N: usize> Field for [T; N] {
    fn put(&self, bytes: &mut Vec<u8>) {
        self.iter().for_each(|field| field.put(bytes));
    }
}

/// Fields one behind the other. `Field` must be in scope.
macro_rules! bytes {
    ($($field:expr),* $(,)?) => {{
        #[allow(unused_mut)]
        let mut bytes: Vec<u8> = Vec::new();
        $(Field::put(&$field, &mut bytes);)*
        bytes
    }};
}
pub(crate) use bytes;

/// A request in its parts, and what it is.
#[derive(Clone, Debug)]
pub(crate) struct Example {
    pub(crate) opcode: u32,
    /// The structure that its kind has; none for some.
    pub(crate) fixed: Vec<u8>,
    /// Names and data.
    pub(crate) rest: Vec<u8>,
    pub(crate) extensions: Vec<u8>,
    pub(crate) dialect: Dialect,
    pub(crate) call: Call<'static>,
    pub(crate) groups: Vec<u32>,
    /// So many bytes at its end say nothing, so they may be missing.
    pub(crate) idle: usize,
}

pub(crate) const UNIQUE: u64 = 0x1122_3344_5566_7788;
pub(crate) const NODE: u64 = 0x0a0b_0c0d_0e0f_1011;

impl Example {
    pub(crate) fn header(&self) -> InHeader {
        let body = self.fixed.len() + self.rest.len() + self.extensions.len();
        InHeader {
            len: u32::try_from(40 + body).unwrap(),
            opcode: self.opcode,
            unique: UNIQUE,
            nodeid: NODE,
            uid: 1001,
            gid: 1002,
            pid: 1003,
            total_extlen: u16::try_from(self.extensions.len() / 8).unwrap(),
            padding: 0,
        }
    }

    /// The request in one piece, as it comes from the device.
    pub(crate) fn whole(&self) -> Vec<u8> {
        let InHeader { len, total_extlen, .. } = self.header();
        let mut bytes = bytes![
            len,
            self.opcode,
            UNIQUE,
            NODE,
            1001_u32,
            1002_u32,
            1003_u32,
            total_extlen,
            0_u16
        ];
        for part in [&self.fixed, &self.rest, &self.extensions] {
            bytes.extend_from_slice(part);
        }
        bytes
    }
}

fn example(opcode: u32, fixed: Vec<u8>, rest: Vec<u8>, call: Call<'static>) -> Example {
    Example {
        opcode,
        fixed,
        rest,
        extensions: Vec::new(),
        dialect: Dialect::default(),
        call,
        groups: Vec::new(),
        idle: 0,
    }
}

fn name(text: &'static str) -> &'static OsStr {
    OsStr::new(text)
}

/// At least one example of every request.
pub(crate) fn examples() -> Vec<Example> {
    [
        names(),
        attributes(),
        xattrs(),
        files(),
        directories(),
        ranges(),
        locks(),
        devices(),
        others(),
    ]
    .concat()
}

fn names() -> Vec<Example> {
    let rename =
        |flags| Call::Rename { name: name("from"), new_parent: 9, new_name: name("to"), flags };
    let device = Call::MkNod { name: name("n"), mode: 0o20644, umask: 0o22, device: 0x501 };
    let made = Call::MkDir { name: name("dir"), mode: 0o755, umask: 0o27 };
    let supplementary = bytes![16_u32, 32_u32, 1_u32, 50_u32];
    let context = bytes![24_u32, 1_u32, 3_u32, 0_u32, b"selinux\0"];
    vec![
        example(1, bytes![], bytes!["a name"], Call::Lookup { name: name("a name") }),
        example(
            6,
            bytes![],
            bytes!["link", "../target"],
            Call::Symlink { name: name("link"), target: name("../target") },
        ),
        example(8, bytes![0o20644_u32, 0x501_u32, 0o22_u32, 0_u32], bytes!["n"], device),
        example(9, bytes![0o755_u32, 0o27_u32], bytes!["dir"], made.clone()),
        Example {
            extensions: supplementary.clone(),
            groups: vec![50],
            ..example(9, bytes![0o755_u32, 0o27_u32], bytes!["dir"], made.clone())
        },
        Example {
            extensions: [context, supplementary].concat(),
            groups: vec![50],
            ..example(9, bytes![0o755_u32, 0o27_u32], bytes!["dir"], made)
        },
        example(10, bytes![], bytes!["file"], Call::Unlink { name: name("file") }),
        example(11, bytes![], bytes!["dir"], Call::RmDir { name: name("dir") }),
        example(12, bytes![9_u64], bytes!["from", "to"], rename(0)),
        example(13, bytes![77_u64], bytes!["new"], Call::Link { node: 77, name: name("new") }),
        example(45, bytes![9_u64, 2_u32, 0_u32], bytes!["from", "to"], rename(2)),
    ]
}

fn attributes() -> Vec<Example> {
    let set = |valid: u32| {
        bytes![
            valid,
            0_u32,
            5_u64,
            4096_u64,
            6_u64,
            10_u64,
            -11_i64,
            12_u64,
            100_u32,
            110_u32,
            120_u32,
            0o104_755_u32,
            0_u32,
            1000_u32,
            1001_u32,
            0_u32
        ]
    };
    let everything = SetAttr {
        mode: Some(0o104_755),
        uid: Some(1000),
        gid: Some(1001),
        size: Some(4096),
        atime: Some(SetTime::At(10, 100)),
        mtime: Some(SetTime::At(-11, 110)),
        ctime: Some(SetTime::At(12, 120)),
        handle: Some(5),
        kill_suidgid: true,
    };
    let now =
        SetAttr { atime: Some(SetTime::Now), mtime: Some(SetTime::Now), ..SetAttr::default() };
    let statx = bytes![1_u32, 0_u32, 5_u64, 0x2000_u32, 0xfff_u32];
    let asked = Call::StatX { handle: Some(5), flags: 0x2000, mask: 0xfff };
    vec![
        example(3, bytes![0_u32, 0_u32, 5_u64], bytes![], Call::GetAttr { handle: None }),
        example(3, bytes![1_u32, 0_u32, 5_u64], bytes![], Call::GetAttr { handle: Some(5) }),
        example(4, set(0b1110_0111_1111), bytes![], Call::SetAttr(everything)),
        example(4, set(0b0001_1011_0000), bytes![], Call::SetAttr(now)),
        example(4, set(0), bytes![], Call::SetAttr(SetAttr::default())),
        example(5, bytes![], bytes![], Call::ReadLink),
        example(34, bytes![4_u32, 0_u32], bytes![], Call::Access { mask: 4 }),
        example(52, statx, bytes![], asked),
    ]
}

fn xattrs() -> Vec<Example> {
    let set =
        |kill_sgid| Call::SetXattr { name: name("user.x"), value: b"v\0lue", flags: 1, kill_sgid };
    let rest = || bytes!["user.x", b"v\0lue"];
    let asked = Call::GetXattr { name: name("user.x"), size: 64 };
    let removed = Call::RemoveXattr { name: name("user.x") };
    let longer = bytes![5_u32, 1_u32, 1_u32, 0_u32];
    let dialect = Dialect { setxattr_ext: true };
    vec![
        example(21, bytes![5_u32, 1_u32], rest(), set(false)),
        Example { dialect, ..example(21, longer, rest(), set(true)) },
        example(22, bytes![64_u32, 0_u32], bytes!["user.x"], asked),
        example(23, bytes![0_u32, 0_u32], bytes![], Call::ListXattr { size: 0 }),
        example(24, bytes![], bytes!["user.x"], removed),
    ]
}

fn files() -> Vec<Example> {
    let read = bytes![5_u64, 4096_u64, 65536_u32, 2_u32, 6_u64, 0o40000_u32, 0_u32];
    let reading = Call::Read { handle: 5, offset: 4096, size: 65536, flags: 0o40000 };
    let write = |flags: u32| bytes![5_u64, 7_u64, 3_u32, flags, 6_u64, 0o2001_u32, 0_u32];
    let writing = |from_cache, kill_suidgid| Call::Write {
        handle: 5,
        offset: 7,
        data: b"a\0b",
        flags: 0o2001,
        from_cache,
        kill_suidgid,
    };
    let create = |open_flags: u32| bytes![0o102_u32, 0o100_640_u32, 0o22_u32, open_flags];
    let created = |kill_suidgid| Call::Create {
        name: name("new"),
        flags: 0o102,
        mode: 0o100_640,
        umask: 0o22,
        kill_suidgid,
    };
    let release = |flags: u32| bytes![5_u64, 1_u32, flags, 6_u64];
    let released = |flush, flock_owner| Call::Release { handle: 5, flags: 1, flush, flock_owner };
    let synced = |data_only| Call::FSync { handle: 5, data_only };
    let nameless = Call::TmpFile { flags: 0o102, mode: 0o100_640, umask: 0o22 };
    vec![
        example(14, bytes![2_u32, 0_u32], bytes![], Call::Open { flags: 2, kill_suidgid: false }),
        example(14, bytes![2_u32, 1_u32], bytes![], Call::Open { flags: 2, kill_suidgid: true }),
        example(15, read, bytes![], reading),
        example(16, write(0), bytes![b"a\0b"], writing(false, false)),
        example(16, write(1), bytes![b"a\0b"], writing(true, false)),
        example(16, write(4), bytes![b"a\0b"], writing(false, true)),
        example(18, release(0), bytes![], released(false, None)),
        example(18, release(3), bytes![], released(true, Some(6))),
        example(20, bytes![5_u64, 0_u32, 0_u32], bytes![], synced(false)),
        example(20, bytes![5_u64, 1_u32, 0_u32], bytes![], synced(true)),
        example(
            25,
            bytes![5_u64, 0_u32, 0_u32, 6_u64],
            bytes![],
            Call::Flush { handle: 5, lock_owner: 6 },
        ),
        example(35, create(0), bytes!["new"], created(false)),
        example(35, create(1), bytes!["new"], created(true)),
        // The kernel sends a name with it, which means nothing.
        Example { idle: 2, ..example(51, create(0), bytes!["/"], nameless) },
    ]
}

fn directories() -> Vec<Example> {
    let read = || bytes![5_u64, 3_u64, 4096_u32, 0_u32, 0_u64, 0_u32, 0_u32];
    let synced = Call::FSyncDir { handle: 5, data_only: true };
    vec![
        example(27, bytes![0o200_000_u32, 0_u32], bytes![], Call::OpenDir { flags: 0o200_000 }),
        example(28, read(), bytes![], Call::ReadDir { handle: 5, offset: 3, size: 4096 }),
        example(29, bytes![5_u64, 0_u32, 0_u32, 0_u64], bytes![], Call::ReleaseDir { handle: 5 }),
        example(30, bytes![5_u64, 1_u32, 0_u32], bytes![], synced),
        example(44, read(), bytes![], Call::ReadDirPlus { handle: 5, offset: 3, size: 4096 }),
    ]
}

fn ranges() -> Vec<Example> {
    let copy = || bytes![5_u64, 10_u64, 77_u64, 6_u64, 20_u64, 1_u64 << 33, 0_u64];
    let copied = |wide| Call::CopyFileRange {
        from: (5, 10),
        to_node: 77,
        to: (6, 20),
        length: 1 << 33,
        flags: 0,
        wide,
    };
    let allocated = Call::FAllocate { handle: 5, offset: 8, length: 16, mode: 3 };
    let sought = Call::LSeek { handle: 5, offset: 8, whence: 4 };
    vec![
        example(43, bytes![5_u64, 8_u64, 16_u64, 3_u32, 0_u32], bytes![], allocated),
        example(46, bytes![5_u64, 8_u64, 4_u32, 0_u32], bytes![], sought),
        example(47, copy(), bytes![], copied(false)),
        example(53, copy(), bytes![], copied(true)),
        example(
            37,
            bytes![8_u64, 4096_u32, 0_u32],
            bytes![],
            Call::BMap { block: 8, block_bytes: 4096 },
        ),
    ]
}

fn locks() -> Vec<Example> {
    let bytes = |flags: u32| bytes![5_u64, 6_u64, 100_u64, 199_u64, 1_u32, 42_u32, flags, 0_u32];
    let lock = |is_flock| Lock {
        handle: 5,
        owner: 6,
        lock: FileLock { start: 100, end: 199, kind: 1, pid: 42 },
        is_flock,
    };
    vec![
        example(31, bytes(0), bytes![], Call::GetLock(lock(false))),
        example(32, bytes(0), bytes![], Call::SetLock { lock: lock(false), wait: false }),
        example(33, bytes(0), bytes![], Call::SetLock { lock: lock(false), wait: true }),
        example(33, bytes(1), bytes![], Call::SetLock { lock: lock(true), wait: true }),
    ]
}

fn devices() -> Vec<Example> {
    let ioctl = bytes![5_u64, 16_u32, 0x1234_u32, 9_u64, 3_u32, 64_u32];
    let called = Call::IoCtl {
        handle: 5,
        flags: 16,
        command: 0x1234,
        argument: 9,
        input: b"in\0",
        output_max: 64,
    };
    let poll = |flags: u32| bytes![5_u64, 8_u64, flags, 0x41_u32];
    let polled = |notify| Call::Poll { handle: 5, kernel_handle: 8, events: 0x41, notify };
    vec![
        example(39, ioctl, bytes![b"in\0"], called),
        example(40, poll(0), bytes![], polled(false)),
        example(40, poll(1), bytes![], polled(true)),
    ]
}

fn others() -> Vec<Example> {
    let retrieved = Call::Retrieved { offset: 4096, data: b"cached" };
    vec![
        example(2, bytes![3_u64], bytes![], Call::Forget(vec![(NODE, 3)])),
        example(
            42,
            bytes![2_u32, 0_u32],
            bytes![7_u64, 1_u64, 8_u64, 4_u64],
            Call::Forget(vec![(7, 1), (8, 4)]),
        ),
        example(17, bytes![], bytes![], Call::StatFs),
        example(36, bytes![88_u64], bytes![], Call::Interrupt { unique: 88 }),
        example(38, bytes![], bytes![], Call::Destroy),
        // Its structure counts as data: over io_uring it lies with them.
        example(
            41,
            bytes![],
            bytes![0_u64, 4096_u64, 6_u32, 0_u32, 0_u64, 0_u64, b"cached"],
            retrieved,
        ),
        Example { idle: 8, ..example(50, bytes![0_u64], bytes![], Call::SyncFs) },
        Example { idle: 8, ..example(48, bytes![0_u64], bytes![], Call::Unknown) },
        Example { idle: 8, ..example(49, bytes![0_u64], bytes![], Call::Unknown) },
        Example { idle: 8, ..example(4095, bytes![0_u64], bytes![], Call::Unknown) },
    ]
}

/// INIT of a kernel that has flags beyond the 32nd; older ones end after the first four fields.
pub(crate) fn init() -> Example {
    let offer = InitIn {
        major: 7,
        minor: 45,
        max_readahead: 131_072,
        flags: 0x4000_0000,
        flags2: 0x20,
        unused: [0; 11],
    };
    let fixed = bytes![7_u32, 45_u32, 131_072_u32, 0x4000_0000_u32, 0x20_u32, [0_u32; 11]];
    example(26, fixed, bytes![], Call::Init(offer))
}
