//! The file system: every call of the kernel, answered from memory.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, MutexGuard};

use segue_fuse::abi::{FileLock, StatFs, fopen};
use segue_fuse::{
    Answer, Call, Errno, FileSystem, Interrupts, Open, Outcome, PendingCall, Reply, Request,
};

use crate::data::Data;
use crate::node::{Directory, Kind, TTL};
use crate::tree::{Caller, Result, Tree, pages_of, refuse};
use crate::waiting::Waiters;

/// The longest copy that one answer makes.
const COPY_MAX: u64 = 1 << 24;

/// A file system in memory, as POSIX has it.
#[derive(Clone, Default)]
pub(crate) struct Memory {
    state: Arc<Mutex<State>>,
    interrupts: Interrupts,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) tree: Tree,
    pub(crate) waiters: Waiters,
    last_handle: u64,
    /// Where the listing of each open directory ends: at what was the newest name when it began.
    /// Else one who adds a name for each that he reads would never come to an end.
    ends: BTreeMap<u64, u64>,
    /// Requests that tests want to be without an answer.
    pub(crate) held: Vec<PendingCall>,
}

impl Memory {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl FileSystem for Memory {
    fn call(&self, request: Request<'_>, reply: Reply) {
        let unique = request.unique();
        let mut state = self.state();
        let (outcome, freed) = match request.call {
            Call::SetLock { lock, wait } => {
                let waits = wait.then_some(unique);
                match state.set_lock(request.node(), lock, waits) {
                    Some(done) => done,
                    None => {
                        state.waiters.reply(unique, reply);
                        drop(state);
                        return self.wait(unique);
                    }
                }
            }
            Call::Flush { lock_owner, .. } => {
                let freed = state.release_locks(request.node(), |held| {
                    held.owner == lock_owner && !held.is_flock
                });
                (Ok(Answer::Empty), freed)
            }
            Call::Release { handle, flock_owner, .. } => {
                let freed = state.release_locks(request.node(), |held| {
                    held.handle == handle || held.is_flock && flock_owner == Some(held.owner)
                });
                state.closed(request.node());
                (Ok(Answer::Empty), freed)
            }
            _ => (state.answer(&request), Vec::new()),
        };
        drop(state);
        reply.send(outcome);
        freed.into_iter().for_each(|waiter| waiter.send(Ok(Answer::Empty)));
    }

    fn forget(&self, nodes: Vec<(u64, u64)>) {
        let mut state = self.state();
        for (ino, lookups) in nodes {
            if let Ok(node) = state.tree.node(ino) {
                node.lookups = node.lookups.checked_sub(lookups).unwrap();
            }
            state.tree.let_go(ino);
        }
    }

    fn interrupt(&self, unique: u64) {
        self.interrupts.interrupt(unique);
    }
}

impl Memory {
    /// Has request `unique` wait until it is interrupted.
    pub(crate) fn hold(&self, unique: u64, reply: Reply) {
        let waiting = self.interrupts.wait(unique, move || reply.send(Err(Errno::INTR)));
        self.state().held.push(waiting);
    }

    /// Request `unique` waits for a lock until it gets it or is interrupted.
    fn wait(&self, unique: u64) {
        let state = Arc::clone(&self.state);
        let waiting = self.interrupts.wait(unique, move || {
            let reply = state.lock().unwrap().waiters.give_up(unique);
            if let Some(reply) = reply {
                reply.send(Err(Errno::INTR));
            }
        });
        self.state().waiters.interruptible(unique, waiting);
    }
}

impl State {
    fn answer(&mut self, request: &Request<'_>) -> Outcome {
        let caller = Caller { uid: request.header.uid, gid: request.header.gid };
        let node = request.node();
        match request.call {
            Call::Lookup { .. }
            | Call::Symlink { .. }
            | Call::MkNod { .. }
            | Call::MkDir { .. }
            | Call::Unlink { .. }
            | Call::RmDir { .. }
            | Call::Rename { .. }
            | Call::Link { .. } => self.name(node, &request.call, caller),
            Call::Open { .. }
            | Call::Create { .. }
            | Call::TmpFile { .. }
            | Call::OpenDir { .. }
            | Call::ReleaseDir { .. } => self.open(node, &request.call, caller),
            Call::SetXattr { .. }
            | Call::GetXattr { .. }
            | Call::ListXattr { .. }
            | Call::RemoveXattr { .. } => self.xattr(node, &request.call, caller),
            Call::Read { .. }
            | Call::Write { .. }
            | Call::FAllocate { .. }
            | Call::LSeek { .. }
            | Call::CopyFileRange { .. } => self.data(node, &request.call),
            _ => self.other(node, &request.call),
        }
    }

