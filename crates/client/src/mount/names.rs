//! Looking: attributes, names, listings, links, space.

use std::sync::Arc;
use std::time::Duration;

use segue_core::host::cache::Nodes;
use segue_core::host::call::{Look, Seen};
use segue_core::nouns::{Attr, Dentry, Ino, Kind, Name, Time};
use segue_core::refusal::Refusal;
use segue_core::wire::Space;
use segue_rpc::Rpc;

use crate::disk::notes::known as noted;
use crate::metrics::Asked;
use crate::mount::directories::ListedName;
use crate::mount::{DirectoryHandle, Keeping, Mount, Reading, idle};

/// What is not promised may be used for no longer than this.
const TOLD: Duration = Duration::from_secs(1);
/// The kernel keeps listings of no more names: each open compares them, and one that takes more
/// than one answer is not told whole.
const KEPT_MAX: usize = 1_000;

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
        names: &[ListedName],
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

    /// Opens what the kernel calls `node`, a directory, for reading by process `pid`. One that was
    /// left behind has a listing of its own in the kernel, which nobody compares.
    pub(crate) fn open_directory(&self, node: u64, pid: u32) -> (u64, Keeping) {
        let ino = Nodes::ino(node);
        let is_current = self.kernel.node(ino) == node;
        let listed = is_current.then(|| self.listed_for_long(ino)).flatten();
        let is_intact = self.kernel.cache.may_keep_listing(ino);
        let kernel = [listed.is_some() && self.is_told(ino), is_intact];
        let opened = self.directories.lock().open((ino, pid), listed.as_ref(), kernel);
        self.leave_listings();
        if opened.1 == Keeping::Fills {
            self.kernel.cache.keeps_listing(ino);
        }
        opened
    }

    /// The directory above `directory`, and all its names, if a promise holds for them.
    fn listed_for_long(&self, directory: Ino) -> Option<(Ino, Vec<(Name, Ino)>)> {
        let is_promised = {
            let (host, now) = (self.host.lock(), self.host.now());
            host.tree().may_be_told(now)
                && host.tree().remaining(directory, now) > TOLD
                && host.tree().is_listed_within(directory, KEPT_MAX)
        };
        if !is_promised || !self.kernel.cache.can_be_told_for_long() {
            return None;
        }
        match self.shell.glance(&Look::Names(directory)) {
            Some(Seen::Names(names)) => Some((self.parent(directory), names)),
            _ => None,
        }
    }

    fn leave_listings(&self) {
        let left = self.directories.lock().take_left();
        left.into_iter().for_each(|directory| self.kernel.cache.leaves_listing(directory));
    }

    /// An open directory was read to its end.
    pub(crate) fn directory_ended(&self, directory: &DirectoryHandle) {
        let is_intact = self.kernel.cache.may_keep_listing(directory.ino);
        let is_right = self.directories.lock().note_end(directory, is_intact);
        if !is_right {
            self.kernel.cache.forget_data(directory.ino);
        }
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
        let read = directory.names.lock().clone();
        match read {
            Some(reading) if !anew => Ok(reading),
            read => {
                let since = self.host.now();
                let found = self.list(directory.ino, directory.pid).await?;
                let read = read.unwrap_or_else(|| Reading::new(first));
                let reading = read.read_anew(found, since);
                *directory.names.lock() = Some(reading.clone());
                let parent = self.parent(directory.ino);
                self.directories.lock().note_read(directory, parent, &reading);
                Ok(reading)
            }
        }
    }

    /// The directory is closed.
    pub(crate) fn close_directory(&self, handle: u64) {
        self.directories.lock().remove(handle);
        self.leave_listings();
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
