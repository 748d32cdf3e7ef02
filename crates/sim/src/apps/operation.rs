//! Operations of applications, as calls of the host.

use segue_core::host::Copied;
use segue_core::host::cache::XattrMap;
use segue_core::host::call::{Answer, Call, Look, NameCall, OpenCall, RenameFlag, Seen};
use segue_core::nouns::{Attr, Dentry, Ino, Kind, Name, NewNode, SetAttr};
use segue_core::refusal::Refusal;

use super::Stop;
use super::{Apps, Changing};
use crate::client::Ran;
use crate::work::{Answered, Op, Path, bytes_of};

/// One write in so many is synced, where there are sessions.
const SYNCED_EVERY: u64 = 3;
/// One write to an open file in so many is by a memory map, if that is possible.
const MAPPED_EVERY: u64 = 2;

impl Apps {
    /// Does `op`, or stops; then nothing was changed.
    pub(super) fn attempt(&mut self, thread: usize, op: &Op) -> Result<Answered, Stop> {
        match op {
            Op::Create(path) => self.create(thread, path, NewNode::File, 0o644),
            Op::Mkdir(path) => self.create(thread, path, NewNode::Directory, 0o755),
            Op::Symlink(path, target) => {
                self.create(thread, path, NewNode::Symlink(target.clone()), 0o777)
            }
            Op::Rename(from, to, flag) => self.rename(thread, from, to, *flag),
            Op::Unlink(path) => {
                let call = NameCall::Unlink(self.at(path)?);
                self.change(thread, call, None)
            }
            Op::Rmdir(path) => {
                let call = NameCall::Rmdir(self.at(path)?);
                self.change(thread, call, None)
            }
            Op::Link(from, to) => {
                let ino = self.existing(from)?.ino;
                let call = NameCall::Link { ino, at: self.at(to)? };
                self.change(thread, call, None)
            }
            Op::Chmod(path, mode) => self.chmod(thread, path, *mode),
            Op::SetXattr(path, name, value) => {
                let (ino, _) = self.xattrs(path)?;
                let (name, value) = (name.clone(), Some(value.clone()));
                self.change(thread, NameCall::SetXattr { ino, name, value }, None)
            }
            Op::RemoveXattr(path, name) => self.remove_xattr(thread, path, name),
            Op::Xattrs(path) => Ok(Answered::Xattrs(self.xattrs(path)?.1)),
            Op::List(path) => self.list(path),
            Op::Read(path) => {
                let ino = self.file(path)?;
                self.opens(thread, ino, false)?;
                self.read(ino)
            }
            Op::Write { path, offset, len, fill, keep } => {
                let ino = self.file(path)?;
                self.opens(thread, ino, true)?;
                self.load(ino)?;
                let is_synced = self.has_sessions && fill.is_multiple_of(SYNCED_EVERY);
                let bytes = bytes_of(*offset, *len, *fill);
                let by_map = fill.is_multiple_of(MAPPED_EVERY);
                self.write_once(ino, (*offset, &bytes, by_map), is_synced, *keep)
            }
            Op::WriteOpen { which, offset, len, fill } => {
                let ino = self.handles[self.handle(*which)?].ino;
                let bytes = bytes_of(*offset, *len, *fill);
                self.write_or_map(ino, *offset, &bytes, fill.is_multiple_of(MAPPED_EVERY))??;
                Ok(Answered::Ino(ino))
            }
            Op::Close(which) => Ok(Answered::Ino(self.close(self.handle(*which)?, true)?)),
            Op::Truncate(path, size) => {
                let ino = self.file(path)?;
                self.load(ino)?;
                self.resize(ino, *size)??;
                Ok(Answered::Ino(ino))
            }
            Op::Punch(path, range) => {
                let ino = self.file(path)?;
                self.load(ino)?;
                self.punch(ino, range)??;
                Ok(Answered::Ino(ino))
            }
            Op::Clone(from, to) => self.clone_file(from, to),
        }
    }

    /// Changes names or attributes. `ino`: the inode that it is about if it changes nothing.
    fn change(
        &mut self,
        thread: usize,
        call: NameCall,
        ino: Option<Ino>,
    ) -> Result<Answered, Stop> {
        let since = self.mount.disk.changed_at;
        self.threads[thread].changing = Some(Changing { ino, since });
        match self.mount.start_call(Call::Name(call, self.caller.clone()), &[])? {
            Ran::Asks(asking) => Err(Stop::Ask(asking)),
            Ran::Later | Ran::Pauses(..) | Ran::Uploads => Err(Stop::Later),
            Ran::Hears(hearing) => Ok(self.named_for_now(thread, *hearing)),
            Ran::Answered(answer) => Ok(self.named(thread, answer)?),
        }
    }

