//! Operations, as `segue-client`'s mount/changes.rs does them.

use segue_core::nouns::{Attr, Ino, Kind, Name, NewNode, Record, RenameMode, SetAttr};
use segue_core::refusal::Refusal;

use super::{Mount, Stop};
use crate::Violation;
use crate::work::{Answered, Flag, Op, Path, bytes_of};

/// One write in so many is synced, where there are sessions.
const SYNCED_EVERY: u64 = 3;

/// Result of an operation, inside of what must never happen.
type Attempt<R> = Result<Result<R, Stop>, Violation>;

impl Mount {
    /// Does `op`, or says what it waits for; then nothing was changed. `changed`: the server
    /// has other data than those that were asked for last.
    pub(super) fn attempt(&mut self, op: &Op, changed: bool) -> Attempt<Answered> {
        match self.prepare(op, changed) {
            Ok(Prepared::Record(record, ino)) => {
                let logged = self.log_record(record)?;
                self.read_ahead(ino);
                Ok(logged.map(|()| Answered::Ino(ino)).map_err(Stop::from))
            }
            Ok(Prepared::Write { ino, keep }) => {
                let Op::Write { offset, len, fill, .. } = op else { return never(op) };
                self.read_ahead(ino);
                self.open(ino);
                let written = self.write(ino, *offset, &bytes_of(*offset, *len, *fill))?;
                if written.is_ok() && self.has_sessions && fill.is_multiple_of(SYNCED_EVERY) {
                    // It was written all the same.
                    self.fsync(ino)?.ok();
                }
                if !keep || written.is_err() {
                    self.close(self.handles.len() - 1)?;
                }
                Ok(written.map(|()| Answered::Ino(ino)).map_err(Stop::from))
            }
            Ok(Prepared::WriteOpen(ino)) => {
                let Op::WriteOpen { offset, len, fill, .. } = op else { return never(op) };
                let written = self.write(ino, *offset, &bytes_of(*offset, *len, *fill))?;
                Ok(written.map(|()| Answered::Ino(ino)).map_err(Stop::from))
            }
            Ok(Prepared::Close(which)) => Ok(Ok(Answered::Ino(self.close(which)?))),
            Ok(Prepared::Resize(ino, size)) => {
                let resized = self.resize(ino, size)?;
                Ok(resized.map(|()| Answered::Ino(ino)).map_err(Stop::from))
            }
            Ok(Prepared::Answer(answered)) => Ok(Ok(answered)),
            Err(stop) => Ok(Err(stop)),
        }
    }

    fn prepare(&mut self, op: &Op, changed: bool) -> Result<Prepared, Stop> {
        match op {
            Op::Create(path) => self.create(path, NewNode::File, 0o644),
            Op::Mkdir(path) => self.create(path, NewNode::Directory, 0o755),
            Op::Symlink(path, target) => self.create(path, NewNode::Symlink(target.clone()), 0o777),
            Op::Write { path, keep, .. } => {
                let attr = self.file(path)?;
                self.load(attr.ino)?;
                Ok(Prepared::Write { ino: attr.ino, keep: *keep })
            }
            Op::WriteOpen { which, .. } => {
                let which = self.handle(*which)?;
                Ok(Prepared::WriteOpen(self.handles[which]))
            }
            Op::Close(which) => Ok(Prepared::Close(self.handle(*which)?)),
            Op::Truncate(path, size) => {
                let attr = self.file(path)?;
                self.load(attr.ino)?;
                Ok(Prepared::Resize(attr.ino, *size))
            }
            Op::Rename(from, to, flag) => self.rename(from, to, *flag),
            Op::Unlink(path) => self.unlink(path),
            Op::Rmdir(path) => self.rmdir(path),
            Op::Link(from, to) => self.link(from, to),
            Op::Chmod(path, mode) => {
                let attr = self.existing(path)?;
                if attr.kind == Kind::Symlink {
                    return Err(Refusal::NotSupported.into());
                }
                let set = SetAttr { mode: Some(*mode), ..SetAttr::default() };
                Ok(Prepared::Record(Record::SetAttr { ino: attr.ino, set }, attr.ino))
            }
            Op::List(path) => {
                let attr = self.existing(path)?;
                if attr.kind != Kind::Directory {
                    return Err(Refusal::NotDirectory.into());
                }
                Ok(Prepared::Answer(Answered::Names(self.list(attr.ino)?)))
            }
            Op::Read(path) => {
                let attr = self.file(path)?;
                if changed {
                    self.catch_up(attr.ino)?;
                }
                Ok(Prepared::Answer(Answered::Bytes(self.read(attr.ino, 0..u64::MAX)?)))
            }
        }
    }

