//! Passthrough: large files that are whole in the cache are read by the kernel from their
//! containers, past us. Which opens may be so is decided by [`Nodes`]; what is here keeps the
//! containers, and notices what a shared map writes into one.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use segue_core::host::cache::{Ask, FileData, LeftBehind, Nodes, Way};
use segue_core::host::call::OpenFile;
use segue_core::nouns::{Attr, ContainerId, Ino};
use segue_core::refusal::Refusal;
use segue_fuse::{Backing, BackingId, Notifier};

use crate::disk::files::{Container, Maps};
use crate::kernel::KernelView;
use crate::rank::{Rank, Ranked, lock};

/// Smaller files are read so fast through the kernel's pages that telling the kernel of their
/// containers would take longer (docs/decisions/0016-passthrough.md).
const SIZE_MIN: u64 = 1 << 20;
/// Files that are backed at a time, each with an open container: a part of the 1,024 that a
/// process may have open.
const BACKED_MAX: usize = 256;

/// What statfs(2) calls tmpfs and ramfs, which never write a page back: only the first that a map
/// writes to it would be noticed.
const MEMORY: [rustix::fs::FsWord; 2] = [0x0102_1994, 0x8584_58f6];
/// What statfs(2) calls overlayfs.
const OVERLAY: rustix::fs::FsWord = 0x794c_7630;

/// A container that the kernel reads.
#[derive(Debug)]
struct Behind {
    backing: Backing,
    container: Arc<Container>,
}

/// The files that are passed through. Lock order: `behind`, `mapped` or a container's `writing`,
/// the core, `nodes`.
#[derive(Debug)]
pub(crate) struct PassthroughState {
    /// The kernel takes backing files of this process.
    permitted: AtomicBool,
    pub(crate) nodes: Arc<Ranked<Nodes>>,
    /// By file: the kernel takes one container for all that are open at a time.
    behind: Ranked<BTreeMap<Ino, Behind>>,
    /// Containers that were opened for writing while they were backed: who has mapped one may
    /// write long after closing it, and after the file has got another. No more than may be backed.
    pub(crate) mapped: Mutex<BTreeMap<(Ino, ContainerId), Arc<Container>>>,
    /// Second names of the mapped ones.
    pub(crate) maps: Maps,
}

impl PassthroughState {
    /// Nothing is passed through.
    pub(crate) fn new(maps: Maps) -> PassthroughState {
        PassthroughState {
            permitted: AtomicBool::new(false),
            nodes: Arc::new(Ranked::new(Rank::Nodes, Nodes::new(BACKED_MAX))),
            behind: Ranked::new(Rank::Behind, BTreeMap::new()),
            mapped: Mutex::default(),
            maps,
        }
    }
}

/// How a file was opened.
pub(crate) struct Door {
    pub(crate) way: Way,
    pub(crate) backing: Option<BackingId>,
}

pub(crate) fn unwatch(ino: Ino, container: &Container) {
    if let Err(error) = container.unwatch() {
        tracing::warn!("inode {ino}: the second name of its container stays: {error}");
    }
}

fn stale(_: LeftBehind) -> Refusal {
    // The kernel looks the name up again, and finds the second inode.
    Refusal::Stale
}

