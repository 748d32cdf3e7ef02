//! Operations of applications, as calls of the host.

use std::ops::Range;

use segue_core::host::cache::XattrMap;
use segue_core::host::call::{Answer, Call, Look, NameCall, OpenCall, RenameFlag, Seen};
use segue_core::nouns::{Attr, Dentry, Ino, Kind, Name, NewNode, SetAttr};
use segue_core::refusal::Refusal;

use super::{Apps, Changing};
use crate::Violation;
use crate::client::{Ran, Stop};
use crate::work::{Answered, Op, Path, bytes_of};

/// One write in so many is synced, where there are sessions.
const SYNCED_EVERY: u64 = 3;

/// Result of an operation, inside of what must never happen.
pub(super) type Attempt<R> = Result<Result<R, Stop>, Violation>;

impl Apps {
    /// Does `op`, or says what it waits for; then nothing was changed.
    pub(super) fn attempt(&mut self, thread: usize, op: &Op) -> Attempt<Answered> {
        match self.prepare(thread, op) {
            Ok(ReadyOp::Name(call, ino)) => {
                self.threads[thread].changing =
                    Some(Changing { ino, since: self.mount.disk.changed_at });
                let call = Call::Name(call, self.caller.clone());
                Ok(match self.mount.start_call(call, &[])? {
                    Ran::Asks(asking) => Err(Stop::Ask(asking)),
                    Ran::Later | Ran::Pauses(..) => Err(Stop::Later),
                    Ran::Hears(hearing) => Ok(self.named_for_now(thread, *hearing)),
                    Ran::Answered(answer) => self.named(thread, answer).map_err(Stop::from),
                })
            }
            Ok(ReadyOp::Write { ino, keep }) => {
                let Op::Write { offset, len, fill, .. } = op else { return never(op) };
                self.read_ahead(ino);
                self.open(ino);
                let written = self.write(ino, *offset, &bytes_of(*offset, *len, *fill))?;
                if written.is_ok() && self.has_sessions && fill.is_multiple_of(SYNCED_EVERY) {
                    // It was written all the same.
                    self.fsync(ino)?.ok();
                }
                if !keep || written.is_err() {
                    self.close(self.handles.len() - 1, true)?;
                }
                Ok(written.map(|()| Answered::Ino(ino)).map_err(Stop::from))
            }
            Ok(ReadyOp::Punch(ino, range)) => {
                let size = self.mount.core.tree.peek(ino).map_or(0, |attr| attr.size);
                let punched = self.punch(ino, range.start..range.end.min(size))?;
                Ok(punched.map(|()| Answered::Ino(ino)).map_err(Stop::from))
            }
            Ok(ReadyOp::Clone(from, to)) => {
                let copied = self.clone_file(from, to)?;
                Ok(copied.map(|()| Answered::Ino(to)).map_err(Stop::from))
            }
            Ok(ReadyOp::WriteOpen(ino)) => {
                let Op::WriteOpen { offset, len, fill, .. } = op else { return never(op) };
                let written = self.write(ino, *offset, &bytes_of(*offset, *len, *fill))?;
                Ok(written.map(|()| Answered::Ino(ino)).map_err(Stop::from))
            }
            Ok(ReadyOp::Close(which)) => Ok(Ok(Answered::Ino(self.close(which, true)?))),
            Ok(ReadyOp::Resize(ino, size)) => {
                let resized = self.resize(ino, size)?;
                Ok(resized.map(|()| Answered::Ino(ino)).map_err(Stop::from))
            }
            Ok(ReadyOp::Answer(answered)) => Ok(Ok(answered)),
            Err(stop) => Ok(Err(stop)),
        }
    }

    /// The answer to a thread's change of names.
    pub(super) fn named(
        &mut self,
        thread: usize,
        answer: Result<Answer, Refusal>,
    ) -> Result<Answered, Refusal> {
        self.raise_newest();
        let about = self.threads[thread].changing.take().and_then(|changing| changing.ino);
        let ino = answer.as_ref().ok().and_then(|answer| answer.ino).or(about);
        ino.into_iter().for_each(|ino| self.read_ahead(ino));
        answer.map(|_| Answered::Ino(ino.unwrap_or(Ino::ROOT)))
    }

