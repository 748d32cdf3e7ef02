//! All inodes: names come, go and move.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use segue_fuse::abi::ROOT;
use segue_fuse::{Answer, Entry, Errno, Listing, SetAttr};

use crate::data::{Data, PAGE};
use crate::node::{Directory, Kind, Node, TTL};

pub(crate) type Result<T> = std::result::Result<T, Errno>;

/// Pages that all files together may have: 1 GiB.
pub(crate) const PAGES_MAX: u64 = 1 << 18;
const NAME_MAX: usize = 255;

pub(crate) fn refuse<T>(errno: i32) -> Result<T> {
    Err(Errno::new(errno))
}

/// Who asks.
#[derive(Clone, Copy)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

pub(crate) struct Tree {
    pub(crate) nodes: BTreeMap<u64, Node>,
    pub(crate) pages: u64,
    last: u64,
}

impl Default for Tree {
    fn default() -> Tree {
        let mut root =
            Node::new(ROOT, Kind::Directory(Directory::new(ROOT)), libc::S_IFDIR | 0o755, (0, 0));
        // The kernel knows it without having asked.
        root.lookups = 1;
        Tree { nodes: [(ROOT, root)].into(), pages: 0, last: ROOT }
    }
}

impl Tree {
    pub(crate) fn node(&mut self, ino: u64) -> Result<&mut Node> {
        self.nodes.get_mut(&ino).ok_or(Errno::new(libc::ESTALE))
    }

    fn named(&mut self, parent: u64, name: &[u8]) -> Result<Option<u64>> {
        if name.len() > NAME_MAX {
            return refuse(libc::ENAMETOOLONG);
        }
        Ok(self.node(parent)?.directory()?.get(name))
    }

    fn existing(&mut self, parent: u64, name: &[u8]) -> Result<u64> {
        self.named(parent, name)?.ok_or(Errno::new(libc::ENOENT))
    }

    /// There is room for `name` in `parent`, which has not been removed.
    fn vacant(&mut self, parent: u64, name: &[u8]) -> Result<()> {
        match self.named(parent, name)? {
            Some(_) => refuse(libc::EEXIST),
            None if self.node(parent)?.nlink == 0 => refuse(libc::ENOENT),
            None => Ok(()),
        }
    }

    pub(crate) fn lookup(&mut self, parent: u64, name: &[u8]) -> Result<Entry> {
        let found = match name {
            // The kernel asks for these by node, for those who kept a handle of a file.
            b"." => Some(parent).filter(|ino| self.nodes.contains_key(ino)),
            b".." => Some(self.node(parent)?.directory()?.parent),
            _ => self.named(parent, name)?,
        };
        match found {
            Some(ino) => Ok(self.node(ino)?.entry()),
            None if name == b"." => refuse(libc::ENOENT),
            None => Ok(Entry { name_ttl: TTL, ..Entry::default() }),
        }
    }

    /// An inode without a name yet.
    pub(crate) fn make(
        &mut self,
        parent: u64,
        kind: Kind,
        mode: u32,
        caller: Caller,
    ) -> Result<u64> {
        let directory = self.node(parent)?;
        let inherits = directory.mode & libc::S_ISGID != 0;
        let gid = if inherits { directory.gid } else { caller.gid };
        let is_dir = matches!(kind, Kind::Directory(_));
        let mode = if inherits && is_dir { mode | libc::S_ISGID } else { mode };
        self.last += 1;
        self.nodes.insert(self.last, Node::new(self.last, kind, mode, (caller.uid, gid)));
        Ok(self.last)
    }

    /// A new inode under a new name.
    pub(crate) fn create(
        &mut self,
        parent: u64,
        name: &[u8],
        kind: Kind,
        mode: u32,
        caller: Caller,
    ) -> Result<u64> {
        self.vacant(parent, name)?;
        let ino = self.make(parent, kind, mode, caller)?;
        self.attach(parent, name, ino)?;
        Ok(ino)
    }

    pub(crate) fn link(&mut self, ino: u64, parent: u64, name: &[u8]) -> Result<Entry> {
        self.vacant(parent, name)?;
        let node = self.node(ino)?;
        if node.is_dir() {
            return refuse(libc::EPERM);
        }
        node.nlink += 1;
        node.changed();
        let entry = node.entry();
        self.attach(parent, name, ino)?;
        Ok(entry)
    }