    fn name(&mut self, node: u64, call: &Call<'_>, caller: Caller) -> Outcome {
        let tree = &mut self.tree;
        let made = match *call {
            Call::Lookup { name } => return Ok(Answer::Entry(tree.lookup(node, name.as_bytes())?)),
            Call::Symlink { name, target } => {
                let kind = Kind::Link(target.as_bytes().to_vec());
                tree.create(node, name.as_bytes(), kind, libc::S_IFLNK | 0o777, caller)?
            }
            Call::MkNod { name, mode, device, .. } => {
                let is_file = mode & libc::S_IFMT == libc::S_IFREG;
                let kind = if is_file { Kind::File(Data::default()) } else { Kind::Special };
                let made = tree.create(node, name.as_bytes(), kind, mode, caller)?;
                tree.node(made)?.rdev = device;
                made
            }
            Call::MkDir { name, mode, .. } => {
                let kind = Kind::Directory(Directory::new(node));
                tree.create(node, name.as_bytes(), kind, libc::S_IFDIR | mode, caller)?
            }
            Call::Link { node: old, name } => {
                return Ok(Answer::Entry(tree.link(old, node, name.as_bytes())?));
            }
            Call::Unlink { name } => {
                return tree.unlink(node, name.as_bytes()).map(|()| Answer::Empty);
            }
            Call::RmDir { name } => {
                return tree.rmdir(node, name.as_bytes()).map(|()| Answer::Empty);
            }
            Call::Rename { name, new_parent, new_name, flags } => {
                let (from, to) = ((node, name.as_bytes()), (new_parent, new_name.as_bytes()));
                return tree.rename(from, to, flags, caller).map(|()| Answer::Empty);
            }
            _ => return Err(Errno::NOSYS),
        };
        Ok(Answer::Entry(tree.node(made)?.entry()))
    }

    fn open(&mut self, node: u64, call: &Call<'_>, caller: Caller) -> Outcome {
        self.last_handle += 1;
        let open = Open { handle: self.last_handle, flags: fopen::KEEP_CACHE, backing: None };
        let tree = &mut self.tree;
        match *call {
            Call::Open { flags, kill_suidgid } => {
                if flags & libc::O_TRUNC.cast_unsigned() != 0 {
                    tree.edit(node, |_| 0, |data| data.resize(0))?;
                    let file = tree.node(node)?;
                    file.modified();
                    if kill_suidgid {
                        file.kill_set_ids();
                    }
                }
                tree.node(node)?.opens += 1;
                Ok(Answer::Open(open))
            }
            Call::Create { name, mode, .. } => {
                let kind = Kind::File(Data::default());
                let made = tree.create(node, name.as_bytes(), kind, mode, caller)?;
                let file = tree.node(made)?;
                file.opens += 1;
                Ok(Answer::Created(file.entry(), open))
            }
            Call::TmpFile { mode, .. } => {
                let made = tree.make(node, Kind::File(Data::default()), mode, caller)?;
                let file = tree.node(made)?;
                (file.nlink, file.opens) = (0, 1);
                Ok(Answer::Created(file.entry(), open))
            }
            Call::OpenDir { .. } => {
                tree.node(node)?.opens += 1;
                Ok(Answer::Open(Open { flags: 0, ..open }))
            }
            Call::ReleaseDir { handle } => {
                self.ends.remove(&handle);
                self.closed(node);
                Ok(Answer::Empty)
            }
            _ => Err(Errno::NOSYS),
        }
    }

    fn list(&mut self, node: u64, handle: u64, offset: u64, size: u32, plus: bool) -> Outcome {
        let newest = self.tree.newest(node)?;
        let end = self.ends.entry(handle).or_insert(newest);
        if offset == 0 {
            *end = newest;
        }
        if offset >= *end {
            return Ok(Answer::Data(Vec::new()));
        }
        self.tree.list(node, offset + 1..=*end, size, plus)
    }

    fn closed(&mut self, node: u64) {
        if let Ok(node) = self.tree.node(node) {
            node.opens = node.opens.checked_sub(1).unwrap();
        }
        self.tree.let_go(node);
    }

    fn xattr(&mut self, node: u64, call: &Call<'_>, caller: Caller) -> Outcome {
        let node = self.tree.node(node)?;
        let absent = || Errno::new(libc::ENODATA);
        match *call {
            Call::SetXattr { name, value, flags, .. } => {
                let is_there = node.xattrs.contains_key(known(name)?);
                let flags = flags.cast_signed();
                if is_there && flags & libc::XATTR_CREATE != 0 {
                    return refuse(libc::EEXIST);
                }
                if !is_there && flags & libc::XATTR_REPLACE != 0 {
                    return Err(absent());
                }
                node.xattrs.insert(name.as_bytes().to_vec(), value.to_vec());
                node.changed();
                Ok(Answer::Empty)
            }
            Call::GetXattr { name, size } => {
                let value = node.xattrs.get(known(name)?).ok_or_else(absent)?;
                sized(value.clone(), size)
            }
            Call::ListXattr { size } => {
                let seen = |name: &&Vec<u8>| caller.uid == 0 || !name.starts_with(b"trusted.");
                let names = node.xattrs.keys().filter(seen);
                sized(names.flat_map(|name| [name.as_slice(), &[0]].concat()).collect(), size)
            }
            Call::RemoveXattr { name } => {
                node.xattrs.remove(known(name)?).ok_or_else(absent)?;
                node.changed();
                Ok(Answer::Empty)
            }
            _ => Err(Errno::NOSYS),
        }
    }

