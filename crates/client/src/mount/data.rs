//! File data: open, read, write, truncate, close.

use std::sync::Arc;

use segue_core::host::cache::{FileData, Nodes, Way};
use segue_core::host::call::{By, Call, EditCall, Followed, OpenCall, OpenFile, What};
use segue_core::nouns::{Attr, Caller, ContainerId, Ino};
use segue_core::refusal::Refusal;
use segue_fuse::BackingId;

use super::metrics::Asked;
use super::notes::known;
use super::{Changed, Mount, Shared, idle};
use crate::options::FsyncLevel;
use crate::state::Container;

/// An opened file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    pub(crate) handle: u64,
    /// The kernel's pages of it are still right.
    pub(crate) keep_pages: bool,
    pub(crate) writable: bool,
    pub(crate) way: Way,
    /// What the kernel reads it from, unless it is cached.
    pub(crate) backing: Option<BackingId>,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenMode {
    pub(crate) writable: bool,
    pub(crate) truncate: bool,
    pub(crate) synchronous: bool,
    /// Past the page cache.
    pub(crate) direct: bool,
    /// The opener may not keep set-id bits of what it truncates.
    pub(crate) kills_set_ids: bool,
}

/// How a size is changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SizeChange {
    /// By an open file, whose close is to come.
    pub(crate) open: bool,
    /// By somebody who may not keep set-id bits.
    pub(crate) kills_set_ids: bool,
}

/// Bytes to write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written<'a> {
    pub(crate) offset: u64,
    /// At the end instead: the kernel's offset is the size that it last heard of, and another
    /// host may have appended since.
    pub(crate) append: bool,
    pub(crate) bytes: &'a [u8],
    /// The writer may not keep set-id bits.
    pub(crate) kills_set_ids: bool,
}

impl Mount {
    /// Forgets what is here, and in the kernel, of data that moved on the server.
    pub(super) fn follow_moved(&self) {
        // What a map wrote before is this host's change.
        self.note_maps(None).ok();
        let mut renamed = Vec::new();
        let mut core = self.core();
        for Followed { ino, is_new, shows } in core.follow_moved() {
            if is_new && self.through.nodes.lock().moved(ino) {
                renamed.push(ino);
            }
            if shows {
                self.kernel.forget_data(ino);
            }
        }
        drop(core);
        renamed.into_iter().for_each(|ino| self.forget_names_of(ino));
    }

    /// The container of `ino` as it is now.
    pub(super) fn container(&self, ino: Ino) -> Result<Arc<Container>, Refusal> {
        let id = self.core().container(ino).ok_or(Refusal::Stale)?;
        self.open_container(ino, id)
    }

    pub(super) fn open_container(
        &self,
        ino: Ino,
        id: ContainerId,
    ) -> Result<Arc<Container>, Refusal> {
        self.containers.open((ino, id)).map_err(|error| self.disk_refusal("containers", &error))
    }

    /// Makes the data state of `ino`, from the index if an earlier life left something.
    pub(super) fn load(&self, ino: Ino) -> Result<(), Refusal> {
        if self.core().files.contains_key(&ino) {
            return Ok(());
        }
        let _loading = self.space.loading.lock();
        let noted = known("index.db", self.index.file(ino)).flatten();
        let noted = noted.filter(|note| self.containers.exists((ino, note.container)));
        match self.core().load(ino, noted) {
            true => Ok(()),
            false => Err(Refusal::Stale),
        }
    }

    /// Opens a file. An open that is stale the kernel begins anew with the name, once. The name may
    /// have moved again by then: the second open takes the inode as it is.
    pub(crate) async fn open(
        self: &Shared,
        node: u64,
        mode: OpenMode,
        caller: Caller,
    ) -> Result<Opened, Refusal> {
        let pid = caller.pid;
        let is_second = self.core().handles.end_second_look(pid, self.now());
        let opened = self.open_once(node, mode, caller, is_second).await;
        if opened.as_ref().is_err_and(|refusal| *refusal == Refusal::Stale) {
            self.core().handles.looks_again(pid, self.now());
        }
        opened
    }

    async fn open_once(
        self: &Shared,
        node: u64,
        mode: OpenMode,
        caller: Caller,
        is_second: bool,
    ) -> Result<Opened, Refusal> {
        let ino = Nodes::ino(node);
        let OpenMode { writable, truncate: truncates, .. } = mode;
        let open = Call::Open(OpenCall { ino, writable, truncates, is_second });
        self.call_fetching(idle::class_of(caller.pid), open).await?;
        self.kernel.forgotten().await;
        if writable && self.core().is_closed_for_good(ino) {
            // What is written would be nobody's. The kernel looks the name up again.
            return Err(Refusal::Stale);
        }
        let opened = self.add_handle(node, mode, caller.clone())?;
        if truncates {
            let emptied = self.resize(ino, By::Open(caller), 0, mode.kills_set_ids);
            emptied.inspect_err(|_| self.close(opened.handle))?;
        }
        Ok(opened)
    }

