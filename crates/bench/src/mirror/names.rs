//! Names, links, listings and extended attributes.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{self, AtFlags, CWD, Dir, Mode, OFlags, XattrFlags};
use segue_fuse::abi::{InHeader, StatFs, fopen};
use segue_fuse::{Answer, Entry, Listing, Open};

use super::calls::Mirror;
use super::nodes::magic_link;

/// A directory's entry as it was when the directory was opened.
#[derive(Debug)]
pub(crate) struct Listed {
    node: u64,
    mode: u32,
    name: Vec<u8>,
}

impl Mirror {
    /// Looks up what `make` makes as `name`, once it belongs to the caller.
    pub(crate) fn made(
        &self,
        from: &InHeader,
        name: &OsStr,
        make: impl FnOnce(&OwnedFd) -> rustix::io::Result<()>,
    ) -> io::Result<Answer> {
        make(&*self.nodes.path(from.nodeid)?)?;
        let mut attr = self.nodes.lookup(from.nodeid, name)?;
        if from.uid != 0 || from.gid != 0 {
            let path = self.nodes.path(attr.ino)?;
            self.give_to_caller(from, &*path)?;
            attr = self.nodes.attr_of(&*path)?;
        }
        Ok(Answer::Entry(self.entry(attr)))
    }

    pub(crate) fn remove(&self, dir: u64, name: &OsStr, flags: AtFlags) -> io::Result<Answer> {
        fs::unlinkat(&*self.nodes.path(dir)?, name, flags)?;
        Ok(Answer::Empty)
    }

    pub(crate) fn rename(
        &self,
        from: (u64, &OsStr),
        to: (u64, &OsStr),
        flags: u32,
    ) -> io::Result<Answer> {
        let flags = fs::RenameFlags::from_bits_retain(flags);
        let dirs = (self.nodes.path(from.0)?, self.nodes.path(to.0)?);
        fs::renameat_with(&*dirs.0, from.1, &*dirs.1, to.1, flags)?;
        Ok(Answer::Empty)
    }

    pub(crate) fn link(&self, node: u64, (dir, name): (u64, &OsStr)) -> io::Result<Answer> {
        let from = magic_link(&*self.nodes.path(node)?);
        fs::linkat(CWD, from, &*self.nodes.path(dir)?, name, AtFlags::SYMLINK_FOLLOW)?;
        Ok(Answer::Entry(self.entry(self.nodes.lookup(dir, name)?)))
    }

    pub(crate) fn read_link(&self, node: u64) -> io::Result<Answer> {
        let target = fs::readlinkat(&*self.nodes.path(node)?, "", Vec::new())?;
        Ok(Answer::Data(target.into_bytes()))
    }

    pub(crate) fn space(&self, node: u64) -> io::Result<Answer> {
        let stat = fs::fstatvfs(&*self.nodes.path(node)?)?;
        let short = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        Ok(Answer::StatFs(StatFs {
            blocks: stat.f_blocks,
            bfree: stat.f_bfree,
            bavail: stat.f_bavail,
            files: stat.f_files,
            ffree: stat.f_ffree,
            bsize: short(stat.f_bsize),
            namelen: short(stat.f_namemax),
            frsize: short(stat.f_frsize),
            ..StatFs::default()
        }))
    }

    fn listed(&self, node: u64) -> io::Result<Vec<Listed>> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = fs::openat(&*self.nodes.path(node)?, ".", flags, Mode::empty())?;
        let entries = Dir::new(dir)?.map(|entry| {
            let entry = entry?;
            let name = entry.file_name().to_bytes().to_vec();
            let mode = entry.file_type().as_raw_mode();
            Ok(Listed { node: self.nodes.number(entry.ino()), mode, name })
        });
        entries.collect()
    }

    pub(crate) fn list(&self, node: u64) -> io::Result<Answer> {
        let handle = self.listings.insert(self.listed(node)?);
        let flags = fopen::CACHE_DIR | fopen::KEEP_CACHE;
        Ok(Answer::Open(Open { handle, flags, backing: None }))
    }

    pub(crate) fn names(&self, handle: u64, offset: u64, size: u32) -> io::Result<Answer> {
        let listing = self.listings.get(handle)?;
        let mut names = Listing::new(size);
        for (next, listed) in from(&listing, offset) {
            if !names.add(listed.node, next, listed.mode, &listed.name) {
                break;
            }
        }
        Ok(names.finish())
    }

    pub(crate) fn names_plus(
        &self,
        (dir, handle): (u64, u64),
        offset: u64,
        size: u32,
    ) -> io::Result<Answer> {
        let listing = self.listings.get(handle)?;
        let mut names = Listing::new(size);
        for (next, listed) in from(&listing, offset) {
            let name = OsStr::from_bytes(&listed.name);
            let dots = name == "." || name == "..";
            let found = if dots { self.nodes.attr(dir) } else { self.nodes.lookup(dir, name) };
            // Removed since the directory was opened.
            let Ok(attr) = found else { continue };
            let entry = if dots { Entry { attr, ..Entry::default() } } else { self.entry(attr) };
            if !names.add_plus(&entry, next, &listed.name) {
                if !dots {
                    self.nodes.forget(attr.ino, 1);
                }
                break;
            }
        }
        Ok(names.finish())
    }

    /// The path by which the extended attributes of `node` are reached.
    fn xattr_path(&self, node: u64) -> io::Result<String> {
        Ok(magic_link(&*self.nodes.path(node)?))
    }

    pub(crate) fn set_xattr(
        &self,
        node: u64,
        name: &OsStr,
        value: &[u8],
        flags: u32,
    ) -> io::Result<Answer> {
        fs::setxattr(self.xattr_path(node)?, name, value, XattrFlags::from_bits_retain(flags))?;
        Ok(Answer::Empty)
    }

    pub(crate) fn get_xattr(&self, node: u64, name: &OsStr, size: u32) -> io::Result<Answer> {
        let path = self.xattr_path(node)?;
        value(size, |buffer| fs::getxattr(path, name, buffer))
    }

    pub(crate) fn list_xattr(&self, node: u64, size: u32) -> io::Result<Answer> {
        let path = self.xattr_path(node)?;
        value(size, |buffer| fs::listxattr(path, buffer))
    }

    pub(crate) fn remove_xattr(&self, node: u64, name: &OsStr) -> io::Result<Answer> {
        fs::removexattr(self.xattr_path(node)?, name)?;
        Ok(Answer::Empty)
    }
}

/// The entries after the first `offset`, each with the offset of the next.
fn from(listing: &[Listed], offset: u64) -> impl Iterator<Item = (u64, &Listed)> {
    (1..).zip(listing).skip(usize::try_from(offset).unwrap_or(usize::MAX))
}

/// Calls `read` with room for `size` bytes, or, asked with size 0, for the length.
fn value(
    size: u32,
    read: impl FnOnce(&mut [u8]) -> rustix::io::Result<usize>,
) -> io::Result<Answer> {
    let mut buffer = vec![0; size as usize];
    let len = read(&mut buffer)?;
    if size == 0 {
        return Ok(Answer::XattrSize(u32::try_from(len).unwrap_or(u32::MAX)));
    }
    buffer.truncate(len);
    Ok(Answer::Data(buffer))
}
