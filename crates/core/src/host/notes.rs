//! Noting on disk what is cached, so that the next process knows it.
//!
//! ```text
//!   changes ─▶ take_notes (with the place in the log) ─▶ index on disk ─▶ noted
//! ```
//!
//! Invariant: what is noted is all that was known at one place in the log; what the log says
//! after that place is not in it. So a process that dies anywhere leaves an index and a log that
//! together say what it knew (`recover`).

use std::time::Duration;

use super::Host;
use crate::host::action::{Load, Noted};
use crate::host::cache::{FileData, FileNote, TreeNotes};
use crate::nouns::{Dentry, Ino, Time, Version};

/// So many more inodes to note than at the last look are a burst, as when an archive is unpacked.
const BURST: usize = 200;
/// In a burst the index hears this long after the last time. Small new files that it does not know
/// of need no containers on the disk, and many are gone by then.
const BURST_LATE: Duration = Duration::from_secs(5);

/// When the index heard last, and how many inodes it has not heard of since.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::host) struct NotedLast {
    at: Time,
    unnoted: usize,
}

/// What the index on disk lacks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Notes {
    /// Names and attributes.
    pub tree: TreeNotes,
    /// Data.
    pub files: Vec<(Ino, FileNote)>,
    /// Files that were used since the last time.
    pub used: Vec<Ino>,
}

impl Notes {
    /// True if there is nothing to note.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.used.is_empty() && self.tree.is_empty()
    }

    /// The latest version in them that is believed. Changed data may be of one that the server is
    /// known to have forgotten: a server that has it again would not tell what else it has not.
    pub fn latest(&self) -> Option<Version> {
        let nodes = self.tree.nodes.iter().filter_map(|(_, note)| note.as_ref());
        nodes.map(|note| note.attr.latest()).max()
    }
}

impl Host {
    /// True if the index is to hear of what is known. Called once a second, it notes the turn.
    pub fn notes_now(&mut self, now: Time) -> bool {
        let unnoted = self.tree.unnoted();
        let more = unnoted.saturating_sub(self.noted_last.unnoted);
        let is_due = more < BURST || now.since(self.noted_last.at) >= BURST_LATE;
        self.noted_last = match is_due {
            true => NotedLast { at: now, unnoted: 0 },
            false => NotedLast { unnoted, ..self.noted_last },
        };
        is_due
    }

    /// What is to be noted. Call [`Host::noted`] afterwards, before the next of these.
    pub fn take_notes(&mut self) -> Notes {
        let tree = &self.tree;
        let note = |(ino, file): (&Ino, &mut FileData)| {
            let mut note = file.to_note()?;
            if tree.is_orphan(*ino) {
                // What is written to it is nobody's, and a server that is put back has it again.
                note.valid.clear();
            }
            Some((*ino, note))
        };
        let files = self.files.iter_mut().filter_map(note).collect();
        let used = std::mem::take(&mut self.used).into_iter().collect();
        let tree = self.tree.take_notes();
        let forgotten = tree.nodes.iter().filter(|(_, note)| note.is_none());
        self.forgetting = forgotten.map(|(ino, _)| *ino).collect();
        Notes { tree, files, used }
    }

    /// `notes` are on disk, or could not be put there. What is noted of files that nobody uses
    /// leaves memory.
    pub fn noted(&mut self, notes: &Notes, well: bool) {
        self.tree.noted(well);
        self.forgetting.clear();
        for (ino, _) in notes.files.iter().filter(|_| !well) {
            if let Some(file) = self.files.get_mut(ino) {
                file.not_noted();
            }
        }
        if !well {
            self.used.extend(&notes.used);
        }
        let open = &self.open;
        self.files.retain(|ino, file| {
            let is_noted = file.is_noted() && !file.is_mapped();
            !is_noted || file.is_ahead() || file.is_fetching() || open.contains_key(ino)
        });
    }

    /// Takes in notes of the index. Newer state stays.
    pub fn install_noted(&mut self, load: Load, noted: Noted) {
        noted.nodes.into_iter().for_each(|note| self.tree.install_note(note));
        match load {
            Load::Name(Dentry { parent, name }) => {
                let meaning = noted.names.into_iter().next().map(|(_, meaning)| meaning);
                // A directory whose names are all noted has no others.
                let is_all = self.tree.is_listed_on_disk(parent);
                if let Some(meaning) = meaning.or(is_all.then_some(None)) {
                    self.tree.install_noted_name(parent, name, meaning);
                }
            }
            Load::Listing(directory) if self.tree.is_listed_on_disk(directory) => {
                for (name, meaning) in noted.names {
                    self.tree.install_noted_name(directory, name, meaning);
                }
                self.tree.install_noted_listing(directory);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nouns::Kind;
    use crate::testing::attr;
    use crate::wire::Node;

    #[test]
    fn the_index_hears_at_once_but_later_in_a_burst() {
        let mut core = Host::new(10_000, 1);
        let mut next = 10;
        let mut learns = |core: &mut Host, many: usize| {
            for _ in 0..many {
                next += 1;
                let node = Node { attr: attr(next, Kind::File, 1), target: None };
                core.tree.install_node(node, Time::default());
            }
        };
        let at = |secs| Time(Duration::from_secs(secs));
        learns(&mut core, BURST - 1);
        assert!(core.notes_now(at(10)));
        let notes = core.take_notes();
        core.noted(&notes, true);
        for secs in 11..15 {
            learns(&mut core, BURST);
            assert!(!core.notes_now(at(secs)), "{secs}");
        }
        learns(&mut core, BURST);
        assert!(core.notes_now(at(15)), "not for ever");
        learns(&mut core, BURST);
        assert!(!core.notes_now(at(16)));
        assert!(core.notes_now(at(17)), "the burst is over");
    }
}
