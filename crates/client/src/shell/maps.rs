//! Writes of memory maps into containers, which pass by this process. They are logged as writes
//! of programs are.

use std::sync::Arc;

use segue_core::host::call::Call;
use segue_core::nouns::{ContainerId, Ino};
use segue_core::refusal::Refusal;

use crate::disk::files::{Container, LeftMap};
use crate::kernel::through::unwatch;
use crate::shell::Shell;

impl Shell {
    /// Logs what maps wrote into the containers of these files, or of all: not knowing where,
    /// as a write of everything, of which only what is new will be sent. What cannot be logged is
    /// tried again the next time; why the last of it could not be.
    pub(crate) fn note_maps(&self, only: Option<Ino>) -> Result<(), Refusal> {
        let mapped: Vec<_> = {
            let mapped = self.kernel.through.mapped.lock();
            let wanted = mapped.iter().filter(|((ino, _), _)| only.is_none_or(|only| only == *ino));
            wanted.map(|((ino, _), container)| (*ino, Arc::clone(container))).collect()
        };
        let mut noted = Ok(());
        for (ino, container) in mapped {
            if let Err(refusal) = self.note_map(ino, &container) {
                tracing::error!("inode {ino}: writes of a memory map are not logged: {refusal}");
                noted = Err(refusal);
            }
        }
        noted
    }

    /// No map is left anywhere.
    pub(crate) fn all_unmapped(&self) {
        self.note_maps(None).ok();
        let mapped = std::mem::take(&mut *self.kernel.through.mapped.lock());
        let mut core = self.host.lock();
        for ((ino, _), container) in mapped {
            unwatch(ino, &container);
            core.unmapped(ino, container.id);
        }
    }

    fn note_map(&self, ino: Ino, container: &Arc<Container>) -> Result<(), Refusal> {
        let _writing = container.writing();
        let changed = container.changed_by_map();
        if !changed.map_err(|error| self.disk.disk_refusal("containers", &error))? {
            return Ok(());
        }
        let logged = self.log_map(ino, container.id);
        let told = match logged {
            Ok(true) => Ok(()),
            // Nobody may take the stores for sent, and they are kept for the user.
            Ok(false) => {
                self.host.lock().refused(ino, Refusal::Io);
                let mapped =
                    container.file().map_err(|error| self.disk.disk_refusal("maps", &error));
                mapped.and_then(|file| self.disk.park_map((ino, container.id), file))
            }
            Err(refusal) => Err(refusal),
        };
        let marked = container.map_logged(told.is_ok());
        self.kernel.cache.forget_attributes(ino);
        told?;
        marked.map_err(|error| self.disk.disk_refusal("maps", &error))?;
        if logged == Ok(true) { Ok(()) } else { Err(Refusal::Io) }
    }

    /// Logs a container as written in full. False if the file has another one by now, because the
    /// server has other contents.
    fn log_map(&self, ino: Ino, container: ContainerId) -> Result<bool, Refusal> {
        match self.call(Call::Mapped { ino, container }) {
            Ok(_) => Ok(true),
            Err(Refusal::Changed) => Ok(false),
            Err(refusal) => Err(refusal),
        }
    }

    /// Logs the stores of maps that an earlier process could not log any more, or keeps them for
    /// the user. Without either this fails, and nothing may use these containers.
    pub(crate) fn note_left_maps(&self) -> Result<(), Refusal> {
        let left = self.kernel.through.maps.take_left();
        for map in &left {
            let (ino, id) = map.key;
            self.disk.load_node(ino);
            let logged = self.disk.load(ino).and_then(|()| self.log_map(ino, id));
            if logged != Ok(true) {
                self.disk.park_map(map.key, &map.file)?;
            }
        }
        if left.is_empty() {
            return Ok(());
        }
        self.disk.try_sync_disk().map_err(|error| self.disk.disk_refusal("update.log", &error))?;
        let forgotten = left.into_iter().try_for_each(LeftMap::forget);
        forgotten.map_err(|error| self.disk.disk_refusal("maps", &error))
    }
}
