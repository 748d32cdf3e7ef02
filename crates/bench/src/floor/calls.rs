//! The floor's FUSE calls: translation only.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{self, AtFlags, Mode, XattrFlags};

use super::mirror::{Changes, Entry, Listing, Mirror};

const GENERATION: Generation = Generation(0);

fn entry(reply: ReplyEntry, ttl: Duration, result: io::Result<FileAttr>) {
    match result {
        Ok(attr) => reply.entry(&ttl, &attr, GENERATION),
        Err(error) => reply.error(error.into()),
    }
}

fn attr(reply: ReplyAttr, ttl: Duration, result: io::Result<FileAttr>) {
    match result {
        Ok(attr) => reply.attr(&ttl, &attr),
        Err(error) => reply.error(error.into()),
    }
}

fn empty(reply: ReplyEmpty, result: io::Result<()>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error.into()),
    }
}

fn data(reply: ReplyData, result: io::Result<Vec<u8>>) {
    match result {
        Ok(data) => reply.data(&data),
        Err(error) => reply.error(error.into()),
    }
}

/// Answers with a value, or, asked with size 0, with its length.
fn xattr(reply: ReplyXattr, size: u32, result: io::Result<Vec<u8>>) {
    match result {
        Ok(value) if size == 0 => reply.size(u32::try_from(value.len()).unwrap_or(u32::MAX)),
        Ok(value) if value.len() <= size as usize => reply.data(&value),
        Ok(_) => reply.error(Errno::ERANGE),
        Err(error) => reply.error(error.into()),
    }
}

/// Calls `read` with a buffer as large as Linux allows an attribute to be.
fn read_xattr(read: impl FnOnce(&mut [u8]) -> rustix::io::Result<usize>) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; 1 << 16];
    let len = read(&mut buffer)?;
    buffer.truncate(len);
    Ok(buffer)
}

fn read_up_to(file: &std::fs::File, offset: u64, size: u32) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; size as usize];
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64)? {
            0 => break,
            len => filled += len,
        }
    }
    buffer.truncate(filled);
    Ok(buffer)
}

/// The entries after the first `offset`, each with the offset of the next.
fn from(listing: &Listing, offset: u64) -> impl Iterator<Item = (u64, &Entry)> {
    (1..).zip(listing.iter()).skip(usize::try_from(offset).unwrap_or(usize::MAX))
}