    fn prepare(&mut self, thread: usize, op: &Op) -> Result<ReadyOp, Stop> {
        match op {
            Op::Create(path) => self.create(path, NewNode::File, 0o644),
            Op::Mkdir(path) => self.create(path, NewNode::Directory, 0o755),
            Op::Symlink(path, target) => self.create(path, NewNode::Symlink(target.clone()), 0o777),
            Op::Write { path, keep, .. } => {
                let attr = self.file(path)?;
                self.opens(thread, attr.ino, true)?;
                self.load(attr.ino)?;
                Ok(ReadyOp::Write { ino: attr.ino, keep: *keep })
            }
            Op::WriteOpen { which, .. } => {
                let which = self.handle(*which)?;
                Ok(ReadyOp::WriteOpen(self.handles[which]))
            }
            Op::Close(which) => Ok(ReadyOp::Close(self.handle(*which)?)),
            Op::Truncate(path, size) => {
                let attr = self.file(path)?;
                self.load(attr.ino)?;
                Ok(ReadyOp::Resize(attr.ino, *size))
            }
            Op::Rename(from, to, flag) => self.rename(from, to, *flag),
            Op::Unlink(path) => Ok(ReadyOp::Name(NameCall::Unlink(self.at(path)?), None)),
            Op::Rmdir(path) => Ok(ReadyOp::Name(NameCall::Rmdir(self.at(path)?), None)),
            Op::Link(from, to) => self.link(from, to),
            Op::Chmod(path, mode) => {
                let attr = self.existing(path)?;
                if attr.kind == Kind::Symlink {
                    return Err(Refusal::NotSupported.into());
                }
                let set = SetAttr { mode: Some(*mode), ..SetAttr::default() };
                Ok(ReadyOp::Name(NameCall::SetAttr { ino: attr.ino, set }, None))
            }
            Op::List(path) => {
                let attr = self.existing(path)?;
                if attr.kind != Kind::Directory {
                    return Err(Refusal::NotDirectory.into());
                }
                Ok(ReadyOp::Answer(Answered::Names(self.mount.list(attr.ino)?)))
            }
            Op::Read(path) => {
                let attr = self.file(path)?;
                self.opens(thread, attr.ino, false)?;
                Ok(ReadyOp::Answer(Answered::Bytes(self.mount.read(attr.ino, 0..u64::MAX)?)))
            }
            other => self.prepare_unusual(other),
        }
    }

    /// Asks what an open asks for, once.
    fn opens(&mut self, thread: usize, ino: Ino, writable: bool) -> Result<(), Stop> {
        let state = &self.threads[thread];
        let is_second = state.tries > 1;
        if state.opened == Some(ino) {
            return Ok(());
        }
        let open = OpenCall { ino, writable, truncates: false, is_second };
        match self.mount.call_asking(Call::Open(open)) {
            Err(Stop::Refused(Refusal::Stale)) => Err(Stop::Later),
            opened => opened.map(drop),
        }
    }

    /// The operations that not every run has.
    fn prepare_unusual(&mut self, op: &Op) -> Result<ReadyOp, Stop> {
        match op {
            Op::Punch(path, range) => {
                let attr = self.file(path)?;
                self.load(attr.ino)?;
                Ok(ReadyOp::Punch(attr.ino, range.clone()))
            }
            Op::SetXattr(path, name, value) => {
                let (ino, _) = self.xattrs(path)?;
                let (name, value) = (name.clone(), Some(value.clone()));
                Ok(ReadyOp::Name(NameCall::SetXattr { ino, name, value }, None))
            }
            Op::RemoveXattr(path, name) => {
                let (ino, known) = self.xattrs(path)?;
                if !known.contains_key(name) {
                    return Err(Refusal::NoAttribute.into());
                }
                let (name, value) = (name.clone(), None);
                Ok(ReadyOp::Name(NameCall::SetXattr { ino, name, value }, None))
            }
            Op::Xattrs(path) => Ok(ReadyOp::Answer(Answered::Xattrs(self.xattrs(path)?.1))),
            Op::Clone(from, to) => {
                let (from, to) = (self.file(from)?.ino, self.file(to)?.ino);
                self.load(from)?;
                self.load(to)?;
                Ok(ReadyOp::Clone(from, to))
            }
            other => Err(Stop::Broken(Violation(format!("{other:?} is usual")))),
        }
    }

