//! Which request goes where.

use std::os::unix::ffi::OsStrExt;

use segue_core::host::Copied;
use segue_core::refusal::Refusal;
use segue_fuse::{Answer, Call, Errno, FileSystem, Open, Reply, Request};

use super::convert::{attributes, empty, errno, ino, name, open_mode, outcome, sized, stat_fs};
use super::directory::Reader;
use super::waiting::{Asked, Kind};
use super::{Front, directory, files, names};
use crate::mount::{Part, Shared, Written};

impl FileSystem for Front {
    fn call(&self, request: Request<'_>, reply: Reply) {
        self.mount.kernel.asks();
        if self.is_of_released(&request) {
            return reply.send(Err(errno(Refusal::Stale)));
        }
        match request.call {
            Call::Open { .. }
            | Call::Create { .. }
            | Call::Read { .. }
            | Call::Write { .. }
            | Call::CopyFileRange { .. }
            | Call::FAllocate { .. }
            | Call::LSeek { .. }
            | Call::Flush { .. }
            | Call::Release { .. }
            | Call::FSync { .. } => self.file_call(&request, reply),
            Call::OpenDir { .. }
            | Call::ReadDir { .. }
            | Call::ReadDirPlus { .. }
            | Call::ReleaseDir { .. }
            | Call::FSyncDir { .. } => self.directory_call(&request, reply),
            Call::GetXattr { .. }
            | Call::ListXattr { .. }
            | Call::SetXattr { .. }
            | Call::RemoveXattr { .. } => self.xattr_call(&request, reply),
            _ => self.name_call(&request, reply),
        }
    }

    fn forget(&self, nodes: Vec<(u64, u64)>) {
        for (node, times) in nodes {
            // A file that was left behind is known by two.
            if self.mount.kernel.node(ino(node)) == node {
                self.mount.kernel.let_go(ino(node));
            }
            self.mount.kernel.forgotten(node, times);
        }
    }

    fn interrupt(&self, unique: u64) {
        self.interrupts.interrupt(unique);
    }
}

impl Front {
    fn mount(&self) -> Shared {
        Shared::clone(&self.mount)
    }

    /// True if the request names an inode by a number that belongs to another inode now. A call
    /// with a handle is refused by the handle, so that the handle can still be closed.
    fn is_of_released(&self, request: &Request<'_>) -> bool {
        let other = match request.call {
            Call::Read { .. }
            | Call::Write { .. }
            | Call::CopyFileRange { .. }
            | Call::FAllocate { .. }
            | Call::LSeek { .. }
            | Call::Flush { .. }
            | Call::Release { .. }
            | Call::FSync { .. }
            | Call::ReleaseDir { .. } => return false,
            Call::Rename { new_parent, .. } => new_parent,
            Call::Link { node, .. } => node,
            _ => request.node(),
        };
        self.mount.kernel.is_released(request.node()) || self.mount.kernel.is_released(other)
    }

    fn name_call(&self, request: &Request<'_>, reply: Reply) {
        let (node, mount) = (ino(request.node()), self.mount());
        let (whole, caller) = (Asked::new(request, Kind::Whole), || self.callers.resolve(request));
        match request.call {
            Call::Lookup { name: child } => {
                self.answer(whole, reply, names::lookup(mount, node, name(child)));
            }
            Call::GetAttr { .. } => {
                let node = request.node();
                self.answer(whole, reply, async move {
                    let found = mount.getattr(ino(node)).await;
                    attributes(&mount, node, found)
                });
            }
            Call::SetAttr(set) => {
                // truncate(2) may wait for the server.
                let kind = if set.size.is_some() { Kind::Interruptible } else { Kind::Whole };
                let asked = Asked::new(request, kind);
                self.answer(asked, reply, names::set_attr(mount, request.node(), set, caller()));
            }
            Call::ReadLink => self.answer(whole, reply, async move {
                outcome(mount.readlink(node).await, Answer::Data)
            }),
            Call::Symlink { .. } | Call::MkNod { .. } | Call::MkDir { .. } => {
                let creation = names::creation(node, &request.call);
                self.answer(whole, reply, names::make(mount, creation, caller()));
            }
            Call::Unlink { name: child } => {
                self.answer(whole, reply, names::unlink(mount, node, name(child), caller()));
            }
            Call::RmDir { name: child } => {
                self.answer(whole, reply, names::rmdir(mount, node, name(child), caller()));
            }
            Call::Rename { name: from, new_parent, new_name, flags } => {
                let names = name(from).and_then(|from| Ok((from, name(new_name)?)));
                let places = names.map(|(from, to)| ((node, from), (ino(new_parent), to)));
                self.answer(whole, reply, names::rename(mount, places, flags, caller()));
            }
            Call::Link { node: file, name: child } => {
                let place = (node, name(child));
                self.answer(whole, reply, names::link(mount, ino(file), place, caller()));
            }
            Call::StatFs => self.answer(whole, reply, async move {
                outcome(mount.space(node).await, |space| Answer::StatFs(stat_fs(space)))
            }),
            Call::SyncFs => {
                let session = caller().session;
                self.answer(whole, reply, async move { empty(mount.sync_all(session).await) })
            }
            // The kernel does these by itself, or tells the caller that they are not here.
            _ => reply.send(Err(Errno::NOSYS)),
        }
    }

