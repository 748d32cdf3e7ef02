//! A handle of a file, from its open to its close.
//!
//! ```text
//!   OpenHandle ─▶ Load ─▶ the kernel reads the container (Back), or asks this host
//!                          └▶ a map may write to that (WatchMaps)
//!   Close ─▶ LogMaps ─▶ SealAtClose ─▶ Release of a file without a name
//! ```

use super::settle::release;
use super::{Answer, Call, Next, OpenFile, Running, Step};
use crate::host::Host;
use crate::host::action::{Action, CallId, Now};
use crate::host::cache::{Ask, FileData, Nodes, Way};
use crate::nouns::{Caller, ContainerId, Ino};
use crate::refusal::Refusal;

/// How a handle is opened, of a file that [may be opened](super::OpenCall).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenHandle {
    /// The kernel's number of the file.
    pub node: u64,
    /// The process that opens it.
    pub caller: Caller,
    /// To be written.
    pub writable: bool,
    /// Each write waits.
    pub synchronous: bool,
    /// It only reads, and through the page cache.
    pub only_reads: bool,
}

/// An open handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewHandle {
    /// Its number.
    pub number: u64,
    /// How the kernel reads the file.
    pub way: Way,
    /// The pages that the kernel has of the file are still right.
    pub keeps_pages: bool,
}

/// A container that the kernel is to read by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backing {
    /// The file.
    pub ino: Ino,
    /// The container.
    pub container: ContainerId,
    /// The size of the file, up to which the kernel may read.
    pub size: u64,
}

/// How far a handle came.
#[derive(Debug, Default)]
pub(super) struct Handling {
    /// The file counts as open.
    is_counted: bool,
    way: Option<Way>,
    /// A map may write to the container, and the shell knows that.
    is_watched: bool,
    /// The file that is being closed.
    closing: Option<OpenFile>,
    is_sealed: bool,
    /// Why its data are not sealed.
    failed: Option<Refusal>,
}

impl Host {
    pub(super) fn attempt_open_handle(
        &mut self,
        id: CallId,
        call: &mut Running,
    ) -> Result<Next, Refusal> {
        let Call::OpenHandle(open) = &call.call else { return Err(Refusal::Invalid) };
        let open = open.clone();
        let ino = Nodes::ino(open.node);
        // First: what is open stays here, in memory and on the disk.
        if !call.so_far.handling.is_counted {
            if open.writable && self.is_closed_for_good(ino) {
                // Its writes would reach no file. The kernel looks the name up again.
                return Err(Refusal::Stale);
            }
            self.opened(ino);
            call.so_far.handling.is_counted = true;
        }
        if self.loads(id, call, ino) {
            return Ok(Next::Step);
        }
        let way = match call.so_far.handling.way {
            Some(way) => way,
            None => {
                let way = self.open_node(&open)?;
                call.so_far.handling.way = Some(way);
                if let Some(backing) = self.first_backing(ino, way) {
                    call.step = Some(Step::Back);
                    self.act(Action::Back(id, backing));
                    return Ok(Next::Step);
                }
                way
            }
        };
        if open.writable && way != Way::Cached && !call.so_far.handling.is_watched {
            let container = self.container(ino).ok_or(Refusal::Stale)?;
            call.step = Some(Step::WatchMaps);
            self.act(Action::WatchMaps(id, ino, container));
            return Ok(Next::Step);
        }
        // Its end is a close from here on.
        call.so_far.handling = Handling::default();
        let is_shown = |file: &mut FileData| file.shown_to_kernel();
        let keeps_pages = way == Way::Cached && self.files.get_mut(&ino).is_some_and(is_shown);
        let mut file = OpenFile::new(ino, way, open.caller);
        (file.writable, file.synchronous) = (open.writable, open.synchronous);
        let number = self.handles.add(file);
        let handle = Some(NewHandle { number, way, keeps_pages });
        Ok(Next::Reply(Answer { ino: Some(ino), handle, ..Answer::default() }))
    }

    /// Decides how a descriptor reads its file. If the file has another number for the kernel by
    /// now, the kernel looks the name up again.
    fn open_node(&mut self, open: &OpenHandle) -> Result<Way, Refusal> {
        let ino = Nodes::ino(open.node);
        let whole = open.only_reads && self.settings.backs && self.is_worth_backing(ino);
        let ask = Ask { only_reads: open.only_reads, whole };
        self.nodes.open(open.node, ask).map_err(|_| Refusal::Stale)
    }

