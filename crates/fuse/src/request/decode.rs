//! From bytes to requests.
//!
//! A request is a header, a structure that some kinds have, and the rest: names, data, extensions.
//! From the device it comes in one piece; over io_uring structure and rest come apart. The decoder
//! trusts no length.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use zerocopy::FromBytes;

use super::{Call, Lock, Request, SetAttr, SetTime};
use crate::abi::{self, InHeader, InitIn, fattr, flag, opcode};

/// Why bytes are no request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// Shorter than its kind or its own length says.
    Short,
    /// A name or target without its end.
    Name,
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Malformed::Short => "a request of the kernel is cut off",
            Malformed::Name => "a name in a request of the kernel has no end",
        })
    }
}

impl std::error::Error for Malformed {}

/// The agreed options that change the layout of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dialect {
    /// SETXATTR has its longer form.
    pub setxattr_ext: bool,
}

/// Where the arguments of a request are.
struct Arguments<'a> {
    fixed: &'a [u8],
    /// Names and data, where they lie apart from the structure.
    rest: Option<&'a [u8]>,
}

impl<'a> Arguments<'a> {
    fn take<T: FromBytes>(&mut self) -> Result<T, Malformed> {
        let (value, left) = T::read_from_prefix(self.fixed).map_err(|_| Malformed::Short)?;
        self.fixed = left;
        Ok(value)
    }

    fn rest(&mut self) -> &mut &'a [u8] {
        self.rest.as_mut().unwrap_or(&mut self.fixed)
    }

    fn name(&mut self) -> Result<&'a OsStr, Malformed> {
        let rest = self.rest();
        let end = rest.iter().position(|byte| *byte == 0).ok_or(Malformed::Name)?;
        let (name, left) = rest.split_at_checked(end).ok_or(Malformed::Name)?;
        *rest = left.get(1..).unwrap_or_default();
        Ok(OsStr::from_bytes(name))
    }

    fn bytes(&mut self, count: u32) -> Result<&'a [u8], Malformed> {
        let rest = self.rest();
        let (bytes, left) = rest.split_at_checked(count as usize).ok_or(Malformed::Short)?;
        *rest = left;
        Ok(bytes)
    }

    /// Takes the extensions off the end.
    fn extensions(&mut self, units: u16) -> Result<&'a [u8], Malformed> {
        let rest = self.rest();
        let at = rest.len().checked_sub(usize::from(units) * 8).ok_or(Malformed::Short)?;
        let (left, extensions) = rest.split_at_checked(at).ok_or(Malformed::Short)?;
        *rest = left;
        Ok(extensions)
    }
}

/// Decodes a request that lies in one piece, as the device gives it.
pub fn decode(bytes: &[u8], dialect: Dialect) -> Result<Request<'_>, Malformed> {
    let (header, _) = InHeader::read_from_prefix(bytes).map_err(|_| Malformed::Short)?;
    let body = bytes.get(size_of::<InHeader>()..header.len as usize).ok_or(Malformed::Short)?;
    request(header, Arguments { fixed: body, rest: None }, dialect)
}

/// Decodes a request whose structure and rest lie apart, as io_uring gives it.
pub(crate) fn decode_parts<'a>(
    header: InHeader,
    fixed: &'a [u8],
    rest: &'a [u8],
    dialect: Dialect,
) -> Result<Request<'a>, Malformed> {
    request(header, Arguments { fixed, rest: Some(rest) }, dialect)
}

fn request<'a>(
    header: InHeader,
    mut arguments: Arguments<'a>,
    dialect: Dialect,
) -> Result<Request<'a>, Malformed> {
    let extensions = match header.total_extlen {
        0 => &[],
        units => arguments.extensions(units)?,
    };
    let call = call(header, &mut arguments, dialect)?;
    Ok(Request { header, call, groups: groups(extensions)? })
}

/// The supplementary groups among the extensions.
fn groups(mut extensions: &[u8]) -> Result<Vec<u32>, Malformed> {
    while !extensions.is_empty() {
        let (header, _) =
            abi::ExtHeader::read_from_prefix(extensions).map_err(|_| Malformed::Short)?;
        let size = (header.size as usize).next_multiple_of(8);
        let (extension, left) = extensions.split_at_checked(size).ok_or(Malformed::Short)?;
        let body = extension.get(size_of::<abi::ExtHeader>()..).ok_or(Malformed::Short)?;
        if header.kind == flag::EXT_GROUPS {
            let (count, body) =
                abi::SuppGroups::read_from_prefix(body).map_err(|_| Malformed::Short)?;
            return array(body, count.nr_groups);
        }
        extensions = left;
    }
    Ok(Vec::new())
}