impl KernelView {
    /// Finds out whether the kernel takes backing files, once.
    pub(crate) fn try_passthrough(&self, notifier: &Notifier) -> io::Result<()> {
        if MEMORY.contains(&rustix::fs::statfs(&self.disk.for_user.refused.directory)?.f_type) {
            return Err(io::Error::other("the cache directory is on a file system in memory"));
        }
        let any = File::open(self.disk.for_user.refused.directory.with_file_name("update.log"))?;
        notifier.open_backing(any.as_fd())?;
        self.through.permitted.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// True if the cache lies on a file system that lies on another.
    pub(crate) fn cache_is_stacked(&self) -> bool {
        let found = rustix::fs::statfs(&self.disk.for_user.refused.directory);
        found.is_ok_and(|found| found.f_type == OVERLAY)
    }

    /// What the kernel is to call `ino`.
    pub(crate) fn node(&self, ino: Ino) -> u64 {
        self.through.nodes.lock().node(ino)
    }

    /// True if the kernel means by `node` an inode that has another number by now.
    pub(crate) fn is_released(&self, node: u64) -> bool {
        self.through.nodes.lock().is_released(node)
    }

    /// An answer tells the kernel of `node`.
    pub(crate) fn tell_of(&self, node: u64) {
        self.through.nodes.lock().tell(node);
    }

    /// The kernel has forgotten that it was told of `node` so many `times`.
    pub(crate) fn forgotten(&self, node: u64, times: u64) {
        self.through.nodes.lock().forgotten(node, times);
    }

    /// True while the kernel reads the container of `ino`: it may be written and cut as the
    /// file is, and removed, but nothing else may be taken from it.
    pub(crate) fn is_backed(&self, ino: Ino) -> bool {
        self.through.nodes.lock().is_backed(ino)
    }

    /// Files that the kernel reads by itself now.
    pub(crate) fn backed_files(&self) -> usize {
        self.through.nodes.lock().backed()
    }

    /// Opens what the kernel calls `node`, whose data state is loaded.
    pub(crate) fn open_door(
        &self,
        node: u64,
        only_reads: bool,
        writes: bool,
    ) -> Result<Door, Refusal> {
        let ino = Nodes::ino(node);
        let mut behind = self.through.behind.lock();
        if only_reads
            && !behind.contains_key(&ino)
            && self.is_worth_it(ino)
            && let Some(door) = self.open_first(node, &mut behind)?
        {
            return Ok(door);
        }
        let ask = Ask { only_reads, whole: false };
        let way = self.through.nodes.lock().open(node, ask).map_err(stale)?;
        let known = behind.get(&ino).filter(|_| way != Way::Cached);
        if let (true, Some(known)) = (writes, known)
            && let Err(refusal) = self.watch_maps(ino, &known.container)
        {
            self.through.nodes.lock().closed(ino, way);
            return Err(refusal);
        }
        Ok(Door { way, backing: known.map(|known| known.backing.id()) })
    }

    fn is_worth_it(&self, ino: Ino) -> bool {
        self.through.permitted.load(Ordering::Relaxed)
            && self.host.lock().whole(ino).is_some_and(|size| size >= SIZE_MIN)
    }

    /// Opens a file that is not backed yet, as backed if that is possible.
    fn open_first(
        &self,
        node: u64,
        behind: &mut BTreeMap<Ino, Behind>,
    ) -> Result<Option<Door>, Refusal> {
        let ino = Nodes::ino(node);
        let container = self.disk.container(ino)?;
        // So nobody changes it meanwhile.
        let _writing = container.writing();
        let (way, size) = {
            let mut core = self.host.lock();
            let is_current = core.container(ino) == Some(container.id);
            let Some(size) = core.whole(ino).filter(|_| is_current) else { return Ok(None) };
            let ask = Ask { only_reads: true, whole: true };
            (self.through.nodes.lock().open(node, ask).map_err(stale)?, size)
        };
        if way == Way::Cached {
            return Ok(Some(Door { way, backing: None }));
        }
        let backed = container.fit(size).and_then(|()| {
            let notifier = self.cache.notifier().ok_or(io::ErrorKind::NotConnected)?;
            notifier.open_backing(container.file()?.as_fd())
        });
        match backed {
            Ok(backing) => {
                let id = backing.id();
                behind.insert(ino, Behind { backing, container: Arc::clone(&container) });
                Ok(Some(Door { way, backing: Some(id) }))
            }
            Err(error) => {
                self.through.nodes.lock().not_backed(ino);
                self.not_permitted(&error);
                Ok(Some(Door { way: Way::Cached, backing: None }))
            }
        }
    }

    /// Remembers what will not change: no privilege, no such call, a disk that is not taken.
    fn not_permitted(&self, error: &io::Error) {
        let is_passing = matches!(
            error.raw_os_error(),
            Some(libc::ENOMEM | libc::ENOSPC | libc::EMFILE | libc::ENFILE | libc::EINTR)
        );
        if !is_passing && self.through.permitted.swap(false, Ordering::Relaxed) {
            tracing::warn!("passthrough is off from now on: {error}");
        }
    }

    pub(crate) fn close_door(&self, ino: Ino, way: Way) {
        let mut behind = self.through.behind.lock();
        let is_next_backed = {
            let mut nodes = self.through.nodes.lock();
            if nodes.closed(ino, way) {
                behind.remove(&ino);
            }
            way == Way::Cached && nodes.may_be_backed(ino)
        };
        drop(behind);
        if is_next_backed && self.is_worth_it(ino) {
            self.drop_pages(ino);
        }
    }

    /// The next open is passed through, and would wait until the kernel has dropped its own pages.
    fn drop_pages(&self, ino: Ino) {
        let hidden = self.host.lock().files.get_mut(&ino).is_some_and(FileData::hidden_from_kernel);
        if hidden {
            self.cache.forget_data(ino);
        }
    }

    /// The container that an open file was left with when the file got another.
    pub(crate) fn left_with(&self, handle: &OpenFile) -> Option<Arc<Container>> {
        let is_left =
            handle.way == Way::Backed && self.through.nodes.lock().is_left_behind(handle.ino);
        if !is_left {
            return None;
        }
        self.through.behind.lock().get(&handle.ino).map(|behind| Arc::clone(&behind.container))
    }

    /// Attributes as those see them who have `node` open: a file that was left behind is as
    /// long as what they read.
    pub(crate) fn as_seen(&self, node: u64, attr: Attr) -> Attr {
        if self.node(attr.ino) == node {
            return attr;
        }
        let behind = self.through.behind.lock();
        let size = behind.get(&attr.ino).and_then(|behind| behind.container.len().ok());
        Attr { size: size.unwrap_or(attr.size), ..attr }
    }

    /// From now on a map may write into this container, of which nobody tells.
    fn watch_maps(&self, ino: Ino, container: &Arc<Container>) -> Result<(), Refusal> {
        let is_new = !container.is_watched();
        let watched = container.watch(self.through.maps.name((ino, container.id)));
        watched.map_err(|error| self.disk.disk_refusal("maps", &error))?;
        if let Some(file) = self.host.lock().files.get_mut(&ino) {
            file.mapped(true);
        }
        if is_new {
            // A process that dies leaves nothing that is taken for the server's.
            self.disk.note()?;
        }
        let mut mapped = lock(&self.through.mapped);
        mapped.insert((ino, container.id), Arc::clone(container));
        // Where too many are left, maps that outlive their descriptors are not watched further, and
        // their containers not used any more.
        if mapped.len() > BACKED_MAX {
            let mut core = self.host.lock();
            mapped.retain(|(ino, id), container| {
                let is_current = core.files.get(ino).is_some_and(|file| file.container() == *id);
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