    fn file_call(&self, request: &Request<'_>, reply: Reply) {
        let (node, mount) = (ino(request.node()), self.mount());
        let asked = Asked::new(request, Kind::Interruptible);
        match request.call {
            Call::Open { flags, kill_suidgid } => {
                let mode = open_mode(flags, kill_suidgid);
                self.answer(
                    asked,
                    reply,
                    files::open(mount, request.node(), mode, self.callers.resolve(request)),
                );
            }
            Call::Create { name: child, flags, mode, umask, kill_suidgid } => {
                let creation = files::creation(node, child, flags, mode & !umask);
                let mode = open_mode(flags, kill_suidgid);
                let work = files::create(mount, creation, mode, self.callers.resolve(request));
                self.answer(asked, reply, work);
            }
            Call::Read { handle, offset, size, flags } => {
                let is_direct = flags.cast_signed() & libc::O_DIRECT != 0;
                let part = Part { offset, len: size, is_direct };
                let asked = Asked::new(request, Kind::Read);
                let pid = request.header.pid;
                self.answer(asked, reply, async move {
                    outcome(mount.read(handle, part, pid).await, Answer::Data)
                });
            }
            Call::Write { handle, offset, data, flags, from_cache, kill_suidgid } => {
                // Pages that are written back know their place.
                let append = flags.cast_signed() & libc::O_APPEND != 0 && !from_cache;
                let written = Written { offset, append, bytes: data, kills_set_ids: kill_suidgid };
                let (file, asked) = ((request.node(), handle), Asked::new(request, Kind::Sync));
                match self.mount.write(file, written) {
                    Err(Refusal::Stale) if self.mount.is_size_lost(node) => {
                        let (data, written) = (data.to_vec(), Written { bytes: &[], ..written });
                        self.answer(asked, reply, files::write_anew(mount, file, written, data));
                    }
                    changed => {
                        self.answer(asked, reply, files::written(mount, changed, data.len()));
                    }
                }
            }
            Call::FAllocate { handle, offset, length, mode } => {
                let wanted = files::allocation((offset, length), mode, request.header.uid);
                let asked = Asked::new(request, Kind::Sync);
                self.answer(asked, reply, files::allocate(mount, (node, handle), wanted));
            }
            Call::LSeek { handle, offset, whence } => {
                self.answer(asked, reply, files::seek(mount, handle, offset, whence));
            }
            Call::CopyFileRange { from, to, length, .. } => {
                let copied = Copied { from: from.1, to: to.1, len: length };
                self.answer(asked, reply, async move {
                    outcome(mount.copy(from.0, to.0, copied).await, Answer::Copied)
                });
            }
            Call::Flush { handle, .. } => {
                let asked = Asked::new(request, Kind::Close);
                self.answer(asked, reply, async move { empty(mount.flush(handle).await) });
            }
            Call::Release { handle, .. } => {
                self.mount.shell.close_handle(handle);
                reply.send(Ok(Answer::Empty));
            }
            Call::FSync { handle, .. } => {
                let asked = Asked::new(request, Kind::Sync);
                self.answer(asked, reply, async move { empty(mount.fsync(handle).await) });
            }
            _ => reply.send(Err(Errno::NOSYS)),
        }
    }

    fn directory_call(&self, request: &Request<'_>, reply: Reply) {
        let (node, mount) = (ino(request.node()), self.mount());
        let asked = Asked::new(request, Kind::Whole);
        match request.call {
            // The kernel asks and tells no more of opens, and uses the listing that it has.
            Call::OpenDir { .. } if !self.mount.has_directory_handles() => {
                reply.send(Err(Errno::NOSYS));
            }
            Call::OpenDir { .. } => {
                let handle = self.mount.open_directory(node, request.header.pid);
                reply.send(Ok(Answer::Open(Open { handle, flags: 0, backing: None })));
            }
            Call::ReadDir { handle, offset, size } => {
                let reader = Reader { directory: node, handle, pid: request.header.pid };
                self.answer(asked, reply, async move {
                    directory::read(&mount, &reader, offset, size).await.map_err(errno)
                });
            }
            Call::ReadDirPlus { handle, offset, size } => {
                let reader = Reader { directory: node, handle, pid: request.header.pid };
                self.answer(asked, reply, async move {
                    directory::read_plus(&mount, &reader, offset, size).await.map_err(errno)
                });
            }
            Call::ReleaseDir { handle } => {
                self.mount.close_directory(handle);
                reply.send(Ok(Answer::Empty));
            }
            Call::FSyncDir { .. } => {
                let session = self.callers.resolve(request).session;
                self.answer(asked, reply, async move {
                    empty(mount.fsync_directory(node, session).await)
                });
            }
            _ => reply.send(Err(Errno::NOSYS)),
        }
    }

    fn xattr_call(&self, request: &Request<'_>, reply: Reply) {
        let (node, mount) = (ino(request.node()), self.mount());
        let asked = Asked::new(request, Kind::Whole);
        match request.call {
            Call::GetXattr { name, size } => {
                let name = name.as_bytes().to_vec();
                self.answer(asked, reply, async move {
                    sized(mount.get_xattr(node, &name).await, size)
                });
            }
            Call::ListXattr { size } => self.answer(asked, reply, async move {
                let names = mount.list_xattrs(node).await.map(|names| {
                    names.into_iter().flat_map(|name| name.into_iter().chain([0])).collect()
                });
                sized(names, size)
            }),
            Call::SetXattr { name, value, flags, .. } => {
                let (name, value) = (name.as_bytes().to_vec(), value.to_vec());
                let (flags, caller) = (flags.cast_signed(), self.callers.resolve(request));
                self.answer(asked, reply, async move {
                    empty(mount.set_xattr(node, name, value, flags, caller).await)
                });
            }
            Call::RemoveXattr { name } => {
                let (name, caller) = (name.as_bytes().to_vec(), self.callers.resolve(request));
                self.answer(asked, reply, async move {
                    empty(mount.remove_xattr(node, name, caller).await)
                });
            }
            _ => reply.send(Err(Errno::NOSYS)),
        }
    }
}
