//! Disks that are full for a while.

use super::draws::Who;
use super::{Event, World};

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
}