/// `count` structures at the beginning of `bytes`. They are copied, because nothing aligns them:
/// the kernel puts arguments right behind names.
fn array<T: FromBytes>(bytes: &[u8], count: u32) -> Result<Vec<T>, Malformed> {
    let len = (count as usize).checked_mul(size_of::<T>()).ok_or(Malformed::Short)?;
    let bytes = bytes.get(..len).ok_or(Malformed::Short)?;
    let elements = bytes.chunks_exact(size_of::<T>()).map(T::read_from_bytes);
    elements.map(|element| element.map_err(|_| Malformed::Short)).collect()
}

fn call<'a>(
    header: InHeader,
    from: &mut Arguments<'a>,
    dialect: Dialect,
) -> Result<Call<'a>, Malformed> {
    Ok(match header.opcode {
        opcode::INIT => Call::Init(init(from)?),
        opcode::DESTROY => Call::Destroy,
        opcode::INTERRUPT => Call::Interrupt { unique: from.take::<abi::InterruptIn>()?.unique },
        opcode::FORGET => {
            Call::Forget(vec![(header.nodeid, from.take::<abi::ForgetIn>()?.nlookup)])
        }
        opcode::BATCH_FORGET => Call::Forget(forgets(from)?),
        opcode::NOTIFY_REPLY => retrieved(from)?,
        opcode::STATFS => Call::StatFs,
        opcode::SYNCFS => Call::SyncFs,
        opcode::LOOKUP..=opcode::LINK | opcode::RENAME2 | opcode::ACCESS | opcode::STATX => {
            name_call(header.opcode, from)?
        }
        opcode::SETXATTR..=opcode::REMOVEXATTR => xattr_call(header.opcode, from, dialect)?,
        opcode::OPENDIR..=opcode::FSYNCDIR | opcode::READDIRPLUS => {
            directory_call(header.opcode, from)?
        }
        opcode::GETLK..=opcode::SETLKW => lock_call(header.opcode, from)?,
        opcode::OPEN | opcode::CREATE | opcode::TMPFILE => open_call(header.opcode, from)?,
        opcode::IOCTL | opcode::POLL => device_call(header.opcode, from)?,
        _ => file_call(header.opcode, from)?,
    })
}

fn init(from: &mut Arguments<'_>) -> Result<InitIn, Malformed> {
    // Kernels before 7.36 send the first 16 bytes only.
    let mut full = [0; size_of::<InitIn>()];
    let sent = from.fixed.len().min(full.len());
    let target = full.get_mut(..sent).ok_or(Malformed::Short)?;
    target.copy_from_slice(from.bytes(u32::try_from(sent).map_err(|_| Malformed::Short)?)?);
    if sent < 16 {
        return Err(Malformed::Short);
    }
    InitIn::read_from_bytes(&full).map_err(|_| Malformed::Short)
}

fn forgets(from: &mut Arguments<'_>) -> Result<Vec<(u64, u64)>, Malformed> {
    let head: abi::BatchForgetIn = from.take()?;
    let forgotten: Vec<abi::ForgetOne> = array(from.rest(), head.count)?;
    Ok(forgotten.iter().map(|one| (one.nodeid, one.nlookup)).collect())
}

fn retrieved<'a>(from: &mut Arguments<'a>) -> Result<Call<'a>, Malformed> {
    // Of all requests only this one has its structure at the head of the rest.
    let rest = from.rest();
    let (head, data) =
        abi::NotifyRetrieveIn::read_from_prefix(rest).map_err(|_| Malformed::Short)?;
    *rest = data;
    Ok(Call::Retrieved { offset: head.offset, data: from.bytes(head.size)? })
}