    /// The server has another version than the one that was being fetched.
    fn catch_up(&mut self, ino: Ino) -> Result<(), Stop> {
        match self.core.files.get(&ino).is_some_and(|file| file.is_ahead()) {
            true => Err(Stop::Later),
            false => self.ask(segue_core::wire::Request::Getattr(ino)),
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

    fn free(&mut self, path: &Path) -> Result<(Ino, Name), Stop> {
        let (parent, name) = self.parent(path)?;
        match self.lookup(parent, name)? {
            Some(_) => Err(Refusal::Exists.into()),
            None => Ok((parent, name.clone())),
        }
    }

    fn create(&mut self, path: &Path, node: NewNode, mode: u32) -> Result<Prepared, Stop> {
        let (parent, name) = self.free(path)?;
        self.getattr(parent)?;
        let ino = self.take_ino()?;
        let record = Record::Create { parent, name, ino, node, mode, uid: 0, gid: 0 };
        Ok(Prepared::Record(record, ino))
    }

    fn link(&mut self, from: &Path, to: &Path) -> Result<Prepared, Stop> {
        let attr = self.existing(from)?;
        let (parent, name) = self.free(to)?;
        if attr.kind == Kind::Directory {
            return Err(Refusal::NotPermitted.into());
        }
        let ino = attr.ino;
        self.getattr(parent)?;
        Ok(Prepared::Record(Record::Link { ino, parent, name }, ino))
    }

    fn unlink(&mut self, path: &Path) -> Result<Prepared, Stop> {
        let attr = self.existing(path)?;
        let (parent, name) = self.parent(path)?;
        if attr.kind == Kind::Directory {
            return Err(Refusal::IsDirectory.into());
        }
        self.getattr(parent)?;
        let (ino, open, name) = (attr.ino, self.core.is_open(attr.ino), name.clone());
        Ok(Prepared::Record(Record::Unlink { parent, name, ino, open }, ino))
    }

    fn rmdir(&mut self, path: &Path) -> Result<Prepared, Stop> {
        let attr = self.existing(path)?;
        let (parent, name) = self.parent(path)?;
        if attr.kind != Kind::Directory {
            return Err(Refusal::NotDirectory.into());
        }
        if !self.list(attr.ino)?.is_empty() {
            return Err(Refusal::NotEmpty.into());
        }
        self.getattr(parent)?;
        let (ino, name) = (attr.ino, name.clone());
        Ok(Prepared::Record(Record::Rmdir { parent, name, ino }, ino))
    }

    fn rename(&mut self, from: &Path, to: &Path, flag: Flag) -> Result<Prepared, Stop> {
        // The kernel itself refuses to move something into itself or onto what holds it.
        if to.starts_with(from) && to != from {
            return Err(Refusal::Invalid.into());
        }
        if from.starts_with(to) && to != from {
            return Err(Refusal::NotEmpty.into());
        }
        let source = self.existing(from)?;
        let (from_parent, from_name) = self.parent(from)?;
        let (to_parent, to_name) = self.parent(to)?;
        let target = self.lookup(to_parent, to_name)?;
        self.getattr(from_parent)?;
        self.getattr(to_parent)?;
        let ino = source.ino;
        let mode = match (flag, target) {
            (Flag::NoReplace, Some(_)) => return Err(Refusal::Exists.into()),
            (Flag::NoReplace, None) => RenameMode::NoReplace,
            (Flag::Exchange, None) => return Err(Refusal::NotFound.into()),
            (_, Some(target)) if target.ino == ino => {
                return Ok(Prepared::Answer(Answered::Ino(ino)));
            }
            (Flag::Exchange, Some(target)) => RenameMode::Exchange(target.ino),
            (Flag::Replace, target) => {
                if let Some(target) = &target {
                    self.replaceable(&source, target)?;
                }
                RenameMode::Replace(target.map(|target| target.ino))
            }
        };
        let open = target.is_some_and(|target| self.core.is_open(target.ino));
        let (from_name, to_name) = (from_name.clone(), to_name.clone());
        let record = Record::Rename { from_parent, from_name, ino, to_parent, to_name, mode, open };
        Ok(Prepared::Record(record, ino))
    }

    fn replaceable(&mut self, source: &Attr, target: &Attr) -> Result<(), Stop> {
        match (source.kind == Kind::Directory, target.kind == Kind::Directory) {
            (true, false) => Err(Refusal::NotDirectory.into()),
            (false, true) => Err(Refusal::IsDirectory.into()),
            (true, true) if !self.list(target.ino)?.is_empty() => Err(Refusal::NotEmpty.into()),
            _ => Ok(()),
        }
    }
}

/// An operation that only needs to be carried out.
enum Prepared {
    Record(Record, Ino),
    Write { ino: Ino, keep: bool },
    WriteOpen(Ino),
    Close(usize),
    Resize(Ino, u64),
    Answer(Answered),
}

fn never<R>(op: &Op) -> Attempt<R> {
    Err(Violation(format!("{op:?} was prepared as something else")))
}