    /// A handle of what the kernel calls `node`.
    pub(crate) fn add_handle(
        &self,
        node: u64,
        mode: OpenMode,
        caller: Caller,
    ) -> Result<Opened, Refusal> {
        let OpenMode { writable, synchronous, truncate, direct, .. } = mode;
        let ino = Nodes::ino(node);
        // First: what is open stays here, in memory and on the disk.
        self.core().opened(ino);
        let only_reads = !writable && !truncate && !direct;
        let door = self.load(ino).and_then(|()| self.open_door(node, only_reads, writable));
        let door = door.inspect_err(|_| {
            self.core().closed(ino);
        })?;
        let way = door.way;
        let keep_pages = way == Way::Cached
            && self.core().files.get_mut(&ino).is_some_and(FileData::shown_to_kernel);
        let mut file = OpenFile::new(ino, way, caller);
        (file.writable, file.synchronous) = (writable, synchronous);
        let handle = self.core().handles.add(file);
        Ok(Opened { handle, keep_pages, writable, way, backing: door.backing })
    }

    pub(super) fn handle(&self, handle: u64) -> Result<OpenFile, Refusal> {
        self.core().handles.file(handle).cloned()
    }

    /// Bytes of an open file for process `pid`; fewer than asked for only at its end.
    pub(crate) async fn read(
        self: &Shared,
        handle: u64,
        offset: u64,
        len: u32,
        pid: u32,
    ) -> Result<Vec<u8>, Refusal> {
        let ino = self.handle(handle)?.ino;
        let wanted = offset..offset.saturating_add(u64::from(len));
        let mut is_first = true;
        loop {
            let here = self.core().here(ino, &wanted, self.fetches.window())?;
            if let Some(ahead) = here.ahead {
                self.fetch_ahead(ino, ahead);
            }
            if std::mem::take(&mut is_first) {
                self.metrics.looked_up(Asked::Data, here.container.is_some());
            }
            match here.container {
                Some(container) => {
                    let end = wanted.end.min(here.size);
                    let len = usize::try_from(end.saturating_sub(offset)).unwrap_or(0);
                    let bytes = self.open_container(ino, container)?.read(offset, len);
                    // One that was given up meanwhile was perhaps removed, and read as zeros.
                    if self.core().container(ino) == Some(container) {
                        return bytes.map_err(|error| self.disk_refusal("containers", &error));
                    }
                }
                None => {
                    let class = idle::class_of(pid);
                    match self.fetch_at(class, ino, wanted.clone()).await {
                        Err(Refusal::NoSpace) => {
                            return self.read_uncached(ino, wanted, class).await;
                        }
                        fetched => fetched?,
                    }
                }
            }
        }
    }

    /// Writes into the open file that the kernel calls `node`.
    pub(crate) fn write(
        self: &Shared,
        (node, handle): (u64, u64),
        Written { offset, append, bytes, kills_set_ids }: Written<'_>,
    ) -> Result<Changed, Refusal> {
        let what = What::Write { offset, len: bytes.len() as u64, append };
        let (ino, by) = (Nodes::ino(node), By::Handle(handle));
        self.begin(Call::Edit(EditCall { ino, by, what, kills_set_ids }), bytes)
    }

    /// Changes the size of a file.
    pub(super) fn resize(
        self: &Shared,
        ino: Ino,
        by: By,
        size: u64,
        kills_set_ids: bool,
    ) -> Result<Changed, Refusal> {
        let what = What::Resize { size, is_backed: false };
        self.begin(Call::Edit(EditCall { ino, by, what, kills_set_ids }), &[])
    }

    /// Changes the size of a file that may not be open.
    pub(crate) async fn truncate(
        self: &Shared,
        ino: Ino,
        size: u64,
        SizeChange { open, kills_set_ids }: SizeChange,
        caller: Caller,
    ) -> Result<Attr, Refusal> {
        self.getattr(ino).await?;
        self.load(ino)?;
        let by = if open { By::Inode(caller) } else { By::Name(caller) };
        let resized = self.resize(ino, by, size, kills_set_ids)?;
        let waits = resized.rest.is_some();
        self.waited_for(resized).await?;
        if waits {
            self.visible().await?;
        }
        self.getattr(ino).await
    }

