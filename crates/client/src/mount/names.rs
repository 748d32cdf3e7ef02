//! Looking: attributes, names, listings, links, space.

use std::sync::Arc;
use std::time::Duration;

use segue_core::host::cache::{Listed, Reading};
use segue_core::host::call::{Look, Seen};
use segue_core::nouns::{Attr, Dentry, Ino, Kind, Name, Time};
use segue_core::refusal::Refusal;
use segue_core::wire::Space;
use segue_rpc::Rpc;

use crate::disk::notes::known as noted;
use crate::metrics::Asked;
use crate::mount::{DirectoryHandle, Mount, idle};

impl Mount {
    /// Attributes of `ino`, asked for if what is known is stale.
    pub(crate) async fn getattr(&self, ino: Ino) -> Result<Attr, Refusal> {
        let (seen, is_cached) = self.shell.look(Look::Attr(ino)).await?;
        self.metrics.looked_up(Asked::Attributes, is_cached);
        match seen {
            Seen::Attr(attr) => Ok(self.shown(attr)),
            _ => Err(Refusal::Io),
        }
    }

    /// What `name` in `parent` is; `None`: surely nothing.
    pub(crate) async fn lookup(&self, parent: Ino, name: &Name) -> Result<Option<Attr>, Refusal> {
        let at = Dentry { parent, name: name.clone() };
        let (seen, is_cached) = self.shell.look(Look::Name(at)).await?;
        self.metrics.looked_up(Asked::Name, is_cached);
        match seen {
            Seen::Name(attr) => Ok(attr.map(|attr| self.shown(attr))),
            _ => Err(Refusal::Io),
        }
    }

    /// The directory that `directory` was last seen in; itself, if that is not known.
    pub(crate) fn parent(&self, directory: Ino) -> Ino {
        self.host.lock().tree().parent(directory).unwrap_or(directory)
    }

    /// Everything in `directory`, in byte order of names, for process `pid`; 0: for none.
    pub(crate) async fn list(&self, directory: Ino, pid: u32) -> Result<Vec<(Name, Ino)>, Refusal> {
        let look = Look::Names(directory);
        if let Some(Seen::Names(names)) = self.shell.glance(&look) {
            return Ok(names);
        }
        let rpc = Rpc::new(idle::class_of(pid));
        match idle::list(&rpc, self.shell.look_as(&rpc, look)).await? {
            (Seen::Names(names), _) => Ok(names),
            _ => Err(Refusal::Io),
        }
    }

    /// Target of symbolic link `ino`.
    pub(crate) async fn readlink(&self, ino: Ino) -> Result<Vec<u8>, Refusal> {
        match self.shell.look(Look::Target(ino)).await? {
            (Seen::Target(target), _) => Ok(target),
            _ => Err(Refusal::Io),
        }
    }

    /// What `ino` is, as far as is known.
    pub(crate) fn kind(&self, ino: Ino) -> Kind {
        self.host.lock().tree().peek(ino).map_or(Kind::File, |attr| attr.kind)
    }

    /// Attributes of what a listing of `directory` names, which is being read `since` then, as far
    /// as they need not be asked for.
    pub(crate) fn listed(
        &self,
        directory: Ino,
        names: &[Listed],
        since: Time,
    ) -> Vec<Option<(Attr, Duration)>> {
        let inodes = names.iter().map(|listed| listed.ino);
        let mut listed =
            self.host.lock().tree().listed(directory, inodes, [since, self.host.now()]);
        for (attr, _) in listed.iter_mut().flatten() {
            *attr = self.shown(*attr);
        }
        listed
    }

    /// True if the kernel was told all that `directory` names, and may use it still.
    pub(crate) fn is_told(&self, directory: Ino) -> bool {
        self.host.lock().tree().is_told(directory, self.host.now())
    }

    /// The kernel is told all that `directory` names.
    pub(crate) fn tell(&self, directory: Ino) {
        self.host.lock().tell_names(directory, self.host.now());
    }

    /// True if the kernel is to tell when it opens and closes directories: it can keep no listings,
    /// or nobody would tell when one changes.
    pub(crate) fn has_directory_handles(&self) -> bool {
        let is_limited = self.volume.options.promises.is_some();
        is_limited || !self.kernel.cache.can_be_told_for_long()
    }

    /// Opens `directory` for reading by process `pid`.
    pub(crate) fn open_directory(&self, directory: Ino, pid: u32) -> u64 {
        self.directories.lock().open(directory, pid)
    }

    /// The open directory with that number.
    pub(crate) fn directory(&self, handle: u64) -> Option<Arc<DirectoryHandle>> {
        self.directories.lock().get(handle)
    }

    /// What an open directory lists, whose first name has position `first`; `anew` when its reader
    /// starts over.
    pub(crate) async fn directory_names(
        &self,
        directory: &DirectoryHandle,
        first: u64,
        anew: bool,
    ) -> Result<Reading, Refusal> {
        match directory.reading() {
            Some(reading) if !anew => Ok(reading),
            _ => {
                let since = self.host.now();
                let found = self.list(directory.ino, directory.pid).await?;
                Ok(directory.read_anew(first, found, since))
            }
        }
    }

    /// What `directory` lists behind `position`, for process `pid`, which need not have opened it.
    pub(crate) async fn listing_behind(
        &self,
        directory: Ino,
        position: u64,
        pid: u32,
    ) -> Result<Reading, Refusal> {
        let goes_on = match position {
            0 => None,
            position => self.host.lock().listing_goes_on(directory, position),
        };
        if let Some(reading) = goes_on {
            return Ok(reading);
        }
        let since = self.host.now();
        let found = self.list(directory, pid).await?;
        let mut host = self.host.lock();
        Ok(match position {
            0 => host.begin_listing(directory, found, since),
            position => host.listed_again(directory, position, found, since),
        })
    }

    /// A process has read `directory` to its end at `position`. The kernel drops its copy of the
    /// listing, unless that is right.
    pub(crate) async fn listing_ends(&self, directory: Ino, position: u64) {
        let is_right = self.host.lock().end_listing(directory, position, self.host.now());
        if !is_right {
            self.kernel.cache.forget_listing_now(directory).await;
        }
    }

    /// The directory is closed.
    pub(crate) fn close_directory(&self, handle: u64) {
        self.directories.lock().remove(handle);
    }

    /// Space of what `ino` counts against. Without a connection, and over one that is silent, these
    /// are at once the last figures that the server told.
    pub(crate) async fn space(&self, ino: Ino) -> Result<Space, Refusal> {
        let quota = self.host.lock().tree().peek(ino).and_then(|attr| attr.quota);
        let known = {
            let known = self.last_space.lock();
            known.get(&quota).or_else(|| known.get(&None)).copied()
        };
        if self.remote.is_silent()
            && let Some(known) = known
        {
            return Ok(known);
        }
        let remote = match known {
            Some(_) => self.remote.to_refresh(),
            None => self.remote.clone(),
        };
        match (remote.space(quota.unwrap_or(Ino::ROOT)).await, known) {
            (Ok(space), _) => {
                self.note_space(quota, space);
                Ok(space)
            }
            (Err(Refusal::Unreachable), Some(known)) => Ok(known),
            (Err(refusal), _) => Err(refusal),
        }
    }

    /// Notes the space of `quota`, or of the volume, also for the next process.
    pub(super) fn note_space(&self, quota: Option<Ino>, space: Space) {
        if self.last_space.lock().insert(quota, space) != Some(space) {
            noted("index.db", self.disk.index.save_space(quota, &space));
        }
    }
}