    fn xattrs(&mut self, path: &Path) -> Result<(Ino, XattrMap), Stop> {
        let attr = self.existing(path)?;
        if attr.kind == Kind::Symlink {
            return Err(Refusal::NotPermitted.into());
        }
        match self.mount.look(Look::Xattrs(attr.ino))? {
            Seen::Xattrs(map) => Ok((attr.ino, map)),
            _ => Err(Refusal::Io.into()),
        }
    }

    /// The inode of a path. Every part but the last must be a directory.
    fn resolve(&mut self, path: &[Name]) -> Result<Option<Attr>, Stop> {
        let mut at = self.mount.getattr(Ino::ROOT)?;
        for (depth, name) in path.iter().enumerate() {
            if at.kind != Kind::Directory {
                return Err(Refusal::NotDirectory.into());
            }
            match self.mount.lookup(at.ino, name)? {
                Some(attr) => at = attr,
                None if depth + 1 == path.len() => return Ok(None),
                None => return Err(Refusal::NotFound.into()),
            }
        }
        Ok(Some(at))
    }

    fn existing(&mut self, path: &[Name]) -> Result<Attr, Stop> {
        Ok(self.resolve(path)?.ok_or(Refusal::NotFound)?)
    }

    /// The directory that holds the last part of a path.
    fn parent<'a>(&mut self, path: &'a [Name]) -> Result<(Ino, &'a Name), Stop> {
        let (name, above) = path.split_last().ok_or(Refusal::Invalid)?;
        let parent = self.existing(above)?;
        match parent.kind {
            Kind::Directory => Ok((parent.ino, name)),
            _ => Err(Refusal::NotDirectory.into()),
        }
    }

    fn handle(&self, which: usize) -> Result<usize, Refusal> {
        which.checked_rem(self.handles.len()).ok_or(Refusal::Invalid)
    }

    fn file(&mut self, path: &Path) -> Result<Attr, Stop> {
        let attr = self.existing(path)?;
        match attr.kind {
            Kind::File => Ok(attr),
            Kind::Directory => Err(Refusal::IsDirectory.into()),
            _ => Err(Refusal::Invalid.into()),
        }
    }

    /// The place of the last name of a path.
    fn at(&mut self, path: &Path) -> Result<Dentry, Stop> {
        let (parent, name) = self.parent(path)?;
        Ok(Dentry { parent, name: name.clone() })
    }

    fn create(&mut self, path: &Path, node: NewNode, mode: u32) -> Result<ReadyOp, Stop> {
        let at = self.at(path)?;
        Ok(ReadyOp::Name(NameCall::Create { at, node, mode, exclusive: false }, None))
    }

    fn link(&mut self, from: &Path, to: &Path) -> Result<ReadyOp, Stop> {
        let ino = self.existing(from)?.ino;
        Ok(ReadyOp::Name(NameCall::Link { ino, at: self.at(to)? }, None))
    }

    fn rename(&mut self, from: &Path, to: &Path, flag: RenameFlag) -> Result<ReadyOp, Stop> {
        // The kernel itself refuses to move something into itself or onto what holds it.
        if to.starts_with(from) && to != from {
            return Err(Refusal::Invalid.into());
        }
        if from.starts_with(to) && to != from {
            return Err(Refusal::NotEmpty.into());
        }
        let source = self.existing(from)?.ino;
        let (from, to) = (self.at(from)?, self.at(to)?);
        Ok(ReadyOp::Name(NameCall::Rename { from, to, flag }, Some(source)))
    }
}

/// An operation that only needs to be carried out.
enum ReadyOp {
    /// The call, and the inode that it answers with if it changes nothing.
    Name(NameCall, Option<Ino>),
    Write {
        ino: Ino,
        keep: bool,
    },
    WriteOpen(Ino),
    Punch(Ino, Range<u64>),
    Clone(Ino, Ino),
    Close(usize),
    Resize(Ino, u64),
    Answer(Answered),
}

fn never<R>(op: &Op) -> Attempt<R> {
    Err(Violation(format!("{op:?} was prepared as something else")))
}