    /// Makes what was written to `ino` a change for the server.
    pub(super) fn seal(&self, ino: Ino, caller: Caller) -> Result<(), Refusal> {
        self.call(Call::Seal { ino, caller, waits: false }).map(drop)
    }

    /// close(2): under `close` and `sync` it waits until the server has the file, and all other
    /// hosts have heard of it.
    pub(crate) async fn flush(self: &Shared, number: u64) -> Result<(), Refusal> {
        let handle = self.handle(number)?;
        if !handle.writable {
            return Ok(());
        }
        self.note_writes(&handle)?;
        let caller = handle.caller.clone();
        if !self.lm(handle.ino).closes() {
            // A shell that redirects into a file closes it once before anything is written: what is
            // written anew is one change, and sealed when the last one closes it.
            if !self.core().is_rewritten(handle.ino, self.now()) {
                self.seal_at_close(handle.ino, caller)?;
            }
            return self.handle(number)?.refusal();
        }
        let sealed = self.begin(Call::Seal { ino: handle.ino, caller, waits: true }, &[])?;
        self.waited_for(sealed).await?;
        self.visible().await?;
        self.handle(number)?.refusal()
    }

    /// fsync(2).
    pub(crate) async fn fsync(self: &Shared, number: u64) -> Result<(), Refusal> {
        let handle = self.handle(number)?;
        self.note_writes(&handle)?;
        let server = self.options.fsync == FsyncLevel::Server;
        let (ino, caller) = (handle.ino, handle.caller.clone());
        let sealed = match self.options.read_only {
            true => Changed::default(),
            false => self.begin(Call::Seal { ino, caller, waits: server }, &[])?,
        };
        self.core().cover(handle.caller.session, ino);
        let synced = self.synced(sealed).await;
        // Of a refusal it is told once, and not by what follows. What a map wrote in vain this host
        // knows by itself.
        let mut core = self.core();
        let refusal = core.handles.file(number).map_or(Ok(()), OpenFile::refusal);
        let refused = match server || refusal == Err(Refusal::Io) {
            true => core.handles.take_refusal(number),
            false => Ok(()),
        };
        synced.and(refused)
    }

    /// fsync(2) of a directory: its names are as durable afterwards as data are by fsync of a file.
    pub(crate) async fn fsync_directory(
        self: &Shared,
        handle: u64,
        session: u32,
    ) -> Result<(), Refusal> {
        let ino = self.directory(handle).ok_or(Refusal::Invalid)?.ino;
        let last = {
            let mut core = self.core();
            core.cover(session, ino);
            let server = self.options.fsync == FsyncLevel::Server;
            if server { core.queue.last_of(ino) } else { Vec::new() }
        };
        let committing = self.begin(Call::Committed(last), &[])?;
        self.synced(committing).await
    }

    /// syncfs(2) by a process session.
    pub(crate) async fn sync_all(self: &Shared, session: u32) -> Result<(), Refusal> {
        let noted = self.note_maps(None);
        self.seal_all();
        self.core().cover_all(session);
        self.sync_disk().await.and(noted)
    }

    /// What was changed so far is durable here, and on the server as far as that is waited for.
    async fn synced(self: &Shared, changed: Changed) -> Result<(), Refusal> {
        self.sync_disk().await?;
        self.waited_for(changed).await?;
        match self.options.fsync {
            FsyncLevel::Server => self.visible().await,
            FsyncLevel::Local => Ok(()),
        }
    }

    /// What maps of this handle may have written is logged.
    fn note_writes(&self, handle: &OpenFile) -> Result<(), Refusal> {
        match handle.writable && handle.way != Way::Cached {
            true => self.note_maps(Some(handle.ino)),
            false => Ok(()),
        }
    }

    /// The last reference to a handle is gone.
    pub(crate) fn close(&self, handle: u64) {
        let removed = self.core().handles.remove(handle);
        let Some(handle) = removed else { return };
        let ino = handle.ino;
        // It was told to the log of this program; nobody listens any more.
        self.note_writes(&handle).ok();
        self.close_door(ino, handle.way);
        if let Err(refusal) = self.seal_at_close(ino, handle.caller.clone()) {
            tracing::error!("inode {ino}: the last writes are not queued yet: {refusal}");
        }
        let is_to_go = {
            let mut core = self.core();
            core.closed(ino) && core.is_to_release(ino)
        };
        if is_to_go && let Err(refusal) = self.release_orphan(ino, handle.caller.clone()) {
            tracing::debug!("inode {ino}: the server has to release it by itself: {refusal}");
        }
    }
}
