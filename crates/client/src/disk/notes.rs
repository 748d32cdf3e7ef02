//! The index on disk: what is cached is noted there once a second, and comes back from there
//! when it is not in memory. And what nobody needs any more goes.

use segue_core::host::action::{Done, Load, LostNotes, Noted, Undone};
use segue_core::host::cache::Scrap;
use segue_core::nouns::{Ino, Version};
use segue_core::refusal::Refusal;

use crate::clock::wall_millis;
use crate::disk::CacheDisk;

/// What the index says; one that cannot be read says nothing.
pub(crate) fn known<T>(what: &str, answer: rusqlite::Result<T>) -> Option<T> {
    answer.inspect_err(|error| tracing::warn!("cannot read {what}: {error}")).ok()
}

impl CacheDisk {
    /// The latest version of anything that this host knows.
    pub(crate) fn latest_known(&self) -> Option<Version> {
        let noted = known("index.db", self.index.latest()).flatten();
        noted.max(Some(self.host.lock().tree().latest()))
    }

    /// Forgets notes of the index, durably.
    pub(crate) fn forget_notes(&self, lost: &LostNotes) -> Result<Done, Undone> {
        let gone = self.index.forget_lost(&lost.history, |ino| lost.kept.contains(&ino));
        let gone = gone.and_then(|gone| self.index.sync().map(|()| gone));
        let gone = gone.map_err(|error| {
            tracing::error!("cannot write index.db: {error}");
            Refusal::Io
        })?;
        for (ino, container) in gone {
            let is_used = self.host.lock().needs_container(ino, container);
            if !is_used {
                self.remove(Scrap::Container(ino, container));
            }
        }
        Ok(Done::Carried)
    }

    /// Notes what is known now. What the log says up to here is durable before, with the data of
    /// which it speaks: so a loss of power cuts off nothing that the index has.
    pub(crate) fn note(&self) -> Result<(), Refusal> {
        let _noting = self.noting.lock();
        let (position, notes) = {
            let log = self.log.lock();
            (log.position(), self.host.lock().take_notes())
        };
        if notes.is_empty() {
            self.host.lock().noted(&notes, true);
            return Ok(());
        }
        self.let_young_go();
        let saved = match self.containers.put_down().and_then(|()| self.try_sync_disk()) {
            Ok(()) => self.index.save(&notes, position, wall_millis()).map_err(|error| {
                tracing::error!("cannot write index.db: {error}");
                Refusal::Io
            }),
            Err(error) => Err(self.disk_refusal("cache directory", &error)),
        };
        self.host.lock().noted(&notes, saved.is_ok());
        for (ino, container) in saved? {
            self.remove(Scrap::Container(ino, container));
        }
        Ok(())
    }

    /// Removes what nobody needs any more, once the log says so durably: a loss of power would
    /// bring back changes whose data are gone. A full disk needs the room more.
    pub(crate) fn sweep(&self) {
        let scrap = self.host.lock().take_scrap();
        if scrap.is_empty() {
            return;
        }
        if let Err(error) = self.try_sync_disk()
            && error.kind() != std::io::ErrorKind::StorageFull
        {
            tracing::warn!("cannot sync the log, so unneeded data stay on the disk: {error}");
            return self.host.lock().keep_scrap();
        }
        scrap.into_iter().for_each(|scrap| self.remove(scrap));
    }

    /// Removes unneeded containers that are in memory only, so that no files are made for them. If
    /// a loss of power brings back a change, the log has its bytes.
    pub(super) fn let_young_go(&self) {
        let mut scrap = self.host.lock().scrapped_containers();
        scrap.retain(|key| self.containers.remove_young(*key));
        if !scrap.is_empty() {
            self.host.lock().scrap_gone(&scrap);
        }
    }

    pub(crate) fn remove(&self, scrap: Scrap) {
        let removed = match scrap {
            Scrap::Container(ino, id) => self.containers.remove((ino, id)).map(drop),
            Scrap::Preserved(seq) => self.preserved.remove(seq),
        };
        if let Err(error) = removed {
            tracing::warn!("cannot remove {scrap:?}: {error}");
        }
    }

    /// Counts the room that containers take, and removes those that an earlier process left and
    /// nobody needs; `first` is the number of the first one of this process.
    pub(crate) fn sweep_left(&self, first: u64) {
        let mut found = Vec::new();
        self.containers.each(|key, path| match key {
            Some(key) if key.1.0 < first => found.push(key),
            Some(_) => {}
            None => {
                tracing::warn!("{}: removed, because it is no container file", path.display());
                std::fs::remove_file(path).ok();
            }
        });
        self.containers.count_all();
        // That nobody needs them may be in the log and not durable.
        if let Err(error) = self.try_sync_disk() {
            tracing::warn!("cannot sync the log, so unneeded data stay on the disk: {error}");
            return;
        }
        for (ino, id) in found {
            let noted = self.index.container(ino).ok().flatten() == Some(id);
            if !noted && !self.host.lock().needs_container(ino, id) {
                self.remove(Scrap::Container(ino, id));
            }
        }
    }

    /// Reads notes from the index.
    pub(crate) fn noted(&self, load: &Load) -> Noted {
        let node = |ino| known("index.db", self.index.node(ino)).flatten();
        match load {
            Load::FreeSpace | Load::Data(_) => Noted::default(),
            Load::Node(ino) => Noted { nodes: node(*ino).into_iter().collect(), names: Vec::new() },
            Load::Name(at) => {
                let meaning = known("index.db", self.index.name(at.parent, &at.name)).flatten();
                let nodes = [Some(at.parent), meaning.flatten()];
                let nodes = nodes.into_iter().flatten().filter_map(node).collect();
                let names = meaning.into_iter().map(|meaning| (at.name.clone(), meaning));
                Noted { nodes, names: names.collect() }
            }
            Load::Listing(directory) => {
                let mut noted = self.noted(&Load::Node(*directory));
                if !noted.nodes.iter().any(|note| note.is_listed) {
                    return noted;
                }
                let listing = known("index.db", self.index.listing(*directory));
                for (name, ino, note) in listing.unwrap_or_default() {
                    noted.nodes.extend(note);
                    noted.names.push((name, Some(ino)));
                }
                noted
            }
        }
    }

    /// Reads the note of an inode into memory.
    pub(crate) fn load_node(&self, ino: Ino) {
        if self.host.lock().tree().peek(ino).is_some() {
            return;
        }
        let load = Load::Node(ino);
        let noted = self.noted(&load);
        self.host.lock().install_noted(load, noted);
    }
}
