//! INIT: the agreement of kernel and file system.

use zerocopy::IntoBytes;

use crate::abi::{self, InitIn, InitOut, init};
use crate::request::Dialect;

/// The wishes of a file system; a wish that the kernel does not offer is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wishes {
    /// `abi::init` flags.
    pub flags: u64,
    /// The longest WRITE, in bytes; also the longest READ.
    pub write_max: u32,
    /// How far the kernel reads ahead, in bytes.
    pub readahead_max: u32,
    /// Requests in flight without a waiter (read-ahead, releases).
    pub background_max: u16,
    /// How deep file systems may be stacked for passthrough; 0 without.
    pub stack_depth_max: u32,
    /// Requests come over io_uring where the kernel offers it.
    pub uring: bool,
}

impl Default for Wishes {
    fn default() -> Wishes {
        Wishes {
            flags: init::ASYNC_READ
                | init::BIG_WRITES
                | init::PARALLEL_DIROPS
                | init::MAX_PAGES
                | init::ABORT_ERROR
                | init::HAS_EXPIRE_ONLY
                | init::HAS_RESEND,
            write_max: 1 << 20,
            readahead_max: 1 << 20,
            background_max: 64,
            stack_depth_max: 0,
            uring: false,
        }
    }
}

impl Wishes {
    /// The longest WRITE in whole pages, as the kernel has it.
    fn write_pages_max(&self) -> u32 {
        self.write_max.max(4096).next_multiple_of(4096)
    }

    /// The most bytes behind the structures of a request or an answer.
    pub(crate) fn payload_max(&self) -> usize {
        self.write_pages_max().max(8192) as usize
    }
}

/// The agreement of kernel and file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Agreement {
    /// The minor version of the protocol that both know.
    pub minor: u32,
    /// Flags that both support: `abi::init`.
    pub flags: u64,
    /// The longest WRITE, in bytes.
    pub write_max: u32,
}

impl Agreement {
    /// True if both support all of `flags`.
    pub fn has(&self, flags: u64) -> bool {
        self.flags & flags == flags
    }

    pub(crate) fn dialect(&self) -> Dialect {
        Dialect { setxattr_ext: self.has(init::SETXATTR_EXT) }
    }

    /// The longest request: a WRITE, with its header in front.
    pub(crate) fn request_max(&self) -> usize {
        (self.write_max as usize + 4096).max(abi_min())
    }
}

/// The kernel refuses reads with a smaller buffer.
fn abi_min() -> usize {
    8192
}

/// The next step after INIT.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Answer this and begin.
    Begin(Agreement, Vec<u8>),
    /// The kernel's major version is newer: answer ours, and it asks again.
    AskAgain(Vec<u8>),
    /// The kernel is too old.
    TooOld,
}

/// Compares the kernel's offer with the wishes.
pub(crate) fn agree(offer: &InitIn, wishes: &Wishes) -> Step {
    if offer.major > abi::MAJOR {
        let out = InitOut { major: abi::MAJOR, minor: abi::MINOR, ..InitOut::default() };
        return Step::AskAgain(out.as_bytes().to_vec());
    }
    if offer.major < abi::MAJOR || offer.minor < abi::MINOR_MIN {
        return Step::TooOld;
    }
    let extended = u64::from(offer.flags) & init::INIT_EXT != 0;
    let high = if extended { u64::from(offer.flags2) << 32 } else { 0 };
    let mut wanted = wishes.flags | init::MAX_PAGES | init::INIT_EXT;
    if wishes.uring {
        wanted |= init::OVER_IO_URING;
    }
    if wishes.stack_depth_max > 0 {
        wanted |= init::PASSTHROUGH;
    }
    let flags = (u64::from(offer.flags) | high) & wanted;
    let write_max = wishes.write_pages_max();
    let pages = u16::try_from(write_max / 4096).unwrap_or(u16::MAX);
    let background = wishes.background_max.max(1);
    let minor = offer.minor.min(abi::MINOR);
    let low_half = |flags: u64| u32::try_from(flags & u64::from(u32::MAX)).unwrap_or(0);
    let out = InitOut {
        major: abi::MAJOR,
        minor,
        max_readahead: wishes.readahead_max.min(offer.max_readahead),
        flags: low_half(flags),
        max_background: background,
        congestion_threshold: (background / 4 * 3).max(1),
        max_write: write_max,
        time_gran: 1,
        max_pages: pages,
        flags2: low_half(flags >> 32),
        max_stack_depth: if flags & init::PASSTHROUGH != 0 { wishes.stack_depth_max } else { 0 },
        ..InitOut::default()
    };
    Step::Begin(Agreement { minor, flags, write_max }, out.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromBytes;

    fn offer(minor: u32, flags: u64) -> InitIn {
        let flags = flags | init::INIT_EXT;
        let half = |flags: u64| u32::try_from(flags & 0xffff_ffff).unwrap();
        InitIn {
            major: 7,
            minor,
            max_readahead: 131_072,
            flags: half(flags),
            flags2: half(flags >> 32),
            unused: [0; 11],
        }
    }

    #[test]
    fn only_what_both_want_is_agreed_on() {
        let flags = init::PARALLEL_DIROPS | init::FLOCK_LOCKS | init::PASSTHROUGH;
        let wishes = Wishes { stack_depth_max: 2, uring: true, ..Wishes::default() };
        let Step::Begin(agreed, bytes) = agree(&offer(45, flags), &wishes) else { panic!() };
        assert!(agreed.has(init::PARALLEL_DIROPS | init::PASSTHROUGH));
        assert!(!agreed.has(init::FLOCK_LOCKS) && !agreed.has(init::OVER_IO_URING));
        let out = InitOut::read_from_bytes(&bytes).unwrap();
        assert_eq!((out.minor, out.max_write, out.max_pages), (45, 1 << 20, 256));
        assert_eq!((out.max_readahead, out.max_stack_depth), (131_072, 2));
        assert_eq!(out.flags2, u32::try_from(init::PASSTHROUGH >> 32).unwrap());
    }

    #[test]
    fn the_older_of_two_minor_versions_is_spoken() {
        let minor = |offered| match agree(&offer(offered, 0), &Wishes::default()) {
            Step::Begin(agreed, _) => Some(agreed.minor),
            _ => None,
        };
        assert_eq!(minor(31), Some(31));
        assert_eq!(minor(99), Some(abi::MINOR));
        assert_eq!(minor(30), None);
    }

    #[test]
    fn a_kernel_of_the_next_major_version_is_asked_to_come_down() {
        let next = InitIn { major: 8, ..offer(0, 0) };
        assert!(matches!(agree(&next, &Wishes::default()), Step::AskAgain(_)));
        let before = InitIn { major: 6, ..offer(99, 0) };
        assert_eq!(agree(&before, &Wishes::default()), Step::TooOld);
    }

    #[test]
    fn flags_beyond_the_32nd_count_only_with_the_longer_form() {
        let mut short = offer(38, init::HAS_EXPIRE_ONLY);
        short.flags &= !u32::try_from(init::INIT_EXT).unwrap();
        let Step::Begin(agreed, _) = agree(&short, &Wishes::default()) else { panic!() };
        assert!(!agreed.has(init::HAS_EXPIRE_ONLY));
    }
}
