//! Handles of files, and the containers that the kernel reads by itself meanwhile.

use segue_core::host::action::Event;
use segue_core::host::cache::{Nodes, Way};
use segue_core::host::call::{Call, NewHandle, OpenHandle};
use segue_core::nouns::Ino;
use segue_core::refusal::Refusal;
use segue_fuse::BackingId;

use crate::kernel::through::AllBehind;
use crate::shell::{OpeningHandle, Ran, Running, Shell, cannot_wait};

impl Shell {
    /// A handle of what the kernel calls a node, and what the kernel reads, unless it asks for it.
    pub(crate) fn open_handle(
        &self,
        open: OpenHandle,
    ) -> Result<(NewHandle, Option<BackingId>), Refusal> {
        let ino = Nodes::ino(open.node);
        // Who comes second finds what the first has had the kernel read.
        let mut behind = self.kernel.through.behind.lock();
        // Nobody changes it before the kernel reads it.
        let _writing = open.only_reads.then(|| self.disk.containers.writing(ino));
        let call = Call::OpenHandle(open);
        let mut running = Running::new(self, &call);
        running.opening = Some(OpeningHandle::default());
        let event = Event::Call { id: running.id, call };
        let ran = self.run(&mut running, event, &[]);
        let OpeningHandle { backed, ended } = running.opening.take().unwrap_or_default();
        backed.into_iter().for_each(|backed| drop(behind.insert(ino, backed)));
        ended.into_iter().for_each(|ino| self.end_backing(&mut behind, ino));
        let handle = match ran {
            Ran::Answered(answer) => answer?.answer.handle.ok_or(Refusal::Io)?,
            Ran::Asks(ask) => return Err(cannot_wait(&ask)),
        };
        let backing = behind.get(&ino).filter(|_| handle.way != Way::Cached);
        Ok((handle, backing.map(|behind| behind.backing.id())))
    }

    /// The kernel reads no container of `ino` any more, unless it was opened since.
    pub(super) fn end_backing(&self, behind: &mut AllBehind, ino: Ino) {
        let is_read = self.host.lock().nodes().is_read(ino);
        if !is_read {
            behind.remove(&ino);
        }
    }

    /// The last reference to a handle is gone.
    pub(crate) fn close_handle(&self, handle: u64) {
        if let Err(refusal) = self.call(Call::Close(handle)) {
            tracing::error!("the last writes to a file are not queued yet: {refusal}");
        }
    }
}
