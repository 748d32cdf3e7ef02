//! Answers of the file system, encoded into bytes.

use std::time::Duration;

use zerocopy::IntoBytes;

use crate::abi::{self, Attr, FileLock, StatFs, StatX, fopen};
use crate::backing::BackingId;
use crate::errno::Errno;

/// A name's meaning, and for how long the kernel may rely on it without asking.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Entry {
    /// The inode. 0: there is no such name, and that may be relied on for `name_ttl`.
    pub node: u64,
    /// Tells apart inodes that had the same number one after the other.
    pub generation: u64,
    /// How long the name means this.
    pub name_ttl: Duration,
    /// How long the attributes hold.
    pub attr_ttl: Duration,
    /// The attributes.
    pub attr: Attr,
}

/// An opened file or directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Open {
    /// The number by which later requests name it.
    pub handle: u64,
    /// `abi::fopen`.
    pub flags: u32,
    /// The file that reads and writes go to, past the file system.
    pub backing: Option<BackingId>,
}

/// An answer. Each variant names the requests that it fits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Done.
    Empty,
    /// LOOKUP, SYMLINK, MKNOD, MKDIR, LINK.
    Entry(Entry),
    /// GETATTR, SETATTR, with the time that it holds.
    Attr(Attr, Duration),
    /// STATX, with the time that it holds.
    StatX(StatX, Duration),
    /// OPEN, OPENDIR.
    Open(Open),
    /// CREATE, TMPFILE.
    Created(Entry, Open),
    /// READ, READLINK, GETXATTR, LISTXATTR, and `Listing`s for READDIR and READDIRPLUS.
    Data(Vec<u8>),
    /// WRITE, COPY_FILE_RANGE: bytes.
    Written(u32),
    /// STATFS.
    StatFs(StatFs),
    /// GETXATTR and LISTXATTR that asked for the size.
    XattrSize(u32),
    /// GETLK: the conflicting lock, or `F_UNLCK`.
    Lock(FileLock),
    /// IOCTL: its result and output.
    IoCtl(i32, Vec<u8>),
    /// POLL: the ready events.
    Poll(u32),
    /// LSEEK.
    Offset(u64),
    /// COPY_FILE_RANGE_64: bytes.
    Copied(u64),
    /// BMAP.
    Block(u64),
}

/// The end of a request.
pub type Outcome = Result<Answer, Errno>;

/// The longest structure of an answer.
pub(crate) const FIXED_MAX: usize = size_of::<abi::StatXOut>();

/// An answer's structure, ahead of its data.
#[derive(Debug)]
pub(crate) struct Fixed {
    bytes: [u8; FIXED_MAX],
    len: usize,
}

impl Fixed {
    const NONE: Fixed = Fixed { bytes: [0; FIXED_MAX], len: 0 };

    fn push(&mut self, part: &(impl IntoBytes + zerocopy::Immutable)) {
        let bytes = part.as_bytes();
        let end = self.len + bytes.len();
        let room = self.bytes.get_mut(self.len..end);
        debug_assert!(room.is_some(), "FIXED_MAX holds every answer");
        if let Some(room) = room {
            room.copy_from_slice(bytes);
            self.len = end;
        }
    }

