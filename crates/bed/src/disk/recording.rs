//! What is recorded, and what is asked of it.

use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use segue_fuse::abi::ROOT;

use super::content::Content;
use super::tree::Tree;
use super::{crash, names};

/// A directory and a name in it.
pub(super) type RecordedName = (u64, OsString);

/// One operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Op {
    Make {
        dir: u64,
        name: OsString,
        node: u64,
        mode: u32,
    },
    Remove {
        dir: u64,
        name: OsString,
    },
    Rename {
        from: RecordedName,
        to: RecordedName,
    },
    Write {
        file: u64,
        offset: u64,
        bytes: Arc<[u8]>,
    },
    Resize {
        file: u64,
        size: u64,
    },
    Punch {
        file: u64,
        hole: Range<u64>,
    },
    Sync {
        file: u64,
    },
    SyncNames {
        dir: u64,
    },
    /// A sync that was answered and not done.
    Lie,
}

impl Op {
    /// The file whose data it is about.
    pub(super) fn file(&self) -> Option<u64> {
        match self {
            Op::Write { file, .. }
            | Op::Resize { file, .. }
            | Op::Punch { file, .. }
            | Op::Sync { file } => Some(*file),
            _ => None,
        }
    }

    pub(super) fn is_sync(&self) -> bool {
        matches!(self, Op::Sync { .. } | Op::SyncNames { .. })
    }

    /// Does to a file's content what it does.
    pub(super) fn change(&self, content: &mut Content) {
        match self {
            Op::Write { offset, bytes, .. } => content.write(*offset, bytes),
            Op::Resize { size, .. } => content.resize(*size),
            Op::Punch { hole, .. } => content.punch(hole.clone()),
            _ => {}
        }
    }
}

/// What becomes of that which was not synced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It is lost, all of it.
    Lost,
    /// It is there, all of it: as when no disk lost power and a process died.
    Kept,
    /// Chance has it, the same for the same seed.
    Chance(u64),
}

/// What happened on a disk, in order. A position lies between two operations.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    pub(super) ops: Vec<Op>,
}

impl Recording {
    /// The position at its end.
    pub fn end(&self) -> usize {
        self.ops.len()
    }

    /// The positions just before each sync of `range`: there most is at stake.
    pub fn syncs(&self, range: Range<usize>) -> Vec<usize> {
        range.filter(|at| self.ops.get(*at).is_some_and(Op::is_sync)).collect()
    }

    /// Makes the sync behind position `at` a lie: it was answered and not done. Tests of tests
    /// need it.
    pub fn lie(&mut self, at: usize) {
        if let Some(op) = self.ops.get_mut(at).filter(|op| op.is_sync()) {
            *op = Op::Lie;
        }
    }

    /// What is found after a power loss at position `cut`.
    pub fn image(&self, cut: usize, fate: Fate) -> Image {
        let ops = self.ops.get(..cut).unwrap_or(&self.ops);
        let mut chance = crash::Chance::new(fate);
        let mut tree = Tree::default();
        for (op, there) in ops.iter().zip(names::there(ops, &mut chance)) {
            match op {
                Op::Make { node, mode, .. } if !there => tree.make(*node, *mode),
                _ if there => tree.apply(op),
                _ => {}
            }
        }
        for (file, content) in crash::contents(ops, &mut chance) {
            if let Some(place) = tree.content_mut(file) {
                *place = content;
            }
        }
        Image { tree }
    }
}

/// The files that a power loss left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Image {
    tree: Tree,
}

impl Image {
    /// Writes it into `dir`, which is empty or is made. Sockets are left out.
    pub fn write_to(&self, dir: &Path) -> io::Result<()> {
        std::fs::create_dir_all(dir)?;
        self.tree.write_to(ROOT, dir)
    }

    /// The bytes of the file at `path`, if there is one.
    pub fn read(&self, path: impl Into<PathBuf>) -> Option<Vec<u8>> {
        let mut node = ROOT;
        for name in &path.into() {
            node = *self.tree.names(node)?.get(name)?;
        }
        let content = self.tree.content(node)?;
        Some(content.read(0, content.size()))
    }
}