#[allow(clippy::too_many_arguments)]
impl Filesystem for Mirror {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for wish in [
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_CACHE_SYMLINKS,
        ] {
            // A kernel without it does without.
            let _ = config.add_capabilities(wish);
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.nodes.lookup(parent, name) {
            // Number 0 lets the kernel cache that there is no such name.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let none = |attr| FileAttr { ino: INodeNo(0), ..attr };
                entry(reply, self.ttl, self.nodes.attr(parent).map(none));
            }
            result => entry(reply, self.ttl, result),
        }
    }

    fn forget(&self, _: &Request, ino: INodeNo, lookups: u64) {
        self.nodes.forget(ino, lookups);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        attr(reply, self.ttl, self.nodes.attr(ino));
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        attr(
            reply,
            self.ttl,
            self.set(ino, handle, Changes { mode, uid, gid, size, atime, mtime }),
        );
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        data(reply, Mirror::readlink(self, ino));
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        entry(reply, self.ttl, Mirror::mknod(self, request, (parent, name), mode, device));
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let mode = Mode::from_raw_mode(mode);
        let made = self.made(request, (parent, name), |dir| fs::mkdirat(dir, name, mode));
        entry(reply, self.ttl, made);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(reply, self.remove((parent, name), AtFlags::empty()));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(reply, self.remove((parent, name), AtFlags::REMOVEDIR));
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let made = self.made(request, (parent, name), |dir| fs::symlinkat(target, dir, name));
        entry(reply, self.ttl, made);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        empty(reply, Mirror::rename(self, (parent, name), (new_parent, new_name), flags));
    }

    fn link(
        &self,
        _: &Request,
        ino: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        entry(reply, self.ttl, Mirror::link(self, ino, (new_parent, new_name)));
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match Mirror::open(self, ino, flags.0) {
            Ok(handle) => reply.opened(handle, FopenFlags::FOPEN_KEEP_CACHE),
            Err(error) => reply.error(error.into()),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        match Mirror::create(self, request, (parent, name), mode, flags) {
            Ok((attr, handle)) => {
                reply.created(&self.ttl, &attr, GENERATION, handle, FopenFlags::FOPEN_KEEP_CACHE);
            }
            Err(error) => reply.error(error.into()),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        data(reply, self.files.get(handle.0).and_then(|file| read_up_to(&file, offset, size)));
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.files.get(handle.0).and_then(|file| file.write_all_at(bytes, offset)) {
            Ok(()) => reply.written(u32::try_from(bytes.len()).unwrap_or(u32::MAX)),
            Err(error) => reply.error(error.into()),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Answered so once, it is never asked again.
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.files.remove(handle.0);
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, data: bool, reply: ReplyEmpty) {
        let file = self.files.get(handle.0);
        let sync = |file: &std::fs::File| if data { file.sync_data() } else { file.sync_all() };
        empty(reply, file.and_then(|file| sync(&file)));
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let cached = FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE;
        match self.list(ino) {
            Ok(handle) => reply.opened(handle, cached),
            Err(error) => reply.error(error.into()),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listing = match self.listings.get(handle.0) {
            Ok(listing) => listing,
            Err(error) => return reply.error(error.into()),
        };
        for (next, (ino, kind, name)) in from(&listing, offset) {
            if reply.add(*ino, next, *kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn readdirplus(
        &self,
        _: &Request,
        dir: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listing = match self.listings.get(handle.0) {
            Ok(listing) => listing,
            Err(error) => return reply.error(error.into()),
        };
        for (next, (_, _, name)) in from(&listing, offset) {
            let dots = name == "." || name == "..";
            let found = if dots { self.nodes.attr(dir) } else { self.nodes.lookup(dir, name) };
            // Removed since the directory was opened.
            let Ok(attr) = found else { continue };
            if reply.add(attr.ino, next, name, &self.ttl, &attr, GENERATION) {
                // It did not fit, so the kernel does not know of it.
                if !dots {
                    self.nodes.forget(attr.ino, 1);
                }
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.listings.remove(handle.0);
        reply.ok();
    }

    fn statfs(&self, _: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let stat = self.nodes.path(ino).and_then(|path| Ok(fs::fstatvfs(&*path)?));
        match stat {
            Ok(stat) => reply.statfs(
                stat.f_blocks,
                stat.f_bfree,
                stat.f_bavail,
                stat.f_files,
                stat.f_ffree,
                u32::try_from(stat.f_bsize).unwrap_or(4096),
                u32::try_from(stat.f_namemax).unwrap_or(255),
                u32::try_from(stat.f_frsize).unwrap_or(4096),
            ),
            Err(error) => reply.error(error.into()),
        }
    }

    fn setxattr(
        &self,
        _: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let flags = XattrFlags::from_bits_retain(flags.cast_unsigned());
        let path = self.xattr_path(ino);
        empty(reply, path.and_then(|path| Ok(fs::setxattr(path, name, value, flags)?)));
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let path = self.xattr_path(ino);
        let value = path.and_then(|path| read_xattr(|buffer| fs::getxattr(path, name, buffer)));
        xattr(reply, size, value);
    }

    fn listxattr(&self, _: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let path = self.xattr_path(ino);
        xattr(reply, size, path.and_then(|path| read_xattr(|buffer| fs::listxattr(path, buffer))));
    }

    fn removexattr(&self, _: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let path = self.xattr_path(ino);
        empty(reply, path.and_then(|path| Ok(fs::removexattr(path, name)?)));
    }
}
