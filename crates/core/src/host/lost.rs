//! What a host knows of a volume that was put back from a copy: some of it has never been.

use super::Host;
use crate::host::cache::FileData;
use crate::nouns::{Ino, Version};
use crate::wire::History;

impl Host {
    /// The volume has the versions of `history`: what is known of others is asked for again. The
    /// files of which data were dropped. What this host changed stays, and was made from data that
    /// are nowhere else: it may become a conflict copy.
    pub fn forget_lost(&mut self, history: &History) -> Vec<Ino> {
        self.tree.forget_lost(history);
        let is_lost = |file: &FileData| !history.has(file.version()) && !file.is_ahead();
        let lost = self.files.iter().filter(|(_, file)| is_lost(file));
        let lost: Vec<Ino> = lost.map(|(ino, _)| *ino).collect();
        for &ino in &lost {
            let fresh = self.fresh_container();
            let Some(file) = self.files.get_mut(&ino) else { continue };
            let old = file.container();
            file.discard(Version::default(), fresh);
            self.abandon(ino, old);
        }
        lost
    }
}