    /// The container that the kernel reads from now on, if no handle of the file was open.
    fn first_backing(&mut self, ino: Ino, way: Way) -> Option<Backing> {
        let is_first = way == Way::Backed && self.nodes.is_first(ino);
        let (container, size) = (self.container(ino)?, self.tree.peek(ino)?.size);
        is_first.then_some(Backing { ino, container, size })
    }

    /// The kernel reads the container, or does not take it.
    pub(super) fn backed(&mut self, call: &mut Running, is_taken: bool) {
        if let (false, Call::OpenHandle(open)) = (is_taken, &call.call) {
            self.nodes.not_backed(Nodes::ino(open.node));
            call.so_far.handling.way = Some(Way::Cached);
        }
    }

    /// The shell watches the writes of maps.
    pub(super) fn watched(call: &mut Running) {
        call.so_far.handling.is_watched = true;
    }

    /// An open that did not come to its end counts no more.
    pub(super) fn end_handling(&mut self, call: &Running) {
        let Call::OpenHandle(open) = &call.call else { return };
        let ino = Nodes::ino(open.node);
        if let Some(way) = call.so_far.handling.way {
            self.close_node(ino, way);
        }
        if call.so_far.handling.is_counted {
            self.closed(ino);
        }
    }

    /// A descriptor is closed. If the next one may be the first that is passed through, the kernel
    /// drops its own pages now: that open would wait for it.
    fn close_node(&mut self, ino: Ino, way: Way) {
        if self.nodes.closed(ino, way) {
            self.act(Action::EndBacking(ino));
        }
        let is_next = way == Way::Cached && self.settings.backs && self.nodes.may_be_backed(ino);
        if is_next
            && self.is_worth_backing(ino)
            && self.files.get_mut(&ino).is_some_and(FileData::hidden_from_kernel)
        {
            self.act(Action::ForgetData(ino));
        }
    }

    pub(super) fn attempt_close(
        &mut self,
        id: CallId,
        call: &mut Running,
        now: Now,
    ) -> Result<Next, Refusal> {
        let Call::Close(handle) = call.call else { return Err(Refusal::Invalid) };
        if call.so_far.handling.closing.is_none() {
            let file = self.handles.remove(handle).ok_or(Refusal::Invalid)?;
            let is_mapped = file.writable && file.way != Way::Cached;
            let ino = file.ino;
            call.so_far.handling.closing = Some(file);
            if is_mapped {
                call.step = Some(Step::CloseMaps);
                self.act(Action::LogMaps(id, Some(ino)));
                return Ok(Next::Step);
            }
        }
        let Some(file) = call.so_far.handling.closing.clone() else { return Err(Refusal::Io) };
        if call.so_far.handling.is_sealed {
            // A release that fails here is the server's: it releases files of silent clients.
            drop(self.go_on_inner(id, call, now));
        } else {
            let ended = self.seal_closed(id, call, &file, now);
            if call.inner.is_some() {
                return Ok(Next::Step);
            }
            call.so_far.handling.is_sealed = true;
            call.so_far.handling.failed = ended.err();
            if self.closed(file.ino) && self.is_to_release(file.ino) {
                drop(self.begin_inner(id, call, release(file.ino, &file.caller), now));
            }
        }
        match (call.inner.is_some(), call.so_far.handling.failed) {
            (true, _) => Ok(Next::Step),
            (false, Some(refusal)) => Err(refusal),
            (false, None) => Ok(Next::Reply(Answer::default())),
        }
    }

    /// Seals the data of a handle that is being closed.
    fn seal_closed(
        &mut self,
        id: CallId,
        call: &mut Running,
        file: &OpenFile,
        now: Now,
    ) -> Result<(), Refusal> {
        if call.has_inner() {
            return self.go_on_inner(id, call, now).map(drop);
        }
        self.close_node(file.ino, file.way);
        if !file.writable && self.handles.writer(file.ino).is_some() {
            // What a writer has not closed is not for others, whoever else has read it.
            return Ok(());
        }
        let seal = Call::SealAtClose { ino: file.ino, caller: file.caller.clone() };
        self.begin_inner(id, call, seal, now).map(drop)
    }
}
