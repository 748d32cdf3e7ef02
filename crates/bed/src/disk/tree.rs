//! Inodes and their names: the disk as programs see it, and an image of it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;

use segue_fuse::abi::ROOT;

use super::content::Content;
use super::recording::Op;

const PERMISSIONS: u32 = 0o7777;

/// What an inode is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    File(Content),
    Directory(BTreeMap<OsString, u64>),
    /// A socket or a fifo, which the kernel handles alone. Images are without them.
    Special,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Node {
    pub(super) kind: Kind,
    /// As in `st_mode`.
    pub(super) mode: u32,
    pub(super) names: u32,
}

/// Inodes are never let go of: whoever has one without a name open may go on with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Tree {
    nodes: BTreeMap<u64, Node>,
}

impl Default for Tree {
    fn default() -> Tree {
        let mut tree = Tree { nodes: BTreeMap::new() };
        tree.make(ROOT, libc::S_IFDIR | 0o755);
        tree
    }
}

impl Tree {
    pub(super) fn node(&self, node: u64) -> Option<&Node> {
        self.nodes.get(&node)
    }

    pub(super) fn node_mut(&mut self, node: u64) -> Option<&mut Node> {
        self.nodes.get_mut(&node)
    }

    pub(super) fn content(&self, node: u64) -> Option<&Content> {
        match &self.nodes.get(&node)?.kind {
            Kind::File(content) => Some(content),
            _ => None,
        }
    }

    pub(super) fn content_mut(&mut self, node: u64) -> Option<&mut Content> {
        match &mut self.nodes.get_mut(&node)?.kind {
            Kind::File(content) => Some(content),
            _ => None,
        }
    }

    pub(super) fn names(&self, node: u64) -> Option<&BTreeMap<OsString, u64>> {
        match &self.nodes.get(&node)?.kind {
            Kind::Directory(names) => Some(names),
            _ => None,
        }
    }

    /// An inode without a name yet.
    pub(super) fn make(&mut self, node: u64, mode: u32) {
        let kind = match mode & libc::S_IFMT {
            libc::S_IFREG => Kind::File(Content::default()),
            libc::S_IFDIR => Kind::Directory(BTreeMap::new()),
            _ => Kind::Special,
        };
        self.nodes.insert(node, Node { kind, mode, names: 0 });
    }

    fn name(&mut self, dir: u64, name: &OsStr, node: u64) {
        self.unname(dir, name);
        if let Some(Node { kind: Kind::Directory(names), .. }) = self.nodes.get_mut(&dir) {
            names.insert(name.to_owned(), node);
            self.nodes.entry(node).and_modify(|node| node.names += 1);
        }
    }

    fn unname(&mut self, dir: u64, name: &OsStr) -> Option<u64> {
        let Kind::Directory(names) = &mut self.nodes.get_mut(&dir)?.kind else { return None };
        let node = names.remove(name)?;
        self.nodes.entry(node).and_modify(|node| node.names -= 1);
        Some(node)
    }

    /// Does `op`, which fits.
    pub(super) fn apply(&mut self, op: &Op) {
        match op {
            Op::Make { dir, name, node, mode } => {
                self.make(*node, *mode);
                self.name(*dir, name, *node);
            }
            Op::Remove { dir, name } => {
                self.unname(*dir, name);
            }
            Op::Rename { from: (dir, name), to: (new_dir, new_name) } => {
                if let Some(node) = self.unname(*dir, name) {
                    self.name(*new_dir, new_name, node);
                }
            }
            Op::Write { file, .. } | Op::Resize { file, .. } | Op::Punch { file, .. } => {
                if let Some(content) = self.content_mut(*file) {
                    op.change(content);
                }
            }
            Op::Sync { .. } | Op::SyncNames { .. } | Op::Lie => {}
        }
    }

    /// Writes what has a name below directory `node` into directory `path`.
    pub(super) fn write_to(&self, node: u64, path: &Path) -> io::Result<()> {
        for (name, node) in self.names(node).into_iter().flatten() {
            let Some(found) = self.nodes.get(node) else { continue };
            let (path, mode) = (path.join(name), found.mode & PERMISSIONS);
            match &found.kind {
                Kind::File(content) => write_file(content, &path, mode)?,
                Kind::Directory(_) => {
                    DirBuilder::new().mode(mode).create(&path)?;
                    self.write_to(*node, &path)?;
                }
                Kind::Special => {}
            }
        }
        Ok(())
    }
}

fn write_file(content: &Content, path: &Path, mode: u32) -> io::Result<()> {
    let mut options = File::options();
    let file = options.write(true).create_new(true).mode(mode).open(path)?;
    for (offset, bytes) in content.parts() {
        file.write_all_at(bytes, offset)?;
    }
    file.set_len(content.size())?;
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode))
}
