//! The kernel's calls: each that succeeds and changes something is recorded.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use segue_fuse::abi::{Attr, ROOT, StatFs, fopen};
use segue_fuse::{
    Answer, Call, Entry, Errno, FileSystem, Listing, Open, Outcome, Reply, Request, SetAttr,
};

use super::recording::{Op, Recording};
use super::tree::{Kind, Tree};
use crate::handles::Handles;

/// Only this kernel changes anything, and it knows what it changed.
const TTL: Duration = Duration::from_secs(3600);
/// Space that the disk says it has, in blocks of 4096 bytes: 1 TiB.
const BLOCKS: u64 = 1 << 28;

type Result<T> = std::result::Result<T, Errno>;

fn refuse<T>(errno: i32) -> Result<T> {
    Err(Errno::new(errno))
}

/// The disk as programs see it, and what led to that.
#[derive(Debug)]
pub(super) struct Front {
    state: Mutex<State>,
    listings: Handles<Vec<(u64, u32, OsString)>>,
}

#[derive(Debug, Default)]
struct State {
    tree: Tree,
    ops: Vec<Op>,
    last_node: u64,
}

impl Default for Front {
    fn default() -> Front {
        let state = State { last_node: ROOT, ..State::default() };
        Front { state: Mutex::new(state), listings: Handles::new() }
    }
}

impl Front {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn position(&self) -> usize {
        self.state().ops.len()
    }

    pub(super) fn recording(&self) -> Recording {
        Recording { ops: self.state().ops.clone() }
    }

    fn list(&self, node: u64) -> Outcome {
        let state = self.state();
        let Some(names) = state.tree.names(node) else { return refuse(libc::ENOTDIR) };
        let listed = names
            .iter()
            .filter_map(|(name, node)| Some((*node, state.tree.node(*node)?.mode, name.clone())));
        let handle = self.listings.insert(listed.collect());
        Ok(Answer::Open(Open { handle, ..Open::default() }))
    }

    fn names(&self, handle: u64, offset: u64, size: u32) -> Outcome {
        let listed = self.listings.get(handle).map_err(|error| Errno::from(&error))?;
        let mut names = Listing::new(size);
        let seen = usize::try_from(offset).unwrap_or(usize::MAX);
        for (next, (node, mode, name)) in (1..).zip(&*listed).skip(seen) {
            if !names.add(*node, next, *mode, name.as_bytes()) {
                break;
            }
        }
        Ok(names.finish())
    }
}

impl FileSystem for Front {
    fn call(&self, request: Request<'_>, reply: Reply) {
        let outcome = match request.call {
            Call::OpenDir { .. } => self.list(request.node()),
            Call::ReadDir { handle, offset, size } => self.names(handle, offset, size),
            Call::ReleaseDir { handle } => {
                self.listings.remove(handle);
                Ok(Answer::Empty)
            }
            Call::StatFs => Ok(Answer::StatFs(StatFs {
                blocks: BLOCKS,
                bfree: BLOCKS,
                bavail: BLOCKS,
                files: BLOCKS,
                ffree: BLOCKS,
                bsize: 4096,
                frsize: 4096,
                namelen: 255,
                ..StatFs::default()
            })),
            _ => self.state().answer(&request),
        };
        reply.send(outcome);
    }
}

impl State {
    fn record(&mut self, op: Op) {
        self.tree.apply(&op);
        self.ops.push(op);
    }

    fn answer(&mut self, request: &Request<'_>) -> Outcome {
        let node = request.node();
        match request.call {
            Call::Lookup { name } => match self.named(node, name)? {
                Some(node) => Ok(Answer::Entry(self.entry(node)?)),
                None => Ok(Answer::Entry(Entry { name_ttl: TTL, ..Entry::default() })),
            },
            Call::GetAttr { .. } => Ok(Answer::Attr(self.attr(node)?, TTL)),
            Call::SetAttr(set) => self.set(node, &set),
            Call::MkNod { name, mode, .. } => Ok(Answer::Entry(self.make(node, name, mode)?)),
            Call::MkDir { name, mode, .. } => {
                Ok(Answer::Entry(self.make(node, name, libc::S_IFDIR | mode)?))
            }
            Call::Create { name, mode, .. } => {
                let made = self.make(node, name, libc::S_IFREG | mode)?;
                Ok(Answer::Created(made, open()))
            }
            Call::Unlink { name } => self.remove(node, name, false),
            Call::RmDir { name } => self.remove(node, name, true),
            Call::Rename { name, new_parent, new_name, flags } => {
                self.rename((node, name), (new_parent, new_name), flags)
            }
            Call::Link { .. } | Call::Symlink { .. } => refuse(libc::EPERM),
            Call::Open { .. } => Ok(Answer::Open(open())),
            Call::Release { .. } => Ok(Answer::Empty),
            Call::Read { offset, size, .. } => {
                let content = self.tree.content(node).ok_or(Errno::new(libc::EISDIR))?;
                Ok(Answer::Data(content.read(offset, size.into())))
            }
            Call::Write { offset, data, .. } => {
                self.record(Op::Write { file: node, offset, bytes: data.into() });
                Ok(Answer::Written(u32::try_from(data.len()).unwrap_or(u32::MAX)))
            }
            Call::FAllocate { offset, length, mode, .. } => {
                self.allocate(node, mode.cast_signed(), offset, length)
            }
            Call::FSync { .. } => {
                self.record(Op::Sync { file: node });
                Ok(Answer::Empty)
            }
            Call::FSyncDir { .. } => {
                self.record(Op::SyncNames { dir: node });
                Ok(Answer::Empty)
            }
            _ => Err(Errno::NOSYS),
        }
    }