    fn data(&mut self, node: u64, call: &Call<'_>) -> Outcome {
        let tree = &mut self.tree;
        match *call {
            Call::Read { offset, size, .. } => {
                let file = tree.node(node)?;
                file.accessed();
                Ok(Answer::Data(file.data()?.read(offset, size.into())))
            }
            Call::Write { offset, data, flags, from_cache, kill_suidgid, .. } => {
                let appends = flags & libc::O_APPEND.cast_unsigned() != 0 && !from_cache;
                let more = |_: &Data| pages_of(data.len());
                tree.edit(node, more, |file| {
                    file.write(if appends { file.size } else { offset }, data);
                })?;
                let file = tree.node(node)?;
                file.modified();
                if kill_suidgid {
                    file.kill_set_ids();
                }
                Ok(Answer::Written(u32::try_from(data.len()).unwrap()))
            }
            Call::FAllocate { offset, length, mode, .. } => {
                tree.reserve(node, mode.cast_signed(), offset, length).map(|()| Answer::Empty)
            }
            Call::LSeek { offset, whence, .. } => {
                let data = tree.node(node)?.data()?;
                let found = match whence.cast_signed() {
                    libc::SEEK_DATA => data.data_from(offset),
                    libc::SEEK_HOLE => data.hole_from(offset),
                    _ => return refuse(libc::EINVAL),
                };
                found.map(Answer::Offset).ok_or(Errno::new(libc::ENXIO))
            }
            Call::CopyFileRange { from: (_, from), to_node, to: (_, to), length, wide, .. } => {
                let file = tree.node(node)?;
                file.accessed();
                let bytes = file.data()?.read(from, length.min(COPY_MAX));
                tree.edit(to_node, |_| pages_of(bytes.len()), |file| file.write(to, &bytes))?;
                tree.node(to_node)?.modified();
                let copied = u32::try_from(bytes.len()).unwrap();
                Ok(if wide { Answer::Copied(copied.into()) } else { Answer::Written(copied) })
            }
            _ => Err(Errno::NOSYS),
        }
    }

    fn other(&mut self, node: u64, call: &Call<'_>) -> Outcome {
        let tree = &mut self.tree;
        match *call {
            Call::GetAttr { .. } => Ok(Answer::Attr(tree.node(node)?.attr(), TTL)),
            Call::StatX { .. } => Ok(Answer::StatX(tree.node(node)?.statx(), TTL)),
            Call::SetAttr(set) => tree.set_attr(node, &set),
            Call::ReadLink => {
                let link = tree.node(node)?;
                link.accessed();
                let Kind::Link(target) = &link.kind else { return refuse(libc::EINVAL) };
                Ok(Answer::Data(target.clone()))
            }
            Call::ReadDir { handle, offset, size } => self.list(node, handle, offset, size, false),
            Call::ReadDirPlus { handle, offset, size } => {
                self.list(node, handle, offset, size, true)
            }
            Call::StatFs => Ok(Answer::StatFs(space(tree))),
            Call::FSync { .. } | Call::FSyncDir { .. } | Call::SyncFs => Ok(Answer::Empty),
            Call::GetLock(wanted) => {
                let free = FileLock { kind: libc::F_UNLCK as u32, ..FileLock::default() };
                let held = tree.node(node)?.locks.conflict(&wanted).map(|held| held.lock);
                Ok(Answer::Lock(held.unwrap_or(free)))
            }
            Call::IoCtl { .. } => refuse(libc::ENOTTY),
            Call::Poll { kernel_handle, events, notify, .. } => {
                let file = tree.node(node)?;
                if notify {
                    file.polls.push(kernel_handle);
                }
                Ok(Answer::Poll(file.ready & events))
            }
            _ => Err(Errno::NOSYS),
        }
    }
}

/// An attribute's name, if it is of a kind that is kept here: access lists are not.
fn known(name: &OsStr) -> Result<&[u8]> {
    let name = name.as_bytes();
    let spaces: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    match spaces.iter().find_map(|space| name.strip_prefix(*space)) {
        None => refuse(libc::EOPNOTSUPP),
        Some([]) => refuse(libc::EINVAL),
        Some(_) => Ok(name),
    }
}

/// `bytes` for one who has room for `size`; who has none asks how long they are.
fn sized(bytes: Vec<u8>, size: u32) -> Outcome {
    let len = u32::try_from(bytes.len()).unwrap();
    match size {
        0 => Ok(Answer::XattrSize(len)),
        size if size < len => refuse(libc::ERANGE),
        _ => Ok(Answer::Data(bytes)),
    }
}

fn space(tree: &Tree) -> StatFs {
    let (blocks, free) = tree.space();
    StatFs {
        blocks,
        bfree: free,
        bavail: free,
        files: 1 << 20,
        ffree: 1 << 20,
        bsize: 4096,
        namelen: 255,
        frsize: 4096,
        ..StatFs::default()
    }
}