    /// Names `ino`; a directory's parent has one link more.
    fn attach(&mut self, parent: u64, name: &[u8], ino: u64) -> Result<()> {
        let node = self.node(ino)?;
        let is_dir = node.is_dir();
        if let Kind::Directory(directory) = &mut node.kind {
            directory.parent = parent;
        }
        let above = self.node(parent)?;
        above.directory()?.add(name, ino);
        above.nlink += u32::from(is_dir);
        above.modified();
        Ok(())
    }

    fn detach(&mut self, parent: u64, name: &[u8], ino: u64) -> Result<()> {
        let is_dir = self.node(ino)?.is_dir();
        let above = self.node(parent)?;
        above.directory()?.remove(name);
        above.nlink -= u32::from(is_dir);
        above.modified();
        Ok(())
    }

    /// `ino` has lost a name.
    fn unnamed(&mut self, ino: u64) -> Result<()> {
        let node = self.node(ino)?;
        node.nlink = if node.is_dir() { 0 } else { node.nlink - 1 };
        node.changed();
        self.let_go(ino);
        Ok(())
    }

    /// Forgets an inode that has no name and no user.
    pub(crate) fn let_go(&mut self, ino: u64) {
        let unused = |node: &Node| node.nlink == 0 && node.lookups == 0 && node.opens == 0;
        if self.nodes.get(&ino).is_some_and(unused) {
            self.pages -= self.nodes.remove(&ino).map_or(0, |node| node.pages());
        }
    }

    pub(crate) fn unlink(&mut self, parent: u64, name: &[u8]) -> Result<()> {
        let ino = self.existing(parent, name)?;
        if self.node(ino)?.is_dir() {
            return refuse(libc::EISDIR);
        }
        self.detach(parent, name, ino)?;
        self.unnamed(ino)
    }

    pub(crate) fn rmdir(&mut self, parent: u64, name: &[u8]) -> Result<()> {
        let ino = self.existing(parent, name)?;
        if !self.node(ino)?.directory()?.names.is_empty() {
            return refuse(libc::ENOTEMPTY);
        }
        self.detach(parent, name, ino)?;
        self.unnamed(ino)
    }

    pub(crate) fn rename(
        &mut self,
        (parent, name): (u64, &[u8]),
        (new_parent, new_name): (u64, &[u8]),
        flags: u32,
        caller: Caller,
    ) -> Result<()> {
        let ino = self.existing(parent, name)?;
        let replaced = self.named(new_parent, new_name)?;
        if flags & libc::RENAME_EXCHANGE != 0 {
            let other = replaced.ok_or(Errno::new(libc::ENOENT))?;
            return self.exchange((parent, name, ino), (new_parent, new_name, other));
        }
        match replaced {
            Some(_) if flags & libc::RENAME_NOREPLACE != 0 => return refuse(libc::EEXIST),
            Some(old) if old == ino => return Ok(()),
            Some(old) => self.may_replace(ino, old)?,
            None if self.node(new_parent)?.nlink == 0 => return refuse(libc::ENOENT),
            None => {}
        }
        self.detach(parent, name, ino)?;
        if let Some(old) = replaced {
            self.detach(new_parent, new_name, old)?;
            self.unnamed(old)?;
        }
        self.attach(new_parent, new_name, ino)?;
        self.node(ino)?.changed();
        if flags & libc::RENAME_WHITEOUT != 0 {
            self.create(parent, name, Kind::Special, libc::S_IFCHR, caller)?;
        }
        Ok(())
    }

    fn may_replace(&mut self, ino: u64, old: u64) -> Result<()> {
        let is_dir = self.node(ino)?.is_dir();
        match &self.node(old)?.kind {
            Kind::Directory(_) if !is_dir => refuse(libc::EISDIR),
            Kind::Directory(directory) if !directory.names.is_empty() => refuse(libc::ENOTEMPTY),
            Kind::Directory(_) => Ok(()),
            _ if is_dir => refuse(libc::ENOTDIR),
            _ => Ok(()),
        }
    }