    fn attr(&self, node: u64) -> Result<Attr> {
        let found = self.tree.node(node).ok_or(Errno::new(libc::ESTALE))?;
        let size = self.tree.content(node).map_or(0, |content| content.size());
        let nlink = if matches!(found.kind, Kind::Directory(_)) { 2 } else { found.names };
        let blocks = size.div_ceil(512);
        Ok(Attr {
            ino: node,
            size,
            blocks,
            mode: found.mode,
            nlink,
            blksize: 4096,
            ..Attr::default()
        })
    }

    fn entry(&self, node: u64) -> Result<Entry> {
        let attr = self.attr(node)?;
        Ok(Entry { node, generation: 0, name_ttl: TTL, attr_ttl: TTL, attr })
    }

    fn named(&self, dir: u64, name: &OsStr) -> Result<Option<u64>> {
        let names = self.tree.names(dir).ok_or(Errno::new(libc::ENOTDIR))?;
        Ok(names.get(name).copied())
    }

    fn make(&mut self, dir: u64, name: &OsStr, mode: u32) -> Result<Entry> {
        if self.named(dir, name)?.is_some() {
            return refuse(libc::EEXIST);
        }
        self.last_node += 1;
        let node = self.last_node;
        self.record(Op::Make { dir, name: name.to_owned(), node, mode });
        self.entry(node)
    }

    /// That what `name` means may go, as a directory or as something else.
    fn removable(&self, dir: u64, name: &OsStr, is_dir: bool) -> Result<()> {
        let Some(node) = self.named(dir, name)? else { return refuse(libc::ENOENT) };
        match self.tree.names(node) {
            Some(_) if !is_dir => refuse(libc::EISDIR),
            None if is_dir => refuse(libc::ENOTDIR),
            Some(names) if !names.is_empty() => refuse(libc::ENOTEMPTY),
            _ => Ok(()),
        }
    }

    fn remove(&mut self, dir: u64, name: &OsStr, is_dir: bool) -> Outcome {
        self.removable(dir, name, is_dir)?;
        self.record(Op::Remove { dir, name: name.to_owned() });
        Ok(Answer::Empty)
    }

    fn rename(&mut self, from: (u64, &OsStr), to: (u64, &OsStr), flags: u32) -> Outcome {
        let Some(node) = self.named(from.0, from.1)? else { return refuse(libc::ENOENT) };
        if flags & !libc::RENAME_NOREPLACE != 0 {
            return refuse(libc::EINVAL);
        }
        match self.named(to.0, to.1)? {
            Some(_) if flags != 0 => return refuse(libc::EEXIST),
            Some(old) if old == node => return Ok(Answer::Empty),
            Some(_) => self.removable(to.0, to.1, self.tree.names(node).is_some())?,
            None => {}
        }
        let owned = |(dir, name): (u64, &OsStr)| (dir, name.to_owned());
        self.record(Op::Rename { from: owned(from), to: owned(to) });
        Ok(Answer::Empty)
    }

    fn set(&mut self, node: u64, set: &SetAttr) -> Outcome {
        if let Some(size) = set.size {
            self.record(Op::Resize { file: node, size });
        }
        if let (Some(mode), Some(node)) = (set.mode, self.tree.node_mut(node)) {
            node.mode = node.mode & libc::S_IFMT | mode & 0o7777;
        }
        Ok(Answer::Attr(self.attr(node)?, TTL))
    }

    fn allocate(&mut self, file: u64, mode: i32, offset: u64, length: u64) -> Outcome {
        let end = offset + length;
        let size = self.tree.content(file).ok_or(Errno::new(libc::EISDIR))?.size();
        let keeps = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => {}
            libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE => {
                self.record(Op::Punch { file, hole: offset..end.min(size).max(offset) });
            }
            _ => return refuse(libc::EOPNOTSUPP),
        }
        if !keeps && end > size {
            self.record(Op::Resize { file, size: end });
        }
        Ok(Answer::Empty)
    }
}

fn open() -> Open {
    Open { flags: fopen::KEEP_CACHE, ..Open::default() }
}
