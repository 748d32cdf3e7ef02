//! Passthrough: large files that are whole in the cache are read by the kernel from their
//! containers, past us. Which opens may be so is decided by [`Nodes`]; what is here keeps the
//! containers, and notices what a shared map writes into one.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use segue_core::host::cache::{BACKED_MAX, Nodes, Way};
use segue_core::host::call::{Backing, OpenFile};
use segue_core::nouns::{Attr, ContainerId, Ino};
use segue_core::refusal::Refusal;
use segue_fuse::Notifier;

use crate::disk::files::{Container, Maps};
use crate::kernel::KernelView;
use crate::rank::{Rank, Ranked};

/// What statfs(2) calls tmpfs and ramfs, which never write a page back: only the first that a map
/// writes to it would be noticed.
const MEMORY: [rustix::fs::FsWord; 2] = [0x0102_1994, 0x8584_58f6];
/// What statfs(2) calls overlayfs.
const OVERLAY: rustix::fs::FsWord = 0x794c_7630;

/// A container that the kernel reads.
#[derive(Debug)]
pub(crate) struct Behind {
    pub(crate) backing: segue_fuse::Backing,
    container: Arc<Container>,
}

/// By file: the kernel takes one container for all that are open at a time.
pub(crate) type AllBehind = BTreeMap<Ino, Behind>;

/// The files that are passed through. Lock order: `behind`, `mapped` or a container's `writing`,
/// the core.
#[derive(Debug)]
pub(crate) struct PassthroughState {
    /// The kernel may know some inode by a number that is another one's now.
    has_released: AtomicBool,
    pub(crate) behind: Ranked<AllBehind>,
    /// Containers that were opened for writing while they were backed: who has mapped one may
    /// write long after closing it, and after the file has got another. No more than may be backed.
    pub(crate) mapped: Ranked<BTreeMap<(Ino, ContainerId), Arc<Container>>>,
    /// Second names of the mapped ones.
    pub(crate) maps: Maps,
}

impl PassthroughState {
    /// Nothing is passed through.
    pub(crate) fn new(maps: Maps) -> PassthroughState {
        PassthroughState {
            has_released: AtomicBool::new(false),
            behind: Ranked::new(Rank::Behind, BTreeMap::new()),
            mapped: Ranked::new(Rank::Mapped, BTreeMap::new()),
            maps,
        }
    }
}

pub(crate) fn unwatch(ino: Ino, container: &Container) {
    if let Err(error) = container.unwatch() {
        tracing::warn!("inode {ino}: the second name of its container stays: {error}");
    }
}

impl KernelView {
    /// Finds out whether the kernel takes backing files, once.
    pub(crate) fn try_passthrough(&self, notifier: &Notifier) -> io::Result<()> {
        if MEMORY.contains(&rustix::fs::statfs(&self.disk.for_user.refused.directory)?.f_type) {
            return Err(io::Error::other("the cache directory is on a file system in memory"));
        }
        let any = File::open(self.disk.for_user.refused.directory.with_file_name("update.log"))?;
        notifier.open_backing(any.as_fd())?;
        self.host.lock().passthrough(true);
        Ok(())
    }

    /// True if the cache lies on a file system that lies on another.
    pub(crate) fn cache_is_stacked(&self) -> bool {
        let found = rustix::fs::statfs(&self.disk.for_user.refused.directory);
        found.is_ok_and(|found| found.f_type == OVERLAY)
    }

    /// What the kernel is to call `ino`.
    pub(crate) fn node(&self, ino: Ino) -> u64 {
        self.host.lock().nodes().node(ino)
    }

    /// True if the kernel means by `node` an inode that has another number by now.
    pub(crate) fn is_released(&self, node: u64) -> bool {
        self.through.has_released.load(Ordering::Relaxed)
            && self.host.lock().nodes().is_released(node)
    }