    /// The answer to a thread's change of names.
    pub(super) fn named(
        &mut self,
        thread: usize,
        answer: Result<Answer, Refusal>,
    ) -> Result<Answered, Refusal> {
        self.is_to_push = true;
        let about = self.threads[thread].changing.take().and_then(|changing| changing.ino);
        let ino = answer.as_ref().ok().and_then(|answer| answer.ino).or(about);
        ino.into_iter().for_each(|ino| self.read_ahead(ino));
        answer.map(|_| Answered::Ino(ino.unwrap_or(Ino::ROOT)))
    }

    /// Asks the server the questions of an open, once.
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

    fn handle(&self, which: usize) -> Result<usize, Refusal> {
        which.checked_rem(self.handles.len()).ok_or(Refusal::Invalid)
    }

    fn file(&mut self, path: &Path) -> Result<Ino, Stop> {
        let attr = self.existing(path)?;
        match attr.kind {
            Kind::File => Ok(attr.ino),
            Kind::Directory => Err(Refusal::IsDirectory.into()),
            _ => Err(Refusal::Invalid.into()),
        }
    }

    /// The place of the last name of a path, which is in a directory.
    fn at(&mut self, path: &Path) -> Result<Dentry, Stop> {
        let (name, above) = path.split_last().ok_or(Refusal::Invalid)?;
        let parent = self.existing(above)?;
        match parent.kind {
            Kind::Directory => Ok(Dentry { parent: parent.ino, name: name.clone() }),
            _ => Err(Refusal::NotDirectory.into()),
        }
    }

    fn create(
        &mut self,
        thread: usize,
        path: &Path,
        node: NewNode,
        mode: u32,
    ) -> Result<Answered, Stop> {
        let at = self.at(path)?;
        self.change(thread, NameCall::Create { at, node, mode, exclusive: false }, None)
    }

    fn chmod(&mut self, thread: usize, path: &Path, mode: u32) -> Result<Answered, Stop> {
        let attr = self.existing(path)?;
        if attr.kind == Kind::Symlink {
            return Err(Refusal::NotSupported.into());
        }
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        self.change(thread, NameCall::SetAttr { ino: attr.ino, set }, None)
    }

    fn remove_xattr(&mut self, thread: usize, path: &Path, name: &[u8]) -> Result<Answered, Stop> {
        let (ino, known) = self.xattrs(path)?;
        if !known.contains_key(name) {
            return Err(Refusal::NoAttribute.into());
        }
        let (name, value) = (name.to_vec(), None);
        self.change(thread, NameCall::SetXattr { ino, name, value }, None)
    }

    fn list(&mut self, path: &Path) -> Result<Answered, Stop> {
        let attr = self.existing(path)?;
        match attr.kind {
            Kind::Directory => Ok(Answered::Names(self.mount.list(attr.ino)?)),
            _ => Err(Refusal::NotDirectory.into()),
        }
    }

    fn rename(
        &mut self,
        thread: usize,
        from: &Path,
        to: &Path,
        flag: RenameFlag,
    ) -> Result<Answered, Stop> {
        // The kernel itself refuses to move something into itself or onto what holds it.
        if to.starts_with(from) && to != from {
            return Err(Refusal::Invalid.into());
        }
        if from.starts_with(to) && to != from {
            return Err(Refusal::NotEmpty.into());
        }
        let moved = self.existing(from)?.ino;
        let (from, to) = (self.at(from)?, self.at(to)?);
        self.change(thread, NameCall::Rename { from, to, flag }, Some(moved))
    }

    /// Copies a file by the server.
    fn clone_file(&mut self, from: &Path, to: &Path) -> Result<Answered, Stop> {
        let (from, to) = (self.file(from)?, self.file(to)?);
        self.load(from)?;
        self.load(to)?;
        let (bytes, caller) = (Copied { from: 0, to: 0, len: u64::MAX }, self.caller.clone());
        self.call_heard(Call::Clone { from, to, bytes, caller }, &[])??;
        Ok(Answered::Ino(to))
    }
}
