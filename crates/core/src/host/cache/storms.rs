//! Lookups that go to the server, by directory: many of them are a reason to fetch the listing.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Tree;
use crate::nouns::{Ino, Time};
use crate::wire::PAGE_MAX;

/// Lookups are counted for so long.
const WINDOW: Duration = Duration::from_secs(1);
/// So many in one directory meanwhile, and a long listing is fetched instead.
const STORM: u32 = 4;
/// The same where the listing was short when it was seen last.
const STORM_IN_SMALL: u32 = 1;
/// A listing of so many names costs about as much as one name.
const SMALL: u32 = 64;
/// How long a directory is known to be longer than a listing that was fetched for a lookup.
const BIG_FOR: Duration = Duration::from_secs(60);

/// All directories with lookups that went to the server lately.
#[derive(Debug, Default)]
pub(in crate::host) struct Storms(BTreeMap<Ino, Storm>);

/// Lookups that went to the server for one directory.
#[derive(Debug)]
struct Storm {
    /// When the window began that `lookups` counts; what was waited for answers in it does not
    /// count, or there would be no storm on a slow link.
    since: Time,
    lookups: u32,
    /// Its listing has more names than this, as of lately.
    longer_than: u32,
}

impl Storms {
    /// A name in `parent` is to be asked for. How much of the listing to fetch instead: a small
    /// directory is learnt whole with its first name, which then needs no network; a larger one
    /// when names of it are asked for again and again.
    pub(in crate::host) fn listing_instead(
        &mut self,
        tree: &Tree,
        parent: Ino,
        now: Time,
    ) -> Option<u32> {
        self.0.retain(|_, storm| now.since(storm.since) < BIG_FOR);
        let calm = Storm { since: now, lookups: 0, longer_than: 0 };
        let storm = self.0.entry(parent).or_insert(calm);
        if now.since(storm.since) > WINDOW {
            storm.since = now;
            // A directory that is looked at again and again stays one.
            storm.lookups /= 2;
        }
        storm.lookups += 1;
        let is_small = tree.is_listed_within(parent, SMALL as usize);
        let is_storming = storm.lookups > if is_small { STORM_IN_SMALL } else { STORM };
        if !is_storming && tree.has_listing(parent) {
            return None;
        }
        let limit = if is_storming { PAGE_MAX } else { SMALL };
        (storm.longer_than < limit).then_some(limit)
    }

    /// Somebody waited for an answer about a name in `parent` that was asked for then.
    pub(in crate::host) fn waited(&mut self, parent: Ino, [asked, now]: [Time; 2]) {
        if let Some(storm) = self.0.get_mut(&parent) {
            storm.since = Time(storm.since.0 + now.since(asked));
        }
    }

    /// The listing of `directory` has more names than this.
    pub(in crate::host) fn note_longer(&mut self, directory: Ino, than: u32) {
        if let Some(storm) = self.0.get_mut(&directory) {
            storm.longer_than = than;
        }
    }
}