    /// Each request asks for this, and hardly ever is there one. While the host is locked, so no
    /// request comes in between.
    pub(crate) fn note_released(&self, nodes: &Nodes) {
        self.through.has_released.store(nodes.has_released(), Ordering::Relaxed);
    }

    /// An answer tells the kernel of `node`.
    pub(crate) fn tell_of(&self, node: u64) {
        self.host.lock().tell(node);
    }

    /// The kernel has forgotten that it was told of `node` so many `times`.
    pub(crate) fn forgotten(&self, node: u64, times: u64) {
        self.host.lock().kernel_forgot(node, times);
    }

    /// Files that the kernel reads by itself now.
    pub(crate) fn backed_files(&self) -> usize {
        self.host.lock().nodes().backed_files().count()
    }

    /// Has the kernel read a container by itself.
    pub(crate) fn back(&self, backing: Backing) -> Result<Behind, Refusal> {
        let container = self.disk.open_container(backing.ino, backing.container)?;
        let backed = container.fit(backing.size).and_then(|()| {
            let notifier = self.cache.notifier().ok_or(io::ErrorKind::NotConnected)?;
            notifier.open_backing(container.file()?.as_fd())
        });
        match backed {
            Ok(backing) => Ok(Behind { backing, container }),
            Err(error) => {
                self.not_permitted(&error);
                Err(Refusal::Io)
            }
        }
    }

    /// Remembers what will not change: no privilege, no such call, a disk that is not taken.
    fn not_permitted(&self, error: &io::Error) {
        let is_passing = matches!(
            error.raw_os_error(),
            Some(libc::ENOMEM | libc::ENOSPC | libc::EMFILE | libc::ENFILE | libc::EINTR)
        );
        if !is_passing && self.host.lock().passthrough(false) {
            tracing::warn!("passthrough is off from now on: {error}");
        }
    }

    /// The container that an open file was left with when the file got another.
    pub(crate) fn left_with(&self, handle: &OpenFile) -> Option<Arc<Container>> {
        let is_left =
            handle.way == Way::Backed && self.host.lock().nodes().is_left_behind(handle.ino);
        if !is_left {
            return None;
        }
        self.through.behind.lock().get(&handle.ino).map(|behind| Arc::clone(&behind.container))
    }

    /// Attributes as those see them who have `node` open, and how long the kernel may keep them: a
    /// file that was left behind is as long as what they read.
    pub(crate) fn as_seen(&self, node: u64, attr: Attr) -> (Attr, Duration) {
        let (named, lifetime) = self.numbered(attr.ino);
        if named == node {
            return (attr, lifetime);
        }
        let behind = self.through.behind.lock();
        let size = behind.get(&attr.ino).and_then(|behind| behind.container.len().ok());
        (Attr { size: size.unwrap_or(attr.size), ..attr }, lifetime)
    }

    /// From now on a map may write into this container, of which nobody tells.
    pub(crate) fn watch_maps(&self, ino: Ino, id: ContainerId) -> Result<(), Refusal> {
        let container = self.disk.open_container(ino, id)?;
        let is_new = !container.is_watched();
        let watched = container.watch(self.through.maps.name((ino, id)));
        watched.map_err(|error| self.disk.disk_refusal("maps", &error))?;
        self.host.lock().mapped(ino);
        if is_new {
            // A process that dies leaves nothing that is taken for the server's.
            self.disk.note()?;
        }
        let mut mapped = self.through.mapped.lock();
        mapped.insert((ino, id), container);
        // Where too many are left, maps that outlive their descriptors are not watched further, and
        // their containers not used any more.
        if mapped.len() > BACKED_MAX {
            let mut core = self.host.lock();
            mapped.retain(|(ino, id), container| {
                let is_current = core.data_of(*ino).is_some_and(|file| file.container() == *id);
                let stays = is_current && !core.let_go_of_data(*ino);
                if !stays {
                    unwatch(*ino, container);
                }
                stays
            });
        }
        Ok(())
    }
}
