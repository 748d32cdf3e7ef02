//! Damage for which hosts are asked: which part of a file is next, and how often.
//!
//! ```text
//!              found                    take_next
//!   (nothing) ───────▶ to be asked for ───────────▶ asked for lately
//!       ▲                                               │
//!       └───────────────────────────────────────────────┘ after AGAIN
//! ```
//!
//! A reader finds the same damage with each read, and a lost pack is damage to thousands of files.
//! So a part is asked for once in a while, and the parts are bounded. A part that finds no room is
//! found again by its next reader.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::nouns::{Ino, Time, VolumeId};

/// A file is looked through and asked for in parts of so many bytes. Damage comes in runs, of a
/// pack's length at most.
pub const PART_BYTES: u64 = 64 << 20;
/// So long after damage was found it is not asked for again.
const AGAIN: Duration = Duration::from_secs(15);

/// A part of a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DamagedPart {
    /// Its volume.
    pub volume: VolumeId,
    /// The file.
    pub ino: Ino,
    /// Its first byte, a multiple of [`PART_BYTES`].
    pub start: u64,
}

/// The parts in which damage was found lately.
#[derive(Debug)]
pub struct Healing {
    limit: usize,
    /// When each was found. Those that wait stay.
    found: BTreeMap<DamagedPart, Time>,
    waiting: VecDeque<DamagedPart>,
}

impl Healing {
    /// None yet, and never more than `limit`.
    pub fn new(limit: usize) -> Healing {
        Healing { limit, found: BTreeMap::new(), waiting: VecDeque::new() }
    }

    /// Damage was found at byte `offset` of a file. True if hosts are to be asked for it.
    pub fn found(&mut self, (volume, ino): (VolumeId, Ino), offset: u64, now: Time) -> bool {
        let part = DamagedPart { volume, ino, start: offset / PART_BYTES * PART_BYTES };
        if self.found.len() >= self.limit || self.found.contains_key(&part) {
            let waiting = &self.waiting;
            let is_late = |found: &Time| now.0 < found.0 + AGAIN;
            self.found.retain(|part, found| is_late(found) || waiting.contains(part));
        }
        if self.found.len() >= self.limit || self.found.contains_key(&part) {
            return false;
        }
        self.found.insert(part, now);
        self.waiting.push_back(part);
        true
    }

    /// The part that is to be asked for next.
    pub fn take_next(&mut self) -> Option<DamagedPart> {
        self.waiting.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: VolumeId = VolumeId(1);

    fn at(seconds: u64) -> Time {
        Time(Duration::from_secs(seconds))
    }

    #[test]
    fn a_part_is_asked_for_once_in_a_while() {
        let mut healing = Healing::new(9);
        let file = (VOLUME, Ino(7));
        assert!(healing.found(file, 5, at(0)));
        assert!(!healing.found(file, PART_BYTES - 1, at(1)), "the same part");
        assert!(healing.found(file, PART_BYTES, at(1)), "another part");
        assert!(!healing.found(file, 5, at(20)), "it waits still");
        let part = |start| DamagedPart { volume: VOLUME, ino: Ino(7), start };
        assert_eq!(healing.take_next(), Some(part(0)));
        assert_eq!(healing.take_next(), Some(part(PART_BYTES)));
        assert_eq!(healing.take_next(), None);
        assert!(healing.found(file, 5, at(20)));
        assert!(!healing.found(file, 5, at(34)));
        assert_eq!(healing.take_next(), Some(part(0)));
        assert!(healing.found(file, 5, at(35)));
    }

    #[test]
    fn parts_are_bounded_and_later_ones_find_room_again() {
        let mut healing = Healing::new(2);
        let mut found = |ino, seconds| healing.found((VOLUME, Ino(ino)), 0, at(seconds));
        assert_eq!([1, 2, 3].map(|ino| found(ino, 0)), [true, true, false]);
        assert!(!found(3, 60), "those that wait keep their room");
        assert!(healing.take_next().is_some());
        assert!(healing.found((VOLUME, Ino(3)), 0, at(60)));
    }
}
