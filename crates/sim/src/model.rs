//! The tree that one host alone must end up with: each operation that it acknowledged, done to
//! a tree in memory, by rules that know nothing of Segue.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use segue_core::host::cache::XattrMap;
use segue_core::host::log::Entry;
use segue_core::nouns::{Attr, Ino, Kind, Name};
use segue_core::refusal::Refusal;

use crate::Violation;
use crate::check::acknowledged::overwritten;
use crate::check::structure::Reached;
use crate::server::{Server, content, xattrs};
use crate::work::{Answered, Op, Path, bytes_of};
use segue_core::host::call::RenameFlag;

#[derive(Clone, PartialEq, Eq, Debug)]
enum Node {
    File(Vec<u8>),
    Directory(BTreeMap<Name, Ino>),
    Symlink(Vec<u8>),
}

/// The tree, files without names included.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    nodes: BTreeMap<Ino, Node>,
    modes: BTreeMap<Ino, u32>,
    xattrs: BTreeMap<Ino, XattrMap>,
    handles: Vec<Ino>,
    /// Bytes that may be of a write that a loss of power took back.
    unsure: BTreeSet<(Ino, u64)>,
}

type Done = Result<Answered, Refusal>;

fn index(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

impl Model {
    pub(crate) fn new() -> Model {
        Model {
            nodes: BTreeMap::from([(Ino::ROOT, Node::Directory(BTreeMap::new()))]),
            modes: BTreeMap::from([(Ino::ROOT, 0o755)]),
            xattrs: BTreeMap::new(),
            handles: Vec::new(),
            unsure: BTreeSet::new(),
        }
    }

    /// The host's process died: nothing is open any more.
    pub(crate) fn crashed(&mut self) {
        self.handles.clear();
    }

    /// A loss of power took these entries back. What they overwrote in place may be the old or the
    /// new; what lay beyond the end of a file is not there.
    pub(crate) fn lost(&mut self, entries: &[Entry]) {
        for (ino, range) in entries.iter().filter_map(overwritten) {
            if let Some(Node::File(bytes)) = self.nodes.get(&ino) {
                let range = range.start..range.end.min(bytes.len() as u64);
                self.unsure.extend(range.map(|at| (ino, at)));
            }
        }
    }

    /// A write of which nobody was told was done.
    pub(crate) fn wrote(&mut self, ino: Ino, offset: u64, bytes: &[u8]) {
        if let Some(Node::File(all)) = self.nodes.get_mut(&ino) {
            put(all, offset, bytes);
            self.mark_sure(ino, offset..offset + bytes.len() as u64);
        }
    }

    /// What `ino` has in it.
    pub(crate) fn names(&self, ino: Ino) -> Option<Vec<(Name, Ino)>> {
        match self.nodes.get(&ino) {
            Some(Node::Directory(names)) => {
                Some(names.iter().map(|(name, ino)| (name.clone(), *ino)).collect())
            }
            _ => None,
        }
    }

    /// What is wrong with `attr`.
    pub(crate) fn check_attr(&self, attr: &Attr) -> Result<(), String> {
        let size = match self.nodes.get(&attr.ino) {
            Some(Node::File(bytes)) => Some(bytes.len() as u64),
            _ => None,
        };
        let is_right = self.modes.get(&attr.ino) == Some(&attr.mode)
            && size.is_none_or(|size| attr.size == size);
        if is_right { Ok(()) } else { Err(format!("{attr:?}, and should have {size:?} bytes")) }
    }

    /// What is wrong with these bytes at `offset` of `ino`.
    pub(crate) fn check_bytes(&self, ino: Ino, offset: u64, bytes: &[u8]) -> Result<(), String> {
        let Some(Node::File(all)) = self.nodes.get(&ino) else { return Err("no file".into()) };
        for (at, byte) in (offset..).zip(bytes) {
            let expected = all.get(index(at));
            if expected != Some(byte) && !self.unsure.contains(&(ino, at)) {
                return Err(format!("{byte} at {at}, not {expected:?}"));
            }
        }
        Ok(())
    }

    /// True if `told` and `expected` differ in bytes at most of which nobody is sure.
    fn is_as(&self, op: &Op, told: &Done, expected: &Done) -> bool {
        match (op, told, expected) {
            (Op::Read(path), Ok(Answered::Bytes(told)), Ok(Answered::Bytes(expected))) => {
                let ino = self.find(path).ok().flatten();
                told.len() == expected.len()
                    && ino.is_some_and(|ino| self.check_bytes(ino, 0, told).is_ok())
            }
            _ => told == expected,
        }
    }

    /// Does `op`, which the host answered with `told`, and compares. What its disk refuses, if that
    /// fails, did not happen.
    pub(crate) fn check(
        &mut self,
        op: &Op,
        told: &Done,
        disk_fails: bool,
    ) -> Result<(), Violation> {
        let unknown = [Refusal::Unreachable, Refusal::Changed];
        let of_disk = [Refusal::NoSpace, Refusal::Io];
        let may_be = |refusal| unknown.contains(refusal) || disk_fails && of_disk.contains(refusal);
        if matches!(told, Err(refusal) if may_be(refusal)) {
            return Ok(());
        }
        // The host says when it leaves the copying of bytes to its caller.
        if matches!((op, told), (Op::Clone(..), Err(Refusal::NotSupported))) {
            return Ok(());
        }
        let made = match told {
            Ok(Answered::Ino(ino)) => *ino,
            _ => Ino(0),
        };
        let expected = self.run(op, made);
        match self.is_as(op, told, &expected) {
            true => Ok(()),
            false => Err(Violation(format!("{op:?}: {told:?}, the model says {expected:?}"))),
        }
    }

    fn entries(&self, ino: Ino) -> Result<&BTreeMap<Name, Ino>, Refusal> {
        match self.nodes.get(&ino) {
            Some(Node::Directory(names)) => Ok(names),
            _ => Err(Refusal::NotDirectory),
        }
    }

    fn directory(&mut self, ino: Ino) -> Result<&mut BTreeMap<Name, Ino>, Refusal> {
        match self.nodes.get_mut(&ino) {
            Some(Node::Directory(names)) => Ok(names),
            _ => Err(Refusal::NotDirectory),
        }
    }

    fn find(&self, path: &[Name]) -> Result<Option<Ino>, Refusal> {
        let Some((name, above)) = path.split_last() else { return Ok(Some(Ino::ROOT)) };
        let parent = self.find(above)?.ok_or(Refusal::NotFound)?;
        Ok(self.entries(parent)?.get(name).copied())
    }

    fn existing(&mut self, path: &[Name]) -> Result<Ino, Refusal> {
        self.find(path)?.ok_or(Refusal::NotFound)
    }

    fn holder<'a>(&mut self, path: &'a [Name]) -> Result<(Ino, &'a Name), Refusal> {
        let (name, above) = path.split_last().ok_or(Refusal::Invalid)?;
        let parent = self.existing(above)?;
        self.directory(parent).map(|_| (parent, name))
    }

    fn is_directory(&self, ino: Ino) -> bool {
        matches!(self.nodes.get(&ino), Some(Node::Directory(_)))
    }

    fn file(&mut self, path: &Path) -> Result<(Ino, &mut Vec<u8>), Refusal> {
        let ino = self.existing(path)?;
        match self.nodes.get_mut(&ino) {
            Some(Node::File(bytes)) => Ok((ino, bytes)),
            Some(Node::Directory(_)) => Err(Refusal::IsDirectory),
            _ => Err(Refusal::Invalid),
        }
    }

    fn make(&mut self, path: &Path, ino: Ino, node: Node, mode: u32) -> Done {
        let (parent, name) = self.holder(path)?;
        if self.directory(parent)?.contains_key(name) {
            return Err(Refusal::Exists);
        }
        self.directory(parent)?.insert(name.clone(), ino);
        self.nodes.insert(ino, node);
        self.modes.insert(ino, mode);
        Ok(Answered::Ino(ino))
    }

    fn handle(&self, which: usize) -> Result<usize, Refusal> {
        which.checked_rem(self.handles.len()).ok_or(Refusal::Invalid)
    }

    fn run(&mut self, op: &Op, made: Ino) -> Done {
        match op {
            Op::Create(path) => self.make(path, made, Node::File(Vec::new()), 0o644),
            Op::Mkdir(path) => self.make(path, made, Node::Directory(BTreeMap::new()), 0o755),
            Op::Symlink(path, target) => {
                self.make(path, made, Node::Symlink(target.clone()), 0o777)
            }
            Op::Write { path, offset, len, fill, keep } => {
                let (ino, bytes) = self.file(path)?;
                put(bytes, *offset, &bytes_of(*offset, *len, *fill));
                self.mark_sure(ino, *offset..offset + len);
                if *keep {
                    self.handles.push(ino);
                }
                Ok(Answered::Ino(ino))
            }
            Op::WriteOpen { which, offset, len, fill } => {
                let ino = self.handles[self.handle(*which)?];
                if let Some(Node::File(bytes)) = self.nodes.get_mut(&ino) {
                    put(bytes, *offset, &bytes_of(*offset, *len, *fill));
                    self.mark_sure(ino, *offset..offset + len);
                }
                Ok(Answered::Ino(ino))
            }
            Op::Close(which) => {
                let which = self.handle(*which)?;
                Ok(Answered::Ino(self.handles.remove(which)))
            }
            Op::Truncate(path, size) => {
                let (ino, bytes) = self.file(path)?;
                bytes.resize(index(*size), 0);
                self.mark_sure(ino, *size..u64::MAX);
                Ok(Answered::Ino(ino))
            }
            Op::Rename(from, to, flag) => self.rename(from, to, *flag),
            Op::Unlink(path) => {
                let ino = self.existing(path)?;
                if self.is_directory(ino) {
                    return Err(Refusal::IsDirectory);
                }
                let (parent, name) = self.holder(path)?;
                self.directory(parent)?.remove(name);
                Ok(Answered::Ino(ino))
            }
            Op::Rmdir(path) => {
                let ino = self.existing(path)?;
                if !self.directory(ino)?.is_empty() {
                    return Err(Refusal::NotEmpty);
                }
                let (parent, name) = self.holder(path)?;
                self.directory(parent)?.remove(name);
                Ok(Answered::Ino(ino))
            }
            Op::Link(from, to) => self.link(from, to),
            Op::Chmod(path, mode) => {
                let ino = self.existing(path)?;
                if let Some(Node::Symlink(_)) = self.nodes.get(&ino) {
                    return Err(Refusal::NotSupported);
                }
                self.modes.insert(ino, *mode);
                Ok(Answered::Ino(ino))
            }
            Op::List(path) => {
                let ino = self.existing(path)?;
                let names = self.directory(ino)?.iter();
                Ok(Answered::Names(names.map(|(name, ino)| (name.clone(), *ino)).collect()))
            }
            Op::Read(path) => Ok(Answered::Bytes(self.file(path)?.1.clone())),
            other => self.run_unusual(other),
        }
    }

    /// The operations that not every run has.
    fn run_unusual(&mut self, op: &Op) -> Done {
        match op {
            Op::Punch(path, range) => {
                let (ino, bytes) = self.file(path)?;
                let range = range.start..range.end.min(bytes.len() as u64);
                if range.start < range.end {
                    bytes[index(range.start)..index(range.end)].fill(0);
                    self.mark_sure(ino, range);
                }
                Ok(Answered::Ino(ino))
            }
            Op::SetXattr(path, name, value) => {
                let ino = self.with_xattrs(path)?;
                self.xattrs.entry(ino).or_default().insert(name.clone(), value.clone());
                Ok(Answered::Ino(ino))
            }
            Op::RemoveXattr(path, name) => {
                let ino = self.with_xattrs(path)?;
                let gone = self.xattrs.entry(ino).or_default().remove(name);
                gone.map(|_| Answered::Ino(ino)).ok_or(Refusal::NoAttribute)
            }
            Op::Xattrs(path) => {
                let ino = self.with_xattrs(path)?;
                Ok(Answered::Xattrs(self.xattrs.get(&ino).cloned().unwrap_or_default()))
            }
            Op::Clone(from, to) => {
                let bytes = self.file(from)?.1.clone();
                let ino = self.file(to)?.0;
                self.nodes.insert(ino, Node::File(bytes));
                Ok(Answered::Ino(ino))
            }
            other => unreachable!("{other:?} is usual"),
        }
    }

    /// The kernel gives links none of the user's.
    fn with_xattrs(&mut self, path: &Path) -> Result<Ino, Refusal> {
        let ino = self.existing(path)?;
        match self.nodes.get(&ino) {
            Some(Node::Symlink(_)) => Err(Refusal::NotPermitted),
            _ => Ok(ino),
        }
    }

    fn mark_sure(&mut self, ino: Ino, range: Range<u64>) {
        self.unsure.retain(|(file, at)| *file != ino || !range.contains(at));
    }

    fn link(&mut self, from: &Path, to: &Path) -> Done {
        let ino = self.existing(from)?;
        let (parent, name) = self.holder(to)?;
        if self.directory(parent)?.contains_key(name) {
            return Err(Refusal::Exists);
        }
        if self.is_directory(ino) {
            return Err(Refusal::NotPermitted);
        }
        self.directory(parent)?.insert(name.clone(), ino);
        Ok(Answered::Ino(ino))
    }

    fn rename(&mut self, from: &Path, to: &Path, flag: RenameFlag) -> Done {
        if to != from && to.starts_with(from) {
            return Err(Refusal::Invalid);
        }
        if to != from && from.starts_with(to) {
            return Err(Refusal::NotEmpty);
        }
        let source = self.existing(from)?;
        let (from_parent, from_name) = self.holder(from)?;
        let (to_parent, to_name) = self.holder(to)?;
        let target = self.directory(to_parent)?.get(to_name).copied();
        match (flag, target) {
            (RenameFlag::NoReplace, Some(_)) => return Err(Refusal::Exists),
            (RenameFlag::Exchange, None) => return Err(Refusal::NotFound),
            (_, Some(target)) if target == source => return Ok(Answered::Ino(source)),
            (RenameFlag::Exchange, Some(target)) => {
                self.directory(from_parent)?.insert(from_name.clone(), target);
                self.directory(to_parent)?.insert(to_name.clone(), source);
                return Ok(Answered::Ino(source));
            }
            (RenameFlag::Replace, Some(target)) => {
                match (self.is_directory(source), self.is_directory(target)) {
                    (true, false) => return Err(Refusal::NotDirectory),
                    (false, true) => return Err(Refusal::IsDirectory),
                    (true, true) if !self.directory(target)?.is_empty() => {
                        return Err(Refusal::NotEmpty);
                    }
                    _ => {}
                }
            }
            (_, None) => {}
        }
        self.directory(from_parent)?.remove(from_name);
        self.directory(to_parent)?.insert(to_name.clone(), source);
        Ok(Answered::Ino(source))
    }

    /// Compares the server's tree with this one.
    pub(crate) fn compare(&self, server: &mut Server, reached: &Reached) -> Result<(), Violation> {
        let mut open = vec![Ino::ROOT];
        let mut seen = 0;
        while let Some(ino) = open.pop() {
            seen += 1;
            let differs = |what: &str| Violation(format!("#{ino} differs from the model: {what}"));
            let node = reached.nodes.get(&ino).ok_or_else(|| differs("missing"))?;
            if self.modes.get(&ino) != Some(&node.attr.mode) {
                return Err(differs("mode"));
            }
            let volume = server.volume;
            let found = xattrs(&mut server.snapshot(), volume, ino)?;
            if self.xattrs.get(&ino).cloned().unwrap_or_default() != found {
                return Err(differs(&format!("{found:?}")));
            }
            match &self.nodes[&ino] {
                Node::Directory(names) => {
                    let listing = reached.listings.get(&ino);
                    let listing: Vec<_> = listing.into_iter().flatten().cloned().collect();
                    let expected: Vec<_> = names.iter().map(|(n, i)| (n.clone(), *i)).collect();
                    if listing != expected {
                        return Err(differs(&format!("{listing:?} is not {expected:?}")));
                    }
                    open.extend(names.values());
                }
                Node::Symlink(target) if node.target.as_ref() == Some(target) => {}
                Node::Symlink(_) => return Err(differs("target")),
                Node::File(bytes) => {
                    let volume = server.volume;
                    let stored = content(&mut server.snapshot(), volume, ino)?;
                    let is_right = self.check_bytes(ino, 0, &stored).is_ok();
                    if node.attr.kind != Kind::File || stored.len() != bytes.len() || !is_right {
                        return Err(differs(&format!("{stored:?} is not {bytes:?}")));
                    }
                }
            }
        }
        match seen >= reached.nodes.len() {
            true => Ok(()),
            false => Err(Violation("the server has more than the model".into())),
        }
    }
}

fn put(bytes: &mut Vec<u8>, offset: u64, new: &[u8]) {
    let at = index(offset);
    if bytes.len() < at + new.len() {
        bytes.resize(at + new.len(), 0);
    }
    bytes[at..at + new.len()].copy_from_slice(new);
}
