//! Memory maps: programs write to containers that the kernel reads, and nobody tells.

use segue_core::host::Host;
use segue_core::host::log::covered_by;
use segue_core::nouns::{Ino, Time};

use super::container::put;
use super::{HostDisk, Key};

impl HostDisk {
    /// From now on a map may write to this container. The index knows nothing of it as valid.
    pub(crate) fn watch_maps(&mut self, core: &mut Host, key: Key, now: Time) {
        core.mapped(key.0);
        self.kept.maps.entry(key).or_default();
        self.note(core, now);
    }

    /// True if a map may write to this container.
    pub(crate) fn is_watched(&self, key: Key) -> bool {
        self.kept.maps.contains_key(&key)
    }

    /// True if the next process would write bytes to this container that the log has.
    pub(crate) fn is_redone(&self, key: Key) -> bool {
        covered_by(&self.kept.log).contains_key(&key)
    }

    /// A map writes. It cannot make the file longer.
    pub(crate) fn map_store(&mut self, key: Key, offset: u64, bytes: &[u8]) {
        put(self.kept.bytes_of_container(key), offset, bytes);
        self.kept.maps.insert(key, true);
        self.counts.map_stores += 1;
    }

    /// Containers that maps wrote to since that was logged.
    pub(crate) fn changed_maps(&self, only: Option<Ino>) -> Vec<Key> {
        let is_meant = |(key, is_changed): &(&Key, &bool)| {
            **is_changed && only.is_none_or(|only| only == key.0)
        };
        self.kept.maps.iter().filter(is_meant).map(|(key, _)| *key).collect()
    }

    /// The log says that all of a container was written, or that is kept for the user.
    pub(crate) fn map_logged(&mut self, core: &Host, key: Key, is_logged: bool) {
        self.kept.maps.insert(key, false);
        if !is_logged {
            self.counts.refused += 1;
            return;
        }
        let size = core.tree().peek(key.0).map_or(0, |attr| attr.size);
        let mut bytes = self.kept.bytes_of_container(key).clone();
        bytes.resize(super::container::place(size), 0);
        self.acknowledged.wrote(key.0, 0, &bytes, size);
    }

    /// No map is left. The writes of the maps are logged.
    pub(crate) fn all_unmapped(&mut self, core: &mut Host) {
        for (ino, container) in std::mem::take(&mut self.kept.maps).into_keys() {
            core.unmapped(ino, container);
        }
    }
}
