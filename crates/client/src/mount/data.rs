//! File data: open, read, write, truncate, close.

use std::sync::Arc;

use segue_core::host::cache::{Nodes, Way};
use segue_core::host::call::{By, Call, EditCall, NewHandle, OpenCall, OpenFile, OpenHandle, What};
use segue_core::nouns::{Attr, Caller, Ino};
use segue_core::refusal::Refusal;
use segue_fuse::BackingId;

use crate::metrics::Asked;
use crate::mount::{Mount, idle};
use crate::shell::Changed;

/// An opened file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    pub(crate) handle: NewHandle,
    pub(crate) writable: bool,
    /// What the kernel reads it from, unless it is cached.
    pub(crate) backing: Option<BackingId>,
}

/// The kernel's page.
const PAGE: u32 = 4096;

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

/// Bytes to read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) offset: u64,
    pub(crate) len: u32,
    /// Not for the page cache.
    pub(crate) is_direct: bool,
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
    /// Opens a file. An open that is stale the kernel begins anew with the name, once. The name may
    /// have moved again by then: the second open takes the inode as it is.
    pub(crate) async fn open(
        self: &Arc<Self>,
        node: u64,
        mode: OpenMode,
        caller: Caller,
    ) -> Result<Opened, Refusal> {
        let pid = caller.pid;
        let is_second = self.host.lock().ends_second_look(pid, self.host.now());
        let opened = self.open_once(node, mode, caller, is_second).await;
        if opened.as_ref().is_err_and(|refusal| *refusal == Refusal::Stale) {
            self.host.lock().looks_again(pid, self.host.now());
        }
        opened
    }

    async fn open_once(
        self: &Arc<Self>,
        node: u64,
        mode: OpenMode,
        caller: Caller,
        is_second: bool,
    ) -> Result<Opened, Refusal> {
        let ino = Nodes::ino(node);
        let OpenMode { writable, truncate: truncates, .. } = mode;
        let open = Call::Open(OpenCall { ino, writable, truncates, is_second });
        self.shell.call_fetching(idle::class_of(caller.pid), open).await?;
        self.kernel.cache.forgotten().await;
        let opened = self.add_handle(node, mode, caller.clone())?;
        if truncates {
            let emptied = self.resize(ino, By::Open(caller), 0, mode.kills_set_ids);
            emptied.inspect_err(|_| self.shell.close_handle(opened.handle.number))?;
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
        let only_reads = !writable && !truncate && !direct;
        let open = OpenHandle { node, caller, writable, synchronous, only_reads };
        let (handle, backing) = self.shell.open_handle(open)?;
        Ok(Opened { handle, writable, backing })
    }

    pub(crate) fn handle(&self, handle: u64) -> Result<OpenFile, Refusal> {
        self.host.lock().handles().file(handle).cloned()
    }

    /// Bytes of an open file for process `pid`; fewer than asked for only at its end.
    pub(crate) async fn read(
        self: &Arc<Self>,
        handle: u64,
        Part { offset, len, is_direct }: Part,
        pid: u32,
    ) -> Result<Vec<u8>, Refusal> {
        let OpenFile { ino, way, .. } = self.handle(handle)?;
        let wanted = offset..offset.saturating_add(u64::from(len));
        // Of several pages, which the kernel reads ahead. The error of a single one may be told to
        // the program.
        let are_pages = way == Way::Cached && !is_direct && len > PAGE;
        let (mut is_first, mut pages) = (true, None);
        loop {
            let here = self.host.lock().here(ino, &wanted, self.shell.fetcher.fetches.window())?;
            if are_pages {
                let asked = pages.take().unwrap_or_else(|| self.kernel.cache.asks(ino, here.size));
                if here.size < asked.believed.min(wanted.end) {
                    // What is missing would be filled up with zeros.
                    asked.refuse(here.size);
                    return Err(Refusal::Changed);
                }
                pages = Some(asked);
            }
            if let Some(ahead) = here.ahead {
                self.shell.fetcher.fetch_ahead(ino, ahead);
            }
            if std::mem::take(&mut is_first) {
                self.metrics.looked_up(Asked::Data, here.container.is_some());
            }
            match here.container {
                Some(container) => {
                    let end = wanted.end.min(here.size);
                    let len = usize::try_from(end.saturating_sub(offset)).unwrap_or(0);
                    let bytes = self.disk.open_container(ino, container)?.read(offset, len);
                    // One that was given up meanwhile was perhaps removed, and read as zeros.
                    if self.host.lock().container(ino) == Some(container) {
                        return bytes.map_err(|error| self.disk.disk_refusal("containers", &error));
                    }
                }
                None => {
                    let class = idle::class_of(pid);
                    match self.shell.fetch_at(class, ino, wanted.clone()).await {
                        Err(Refusal::NoSpace) => {
                            return self.shell.read_uncached(ino, wanted, class).await;
                        }
                        fetched => fetched?,
                    }
                }
            }
        }
    }

    /// Writes into the open file that the kernel calls `node`.
    pub(crate) fn write(
        self: &Arc<Self>,
        (node, handle): (u64, u64),
        Written { offset, append, bytes, kills_set_ids }: Written<'_>,
    ) -> Result<Changed, Refusal> {
        let what = What::Write { offset, len: bytes.len() as u64, append };
        let (ino, by) = (Nodes::ino(node), By::Handle(handle));
        self.shell.begin(Call::Edit(EditCall { ino, by, what, kills_set_ids }), bytes)
    }

    /// True if the size of `ino` is not known, because the server has refused data of the file. A
    /// change of its data fails until the server was asked for the size.
    pub(crate) fn is_size_lost(&self, ino: Ino) -> bool {
        self.host.lock().tree().is_size_lost(ino)
    }

    /// Changes the size of a file.
    pub(crate) fn resize(
        self: &Arc<Self>,
        ino: Ino,
        by: By,
        size: u64,
        kills_set_ids: bool,
    ) -> Result<Changed, Refusal> {
        let what = What::Resize { size };
        self.shell.begin(Call::Edit(EditCall { ino, by, what, kills_set_ids }), &[])
    }

    /// Changes the size of a file that may not be open.
    pub(crate) async fn truncate(
        self: &Arc<Self>,
        ino: Ino,
        size: u64,
        SizeChange { open, kills_set_ids }: SizeChange,
        caller: Caller,
    ) -> Result<Attr, Refusal> {
        self.getattr(ino).await?;
        self.disk.load(ino)?;
        let by = if open { By::Inode(caller) } else { By::Name(caller) };
        let resized = self.resize(ino, by, size, kills_set_ids)?;
        let waits = resized.rest.is_some();
        self.shell.waited_for(resized).await?;
        if waits {
            self.shell.visible().await?;
        }
        self.getattr(ino).await
    }

    /// close(2): under `close` and `sync` it waits until the server has the file, and all other
    /// hosts have heard of it.
    pub(crate) async fn flush(&self, number: u64) -> Result<(), Refusal> {
        self.sync(Call::Flush(number)).await
    }

    /// fsync(2).
    pub(crate) async fn fsync(&self, number: u64) -> Result<(), Refusal> {
        self.sync(Call::Sync(number)).await
    }

    /// fsync(2) of a directory: its names are as durable afterwards as data are by fsync of a file.
    pub(crate) async fn fsync_directory(&self, ino: Ino, session: u32) -> Result<(), Refusal> {
        self.sync(Call::SyncDirectory { ino, session }).await
    }

    /// syncfs(2) by a process session.
    pub(crate) async fn sync_all(&self, session: u32) -> Result<(), Refusal> {
        self.sync(Call::SyncAll { session }).await
    }

    /// Carries out a sync. If it waited for the server, other hosts have heard of it, too.
    async fn sync(&self, call: Call) -> Result<(), Refusal> {
        let synced = self.shell.call_asking(call).await?;
        match synced.answer.is_settled {
            true => self.shell.visible().await,
            false => Ok(()),
        }
    }
}