fn name_call<'a>(opcode: u32, from: &mut Arguments<'a>) -> Result<Call<'a>, Malformed> {
    Ok(match opcode {
        opcode::LOOKUP => Call::Lookup { name: from.name()? },
        opcode::GETATTR => {
            let asked: abi::GetAttrIn = from.take()?;
            let has_handle = asked.getattr_flags & flag::GETATTR_FH != 0;
            Call::GetAttr { handle: has_handle.then_some(asked.fh) }
        }
        opcode::STATX => {
            let asked: abi::StatXIn = from.take()?;
            let has_handle = asked.getattr_flags & flag::GETATTR_FH != 0;
            let handle = has_handle.then_some(asked.fh);
            Call::StatX { handle, flags: asked.sx_flags, mask: asked.sx_mask }
        }
        opcode::SETATTR => Call::SetAttr(set_attr(&from.take()?)),
        opcode::READLINK => Call::ReadLink,
        opcode::SYMLINK => Call::Symlink { name: from.name()?, target: from.name()? },
        opcode::MKNOD => {
            let abi::MknodIn { mode, rdev, umask, .. } = from.take()?;
            Call::MkNod { name: from.name()?, mode, umask, device: rdev }
        }
        opcode::MKDIR => {
            let abi::MkdirIn { mode, umask } = from.take()?;
            Call::MkDir { name: from.name()?, mode, umask }
        }
        opcode::UNLINK => Call::Unlink { name: from.name()? },
        opcode::RMDIR => Call::RmDir { name: from.name()? },
        opcode::RENAME => {
            let new_parent = from.take::<abi::RenameIn>()?.newdir;
            Call::Rename { name: from.name()?, new_parent, new_name: from.name()?, flags: 0 }
        }
        opcode::RENAME2 => {
            let abi::Rename2In { newdir, flags, .. } = from.take()?;
            Call::Rename { name: from.name()?, new_parent: newdir, new_name: from.name()?, flags }
        }
        opcode::LINK => {
            let node = from.take::<abi::LinkIn>()?.oldnodeid;
            Call::Link { node, name: from.name()? }
        }
        opcode::ACCESS => Call::Access { mask: from.take::<abi::AccessIn>()?.mask },
        _ => Call::Unknown,
    })
}

fn set_attr(asked: &abi::SetAttrIn) -> SetAttr {
    let has = |bit| asked.valid & bit != 0;
    let time = |bit, now, secs: u64, nanos| match (has(bit), has(now)) {
        (_, true) => Some(SetTime::Now),
        (true, false) => Some(SetTime::At(secs.cast_signed(), nanos)),
        (false, false) => None,
    };
    SetAttr {
        mode: has(fattr::MODE).then_some(asked.mode),
        uid: has(fattr::UID).then_some(asked.uid),
        gid: has(fattr::GID).then_some(asked.gid),
        size: has(fattr::SIZE).then_some(asked.size),
        atime: time(fattr::ATIME, fattr::ATIME_NOW, asked.atime, asked.atimensec),
        mtime: time(fattr::MTIME, fattr::MTIME_NOW, asked.mtime, asked.mtimensec),
        ctime: time(fattr::CTIME, 0, asked.ctime, asked.ctimensec),
        handle: has(fattr::FH).then_some(asked.fh),
        kill_suidgid: has(fattr::KILL_SUIDGID),
    }
}

fn xattr_call<'a>(
    opcode: u32,
    from: &mut Arguments<'a>,
    dialect: Dialect,
) -> Result<Call<'a>, Malformed> {
    Ok(match opcode {
        opcode::SETXATTR => {
            let abi::SetXattrIn { size, flags } = from.take()?;
            let more =
                if dialect.setxattr_ext { from.take()? } else { abi::SetXattrExt::default() };
            let kill_sgid = more.setxattr_flags & flag::SETXATTR_ACL_KILL_SGID != 0;
            Call::SetXattr { name: from.name()?, value: from.bytes(size)?, flags, kill_sgid }
        }
        opcode::GETXATTR => {
            let size = from.take::<abi::GetXattrIn>()?.size;
            Call::GetXattr { name: from.name()?, size }
        }
        opcode::LISTXATTR => Call::ListXattr { size: from.take::<abi::GetXattrIn>()?.size },
        _ => Call::RemoveXattr { name: from.name()? },
    })
}

fn directory_call<'a>(opcode: u32, from: &mut Arguments<'a>) -> Result<Call<'a>, Malformed> {
    Ok(match opcode {
        opcode::OPENDIR => Call::OpenDir { flags: from.take::<abi::OpenIn>()?.flags },
        opcode::READDIR => {
            let abi::ReadIn { fh, offset, size, .. } = from.take()?;
            Call::ReadDir { handle: fh, offset, size }
        }
        opcode::READDIRPLUS => {
            let abi::ReadIn { fh, offset, size, .. } = from.take()?;
            Call::ReadDirPlus { handle: fh, offset, size }
        }
        opcode::RELEASEDIR => Call::ReleaseDir { handle: from.take::<abi::ReleaseIn>()?.fh },
        _ => {
            let abi::FsyncIn { fh, fsync_flags, .. } = from.take()?;
            Call::FSyncDir { handle: fh, data_only: fsync_flags & flag::FSYNC_FDATASYNC != 0 }
        }
    })
}

