//! One method for each request of the kernel.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, FileHandle, Filesystem, FopenFlags, INodeNo, InitFlags, KernelConfig, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow,
    WriteFlags,
};
use segue_core::modlog::{NewNode, SetAttr};
use segue_core::refusal::Refusal;
use segue_core::types::{Ino, NAME_MAX};

use super::answer::{
    GENERATION, answer_attr, answer_empty, answer_entry, answer_xattr, node, open_flags, open_mode,
};
use super::caller::resolve;
use super::convert::{attr, errno, name, time};
use super::{Front, directory};
use crate::mount::{Creation, RenameFlag, Shared};

/// Largest write and read-ahead of the kernel.
const TRANSFER_MAX: u32 = 1 << 20;

fn ino(number: INodeNo) -> Ino {
    Ino(number.0)
}

impl Front {
    fn make(&self, request: &Request, creation: Result<Creation, Refusal>, reply: ReplyEntry) {
        let (mount, caller) = (Shared::clone(&self.mount), resolve(request));
        self.run(async move {
            let made = match creation {
                Ok(creation) => mount.create(creation, caller).await,
                Err(refusal) => Err(refusal),
            };
            answer_entry(&mount, reply, made);
        });
    }
}

impl Filesystem for Front {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let wanted = [
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_ATOMIC_O_TRUNC,
            InitFlags::FUSE_CACHE_SYMLINKS,
        ];
        for flag in wanted {
            // What a kernel does not offer is done without.
            config.add_capabilities(flag).ok();
        }
        config.set_max_write(TRANSFER_MAX).ok();
        config.set_max_readahead(TRANSFER_MAX).ok();
        config.set_time_granularity(Duration::from_nanos(1)).ok();
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, child: &OsStr, reply: ReplyEntry) {
        let (mount, child) = (Shared::clone(&self.mount), name(child));
        self.run(async move {
            let found = async {
                let child = child?;
                let found = mount.lookup(ino(parent), &child).await?.ok_or(Refusal::NotFound)?;
                Ok((mount.kernel_name_lifetime(ino(parent), &child, found.ino), found))
            };
            match found.await {
                Ok((ttl, found)) => reply.entry(&ttl, &attr(&found), GENERATION),
                Err(refusal) => reply.error(errno(refusal)),
            }
        });
    }

    fn getattr(
        &self,
        _request: &Request,
        file: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        let mount = Shared::clone(&self.mount);
        self.run(async move {
            let found = mount.getattr(ino(file)).await;
            answer_attr(&mount, reply, found);
        });
    }

    fn setattr(
        &self,
        request: &Request,
        file: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (mount, caller) = (Shared::clone(&self.mount), resolve(request));
        let now = mount.wall();
        let times_now =
            [&atime, &mtime].iter().all(|given| !matches!(given, Some(TimeOrNow::SpecificTime(_))));
        let set = SetAttr {
            mode: mode.map(|mode| mode & 0o7777),
            uid,
            gid,
            atime: atime.map(|atime| time(atime, now)),
            mtime: mtime.map(|mtime| time(mtime, now)),
            times_now,
        };
        self.run(async move {
            let file = ino(file);
            let changed = async {
                if let Some(size) = size {
                    mount.truncate(file, size, handle.is_some(), caller.clone()).await?;
                }
                if (SetAttr { times_now: false, ..set }) != SetAttr::default() {
                    mount.set_attr(file, set, caller).await?;
                }
                mount.getattr(file).await
            };
            let changed = changed.await;
            answer_attr(&mount, reply, changed);
        });
    }

    fn readlink(&self, _request: &Request, link: INodeNo, reply: ReplyData) {
        let mount = Shared::clone(&self.mount);
        self.run(async move {
            match mount.readlink(ino(link)).await {
                Ok(target) => reply.data(&target),
                Err(refusal) => reply.error(errno(refusal)),
            }
        });
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        child: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let creation = name(child).and_then(|name| {
            let node = node(mode, rdev)?;
            Ok(Creation { parent: ino(parent), name, node, mode: mode & !umask, exclusive: true })
        });
        self.make(request, creation, reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        child: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let creation = name(child).map(|name| Creation {
            parent: ino(parent),
            name,
            node: NewNode::Directory,
            mode: mode & !umask,
            exclusive: true,
        });
        self.make(request, creation, reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        child: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let target = target.as_os_str().as_bytes().to_vec();
        let creation = name(child).map(|name| Creation {
            parent: ino(parent),
            name,
            node: NewNode::Symlink(target),
            mode: 0o777,
            exclusive: true,
        });
        self.make(request, creation, reply);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, child: &OsStr, reply: ReplyEmpty) {
        let (mount, caller) = (Shared::clone(&self.mount), resolve(request));
        let child = name(child);
        self.run(async move {
            let result = match child {
                Ok(child) => mount.unlink(ino(parent), child, caller).await,
                Err(refusal) => Err(refusal),
            };
            answer_empty(reply, result);
        });
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, child: &OsStr, reply: ReplyEmpty) {
        let (mount, caller) = (Shared::clone(&self.mount), resolve(request));
        let child = name(child);
        self.run(async move {
            let result = match child {
                Ok(child) => mount.rmdir(ino(parent), child, caller).await,
                Err(refusal) => Err(refusal),
            };
            answer_empty(reply, result);
        });
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        child: &OsStr,
        new_parent: INodeNo,
        new_child: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (mount, caller) = (Shared::clone(&self.mount), resolve(request));
        let names = name(child).and_then(|from| Ok((from, name(new_child)?)));
        let flag = if flags.is_empty() {
            Ok(RenameFlag::Replace)
        } else if flags == RenameFlags::RENAME_NOREPLACE {
            Ok(RenameFlag::NoReplace)
        } else if flags == RenameFlags::RENAME_EXCHANGE {
            Ok(RenameFlag::Exchange)
        } else {
            Err(Refusal::Invalid)
        };
        self.run(async move {
            let result = async {
                let (from, to) = names?;
                let (from, to) = ((ino(parent), from), (ino(new_parent), to));
                mount.rename(from, to, flag?, caller).await
            };
            answer_empty(reply, result.await);
        });
    }

    fn link(
        &self,
        request: &Request,
        file: INodeNo,
        new_parent: INodeNo,
        new_child: &OsStr,
        reply: ReplyEntry,
    ) {
        let (mount, caller) = (Shared::clone(&self.mount), resolve(request));
        let child = name(new_child);
        self.run(async move {
            let made = match child {
                Ok(child) => mount.link(ino(file), ino(new_parent), child, caller).await,
                Err(refusal) => Err(refusal),
            };
            answer_entry(&mount, reply, made);
        });
    }

    fn open(&self, request: &Request, file: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let (mount, caller) = (Shared::clone(&self.mount), resolve(request));
        self.run(async move {
            match mount.open(ino(file), open_mode(flags.0), caller).await {
                Ok(opened) => reply.opened(FileHandle(opened.handle), open_flags(opened)),
                Err(refusal) => reply.error(errno(refusal)),
            }
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        child: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (mount, caller) = (Shared::clone(&self.mount), resolve(request));
        let creation = name(child).map(|name| Creation {
            parent: ino(parent),
            name,
            node: NewNode::File,
            mode: mode & !umask,
            exclusive: flags & libc::O_EXCL != 0,
        });
        self.run(async move {
            let made = match creation {
                Ok(creation) => mount.create_or_find(creation, caller.clone()).await,
                Err(refusal) => Err(refusal),
            };
            let opened = match made {
                Ok((made, true)) => {
                    Ok((made, mount.add_handle(made.ino, open_mode(flags), caller)))
                }
                Ok((found, false)) => {
                    let opened = mount.open(found.ino, open_mode(flags), caller).await;
                    opened.map(|opened| (found, opened))
                }
                Err(refusal) => Err(refusal),
            };
            match opened {
                Ok((made, opened)) => {
                    let ttl = mount.kernel_lifetime(made.ino);
                    let (handle, flags) = (FileHandle(opened.handle), open_flags(opened));
                    reply.created(&ttl, &attr(&made), GENERATION, handle, flags);
                }
                Err(refusal) => reply.error(errno(refusal)),
            }
        });
    }

    fn read(
        &self,
        _request: &Request,
        _file: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mount = Shared::clone(&self.mount);
        self.run(async move {
            match mount.read(handle.0, offset, size).await {
                Ok(bytes) => reply.data(&bytes),
                Err(refusal) => reply.error(errno(refusal)),
            }
        });
    }

    fn write(
        &self,
        _request: &Request,
        _file: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = u32::try_from(data.len()).unwrap_or(u32::MAX);
        // Pages that are written back know their place.
        let from_cache = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let append = flags.0 & libc::O_APPEND != 0 && !from_cache;
        match self.mount.write(handle.0, offset, append, data) {
            Ok(None) => reply.written(written),
            Ok(Some(told)) => {
                let mount = Shared::clone(&self.mount);
                self.run(async move {
                    match mount.committed(told).await {
                        Ok(()) => reply.written(written),
                        Err(refusal) => reply.error(errno(refusal)),
                    }
                });
            }
            Err(refusal) => reply.error(errno(refusal)),
        }
    }

    fn flush(
        &self,
        _request: &Request,
        _file: INodeNo,
        handle: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        let mount = Shared::clone(&self.mount);
        self.run(async move { answer_empty(reply, mount.flush(handle.0).await) });
    }

    fn release(
        &self,
        _request: &Request,
        _file: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.mount.close(handle.0);
        reply.ok();
    }

    fn fsync(
        &self,
        _request: &Request,
        _file: INodeNo,
        handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        let mount = Shared::clone(&self.mount);
        self.run(async move { answer_empty(reply, mount.fsync(handle.0).await) });
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        _directory: INodeNo,
        _handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        let mount = Shared::clone(&self.mount);
        self.run(async move { answer_empty(reply, mount.sync_disk(None).await) });
    }

    fn opendir(&self, _request: &Request, directory: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let handle = self.mount.open_directory(ino(directory));
        reply.opened(FileHandle(handle), FopenFlags::empty());
    }

    fn readdir(
        &self,
        _request: &Request,
        _directory: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let mount = Shared::clone(&self.mount);
        self.run(async move {
            match directory::read(&mount, handle.0, offset, &mut reply).await {
                Ok(()) => reply.ok(),
                Err(refusal) => reply.error(errno(refusal)),
            }
        });
    }

    fn readdirplus(
        &self,
        _request: &Request,
        _directory: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let mount = Shared::clone(&self.mount);
        self.run(async move {
            match directory::read_plus(&mount, handle.0, offset, &mut reply).await {
                Ok(()) => reply.ok(),
                Err(refusal) => reply.error(errno(refusal)),
            }
        });
    }

    fn releasedir(
        &self,
        _request: &Request,
        _directory: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.mount.close_directory(handle.0);
        reply.ok();
    }

    fn statfs(&self, _request: &Request, _file: INodeNo, reply: ReplyStatfs) {
        let mount = Shared::clone(&self.mount);
        self.run(async move {
            const BLOCK: u32 = 4096;
            match mount.space().await {
                Ok(space) => {
                    let blocks = |bytes: u64| bytes / u64::from(BLOCK);
                    let (total, free) = (blocks(space.total_bytes), blocks(space.free_bytes));
                    let inodes = space.inodes + free;
                    let name_max = u32::try_from(NAME_MAX).unwrap_or(255);
                    reply.statfs(total, free, free, inodes, free, BLOCK, name_max, BLOCK);
                }
                Err(refusal) => reply.error(errno(refusal)),
            }
        });
    }

    fn setxattr(
        &self,
        request: &Request,
        file: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let (mount, caller) = (Shared::clone(&self.mount), resolve(request));
        let (name, value) = (name.as_bytes().to_vec(), value.to_vec());
        self.run(async move {
            let result = mount.set_xattr(ino(file), name, value, flags, caller).await;
            answer_empty(reply, result);
        });
    }

    fn getxattr(
        &self,
        _request: &Request,
        file: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        let (mount, name) = (Shared::clone(&self.mount), name.as_bytes().to_vec());
        self.run(async move {
            answer_xattr(reply, size, mount.get_xattr(ino(file), &name).await);
        });
    }

    fn listxattr(&self, _request: &Request, file: INodeNo, size: u32, reply: ReplyXattr) {
        let mount = Shared::clone(&self.mount);
        self.run(async move {
            let names = mount.list_xattrs(ino(file)).await.map(|names| {
                names.into_iter().flat_map(|name| name.into_iter().chain([0])).collect()
            });
            answer_xattr(reply, size, names);
        });
    }

    fn removexattr(&self, request: &Request, file: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (mount, caller) = (Shared::clone(&self.mount), resolve(request));
        let name = name.as_bytes().to_vec();
        self.run(async move {
            answer_empty(reply, mount.remove_xattr(ino(file), name, caller).await);
        });
    }
}
