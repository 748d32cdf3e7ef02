//! Disks that are full for a while, and limits of the volume and of directories.

use segue_core::namespace::Limits;
use segue_core::nouns::Name;

use super::draws::Who;
use super::{Event, World};
use crate::Violation;

/// For how long, in milliseconds.
const FULL: std::ops::Range<u64> = 500..30_000;

impl World {
    pub(super) fn room(&mut self, event: &Event) {
        let ends = match event {
            Event::Fill(client) => {
                self.full[*client] = true;
                Event::Empty(*client)
            }
            Event::ServerFill => {
                self.server.is_full = true;
                Event::ServerEmpty
            }
            Event::Empty(client) => {
                self.full[*client] = false;
                return self.recurs(Event::Fill(*client));
            }
            _ => {
                self.server.is_full = false;
                return self.recurs(Event::ServerFill);
            }
        };
        self.summary.full_disks += 1;
        let wait = self.draws.millis(Who::Fault(ends.host()), FULL);
        self.after(wait, ends);
    }

    /// An administrator limits the volume, or a directory, or takes a limit away.
    pub(super) fn limit(&mut self) -> Result<(), Violation> {
        if !self.server_up {
            return Ok(());
        }
        let rng = self.draws.of(Who::Fault(None));
        let depth = rng.pick(&[0, 1, 1, 2]);
        let names = (0..depth).filter_map(|_| Name::new(rng.pick(&["d", "e"])).ok());
        let path: Vec<Name> = names.collect();
        let bytes = rng.pick(&[None, Some(50), Some(500), Some(3000)]);
        let inodes = rng.pick(&[None, None, Some(3), Some(12)]);
        self.server.limit(&path, Limits { bytes, inodes }, self.now)?;
        self.summary.limits += 1;
        self.tell_all();
        Ok(())
    }
}