    fn of(part: &(impl IntoBytes + zerocopy::Immutable)) -> Fixed {
        let mut fixed = Fixed::NONE;
        fixed.push(part);
        fixed
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// Encodes the structure of `answer`; its data, if it has any, follow.
pub(crate) fn encode(answer: &Answer) -> (Fixed, &[u8]) {
    let fixed = match answer {
        Answer::Empty => Fixed::NONE,
        Answer::Data(data) => return (Fixed::NONE, data),
        Answer::Entry(entry) => Fixed::of(&entry_out(entry)),
        Answer::Attr(attr, ttl) => Fixed::of(&abi::AttrOut {
            attr_valid: ttl.as_secs(),
            attr_valid_nsec: ttl.subsec_nanos(),
            dummy: 0,
            attr: *attr,
        }),
        Answer::StatX(stat, ttl) => Fixed::of(&abi::StatXOut {
            attr_valid: ttl.as_secs(),
            attr_valid_nsec: ttl.subsec_nanos(),
            flags: 0,
            spare: [0; 2],
            stat: *stat,
        }),
        Answer::Open(open) => Fixed::of(&open_out(open)),
        Answer::Created(entry, open) => {
            let mut fixed = Fixed::of(&entry_out(entry));
            fixed.push(&open_out(open));
            fixed
        }
        Answer::Written(size) => Fixed::of(&abi::WriteOut { size: *size, padding: 0 }),
        Answer::StatFs(space) => Fixed::of(space),
        Answer::XattrSize(size) => Fixed::of(&abi::GetXattrOut { size: *size, padding: 0 }),
        Answer::Lock(lock) => Fixed::of(&abi::LkOut { lk: *lock }),
        Answer::IoCtl(result, data) => {
            let out = abi::IoctlOut { result: *result, ..abi::IoctlOut::default() };
            return (Fixed::of(&out), data);
        }
        Answer::Poll(revents) => Fixed::of(&abi::PollOut { revents: *revents, padding: 0 }),
        Answer::Offset(offset) => Fixed::of(&abi::LseekOut { offset: *offset }),
        Answer::Copied(bytes) => Fixed::of(&abi::CopyFileRangeOut { bytes_copied: *bytes }),
        Answer::Block(block) => Fixed::of(&abi::BmapOut { block: *block }),
    };
    (fixed, &[])
}

fn entry_out(entry: &Entry) -> abi::EntryOut {
    abi::EntryOut {
        nodeid: entry.node,
        generation: entry.generation,
        entry_valid: entry.name_ttl.as_secs(),
        attr_valid: entry.attr_ttl.as_secs(),
        entry_valid_nsec: entry.name_ttl.subsec_nanos(),
        attr_valid_nsec: entry.attr_ttl.subsec_nanos(),
        attr: entry.attr,
    }
}

fn open_out(open: &Open) -> abi::OpenOut {
    let through = if open.backing.is_some() { fopen::PASSTHROUGH } else { 0 };
    abi::OpenOut {
        fh: open.handle,
        open_flags: open.flags | through,
        backing_id: open.backing.map_or(0, |BackingId(id)| id),
    }
}

/// The answer to READDIR or READDIRPLUS as it is put together: as many names as fit.
#[derive(Debug)]
pub struct Listing {
    bytes: Vec<u8>,
    size: usize,
}

impl Listing {
    /// An empty one for an answer of `size` bytes at most.
    pub fn new(size: u32) -> Listing {
        Listing { bytes: Vec::new(), size: size as usize }
    }

    /// Adds a name, with the offset behind it and its file type as in `st_mode`. Returns false if
    /// it does not fit; then it is the first of the next answer.
    pub fn add(&mut self, node: u64, next: u64, mode: u32, name: &[u8]) -> bool {
        self.push(&[], node, next, mode, name)
    }

    /// Adds a name with its attributes. A node of 0 makes no lookup of it.
    pub fn add_plus(&mut self, entry: &Entry, next: u64, name: &[u8]) -> bool {
        let head = entry_out(entry);
        self.push(head.as_bytes(), entry.attr.ino, next, entry.attr.mode, name)
    }

    fn push(&mut self, head: &[u8], node: u64, next: u64, mode: u32, name: &[u8]) -> bool {
        let Ok(namelen) = u32::try_from(name.len()) else { return false };
        let len = (head.len() + size_of::<abi::Dirent>() + name.len()).next_multiple_of(8);
        if self.bytes.len() + len > self.size {
            return false;
        }
        let end = self.bytes.len() + len;
        // The values of DT_DIR and its like.
        let kind = (mode & libc::S_IFMT) >> 12;
        self.bytes.extend_from_slice(head);
        let dirent = abi::Dirent { ino: node, off: next, namelen, kind };
        self.bytes.extend_from_slice(dirent.as_bytes());
        self.bytes.extend_from_slice(name);
        self.bytes.resize(end, 0);
        true
    }

    /// The answer.
    pub fn finish(self) -> Answer {
        Answer::Data(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number alone does not make the kernel look at it.
    #[test]
    fn a_backing_file_comes_with_its_flag() {
        let open = Open { handle: 5, flags: fopen::KEEP_CACHE, backing: Some(BackingId(3)) };
        let out = abi::OpenOut { fh: 5, open_flags: 0x82, backing_id: 3 };
        assert_eq!(encode(&Answer::Open(open)).0.bytes(), out.as_bytes());
    }

    #[test]
    fn the_longest_answers_fit() {
        let answers = [
            Answer::StatX(StatX::default(), Duration::ZERO),
            Answer::Created(Entry::default(), Open::default()),
        ];
        let lengths = answers.map(|answer| encode(&answer).0.bytes().len());
        assert_eq!(lengths, [FIXED_MAX, 128 + 16]);
    }
}