    fn exchange(&mut self, one: (u64, &[u8], u64), other: (u64, &[u8], u64)) -> Result<()> {
        self.detach(one.0, one.1, one.2)?;
        self.detach(other.0, other.1, other.2)?;
        self.attach(one.0, one.1, other.2)?;
        self.attach(other.0, other.1, one.2)?;
        self.node(one.2)?.changed();
        self.node(other.2)?.changed();
        Ok(())
    }

    /// Changes the data of a file, which may need `more` pages.
    pub(crate) fn edit<T>(
        &mut self,
        ino: u64,
        more: impl FnOnce(&Data) -> u64,
        change: impl FnOnce(&mut Data) -> T,
    ) -> Result<T> {
        let used = self.pages;
        let data = self.node(ino)?.data()?;
        if used + more(data) > PAGES_MAX {
            return refuse(libc::ENOSPC);
        }
        let before = data.pages();
        let done = change(data);
        self.pages = used + data.pages() - before;
        Ok(done)
    }

    pub(crate) fn set_attr(&mut self, ino: u64, set: &SetAttr) -> Result<Answer> {
        if let Some(size) = set.size {
            self.edit(ino, |_| 0, |data| data.resize(size))?;
        }
        let node = self.node(ino)?;
        node.set(set);
        Ok(Answer::Attr(node.attr(), TTL))
    }

    /// The number of the newest name.
    pub(crate) fn newest(&mut self, ino: u64) -> Result<u64> {
        Ok(self.node(ino)?.directory()?.last)
    }

    /// The names in `range`, as many as `size` bytes take, with their attributes if `plus`.
    pub(crate) fn list(
        &mut self,
        ino: u64,
        range: RangeInclusive<u64>,
        size: u32,
        plus: bool,
    ) -> Result<Answer> {
        let node = self.node(ino)?;
        node.accessed();
        let directory = node.directory()?;
        let dots = [(1, b".".to_vec(), ino), (2, b"..".to_vec(), directory.parent)];
        let dots = dots.into_iter().filter(|(number, ..)| range.contains(number));
        let named = directory
            .order
            .range(range.clone())
            .map(|(number, name)| (*number, name.clone(), directory.get(name).unwrap_or_default()));
        let names: Vec<_> = dots.chain(named.collect::<Vec<_>>()).collect();
        let mut listing = Listing::new(size);
        for (number, name, ino) in names {
            let node = self.node(ino)?;
            let fits = if !plus {
                listing.add(ino, number, node.mode, &name)
            } else if number <= 2 {
                listing.add_plus(&Entry { attr: node.attr(), ..Entry::default() }, number, &name)
            } else {
                let entry = node.entry();
                let fits = listing.add_plus(&entry, number, &name);
                node.lookups -= u64::from(!fits);
                fits
            };
            if !fits {
                break;
            }
        }
        Ok(listing.finish())
    }

    pub(crate) fn reserve(&mut self, ino: u64, mode: i32, start: u64, length: u64) -> Result<()> {
        let end = start.checked_add(length).filter(|end| i64::try_from(*end).is_ok());
        let end = end.ok_or(Errno::new(libc::EFBIG))?;
        let is_punch = mode & libc::FALLOC_FL_PUNCH_HOLE != 0;
        let is_zero = mode & libc::FALLOC_FL_ZERO_RANGE != 0;
        let grows = mode & libc::FALLOC_FL_KEEP_SIZE == 0;
        let more = |data: &Data| if is_punch { 0 } else { data.missing(start, end) };
        self.edit(ino, more, |data| {
            if is_punch || is_zero {
                data.punch(start, end);
            }
            if !is_punch {
                data.reserve(start, end);
            }
            if grows && end > data.size {
                data.size = end;
            }
        })?;
        self.node(ino)?.modified();
        Ok(())
    }

    pub(crate) fn space(&self) -> (u64, u64) {
        (PAGES_MAX, PAGES_MAX - self.pages)
    }
}

/// The most that one write needs.
pub(crate) fn pages_of(length: usize) -> u64 {
    length as u64 / PAGE + 2
}