fn lock_call<'a>(opcode: u32, from: &mut Arguments<'a>) -> Result<Call<'a>, Malformed> {
    let abi::LkIn { fh, owner, lk, lk_flags, .. } = from.take()?;
    let lock = Lock { handle: fh, owner, lock: lk, is_flock: lk_flags & flag::LK_FLOCK != 0 };
    Ok(match opcode {
        opcode::GETLK => Call::GetLock(lock),
        _ => Call::SetLock { lock, wait: opcode == opcode::SETLKW },
    })
}

fn open_call<'a>(opcode: u32, from: &mut Arguments<'a>) -> Result<Call<'a>, Malformed> {
    Ok(match opcode {
        opcode::OPEN => {
            let abi::OpenIn { flags, open_flags } = from.take()?;
            Call::Open { flags, kill_suidgid: open_flags & flag::OPEN_KILL_SUIDGID != 0 }
        }
        opcode::CREATE => {
            let abi::CreateIn { flags, mode, umask, open_flags } = from.take()?;
            let kill_suidgid = open_flags & flag::OPEN_KILL_SUIDGID != 0;
            Call::Create { name: from.name()?, flags, mode, umask, kill_suidgid }
        }
        _ => {
            let abi::CreateIn { flags, mode, umask, .. } = from.take()?;
            Call::TmpFile { flags, mode, umask }
        }
    })
}

fn device_call<'a>(opcode: u32, from: &mut Arguments<'a>) -> Result<Call<'a>, Malformed> {
    Ok(match opcode {
        opcode::IOCTL => {
            let abi::IoctlIn { fh, flags, cmd, arg, in_size, out_size } = from.take()?;
            let input = from.bytes(in_size)?;
            Call::IoCtl {
                handle: fh,
                flags,
                command: cmd,
                argument: arg,
                input,
                output_max: out_size,
            }
        }
        _ => {
            let abi::PollIn { fh, kh, flags, events } = from.take()?;
            let notify = flags & flag::POLL_SCHEDULE_NOTIFY != 0;
            Call::Poll { handle: fh, kernel_handle: kh, events, notify }
        }
    })
}

fn file_call<'a>(opcode: u32, from: &mut Arguments<'a>) -> Result<Call<'a>, Malformed> {
    Ok(match opcode {
        opcode::READ => {
            let abi::ReadIn { fh, offset, size, flags, .. } = from.take()?;
            Call::Read { handle: fh, offset, size, flags }
        }
        opcode::WRITE => {
            let asked: abi::WriteIn = from.take()?;
            Call::Write {
                handle: asked.fh,
                offset: asked.offset,
                data: from.bytes(asked.size)?,
                flags: asked.flags,
                from_cache: asked.write_flags & flag::WRITE_CACHE != 0,
                kill_suidgid: asked.write_flags & flag::WRITE_KILL_SUIDGID != 0,
            }
        }
        opcode::FLUSH => {
            let abi::FlushIn { fh, lock_owner, .. } = from.take()?;
            Call::Flush { handle: fh, lock_owner }
        }
        opcode::RELEASE => {
            let abi::ReleaseIn { fh, flags, release_flags, lock_owner } = from.take()?;
            let unlocks = release_flags & flag::RELEASE_FLOCK_UNLOCK != 0;
            let flush = release_flags & flag::RELEASE_FLUSH != 0;
            Call::Release { handle: fh, flags, flush, flock_owner: unlocks.then_some(lock_owner) }
        }
        opcode::FSYNC => {
            let abi::FsyncIn { fh, fsync_flags, .. } = from.take()?;
            Call::FSync { handle: fh, data_only: fsync_flags & flag::FSYNC_FDATASYNC != 0 }
        }
        opcode::FALLOCATE => {
            let abi::FallocateIn { fh, offset, length, mode, .. } = from.take()?;
            Call::FAllocate { handle: fh, offset, length, mode }
        }
        opcode::LSEEK => {
            let abi::LseekIn { fh, offset, whence, .. } = from.take()?;
            Call::LSeek { handle: fh, offset, whence }
        }
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => {
            let asked: abi::CopyFileRangeIn = from.take()?;
            Call::CopyFileRange {
                from: (asked.fh_in, asked.off_in),
                to_node: asked.nodeid_out,
                to: (asked.fh_out, asked.off_out),
                length: asked.len,
                flags: asked.flags,
                wide: opcode == opcode::COPY_FILE_RANGE_64,
            }
        }
        opcode::BMAP => {
            let abi::BmapIn { block, blocksize, .. } = from.take()?;
            Call::BMap { block, block_bytes: blocksize }
        }
        _ => Call::Unknown,
    })
}
